"""polars: plain expressions, and polars-talib's. `..._ipc` maps the Arrow file, the others read Parquet; `..._tails` takes the last bars of
each symbol before it computes."""

import polars as pl
from common import BELOW, DAYS, FAST, RSI, SHARE, SLOW, SWEEP_BARS, SWEEP_FAST, SWEEP_SLOW, TAIL, WEIGHTS, WITHIN, main

CLOSE = pl.col("close")


def bars(folder, kind="parquet"):
    return pl.scan_parquet(f"{folder}/bars.parquet") if kind == "parquet" else pl.scan_ipc(f"{folder}/bars.arrow")


def talib():
    import polars_talib

    return polars_talib


def wilder(changes, n):
    """Wilder's mean: that of the first n changes, then 1/n of each new one. Changes begin at the second bar."""
    bar = pl.int_range(pl.len())
    seeded = pl.when(bar < n).then(None).when(bar == n).then(changes.rolling_mean(n)).otherwise(changes)
    return seeded.ewm_mean(alpha=1 / n, adjust=False, ignore_nulls=True)


def strength_of(gain, loss):
    return pl.when(gain + loss == 0).then(0.0).otherwise(100 * gain / (gain + loss))


def plain_rsi(close=CLOSE, n=RSI):
    change = close.diff()
    return strength_of(wilder(change.clip(lower_bound=0), n), wilder((-change).clip(lower_bound=0), n))


def crossed(fast, slow):
    return (fast > slow) & (fast.shift() <= slow.shift())


def current(frame):
    """The symbols whose last time is the market's."""
    return frame.filter(pl.col("time") == pl.col("time").max())


def matches(frame, answer):
    """Writes symbol and index of the matches. `frame` has a row for each symbol: symbol, time, value (the index), other (condition)."""
    current(frame).filter(pl.col("other") & (pl.col("value") < BELOW)).select("symbol", "value").collect().write_csv(answer)


def newest_talib(folder, answer, kind="parquet"):
    ta = talib()
    cross = crossed(ta.sma(CLOSE, FAST).fill_nan(None), ta.sma(CLOSE, SLOW).fill_nan(None)).tail(WITHIN).any()
    by_symbol = bars(folder, kind).group_by("symbol")
    matches(by_symbol.agg(pl.col("time").last(), value=ta.rsi(CLOSE, RSI).last(), other=cross), answer)


def newest_plain(folder, answer, kind="parquet"):
    recent = bars(folder, kind).select("symbol", "time", "close").group_by("symbol").tail(TAIL)
    cross = crossed(CLOSE.rolling_mean(FAST), CLOSE.rolling_mean(SLOW)).tail(WITHIN).any()
    by_symbol = recent.group_by("symbol", maintain_order=True)
    matches(by_symbol.agg(pl.col("time").last(), value=plain_rsi().last(), other=cross), answer)


def rank(folder, answer, kind="parquet"):
    back = {n: CLOSE.get(-1 - n, null_on_oob=True) for n in WEIGHTS}
    score = sum(weight * 100 * (CLOSE.last() / back[n] - 1) for n, weight in WEIGHTS.items())
    market = current(bars(folder, kind).group_by("symbol").agg(pl.col("time").last(), score=score)).drop_nulls("score")
    ranked = market.with_columns(value=(pl.col("score").rank("average") - 0.5) / pl.len())
    ranked.filter(pl.col("value") >= SHARE).select("symbol", "value").collect().write_csv(answer)


def plain_signal():
    """The parts of J1's condition at every bar of one symbol."""
    return crossed(CLOSE.rolling_mean(FAST), CLOSE.rolling_mean(SLOW)).cast(pl.Int8).rolling_max(WITHIN, min_samples=1) == 1


def every_over(folder, answer):
    frame = bars(folder).select("symbol", "time", "close")
    signal = (plain_signal() & (plain_rsi() < BELOW)).over("symbol")
    frame.with_columns(signal=signal).sink_parquet(answer)


def every_agg(folder, answer):
    frame = bars(folder).group_by("symbol", maintain_order=True).agg("time", "close", signal=plain_signal() & (plain_rsi() < BELOW))
    frame.explode("time", "close", "signal").collect().write_parquet(answer)


