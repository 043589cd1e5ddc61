//! Groups of primitives that are run together, their intermediate values in registers. Each computes what the
//! primitives would, in the same order, with the same bits.

use trawl_plan::scalar::TALIB_EPSILON;

use crate::cpu::primitives::elementwise::{Function, maximum, ratio};
use crate::cpu::primitives::recurrence::{Cumulative, Recurrence, Smoothed, WilderRatio, WilderSum};
use crate::cpu::simd::float::Real;
use crate::cpu::simd::pack::Pack;

/// Inputs high, low, the close one bar ago: the true range.
pub(crate) struct TrueRange;

#[inline(always)]
fn true_range<T: Real, V: Pack<T>>(high: V, low: V, before: V) -> V {
    let range = maximum(high - low, (high - before).abs());
    maximum(range, (low - before).abs())
}

impl Function<3> for TrueRange {
    #[inline(always)]
    fn at<T: Real, V: Pack<T>>(&self, [high, low, before]: [V; 3]) -> V {
        true_range(high, low, before)
    }
}

/// Inputs a, b, c: (a + b + c)/divisor.
pub(crate) struct SumOver {
    pub divisor: f64,
}

impl Function<3> for SumOver {
    #[inline(always)]
    fn at<T: Real, V: Pack<T>>(&self, [a, b, c]: [V; 3]) -> V {
        (a + b + c) / V::of(self.divisor)
    }
}

/// |a - b|
pub(crate) struct Apart;

impl Function<2> for Apart {
    #[inline(always)]
    fn at<T: Real, V: Pack<T>>(&self, [a, b]: [V; 2]) -> V {
        (a - b).abs()
    }
}

/// (a + b)/divisor
pub(crate) struct PairOver {
    pub divisor: f64,
}

impl Function<2> for PairOver {
    #[inline(always)]
    fn at<T: Real, V: Pack<T>>(&self, [a, b]: [V; 2]) -> V {
        (a + b) / V::of(self.divisor)
    }
}

/// a + b*factor
pub(crate) struct PlusScaled {
    pub factor: f64,
}

impl Function<2> for PlusScaled {
    #[inline(always)]
    fn at<T: Real, V: Pack<T>>(&self, [a, b]: [V; 2]) -> V {
        a + b * V::of(self.factor)
    }
}

/// a - b*factor
pub(crate) struct MinusScaled {
    pub factor: f64,
}

impl Function<2> for MinusScaled {
    #[inline(always)]
    fn at<T: Real, V: Pack<T>>(&self, [a, b]: [V; 2]) -> V {
        a - b * V::of(self.factor)
    }
}

/// Inputs x, lowest, highest: 100*(x - lowest)/(highest - lowest), 0 where the range is no more than its ends'
/// rounding.
pub(crate) struct Within;

impl Function<3> for Within {
    #[inline(always)]
    fn at<T: Real, V: Pack<T>>(&self, [x, lowest, highest]: [V; 3]) -> V {
        let (range, size) = (highest - lowest, highest.abs() + lowest.abs());
        let varies = (size * V::of(TALIB_EPSILON)).lt(range);
        // Of two finite ends with a finite sum of magnitudes the difference is finite.
        let range = V::select(varies, range, V::zero()).only(size.is_finite());
        ratio(x - lowest, range, range.eq(V::zero())) * V::of(100.0)
    }
}

/// Inputs x, mean, deviation: (x - mean)/(deviation*factor), 0 where the deviation is no more than the mean's
/// rounding.
pub(crate) struct ZScore {
    pub factor: f64,
}

impl Function<3> for ZScore {
    #[inline(always)]
    fn at<T: Real, V: Pack<T>>(&self, [x, mean, deviation]: [V; 3]) -> V {
        let scaled = deviation * V::of(self.factor);
        let score = ratio(x - mean, scaled, scaled.eq(V::zero()));
        let varies = (mean.abs() * V::of(TALIB_EPSILON)).lt(deviation);
        V::select(varies, score, V::zero()).only(mean.is_finite() & deviation.is_finite())
    }
}

