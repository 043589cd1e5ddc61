#!/usr/bin/env bash
# The screen W1: nanoseconds per bar of fifteen indicators, one thread, f64: Trawl's and, in the same run on the same
# machine over the same shape of data, TA-Lib's and vector-ta's. Prints a table, keeps benches/results/screen-DATE.json.
# The first build of vector-ta takes minutes; if it cannot be built the table omits it.
#
#   benches/screen.sh [--symbols N] [--bars N] [--repeats N]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
python=$(tools/get-venv)
cargo build --locked --release --quiet -p trawl-bench
target=$(realpath "${CARGO_TARGET_DIR:-target}")
peers=()
# With a stable compiler vector-ta cannot choose instruction sets at run time: it is compiled for this machine's.
if (cd benches/peers && RUSTFLAGS="-C target-cpu=native" cargo build --locked --release --quiet --target-dir "$target/peers"); then
    peers=(--peers "$target/peers/release/peers")
else
    echo "benches/screen.sh: vector-ta does not build here and is left out" >&2
fi
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
"$target/release/trawl-bench" screen --json "$@" >"$scratch/trawl.json"
"$python" benches/talib_screen.py "$scratch/trawl.json" "${peers[@]}" --results benches/results
