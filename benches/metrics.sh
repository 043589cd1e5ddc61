#!/usr/bin/env bash
# The cost of counting and of a scrape: telemetry/examples/metrics_cost.rs
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec cargo run --release --quiet -p trawl-telemetry --example metrics_cost
