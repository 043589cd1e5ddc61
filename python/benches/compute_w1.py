"""The screen W1 over a frame of 10,000 symbols x 1,000 bars, all 21 outputs materialised: trawl, polars-talib, TA-Lib and pandas-ta.

    compute_w1.py [--symbols N] [--bars N] [--threads N] [--repeats N] [--results FOLDER]

Every way runs in a process of its own, on as many threads as the others, over the same seeded frame, which is made before
the clock starts. Before each repeat as much memory as the results take is written once and given back, so that the system has free large
pages for every way alike: without that, what the system does for pages is most of the time, and depends on what ran before. It says how long
each took (the median and the minimum of the repeats), how much CPU, of it in the system, how much memory the process had at most,
and how much of that was there before the first repeat. Values of all ways are compared on some symbols. pandas-ta, which takes milliseconds a symbol, is
given a tenth of the symbols; its times are of those rows, never scaled. Requirements: the wheel, polars, polars-talib, TA-Lib, pandas,
pandas-ta (Python 3.12), numpy.
"""

import argparse
import datetime
import importlib.metadata
import json
import os
import pathlib
import resource
import statistics
import subprocess
import sys
import tempfile
import time

SEED = 0x5EED
COLUMNS = ("open", "high", "low", "close", "volume")
#: Names of the outputs, and the expressions of trawl that give them: the screen of `bench/src/lib.rs`.
OUTPUTS = {
    "sma": "sma(close, 20)",
    "ema": "ema(close, 20)",
    "wma": "wma(close, 20)",
    "rsi": "rsi(close, 14)",
    "macd_line": "macd(close, 12, 26, 9).line",
    "macd_signal": "macd(close, 12, 26, 9).signal",
    "macd_hist": "macd(close, 12, 26, 9).hist",
    "bb_upper": "bbands(close, 20, 2).upper",
    "bb_middle": "bbands(close, 20, 2).middle",
    "bb_lower": "bbands(close, 20, 2).lower",
    "atr": "atr(14)",
    "stoch_k": "stoch(14, 3, 3).k",
    "stoch_d": "stoch(14, 3, 3).d",
    "adx": "adx(14)",
    "cci": "cci(20)",
    "obv": "obv()",
    "vwap": "vwap()",
    "mfi": "mfi(14)",
    "kama": "kama(close, 10)",
    "dc_upper": "donchian(20).upper",
    "dc_middle": "donchian(20).middle",
    "dc_lower": "donchian(20).lower",
}
#: Largest difference between two ways, as a share.
TOLERANCE = 1e-6
#: Symbols whose values are compared.
COMPARED = 50
#: Which part of the symbols pandas-ta is given.
PANDAS_TA_PART = 10
WAYS = ("trawl", "polars-talib over", "polars-talib group_by", "TA-Lib", "pandas-ta")


def market(symbols, bars):
    """The frame: seeded walks on a cent grid, symbol by symbol."""
    import numpy as np
    import polars as pl

    rng = np.random.default_rng(SEED)
    close = 5_000 + rng.integers(0, 10_000, (symbols, 1)) + np.cumsum(rng.integers(-100, 101, (symbols, bars)), axis=1)
    close = np.maximum(close, 100)
    opened = np.concatenate([close[:, :1], close[:, :-1]], axis=1)
    high = np.maximum(opened, close) + rng.integers(0, 80, close.shape)
    low = np.maximum(np.minimum(opened, close) - rng.integers(0, 80, close.shape), 1)
    volume = rng.integers(100_000, 1_000_000, close.shape).astype("float64")
    arrays = [values.ravel() / 100.0 for values in (opened, high, low, close)] + [volume.ravel()]
    names = pl.Series("symbol", [f"S{at:05}" for at in range(symbols)]).gather(np.repeat(np.arange(symbols), bars))
    return pl.DataFrame([names, *(pl.Series(name, values) for name, values in zip(COLUMNS, arrays))])


def trawl_way(frame, threads):
    import trawl as tw

    exprs = {name: text for name, text in OUTPUTS.items()}
    return lambda: tw.compute(frame, exprs, threads=threads)


