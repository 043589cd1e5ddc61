#!/usr/bin/env bash
# The screen W1: nanoseconds per bar of fifteen indicators, one thread, f64: Trawl's and, in the same run on the same
# machine over the same shape of data, TA-Lib's. Prints a table, keeps benches/results/screen-DATE.json.
#
#   benches/screen.sh [--symbols N] [--bars N] [--repeats N]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
python=$(tools/get-venv)
cargo build --locked --release --quiet -p trawl
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
"${CARGO_TARGET_DIR:-target}/release/trawl" bench screen --json "$@" >"$scratch/trawl.json"
"$python" benches/talib_screen.py "$scratch/trawl.json" --results benches/results
