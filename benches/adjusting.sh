#!/usr/bin/env bash
# The cost of point-in-time adjustment: --all-bars over a synthetic market whose symbols have 40 dividends each,
# raw, adjusted as of the last bar and adjusted as of each bar; three kinds of scans. Only ratios within one run are meaningful.
# Keeps benches/results/adjusting-DATE.json.
#
#   benches/adjusting.sh [SYMBOLS [BARS]]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
symbols=${1:-300} bars=${2:-2520}
# To use another executable than the release build: TRAWL_BIN=...
[ -n "${TRAWL_BIN:-}" ] || cargo build --quiet --release -p trawl
trawl=${TRAWL_BIN:-$PWD/${CARGO_TARGET_DIR:-target}/release/trawl}
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
export TRAWL_DATA_ROOT=$place/data
mkdir -p "$TRAWL_DATA_ROOT"
python3 - "$trawl" "$place" "$symbols" "$bars" <<'PY'
import csv, datetime, json, os, platform, random, subprocess, sys, time

trawl, place, symbols, bars = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
random.seed(18)
days, day = [], datetime.date(2014, 1, 2)
while len(days) < bars:
    if day.weekday() < 5:
        days.append(day.isoformat())
    day += datetime.timedelta(days=1)
names = [f"S{n:04}" for n in range(symbols)]
with open(f"{place}/bars.csv", "w", newline="") as file:
    out = csv.writer(file)
    out.writerow("symbol,date,open,high,low,close,volume".split(","))
    for name in names:
        price = random.uniform(20, 200)
        for at in days:
            price *= 1 + random.gauss(0, 0.01)
            out.writerow([name, at] + [f"{price * x:.2f}" for x in (1, 1.01, 0.99, 1)] + [random.randrange(1, 10**6)])
with open(f"{place}/factors.csv", "w", newline="") as file:
    out = csv.writer(file)
    out.writerow(["symbol", "date", "split", "dividend"])
    for name in names:
        for at in sorted(random.sample(days[60:], 40)):
            out.writerow([name, at, 1, "0.20"])
run = lambda *words: subprocess.run([trawl, *words], check=True, capture_output=True, text=True)
run("import", f"{place}/bars.csv", "--dataset", "paying", "--timeframe", "1d", "--calendar", "weekdays", "--factors", f"{place}/factors.csv")

SCANS = {
    "windows and recursions": "close > sma(close, 200) and rsi(close, 14) < 60",
    "cross-section at the as-of": "xs_pct(roc(close, 63)) > 0.9",
}
BEFORE = {"cross-section before the as-of": "within(xs_rank(roc(close, 63)) <= 10, 3)"}
rows = []
for scan, where in SCANS.items():
    seconds = {}
    for adjust in ("none", "split+dividend@last", "split+dividend"):
        best = float("inf")
        for _ in range(3):
            begun = time.perf_counter()
            run("scan", "--dataset", "paying", "--where", where, "--adjust", adjust, "--all-bars", f"{place}/out.arrow", "--quiet")
            best = min(best, time.perf_counter() - begun)
        seconds[adjust] = round(best, 3)
    rows.append({"scan": scan, "seconds": seconds, "each bar over last bar": round(seconds["split+dividend"] / seconds["split+dividend@last"], 2)})
    print(rows[-1])
for scan, where in BEFORE.items():
    seconds = {}
    for adjust in ("split+dividend@last", "split+dividend"):
        begun = time.perf_counter()
        run("scan", "--dataset", "paying", "--where", where, "--adjust", adjust, "--all-bars", f"{place}/out.arrow", "--quiet")
        seconds[adjust] = round(time.perf_counter() - begun, 3)
    rows.append({"scan": scan, "seconds": seconds, "each bar over last bar": round(seconds["split+dividend"] / seconds["split+dividend@last"], 2)})
    print(rows[-1])
cpu = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), platform.machine())
result = {"date": datetime.date.today().isoformat(), "machine": f"{cpu}, {os.cpu_count()} cores", "symbols": symbols, "bars": bars, "dividends_per_symbol": 40, "executable": os.environ.get("TRAWL_BIN_NAME", "release"), "rows": rows}
path = f"benches/results/adjusting-{result['date']}.json"
with open(path, "w") as file:
    json.dump(result, file, indent=2)
    file.write("\n")
print("wrote", path)
PY
