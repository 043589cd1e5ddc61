//! Steps whose state depends on all bars since the first. At an undefined bar they emit NA and keep their state.

use std::ops::Range;

use crate::cpu::simd::float::Real;
use crate::cpu::simd::pack::{Mask, Pack};
use crate::cpu::simd::state_io::{Carrier, Carry as _, carry_lane};
use crate::cpu::simd::vector::{Kernel, Out, Row, RowOf, Step, View};

/// A recurrence from `I` series to `O` series with `N` rows of state, initialised to [`Self::START`].
pub(crate) trait Recurrence<T: Real, const I: usize, const O: usize, const N: usize>: Send {
    const START: [f64; N];

    /// Whether seeding has finished in every lane, so that [`Self::bar`] may skip counting.
    fn is_seeded<V: Pack<T>>(&self, _state: &[V; N]) -> bool {
        true
    }

    /// One bar. `SEEDED`: [`Self::is_seeded`] held.
    fn bar<V: Pack<T>, const SEEDED: bool>(&self, state: &mut [V; N], x: [V; I]) -> [V; O];
}

/// A recurrence along time.
pub(crate) struct Along<T, R, const I: usize, const O: usize, const N: usize> {
    recurrence: R,
    state: [RowOf<T>; N],
    seeded: bool,
}

impl<T: Real, R: Recurrence<T, I, O, N>, const I: usize, const O: usize, const N: usize> Along<T, R, I, O, N> {
    pub fn new(recurrence: R) -> Self {
        Self { recurrence, state: R::START.map(|x| RowOf::splat(T::of(x))), seeded: false }
    }

    /// The bars of a strip; if `SILENT`, only the state afterwards.
    #[inline(always)]
    fn part<V: Pack<T>, const SEEDED: bool, const SILENT: bool>(
        &mut self,
        inputs: &[View<'_, T>],
        outs: &mut [Out<'_, T>],
        rows: Range<usize>,
    ) {
        let mut state = [V::zero(); N];
        for (state, row) in state.iter_mut().zip(&self.state) {
            *state = V::load(row);
        }
        let mut t = rows.start;
        while t < rows.end {
            let mut n = rows.end - t;
            let mut from: [&[RowOf<T>]; I] = [&[]; I];
            for k in 0..I {
                from[k] = inputs[k].from(t);
                n = n.min(from[k].len());
            }
            for slice in &mut from {
                *slice = &slice[..n];
            }
            let mut to = outs.iter_mut().map(|out| &mut out.from(t)[..n]);
            let to: [&mut [RowOf<T>]; O] = std::array::from_fn(|_| to.next().unwrap_or_default());
            for i in 0..n {
                let mut x = [V::zero(); I];
                for k in 0..I {
                    x[k] = V::load(&from[k][i]);
                }
                // What only the outputs depend on is not computed for nobody.
                let y = self.recurrence.bar::<V, SEEDED>(&mut state, x);
                if !SILENT {
                    for k in 0..O {
                        y[k].store(&mut to[k][i]);
                    }
                }
            }
            t += n;
        }
        if !SEEDED {
            self.seeded = self.recurrence.is_seeded(&state);
        }
        for (state, row) in state.iter().zip(&mut self.state) {
            state.store(row);
        }
    }
}

impl<T: Real, R: Recurrence<T, I, O, N>, const I: usize, const O: usize, const N: usize> Kernel<T>
    for Along<T, R, I, O, N>
{
    #[inline(always)]
    fn run<V: Pack<T>>(&mut self, inputs: &[View<'_, T>], outs: &mut [Out<'_, T>], rows: Range<usize>) {
        match self.seeded {
            true if outs.is_empty() => self.part::<V, true, true>(inputs, outs, rows),
            true => self.part::<V, true, false>(inputs, outs, rows),
            false => self.part::<V, false, false>(inputs, outs, rows),
        }
    }

    fn may_be_silent(&self) -> bool {
        self.seeded
    }

    fn carry(&mut self, lane: usize, carrier: &mut Carrier<'_>) {
        self.state.iter_mut().for_each(|row| carry_lane(row, lane, carrier));
        self.seeded &= carrier.is_saving();
    }
}

/// Exponential and Wilder means, m + (x - m)*factor: seeded with the mean of `p` defined values after `delay` skipped
/// ones. The factor is 2/(p+1) or Wilder's 1/p; in this form a flat series keeps its value exactly; so does the seed,
/// which is computed from differences to the first value.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Smoothed {
    delay: f64,
    p: f64,
    factor: f64,
}

impl Smoothed {
    /// Number of defined values; the first value while seeding, then the mean; the sum of differences to the first
    /// value while seeding.
    pub const START: [f64; 3] = [0.0; 3];

