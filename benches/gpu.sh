#!/usr/bin/env bash
# Parity and speed of plans on this machine's GPU, compared with CuPy and numba.cuda; the report is kept as
# benches/results/gpu-DATE.json. It needs NVIDIA's driver and run-time compiler (TRAWL_CUDA_LIBRARIES names folders), python3 with NumPy for
# the peers, and CuPy and numba-cuda where those are to be compared. Without a GPU it fails and keeps nothing; results of the driver of tests
# are never kept.
#
# Each step takes less than nine minutes and can be run by itself, with the same --scratch folder; the last one keeps the report:
#   figures    `trawl bench gpu`: everything but the sanitizer
#   sanitizer  compute-sanitizer over a few plans, where it is installed
#   peers      bars and outputs of W1 and Adaptive Trend Classification as files, the peers' times and how their values differ
#   keep       benches/results/gpu-DATE.json of what the steps before have measured
#
#   benches/gpu.sh [--executable FILE] [--steps figures,sanitizer,peers,keep] [--scratch DIR] [options of `trawl bench gpu`]
#
# To measure on a machine without Rust, take along a stripped executable (`cargo build --profile dist`), this script and benches/gpu_*.py.
set -euo pipefail
repository=$(realpath "$(dirname "${BASH_SOURCE[0]}")/..")
executable='' steps=figures,sanitizer,peers,keep scratch=''
while [ $# -gt 0 ]; do
    case $1 in
        --executable) executable=$(realpath "$2") ;;
        --steps) steps=$2 ;;
        --scratch) scratch=$(realpath -m "$2") ;;
        *) break ;;
    esac
    shift 2
done
cd "$repository"
if [ -z "$executable" ] && [ "$steps" != keep ]; then
    cargo build --locked --profile dist -p trawl
    executable=$(realpath "${CARGO_TARGET_DIR:-target}")/dist/trawl
fi
if [ -z "$scratch" ]; then
    scratch=$(mktemp -d)
    trap 'rm -rf "$scratch"' EXIT
fi
mkdir -p "$scratch"
# Seconds of one step, at most.
limit=520
python=${PYTHON:-python3}
# NVIDIA's libraries in Python wheels, if a python3 has them.
wheels=$("$python" -c 'import glob, site; print(":".join(p for s in site.getsitepackages() for p in glob.glob(s + "/nvidia/*/lib")))' 2>/dev/null || true)
export TRAWL_CUDA_LIBRARIES=${TRAWL_CUDA_LIBRARIES:-$wheels}
ended=0

# The clock of the multiprocessors now and at most, in MHz, each second while a step runs.
clocks() {
    command -v nvidia-smi >/dev/null || return 0
    exec nvidia-smi --query-gpu=clocks.sm,clocks.max.sm --format=csv,noheader,nounits --id=0 --loop=1 2>/dev/null
}

step() {
    local name=$1 watching=''
    shift
    echo "== $name"
    if [ "$name" = figures ]; then
        clocks >"$scratch/clocks.csv" &
        watching=$!
    fi
    timeout "$limit" "$@" || ended=$?
    [ -z "$watching" ] || kill "$watching" 2>/dev/null || true
}

peers() {
    local options=()
    # The market alone: the other options are the sections'.
    while [ $# -gt 0 ]; do
        case $1 in
            --symbols | --bars) options+=("$1" "$2") && shift ;;
            --symbols=* | --bars=*) options+=("$1") ;;
        esac
        shift
    done
    "$executable" bench gpu --dump "$scratch/dump" "${options[@]}" &&
        PYTHONDONTWRITEBYTECODE=1 "$python" benches/gpu_peers.py "$scratch/dump" --report "$scratch/peers.json"
}
export -f peers
export executable scratch python

for name in ${steps//,/ }; do
    case $name in
        figures) step figures "$executable" bench gpu --report "$scratch/figures.json" "$@" ;;
        sanitizer) step sanitizer "$executable" bench gpu --sections sanitizer --report "$scratch/sanitizer.json" ;;
        peers)
            step peers bash -c 'peers "$@"' peers "$@"
            rm -rf "$scratch/dump"
            ;;
        keep)
            [ -f "$scratch/figures.json" ] || { echo "benches/gpu.sh: no figures to keep" >&2 && exit 1; }
            reports=("$scratch/figures.json")
            [ ! -f "$scratch/sanitizer.json" ] || reports+=("$scratch/sanitizer.json")
            kept=benches/results/gpu-$(date -u +%F).json
            if "$python" benches/gpu_report.py "$kept" "${reports[@]}" --peers "$scratch/peers.json" --clocks "$scratch/clocks.csv"; then
                echo "kept $kept"
            else
                ended=1
            fi
            ;;
        *) echo "benches/gpu.sh: no step '$name'" >&2 && exit 2 ;;
    esac
done
exit "$ended"
