// Steps whose state goes back to the first bar. At an undefined bar they emit NA and hold their state.
#pragma once
#include "base.cuh"

// Exponential and Wilder means, m + (x - m)*factor: seeded with the mean of p defined values after `delay` skipped ones.
struct Smoothed {
    // Values seen; the seed's first value, then the mean; while seeding, the sum of differences to the first.
    double seen, mean, sum;

    __device__ __forceinline__ void start(int, int) { seen = mean = sum = 0.0; }

    __device__ __forceinline__ double next(double x, int p, int delay, double factor, double share) {
        if (!is_finite(x)) return na();
        const double first = (double)delay + 1.0, full = (double)delay + (double)p;
        const double n = seen + 1.0;
        seen = n;
        if (full < n) {
            mean = mean + (x - mean) * factor;
            return mean;
        }
        const double anchor = n <= first ? x : mean;
        sum = n <= first ? 0.0 : sum + (x - anchor);
        mean = n == full ? anchor + sum * share : anchor;
        return only(mean, full <= n);
    }

    __device__ __forceinline__ bool is_settled(int p, int delay) const { return (double)delay + (double)p <= seen; }

    __device__ __forceinline__ double next_settled(double x, int, int, double factor, double) {
        const bool here = is_finite(x);
        const double moved = mean + (x - mean) * factor;
        mean = here ? moved : mean;
        return only(mean, here);
    }
};

// The sum of p-1 values, then s - s/p + x.
struct WilderSum {
    double seen, sum;

    __device__ __forceinline__ void start(int, int) { seen = sum = 0.0; }

    __device__ __forceinline__ double next(double x, int p, double share) {
        if (!is_finite(x)) return na();
        seen = seen + 1.0;
        // The p-th value itself already finds the sum full.
        const bool full = (double)p <= seen;
        sum = (full ? sum - sum * share : sum) + x;
        return only(sum, full);
    }

    __device__ __forceinline__ bool is_settled(int p) const { return (double)p <= seen + 1.0; }

    __device__ __forceinline__ double next_settled(double x, int, double share) {
        const bool here = is_finite(x);
        const double moved = (sum - sum * share) + x;
        sum = here ? moved : sum;
        return only(sum, here);
    }
};

// Wilder's sum from the sum of p-1 values on.
struct WilderTotal {
    int seen;
    double sum;

    __device__ __forceinline__ void start(int, int) {
        seen = 0;
        sum = 0.0;
    }

    __device__ __forceinline__ double next(double x, int p) {
        if (!is_finite(x)) return na();
        ++seen;
        sum = seen < p ? sum + x : sum - sum / (double)p + x;
        return seen + 1 >= p ? sum : na();
    }
};

// Inputs num, den: Wilder's mean of 100*num/den. TA-Lib adds nothing to the seed where den is 0, and later holds.
struct WilderRatio {
    double seen, mean;

    __device__ __forceinline__ void start(int, int) { seen = mean = 0.0; }

    __device__ __forceinline__ double next(double num, double den, int p, double share) {
        if (!is_finite(num) || !is_finite(den)) return na();
        const double ratio = 100.0 * (num / den);
        seen = seen + 1.0;
        if (den != 0.0) mean = (double)p < seen ? mean + (ratio - mean) * share : mean + ratio;
        if (seen == (double)p) mean = mean * share;
        return only(mean, (double)p <= seen);
    }

    __device__ __forceinline__ bool is_settled(int p) const { return (double)p <= seen; }

    __device__ __forceinline__ double next_settled(double num, double den, int p, double share) {
        double a, b;
        operands(num, den, p, share, a, b);
        return with_quotient(a / b, num, den, p, share);
    }

    __device__ __forceinline__ void operands(double num, double den, int, double, double& a, double& b) const {
        // Where nothing is divided, 1 by 1.
        const bool some = is_finite(num) && is_finite(den) && den != 0.0;
        a = some ? num : 1.0;
        b = some ? den : 1.0;
    }

    __device__ __forceinline__ double with_quotient(double quotient, double num, double den, int, double share) {
        const bool here = is_finite(num) && is_finite(den);
        const double moved = mean + (100.0 * quotient - mean) * share;
        mean = here && den != 0.0 ? moved : mean;
        return only(mean, here);
    }
};