    pub fn exponential(p: u32, delay: u32) -> Self {
        Self { delay: f64::from(delay), p: f64::from(p), factor: 2.0 / (f64::from(p) + 1.0) }
    }

    pub fn wilder(p: u32) -> Self {
        Self::new(p, 0, 1.0 / f64::from(p))
    }

    /// An exponential mean with the given factor.
    pub fn new(p: u32, delay: u32, factor: f64) -> Self {
        Self { delay: f64::from(delay), p: f64::from(p), factor }
    }

    #[inline(always)]
    pub fn is_seeded<T: Real, V: Pack<T>>(&self, seen: V) -> bool {
        V::of(self.delay + self.p).le(seen).all()
    }

    /// The mean where `defined` and seeded, else NA.
    #[inline(always)]
    pub fn next<T: Real, V: Pack<T>, const SEEDED: bool>(
        &self,
        [seen, m, sum]: [&mut V; 3],
        x: V,
        defined: V::Mask,
    ) -> V {
        let after = *m + (x - *m) * V::of(self.factor);
        if SEEDED {
            *m = V::select(defined, after, *m);
            return m.only(defined);
        }
        let (first, full) = (V::of(self.delay + 1.0), V::of(self.delay + self.p));
        let n = V::select(defined, *seen + V::of(1.0), *seen);
        let anchor = V::select(n.le(first), x, *m);
        let seeding = V::select(n.le(first), V::zero(), *sum + (x - anchor));
        let seeded = V::select(n.eq(full), anchor + seeding * V::of(1.0 / self.p), anchor);
        let after = V::select(full.lt(n), after, seeded);
        *m = V::select(defined, after, *m);
        *sum = V::select(defined, seeding, *sum);
        *seen = n;
        m.only(defined & full.le(n))
    }
}

impl<T: Real> Recurrence<T, 1, 1, 3> for Smoothed {
    const START: [f64; 3] = Self::START;

    #[inline(always)]
    fn is_seeded<V: Pack<T>>(&self, state: &[V; 3]) -> bool {
        Self::is_seeded(self, state[0])
    }

    #[inline(always)]
    fn bar<V: Pack<T>, const SEEDED: bool>(&self, [seen, m, sum]: &mut [V; 3], [x]: [V; 1]) -> [V; 1] {
        [self.next::<T, V, SEEDED>([seen, m, sum], x, x.is_finite())]
    }
}

/// Wilder's sum: the sum of `p-1` values, then s - s/p + x.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WilderSum {
    pub p: f64,
}

impl WilderSum {
    /// Adds one value to the sum; `full` is the mask of lanes that then hold `p` values.
    #[inline(always)]
    pub fn next<T: Real, V: Pack<T>, const SEEDED: bool>(&self, s: &mut V, x: V, defined: V::Mask, full: V::Mask) {
        let less = *s - *s * V::of(1.0 / self.p);
        let kept = if SEEDED { less } else { V::select(full, less, *s) };
        *s = V::select(defined, kept + x, *s);
    }
}

impl<T: Real> Recurrence<T, 1, 1, 2> for WilderSum {
    const START: [f64; 2] = [0.0; 2];

    #[inline(always)]
    fn is_seeded<V: Pack<T>>(&self, [seen, _]: &[V; 2]) -> bool {
        V::of(self.p).le(*seen).all()
    }

    #[inline(always)]
    fn bar<V: Pack<T>, const SEEDED: bool>(&self, [seen, s]: &mut [V; 2], [x]: [V; 1]) -> [V; 1] {
        let defined = x.is_finite();
        let n = V::select(defined, *seen + V::of(1.0), *seen);
        // The p-th value itself already finds the sum full.
        let full = V::of(self.p).le(n);
        self.next::<T, V, SEEDED>(s, x, defined, full);
        if !SEEDED {
            *seen = n;
        }
        [if SEEDED { s.only(defined) } else { s.only(defined & full) }]
    }
}

