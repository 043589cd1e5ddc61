//! Steps whose state goes back to the first bar. At an undefined bar they emit NA and hold their state.

use std::ops::Range;

use trawl_plan::scalar::TALIB_EPSILON;

use super::elementwise::vanishes;
use super::lanes::{Kernel, Out, Row, RowOf, Step, View};
use super::pack::{Mask, Pack};
use super::real::Real;

/// Exponential and Wilder means, m + (x - m)*factor: seeded with the mean of `p` defined values after `delay` skipped
/// ones. The factor is 2/(p+1) or Wilder's 1/p; in this form a flat series keeps its value exactly.
pub(crate) struct Smoothed<T> {
    delay: f64,
    p: f64,
    factor: f64,
    /// Defined values seen.
    seen: RowOf<T>,
    /// The sum while seeding, then the mean.
    state: RowOf<T>,
    seeded: bool,
}

impl<T: Real> Smoothed<T> {
    pub fn exponential(p: u32, delay: u32) -> Self {
        Self::new(p, delay, 2.0 / (f64::from(p) + 1.0))
    }

    pub fn wilder(p: u32) -> Self {
        Self::new(p, 0, 1.0 / f64::from(p))
    }

    fn new(p: u32, delay: u32, factor: f64) -> Self {
        let (delay, p) = (f64::from(delay), f64::from(p));
        Self { delay, p, factor, seen: RowOf::ZERO, state: RowOf::ZERO, seeded: false }
    }

    /// The output at a bar while some lane is not seeded.
    #[inline(always)]
    fn seed<V: Pack<T>>(&mut self, x: V) -> V {
        let (full, one) = (V::of(self.delay + self.p), V::of(1.0));
        let (seen, m) = (V::load(&self.seen), V::load(&self.state));
        let defined = x.is_finite();
        let n = seen + one;
        let seeding = V::select(V::of(self.delay).lt(n), m + x, m);
        let seeded = V::select(n.eq(full), seeding / V::of(self.p), seeding);
        let after = V::select(full.lt(n), m + (x - m) * V::of(self.factor), seeded);
        let n = V::select(defined, n, seen);
        n.store(&mut self.seen);
        V::select(defined, after, m).store(&mut self.state);
        self.seeded = full.le(n).all();
        after.only(defined & full.le(n))
    }

    /// The rest of the rows, in which every lane is seeded.
    #[inline(always)]
    fn follow<V: Pack<T>, const CLEAN: bool>(&mut self, input: &View<'_, T>, out: &mut Out<'_, T>, rows: Range<usize>) {
        let (factor, mut m) = (V::of(self.factor), V::load(&self.state));
        let mut t = rows.start;
        while t < rows.end {
            let (from, out) = (input.from(t), out.from(t));
            let n = from.len().min(out.len()).min(rows.end - t);
            for (x, out) in from[..n].iter().zip(&mut out[..n]) {
                let x = V::load(x);
                let after = m + (x - m) * factor;
                if CLEAN {
                    m = after;
                    m.store(out);
                } else {
                    let defined = x.is_finite();
                    m = V::select(defined, after, m);
                    m.only(defined).store(out);
                }
            }
            t += n;
        }
        m.store(&mut self.state);
    }
}

impl<T: Real> Kernel<T> for Smoothed<T> {
    #[inline(always)]
    fn run<V: Pack<T>>(&mut self, inputs: &[View<'_, T>], outs: &mut [Out<'_, T>], rows: Range<usize>) {
        let (input, [out]) = (&inputs[0], outs) else { return };
        let mut t = rows.start;
        while t < rows.end && !self.seeded {
            self.seed(V::load(&input.row(t))).store(&mut out.from(t)[0]);
            t += 1;
        }
        if input.defined_from() <= t {
            self.follow::<V, true>(input, out, t..rows.end);
        } else {
            self.follow::<V, false>(input, out, t..rows.end);
        }
    }
}

/// Wilder's sum: the sum of `p-1` values, then s - s/p + x.
pub(crate) struct WilderSum<T> {
    p: f64,
    seen: RowOf<T>,
    state: RowOf<T>,
}

impl<T: Real> WilderSum<T> {
    pub fn new(p: u32) -> Self {
        Self { p: f64::from(p), seen: RowOf::ZERO, state: RowOf::ZERO }
    }
}

impl<T: Real> Kernel<T> for WilderSum<T> {
    #[inline(always)]
    fn run<V: Pack<T>>(&mut self, inputs: &[View<'_, T>], outs: &mut [Out<'_, T>], rows: Range<usize>) {
        let (p, share, one) = (V::of(self.p), V::of(1.0 / self.p), V::of(1.0));
        let (mut seen, mut s) = (V::load(&self.seen), V::load(&self.state));
        let mut t = rows.start;
        while t < rows.end {
            let (from, out) = (inputs[0].from(t), outs[0].from(t));
            let n = from.len().min(out.len()).min(rows.end - t);
            for (x, out) in from[..n].iter().zip(&mut out[..n]) {
                let x = V::load(x);
                let defined = x.is_finite();
                let count = seen + one;
                let full = p.le(count);
                let kept = V::select(full, s - s * share, s);
                s = V::select(defined, kept + x, s);
                seen = V::select(defined, count, seen);
                s.only(defined & full).store(out);
            }
            t += n;
        }
        seen.store(&mut self.seen);
        s.store(&mut self.state);
    }
}

