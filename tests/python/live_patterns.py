#!/usr/bin/env python3
"""Compares every candle pattern with TA-Lib, bar by bar, on bars that make the patterns happen.

    $(tools/get-venv) tests/python/live_patterns.py [--executable target/release/trawl] [--bars 25000] [--seed 1]

Four times. On a grid of 1/64, where every sum is exact, whole and with prices missing, every bar must agree. On a grid of
cents, and where prices change by powers of ten, TA-Lib's running sums keep rounding errors, which decide ties: there a
decision may differ if TA-Lib decides as Trawl does over the same window alone, or over its prices as whole numbers. A
pattern that never happened fails too.
"""

import argparse
import collections
import csv
import pathlib
import random
import subprocess
import sys
import tempfile

import numpy
import talib
from talib import abstract

import candles

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
NAMES = talib.get_function_groups()["Pattern Recognition"]
BULLISH = """3STARSINSOUTH 3WHITESOLDIERS CONCEALBABYSWALL DOJI DRAGONFLYDOJI GRAVESTONEDOJI HAMMER HOMINGPIGEON INVERTEDHAMMER
LADDERBOTTOM LONGLEGGEDDOJI MATCHINGLOW MATHOLD MORNINGDOJISTAR MORNINGSTAR PIERCING RICKSHAWMAN STICKSANDWICH TAKURI
UNIQUE3RIVER""".split()
BEARISH = """2CROWS 3BLACKCROWS ADVANCEBLOCK DARKCLOUDCOVER EVENINGDOJISTAR EVENINGSTAR HANGINGMAN IDENTICAL3CROWS INNECK ONNECK
SHOOTINGSTAR STALLEDPATTERN THRUSTING UPSIDEGAP2CROWS""".split()
MORE = {"ENGULFING": 80, "HARAMI": 80, "HARAMICROSS": 80, "HIKKAKE": 200, "HIKKAKEMOD": 200}
# Bars of a window around a pattern, and how often it is nudged.
WINDOW = 20
NUDGES = 5
WINDOWS_PER_VALUE = 12
# Ticks of a whole number to one of price where prices change by powers of ten, and bars between the changes.
SCALE = 10_000
STRETCH = 50


def values_of(name):
    """All values that the pattern can have."""
    short = name.removeprefix("CDL")
    if short in BULLISH:
        return [100]
    if short in BEARISH:
        return [-100]
    return [sign * value for value in (100, *([MORE[short]] if short in MORE else [])) for sign in (1, -1)]


def look_back(name, params):
    return abstract.Function(name, **params).lookback


def talib_segment(name, params, prices):
    """NaN in the look-back."""
    out = numpy.full(prices.shape[1], numpy.nan)
    start = look_back(name, params)
    if prices.shape[1] > start:
        out[start:] = getattr(talib, name)(*(numpy.ascontiguousarray(p) for p in prices), **params)[start:]
    return out


def talib_of(name, params, prices):
    """Over each stretch of whole bars for itself: TA-Lib's sums never recover from a NaN."""
    out = numpy.full(prices.shape[1], numpy.nan)
    whole = numpy.concatenate(([False], ~numpy.isnan(prices).any(axis=0), [False]))
    edges = numpy.flatnonzero(whole[1:] != whole[:-1])
    for start, end in zip(edges[::2], edges[1::2]):
        out[start:end] = talib_segment(name, params, prices[:, start:end])
    return out


