// The steps of Adaptive Trend Classification: averages in which NA is data, returns that grow, the signal of a family of
// averages and what following it earns. A flat series gives each average exactly its value. See docs/adr/0010.
#pragma once
#include "base.cuh"

// No equity falls below it.
constexpr real EQUITY_FLOOR = 0.25;

// Sum of the differences to the current value of the `len - 1` values before it, and the sum of its partial sums.
STEP void nested_sums(const Past& x, real now, int len, real& sum, real& sums) {
    sum = sums = 0;
    int slot = x.now;
    for (int age = 1; age < len; ++age) {
        slot = x.older(slot);
        sum = sum + (defined(x.ring[slot]) - now);
        sums = sums + sum;
    }
}

// The linearly weighted mean of `len` bars.
STEP real trend_wma(const Past& x, int len) {
    if (x.t + 1 < len) return na();
    const real now = defined(x.back(0));
    real sum, sums;
    nested_sums(x, now, len, sum, sums);
    return defined(now + sums / weights_of(len));
}

// The end of the least-squares line. No line goes through one point.
STEP real trend_lsma(const Past& x, int len) {
    if (x.t + 1 < len || len < 2) return na();
    const real now = defined(x.back(0));
    real sum, sums;
    nested_sums(x, now, len, sum, sums);
    return defined(now + (sums * 6 - sum * (real)(2 * (len + 1))) / (real)((i64)len * (len + 1)));
}

// Hull's average: the weighted mean over `smooth` bars of twice the shorter mean less the longer one.
struct TrendHull {
    History raws;

    __device__ __forceinline__ void start(int, int) { raws.start(0); }

    __device__ __forceinline__ real next(const Past& x, int half, int whole, int smooth, const Ring& ring) {
        const real raw = 2 * trend_wma(x, half) - trend_wma(x, whole);
        raws.push(raw, ring);
        if (x.t + 1 < smooth) return na();
        const Past past{ring, raws.now, x.t};
        real sum = 0, sums = 0;
        int slot = past.now;
        for (int age = 1; age < smooth; ++age) {
            slot = past.older(slot);
            sum = sum + (ring[slot] - raw);
            sums = sums + sum;
        }
        return defined(raw + sums / weights_of(smooth));
    }
};

// Inputs x and the bar's number from 1 on: the exponential average that carries its value over missing bars, with DOUBLE
// twice it less the average of it.
template <bool DOUBLE>
struct TrendExponential {
    // First value, sum of differences to it, values: of the mean that the average begins with.
    real first, sum, seen;
    // The average, NA before the first value; its weight, 1 unless bars are missing; the average of it.
    real mean, weight, second;

    __device__ __forceinline__ void start(int, int) {
        first = mean = second = na();
        sum = seen = 0;
        weight = 1;
    }

    __device__ __forceinline__ real next(real value, real number, int len, real factor) {
        const real x = defined(value), n = (real)len, kept = 1 - factor;
        if (is_nan(first)) first = x;
        if (is_finite(x)) {
            sum = sum + (x - first);
            seen = seen + 1;
        }
        const real seed = first + sum / seen;
        const real z = number == n ? seed : only(x, n < number);
        const bool there = is_finite(z), fresh = is_nan(mean);
        const real left = weight * kept;
        const real moved = mean == z ? mean : (left * mean + factor * z) / (left + factor);
        mean = fresh ? z : there ? moved : mean;
        weight = there || fresh ? (real)1 : left;
        if (!DOUBLE) return mean;
        const real followed = second == mean ? second : second * kept + factor * mean;
        second = is_nan(second) ? mean : followed;
        return 2 * mean - second;
    }
};

// The adaptive average after Kaufman of a bar: of the average before, NA where it begins anew, the value, and of how much of
// the changes of the last bars was in one direction.
STEP real adapted(real mean, real x, real ratio) {
    // Factors of the slowest and the fastest average.
    const real slow = (real)0.064, span = (real)(0.666 - 0.064);
    const real root = ratio * span + slow;
    const real from = is_nan(mean) ? x : mean;
    return from + root * root * (x - from);
}

// The same of the value `len` bars ago and the sum of the changes since.
STEP real kaufman(real mean, real x, real far, real noise) {
    return adapted(mean, x, noise == 0 ? (real)0 : fabs(x - far) / noise);
}

// Inputs x and the bar's number from 1 on: the adaptive average after Kaufman. The first bar's value stands for the first
// `len` bars.
struct TrendKaufman {
    // NA where it begins anew with the next value.
    real mean;

    __device__ __forceinline__ void start(int, int) { mean = na(); }

    __device__ __forceinline__ real next(const Past& past, real number, int len) {
        const real x = defined(past.back(0));
        if (!((real)len < number)) {
            mean = number == 1 ? x : mean;
            return mean;
        }
        real noise = na(), far = na();
        if (past.t >= len) {
            noise = 0;
            int slot = past.now;
            real after = x;
            for (int age = 0; age < len; ++age) {
                slot = past.older(slot);
                far = defined(past.ring[slot]);
                noise = noise + fabs(after - far);
                after = far;
            }
        }
        mean = kaufman(mean, x, far, noise);
        return mean;
    }
};

