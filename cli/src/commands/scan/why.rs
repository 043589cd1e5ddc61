//! `--why SYMBOL,...`: every part of the scan's conditions with its value for each symbol, and which part decided; as text.

use std::fmt::Write as _;

use trawl_coordinator::{Explained, PartValue, Question};
use trawl_market::Zone;
use trawl_plan::explain_match::Role;
use trawl_plan::graph::Kind;
use trawl_wire::{Answer, AnswerRow, Status};

use crate::output::table;
use trawl_front::human::{counted, readable};

/// Columns that the texts of parts take: as many as the longest needs, within this.
const TEXT_WIDTH: std::ops::RangeInclusive<usize> = 40..=84;
const VALUE_WIDTH: usize = 12;

/// The text, ending in a line break. `answer` is the scan's own.
pub fn text(question: &Question, explained: &Explained, answer: &Answer, synthetic: bool) -> String {
    let mut text = String::new();
    let row = answer.rows.iter().find(|r| r.row.symbol == question.symbol);
    let zone = Zone::named(&question.scan.zone()).ok();
    let status = row.map_or_else(|| "not in the answer".to_owned(), |r| status(r, answer, zone));
    let _ = writeln!(text, "{}  {status}", table::clean(&question.symbol));
    let identity = &answer.identity;
    let made_up = if synthetic { " (SYNTHETIC data, no real market)" } else { "" };
    let bars = if explained.parts.is_empty() {
        String::new()
    } else {
        format!(", {} so far", counted(explained.bars as usize, "bar"))
    };
    let snapshot = table::short_snapshot(&identity.snapshot);
    let _ = writeln!(text, "{}@{snapshot} as of {}{bars}{made_up}", identity.dataset, question.scan.shown_as_of());
    for (label, value) in &question.labels {
        let value = value.as_deref().map_or_else(|| "none (NA)".to_owned(), table::cell);
        let _ = writeln!(text, "{label}: {value}");
    }
    let lines: Vec<String> = explained.parts.iter().map(line_of).collect();
    let longest = lines.iter().map(|line| line.chars().count()).max().unwrap_or(0);
    let width = longest.clamp(*TEXT_WIDTH.start(), *TEXT_WIDTH.end());
    for (part, line) in explained.parts.iter().zip(&lines) {
        if part.part.depth == 0 {
            text.push('\n');
        }
        push_part(&mut text, (line, width), part, explained.bars);
    }
    if question.cut {
        let _ = writeln!(text, "... and more parts, not shown");
    }
    if explained.parts.iter().any(|p| p.reason) {
        text.push_str("\n<- marks what decided\n");
    }
    text
}

fn status(row: &AnswerRow, answer: &Answer, zone: Option<Zone>) -> String {
    let mut text = row.row.status.name().replace('_', " ");
    if row.row.status == Status::Matched {
        let matched = answer.counts()[Status::Matched as usize];
        match row.place {
            Some(place) => text.push_str(&format!(", place {place} of {matched}")),
            None => text.push_str(&format!(", below the limit on the {matched} matches")),
        }
    }
    if !row.row.reason.is_empty() {
        text.push_str(&format!(": {}", table::clean(&table::on_clock(&row.row.reason, zone))));
    }
    if row.row.edge {
        text.push_str(" (edge: a comparison is so close that rounding could turn it)");
    }
    if row.row.provisional {
        text.push_str(" (provisional: the bar is not closed)");
    }
    text
}

/// What a part is, indented.
fn line_of(of: &PartValue) -> String {
    let part = &of.part;
    let mut line = match part.clause {
        // The parts directly below explain it.
        Some(clause) if matches!(part.role, Role::And | Role::Or) => clause.to_owned(),
        Some(clause) => format!("{clause}: {}", one_line(&part.text)),
        None => format!("{:indent$}{}", "", one_line(&part.text), indent = part.depth * 2),
    };
    if !part.seen.is_empty() {
        let _ = write!(line, "  ({})", part.seen.join(", "));
    }
    line
}

fn push_part(text: &mut String, (line, width): (&str, usize), of: &PartValue, bars: u64) {
    let part = &of.part;
    let value = match part.kind {
        Kind::Num => readable(of.value),
        Kind::Bool if of.value.is_nan() => "NA".to_owned(),
        Kind::Bool => if of.value == 1.0 { "true" } else { "false" }.to_owned(),
    };
    let mut notes = Vec::new();
    if let Some([since_true, since_false]) = of.since {
        notes.extend(last(since_true, "true"));
        notes.extend(last(since_false, "false"));
    }
    let needed = part.needed.own as u64;
    if of.value.is_nan() && part.seen.is_empty() && needed > bars {
        notes.push(format!("needs {}", counted(needed as usize, "bar")));
    }
    let mark = if of.reason { "  <-" } else { "" };
    let notes = if notes.is_empty() { String::new() } else { format!("  {}", notes.join(", ")) };
    let line = format!("{line:<width$}  {value:>VALUE_WIDTH$}{mark}{notes}");
    let _ = writeln!(text, "{}", line.trim_end());
}

fn last(bars: f64, what: &str) -> Option<String> {
    match bars {
        b if b.is_nan() => Some(format!("never {what}")),
        0.0 => None,
        b => Some(format!("last {what} {} ago", counted(b as usize, "bar"))),
    }
}

/// A part that was written over several lines, as one line.
fn one_line(text: &str) -> String {
    table::clean(&text.split_whitespace().collect::<Vec<_>>().join(" "))
}
