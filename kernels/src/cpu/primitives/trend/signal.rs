//! The signals of the averages of a trend classification, and the equity of following them.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use trawl_plan::elementary;
use trawl_plan::graph::Bits;

use crate::cpu::primitives::elementwise::Function;
use crate::cpu::primitives::recurrence::Recurrence;
use crate::cpu::simd::float::Real;
use crate::cpu::simd::pack::{Mask, Pack};
use crate::cpu::simd::state_io::{Carrier, carries_nothing, carry_lane};
use crate::cpu::simd::vector::{Kernel, LANES, Out, RowOf, UNLIMITED, View};

/// Lower bound of every equity.
const FLOOR: f64 = 0.25;

/// Largest return and equity of strips in which no equity can overflow: (1 + RETURN)^bars * EQUITY is finite in either
/// number type, for a strip's number of bars.
const QUIET_RETURN: f64 = 1.0;
const QUIET_EQUITY: f64 = 1e10;

/// Tables shared by the steps of a program over all tiles.
#[derive(Default)]
pub(crate) struct Tables {
    growths: HashMap<(Bits, u32), Arc<[f64]>>,
}

/// The growth factor of returns, by bar.
#[derive(Clone)]
pub(crate) struct Growth {
    rate: f64,
    cutout: u32,
    /// Factors by bar, from the first one on.
    table: Arc<[f64]>,
}

impl Growth {
    /// e^(rate*(max(i, 1) - cutout)) for bar i, 1 before `cutout`; values that overflow become the largest number.
    fn computed(rate: f64, cutout: u32, i: usize) -> f64 {
        let (bar, cutout) = (i.max(1) as f64, f64::from(cutout));
        if bar < cutout { 1.0 } else { elementary::exp(rate * (bar - cutout)).min(f64::MAX) }
    }

    /// The factor of bar `i`, from 0.
    #[inline(always)]
    fn at(&self, i: usize) -> f64 {
        match self.table.get(i) {
            Some(growth) => *growth,
            None => Self::computed(self.rate, self.cutout, i),
        }
    }
}

/// The growth factor of the return of bar `i`, from 0.
pub(crate) fn growth_of(rate: f64, cutout: u32, i: usize) -> f64 {
    Growth::computed(rate, cutout, i)
}

impl Tables {
    /// The growth with a table of `bars` bars. For [`UNLIMITED`] bars there is no table, and factors are computed at
    /// every bar.
    pub fn growth(&mut self, rate: Bits, cutout: u32, bars: usize) -> Growth {
        let table = self.growths.entry((rate, cutout)).or_insert_with(|| Arc::from([]));
        if bars != UNLIMITED && table.len() < bars {
            *table = (0..bars).map(|i| Growth::computed(rate.value(), cutout, i)).collect();
        }
        Growth { rate: rate.value(), cutout, table: Arc::clone(table) }
    }
}

/// Inputs x, x one bar ago, the bar's number from 1 on: the return times its growth factor.
pub(crate) struct GrownReturn {
    pub growth: Growth,
}

impl<T: Real> Kernel<T> for GrownReturn {
    carries_nothing!();

    #[inline(always)]
    fn run<V: Pack<T>>(&mut self, inputs: &[View<'_, T>], outs: &mut [Out<'_, T>], rows: Range<usize>) {
        for t in rows {
            let numbers = inputs[2].at(t);
            let mut growth = RowOf::<T>::NA;
            for lane in 0..LANES {
                // Before the first bar seen, the number is NA, and so is the return.
                let at = (numbers.0[lane].wide() as usize).saturating_sub(1);
                growth.0[lane] = T::of(self.growth.at(at));
            }
            let (x, before) = (V::load(inputs[0].at(t)).defined(), V::load(inputs[1].at(t)).defined());
            ((x / before - V::of(1.0)) * V::load(&growth)).store(&mut outs[0].from(t)[0]);
        }
    }
}

/// The equity after a bar: `sign` is the sign of the signal one bar ago, 0 if there was none.
#[inline(always)]
fn grown<T: Real, V: Pack<T>>(equity: V, sign: V, growth: V, start: V, decay: V) -> V {
    // Treat 0 times an infinite return as 0.
    let gain = V::select(sign.eq(V::zero()) | growth.is_nan(), V::zero(), sign * growth);
    let next = V::select(equity.is_nan(), start, equity * decay * (V::of(1.0) + gain));
    V::of(FLOOR).larger(next)
}

/// Rounded to hundredths, half to even, for small numbers.
#[inline(always)]
fn hundredths<T: Real, V: Pack<T>>(x: V) -> V {
    // Adding and taking away rounds to an integer, of either sign.
    let whole = V::splat(T::INTEGER) * V::of(1.5);
    let hundred = V::of(100.0);
    ((hundred * x + whole) - whole) / hundred
}

