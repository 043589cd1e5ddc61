#!/usr/bin/env bash
# The planner and the scheduler at 1,000 workers and 1,000,000 symbols: time of a plan, events a second, cost of churn.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
cargo run --release --quiet -p trawl-coordinator --example scheduler_scale
