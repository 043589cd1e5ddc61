//! Terms that plans, bars and kernels share: parsed once where a text comes in, passed on as types. No I/O.

#![forbid(unsafe_code)]

mod precision;
mod priority;
mod suggest;
mod timeframe;

pub use precision::Precision;
pub use priority::Priority;
pub use suggest::suggest;
pub use timeframe::{TimeUnit, Timeframe, TimeframeError};

/// Periods of time by which bars are grouped, by the dataset's calendar.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Period {
    /// From the open of a regular session to the next open.
    Session,
    /// A trading day, its early and late trading included.
    Day,
    /// Monday to Sunday, by the trading day.
    Week,
    /// A calendar month, by the trading day.
    Month,
}

/// Which end of a sort key comes first. NA is after every number in both.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Direction {
    /// Smallest first.
    Ascending,
    /// Largest first.
    Descending,
}
