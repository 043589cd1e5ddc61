"""TA-Lib over arrays mapped from an Arrow file, symbol by symbol, in a process for each core; `..._tails` reads only the last bars that
the newest value depends on.

TA-Lib imports pandas and polars where they are installed, which takes longer than most jobs; a user of arrays needs neither."""

import functools
import sys



class Absent:
    """Makes two packages look as if they were not installed."""

    @staticmethod
    def find_spec(name, _path=None, _target=None):
        if name in ("pandas", "polars"):
            raise ModuleNotFoundError(f"{name} is not used here", name=name)


sys.meta_path.insert(0, Absent)

import numpy  # noqa: E402
import pyarrow  # noqa: E402
import pyarrow.parquet  # noqa: E402
import talib  # noqa: E402
from arrays import Market, pooled  # noqa: E402
from common import BELOW, DAYS, FAST, RSI, SLOW, SWEEP_BARS, SWEEP_FAST, SWEEP_SLOW, TAIL, WITHIN, main, write_matches  # noqa: E402

MICROSECONDS_OF_DAY = 86_400_000_000
market = None


def load(folder, columns):
    global market
    market = Market(folder, columns)


def signal(close):
    """J1's condition at every bar of one symbol (false also where it is unknown), and the index."""
    with numpy.errstate(invalid="ignore"):
        fast, slow = talib.SMA(close, FAST), talib.SMA(close, SLOW)
        crossed = numpy.zeros(len(close), dtype=bool)
        crossed[1:] = (fast[1:] > slow[1:]) & (fast[:-1] <= slow[:-1])
        recent = crossed.copy()
        for back in range(1, WITHIN):
            recent[back:] |= crossed[:-back]
        strength = talib.RSI(close, RSI)
        return recent & (strength < BELOW), strength


def matches(symbols, condition, tail):
    """(symbol, index) of those for which condition(close, rows) gives an index, that is, matches at the last bar."""
    found = []
    for symbol in symbols:
        rows = market.rows(symbol, tail)
        strength = condition(market.close[rows], rows)
        if strength is not None:
            found.append((market.symbols[symbol], strength))
    return found


def scan(folder, answer, condition, tail, processes=None):
    load(folder, ["close"])
    parts = pooled(functools.partial(matches, condition=condition, tail=tail), market.current(), processes)
    write_matches(answer, [row for part in parts for row in part])


def newest_condition(close, _rows):
    matches, strength = signal(close)
    return strength[-1] if matches[-1] else None


def minutes_condition(close, _rows):
    return below(close) if close[-1] > talib.SMA(close, SLOW)[-1] else None


def below(close):
    """The index at the last bar where it is below the limit."""
    strength = talib.RSI(close, RSI)[-1]
    return strength if strength < BELOW else None


def days_condition(close, rows):
    days = market.time[rows] // MICROSECONDS_OF_DAY
    last_bars = numpy.flatnonzero(days[1:] != days[:-1])
    if market.last_day_is_complete:
        last_bars = numpy.append(last_bars, len(days) - 1)
    if len(last_bars) < DAYS:
        return None
    closes = close[last_bars]
    return below(closes) if talib.SMA(closes, DAYS)[-1] < close[-1] else None


def minutes_to_days(folder, answer):
    load(folder, ["close", "time"])
    # Sessions of the synthetic market end at 16:00 in New York: 20:00 UTC in summer, 21:00 in winter; they have 390 minutes.
    longest = market.rows(int(numpy.argmax(market.ends - market.starts)))
    days = market.time[longest] // MICROSECONDS_OF_DAY
    market.last_day_is_complete = int((days == days[-1]).sum()) == 390
    parts = pooled(functools.partial(matches, condition=days_condition, tail=None), market.current())
    write_matches(answer, [row for part in parts for row in part])


def every_bar_part(symbols):
    return [signal(market.close[market.rows(symbol)])[0] for symbol in symbols]


def every_bar(folder, answer):
    load(folder, ["close"])
    parts = pooled(every_bar_part, range(len(market.symbols)))
    signals = numpy.concatenate([part for parts_of_process in parts for part in parts_of_process])
    columns = {name: market.table.column(name) for name in ("symbol", "time", "close")}
    pyarrow.parquet.write_table(pyarrow.table({**columns, "signal": signals}), answer)


