// Few symbols with long histories: the bars of a symbol are cut into chunks, and a lane is a chunk. See docs/adr/0019.
//
// What a chunk does to the state of a recursive step is described by a few numbers, its map. A first kernel makes the map of each
// chunk; in a second one each lane goes through the maps of the chunks before it, which gives it its state, and walks its bars
// by the step itself. A map that does not hold for a state (while means are seeded, where numbers are huge or vanish) says so:
// then that chunk is walked, by the step itself too.
//
// In double only: maps are as exact as is promised there.
#pragma once
#ifndef TRAWL_SHORT
#include "anchored.cuh"
#include "base.cuh"
#include "chunk_lanes.cuh"
#include "events.cuh"
#include "recurrence.cuh"

// Beyond these the maps of sums and means would not round as the steps do: overflow, and digits lost to the least numbers.
constexpr double CHUNK_LARGEST = 1e290, CHUNK_LEAST = 1e-270;

STEP bool is_usual(double next, double before, double largest) {
    return (fabs(next) > CHUNK_LEAST) | ((before == 0.0) & (largest == 0.0));
}

// sum -> kept*sum + moved.
struct Affine {
    double kept, moved, largest;

    __device__ __forceinline__ void start() {
        kept = 1.0;
        moved = largest = 0.0;
    }

    __device__ __forceinline__ void seen(double x) { largest = larger(largest, fabs(x)); }

    __device__ __forceinline__ bool carry(double& sum) const {
        const bool fits = fabs(sum) + largest < CHUNK_LARGEST;
        const double next = moved + kept * sum;
        const bool usual = is_usual(next, sum, largest);
        sum = next;
        return fits & usual;
    }
};

// What means m + (x - m)*factor do over some values, twice: as sums of values, exact where they die away towards 0, and as
// sums of distances to the first value, exact where they stand still.
struct Drift {
    double kept, moved, drifted, anchor, largest;

    __device__ __forceinline__ void start() {
        kept = 1.0;
        moved = drifted = largest = 0.0;
        anchor = na();
    }

    __device__ __forceinline__ void next(double x, double factor) {
        if (is_nan(anchor)) anchor = x;
        kept = kept + (0.0 - kept) * factor;
        moved = moved + (x - moved) * factor;
        drifted = drifted + ((x - anchor) - drifted) * factor;
        // What is not finite, or no factor of a mean, is walked.
        largest = is_finite(x) && factor <= 1.5 ? larger(largest, fabs(x)) : infinity();
    }

    __device__ __forceinline__ bool carry(double& mean) const {
        const bool none = is_nan(anchor) & (largest == 0.0);
        const bool fits = fabs(mean) + largest < CHUNK_LARGEST;
        const double plain = moved + kept * mean, near = anchor + (drifted + kept * (mean - anchor));
        const bool usual = is_usual(plain, mean, largest);
        const double next = fabs(anchor) <= 2.0 * fabs(plain) ? near : plain;
        mean = none ? mean : next;
        return none | (fits & usual);
    }
};

// The map of a step. `next` is called as the step's, `carry` with the state and the step's numbers: false where the chunk has to
// be walked; the state is then undefined. Maps of means and sums carry without a branch, so that the next maps need not wait for
// a decision. All fields are doubles.
template <class Step>
struct ChunkMap;

template <>
struct ChunkMap<Smoothed> {
    double count;
    Drift drift;

    __device__ __forceinline__ void start() {
        count = 0.0;
        drift.start();
    }
    __device__ __forceinline__ void next(double x, int, int, double factor, double) {
        if (!is_finite(x)) return;
        count = count + 1.0;
        drift.next(x, factor);
    }
    __device__ __forceinline__ bool carry(Smoothed& s, int p, int delay, double, double) const {
        const bool begun = (double)delay + (double)p <= s.seen;
        double mean = s.mean;
        const bool holds = drift.carry(mean);
        s.mean = count == 0.0 ? s.mean : mean;
        s.seen = s.seen + count;
        return (count == 0.0) | (begun & holds);
    }
};

