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

// Where a block stands.
struct Block {
    int at;

    __device__ __forceinline__ void start(int t, int p) { at = t % p; }
    __device__ __forceinline__ bool begins() const { return at == 0; }
    __device__ __forceinline__ void next(int p) { at = at + 1 == p ? 0 : at + 1; }
    // Whether none of the next `bars` bars begins a block.
    __device__ __forceinline__ bool is_inside(int bars, int p) const { return at > 0 && at + bars <= p; }
    // The slots of the block before that windows of this one still hold, the last one first: reached ones alone.
    __device__ __forceinline__ static int last(int p, const Ring& ring) { return least(p, ring.slots) - 1; }
};

// anchor + total / divisor, rounded once; share is 1 / divisor, a whole number. As mean_about of kernels/src/cpu/primitives/rolling_sums.rs.
STEP double mean_about(double anchor, double total, double divisor, double share) {
    const double near = anchor + total * share;
    const double distance = near - anchor;
    // Without the lower half of its digits: a product of it does not round.
    const double leading = of_bits(bits_of(distance) & ~((1ull << 26) - 1));
    const double rest = (total - leading * divisor) - (distance - leading) * divisor;
    return defined(anchor * divisor + total == 0.0 ? 0.0 : near + rest * share);
}

// A mean, or with MEAN false a sum, of values whose differences to the anchor add up to `sum`.
template <bool MEAN>
STEP double total_about(double anchor, double sum, int p, double share) {
    return MEAN ? mean_about(anchor, sum, (double)p, share) : defined(anchor * (double)p + sum);
}

template <bool MEAN>
struct WindowTotal {
    Block block;
    double anchor, head;

    __device__ __forceinline__ void start(int t, int p) {
        block.start(t, p);
        anchor = head = na();
    }

    __device__ __forceinline__ double next(double x, int p, double share, const Ring& ring) {
        if (block.begins()) {
            anchor = x;
            head = 0.0;
            double sum = 0.0;
            for (int j = Block::last(p, ring); j > 0; --j) ring[j] = sum = sum + (ring[j] - anchor);
        }
        return next_inside(x, p, share, ring);
    }

    // At a bar that begins no block.
    __device__ __forceinline__ double next_inside(double x, int p, double share, const Ring& ring) {
        head = head + (x - anchor);
        const double tail = block.at + 1 < p ? ring[block.at + 1] : 0.0;
        ring[block.at] = x;
        block.next(p);
        return total_about<MEAN>(anchor, tail + head, p, share);
    }
};

// Sum or mean of up to four bars, added up anew; the anchor is the current one.
template <bool MEAN>
struct WindowShort {
    double one, two, three;

    __device__ __forceinline__ void start(int, int) { one = two = three = na(); }

    __device__ __forceinline__ double next(double x, int p, double share) {
        double sum = 0.0;
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
    double anchor, weighted, plain;

    __device__ __forceinline__ void start(int t, int p) {
        block.start(t, p);
        anchor = weighted = plain = na();
    }

    __device__ __forceinline__ double next(double x, int p, double share, const Ring& ring) {
        if (block.begins()) {
            anchor = x;
            weighted = plain = 0.0;
            double tail_weighted = 0.0, tail_plain = 0.0;
            for (int j = Block::last(p, ring); j > 0; --j) {
                // Every value behind the new one weighs one more.
                tail_plain = tail_plain + (ring[j] - anchor);
                ring[j] = tail_weighted = tail_weighted + tail_plain;
            }
        }
        return next_inside(x, p, share, ring);
    }

    // At a bar that begins no block.
    __device__ __forceinline__ double next_inside(double x, int p, double share, const Ring& ring) {
        const double d = x - anchor;
        weighted = weighted + d * (double)(block.at + 1);
        plain = plain + d;
        const double tail = block.at + 1 < p ? ring[block.at + 1] : 0.0;
        const double before = (double)p - (double)(block.at + 1);
        const double total = tail + (weighted + plain * before);
        ring[block.at] = x;
        block.next(p);
        return mean_about(anchor, total, (double)p * ((double)p + 1.0) / 2.0, share);
    }
};

// Population standard deviation: differences to the anchor, and their squares.
struct WindowDeviation {
    Block block;
    double anchor, sum, squares;

    __device__ __forceinline__ void start(int t, int p) {
        block.start(t, p);
        anchor = sum = squares = na();
    }

    __device__ __forceinline__ double next(double x, int p, double share, const Ring& values, const Ring& tails) {
        if (block.begins()) {
            anchor = x;
            sum = squares = 0.0;
            double tail_sum = 0.0, tail_squares = 0.0;
            for (int j = Block::last(p, values); j > 0; --j) {
                const double d = values[j] - anchor;
                values[j] = tail_sum = tail_sum + d;
                tails[j] = tail_squares = tail_squares + d * d;
            }
        }
        return next_inside(x, p, share, values, tails);
    }

    // At a bar that begins no block.
    __device__ __forceinline__ double next_inside(double x, int p, double share, const Ring& values, const Ring& tails) {
        const double d = x - anchor;
        sum = sum + d;
        squares = squares + d * d;
        const bool left = block.at + 1 < p;
        const double tail_sum = left ? values[block.at + 1] : 0.0;
        const double tail_squares = left ? tails[block.at + 1] : 0.0;
        values[block.at] = x;
        block.next(p);
        const double all = tail_sum + sum;
        const double spread = larger(0.0, (tail_squares + squares) * (double)p - all * all);
        return defined(sqrt(spread * share));
    }
};

// Inputs x, m: mean of |x_j - m_t| over the window, the oldest first.
STEP double mean_deviation(const Past& x, double mean, int p, double share) {
    if (x.t + 1 < p) return na();
    double total = 0.0;
    int slot = x.slot(p - 1);
    for (int j = 0; j < p; ++j) {
        total = fabs(x.ring[slot] - mean) + total;
        slot = x.younger(slot);
    }
    return defined(total * share);
}

// Share of the p values before the current one that are below it, in percent.
STEP double percent_rank(const Past& x, int p) {
    if (x.t < p) return na();
    const double now = x.back(0);
    // NaN where a value is not defined: an infinity less itself is NaN.
    double below = now - now;
    int slot = x.now;
    for (int j = 0; j < p; ++j) {
        slot = x.older(slot);
        const double before = x.ring[slot];
        below = below + (truth(before < now) + (before - before));
    }
    return below / (double)p * 100.0;
}

// The mean of so many bars as `period` says, cut off to a whole number and held between two.
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

    __device__ __forceinline__ double next(double x, int p, int rank, const Ring& values, const Ring& sorted) {
        // Zero has one sign here.
        const double leaves = values[at] + 0.0;
        if (is_finite(leaves)) {
            int to = 0;
            while (to < count && sorted[to] < leaves) ++to;
            for (; to + 1 < count; ++to) sorted[to] = sorted[to + 1];
            --count;
        }
        const double enters = x + 0.0;
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
