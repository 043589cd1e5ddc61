//! Whose bars a series runs along, and how one such axis reads another.
//!
//! Every node of a plan lives on one [`Frame`]: the scanned symbol's own bars, those of a reference symbol, or higher
//! bars built from either. Windows and offsets count the frame's own bars. A [`Read`] brings a series to another frame,
//! always from a bar that was closed when the reading bar closed.

use std::fmt;

use trawl_terms::Timeframe;

use crate::graph::NodeId;

/// Index of a frame inside its plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FrameId(pub u16);

impl FrameId {
    /// The scanned symbol's own bars, as the dataset has them.
    pub const OWN: Self = Self(0);
    /// Of constants, which live on every frame.
    pub(crate) const ANY: Self = Self(u16::MAX);

    /// As an index into the plan's frames.
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// Whose bars.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Subject {
    /// The symbol that is scanned.
    Own,
    /// One symbol for all: `ref('SPY', ...)`, by the dataset's own symbol.
    Reference(String),
}

/// Which bars.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum BarSize {
    /// As the dataset has them.
    Base,
    /// Built from the dataset's bars: `tf('1w', ...)`. `forming`: the bar that is not complete yet is the last one.
    Higher {
        /// Length of a higher bar, such as `1w`.
        timeframe: Timeframe,
        /// Whether the bar that is not complete yet is the last one.
        forming: bool,
    },
}

/// An axis of bars.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Frame {
    /// Whose bars they are.
    pub subject: Subject,
    /// Which bars of the subject.
    pub bars: BarSize,
}

impl Frame {
    /// The scanned symbol's own bars.
    pub const OWN: Self = Self { subject: Subject::Own, bars: BarSize::Base };

    /// The symbol that is referred to.
    pub fn reference(&self) -> Option<&str> {
        match &self.subject {
            Subject::Own => None,
            Subject::Reference(symbol) => Some(symbol),
        }
    }
}

impl fmt::Display for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.subject {
            Subject::Own => f.write_str("own")?,
            Subject::Reference(symbol) => write!(f, "{symbol}")?,
        }
        match &self.bars {
            BarSize::Base => Ok(()),
            BarSize::Higher { timeframe, forming: false } => write!(f, " {timeframe}"),
            BarSize::Higher { timeframe, forming: true } => write!(f, " {timeframe} forming"),
        }
    }
}

/// How a bar of one frame finds the bar of another that it reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Read {
    /// The other subject's bar with the same time (of higher bars: of the same period); NA when there is none.
    Same,
    /// The other subject's latest bar at or before this one, if at most so many of this frame's bars are later than it.
    AsOf(u32),
    /// The same subject's last higher bar that was complete when this bar closed.
    Completed,
    /// The same subject's higher bar as it stood when this bar closed, complete or not.
    Forming,
    /// From a higher bar: the same subject's last bar inside it.
    Inside,
}

/// Functions of all symbols at one time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum CrossFunction {
    /// 1 = largest; ties share the smallest rank.
    Rank,
    /// (average ascending rank - 0.5) / n.
    Percent,
    /// (value - mean) / population deviation; NA when that is 0.
    Score,
    /// Value - mean.
    Demean,
    /// Linear interpolation at q between the ordered values; one value for all.
    Quantile(crate::graph::Bits),
    /// Share of true among true and false; one value for all.
    Breadth,
}

impl CrossFunction {
    /// Whether every symbol of a group reads one and the same value.
    pub fn is_market_series(self) -> bool {
        matches!(self, Self::Quantile(_) | Self::Breadth)
    }

    /// As it is called, with its parameter.
    pub fn canonical(self) -> String {
        match self {
            Self::Rank => "xs_rank".to_owned(),
            Self::Percent => "xs_pct".to_owned(),
            Self::Score => "xs_z".to_owned(),
            Self::Demean => "xs_demean".to_owned(),
            Self::Quantile(q) => format!("xs_quantile({:?})", q.value()),
            Self::Breadth => "breadth".to_owned(),
        }
    }
}

/// One cross-section of a plan: what every symbol gives, and what is made of it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct CrossSection {
    /// What is made of the values of all symbols at one time.
    pub function: CrossFunction,
    /// What each symbol gives, on a frame of [`Subject::Own`]: NA for symbols that are not in the population.
    pub value: NodeId,
    /// The frame of `value`; the times of its bars are the times of the cross-section.
    pub frame: FrameId,
    /// Label that cuts the population into groups; symbols without it are in none.
    pub by: Option<String>,
}

/// The label that every symbol has besides those of the dataset: its own name.
pub const SYMBOL_LABEL: &str = "symbol";

/// A label compared with a text: 1 or 0; or the number of its value. NA for a symbol without the label.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LabelTest {
    /// Name of the label.
    pub label: String,
    /// The text that it is compared with; `None` for the place of its value among those that the label has, from 0 on.
    pub value: Option<String>,
}
