#!/usr/bin/env python3
"""Writes the constants of the elementary functions, plan/src/elementary/tables.rs and kernels/cuda/math_tables.cuh, and
values that tests compare with, tests/golden/elementary.csv.

    "$(tools/get-venv)" tools/make_elementary.py            # writes the files
    "$(tools/get-venv)" tools/make_elementary.py --check    # exits with 1 if a file differs from what would be written

Every number is computed here, by mpmath with PRECISION_BITS bits. How they are used is explained in plan/src/elementary.

A number is "short" if its significand has at most SHORT_BITS bits: the product of two short numbers is exact in f64. Tables
that are factors of exact products are pairs of a short number and the rest, rounded to f64.
"""

import sys
from pathlib import Path

import elementary_points
import mpmath
from mpmath import mp, mpf

ROOT = Path(__file__).resolve().parent.parent
RUST = ROOT / "plan" / "src" / "elementary" / "tables.rs"
GOLDEN = ROOT / "tests" / "golden" / "elementary.csv"
CUDA = ROOT / "kernels" / "cuda" / "math_tables.cuh"

PRECISION_BITS = 1400
SHORT_BITS = 26

# e^x: 2^(1/EXP_STEPS) is the ratio of neighbouring table entries; the number of steps has at most EXP_COUNT_BITS bits.
EXP_STEPS = 128
EXP_COUNT_BITS = 18
# ln x: intervals of an octave; reciprocals are multiples of 2^-LOG_RECIPROCAL_BITS; the sum of k*ln 2 and a table entry is
# exact because both are multiples of 2^-LOG_GRID_BITS.
LOG_INTERVALS = 128
LOG_RECIPROCAL_BITS = 11
LOG_GRID_BITS = 42
# Distance of the intervals' ends from powers of two, as a part of an interval: 1 lies inside of one.
LOG_SHIFT = mpf(1) / 2
# First significand, as a multiple of an interval below 1: near the root of 1/2.
LOG_FIRST_INTERVAL = 53
# sin x: steps of a quarter turn.
SINE_STEPS = 128
# Bits of 2/pi, after so many zeros.
TURN_ZEROS = 81
TURN_WORDS = 20
# atan x: steps from 0 to 1.
ARC_STEPS = 64

# From so many rows on, an array is a table that is read at computed places.
TABLE_ROWS_MIN = 16

# Values for tests: so many drawn points of each function, beside its edges.
GOLDEN_POINTS = 80
GOLDEN_SEED = 1


def rounded(x, bits=53):
    """x with a significand of `bits` bits, to nearest."""
    with mp.workprec(bits):
        return +x


def pair(x, bits=SHORT_BITS):
    """x as a number of `bits` bits and the rest as an f64."""
    high = rounded(x, bits)
    return high, rounded(x - high)


def on_grid(x, bits):
    """x as a multiple of 2^-bits and the rest as an f64."""
    high = mpmath.nint(x * mpf(2) ** bits) / mpf(2) ** bits
    return high, rounded(x - high)


def polynomial(f, bound, terms):
    """Coefficients, the lowest first, of a near-best approximation of f between `bound`'s two ends."""
    with mp.workprec(300):
        return [rounded(c) for c in reversed(mpmath.chebyfit(f, bound, terms))]


def series(coefficient, terms=40):
    """The power series with these coefficients, as a function."""
    return lambda x: mpmath.fsum(coefficient(i) * x**i for i in range(terms))


def factorial_series(first, step):
    """1/first! + u/(first+step)! + ..."""
    return series(lambda i: 1 / mpmath.factorial(first + step * i))