template <>
struct ChunkMap<WilderSum> {
    double count;
    Affine sum;

    __device__ __forceinline__ void start() {
        count = 0.0;
        sum.start();
    }
    __device__ __forceinline__ void next(double x, int, double share) {
        if (!is_finite(x)) return;
        count = count + 1.0;
        sum.kept = sum.kept - sum.kept * share;
        sum.moved = (sum.moved - sum.moved * share) + x;
        sum.seen(x);
    }
    __device__ __forceinline__ bool carry(WilderSum& s, int p, double) const {
        const bool begun = (double)p <= s.seen + 1.0;
        double next = s.sum;
        const bool holds = sum.carry(next);
        s.sum = count == 0.0 ? s.sum : next;
        s.seen = s.seen + count;
        return (count == 0.0) | (begun & holds);
    }
};

template <>
struct ChunkMap<WilderTotal> {
    double count;
    Affine sum;

    __device__ __forceinline__ void start() {
        count = 0.0;
        sum.start();
    }
    __device__ __forceinline__ void next(double x, int p, double, double) {
        if (!is_finite(x)) return;
        count = count + 1.0;
        sum.kept = sum.kept - sum.kept / (double)p;
        sum.moved = sum.moved - sum.moved / (double)p + x;
        sum.seen(x);
    }
    __device__ __forceinline__ bool carry(WilderTotal& s, int p, double, double) const {
        const bool begun = p <= s.seen + 1;
        double next = s.sum;
        const bool holds = sum.carry(next);
        s.sum = count == 0.0 ? s.sum : next;
        s.seen = s.seen + (int)count;
        return (count == 0.0) | (begun & holds);
    }
};

template <>
struct ChunkMap<WilderRatio> {
    double count;
    Drift drift;

    __device__ __forceinline__ void start() {
        count = 0.0;
        drift.start();
    }
    __device__ __forceinline__ void next(double num, double den, int p, double share) {
        with_quotient(num / den, num, den, p, share);
    }
    __device__ __forceinline__ static void operands(double num, double den, int p, double share, double& a, double& b) {
        WilderRatio::operands(num, den, p, share, a, b);
    }
    __device__ __forceinline__ void with_quotient(double quotient, double num, double den, int, double share) {
        if (!is_finite(num) || !is_finite(den)) return;
        count = count + 1.0;
        if (den != 0.0) drift.next(100.0 * quotient, share);
    }
    __device__ __forceinline__ bool carry(WilderRatio& s, int p, double) const {
        const bool begun = (double)p <= s.seen;
        double mean = s.mean;
        const bool holds = drift.carry(mean);
        s.mean = count == 0.0 ? s.mean : mean;
        s.seen = s.seen + count;
        return (count == 0.0) | (begun & holds);
    }
};

template <>
struct ChunkMap<Kaufman> {
    Drift drift;

    __device__ __forceinline__ void start() { drift.start(); }
    __device__ __forceinline__ void next(double x, double before, double far, double noise) {
        double a, b;
        operands(x, before, far, noise, a, b);
        with_quotient(a / b, x, before, far, noise);
    }
    __device__ __forceinline__ static void operands(double x, double before, double far, double noise, double& a, double& b) {
        Kaufman::operands(x, before, far, noise, a, b);
    }
    __device__ __forceinline__ void with_quotient(double quotient, double x, double before, double far, double noise) {
        if (Kaufman::is_here(before, x - far, noise)) drift.next(x, Kaufman::pace(quotient, x, far, noise));
    }
    // A mean that has not begun is NaN: its first chunk with values is walked.
    __device__ __forceinline__ bool carry(Kaufman& s) const { return drift.carry(s.mean); }
};

template <>
struct ChunkMap<HeikinAshi> {
    Drift drift;

