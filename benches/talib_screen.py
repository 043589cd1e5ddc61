"""TA-Lib's half of the screen W1, and the table of both halves.

    talib_screen.py TRAWL.json --results FOLDER

TRAWL.json is what `trawl bench screen --json` wrote; its number of symbols, bars and repeats are used here too. Each
function is called once per symbol on contiguous float64 arrays, as a user of TA-Lib would screen a market, on one
thread; a repeat goes over all symbols and the fastest counts. The time of the Python call is part of it: at 2,000 bars
a call it is below 0.3 ns per bar. Last-bar numbers are Trawl's alone: TA-Lib's batch functions compute every bar.
"""

import argparse
import datetime
import json
import os
import pathlib
import platform
import sys
import time

os.environ["OMP_NUM_THREADS"] = "1"

import numpy  # noqa: E402
import talib  # noqa: E402

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


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("trawl")
    arguments.add_argument("--results", required=True)
    options = arguments.parse_args()
    ours = json.loads(pathlib.Path(options.trawl).read_text())
    if [row["name"] for row in ours["rows"]] != list(SCREEN):
        sys.exit("talib_screen.py: the two halves of the screen name other indicators")

    made = market(ours["symbols"], ours["bars"])
    theirs = {name: best_ns_per_bar(function, made, ours["repeats"]) for name, function in SCREEN.items()}

    machine = ours["machine"]
    print(f"W1: {ours['symbols']} symbols x {ours['bars']} bars, one thread, f64, best of {ours['repeats']}; "
          f"{machine['processor']}, {machine['cores']} cores")
    print(f"{'ns per bar':<12}{'trawl':>10}{'TA-Lib':>10}{'times':>8}{'trawl, last bar alone':>24}")
    for row in ours["rows"]:
        name, own, reference = row["name"], row["ns_per_bar"], theirs[row["name"]]
        print(f"{name:<12}{own:>10.2f}{reference:>10.2f}{reference / own:>8.1f}{row['last_bar_ns_per_bar']:>24.3f}")
    total, reference = ours["sum_ns_per_bar"], sum(theirs.values())
    print(f"{'sum of 15':<12}{total:>10.2f}{reference:>10.2f}{reference / total:>8.1f}")
    together = ours["together_ns_per_bar"]
    print(f"{'as one plan':<12}{together:>10.2f}{'':>10}{reference / together:>8.1f}"
          f"{ours['together_last_bar_ns_per_bar']:>24.3f}")

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
            "sum_ns_per_bar": reference,
        },
    }
    folder = pathlib.Path(options.results)
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"screen-{now.strftime('%Y-%m-%d')}.json"
    file.write_text(json.dumps(result, indent=1) + "\n")
    print(f"kept in {file}")


if __name__ == "__main__":
    main()
