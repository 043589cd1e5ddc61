// What every step shares: the number NA, rings of past values, and what threads of a block do together.
//
// One thread is one symbol, one warp is LANES symbols, time is a loop. Values are NaN for NA; a bool is 1, 0 or NaN. Every
// operation is written once and rounds once, as on the CPU: the sources are compiled without contraction.
//
// No header of the toolkit is included: the run-time compiler has none at hand, and each costs seconds.
#pragma once

typedef long long i64;
typedef unsigned long long u64;
typedef unsigned int u32;

#define STEP static __device__ __forceinline__

// Symbols side by side: those of a warp.
constexpr int LANES = 32;
// A ring in scratch memory, not in shared memory.
constexpr u32 IN_SCRATCH = 0x80000000u;
// A table of addresses, not a column.
constexpr u64 SCATTERED = 1;

STEP double of_bits(u64 bits) { return __longlong_as_double((i64)bits); }
STEP u64 bits_of(double x) { return (u64)__double_as_longlong(x); }
STEP double na() { return of_bits(0x7ff8000000000000ull); }
STEP double infinity() { return of_bits(0x7ff0000000000000ull); }
STEP bool is_nan(double x) { return x != x; }
STEP bool is_finite(double x) { return fabs(x) < infinity(); }
STEP double only(double x, bool holds) { return holds ? x : na(); }
STEP double defined(double x) { return only(x, is_finite(x)); }
STEP double truth(bool holds) { return holds ? 1.0 : 0.0; }
// The first where it is larger, else the second: the second where one is NaN.
STEP double larger(double a, double b) { return a > b ? a : b; }
// The first where it is smaller, else the second: the second where one is NaN.
STEP double smaller(double a, double b) { return a < b ? a : b; }
STEP int least(int a, int b) { return a < b ? a : b; }

// a / b. Where nothing is to be divided, as in lanes behind their last bar and in flat markets, by a product that gives the
// same: a division of such numbers takes the long way of the toolkit, for all lanes of the warp.
STEP double quotient(double a, double b) {
    const bool none = is_nan(a) || is_nan(b) || (a == 0.0 && b != 0.0 && is_finite(b));
    const double divided = (none ? 1.0 : a) / (none ? 1.0 : b);
    return none ? a * b : divided;
}

// Slots of one lane: neighbouring lanes lie side by side, so that a warp reads a row at once. Every slot is NA at first.
struct Ring {
    double* first;
    int slots;

    __device__ __forceinline__ double& operator[](int slot) const { return first[(i64)slot * LANES]; }
};

// The last values of a series, kept once for all steps that look back at it.
struct History {
    int now;

    __device__ __forceinline__ void start(int) { now = -1; }

    __device__ __forceinline__ void push(double x, const Ring& ring) {
        now = now + 1 < ring.slots ? now + 1 : 0;
        ring[now] = x;
    }

    // Into a ring of twice its slots that holds every value twice, so that a walk back never meets its end.
    __device__ __forceinline__ void push_twice(double x, const Ring& ring) {
        push(x, ring);
        ring[now + ring.slots] = x;
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
    __device__ __forceinline__ double back(int bars) const { return bars > t ? na() : ring[slot(bars)]; }

    __device__ __forceinline__ int older(int slot) const { return slot == 0 ? ring.slots - 1 : slot - 1; }
    __device__ __forceinline__ int younger(int slot) const { return slot + 1 == ring.slots ? 0 : slot + 1; }
};

#ifndef TRAWL_EMULATOR
// Holds until `threads` threads of the block have come: unlike __syncthreads from wherever in the text.
STEP void block_barrier(int threads) { asm volatile("bar.sync 1, %0;" ::"r"(threads) : "memory"); }

// Copies two values to shared memory in the background.
STEP void copy_pair(double* to, const double* from) {
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

// Whether a warp goes on by the short way that it took before. The emulator goes back at random: both give the same bits.
STEP bool goes_on(bool before, int) { return before; }

// Closes a group of copies of this thread.
STEP void copies_end() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Waits until at most `LEFT` groups of this thread are under way.
template <int LEFT>
STEP void copies_wait() { asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory"); }

extern __shared__ double2 block_memory[];
STEP double* shared_memory() { return (double*)block_memory; }
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
