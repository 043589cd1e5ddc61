// Exponentials, logarithms and hyperbolic functions: operation for operation the text of plan/src/elementary.rs and of
// plan/src/elementary, where the methods are explained. A change here is a change there.
//
// No array is needed but the tables, and no fused multiply-add is used: the sources are compiled without contraction.
#pragma once
#include "base.cuh"
#include "math_tables.cuh"

#define STEP_CALL static __device__ __noinline__

// An unevaluated sum; the second part is small beside the first.
struct Pair {
    double high;
    double low;
};

// The exact sum of two numbers. `a` is 0, or not smaller than `b` in size, or a multiple of `b`'s last place.
STEP Pair pair_sum(double a, double b) {
    const double high = a + b;
    return {high, b - (high - a)};
}

STEP double pair_value(Pair x) { return x.high + x.low; }

// The first 26 bits of the significand: a product of two such numbers is exact.
STEP double upper(double x) { return of_bits(bits_of(x) & 0xfffffffff8000000ull); }

// The quotient of two pairs, to about 2^-75 of itself.
STEP Pair pair_over(Pair x, Pair divisor) {
    const double inverse = 1.0 / divisor.high;
    const double quotient = x.high * inverse;
    const double part = upper(quotient), divisor_part = upper(divisor.high);
    const double rest = ((x.high - part * divisor_part) -
                         (part * (divisor.high - divisor_part) + (quotient - part) * divisor.high)) +
                        (x.low - quotient * divisor.low);
    return {quotient, rest * inverse};
}

// The nearest whole number below 2^31 in size.
STEP double nearest(double x, int& n) {
    const double to_whole = 6755399441055744.0;
    const double shifted = x + to_whole;
    n = (int)(u32)bits_of(shifted);
    return shifted - to_whole;
}

// 2^n, which must be a normal number.
STEP double power_of_two(int n) { return of_bits((u64)(0x3ff + n) << 52); }

// e^x is 0 or infinite, and stays so, beyond this.
constexpr double EXP_MAX = 760.0;
// The hyperbolic tangent differs from 1 by less than 2^-64 beyond this.
constexpr double TANH_MAX = 23.0;
// An exponent of 2 below which a term does not count beside 1.
constexpr int EXP_NEGLIGIBLE = -200;

// n, where x is n steps of ln 2/128 and `rest`. `low` is small beside a step.
STEP int exp_steps(double x, double low, Pair& rest) {
    int n;
    const double whole = nearest(x * EXP_STEPS_PER_UNIT, n);
    const double first = x - whole * EXP_STEP[0];
    const double second = low - whole * EXP_STEP[1];
    const double high = first + second;
    rest = {high, second - (high - first)};
    return n;
}

// A pair near 1 or 2 times 2^n, rounded once, also below the normal numbers.
STEP double pair_scaled(Pair x, int n) {
    double value = pair_value(x);
    if (n <= -1022) {
        // The last place of this number is that of the result.
        const double unit = power_of_two(-1022 - n);
        if (value < unit) {
            const Pair sum = pair_sum(unit, x.high);
            value = (sum.high + (sum.low + x.low)) - unit;
        }
    }
    const int half = n >> 1;
    return value * power_of_two(half) * power_of_two(n - half);
}

// e^(x + low), where `low` is small beside 1/128. x is no NaN.
STEP double exp_of(double x, double low) {
    const bool beyond = !(-EXP_MAX <= x && x <= EXP_MAX);
    Pair rest;
    const int n = exp_steps(x > EXP_MAX ? EXP_MAX : x < -EXP_MAX ? -EXP_MAX : x, beyond ? 0.0 : low, rest);
    const double entry = exp_table(n & 127, 0), entry_low = exp_table(n & 127, 1);
    const double r = rest.high;
    const double poly = EXP_POLY[0] + r * EXP_POLY[1] + (r * r) * (EXP_POLY[2] + r * EXP_POLY[3]);
    const double more = r + ((r * r) * poly + rest.low);
    return pair_scaled({entry, entry_low + (entry + entry_low) * more}, n >> 7);
}

STEP_CALL double math_exp(double x) { return is_nan(x) ? na() : exp_of(x, 0.0); }

// from*cosh r + by*sinh r, of r in two parts, and of sinh r - r and cosh r - 1.
STEP Pair hyperbolic_moved(Pair from, Pair by, double part, double left, double sine, double cosine) {
    const double factor = upper(by.high);
    const Pair total = pair_sum(from.high, factor * part);
    const double by_rest = (by.high - factor) + by.low;
    const double along = by.high * left + by_rest * part;
    const double low = total.low + (from.low + (along + (by.high * sine + from.high * cosine)));
    return pair_sum(total.high, low);
}

