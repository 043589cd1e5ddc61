"""TA-Lib's half of the screen W1, and the table of all libraries.

    talib_screen.py TRAWL.json [--peers PROGRAM] --results FOLDER

TRAWL.json is what `trawl-bench screen --json` wrote; its number of symbols, bars and repeats are used here too. Each
function is called once per symbol on contiguous float64 arrays, as a user of TA-Lib would screen a market, on one
thread; a repeat goes over all symbols and the fastest counts. The time of the Python call is part of it: at 2,000 bars
a call it is below 0.3 ns per bar. PROGRAM, which benches/peers makes, measures vector-ta in the same shape. Last-bar numbers are Trawl's alone: TA-Lib's batch functions compute every bar.
"""

import argparse
import datetime
import json
import os
import pathlib
import platform
import subprocess
import sys
import time

os.environ["OMP_NUM_THREADS"] = "1"

import numpy  # noqa: E402
import talib  # noqa: E402

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "jobs"))
from report import processor  # noqa: E402

SEED = 0x5EED

SCREEN = {
    "SMA": lambda o, h, l, c, v: talib.SMA(c, 20),
    "EMA": lambda o, h, l, c, v: talib.EMA(c, 20),
    "WMA": lambda o, h, l, c, v: talib.WMA(c, 20),
    "RSI": lambda o, h, l, c, v: talib.RSI(c, 14),
    "MACD": lambda o, h, l, c, v: talib.MACD(c, 12, 26, 9),
    "BBANDS": lambda o, h, l, c, v: talib.BBANDS(c, 20, 2.0, 2.0),
    "ATR": lambda o, h, l, c, v: talib.ATR(h, l, c, 14),
    "STOCH": lambda o, h, l, c, v: talib.STOCH(h, l, c, 14, 3, 0, 3, 0),
    "ADX": lambda o, h, l, c, v: talib.ADX(h, l, c, 14),
    "CCI": lambda o, h, l, c, v: talib.CCI(h, l, c, 20),
    "OBV": lambda o, h, l, c, v: talib.OBV(c, v),
    "VWAP": lambda o, h, l, c, v: talib.VWAP(h, l, c, v),
    "MFI": lambda o, h, l, c, v: talib.MFI(h, l, c, v, 14),
    "KAMA": lambda o, h, l, c, v: talib.KAMA(c, 10),
    "DONCHIAN": lambda o, h, l, c, v: talib.DONCHIAN(h, l, 20),
}


def market(symbols, bars):
    """Seeded walks on a cent grid: per symbol (open, high, low, close, volume)."""
    random = numpy.random.default_rng(SEED)
    made = []
    for _ in range(symbols):
        close = numpy.maximum(5_000 + random.integers(0, 10_000) + numpy.cumsum(random.integers(-100, 101, bars)), 100)
        opened = numpy.concatenate([close[:1], close[:-1]])
        high = numpy.maximum(opened, close) + random.integers(0, 80, bars)
        low = numpy.maximum(numpy.minimum(opened, close) - random.integers(0, 80, bars), 1)
        volume = random.integers(100_000, 1_000_000, bars).astype(float)
        made.append(tuple(numpy.ascontiguousarray(x / 100.0) for x in (opened, high, low, close)) + (volume,))
    return made


def best_ns_per_bar(function, made, repeats):
    bars = sum(len(series[0]) for series in made)
    for series in made[:100]:  # warm
        function(*series)
    best = float("inf")
    for _ in range(repeats):
        start = time.perf_counter_ns()
        for series in made:
            function(*series)
        best = min(best, time.perf_counter_ns() - start)
    return best / bars


def measure_peer(program, ours):
    """The output of `program`: library, version, rows."""
    shape = [word for name in ("symbols", "bars", "repeats") for word in (f"--{name}", str(ours[name]))]
    return json.loads(subprocess.run([program, *shape], check=True, stdout=subprocess.PIPE).stdout)


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("trawl")
    arguments.add_argument("--peers")
    arguments.add_argument("--results", required=True)
    options = arguments.parse_args()
    ours = json.loads(pathlib.Path(options.trawl).read_text())
    if [row["name"] for row in ours["rows"]] != list(SCREEN):
        sys.exit("talib_screen.py: the parts of the screen name other indicators")

    made = market(ours["symbols"], ours["bars"])
    theirs = {name: best_ns_per_bar(function, made, ours["repeats"]) for name, function in SCREEN.items()}
    del made
    peer = measure_peer(options.peers, ours) if options.peers else None
    others = [theirs] + ([{row["name"]: row["ns_per_bar"] for row in peer["rows"]}] if peer else [])
    if any(list(other) != list(SCREEN) for other in others):
        sys.exit("talib_screen.py: the parts of the screen name other indicators")
    best = {name: min(other[name] for other in others) for name in SCREEN}

    # With the widest vectors, which decide what the engine's figure is.
    machine = {**ours["machine"], "processor": processor()}
    print(f"W1: {ours['symbols']} symbols x {ours['bars']} bars, one thread, f64, best of {ours['repeats']}; "
          f"{machine['processor']}, {machine['cores']} cores")
    heads = ["trawl", "TA-Lib"] + ([peer["library"]] if peer else []) + ["best", "TA-Lib/trawl", "best/trawl", "last bar"]
    print(f"{'ns per bar':<12}" + "".join(f"{head:>14}" for head in heads))

    def line(name, own, columns, last):
        ratios = "".join(f"{column / own:>14.1f}" for column in (columns[0], columns[-1]))
        print(f"{name:<12}" + "".join(f"{column:>14.2f}" for column in [own, *columns]) + ratios + last)

    for row in ours["rows"]:
        name, own = row["name"], row["ns_per_bar"]
        line(name, own, [other[name] for other in [*others, best]], f"{row['last_bar_ns_per_bar']:>14.3f}")
    sums = [sum(other.values()) for other in [*others, best]]
    line("sum of 15", ours["sum_ns_per_bar"], sums, "")
    line("as one plan", ours["together_ns_per_bar"], sums, f"{ours['together_last_bar_ns_per_bar']:>14.3f}")

    now = datetime.datetime.now(datetime.timezone.utc)
    result = {
        "date": now.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "machine": machine,
        "trawl": {key: value for key, value in ours.items() if key != "machine"},
        "talib": {
            "version": talib.__version__,
            "c_library": talib.__ta_version__.decode().split(" ")[0],
            "numpy": numpy.__version__,
            "python": platform.python_version(),
            "rows": [{"name": name, "ns_per_bar": value} for name, value in theirs.items()],
            "sum_ns_per_bar": sums[0],
        },
    }
    if peer:
        result["peers"] = [{**peer, "sum_ns_per_bar": sums[1]}]
    folder = pathlib.Path(options.results)
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"screen-{now.strftime('%Y-%m-%d')}.json"
    file.write_text(json.dumps(result, indent=1) + "\n")
    print(f"kept in {file}")


if __name__ == "__main__":
    main()
