#!/usr/bin/env bash
# The cost of tracing for a warm scan of 10,000 symbols on four workers of this machine, in turns within one run: nothing sent,
# the same again (the difference is noise), no logs either, traces sent, traces and metrics sent (the default once a receiver is
# named), one trace in a hundred sent. Two scans: one as cheap as a scan can be, and the screen of fifteen indicators. The
# receiver is rotel. Clusters that are started alike differ by some percent for as long as they live (where their memory lies, which worker
# holds what), so they are started anew N times (5), in another order each time; costs are medians of paired differences, of wall-clock time
# scan by scan and of CPU time in blocks of 50 scans. Prints tables and keeps benches/results/tracing-DATE.json.
#
#   benches/tracing.sh [--starts N] [--repeats N]
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
"$trawl" data synth --symbols 10000 --bars 250 --seed 1 --dataset big >/dev/null
started=()
trap 'for p in "${started[@]}"; do kill -INT "$p" 2>/dev/null || true; done; wait; rm -rf "$scratch"' EXIT
free() { "$python" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }
grpc=$(free)
"$agent" start --exporter blackhole --otlp-grpc-endpoint "127.0.0.1:$grpc" --otlp-http-endpoint "127.0.0.1:$(free)" \
    >"$scratch/rotel" 2>&1 &
started+=($!)
receiver=$!
ways=() named=() clusters=()
cluster() { # NAME, and variables of its processes
    local name=$1
    shift
    env "$@" "$trawl" cluster up --workers 4 --threads 1 --listen 127.0.0.1:0 --etcd-binary "$etcd" \
        >"$scratch/$name" 2>"$scratch/$name.log" &
    started+=($!) clusters+=($!)
    for _ in $(seq 300); do grep -q '^ready cluster' "$scratch/$name" && break; sleep 0.1; done
    ways+=("$name=$(grep -m1 '^ready cluster' "$scratch/$name" | tr ' ' '\n' | sed -n 's/^url=//p')")
    named+=("$name=${started[-1]}")
}
sent=OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:$grpc
start() { # NAME
    case $1 in
    off | off-again) cluster "$1" TRAWL_LOG=trawl=info ;;
    silent) cluster "$1" TRAWL_LOG=off ;;
    traces) cluster "$1" "$sent" OTEL_METRICS_EXPORTER=none ;;
    default) cluster "$1" "$sent" ;;
    one-percent) cluster "$1" "$sent" OTEL_TRACES_SAMPLER=parentbased_traceidratio OTEL_TRACES_SAMPLER_ARG=0.01 ;;
    esac
}
all=(off off-again silent traces default one-percent)
starts=5 repeats=200
while [ $# -gt 0 ]; do
    case $1 in
    --starts) starts=$2 ;;
    --repeats) repeats=$2 ;;
    *) echo "error: $1 is no option: --starts N, --repeats N" >&2; exit 2 ;;
    esac
    shift 2
done
# CPU time so far of the receiver, in hundredths of a second.
received() { sed 's/.*) //' "/proc/$receiver/stat" | awk '{print $12 + $13}'; }
for number in $(seq "$starts"); do
    ways=() named=() clusters=()
    # Another one is the first each time.
    for at in $(seq 0 $((${#all[@]} - 1))); do start "${all[(at + number) % ${#all[@]}]}"; done
    options=()
    for name in "${all[@]}"; do
        for way in "${ways[@]}"; do [ "${way%%=*}" = "$name" ] && options+=(--way "$way"); done
        for process in "${named[@]}"; do [ "${process%%=*}" = "$name" ] && options+=(--process "$process"); done
    done
    for scan in cheap screen; do
        condition=()
        [ $scan = screen ] && condition=(--where "$(grep -v '^#' benches/screen.txt | tr '\n' ' ')")
        before=$(received)
        "$bench" tracing "${options[@]}" "${condition[@]}" --dataset big --repeats "$repeats" --json >"$scratch/$scan-$number.json"
        echo $(($(received) - before)) >"$scratch/$scan-$number.received"
    done
    for p in "${clusters[@]}"; do kill -INT "$p"; done
    for p in "${clusters[@]}"; do wait "$p" || true; done
    started=("$receiver")
done
result=benches/results/tracing-$(date +%F).json
"$python" - "$scratch" "$starts" "$(getconf CLK_TCK)" >"$scratch/result" <<'EOF'
import json, statistics, sys
scratch, starts, ticks = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
def quartiles(values):
    values = sorted(values)
    return [values[round((len(values) - 1) * share)] for share in (0.25, 0.75)]
reports = []
for scan in ("cheap", "screen"):
    each = [json.load(open(f"{scratch}/{scan}-{n}.json")) for n in range(1, starts + 1)]
    report = {key: each[0][key] for key in ("benchmark", "engine", "machine", "condition", "symbols", "segments")}
    report |= {"starts": starts, "rounds": sum(one["rounds"] for one in each), "ways": []}
    first = [block for one in each for block in one["ways"][0]["cpu_blocks_ms"]]
    usual = statistics.median(first)
    for at, way in enumerate(each[0]["ways"]):
        cpu = [block for one in each for block in one["ways"][at]["cpu_blocks_ms"]]
        costs = [(mine - other) / usual * 100 for mine, other in zip(cpu, first)]
        # How far the medians of the starts lie apart says how far this number can be trusted.
        by_start = [one["ways"][at]["cpu_cost_percent"] for one in each]
        report["ways"].append({
            "name": way["name"],
            "median_ms": statistics.median(one["ways"][at]["median_ms"] for one in each),
            "cost_percent": statistics.median(one["ways"][at]["cost_percent"] for one in each),
            "cpu_ms": statistics.median(cpu),
            "cpu_cost_percent": statistics.median(costs),
            "cpu_cost_percent_quartiles": quartiles(costs),
            "cpu_cost_percent_by_start": by_start,
        })
    scans = sum(one["scans"] for one in each)
    spent = sum(int(open(f"{scratch}/{scan}-{n}.received").read()) for n in range(1, starts + 1))
    # It receives the spans of three clusters.
    report["receiver_cpu_ms"] = spent / ticks * 1e3 / scans
    report["record_us"] = statistics.median(one["record_us"] for one in each)
    reports.append(report)
    print(f"{report['condition'][:60]}: {report['symbols']} symbols, {starts} starts, {report['rounds']} rounds; beside 'off':", file=sys.stderr)
    for way in report["ways"]:
        low, high = way["cpu_cost_percent_quartiles"]
        apart = ", ".join(f"{one:+.1f}" for one in way["cpu_cost_percent_by_start"])
        print(f"  {way['name']:12} {way['median_ms']:8.2f} ms {way['cost_percent']:+6.2f}%   CPU {way['cpu_ms']:6.2f} ms"
              f" {way['cpu_cost_percent']:+6.2f}%  (half of the blocks {low:+.2f}% to {high:+.2f}%; by start {apart})", file=sys.stderr)
    print(f"  the receiver: {report['receiver_cpu_ms']:.2f} ms of CPU time a round; recording the stages by itself: {report['record_us']:.0f} µs", file=sys.stderr)
json.dump(reports, sys.stdout, indent=2)
print()
EOF
mv "$scratch/result" "$result"