/// Inputs num, den: Wilder's mean of 100*num/den. TA-Lib adds nothing to the seed where den is 0, and later holds.
pub(crate) struct WilderRatio<T> {
    p: f64,
    seen: RowOf<T>,
    state: RowOf<T>,
}

impl<T: Real> WilderRatio<T> {
    pub fn new(p: u32) -> Self {
        Self { p: f64::from(p), seen: RowOf::ZERO, state: RowOf::ZERO }
    }
}

impl<T: Real> Kernel<T> for WilderRatio<T> {
    #[inline(always)]
    fn run<V: Pack<T>>(&mut self, inputs: &[View<'_, T>], outs: &mut [Out<'_, T>], rows: Range<usize>) {
        let (p, share, one) = (V::of(self.p), V::of(1.0 / self.p), V::of(1.0));
        let (mut seen, mut m) = (V::load(&self.seen), V::load(&self.state));
        let mut t = rows.start;
        while t < rows.end {
            let (num, den, out) = (inputs[0].from(t), inputs[1].from(t), outs[0].from(t));
            let n = num.len().min(den.len()).min(out.len()).min(rows.end - t);
            for ((num, den), out) in num[..n].iter().zip(&den[..n]).zip(&mut out[..n]) {
                let (num, den) = (V::load(num), V::load(den));
                let defined = num.is_finite() & den.is_finite();
                let count = seen + one;
                let ratio = V::of(100.0) * (num / den);
                let moved = V::select(p.lt(count), m + (ratio - m) * share, m + ratio);
                let kept = V::select(vanishes(den), m, moved);
                let after = V::select(count.eq(p), kept * share, kept);
                m = V::select(defined, after, m);
                seen = V::select(defined, count, seen);
                after.only(defined & p.le(count)).store(out);
            }
            t += n;
        }
        seen.store(&mut self.seen);
        m.store(&mut self.state);
    }
}

/// Kaufman's adaptive mean as TA-Lib has it. Inputs: x, x one bar ago, x p bars ago, sum of |changes| over p bars.
pub(crate) struct Kaufman<T> {
    /// NA before the first defined bar.
    state: RowOf<T>,
}

impl<T: Real> Kaufman<T> {
    pub fn new() -> Self {
        Self { state: RowOf::NA }
    }
}

/// Factors of the slowest (30 bars) and the fastest (2 bars) mean.
const KAUFMAN_SLOW: f64 = 2.0 / 31.0;
const KAUFMAN_SPAN: f64 = 2.0 / 3.0 - KAUFMAN_SLOW;

impl<T: Real> Kernel<T> for Kaufman<T> {
    #[inline(always)]
    fn run<V: Pack<T>>(&mut self, inputs: &[View<'_, T>], outs: &mut [Out<'_, T>], rows: Range<usize>) {
        let mut state = V::load(&self.state);
        let mut t = rows.start;
        while t < rows.end {
            let [x, before, far, noise] = [0, 1, 2, 3].map(|k| inputs[k].from(t));
            let out = outs[0].from(t);
            let n = [x.len(), before.len(), far.len(), noise.len(), out.len(), rows.end - t];
            let n = n.into_iter().fold(usize::MAX, usize::min);
            for i in 0..n {
                let (x, before, noise) = (V::load(&x[i]), V::load(&before[i]), V::load(&noise[i]));
                let change = x - V::load(&far[i]);
                // A finite change is one of finite values.
                let defined = before.is_finite() & change.is_finite() & noise.is_finite();
                // The comparison is with the signed change: so it is in TA-Lib.
                let steady = noise.le(change) | noise.lt(V::of(TALIB_EPSILON));
                let efficiency = V::select(steady, V::of(1.0), (change / noise).abs());
                let root = efficiency * V::of(KAUFMAN_SPAN) + V::of(KAUFMAN_SLOW);
                let m = V::select(state.is_nan(), before, state);
                let after = (x - m) * (root * root) + m;
                state = V::select(defined, after, state);
                after.only(defined).store(&mut out[i]);
            }
            t += n;
        }
        state.store(&mut self.state);
    }
}

/// Adds `x` to the unevaluated sum `hi + lo` without losing what rounds away (Knuth's two-sum).
#[inline(always)]
fn add<T: Real, V: Pack<T>>(hi: &mut V, lo: &mut V, x: V) {
    let sum = *hi + x;
    let part = sum - *hi;
    *lo = *lo + ((*hi - (sum - part)) + (x - part));
    *hi = sum;
}

/// Running sum of the defined values, compensated.
pub(crate) struct Cumulative<T> {
    hi: RowOf<T>,
    lo: RowOf<T>,
}

impl<T: Real> Cumulative<T> {
    pub fn new() -> Self {
        Self { hi: RowOf::ZERO, lo: RowOf::ZERO }
    }
}

