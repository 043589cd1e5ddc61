// Steps whose state goes back to the first bar. At an undefined bar they emit NA and hold their state.
#pragma once
#include "base.cuh"

// Exponential and Wilder means, m + (x - m)*factor: seeded with the mean of p defined values after `delay` skipped ones.
struct Smoothed {
    // Values seen; the seed's first value, then the mean; while seeding, the sum of differences to the first.
    real seen, mean, sum;

    __device__ __forceinline__ void start(int, int) { seen = mean = sum = 0; }

    __device__ __forceinline__ real next(real x, int p, int delay, real factor, real share) {
        if (!is_finite(x)) return na();
        const real first = (real)(delay + 1), full = (real)(delay + p);
        const real n = seen + 1;
        seen = n;
        if (full < n) {
            mean = mean + (x - mean) * factor;
            return mean;
        }
        const real anchor = n <= first ? x : mean;
        sum = n <= first ? (real)0 : sum + (x - anchor);
        mean = n == full ? anchor + sum * share : anchor;
        return only(mean, full <= n);
    }

    __device__ __forceinline__ bool is_settled(int p, int delay) const { return (real)(delay + p) <= seen; }

    __device__ __forceinline__ real next_settled(real x, int, int, real factor, real) {
        const bool here = is_finite(x);
        const real moved = mean + (x - mean) * factor;
        mean = here ? moved : mean;
        return only(mean, here);
    }
};

// The sum of p-1 values, then s - s/p + x.
struct WilderSum {
    real seen, sum;

    __device__ __forceinline__ void start(int, int) { seen = sum = 0; }

    __device__ __forceinline__ real next(real x, int p, real share) {
        if (!is_finite(x)) return na();
        seen = seen + 1;
        // The p-th value itself already finds the sum full.
        const bool full = (real)p <= seen;
        sum = (full ? sum - sum * share : sum) + x;
        return only(sum, full);
    }

    __device__ __forceinline__ bool is_settled(int p) const { return (real)p <= seen + 1; }

    __device__ __forceinline__ real next_settled(real x, int, real share) {
        const bool here = is_finite(x);
        const real moved = (sum - sum * share) + x;
        sum = here ? moved : sum;
        return only(sum, here);
    }
};

// Wide. Wilder's sum from the sum of p-1 values on, none of which is negative. `share` is 1/p and `rest` what that lacks.
struct WilderTotal {
    int seen;
    double sum;

    __device__ __forceinline__ void start(int, int) {
        seen = 0;
        sum = 0;
    }

    __device__ __forceinline__ double next(double x, int p, double, double) {
        if (!is_finite(x)) return na();
        ++seen;
        sum = seen < p ? sum + x : sum - sum / (double)p + x;
        return seen + 1 >= p ? sum : na();
    }

    __device__ __forceinline__ bool is_settled(int p) const { return p <= seen + 1; }

    __device__ __forceinline__ double next_settled(double x, int p, double share, double rest) {
        const bool here = is_finite(x);
        // As a division rounds it, see `divided`.
        double part = fma(sum, share, sum * rest);
        if (sum < WIDE_TINY && sum != 0) part = sum / (double)p;
        const double moved = sum - part + x;
        sum = here ? moved : sum;
        return only(sum, here);
    }
};

// Inputs num, den: Wilder's mean of 100*num/den. TA-Lib adds nothing to the seed where den is 0, and later holds.
struct WilderRatio {
    real seen, mean;

    __device__ __forceinline__ void start(int, int) { seen = mean = 0; }

    __device__ __forceinline__ real next(real num, real den, int p, real share) {
        if (!is_finite(num) || !is_finite(den)) return na();
        const real ratio = 100 * (num / den);
        seen = seen + 1;
        if (den != 0) mean = (real)p < seen ? mean + (ratio - mean) * share : mean + ratio;
        if (seen == (real)p) mean = mean * share;
        return only(mean, (real)p <= seen);
    }

    __device__ __forceinline__ bool is_settled(int p) const { return (real)p <= seen; }

    __device__ __forceinline__ real next_settled(real num, real den, int p, real share) {
        real a, b;
        operands(num, den, p, share, a, b);
        return with_quotient(a / b, num, den, p, share);
    }

    __device__ __forceinline__ static void operands(real num, real den, int, real, real& a, real& b) {
        // Where nothing is divided, 1 by 1.
        const bool some = is_finite(num) && is_finite(den) && den != 0;
        a = some ? num : (real)1;
        b = some ? den : (real)1;
    }

    __device__ __forceinline__ real with_quotient(real quotient, real num, real den, int, real share) {
        const bool here = is_finite(num) && is_finite(den);
        const real moved = mean + (100 * quotient - mean) * share;
        mean = here && den != 0 ? moved : mean;
        return only(mean, here);
    }
};

// Kaufman's adaptive mean as TA-Lib has it. Inputs: x, x one bar ago, x p bars ago, sum of |changes| over p bars.
struct Kaufman {
    real mean;

    __device__ __forceinline__ void start(int, int) { mean = na(); }

    // Whether there is a mean at all, and whether change and noise are divided: nothing by something is nothing. The
    // comparison is with the signed change: so it is in TA-Lib.
    static __device__ __forceinline__ bool is_here(real before, real change, real noise) {
        return is_finite(before) & is_finite(change) & is_finite(noise);
    }
    static __device__ __forceinline__ bool is_steady(real change, real noise) {
        return (noise <= change) | (noise <= 0);
    }

