//! Steps that select which values count.

use std::ops::Range;

use crate::cpu::primitives::scalar_step::ScalarStep;
use crate::cpu::simd::state_io::carries_nothing;
use crate::cpu::simd::vector::{Out, Row, Step, View};

/// NA for the first `self.0` defined values, then the input.
pub(crate) struct Skip(pub u32);

impl ScalarStep<1> for Skip {
    /// Number of values still to skip.
    type State = u32;

    fn start(&self) -> u32 {
        self.0
    }

    #[inline(always)]
    fn next(&self, left: &mut u32, [x]: [f64; 1]) -> f64 {
        if *left == 0 || !x.is_finite() {
            return x;
        }
        *left -= 1;
        f64::NAN
    }
}

/// Inputs x, periods: the mean over as many bars as the current value of `periods`, truncated to a whole number and
/// clamped to `least..=most`.
pub(crate) struct VariableMean {
    pub least: u32,
    pub most: u32,
}

impl Step for VariableMean {
    carries_nothing!();

    #[inline(always)]
    fn run(&mut self, inputs: &[View<'_>], out: &mut Out<'_>, rows: Range<usize>) {
        let (least, most) = (f64::from(self.least), f64::from(self.most));
        for t in rows {
            let periods = inputs[1].row(t);
            out.set(
                t,
                Row::NA.map(|lane, _| {
                    let period = periods.0[lane];
                    let p = period.clamp(least, most) as usize;
                    if !period.is_finite() || t + 1 < p {
                        return f64::NAN;
                    }
                    let sum: f64 = (t + 1 - p..t + 1).map(|j| inputs[0].row(j).0[lane]).sum();
                    let mean = sum / p as f64;
                    if mean.is_finite() { mean } else { f64::NAN }
                }),
            );
        }
    }
}

/// Inputs open, close, mean price: the open of Heikin-Ashi candles, half way between the last candle's open and close,
/// which is the bar's mean price; the first is half way between the bar's own.
pub(crate) struct HeikinAshi;

impl ScalarStep<3> for HeikinAshi {
    /// The next open, NaN before the first bar.
    type State = f64;

    fn start(&self) -> f64 {
        f64::NAN
    }

    #[inline(always)]
    fn next(&self, next: &mut f64, [open, close, mean]: [f64; 3]) -> f64 {
        if !(open.is_finite() && close.is_finite() && mean.is_finite()) {
            return f64::NAN;
        }
        let now = if next.is_nan() { (open + close) / 2.0 } else { *next };
        *next = (now + mean) / 2.0;
        now
    }
}
