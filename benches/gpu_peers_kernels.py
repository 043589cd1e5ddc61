"""W1 and Adaptive Trend Classification as kernels of numba.cuda: a thread per symbol, for the classification one per symbol and average.

Written for speed: each column is read once in coalesced order [bar, symbol], window sums run (what enters is added, what leaves is
subtracted), extremes are searched again only when the old one leaves the window. Running sums collect rounding errors: that is the price of
their speed, and the comparison counts what it costs. Bars have no gaps. With `all_bars` every bar is written, otherwise the last.
"""

import math

from numba import cuda, float64

from gpu_peers_arrays import (
    DECAY, EQUITY_LEAST, FAMILIES, KAMA_FAST, KAMA_SLOW, LENGTHS, LONG, SHORT, TYPICAL_MOVE_LEAST, W1,
)  # fmt: skip

NAN = float("nan")
OUTPUTS = len(W1)
MEMBERS = len(LENGTHS)
EMA, HULL, WMA, DEMA, LSMA, KAMA = range(FAMILIES)
KEEP = 1 - DECAY


@cuda.jit(device=True)
def extreme(series, symbol, t, n, sign, at):
    """Bar of the highest (`sign` 1) or lowest (-1) of the newest `n` bars; `at` is the bar found before."""
    first = t - n + 1 if t >= n - 1 else 0
    if at < first:
        at = first
        for bar in range(first + 1, t + 1):
            if sign * series[bar, symbol] >= sign * series[at, symbol]:
                at = bar
    elif sign * series[t, symbol] >= sign * series[at, symbol]:
        at = t
    return at


