// Window maxima and minima, their places, and the conditions that look at a window: comparisons only, nothing rounds.
#pragma once
#include "base.cuh"
#include "window.cuh"

// Window maximum, or with LOWEST minimum: extremes from the window's start to the last block border and from there on.
template <bool LOWEST>
struct WindowExtreme {
    Block block;
    real head;

    __device__ __forceinline__ void start(int t, int p) {
        block.start(t, p);
        head = na();
    }

    // What comparing with changes nothing.
    static __device__ __forceinline__ real none() { return LOWEST ? infinity() : -infinity(); }

    static __device__ __forceinline__ real further(real a, real b) {
        return is_nan(a) ? a : LOWEST ? smaller(a, b) : larger(a, b);
    }

    // Where a block begins: what the one before leaves.
    __device__ __forceinline__ void begin(real x, int p, const Ring& ring) {
        if (block.begins()) {
            head = none();
            real extreme = none();
            put_tails(ring, p, [&](real value, int) { return extreme = further(extreme, value); });
        }
    }

    __device__ __forceinline__ real next(real x, int p, const Ring& ring) {
        begin(x, p, ring);
        return next_inside(x, p, ring);
    }

    // At a bar that begins no block.
    __device__ __forceinline__ real next_inside(real x, int p, const Ring& ring) {
        const real value = defined(x);
        head = further(head, value);
        const real tail = block.left(p, ring, none());
        ring[block.at] = value;
        block.next(p);
        return further(tail, head);
    }
};

// Wide. An extreme and its bar. An undefined value makes it NaN for good.
struct Peak {
    double value, bar;

    static __device__ __forceinline__ Peak none() { return Peak{-infinity(), 0.0}; }

    // Keeps what it has where that is beyond `other`, or as far and `stays`.
    __device__ __forceinline__ void join(const Peak& other, bool stays) {
        const bool beyond = stays ? value >= other.value : value > other.value;
        const bool keep = is_nan(value) || (beyond && !is_nan(other.value));
        value = keep ? value : other.value;
        bar = keep ? bar : other.bar;
    }
};

// Wide. Bars since the window's maximum, or with `sign` -1 its minimum, the latest of equal ones.
struct WindowSince {
    Block block;
    Peak head;

    __device__ __forceinline__ void start(int t, int p) {
        block.start(t, p);
        head = Peak::none();
    }

    __device__ __forceinline__ double next(double x, int t, int p, double sign, const WideRing& values, const WideRing& bars) {
        if (block.begins()) {
            Peak peak = Peak::none();
            for (int j = Block::last(p, values); j > 0; --j) {
                peak.join(Peak{values[j], (double)(t - p + j)}, true);
                values[j] = peak.value;
                bars[j] = peak.bar;
            }
            head = Peak::none();
        }
        const double value = is_finite(x) ? sign * x : na();
        head.join(Peak{value, (double)t}, false);
        Peak peak = head;
        if (block.at + 1 < p) peak.join(Peak{values[block.at + 1], bars[block.at + 1]}, true);
        values[block.at] = value;
        block.next(p);
        return t + 1 < p || is_nan(peak.value) ? na() : (double)t - peak.bar;
    }
};

// Bar number of the window's maximum, or with `sign` -1 of its minimum, as TA-Lib finds it.
struct ExtremeIndex {
    int bar, from;
    real value;

    __device__ __forceinline__ void start(int, int) {
        bar = from = 0;
        value = -infinity();
    }

    __device__ __forceinline__ real next(const Past& past, int p, real sign) {
        const int t = past.t;
        const real x = past.back(0);
        if (!is_finite(x)) {
            from = t + 1;
            return na();
        }
        if ((i64)t + 1 < (i64)from + p) return na();
        const int first = t + 1 - p;
        if (first == from || bar < first) {
            int slot = past.slot(p - 1);
            bar = first;
            value = sign * past.ring[slot];
            for (int j = first + 1; j <= t; ++j) {
                slot = past.younger(slot);
                const real later = sign * past.ring[slot];
                if (later > value) {
                    bar = j;
                    value = later;
                }
            }
        } else if (sign * x >= value) {
            bar = t;
            value = sign * x;
        }
        return (real)bar;
    }
};

// Wide. Kleene or (`wanted` 1) or and (`wanted` 0) of the last p bars: `wanted` when one of them is, NA when one is NA (bars
// before the first are), else the opposite.
struct WindowFold {
    double last_wanted, last_na;

    __device__ __forceinline__ void start(int, int) {
        last_wanted = -infinity();
        last_na = -1.0;
    }

    __device__ __forceinline__ double next(double x, int t, int p, double wanted) {
        const double now = (double)t;
        if (x == wanted) last_wanted = now;
        if (is_nan(x)) last_na = now;
        const double otherwise = now - last_na < (double)p ? na() : 1.0 - wanted;
        return now - last_wanted < (double)p ? wanted : otherwise;
    }
};