def sweep_part(symbols):
    rows = []
    for symbol in symbols:
        close = market.close[market.rows(symbol, SWEEP_BARS + max(SWEEP_SLOW))]
        fast = numpy.array([talib.SMA(close, n) for n in SWEEP_FAST])
        slow = numpy.array([talib.SMA(close, n) for n in SWEEP_SLOW])
        with numpy.errstate(invalid="ignore"):
            above = fast[:, None, -SWEEP_BARS - 1:] > slow[None, :, -SWEEP_BARS - 1:]
        rows.append((above[..., 1:] & ~above[..., :-1]).sum(axis=2))
    return numpy.array(rows)


def sweep(folder, answer):
    load(folder, ["close"])
    lengths = market.ends - market.starts
    current = market.current()
    current = current[lengths[current] > min(SWEEP_SLOW) + SWEEP_BARS - 1]
    counts = numpy.concatenate(pooled(sweep_part, current))
    slow = numpy.array(SWEEP_SLOW)
    complete = numpy.broadcast_to(lengths[current][:, None, None] >= slow[None, None, :] + SWEEP_BARS, counts.shape).ravel()
    settings = len(SWEEP_FAST) * len(SWEEP_SLOW)
    table = {
        "symbol": numpy.repeat(numpy.array(market.symbols)[current], settings)[complete],
        "fast": numpy.tile(numpy.repeat(SWEEP_FAST, len(SWEEP_SLOW)), len(current))[complete],
        "slow": numpy.tile(SWEEP_SLOW, len(current) * len(SWEEP_FAST))[complete],
        "crossings": counts.ravel()[complete],
    }
    pyarrow.parquet.write_table(pyarrow.table(table), answer)


def screen_of(h, l, c, v, whole):  # noqa: E741
    """The newest values of the fifteen; `whole` has the series from the first bar, for those that depend on it for ever."""
    macd, macd_signal, macd_hist = talib.MACD(c, 12, 26, 9)
    upper, middle, lower = talib.BBANDS(c, 20, 2.0, 2.0)
    k, d = talib.STOCH(h, l, c, 14, 3, 0, 3, 0)
    high, center, low = talib.DONCHIAN(h, l, 20)
    values = {
        "sma": talib.SMA(c, 20), "ema": talib.EMA(c, 20), "wma": talib.WMA(c, 20), "rsi": talib.RSI(c, 14), "macd": macd,
        "macd_signal": macd_signal, "macd_hist": macd_hist, "bb_upper": upper, "bb_middle": middle, "bb_lower": lower,
        "atr": talib.ATR(h, l, c, 14), "stoch_k": k, "stoch_d": d, "adx": talib.ADX(h, l, c, 14), "cci": talib.CCI(h, l, c, 20),
        "obv": talib.OBV(whole[2], whole[3]), "vwap": talib.VWAP(*whole), "mfi": talib.MFI(h, l, c, v, 14),
        "kama": talib.KAMA(whole[2], 10), "dc_upper": high, "dc_middle": center, "dc_lower": low,
    }
    return {name: series[-1] for name, series in values.items()}


def screen_part(symbols, tail):
    columns = [market.high, market.low, market.close, market.volume]
    rows = []
    for symbol in symbols:
        whole = [column[market.rows(symbol)] for column in columns]
        recent = [column[market.rows(symbol, tail)] for column in columns]
        rows.append({"symbol": market.symbols[symbol], **screen_of(*recent, whole)})
    return rows


def screen(folder, answer, tail):
    load(folder, ["high", "low", "close", "volume"])
    parts = pooled(functools.partial(screen_part, tail=tail), market.current())
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist([row for part in parts for row in part]), answer)


if __name__ == "__main__":
    main({
        "newest": lambda folder, answer: scan(folder, answer, newest_condition, None),
        "newest_tails": lambda folder, answer: scan(folder, answer, newest_condition, TAIL),
        "newest_tails_alone": lambda folder, answer: scan(folder, answer, newest_condition, TAIL, 1),
        "every_bar": every_bar,
        "sweep": sweep,
        "screen": lambda folder, answer: screen(folder, answer, None),
        "screen_tails": lambda folder, answer: screen(folder, answer, TAIL),
        "minutes": lambda folder, answer: scan(folder, answer, minutes_condition, None),
        "minutes_tails": lambda folder, answer: scan(folder, answer, minutes_condition, TAIL),
        "minutes_tails_alone": lambda folder, answer: scan(folder, answer, minutes_condition, TAIL, 1),
        "minutes_to_days": minutes_to_days,
    })
