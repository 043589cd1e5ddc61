//! Windows that are looked at whole at every bar: their cost grows with the period, nothing drifts, nothing is carried.

use std::ops::Range;

use super::carry::carries_nothing;
use super::lanes::{LANES, Out, Row, Step, View};

/// Share of the `p` values before the current one that are below it, in percent.
pub(crate) struct PercentRank {
    pub p: usize,
}

impl Step for PercentRank {
    carries_nothing!();

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

/// Pearson's correlation. Inputs x, y, taken less their current values, so that nothing cancels and a series that does
/// not vary is exactly 0.
pub(crate) struct Correlation {
    pub p: usize,
}

impl Step for Correlation {
    carries_nothing!();

    #[inline(always)]
    fn run(&mut self, inputs: &[View<'_>], out: &mut Out<'_>, rows: Range<usize>) {
        let p = self.p;
        for t in rows {
            if t + 1 < p {
                out.set(t, Row::NA);
                continue;
            }
            let Joint { xx, yy, xy } = Joint::of(inputs, t, p);
            let row = xy.map(|lane, xy| {
                // An NA or infinity in the window has made every sum NaN.
                let flat = (xx.0[lane] == 0.0 || yy.0[lane] == 0.0) && !xy.is_nan();
                let ratio = xy / (xx.0[lane].sqrt() * yy.0[lane].sqrt());
                if flat { 0.0 } else { ratio }
            });
            out.set(t, row);
        }
    }
}

/// Inputs x, y: slope of the line of y over x.
pub(crate) struct Beta {
    pub p: usize,
}

impl Step for Beta {
    carries_nothing!();

    #[inline(always)]
    fn run(&mut self, inputs: &[View<'_>], out: &mut Out<'_>, rows: Range<usize>) {
        let p = self.p;
        for t in rows {
            if t + 1 < p {
                out.set(t, Row::NA);
                continue;
            }
            let Joint { xx, xy, .. } = Joint::of(inputs, t, p);
            let row = xy.map(|lane, xy| {
                let flat = xx.0[lane] == 0.0 && !xy.is_nan();
                let slope = xy / xx.0[lane];
                if flat { 0.0 } else { slope }
            });
            out.set(t, row);
        }
    }
}

/// Sums of the products of two series' distances to their means over a window.
struct Joint {
    xx: Row,
    yy: Row,
    xy: Row,
}

impl Joint {
    /// Of the `p` bars up to `t`.
    #[inline(always)]
    fn of(inputs: &[View<'_>], t: usize, p: usize) -> Self {
        let window = t + 1 - p..t + 1;
        let (x_now, y_now) = (inputs[0].row(t), inputs[1].row(t));
        let (mut mean_x, mut mean_y) = (Row::ZERO, Row::ZERO);
        for j in window.clone() {
            let (x, y) = (inputs[0].row(j), inputs[1].row(j));
            for lane in 0..LANES {
                mean_x.0[lane] += x.0[lane] - x_now.0[lane];
                mean_y.0[lane] += y.0[lane] - y_now.0[lane];
            }
        }
        let (mean_x, mean_y) = (mean_x.map(|_, s| s / p as f64), mean_y.map(|_, s| s / p as f64));
        let (mut xx, mut yy, mut xy) = (Row::ZERO, Row::ZERO, Row::ZERO);
        for j in window {
            let (x, y) = (inputs[0].row(j), inputs[1].row(j));
            for lane in 0..LANES {
                let dx = (x.0[lane] - x_now.0[lane]) - mean_x.0[lane];
                let dy = (y.0[lane] - y_now.0[lane]) - mean_y.0[lane];
                xx.0[lane] += dx * dx;
                yy.0[lane] += dy * dy;
                xy.0[lane] += dx * dy;
            }
        }
        Self { xx, yy, xy }
    }
}
