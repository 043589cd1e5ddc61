#!/usr/bin/env bash
# Adaptive Trend Classification of a market: the definition bar by bar, one thread, all threads, f32. Prints the table and
# keeps benches/results/atc-DATE.json.
#
#   benches/atc.sh [--symbols N] [--bars N] [--repeats N]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
cargo build --locked --release --quiet -p trawl-bench
bench=${CARGO_TARGET_DIR:-target}/release/trawl-bench
"$bench" atc "$@"
"$bench" atc --json "$@" >"benches/results/atc-$(date -u +%F).json"
