"""Bars in which candle patterns occur.

Prices are whole numbers of ticks, a bar is (open, high, low, close). Bars lean on one another: opens and closes are at
or near earlier opens, closes, highs, lows and middles, bodies come in TA-Lib's sizes, so that rare patterns and ties
occur. Windows around a pattern, changed by a tick here and there, try each of its conditions at its limit.
"""

import random

Bar = tuple[int, int, int, int]

START = 5_000
# Doji, short, middling and long, in ticks.
BODIES = ((0, 2), (3, 11), (12, 24), (25, 60))


def anchors(bar: Bar) -> tuple[int, ...]:
    open_, high, low, close = bar
    return (open_, close, high, low, (open_ + close) // 2)


def around(open_: int, close: int, upper: int, lower: int) -> Bar:
    return (open_, max(open_, close) + upper, min(open_, close) - lower, close)


def leaning(rng: random.Random, before: list[Bar], size: int, up: int) -> Bar:
    """A bar of BODIES[size] in direction `up` that leans on those before."""
    last = before[-1 - (rng.randrange(3) if rng.random() < 0.3 else 0)]
    jump = rng.choice((0, 0, rng.randint(-2, 2), rng.randint(-12, 12), up * rng.randint(1, 15), -up * rng.randint(1, 15)))
    open_ = rng.choice(anchors(last)) + jump
    close = open_ + up * rng.randint(*BODIES[size])
    if rng.random() < 0.25:
        close = rng.choice(anchors(before[-1 - rng.randrange(3)])) + rng.choice((0, rng.randint(-2, 2), rng.randint(-8, 8)))
    shadows = [rng.choice((0, rng.randint(0, 2), rng.randint(0, 12), rng.randint(5, 60))) for _ in range(2)]
    return around(open_, close, *shadows)


def retreat(rng: random.Random, before: list[Bar], up: int) -> list[Bar]:
    """A long body, three short ones back, a long one on: the five bars of methods and mat hold."""
    bars = [around(start := before[-1][3], at := start + up * rng.randint(30, 60), rng.randint(0, 6), rng.randint(0, 6))]
    at += up * rng.randint(-8, 12)
    for _ in range(3):
        body = rng.randint(1, 9)
        bars.append(around(at, at - up * body, rng.randint(0, 5), rng.randint(0, 5)))
        at -= up * rng.randint(0, body + 2)
    at = bars[-1][3] + up * rng.randint(-1, 8)
    return bars + [around(at, at + up * rng.randint(20, 70), rng.randint(0, 6), rng.randint(0, 6))]


def runaway(rng: random.Random, before: list[Bar], up: int) -> list[Bar]:
    """A long body, bars that go on, an opposite one back: breakaway, ladder bottom, three-line strike, swallow."""
    bars = [around(start := before[-1][3], at := start + up * rng.randint(25, 60), rng.randint(0, 6), rng.randint(0, 6))]
    steady = rng.random() < 0.5
    for _ in range(rng.randint(2, 3)):
        at += up * rng.randint(1 if steady else -8, 10)
        body = rng.randint(1, 20)
        shadows = [0 if steady else rng.choice((0, rng.randint(0, 12))) for _ in range(2)]
        bars.append(around(at, at + up * body, *shadows))
        at += up * body
    at += up * rng.randint(-6, 6)
    end = rng.choice((at - up * rng.randint(5, 90), bars[1][0] - up * rng.randint(0, 5)))
    return bars + [around(at, end, rng.randint(0, 6), rng.randint(0, 6))]


def swallow(rng: random.Random, before: list[Bar], up: int) -> list[Bar]:
    """Two bodies without shadows, a gap, a shadow back over it, a bar around that one; for `up` = -1 the swallow."""
    at = before[-1][3]
    bars = []
    for _ in range(2):
        bars.append(around(at, at + up * rng.randint(8, 40), rng.randint(0, 1), rng.randint(0, 1)))
        at = bars[-1][3] + up * rng.randint(0, 3)
    at = bars[-1][3] + up * rng.randint(1, 6)
    back = rng.randint(5, 25)
    bars.append(around(at, at + up * rng.randint(1, 12), *((back, 0) if up < 0 else (0, back))))
    _, high, low, _ = bars[-1]
    first, last = (high, low) if up < 0 else (low, high)
    return bars + [around(first - up * rng.randint(0, 4), last + up * rng.randint(0, 4), rng.randint(0, 2), rng.randint(0, 2))]


def shrinking(rng: random.Random, before: list[Bar], up: int) -> list[Bar]:
    """Three bodies of one colour inside one another, the shadows ahead of them; for `up` = -1 the stars in the south."""
    at = before[-1][3]
    body = rng.randint(20, 40)
    bars = []
    for ahead in (rng.randint(body, body + 30), rng.randint(4, 20)):
        bars.append(around(at, at + up * body, *((ahead, 0) if up > 0 else (0, ahead))))
        at += up * rng.randint(2, body)
        body = rng.randint(5, body)
    at = bars[-1][3] - up * rng.randint(0, body)
    return bars + [around(at, at + up * rng.randint(1, 5), rng.randint(0, 1), rng.randint(0, 1))]


RARE = (retreat, runaway, swallow, shrinking)


def random_bars(rng: random.Random, count: int) -> list[Bar]:
    """At least `count` bars."""
    bars = [around(START, START + 5, 5, 5)] * 3
    size, up = 1, 1
    while len(bars) < count:
        if not START - 2_000 < bars[-1][3] < START + 3_000:
            bars.append(around(START, START + 6, 6, 10))
        if rng.random() < 0.02:
            bars += rng.choice(RARE)(rng, bars, rng.choice((-1, 1)))
        if rng.random() < 0.6:
            size = rng.randrange(len(BODIES))
        if rng.random() < 0.5:
            up = -up
        bars.append(leaning(rng, bars, size, up))
    return bars


def nudged(rng: random.Random, window: list[Bar]) -> list[Bar]:
    """The window with one to three prices of its last bars moved by a few ticks or onto another price; bars stay bars."""
    window = list(window)
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(max(0, len(window) - 6), len(window))
        which = rng.randrange(4)
        price = window[at][which] + rng.choice((-3, -2, -1, 1, 2, 3))
        if rng.random() < 0.3:
            price = rng.choice(anchors(window[rng.randrange(max(0, at - 2), at + 1)])) + rng.choice((-1, 0, 0, 1))
        prices = [*window[at][:which], price, *window[at][which + 1 :]]
        open_, high, low, close = prices
        window[at] = (open_, max(prices), min(prices), close)
    return window
