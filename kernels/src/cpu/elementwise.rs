//! Steps without state: functions of the current bar, and lags.

use std::ops::Range;

use super::lanes::{LANES, Out, Row, Step, View};

/// A function of one series.
pub(crate) struct Map1<F>(pub F);

impl<F: Fn(f64) -> f64 + Send> Step for Map1<F> {
    #[inline(always)]
    fn run(&mut self, inputs: &[View<'_>], out: &mut Out<'_>, rows: Range<usize>) {
        for t in rows {
            let a = inputs[0].row(t);
            out.set(t, a.map(|_, x| (self.0)(x)));
        }
    }
}

/// A function of two series.
pub(crate) struct Map2<F>(pub F);

impl<F: Fn(f64, f64) -> f64 + Send> Step for Map2<F> {
    #[inline(always)]
    fn run(&mut self, inputs: &[View<'_>], out: &mut Out<'_>, rows: Range<usize>) {
        for t in rows {
            let (a, b) = (inputs[0].row(t), inputs[1].row(t));
            out.set(t, a.map(|lane, x| (self.0)(x, b.0[lane])));
        }
    }
}

/// A function of three series.
pub(crate) struct Map3<F>(pub F);

impl<F: Fn(f64, f64, f64) -> f64 + Send> Step for Map3<F> {
    #[inline(always)]
    fn run(&mut self, inputs: &[View<'_>], out: &mut Out<'_>, rows: Range<usize>) {
        for t in rows {
            let (a, b, c) = (inputs[0].row(t), inputs[1].row(t), inputs[2].row(t));
            out.set(t, a.map(|lane, x| (self.0)(x, b.0[lane], c.0[lane])));
        }
    }
}

/// The value some bars earlier.
pub(crate) struct Lag(pub usize);

impl Step for Lag {
    #[inline(always)]
    fn run(&mut self, inputs: &[View<'_>], out: &mut Out<'_>, rows: Range<usize>) {
        for t in rows {
            out.set(t, inputs[0].back(t, self.0));
        }
    }
}

/// a crosses b: `above(now)` and the opposite one bar ago; NA when one of the four is not finite.
pub(crate) struct Crosses {
    pub above: bool,
}

impl Step for Crosses {
    #[inline(always)]
    fn run(&mut self, inputs: &[View<'_>], out: &mut Out<'_>, rows: Range<usize>) {
        let (a, b) = if self.above { (inputs[0], inputs[1]) } else { (inputs[1], inputs[0]) };
        for t in rows {
            let (x, y, before_x, before_y) = (a.row(t), b.row(t), a.back(t, 1), b.back(t, 1));
            let mut row = Row::NA;
            for lane in 0..LANES {
                let four = [x.0[lane], y.0[lane], before_x.0[lane], before_y.0[lane]];
                let truth = f64::from(u8::from(four[0] > four[1] && four[2] <= four[3]));
                let defined = four[0].is_finite() & four[1].is_finite() & four[2].is_finite() & four[3].is_finite();
                row.0[lane] = if defined { truth } else { f64::NAN };
            }
            out.set(t, row);
        }
    }
}
