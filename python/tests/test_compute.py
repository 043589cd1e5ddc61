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