def w1(all_bars):
    """The kernel of W1: (high, low, close, volume, out), `out` of the shape [output, bar or 1, symbol]."""

    @cuda.jit
    def kernel(high, low, close, volume, out):
        symbol = cuda.grid(1)
        bars, symbols = close.shape
        if symbol >= symbols:
            return
        typicals = cuda.local.array(20, float64)
        sma = wma = squares = typical_sum = 0.0
        ema = fast = slow = fast_sum = signal = signal_sum = 0.0
        gains = losses = atr = range_sum = plus = minus = adx = dx_sum = 0.0
        obv = flows = volumes = rising = falling = noise = kama = 0.0
        highest14 = lowest14 = highest20 = lowest20 = 0
        slot = 0
        c1 = h1 = l1 = p1 = k1 = k2 = d1 = d2 = 0.0
        for t in range(bars):
            h, l, c, v = high[t, symbol], low[t, symbol], close[t, symbol], volume[t, symbol]
            p = (h + l + c) / 3
            change = c - c1 if t > 0 else 0.0

            # Means of 20 bars and the deviations from them; squares are taken around the first close.
            base = close[0, symbol]
            if t < 20:
                wma += (t + 1) * c
                sma += c
                squares += (c - base) * (c - base)
                typical_sum += p
            else:
                old = close[t - 20, symbol]
                wma += 20 * c - sma
                sma += c - old
                squares += (c - base) * (c - base) - (old - base) * (old - base)
                typical_sum += p - typicals[slot]
            typicals[slot] = p
            slot = slot + 1 if slot < 19 else 0
            mean = sma / 20
            variance = squares / 20 - (mean - base) * (mean - base)
            width = 2 * math.sqrt(variance) if variance > 0 else 0.0
            typical_mean, deviation = typical_sum / 20, 0.0
            for i in range(20):
                deviation += abs(typicals[i] - typical_mean)
            cci = (p - typical_mean) / (0.015 * deviation / 20) if deviation > 0 else 0.0

            # Exponential averages.
            ema = ema + c / 20 if t < 20 else ema + (c - ema) * (2 / 21)
            if t < 26:
                slow += c / 26
                if t >= 14:
                    fast_sum += c
                fast = fast_sum / 12
            else:
                slow += (c - slow) * (2 / 27)
                fast += (c - fast) * (2 / 13)
            line = fast - slow
            if t >= 34:
                signal += (line - signal) * 0.2
            elif t >= 25:
                signal_sum += line
                signal = signal_sum / 9

            # Wilder's.
            gain, loss, true_range, up, down = 0.0, 0.0, 0.0, 0.0, 0.0
            if t > 0:
                gain, loss = max(change, 0.0), max(-change, 0.0)
                true_range = max(h - l, max(abs(h - c1), abs(l - c1)))
                up, down = h - h1, l1 - l
            plus_move = up if up > down and up > 0 else 0.0
            minus_move = down if down > up and down > 0 else 0.0
            if t <= 14:
                gains += gain / 14
                losses += loss / 14
                atr += true_range / 14
            else:
                gains += (gain - gains) / 14
                losses += (loss - losses) / 14
                atr += (true_range - atr) / 14
            if t <= 13:
                plus += plus_move
                minus += minus_move
                range_sum += true_range
            else:
                plus += plus_move - plus / 14
                minus += minus_move - minus / 14
                range_sum += true_range - range_sum / 14
            rsi = 100 * gains / (gains + losses) if gains + losses > 0 else 0.0
            dx = 100 * abs(plus - minus) / (plus + minus) if plus + minus > 0 else 0.0
            if t >= 28:
                adx += (dx - adx) / 14
            elif t >= 14:
                dx_sum += dx
                adx = dx_sum / 14

            # Extremes.
            highest14, lowest14 = extreme(high, symbol, t, 14, 1.0, highest14), extreme(low, symbol, t, 14, -1.0, lowest14)
            highest20, lowest20 = extreme(high, symbol, t, 20, 1.0, highest20), extreme(low, symbol, t, 20, -1.0, lowest20)
            top, bottom = high[highest14, symbol], low[lowest14, symbol]
            fast_k = 100 * (c - bottom) / (top - bottom) if top > bottom else 0.0
            k = (k2 + k1 + fast_k) / 3
            d = (d2 + d1 + k) / 3
            k2, k1, d2, d1 = k1, fast_k, d1, k
            upper, lower = high[highest20, symbol], low[lowest20, symbol]

            # Volume.
            obv += v if t == 0 or change > 0 else -v if change < 0 else 0.0
            flows += p * v
            volumes += v
            if t > 0:
                rising += p * v if p - p1 > TYPICAL_MOVE_LEAST * p else 0.0
                falling += p * v if p1 - p > TYPICAL_MOVE_LEAST * p else 0.0
            if t > 14:
                s = t - 14
                before = (high[s - 1, symbol] + low[s - 1, symbol] + close[s - 1, symbol]) / 3
                left = (high[s, symbol] + low[s, symbol] + close[s, symbol]) / 3
                rising -= left * volume[s, symbol] if left - before > TYPICAL_MOVE_LEAST * left else 0.0
                falling -= left * volume[s, symbol] if before - left > TYPICAL_MOVE_LEAST * left else 0.0
            mfi = 100 * rising / (rising + falling) if rising + falling > 0 else 0.0

            # Kaufman's.
            noise += abs(change)
            if t > 10:
                noise -= abs(close[t - 10, symbol] - close[t - 11, symbol])
            if t < 10:
                kama = c
            else:
                ratio = abs(c - close[t - 10, symbol]) / noise if noise > 0 else 0.0
                weight = ratio * (2 / 3 - 2 / 31) + 2 / 31
                kama += weight * weight * (c - kama)

            if all_bars or t == bars - 1:
                row = t if all_bars else 0
                out[0, row, symbol] = mean if t >= 19 else NAN
                out[1, row, symbol] = ema if t >= 19 else NAN
                out[2, row, symbol] = wma / 210 if t >= 19 else NAN
                out[3, row, symbol] = rsi if t >= 14 else NAN
                out[4, row, symbol] = line if t >= 33 else NAN
                out[5, row, symbol] = signal if t >= 33 else NAN
                out[6, row, symbol] = line - signal if t >= 33 else NAN
                out[7, row, symbol] = mean + width if t >= 19 else NAN
                out[8, row, symbol] = mean if t >= 19 else NAN
                out[9, row, symbol] = mean - width if t >= 19 else NAN
                out[10, row, symbol] = atr if t >= 14 else NAN
                out[11, row, symbol] = k if t >= 17 else NAN
                out[12, row, symbol] = d if t >= 17 else NAN
                out[13, row, symbol] = adx if t >= 27 else NAN
                out[14, row, symbol] = cci if t >= 19 else NAN
                out[15, row, symbol] = obv
                out[16, row, symbol] = flows / volumes
                out[17, row, symbol] = mfi if t >= 14 else NAN
                out[18, row, symbol] = kama if t >= 10 else NAN
                out[19, row, symbol] = upper if t >= 19 else NAN
                out[20, row, symbol] = (upper + lower) / 2 if t >= 19 else NAN
                out[21, row, symbol] = lower if t >= 19 else NAN
            c1, h1, l1, p1 = c, h, l, p

    return kernel