impl<T: Real> Kernel<T> for Cumulative<T> {
    #[inline(always)]
    fn run<V: Pack<T>>(&mut self, inputs: &[View<'_, T>], outs: &mut [Out<'_, T>], rows: Range<usize>) {
        let (mut hi, mut lo) = (V::load(&self.hi), V::load(&self.lo));
        let mut t = rows.start;
        while t < rows.end {
            let (from, out) = (inputs[0].from(t), outs[0].from(t));
            let n = from.len().min(out.len()).min(rows.end - t);
            for (x, out) in from[..n].iter().zip(&mut out[..n]) {
                let x = V::load(x);
                let defined = x.is_finite();
                add(&mut hi, &mut lo, V::select(defined, x, V::zero()));
                (hi + lo).only(defined).store(out);
            }
            t += n;
        }
        hi.store(&mut self.hi);
        lo.store(&mut self.lo);
    }
}

/// Inputs close, volume: on-balance volume.
pub(crate) struct OnBalance<T> {
    /// The close before, NaN before the first defined bar.
    before: RowOf<T>,
    state: RowOf<T>,
}

impl<T: Real> OnBalance<T> {
    pub fn new() -> Self {
        Self { before: RowOf::NA, state: RowOf::ZERO }
    }
}

impl<T: Real> Kernel<T> for OnBalance<T> {
    #[inline(always)]
    fn run<V: Pack<T>>(&mut self, inputs: &[View<'_, T>], outs: &mut [Out<'_, T>], rows: Range<usize>) {
        let (mut before, mut state) = (V::load(&self.before), V::load(&self.state));
        let mut t = rows.start;
        while t < rows.end {
            let (close, volume, out) = (inputs[0].from(t), inputs[1].from(t), outs[0].from(t));
            let n = close.len().min(volume.len()).min(out.len()).min(rows.end - t);
            for ((c, v), out) in close[..n].iter().zip(&volume[..n]).zip(&mut out[..n]) {
                let (c, v) = (V::load(c), V::load(v));
                let defined = c.is_finite() & v.is_finite();
                // Not at most the close before: higher, or there is none.
                let up = V::select(c.le(before), V::zero(), v);
                let signed = V::select(c.lt(before), v.negate(), up);
                let after = state + signed;
                state = V::select(defined, after, state);
                before = V::select(defined, c, before);
                after.only(defined).store(out);
            }
            t += n;
        }
        before.store(&mut self.before);
        state.store(&mut self.state);
    }
}

/// Bars since the input was true; NA until it was, and after an NA until it is true again.
pub(crate) struct Since {
    state: Row,
}

impl Since {
    pub fn new() -> Self {
        Self { state: Row::NA }
    }
}

impl Step for Since {
    #[inline(always)]
    fn run(&mut self, inputs: &[View<'_>], out: &mut Out<'_>, rows: Range<usize>) {
        let mut state = self.state;
        for t in rows {
            let c = inputs[0].row(t);
            state = state.map(|lane, bars| {
                let waiting = if c.0[lane].is_nan() { f64::NAN } else { bars + 1.0 };
                if c.0[lane] == 1.0 { 0.0 } else { waiting }
            });
            out.set(t, state);
        }
        self.state = state;
    }
}

/// Inputs c, x: x at the bar where c was last true; NA until it was, and after an NA of c until it is true again.
pub(crate) struct ValueWhen {
    state: Row,
}

impl ValueWhen {
    pub fn new() -> Self {
        Self { state: Row::NA }
    }
}

impl Step for ValueWhen {
    #[inline(always)]
    fn run(&mut self, inputs: &[View<'_>], out: &mut Out<'_>, rows: Range<usize>) {
        let mut state = self.state;
        for t in rows {
            let (c, x) = (inputs[0].row(t), inputs[1].row(t));
            state = state.map(|lane, held| {
                let waiting = if c.0[lane].is_nan() { f64::NAN } else { held };
                if c.0[lane] == 1.0 { x.0[lane] } else { waiting }
            });
            out.set(t, state);
        }
        self.state = state;
    }
}

/// Whether `e` was true: ever, or since `c` was last true. NA counts as false.
pub(crate) struct Ever {
    /// Whether the first input ends what was before it.
    resets: bool,
    state: Row,
}

impl Ever {
    /// Input e.
    pub fn new() -> Self {
        Self { resets: false, state: Row::ZERO }
    }

    /// Inputs c, e.
    pub fn since() -> Self {
        Self { resets: true, state: Row::ZERO }
    }
}

impl Step for Ever {
    #[inline(always)]
    fn run(&mut self, inputs: &[View<'_>], out: &mut Out<'_>, rows: Range<usize>) {
        let mut state = self.state;
        for t in rows {
            let (c, e) = if self.resets { (inputs[0].row(t), inputs[1].row(t)) } else { (Row::ZERO, inputs[0].row(t)) };
            state = state.map(|lane, held| {
                let before = if c.0[lane] == 1.0 { 0.0 } else { held };
                if e.0[lane] == 1.0 { 1.0 } else { before }
            });
            out.set(t, state);
        }
        self.state = state;
    }
}
