//! Sliding sums and statistics derived from them.
//!
//! Time is cut into blocks of `p` bars, at bar numbers divisible by `p`. A window consists of the remainder of the
//! previous block (its `tail`: one sum per offset, computed once per block) and the block so far (its `head`). Values
//! are added and never subtracted, and each sum holds values of its own window only: there is no drift, an NA affects
//! exactly the windows that contain it, and results do not depend on where evaluation began.
//!
//! The terms are differences to the `anchor`, the value at the block's first bar, which every window of the block
//! contains. So a flat window's mean is exactly its value, sums of nearby prices do not round, and cancellation in
//! differences of squared sums is bounded.

use std::ops::Range;

use trawl_plan::graph::SHORT_WINDOW_BARS;

use crate::cpu::simd::float::Real;
use crate::cpu::simd::pack::Pack;
use crate::cpu::simd::state_io::carries_nothing;
use crate::cpu::simd::vector::{Kernel, Out, RowOf, View};

/// First bar of the window that ends at `t`, cut off at the first bar of all.
#[inline(always)]
pub(crate) fn window_start(t: usize, p: usize) -> usize {
    (t + 1).saturating_sub(p)
}

/// Entries of a tail over `bars` bars: one per reachable offset, and the empty tail of a whole block.
pub(crate) fn tail_bars(p: usize, bars: usize) -> usize {
    p.min(bars) + 1
}

/// The `M` sums that are kept for a block.
pub(crate) trait Moments<T: Real, const M: usize>: Send {
    /// Prepends a value, `d` from the anchor, to the sums of the previous block.
    fn before<V: Pack<T>>(&self, sums: [V; M], d: V) -> [V; M];
    /// Appends a value, `d` from the anchor at offset `at`, to the sums of this block.
    fn after<V: Pack<T>>(&self, sums: [V; M], d: V, at: usize) -> [V; M];
    /// The result of a window at offset `at`.
    fn result<V: Pack<T>>(&self, anchor: V, tail: [V; M], head: [V; M], at: usize) -> V;
}

/// A window step over [`Moments`].
pub(crate) struct Blocks<T, K, const M: usize> {
    p: usize,
    kind: K,
    /// Per offset: the sums over the part of the previous block that is in the window ending there.
    tail: Vec<[RowOf<T>; M]>,
    head: [RowOf<T>; M],
    anchor: RowOf<T>,
    next: usize,
}

impl<T: Real, K, const M: usize> Blocks<T, K, M> {
    pub fn new(kind: K, p: u32, bars: usize) -> Self {
        let p = p as usize;
        let mut tail = vec![[RowOf::NA; M]; tail_bars(p, bars)];
        if let Some(whole) = tail.get_mut(p) {
            *whole = [RowOf::ZERO; M];
        }
        Self { p, kind, tail, head: [RowOf::ZERO; M], anchor: RowOf::ZERO, next: usize::MAX }
    }
}

#[inline(always)]
fn load<T: Real, V: Pack<T>, const M: usize>(rows: &[RowOf<T>; M]) -> [V; M] {
    let mut sums = [V::zero(); M];
    for m in 0..M {
        sums[m] = V::load(&rows[m]);
    }
    sums
}

#[inline(always)]
fn store<T: Real, V: Pack<T>, const M: usize>(sums: [V; M], rows: &mut [RowOf<T>; M]) {
    for m in 0..M {
        sums[m].store(&mut rows[m]);
    }
}

impl<T: Real, K: Moments<T, M>, const M: usize> Kernel<T> for Blocks<T, K, M> {
    carries_nothing!();

    #[inline(always)]
    fn run<V: Pack<T>>(&mut self, inputs: &[View<'_, T>], outs: &mut [Out<'_, T>], rows: Range<usize>) {
        let (input, p) = (&inputs[0], self.p);
        let mut fresh = rows.start != self.next;
        self.next = rows.end;
        let mut t = rows.start;
        while t < rows.end {
            let offset = t % p;
            let block = t - offset;
            if offset == 0 || fresh {
                fresh = false;
                self.anchor = input.row(block);
                let anchor = V::load(&self.anchor);
                let mut sums = [V::zero(); M];
                for j in (window_start(t, p)..block).rev() {
                    sums = self.kind.before(sums, V::load(input.at(j)) - anchor);
                    store(sums, &mut self.tail[j + p - block]);
                }
                if block == 0 {
                    // No bars before the first: such windows are NA.
                    let reached = p.min(self.tail.len());
                    self.tail[..reached].fill([RowOf::NA; M]);
                }
                let mut head = [V::zero(); M];
                for (at, j) in (block..t).enumerate() {
                    head = self.kind.after(head, V::load(input.at(j)) - anchor, at);
                }
                store(head, &mut self.head);
            }
            let (from, out) = (input.from(t), outs[0].from(t));
            let n = (p - offset).min(rows.end - t).min(from.len()).min(out.len());
            let tail = &self.tail[offset + 1..][..n];
            let (anchor, mut head) = (V::load(&self.anchor), load::<T, V, M>(&self.head));
            for (i, ((x, tail), out)) in from[..n].iter().zip(tail).zip(&mut out[..n]).enumerate() {
                let at = offset + i;
                head = self.kind.after(head, V::load(x) - anchor, at);
                self.kind.result(anchor, load(tail), head, at).store(out);
            }
            store(head, &mut self.head);
            t += n;
        }
    }
}