def constants():
    """(name, comment, value): f64 numbers, tuples of them for arrays, tuples of tuples for tables, ints for u64."""
    ln2, pi = mpmath.ln(2), mpmath.pi
    out = []

    def add(name, comment, value):
        out.append((name, comment, value))

    step = ln2 / EXP_STEPS
    bound = step / 2
    high, low = pair(step, 53 - EXP_COUNT_BITS)
    add("EXP_STEPS_PER_UNIT", f"{EXP_STEPS}/ln 2.", rounded(1 / step))
    add("EXP_STEP", f"ln 2/{EXP_STEPS}: {53 - EXP_COUNT_BITS} bits and the rest.", (high, low))
    add("EXP_POLY", "(e^r - 1 - r)/r^2 of half a step either side.",
        tuple(polynomial(factorial_series(2, 1), [-bound, bound], 4)))
    add("SINH_POLY", "(sinh r - r)/r^3 of r^2.", tuple(polynomial(factorial_series(3, 2), [0, bound**2], 2)))
    add("COSH_POLY", "(cosh r - 1)/r^2 of r^2.", tuple(polynomial(factorial_series(2, 2), [0, bound**2], 3)))
    add("EXP_TABLE", f"2^(j/{EXP_STEPS}): a short number and the rest.",
        tuple(pair(mpf(2) ** (mpf(j) / EXP_STEPS)) for j in range(EXP_STEPS + 1)))

    # The first of the intervals begins here; in the bits of an f64 all have the same length.
    first = LOG_FIRST_INTERVAL + LOG_SHIFT
    entries, widest = [], mpf(0)
    for i in range(LOG_INTERVALS):
        ends = []
        for at in (first + i, first + i + 1):
            # A significand below 1 counts half intervals.
            octave, part = divmod(at, LOG_INTERVALS)
            ends.append((1 + part / LOG_INTERVALS) * mpf(2) ** (int(octave) - 1))
        reciprocal = mpmath.nint(2 / (ends[0] + ends[1]) * 2**LOG_RECIPROCAL_BITS) / 2**LOG_RECIPROCAL_BITS
        if ends[0] < 1 < ends[1]:
            reciprocal = mpf(1)
        widest = max(widest, abs(ends[0] * reciprocal - 1), abs(ends[1] * reciprocal - 1))
        entries.append((reciprocal, *on_grid(-mpmath.ln(reciprocal), LOG_GRID_BITS)))
    add("LOG_FIRST_BITS", "Bits of the first interval's begin.",
        (0x3FE << 52) + (LOG_FIRST_INTERVAL << 45) + (1 << 44))
    add("LN_2", f"ln 2: a multiple of 2^-{LOG_GRID_BITS} and the rest.", on_grid(ln2, LOG_GRID_BITS))
    add("LOG_POLY", "(ln(1 + r) - r + r^2/2)/r^3.",
        tuple(polynomial(series(lambda i: mpf(-1) ** i / (i + 3), 120), [-widest, widest], 6)))
    add("LOG_TABLE", f"c near 1/m, and -ln c: a multiple of 2^-{LOG_GRID_BITS} and the rest.", tuple(entries))
    add("LOG10_E", "1/ln 10: a short number and the rest.", pair(1 / mpmath.ln(10)))

    half_step = pi / 4 / SINE_STEPS
    add("HALF_PI", "pi/2: a short number and the rest.", pair(pi / 2))
    add("SIN_POLY", "(sin d - d)/d^3 of d^2.",
        tuple(polynomial(series(lambda i: mpf(-1) ** (i + 1) / mpmath.factorial(2 * i + 3)), [0, half_step**2], 3)))
    add("COS_POLY", "(cos d - 1)/d^2 of d^2.",
        tuple(polynomial(series(lambda i: mpf(-1) ** (i + 1) / mpmath.factorial(2 * i + 2)), [0, half_step**2], 3)))
    add("SINE_TABLE", f"sin(j*pi/{2 * SINE_STEPS}): a short number and the rest.",
        tuple(pair(mpmath.sin(pi / 2 * j / SINE_STEPS)) for j in range(SINE_STEPS + 1)))
    turn = 2 / pi
    words = [int(mpmath.floor(turn * mpf(2) ** (64 * (w + 1) - TURN_ZEROS))) % 2**64 for w in range(TURN_WORDS)]
    add("TURN_BITS", f"{TURN_ZEROS} zeros, then the bits of 2/pi behind the point, the first ones highest.", tuple(words))

    widest = mpf(1) / (2 * ARC_STEPS) + mpf(2) ** -20
    add("ATAN_POLY", "(atan t - t)/t^3 of t^2.",
        tuple(polynomial(series(lambda i: mpf(-1) ** (i + 1) / (2 * i + 3), 60), [0, widest**2], 4)))
    arcs = [mpmath.atan(mpf(j) / ARC_STEPS) for j in range(ARC_STEPS + 1)]
    add("ATAN_TABLE", f"atan(j/{ARC_STEPS}), rounded, and the rest; then the complements of these to pi/2.",
        tuple(pair(x, 53) for x in arcs + [pi / 2 - x for x in arcs]))
    arc_sine = lambda i: mpmath.binomial(2 * i, i) / mpf(4) ** i / (2 * i + 1)
    add("SIXTH", "1/6: a short number and the rest.", pair(mpf(1) / 6))
    add("ASIN_POLY", "(asin y - y - y^3/6)/y^5 of y^2, for y up to 1/2.",
        tuple(polynomial(series(lambda i: arc_sine(i + 2), 300), [0, mpf(1) / 4], 14)))
    add("FULL_HALF_PI", "pi/2, rounded, and the rest.", pair(pi / 2, 53))
    return out


