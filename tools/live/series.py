"""Bars that are hard on indicators: one seeded series of a family, as columns of float64."""

import numpy

COLUMNS = ("open", "high", "low", "close", "volume", "periods", "unit", "signed")
BARS = (40, 120, 300, 500)


def cents(random, bars, step=100, wide=80, start=5_000, least=50):
    """A walk on a whole-number grid: open, high, low, close."""
    close = numpy.maximum(start + numpy.cumsum(random.integers(-step, step + 1, bars)), least)
    opened = numpy.concatenate([close[:1], close[:-1]]) + random.integers(-1, 2, bars) * random.integers(0, 10, bars)
    opened = numpy.maximum(opened, 1)
    high = numpy.maximum(opened, close) + random.integers(0, wide, bars)
    low = numpy.maximum(numpy.minimum(opened, close) - random.integers(0, wide, bars), 1)
    return [numpy.asarray(x, dtype=float) for x in (opened, high, low, close)]


def stretches(random, bars, longest=60):
    """True on some stretches of bars."""
    mask = numpy.zeros(bars, dtype=bool)
    for _ in range(max(1, bars // 60)):
        start = int(random.integers(0, bars))
        mask[start : start + int(random.integers(3, longest))] = True
    return mask


def walk(random, bars):
    return [x / 100.0 for x in cents(random, bars)]


def spiky(random, bars):
    prices = walk(random, bars)
    factor = numpy.where(random.random(bars) < 0.04, random.choice([0.05, 0.3, 4.0, 50.0], bars), 1.0)
    return [x * factor for x in prices]


def flat(random, bars):
    """Stretches on which nothing moves, all four prices equal."""
    prices = walk(random, bars)
    still = stretches(random, bars)
    held = numpy.maximum.accumulate(numpy.where(still & ~numpy.roll(still, 1) | ~still, numpy.arange(bars), 0))
    return [numpy.where(still, prices[3][held], x) for x in prices]


def tiny(random, bars):
    """About 1e-6, on no grid."""
    scale = 2e-8 * (1.0 + 0.1 * random.random())
    return [x * scale for x in walk(random, bars)]


def huge(random, bars):
    """About 1e8, on no grid."""
    scale = 2e6 * (1.0 + 0.1 * random.random())
    return [x * scale for x in walk(random, bars)]


def ticks(random, bars):
    """About 1e6 in ticks of 1e-4: changes are small beside the level."""
    return [(1e10 + x) / 1e4 for x in cents(random, bars, step=50, wide=30)]


def ties(random, bars):
    """Few different prices, so that equal values abound."""
    return cents(random, bars, step=1, wide=3, start=6, least=3)


FAMILIES = {f.__name__: f for f in (walk, spiky, flat, tiny, huge, ticks, ties)} | {"no volume": walk}


def make(random):
    """(family, columns by name): a series of a random family and length."""
    family = str(random.choice(list(FAMILIES)))
    return family, of_family(random, family, int(random.choice(BARS)) + int(random.integers(0, 20)))


def of_family(random, family, bars):
    """Columns by name."""
    opened, high, low, close = FAMILIES[family](random, bars)
    volume = random.integers(1, 1_000_000, bars).astype(float)
    if family == "no volume":
        volume[random.random(bars) < 0.3] = 0.0
        volume[stretches(random, bars)] = 0.0
    signed = random.integers(-40, 41, bars) / 8.0
    periods = random.integers(0, 40, bars) + random.choice([0.0, 0.25, 0.75], bars)
    columns = (opened, high, low, close, volume, periods, random.uniform(-1.0, 1.0, bars), signed)
    return {name: numpy.ascontiguousarray(x) for name, x in zip(COLUMNS, columns)}


def disturbed(columns, relative, seed):
    """The columns with every value changed by at most `relative` of it. Equal values stay equal, in all columns: a tie
    that the bars themselves show is not a near-tie."""

    def change(x):
        bits = (x.view(numpy.uint64) ^ numpy.uint64(seed * 0x9E3779B97F4A7C15 % 2**64)) * numpy.uint64(0xBF58476D1CE4E5B9)
        bits ^= bits >> numpy.uint64(29)
        bits *= numpy.uint64(0x94D049BB133111EB)
        unit = (bits >> numpy.uint64(11)).astype(float) / 2.0**52 - 1.0
        return numpy.ascontiguousarray(x * (1.0 + relative * unit))

    # Periods are cut off to whole numbers: a disturbed one would be another one.
    return {name: x if name == "periods" else change(x) for name, x in columns.items()}
