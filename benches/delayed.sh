#!/usr/bin/env bash
# What a network costs a warm scan of 10,000 symbols over four workers: the client and the workers are reached through proxies that pass on every
# piece of data a millisecond later, in both directions, and for comparison at once. The difference, in round trips of two milliseconds, is
# how often a scan waits for the network. etcd is not delayed: an ephemeral scan does not wait for it. Prints tables and keeps
# benches/results/delayed-DATE.json.
#
#   benches/delayed.sh [--repeats N]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
etcd=$(tools/get-etcd)
python=$(tools/get-venv)
if [ -z "${TRAWL_BENCH:-}" ]; then
    cargo build --locked --release --quiet -p trawl -p trawl-bench
    TRAWL_BENCH=$(realpath "${CARGO_TARGET_DIR:-target}")/release/trawl-bench
fi
bench=$TRAWL_BENCH trawl=${TRAWL:-${TRAWL_BENCH%-bench}}
scratch=$(mktemp -d)
export TRAWL_DATA_ROOT="$scratch/data" TRAWL_LOG=warn
"$trawl" data synth --symbols 10000 --bars 250 --seed 1 --dataset big >/dev/null
"$trawl" data synth --symbols 64 --bars 250 --seed 1 --dataset small >/dev/null
started=()
stop() { for p in "${started[@]}"; do kill "$p" 2>/dev/null || true; done; wait 2>/dev/null || true; started=(); }
trap 'stop; rm -rf "$scratch"' EXIT
free() { "$python" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }
measure() { # NAME DELAY_MS
    local client peer port links=() workers=() n coordinator=127.0.0.1:$(free) front=127.0.0.1:$(free)
    client=$(free) peer=$(free)
    "$etcd" --data-dir "$scratch/etcd-$1" --listen-client-urls "http://127.0.0.1:$client" --advertise-client-urls "http://127.0.0.1:$client" \
        --listen-peer-urls "http://127.0.0.1:$peer" --initial-advertise-peer-urls "http://127.0.0.1:$peer" \
        --initial-cluster "default=http://127.0.0.1:$peer" --log-level error 2>"$scratch/etcd.log" &
    started+=($!)
    links+=(--link "$front=$coordinator")
    for n in 1 2 3 4; do
        port=127.0.0.1:$(free) workers[n]=127.0.0.1:$(free)
        links+=(--link "${workers[n]}=$port")
        "$trawl" worker --etcd "http://127.0.0.1:$client" --id "w$n" --threads 1 --listen "$port" --advertise "${workers[n]}" >/dev/null 2>"$scratch/w$n.log" &
        started+=($!)
    done
    "$bench" delay --ms "$2" "${links[@]}" >"$scratch/delay" &
    started+=($!)
    "$trawl" coordinator --etcd "http://127.0.0.1:$client" --id c --listen "$coordinator" >/dev/null 2>"$scratch/c.log" &
    started+=($!)
    for _ in $(seq 300); do
        [ "$("$trawl" workers --coordinator "http://$front" 2>/dev/null | grep -c '^w[1-4] ')" = 4 ] && break
        sleep 0.1
    done
    "$bench" overhead --coordinator "http://$front" --etcd "http://127.0.0.1:$client" --dataset big --small small --json "${@:3}" >"$scratch/$1.json"
    stop
}
measure at-once 0 "$@"
measure delayed 1 "$@"
"$python" - "$scratch" >"benches/results/delayed-$(date +%F).json" <<'PYTHON'
import json, sys
ways = {name: json.load(open(f"{sys.argv[1]}/{name}.json")) for name in ("at-once", "delayed")}
round_trip_ms = 2.0
report = {"benchmark": "delayed", "round_trip_ms": round_trip_ms, "machine": ways["delayed"]["machine"], "ways": ways, "round_trips": {}}
for kind in ("ephemeral", "durable"):
    before, after = (ways[name][kind]["seen_ms"]["median"] for name in ("at-once", "delayed"))
    report["round_trips"][kind] = (after - before) / round_trip_ms
    print(f"{kind}: {before:.1f} ms through proxies, {after:.1f} ms with a delay of {round_trip_ms / 2} ms each way: "
          f"{report['round_trips'][kind]:.1f} round trips", file=sys.stderr)
json.dump(report, sys.stdout, indent=2)
print()
PYTHON
