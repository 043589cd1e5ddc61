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
