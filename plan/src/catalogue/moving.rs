//! TA-Lib's moving averages: what `*matype` parameters choose among.

use super::expression::Num;
use crate::family::Mesa;
use crate::graph::Op;

// TA-Lib's numbers of them.
pub(super) const SMA: u32 = 0;
pub(super) const EMA: u32 = 1;
pub(super) const WMA: u32 = 2;
pub(super) const DEMA: u32 = 3;
pub(super) const TEMA: u32 = 4;
pub(super) const TRIMA: u32 = 5;
pub(super) const KAMA: u32 = 6;
pub(super) const MAMA: u32 = 7;
pub(super) const T3: u32 = 8;
pub(super) const HMA: u32 = 9;
pub(super) const DISABLED: u32 = 10;
pub(super) const DEFAULT: u32 = 11;
pub(super) const ZLEMA: u32 = 12;
pub(super) const RMA: u32 = 13;

/// T3's volume factor where no parameter says it.
pub(super) const T3_FACTOR: f64 = 0.7;

/// Limits of the adaptive mean where no parameter says them.
pub(super) const MESA_FAST: f64 = 0.5;
pub(super) const MESA_SLOW: f64 = 0.05;

/// Bars that [`Num::average`] needs before its first.
pub(super) fn average_look_back(kind: u32, p: u32) -> u32 {
    match kind {
        _ if p == 1 => 0,
        DEMA => 2 * (p - 1),
        TEMA => 3 * (p - 1),
        KAMA => p,
        MAMA => 32,
        T3 => 6 * (p - 1),
        HMA => p + p.isqrt() - 2,
        DISABLED => 0,
        ZLEMA => (p - 1) / 2 + p - 1,
        _ => p - 1,
    }
}

impl Num<'_> {
    /// The moving average with TA-Lib's number `kind` (one of [`super::AVERAGES`]) over `p` bars; one bar is the series
    /// itself.
    pub(super) fn average(self, kind: u32, p: u32) -> Self {
        match kind {
            _ if p == 1 => self,
            EMA => self.ema(p),
            WMA => self.wma(p),
            DEMA => self.dema(p),
            TEMA => self.tema(p),
            TRIMA => self.trima(p),
            KAMA => self.kama(p),
            MAMA => self.mesa(MESA_FAST, MESA_SLOW, Mesa::Mama),
            T3 => self.t3(p, T3_FACTOR),
            HMA => self.hma(p),
            DISABLED => self,
            ZLEMA => self.zlema(p),
            RMA => self.wilder(p),
            _ => self.mean(p),
        }
    }

    /// [`Self::average`] as TA-Lib computes it from a given bar on: over the values from which it is first defined after
    /// `look_back` of them, which must be at least its own.
    pub(super) fn average_after(self, kind: u32, p: u32, look_back: u32) -> Self {
        self.skip(look_back.saturating_sub(average_look_back(kind, p))).average(kind, p)
    }

    /// Exponential mean, seeded with the mean of its first `p` values.
    pub(super) fn ema(self, p: u32) -> Self {
        if p == 1 { self } else { self.step(Op::Ema { p, delay: 0 }) }
    }

    /// Wilder's mean, seeded with the mean of its first `p` values.
    pub(super) fn wilder(self, p: u32) -> Self {
        if p == 1 { self } else { self.step(Op::Wilder(p)) }
    }

    /// Mean whose weights rise by one to the newest value.
    pub(super) fn wma(self, p: u32) -> Self {
        if p == 1 { self } else { self.step(Op::WeightedMean(p)) }
    }

    /// Double exponential mean.
    fn dema(self, p: u32) -> Self {
        let once = self.ema(p);
        2.0 * once - once.ema(p)
    }

    /// Triple exponential mean.
    fn tema(self, p: u32) -> Self {
        let once = self.ema(p);
        let twice = once.ema(p);
        3.0 * (once - twice) + twice.ema(p)
    }

    /// Weights rise to the middle of the window and fall again: a mean of means.
    fn trima(self, p: u32) -> Self {
        self.mean(p.div_ceil(2)).mean(p / 2 + 1)
    }

    /// Kaufman's adaptive mean.
    fn kama(self, p: u32) -> Self {
        if p == 1 {
            return self;
        }
        let before = self.lag(1);
        let noise = (self - before).abs().sum(p);
        self.formula.step(Op::Kaufman, &[self, before, self.lag(p), noise])
    }

    /// Tillson's T3: six exponential means over each other, the last four mixed by `factor`.
    pub(super) fn t3(self, p: u32, factor: f64) -> Self {
        if p == 1 {
            return self;
        }
        let e3 = self.ema(p).ema(p).ema(p);
        let e4 = e3.ema(p);
        let e5 = e4.ema(p);
        let e6 = e5.ema(p);
        let (v, v2) = (factor, factor * factor);
        let v3 = v2 * v;
        let c1 = -v3;
        let c2 = 3.0 * (v2 + v3);
        let c3 = -6.0 * v2 - 3.0 * (v + v3);
        let c4 = 1.0 + 3.0 * v + v3 + 3.0 * v2;
        c4 * e3 + c3 * e4 + c2 * e5 + c1 * e6
    }

    /// Ehlers' adaptive mean, or the mean that follows it.
    pub(super) fn mesa(self, fast: f64, slow: f64, result: Mesa) -> Self {
        self.step(Op::Mesa { fast: fast.into(), slow: slow.into(), result })
    }

    /// Hull's average; half and square root of the period are cut off to whole numbers.
    fn hma(self, p: u32) -> Self {
        (2.0 * self.wma(p / 2) - self.wma(p)).wma(p.isqrt())
    }

    /// Exponential mean without lag.
    fn zlema(self, p: u32) -> Self {
        (2.0 * self - self.lag((p - 1) / 2)).ema(p)
    }
}
