// The averages of one family of a trend classification, made together, the shortest first: windows in one walk back in
// time, which meets what a shorter one sums up on its way to a longer one; averages that remember side by side, in
// registers. Each has the bits that it has alone (trend.cuh), at every bar.
//
// Every family is called alike: its input (with its past, or its value), the bar's number from 1 on, whole numbers, numbers,
// a ring if it has one, and where its averages go. `kernels/src/cuda/codegen/family.rs` says which numbers.
#pragma once
#include "trend.cuh"

// Whether some value so far was so small that differences of values may be `tiny`.
STEP bool may_be_tiny(real x) { return (x != 0) & (fabs(x) < (real)TINY); }

// The nested sums of windows that end now. The ring holds every value twice, `slots` apart, so that no walk meets its end.
struct Walk {
    const real* newest;
    real now;
    // Sum of the differences of the `age - 1` values before to the current one, and the sum of its partial sums.
    real sum, sums;
    int age;

    __device__ __forceinline__ explicit Walk(const Past& x)
        : newest(&x.ring[x.now + x.ring.slots]), now(*newest), sum(0), sums(0), age(1) {}

    // Goes on to the end of the window of `len` bars, which must not begin before the first bar.
    __device__ __forceinline__ void to(int len) {
        if (len < age) {
            sum = sums = 0;
            age = 1;
        }
        const real* at = newest - (i64)age * LANES;
        for (; age < len; ++age, at -= LANES) {
            sum = sum + (*at - now);
            sums = sums + sum;
        }
    }
};

// Linearly weighted means. Whole numbers: the lengths. Numbers of each: its divisor.
template <int K>
struct WeightedMeans {
    bool tiny;

    __device__ __forceinline__ void start() { tiny = false; }

    __device__ __forceinline__ void next(const Past& x, real, const int* len, const real* by, real (&means)[K]) {
        Walk walk(x);
        tiny = tiny || may_be_tiny(walk.now);
#pragma unroll
        for (int k = 0; k < K; ++k) {
            means[k] = na();
            if (x.t + 1 < len[k]) continue;
            walk.to(len[k]);
            means[k] = defined(walk.now + divided(walk.sums, by + 3 * k, tiny));
        }
    }
};

// Ends of least-squares lines. Whole numbers: the lengths. Numbers of each: its divisor, the weight of the plain sum.
template <int K>
struct LineMeans {
    bool tiny;

    __device__ __forceinline__ void start() { tiny = false; }

    __device__ __forceinline__ void next(const Past& x, real, const int* len, const real* by, real (&means)[K]) {
        Walk walk(x);
        tiny = tiny || may_be_tiny(walk.now);
#pragma unroll
        for (int k = 0; k < K; ++k) {
            means[k] = na();
            // No line goes through one point.
            if (x.t + 1 < len[k] || len[k] < 2) continue;
            walk.to(len[k]);
            const real over = walk.sums * 6 - walk.sum * by[4 * k + 3];
            means[k] = defined(walk.now + divided(over, by + 4 * k, tiny));
        }
    }
};

// Hull's averages. Whole numbers: the lengths, the shorter windows, what is smoothed over. Numbers: the divisors of each in
// the same order. The ring has K rows a slot.
template <int K>
struct HullMeans {
    bool tiny;
    int at;

    __device__ __forceinline__ void start() {
        tiny = false;
        at = -1;
    }

    __device__ __forceinline__ void next(const Past& x, real, const int* len, const real* by, const Ring& raws,
                                         real (&means)[K]) {
        const int *half = len + K, *smooth = len + 2 * K;
        Walk walk(x);
        tiny = tiny || may_be_tiny(walk.now);
        at = at + 1 < raws.slots ? at + 1 : 0;
#pragma unroll
        for (int k = 0; k < K; ++k) means[k] = weighted(walk, x.t, half[k], by + 3 * (K + k));
#pragma unroll
        for (int k = 0; k < K; ++k) {
            const real raw = 2 * means[k] - weighted(walk, x.t, len[k], by + 3 * k);
            raws[at * K + k] = raw;
            means[k] = na();
            if (x.t + 1 < smooth[k]) continue;
            real sum = 0, sums = 0;
            int slot = at;
            for (int age = 1; age < smooth[k]; ++age) {
                slot = slot == 0 ? raws.slots - 1 : slot - 1;
                sum = sum + (raws[slot * K + k] - raw);
                sums = sums + sum;
            }
            means[k] = defined(raw + divided(sums, by + 3 * (2 * K + k), tiny));
        }
    }

private:
    __device__ __forceinline__ real weighted(Walk& walk, int t, int len, const real* by) const {
        if (t + 1 < len) return na();
        walk.to(len);
        // Not finite where the mean is not defined; nor is what is made of it.
        return walk.now + divided(walk.sums, by, tiny);
    }
};