    __device__ __forceinline__ void start() { drift.start(); }
    __device__ __forceinline__ void next(double bar_open, double close, double mean) {
        if (is_finite(bar_open) && is_finite(close) && is_finite(mean)) drift.next(mean, 0.5);
    }
    __device__ __forceinline__ bool carry(HeikinAshi& s) const { return drift.carry(s.open); }
};

// A sum without what rounding loses, and the sum of sizes, which tells where it may overflow on the way.
struct ChunkSum {
    double hi, lo, size;

    __device__ __forceinline__ void start() { hi = lo = size = 0.0; }
    __device__ __forceinline__ void add(double x) {
        add_exactly(hi, lo, x);
        size = size + fabs(x);
    }
    __device__ __forceinline__ bool fits(double sum) const { return fabs(sum) + size < CHUNK_LARGEST; }
    __device__ __forceinline__ void carry(double& sum, double& lost) const {
        add_exactly(sum, lost, hi);
        lost = lost + lo;
    }
};

template <>
struct ChunkMap<Cumulative> {
    ChunkSum sum;

    __device__ __forceinline__ void start() { sum.start(); }
    __device__ __forceinline__ void next(double x) {
        if (is_finite(x)) sum.add(x);
    }
    __device__ __forceinline__ bool carry(Cumulative& s) const {
        if (!sum.fits(s.hi)) return false;
        sum.carry(s.hi, s.lo);
        return true;
    }
};

template <>
struct ChunkMap<Previous> {
    double last;

    __device__ __forceinline__ void start() { last = na(); }
    __device__ __forceinline__ void next(double x) {
        if (is_finite(x)) last = x;
    }
    __device__ __forceinline__ bool carry(Previous& s) const {
        if (!is_nan(last)) s.before = last;
        return true;
    }
};

template <>
struct ChunkMap<OnBalance> {
    // Of the first bar, whose sign hangs on the bar before; what the others add; of the last bar.
    double first_close, first_volume, rest, last_close, size;

    __device__ __forceinline__ void start() {
        first_close = first_volume = last_close = na();
        rest = size = 0.0;
    }
    static __device__ __forceinline__ double signed_volume(double close, double volume, double before) {
        const double up = close <= before ? 0.0 : volume;
        return close < before ? -volume : up;
    }
    __device__ __forceinline__ void next(double close, double volume) {
        if (!is_finite(close) || !is_finite(volume)) return;
        if (is_nan(last_close)) {
            first_close = close;
            first_volume = volume;
        } else {
            rest = rest + signed_volume(close, volume, last_close);
        }
        last_close = close;
        size = size + fabs(volume);
    }
    __device__ __forceinline__ bool carry(OnBalance& s) const {
        if (is_nan(last_close)) return true;
        if (!(fabs(s.balance) + size < CHUNK_LARGEST)) return false;
        s.balance = s.balance + signed_volume(first_close, first_volume, s.before) + rest;
        s.before = last_close;
        return true;
    }
};

template <>
struct ChunkMap<Skip> {
    double count;

    __device__ __forceinline__ void start() { count = 0.0; }
    __device__ __forceinline__ void next(double x, int) {
        if (is_finite(x)) count = count + 1.0;
    }
    __device__ __forceinline__ bool carry(Skip& s, int) const {
        s.left = (double)s.left > count ? s.left - (int)count : 0;
        return true;
    }
};

template <>
struct ChunkMap<AnchoredMean<ANCHOR_START, false>> {
    // Whether a bar was there; a period began with one of them; a period began behind the last one.
    double there, began, pending;
    ChunkSum weighted, weights;

