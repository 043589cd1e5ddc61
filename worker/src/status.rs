//! The status of a symbol and its reason: the first one that applies.

use trawl_market::{TimeMicros, format_time};
use trawl_plan::PointValues;
use trawl_wire::{Status, SymbolRow};

fn row(status: Status, reason: String) -> SymbolRow {
    SymbolRow {
        point: 0,
        symbol: String::new(),
        status,
        edge: false,
        provisional: false,
        reason,
        rank: Vec::new(),
        values: Vec::new(),
    }
}

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

/// A symbol without a bar at `time`; `bars` are its bars' times. Later bars are not known at that time, so the reason
/// does not depend on whether there are any.
pub(crate) fn stale(bars: &[TimeMicros], time: TimeMicros) -> SymbolRow {
    let before = bars[..bars.partition_point(|t| *t < time)].last();
    row(Status::Stale, Reason::Stale(before.copied()).text(""))
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

/// A symbol with a bar: its values, how many bars it has up to there, how many the condition needs, and the index of a
/// reference without a bar at that time; `name` is its symbol.
pub(crate) fn of(
    values: PointValues,
    visible: usize,
    needed: usize,
    missing: impl FnOnce() -> Option<usize>,
    name: impl FnOnce(usize) -> String,
) -> SymbolRow {
    let (status, reason) = status_of(values.universe, values.condition, (visible, needed), missing);
    let text = reason.text(&reason.missing().map(name).unwrap_or_default());
    let mut made = row(status, text);
    if status == Status::Matched {
        (made.rank, made.values) = (canonical(values.rank), canonical(values.select));
    }
    made.edge = values.edge;
    made
}

/// Replaces every NaN by the canonical one, so that equal answers have equal bytes.
pub(crate) fn canonical(mut values: Vec<f64>) -> Vec<f64> {
    for value in &mut values {
        if value.is_nan() {
            *value = f64::NAN;
        }
    }
    values
}