def family(which, all_bars, lanes):
    """The kernel of one family: (close, growth, votes, wholes), the latter two of the shape [family, bar or 1, symbol].

    A block has `lanes` symbols and a thread for each of their nine averages; the first of these threads adds up the votes of all nine.
    """

    @cuda.jit
    def kernel(close, growth, lengths, votes, wholes):
        lane, member = cuda.threadIdx.x, cuda.threadIdx.y
        bars, symbols = close.shape
        symbol = cuda.blockIdx.x * lanes + lane
        is_real = symbol < symbols
        if not is_real:
            symbol = symbols - 1  # Every thread reaches the barriers.
        ups = cuda.shared.array((2, MEMBERS, lanes), float64)
        totals = cuda.shared.array((2, MEMBERS, lanes), float64)
        n = lengths[member]
        m = n // 2
        smooth = 5 if n >= 25 else 4
        per_alpha, per_mean = 2 / (n + 1), 1 / n
        per_weights, per_half, per_smooth = 2 / (n * (n + 1)), 2 / (m * (m + 1)), 2 / (smooth * (smooth + 1))
        first = second = total = weighted = half_total = half_weighted = 0.0
        raw1 = raw2 = raw3 = raw4 = raw5 = NAN
        before, side, equity, whole, vote, x1 = NAN, 0.0, 1.0, 1.0, 0.0, 0.0
        for t in range(bars):
            x = close[t, symbol]
            part = (x / x1 - 1) * growth[t] if t > 0 else 0.0
            average = NAN
            if which == EMA or which == DEMA:
                if t < n:
                    total += x
                    first = total * per_mean
                    second = first
                else:
                    first += (x - first) * per_alpha
                    second += (first - second) * per_alpha
                if t >= n - 1:
                    average = first if which == EMA else 2 * first - second
            elif which == KAMA:
                if t == 0:
                    first = x
                else:
                    total += abs(x - x1)
                    if t > n:
                        total -= abs(close[t - n, symbol] - close[t - n - 1, symbol])
                    if t >= n:
                        ratio = abs(x - close[t - n, symbol]) / total if total > 0 else 0.0
                        weight = ratio * (KAMA_FAST - KAMA_SLOW) + KAMA_SLOW
                        first += weight * weight * (x - first)
                average = first
            else:
                if t < n:
                    weighted += (t + 1) * x
                    total += x
                else:
                    weighted += n * x - total
                    total += x - close[t - n, symbol]
                if which == HULL:
                    if t < m:
                        half_weighted += (t + 1) * x
                        half_total += x
                    else:
                        half_weighted += m * x - half_total
                        half_total += x - close[t - m, symbol]
                if t >= n - 1:
                    mean = weighted * per_weights
                    if which == WMA:
                        average = mean
                    elif which == LSMA:
                        # The end of the line: 3 weighted means less 2 means.
                        average = 3 * mean - 2 * total * per_mean
                    else:
                        raw5, raw4, raw3, raw2, raw1 = raw4, raw3, raw2, raw1, 2 * half_weighted * per_half - mean
                        if smooth == 5:
                            average = (5 * raw1 + 4 * raw2 + 3 * raw3 + 2 * raw4 + raw5) * per_smooth
                        else:
                            average = (4 * raw1 + 3 * raw2 + 2 * raw3 + raw4) * per_smooth
            if t > 0:
                equity = max(equity * KEEP * (1 + side * part), EQUITY_LEAST)
                if x > average and x1 <= before:
                    side = 1.0
                elif x < average and x1 >= before:
                    side = -1.0
            before, x1 = average, x

            # Two buffers: a bar's sums are read while the next one's are written.
            buffer = t & 1
            ups[buffer, member, lane] = side * equity
            totals[buffer, member, lane] = equity
            cuda.syncthreads()
            if member == 0:
                if t > 0:
                    sign = 1.0 if vote > 0 else -1.0 if vote < 0 else 0.0
                    whole = max(whole * KEEP * (1 + sign * part), EQUITY_LEAST)
                up, sum_of = 0.0, 0.0
                for k in range(MEMBERS):
                    up += ups[buffer, k, lane]
                    sum_of += totals[buffer, k, lane]
                vote = round(100 * (up / sum_of)) / 100
                if is_real and (all_bars or t == bars - 1):
                    row = t if all_bars else 0
                    votes[which, row, symbol] = vote
                    wholes[which, row, symbol] = whole

    return kernel


@cuda.jit
def combine(votes, wholes, out):
    """The signal of the six families: `out` of the shape [bar or 1, symbol]."""
    at = cuda.grid(1)
    rows, symbols = out.shape
    if at >= rows * symbols:
        return
    row, symbol = at // symbols, at % symbols
    up, total = 0.0, 0.0
    for k in range(FAMILIES):
        vote, whole = votes[k, row, symbol], wholes[k, row, symbol]
        up += whole if vote > LONG else -whole if vote < SHORT else 0.0
        total += whole
    out[row, symbol] = up / total
