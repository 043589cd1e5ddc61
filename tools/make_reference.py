#!/usr/bin/env python3
"""Writes reference values of indicators that are not TA-Lib's: tests/golden/NAME.csv.

    tools/make_reference.py            # writes the files
    tools/make_reference.py --check    # exits with 1 if a file differs from what would be written

Each indicator is computed here from its published definition, bar by bar and without any code or output of Trawl. Columns
are calls in the scan language, so a file says itself what its values are of; an empty cell is a value that is not defined.
The bars are the first ones of tests/golden/talib/SERIES.input.csv.gz.
"""

import csv
import gzip
import io
import math
import sys
from pathlib import Path

GOLDEN = Path(__file__).resolve().parent.parent / "tests" / "golden"
SERIES = {"AAPL": 160, "EDGE_FLAT": 120, "EDGE_ZEROVOL_DEADBARS": 120}


def bars(series, count):
    with gzip.open(GOLDEN / "talib" / f"{series}.input.csv.gz", "rt") as file:
        rows = [row for _, row in zip(range(count), csv.DictReader(file))]
    return {name: [float(row[name]) if row[name] else None for row in rows] for name in ("high", "low", "close")}


def window(values, length, function):
    """The function of each full window; not defined where a value of the window is not."""
    out = []
    for end in range(1, len(values) + 1):
        part = values[max(end - length, 0) : end]
        out.append(function(part) if len(part) == length and None not in part else None)
    return out


def average_true_range(high, low, close, length):
    """Wilder's: the mean of the first true ranges, then a share 1/length of each new one. The first bar has none."""
    ranges = [None]
    for h, l, before in zip(high[1:], low[1:], close):
        ranges.append(max(h - l, abs(h - before), abs(l - before)))
    out = [None] * len(ranges)
    if len(ranges) > length:
        mean = sum(ranges[1 : length + 1]) / length
        out[length] = mean
        for bar in range(length + 1, len(ranges)):
            mean += (ranges[bar] - mean) / length
            out[bar] = mean
    return out


def combined(first, second, function):
    return [None if a is None or b is None else function(a, b) for a, b in zip(first, second)]


def cks(market, p=10, x=1.0, q=9):
    """Chande Kroll stop: T. S. Chande and S. Kroll, The New Technical Trader, 1994."""
    high, low, close = market["high"], market["low"], market["close"]
    range_ = average_true_range(high, low, close, p)
    first_high_stop = combined(window(high, p, max), range_, lambda top, r: top - x * r)
    first_low_stop = combined(window(low, p, min), range_, lambda bottom, r: bottom + x * r)
    return {"long": window(first_low_stop, q, min), "short": window(first_high_stop, q, max)}


def chandelier(market, timeperiod=22, multiplier=3.0):
    """Chandelier exit, C. LeBeau, as A. Elder describes it: Come Into My Trading Room, 2002."""
    high, low, close = market["high"], market["low"], market["close"]
    range_ = average_true_range(high, low, close, timeperiod)
    return {
        "long": combined(window(high, timeperiod, max), range_, lambda top, r: top - multiplier * r),
        "short": combined(window(low, timeperiod, min), range_, lambda bottom, r: bottom + multiplier * r),
    }


def ichimoku(market, conversion=9, base=26, span=52, displacement=26):
    """Ichimoku Kinko Hyo, G. Hosoda, 1969. What is drawn ahead counts the current bar, as charts do."""
    def middle(length):
        tops, bottoms = window(market["high"], length, max), window(market["low"], length, min)
        return combined(tops, bottoms, lambda top, bottom: (top + bottom) / 2)

    lines = {"conversion": middle(conversion), "base": middle(base)}
    lines["lead_a"] = combined(lines["conversion"], lines["base"], lambda a, b: (a + b) / 2)
    lines["lead_b"] = middle(span)
    for ahead, here in (("lead_a", "span_a"), ("lead_b", "span_b")):
        values, shift = lines[ahead], displacement - 1
        lines[here] = ([None] * shift + values)[: len(values)]
    return lines


def alma(market, timeperiod=9, offset=0.85, sigma=6.0):
    """Arnaud Legoux Moving Average: A. Legoux and D. Kouzis-Loukas, 2009."""
    middle, width = offset * (timeperiod - 1), timeperiod / sigma
    weights = [math.exp(-((i - middle) ** 2) / (2 * width**2)) for i in range(timeperiod)]

    def mean(part):
        return math.fsum(w * x for w, x in zip(weights, part)) / math.fsum(weights)

    return {"real": window(market["close"], timeperiod, mean)}