def _expressions(pl):
    import polars_talib as ta

    c, h, l, v = (pl.col(name) for name in ("close", "high", "low", "volume"))
    macd, bands = ta.macd(c, 12, 26, 9), ta.bbands(c, 20, 2.0, 2.0)
    stoch, channel = ta.stoch(h, l, c, 14, 3, 0, 3, 0), ta.donchian(h, l, 20)
    return [
        ta.sma(c, 20).alias("sma"), ta.ema(c, 20).alias("ema"), ta.wma(c, 20).alias("wma"), ta.rsi(c, 14).alias("rsi"),
        macd.alias("macd"), bands.alias("bb"), ta.atr(h, l, c, 14).alias("atr"), stoch.alias("stoch"),
        ta.adx(h, l, c, 14).alias("adx"), ta.cci(h, l, c, 20).alias("cci"), ta.obv(c, v).alias("obv"),
        ta.vwap(h, l, c, v).alias("vwap"), ta.mfi(h, l, c, v, 14).alias("mfi"), ta.kama(c, 10).alias("kama"),
        channel.alias("dc"),
    ]  # fmt: skip


def _flat(frame):
    """Fields of structs as columns of their own, as trawl has them."""
    fields = {
        "macd": ("macd_line", "macd_signal", "macd_hist"),
        "bb": ("bb_upper", "bb_middle", "bb_lower"),
        "stoch": ("stoch_k", "stoch_d"),
        "dc": ("dc_upper", "dc_middle", "dc_lower"),
    }
    for name, names in fields.items():
        frame = frame.with_columns(frame[name].struct.rename_fields(list(names))).unnest(name)
    return frame


def polars_over(frame, threads):
    import polars as pl

    exprs = [expression.over("symbol") for expression in _expressions(pl)]
    return lambda: _flat(frame.select("symbol", *exprs))


def polars_group_by(frame, threads):
    import polars as pl

    exprs = _expressions(pl)
    names = [expression.meta.output_name() for expression in exprs]
    return lambda: _flat(frame.group_by("symbol", maintain_order=True).agg(exprs).explode(names))