// Kaufman's adaptive mean as TA-Lib has it. Inputs: x, x one bar ago, x p bars ago, sum of |changes| over p bars.
struct Kaufman {
    double mean;

    __device__ __forceinline__ void start(int, int) { mean = na(); }

    // Whether there is a mean at all, and whether change and noise are divided: nothing by something is nothing. The
    // comparison is with the signed change: so it is in TA-Lib.
    static __device__ __forceinline__ bool is_here(double before, double change, double noise) {
        return is_finite(before) && is_finite(change) && is_finite(noise);
    }
    static __device__ __forceinline__ bool is_steady(double change, double noise) {
        return noise <= change || noise <= 0.0;
    }

    __device__ __forceinline__ static void operands(double x, double before, double far, double noise, double& a, double& b) {
        const double change = x - far;
        const bool divides = is_here(before, change, noise) && !is_steady(change, noise) && change != 0.0;
        a = divides ? change : 1.0;
        b = divides ? noise : 1.0;
    }

    // The share of the way to x that the mean goes.
    static __device__ __forceinline__ double pace(double quotient, double x, double far, double noise) {
        // Factors of the slowest (30 bars) and the fastest (2 bars) mean.
        const double slow = 2.0 / 31.0, span = 2.0 / 3.0 - slow;
        const double change = x - far;
        const double efficiency = is_steady(change, noise) ? 1.0 : change == 0.0 ? 0.0 : fabs(quotient);
        const double root = efficiency * span + slow;
        return root * root;
    }

    __device__ __forceinline__ double with_quotient(double quotient, double x, double before, double far, double noise) {
        const double from = is_nan(mean) ? before : mean;
        const double moved = (x - from) * pace(quotient, x, far, noise) + from;
        const bool here = is_here(before, x - far, noise);
        mean = here ? moved : mean;
        return only(mean, here);
    }

    __device__ __forceinline__ double next(double x, double before, double far, double noise) {
        double a, b;
        operands(x, before, far, noise, a, b);
        return with_quotient(a / b, x, before, far, noise);
    }
};

// Adds `x` to the unevaluated sum `hi + lo` without losing what rounds away (Knuth's two-sum).
STEP void add_exactly(double& hi, double& lo, double x) {
    const double sum = hi + x;
    const double part = sum - hi;
    lo = lo + ((hi - (sum - part)) + (x - part));
    hi = sum;
}

// Running sum of the defined values.
struct Cumulative {
    double hi, lo;

    __device__ __forceinline__ void start(int, int) { hi = lo = 0.0; }

    __device__ __forceinline__ double next(double x) {
        const bool here = is_finite(x);
        double high = hi, low = lo;
        add_exactly(high, low, x);
        hi = here ? high : hi;
        lo = here ? low : lo;
        return only(hi + lo, here);
    }
};

// Running product of the defined values.
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
    double before;

    __device__ __forceinline__ void start(int, int) { before = na(); }

    __device__ __forceinline__ double next(double x) {
        const double held = is_nan(before) ? x : before;
        const bool here = is_finite(x);
        before = here ? x : before;
        return only(held, here);
    }
};

// Inputs close, volume: on-balance volume.
struct OnBalance {
    double before, balance;

    __device__ __forceinline__ void start(int, int) {
        before = na();
        balance = 0.0;
    }

    __device__ __forceinline__ double next(double close, double volume) {
        const bool here = is_finite(close) && is_finite(volume);
        // Not at most the close before: higher, or there is none.
        const double up = close <= before ? 0.0 : volume;
        const double moved = balance + (close < before ? -volume : up);
        balance = here ? moved : balance;
        before = here ? close : before;
        return only(balance, here);
    }
};

// NA for the first so many defined values, then the input.
struct Skip {
    int left;

    __device__ __forceinline__ void start(int, int p) { left = p; }

    __device__ __forceinline__ double next(double x, int) {
        if (left == 0 || !is_finite(x)) return x;
        --left;
        return na();
    }
};

// The value one bar ago.
struct LagOne {
    double held;

    __device__ __forceinline__ void start(int, int) { held = na(); }

    __device__ __forceinline__ double next(double x) {
        const double before = held;
        held = x;
        return before;
    }
};

// The value so many bars ago.
STEP double lag(const Past& x, int bars) { return x.back(bars); }

// Inputs open, close, mean price: the open of Heikin-Ashi candles.
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
