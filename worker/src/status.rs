//! The status of a symbol and its reason: the first one that applies.

use trawl_market::{TimeMicros, format_time};
use trawl_wire::Status;

/// Why a symbol has its status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Reason {
    /// The status says it.
    None,
    /// It has no bar at the time; its last one before.
    Stale(Option<TimeMicros>),
    /// The universe is NA.
    UniverseUnknown,
    /// The universe is false.
    UniverseFalse,
    /// It has fewer bars than the condition needs: both numbers.
    TooShort(usize, usize),
    /// A reference has no bar at the time: its index.
    Missing(usize),
    /// The condition is NA for another reason.
    Unknown,
}

impl Reason {
    /// The index of the missing reference.
    pub fn missing(&self) -> Option<usize> {
        if let Self::Missing(at) = self { Some(*at) } else { None }
    }

    /// As shown; `reference` is the symbol of the missing reference.
    pub fn text(&self, reference: &str) -> String {
        match self {
            Self::None => String::new(),
            Self::Stale(None) => "no bar yet".to_owned(),
            Self::Stale(Some(last)) => format!("no bar since {}", format_time(*last)),
            Self::UniverseUnknown => "universe is unknown (NA)".to_owned(),
            Self::UniverseFalse => "universe is false".to_owned(),
            Self::TooShort(visible, needed) => {
                format!("too short: {visible} {}, {needed} needed", if *visible == 1 { "bar" } else { "bars" })
            }
            Self::Missing(_) => format!("missing reference: {reference} has no bar at this time"),
            Self::Unknown => "the condition is NA at the as-of bar".to_owned(),
        }
    }
}

/// Why a symbol without a bar at `time` is stale; `bars` are its bars' times. Later bars are not known at that time, so the reason
/// does not depend on whether there are any.
pub(crate) fn stale(bars: &[TimeMicros], time: TimeMicros) -> Reason {
    Reason::Stale(bars[..bars.partition_point(|t| *t < time)].last().copied())
}

/// The status of a symbol with a bar: the values of universe and condition, how many bars it has up to there and how
/// many the condition needs, and the index of a reference without a bar at that time.
pub(crate) fn status_of(
    universe: f64,
    condition: f64,
    (visible, needed): (usize, usize),
    missing: impl FnOnce() -> Option<usize>,
) -> (Status, Reason) {
    if universe.is_nan() {
        (Status::Outside, Reason::UniverseUnknown)
    } else if universe != 1.0 {
        (Status::Outside, Reason::UniverseFalse)
    } else if condition.is_nan() {
        let reason = match missing() {
            _ if visible < needed => Reason::TooShort(visible, needed),
            Some(at) => Reason::Missing(at),
            None => Reason::Unknown,
        };
        (Status::Unknown, reason)
    } else if condition == 1.0 {
        (Status::Matched, Reason::None)
    } else {
        (Status::NotMatched, Reason::None)
    }
}
