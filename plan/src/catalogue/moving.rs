//! TA-Lib's moving averages as formulas over primitives: what `*matype` parameters choose among.

use super::Formula;
use crate::family::Mesa;
use crate::graph::{NodeId, Op};

/// T3's volume factor where no parameter says it.
pub(super) const T3_FACTOR: f64 = 0.7;

/// Limits of the adaptive mean where no parameter says them.
pub(super) const MESA_FAST: f64 = 0.5;
pub(super) const MESA_SLOW: f64 = 0.05;

impl Formula<'_> {
    /// The moving average with TA-Lib's number `kind` (one of [`super::AVERAGES`]) over `p` bars; one bar is the series
    /// itself.
    pub fn average(&mut self, kind: f64, x: NodeId, p: u32) -> NodeId {
        match kind as u32 {
            _ if p == 1 => x,
            1 => self.exponential(x, p),
            2 => self.weighted(x, p),
            3 => self.double_exponential(x, p),
            4 => self.triple_exponential(x, p),
            5 => self.triangular(x, p),
            6 => self.kaufman(x, p),
            7 => self.mesa(x, MESA_FAST, MESA_SLOW, Mesa::Mama),
            8 => self.tillson(x, p, T3_FACTOR),
            9 => self.hull(x, p),
            10 => x,
            12 => self.zero_lag(x, p),
            13 => self.wilder(x, p),
            _ => self.step(Op::Mean(p), x),
        }
    }

    /// Bars that [`Self::average`] needs before its first.
    pub fn average_look_back(kind: f64, p: u32) -> u32 {
        match kind as u32 {
            _ if p == 1 => 0,
            3 => 2 * (p - 1),
            4 => 3 * (p - 1),
            6 => p,
            7 => 32,
            8 => 6 * (p - 1),
            9 => p + p.isqrt() - 2,
            10 => 0,
            12 => (p - 1) / 2 + p - 1,
            _ => p - 1,
        }
    }

    /// [`Self::average`] as TA-Lib computes it from a given bar on: over the values from which it is first defined after
    /// `look_back` of them, which must be at least its own.
    pub fn average_after(&mut self, kind: f64, x: NodeId, p: u32, look_back: u32) -> NodeId {
        let x = self.skip(x, look_back.saturating_sub(Self::average_look_back(kind, p)));
        self.average(kind, x, p)
    }

    /// The series without its first `count` defined values.
    pub fn skip(&mut self, x: NodeId, count: u32) -> NodeId {
        if count == 0 { x } else { self.step(Op::Skip(count), x) }
    }

    /// Exponential mean, seeded with the mean of its first `p` values.
    pub fn exponential(&mut self, x: NodeId, p: u32) -> NodeId {
        if p == 1 { x } else { self.step(Op::Exponential { p, delay: 0 }, x) }
    }

    /// Wilder's mean, seeded with the mean of its first `p` values.
    pub fn wilder(&mut self, x: NodeId, p: u32) -> NodeId {
        if p == 1 { x } else { self.step(Op::Wilder(p), x) }
    }

    fn weighted(&mut self, x: NodeId, p: u32) -> NodeId {
        if p == 1 { x } else { self.step(Op::WeightedMean(p), x) }
    }

    fn double_exponential(&mut self, x: NodeId, p: u32) -> NodeId {
        let once = self.exponential(x, p);
        let twice = self.exponential(once, p);
        let double = self.scale(once, 2.0);
        self.subtract(double, twice)
    }

    fn triple_exponential(&mut self, x: NodeId, p: u32) -> NodeId {
        let once = self.exponential(x, p);
        let twice = self.exponential(once, p);
        let thrice = self.exponential(twice, p);
        let apart = self.subtract(once, twice);
        let apart = self.scale(apart, 3.0);
        self.add(apart, thrice)
    }

    /// Weights rise to the middle of the window and fall again: a mean of means.
    fn triangular(&mut self, x: NodeId, p: u32) -> NodeId {
        let inner = self.step(Op::Mean(p.div_ceil(2)), x);
        self.step(Op::Mean(p / 2 + 1), inner)
    }

    /// Tillson's T3: six exponential means over each other, the last four mixed by `factor`.
    pub fn tillson(&mut self, x: NodeId, p: u32, factor: f64) -> NodeId {
        if p == 1 {
            return x;
        }
        let mut means = [x; 6];
        let mut last = x;
        for mean in &mut means {
            last = self.exponential(last, p);
            *mean = last;
        }
        let (v, v2) = (factor, factor * factor);
        let v3 = v2 * v;
        let weights = [1.0 + 3.0 * v + v3 + 3.0 * v2, -6.0 * v2 - 3.0 * (v + v3), 3.0 * (v2 + v3), -v3];
        let mut mixed = self.scale(means[2], weights[0]);
        for (mean, weight) in means[3..].iter().zip(&weights[1..]) {
            let part = self.scale(*mean, *weight);
            mixed = self.add(mixed, part);
        }
        mixed
    }

    /// Ehlers' adaptive mean, or the mean that follows it.
    pub fn mesa(&mut self, x: NodeId, fast: f64, slow: f64, result: Mesa) -> NodeId {
        self.step(Op::Mesa { fast: fast.into(), slow: slow.into(), result }, x)
    }

    /// Hull's average; half and square root of the period are cut off to whole numbers.
    fn hull(&mut self, x: NodeId, p: u32) -> NodeId {
        let half = self.weighted(x, p / 2);
        let whole = self.weighted(x, p);
        let double = self.scale(half, 2.0);
        let ahead = self.subtract(double, whole);
        self.weighted(ahead, p.isqrt())
    }

    /// Exponential mean of 2x - x[(p-1)/2].
    fn zero_lag(&mut self, x: NodeId, p: u32) -> NodeId {
        let before = self.lag(x, (p - 1) / 2);
        let double = self.scale(x, 2.0);
        let ahead = self.subtract(double, before);
        self.exponential(ahead, p)
    }
}