    __device__ __forceinline__ void start() {
        there = began = pending = 0.0;
        weighted.start();
        weights.start();
    }
    __device__ __forceinline__ void next(double begin, double key, double x, double w) {
        pending = begin == 1.0 ? 1.0 : pending;
        if (!is_finite(key) || !is_finite(x) || !is_finite(w)) return;
        there = 1.0;
        if (pending == 1.0) {
            // What lies before has no part in the sums, but may have overflowed.
            const double before = weighted.size, other = weights.size;
            weighted.start();
            weights.start();
            weighted.size = before;
            weights.size = other;
            began = 1.0;
            pending = 0.0;
        }
        weighted.add(x * w);
        weights.add(w);
    }
    __device__ __forceinline__ bool carry(AnchoredMean<ANCHOR_START, false>& s) const {
        if (there == 1.0) {
            if (!weighted.fits(s.present.weighted) || !weights.fits(s.present.weights)) return false;
            if (began == 1.0 || s.begun) s.present = AnchoredSums::none();
            weighted.carry(s.present.weighted, s.present.weighted_lost);
            weights.carry(s.present.weights, s.present.weights_lost);
            s.begun = false;
            s.anchored = true;
        }
        s.begun = s.begun || pending == 1.0;
        return true;
    }
};

template <>
struct ChunkMap<Since> {
    // Whether the input was true or NA; bars since then, or of the chunk.
    double known, bars;

    __device__ __forceinline__ void start() { known = bars = 0.0; }
    __device__ __forceinline__ void next(double c) {
        known = c == 1.0 || is_nan(c) ? 1.0 : known;
        bars = c == 1.0 ? 0.0 : is_nan(c) ? na() : bars + 1.0;
    }
    __device__ __forceinline__ bool carry(Since& s) const {
        s.bars = known == 1.0 ? bars : s.bars + bars;
        return true;
    }
};

template <>
struct ChunkMap<ValueWhen> {
    double known, held;

    __device__ __forceinline__ void start() {
        known = 0.0;
        held = na();
    }
    __device__ __forceinline__ void next(double c, double x) {
        known = c == 1.0 || is_nan(c) ? 1.0 : known;
        held = c == 1.0 ? x : is_nan(c) ? na() : held;
    }
    __device__ __forceinline__ bool carry(ValueWhen& s) const {
        s.held = known == 1.0 ? held : s.held;
        return true;
    }
};

template <bool LARGEST>
struct ChunkMap<ExtremeSince<LARGEST>> {
    // Whether the first input was true or NA; which of the two it was last; the extreme since then, or of the chunk.
    double known, begun, held;

    __device__ __forceinline__ void start() {
        known = begun = 0.0;
        held = na();
    }
    __device__ __forceinline__ void next(double c, double x) {
        const bool anew = c == 1.0 || is_nan(c);
        known = anew ? 1.0 : known;
        begun = c == 1.0 ? 1.0 : is_nan(c) ? 0.0 : begun;
        const double before = anew ? na() : held;
        held = begun == 1.0 || known == 0.0 ? ExtremeSince<LARGEST>::better(before, x) : before;
    }
    __device__ __forceinline__ bool carry(ExtremeSince<LARGEST>& s) const {
        if (known == 1.0) {
            s.begun = begun;
            s.held = held;
        } else if (s.begun == 1.0) {
            s.held = ExtremeSince<LARGEST>::better(s.held, held);
        }
        return true;
    }
};

template <>
struct ChunkMap<Ever> {
    double held;

    __device__ __forceinline__ void start() { held = 0.0; }
    __device__ __forceinline__ void next(double e) { held = e == 1.0 ? 1.0 : held; }
    __device__ __forceinline__ bool carry(Ever& s) const {
        s.held = held == 1.0 ? 1.0 : s.held;
        return true;
    }
};

template <>
struct ChunkMap<EverSince> {
    // Whether the first input was true, the second since then.
    double known, held;

    __device__ __forceinline__ void start() { known = held = 0.0; }
    __device__ __forceinline__ void next(double c, double e) {
        known = c == 1.0 ? 1.0 : known;
        const double before = c == 1.0 ? 0.0 : held;
        held = e == 1.0 ? 1.0 : before;
    }
    __device__ __forceinline__ bool carry(EverSince& s) const {
        const double before = known == 1.0 ? 0.0 : s.held;
        s.held = held == 1.0 ? 1.0 : before;
        return true;
    }
};
#endif
