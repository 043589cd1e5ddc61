"""Expressions over frames: the values are the command line's, bit by bit, however the frame is laid out."""

import math
import random
import struct
import threading

import pytest

import trawl as tw
from conftest import AS_OF  # noqa: F401

pl = pytest.importorskip("polars")

EXPRS = ["sma(close, 5) as m", "rsi(14) as r", "close > ema(close, 10) as up", "atr(7) as a", "macd().hist as h"]


def bars(symbols=4, rows=60, seed=1):
    rng = random.Random(seed)
    columns = {name: [] for name in ("symbol", "date", "open", "high", "low", "close", "volume")}
    for symbol in range(symbols):
        price = 50.0
        for row in range(rows - symbol):
            close = max(1.0, round(price + rng.uniform(-1, 1), 2))
            columns["symbol"].append(f"S{symbol}")
            columns["date"].append(row)
            columns["open"].append(price)
            columns["high"].append(round(max(price, close) + rng.random(), 2))
            columns["low"].append(round(min(price, close) - rng.random(), 2))
            columns["close"].append(close)
            columns["volume"].append(float(rng.randrange(1000, 100000)))
            price = close
    days = pl.Series(columns.pop("date"), dtype=pl.Int32).cast(pl.Date)
    return pl.DataFrame(columns).insert_column(1, days.alias("date"))


def bits(values):
    return [None if v is None or (isinstance(v, float) and math.isnan(v)) else struct.pack("<d", v) for v in values]


def test_the_values_are_the_command_lines(cli, tmp_path):
    frame = bars()
    file = tmp_path / "bars.csv"
    frame.write_csv(file)
    out = tmp_path / "out.csv"
    flags = [word for text in EXPRS for word in ("--expr", text)]
    cli("compute", "--input", file, *flags, "--output", out)
    theirs = pl.read_csv(out)
    ours = tw.compute(frame, EXPRS)
    assert ours.columns == ["symbol", "date", "m", "r", "up", "a", "h"]
    assert ours["symbol"].to_list() == theirs["symbol"].to_list()
    for name in ("m", "r", "a", "h"):
        assert bits(ours[name].to_list()) == bits(theirs[name].cast(pl.Float64).to_list()), name
    assert ours.schema["up"] == pl.Boolean
    assert [None if v is None else float(v) for v in ours["up"]] == theirs["up"].cast(pl.Float64).to_list()


def test_the_order_of_rows_is_kept_however_symbols_are_mixed():
    frame = bars()
    expected = tw.compute(frame, EXPRS)
    mixed = frame.with_row_index("row").sort("date", "symbol")
    ours = tw.compute(mixed, EXPRS)
    assert ours["date"].to_list() == mixed["date"].to_list()
    back = mixed.select("row").hstack(ours).sort("row").drop("row")
    assert back.equals(expected)
    newest_first = frame.reverse()
    assert tw.compute(newest_first, EXPRS).reverse().equals(expected)


def test_every_library_gives_the_same_values():
    frame = bars()
    expected = [bits(tw.compute(frame, EXPRS)[name].to_list()) for name in ("m", "r", "a", "h")]
    pandas = pytest.importorskip("pandas")
    given = pandas.DataFrame({name: frame[name].to_list() for name in frame.columns}, index=range(5, 5 + frame.height))
    ours = tw.compute(given, EXPRS)
    assert list(ours.columns) == ["symbol", "date", "m", "r", "up", "a", "h"] and ours.index[0] == 5
    assert [bits(ours[name].tolist()) for name in ("m", "r", "a", "h")] == expected
    pyarrow = pytest.importorskip("pyarrow")
    table = pyarrow.table(frame.to_dict(as_series=False))
    ours = tw.compute(table, EXPRS)
    assert isinstance(ours, pyarrow.Table)
    assert [bits(ours[name].to_pylist()) for name in ("m", "r", "a", "h")] == expected
    several = pyarrow.concat_tables([table.slice(0, 50), table.slice(50)])
    assert [bits(tw.compute(several, EXPRS)[name].to_pylist()) for name in ("m", "r", "a", "h")] == expected


