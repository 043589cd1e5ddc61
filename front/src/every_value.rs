//! `--values all`: the select columns of symbols that did not match.
//!
//! Results carry the values of matches alone, in this process and between processes. A second scan, whose condition holds for every
//! symbol of the universe, gives the others: the answer and its digest are those of the scan itself (ADR 46).

use std::collections::HashMap;

use trawl_plan::ScanDocument;
use trawl_wire::{Answer, Status};

/// The scan with the same select columns in which every symbol of the universe matches; of several scans each one. The condition
/// stays in it: it may be the only place that uses a variable of the sweep.
pub fn of_all(document: &ScanDocument) -> ScanDocument {
    let mut of_all = ScanDocument { rank: None, limit: None, ..document.clone() };
    // A document of several scans has no condition of its own, and must get none.
    if of_all.scans.is_empty() {
        of_all.condition = always(&document.condition);
    }
    for scan in &mut of_all.scans {
        scan.condition = always(&scan.condition);
    }
    of_all
}

/// The condition, and true whatever its value is.
fn always(condition: &str) -> String {
    // It may end in a comment.
    format!("({condition}\n) or true")
}

/// Takes the values of symbols that did not match from the answer of [`of_all`].
pub fn fill(answer: &mut Answer, of_all: &Answer) {
    let rows = of_all.rows.iter().map(|row| &row.row).filter(|row| row.status == Status::Matched);
    let values: HashMap<(u32, &str), &Vec<f64>> =
        rows.map(|row| ((row.point, row.symbol.as_str()), &row.values)).collect();
    for row in answer.rows.iter_mut().map(|row| &mut row.row).filter(|row| row.status != Status::Matched) {
        if let Some(values) = values.get(&(row.point, row.symbol.as_str())) {
            row.values.clone_from(values);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trawl_plan::document::MemberScan;

    #[test]
    fn every_symbol_matches_each_of_several_scans_and_the_document_stays_legal() {
        let scan = |name: &str, condition: &str| MemberScan {
            name: name.to_owned(),
            condition: condition.to_owned(),
            ..MemberScan::default()
        };
        let scans = vec![scan("a", "close > 5 # cheap"), scan("b", "close > 7")];
        let document = ScanDocument { scans, select: vec!["close".to_owned()], ..ScanDocument::default() };
        let all = of_all(&document);
        assert_eq!(all.condition, "");
        assert_eq!(all.scans[0].condition, "(close > 5 # cheap\n) or true");
        let schema = trawl_plan::Schema::of_columns(vec!["close".to_owned()]);
        assert_eq!(trawl_plan::compile_scan(&all, &schema).expect("legal").points.len(), 2);
        let one = ScanDocument { condition: "close > 5".to_owned(), limit: Some(3), ..ScanDocument::default() };
        assert_eq!((of_all(&one).condition.as_str(), of_all(&one).limit), ("(close > 5\n) or true", None));
    }
}
