//! How large the answer of a scan will be: known from the plan and the number of symbols, before anything is read.

use trawl_market::SymbolEntry;
use trawl_plan::Plan;
use trawl_wire::AnswerRow;

/// Maximum rows of an answer: one for each symbol and combination of a sweep. A scan at every bar has so many at each time.
pub const ANSWER_ROWS_MAX: u64 = 20_000_000;

/// Rows of an answer at most. Where the best combinations are kept, a symbol without a bar has but one.
pub(crate) fn rows_of(plan: &Plan, symbols: usize) -> u64 {
    let points = plan.points.len();
    let kept = plan.best.map_or(points, |best| points.min(best.keep));
    (kept as u64).saturating_mul(symbols as u64)
}

/// Bytes that such an answer takes in memory if every row matches, about.
pub(crate) fn bytes_of(plan: &Plan, symbols: &[SymbolEntry]) -> u64 {
    let values = plan.rank.len() + plan.headings.len();
    let names: usize = symbols.iter().map(|entry| entry.symbol.len()).sum();
    let row = size_of::<AnswerRow>() + values * size_of::<f64>() + names / symbols.len().max(1);
    rows_of(plan, symbols.len()).saturating_mul(row as u64)
}

#[cfg(test)]
mod tests {
    use trawl_kernels::NoCancel;
    use trawl_kernels::stages::Stages;
    use trawl_market::Store;
    use trawl_plan::ScanDocument;
    use trawl_worker::References;

    use super::*;
    use crate::local::{self, LocalOptions};
    use crate::prepare::check_answer_rows;
    use crate::{NoProgress, PreparedScan, prepare};

    const SWEEP: &str = "dataset = 'us5'\nwhere = 'true'\nselect = ['sma(close, fast) as fast_mean', 'roc(close, slow) as change']\n\
                         [sweep]\nfast = { from = 2, to = 9 }\nslow = [20, 30, 40]\n";

    fn prepared(document: &str) -> PreparedScan {
        let document = ScanDocument::from_toml(document).unwrap();
        prepare(&Store::new("/nowhere".into()), &document, None).unwrap()
    }

    fn rows_made(scan: &PreparedScan) -> u64 {
        let (source, references) = (scan.source(), References::new());
        let execute = |segment, step, input: &_, stages: &mut Stages| {
            Ok(source.execute(segment, step, input, &references, &NoCancel, stages).unwrap())
        };
        let (answer, _) = local::run(scan, LocalOptions::default(), execute, &NoProgress).unwrap();
        answer.rows.len() as u64
    }

    #[test]
    fn the_rows_are_known_before_the_scan_runs() {
        for (best, expected) in [("", 24 * 5), ("[best]\nby = 'roc(close, slow)'\nkeep = 3\n", 3 * 5)] {
            let scan = prepared(&format!("{SWEEP}{best}"));
            assert_eq!((scan.answer_rows(), rows_made(&scan)), (expected, expected));
            assert!(scan.answer_bytes() > expected * size_of::<AnswerRow>() as u64);
        }
    }

    #[test]
    fn a_sweep_with_too_many_rows_is_refused_with_their_number() {
        let plan = &prepared(SWEEP).plan;
        let most = (ANSWER_ROWS_MAX / 24) as usize;
        assert!(check_answer_rows(plan, most).is_ok());
        let refused = check_answer_rows(plan, most + 1).unwrap_err().to_string();
        assert!(
            refused.contains(" 20000016 rows, of 24 combinations and 833334 symbols; at most 20000000 "),
            "{refused}"
        );
        // Kept are few.
        let best = format!("{SWEEP}[best]\nby = 'roc(close, slow)'\n");
        assert!(check_answer_rows(&prepared(&best).plan, most + 1).is_ok());
    }
}
