// Steps without state: functions of the current bar.
#pragma once
#include "base.cuh"

// Comparisons closer than this, relative to the larger side or 1, are near.
constexpr double EDGE_TOLERANCE = 1e-9;
// TA-Lib's idea of zero.
constexpr double TALIB_EPSILON = 1e-14;

// 1, 0, or NA where a side is NA or infinite.
STEP double told(double a, double b, bool holds) { return only(truth(holds), is_finite(a) && is_finite(b)); }

STEP double step_negate(double a) { return -a; }
STEP double step_abs(double a) { return fabs(a); }
STEP double step_sqrt(double a) { return sqrt(a); }
STEP double step_ceil(double a) { return ceil(a); }
STEP double step_floor(double a) { return floor(a); }

STEP double step_sign(double a) { return 0.0 < a ? 1.0 : a < 0.0 ? -1.0 : a + 0.0; }

// Adding and taking away 2^52 rounds to an integer, half to even; the sign of what rounds to 0 stays.
STEP double step_round(double a) {
    const double whole = 4503599627370496.0;
    const double rounded = copysign((fabs(a) + whole) - whole, a);
    return fabs(a) < whole ? rounded : a;
}

STEP double step_add(double a, double b) { return a + b; }
STEP double step_subtract(double a, double b) { return a - b; }
STEP double step_multiply(double a, double b) { return a * b; }
STEP double step_divide(double a, double b) { return b == 0.0 ? na() : quotient(a, b); }
STEP double step_quotient(double a, double b) { return quotient(a, b); }
STEP double step_maximum(double a, double b) { return is_nan(a) ? a : larger(a, b); }
STEP double step_minimum(double a, double b) { return is_nan(a) ? a : smaller(a, b); }
STEP double step_ratioorzero(double a, double b) { return b == 0.0 && is_finite(a) ? 0.0 : quotient(a, b); }
STEP double step_ratioorzeroepsilon(double a, double b) {
    return fabs(b) < TALIB_EPSILON && is_finite(a) ? 0.0 : quotient(a, b);
}
STEP double step_gate(double a, double b) { return only(a, is_finite(b)); }
STEP double step_orelse(double a, double b) { return is_nan(a) ? b : a; }

// Floored: the result has the divisor's sign.
STEP double step_remainder(double a, double b) {
    if (b == 0.0) return na();
    const double r = fmod(a, b);
    return r != 0.0 && (r < 0.0) != (b < 0.0) ? r + b : r;
}

STEP double step_near(double a, double b) {
    const double most = larger(larger(1.0, fabs(a)), fabs(b));
    return told(a, b, fabs(a - b) <= EDGE_TOLERANCE * most);
}

STEP double step_less(double a, double b) { return told(a, b, a < b); }
STEP double step_lessequal(double a, double b) { return told(a, b, a <= b); }
STEP double step_greater(double a, double b) { return told(a, b, b < a); }
STEP double step_greaterequal(double a, double b) { return told(a, b, b <= a); }
STEP double step_equal(double a, double b) { return told(a, b, a == b); }
STEP double step_notequal(double a, double b) { return told(a, b, a < b || b < a); }

// Kleene's logic.
STEP double step_and(double a, double b) { return a == 0.0 || b == 0.0 ? 0.0 : a * b; }
STEP double step_or(double a, double b) { return a == 1.0 || b == 1.0 ? 1.0 : a + b; }
STEP double step_not(double a) { return 1.0 - a; }
STEP double step_select(double c, double a, double b) { return c == 1.0 ? a : only(b, c == 0.0); }
