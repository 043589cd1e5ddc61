//! One segment: load the group's bars, evaluate the plan at the as-of bar, give every symbol a status and a reason.
//!
//! The result depends on (plan, snapshot, as-of, segment) alone. Nothing here knows of attempts, caches or networks.

use trawl_kernels::{Cancel, LastValues, SymbolInput, evaluate_last};
use trawl_market::{Dataset, MarketError, MarketErrorKind, SymbolBars, TimeMicros, format_time};
use trawl_plan::Plan;
use trawl_protocol::error::text_of;
use trawl_protocol::limits::bounded_reason;
use trawl_protocol::{ErrorKind, Failure, SegmentResultV1, Status, SymbolRow};

/// Why a segment has no result.
#[derive(Debug, thiserror::Error)]
pub enum ExecuteError {
    /// The group's bars could not be read.
    #[error(transparent)]
    Market(#[from] MarketError),
    /// Nobody wants the result any more.
    #[error("cancelled")]
    Cancelled,
    /// The bars are not what the manifest or the plan says.
    #[error("{0}")]
    Inconsistent(String),
}

impl ExecuteError {
    /// Whether another attempt may succeed.
    ///
    /// Damaged or missing bars are a property of the snapshot, the same everywhere.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Market(error) if error.kind() == MarketErrorKind::Retryable => ErrorKind::Retryable,
            Self::Market(_) | Self::Inconsistent(_) => ErrorKind::Permanent,
            Self::Cancelled => ErrorKind::Cancelled,
        }
    }
}

impl From<ExecuteError> for Failure {
    fn from(error: ExecuteError) -> Self {
        Self::new(error.kind(), bounded_reason(text_of(&error)))
    }
}

/// Loads and evaluates one segment on the calling thread; rows come sorted by symbol.
///
/// # Errors
/// [`ExecuteError`].
pub fn execute_segment(
    plan: &Plan,
    dataset: &Dataset,
    as_of: TimeMicros,
    segment: u32,
    cancel: &dyn Cancel,
) -> Result<SegmentResultV1, ExecuteError> {
    if cancel.cancelled() {
        return Err(ExecuteError::Cancelled);
    }
    let bars = load_segment(plan, dataset, segment)?;
    evaluate_segment(plan, &bars, as_of, segment, cancel)
}

/// Reads the columns of `plan` for one segment's symbols, sorted by symbol.
///
/// # Errors
/// [`ExecuteError::Market`]; [`ExecuteError::Inconsistent`] when the shape is not what was asked for.
pub fn load_segment(plan: &Plan, dataset: &Dataset, segment: u32) -> Result<Vec<SymbolBars>, ExecuteError> {
    let span = tracing::info_span!("load", segment, symbols = tracing::field::Empty, bars = tracing::field::Empty);
    let _entered = span.enter();
    let bars = dataset.load_group(segment, &plan.columns)?;
    for symbol in &bars {
        let rows = symbol.times.len();
        if symbol.columns.len() != plan.columns.len() || symbol.columns.iter().any(|c| c.len() != rows) {
            return Err(ExecuteError::Inconsistent(format!("columns of unequal length at symbol '{}'", symbol.symbol)));
        }
    }
    span.record("symbols", bars.len());
    span.record("bars", bars.iter().map(|s| s.times.len()).sum::<usize>());
    Ok(bars)
}

/// What is known of a symbol before the plan is evaluated.
enum Visible {
    /// Its bars up to and including the as-of bar.
    Bars(usize),
    /// No bar at the as-of time; the reason.
    Stale(String),
}

/// Where a symbol stands at the as-of time.
fn visible(times: &[TimeMicros], as_of: TimeMicros) -> Visible {
    match times.binary_search(&as_of) {
        Ok(index) => Visible::Bars(index + 1),
        Err(0) => Visible::Stale(times.first().map_or_else(
            || "no bars".to_owned(),
            |first| format!("first bar is {}, after the as-of", format_time(*first)),
        )),
        Err(index) if index == times.len() => Visible::Stale(format!("no bar since {}", format_time(times[index - 1]))),
        Err(index) => Visible::Stale(format!(
            "no bar at the as-of time {}; the one before is {}",
            format_time(as_of),
            format_time(times[index - 1])
        )),
    }
}

