#!/usr/bin/env bash
# How long planning takes: a sweep of 16,384 Bollinger bands, from the document to what is run, on one thread. Planning is to
# take less than a second. Prints the figures and keeps benches/results/plan-DATE.json.
#
#   benches/plan.sh [SETTINGS] [REPEATS]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
cargo build --locked --release --quiet -p trawl-kernels --example plan_sweep
"${CARGO_TARGET_DIR:-target}"/release/examples/plan_sweep "$@" | tee "benches/results/plan-$(date +%F).json"
