#!/usr/bin/env bash
# How a cluster of three workers grows with the number of symbols, up to 200,000 of 250 bars: time, CPU time, memory of the coordinator and the
# client, and the exponents. Prints a table and keeps benches/results/symbols-DATE.json (a quick run: --out FILE).
#
#   benches/symbols.sh [--sizes N,N] [--bars N] [--repeats N] [--out FILE]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
if [ -z "${TRAWL:-}" ]; then
    cargo build --locked --release --quiet -p trawl
    TRAWL=$(realpath "${CARGO_TARGET_DIR:-target}")/release/trawl
fi
"$(tools/get-venv)" benches/symbols.py --trawl "$TRAWL" --etcd "$(tools/get-etcd)" --out "benches/results/symbols-$(date +%F).json" "$@"
