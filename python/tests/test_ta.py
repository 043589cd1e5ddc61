"""``trawl.ta`` against TA-Lib itself."""

import inspect

import pytest

import trawl as tw

np = pytest.importorskip("numpy")
talib = pytest.importorskip("talib")

#: TA-Lib's values near zero, and differences of large sums, are inexact themselves (docs/accuracy.md).
TOLERANCE = 1e-7


def series(rows=600):
    rng = np.random.default_rng(11)
    close = np.maximum(50 + np.cumsum(rng.integers(-100, 101, rows)) / 100, 1.0)
    opened = np.concatenate([close[:1], close[:-1]])
    high = np.maximum(opened, close) + rng.integers(0, 80, rows) / 100
    low = np.maximum(np.minimum(opened, close) - rng.integers(0, 80, rows) / 100, 0.01)
    volume = rng.integers(1000, 100000, rows).astype(float)
    unit = rng.uniform(-0.9, 0.9, rows)
    periods = rng.integers(2, 30, rows).astype(float)
    return {"open": opened, "high": high, "low": low, "close": close, "volume": volume, "unit": unit, "periods": periods}


def arguments(name, given):
    found = [p.name for p in inspect.signature(getattr(tw.ta, name)).parameters.values()]
    taken = []
    for parameter in found:
        if parameter in given:
            taken.append(given[parameter])
        elif parameter in ("real", "real0"):
            taken.append(given["unit" if name in ("ACOS", "ASIN", "COSH", "SINH", "EXP", "TANH") else "close"])
        elif parameter == "real1":
            taken.append(given["open"])
        else:
            break
    return taken


@pytest.mark.parametrize("name", tw.ta.get_functions())
def test_values_are_talibs(name):
    theirs = getattr(talib, name)
    taken = arguments(name, series())
    expected, ours = theirs(*taken), getattr(tw.ta, name)(*taken)
    expected, ours = (found if isinstance(found, tuple) else (found,) for found in (expected, ours))
    assert len(expected) == len(ours)
    for theirs, mine in zip(expected, ours):
        assert theirs.dtype == mine.dtype, name
        np.testing.assert_allclose(mine, theirs, rtol=TOLERANCE, atol=TOLERANCE, err_msg=name)


def test_no_function_of_talib_is_absent_without_a_reason():
    assert set(talib.get_functions()) == set(tw.ta.get_functions())


def test_every_public_name_of_talib_is_here_or_says_what_to_use():
    import talib.abstract
    import talib.stream

    # Python's own modules and helpers that happen to lie in the package.
    helpers = {"atexit", "chain", "wraps", "func_name", "wrapped_func", "TA_LIB_C_REQUIRED"}
    public = {name for name in dir(talib) if not name.startswith("_")} | set(talib.__all__) | {"abstract"}
    streams = {f"stream_{name}" for name in talib.get_functions()}
    instead = set()
    for name in sorted((public | streams) - helpers):
        try:
            getattr(tw.ta, name)
        except tw.Mistake as mistake:
            assert mistake.help and "trawl." in mistake.help or name == "func", name
            instead.add(name)
    assert instead == {"abstract", "stream", "func", "InsufficientHistory", *streams}
    # An import says it too.
    with pytest.raises(tw.Mistake, match="abstract"):
        from trawl.ta import abstract  # noqa: F401
    assert {"MA_Type", "get_functions", "get_function_groups", "set_unstable_period"} <= set(dir(tw.ta))
    with pytest.raises(AttributeError):
        tw.ta._nothing


def test_groups_and_numbers_of_averages_are_talibs():
    theirs, ours = talib.get_function_groups(), tw.ta.get_function_groups()
    assert {group: set(names) for group, names in theirs.items()} == {group: set(names) for group, names in ours.items()}
    numbers = {name: getattr(talib.MA_Type, name) for name in dir(talib.MA_Type) if not name.startswith("_")}
    assert numbers == {name: getattr(tw.ta.MA_Type, name) for name in numbers}
    assert all(tw.ta.MA_Type[number] for number in numbers.values())
    close = series()["close"]
    for name in ("SMA", "EMA", "T3", "HMA"):
        made = tw.ta.MA(close, 20, matype=getattr(tw.ta.MA_Type, name))
        np.testing.assert_allclose(made, talib.MA(close, 20, matype=numbers[name]), rtol=TOLERANCE)


def test_settings_of_talib_that_change_nothing_are_taken_and_others_refused():
    tw.ta.set_unstable_period("RSI", 0)
    tw.ta.set_compatibility(0)
    assert tw.ta.get_unstable_period("RSI") == talib.get_unstable_period("RSI") == 0
    assert tw.ta.get_compatibility() == talib.get_compatibility() == 0
    for refused in (lambda: tw.ta.set_unstable_period("RSI", 3), lambda: tw.ta.set_compatibility(1)):
        with pytest.raises(tw.Mistake) as caught:
            refused()
        assert "trawl.ta" in caught.value.help


