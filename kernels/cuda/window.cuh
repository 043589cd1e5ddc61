// Sliding sums and what is made of them.
//
// Time is cut into blocks of p bars, at bar numbers divisible by p. A window is what is left of the block before (its
// tail: one sum an offset, made once a block, from its end backwards) and the block so far (its head). What is added are
// differences to the anchor, the value at the block's first bar. See docs/adr/0002.
//
// Values and tails share a ring: at offset i of a block, slots up to i hold the block's values, those behind it what is
// left of the block before. So a window costs its own length and no copy of its input.
#pragma once
#include "base.cuh"

// The place in a block.
struct Block {
    int at;

    __device__ __forceinline__ void start(int t, int p) { at = t % p; }
    __device__ __forceinline__ bool begins() const { return at == 0; }
    __device__ __forceinline__ void next(int p) { at = at + 1 == p ? 0 : at + 1; }
    // Goes on behind bars that are left out.
    __device__ __forceinline__ void leave_out(int bars, int p) { at = (at + bars) % p; }
    // What windows that end now hold of the block before, 0 or `none` at its last bar. Read at every bar: a branch would keep
    // bars side by side apart.
    template <class T>
    __device__ __forceinline__ T left(int p, const RingOf<T>& ring, T none = 0) const {
        const int slot = at + 1 == p ? 0 : at + 1;
        const T kept = ring[slot];
        return slot == 0 ? none : kept;
    }
    // Whether none of the next `bars` bars but the first begins a block.
    __device__ __forceinline__ bool allows(int bars, int p) const { return at + bars <= p; }
    // Whether none of the next `bars` bars begins a block.
    __device__ __forceinline__ bool is_inside(int bars, int p) const { return at > 0 && at + bars <= p; }
    // The slots of the block before that windows of this one still hold, the last one first: reached ones alone.
    template <class T>
    __device__ __forceinline__ static int last(int p, const RingOf<T>& ring) {
        return least(p, ring.slots) - 1;
    }
};

// anchor + total / divisor, rounded once; share is 1 / divisor, a whole number. As mean_about of kernels/src/cpu/primitives/rolling_sums.rs.
STEP real mean_about(real anchor, real total, real divisor, real share) {
    const real near = anchor + total * share;
    const real distance = near - anchor;
    const real part = leading(distance);
    const real rest = (total - part * divisor) - (distance - part) * divisor;
    return defined(anchor * divisor + total == 0 ? (real)0 : near + rest * share);
}

// A mean, or with MEAN false a sum, of values whose differences to the anchor add up to `sum`.
template <bool MEAN>
STEP real total_about(real anchor, real sum, int p, real share) {
    return MEAN ? mean_about(anchor, sum, (real)p, share) : defined(anchor * (real)p + sum);
}

// Slots of a ring that are read before the first of them is written: a read takes as long as several sums.
constexpr int READ_AHEAD = 4;

// At a block's begin: puts into each slot, the last one first, what `left` makes of the value there and the slot's number.
template <class Left>
STEP void put_tails(const Ring& ring, int p, Left left) {
    int j = Block::last(p, ring);
    // First what a number of whole reads ahead leaves over.
#pragma unroll 1
    for (; j % READ_AHEAD != 0; --j) ring[j] = left(ring[j], j);
#pragma unroll 1
    for (; j > 0; j -= READ_AHEAD) {
        real values[READ_AHEAD];
#pragma unroll
        for (int k = 0; k < READ_AHEAD; ++k) values[k] = ring[j - k];
#pragma unroll
        for (int k = 0; k < READ_AHEAD; ++k) ring[j - k] = left(values[k], j - k);
    }
}

template <bool MEAN>
struct WindowTotal {
    Block block;
    real anchor, head;

    __device__ __forceinline__ void start(int t, int p) {
        block.start(t, p);
        anchor = head = na();
    }

    // Where a block begins: what the one before leaves.
    __device__ __forceinline__ void begin(real x, int p, real share, const Ring& ring) {
        if (block.begins()) {
            anchor = x;
            head = 0;
            real sum = 0;
            put_tails(ring, p, [&](real value, int) { return sum = sum + (value - anchor); });
        }
    }

    __device__ __forceinline__ real next(real x, int p, real share, const Ring& ring) {
        begin(x, p, share, ring);
        return next_inside(x, p, share, ring);
    }

    // At a bar that begins no block.
    __device__ __forceinline__ real next_inside(real x, int p, real share, const Ring& ring) {
        head = head + (x - anchor);
        const real tail = block.left(p, ring);
        ring[block.at] = x;
        block.next(p);
        return total_about<MEAN>(anchor, tail + head, p, share);
    }

