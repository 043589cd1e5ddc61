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
import sys
from pathlib import Path

GOLDEN = Path(__file__).resolve().parent.parent / "tests" / "golden"
SERIES = {"AAPL": 160, "EDGE_FLAT": 60, "EDGE_ZEROVOL_DEADBARS": 60}


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


# File: function and the arguments of each call, the first with the defaults.
FILES = {"cks": (cks, [{}, {"p": 5, "x": 2.5, "q": 3}, {"p": 14, "x": 0.0, "q": 20}, {"p": 1, "x": 3.0, "q": 1}])}


def text(name, function, calls):
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    header = None
    for series, count in SERIES.items():
        market = bars(series, count)
        columns = {}
        for arguments in calls:
            call = f"{name}({', '.join(f'{key}={value}' for key, value in arguments.items())})"
            columns |= {f"{call}.{output}": values for output, values in function(market, **arguments).items()}
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
