// Powers, and the elementary functions as steps. Operation for operation plan/src/elementary/logarithm.rs.
#pragma once
#include "angle.cuh"
#include "base.cuh"
#include "math.cuh"

// Powers whose exponent is beyond this, or whose inverse is, are 0, 1 or infinite.
constexpr double POW_EXPONENT_MAX = 36893488147419103232.0;

// Whether a number is not whole (0), odd (1) or even (2).
STEP int parity(double y) {
    const double size = fabs(y);
    if (size >= 9007199254740992.0) return 2;
    const i64 whole = (i64)size;
    return (double)whole != size ? 0 : whole & 1 ? 1 : 2;
}

STEP_CALL double math_pow(double x, double y) {
    if (y == 0.0 || x == 1.0) return 1.0;
    if (is_nan(x) || is_nan(y)) return na();
    // Frequent, and rounded once.
    if (y == 1.0) return x;
    if (y == 2.0) return x * x;
    const double size = fabs(x);
    const bool negative = bits_of(x) >> 63;
    const int kind = negative ? parity(y) : 2;
    const double sign = kind == 1 ? -1.0 : 1.0;
    if (size == 0.0 || size == infinity()) return (size == 0.0) == (y > 0.0) ? sign * 0.0 : sign * infinity();
    if (size == 1.0 && fabs(y) == infinity()) return 1.0;
    if (kind == 0) return na();
    const Pair log = ln_of(size);
    // So that no product below overflows or loses bits; the power is what it was.
    const double most = POW_EXPONENT_MAX;
    y = y > most ? most : y < -most ? -most : fabs(y) < 1.0 / most ? 0.0 : y;
    const double part = upper(y), log_part = upper(log.high);
    const double product = part * log_part;
    const double rest = (y - part) * log_part + y * ((log.high - log_part) + log.low);
    const Pair exponent = pair_sum(product, rest);
    return sign * exp_of(exponent.high, exponent.low);
}

// Undefined for NA, even NA^0, and where 0 is divided by.
STEP double step_power(double a, double b) {
    return is_nan(a) || is_nan(b) || (a == 0.0 && b < 0.0) ? na() : math_pow(a, b);
}
STEP double step_log(double a) { return a > 0.0 ? math_log(a) : na(); }
STEP double step_exp(double a) { return math_exp(a); }
STEP double step_ln(double a) { return math_log(a); }
STEP double step_log10(double a) { return math_log10(a); }
STEP double step_sin(double a) { return math_sin(a); }
STEP double step_cos(double a) { return math_cos(a); }
STEP double step_tan(double a) { return math_tan(a); }
STEP double step_asin(double a) { return math_asin(a); }
STEP double step_acos(double a) { return math_acos(a); }
STEP double step_atan(double a) { return math_atan(a); }
STEP double step_sinh(double a) { return math_sinh(a); }
STEP double step_cosh(double a) { return math_cosh(a); }
STEP double step_tanh(double a) { return math_tanh(a); }