// Adaptive averages after Kaufman. Whole numbers: the lengths, ascending. Numbers: the same.
template <int K>
struct KaufmanMeans {
    real mean[K];

    __device__ __forceinline__ void start() {
        for (int k = 0; k < K; ++k) mean[k] = na();
    }

    __device__ __forceinline__ void next(const Past& past, real number, const int* len, const real* bars,
                                         real (&means)[K]) {
        const real* at = &past.ring[past.now + past.ring.slots];
        const real x = *at;
        real noise = 0, far = x;
        int age = 0;
#pragma unroll
        for (int k = 0; k < K; ++k) {
            if (bars[k] < number) {
                real total = na();
                if (past.t >= len[k]) {
                    for (; age < len[k]; ++age) {
                        at -= LANES;
                        const real before = *at;
                        noise = noise + fabs(far - before);
                        far = before;
                    }
                    total = noise;
                }
                mean[k] = kaufman(mean[k], x, far, total);
            } else if (number == 1) {
                mean[k] = x;
            }
            means[k] = mean[k];
        }
    }
};

// Exponential averages, or with DOUBLE twice each less the average of it. Numbers of each: length, factor, 1 - factor.
template <int K, bool DOUBLE>
struct ExponentialMeans {
    real mean[K], second[DOUBLE ? K : 1];
    // In memory, since only bars that are not settled look for it: the weights, 1 unless bars are missing; first value, sum
    // of the differences to it, values: of the mean that averages begin with.
    real weight[K + 3];
    // Whether every average has begun, at full weight.
    bool settled;

    __device__ __forceinline__ void start() {
        settled = false;
        weight[K] = na();
        weight[K + 1] = weight[K + 2] = 0;
        for (int k = 0; k < K; ++k) {
            mean[k] = na();
            weight[k] = 1;
            if (DOUBLE) second[k] = na();
        }
    }

    __device__ __forceinline__ void next(real value, real number, const int*, const real* of, real (&means)[K]) {
        const real x = defined(value);
        if (settled && is_finite(x)) {
            // Weights (1 - a) and a add up to exactly 1.
#pragma unroll
            for (int k = 0; k < K; ++k) {
                mean[k] = followed(mean[k], x, of + 3 * k);
                if (DOUBLE) second[k] = followed(second[k], mean[k], of + 3 * k);
            }
        } else {
            any(x, number, of);
        }
#pragma unroll
        for (int k = 0; k < K; ++k) means[k] = DOUBLE ? 2 * mean[k] - second[k] : mean[k];
    }

private:
    STEP real followed(real mean, real x, const real* of) {
        return mean == x ? mean : mean * of[2] + of[1] * x;
    }

    // One bar, whatever is missing.
    __device__ __forceinline__ void any(real x, real number, const real* of) {
        real &first = weight[K], &sum = weight[K + 1], &seen = weight[K + 2];
        if (is_nan(first)) first = x;
        if (is_finite(x)) {
            sum = sum + (x - first);
            seen = seen + 1;
        }
        const real seed = first + sum / seen;
        // A loop over memory: bars that are not settled are few, and nine divisions side by side would take every register.
        real at[K], of_it[DOUBLE ? K : 1];
#pragma unroll
        for (int k = 0; k < K; ++k) {
            at[k] = mean[k];
            if (DOUBLE) of_it[k] = second[k];
        }
        settled = true;
#pragma unroll 1
        for (int k = 0; k < K; ++k) {
            const real len = of[3 * k], factor = of[3 * k + 1];
            const real z = number == len ? seed : only(x, len < number);
            const bool there = is_finite(z), fresh = is_nan(at[k]);
            const real left = weight[k] * of[3 * k + 2];
            const real moved = at[k] == z ? at[k] : (left * at[k] + factor * z) / (left + factor);
            at[k] = fresh ? z : there ? moved : at[k];
            weight[k] = there || fresh ? (real)1 : left;
            if (DOUBLE) of_it[k] = is_nan(of_it[k]) ? at[k] : followed(of_it[k], at[k], of + 3 * k);
            settled = settled && weight[k] == 1 && is_finite(at[k]) && (!DOUBLE || is_finite(of_it[k]));
        }
#pragma unroll
        for (int k = 0; k < K; ++k) {
            mean[k] = at[k];
            if (DOUBLE) second[k] = of_it[k];
        }
    }
};
