//! Steps that several indicators share.

use super::expression::{Num, Truth};
use crate::graph::Binary;
use crate::scalar::TALIB_EPSILON;

/// (high + low + close)/3
pub(super) fn typical<'f>(high: Num<'f>, low: Num<'f>, close: Num<'f>) -> Num<'f> {
    (high + low + close) / 3.0
}

/// max(high - low, |high - close[1]|, |low - close[1]|)
pub(super) fn true_range<'f>(high: Num<'f>, low: Num<'f>, close: Num<'f>) -> Num<'f> {
    let before = close.lag(1);
    (high - low).maximum((high - before).abs()).maximum((low - before).abs())
}

impl<'f> Num<'f> {
    /// x - x[bars]
    pub(super) fn change(self, bars: u32) -> Self {
        self - self.lag(bars)
    }

    /// (x - x[bars])/x[bars]; 0 where x[bars] is 0.
    pub(super) fn rate_of_change(self, bars: u32) -> Self {
        let change = self.change(bars);
        // An infinity over 0 is no 0.
        change.ratio_or_zero(self.lag(bars)).where_finite(change)
    }

    /// A change where it is positive, else 0, and its opposite where that is positive, else 0; both are defined on the
    /// same bars.
    pub(super) fn rises_and_falls(self) -> [Self; 2] {
        let change = self.where_finite(self);
        [change.maximum(0.0), (-change).maximum(0.0)]
    }

    /// Window sum of |x - x[1]|.
    pub(super) fn path(self, bars: u32) -> Self {
        self.change(1).abs().sum(bars)
    }

    /// The least-squares line through the last `p` values, `ahead` bars after their middle.
    pub(super) fn regression(self, p: u32, ahead: f64) -> Self {
        self.mean(p) + self.slope(p) * ahead
    }

    /// 100*g/(g + l), g and l being Wilder's means of the gains and of the losses; 0 when both are 0.
    pub(super) fn relative_strength(self, p: u32) -> Self {
        let [gain, loss] = self.change(1).rises_and_falls().map(|part| part.wilder(p));
        100.0 * gain.ratio_or_zero(gain + loss)
    }

    /// Whether this difference, of values near `a` and `b`, is more than TA-Lib takes for their rounding: 1e-14 of
    /// |a| + |b|.
    pub(super) fn beyond_rounding(self, a: Self, b: Self) -> Truth<'f> {
        self.above((a.abs() + b.abs()) * TALIB_EPSILON)
    }

    /// IEEE's quotient: an infinity where the divisor alone is 0.
    pub(super) fn quotient(self, divisor: Self) -> Self {
        self.binary(Binary::Quotient, divisor)
    }
}
