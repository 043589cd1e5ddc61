// What every step shares: the number NA, rings of past values, and what threads of a block do together.
//
// One thread is one symbol, one warp is LANES symbols, time is a loop. Values are NaN for NA; a bool is 1, 0 or NaN. Every
// operation is written once and rounds once, as on the CPU: the sources are compiled without contraction.
//
// Series are of the type `real`: double, or float where the text of a kernel says so (TRAWL_SHORT). A step is written over
// `real` if the CPU has it in both; steps that the CPU has in double only ("wide") are written over double: what they are
// given is widened by the call, and what they give is rounded where it becomes a `real`. See docs/adr/0059. Literals are
// whole numbers where they can be, since those take the other operand's type.
//
// No header of the toolkit is included: the run-time compiler has none at hand, and each costs seconds.
#pragma once

typedef long long i64;
typedef unsigned long long u64;
typedef unsigned int u32;
#ifdef TRAWL_SHORT
typedef float real;
#else
typedef double real;
#endif

// Whether `real` is float: running totals are then compensated.
constexpr bool SHORT = sizeof(real) < sizeof(double);

#define STEP static __device__ __forceinline__

// Symbols side by side: those of a warp.
constexpr int LANES = 32;
// A ring in scratch memory, not in shared memory.
constexpr u32 IN_SCRATCH = 0x80000000u;
// A table of addresses, not a column.
constexpr u64 SCATTERED = 1;
// Bytes that a thread copies at a time.
constexpr int COPY_BYTES = 16;

STEP double of_bits(u64 bits) { return __longlong_as_double((i64)bits); }
STEP u64 bits_of(double x) { return (u64)__double_as_longlong(x); }
#ifdef TRAWL_SHORT
STEP float of_short_bits(u32 bits) { return __uint_as_float(bits); }
STEP u32 short_bits_of(float x) { return __float_as_uint(x); }
STEP real na() { return of_short_bits(0x7fc00000u); }
// NA of a float and, twice side by side, of a double: what rings of both begin with.
STEP real blank() { return of_short_bits(0x7fffffffu); }
STEP real infinity() { return of_short_bits(0x7f800000u); }
// Without the lower half of its digits: a product of it with a whole number of as many digits does not round.
STEP float leading(float x) { return of_short_bits(short_bits_of(x) & ~((1u << 12) - 1)); }
#else
STEP real na() { return of_bits(0x7ff8000000000000ull); }
STEP real blank() { return na(); }
STEP real infinity() { return of_bits(0x7ff0000000000000ull); }
#endif
STEP double leading(double x) { return of_bits(bits_of(x) & ~((1ull << 26) - 1)); }

// All of double and of float. NaN and infinities widen to themselves.
template <class T>
STEP bool is_nan(T x) { return x != x; }
template <class T>
STEP bool is_finite(T x) { return fabs(x) < infinity(); }
template <class T>
STEP T only(T x, bool holds) { return holds ? x : (T)na(); }
template <class T>
STEP T defined(T x) { return only(x, is_finite(x)); }
STEP real truth(bool holds) { return holds ? (real)1 : (real)0; }
// The first where it is larger, else the second: the second where one is NaN.
template <class T>
STEP T larger(T a, T b) { return a > b ? a : b; }
// The first where it is smaller, else the second: the second where one is NaN.
template <class T>
STEP T smaller(T a, T b) { return a < b ? a : b; }
STEP int least(int a, int b) { return a < b ? a : b; }

// a / b. Where nothing is to be divided, as in lanes behind their last bar and in flat markets, by a product that gives the
// same: a division of such numbers takes the long way of the toolkit, for all lanes of the warp.
template <class T>
STEP T quotient(T a, T b) {
    const bool none = is_nan(a) || is_nan(b) || (a == 0 && b != 0 && is_finite(b));
    const T divided = (none ? (T)1 : a) / (none ? (T)1 : b);
    return none ? a * b : divided;
}

// Adding and taking away a number of this size rounds to an integer.
constexpr real INTEGER = SHORT ? (real)8388608.0 : (real)4503599627370496.0;

// Below it, what is summed up may be too small for `divided`.
constexpr double WIDE_TINY = 0x1p-700;
constexpr double TINY = SHORT ? 0x1p-60 : WIDE_TINY;

// x over the whole number by[0]. by[1] is 1/by[0] and by[2] what that lacks, so that the two products are off by less than
// 2^-105 of the quotient before they are rounded once; a quotient of a real by a whole number below 2^50 that is no
// real is further from the middle between two. So it is rounded as by a division. x is not -0; where it is not finite
// neither is the result; where its parts could be denormal, `tiny` has to be given.
//
// Of floats, by[1] is 1/by[0] rounded once: a quotient that is off by less than two last places is corrected to less than one,
// and from there what is left over, which is exact, gives the rounding of a division (Markstein).
STEP real divided(real x, const real* by, bool tiny) {
    if (tiny) return x / by[0];
    if (!SHORT) return fma(x, by[1], x * by[2]);
    const real near = x * by[1];
    const real nearer = fma(fma(-near, by[0], x), by[1], near);
    return fma(fma(-nearer, by[0], x), by[1], nearer);
}

// Sum of the weights 1, 2 ... of so many bars, rounded once.
STEP real weights_of(int bars) { return (real)((i64)bars * (bars + 1) / 2); }

// Slots of one lane: neighbouring lanes lie side by side, so that a warp reads a row at once. Every slot is NA at first.
template <class T>
struct RingOf {
    typedef T Value;

    T* first;
    int slots;

    __device__ __forceinline__ T& operator[](int slot) const { return first[(i64)slot * LANES]; }
};

