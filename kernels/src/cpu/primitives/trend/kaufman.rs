//! Adaptive averages after Kaufman with the constants of Adaptive Trend Classification: their windows nest, so one walk
//! back in time sums every length's noise. The sums are direct, so the noise of a flat series is exactly 0.

use std::ops::Range;

use super::{Recent, TrendMean};
use crate::cpu::simd::float::Real;
use crate::cpu::simd::pack::Pack;
use crate::cpu::simd::state_io::{Carrier, carry_lane};
use crate::cpu::simd::vector::{Kernel, Out, RowOf, View};

/// Factors of the slowest and the fastest average.
const SLOW: f64 = 0.064;
const SPAN: f64 = 0.666 - 0.064;

/// The average of one length.
struct Length<T> {
    len: usize,
    out: usize,
    /// NA where the next value starts it again.
    mean: RowOf<T>,
}

/// Inputs x and the bar's number from 1 on. The first bar's value is used for the first `len` bars.
pub(crate) struct Kaufmans<T> {
    /// By length, ascending.
    lengths: Vec<Length<T>>,
    x: Recent<T>,
    /// Magnitudes of the changes to the bars of `x`.
    changes: Vec<RowOf<T>>,
}

impl<T: Real> Kaufmans<T> {
    /// Over at most `bars` bars.
    pub fn new(averages: &[TrendMean], bars: usize) -> Self {
        let length = |(out, m): (usize, &TrendMean)| Length { len: m.bars(), out, mean: RowOf::NA };
        let mut lengths: Vec<Length<T>> = averages.iter().enumerate().map(length).collect();
        lengths.sort_by_key(|l| l.len);
        let x = Recent::new(lengths.last().map_or(0, |l| l.len.min(bars)));
        let changes = vec![RowOf::NA; x.rows.len()];
        Self { lengths, x, changes }
    }
}

impl<T: Real> Kernel<T> for Kaufmans<T> {
    fn carry(&mut self, lane: usize, carrier: &mut Carrier<'_>) {
        // Values and changes are read again before each strip.
        let Self { lengths, x: _, changes: _ } = self;
        for Length { len: _, out: _, mean } in lengths {
            carry_lane(mean, lane, carrier);
        }
    }

    #[inline(always)]
    fn run<V: Pack<T>>(&mut self, inputs: &[View<'_, T>], outs: &mut [Out<'_, T>], rows: Range<usize>) {
        self.x.take::<V>(&inputs[0], rows.start, rows.end);
        for (pair, change) in self.x.rows.windows(2).zip(&mut self.changes[1..]) {
            (V::load(&pair[1]) - V::load(&pair[0])).abs().store(change);
        }
        for t in rows.clone() {
            let now = self.x.back + t - rows.start;
            let (x, number) = (V::load(&self.x.rows[now]), V::load(inputs[1].at(t)));
            let mut noise = V::zero();
            let mut age = 0;
            for length in &mut self.lengths {
                let oldest = now.checked_sub(length.len);
                for change in self.changes[..=now].iter().rev().skip(age).take(length.len - age) {
                    noise = noise + V::load(change);
                }
                age = length.len;
                let mean = V::load(&length.mean);
                let far = oldest.map_or(V::na(), |oldest| V::load(&self.x.rows[oldest]));
                let ratio = V::select(noise.eq(V::zero()), V::zero(), (x - far).abs() / noise);
                let root = ratio * V::of(SPAN) + V::of(SLOW);
                let from = V::select(mean.is_nan(), x, mean);
                let moved = from + root * root * (x - from);
                let held = V::select(number.eq(V::of(1.0)), x, mean);
                let mean = V::select(V::of(length.len as f64).lt(number), moved, held);
                mean.store(&mut length.mean);
                mean.store(&mut outs[length.out].from(t)[0]);
            }
        }
    }
}