/// `anchor` + `total` / `divisor`, rounded once: the mean of values whose differences to the anchor add up to `total`.
/// Does not depend on which value is the anchor. `share` is 1 / `divisor`, a whole number.
#[inline(always)]
fn mean_about<T: Real, V: Pack<T>>(anchor: V, total: V, divisor: V, share: V) -> V {
    let near = anchor + total * share;
    // The remainder of `total` after the distance to the anchor. Exact for whole numbers: the product has half the
    // digits, and the difference is of nearly equal numbers.
    let distance = near - anchor;
    let leading = distance.leading();
    let rest = (total - leading * divisor) - (distance - leading) * divisor;
    // Return exactly 0 for a mean of 0, not the residue of two roundings.
    let cancels = (anchor * divisor + total).eq(V::zero());
    V::select(cancels, V::zero(), near + rest * share).defined()
}

/// A statistic computed from the sum of a window's differences to its anchor.
pub(crate) trait Total: Send {
    fn of<T: Real, V: Pack<T>>(&self, anchor: V, sum: V) -> V;
}

/// The mean.
pub(crate) struct Mean {
    p: f64,
    share: f64,
}

impl Mean {
    pub fn new(p: u32) -> Self {
        Self { p: f64::from(p), share: 1.0 / f64::from(p) }
    }
}

impl Total for Mean {
    #[inline(always)]
    fn of<T: Real, V: Pack<T>>(&self, anchor: V, sum: V) -> V {
        mean_about(anchor, sum, V::of(self.p), V::of(self.share))
    }
}

/// The sum.
pub(crate) struct Sum {
    p: f64,
}

impl Sum {
    pub fn new(p: u32) -> Self {
        Self { p: f64::from(p) }
    }
}

impl Total for Sum {
    #[inline(always)]
    fn of<T: Real, V: Pack<T>>(&self, anchor: V, sum: V) -> V {
        (anchor * V::of(self.p) + sum).defined()
    }
}

/// [`Moments`] of a [`Total`]: the sum of differences.
pub(crate) struct Plain<K>(pub K);

impl<T: Real, K: Total> Moments<T, 1> for Plain<K> {
    #[inline(always)]
    fn before<V: Pack<T>>(&self, [sum]: [V; 1], d: V) -> [V; 1] {
        [sum + d]
    }

    #[inline(always)]
    fn after<V: Pack<T>>(&self, [sum]: [V; 1], d: V, _at: usize) -> [V; 1] {
        [sum + d]
    }

    #[inline(always)]
    fn result<V: Pack<T>>(&self, anchor: V, [tail]: [V; 1], [head]: [V; 1], _at: usize) -> V {
        self.0.of(anchor, tail + head)
    }
}

/// Whether a window is short enough for [`Short`] to be cheaper.
pub(crate) fn is_short(p: u32) -> bool {
    p <= SHORT_WINDOW_BARS
}

/// Sum or mean of a few bars; the anchor is the current one.
pub(crate) struct Short<K> {
    pub p: usize,
    pub total: K,
}

impl<T: Real, K: Total> Kernel<T> for Short<K> {
    carries_nothing!();

    #[inline(always)]
    fn run<V: Pack<T>>(&mut self, inputs: &[View<'_, T>], outs: &mut [Out<'_, T>], rows: Range<usize>) {
        for t in rows {
            let anchor = V::load(inputs[0].at(t));
            let mut sum = V::zero();
            for back in 1..self.p {
                let x = if t < back { V::na() } else { V::load(inputs[0].at(t - back)) };
                sum = sum + (x - anchor);
            }
            self.total.of(anchor, sum).store(&mut outs[0].from(t)[0]);
        }
    }
}

/// The linearly weighted mean. Tail: weighted sum (weights 1, 2, ... from the window's start) and plain sum. Head:
/// weighted sum (weights 1, 2, ... from the block's start) and plain sum.
pub(crate) struct Weighted {
    p: f64,
    /// Sum of all weights.
    weights: f64,
    share: f64,
}

impl Weighted {
    pub fn new(p: u32) -> Self {
        let p = f64::from(p);
        Self { p, weights: p * (p + 1.0) / 2.0, share: 2.0 / (p * (p + 1.0)) }
    }
}

impl<T: Real> Moments<T, 2> for Weighted {
    #[inline(always)]
    fn before<V: Pack<T>>(&self, [weighted, plain]: [V; 2], d: V) -> [V; 2] {
        // The weight of every later value grows by one.
        let plain = plain + d;
        [weighted + plain, plain]
    }