    __device__ __forceinline__ static void operands(real x, real before, real far, real noise, real& a, real& b) {
        const real change = x - far;
        const bool divides = is_here(before, change, noise) & !is_steady(change, noise) & (change != 0);
        a = divides ? change : (real)1;
        b = divides ? noise : (real)1;
    }

    // The share of the way to x that the mean goes. Where nothing is divided, the quotient is 1.
    static __device__ __forceinline__ real pace(real quotient, real x, real far, real noise) {
        // Factors of the slowest (30 bars) and the fastest (2 bars) mean.
        const real slow = (real)(2.0 / 31.0), span = (real)(2.0 / 3.0 - 2.0 / 31.0);
        const real change = x - far;
        const bool none = (change == 0) & !is_steady(change, noise);
        // The change, not 0: for a constant the compiler makes branches, one bar after the other.
        const real root = fabs(none ? change : quotient) * span + slow;
        return root * root;
    }

    __device__ __forceinline__ real with_quotient(real quotient, real x, real before, real far, real noise) {
        const real from = is_nan(mean) ? before : mean;
        const real moved = (x - from) * pace(quotient, x, far, noise) + from;
        const bool here = is_here(before, x - far, noise);
        mean = here ? moved : mean;
        return only(mean, here);
    }

    // The same where there is a mean: a shorter way from bar to bar. A mean that is NaN stays so, so that `is_begun` holds for
    // all bars since.
    __device__ __forceinline__ real with_quotient_begun(real quotient, real x, real before, real far, real noise) {
        const real moved = (x - mean) * pace(quotient, x, far, noise) + mean;
        const bool here = is_here(before, x - far, noise);
        mean = here ? moved : mean;
        return only(mean, here);
    }
    __device__ __forceinline__ bool is_begun() const { return !is_nan(mean); }
    // Of a lane without bars, whose mean nobody asks for: any mean is one that has begun.
    __device__ __forceinline__ void begin() { mean = 0; }

    __device__ __forceinline__ real next(real x, real before, real far, real noise) {
        real a, b;
        operands(x, before, far, noise, a, b);
        return with_quotient(a / b, x, before, far, noise);
    }
};

// Adds `x` to the unevaluated sum `hi + lo` without losing what rounds away (Knuth's two-sum).
template <class T>
STEP void add_exactly(T& hi, T& lo, T x) {
    const T sum = hi + x;
    const T part = sum - hi;
    lo = lo + ((hi - (sum - part)) + (x - part));
    hi = sum;
}

// Running sum of the defined values.
struct Cumulative {
    real hi, lo;

    __device__ __forceinline__ void start(int, int) { hi = lo = 0; }

    __device__ __forceinline__ real next(real x) {
        const bool here = is_finite(x);
        real high = hi, low = lo;
        add_exactly(high, low, x);
        hi = here ? high : hi;
        lo = here ? low : lo;
        return only(hi + lo, here);
    }
};

// Wide. Running product of the defined values.
struct Product {
    double product;

    __device__ __forceinline__ void start(int, int) { product = 1.0; }

    __device__ __forceinline__ double next(double x) {
        const bool here = is_finite(x);
        product = here ? product * x : product;
        return only(product, here);
    }
};

// The defined value before the current one; at the first that one itself.
struct Previous {
    real before;

    __device__ __forceinline__ void start(int, int) { before = na(); }

    __device__ __forceinline__ real next(real x) {
        const real held = is_nan(before) ? x : before;
        const bool here = is_finite(x);
        before = here ? x : before;
        return only(held, here);
    }
};

// Inputs close, volume: on-balance volume.
struct OnBalance {
    // `lost`: what rounded away, of floats.
    real before, balance, lost;

    __device__ __forceinline__ void start(int, int) {
        before = na();
        balance = lost = 0;
    }

    __device__ __forceinline__ real next(real close, real volume) {
        const bool here = is_finite(close) && is_finite(volume);
        // Not at most the close before: higher, or there is none.
        const real up = close <= before ? (real)0 : volume;
        const real flow = close < before ? -volume : up;
        before = here ? close : before;
        if (SHORT) {
            real high = balance, low = lost;
            add_exactly(high, low, flow);
            balance = here ? high : balance;
            lost = here ? low : lost;
            return only(balance + lost, here);
        }
        const real moved = balance + flow;
        balance = here ? moved : balance;
        return only(balance, here);
    }
};

// NA for the first so many defined values, then the input.
struct Skip {
    int left;

    __device__ __forceinline__ void start(int, int p) { left = p; }

    __device__ __forceinline__ real next(real x, int) {
        if (left == 0 || !is_finite(x)) return x;
        --left;
        return na();
    }
};

// The value one bar ago.
struct LagOne {
    real held;

    __device__ __forceinline__ void start(int, int) { held = na(); }

    __device__ __forceinline__ real next(real x) {
        const real before = held;
        held = x;
        return before;
    }
};

// The value so many bars ago.
STEP real lag(const Past& x, int bars) { return x.back(bars); }

// Wide. Inputs open, close, mean price: the open of Heikin-Ashi candles.
struct HeikinAshi {
    // The next open, NA before the first bar.
    double open;

    __device__ __forceinline__ void start(int, int) { open = na(); }

    __device__ __forceinline__ double next(double bar_open, double close, double mean) {
        const bool here = is_finite(bar_open) && is_finite(close) && is_finite(mean);
        const double now = is_nan(open) ? (bar_open + close) / 2.0 : open;
        open = here ? (now + mean) / 2.0 : open;
        return only(now, here);
    }
};
