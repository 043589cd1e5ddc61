#!/usr/bin/env bash
# Parity and speed of plans on this machine's GPUs, compared with CuPy and numba.cuda, what devices gain by each feature, and a soak; the
# report is kept as benches/results/gpu-DATE.json. It needs NVIDIA's driver and run-time compiler (TRAWL_CUDA_LIBRARIES names folders), python3
# with NumPy for the peers, and CuPy and numba-cuda where those are to be compared. Without a GPU it fails and keeps nothing; results of the
# driver of tests are never kept, but for --dry-run, which writes them to the scratch folder.
#
# Each step takes less than nine minutes and can be run by itself, with the same --scratch folder; the last one keeps the report:
#   figures    `trawl bench gpu`: everything but the sanitizer, in f64 and f32
#   devices    `trawl bench devices`: overlap, streams, memory modes, graphs, prefetching, NCCL (one rank on any GPU), several GPUs
#   soak       `trawl bench devices --soak`: two minutes in which nothing may grow
#   sanitizer  compute-sanitizer over a few plans, where it is installed
#   peers      bars and outputs of W1 and Adaptive Trend Classification as files, the peers' times and how their values differ
#   keep       benches/results/gpu-DATE.json (or in --keep-in DIR) of what the steps before have measured
#
#   benches/gpu.sh [--executable FILE] [--steps figures,devices,soak,sanitizer,peers,keep] [--scratch DIR] [--keep-in DIR] [--dry-run]
#                  [options of `trawl bench gpu`]
#
# To measure on a machine without Rust and network, take along a stripped executable (`cargo build --profile dist`, or a release one after
# `strip`), this script and benches/gpu_*.py. FILE may be compressed by gzip, which makes it a third. Where a command may take ten minutes, three calls do it, on the same machine:
#   benches/gpu.sh --executable trawl --scratch target/gpu --steps figures
#   benches/gpu.sh --executable trawl --scratch target/gpu --steps devices,soak,peers
#   benches/gpu.sh --executable trawl --scratch target/gpu --steps sanitizer,keep
# Before that, on the test driver (its folder in TRAWL_CUDA_LIBRARIES): add --dry-run --symbols 70 --bars 40 --long-bars 300 --repeats 2 --functions 12
set -euo pipefail
repository=$(realpath "$(dirname "${BASH_SOURCE[0]}")/..")
executable='' steps=figures,devices,soak,sanitizer,peers,keep scratch='' keep_in='' dry='' soak_s=120
while [ $# -gt 0 ]; do
    case $1 in
        --executable) executable=$(realpath "$2") && shift 2 ;;
        --steps) steps=$2 && shift 2 ;;
        --scratch) scratch=$(realpath -m "$2") && shift 2 ;;
        --keep-in) keep_in=$(realpath -m "$2") && shift 2 ;;
        --dry-run) dry=--simulated soak_s=4 && shift ;;
        *) break ;;
    esac
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
case $executable in
    *.gz)
        gzip -dc "$executable" >"$scratch/trawl"
        chmod +x "$scratch/trawl"
        executable=$scratch/trawl
        ;;
esac
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
    # What a step measured before says nothing of this run.
    rm -f "$scratch/$name.json"
    timeout "$limit" "$@" || ended=$?
    [ -z "$watching" ] || kill "$watching" 2>/dev/null || true
}

# The market's options alone, in `market`: the others are the sections'.
market=()
market_of() {
    while [ $# -gt 0 ]; do
        case $1 in
            --symbols | --bars) market+=("$1" "$2") && shift ;;
            --symbols=* | --bars=*) market+=("$1") ;;
        esac
        shift
    done
}
market_of "$@"

peers() {
    "$executable" bench gpu --dump "$scratch/dump" "$@" &&
        PYTHONDONTWRITEBYTECODE=1 "$python" benches/gpu_peers.py "$scratch/dump" --report "$scratch/peers.json"
}
export -f peers
export executable scratch python

for name in ${steps//,/ }; do
    case $name in
        figures) step figures "$executable" bench gpu --report "$scratch/figures.json" "$@" ;;
        devices) step devices "$executable" bench devices --report "$scratch/devices.json" "${market[@]}" ;;
        soak) step soak "$executable" bench devices --soak "$soak_s" --report "$scratch/soak.json" "${market[@]}" ;;
        sanitizer) step sanitizer "$executable" bench gpu --sections sanitizer --report "$scratch/sanitizer.json" ;;
        peers)
            step peers bash -c 'peers "$@"' peers "${market[@]}"
            rm -rf "$scratch/dump"
            ;;
        keep)
            [ -f "$scratch/figures.json" ] || { echo "benches/gpu.sh: no figures to keep" >&2 && exit 1; }
            reports=("$scratch/figures.json")
            [ ! -f "$scratch/sanitizer.json" ] || reports+=("$scratch/sanitizer.json")
            folder=${keep_in:-benches/results}
            [ -z "$dry" ] || folder=$scratch
            mkdir -p "$folder"
            kept=$folder/gpu-$(date -u +%F).json
            if "$python" benches/gpu_report.py "$kept" "${reports[@]}" --peers "$scratch/peers.json" --clocks "$scratch/clocks.csv" \
                --devices "$scratch/devices.json" --soak "$scratch/soak.json" $dry; then
                echo "kept $kept"
            else
                ended=1
            fi
            ;;
        *) echo "benches/gpu.sh: no step '$name'" >&2 && exit 2 ;;
    esac
done
exit "$ended"
