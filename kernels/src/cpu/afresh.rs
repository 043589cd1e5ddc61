//! Windows that are looked at whole at every bar: their cost grows with the period, nothing drifts, nothing is carried.

use std::ops::Range;

use trawl_plan::scalar::TALIB_EPSILON;

use super::lanes::{LANES, Out, Row, Step, View};

/// Share of the `p` values before the current one that are below it, in percent.
pub(crate) struct PercentRank {
    pub p: usize,
}

impl Step for PercentRank {
    #[inline(always)]
    fn run(&mut self, inputs: &[View<'_>], out: &mut Out<'_>, rows: Range<usize>) {
        let p = self.p;
        for t in rows {
            if t < p {
                out.set(t, Row::NA);
                continue;
            }
            let current = inputs[0].row(t);
            let (mut below, mut defined) = (Row::ZERO, Row::ZERO);
            for j in t - p..t {
                let x = inputs[0].row(j);
                for lane in 0..LANES {
                    let x = x.0[lane];
                    below.0[lane] += f64::from(u8::from(x < current.0[lane]));
                    defined.0[lane] += f64::from(u8::from(x.is_finite()));
                }
            }
            let whole = p as f64;
            let row = below.map(|lane, below| {
                let known = defined.0[lane] == whole && current.0[lane].is_finite();
                if known { below / whole * 100.0 } else { f64::NAN }
            });
            out.set(t, row);
        }
    }
}

/// Pearson's correlation. Inputs x, y. The means are taken away before anything is multiplied, so nothing cancels.
pub(crate) struct Correlation {
    pub p: usize,
}

impl Step for Correlation {
    #[inline(always)]
    fn run(&mut self, inputs: &[View<'_>], out: &mut Out<'_>, rows: Range<usize>) {
        let p = self.p;
        for t in rows {
            if t + 1 < p {
                out.set(t, Row::NA);
                continue;
            }
            let window = t + 1 - p..t + 1;
            let (mut mean_x, mut mean_y) = (Row::ZERO, Row::ZERO);
            for j in window.clone() {
                let (x, y) = (inputs[0].row(j), inputs[1].row(j));
                for lane in 0..LANES {
                    mean_x.0[lane] += x.0[lane];
                    mean_y.0[lane] += y.0[lane];
                }
            }
            let (mean_x, mean_y) = (mean_x.map(|_, s| s / p as f64), mean_y.map(|_, s| s / p as f64));
            let (mut xx, mut yy, mut xy) = (Row::ZERO, Row::ZERO, Row::ZERO);
            for j in window {
                let (x, y) = (inputs[0].row(j), inputs[1].row(j));
                for lane in 0..LANES {
                    let (dx, dy) = (x.0[lane] - mean_x.0[lane], y.0[lane] - mean_y.0[lane]);
                    xx.0[lane] += dx * dx;
                    yy.0[lane] += dy * dy;
                    xy.0[lane] += dx * dy;
                }
            }
            let row = xy.map(|lane, xy| {
                let spread = xx.0[lane] * yy.0[lane];
                let flat = spread < TALIB_EPSILON;
                let ratio = xy / spread.sqrt();
                // An NA or infinity in the window has made every sum NaN.
                if flat { 0.0 } else { ratio }
            });
            out.set(t, row);
        }
    }
}
