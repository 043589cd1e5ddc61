"""Arguments to try the elementary functions with, and their exact values by mpmath."""

import math
import random
import struct

import mpmath
from mpmath import mp, mpf

FUNCTIONS = "exp ln log10 pow sin cos tan asin acos atan sinh cosh tanh".split()

# Enough for every function at every f64: a sine of 2^1023 needs 1,023 bits more than its own.
VALUE_BITS = 140
TURN_BITS = 1200

# How arguments are drawn: uniform from a to b; any size from 2^a to below 2^b, of either sign; 1 + that; any bits; near multiples of
# pi/2; `power` means pairs (see power_of).
USUAL = {
    "exp": [("uniform", -20, 20), ("uniform", -1, 1)],
    "ln": [("uniform", 0, 1000), ("uniform", 0.5, 2)],
    "log10": [("uniform", 0, 1000), ("uniform", 0.5, 2)],
    "pow": [("power", "prices"), ("power", "whole")],
    "sin": [("uniform", -10, 10), ("uniform", -1000, 1000)],
    "asin": [("uniform", -1, 1)],
    "atan": [("uniform", -3, 3), ("exponent", -10, 10)],
    "sinh": [("uniform", -2, 2), ("uniform", -20, 20)],
}
EXTREME = {
    "exp": [("uniform", -745.2, 709.8), ("uniform", -746, -700), ("exponent", -60, 9)],
    "ln": [("any",), ("near_one", -52, -1), ("denormal",)],
    "log10": [("any",), ("near_one", -52, -1), ("denormal",)],
    "pow": [("power", "any"), ("power", "near_one"), ("power", "underflow")],
    "sin": [("any",), ("exponent", -30, 60), ("quarters",)],
    "asin": [("exponent", -60, 0), ("below_one", -52, -1)],
    "atan": [("any",), ("exponent", -60, 60)],
    "sinh": [("exponent", -60, 9), ("uniform", -711, 711)],
}
for other, like in (("cos", "sin"), ("tan", "sin"), ("acos", "asin"), ("cosh", "sinh"), ("tanh", "sinh")):
    USUAL[other], EXTREME[other] = USUAL[like], EXTREME[like]

EDGES = [
    0.0, 1.0, 0.5, 2.0, 3.0, 10.0, 1000.0, math.inf, math.nan, 5e-324, 2.2250738585072009e-308, 2.2250738585072014e-308,
    1.7976931348623157e308, 1e-8, 7.450580596923828e-09, 7.450580596923827e-09, 1e300, 0.9999999999999999,
    1.0000000000000002, 0.7071067811865475, 0.7071067811865476, 709.782712893384, 709.7827128933841, 710.4758600739439,
    710.475860073944, 745.1332191019411, 745.1332191019412, 708.3964185322641, 22.0, math.pi / 2, math.pi, 2 * math.pi,
    # The double that is nearest to a multiple of pi/2 for its size; an angle between two 256ths of a quarter.
    6381956970095103 * 2.0**797, math.pi / 512, 2.0**66, 2.0**1023, 11 * 2 * math.pi / 19,
]
POWER_EDGES = [
    0.0, 0.5, 1.0, 1.5, 2.0, 3.0, math.inf, math.nan, 5e-324, 0.9999999999999999, 1.0000000000000002, 2.0**52 + 0.5,
    2.0**53 - 1, 2.0**53, 1e300, 1e-300,
]


def bits(x):
    return struct.unpack("<Q", struct.pack("<d", x))[0]


def of_bits(b):
    return struct.unpack("<d", struct.pack("<Q", b))[0]


def sized(source, low, high):
    return math.ldexp(source.uniform(1, 2), source.randrange(low, high))


def drawn_one(how, source):
    """One argument, or a pair of them."""
    kind, *ends = how
    either = source.choice((-1.0, 1.0))
    if kind == "uniform":
        return source.uniform(*ends)
    if kind == "exponent":
        return either * sized(source, *ends)
    if kind == "near_one":
        return 1.0 + either * sized(source, *ends)
    if kind == "below_one":
        return either * (1.0 - sized(source, *ends))
    if kind == "any":
        return either * of_bits(source.randrange(1, 0x7FF << 52))
    if kind == "denormal":
        return of_bits(source.randrange(1, 1 << 52))
    if kind == "quarters":
        x = source.randrange(1, 1 << source.randrange(1, 31)) * math.pi / 2
        return either * of_bits(bits(x) + source.randrange(-2, 3))
    return power_of(ends[0], source)