/// The state of one average.
struct Followed<T> {
    /// The previous value of the average, NA before the first bar.
    average: RowOf<T>,
    signal: RowOf<T>,
    /// NA before the first bar that counts.
    equity: RowOf<T>,
}

/// Inputs x, return, the bar's number from 1 on, averages of x.
pub(crate) struct FamilySignal<T> {
    decay: f64,
    cutout: f64,
    price: RowOf<T>,
    averages: Vec<Followed<T>>,
    /// Prices of the strip and the one before, infinities taken for NA; returns.
    prices: Vec<RowOf<T>>,
    returns: Vec<RowOf<T>>,
    /// Sums over the averages, by bar of the strip: signal*equity, equity.
    votes: Vec<[RowOf<T>; 2]>,
}

/// Averages computed side by side, to overlap their dependency chains.
const SIDE_BY_SIDE: usize = 3;

impl<T: Real> FamilySignal<T> {
    /// A step over `averages` averages.
    pub fn new(decay: f64, cutout: u32, averages: usize) -> Self {
        let strip = vec![RowOf::NA; T::STRIP_BARS];
        let fresh = || Followed { average: RowOf::NA, signal: RowOf::ZERO, equity: RowOf::NA };
        Self {
            decay,
            cutout: f64::from(cutout),
            price: RowOf::NA,
            averages: std::iter::repeat_with(fresh).take(averages).collect(),
            prices: vec![RowOf::NA; T::STRIP_BARS + 1],
            returns: strip,
            votes: vec![[RowOf::ZERO; 2]; T::STRIP_BARS],
        }
    }

    /// Whether no equity can become infinite or NA in the strip.
    #[inline(always)]
    fn is_quiet<V: Pack<T>>(&self, number: V, bars: usize) -> bool {
        let mut quiet = V::of(self.cutout).lt(number);
        for growth in &self.returns[..bars] {
            quiet = quiet & V::load(growth).abs().le(V::of(QUIET_RETURN));
        }
        let small = |f: &Followed<T>| V::load(&f.equity).le(V::of(QUIET_EQUITY)).all();
        quiet.all() && self.averages.iter().all(small)
    }
}

/// Data shared by all averages of a family: prices from the one before the strip on, returns, sums.
struct Strip<'a, T> {
    prices: &'a [RowOf<T>],
    returns: &'a [RowOf<T>],
    votes: &'a mut [[RowOf<T>; 2]],
}