    #[inline(always)]
    fn after<V: Pack<T>>(&self, [weighted, plain]: [V; 2], d: V, at: usize) -> [V; 2] {
        [weighted + d * V::of((at + 1) as f64), plain + d]
    }

    #[inline(always)]
    fn result<V: Pack<T>>(&self, anchor: V, [tail, _]: [V; 2], [weighted, plain]: [V; 2], at: usize) -> V {
        let before = V::of(self.p - (at + 1) as f64);
        let total = tail + (weighted + plain * before);
        mean_about(anchor, total, V::of(self.weights), V::of(self.share))
    }
}

/// Population standard deviation. Sums: differences to the anchor, and their squares. The anchor is one of the window's
/// values, so the squared mean difference is at most p-1 variances, which bounds cancellation. Division happens after
/// cancellation, so whole numbers give the same result whatever the anchor.
pub(crate) struct Deviation {
    p: f64,
    /// 1 / p^2.
    share: f64,
}

impl Deviation {
    pub fn new(p: u32) -> Self {
        let p = f64::from(p);
        Self { p, share: 1.0 / (p * p) }
    }
}

impl<T: Real> Moments<T, 2> for Deviation {
    #[inline(always)]
    fn before<V: Pack<T>>(&self, [sum, squares]: [V; 2], d: V) -> [V; 2] {
        [sum + d, squares + d * d]
    }

    #[inline(always)]
    fn after<V: Pack<T>>(&self, [sum, squares]: [V; 2], d: V, _at: usize) -> [V; 2] {
        [sum + d, squares + d * d]
    }

    #[inline(always)]
    fn result<V: Pack<T>>(&self, _anchor: V, tail: [V; 2], head: [V; 2], _at: usize) -> V {
        let (sum, squares) = (tail[0] + head[0], tail[1] + head[1]);
        // `larger` takes its second argument where one is NaN.
        let spread = V::zero().larger(squares * V::of(self.p) - sum * sum);
        (spread * V::of(self.share)).sqrt().defined()
    }
}

/// Inputs x, m: mean of |x_j - m_t| over the window.
pub(crate) struct MeanDeviation {
    p: usize,
    /// 1 at run time: as a constant the compiler would remove it from [`Pack::add_beside`].
    one: f64,
}

impl MeanDeviation {
    pub fn new(p: u32) -> Self {
        Self { p: p as usize, one: 1.0 }
    }
}

/// Bars whose windows [`MeanDeviation`] traverses together: shared values are loaded once, and independent sums hide
/// the latency of additions.
const TOGETHER: usize = 4;

impl<T: Real> Kernel<T> for MeanDeviation {
    carries_nothing!();

    #[inline(always)]
    fn run<V: Pack<T>>(&mut self, inputs: &[View<'_, T>], outs: &mut [Out<'_, T>], rows: Range<usize>) {
        let defined = rows.start.max(self.p - 1).min(rows.end);
        for t in rows.start..defined {
            outs[0].from(t)[0] = RowOf::NA;
        }
        let mut t = defined;
        while t < rows.end {
            if t + TOGETHER <= rows.end && self.p >= TOGETHER {
                self.bars::<T, V, TOGETHER>(inputs, &mut outs[0], t);
                t += TOGETHER;
            } else {
                self.bars::<T, V, 1>(inputs, &mut outs[0], t);
                t += 1;
            }
        }
    }
}

impl MeanDeviation {
    /// Bars `t..t + K`, `K` at most the period.
    #[inline(always)]
    fn bars<T: Real, V: Pack<T>, const K: usize>(&self, inputs: &[View<'_, T>], out: &mut Out<'_, T>, t: usize) {
        let (input, one) = (&inputs[0], V::of(self.one));
        let mut means = [V::zero(); K];
        for (k, mean) in means.iter_mut().enumerate() {
            *mean = V::load(inputs[1].at(t + k));
        }
        let mut totals = [V::zero(); K];
        // Oldest first: bars in some of the windows, bars in all of them, and again bars in some.
        let first = t + 1 - self.p;
        for j in 0..K - 1 {
            let x = V::load(input.at(first + j));
            for k in 0..=j {
                totals[k] = (x - means[k]).abs().add_beside(totals[k], one);
            }
        }
        let mut j = first + K - 1;
        while j <= t {
            let from = input.from(j);
            let n = from.len().min(t + 1 - j);
            for x in &from[..n] {
                let x = V::load(x);
                for k in 0..K {
                    totals[k] = (x - means[k]).abs().add_beside(totals[k], one);
                }
            }
            j += n;
        }
        for j in 1..K {
            let x = V::load(input.at(t + j));
            for k in j..K {
                totals[k] = (x - means[k]).abs().add_beside(totals[k], one);
            }
        }
        for (k, total) in totals.into_iter().enumerate() {
            (total * V::of(1.0 / self.p as f64)).defined().store(&mut out.from(t + k)[0]);
        }
    }
}