/// Inputs num, den: Wilder's mean of 100*num/den. As in TA-Lib, a bar with den 0 adds nothing to the seed, and later
/// keeps the mean.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WilderRatio {
    pub p: f64,
}

impl WilderRatio {
    #[inline(always)]
    pub fn is_seeded<T: Real, V: Pack<T>>(&self, seen: V) -> bool {
        V::of(self.p).le(seen).all()
    }

    #[inline(always)]
    pub fn next<T: Real, V: Pack<T>, const SEEDED: bool>(
        &self,
        [seen, m]: [&mut V; 2],
        num: V,
        den: V,
        defined: V::Mask,
    ) -> V {
        let share = V::of(1.0 / self.p);
        let ratio = V::of(100.0) * (num / den);
        let later = *m + (ratio - *m) * share;
        if SEEDED {
            let after = V::select(den.eq(V::zero()), *m, later);
            *m = V::select(defined, after, *m);
            return m.only(defined);
        }
        let p = V::of(self.p);
        let n = V::select(defined, *seen + V::of(1.0), *seen);
        let kept = V::select(den.eq(V::zero()), *m, V::select(p.lt(n), later, *m + ratio));
        let after = V::select(n.eq(p), kept * share, kept);
        *m = V::select(defined, after, *m);
        *seen = n;
        m.only(defined & p.le(n))
    }
}

impl<T: Real> Recurrence<T, 2, 1, 2> for WilderRatio {
    const START: [f64; 2] = [0.0; 2];

    #[inline(always)]
    fn is_seeded<V: Pack<T>>(&self, [seen, _]: &[V; 2]) -> bool {
        Self::is_seeded(self, *seen)
    }

    #[inline(always)]
    fn bar<V: Pack<T>, const SEEDED: bool>(&self, [seen, m]: &mut [V; 2], [num, den]: [V; 2]) -> [V; 1] {
        [self.next::<T, V, SEEDED>([seen, m], num, den, num.is_finite() & den.is_finite())]
    }
}

/// Kaufman's adaptive mean as TA-Lib has it. Inputs: x, x one bar ago, x p bars ago, sum of |changes| over p bars.
pub(crate) struct Kaufman;

/// Factors of the slowest (30 bars) and the fastest (2 bars) mean.
const KAUFMAN_SLOW: f64 = 2.0 / 31.0;
const KAUFMAN_SPAN: f64 = 2.0 / 3.0 - KAUFMAN_SLOW;

impl<T: Real> Recurrence<T, 4, 1, 1> for Kaufman {
    /// NA before the first defined bar.
    const START: [f64; 1] = [f64::NAN];

    #[inline(always)]
    fn is_seeded<V: Pack<T>>(&self, [state]: &[V; 1]) -> bool {
        state.eq(*state).all()
    }

    #[inline(always)]
    fn bar<V: Pack<T>, const SEEDED: bool>(&self, [state]: &mut [V; 1], [x, before, far, noise]: [V; 4]) -> [V; 1] {
        let change = x - far;
        // A finite change is one of finite values.
        let defined = before.is_finite() & change.is_finite() & noise.is_finite();
        // Compared with the signed change, as in TA-Lib.
        let steady = noise.le(change) | noise.le(V::zero());
        let efficiency = V::select(steady, V::of(1.0), (change / noise).abs());
        let root = efficiency * V::of(KAUFMAN_SPAN) + V::of(KAUFMAN_SLOW);
        let m = if SEEDED { *state } else { V::select(state.is_nan(), before, *state) };
        let after = (x - m) * (root * root) + m;
        *state = V::select(defined, after, *state);
        [state.only(defined)]
    }
}

/// Running sum of the defined values, compensated: an unevaluated sum of two.
pub(crate) struct Cumulative;

impl Cumulative {
    /// Adds one value (Knuth's two-sum: the rounding error is kept in `lo`).
    #[inline(always)]
    pub fn next<T: Real, V: Pack<T>>([hi, lo]: [&mut V; 2], x: V, defined: V::Mask) -> V {
        let x = V::select(defined, x, V::zero());
        let sum = *hi + x;
        let part = sum - *hi;
        *lo = *lo + ((*hi - (sum - part)) + (x - part));
        *hi = sum;
        *hi + *lo
    }
}