def text(x):
    """The shortest digits that read back as the same f64, or a u64."""
    return f"0x{x:016x}" if isinstance(x, int) else repr(float(x))


def lines(values, per_line, indent):
    rows = [", ".join(values[i:i + per_line]) for i in range(0, len(values), per_line)]
    return "".join(f"{indent}{row},\n" for row in rows)


NOTE = "Written by tools/make_elementary.py; not edited by hand."


def declared(value, element, array, open_, close):
    """(type, text) of a value; `array` makes the type of an array from an element's type and lengths."""
    if not isinstance(value, tuple):
        return element(value), text(value)
    if isinstance(value[0], tuple):
        rows = [open_ + ", ".join(map(text, row)) + close for row in value]
        return array(element(value[0][0]), len(value), len(value[0])), f"{open_}\n{lines(rows, 1, '    ')}{close}"
    joined = f"{open_}{', '.join(map(text, value))}{close}"
    if len(joined) > 90:
        joined = f"{open_}\n{lines([text(x) for x in value], 4, '    ')}{close}"
    return array(element(value[0]), len(value)), joined


def rust():
    out = f"//! Constants of the elementary functions. {NOTE}\n\n"
    out += "#![allow(clippy::approx_constant, clippy::excessive_precision, clippy::unreadable_literal)]\n"
    for name, comment, value in constants():
        element = lambda x: "u64" if isinstance(x, int) else "f64"
        array = lambda kind, *sizes: f"[{kind}; {sizes[0]}]" if len(sizes) == 1 else f"[[{kind}; {sizes[1]}]; {sizes[0]}]"
        kind, body = declared(value, element, array, "[", "]")
        # A table is one place in memory, a constant is copied to where it is used.
        word = "static" if kind.startswith("[[") or len(body) > 400 else "const"
        out += f"\n/// {comment}\npub(super) {word} {name}: {kind} = {body};\n"
    return out


def cuda():
    out = f"// Constants of the elementary functions. {NOTE}\n#pragma once\n#include \"base.cuh\"\n"
    for name, comment, value in constants():
        element = lambda x: "u64" if isinstance(x, int) else "double"
        array = lambda kind, *sizes: kind + "|" + "".join(f"[{n}]" for n in sizes)
        kind, body = declared(value, element, array, "{", "}")
        kind, _, sizes = kind.partition("|")
        suffix = "ull" if kind == "u64" and not sizes else ""
        if isinstance(value, tuple) and len(value) >= TABLE_ROWS_MIN:
            # Inside of a function, so that only kernels that read a table hold it.
            column = isinstance(value[0], tuple)
            head = f"STEP {kind} {name.lower()}(int row{', int column' if column else ''})"
            last = f"return values[row]{'[column]' if column else ''};"
            body = body.replace("\n", "\n    ")
            out += f"\n// {comment}\n{head} {{\n    static const {kind} values{sizes} = {body};\n    {last}\n}}\n"
        else:
            out += f"\n// {comment}\nstatic __device__ const {kind} {name}{sizes} = {body}{suffix};\n"
    return out


def golden():
    """Lines of a function, the bits of its arguments, those of the nearest f64, and the exact value less that in units of
    its last place."""
    out = "function,x,y,nearest,exact_minus_nearest_ulp\n"
    for name in elementary_points.FUNCTIONS:
        points = elementary_points.edges(name) + elementary_points.drawn(name, GOLDEN_POINTS, GOLDEN_SEED)
        for x, y in points:
            nearest, offset = elementary_points.nearest(name, x, y)
            bits = ",".join(f"{elementary_points.bits(v):016x}" for v in (x, y, nearest))
            out += f"{name},{bits},{offset:.4f}\n"
    return out


def main():
    mp.prec = PRECISION_BITS
    stale = []
    for path, content in ((RUST, rust()), (CUDA, cuda()), (GOLDEN, golden())):
        if "--check" in sys.argv[1:]:
            if not path.exists() or path.read_text() != content:
                stale.append(str(path.relative_to(ROOT)))
        else:
            path.write_text(content)
    if stale:
        sys.exit(f"{', '.join(stale)}: not what tools/make_elementary.py writes")


if __name__ == "__main__":
    main()