/// Inputs price, the price one bar ago, volume. Outputs price*volume where the price rose, and where it fell, by more
/// than rounding, else 0; NA where one of the three is not finite.
pub(crate) struct Flows;

impl<T: Real> Recurrence<T, 3, 2, 0> for Flows {
    const START: [f64; 0] = [];

    #[inline(always)]
    fn bar<V: Pack<T>, const SEEDED: bool>(&self, _: &mut [V; 0], [price, before, volume]: [V; 3]) -> [V; 2] {
        let flow = price * volume;
        let size = price.abs() + before.abs();
        let (defined, least) = (size.is_finite() & flow.is_finite(), size * V::of(TALIB_EPSILON));
        let rose = V::select(least.lt(price - before), flow, V::zero());
        let fell = V::select(least.lt(before - price), flow, V::zero());
        [rose.only(defined), fell.only(defined)]
    }
}

/// Inputs mean, deviation. Outputs mean + deviation*up, the mean where that is finite, mean - deviation*down.
pub(crate) struct Bands {
    pub up: f64,
    pub down: f64,
}

impl<T: Real> Recurrence<T, 2, 3, 0> for Bands {
    const START: [f64; 0] = [];

    #[inline(always)]
    fn bar<V: Pack<T>, const SEEDED: bool>(&self, _: &mut [V; 0], [mean, deviation]: [V; 2]) -> [V; 3] {
        let upper = mean + deviation * V::of(self.up);
        [upper, mean.only(upper.is_finite()), mean - deviation * V::of(self.down)]
    }
}

/// Inputs a, b: 100*a/(a + b), 0 where both are 0.
pub(crate) struct Share;

#[inline(always)]
fn share<T: Real, V: Pack<T>>(a: V, b: V) -> V {
    let whole = a + b;
    ratio(a, whole, whole.eq(V::zero())) * V::of(100.0)
}

impl Function<2> for Share {
    #[inline(always)]
    fn at<T: Real, V: Pack<T>>(&self, [a, b]: [V; 2]) -> V {
        share(a, b)
    }
}

/// Wilder's mean of the true range. Inputs high, low, the close one bar ago.
pub(crate) struct AverageRange {
    pub mean: Smoothed,
}

impl<T: Real> Recurrence<T, 3, 1, 3> for AverageRange {
    const START: [f64; 3] = Smoothed::START;

    #[inline(always)]
    fn is_seeded<V: Pack<T>>(&self, state: &[V; 3]) -> bool {
        self.mean.is_seeded(state[0])
    }

    #[inline(always)]
    fn bar<V: Pack<T>, const SEEDED: bool>(&self, [seen, m, sum]: &mut [V; 3], [high, low, before]: [V; 3]) -> [V; 1] {
        let range = true_range(high, low, before);
        [self.mean.next::<T, V, SEEDED>([seen, m, sum], range, range.is_finite())]
    }
}

/// Inputs x, x one bar ago: the relative strength index.
pub(crate) struct Strength {
    pub mean: Smoothed,
}

impl<T: Real> Recurrence<T, 2, 1, 6> for Strength {
    const START: [f64; 6] = [0.0; 6];

    #[inline(always)]
    fn is_seeded<V: Pack<T>>(&self, state: &[V; 6]) -> bool {
        self.mean.is_seeded(state[0])
    }

    #[inline(always)]
    fn bar<V: Pack<T>, const SEEDED: bool>(&self, state: &mut [V; 6], [x, before]: [V; 2]) -> [V; 1] {
        let change = x - before;
        let defined = change.is_finite();
        let [seen, m, sum, seen_loss, m_loss, sum_loss] = state;
        let gain = change.larger(V::zero());
        let loss = change.negate().larger(V::zero());
        let gain = self.mean.next::<T, V, SEEDED>([seen, m, sum], gain, defined);
        let loss = self.mean.next::<T, V, SEEDED>([seen_loss, m_loss, sum_loss], loss, defined);
        [share(gain, loss)]
    }
}