/// Evaluates loaded bars (as [`load_segment`] gives them: one column per entry of `plan.columns`).
///
/// # Errors
/// [`ExecuteError::Cancelled`], [`ExecuteError::Inconsistent`].
pub fn evaluate_segment(
    plan: &Plan,
    bars: &[SymbolBars],
    as_of: TimeMicros,
    segment: u32,
    cancel: &dyn Cancel,
) -> Result<SegmentResultV1, ExecuteError> {
    let span = tracing::info_span!("compute", segment, symbols = bars.len());
    let _entered = span.enter();
    let places: Vec<Visible> = bars.iter().map(|symbol| visible(&symbol.times, as_of)).collect();
    let inputs: Vec<SymbolInput<'_>> = bars
        .iter()
        .zip(&places)
        .filter_map(|(symbol, place)| match place {
            Visible::Bars(visible) => {
                Some(SymbolInput { columns: symbol.columns.iter().map(Vec::as_slice).collect(), visible: *visible })
            }
            Visible::Stale(_) => None,
        })
        .collect();
    let values = evaluate_last(plan, &inputs, cancel).map_err(|_| ExecuteError::Cancelled)?;
    if values.len() != inputs.len() {
        return Err(ExecuteError::Inconsistent("the engine answered another number of symbols".to_owned()));
    }
    // The bars that the condition needs, not those of a longer select column.
    let needed = plan.condition.map_or(0, |id| plan.look_back_of(id)) + 1;
    let mut values = values.into_iter();
    let mut rows: Vec<SymbolRow> = Vec::with_capacity(bars.len());
    for (symbol, place) in bars.iter().zip(places) {
        let (status, reason, kept) = match place {
            Visible::Stale(reason) => (Status::Stale, reason, None),
            Visible::Bars(visible) => match values.next() {
                Some(values) => status_of(values, visible, needed),
                None => (Status::Failed, "the engine gave no value".to_owned(), None),
            },
        };
        let (rank, values) = kept.map_or_else(Default::default, |v| (canonical(v.rank), canonical(v.select)));
        rows.push(SymbolRow { symbol: symbol.symbol.to_string(), status, reason, rank, values });
    }
    rows.sort_by(|a, b| a.symbol.cmp(&b.symbol));
    Ok(SegmentResultV1 { segment, rows })
}

/// Status and reason of a symbol that has a bar at the as-of time; its values when it matched.
fn status_of(values: LastValues, visible: usize, needed: usize) -> (Status, String, Option<LastValues>) {
    if values.universe.is_nan() {
        (Status::Outside, "universe is unknown (NA)".to_owned(), None)
    } else if values.universe != 1.0 {
        (Status::Outside, "universe is false".to_owned(), None)
    } else if values.condition.is_nan() {
        let reason = if visible < needed {
            format!("too short: {visible} {}, {needed} needed", if visible == 1 { "bar" } else { "bars" })
        } else {
            "the condition is NA at the as-of bar".to_owned()
        };
        (Status::Unknown, reason, None)
    } else if values.condition == 1.0 {
        (Status::Matched, String::new(), Some(values))
    } else {
        (Status::NotMatched, String::new(), None)
    }
}

