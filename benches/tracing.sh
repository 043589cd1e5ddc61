#!/usr/bin/env bash
# The cost of tracing for a warm scan of 10,000 symbols on four workers of this machine, in turns within one run: nothing sent,
# the same again (the difference is noise), no logs either, traces sent, traces and metrics sent (the default once a receiver is
# named), one trace in a hundred sent. Two scans: one as cheap as a scan can be, and the screen of fifteen indicators. The
# receiver is rotel. Prints tables and keeps benches/results/tracing-DATE.json.
#
#   benches/tracing.sh [--repeats N]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
etcd=$(tools/get-etcd)
python=$(tools/get-venv)
agent=$("$python" -c "import importlib.util as u; print(u.find_spec('rotel').submodule_search_locations[0])")/rotel-agent
cargo build --locked --release --quiet -p trawl -p trawl-bench
trawl=$(realpath "${CARGO_TARGET_DIR:-target}")/release/trawl
bench=${trawl}-bench
scratch=$(mktemp -d)
export TRAWL_DATA_ROOT="$scratch/data"
"$trawl" synth --symbols 10000 --bars 250 --seed 1 --dataset big >/dev/null
started=()
trap 'for p in "${started[@]}"; do kill -INT "$p" 2>/dev/null || true; done; wait; rm -rf "$scratch"' EXIT
free() { "$python" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }
grpc=$(free)
"$agent" start --exporter blackhole --otlp-grpc-endpoint "127.0.0.1:$grpc" --otlp-http-endpoint "127.0.0.1:$(free)" \
    >"$scratch/rotel" 2>&1 &
started+=($!)
receiver=$!
ways=() named=()
cluster() { # NAME, and variables of its processes
    local name=$1
    shift
    env "$@" "$trawl" cluster up --workers 4 --threads 1 --listen 127.0.0.1:0 --etcd-binary "$etcd" \
        >"$scratch/$name" 2>"$scratch/$name.log" &
    started+=($!)
    for _ in $(seq 300); do grep -q '^ready cluster' "$scratch/$name" && break; sleep 0.1; done
    ways+=(--way "$name=$(grep -m1 '^ready cluster' "$scratch/$name" | tr ' ' '\n' | sed -n 's/^url=//p')")
    named+=("$name=${started[-1]}")
}
# CPU time so far of a process and its children: hundredths of a second, without etcd's.
spent() {
    local child
    [ "$(cat "/proc/$1/comm")" = etcd ] && return
    sed 's/.*) //' "/proc/$1/stat" | awk '{print $12 + $13}'
    for child in $(pgrep -P "$1"); do spent "$child"; done
}
spent_of_each() { for way in "${named[@]}" "receiver=$receiver"; do echo "${way%%=*} $(spent "${way#*=}" | awk '{n += $1} END {print n}')"; done; }
sent=OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:$grpc
cluster off TRAWL_LOG=trawl=info
cluster off-again TRAWL_LOG=trawl=info
cluster silent TRAWL_LOG=off
cluster traces "$sent" OTEL_METRICS_EXPORTER=none
cluster default "$sent"
cluster one-percent "$sent" OTEL_TRACES_SAMPLER=parentbased_traceidratio OTEL_TRACES_SAMPLER_ARG=0.01
measure() { # NAME, and options of the benchmark
    local name=$1
    shift
    spent_of_each >"$scratch/before"
    "$bench" tracing "${ways[@]}" --dataset big --json "$@" >"$scratch/$name.json"
    spent_of_each >"$scratch/after"
    "$python" - "$scratch/$name.json" "$scratch/before" "$scratch/after" "$(getconf CLK_TCK)" <<'EOF'
import json, sys
report = json.load(open(sys.argv[1]))
before, after = (dict(line.split() for line in open(path)) for path in sys.argv[2:4])
each = {name: (int(after[name]) - int(before[name])) / int(sys.argv[4]) * 1e3 / report["scans"] for name in after}
for way in report["ways"]:
    way["processor_ms"] = each[way["name"]]
# It receives the spans of three clusters.
report["receiver_processor_ms"] = each["receiver"]
json.dump(report, open(sys.argv[1], "w"), indent=2)
print(f"{report['condition']}: {report['symbols']} symbols, {report['rounds']} rounds; beside 'off':")
for way in report["ways"]:
    low, high = way["cost_percent_quartiles"]
    more = (way["processor_ms"] / report["ways"][0]["processor_ms"] - 1) * 100
    print(f"  {way['name']:12} {way['median_ms']:8.2f} ms  {way['cost_percent']:+6.2f}%  (half of the rounds {low:+.2f}% to {high:+.2f}%)"
          f"  processor {way['processor_ms']:6.2f} ms {more:+6.2f}%")
print(f"  the receiver: {report['receiver_processor_ms']:.2f} ms of processor a round")
print(f"  recording the stages by itself: {report['record_us']:.0f} µs")
EOF
}
measure cheap "$@"
measure screen --where "$(grep -v '^#' benches/screen.txt | tr '\n' ' ')" "$@"
result=benches/results/tracing-$(date +%F).json
"$python" -c 'import json, sys; json.dump([json.load(open(p)) for p in sys.argv[1:]], sys.stdout, indent=2)' \
    "$scratch/cheap.json" "$scratch/screen.json" >"$result"