@pytest.mark.parametrize("kind", ["text", "categorical", "whole", "long"])
def test_every_type_of_symbols(kind):
    frame = bars()
    expected = tw.compute(frame, EXPRS)["r"]
    symbol = {
        "text": pl.col("symbol"),
        "categorical": pl.col("symbol").cast(pl.Categorical),
        "whole": pl.col("symbol").str.slice(1).cast(pl.Int64),
        "long": pl.col("symbol") + " of a market with a long name",
    }[kind]
    assert tw.compute(frame.with_columns(symbol), EXPRS)["r"].equals(expected)


def test_missing_numbers_are_na_and_other_types_are_converted():
    frame = bars(1, 30).with_columns(pl.when(pl.int_range(30) == 12).then(None).otherwise(pl.col("close")).alias("close"))
    ours = tw.compute(frame, "sma(close, 3) as m")["m"]
    assert [i for i, value in enumerate(ours) if value is None] == [0, 1, 12, 13, 14]
    nan = frame.with_columns(pl.col("close").fill_null(float("nan")))
    assert tw.compute(nan, "sma(close, 3) as m")["m"].equals(ours)
    assert math.isnan(tw.compute(frame, "sma(close, 3) as m", nulls=False)["m"][12])
    whole = bars(1, 30).with_columns(pl.col("volume").cast(pl.Int32))
    assert tw.compute(whole, "obv() as o")["o"].equals(tw.compute(bars(1, 30), "obv() as o")["o"])


def test_within_polars():
    frame = bars()
    expected = tw.compute(frame, EXPRS)
    assert frame.lazy().map_batches(lambda whole: tw.compute(whole, EXPRS), validate_output_schema=False).collect().equals(expected)
    lazy = tw.compute(frame.lazy(), EXPRS)
    assert isinstance(lazy, pl.LazyFrame)
    assert lazy.filter(pl.col("up")).select("r").collect().equals(expected.filter(pl.col("up")).select("r"))
    appended = tw.compute(frame, {"m": "sma(5)"}, append=True)
    assert appended.columns == [*frame.columns, "m"]
    # Each symbol as a frame of its own.
    parts = frame.group_by("symbol", maintain_order=True).map_groups(lambda part: tw.compute(part, EXPRS))
    assert parts.equals(expected)


def test_one_column_of_floats_is_not_copied():
    """The engine reads the frame's own memory, and NumPy the engine's."""
    np = pytest.importorskip("numpy")
    from trawl import _native

    frame = pl.DataFrame({"close": np.arange(1000, dtype="float64")})
    expressions = _native.Expressions(["close"], ["close as c"], [], "f64")
    made = expressions.run(frame, None, None, "XNYS", 1, False)
    first, second = (np.asarray(made.array(0)[0]) for _ in range(2))
    assert first.__array_interface__["data"] == second.__array_interface__["data"]
    assert not first.flags.writeable
    series = pl.DataFrame(made)["c"]
    assert series.to_numpy().__array_interface__["data"][0] == first.__array_interface__["data"][0]


def test_the_calendar_restarts_a_day_of_minutes():
    start = pl.datetime(2024, 6, 27, 13, 30, time_zone="UTC")
    minutes = pl.DataFrame({"i": range(900)}).select(
        (start + pl.duration(minutes=pl.col("i") * 2)).alias("time"),
        *(pl.lit(10.0).alias(name) for name in ("open", "high", "low")),
        (10 + pl.col("i") % 7).cast(pl.Float64).alias("close"),
        pl.lit(100.0).alias("volume"),
    )
    assert tw.compute(minutes, "avwap() as v")["v"].drop_nulls().len() > 0
    with pytest.raises(tw.Mistake, match="time"):
        tw.compute(minutes.drop("time"), "avwap() as v")


