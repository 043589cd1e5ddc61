"""W1 and Adaptive Trend Classification over whole arrays: symbols side by side, loops over time only where a value needs the one before.

Written for CuPy without kernels of its own; the array module is an argument, so that NumPy can check it on a machine without a GPU.
Arrays have the shape [bar, symbol], f64; missing values (the bars before the first one of an indicator) are NaN. Bars have no gaps:
that is what `trawl bench gpu --dump` writes.
"""

import math

# The outputs of W1 in the order of `trawl-bench screen`.
W1 = (
    "sma", "ema", "wma", "rsi", "macd", "macd_signal", "macd_hist", "bb_upper", "bb_middle", "bb_lower", "atr",
    "stoch_k", "stoch_d", "adx", "cci", "obv", "vwap", "mfi", "kama", "donchian_upper", "donchian_middle", "donchian_lower",
)  # fmt: skip
# Lengths of one family of Adaptive Trend Classification at its default settings, in the order of the sums.
LENGTHS = (28, 29, 30, 32, 34, 27, 26, 24, 22)
FAMILIES = 6
GROWTH, DECAY, EQUITY_LEAST, LONG, SHORT = 0.02 / 1000, 0.03 / 100, 0.25, 0.1, -0.1
KAMA_FAST, KAMA_SLOW = 0.666, 0.064
# Moves of the typical price that are smaller, relative to it, are rounding: the money flow index does not count them.
TYPICAL_MOVE_LEAST = 2e-14


def growth(bars):
    """The factor of a return at each bar."""
    return [math.exp(GROWTH * (bar if bar else 1)) for bar in range(bars)]


def padded(xp, x, bars):
    """`x` at the end of `bars` bars, NaN before."""
    out = xp.full((bars, *x.shape[1:]), xp.nan)
    out[bars - x.shape[0] :] = x
    return out


def window_sum(xp, x, n):
    """Sum of the newest `n` bars."""
    count = x.shape[0] - n + 1
    total = x[:count].copy()
    for shift in range(1, n):
        total += x[shift : shift + count]
    return padded(xp, total, x.shape[0])


def window_extreme(xp, choose, x, n):
    """Highest or lowest of the newest `n` bars: windows of twice the length from two of the length before."""
    length, best = 1, x
    while length < n:
        step = min(length, n - length)
        best = choose(best[step:], best[:-step])
        length += step
    return padded(xp, best, x.shape[0])


def smoothed(xp, x, weights):
    """m[t] = m[t-1] + weights[t] * (x[t] - m[t-1]) from m = 0, along the first axis."""
    out = xp.empty_like(x)
    m = xp.zeros_like(x[0])
    for t in range(x.shape[0]):
        row = out[t]
        xp.subtract(x[t], m, out=row)
        row *= weights[t]
        row += m
        m = row
    return out


def smoothed_from(xp, rows):
    """Several smoothed series in one loop over time. Each row is (series, weight, first bar, value there)."""
    bars, symbols = rows[0][0].shape
    x, weights = xp.zeros((bars, len(rows), symbols)), xp.zeros((bars, len(rows), 1))
    for k, (series, weight, first, seed) in enumerate(rows):
        x[first + 1 :, k], weights[first + 1 :, k] = series[first + 1 :], weight
        x[first, k], weights[first, k] = seed, 1.0
    out = smoothed(xp, x, weights)
    for k, (_, _, first, _) in enumerate(rows):
        out[:first, k] = xp.nan
    return [out[:, k] for k in range(len(rows))]


