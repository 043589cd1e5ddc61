//! The answer of several scans as a table: which symbol matches which scan.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt::Write as _;

use trawl_plan::{SCAN_VARIABLE, Setting};
use trawl_wire::{Answer, Status};

use super::page::{Grid, Page, cell};
use trawl_front::human::counted;

/// Symbols that are shown without `--all`.
const SYMBOLS_SHOWN_MAX: usize = 50;
/// In the cell of a match.
const MARK: &str = "x";

/// The scans by name, if the answer is of several.
pub fn scans(answer: &Answer) -> Option<Vec<&str>> {
    fn name(point: &[(String, Setting)]) -> Option<&str> {
        match point {
            [(variable, Setting::Text(name))] if variable == SCAN_VARIABLE => Some(name.as_str()),
            _ => None,
        }
    }
    let names: Option<Vec<&str>> = answer.points.iter().map(|point| name(point)).collect();
    names.filter(|names| !names.is_empty())
}

/// Appends the table: symbols that match most scans first, then by name.
pub fn push(text: &mut String, answer: &Answer, scans: &[&str], (all, page): (bool, Page)) {
    let mut matches: BTreeMap<&str, Vec<bool>> = BTreeMap::new();
    for row in answer.rows.iter().filter(|row| row.row.status == Status::Matched) {
        let of = matches.entry(&row.row.symbol).or_insert_with(|| vec![false; scans.len()]);
        if let Some(mark) = of.get_mut(row.row.point as usize) {
            *mark = true;
        }
    }
    if matches.is_empty() {
        text.push_str("no symbol matched any scan\n\n");
        return;
    }
    let mut rows: Vec<(&str, Vec<bool>)> = matches.into_iter().collect();
    rows.sort_by_key(|(_, marks)| Reverse(marks.iter().filter(|mark| **mark).count()));
    let headings = ["symbol"].iter().chain(scans).map(|heading| cell(heading)).collect();
    let mut table = Grid::new(headings, 1);
    let shown = if all { rows.len() } else { rows.len().min(SYMBOLS_SHOWN_MAX) };
    for (symbol, marks) in &rows[..shown] {
        let marks = marks.iter().map(|mark| if *mark { MARK.to_owned() } else { String::new() });
        table.row([cell(symbol)].into_iter().chain(marks).collect());
    }
    table.push(text, page);
    if shown < rows.len() {
        text.truncate(text.len() - 1);
        let rest = counted(rows.len() - shown, "symbol");
        let _ = writeln!(text, "  ... and {rest} more: --all shows them, --output FILE keeps them\n");
    }
}
