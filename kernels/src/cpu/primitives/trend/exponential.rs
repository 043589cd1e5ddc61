//! Exponential averages that carry their value over missing bars (EMA), and the double ones (DEMA).
//!
//! The first value, at the L-th bar, is the mean of the values so far. A missing bar keeps the mean and multiplies its
//! weight by 1 - a; the next value is weighted against the remaining weight. DEMA is twice the average minus the
//! average of the average, which begins with its first value.

use std::ops::Range;

use trawl_plan::family::Trend;

use super::{Recent, TrendMean};
use crate::cpu::simd::float::Real;
use crate::cpu::simd::pack::{Mask, Pack};
use crate::cpu::simd::state_io::{Carrier, carry_lane};
use crate::cpu::simd::vector::{Kernel, Out, RowOf, View};

/// Averages computed side by side, to overlap their dependency chains.
const SIDE_BY_SIDE: usize = 3;

/// The averages of one length.
struct Length<T> {
    len: f64,
    factor: f64,
    ema: Option<usize>,
    dema: Option<usize>,
    /// The average, NA before the first value.
    mean: RowOf<T>,
    /// Its weight: 1 unless bars are missing.
    weight: RowOf<T>,
    /// The average of the average (DEMA).
    second: RowOf<T>,
}

/// Inputs x and the bar's number from 1 on.
pub(crate) struct Exponentials<T> {
    lengths: Vec<Length<T>>,
    x: Recent<T>,
    /// First value, sum of differences to it, and number of values of the mean that seeds the averages.
    first: RowOf<T>,
    sum: RowOf<T>,
    seen: RowOf<T>,
    /// That mean at each bar of the strip.
    seeds: Vec<RowOf<T>>,
}

impl<T: Real> Exponentials<T> {
    pub fn new(averages: &[TrendMean]) -> Self {
        let mut lens: Vec<u32> = averages.iter().map(|m| m.len).collect();
        lens.sort_unstable();
        lens.dedup();
        let out = |family, len| averages.iter().position(|m| m.family == family && m.len == len);
        let length = |&len: &u32| Length {
            len: f64::from(len),
            factor: 2.0 / (f64::from(len) + 1.0),
            ema: out(Trend::Ema, len),
            dema: out(Trend::Dema, len),
            mean: RowOf::NA,
            weight: RowOf::splat(T::ONE),
            second: RowOf::NA,
        };
        Self {
            lengths: lens.iter().map(length).collect(),
            x: Recent::new(0),
            first: RowOf::NA,
            sum: RowOf::ZERO,
            seen: RowOf::ZERO,
            seeds: vec![RowOf::NA; T::STRIP_BARS],
        }
    }

    /// The mean of the values up to each of the strip's first `bars` bars.
    #[inline(always)]
    fn seed<V: Pack<T>>(&mut self, bars: usize) {
        let (mut first, mut sum, mut seen) = (V::load(&self.first), V::load(&self.sum), V::load(&self.seen));
        for (x, seed) in self.x.rows[..bars].iter().zip(&mut self.seeds) {
            let x = V::load(x);
            let there = x.is_finite();
            first = V::select(first.is_nan(), x, first);
            sum = V::select(there, sum + (x - first), sum);
            seen = V::select(there, seen + V::of(1.0), seen);
            // The first value is NA while there is none.
            (first + sum / seen).store(seed);
        }
        first.store(&mut self.first);
        sum.store(&mut self.sum);
        seen.store(&mut self.seen);
    }
}

/// The mean after one more value, when no bar is missing. The weights (1 - a) and a then add up to exactly 1.
#[inline(always)]
fn follow<T: Real, V: Pack<T>>(mean: V, x: V, kept: V, factor: V) -> V {
    V::select(mean.eq(x), mean, mean * kept + factor * x)
}