def test_mistakes():
    frame = bars()
    cases = [
        (frame, "smaa(5)", {}, "sma"),
        (frame, "xs_rank(close)", {}, "compares the symbols"),
        (frame, "close as symbol", {}, "symbol"),
        (frame, [], {}, "no expression"),
        (frame, "close", {"by": "symbl"}, "symbol"),
        (frame, "close", {"time": "open"}, "open"),
        (frame, "close", {"calendar": "MARS"}, "MARS"),
        (frame, "close", {"precision": "f16"}, "f16"),
        (frame, "close", {"threads": -1}, "threads"),
        (frame, "close", {"threads": 100_000}, "threads"),
        (frame.with_columns(pl.lit("x").alias("note")), "note + 1", {}, "note"),
        (pl.concat([frame, frame]), "close", {}, "sort the frame"),
        (frame.with_columns(pl.lit(None, dtype=pl.String).alias("symbol")), "close", {}, "without a symbol"),
    ]
    for given, exprs, named, expected in cases:
        with pytest.raises(tw.Mistake) as caught:
            tw.compute(given, exprs, **named)
        assert expected in str(caught.value)
    with pytest.raises(TypeError, match="frame of polars"):
        tw.compute([1, 2, 3], "close")


def test_a_frame_without_symbols_and_times_is_one_symbol():
    frame = bars(1, 30).drop("symbol", "date")
    expected = tw.compute(bars(1, 30), EXPRS).drop("symbol", "date")
    assert tw.compute(frame, EXPRS).equals(expected)
    assert tw.compute(bars(1, 30), EXPRS, by=None, time=None).equals(expected)
    assert tw.compute(frame, EXPRS, append=True).columns == [*frame.columns, "m", "r", "up", "a", "h"]
    pandas = pytest.importorskip("pandas")
    given = pandas.DataFrame({"close": frame["close"].to_list()}, index=range(9, 39))
    made = tw.compute(given, "sma(5) as m")
    assert list(made.columns) == ["m"] and made.index[0] == 9
    pyarrow = pytest.importorskip("pyarrow")
    assert tw.compute(pyarrow.table({"close": frame["close"].to_list()}), "sma(5) as m").num_rows == 30


def test_an_empty_frame_gives_an_empty_one():
    ours = tw.compute(bars().head(0), EXPRS)
    assert ours.height == 0 and ours.columns == ["symbol", "date", "m", "r", "up", "a", "h"]


def test_the_lock_of_the_interpreter_is_free_meanwhile():
    frame = bars(300, 400)
    counted, stop = [0], threading.Event()

    def count():
        while not stop.is_set():
            counted[0] += 1

    thread = threading.Thread(target=count)
    thread.start()
    for _ in range(3):
        tw.compute(frame, ["percentile(close, 200) as p"], threads=1)
    stop.set()
    thread.join()
    assert counted[0] > 1000


def test_levels_of_an_index_are_symbols_and_times_and_stay_there():
    pandas = pytest.importorskip("pandas")
    frame = bars()
    expected = bits(tw.compute(frame, EXPRS)["m"].to_list())
    flat = pandas.DataFrame({name: frame[name].to_list() for name in frame.columns})
    flat["date"] = pandas.to_datetime(flat["date"])
    both = flat.set_index(["symbol", "date"])
    made = tw.compute(both, EXPRS)
    assert list(made.columns) == ["m", "r", "up", "a", "h"] and made.index.equals(both.index)
    assert bits(made["m"].tolist()) == expected
    # Newest bars first: each symbol is turned around by the times of the index.
    turned = tw.compute(both[::-1], EXPRS)[::-1]
    assert bits(turned["m"].tolist()) == expected
    unnamed = both.copy()
    unnamed.index.names = [None, None]
    with pytest.raises(tw.Mistake, match="which level of the index has the symbols"):
        tw.compute(unnamed, "close")
    other = flat.rename(columns={"symbol": "asset", "date": "day"}).set_index(["asset", "day"])
    assert bits(tw.compute(other, EXPRS, by="asset")["m"].tolist()) == expected
    assert list(tw.compute(both, {"m": "sma(close, 5)"}, append=True).columns) == [*both.columns, "m"]


def test_an_index_of_times_decides_the_order():
    pandas = pytest.importorskip("pandas")
    days = pandas.date_range("2024-01-01", periods=9)
    oldest = pandas.DataFrame({"close": [1.0, 2, 3, 5, 8, 13, 21, 34, 55]}, index=days)
    expected = bits(tw.compute(oldest, "sma(close, 3) as m")["m"].tolist())
    assert bits(tw.compute(oldest[::-1], "sma(close, 3) as m")["m"][::-1].tolist()) == expected
    with pytest.raises(tw.Mistake, match="is after that of"):
        tw.compute(oldest.iloc[[0, 2, 1]], "close")
    # Of times that are no column of a known name, too.
    frame = pl.DataFrame({"day": list(days), "close": oldest["close"].tolist()})
    assert bits(tw.compute(frame.reverse(), "sma(close, 3) as m")["m"].to_list()[::-1]) == expected
    with pytest.raises(tw.Mistake, match="which column has the times"):
        tw.compute(frame.with_columns(pl.col("day").alias("seen")), "close")


