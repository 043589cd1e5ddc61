//! Two series over one window: how they vary together.
//!
//! Windows are cut at block borders as in `window`: the remainder of the previous block (`tail`, one entry per offset)
//! and the block so far (`head`). Each part holds the sums of differences to the block's first values, of their squares
//! and of their products. The first values belong to the window, which bounds cancellation; division happens after
//! cancellation, so a constant series has a variance of exactly 0, and integer series give the same result whatever the
//! block.

use std::ops::Range;

use crate::cpu::primitives::rolling_sums::{tail_bars, window_start};
use crate::cpu::simd::float::Real;
use crate::cpu::simd::pack::{Mask, Pack};
use crate::cpu::simd::state_io::carries_nothing;
use crate::cpu::simd::vector::{Kernel, Out, RowOf, View};

/// Sums per part: the sums of x, y, xx, yy and xy.
pub(crate) const SUMS: usize = 5;

/// Variances and covariance of a whole window, each multiplied by the squared number of bars.
#[derive(Clone, Copy)]
pub(crate) struct Moments<V> {
    xx: V,
    yy: V,
    xy: V,
}

/// A statistic of a window.
pub(crate) trait Result: Send {
    fn of<T: Real, V: Pack<T>>(moments: Moments<V>) -> V;
}

/// Pearson's correlation, 0 where a series does not vary. Of a series with itself it is exactly 1.
pub(crate) struct Correlation;

/// Slope of the line of y over x, 0 where x does not vary.
pub(crate) struct Beta;

/// Below this bound a product of two variances has lost digits.
const PRODUCT_LEAST: f64 = 1e-290;
/// The same in `f32`.
const PRODUCT_LEAST_SHORT: f64 = 1e-30;

impl Result for Correlation {
    #[inline(always)]
    fn of<T: Real, V: Pack<T>>(Moments { xx, yy, xy }: Moments<V>) -> V {
        let known = xx.is_finite() & yy.is_finite() & xy.is_finite();
        let flat = (xx.eq(V::zero()) | yy.eq(V::zero())) & known;
        let product = xx * yy;
        // The root of a square is exact, so that equal variances give exactly 1.
        let mut ratio = xy / product.sqrt();
        let least = V::of(if T::SHORT { PRODUCT_LEAST_SHORT } else { PRODUCT_LEAST });
        let usual = (least.lt(product) & product.is_finite()) | flat;
        if !usual.all() {
            ratio = V::select(usual, ratio, xy / xx * (xx / yy).sqrt());
        }
        // Rounding can carry it beyond ±1. Both take their second argument where that is NaN.
        let ratio = V::of(1.0).smaller(V::of(-1.0).larger(ratio));
        V::select(flat, V::zero(), ratio.only(known))
    }
}

impl Result for Beta {
    #[inline(always)]
    fn of<T: Real, V: Pack<T>>(Moments { xx, xy, .. }: Moments<V>) -> V {
        let known = xx.is_finite() & xy.is_finite();
        V::select(xx.eq(V::zero()) & known, V::zero(), (xy / xx).only(known))
    }
}

/// A step that computes a [`Result`] of windows over two series.
pub(crate) struct Joint<T, R> {
    p: usize,
    result: std::marker::PhantomData<R>,
    tail: Vec<[RowOf<T>; SUMS]>,
    head: [RowOf<T>; SUMS],
    anchors: [RowOf<T>; 2],
    next: usize,
}

impl<T: Real, R: Result> Joint<T, R> {
    pub fn new(p: u32, bars: usize) -> Self {
        let p = p as usize;
        let kept = tail_bars(p, bars);
        let mut tail = vec![[RowOf::NA; SUMS]; kept];
        if let Some(whole) = tail.get_mut(p) {
            *whole = [RowOf::ZERO; SUMS];
        }
        Self {
            p,
            result: std::marker::PhantomData,
            tail,
            head: [RowOf::ZERO; SUMS],
            anchors: [RowOf::ZERO; 2],
            next: usize::MAX,
        }
    }

    /// Adds one bar to a part; `x` and `y` are differences to the anchors.
    #[inline(always)]
    fn grown<V: Pack<T>>([sx, sy, xx, yy, xy]: [V; SUMS], [x, y]: [V; 2]) -> [V; SUMS] {
        [sx + x, sy + y, xx + x * x, yy + y * y, xy + x * y]
    }

    /// The moments of the whole window.
    #[inline(always)]
    fn joined<V: Pack<T>>(&self, tail: [V; SUMS], head: [V; SUMS]) -> Moments<V> {
        let p = V::of(self.p as f64);
        let (x, y) = (tail[0] + head[0], tail[1] + head[1]);
        Moments {
            xx: (tail[2] + head[2]) * p - x * x,
            yy: (tail[3] + head[3]) * p - y * y,
            xy: (tail[4] + head[4]) * p - x * y,
        }
    }
}

#[inline(always)]
fn load<T: Real, V: Pack<T>>(rows: &[RowOf<T>; SUMS]) -> [V; SUMS] {
    let mut sums = [V::zero(); SUMS];
    for i in 0..SUMS {
        sums[i] = V::load(&rows[i]);
    }
    sums
}

#[inline(always)]
fn store<T: Real, V: Pack<T>>(sums: [V; SUMS], rows: &mut [RowOf<T>; SUMS]) {
    for i in 0..SUMS {
        sums[i].store(&mut rows[i]);
    }
}

impl<T: Real, R: Result> Kernel<T> for Joint<T, R> {
    carries_nothing!();

    #[inline(always)]
    fn run<V: Pack<T>>(&mut self, inputs: &[View<'_, T>], outs: &mut [Out<'_, T>], rows: Range<usize>) {
        let (x, y, p) = (&inputs[0], &inputs[1], self.p);
        let mut fresh = rows.start != self.next;
        self.next = rows.end;
        let mut t = rows.start;
        while t < rows.end {
            let offset = t % p;
            let block = t - offset;
            if offset == 0 || fresh {
                fresh = false;
                self.anchors = [x.row(block), y.row(block)];
                let anchors = [V::load(&self.anchors[0]), V::load(&self.anchors[1])];
                let mut sums = [V::zero(); SUMS];
                for j in (window_start(t, p)..block).rev() {
                    let bar = [V::load(x.at(j)) - anchors[0], V::load(y.at(j)) - anchors[1]];
                    sums = Self::grown(sums, bar);
                    store(sums, &mut self.tail[j + p - block]);
                }
                if block == 0 {
                    // No bars before the first: such windows are NA.
                    let reached = p.min(self.tail.len());
                    self.tail[..reached].fill([RowOf::NA; SUMS]);
                }
                let mut head = [V::zero(); SUMS];
                for j in block..t {
                    let bar = [V::load(x.at(j)) - anchors[0], V::load(y.at(j)) - anchors[1]];
                    head = Self::grown(head, bar);
                }
                store(head, &mut self.head);
            }
            let (from_x, from_y, out) = (x.from(t), y.from(t), outs[0].from(t));
            let n = (p - offset).min(rows.end - t).min(from_x.len()).min(from_y.len()).min(out.len());
            let anchors = [V::load(&self.anchors[0]), V::load(&self.anchors[1])];
            let mut head = load::<T, V>(&self.head);
            for i in 0..n {
                let bar = [V::load(&from_x[i]) - anchors[0], V::load(&from_y[i]) - anchors[1]];
                head = Self::grown(head, bar);
                let tail = load(&self.tail[offset + i + 1]);
                R::of(self.joined(tail, head)).store(&mut out[i]);
            }
            store(head, &mut self.head);
            t += n;
        }
    }
}
