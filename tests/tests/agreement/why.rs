//! `--why` on random scans: each part has the value that an ordinary scan gives for its text, the whole clauses have
//! the value that the symbol's status implies, and something is marked exactly when a clause is not true.

use trawl_coordinator::local::LocalOptions;
use trawl_coordinator::{PreparedScan, Question, all_bars};
use trawl_kernels::NoCancel;
use trawl_plan::ScanDocument;
use trawl_tests::reference::market::Market;
use trawl_wire::{Answer, Status};

use super::engine::{document, prepared};

const SCANS: u64 = 400;
/// Columns that one scan may select.
const COLUMNS_MAX: usize = 200;

fn answer(prepared: &PreparedScan) -> Answer {
    let mut last = None;
    let options = LocalOptions { threads: 1, ..LocalOptions::default() };
    all_bars(prepared, options, Some(prepared.as_of), 1 << 20, &NoCancel, |_, answer| {
        last = Some(answer);
        Ok(())
    })
    .expect("an answer");
    last.expect("the as-of is one of the times")
}

/// The values of `texts` for `symbol` as columns of an ordinary scan.
fn selected(market: &Market, lets: &ScanDocument, texts: &[&str], symbol: &str) -> Vec<f64> {
    let named = |(i, text): (usize, &&str)| format!("{text} as part_{i}");
    let scan = ScanDocument {
        condition: "true".to_owned(),
        universe: lets.universe.clone(),
        select: texts.iter().enumerate().map(named).collect(),
        lets: lets.lets.clone(),
        defs: lets.defs.clone(),
        max_age: lets.max_age.clone(),
        ..ScanDocument::default()
    };
    let answer = answer(&prepared(market, &scan).expect("parts are legal columns"));
    answer.rows.into_iter().find(|r| r.row.symbol == symbol).map(|r| r.row.values).unwrap_or_default()
}

#[test]
fn every_part_has_the_value_that_an_ordinary_scan_gives_it() {
    let (mut compared, mut reasons, mut inside) = (0, 0, 0);
    for seed in 0..SCANS {
        let (market, mut scan) = super::case(seed + 77_000);
        // A part that is a column has the bars of an ordinary scan.
        (scan.adjust, scan.history, scan.timeframe) = (None, None, false);
        let written = document(&scan);
        let Ok(ready) = prepared(&market, &written) else { continue };
        let rows = answer(&ready).rows;
        let Some(row) = rows.get(seed as usize % rows.len()).map(|r| &r.row) else { continue };
        let question = Question::new(&ready, &row.symbol).expect("a question");
        let explained = question.explained(&answer(&question.scan));
        let context = format!("seed {seed} {}\n{:#?}", scan.text(), explained);
        if row.status == Status::Stale {
            assert!(explained.parts.is_empty(), "{context}");
            continue;
        }
        let clause = |name: &str| explained.parts.iter().find(|p| p.part.clause == Some(name)).map(|p| p.value);
        let (universe, condition) = (clause("universe").unwrap_or(1.0), clause("where").expect("a condition"));
        let status = match (universe == 1.0, condition) {
            (false, _) => Status::Outside,
            (true, 1.0) => Status::Matched,
            (true, 0.0) => Status::NotMatched,
            (true, _) => Status::Unknown,
        };
        assert_eq!(status, row.status, "{context}");
        let marked = explained.parts.iter().any(|p| p.reason);
        assert_eq!(marked, universe != 1.0 || condition != 1.0, "{context}");
        assert!(explained.parts.iter().all(|p| !p.reason || p.value != 1.0 || p.part.depth > 0), "{context}");
        reasons += usize::from(marked);
        // Inside the universe cross-sections have another population, and values are shown for its members only.
        if status == Status::Outside {
            continue;
        }
        let from = explained.parts.iter().position(|p| p.part.clause == Some("where")).unwrap_or(0);
        let plain = |text: &str| !text.contains(" = ");
        let parts: Vec<_> = explained.parts[from..]
            .iter()
            .filter(|p| p.part.seen.is_empty() && plain(&p.part.text))
            .take(COLUMNS_MAX)
            .collect();
        inside += explained.parts.iter().filter(|p| !p.part.seen.is_empty()).count();
        let texts: Vec<&str> = parts.iter().map(|p| p.part.text.as_str()).collect();
        // Without columns a scan gives the close.
        if texts.is_empty() {
            continue;
        }
        let values = selected(&market, &written, &texts, &row.symbol);
        assert_eq!(values.len(), parts.len(), "{context}");
        for (part, value) in parts.iter().zip(values) {
            let same = part.value.to_bits() == value.to_bits() || part.value.is_nan() && value.is_nan();
            assert!(same, "{}: {} as a part, {value} as a column\n{context}", part.part.text, part.value);
            compared += 1;
        }
    }
    assert!(compared > 400 && reasons > 100 && inside > 30, "{compared} values, {reasons} reasons, {inside} elsewhere");
}