def test_columns_that_differ_in_case_alone_are_not_mixed_up():
    frame = pl.DataFrame({"Close": [1.0, 2.0], "close": [10.0, 20.0], "open": [3.0, 4.0]})
    with pytest.raises(tw.Mistake, match="either of the columns 'Close' and 'close'"):
        tw.compute(frame, "close * 1 as c")
    assert tw.compute(frame, "open * 1 as o")["o"].to_list() == [3.0, 4.0]
    assert tw.compute(frame.drop("close"), "close * 1 as c")["c"].to_list() == [1.0, 2.0]


@pytest.mark.parametrize("kind", ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "string", "large_string"])
@pytest.mark.parametrize("form", ["whole", "pieces", "categories", "pieces of categories"])
def test_symbols_of_every_type_and_form(kind, form):
    pa = pytest.importorskip("pyarrow")
    type = getattr(pa, kind)()
    parts = [pa.array(names if "string" not in kind else [str(name) for name in names], type) for names in ([1, 1, 2], [2, 7, 1])]
    if "categories" in form:
        parts = [part.dictionary_encode() for part in parts]
    symbols = pa.chunked_array(parts if "pieces" in form else [pa.chunked_array(parts).unify_dictionaries().combine_chunks()])
    table = pa.table({"symbol": symbols, "close": [1.0, 3.0, 10.0, 20.0, 5.0, 5.0]})
    assert tw.compute(table, "sma(close, 2) as m")["m"].to_pylist() == [None, 2.0, None, 15.0, None, 4.0]


def test_names_that_are_none_are_refused():
    pa = pytest.importorskip("pyarrow")
    days = pa.array([0, 1], pa.date32()).dictionary_encode()
    half = pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int8()), pa.array(["A", None]))
    for symbols, why in ((days, "is of type"), (half, "without a symbol"), (pa.array([1.0, 2.0]), "is of type")):
        with pytest.raises(tw.Mistake, match=why):
            tw.compute(pa.table({"symbol": symbols, "close": [1.0, 2.0]}), "close * 1 as c")


def test_an_empty_frame_of_categories():
    pandas, pa = pytest.importorskip("pandas"), pytest.importorskip("pyarrow")
    empty = pandas.DataFrame({"symbol": pandas.Series([], dtype="object"), "close": pandas.Series([], dtype="float64")})
    assert tw.compute(empty, "sma(close, 2) as m").shape == (0, 2)
    table = pa.table({"symbol": pa.array([], pa.string()).dictionary_encode(), "close": pa.array([], pa.float64())})
    assert tw.compute(table, "sma(close, 2) as m").num_rows == 0
    with pytest.raises(tw.Mistake):
        tw.Dataset.from_pandas(empty.assign(date=pandas.Series([], dtype="datetime64[us]")))


def test_whole_numbers_of_pandas_are_symbols():
    pandas = pytest.importorskip("pandas")
    large = 2**53
    given = pandas.DataFrame({"symbol": [large, large, large + 1, large + 1], "close": [1.0, 2.0, 10.0, 20.0]})
    assert [x for x in tw.compute(given, "sma(close, 2) as m")["m"] if x == x] == [1.5, 15.0]
    unsigned = given.astype({"symbol": "uint64"})
    assert [x for x in tw.compute(unsigned, "sma(close, 2) as m")["m"] if x == x] == [1.5, 15.0]


ZONES = ["UTC", "America/New_York", "Europe/Berlin", "Asia/Tokyo", "+05:30"]