/// One NaN for NA, so that the same answer has the same bytes.
fn canonical(mut values: Vec<f64>) -> Vec<f64> {
    for value in &mut values {
        if value.is_nan() {
            *value = f64::NAN;
        }
    }
    values
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use trawl_kernels::NoCancel;
    use trawl_plan::{ScanDocument, Schema, compile_scan};

    const DAY: TimeMicros = 86_400_000_000;

    fn plan(universe: Option<&str>, condition: &str, rank: Option<&str>) -> Plan {
        let document = ScanDocument {
            universe: universe.map(str::to_owned),
            condition: condition.to_owned(),
            rank: rank.map(str::to_owned),
            ..ScanDocument::default()
        };
        let schema = Schema { columns: vec!["close".to_owned()], timeframe: None };
        compile_scan(&document, &schema).unwrap()
    }

    fn bars(symbol: &str, days: &[i64], close: &[f64]) -> SymbolBars {
        SymbolBars {
            symbol: Arc::from(symbol),
            times: days.iter().map(|d| d * DAY).collect(),
            columns: vec![close.to_vec()],
        }
    }

    fn run(plan: &Plan, bars: &[SymbolBars], as_of_day: i64) -> Vec<SymbolRow> {
        evaluate_segment(plan, bars, as_of_day * DAY, 3, &NoCancel).unwrap().rows
    }

    #[test]
    fn every_symbol_has_the_first_status_that_applies_and_a_reason() {
        let plan = plan(Some("close > 0"), "sma(close, 2) > 5", Some("close"));
        let negative_nan = f64::from_bits(f64::NAN.to_bits() | 1 << 63);
        let group = [
            bars("AHEAD", &[4], &[9.0]),
            bars("EMPTY", &[], &[]),
            bars("GAP", &[1, 4], &[9.0, 9.0]),
            bars("GONE", &[0, 1], &[9.0, 9.0]),
            bars("HIGH", &[1, 3], &[9.0, 9.0]),
            bars("HOLE", &[1, 2, 3], &[9.0, negative_nan, 9.0]),
            bars("LOW", &[1, 3], &[1.0, 1.0]),
            bars("MINUS", &[1, 3], &[9.0, -9.0]),
            bars("NA", &[1, 3], &[9.0, f64::NAN]),
            bars("SHORT", &[3], &[9.0]),
        ];
        let rows = run(&plan, &group, 3);
        let seen: Vec<(&str, Status, &str)> =
            rows.iter().map(|r| (r.symbol.as_str(), r.status, r.reason.as_str())).collect();
        assert_eq!(
            seen,
            [
                ("AHEAD", Status::Stale, "first bar is 1970-01-05, after the as-of"),
                ("EMPTY", Status::Stale, "no bars"),
                ("GAP", Status::Stale, "no bar at the as-of time 1970-01-04; the one before is 1970-01-02"),
                ("GONE", Status::Stale, "no bar since 1970-01-02"),
                ("HIGH", Status::Matched, ""),
                ("HOLE", Status::Unknown, "the condition is NA at the as-of bar"),
                ("LOW", Status::NotMatched, ""),
                ("MINUS", Status::Outside, "universe is false"),
                ("NA", Status::Outside, "universe is unknown (NA)"),
                ("SHORT", Status::Unknown, "too short: 1 bar, 2 needed"),
            ]
        );
        let filled: Vec<&str> = rows.iter().filter(|r| !r.values.is_empty()).map(|r| r.symbol.as_str()).collect();
        assert_eq!(filled, ["HIGH"]);
        assert_eq!((rows[4].rank.as_slice(), rows[4].values.as_slice()), (&[9.0][..], &[9.0][..]));
    }

    #[test]
    fn bars_after_the_as_of_change_nothing() {
        let plan = plan(None, "close > 5", None);
        let short = [bars("A", &[1, 2], &[1.0, 9.0])];
        let long = [bars("A", &[1, 2, 3], &[1.0, 9.0, -1.0])];
        assert_eq!(run(&plan, &short, 2), run(&plan, &long, 2));
    }

    #[test]
    fn every_na_in_a_result_has_the_same_bits() {
        let odd_nan = f64::from_bits(f64::NAN.to_bits() | 1 << 63 | 5);
        let document = ScanDocument {
            condition: "close > 5".to_owned(),
            rank: Some("volume".to_owned()),
            select: vec!["volume".to_owned()],
            ..ScanDocument::default()
        };
        let schema = Schema { columns: vec!["close".to_owned(), "volume".to_owned()], timeframe: None };
        let plan = compile_scan(&document, &schema).unwrap();
        let column = |name: &String| if name == "close" { vec![9.0] } else { vec![odd_nan] };
        let columns = plan.columns.iter().map(column).collect();
        let group = [SymbolBars { symbol: Arc::from("A"), times: vec![DAY], columns }];
        let rows = run(&plan, &group, 1);
        assert_eq!(rows[0].status, Status::Matched);
        let bits: Vec<u64> = rows[0].rank.iter().chain(&rows[0].values).map(|v| v.to_bits()).collect();
        assert_eq!(bits, [f64::NAN.to_bits(); 2]);
        // The engine of today makes no other NaN; what enters an answer does not depend on that.
        assert_eq!(canonical(vec![odd_nan, 1.0])[0].to_bits(), f64::NAN.to_bits());
    }

    #[test]
    fn a_cancelled_run_gives_nothing() {
        struct Always;
        impl Cancel for Always {
            fn cancelled(&self) -> bool {
                true
            }
        }
        let plan = plan(None, "close > 5", None);
        let error = evaluate_segment(&plan, &[bars("A", &[1], &[1.0])], DAY, 0, &Always).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Cancelled);
    }
}