typedef RingOf<real> Ring;
// Of a wide step. Its slots are two rows of floats.
typedef RingOf<double> WideRing;

// The last values of a series, kept once for all steps that look back at it.
struct History {
    int now;

    __device__ __forceinline__ void start(int) { now = -1; }

    template <class T>
    __device__ __forceinline__ void push(typename RingOf<T>::Value x, const RingOf<T>& ring) {
        now = now + 1 < ring.slots ? now + 1 : 0;
        ring[now] = x;
    }

    // Into a ring that keeps its first AGAIN slots behind its last one once more, so that so many slots and one, from any on, are
    // read without a question for its end.
    template <int AGAIN>
    __device__ __forceinline__ void push_again(real x, const Ring& ring) {
        push(x, ring);
        if (now < AGAIN) ring[now + ring.slots] = x;
    }

    // Into a ring of twice its slots that holds every value twice, so that a walk back never meets its end.
    __device__ __forceinline__ void push_twice(real x, const Ring& ring) {
        push(x, ring);
        ring[now + ring.slots] = x;
    }

    // Slot of the value so many bars ago, which must not lie further back than the ring reaches.
    template <class T>
    __device__ __forceinline__ int ago(int bars, const RingOf<T>& ring) const {
        return now < bars ? now - bars + ring.slots : now - bars;
    }

    // Of a ring that another warp fills.
    __device__ __forceinline__ void follow(const Ring& ring) { now = now + 1 < ring.slots ? now + 1 : 0; }
};

// A history as a step reads it at bar `t`.
struct Past {
    Ring ring;
    int now;
    int t;

    // Slot of the value `bars` bars ago, which must not lie further back than the ring reaches.
    __device__ __forceinline__ int slot(int bars) const {
        const int at = now - bars;
        return at < 0 ? at + ring.slots : at;
    }

    // The value `bars` bars ago, NA before the first bar.
    __device__ __forceinline__ real back(int bars) const {
        // Read at every bar: a branch would keep bars side by side apart.
        const bool none = bars > t;
        const real value = ring[slot(none ? 0 : bars)];
        return none ? na() : value;
    }

    __device__ __forceinline__ int older(int slot) const { return slot == 0 ? ring.slots - 1 : slot - 1; }
    __device__ __forceinline__ int younger(int slot) const { return slot + 1 == ring.slots ? 0 : slot + 1; }
};

#ifndef TRAWL_EMULATOR
// Holds until `threads` threads of the block have come: unlike __syncthreads from wherever in the text.
STEP void block_barrier(int threads) { asm volatile("bar.sync 1, %0;" ::"r"(threads) : "memory"); }

// Copies COPY_BYTES to shared memory in the background.
STEP void copy_across(void* to, const void* from) {
    const u32 address = (u32)__cvta_generic_to_shared(to);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(address), "l"(from) : "memory");
}

// Whether it holds for every lane of the warp, all of which ask.
STEP bool warp_all(bool holds) { return __all_sync(0xffffffffu, holds); }

// Near 1/x, from which a few operations get to it.
STEP double reciprocal_near(double x) {
    double near;
    asm("rcp.approx.ftz.f64 %0, %1;" : "=d"(near) : "d"(x));
    return of_bits((bits_of(near) & ~0xffffffffull) | 1);
}

#ifdef TRAWL_SHORT
STEP float reciprocal_near(float x) {
    float near;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(near) : "f"(x));
    return near;
}
#endif

// Whether a warp goes on by the short way that it took before. The emulator goes back at random: both give the same bits.
STEP bool goes_on(bool before, int) { return before; }

// Closes a group of copies of this thread.
STEP void copies_end() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Waits until at most `LEFT` groups of this thread are under way.
template <int LEFT>
STEP void copies_wait() { asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory"); }

extern __shared__ double2 block_memory[];
STEP real* shared_memory() { return (real*)block_memory; }
#endif

// a / b by the operations that the compiler divides by, without its question whether they hold: neither may the remainder
// lose digits to the least numbers, nor may the quotient leave the range of normal numbers.
STEP double quotient_plain(double a, double b) {
    const double near = reciprocal_near(b);
    const double rest = fma(near, -b, 1.0);
    const double nearer = fma(near, fma(rest, rest, rest), near);
    const double inverse = fma(nearer, fma(nearer, -b, 1.0), nearer);
    const double whole = a * inverse;
    return fma(inverse, fma(whole, -b, a), whole);
}

// The same, and whether it holds, which is `usual`'s; elsewhere a / b has to be asked for.
STEP double quotient_short(double a, double b, bool& usual) {
    const double result = quotient_plain(a, b);
    const u32 size = (u32)(bits_of(a) >> 32) & 0x7fffffffu, place = (u32)(bits_of(result) >> 32) & 0x7fffffffu;
    usual = usual && size >= 0x03600000u && size < 0x7ff00000u && place > 0x00100000u && place < 0x7fe00000u;
    return result;
}

#ifdef TRAWL_SHORT
// The same of floats, and where it holds.
STEP float quotient_plain(float a, float b) {
    const float near = reciprocal_near(b);
    const float inverse = fma(near, fma(near, -b, 1.0f), near);
    const float first = a * inverse;
    const float second = fma(inverse, fma(first, -b, a), first);
    return fma(inverse, fma(second, -b, a), second);
}

STEP float quotient_short(float a, float b, bool& usual) {
    const float result = quotient_plain(a, b);
    const u32 size = short_bits_of(a) & 0x7fffffffu, place = short_bits_of(result) & 0x7fffffffu;
    usual = usual && size >= 0x0d800000u && size < 0x7f800000u && place > 0x01000000u && place < 0x7e800000u;
    return result;
}
#endif