@pytest.mark.parametrize("name", tw.ta.get_functions())
def test_one_series_has_the_bits_that_it_has_among_others(name):
    """One symbol is run by code of its own."""
    pl = pytest.importorskip("polars")
    given = series(300)
    taken = arguments(name, given)
    alone = getattr(tw.ta, name)(*taken)
    alone = alone if isinstance(alone, tuple) else (alone,)
    entry = tw.indicator(name.lower())
    columns = {f"c{at}": values for at, values in enumerate(taken)}
    call = f"{name.lower()}({', '.join(columns)})"
    texts = [call] if len(entry["outputs"]) == 1 else [f"{call}.{output['name']}" for output in entry["outputs"]]
    exprs = {f"o{at}": text for at, text in enumerate(texts)}
    many = 5
    frame = pl.DataFrame({"symbol": np.repeat(np.arange(many), 300), **{key: np.tile(values, many) for key, values in columns.items()}})
    made = tw.compute(frame, exprs, nulls=False)
    for at, ours in enumerate(alone):
        theirs = made[f"o{at}"].cast(pl.Float64).to_numpy().reshape(many, 300)
        for row in theirs:
            expected = np.nan_to_num(row, nan=0.0).astype("int32") if ours.dtype == np.int32 else row
            assert expected.tobytes() == np.ascontiguousarray(ours).tobytes(), name


def test_series_are_read_where_they_are_and_results_are_ones_own():
    close = series(5000)["close"]
    before = close.copy()
    made = tw.ta.SMA(close, 3)
    expected = made.copy()
    # The result is nobody else's, the series is as it was, and none of both depends on the other afterwards.
    assert made.flags.writeable and not np.shares_memory(made, close) and np.array_equal(close, before)
    close[:] = 0.0
    assert np.array_equal(made, expected, equal_nan=True)
    made[:] = 7.0
    assert np.array_equal(tw.ta.SMA(before, 3), expected, equal_nan=True)
    # Memory of every kind that NumPy has.
    raw = np.zeros(8 * 100 + 1, dtype="u1")
    unaligned = raw[1:].view("f8")
    unaligned[:] = before[:100]
    read_only = before[:100].copy()
    read_only.flags.writeable = False
    big_endian = before[:100].astype(">f8")
    for series_ in (unaligned, read_only, big_endian, before[:200].reshape(100, 2)[:, 0], before[99::-1], before[:100].astype("f4")):
        np.testing.assert_array_equal(tw.ta.SMA(series_, 3), tw.ta.SMA(np.array([float(x) for x in series_]), 3))
    assert len(tw.ta.SMA(np.empty(0), 3)) == 0


def test_arguments_in_every_way_are_those_of_one_call():
    close = series()["close"]
    expected = talib.RSI(close, 20)
    for call in (
        lambda: tw.ta.RSI(close, 20), lambda: tw.ta.RSI(close, timeperiod=20), lambda: tw.ta.RSI(real=close, timeperiod=20),
        lambda: tw.ta.RSI(timeperiod=20, real=close), lambda: tw.ta.RSI(close, 20.0), lambda: tw.ta.RSI(close, np.int64(20)),
    ):  # fmt: skip
        for _ in range(2):
            np.testing.assert_allclose(call(), expected, rtol=TOLERANCE)
    assert not np.array_equal(tw.ta.RSI(close, 20), tw.ta.RSI(close, 21), equal_nan=True)
    for wrong in (lambda: tw.ta.RSI(), lambda: tw.ta.RSI(close, 3, 4), lambda: tw.ta.RSI(close, 3, timeperiod=4), lambda: tw.ta.RSI(real=close, tmeperiod=3)):
        with pytest.raises(TypeError):
            wrong()
    with pytest.raises(tw.Mistake):
        tw.ta.RSI(close, [20])


def test_arguments_are_talibs():
    close = series()["close"]
    assert np.array_equal(tw.ta.MA(close, 20, talib.MA_Type.EMA), tw.ta.EMA(close, timeperiod=20), equal_nan=True)
    upper, middle, lower = tw.ta.BBANDS(close, 20, 2.0, 2.0)
    assert np.nanmin(upper - middle) >= 0 and np.nanmin(middle - lower) >= 0
    with pytest.raises(tw.Mistake):
        tw.ta.RSI(close, 0)
    with pytest.raises(tw.Mistake, match="one length"):
        tw.ta.ATR(close, close[1:], close)
    with pytest.raises(TypeError):
        tw.ta.RSI(close, tmeperiod=3)


def test_results_are_of_the_kind_of_the_first_series():
    close = series()["close"]
    pl, pd = pytest.importorskip("polars"), pytest.importorskip("pandas")
    assert isinstance(tw.ta.RSI(pl.Series(close)), pl.Series)
    made = tw.ta.RSI(pd.Series(close, index=range(7, 607)))
    assert isinstance(made, pd.Series) and made.index[0] == 7
    assert isinstance(tw.ta.RSI(list(close)), np.ndarray)


def test_series_of_every_kind_and_what_is_none():
    pandas = pytest.importorskip("pandas")
    expected = [None, None, None, 3.5, 4.5]

    def known(values):
        return [None if value != value else value for value in list(values)]

    holes = [1.0, None, 3.0, 4.0, 5.0]
    masked = np.ma.array([1.0, 9.0, 3.0, 4.0, 5.0], mask=[0, 1, 0, 0, 0])
    strided = np.array([1.0, 0, np.nan, 0, 3, 0, 4, 0, 5, 0])[::2]
    for series in (holes, np.array(holes, dtype=object), masked, strided, pandas.Series(holes, dtype="Int64"), pandas.Series(holes, dtype="float32")):
        assert known(tw.ta.SMA(series, 2)) == expected, repr(series)
    for series in (["a", "b"], np.array(["2020-01-01"], dtype="M8[s]"), np.array([1j]), np.ones((2, 2)), [object()]):
        with pytest.raises(tw.Mistake):
            tw.ta.SMA(series, 1)
    for length in (None, float("nan"), float("inf"), "x", 0, -1):
        with pytest.raises(tw.Mistake):
            tw.ta.SMA([1.0, 2.0, 3.0], length)
