//! Primitives that are families: which of their results is meant, and their constants.

use crate::op::Bits;

/// Families of averages that a trend classification follows (see [`crate::graph::Op::TrendMean`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Trend {
    /// Exponential mean.
    Ema,
    /// Hull's mean: weighted means of two windows, smoothed by a third.
    Hma,
    /// Linearly weighted mean.
    Wma,
    /// Double exponential mean.
    Dema,
    /// End of the least-squares line through the window.
    Lsma,
    /// Kaufman's adaptive mean.
    Kama,
}

impl Trend {
    /// Whether the average depends on how many bars there were: then that is its second input.
    pub fn counts_bars(self) -> bool {
        matches!(self, Self::Ema | Self::Dema | Self::Kama)
    }

    /// Bars before the current one in the longest window of an average over `len`.
    pub fn window(self, len: u32) -> usize {
        let len_bars = len as usize;
        match self {
            Self::Ema | Self::Dema => 0,
            Self::Wma | Self::Lsma => len_bars.saturating_sub(1),
            Self::Hma => len_bars.max(hull_half(len) as usize).saturating_sub(1),
            Self::Kama => len_bars,
        }
    }

    /// Values before the current one that an average over `len` smooths once more.
    pub fn smoothed_over(self, len: u32) -> usize {
        match self {
            Self::Hma => (len.isqrt() as usize).saturating_sub(1),
            Self::Ema | Self::Wma | Self::Dema | Self::Lsma | Self::Kama => 0,
        }
    }

    /// Bars before the current one that an average over `len` reads.
    pub fn reads_back(self, len: u32) -> usize {
        self.window(len) + self.smoothed_over(len)
    }
}

/// Bars of Hull's shorter window where the longer has one: pandas_ta takes ten.
const HULL_HALF_OF_ONE: u32 = 10;

/// Hull's shorter window.
pub fn hull_half(len: u32) -> u32 {
    if len < 2 { HULL_HALF_OF_ONE } else { len / 2 }
}

/// Results of Ehlers' dominant cycle (see [`crate::graph::Op::Hilbert`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Cycle {
    /// Smoothed period in bars.
    Period,
    /// In-phase component of the price.
    InPhase,
    /// Quadrature component of the price, a quarter cycle from the other.
    Quadrature,
    /// Degrees, above -45 and up to 315.
    Phase,
    /// Sine of the phase.
    Sine,
    /// Sine 45 degrees ahead.
    LeadSine,
    /// Weighted mean of the last four means of the price over a period.
    Trendline,
    /// 1 in a trend, 0 in a cycle.
    TrendMode,
}

impl Cycle {
    /// Whether TA-Lib gives it from the 33rd bar on; the others from the 64th.
    pub fn is_early(self) -> bool {
        matches!(self, Self::Period | Self::InPhase | Self::Quadrature)
    }
}

/// Results of the adaptive mean that follows the cycle's phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mesa {
    /// The mean.
    Mama,
    /// The mean of that mean, at half its factor.
    Fama,
}

/// Where an anchored mean begins in each period (see [`crate::graph::Op::AnchoredMean`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Anchor {
    /// With the first bar.
    Start,
    /// Anew with each bar whose key is larger than all before it in the period.
    Highest,
    /// Anew with each bar whose key is smaller than all before it in the period.
    Lowest,
}

/// Results of the super trend.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SuperTrend {
    /// The band that the trend leans on.
    Line,
    /// 1 up, -1 down.
    Trend,
}

/// Acceleration of a parabolic stop in one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Acceleration {
    /// Factor when the direction begins.
    pub start: Bits,
    /// Added to the factor at each new extreme.
    pub step: Bits,
    /// The largest factor.
    pub most: Bits,
}

/// Constants of a parabolic stop (see [`crate::graph::Op::Parabolic`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Parabolic {
    /// The first stop: long at a positive one, short at the magnitude of a negative one; 0 leaves it to the first bars.
    pub start: Bits,
    /// Share of the stop that is added to it, away from the price, when it reverses.
    pub offset: Bits,
    /// While the stop is below the price.
    pub long: Acceleration,
    /// While the stop is above the price.
    pub short: Acceleration,
    /// Whether a stop above the price is given as a negative number.
    pub signed: bool,
}