def wilder_rsi(values, length):
    """Of values that are defined from some bar on; 0 where nothing has moved."""
    first = next((bar for bar, value in enumerate(values) if value is not None), len(values))
    out = [None] * len(values)
    gains = losses = 0.0
    for count, bar in enumerate(range(first + 1, len(values)), start=1):
        change = values[bar] - values[bar - 1]
        gain, loss = max(change, 0.0), max(-change, 0.0)
        if count <= length:
            gains, losses = gains + gain / length, losses + loss / length
        else:
            gains += (gain - gains) / length
            losses += (loss - losses) / length
        if count >= length:
            out[bar] = 100 * gains / (gains + losses) if gains + losses else 0.0
    return out


def crsi(market, timeperiod=3, streakperiod=2, rankperiod=100):
    """ConnorsRSI: L. Connors and C. Alvarez, An Introduction to ConnorsRSI, 2012."""
    close = market["close"]
    streaks, rates = [0], [None]
    for before, now in zip(close, close[1:]):
        last = streaks[-1]
        streaks.append(max(last, 0) + 1 if now > before else min(last, 0) - 1 if now < before else 0)
        rates.append(now / before - 1)

    def rank(part):
        return 100 * sum(value < part[-1] for value in part[:-1]) / rankperiod

    ranks = window(rates, rankperiod + 1, rank)
    parts = zip(wilder_rsi(close, timeperiod), wilder_rsi(streaks, streakperiod), ranks)
    return {"real": [None if None in part else sum(part) / 3 for part in parts]}


def squeeze(market, timeperiod=20, nbdev=2.0, multiplier=1.5):
    """TTM Squeeze: J. Carter, Mastering the Trade, 2005."""
    high, low, close = market["high"], market["low"], market["close"]
    ranges = [None] + [
        max(h - l, abs(h - before), abs(l - before)) for h, l, before in zip(high[1:], low[1:], close)
    ]
    n = timeperiod
    widths = window(close, n, lambda part: nbdev * math.sqrt(math.fsum((x - math.fsum(part) / n) ** 2 for x in part) / n))
    rooms = window(ranges, n, lambda part: multiplier * math.fsum(part) / n)
    on = combined(widths, rooms, lambda width, room: float(width < room))
    fired = [None] + [
        0.0 if before == 0 or now == 1 else None if before is None or now is None else 1.0
        for before, now in zip(on, on[1:])
    ]
    fired = [None if now is None and before is None else value for value, now, before in zip(fired, on, [None] + on)]
    middles = combined(window(high, n, max), window(low, n, min), lambda top, bottom: (top + bottom) / 2)
    means = window(close, n, lambda part: math.fsum(part) / n)
    off = combined(combined(middles, means, lambda a, b: (a + b) / 2), close, lambda centre, x: x - centre)

    def line_end(part):
        centre = (n - 1) / 2
        slope = math.fsum((k - centre) * y for k, y in enumerate(part)) / sum((k - centre) ** 2 for k in range(n))
        return math.fsum(part) / n + slope * centre

    return {"on": on, "fired": fired, "momentum": window(off, n, line_end)}


# File: function and the arguments of each call, the first with the defaults.
FILES = {
    "cks": (cks, [{}, {"p": 5, "x": 2.5, "q": 3}, {"p": 14, "x": 0.0, "q": 20}, {"p": 1, "x": 3.0, "q": 1}]),
    "chandelier": (chandelier, [{}, {"timeperiod": 5, "multiplier": 2.0}, {"timeperiod": 1, "multiplier": 0.0}]),
    "ichimoku": (ichimoku, [{}, {"conversion": 3, "base": 7, "span": 12, "displacement": 1}]),
    "alma": (alma, [{}, {"timeperiod": 20, "offset": 0.5, "sigma": 3.0}, {"timeperiod": 1}]),
    "crsi": (crsi, [{}, {"timeperiod": 2, "streakperiod": 3, "rankperiod": 10}]),
    "squeeze": (squeeze, [{}, {"timeperiod": 6, "nbdev": 1.5, "multiplier": 1.0}]),
}


def text(name, function, calls):
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    header = None
    for series, count in SERIES.items():
        market = bars(series, count)
        columns = {}
        for arguments in calls:
            call = f"{name}({', '.join(f'{key}={value}' for key, value in arguments.items())})"
            outputs = function(market, **arguments)
            columns |= {f"{call}.{output}" if len(outputs) > 1 else call: values for output, values in outputs.items()}
        if header is None:
            header = ["series", "bar", *columns]
            writer.writerow(header)
        for bar in range(count):
            cells = ["" if values[bar] is None else repr(values[bar]) for values in columns.values()]
            writer.writerow([series, bar, *cells])
    return out.getvalue()


def main():
    differs = False
    for name, (function, calls) in FILES.items():
        path, wanted = GOLDEN / f"{name}.csv", text(name, function, calls)
        if sys.argv[1:] == ["--check"]:
            if not path.exists() or path.read_text() != wanted:
                print(f"{path.name} differs", file=sys.stderr)
                differs = True
        else:
            path.write_text(wanted)
    sys.exit(differs)


if __name__ == "__main__":
    main()