def every_each(folder, answer):
    """Symbol by symbol with polars-talib, from the mapped file."""
    ta = talib()
    market = pl.read_ipc(f"{folder}/bars.arrow", columns=["symbol", "time", "close"])
    cross = crossed(ta.sma(CLOSE, FAST).fill_nan(None), ta.sma(CLOSE, SLOW).fill_nan(None))
    signal = (cross.cast(pl.Int8).rolling_max(WITHIN, min_samples=1) == 1) & (ta.rsi(CLOSE, RSI).fill_nan(None) < BELOW)
    parts = [part.with_columns(signal=signal) for part in market.partition_by("symbol", maintain_order=True)]
    pl.concat(parts).write_parquet(answer)


def sweep(folder, answer):
    names = {n: f"sma{n}" for n in SWEEP_FAST + SWEEP_SLOW}
    averages = [CLOSE.rolling_mean(n).alias(name) for n, name in names.items()]
    cell = {
        f"{fast} {slow}": crossed(pl.col(names[fast]), pl.col(names[slow])).tail(SWEEP_BARS).sum()
        for fast in SWEEP_FAST for slow in SWEEP_SLOW
    }
    frame = bars(folder).select("symbol", "time", "close").group_by("symbol", maintain_order=True).agg("time", "close", *averages)
    wide = current(
        frame.explode(pl.exclude("symbol")).group_by("symbol").agg(pl.col("time").last(), bars=pl.len(), **cell)
    )
    long = wide.unpivot(index=["symbol", "time", "bars"], variable_name="setting", value_name="crossings").with_columns(
        pl.col("setting").str.split(" ").list.get(0).cast(pl.Int64).alias("fast"),
        pl.col("setting").str.split(" ").list.get(1).cast(pl.Int64).alias("slow"),
    )
    long = long.filter(pl.col("bars") >= pl.col("slow") + SWEEP_BARS)
    long.select("symbol", "fast", "slow", "crossings").collect().write_parquet(answer)


def screen(folder, answer, tail):
    ta = talib()

    def recent(name):
        return pl.col(name) if tail is None else pl.col(name).tail(tail)

    h, l, c, v = (recent(name) for name in ("high", "low", "close", "volume"))  # noqa: E741
    macd, bands, stoch = ta.macd(c, 12, 26, 9), ta.bbands(c, 20, 2.0, 2.0), ta.stoch(h, l, c, 14, 3, 0, 3, 0)
    typical = (pl.col("high") + pl.col("low") + pl.col("close")) / 3
    outputs = {
        "sma": ta.sma(c, 20), "ema": ta.ema(c, 20), "wma": ta.wma(c, 20), "rsi": ta.rsi(c, 14),
        "macd": macd.struct.field("macd"), "macd_signal": macd.struct.field("macdsignal"), "macd_hist": macd.struct.field("macdhist"),
        "bb_upper": bands.struct.field("upperband"), "bb_middle": bands.struct.field("middleband"),
        "bb_lower": bands.struct.field("lowerband"), "atr": ta.atr(h, l, c, 14), "stoch_k": stoch.struct.field("slowk"),
        "stoch_d": stoch.struct.field("slowd"), "adx": ta.adx(h, l, c, 14), "cci": ta.cci(h, l, c, 20),
        "obv": ta.obv(CLOSE, pl.col("volume")), "mfi": ta.mfi(h, l, c, v, 14), "kama": ta.kama(CLOSE, 10),
    }
    channel = {"dc_upper": pl.col("high").tail(20).max(), "dc_lower": pl.col("low").tail(20).min()}
    complete = pl.len() >= 20
    frame = bars(folder).group_by("symbol").agg(
        pl.col("time").last(),
        *[series.last().alias(name) for name, series in outputs.items()],
        vwap=(typical * pl.col("volume")).sum() / pl.col("volume").sum(),
        **{name: pl.when(complete).then(value) for name, value in channel.items()},
    )
    frame = frame.with_columns(dc_middle=(pl.col("dc_upper") + pl.col("dc_lower")) / 2)
    current(frame).drop("time").collect().write_parquet(answer)


