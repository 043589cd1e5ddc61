// Families of averages whose lengths the compiler knows: where every window lies within the history and nothing is tiny, a
// bar is straight-line code without a loop or a branch; every other bar goes through the averages one by one, as in trend.cuh.
// The operations on each value, and so the bits, are the same.
//
// They are called as the forms of family.cuh that take lengths as numbers.
#pragma once
#include "family.cuh"

// The lengths of a family, ascending.
template <int... LEN>
struct Lengths {
    static constexpr int count = sizeof...(LEN);

    static __device__ constexpr int at(int k) {
        const int all[] = {LEN...};
        return all[k];
    }

    // The longest of those from `from` on.
    static __device__ constexpr int longest(int from = 0) {
        int most = 1;
        for (int k = from; k < count; ++k) most = at(k) > most ? at(k) : most;
        return most;
    }
};

// A walk (family.cuh) whose ages are constants.
struct FixedWalk {
    const real* newest;
    real now, sum, sums;

    __device__ __forceinline__ explicit FixedWalk(const Past& x)
        : newest(&x.ring[x.now + x.ring.slots]), now(*newest), sum(0), sums(0) {}

    // From the age that the walk has come to on to the end of the window of `TO` bars.
    template <int AGE, int TO>
    __device__ __forceinline__ void to() {
        constexpr bool again = TO < AGE;
        if (again) sum = sums = 0;
#pragma unroll
        for (int age = again ? 1 : AGE; age < TO; ++age) {
            sum = sum + (newest[-age * LANES] - now);
            sums = sums + sum;
        }
    }
};

// `divided` (base.cuh) of what is not tiny.
STEP real divided(real x, const real* by) { return divided(x, by, false); }

// Above it, what is summed up may be too large for `quotient`.
constexpr double LARGE = SHORT ? 0x1p60 : 0x1p800;

// Of a bar that is not straight-line code: `mean(k)` of each length, one after another, since code for each would be read for
// nothing once windows are full.
template <int K, class Mean>
STEP void one_by_one(real (&means)[K], Mean mean) {
    real all[K];
#pragma unroll 1
    for (int k = 0; k < K; ++k) all[k] = mean(k);
#pragma unroll
    for (int k = 0; k < K; ++k) means[k] = all[k];
}

// Linearly weighted means.
template <class LENGTHS>
struct FixedWeightedMeans {
    static constexpr int K = LENGTHS::count;

    bool tiny;

    __device__ __forceinline__ void start() { tiny = false; }

    __device__ __forceinline__ void next(const Past& x, real, const int* len, const real* by, real (&means)[K]) {
        FixedWalk walk(x);
        tiny |= may_be_tiny(walk.now);
        if ((x.t + 1 < LENGTHS::longest()) | tiny) {
            one_by_one(means, [&](int k) { return trend_wma(x, len[k]); });
        } else {
            mean<0, 1>(walk, by, means);
        }
    }

private:
    template <int k, int AGE>
    __device__ __forceinline__ static void mean(FixedWalk& walk, const real* by, real (&means)[K]) {
        if constexpr (k < K) {
            walk.template to<AGE, LENGTHS::at(k)>();
            means[k] = defined(walk.now + divided(walk.sums, by + 3 * k));
            mean<k + 1, LENGTHS::at(k)>(walk, by, means);
        }
    }
};

// Ends of least-squares lines.
template <class LENGTHS>
struct FixedLineMeans {
    static constexpr int K = LENGTHS::count;

    bool tiny;

    __device__ __forceinline__ void start() { tiny = false; }

    __device__ __forceinline__ void next(const Past& x, real, const int* len, const real* by, real (&means)[K]) {
        FixedWalk walk(x);
        tiny |= may_be_tiny(walk.now);
        if ((x.t + 1 < LENGTHS::longest()) | tiny) {
            one_by_one(means, [&](int k) { return trend_lsma(x, len[k]); });
        } else {
            mean<0, 1>(walk, by, means);
        }
    }

private:
    template <int k, int AGE>
    __device__ __forceinline__ static void mean(FixedWalk& walk, const real* by, real (&means)[K]) {
        if constexpr (k < K) {
            walk.template to<AGE, LENGTHS::at(k)>();
            const real over = walk.sums * 6 - walk.sum * by[4 * k + 3];
            // No line goes through one point.
            means[k] = LENGTHS::at(k) < 2 ? na() : defined(walk.now + divided(over, by + 4 * k));
            mean<k + 1, LENGTHS::at(k)>(walk, by, means);
        }
    }
};

// Hull's averages: lengths, shorter windows and what is smoothed over, K each.
template <class LENGTHS>
struct FixedHullMeans {
    static constexpr int K = LENGTHS::count / 3;
    static constexpr int SMOOTH_MAX = LENGTHS::longest(2 * K);

    bool tiny;
    int at;

    __device__ __forceinline__ void start() {
        tiny = false;
        at = -1;
    }