def w1(xp, columns):
    """The 22 outputs of W1, [output, bar, symbol], of open, high, low, close, volume."""
    _, high, low, close, volume = columns
    bars = close.shape[0]
    nan, zero = xp.nan, xp.zeros_like(close[:1])

    change = xp.diff(close, axis=0, prepend=close[:1])
    before = xp.concatenate((close[:1], close[:-1]))
    true_range = xp.maximum(high - low, xp.maximum(xp.abs(high - before), xp.abs(low - before)))
    true_range[0] = 0
    up, down = xp.concatenate((zero, xp.diff(high, axis=0))), xp.concatenate((zero, -xp.diff(low, axis=0)))
    plus = xp.where((up > down) & (up > 0), up, 0.0)
    minus = xp.where((down > up) & (down > 0), down, 0.0)
    gain, loss = xp.maximum(change, 0), xp.maximum(-change, 0)

    wilder = 1 / 14
    ema, fast, slow, gains, losses, atr, plus, minus, ranges = smoothed_from(
        xp,
        [
            (close, 2 / 21, 19, close[:20].mean(0)),
            (close, 2 / 13, 25, close[14:26].mean(0)),
            (close, 2 / 27, 25, close[:26].mean(0)),
            (gain, wilder, 14, gain[1:15].mean(0)),
            (loss, wilder, 14, loss[1:15].mean(0)),
            (true_range, wilder, 14, true_range[1:15].mean(0)),
            (plus, wilder, 13, plus[1:14].sum(0) * wilder),
            (minus, wilder, 13, minus[1:14].sum(0) * wilder),
            (true_range, wilder, 13, true_range[1:14].sum(0) * wilder),
        ],
    )
    both = gains + losses
    rsi = xp.where(both > 0, 100 * gains / xp.where(both > 0, both, 1), xp.where(xp.isnan(both), nan, 0))
    line = fast - slow
    plus, minus = 100 * plus / ranges, 100 * minus / ranges
    strength = plus + minus
    dx = 100 * xp.abs(plus - minus) / xp.where(strength > 0, strength, 1)
    signal, adx = smoothed_from(xp, [(line, 0.2, 33, line[25:34].mean(0)), (dx, wilder, 27, dx[14:28].mean(0))])
    line[:33] = nan

    sma = window_sum(xp, close, 20) / 20
    count = bars - 19
    weighted, squares = xp.zeros_like(close[:count]), xp.zeros_like(close[:count])
    for age in range(20):
        shifted = close[19 - age : 19 - age + count]
        weighted += (20 - age) * shifted
        squares += (shifted - sma[19:]) ** 2
    wma, width = padded(xp, weighted / 210, bars), padded(xp, 2 * xp.sqrt(squares / 20), bars)

    typical = (high + low + close) / 3
    mean = window_sum(xp, typical, 20) / 20
    deviation = xp.zeros_like(close[:count])
    for age in range(20):
        deviation += xp.abs(typical[19 - age : 19 - age + count] - mean[19:])
    deviation = padded(xp, deviation / 20, bars)
    cci = (typical - mean) / (0.015 * deviation)

    highest, lowest = window_extreme(xp, xp.maximum, high, 14), window_extreme(xp, xp.minimum, low, 14)
    fast_k = 100 * (close - lowest) / (highest - lowest)
    k = window_sum(xp, fast_k, 3) / 3
    d = window_sum(xp, k, 3) / 3
    k[:17] = nan
    upper, lower = window_extreme(xp, xp.maximum, high, 20), window_extreme(xp, xp.minimum, low, 20)

    obv = xp.cumsum(xp.concatenate((volume[:1], xp.sign(change[1:]) * volume[1:])), axis=0)
    flow = typical * volume
    vwap = xp.cumsum(flow, axis=0) / xp.cumsum(volume, axis=0)
    moved = xp.diff(typical, axis=0, prepend=typical[:1])
    least = TYPICAL_MOVE_LEAST * typical
    rising, falling = xp.where(moved > least, flow, 0.0), xp.where(moved < -least, flow, 0.0)
    rising, falling = window_sum(xp, rising, 14), window_sum(xp, falling, 14)
    mfi = 100 * rising / (rising + falling)
    mfi[:14] = nan

    noise = window_sum(xp, xp.abs(change), 10)
    efficiency = xp.zeros_like(close)
    efficiency[10:] = xp.abs(close[10:] - close[:-10]) / noise[10:]
    weights = (efficiency * (2 / 3 - 2 / 31) + 2 / 31) ** 2
    weights[:9], weights[9] = 0, 1  # It starts from the close before its first bar.
    kama = smoothed(xp, close, weights)
    kama[:10] = nan

    return xp.stack(
        (
            sma, ema, wma, rsi, line, signal, line - signal, sma + width, sma, sma - width, atr, k, d, adx, cci, obv, vwap, mfi, kama,
            upper, (upper + lower) / 2, lower,
        )
    )  # fmt: skip


