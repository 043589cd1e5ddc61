//! An answer with one row of everything.

use trawl_plan::ColumnKind;
use trawl_wire::{Answer, AnswerRow, Identity, Status, SymbolRow};

/// An answer with every status, an NA, infinities, a match beyond the limit and a reason that CSV must quote.
#[must_use]
pub fn sample_answer() -> Answer {
    let row = |symbol: &str, status, reason: &str, values: &[f64]| SymbolRow {
        point: 0,
        edge: symbol == "ZZZ",
        provisional: false,
        symbol: symbol.to_owned(),
        status,
        reason: reason.to_owned(),
        rank: values.iter().take(1).copied().collect(),
        values: values.to_vec(),
    };
    let rows = vec![
        (Some(1), row("IBM", Status::Matched, "", &[201.09, f64::NAN])),
        (Some(2), row("ÅÄÖ", Status::Matched, "", &[0.1, f64::INFINITY])),
        (None, row("ZZZ", Status::Matched, "", &[-1e-7, f64::NEG_INFINITY])),
        (None, row("AAPL", Status::NotMatched, "", &[])),
        (None, row("FB", Status::Unknown, "too short: 120 bars, 202 needed", &[])),
        (None, row("GOOG", Status::Stale, "no bar since \"2012\", sorry", &[])),
        (None, row("MSFT", Status::Failed, "checksum differs", &[])),
        (None, row("XOM", Status::Outside, "universe is false", &[])),
    ];
    Answer {
        identity: Identity {
            plan: "p".repeat(64),
            dataset: "us5".to_owned(),
            snapshot: "abcdef0123456789".repeat(4),
            as_of: "2013-02-22".to_owned(),
            engine: "0.1.0".to_owned(),
            numerics: "n1".to_owned(),
            backend: "cpu".to_owned(),
            precision: "f64".to_owned(),
            adjustment: "none".to_owned(),
            partial: false,
        },
        time: Some(1_361_491_200_000_000),
        bar: None,
        points: vec![Vec::new()],
        best: false,
        kinds: vec![ColumnKind::Number; 2],
        select: vec!["close".to_owned(), "a, \"b\"".to_owned()],
        rows: rows.into_iter().map(|(place, row)| AnswerRow { place, row }).collect(),
        digest: "d1".to_owned(),
    }
}
