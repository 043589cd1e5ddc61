#!/usr/bin/env bash
# One new bar of 10,000 symbols through the screen W1 with its state resident, on two threads; compared with the last bar from
# the whole histories. Prints a table and keeps benches/results/update-DATE.json.
#
#   benches/update.sh [--symbols N] [--bars N] [--updates N] [--threads N]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
cargo build --locked --release --quiet -p trawl-bench
bench=$(realpath "${CARGO_TARGET_DIR:-target}")/release/trawl-bench
"$bench" update "$@"
"$bench" update --json "$@" >"benches/results/update-$(date +%F).json"
