//! `trawl data inspect`: what a dataset contains, symbol by symbol, and whether its files are intact.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::process::ExitCode;

use anyhow::Context as _;
use trawl_market::{
    Checks, InspectOptions, Inspection, SymbolEntry, SymbolInspection, TimeMicros, format_time, inspect,
};

use super::jumps::jumps;
use super::quality::quality_text;
use crate::app::Context;
use crate::commands::scans::RemoteArgs;
use crate::failure::{DONE, NOT_DONE, of_market};
use crate::output::page::{Page, new_table, push_table, right_align};
use trawl_front::datasets::InspectionDocument;
use trawl_front::human::{bytes, counted, readable, thousands};

/// Symbols listed by default.
const SYMBOLS_SHOWN_MAX: usize = 20;
/// Splits and dividends listed in the text, the latest; JSON has all.
const FACTORS_SHOWN_MAX: usize = 40;

const AFTER_HELP: &str = "\
A jump is a close more than three times the one before, less than a third of it, or a usual split ratio away from it: an \
unadjusted split, or a real move. Jumps are reported, never removed. The exit code is 1 when --verify finds a file that differs from what was written.

Examples:
  trawl data inspect us5
  trawl data inspect us5 --symbol IBM
  trawl data inspect mine --quality
  trawl data inspect mine@0123abcd --verify --json
  trawl data inspect mine --coordinator http://127.0.0.1:7400";

/// Show what a dataset holds: snapshot, columns, symbols and their bars
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    /// Dataset: NAME, or NAME@SNAPSHOT with at least 8 digits of a snapshot's id
    #[arg(value_name = "DATASET")]
    dataset: String,

    /// Show one symbol: its columns, gaps, jumps, first and last bars, labels, splits and dividends
    #[arg(long, short, value_name = "SYMBOL")]
    symbol: Option<String>,

    /// List every symbol
    #[arg(long, conflicts_with = "symbol")]
    all: bool,

    /// Read every file, compare its SHA-256, look for jumps, and add checksums of bars where they are missing
    #[arg(long, conflicts_with = "coordinator")]
    verify: bool,

    /// Look at every bar: gaps, coverage by day, sessions that do not fit, symbols without recent bars, jumps, rows in quarantine
    #[arg(long, conflicts_with = "coordinator")]
    quality: bool,

    /// Print JSON, times in microseconds since 1970-01-01 UTC
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    remote: RemoteArgs,
}

/// Prints; [`NOT_DONE`] when a file is damaged.
pub fn run(args: Args, context: &Context) -> anyhow::Result<ExitCode> {
    let (found, symbols) = if args.remote.is_remote() {
        args.remote.ask(async |manager| manager.inspect(&args.dataset, args.symbol.as_deref()).await)?
    } else {
        let dataset = context.store()?.open(&args.dataset).map_err(of_market)?;
        let options = InspectOptions { symbol: args.symbol.as_deref(), verify: args.verify, quality: args.quality };
        (inspect(&dataset, options).map_err(of_market)?, dataset.manifest.symbols.clone())
    };
    let damaged = found.checks.as_ref().is_some_and(|c| !c.problems.is_empty());
    let text = if args.json { json(&found, &symbols, args.all)? } else { text(&found, &symbols, args.all) };
    io::stdout().write_all(text.as_bytes()).context("cannot write to standard output")?;
    Ok(ExitCode::from(if damaged { NOT_DONE } else { DONE }))
}

fn json(found: &Inspection, symbols: &[SymbolEntry], all: bool) -> anyhow::Result<String> {
    let document = InspectionDocument { found, entries: all.then_some(symbols) };
    Ok(format!("{}\n", serde_json::to_string_pretty(&document)?))
}

fn text(found: &Inspection, entries: &[SymbolEntry], all: bool) -> String {
    let mut text = String::new();
    head(&mut text, found);
    match &found.symbol {
        Some(symbol) => one_symbol(&mut text, found, symbol),
        None => symbols(&mut text, entries, all),
    }
    if let Some(checks) = &found.checks {
        checked(&mut text, checks);
    }
    if let Some(quality) = &found.quality {
        quality_text(&mut text, quality);
    }
    text
}

fn head(text: &mut String, found: &Inspection) {
    let mut line = |key: &str, value: String| {
        let _ = writeln!(text, "{key:<13}{value}");
    };
    let bundled = if found.bundled { ", bundled" } else { "" };
    let synthetic = if found.synthetic { ", SYNTHETIC data, no real market" } else { "" };
    line("dataset", format!("{}{bundled}{synthetic}", found.dataset));
    line("snapshot", found.snapshot.clone());
    line("origin", found.origin.clone());
    line("timeframe", found.timeframe.to_string());
    line("calendar", found.calendar.clone());
    line("columns", found.columns.join(", "));
    if found.symbol_rows > 0 {
        let labels = if found.labels.is_empty() { "none".to_owned() } else { found.labels.join(", ") };
        line("labels", format!("{labels} ({} of the symbol table)", counted(found.symbol_rows as usize, "row")));
    }
    if !found.attributes.is_empty() {
        let rows = counted(found.attribute_rows as usize, "row");
        line("attributes", format!("{} ({rows})", found.attributes.join(", ")));
    }
    if found.factors > 0 {
        line("factors", format!("{} of splits and dividends", counted(found.factors as usize, "row")));
    }
    line("symbols", format!("{} in {}", thousands(found.symbols), counted(found.files.len(), "group")));
    line(
        "bars",
        format!(
            "{}, {} to {} a symbol",
            thousands(found.bars),
            thousands(found.bars_fewest),
            thousands(found.bars_most)
        ),
    );
    line("from", format_time(found.first_time));
    let ended = match found.symbols_ended {
        0 => String::new(),
        ended => format!(" ({} end earlier)", counted(ended as usize, "symbol")),
    };
    line("to", format_time(found.last_time) + &ended);
    line("complete to", format_time(found.complete_to));
    line("bytes", format!("{} of Arrow IPC files", bytes(found.bytes)));
    if found.appended_files > 0 {
        let (bars, files) = (thousands(found.appended_bars), counted(found.appended_files as usize, "file"));
        line("appended", format!("{bars} bars in {files} ('trawl data compact' makes them part of the groups)"));
    }
    text.push('\n');
}

