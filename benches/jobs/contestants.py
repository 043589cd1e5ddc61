"""The jobs, and for each the ways of Trawl and of its peers. The numbers in them are also in peers/common.py.

What each job asks, and what it may exceed, comes from the comparison with other libraries: `required` is the ratio of the best peer's
time to Trawl's that is demanded, `goal` the one that is aimed at.
"""

import dataclasses
import pathlib

PEERS = pathlib.Path(__file__).parent / "peers"
GOLDEN = "within(crosses_above(sma(close, 50), sma(close, 200)), 3) and rsi(close, 14) < 60"
RANK = "xs_pct(0.4*roc(close, 63) + 0.2*roc(close, 126) + 0.2*roc(close, 189) + 0.2*roc(close, 252))"
MINUTES = "close > sma(close, 200) and rsi(close, 14) < 60"
DAYS = "tf('1d', sma(close, 20)) < close and tf('1d', rsi(close, 14)) < 60"
CROSSINGS = "count(crosses_above(sma(close, fast), sma(close, slow)), 1500) as crossings"
SCREEN = {
    "sma": "sma(close, 20)", "ema": "ema(close, 20)", "wma": "wma(close, 20)", "rsi": "rsi(close, 14)",
    "macd": "macd(close, 12, 26, 9).line", "macd_signal": "macd(close, 12, 26, 9).signal",
    "macd_hist": "macd(close, 12, 26, 9).hist", "bb_upper": "bbands(close, 20, 2).upper",
    "bb_middle": "bbands(close, 20, 2).middle", "bb_lower": "bbands(close, 20, 2).lower", "atr": "atr(14)",
    "stoch_k": "stoch(14, 3, 3).k", "stoch_d": "stoch(14, 3, 3).d", "adx": "adx(14)", "cci": "cci(20)", "obv": "obv()",
    "vwap": "vwap()", "mfi": "mfi(14)", "kama": "kama(close, 10)", "dc_upper": "donchian(20).upper",
    "dc_middle": "donchian(20).middle", "dc_lower": "donchian(20).lower",
}

# (symbols, bars, timeframe) of the markets, whole and of `--quick`.
MARKETS = {
    "days": ((10_000, 1_000, "1d"), (1_500, 1_000, "1d")),
    "sweep": ((1_000, 2_000, "1d"), (100, 2_000, "1d")),
    "screen": ((10_000, 2_000, "1d"), (500, 2_000, "1d")),
    "minutes": ((500, 100_000, "1m"), (100, 20_000, "1m")),
}
# Rows of an import.
IMPORT_ROWS = (10_000_000, 200_000)


@dataclasses.dataclass
class Way:
    """One way of a peer: its script of benches/jobs/peers and the function in it."""

    library: str
    way: str | None
    script: str
    function: str
    store: str
    # What Python has to be able to import.
    needs: tuple = ()
    suffix: str | None = None

    @property
    def name(self):
        return f"{self.library} {self.way}" if self.way else self.library


@dataclasses.dataclass
class Job:
    key: str
    name: str
    # May contain {symbols}, {bars} and {rows}.
    what: str
    # One of MARKETS, or "text" and the kind of text file.
    market: str
    required: float | None
    goal: float | None
    # Arguments of Trawl: {answer} and {file} are replaced.
    trawl: list
    # Kind of file the answers are.
    suffix: str
    ways: list


def scan(condition, *more):
    return ["scan", "--quiet", "--dataset", "bars", "--where", condition, *more]


def peer(library, way, function, store="arrow", suffix=None):
    module = {"TA-Lib": "talib", "DuckDB": "duckdb"}.get(library, library)
    needs = {
        "TA-Lib": ("talib", "numpy", "pyarrow"), "numpy": ("numpy", "pyarrow"), "vectorbt": ("vectorbt", "pyarrow", "talib"),
        "pandas": ("pandas", "pyarrow"),
    }.get(library, (module,))
    if library == "polars" and way and "polars-talib" in way:
        needs += ("polars_talib",)
    return Way(library, way, f"with_{module}.py", function, store, needs, suffix)


def selects(columns):
    return [word for name, text in columns.items() for word in ("--select", f"{text} as {name}")]


def import_job(key, name, what, kind, required, goal, plain):
    """Files in order of symbols need no sorting; those in order of dates are sorted by every peer, as a dataset is."""
    parquet = [("polars", "sorted", "import_sorted"), ("DuckDB", "sorted", "import_sorted")]
    if plain:
        parquet += [("polars", "plain", "import"), ("DuckDB", "plain", "import")]
    ways = [peer(library, way, function, "text", ".parquet") for library, way, function in parquet]
    if plain:
        ways.append(peer("polars", "plain, ipc", "import_ipc", "text", ".arrow"))
    arguments = ["data", "import", "{file}", "--dataset", "imported", "--calendar", "weekdays", "--timeframe", "1d", "--json"]
    return Job(key, name, what, f"text {kind}", required, goal, arguments, ".imported", ways)