    // N bars side by side, one of which begins a block; N < p.
    template <int N>
    __device__ __forceinline__ void next_begins(const real (&x)[N], real (&out)[N], int p, real share, const Ring& ring) {
        // The bar that begins a block, and its value.
        const int begin = block.begins() ? 0 : p - block.at;
        real first = x[0];
        int slot[N + 1];
        real before[N];
        slot[0] = block.at;
#pragma unroll
        for (int k = 0; k < N; ++k) {
            slot[k + 1] = slot[k] + 1 == p ? 0 : slot[k] + 1;
            before[k] = ring[slot[k + 1]];
            first = k == begin ? x[k] : first;
        }
#pragma unroll
        for (int k = 0; k < N; ++k) {
            if (k < begin) ring[slot[k]] = x[k];
        }
        real sum = 0;
        put_tails(ring, p, [&](real value, int) { return sum = sum + (value - first); });
        const real none = 0;
#pragma unroll
        for (int k = 0; k < N; ++k) {
            const real after = ring[slot[k + 1]];
            const real left = k < begin ? (k + 1 == begin ? none : before[k]) : after;
            anchor = k == begin ? first : anchor;
            head = (k == begin ? none : head) + (x[k] - anchor);
            out[k] = total_about<MEAN>(anchor, left + head, p, share);
        }
#pragma unroll
        for (int k = 0; k < N; ++k) {
            if (k >= begin) ring[slot[k]] = x[k];
        }
        block.at = slot[N];
    }
};

// Sum or mean of up to four bars, added up anew; the anchor is the current one.
template <bool MEAN>
struct WindowShort {
    real one, two, three;

    __device__ __forceinline__ void start(int, int) { one = two = three = na(); }

    __device__ __forceinline__ real next(real x, int p, real share) {
        real sum = 0;
        if (p > 1) sum = sum + (one - x);
        if (p > 2) sum = sum + (two - x);
        if (p > 3) sum = sum + (three - x);
        three = two;
        two = one;
        one = x;
        return total_about<MEAN>(x, sum, p, share);
    }
};

// The linearly weighted mean. Tails: weighted sums, weights 1, 2 ... from the window's start.
struct WindowWeighted {
    Block block;
    real anchor, weighted, plain;

    __device__ __forceinline__ void start(int t, int p) {
        block.start(t, p);
        anchor = weighted = plain = na();
    }

    // Where a block begins: what the one before leaves.
    __device__ __forceinline__ void begin(real x, int p, real share, const Ring& ring) {
        if (block.begins()) {
            anchor = x;
            weighted = plain = 0;
            real tail_weighted = 0, tail_plain = 0;
            put_tails(ring, p, [&](real value, int) {
                // Every value behind the new one weighs one more.
                tail_plain = tail_plain + (value - anchor);
                return tail_weighted = tail_weighted + tail_plain;
            });
        }
    }

    __device__ __forceinline__ real next(real x, int p, real share, const Ring& ring) {
        begin(x, p, share, ring);
        return next_inside(x, p, share, ring);
    }

    // At a bar that begins no block.
    __device__ __forceinline__ real next_inside(real x, int p, real share, const Ring& ring) {
        const real d = x - anchor;
        weighted = weighted + d * (real)(block.at + 1);
        plain = plain + d;
        const real tail = block.left(p, ring);
        const real before = (real)(p - (block.at + 1));
        const real total = tail + (weighted + plain * before);
        ring[block.at] = x;
        block.next(p);
        return mean_about(anchor, total, weights_of(p), share);
    }
};

// Population standard deviation: differences to the anchor, and their squares.
struct WindowDeviation {
    Block block;
    real anchor, sum, squares;

    __device__ __forceinline__ void start(int t, int p) {
        block.start(t, p);
        anchor = sum = squares = na();
    }

    // Where a block begins: what the one before leaves.
    __device__ __forceinline__ void begin(real x, int p, real share, const Ring& values, const Ring& tails) {
        if (block.begins()) {
            anchor = x;
            sum = squares = 0;
            real tail_sum = 0, tail_squares = 0;
            put_tails(values, p, [&](real value, int j) {
                const real d = value - anchor;
                tails[j] = tail_squares = tail_squares + d * d;
                return tail_sum = tail_sum + d;
            });
        }
    }

    __device__ __forceinline__ real next(real x, int p, real share, const Ring& values, const Ring& tails) {
        begin(x, p, share, values, tails);
        return next_inside(x, p, share, values, tails);
    }