// p, and 2^(1-p) times the hyperbolic sine and cosine of x. x is 0 to EXP_MAX.
STEP int hyperbolic(double x, Pair& sine_of, Pair& cosine_of) {
    Pair rest;
    const int n = exp_steps(x, 0.0, rest), p = n >> 7, j = n & 127;
    // 2^-p times e^x and e^-x, without their e^r and e^-r.
    const double grown = exp_table(j, 0), grown_low = exp_table(j, 1);
    const int exponent = -2 * p - 1;
    const double scale = power_of_two(exponent < EXP_NEGLIGIBLE ? EXP_NEGLIGIBLE : exponent);
    const double shrunk = exp_table(128 - j, 0) * scale, shrunk_low = exp_table(128 - j, 1) * scale;
    Pair sum = pair_sum(grown, shrunk), difference = pair_sum(grown, -shrunk);
    sum = pair_sum(sum.high, sum.low + (grown_low + shrunk_low));
    difference = pair_sum(difference.high, difference.low + (grown_low - shrunk_low));
    const double r = rest.high, square = r * r;
    const double sine = (r * square) * (SINH_POLY[0] + square * SINH_POLY[1]) + rest.low;
    const double cosine = square * (COSH_POLY[0] + square * (COSH_POLY[1] + square * COSH_POLY[2])) + r * rest.low;
    const double part = upper(r), left = r - part;
    sine_of = hyperbolic_moved(difference, sum, part, left, sine, cosine);
    cosine_of = hyperbolic_moved(sum, difference, part, left, sine, cosine);
    return p;
}

STEP double hyperbolic_scaled(Pair x, int p) {
    return pair_value(x) * power_of_two(p >> 1) * power_of_two((p - 1) - (p >> 1));
}

STEP_CALL double math_sinh(double x) {
    if (is_nan(x)) return na();
    const double size = fabs(x);
    Pair sine, cosine;
    const int p = hyperbolic(size > EXP_MAX ? EXP_MAX : size, sine, cosine);
    return copysign(hyperbolic_scaled(sine, p), x);
}

STEP_CALL double math_cosh(double x) {
    if (is_nan(x)) return na();
    const double size = fabs(x);
    Pair sine, cosine;
    const int p = hyperbolic(size > EXP_MAX ? EXP_MAX : size, sine, cosine);
    return hyperbolic_scaled(cosine, p);
}

STEP_CALL double math_tanh(double x) {
    if (is_nan(x)) return na();
    const double size = fabs(x);
    // Below this the first term is the result, and what a quotient rounds away could lie below the normal numbers.
    if (size < power_of_two(-30)) return x;
    Pair sine, cosine;
    hyperbolic(size > TANH_MAX ? TANH_MAX : size, sine, cosine);
    return copysign(pair_value(pair_over(sine, cosine)), x);
}

// ln x to about 2^-70 of itself. x is positive and finite.
STEP Pair ln_of(double x) {
    u64 bits = bits_of(x);
    i64 whole_octaves = 0;
    // Below the normal numbers.
    if (x < power_of_two(-1022)) {
        bits = bits_of(x * power_of_two(54));
        whole_octaves = -54;
    }
    const i64 apart = (i64)(bits - LOG_FIRST_BITS);
    const i64 octaves = apart >> 52;
    const double m = of_bits(bits - ((u64)octaves << 52));
    const int entry = (int)(apart >> 45) & 127;
    const double c = log_table(entry, 0), log_high = log_table(entry, 1), log_low = log_table(entry, 2);
    const double k = (double)(whole_octaves + octaves);
    const double part = upper(m);
    const Pair r = pair_sum(part * c - 1.0, (m - part) * c);
    const double whole = k * LN_2[0] + log_high;
    const Pair first = pair_sum(whole, r.high);
    // -r^2/2, exactly for the short part.
    const double head = upper(r.high), tail = r.high - head;
    const Pair second = pair_sum(first.high, -0.5 * head * head);
    const double s = r.high, square = s * s;
    const double poly = (LOG_POLY[0] + s * LOG_POLY[1]) +
                        square * ((LOG_POLY[2] + s * LOG_POLY[3]) + square * (LOG_POLY[4] + s * LOG_POLY[5]));
    const double left = r.low - s * r.low;
    const double small = (first.low + second.low) + ((k * LN_2[1] + log_low) + (left - 0.5 * tail * (s + head)));
    return pair_sum(second.high, small + (square * s) * poly);
}

// The logarithm where ln_of has none.
STEP double ln_at_the_ends(double x) { return x == 0.0 ? -infinity() : x > 0.0 ? x : na(); }

STEP_CALL double math_log(double x) {
    return x > 0.0 && x < infinity() ? pair_value(ln_of(x)) : ln_at_the_ends(x);
}

STEP_CALL double math_log10(double x) {
    if (!(x > 0.0 && x < infinity())) return ln_at_the_ends(x);
    const Pair log = ln_of(x);
    const double part = upper(log.high), rest = (log.high - part) + log.low;
    return part * LOG10_E[0] + (rest * LOG10_E[0] + log.high * LOG10_E[1]);
}
