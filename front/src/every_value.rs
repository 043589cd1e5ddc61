//! `--values all`: the select columns of symbols that did not match.
//!
//! Results carry the values of matches alone, in this process and between processes. A second scan, whose condition holds for every
//! symbol of the universe, gives the others: the answer and its digest are those of the scan itself (ADR 46).

use std::collections::HashMap;

use trawl_plan::ScanDocument;
use trawl_wire::{Answer, Status};

/// The scan with the same select columns in which every symbol of the universe matches. The condition stays in it: it may be
/// the only place that uses a variable of the sweep.
pub fn of_all(document: &ScanDocument) -> ScanDocument {
    // The condition may end in a comment.
    let condition = format!("({}\n) or true", document.condition);
    ScanDocument { condition, rank: None, limit: None, ..document.clone() }
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