    // At a bar that begins no block.
    __device__ __forceinline__ real next_inside(real x, int p, real share, const Ring& values, const Ring& tails) {
        const real d = x - anchor;
        sum = sum + d;
        squares = squares + d * d;
        const real tail_sum = block.left(p, values), tail_squares = block.left(p, tails);
        values[block.at] = x;
        block.next(p);
        const real all = tail_sum + sum;
        const real spread = larger((real)0, (tail_squares + squares) * (real)p - all * all);
        return defined(sqrt(spread * share));
    }
};

// Inputs x, m: mean of |x_j - m_t| over the window, the oldest first.
STEP real mean_deviation(const Past& x, real mean, int p, real share) {
    if (x.t + 1 < p) return na();
    real total = 0;
    int slot = x.slot(p - 1);
    for (int j = 0; j < p; ++j) {
        total = fabs(x.ring[slot] - mean) + total;
        slot = x.younger(slot);
    }
    return defined(total * share);
}

// The same of two bars side by side, the first of which is `t`, with the past of the second: each value is read once, SOME at a
// time. The ring keeps its first SOME - 1 slots behind its last one once more, so that reads go on from any slot.
template <int SOME>
STEP void mean_deviations(const Past& x, int t, const real (&mean)[2], real (&out)[2], int p, real share) {
    out[0] = out[1] = na();
    if (t + 2 < p) return;
    int slot = x.slot(p);
    // The oldest value is the first bar's alone: the second one's are those behind it.
    real before = x.ring[slot], first = 0, second = 0;
    slot = x.younger(slot);
    real values[SOME];
    const auto read = [&]() {
        const real* from = &x.ring[slot];
#pragma unroll
        for (int k = 0; k < SOME; ++k) values[k] = from[k * LANES];
        slot = slot + SOME < x.ring.slots ? slot + SOME : slot + SOME - x.ring.slots;
    };
    const auto add = [&](real value) {
        first = fabs(before - mean[0]) + first;
        second = fabs(value - mean[1]) + second;
        before = value;
    };
    read();
    int left = p;
#pragma unroll 1
    for (; left >= SOME; left -= SOME) {
#pragma unroll
        for (int k = 0; k < SOME; ++k) add(values[k]);
        // Of the last ones nothing is needed, but they are in the ring.
        read();
    }
#pragma unroll
    for (int k = 0; k < SOME - 1; ++k) {
        if (k < left) add(values[k]);
    }
    out[0] = only(defined(first * share), p <= t + 1);
    out[1] = defined(second * share);
}

// Share of the p values before the current one that are below it, in percent.
STEP real percent_rank(const Past& x, int p) {
    if (x.t < p) return na();
    const real now = x.back(0);
    // NaN where a value is not defined: an infinity less itself is NaN.
    real below = now - now;
    int slot = x.now;
    for (int j = 0; j < p; ++j) {
        slot = x.older(slot);
        const real before = x.ring[slot];
        below = below + (truth(before < now) + (before - before));
    }
    return below / (real)p * 100;
}

// Wide. The mean of so many bars as `period` says, cut off to a whole number and held between two.
STEP double variable_mean(const Past& x, double period, int fewest, int most) {
    if (!is_finite(period)) return na();
    const double held = period < (double)fewest ? (double)fewest : period > (double)most ? (double)most : period;
    const int p = (int)held;
    if (x.t + 1 < p) return na();
    double sum = -0.0;
    int slot = x.slot(p > 0 ? p - 1 : 0);
    for (int j = 0; j < p; ++j) {
        sum = sum + x.ring[slot];
        slot = x.younger(slot);
    }
    return defined(sum / (double)p);
}

// The `rank`-th smallest value of the window, which is kept sorted: a value enters and one leaves.
struct WindowRanked {
    int count, at;

    __device__ __forceinline__ void start(int, int) { count = at = 0; }

    __device__ __forceinline__ real next(real x, int p, int rank, const Ring& values, const Ring& sorted) {
        // Zero has one sign here.
        const real leaves = values[at] + 0;
        if (is_finite(leaves)) {
            int to = 0;
            while (to < count && sorted[to] < leaves) ++to;
            for (; to + 1 < count; ++to) sorted[to] = sorted[to + 1];
            --count;
        }
        const real enters = x + 0;
        if (is_finite(enters)) {
            int to = count;
            for (; to > 0 && enters < sorted[to - 1]; --to) sorted[to] = sorted[to - 1];
            sorted[to] = enters;
            ++count;
        }
        values[at] = x;
        at = at + 1 == values.slots ? 0 : at + 1;
        return count == p ? sorted[rank - 1] : na();
    }
};