def minutes(folder, answer, kind="parquet"):
    average = pl.when(pl.len() >= SLOW).then(CLOSE.tail(SLOW).mean())
    if kind == "ipc":  # with polars-talib on the last bars
        recent = bars(folder, kind).select("symbol", "time", "close").group_by("symbol").tail(TAIL)
        rsi = talib().rsi(CLOSE, RSI).last()
    else:
        recent = bars(folder).select("symbol", "time", "close").group_by("symbol").tail(TAIL)
        rsi = plain_rsi().last()
    by_symbol = recent.group_by("symbol", maintain_order=True)
    matches(by_symbol.agg(pl.col("time").last(), value=rsi, other=CLOSE.last() > average), answer)


def days_match(daily, answer):
    """`daily` has symbol, day, time and close of each day's last bar, in order; the last day of the market may be incomplete."""
    closes = CLOSE.filter(pl.col("complete"))
    average = pl.when(closes.len() >= DAYS).then(closes.tail(DAYS).mean())
    by_symbol = daily.group_by("symbol", maintain_order=True)
    matches(by_symbol.agg(pl.col("time").last(), value=newest_rsi(closes), other=average < CLOSE.last()), answer)


def newest_rsi(closes, n=RSI):
    """The last value of Wilder's index of a filtered column."""
    change = closes.diff()
    bar = pl.int_range(closes.len())

    def mean(x):
        seeded = pl.when(bar < n).then(None).when(bar == n).then(x.rolling_mean(n)).otherwise(x)
        return seeded.ewm_mean(alpha=1 / n, adjust=False, ignore_nulls=True).last()

    return strength_of(mean(change.clip(lower_bound=0)), mean((-change).clip(lower_bound=0)))


def complete_days(daily):
    """Marks the days before the market's last one, and that one if some symbol has all of its 390 minutes."""
    last = pl.col("day") == pl.col("day").max()
    return daily.with_columns(complete=~last | (pl.col("minutes").filter(last).max() == 390))


def days_grouped(folder, answer):
    frame = bars(folder).select("symbol", "time", "close").with_columns(day=pl.col("time").dt.date())
    daily = frame.group_by("symbol", "day").agg(pl.col("time").last(), CLOSE.last(), minutes=pl.len())
    days_match(complete_days(daily.sort("symbol", "day")), answer)


def days_dynamic(folder, answer):
    frame = bars(folder).select("symbol", "time", "close").with_columns(at=pl.col("time"))
    daily = frame.group_by_dynamic("at", every="1d", group_by="symbol").agg(pl.col("time").last(), CLOSE.last(), minutes=pl.len())
    days_match(complete_days(daily.rename({"at": "day"})), answer)


if __name__ == "__main__":
    main({
        "newest_talib": newest_talib,
        "newest_talib_ipc": lambda folder, answer: newest_talib(folder, answer, "ipc"),
        "newest_tails": newest_plain,
        "newest_tails_ipc": lambda folder, answer: newest_plain(folder, answer, "ipc"),
        "rank": rank,
        "rank_ipc": lambda folder, answer: rank(folder, answer, "ipc"),
        "every_over": every_over,
        "every_agg": every_agg,
        "every_each": every_each,
        "sweep": sweep,
        "screen": lambda folder, answer: screen(folder, answer, None),
        "screen_tails": lambda folder, answer: screen(folder, answer, TAIL),
        "minutes_tails": minutes,
        "minutes_tails_ipc": lambda folder, answer: minutes(folder, answer, "ipc"),
        "days_grouped": days_grouped,
        "days_dynamic": days_dynamic,
        "import": lambda file, answer: pl.scan_csv(file, try_parse_dates=True).sink_parquet(answer),
        "import_ipc": lambda file, answer: pl.scan_csv(file, try_parse_dates=True).sink_ipc(answer),
        "import_sorted": lambda file, answer: pl.scan_csv(file, try_parse_dates=True).sort("symbol", "time").sink_parquet(answer),
    })