fn symbols(text: &mut String, entries: &[SymbolEntry], all: bool) {
    let shown = if all { entries.len() } else { entries.len().min(SYMBOLS_SHOWN_MAX) };
    let mut table = new_table();
    table.set_header(["symbol", "bars", "from", "to", "group"]);
    let row = |s: &SymbolEntry| {
        [s.symbol.clone(), thousands(s.rows), format_time(s.first_time), format_time(s.last_time), s.group.to_string()]
    };
    table.add_rows(entries[..shown].iter().map(row));
    right_align(&mut table, &[1, 4]);
    push_table(text, &table, Page::of_stdout());
    if shown < entries.len() {
        let _ = writeln!(text, "  ... and {} more: --all lists them\n", entries.len() - shown);
    }
}

fn one_symbol(text: &mut String, found: &Inspection, symbol: &SymbolInspection) {
    let entry = &symbol.entry;
    let _ = writeln!(
        text,
        "{}: {} from {} to {}, {} without a bar in between\n",
        entry.symbol,
        counted(entry.rows as usize, "bar"),
        format_time(entry.first_time),
        format_time(entry.last_time),
        counted(symbol.bars_missing as usize, "time"),
    );
    let mut table = new_table();
    table.set_header(["column", "smallest", "greatest", "missing"]);
    for c in &symbol.columns {
        let value = |v: Option<f64>| readable(v.unwrap_or(f64::NAN));
        table.add_row([c.column.clone(), value(c.smallest), value(c.greatest), thousands(c.missing)]);
    }
    right_align(&mut table, &[1, 2, 3]);
    push_table(text, &table, Page::of_stdout());
    let mut table = new_table();
    table.set_header(std::iter::once("time").chain(found.columns.iter().map(String::as_str)));
    for bar in &symbol.sample {
        let values = bar.values.iter().map(|v| readable(v.unwrap_or(f64::NAN)));
        table.add_row(std::iter::once(format_time(bar.time)).chain(values));
    }
    right_align(&mut table, &(1..=found.columns.len()).collect::<Vec<_>>());
    push_table(text, &table, Page::of_stdout());
    listing(text, found, symbol);
    factors(text, symbol);
    jumps(text, symbol.jumps, &symbol.jumps_listed);
}

/// Ticker and labels, with the interval in which they hold.
fn listing(text: &mut String, found: &Inspection, symbol: &SymbolInspection) {
    if symbol.listing.is_empty() {
        return;
    }
    let mut table = new_table();
    table.set_header(["ticker", "from", "before"].into_iter().chain(found.labels.iter().map(String::as_str)));
    for row in &symbol.listing {
        let time = |t: Option<TimeMicros>| t.map_or_else(String::new, format_time);
        let ticker = row.ticker.clone().unwrap_or_else(|| row.symbol.clone());
        let labels = found.labels.iter().map(|label| row.labels.get(label).cloned().unwrap_or_default());
        table.add_row([ticker, time(row.from), time(row.to)].into_iter().chain(labels));
    }
    push_table(text, &table, Page::of_stdout());
}

/// Splits and dividends.
fn factors(text: &mut String, symbol: &SymbolInspection) {
    if symbol.factors.is_empty() {
        return;
    }
    let hidden = symbol.factors.len().saturating_sub(FACTORS_SHOWN_MAX);
    let mut table = new_table();
    table.set_header(["ex-date", "split", "dividend"]);
    for row in &symbol.factors[hidden..] {
        let shown = |value: f64, none: f64| if value == none { String::new() } else { readable(value) };
        table.add_row([format_time(row.date), shown(row.split, 1.0), shown(row.dividend, 0.0)]);
    }
    right_align(&mut table, &[1, 2]);
    push_table(text, &table, Page::of_stdout());
    if hidden > 0 {
        let _ = writeln!(text, "  ... and {hidden} earlier: --json has all\n");
    }
}

fn checked(text: &mut String, checks: &Checks) {
    for problem in &checks.problems {
        let _ = writeln!(text, "damaged: {problem}");
    }
    if checks.problems.is_empty() {
        let _ = writeln!(
            text,
            "verified: {} read, all unchanged since they were written",
            counted(checks.files as usize, "file")
        );
    }
    jumps(text, checks.jumps, &checks.jumps_listed);
}
