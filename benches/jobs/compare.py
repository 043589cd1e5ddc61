"""Compares the answers of all contestants of a job with Trawl's, symbol by symbol (and bar by bar, cell by cell).

    compare.py JOB MARKET ANSWERS.json

ANSWERS.json has the answer files by contestant, Trawl's under "trawl". Prints JSON: for each peer, how many rows were compared and how many
differ only because a condition is within rounding of its edge there. Ends with 1 and says what differs otherwise.

A difference is rounding when the compared numbers of that symbol and bar (two averages, or an index and its limit) are within 1e-9 of each
other, relative to the price or to 100; values agree when they are within 1e-9 of max(1, |value|).
"""

import json
import pathlib
import sys

import numpy
import polars as pl

sys.path.insert(0, str(pathlib.Path(__file__).parent / "peers"))
from common import BELOW, DAYS, FAST, RSI, SLOW, SWEEP_BARS, WITHIN  # noqa: E402

TOLERANCE = 1e-9
# Differences that are named in a message.
NAMED = 5
MINUTES_OF_SESSION = 390


class Differs(Exception):
    pass


def means(values, n):
    """Means of n values, NaN where there are fewer, each summed by itself."""
    result = numpy.full(len(values), numpy.nan)
    if len(values) >= n:
        result[n - 1:] = numpy.lib.stride_tricks.sliding_window_view(values, n).mean(axis=1)
    return result


def strength(close, n=RSI):
    """Wilder's index by its definition."""
    result = numpy.full(len(close), numpy.nan)
    change = numpy.diff(close)
    up, down = numpy.maximum(change, 0), numpy.maximum(-change, 0)
    for i in range(n, len(close)):
        if i == n:
            gain, loss = up[:n].mean(), down[:n].mean()
        else:
            gain, loss = (gain * (n - 1) + up[i - 1]) / n, (loss * (n - 1) + down[i - 1]) / n
        result[i] = 100 * gain / (gain + loss) if gain + loss else 0.0
    return result


def edges_of_crossing(close, fast, slow, bars):
    """Whether the two averages touch at one of so many bars up to each bar."""
    with numpy.errstate(invalid="ignore"):
        touch = numpy.abs(means(close, fast) - means(close, slow)) <= TOLERANCE * close
    recent = touch.copy()
    for back in range(1, bars):
        recent[back:] |= touch[:-back]
    return recent


def edges_of_strength(close):
    with numpy.errstate(invalid="ignore"):
        return numpy.abs(strength(close) - BELOW) <= TOLERANCE * 100


class Edges:
    """Where the conditions of a market are too near to their edge to be compared."""

    def __init__(self, market):
        self.market = market
        self.kept = {}

    def bars(self, symbol):
        frame = pl.scan_parquet(f"{self.market}/bars.parquet").filter(pl.col("symbol") == symbol).select("time", "close").collect()
        return frame["time"], frame["close"].to_numpy()

    def golden(self, symbol):
        """The bars of J1's condition that are on an edge; the last is the newest."""
        if symbol not in self.kept:
            time, close = self.bars(symbol)
            near = edges_of_crossing(close, FAST, SLOW, WITHIN + 1) | edges_of_strength(close)
            self.kept[symbol] = set(time.filter(pl.Series(near))), bool(near[-1])
        return self.kept[symbol]

    def newest(self, job, symbol):
        if job == "newest-bar":
            return self.golden(symbol)[1]
        if job == "market-rank":
            return False
        time, close = self.bars(symbol)
        series, n = close, SLOW
        if job == "minutes-to-days":
            daily = pl.DataFrame({"day": time.dt.date(), "close": close}).group_by("day", maintain_order=True)
            daily = daily.agg(pl.col("close").last(), pl.len())
            if daily["len"][-1] < MINUTES_OF_SESSION:
                daily = daily.head(-1)
            series, n = daily["close"].to_numpy(), DAYS
        near = abs(means(series, n)[-1] - close[-1]) <= TOLERANCE * close[-1]
        return bool(near or edges_of_strength(series)[-1])


def matched(frame):
    return frame.filter(pl.col("status") == "matched")


def newest(job, edges, ours, theirs):
    """Sets of matches with one number each."""
    ours = matched(pl.read_csv(ours))
    ours = dict(zip(ours["symbol"], ours[ours.columns[-1]], strict=True))
    theirs = pl.read_csv(theirs)
    theirs = dict(zip(theirs["symbol"], theirs["value"], strict=True))
    differ = sorted(set(ours) ^ set(theirs))
    wrong = [symbol for symbol in differ if not edges.newest(job, symbol)]
    wrong += [symbol for symbol in set(ours) & set(theirs) if abs(ours[symbol] - theirs[symbol]) > TOLERANCE * max(1, abs(ours[symbol]))]
    if wrong:
        raise Differs(f"{len(wrong)} symbols: {', '.join(wrong[:NAMED])}")
    return {"rows_compared": len(ours), "near_edge": len(differ)}