def trawl(executable, calls, prices):
    """One row a call."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "bars.csv"
        with path.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["date", "open", "high", "low", "close"])
            for i, bar in enumerate(prices.T):
                writer.writerow([i, *("" if numpy.isnan(p) else repr(float(p)) for p in bar)])
        items = [part for i, call in enumerate(calls) for part in ("--expr", f"{call} as p{i}")]
        done = subprocess.run([executable, "compute", "--input", path, *items], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr)
    rows = list(csv.reader(done.stdout.splitlines()))[1:]
    return numpy.array([[float(cell) if cell else numpy.nan for cell in row[1:]] for row in rows]).T


def hangs_on_rounding(name, params, whole, divisor, got, at):
    """Whether TA-Lib, whose value differs within the history, gives `got` over the window alone."""
    window = whole[:, at - look_back(name, params) : at + 1].astype(float)
    return any(talib_segment(name, params, prices)[-1] == got for prices in (window / divisor, window))


def make_ticks(rng, count):
    """Random bars, then nudged copies of the windows where patterns happened."""
    bars = candles.random_bars(rng, count)
    prices = numpy.array(bars, dtype=float).T
    for name in NAMES:
        values = talib_segment(name, {}, prices)
        for value in values_of(name):
            found = [t for t in numpy.flatnonzero(values == value) if t >= WINDOW]
            for t in rng.sample(found, min(len(found), WINDOWS_PER_VALUE)):
                for _ in range(NUDGES):
                    bars += candles.nudged(rng, bars[t + 1 - WINDOW : t + 1])
    return numpy.array(bars).T


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--executable", default=str(ROOT / "target/release/trawl"))
    parser.add_argument("--bars", type=int, default=25_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    rng = random.Random(options.seed)
    ticks = make_ticks(rng, options.bars)
    cases = [(name, {}) for name in NAMES]
    for name in NAMES:
        if "penetration" in abstract.Function(name).parameters:
            cases += [(name, {"penetration": p}) for p in (0.0, round(rng.uniform(0.05, 1.2), 3))]
    calls = [f"{name.lower()}({', '.join(f'{k}={v}' for k, v in params.items())})" for name, params in cases]

    failed = False
    exact = ticks / 64
    gaps = exact.copy()
    for _ in range(ticks.shape[1] // 60):
        gaps[rng.randrange(4), rng.randrange(ticks.shape[1])] = numpy.nan
    stretches = numpy.array([10 ** rng.randrange(5) for _ in range(ticks.shape[1] // STRETCH + 1)])
    whole = ticks * numpy.repeat(stretches, STRETCH)[: ticks.shape[1]]
    counts = collections.defaultdict(collections.Counter)
    print(f"seed {options.seed}: {ticks.shape[1]} bars, {len(cases)} calls")
    # Label, prices, and for those that round: the same as whole numbers, of which so many make 1.
    grids = (
        ("1/64", exact, None, 1),
        ("1/64, gaps", gaps, None, 1),
        ("cents", ticks / 100, ticks, 100),
        ("powers of ten", whole / SCALE, whole, SCALE),
    )
    for label, prices, numbers, divisor in grids:
        got = trawl(options.executable, calls, prices)
        compared = differing = excused = 0
        for (name, params), row in zip(cases, got):
            want = talib_of(name, params, prices)
            compared += int((~numpy.isnan(want)).sum())
            for value, count in zip(*numpy.unique(want[~numpy.isnan(want)], return_counts=True)):
                counts[name][int(value)] += int(count)
            for at in numpy.flatnonzero((row != want) & ~(numpy.isnan(row) & numpy.isnan(want))):
                differing += 1
                if numbers is not None and hangs_on_rounding(name, params, numbers, divisor, row[at], at):
                    excused += 1
                    continue
                failed = True
                print(f"{label}: {name} {params} bar {at}: trawl {row[at]}, TA-Lib {want[at]}")
                print(prices[:, max(0, at - 14) : at + 1].T)
                break
        print(f"{label}: {compared} values compared, {differing} differ, {excused} of these depend on TA-Lib's rounding")
    for name in NAMES:
        counted = ", ".join(f"{value}: {counts[name][value]}" for value in values_of(name))
        print(f"{name.lower():22} {counted}")
        if not all(counts[name][value] for value in values_of(name)) or set(counts[name]) - {0, *values_of(name)}:
            failed = True
            print(f"{name.lower():22} says {sorted(counts[name])}, expected {sorted(values_of(name))} and 0")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
