#!/usr/bin/env bash
# The planner and the scheduler at 1,000 workers and 1,000,000 symbols: time of a plan, events a second, cost of churn; then the
# dispatcher around them, with the results that workers send: events a second, for different numbers of workers. Prints tables and keeps
# benches/results/scheduler-DATE.json.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
cargo build --locked --release --quiet -p trawl-bench
bench="${CARGO_TARGET_DIR:-target}/release/trawl-bench"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
"$bench" scheduler
"$bench" scheduler --json >"$scratch/scheduler"
# Its own task is not part of the library's interface: a test measures it.
TRAWL_BENCH_DISPATCHER="64000 20 10,100,1000" cargo test --locked --release --quiet -p trawl-coordinator --lib -- \
    --nocapture all_results_of_many_shards | grep '^{' | tee "$scratch/dispatcher"
"$(tools/get-venv)" - "$scratch" >"benches/results/scheduler-$(date +%F).json" <<'PYTHON'
import json, sys
report = json.load(open(f"{sys.argv[1]}/scheduler"))
report["dispatcher"] = [json.loads(line) for line in open(f"{sys.argv[1]}/dispatcher")]
json.dump(report, sys.stdout, indent=2)
print()
PYTHON
