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

/// A symbol without a bar at `time`; `bars` are its bars' times. Later bars are not known at that time, so the reason
/// does not depend on whether there are any.
pub(crate) fn stale(bars: &[TimeMicros], time: TimeMicros) -> SymbolRow {
    let before = bars[..bars.partition_point(|t| *t < time)].last();
    let reason = before.map_or_else(|| "no bar yet".to_owned(), |last| format!("no bar since {}", format_time(*last)));
    row(Status::Stale, reason)
}

/// A symbol with a bar: its values, how many bars it has up to there, how many the condition needs, and a reference
/// without a bar at that time.
pub(crate) fn of<'r>(
    values: PointValues,
    visible: usize,
    needed: usize,
    missing: &dyn Fn() -> Option<&'r str>,
) -> SymbolRow {
    let edge = values.edge;
    let mut made = if values.universe.is_nan() {
        row(Status::Outside, "universe is unknown (NA)".to_owned())
    } else if values.universe != 1.0 {
        row(Status::Outside, "universe is false".to_owned())
    } else if values.condition.is_nan() {
        let reason = if visible < needed {
            format!("too short: {visible} {}, {needed} needed", if visible == 1 { "bar" } else { "bars" })
        } else if let Some(symbol) = missing() {
            format!("missing reference: {symbol} has no bar at this time")
        } else {
            "the condition is NA at the as-of bar".to_owned()
        };
        row(Status::Unknown, reason)
    } else if values.condition == 1.0 {
        let mut matched = row(Status::Matched, String::new());
        (matched.rank, matched.values) = (canonical(values.rank), canonical(values.select));
        matched
    } else {
        row(Status::NotMatched, String::new())
    };
    made.edge = edge;
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
