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
};

// Kaufman's adaptive mean as TA-Lib has it. Inputs: x, x one bar ago, x p bars ago, sum of |changes| over p bars.
struct Kaufman {
    double mean;

    __device__ __forceinline__ void start(int, int) { mean = na(); }

    // The share of the way to x that the mean goes, if there is one.
    static __device__ __forceinline__ bool pace(double x, double before, double far, double noise, double& share) {
        // Factors of the slowest (30 bars) and the fastest (2 bars) mean.
        const double slow = 2.0 / 31.0, span = 2.0 / 3.0 - slow;
        const double change = x - far;
        if (!is_finite(before) || !is_finite(change) || !is_finite(noise)) return false;
        // The comparison is with the signed change: so it is in TA-Lib.
        const bool steady = noise <= change || noise <= 0.0;
        const double efficiency = steady ? 1.0 : fabs(change / noise);
        const double root = efficiency * span + slow;
        share = root * root;
        return true;
    }

    __device__ __forceinline__ double next(double x, double before, double far, double noise) {
        double share;
        if (!pace(x, before, far, noise, share)) return na();
        const double from = is_nan(mean) ? before : mean;
        mean = (x - from) * share + from;
        return mean;
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
        if (!is_finite(x)) return na();
        add_exactly(hi, lo, x);
        return hi + lo;
    }
};

// Running product of the defined values.
struct Product {
    double product;

    __device__ __forceinline__ void start(int, int) { product = 1.0; }

    __device__ __forceinline__ double next(double x) {
        if (!is_finite(x)) return na();
        product = product * x;
        return product;
    }
};

// The defined value before the current one; at the first that one itself.
struct Previous {
    double before;

    __device__ __forceinline__ void start(int, int) { before = na(); }

    __device__ __forceinline__ double next(double x) {
        if (!is_finite(x)) return na();
        const double held = before;
        before = x;
        return is_nan(held) ? x : held;
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
        if (!is_finite(close) || !is_finite(volume)) return na();
        // Not at most the close before: higher, or there is none.
        const double up = close <= before ? 0.0 : volume;
        balance = balance + (close < before ? -volume : up);
        before = close;
        return balance;
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
        if (!is_finite(bar_open) || !is_finite(close) || !is_finite(mean)) return na();
        const double now = is_nan(open) ? (bar_open + close) / 2.0 : open;
        open = (now + mean) / 2.0;
        return now;
    }
};