    __device__ __forceinline__ void next(const Past& x, real, const int* len, const real* by, const Ring& raws,
                                         real (&means)[K]) {
        FixedWalk walk(x);
        tiny |= may_be_tiny(walk.now);
        at = at + 1 < raws.slots ? at + 1 : 0;
        if ((x.t + 1 < LENGTHS::longest()) | tiny) {
            one_by_one(means, [&](int k) {
                const real raw = 2 * trend_wma(x, len[K + k]) - trend_wma(x, len[k]);
                raws[at * K + k] = raw;
                return smoothed(x.t, raw, raws, k, len[2 * K + k]);
            });
        } else {
            half<0, 1>(walk, raws, by, means);
        }
    }

private:
    // The weighted mean of the last raw values of an average.
    __device__ __forceinline__ real smoothed(int t, real raw, const Ring& raws, int k, int len) const {
        if (t + 1 < len) return na();
        real sum = 0, sums = 0;
        int slot = at;
        for (int age = 1; age < len; ++age) {
            slot = slot == 0 ? raws.slots - 1 : slot - 1;
            sum = sum + (raws[slot * K + k] - raw);
            sums = sums + sum;
        }
        return defined(raw + sums / weights_of(len));
    }

    // The shorter means, then what is left of the walk.
    template <int k, int AGE>
    __device__ __forceinline__ void half(FixedWalk& walk, const Ring& raws, const real* by, real (&means)[K]) {
        if constexpr (k < K) {
            walk.template to<AGE, LENGTHS::at(K + k)>();
            means[k] = walk.now + divided(walk.sums, by + 3 * (K + k));
            half<k + 1, LENGTHS::at(K + k)>(walk, raws, by, means);
        } else {
            // Of this bar and those before, the first of the K rows of their raw values.
            real* rows[SMOOTH_MAX];
            int slot = at;
#pragma unroll
            for (int age = 0; age < SMOOTH_MAX; ++age) {
                rows[age] = &raws[slot * K];
                slot = slot == 0 ? raws.slots - 1 : slot - 1;
            }
            whole<0, AGE>(walk, rows, by, means);
        }
    }

    template <int k, int AGE>
    __device__ __forceinline__ static void whole(FixedWalk& walk, real* const (&rows)[SMOOTH_MAX], const real* by,
                                                 real (&means)[K]) {
        if constexpr (k < K) {
            walk.template to<AGE, LENGTHS::at(k)>();
            const real raw = 2 * means[k] - (walk.now + divided(walk.sums, by + 3 * k));
            rows[0][k * LANES] = raw;
            real sum = 0, sums = 0;
#pragma unroll
            for (int age = 1; age < LENGTHS::at(2 * K + k); ++age) {
                sum = sum + (rows[age][k * LANES] - raw);
                sums = sums + sum;
            }
            means[k] = defined(raw + divided(sums, by + 3 * (2 * K + k)));
            whole<k + 1, LENGTHS::at(k)>(walk, rows, by, means);
        }
    }
};

// Adaptive averages after Kaufman.
template <class LENGTHS>
struct FixedKaufmanMeans {
    static constexpr int K = LENGTHS::count;

    real mean[K];
    // Whether some value was so small or so large that `quotient` does not divide.
    bool odd;

    __device__ __forceinline__ void start() {
        odd = false;
#pragma unroll
        for (int k = 0; k < K; ++k) mean[k] = na();
    }

    __device__ __forceinline__ void next(const Past& x, real number, const int* len, const real*,
                                         real (&means)[K]) {
        const real* newest = &x.ring[x.now + x.ring.slots];
        const real now = *newest;
        odd = odd || may_be_tiny(now) || fabs(now) > (real)LARGE;
        if (x.t < LENGTHS::longest() || !((real)LENGTHS::longest() < number) || odd) {
            real before[K];
#pragma unroll
            for (int k = 0; k < K; ++k) before[k] = mean[k];
            one_by_one(mean, [&](int k) {
                TrendKaufman one;
                one.mean = before[k];
                return one.next(x, number, len[k]);
            });
        } else {
            step<0, 0>(newest, now, now, 0);
        }
#pragma unroll
        for (int k = 0; k < K; ++k) means[k] = mean[k];
    }

private:
    template <int k, int AGE>
    __device__ __forceinline__ void step(const real* newest, real x, real far, real noise) {
        if constexpr (k < K) {
            // Longer than the one before, or as long.
#pragma unroll
            for (int age = AGE + 1; age <= LENGTHS::at(k); ++age) {
                const real before = newest[-age * LANES];
                noise = noise + fabs(far - before);
                far = before;
            }
            // Where nothing changed, 0/0 is not looked at.
            const real ratio = quotient_plain(fabs(x - far), noise);
            mean[k] = adapted(mean[k], x, noise == 0 ? (real)0 : ratio);
            step<k + 1, LENGTHS::at(k)>(newest, x, far, noise);
        }
    }
};
