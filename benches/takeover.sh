#!/usr/bin/env bash
# How long a new leader takes with 100,000 ended and 4,096 waiting scans in a real etcd: coordinator/examples/takeover.rs
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
etcd=$(tools/get-etcd)
folder=$(mktemp -d)
"$etcd" --name own --data-dir "$folder" --listen-client-urls http://127.0.0.1:23790 --advertise-client-urls http://127.0.0.1:23790 \
    --listen-peer-urls http://127.0.0.1:23800 --initial-advertise-peer-urls http://127.0.0.1:23800 \
    --initial-cluster own=http://127.0.0.1:23800 --log-level error &
running=$!
trap 'kill "$running"; wait "$running" 2>/dev/null || true; rm -rf "$folder"' EXIT
until (exec 3<>/dev/tcp/127.0.0.1/23790) 2>/dev/null; do sleep 0.1; done
cargo run --profile "${TRAWL_PROFILE:-release}" --quiet -p trawl-coordinator --example takeover -- http://127.0.0.1:23790 "$@"
