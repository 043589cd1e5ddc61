//! `--explain`: what the scan means for this dataset, and `--plan`: its steps too. Only the manifest is read, and nothing is run.

use std::fmt::Write as _;

use trawl_coordinator::{NearQuestion, PreparedScan, Route};

use crate::output::table::{cell, clean};
use trawl_front::human::{bytes, counted, duration_ns, thousands};

/// Bytes of one value or time.
const VALUE_BYTES: u64 = 8;
/// Symbols with too few bars that are named.
const SHORT_SHOWN_MAX: usize = 5;
/// Columns before the values.
const KEY_WIDTH: usize = 11;

/// The text, ending in a line break; with the steps of the plan if `steps` asks for them.
///
/// # Errors
/// Errors of the disk.
pub fn text(prepared: &PreparedScan, route: Route, asked: bool, steps: bool) -> anyhow::Result<String> {
    let mut text = String::new();
    if steps {
        text.push_str(&prepared.plan.explain());
        text.push('\n');
    }
    what(&mut text, prepared)?;
    needs(&mut text, prepared);
    cost(&mut text, prepared, route, asked);
    let nodes = counted(prepared.plan.nodes().len(), "step");
    let shown = if steps { String::new() } else { "; --plan shows them".to_owned() };
    line(&mut text, "plan", &format!("{nodes}, {}{shown}", prepared.identity.plan.get(..12).unwrap_or_default()));
    Ok(text)
}

fn line(text: &mut String, key: &str, value: &str) {
    let _ = writeln!(text, "{key:<KEY_WIDTH$}{value}");
}

/// What is scanned.
fn what(text: &mut String, prepared: &PreparedScan) -> anyhow::Result<()> {
    let manifest = &prepared.dataset.manifest;
    if let Some(name) = &prepared.document.name {
        line(text, "scan", &clean(name));
    }
    let synthetic = if manifest.synthetic { " (SYNTHETIC data, no real market)" } else { "" };
    line(text, "dataset", &format!("{}, {} bars{synthetic}", prepared.dataset_reference(), manifest.timeframe));
    line(text, "as of", &prepared.shown_as_of());
    if prepared.plan.points.len() > 1 {
        let rows = thousands(prepared.answer_rows());
        let points = counted(prepared.plan.points.len(), "combination");
        let size = bytes(prepared.answer_bytes());
        line(text, "sweep", &format!("{points}; {rows} rows at most, about {size} of memory"));
    }
    let needed = prepared.executable.bars_needed();
    let (least, most) = (needed.iter().min().copied().unwrap_or(0), needed.iter().max().copied().unwrap_or(0));
    let range = if least == most { String::new() } else { format!("{least} to ") };
    line(text, "needs", &format!("{range}{} of a symbol before the condition has a value", counted(most, "bar")));
    if prepared.plan.points.len() == 1 {
        let question = NearQuestion::new(prepared)?;
        if question.terms() > 1 {
            for (term, bars) in question.needs() {
                let term = cell(&term.split_whitespace().collect::<Vec<_>>().join(" "));
                line(text, "", &format!("{:>7} {term}", thousands(bars as u64)));
            }
        }
    }
    Ok(())
}

/// Which symbols have too few bars, as far as the manifest says.
fn needs(text: &mut String, prepared: &PreparedScan) {
    let manifest = &prepared.dataset.manifest;
    let needed = prepared.executable.bars_needed().iter().min().copied().unwrap_or(0) as u64;
    let is_scanned = |group: &u32| prepared.segments.contains(group);
    let scanned: Vec<_> = manifest.symbols.iter().filter(|entry| is_scanned(&entry.group)).collect();
    // Of bars that reach beyond the as-of it is not known how many lie before it.
    let beyond = scanned.iter().any(|entry| entry.last_time > prepared.as_of);
    let visible = |first: i64, rows: u64| if first > prepared.as_of { 0 } else { rows };
    let mut short: Vec<(u64, &str)> = scanned
        .iter()
        .map(|entry| (visible(entry.first_time, entry.rows), entry.symbol.as_str()))
        .filter(|(bars, _)| *bars < needed)
        .collect();
    short.sort_unstable();
    let count = thousands(short.len() as u64);
    let least = if beyond { "at least " } else { "" };
    let of = counted(scanned.len(), "symbol");
    let named = short.iter().take(SHORT_SHOWN_MAX).map(|(bars, symbol)| format!("{} ({bars})", cell(symbol)));
    let named = named.collect::<Vec<_>>().join(", ");
    let more = if short.len() > SHORT_SHOWN_MAX { ", ..." } else { "" };
    let named = if named.is_empty() { String::new() } else { format!(": {named}{more}") };
    line(text, "too short", &format!("{least}{count} of {of}{named}"));
}

/// What is read and computed.
fn cost(text: &mut String, prepared: &PreparedScan, route: Route, asked: bool) {
    let manifest = &prepared.dataset.manifest;
    let threads = route.threads();
    let bars = prepared.bar_count();
    let columns = prepared.plan.columns.len() as u64;
    let read = bars * (columns + 1) * VALUE_BYTES;
    let work = bars as f64 * prepared.plan.cost_ns_per_bar();
    let segments = counted(prepared.segments.len(), "segment");
    let symbols = thousands(prepared.symbol_count() as u64);
    let names = prepared.plan.columns.join(", ");
    line(
        text,
        "reads",
        &format!("{symbols} symbols in {segments}, {} bars: {names}, {}", thousands(bars), bytes(read)),
    );
    let references = prepared.plan.references();
    if !references.is_empty() {
        let rows: u64 = references.iter().filter_map(|name| manifest.symbol(name)).map(|entry| entry.rows).sum();
        let read = bytes(rows * (columns + 1) * VALUE_BYTES);
        line(text, "beside", &format!("{read} of {}, which each process also reads", references.join(", ")));
    }
    let crosses = prepared.plan.crosses.len();
    if crosses > 0 {
        let a_time = crosses as u64 * prepared.symbol_count() as u64 * VALUE_BYTES;
        let crosses = counted(crosses, "cross-section");
        line(text, "gathered", &format!("{} for each time at which {crosses} are read", bytes(a_time)));
    }
    line(text, "memory", &format!("{} for each thread besides the bars", bytes(prepared.workspace_bytes())));
    let whole = duration_ns(work);
    let shared = duration_ns(work / threads.max(1) as f64);
    let with = counted(threads, "thread");
    line(text, "cost", &format!("about {whole} of one core, {shared} with {with}, without reading"));
    let why = if asked { "set by --threads" } else { "chosen by cost; --threads overrides" };
    line(text, "runs", &format!("{route} of the CPU, {why}; the answer is the same"));
    line(text, "precision", &prepared.identity.precision);
}
