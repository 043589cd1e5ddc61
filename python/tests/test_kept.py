"""Memory of large results is used again once nobody has them, without anything of them being seen, and given back after a moment."""

import pathlib
import time

import pytest

import trawl as tw

np = pytest.importorskip("numpy")
pa = pytest.importorskip("pyarrow")

#: Results of so many rows are kept, and three of them are written past the caches; those of one symbol are neither.
SYMBOLS, BARS = 100, 16_000


def market(symbols=SYMBOLS, bars=BARS, seed=1):
    close = 50 + np.cumsum(np.random.default_rng(seed).integers(-3, 4, (symbols, bars)), axis=1) / 100
    names = np.repeat([f"S{at:03}" for at in range(symbols)], bars)
    return pa.table({"symbol": pa.array(names), "close": pa.array(close.ravel())})


def addresses(table, names):
    return {table.column(name).chunk(0).buffers()[1].address for name in names}


def numbers(table, name):
    return table.column(name).to_numpy(zero_copy_only=False).view("u8").copy()


def test_results_that_are_alive_keep_their_values_and_new_ones_have_their_own():
    table = market()
    alive = tw.compute(table, ["rsi(14) as r", "ema(close, 20) as e"])
    before = [numbers(alive, name) for name in "re"]
    dropped = tw.compute(table, ["close * 3 as a", "close * 5 as b", "close * 7 as c"])
    theirs = addresses(dropped, "abc")
    del dropped
    # Many of them are NA: what is there must be NA, and not the values of those before.
    exprs = ["sma(close, 7000) as m", "close[100] as l", "(close - close) / (close - close) as z"]
    found = tw.compute(table, exprs)
    assert addresses(found, "mlz") & theirs, "the memory is used again"
    assert not addresses(found, "mlz") & addresses(alive, "re")
    alone = [tw.compute(table.slice(at * BARS, BARS), exprs) for at in range(SYMBOLS)]
    for name in "mlz":
        parts = np.concatenate([part.column(name).to_numpy(zero_copy_only=False) for part in alone])
        assert np.array_equal(found.column(name).to_numpy(zero_copy_only=False), parts, equal_nan=True), name
        assert found.column(name).null_count == sum(part.column(name).null_count for part in alone), name
    assert all(np.array_equal(numbers(alive, name), values) for name, values in zip("re", before))


def test_nothing_is_left_of_a_computation_that_fails():
    table = market()
    for _ in range(3):
        tw.compute(table, ["close as x", "close as y"])
        with pytest.raises(tw.Mistake):
            tw.compute(table, ["sma(close, 9000) as x", "nonsense as y"])
    again = tw.compute(table, ["close + 1 as x"])
    assert np.array_equal(again.column("x").to_numpy(), table.column("close").to_numpy() + 1)


def test_memory_is_given_back_after_a_moment():
    def resident():
        return int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * 4096

    table = market(200, 10_000)
    exprs = [f"sma(close, {n}) as m{n}" for n in range(5, 11)]
    bytes_of_results = 6 * table.num_rows * 8
    result = tw.compute(table, exprs)
    with_it = resident()
    del result
    deadline = time.monotonic() + 60
    while resident() > with_it - bytes_of_results * 0.7:
        assert time.monotonic() < deadline, f"{with_it} bytes, then {resident()}"
        time.sleep(0.2)
