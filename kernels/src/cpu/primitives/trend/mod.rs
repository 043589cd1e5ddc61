//! The steps of Adaptive Trend Classification: averages in which NA is data, grown returns, the signal of a family of
//! averages and what following it earns.
//!
//! Averages of one series whose windows nest are computed in one pass over it (`windows`, `kaufman`), recursive ones
//! side by side (`exponential`); each has the same bits as if computed alone. On a flat series each average is exactly
//! the value, since it is the value plus a mean of differences, so ties do not count as crossings.

#[cfg(test)]
mod cuts;
mod exponential;
#[cfg(test)]
mod golden;
mod kaufman;
mod signal;
mod windows;

use trawl_plan::family::{Trend, hull_half};
use trawl_plan::graph::Op;

pub(crate) use exponential::Exponentials;
pub(crate) use kaufman::Kaufmans;
pub(crate) use signal::{FamilySignal, GrownReturn, SignalEquity, Tables, TrendVote, growth_of};
pub(crate) use windows::Windows;

use crate::cpu::simd::float::Real;
use crate::cpu::simd::pack::{Mask, Pack};
use crate::cpu::simd::vector::{RowOf, View};

/// Maximum number of averages computed in one pass.
pub(crate) const TOGETHER_MAX: usize = 27;

/// An average of a family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TrendMean {
    pub family: Trend,
    pub len: u32,
}

/// The kinds of passes that compute averages together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Pass {
    Window,
    Exponential,
    Kaufman,
}

/// The kind of pass that computes a family of averages.
pub(crate) fn pass_of(family: Trend) -> Pass {
    match family {
        Trend::Wma | Trend::Lsma | Trend::Hma => Pass::Window,
        Trend::Ema | Trend::Dema => Pass::Exponential,
        Trend::Kama => Pass::Kaufman,
    }
}

impl TrendMean {
    pub fn op(self) -> Op {
        Op::TrendMean { family: self.family, len: self.len }
    }

    fn bars(self) -> usize {
        self.len as usize
    }

    /// Rows before the current one in its longest window.
    fn window(self) -> usize {
        self.family.window(self.len)
    }

    /// Values before the current one that are smoothed.
    fn smoothed_over(self) -> usize {
        self.family.smoothed_over(self.len)
    }

    /// Hull's shorter window.
    fn hull_half(self) -> usize {
        hull_half(self.len) as usize
    }

    /// Hull's smoothing window.
    fn hull_smooth(self) -> usize {
        self.bars().isqrt()
    }
}

/// Rows before the current one that a pass of averages reads: its longest window plus Hull's longest smoothing.
pub(crate) fn reads_back(means: &[TrendMean]) -> usize {
    let window = means.iter().map(|m| m.window()).max().unwrap_or(0);
    let smooth = means.iter().map(|m| m.smoothed_over()).max().unwrap_or(0);
    window + smooth
}

/// Rows of private state of the averages over `bars` bars.
pub(crate) fn rows(means: &[TrendMean], bars: usize) -> usize {
    let back = reads_back(means).min(bars);
    let each = |m: &TrendMean| if m.family == Trend::Hma { 2 * m.hull_smooth().min(bars) + 8 } else { 8 };
    2 * (back + <f64 as Real>::STRIP_BARS) + means.iter().map(each).sum::<usize>()
}

/// A series around a strip: the bars before it and its own, side by side, infinities taken for NA.
struct Recent<T> {
    back: usize,
    rows: Vec<RowOf<T>>,
}

impl<T: Real> Recent<T> {
    /// With `back` bars before each strip.
    fn new(back: usize) -> Self {
        Self { back, rows: vec![RowOf::NA; back + T::STRIP_BARS] }
    }

    /// Loads bars `start..end`, at most a strip, and those before. Returns whether all of them are finite.
    #[inline(always)]
    fn take<V: Pack<T>>(&mut self, input: &View<'_, T>, start: usize, end: usize) -> bool {
        let mut size = V::zero();
        for (i, row) in self.rows[..self.back + end - start].iter_mut().enumerate() {
            let x = match (start + i).checked_sub(self.back) {
                Some(t) => V::load(input.at(t)).defined(),
                None => V::na(),
            };
            // NA stays NA in a sum.
            size = size + x * V::zero();
            x.store(row);
        }
        size.eq(V::zero()).all()
    }

    /// The rows up to and including the bar `at` bars after the strip's first one.
    #[inline(always)]
    fn until(&self, at: usize) -> &[RowOf<T>] {
        &self.rows[..=self.back + at]
    }
}
