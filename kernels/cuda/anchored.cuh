// Weighted means since an anchor that each period brings anew. All steps are wide.
#pragma once
#include "base.cuh"
#include "recurrence.cuh"

// Where a mean begins in each period.
constexpr int ANCHOR_START = 0, ANCHOR_HIGHEST = 1, ANCHOR_LOWEST = 2;

// Sums since an anchor, compensated.
struct AnchoredSums {
    double weighted, weighted_lost, weights, weights_lost;

    static __device__ __forceinline__ AnchoredSums none() { return AnchoredSums{0.0, 0.0, 0.0, 0.0}; }

    __device__ __forceinline__ void add(double x, double w) {
        add_exactly(weighted, weighted_lost, x * w);
        add_exactly(weights, weights_lost, w);
    }

    __device__ __forceinline__ double mean() const {
        const double total = weights + weights_lost;
        return total == 0.0 ? na() : (weighted + weighted_lost) / total;
    }
};

// Inputs begin, key, x, w; see `Op::AnchoredMean`.
template <int ANCHOR, bool PREVIOUS>
struct AnchoredMean {
    // A period began and no bar of it was there yet; whether there is an anchor, and one of the period before.
    bool begun, anchored, has_before;
    double key;
    AnchoredSums present, before;

    __device__ __forceinline__ void start(int, int) {
        begun = true;
        anchored = has_before = false;
        key = 0.0;
        present = before = AnchoredSums::none();
    }

    __device__ __forceinline__ double next(double begin, double now_key, double x, double w) {
        // Also on a bar that is missing: the next one begins the period in its place.
        begun = begun || begin == 1.0;
        if (!is_finite(now_key) || !is_finite(x) || !is_finite(w)) return na();
        if (PREVIOUS && begun && anchored) {
            before = present;
            has_before = true;
        }
        const bool more = ANCHOR == ANCHOR_HIGHEST ? now_key > key : ANCHOR == ANCHOR_LOWEST ? now_key < key : false;
        if (begun || more) {
            present = AnchoredSums::none();
            key = now_key;
        }
        begun = false;
        anchored = true;
        present.add(x, w);
        if (!PREVIOUS) return present.mean();
        if (!has_before) return na();
        before.add(x, w);
        return before.mean();
    }
};