def talib_way(frame, threads):
    import concurrent.futures

    import numpy as np
    import polars as pl
    import talib

    o, h, l, c, v = (frame[name].to_numpy() for name in COLUMNS)
    begins = np.flatnonzero((frame["symbol"] != frame["symbol"].shift(1)).fill_null(True).to_numpy())
    ends = np.append(begins[1:], frame.height)
    pool = concurrent.futures.ThreadPoolExecutor(threads)

    def one(out, begin, end):
        H, L, C, V = h[begin:end], l[begin:end], c[begin:end], v[begin:end]
        found = [
            talib.SMA(C, 20), talib.EMA(C, 20), talib.WMA(C, 20), talib.RSI(C, 14), *talib.MACD(C, 12, 26, 9),
            *talib.BBANDS(C, 20, 2.0, 2.0), talib.ATR(H, L, C, 14), *talib.STOCH(H, L, C, 14, 3, 0, 3, 0),
            talib.ADX(H, L, C, 14), talib.CCI(H, L, C, 20), talib.OBV(C, V), talib.VWAP(H, L, C, V),
            talib.MFI(H, L, C, V, 14), talib.KAMA(C, 10), *talib.DONCHIAN(H, L, 20),
        ]  # fmt: skip
        for column, values in zip(out, found):
            column[begin:end] = values

    def some(out, part):
        for begin, end in part:
            one(out, begin, end)

    def run():
        out = [np.empty(frame.height) for _ in OUTPUTS]
        spans = list(zip(begins, ends))
        if threads == 1:
            some(out, spans)
        else:
            size = -(-len(spans) // (threads * 8))
            list(pool.map(lambda at: some(out, spans[at : at + size]), range(0, len(spans), size)))
        return pl.DataFrame([frame["symbol"], *(pl.Series(name, values) for name, values in zip(OUTPUTS, out))])

    return run


def pandas_ta_way(frame, threads):
    import pandas as pd
    import pandas_ta as ta

    symbols = frame["symbol"].unique(maintain_order=True)
    part = frame.filter(frame["symbol"].is_in(symbols.head(max(1, len(symbols) // PANDAS_TA_PART)).to_list()))
    whole = pd.DataFrame({name: part[name].to_numpy() for name in COLUMNS} | {"symbol": part["symbol"].to_list()})

    def one(g):
        h, l, c, v = g["high"], g["low"], g["close"], g["volume"]
        macd, bands = ta.macd(c, 12, 26, 9), ta.bbands(c, 20, 2.0)
        stoch, channel = ta.stoch(h, l, c, 14, 3, 3), ta.donchian(h, l, 20, 20)
        price = (h + l + c) / 3
        columns = [
            ta.sma(c, 20), ta.ema(c, 20), ta.wma(c, 20), ta.rsi(c, 14), *(macd[name] for name in macd), *(bands.iloc[:, at] for at in (2, 1, 0)),
            ta.atr(h, l, c, 14), *(stoch.iloc[:, at] for at in (0, 1)), ta.adx(h, l, c, 14).iloc[:, 0], ta.cci(h, l, c, 20), ta.obv(c, v),
            (price * v).cumsum() / v.cumsum(), ta.mfi(h, l, c, v, 14), ta.kama(c, 10), *(channel.iloc[:, at] for at in (2, 1, 0)),
        ]  # fmt: skip
        return pd.concat(columns, axis=1, keys=list(OUTPUTS))

    def run():
        return pd.concat([one(group) for _, group in whole.groupby("symbol", sort=False)], copy=False)

    return run


MAKERS = dict(zip(WAYS, (trawl_way, polars_over, polars_group_by, talib_way, pandas_ta_way)))


def memory(field):
    """A line of /proc/self/status in bytes."""
    for line in pathlib.Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) * 1024
    return 0


def touched(rows):
    """Writes as many bytes as the results of ``rows`` rows take, and gives them back to the system."""
    import mmap

    with mmap.mmap(-1, max(1, rows * len(OUTPUTS) * 8)) as memory_:
        if hasattr(mmap, "MADV_HUGEPAGE"):
            memory_.madvise(mmap.MADV_HUGEPAGE)
        for at in range(0, len(memory_), 4096):
            memory_[at] = 1


def child(options):
    """One way, in a process of its own; prints JSON."""
    import polars as pl

    frame = market(options.symbols, options.bars)
    run = MAKERS[options.way](frame, options.threads)
    touched(options.symbols * options.bars)
    before = memory("VmRSS")
    pathlib.Path("/proc/self/clear_refs").write_text("5")
    seconds, cpu, made = [], [], None
    for _ in range(options.repeats):
        del made
        touched(options.symbols * options.bars)
        begun, used = time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF)
        made = run()
        seconds.append(time.perf_counter() - begun)
        after = resource.getrusage(resource.RUSAGE_SELF)
        cpu.append({"user_s": after.ru_utime - used.ru_utime, "system_s": after.ru_stime - used.ru_stime})
    peak = memory("VmHWM")
    rows = len(made)
    if options.way != "pandas-ta":
        compared = made.head(COMPARED * options.bars).select(list(OUTPUTS)).cast(pl.Float64)
        compared.write_ipc(options.values)
    cell = {"way": options.way, "rows": rows, "seconds": seconds, "cpu": cpu, "before_bytes": before, "peak_bytes": peak}
    print(json.dumps(cell))


def compare(folder, ways):
    """The largest relative difference of each way's values from trawl's, by output; warm-up bars are those of both."""
    import numpy as np
    import polars as pl

    ours = pl.read_ipc(folder / "trawl.values")
    found = {}
    for way in ways:
        file = folder / f"{way}.values"
        if way == "trawl" or not file.exists():
            continue
        theirs = pl.read_ipc(file)
        worst = 0.0
        for name in OUTPUTS:
            a, b = (frame[name].fill_null(float("nan")).to_numpy() for frame in (ours, theirs))
            both = np.isfinite(a) & np.isfinite(b)
            apart = np.abs(a[both] - b[both]) / np.maximum(1.0, np.abs(a[both]))
            worst = max(worst, float(apart.max()))
        found[way] = worst
    return found


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--symbols", type=int, default=10_000)
    arguments.add_argument("--bars", type=int, default=1_000)
    arguments.add_argument("--threads", type=int, default=0, help="0: one for each core")
    arguments.add_argument("--repeats", type=int, default=5)
    arguments.add_argument("--ways", default=",".join(WAYS))
    arguments.add_argument("--results", type=pathlib.Path)
    for hidden in ("--way", "--values"):
        arguments.add_argument(hidden, help=argparse.SUPPRESS)
    options = arguments.parse_args()
    if options.way:
        return child(options)
    options.threads = options.threads or len(os.sched_getaffinity(0))
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "benches" / "jobs"))
    from report import commit, processor

    ways = [way for way in options.ways.split(",") if way in MAKERS]
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        environment = {**os.environ, "POLARS_MAX_THREADS": str(options.threads), "NUMBA_NUM_THREADS": str(options.threads)}
        cells = []
        for way in ways:
            repeats = 1 if way == "pandas-ta" else options.repeats
            words = ["--way", way, "--values", folder / f"{way}.values", "--threads", options.threads,
                     "--repeats", repeats, "--symbols", options.symbols, "--bars", options.bars]  # fmt: skip
            done = subprocess.run([sys.executable, __file__, *map(str, words)], stdout=subprocess.PIPE, env=environment)
            if done.returncode != 0:
                print(f"{way}: failed", file=sys.stderr)
                continue
            cell = json.loads(done.stdout)
            cell["median_s"] = statistics.median(cell["seconds"])
            cell["minimum_s"] = min(cell["seconds"])
            cell["system_s"] = statistics.median(used["system_s"] for used in cell["cpu"])
            cell["cpu_s"] = statistics.median(used["user_s"] + used["system_s"] for used in cell["cpu"])
            cell["ns_per_row"] = 1e9 * cell["median_s"] / cell["rows"]
            cells.append(cell)
            print(f"{way:<24}{cell['rows']:>12} rows{cell['median_s']:>10.3f} s{cell['minimum_s']:>10.3f} s at least{cell['cpu_s']:>9.3f} s of CPU, {cell['system_s']:.3f} in the system{cell['ns_per_row']:>9.1f} ns a row"
                  f"{cell['peak_bytes'] / 2**20:>9.0f} MiB at most, {cell['before_bytes'] / 2**20:.0f} before")  # fmt: skip
        apart = compare(folder, [cell["way"] for cell in cells])
    ours = next(cell for cell in cells if cell["way"] == "trawl")
    others = [cell for cell in cells if cell is not ours]
    best = min(others, key=lambda cell: cell["ns_per_row"]) if others else None
    if best:
        fastest = min(others, key=lambda cell: cell["minimum_s"] / cell["rows"])
        least = (fastest["minimum_s"] / fastest["rows"]) / (ours["minimum_s"] / ours["rows"])
        print(f"trawl is {best['ns_per_row'] / ours['ns_per_row']:.2f} times as fast as the best, {best['way']}, on {options.threads} threads; "
              f"{least:.2f} times by the minima, of {fastest['way']}")  # fmt: skip
    print("largest difference of values:", {way: f"{value:.1e}" for way, value in apart.items()})
    if any(value > TOLERANCE for value in apart.values()):
        sys.exit("compute_w1.py: the values of the ways differ")
    if options.results:
        now = datetime.datetime.now(datetime.timezone.utc)
        packages = ("trawl", "polars", "polars-talib", "TA-Lib", "pandas", "pandas-ta", "numpy")
        result = {
            "date": now.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "commit": commit(str(pathlib.Path(__file__).resolve().parents[2])),
            "machine": {"processor": processor(), "cores": os.cpu_count(), "load": os.getloadavg()[0]},
            "threads": options.threads, "symbols": options.symbols, "bars": options.bars, "outputs": len(OUTPUTS),
            "versions": {name: importlib.metadata.version(name) for name in packages} | {"python": sys.version.split()[0]},
            "ways": cells,
            "largest_difference": apart,
            "times_the_best_by_minima": least if best else None,
            "times_the_best": best["ns_per_row"] / ours["ns_per_row"] if best else None,
        }  # fmt: skip
        options.results.mkdir(parents=True, exist_ok=True)
        file = options.results / f"python-compute-{options.threads}-{now.strftime('%Y-%m-%d')}.json"
        file.write_text(json.dumps(result, indent=1) + "\n")
        print(f"kept in {file}")


if __name__ == "__main__":
    main()