impl<T: Real> Recurrence<T, 1, 1, 2> for Cumulative {
    const START: [f64; 2] = [0.0; 2];

    #[inline(always)]
    fn bar<V: Pack<T>, const SEEDED: bool>(&self, [hi, lo]: &mut [V; 2], [x]: [V; 1]) -> [V; 1] {
        let defined = x.is_finite();
        [Self::next([hi, lo], x, defined).only(defined)]
    }
}

/// Inputs close, volume: on-balance volume.
pub(crate) struct OnBalance;

impl<T: Real> Recurrence<T, 2, 1, 3> for OnBalance {
    /// The previous close (NA before the first defined bar), the balance, and its rounding error.
    const START: [f64; 3] = [f64::NAN, 0.0, 0.0];

    #[inline(always)]
    fn bar<V: Pack<T>, const SEEDED: bool>(&self, [before, balance, lost]: &mut [V; 3], [c, v]: [V; 2]) -> [V; 1] {
        let defined = c.is_finite() & v.is_finite();
        // Not at most the previous close: higher, or there is no previous close.
        let up = V::select(c.le(*before), V::zero(), v);
        let signed = V::select(c.lt(*before), v.negate(), up);
        *before = V::select(defined, c, *before);
        if T::SHORT {
            return [Cumulative::next([balance, lost], signed, defined).only(defined)];
        }
        *balance = V::select(defined, *balance + signed, *balance);
        [balance.only(defined)]
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
    fn carry(&mut self, lane: usize, carrier: &mut Carrier<'_>) {
        self.state.0[lane].carry(carrier);
    }

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
    fn carry(&mut self, lane: usize, carrier: &mut Carrier<'_>) {
        self.state.0[lane].carry(carrier);
    }

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

/// Inputs c, x: the largest or the smallest defined x since c was last true; NA until c was, and after an NA of c until it is true
/// again.
pub(crate) struct ExtremeSince {
    /// The largest, not the smallest.
    largest: bool,
    /// 1 from a true c to an NA of it.
    begun: Row,
    held: Row,
}

impl ExtremeSince {
    pub fn new(largest: bool) -> Self {
        Self { largest, begun: Row::ZERO, held: Row::NA }
    }
}

impl Step for ExtremeSince {
    fn carry(&mut self, lane: usize, carrier: &mut Carrier<'_>) {
        self.begun.0[lane].carry(carrier);
        self.held.0[lane].carry(carrier);
    }

    #[inline(always)]
    fn run(&mut self, inputs: &[View<'_>], out: &mut Out<'_>, rows: Range<usize>) {
        let (mut begun, mut held) = (self.begun, self.held);
        let largest = self.largest;
        for t in rows {
            let (c, x) = (inputs[0].row(t), inputs[1].row(t));
            begun = begun.map(|lane, begun| {
                let waiting = if c.0[lane].is_nan() { 0.0 } else { begun };
                if c.0[lane] == 1.0 { 1.0 } else { waiting }
            });
            held = held.map(|lane, held| {
                let x = x.0[lane];
                let before = if c.0[lane] == 1.0 || c.0[lane].is_nan() { f64::NAN } else { held };
                let beyond = if largest { x > before } else { x < before };
                if begun.0[lane] == 1.0 && x.is_finite() && (beyond || before.is_nan()) { x } else { before }
            });
            out.set(t, held);
        }
        (self.begun, self.held) = (begun, held);
    }
}

/// Whether `e` was true: ever, or since `c` was last true. NA counts as false.
pub(crate) struct Ever {
    /// Whether the first input resets the state.
    resets: bool,
    state: Row,
}

impl Ever {
    /// For input e.
    pub fn new() -> Self {
        Self { resets: false, state: Row::ZERO }
    }

    /// For inputs c, e.
    pub fn since() -> Self {
        Self { resets: true, state: Row::ZERO }
    }
}

impl Step for Ever {
    fn carry(&mut self, lane: usize, carrier: &mut Carrier<'_>) {
        self.state.0[lane].carry(carrier);
    }

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