# Zones of polars have names.
@pytest.mark.parametrize(("library", "zone"), [(lib, zone) for lib in ("polars", "pandas", "pyarrow") for zone in ZONES if (lib, zone) != ("polars", "+05:30")])
def test_midnights_are_dates_where_they_are_from(cli, tmp_path, library, zone):
    pa, pandas = pytest.importorskip("pyarrow"), pytest.importorskip("pandas")
    import datetime as dt

    import pyarrow.parquet

    days = pandas.DatetimeIndex([dt.datetime(2024, 1, day) for day in (2, 3, 4, 5, 8, 9)]).tz_localize(zone)
    table = pa.table({"time": pa.array(days), "close": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]})
    file, out = tmp_path / "bars.parquet", tmp_path / "out.csv"
    pyarrow.parquet.write_table(table, file)
    cli("compute", "--input", file, "--expr", "weekday as w", "--expr", "month as m", "--output", out)
    theirs = pl.read_csv(out)
    given = {"polars": lambda: pl.from_arrow(table), "pandas": lambda: pandas.DataFrame({"time": days, "close": range(6)}), "pyarrow": lambda: table}
    ours = tw.compute(given[library](), ["weekday as w", "month as m"])
    listed = ours["w"].to_pylist() if library == "pyarrow" else ours["w"].to_list()
    assert listed == theirs["w"].to_list() == [2, 3, 4, 5, 1, 2]


def test_times_without_a_zone_are_not_taken_for_utc_against_their_look(cli, tmp_path):
    import datetime as dt

    start = [dt.datetime(2024, 1, day, 9, 30) for day in (2, 3, 4, 5)]
    local = pl.DataFrame({"time": [day + dt.timedelta(minutes=30 * bar) for day in start for bar in range(13)]})
    local = local.with_columns(pl.int_range(52).cast(pl.Float64).alias("close") + 1)
    text = "time_of_day == '10:00' as ten"
    with pytest.raises(tw.Mistake, match="tz='America/New_York'"):
        tw.compute(local, text)
    expected = [bar == 1 for _ in start for bar in range(13)]
    assert tw.compute(local, text, tz="America/New_York")["ten"].to_list() == expected
    aware = local.with_columns(pl.col("time").dt.replace_time_zone("America/New_York"))
    assert tw.compute(aware, text)["ten"].to_list() == expected
    # Expressions that do not look at the calendar need no zone.
    assert tw.compute(local, "sma(close, 2) as m")["m"].to_list()[1] == 1.5
    with pytest.raises(tw.Mistake, match="tz"):
        tw.compute(local, text, tz="Mars/Olympus")
    file = tmp_path / "local.csv"
    local.write_csv(file, datetime_format="%Y-%m-%d %H:%M:%S")
    told = cli("compute", "--input", file, "--expr", text, "--tz", "America/New_York").decode().splitlines()[1:]
    assert [line.split(",")[1] == "1" for line in told] == expected


def test_results_for_pandas_can_be_changed():
    pandas = pytest.importorskip("pandas")
    made = tw.compute(pandas.DataFrame({"close": [1.0, 2.0, 3.0]}), "sma(close, 2) as m")
    made.loc[0, "m"] = 7.0
    made["m"] += 1.0
    assert made["m"].tolist() == [8.0, 2.5, 3.5]
    rows = tw.scan("us5", where="true").to_pandas()
    rows.loc[0, "close"] = 1.0
    assert rows["close"][0] == 1.0


def test_a_frame_of_pandas_with_unusual_columns():
    pandas = pytest.importorskip("pandas")
    numbered = pandas.DataFrame({0: [5.0, 6.0], "close": [1.0, 2.0]})
    assert tw.compute(numbered, "close * 1 as c", append=True).columns.tolist() == [0, "close", "c"]
    levels = pandas.DataFrame([[1.0, 2.0]], columns=pandas.MultiIndex.from_product([["Close"], ["A", "B"]], names=["Price", "Ticker"]))
    for function in (lambda: tw.compute(levels, "close"), lambda: tw.Dataset.from_pandas(levels)):
        with pytest.raises(tw.Mistake, match="2 levels"):
            function()
    twice = pandas.DataFrame([["2024-01-02", 1.0, 2.0]], columns=["date", "close", "close"])
    with pytest.raises(tw.Mistake, match="'close' twice"):
        tw.Dataset.from_pandas(twice)