def every_bar(edges, ours, theirs):
    keys = ["symbol", "time"]
    one = matched(pl.scan_parquet(ours)).select(keys).collect()
    two = pl.scan_parquet(theirs).filter("signal").select(pl.col("symbol").cast(pl.String), "time").collect()
    two = two.with_columns(pl.col("time").cast(one.schema["time"]))
    if one.is_duplicated().any() or two.is_duplicated().any():
        raise Differs("a symbol and bar comes twice")
    differ = pl.concat([one.join(two, on=keys, how="anti"), two.join(one, on=keys, how="anti")])
    wrong = [row for row in differ.iter_rows() if row[1] not in edges.golden(row[0])[0]]
    if wrong:
        raise Differs(f"{len(wrong)} bars: {wrong[:NAMED]}")
    return {"rows_compared": len(one), "near_edge": len(differ)}


def touches(close, fast, slow):
    """Bars of the counted ones at which two averages touch."""
    return int(edges_of_crossing(close, fast, slow, 1)[-SWEEP_BARS - 1:].sum())


def sweep(edges, ours, theirs):
    keys = ["symbol", "fast", "slow"]
    forms = [pl.col("symbol").cast(pl.String), pl.col("fast", "slow", "crossings").cast(pl.Int64)]
    one = matched(pl.read_parquet(ours)).drop_nulls("crossings").select(forms)
    two = pl.read_parquet(theirs).select(forms)
    both = one.join(two, on=keys, how="full", suffix="_peer", coalesce=True)
    differ = both.filter(pl.col("crossings").ne_missing(pl.col("crossings_peer")))
    wrong = [
        row for row in differ.iter_rows()
        if None in row or abs(row[3] - row[4]) > touches(edges.bars(row[0])[1], row[1], row[2])
    ]
    if wrong:
        raise Differs(f"{len(wrong)} counts (symbol, fast, slow, Trawl, peer): {wrong[:NAMED]}")
    return {"rows_compared": len(one), "near_edge": len(differ)}


def screen(_edges, ours, theirs):
    one, two = matched(pl.read_parquet(ours)), pl.read_parquet(theirs).with_columns(pl.col("symbol").cast(pl.String))
    columns = [name for name in two.columns if name != "symbol"]
    if sorted(one["symbol"]) != sorted(two["symbol"]) or not set(columns) <= set(one.columns):
        raise Differs("other symbols or columns")
    one, two = one.sort("symbol"), two.sort("symbol")
    wrong = []
    for name in columns:
        a, b = (frame[name].cast(pl.Float64).fill_null(numpy.nan).to_numpy() for frame in (one, two))
        same = (numpy.isnan(a) & numpy.isnan(b)) | (numpy.abs(a - b) <= TOLERANCE * numpy.maximum(1, numpy.abs(a)))
        wrong += [(name, one["symbol"][int(i)], float(a[i]), float(b[i])) for i in numpy.flatnonzero(~same)]
    if wrong:
        raise Differs(f"{len(wrong)} values (column, symbol, Trawl, peer): {wrong[:NAMED]}")
    return {"rows_compared": len(one) * len(columns), "near_edge": 0}


def imported(market, answer):
    """What an import stored is what the text files were written from, row by row."""
    source = pl.read_parquet(f"{market}/rows.parquet")
    read = pl.read_ipc if answer.endswith(".arrow") else pl.read_parquet
    stored = read(answer).with_columns(pl.col("time").cast(pl.Date), pl.col("volume").cast(pl.Float64)).select(source.columns)
    if not stored.sort("symbol", "time").equals(source):
        raise Differs(f"{len(stored)} rows are not the {len(source)} rows of the file")
    return {"rows_compared": len(stored), "near_edge": 0}


def main():
    job, market, file = sys.argv[1:]
    answers = json.loads(pathlib.Path(file).read_text())
    edges, report, failed = Edges(market), {}, []
    for name, answer in answers.items():
        if name == "trawl" and not job.startswith("import"):
            continue
        try:
            if job.startswith("import"):
                report[name] = imported(market, answer)
            elif job in ("every-bar", "sweep", "screen"):
                report[name] = {"every-bar": every_bar, "sweep": sweep, "screen": screen}[job](edges, answers["trawl"], answer)
            else:
                report[name] = newest(job, edges, answers["trawl"], answer)
        except Differs as differs:
            failed.append(f"{job}: {name} differs from {'the file' if job.startswith('import') else 'Trawl'}: {differs}")
    print(json.dumps(report))
    if failed:
        sys.exit("\n".join(failed))


if __name__ == "__main__":
    main()
