//! `--near N`: the symbols that fail on at most N terms of the condition, and on which.

use std::fmt::Write as _;

use trawl_coordinator::{FailedTerm, NearMiss, NearQuestion, SeenPart};
use trawl_wire::{Answer, Status};

use crate::output::page::{Grid, Page};
use crate::output::table;
use trawl_front::human::{counted, readable};
use trawl_front::why::truth;

/// Rows shown by default.
const ROWS_SHOWN_MAX: usize = 50;

/// The text, ending in a line break. `answer` is the scan's own, whose `limit` holds for these rows too; `all` shows every row.
pub fn text(
    question: &NearQuestion,
    misses: &[NearMiss],
    answer: &Answer,
    most: usize,
    limit: Option<u32>,
    all: bool,
    page: Page,
) -> String {
    let mut text = String::new();
    let shown_max = limit.map_or(ROWS_SHOWN_MAX, |limit| ROWS_SHOWN_MAX.min(limit as usize));
    let shown = if all { misses.len() } else { misses.len().min(shown_max) };
    if shown > 0 {
        let mut rows = Grid::new(["symbol", "fails on", "is", "because"].map(str::to_owned).to_vec(), 1);
        for miss in &misses[..shown] {
            for (number, term) in miss.fails.iter().enumerate() {
                let symbol = if number == 0 { table::cell(&miss.symbol) } else { String::new() };
                let is = if term.is_na { "NA" } else { "false" };
                rows.row(vec![symbol, table::clean(&one_line(&term.text)), is.to_owned(), sees(term)]);
            }
        }
        rows.push(&mut text, page);
        if shown < misses.len() {
            text.truncate(text.len() - 1);
            let _ = writeln!(text, "  ... and {} more: --all shows them\n", misses.len() - shown);
        }
    }
    let terms = counted(question.terms(), "term");
    let near = counted(misses.len(), "symbol");
    let fail = if misses.len() == 1 { "fails" } else { "fail" };
    let matched = answer.counts()[Status::Matched as usize];
    let _ = writeln!(text, "{near} {fail} on at most {most} of {terms}; {} matched", counted(matched, "symbol"));
    text
}

fn sees(term: &FailedTerm) -> String {
    let value = |part: &SeenPart| truth(part).map_or_else(|| readable(part.value), |truth| truth.to_string());
    let parts = term.sees.iter().map(|part| format!("{} = {}", one_line(&part.text), value(part)));
    table::clean(&parts.collect::<Vec<_>>().join(", "))
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
