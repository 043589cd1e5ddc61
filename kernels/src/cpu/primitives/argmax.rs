//! The position of the extreme of a window.

use std::ops::Range;

use crate::cpu::primitives::rolling_sums::{tail_bars, window_start};
use crate::cpu::simd::state_io::{Carrier, Carry as _, carries_nothing};
use crate::cpu::simd::vector::{LANES, Out, Row, Step, View};

/// An extreme and its bar, per lane. An undefined value makes it NaN permanently.
#[derive(Clone, Copy)]
struct Peak {
    value: Row,
    bar: Row,
}

impl Peak {
    const NONE: Self = Self { value: Row([f64::NEG_INFINITY; LANES]), bar: Row::ZERO };

    /// Takes over `other` in lanes where it is more extreme, or equal and not `stays`; NaN takes precedence.
    #[inline(always)]
    fn join(&mut self, other: &Self, stays: bool) {
        for lane in 0..LANES {
            let (held, new) = (self.value.0[lane], other.value.0[lane]);
            let beyond = if stays { held >= new } else { held > new };
            let keep = held.is_nan() || (beyond && !new.is_nan());
            self.value.0[lane] = if keep { held } else { new };
            self.bar.0[lane] = if keep { self.bar.0[lane] } else { other.bar.0[lane] };
        }
    }

    fn of(x: &Row, sign: f64, t: usize) -> Self {
        let value = x.map(|_, x| if x.is_finite() { sign * x } else { f64::NAN });
        Self { value, bar: Row([t as f64; LANES]) }
    }
}

/// Bars since the window's maximum, or with `sign` -1 its minimum, the latest of equal ones; found in blocks, as the
/// extreme itself.
pub(crate) struct SinceExtreme {
    p: usize,
    sign: f64,
    tail: Vec<Peak>,
    head: Peak,
    next: usize,
}

impl SinceExtreme {
    pub fn new(p: u32, sign: f64, bars: usize) -> Self {
        let p = p as usize;
        Self { p, sign, tail: vec![Peak::NONE; tail_bars(p, bars)], head: Peak::NONE, next: usize::MAX }
    }
}

impl Step for SinceExtreme {
    carries_nothing!();

    #[inline(always)]
    fn run(&mut self, inputs: &[View<'_>], out: &mut Out<'_>, rows: Range<usize>) {
        let (input, p, sign) = (&inputs[0], self.p, self.sign);
        let fresh = rows.start != self.next;
        self.next = rows.end;
        for t in rows.clone() {
            let offset = t % p;
            if offset == 0 || (fresh && t == rows.start) {
                let block = t - offset;
                let mut peak = Peak::NONE;
                for j in (window_start(t, p)..block).rev() {
                    peak.join(&Peak::of(&input.row(j), sign, j), true);
                    self.tail[j % p] = peak;
                }
                self.head = Peak::NONE;
                for j in block..t {
                    self.head.join(&Peak::of(&input.row(j), sign, j), false);
                }
            }
            self.head.join(&Peak::of(&input.row(t), sign, t), false);
            if t + 1 < p {
                out.set(t, Row::NA);
                continue;
            }
            let mut peak = self.head;
            if offset + 1 < p {
                peak.join(&self.tail[offset + 1], true);
            }
            let now = t as f64;
            out.set(t, peak.bar.map(|lane, bar| if peak.value.0[lane].is_nan() { f64::NAN } else { now - bar }));
        }
    }
}

/// Bar number of the window's maximum, or with `sign` -1 of its minimum, as in TA-Lib: its choice among equal values
/// depends on the bars before the window, so it runs from the first bar.
pub(crate) struct ExtremeIndex {
    p: usize,
    sign: f64,
    /// Per lane: bar and value of the extreme.
    held: [(usize, f64); LANES],
    /// Per lane: the first bar after the last undefined one.
    from: [usize; LANES],
}

impl ExtremeIndex {
    pub fn new(p: u32, sign: f64) -> Self {
        Self { p: p as usize, sign, held: [(0, f64::NEG_INFINITY); LANES], from: [0; LANES] }
    }
}

impl Step for ExtremeIndex {
    fn carry(&mut self, lane: usize, carrier: &mut Carrier<'_>) {
        self.held[lane].carry(carrier);
        self.from[lane].carry(carrier);
    }

    #[inline(always)]
    fn run(&mut self, inputs: &[View<'_>], out: &mut Out<'_>, rows: Range<usize>) {
        let (input, p, sign) = (&inputs[0], self.p, self.sign);
        for t in rows {
            let now = input.row(t);
            let row = now.map(|lane, x| {
                if !x.is_finite() {
                    self.from[lane] = t + 1;
                    return f64::NAN;
                }
                if t + 1 < self.from[lane] + p {
                    return f64::NAN;
                }
                let first = t + 1 - p;
                let held = &mut self.held[lane];
                if first == self.from[lane] || held.0 < first {
                    *held = (first, sign * input.row(first).0[lane]);
                    for j in first + 1..=t {
                        let x = sign * input.row(j).0[lane];
                        if x > held.1 {
                            *held = (j, x);
                        }
                    }
                } else if sign * x >= held.1 {
                    *held = (t, sign * x);
                }
                held.0 as f64
            });
            out.set(t, row);
        }
    }
}