/// Means of x, their difference, its mean. Outputs: the difference where its mean is there, that mean, the distance.
pub(crate) struct Convergence {
    pub fast: Smoothed,
    pub slow: Smoothed,
    pub signal: Smoothed,
}

impl<T: Real> Recurrence<T, 1, 3, 9> for Convergence {
    const START: [f64; 9] = [0.0; 9];

    #[inline(always)]
    fn is_seeded<V: Pack<T>>(&self, state: &[V; 9]) -> bool {
        self.fast.is_seeded(state[0]) && self.slow.is_seeded(state[3]) && self.signal.is_seeded(state[6])
    }

    #[inline(always)]
    fn bar<V: Pack<T>, const SEEDED: bool>(&self, state: &mut [V; 9], [x]: [V; 1]) -> [V; 3] {
        let [a, b, c, d, e, f, g, h, i] = state;
        let defined = x.is_finite();
        let fast = self.fast.next::<T, V, SEEDED>([a, b, c], x, defined);
        let slow = self.slow.next::<T, V, SEEDED>([d, e, f], x, defined);
        let line = fast - slow;
        let signal = self.signal.next::<T, V, SEEDED>([g, h, i], line, line.is_finite());
        [line.only(signal.is_finite()), signal, line - signal]
    }
}

/// Inputs high, low, both one bar ago, the close one bar ago: the average directional index.
pub(crate) struct Directional {
    pub sum: WilderSum,
    pub ratio: WilderRatio,
}

impl<T: Real> Recurrence<T, 5, 1, 6> for Directional {
    const START: [f64; 6] = [0.0; 6];

    #[inline(always)]
    fn is_seeded<V: Pack<T>>(&self, state: &[V; 6]) -> bool {
        // The means begin when the sums have.
        self.ratio.is_seeded(state[4])
    }

    #[inline(always)]
    fn bar<V: Pack<T>, const SEEDED: bool>(&self, state: &mut [V; 6], x: [V; 5]) -> [V; 1] {
        let [high, low, high_before, low_before, close_before] = x;
        let [seen, plus, minus, range, ratio_seen, m] = state;
        let (up, down) = (high - high_before, low_before - low);
        let extent = true_range(high, low, close_before);
        let defined = (up + down + extent).is_finite();
        let zero = V::zero();
        let rise = V::select(zero.lt(up) & down.lt(up), up, zero);
        let fall = V::select(zero.lt(down) & up.lt(down), down, zero);
        let n = V::select(defined, *seen + V::of(1.0), *seen);
        let full = V::of(self.sum.p).le(n);
        if !SEEDED {
            *seen = n;
        }
        self.sum.next::<T, V, SEEDED>(plus, rise, defined, full);
        self.sum.next::<T, V, SEEDED>(minus, fall, defined, full);
        self.sum.next::<T, V, SEEDED>(range, extent, defined, full);
        let (apart, total) = ((*minus - *plus).abs(), *minus + *plus);
        // A finite sum of two that are not below 0 is one of finite values.
        let there = defined & total.is_finite() & range.is_finite();
        let total = V::select(zero.lt(*range), total, zero);
        let there = if SEEDED { there } else { there & full };
        [self.ratio.next::<T, V, SEEDED>([ratio_seen, m], apart, total, there)]
    }
}

/// Inputs price, volume: running sum of price*volume over running sum of volume.
pub(crate) struct Weighed;

impl<T: Real> Recurrence<T, 2, 1, 4> for Weighed {
    const START: [f64; 4] = [0.0; 4];

    #[inline(always)]
    fn bar<V: Pack<T>, const SEEDED: bool>(&self, state: &mut [V; 4], [price, volume]: [V; 2]) -> [V; 1] {
        let [a, b, c, d] = state;
        let value = price * volume;
        let (defined, counted) = (value.is_finite(), value.is_finite() & volume.is_finite());
        let value = Cumulative::next([a, b], value, defined).only(defined);
        let volume = Cumulative::next([c, d], volume, counted).only(counted);
        [ratio(value, volume, volume.eq(V::zero()))]
    }
}
