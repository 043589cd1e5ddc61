//! Primitives that are families: which of their results is meant, and their constants.

use crate::op::Bits;

/// Families of averages that a trend classification follows (see [`crate::graph::Op::TrendMean`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Trend {
    Ema,
    Hma,
    Wma,
    Dema,
    Lsma,
    Kama,
}

impl Trend {
    /// Whether the average depends on how many bars there were: then that is its second input.
    pub fn counts_bars(self) -> bool {
        matches!(self, Self::Ema | Self::Dema | Self::Kama)
    }
}

/// Results of Ehlers' dominant cycle (see [`crate::graph::Op::Hilbert`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Cycle {
    /// Smoothed period in bars.
    Period,
    InPhase,
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

/// Stretches of time by the dataset's calendar.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Period {
    /// From the open of a regular session to the next one.
    Session,
    /// A trading day, its early and late trading included.
    Day,
    Week,
    Month,
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
    pub start: Bits,
    pub step: Bits,
    pub most: Bits,
}

/// Constants of a parabolic stop (see [`crate::graph::Op::Parabolic`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Parabolic {
    /// The first stop: long at a positive one, short at the magnitude of a negative one; 0 leaves it to the first bars.
    pub start: Bits,
    /// Share of the stop that is added to it, away from the price, when it reverses.
    pub offset: Bits,
    pub long: Acceleration,
    pub short: Acceleration,
    /// Whether a stop above the price is given as a negative number.
    pub signed: bool,
}