/// `K` averages over a strip. `QUIET`: no equity becomes infinite or NA, and all count.
#[inline(always)]
fn follow<T: Real, V: Pack<T>, const K: usize, const QUIET: bool>(
    followed: &mut [Followed<T>; K],
    averages: &[View<'_, T>],
    number: &View<'_, T>,
    strip: Strip<'_, T>,
    (decay, cutout, start): (f64, f64, usize),
) {
    let (decay, one) = (V::of(decay), V::of(1.0));
    let (mut average, mut signal, mut equity) = ([V::zero(); K], [V::zero(); K], [V::zero(); K]);
    for k in 0..K {
        average[k] = V::load(&followed[k].average);
        signal[k] = V::load(&followed[k].signal);
        equity[k] = V::load(&followed[k].equity);
    }
    for (i, ((pair, growth), vote)) in strip.prices.windows(2).zip(strip.returns).zip(strip.votes).enumerate() {
        let (before, price, growth) = (V::load(&pair[0]), V::load(&pair[1]), V::load(growth));
        let counts = V::of(cutout).lt(V::load(number.at(start + i)));
        let (mut product, mut sum) = (V::load(&vote[0]), V::load(&vote[1]));
        for k in 0..K {
            if QUIET {
                equity[k] = V::of(FLOOR).larger(equity[k] * decay * (one + signal[k] * growth));
            } else {
                equity[k] = grown(equity[k], signal[k], growth, one, decay).only(counts);
            }
            let now = V::load(averages[k].at(start + i));
            let above = now.lt(price) & before.le(average[k]);
            let below = price.lt(now) & average[k].le(before);
            signal[k] = V::select(above, one, V::select(below, V::of(-1.0), signal[k]));
            average[k] = now;
            product = product + signal[k] * equity[k];
            sum = sum + equity[k];
        }
        product.store(&mut vote[0]);
        sum.store(&mut vote[1]);
    }
    for k in 0..K {
        average[k].store(&mut followed[k].average);
        signal[k].store(&mut followed[k].signal);
        equity[k].store(&mut followed[k].equity);
    }
}

impl<T: Real> Kernel<T> for FamilySignal<T> {
    fn carry(&mut self, lane: usize, carrier: &mut Carrier<'_>) {
        let Self { decay: _, cutout: _, price, averages, prices: _, returns: _, votes: _ } = self;
        carry_lane(price, lane, carrier);
        for Followed { average, signal, equity } in averages {
            [average, signal, equity].into_iter().for_each(|row| carry_lane(row, lane, carrier));
        }
    }

    #[inline(always)]
    fn run<V: Pack<T>>(&mut self, inputs: &[View<'_, T>], outs: &mut [Out<'_, T>], rows: Range<usize>) {
        let (bars, averages) = (rows.len(), &inputs[3..]);
        self.prices[0] = self.price;
        for (i, t) in rows.clone().enumerate() {
            V::load(inputs[0].at(t)).defined().store(&mut self.prices[i + 1]);
            self.returns[i] = *inputs[1].at(t);
        }
        self.price = self.prices[bars];
        self.votes[..bars].fill([RowOf::ZERO; 2]);
        let quiet = self.is_quiet::<V>(V::load(inputs[2].at(rows.start)), bars);
        let constants = (self.decay, self.cutout, rows.start);
        let mut chunks = self.averages.chunks_exact_mut(SIDE_BY_SIDE);
        let mut at = 0;
        for chunk in &mut chunks {
            let Ok(chunk) = <&mut [Followed<T>; SIDE_BY_SIDE]>::try_from(chunk) else { continue };
            let (prices, returns) = (&self.prices[..=bars], &self.returns[..bars]);
            let strip = Strip { prices, returns, votes: &mut self.votes[..bars] };
            if quiet {
                follow::<T, V, SIDE_BY_SIDE, true>(chunk, &averages[at..], &inputs[2], strip, constants);
            } else {
                follow::<T, V, SIDE_BY_SIDE, false>(chunk, &averages[at..], &inputs[2], strip, constants);
            }
            at += SIDE_BY_SIDE;
        }
        for one in chunks.into_remainder() {
            let (prices, returns) = (&self.prices[..=bars], &self.returns[..bars]);
            let strip = Strip { prices, returns, votes: &mut self.votes[..bars] };
            follow::<T, V, 1, false>(std::array::from_mut(one), &averages[at..], &inputs[2], strip, constants);
            at += 1;
        }
        for (vote, t) in self.votes.iter().zip(rows) {
            hundredths::<T, V>(V::load(&vote[0]) / V::load(&vote[1])).store(&mut outs[0].from(t)[0]);
        }
    }
}

/// Inputs signal, return, the bar's number from 1 on: the equity of following the signal.
pub(crate) struct SignalEquity {
    pub start: f64,
    pub decay: f64,
    pub cutout: f64,
}

impl<T: Real> Recurrence<T, 3, 1, 2> for SignalEquity {
    /// The signal one bar ago, the equity.
    const START: [f64; 2] = [f64::NAN; 2];

    #[inline(always)]
    fn bar<V: Pack<T>, const SEEDED: bool>(
        &self,
        [before, equity]: &mut [V; 2],
        [signal, growth, number]: [V; 3],
    ) -> [V; 1] {
        let (zero, one) = (V::zero(), V::of(1.0));
        let sign = V::select(zero.lt(*before), one, V::select(before.lt(zero), V::of(-1.0), zero));
        let next = grown(*equity, sign, growth, V::of(self.start), V::of(self.decay));
        *equity = next.only(V::of(self.cutout).lt(number));
        *before = signal;
        [*equity]
    }
}

/// Inputs six signals, six equities: the signals weighted by the equities; 0 where that is not finite.
pub(crate) struct TrendVote {
    pub long: f64,
    pub short: f64,
}

impl Function<12> for TrendVote {
    #[inline(always)]
    fn at<T: Real, V: Pack<T>>(&self, x: [V; 12]) -> V {
        let (zero, one) = (V::zero(), V::of(1.0));
        let (mut votes, mut sum) = (zero, zero);
        for k in 0..6 {
            let below = V::select(x[k].lt(V::of(self.short)), V::of(-1.0), zero);
            let vote = V::select(V::of(self.long).lt(x[k]), one, below);
            votes = votes + vote * x[k + 6];
            sum = sum + x[k + 6];
        }
        let mean = votes / sum;
        V::select(mean.is_finite(), mean, zero)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_are_rounded_to_hundredths_and_halves_to_even() {
        let rounded = |x: f64| {
            let mut row = RowOf::<f64>::ZERO;
            hundredths::<f64, <f64 as Real>::Portable>(Pack::splat(x)).store(&mut row);
            row.0[0]
        };
        for (x, to) in [(0.125, 0.12), (0.375, 0.38), (-0.125, -0.12), (-0.375, -0.38), (0.625, 0.62), (0.1, 0.1)] {
            assert_eq!(rounded(x), to, "{x}");
        }
        for k in -100_000..=100_000 {
            let x = f64::from(k) / 99_999.0;
            assert_eq!(rounded(x), (100.0 * x).round_ties_even() / 100.0, "{x}");
        }
        assert!(rounded(f64::NAN).is_nan());
    }
}