def power_of(kind, source):
    if kind == "prices":
        return source.uniform(0, 1000), source.uniform(-5, 5)
    if kind == "whole":
        return source.uniform(-100, 100), float(source.randrange(-20, 21))
    if kind == "any":
        x = of_bits(source.randrange(1, 0x7FF << 52))
    elif kind == "near_one":
        x = 1.0 + source.choice((-1.0, 1.0)) * sized(source, -40, -1)
    else:
        x = source.uniform(0.1, 10)
    logarithm = math.log(x) or 1.0
    low, high = (-745.2, -700) if kind == "underflow" else (-745.2, 709.8)
    # Few digits, so that no machine's logarithm decides which number it is.
    return x, float(f"{source.uniform(low, high) / logarithm:.6g}")


def drawn(name, count, seed, sets=None):
    """(x, y) of `count` points, in turn from each of the sets; y is 0 but for pow. A logarithm's are positive."""
    source = random.Random(f"{name} {seed}")
    sets = sets or USUAL[name] + EXTREME[name]
    points = []
    for i in range(count):
        point = drawn_one(sets[i % len(sets)], source)
        x, y = point if isinstance(point, tuple) else (point, 0.0)
        points.append((abs(x) if name in ("ln", "log10") else x, y))
    return points


def edges(name):
    """(x, y) where functions have something to be careful about."""
    if name == "pow":
        signed = [sign * x for x in POWER_EDGES for sign in (1, -1)]
        return [(x, y) for x in signed for y in signed]
    return [(sign * x, 0.0) for x in EDGES for sign in (1, -1)]


def exact(name, x, y):
    """The value of a finite, defined function, as an mpf."""
    if name == "log10":
        return mpmath.log(mpf(x), 10)
    if name == "pow":
        return mpf(x) ** mpf(y)
    function = {"ln": mpmath.log}.get(name) or getattr(mpmath, name)
    return function(mpf(x))


def special(name, x, y):
    """The value where a function has no finite one or an argument is not finite, or None."""
    if name == "pow":
        # As C has it.
        try:
            if x == 0.0 and y < 0.0:
                odd = math.isfinite(y) and math.fmod(-y, 2.0) == 1.0
                return math.copysign(math.inf, x) if odd else math.inf
            if x < 0.0 and math.isfinite(x) and math.isfinite(y) and y != math.floor(y):
                return math.nan
            if x == 0.0 or not (math.isfinite(x) and math.isfinite(y)):
                return math.pow(x, y)
        except OverflowError:
            return math.inf
        return None
    if math.isnan(x):
        return math.nan
    if name in ("ln", "log10"):
        return -math.inf if x == 0.0 else math.nan if x < 0.0 else x if x == math.inf else None
    if name in ("asin", "acos") and abs(x) > 1.0:
        return math.nan
    if math.isinf(x):
        if name in ("sin", "cos", "tan"):
            return math.nan
        if name == "exp":
            return x if x > 0.0 else 0.0
        return {"atan": math.copysign(math.pi / 2, x), "sinh": x, "cosh": math.inf, "tanh": math.copysign(1.0, x)}[name]
    if x == 0.0 and name in ("sin", "tan", "asin", "atan", "sinh", "tanh"):
        return x
    return None


def nearest(name, x, y):
    """The nearest f64, and the exact value less that in units of its last place."""
    found = special(name, x, y)
    if found is not None:
        return found, 0.0
    with mp.workprec(TURN_BITS if name in ("sin", "cos", "tan") and abs(x) > 1e6 else VALUE_BITS):
        value = exact(name, x, y)
        near = rounded(value)
        if math.isinf(near) or value == 0:
            return near, 0.0
        return near, float((value - mpf(near)) / mpf(math.ulp(near)))



def rounded(value):
    """To the nearest f64, once, also below the normal numbers."""
    size = abs(value)
    if size == 0:
        return 0.0
    exponent = max(mpmath.frexp(size)[1], -1021) - 53
    whole = int(mpmath.nint(mpmath.ldexp(size, -exponent)))
    try:
        return math.copysign(math.ldexp(whole, exponent), -1.0 if value < 0 else 1.0)
    except OverflowError:
        return math.copysign(math.inf, -1.0 if value < 0 else 1.0)
