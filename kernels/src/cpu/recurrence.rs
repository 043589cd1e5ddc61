//! Steps whose state goes back to the first bar. At an undefined bar they emit NA and hold their state.

use std::ops::Range;

use super::lanes::{LANES, Out, Row, Step, View};

/// Exponential and Wilder means, m + (x - m)*factor: seeded with the mean of `p` defined values after `delay` skipped
/// ones. The factor is 2/(p+1) or Wilder's 1/p; in this form a flat series keeps its value exactly.
pub(crate) struct Smoothed {
    delay: f64,
    p: f64,
    factor: f64,
    /// Defined values seen.
    seen: Row,
    /// The sum while seeding, then the mean.
    state: Row,
}

impl Smoothed {
    pub fn exponential(p: u32, delay: u32) -> Self {
        Self::new(p, delay, 2.0 / (f64::from(p) + 1.0))
    }

    pub fn wilder(p: u32) -> Self {
        Self::new(p, 0, 1.0 / f64::from(p))
    }

    /// An exponential mean with a factor of its own.
    pub fn new(p: u32, delay: u32, factor: f64) -> Self {
        Self { delay: f64::from(delay), p: f64::from(p), factor, seen: Row::ZERO, state: Row::ZERO }
    }

    #[inline(always)]
    fn next(&self, m: f64, x: f64) -> f64 {
        m + (x - m) * self.factor
    }
}

