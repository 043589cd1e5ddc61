// Steps without state: functions of the current bar.
#pragma once
#include "base.cuh"

// Comparisons closer than this, relative to the larger side or 1, are near.
constexpr double EDGE_TOLERANCE = 1e-9;
// TA-Lib's idea of zero.
constexpr double TALIB_EPSILON = 1e-14;

// What a condition says, as long as it stays in registers: predicates take fewer operations than 1, 0 and NA.
struct Truth {
    // Means nothing where it is not known.
    bool holds;
    bool known;

    __device__ __forceinline__ operator real() const { return only(truth(holds), known); }
};

// 1, 0, or NA where a side is NA or infinite.
STEP Truth told(real a, real b, bool holds) { return Truth{holds, is_finite(a) && is_finite(b)}; }

STEP real step_negate(real a) { return -a; }
STEP real step_abs(real a) { return fabs(a); }
STEP real step_sqrt(real a) { return sqrt(a); }
STEP real step_ceil(real a) { return ceil(a); }
STEP real step_floor(real a) { return floor(a); }

STEP real step_sign(real a) { return 0 < a ? (real)1 : a < 0 ? (real)-1 : a + 0; }

// Adding and taking away 2^52, or 2^23 of floats, rounds to an integer, half to even; the sign of what rounds to 0 stays.
STEP real step_round(real a) {
    const real whole = INTEGER;
    const real rounded = copysign((fabs(a) + whole) - whole, a);
    return fabs(a) < whole ? rounded : a;
}

STEP real step_add(real a, real b) { return a + b; }
STEP real step_subtract(real a, real b) { return a - b; }
STEP real step_multiply(real a, real b) { return a * b; }
STEP real step_divide(real a, real b) { return b == 0 ? na() : quotient(a, b); }

// a / b, where b is a whole number that the host knows; `share` is 1/b and `rest` what that lacks (`divided`, base.cuh).
struct DividedByWhole {
    STEP void operands(real a, real b, real, real, real& of, real& by) {
        of = a;
        by = b;
    }

    // The quotient of what is neither missing, infinite nor 0, and whether it holds, which is `usual`'s.
    STEP real quotient(real of, real, real b, real share, real rest, bool& usual) {
        const real by[3] = {b, share, rest};
        usual = usual && !(fabs(of) < (real)TINY && of != 0);
        return divided(of, by, false);
    }

    // NaN, infinities and 0 are those of the product with the inverse.
    STEP real with_quotient(real quotient, real a, real, real share, real) {
        return is_finite(a) && a != 0 ? quotient : a * share;
    }
};

STEP real divided_by_whole(real a, real b, real share, real rest) {
    bool usual = true;
    const real quotient = DividedByWhole::quotient(a, b, b, share, rest, usual);
    return usual ? DividedByWhole::with_quotient(quotient, a, b, share, rest) : a / b;
}

STEP real step_quotient(real a, real b) { return quotient(a, b); }
STEP real step_maximum(real a, real b) { return is_nan(a) ? a : larger(a, b); }
STEP real step_minimum(real a, real b) { return is_nan(a) ? a : smaller(a, b); }
STEP real step_ratioorzero(real a, real b) { return b == 0 && is_finite(a) ? (real)0 : quotient(a, b); }
STEP real step_ratioorzeroepsilon(real a, real b) {
    return fabs(b) < (real)TALIB_EPSILON && is_finite(a) ? (real)0 : quotient(a, b);
}
STEP real step_gate(real a, real b) { return only(a, is_finite(b)); }
STEP real step_orelse(real a, real b) { return is_nan(a) ? b : a; }

// Quotients split around their division, for bars side by side. Where `By::is_none` holds, nothing is divided, and `By::result` gives the
// value.
template <class By>
struct SplitQuotient {
    // Without branches: they would keep bars side by side apart.
    STEP bool is_none(real a, real b) { return is_nan(a) | is_nan(b) | By::is_none(a, b); }

    STEP void operands(real a, real b, real& of, real& by) {
        // Where nothing is divided, 1 by 1.
        const bool none = is_none(a, b);
        of = none ? (real)1 : a;
        by = none ? (real)1 : b;
    }

    STEP real with_quotient(real quotient, real a, real b) {
        const real none = By::result(a, b);
        return is_none(a, b) ? none : quotient;
    }
};

// Of two numbers of which one is 0 the product is 0; its sign is that of the quotient where that is not by 0.
struct ByAny {
    STEP bool is_none(real a, real b) { return (a == 0) & (b != 0) & is_finite(b); }
    STEP real result(real a, real b) { return a * b; }
};
struct ByNonzero {
    STEP bool is_none(real a, real b) { return (b == 0) | ((a == 0) & is_finite(b)); }
    STEP real result(real a, real b) { return b == 0 ? (real)na() : a * b; }
};
struct ByNonzeroOrZero {
    STEP bool is_none(real a, real b) { return ((b == 0) & is_finite(a)) | ((a == 0) & is_finite(b)); }
    STEP real result(real a, real b) {
        const real product = a * b;
        return (b == 0) & is_finite(a) ? (real)0 : product;
    }
};
struct ByMoreThanEpsilonOrZero {
    STEP bool is_small(real a, real b) { return (fabs(b) < (real)TALIB_EPSILON) & is_finite(a); }
    STEP bool is_none(real a, real b) { return is_small(a, b) | ((a == 0) & is_finite(b)); }
    STEP real result(real a, real b) {
        const real product = a * b;
        return is_small(a, b) ? (real)0 : product;
    }
};

// Wide. Floored: the result has the divisor's sign.
STEP double step_remainder(double a, double b) {
    if (b == 0.0) return na();
    const double r = fmod(a, b);
    return r != 0.0 && (r < 0.0) != (b < 0.0) ? r + b : r;
}

STEP real step_near(real a, real b) {
    const real most = larger(larger((real)1, fabs(a)), fabs(b));
    return told(a, b, fabs(a - b) <= (real)EDGE_TOLERANCE * most);
}

STEP Truth step_less(real a, real b) { return told(a, b, a < b); }
STEP Truth step_lessequal(real a, real b) { return told(a, b, a <= b); }
STEP Truth step_greater(real a, real b) { return told(a, b, b < a); }
STEP Truth step_greaterequal(real a, real b) { return told(a, b, b <= a); }
STEP Truth step_equal(real a, real b) { return told(a, b, a == b); }
STEP Truth step_notequal(real a, real b) { return told(a, b, a < b || b < a); }

// Kleene's logic.
STEP real step_and(real a, real b) { return a == 0 || b == 0 ? (real)0 : a * b; }
STEP real step_or(real a, real b) { return a == 1 || b == 1 ? (real)1 : a + b; }
STEP real step_not(real a) { return 1 - a; }
STEP real step_select(real c, real a, real b) { return c == 1 ? a : only(b, c == 0); }

// The same of what comparisons say.
STEP Truth step_and(Truth a, Truth b) {
    const bool no = (a.known && !a.holds) || (b.known && !b.holds);
    return Truth{!no, no || (a.known && b.known)};
}
STEP Truth step_or(Truth a, Truth b) {
    const bool yes = (a.known && a.holds) || (b.known && b.holds);
    return Truth{yes, yes || (a.known && b.known)};
}
STEP Truth step_not(Truth a) { return Truth{!a.holds, a.known}; }
STEP real step_select(Truth c, real a, real b) { return only(c.holds ? a : b, c.known); }
