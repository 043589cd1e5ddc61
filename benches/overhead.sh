#!/usr/bin/env bash
# What a cluster of four workers adds to their computing, on this machine: 10,000 symbols resident, recorded and ephemeral, and
# 1,000 concurrent small scans, ephemeral and recorded, each with a plan of its own, over one connection. Prints a table and
# keeps benches/results/overhead-DATE.json.
#
#   benches/overhead.sh [--repeats N] [--concurrent N]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
etcd=$(tools/get-etcd)
cargo build --locked --release --quiet -p trawl -p trawl-bench
trawl=$(realpath "${CARGO_TARGET_DIR:-target}")/release/trawl
bench=${trawl}-bench
scratch=$(mktemp -d)
export TRAWL_DATA_ROOT="$scratch/data"
"$trawl" data synth --symbols 10000 --bars 250 --seed 1 --dataset big >/dev/null
"$trawl" data synth --symbols 64 --bars 250 --seed 1 --dataset small >/dev/null
"$trawl" cluster up --workers 4 --threads 1 --listen 127.0.0.1:0 --etcd-binary "$etcd" >"$scratch/up" 2>"$scratch/log" &
cluster=$!
trap 'kill -INT $cluster 2>/dev/null; wait $cluster 2>/dev/null || true; rm -rf "$scratch"' EXIT
for _ in $(seq 300); do grep -q '^ready cluster' "$scratch/up" && break; sleep 0.1; done
word() { grep -m1 '^ready cluster' "$scratch/up" | tr ' ' '\n' | sed -n "s/^$1=//p"; }
run() { "$bench" overhead --coordinator "$(word url)" --etcd "$(word etcd)" --dataset big --small small --cluster $cluster "$@"; }
run --json "$@" >"$scratch/json"
mv "$scratch/json" "benches/results/overhead-$(date +%F).json"
run "$@"