impl Step for Smoothed {
    #[inline(always)]
    fn run(&mut self, inputs: &[View<'_>], out: &mut Out<'_>, rows: Range<usize>) {
        let (delay, full) = (self.delay, self.delay + self.p);
        let (mut seen, mut state) = (self.seen, self.state);
        for t in rows {
            let x = inputs[0].row(t);
            let mut row = Row::NA;
            let seeded = seen.0.iter().fold(true, |all, n| all & (*n >= full));
            if seeded {
                // Nothing left to count in any lane: the common case has no division.
                for lane in 0..LANES {
                    let (x, m) = (x.0[lane], state.0[lane]);
                    let after = self.next(m, x);
                    state.0[lane] = if x.is_finite() { after } else { m };
                    row.0[lane] = if x.is_finite() { after } else { f64::NAN };
                }
            } else {
                for lane in 0..LANES {
                    let (x, m) = (x.0[lane], state.0[lane]);
                    let n = seen.0[lane] + 1.0;
                    let seeding = if n > delay { m + x } else { m };
                    let seeded = if n == full { seeding / self.p } else { seeding };
                    let after = if n > full { self.next(m, x) } else { seeded };
                    if x.is_finite() {
                        state.0[lane] = after;
                        seen.0[lane] = n;
                        row.0[lane] = if n >= full { after } else { f64::NAN };
                    }
                }
            }
            out.set(t, row);
        }
        (self.seen, self.state) = (seen, state);
    }
}

/// Wilder's sum: the sum of `p-1` values, then s - s/p + x.
pub(crate) struct WilderSum {
    p: f64,
    seen: Row,
    state: Row,
}

impl WilderSum {
    pub fn new(p: u32) -> Self {
        Self { p: f64::from(p), seen: Row::ZERO, state: Row::ZERO }
    }
}

impl Step for WilderSum {
    #[inline(always)]
    fn run(&mut self, inputs: &[View<'_>], out: &mut Out<'_>, rows: Range<usize>) {
        let share = 1.0 / self.p;
        let (mut seen, mut state) = (self.seen, self.state);
        for t in rows {
            let x = inputs[0].row(t);
            let mut row = Row::NA;
            for lane in 0..LANES {
                let (x, s) = (x.0[lane], state.0[lane]);
                let defined = x.is_finite();
                let n = seen.0[lane] + 1.0;
                let after = if n >= self.p { s - s * share + x } else { s + x };
                state.0[lane] = if defined { after } else { s };
                seen.0[lane] = if defined { n } else { n - 1.0 };
                row.0[lane] = if defined && n >= self.p { after } else { f64::NAN };
            }
            out.set(t, row);
        }
        (self.seen, self.state) = (seen, state);
    }
}

/// Inputs num, den: Wilder's mean of 100*num/den. TA-Lib adds nothing to the seed where den is 0, and later holds.
pub(crate) struct WilderRatio {
    p: f64,
    seen: Row,
    state: Row,
}

impl WilderRatio {
    pub fn new(p: u32) -> Self {
        Self { p: f64::from(p), seen: Row::ZERO, state: Row::ZERO }
    }
}

impl Step for WilderRatio {
    #[inline(always)]
    fn run(&mut self, inputs: &[View<'_>], out: &mut Out<'_>, rows: Range<usize>) {
        let (p, share) = (self.p, 1.0 / self.p);
        let (mut seen, mut state) = (self.seen, self.state);
        for t in rows {
            let (num, den) = (inputs[0].row(t), inputs[1].row(t));
            let mut row = Row::NA;
            for lane in 0..LANES {
                let (num, den, m) = (num.0[lane], den.0[lane], state.0[lane]);
                let defined = num.is_finite() & den.is_finite();
                let n = seen.0[lane] + 1.0;
                let ratio = 100.0 * (num / den);
                let seeding = m + ratio;
                let later = m + (ratio - m) * share;
                let moved = if n > p { later } else { seeding };
                let kept = if den == 0.0 { m } else { moved };
                let after = if n == p { kept * share } else { kept };
                state.0[lane] = if defined { after } else { m };
                seen.0[lane] = if defined { n } else { n - 1.0 };
                row.0[lane] = if defined && n >= p { after } else { f64::NAN };
            }
            out.set(t, row);
        }
        (self.seen, self.state) = (seen, state);
    }
}

/// Kaufman's adaptive mean as TA-Lib has it. Inputs: x, x one bar ago, x p bars ago, sum of |changes| over p bars.
pub(crate) struct Kaufman {
    begun: Row,
    state: Row,
}

impl Kaufman {
    pub fn new() -> Self {
        Self { begun: Row::ZERO, state: Row::ZERO }
    }
}

/// Factors of the slowest (30 bars) and the fastest (2 bars) mean.
const KAUFMAN_SLOW: f64 = 2.0 / 31.0;
const KAUFMAN_SPAN: f64 = 2.0 / 3.0 - KAUFMAN_SLOW;

impl Step for Kaufman {
    #[inline(always)]
    fn run(&mut self, inputs: &[View<'_>], out: &mut Out<'_>, rows: Range<usize>) {
        let (mut begun, mut state) = (self.begun, self.state);
        for t in rows {
            let (x, before, far, noise) = (inputs[0].row(t), inputs[1].row(t), inputs[2].row(t), inputs[3].row(t));
            let mut row = Row::NA;
            for lane in 0..LANES {
                let (x, noise) = (x.0[lane], noise.0[lane]);
                let change = x - far.0[lane];
                let defined = x.is_finite() & before.0[lane].is_finite() & change.is_finite() & noise.is_finite();
                // The comparison is with the signed change: so it is in TA-Lib.
                let steady = noise <= change || noise <= 0.0;
                let efficiency = if steady { 1.0 } else { (change / noise).abs() };
                let root = efficiency * KAUFMAN_SPAN + KAUFMAN_SLOW;
                let m = if begun.0[lane] == 0.0 { before.0[lane] } else { state.0[lane] };
                let after = (x - m) * (root * root) + m;
                state.0[lane] = if defined { after } else { state.0[lane] };
                begun.0[lane] = if defined { 1.0 } else { begun.0[lane] };
                row.0[lane] = if defined { after } else { f64::NAN };
            }
            out.set(t, row);
        }
        (self.begun, self.state) = (begun, state);
    }
}

/// Running sum of the defined values, compensated.
pub(crate) struct Cumulative {
    hi: Row,
    lo: Row,
}

impl Cumulative {
    pub fn new() -> Self {
        Self { hi: Row::ZERO, lo: Row::ZERO }
    }
}

impl Step for Cumulative {
    #[inline(always)]
    fn run(&mut self, inputs: &[View<'_>], out: &mut Out<'_>, rows: Range<usize>) {
        let (mut hi, mut lo) = (self.hi, self.lo);
        for t in rows {
            let x = inputs[0].row(t);
            let mut row = Row::NA;
            for lane in 0..LANES {
                let defined = x.0[lane].is_finite();
                let value = if defined { x.0[lane] } else { 0.0 };
                super::window::add(&mut hi.0[lane], &mut lo.0[lane], value);
                row.0[lane] = if defined { hi.0[lane] + lo.0[lane] } else { f64::NAN };
            }
            out.set(t, row);
        }
        (self.hi, self.lo) = (hi, lo);
    }
}

/// Inputs close, volume: on-balance volume.
pub(crate) struct OnBalance {
    /// The close before, NaN before the first defined bar.
    before: Row,
    state: Row,
}

impl OnBalance {
    pub fn new() -> Self {
        Self { before: Row::NA, state: Row::ZERO }
    }
}

impl Step for OnBalance {
    #[inline(always)]
    fn run(&mut self, inputs: &[View<'_>], out: &mut Out<'_>, rows: Range<usize>) {
        let (mut before, mut state) = (self.before, self.state);
        for t in rows {
            let (close, volume) = (inputs[0].row(t), inputs[1].row(t));
            let mut row = Row::NA;
            for lane in 0..LANES {
                let (c, v, b) = (close.0[lane], volume.0[lane], before.0[lane]);
                let defined = c.is_finite() & v.is_finite();
                let up = if c > b || b.is_nan() { v } else { 0.0 };
                let signed = if c < b { -v } else { up };
                let after = state.0[lane] + signed;
                state.0[lane] = if defined { after } else { state.0[lane] };
                before.0[lane] = if defined { c } else { b };
                row.0[lane] = if defined { after } else { f64::NAN };
            }
            out.set(t, row);
        }
        (self.before, self.state) = (before, state);
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