def linear_windows(xp, x, lengths):
    """Weighted mean and end of the least-squares line of windows of each length: a pass over the ages serves all of them."""
    longest = max(lengths)
    sums, weighted = xp.zeros_like(x), xp.zeros_like(x)
    means, lines = {}, {}
    for age in range(1, longest + 1):
        if age in lengths:
            n = age
            mean = x + (n * sums - weighted) * (2 / (n * (n + 1)))
            # The line around the newest value: ages have the mean (n - 1) / 2, and n * (n^2 - 1) / 12 is their sum of squares.
            slope = (weighted - sums * (n - 1) / 2) * (12 / (n * (n * n - 1)))
            line = x + sums / n - slope * (n - 1) / 2
            mean[: n - 1] = line[: n - 1] = xp.nan
            means[n], lines[n] = mean, line
        if age < longest:
            difference = x[:-age] - x[age:]
            sums[age:] += difference
            difference *= age
            weighted[age:] += difference
    return means, lines


def averages(xp, x):
    """The nine averages of each family, one family after another: EMA, Hull's, WMA, DEMA, LSMA, KAMA."""
    bars = x.shape[0]
    once = smoothed_from(xp, [(x, 2 / (n + 1), n - 1, x[:n].mean(0)) for n in LENGTHS])
    yield once
    halves = tuple(sorted({n // 2 for n in LENGTHS}))
    means, lines = linear_windows(xp, x, (*halves, *LENGTHS))
    hull = []
    for n in LENGTHS:
        raw = 2 * means[n // 2] - means[n]
        smooth = math.isqrt(n)
        hull.append(padded(xp, linear_windows(xp, raw[n - 1 :], (smooth,))[0][smooth], bars))
    yield hull
    yield [means[n] for n in LENGTHS]
    twice = smoothed_from(xp, [(e, 2 / (n + 1), n - 1, e[n - 1]) for n, e in zip(LENGTHS, once)])
    yield [2 * e - f for e, f in zip(once, twice)]
    yield [lines[n] for n in LENGTHS]
    del means, lines, hull, once, twice
    moves = xp.abs(xp.diff(x, axis=0, prepend=x[:1]))
    weights = xp.zeros((bars, len(LENGTHS), x.shape[1]))
    for k, n in enumerate(LENGTHS):
        noise = window_sum(xp, moves, n)[n:]
        ratio = xp.where(noise > 0, xp.abs(x[n:] - x[:-n]) / xp.where(noise > 0, noise, 1), 0)
        weights[n:, k] = (ratio * (KAMA_FAST - KAMA_SLOW) + KAMA_SLOW) ** 2
    weights[0] = 1
    wide = xp.broadcast_to(x[:, None], weights.shape)
    kama = smoothed(xp, wide, weights)
    yield [kama[:, k] for k in range(len(LENGTHS))]


def crossings(xp, price, average):
    """1 where the price crosses above the average, -1 where below, otherwise 0."""
    out = xp.zeros(price.shape, dtype=xp.int8)
    above, below = price[1:] > average[1:], price[1:] < average[1:]
    out[1:][above & (price[:-1] <= average[:-1])] = 1
    out[1:][below & (price[:-1] >= average[:-1])] = -1
    return out


def atc(xp, close):
    """The signal of Adaptive Trend Classification, [bar, symbol], at its default settings."""
    bars, symbols = close.shape
    events = xp.empty((bars, FAMILIES, len(LENGTHS), symbols), dtype=xp.int8)
    for family, members in enumerate(averages(xp, close)):
        for k, average in enumerate(members):
            events[:, family, k] = crossings(xp, close, average)
    returns = xp.zeros_like(close)
    returns[1:] = close[1:] / close[:-1] - 1
    returns *= xp.asarray(growth(bars))[:, None]

    keep = 1 - DECAY
    side = xp.zeros((FAMILIES, len(LENGTHS), symbols))
    equity, whole = xp.ones((FAMILIES, len(LENGTHS), symbols)), xp.ones((FAMILIES, symbols))
    vote = xp.zeros((FAMILIES, symbols))
    out = xp.empty_like(close)
    for t in range(bars):
        if t > 0:
            equity = xp.maximum(equity * keep * (1 + side * returns[t]), EQUITY_LEAST)
            whole = xp.maximum(whole * keep * (1 + xp.sign(vote) * returns[t]), EQUITY_LEAST)
        side = xp.where(events[t] != 0, events[t], side)
        vote = xp.rint(100 * ((side * equity).sum(1) / equity.sum(1))) / 100
        cut = (vote > LONG).astype(close.dtype) - (vote < SHORT)
        out[t] = (cut * whole).sum(0) / whole.sum(0)
    return out
