#!/usr/bin/env bash
# What counting costs, and what a scrape does: telemetry/examples/metrics_cost.rs
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec cargo run --release --quiet -p trawl-telemetry --example metrics_cost
