#!/usr/bin/env bash
# Parity and speed of plans on this machine's GPU: `trawl bench gpu`, whose report is kept as benches/results/gpu-DATE.json. It needs
# the executable, and NVIDIA's driver and run-time compiler (TRAWL_CUDA_LIBRARIES names folders). Without a GPU it fails and keeps nothing;
# results of a simulated device are never kept.
#
#   benches/gpu.sh [--executable FILE] [options of `trawl bench gpu`]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
if [ "${1:-}" = --executable ]; then
    executable=$2
    shift 2
else
    cargo build --locked --profile dist -p trawl
    executable=$(realpath "${CARGO_TARGET_DIR:-target}")/dist/trawl
fi
# NVIDIA's libraries in Python wheels, if a python3 has them.
wheels=$(python3 -c 'import glob, site; print(":".join(p for s in site.getsitepackages() for p in glob.glob(s + "/nvidia/*/lib")))' 2>/dev/null || true)
export TRAWL_CUDA_LIBRARIES=${TRAWL_CUDA_LIBRARIES:-$wheels}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
ended=0
"$executable" bench gpu --report "$scratch/gpu.json" "$@" || ended=$?
if [ -f "$scratch/gpu.json" ]; then
    if grep -q '"simulated": true' "$scratch/gpu.json"; then
        echo "benches/gpu.sh: simulated, so nothing is kept" >&2
    else
        kept=benches/results/gpu-$(date -u +%F).json
        cp "$scratch/gpu.json" "$kept"
        echo "kept $kept"
    fi
fi
exit "$ended"
