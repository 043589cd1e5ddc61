// Crossings, and what was last true.
#pragma once
#include "base.cuh"

// a crosses b upwards: a > b now and a <= b one bar ago; NA when one of the four is not finite.
struct CrossesAbove {
    real before_a, before_b;

    __device__ __forceinline__ void start(int, int) { before_a = before_b = na(); }

    __device__ __forceinline__ real next(real a, real b) {
        const bool known = is_finite(a) && is_finite(b) && is_finite(before_a) && is_finite(before_b);
        const bool crosses = a > b && before_a <= before_b;
        before_a = a;
        before_b = b;
        return only(truth(crosses), known);
    }
};

struct CrossesBelow {
    CrossesAbove mirrored;

    __device__ __forceinline__ void start(int t, int p) { mirrored.start(t, p); }
    __device__ __forceinline__ real next(real a, real b) { return mirrored.next(b, a); }
};

// Wide. Bars since the input was true; NA until it was, and after an NA until it is true again.
struct Since {
    double bars;

    __device__ __forceinline__ void start(int, int) { bars = na(); }

    __device__ __forceinline__ double next(double c) {
        bars = c == 1.0 ? 0.0 : is_nan(c) ? na() : bars + 1.0;
        return bars;
    }
};

// Inputs c, x: x at the bar where c was last true; NA until it was, and after an NA of c until it is true again.
struct ValueWhen {
    real held;

    __device__ __forceinline__ void start(int, int) { held = na(); }

    __device__ __forceinline__ real next(real c, real x) {
        held = c == 1 ? x : is_nan(c) ? na() : held;
        return held;
    }
};

// Inputs c, x: the largest or the smallest defined x since c was last true; NA until c was, and after an NA of c until it is true
// again.
template <bool LARGEST>
struct ExtremeSince {
    // 1 from a true c to an NA of it.
    real begun, held;

    __device__ __forceinline__ void start(int, int) {
        begun = 0;
        held = na();
    }

    // The better one of two values of which either may be missing.
    static __device__ __forceinline__ real better(real held, real x) {
        const bool beyond = LARGEST ? x > held : x < held;
        return is_finite(x) && (beyond || is_nan(held)) ? x : held;
    }

    __device__ __forceinline__ real next(real c, real x) {
        const bool anew = c == 1 || is_nan(c);
        begun = c == 1 ? (real)1 : is_nan(c) ? (real)0 : begun;
        const real before = anew ? na() : held;
        held = begun == 1 ? better(before, x) : before;
        return held;
    }
};

// Whether `e` was ever true; NA counts as false.
struct Ever {
    real held;

    __device__ __forceinline__ void start(int, int) { held = 0; }

    __device__ __forceinline__ real next(real e) {
        held = e == 1 ? (real)1 : held;
        return held;
    }
};

// Inputs c, e: whether `e` was true since `c` was last true.
struct EverSince {
    real held;

    __device__ __forceinline__ void start(int, int) { held = 0; }

    __device__ __forceinline__ real next(real c, real e) {
        const real before = c == 1 ? (real)0 : held;
        held = e == 1 ? (real)1 : before;
        return held;
    }
};