POOL, TAILS, ALONE = "process pool, whole series", "process pool, tails", "one process, tails"
JOBS = [
    Job("J1", "newest-bar",
        "`within(crosses_above(sma(close,50), sma(close,200)), 3) and rsi(close,14) < 60`, newest bar, {symbols} symbols x {bars} bars",
        "days", 5, 10, scan(GOLDEN, "--select", "rsi(close, 14)", "--output", "{answer}"), ".csv", [
            peer("polars", "with polars-talib", "newest_talib", "parquet"),
            peer("polars", "with polars-talib, ipc", "newest_talib_ipc"),
            peer("polars", "plain, tails", "newest_tails", "parquet"),
            peer("polars", "plain, tails, ipc", "newest_tails_ipc"),
            peer("DuckDB", "lists, parquet", "newest", "parquet"),
            peer("DuckDB", "lists, own file", "newest_db", "duckdb"),
            peer("TA-Lib", POOL, "newest"),
            peer("TA-Lib", TAILS, "newest_tails"),
            peer("TA-Lib", ALONE, "newest_tails_alone"),
        ]),
    Job("J2", "market-rank", "`xs_pct` of a weighted sum of four `roc`, newest bar, {symbols} symbols x {bars} bars",
        "days", 4, 8, scan(f"{RANK} >= 0.9", "--select", f"{RANK} as value", "--output", "{answer}"), ".csv", [
            peer("polars", "plain", "rank", "parquet"),
            peer("polars", "plain, ipc", "rank_ipc"),
            peer("DuckDB", "lists, parquet", "rank", "parquet"),
            peer("DuckDB", "lists, own file", "rank_db", "duckdb"),
            peer("pandas", None, "rank", "parquet"),
            peer("numpy", None, "rank"),
        ]),
    Job("J3", "every-bar", "the first condition at every bar, written to Parquet, {symbols} symbols x {bars} bars",
        "days", 1.5, 3, scan(GOLDEN, "--all-bars", "{answer}"), ".parquet", [
            peer("polars", "over", "every_over", "parquet"),
            peer("polars", "agg", "every_agg", "parquet"),
            peer("polars", "each with polars-talib, ipc", "every_each"),
            peer("DuckDB", "windows", "every_bar", "parquet"),
            peer("TA-Lib", POOL, "every_bar"),
            peer("vectorbt", None, "every_bar"),
        ]),
    Job("J4", "sweep", "crossings of 10 x 8 pairs of averages counted over 1,500 bars, {symbols} symbols x {bars} bars",
        "sweep", 5, 10,
        scan("true", "--select", CROSSINGS, "--sweep", "fast=5:50:5", "--sweep", "slow=60:200:20", "--output", "{answer}"),
        ".parquet", [
            peer("polars", "plain", "sweep", "parquet"),
            peer("TA-Lib", TAILS, "sweep"),
            peer("vectorbt", None, "sweep"),
        ]),
    import_job("J5", "import", "import of {rows} CSV rows sorted by symbol", "rows-by-symbol.csv", 1, 1.5, True),
    import_job("J5d", "import-by-date", "import of {rows} CSV rows sorted by date", "rows-by-date.csv", None, None, False),
    import_job("J5z", "import-gz-by-date", "import of {rows} rows of csv.gz sorted by date", "rows-by-date.csv.gz", 1, 1.5, False),
    Job("J6", "screen", "fifteen indicators, newest bar, {symbols} symbols x {bars} bars",
        "screen", 8, 15, scan("true", *selects(SCREEN), "--output", "{answer}"), ".parquet", [
            peer("polars", "with polars-talib", "screen", "parquet"),
            peer("polars", "with polars-talib, tails", "screen_tails", "parquet"),
            peer("TA-Lib", POOL, "screen"),
            peer("TA-Lib", TAILS, "screen_tails"),
        ]),
    Job("J8a", "minutes",
        "`close > sma(close,200) and rsi(close,14) < 60`, newest bar, {symbols} symbols x {bars} minutes",
        "minutes", 4, 10, scan(MINUTES, "--select", "rsi(close, 14)", "--output", "{answer}"), ".csv", [
            peer("polars", "plain, tails", "minutes_tails", "parquet"),
            peer("polars", "with polars-talib, tails, ipc", "minutes_tails_ipc"),
            peer("DuckDB", "lists, parquet", "minutes", "parquet"),
            peer("DuckDB", "lists, own file", "minutes_db", "duckdb"),
            peer("TA-Lib", POOL, "minutes"),
            peer("TA-Lib", TAILS, "minutes_tails"),
            peer("TA-Lib", ALONE, "minutes_tails_alone"),
        ]),
    Job("J8b", "minutes-to-days",
        "`tf('1d', sma(close,20)) < close and tf('1d', rsi(close,14)) < 60`, newest bar, {symbols} symbols x {bars} minutes",
        "minutes", 3, 6, scan(DAYS, "--select", "tf('1d', rsi(close, 14))", "--output", "{answer}"), ".csv", [
            peer("polars", "grouped by day", "days_grouped", "parquet"),
            peer("polars", "dynamic", "days_dynamic", "parquet"),
            peer("DuckDB", "grouped by day, parquet", "minutes_to_days", "parquet"),
            peer("DuckDB", "grouped by day, own file", "minutes_to_days_db", "duckdb"),
            peer("TA-Lib", POOL, "minutes_to_days"),
        ]),
]