// Inputs x, x one bar ago, the bar's number from 1 on: the return times `growth` of that bar, a table of the host's.
STEP real grown_return(real x, real before, real number, int bars, const double* growth) {
    const int at = !(number >= 1) ? 0 : number < (real)bars ? (int)number - 1 : bars - 1;
    return (defined(x) / defined(before) - 1) * (real)growth[at];
}

// The equity after a bar: `sign` is that of the signal one bar ago, 0 where there was none.
STEP real grown_equity(real equity, real sign, real growth, real start, real decay) {
    // Nothing times an infinite return is nothing.
    const real gain = sign == 0 || is_nan(growth) ? (real)0 : sign * growth;
    const real next = is_nan(equity) ? start : equity * decay * (1 + gain);
    return larger(EQUITY_FLOOR, next);
}

// Rounded to hundredths, half to even, of numbers that are small.
STEP real hundredths(real x) {
    // Adding and taking away rounds to an integer, of either sign.
    const real whole = INTEGER * (real)1.5;
    const real rounded = (100 * x + whole) - whole;
    if (SHORT) return rounded / 100;
    // Over 100: times its inverse and what that lacks, as `divided` (base.cuh).
    return (real)fma((double)rounded, 0x1.47ae147ae147bp-7, (double)rounded * -0x1.eb851eb851eb8p-63);
}

// Below it `quotient_plain` divides.
constexpr double QUOTIENT_MOST = SHORT ? 0x1p120 : 0x1p900;

// Inputs x, return, the bar's number from 1 on, K averages of x.
template <int K>
struct FamilySignal {
    static_assert(K <= 32, "a bit an average");
    // A bit an average: whether the last price was not above it, not below it; whether it says 1, -1; whether its equity is
    // not defined.
    u32 under, over, longs, shorts, missing;
    // NA before the first bar that counts.
    real equities[K];

    __device__ __forceinline__ void start(int, int) {
        under = over = longs = shorts = 0;
        missing = ~0u;
#pragma unroll
        for (int k = 0; k < K; ++k) equities[k] = na();
    }

    __device__ __forceinline__ real next(real value, real growth, real number, const real (&now)[K],
                                           int cutout, real decay) {
        const real price = defined(value);
        // What an equity is multiplied by, by the sign that was followed. Nothing times an infinite return is nothing.
        const real grows = is_nan(growth) ? (real)0 : growth, rise = 1 + grows, fall = 1 - grows;
        u32 not_above = 0, not_below = 0;
#pragma unroll
        for (int k = 0; k < K; ++k) {
            const u32 bit = 1u << k;
            const real gain = longs & bit ? rise : shorts & bit ? fall : (real)1;
            // NA where it was NA.
            equities[k] = larger(EQUITY_FLOOR, equities[k] * decay * gain);
            not_above |= price <= now[k] ? bit : 0;
            not_below |= now[k] <= price ? bit : 0;
        }
        // Branches that few bars take, where selections would cost every bar.
        if (__builtin_expect(missing != 0, 0)) {
#pragma unroll
            for (int k = 0; k < K; ++k) {
                if (missing & 1u << k) equities[k] = 1;
            }
        }
        if (__builtin_expect(!((real)cutout < number), 0)) {
#pragma unroll
            for (int k = 0; k < K; ++k) equities[k] = na();
        }
        const u32 above = not_below & ~not_above & under, below = not_above & ~not_below & over;
        longs = (longs & ~below) | above;
        shorts = (shorts & ~above) | below;
        under = not_above;
        over = not_below;
        real product = 0, sum = 0;
#pragma unroll
        for (int k = 0; k < K; ++k) {
            const u32 bit = 1u << k;
            const real sign = longs & bit ? (real)1 : shorts & bit ? (real)-1 : (real)0;
            // The product is exact, so that this rounds as two operations do.
            product = fma(sign, equities[k], product);
            sum = sum + equities[k];
        }
        missing = 0;
        real mean = quotient_plain(product, sum);
        // Equities are not negative: their sum is NaN where one of them is, and as large as any.
        if (__builtin_expect(!(sum < (real)QUOTIENT_MOST), 0)) {
#pragma unroll
            for (int k = 0; k < K; ++k) missing |= is_nan(equities[k]) ? 1u << k : 0;
            mean = product / sum;
        }
        return hundredths(mean);
    }
};

// Inputs signal, return, the bar's number from 1 on: the equity of following the signal.
struct SignalEquity {
    real before, equity;

    __device__ __forceinline__ void start(int, int) { before = equity = na(); }

    __device__ __forceinline__ real next(real signal, real growth, real number, int cutout, real start,
                                           real decay) {
        const real sign = 0 < before ? (real)1 : before < 0 ? (real)-1 : (real)0;
        equity = only(grown_equity(equity, sign, growth, start, decay), (real)cutout < number);
        before = signal;
        return equity;
    }
};

// Six signals, six equities: the votes weighed by the equities; 0 where that is not finite.
STEP real trend_vote(const real (&x)[12], real most_long, real most_short) {
    real votes = 0, sum = 0;
    for (int k = 0; k < 6; ++k) {
        const real vote = most_long < x[k] ? (real)1 : x[k] < most_short ? (real)-1 : (real)0;
        votes = votes + vote * x[k + 6];
        sum = sum + x[k + 6];
    }
    const real mean = votes / sum;
    return is_finite(mean) ? mean : (real)0;
}