/// The loop over a strip whose state stays in registers.
#[inline(always)]
fn settled<T: Real, V: Pack<T>, const K: usize>(
    lengths: &mut [Length<T>; K],
    x: &[RowOf<T>],
    outs: &mut [Out<'_, T>],
    start: usize,
) {
    let (mut mean, mut second) = ([V::zero(); K], [V::zero(); K]);
    let (mut kept, mut factor) = ([V::zero(); K], [V::zero(); K]);
    for k in 0..K {
        mean[k] = V::load(&lengths[k].mean);
        second[k] = V::load(&lengths[k].second);
        factor[k] = V::of(lengths[k].factor);
        kept[k] = V::of(1.0) - factor[k];
    }
    for (i, x) in x.iter().enumerate() {
        let x = V::load(x);
        for k in 0..K {
            mean[k] = follow(mean[k], x, kept[k], factor[k]);
            if let Some(out) = lengths[k].ema {
                mean[k].store(&mut outs[out].from(start + i)[0]);
            }
            if let Some(out) = lengths[k].dema {
                second[k] = follow(second[k], mean[k], kept[k], factor[k]);
                (V::of(2.0) * mean[k] - second[k]).store(&mut outs[out].from(start + i)[0]);
            }
        }
    }
    for k in 0..K {
        mean[k].store(&mut lengths[k].mean);
        second[k].store(&mut lengths[k].second);
    }
}

impl<T: Real> Length<T> {
    /// Whether the average has full weight at the start of a strip that begins at bar number `number` and has no
    /// missing bar.
    #[inline(always)]
    fn is_settled<V: Pack<T>>(&self, number: V) -> bool {
        let begun = V::load(&self.mean).is_finite() & V::of(self.len).lt(number);
        let second = self.dema.is_none() || V::load(&self.second).is_finite().all();
        (begun & V::load(&self.weight).eq(V::of(1.0))).all() && second
    }

    /// One bar, with or without missing values.
    #[inline(always)]
    fn bar<V: Pack<T>>(&mut self, x: V, seed: V, number: V, outs: &mut [Out<'_, T>], t: usize) {
        let (mean, weight, second) = (V::load(&self.mean), V::load(&self.weight), V::load(&self.second));
        let (len, factor, one) = (V::of(self.len), V::of(self.factor), V::of(1.0));
        let kept = one - factor;
        let z = V::select(number.eq(len), seed, x.only(len.lt(number)));
        let (there, fresh) = (z.is_finite(), mean.is_nan());
        let left = weight * kept;
        let moved = V::select(mean.eq(z), mean, (left * mean + factor * z) / (left + factor));
        let next = V::select(fresh, z, V::select(there, moved, mean));
        next.store(&mut self.mean);
        V::select(there | fresh, one, left).store(&mut self.weight);
        if let Some(out) = self.ema {
            next.store(&mut outs[out].from(t)[0]);
        }
        if let Some(out) = self.dema {
            let second = V::select(second.is_nan(), next, follow(second, next, kept, factor));
            second.store(&mut self.second);
            (V::of(2.0) * next - second).store(&mut outs[out].from(t)[0]);
        }
    }
}

impl<T: Real> Kernel<T> for Exponentials<T> {
    fn carry(&mut self, lane: usize, carrier: &mut Carrier<'_>) {
        // The strip's values and seeds are recomputed.
        let Self { lengths, x: _, first, sum, seen, seeds: _ } = self;
        for Length { len: _, factor: _, ema: _, dema: _, mean, weight, second } in lengths {
            [mean, weight, second].into_iter().for_each(|row| carry_lane(row, lane, carrier));
        }
        [first, sum, seen].into_iter().for_each(|row| carry_lane(row, lane, carrier));
    }

    #[inline(always)]
    fn run<V: Pack<T>>(&mut self, inputs: &[View<'_, T>], outs: &mut [Out<'_, T>], rows: Range<usize>) {
        let bars = rows.len();
        let whole = self.x.take::<V>(&inputs[0], rows.start, rows.end);
        let number = V::load(inputs[1].at(rows.start));
        let begun = self.lengths.last().is_none_or(|l| V::of(l.len).lt(number).all());
        if !begun {
            self.seed::<V>(bars);
        }
        let x = &self.x.rows[..bars];
        if whole && self.lengths.iter().all(|l| l.is_settled(number)) {
            let mut chunks = self.lengths.chunks_exact_mut(SIDE_BY_SIDE);
            for chunk in &mut chunks {
                if let Ok(chunk) = <&mut [Length<T>; SIDE_BY_SIDE]>::try_from(chunk) {
                    settled::<T, V, SIDE_BY_SIDE>(chunk, x, outs, rows.start);
                }
            }
            for length in chunks.into_remainder() {
                settled::<T, V, 1>(std::array::from_mut(length), x, outs, rows.start);
            }
            return;
        }
        for length in &mut self.lengths {
            for (i, (x, seed)) in x.iter().zip(&self.seeds).enumerate() {
                let t = rows.start + i;
                length.bar(V::load(x), V::load(seed), V::load(inputs[1].at(t)), outs, t);
            }
        }
    }
}
