//! `--explain`: what the scan means for this dataset, and `--plan`: its steps too, as text.

use std::fmt::Write as _;

use trawl_coordinator::{PreparedScan, Route};
use trawl_front::explain::{Explanation, NeededElsewhere, PartlyShortSymbol};
use trawl_front::human::{bytes, counted, duration_ns, thousands};

use crate::output::table::{cell, clean};

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
    let explanation = Explanation::of(prepared)?;
    what(&mut text, &explanation);
    needs(&mut text, &explanation);
    cost(&mut text, &explanation, route, asked);
    let nodes = counted(explanation.steps as usize, "step");
    let shown = if steps { String::new() } else { "; --plan shows them".to_owned() };
    line(&mut text, "plan", &format!("{nodes}, {}{shown}", explanation.plan.get(..12).unwrap_or_default()));
    Ok(text)
}

fn line(text: &mut String, key: &str, value: &str) {
    let _ = writeln!(text, "{key:<KEY_WIDTH$}{value}");
}

/// What is scanned.
fn what(text: &mut String, of: &Explanation) {
    if let Some(name) = &of.name {
        line(text, "scan", &clean(name));
    }
    let synthetic = if of.synthetic { " (SYNTHETIC data, no real market)" } else { "" };
    line(text, "dataset", &format!("{}, {} bars{synthetic}", of.dataset, of.timeframe));
    line(text, "as of", &of.as_of);
    if of.combinations > 1 {
        let (rows, size) = (thousands(of.rows_max), bytes(of.answer_bytes));
        let points = counted(of.combinations as usize, if of.scans { "scan" } else { "combination" });
        let key = if of.scans { "scans" } else { "sweep" };
        line(text, key, &format!("{points}; {rows} rows at most, about {size} of memory"));
    }
    let (least, most) = of.bars_needed;
    let range = if least == most { String::new() } else { format!("{least} to ") };
    let most = counted(most as usize, "bar");
    let elsewhere = |needed: &[NeededElsewhere]| {
        let one = |needed: &NeededElsewhere| format!(", {} of {}", thousands(needed.bars), cell(&needed.of));
        needed.iter().map(one).collect::<String>()
    };
    let others = elsewhere(&of.bars_needed_of);
    line(text, "needs", &format!("{range}{most} of a symbol{others} before the condition has a value"));
    for needs in &of.terms {
        let term = cell(&needs.term.split_whitespace().collect::<Vec<_>>().join(" "));
        line(text, "", &format!("{:>7}{} {term}", thousands(needs.bars), elsewhere(&needs.bars_of)));
    }
    if of.universe_needs > 1 {
        let needed = counted(of.universe_needs as usize, "bar");
        line(text, "universe", &format!("needs {needed} of a symbol; outside before"));
    }
}

/// Which symbols have too few bars, as far as the manifest says.
fn needs(text: &mut String, of: &Explanation) {
    let count = thousands(of.too_short.len() as u64);
    let least = if of.too_short_at_least { "at least " } else { "" };
    let symbols = counted(of.symbols as usize, "symbol");
    let short = named(of.too_short.iter().map(|s| format!("{} ({})", cell(&s.symbol), s.bars)));
    line(text, "too short", &format!("{least}{count} of {symbols}{short}"));
    if of.too_short_for_some.is_empty() {
        return;
    }
    let some = thousands(of.too_short_for_some.len() as u64);
    let (all, what) = (of.combinations, if of.scans { "scans" } else { "combinations" });
    let one = |s: &PartlyShortSymbol| format!("{} ({}, for {})", cell(&s.symbol), s.bars, thousands(s.combinations));
    let short = named(of.too_short_for_some.iter().map(one));
    line(text, "", &format!("{least}{some} more for some of the {} {what}{short}", thousands(all)));
}

/// The first of several symbols, behind a colon.
fn named(symbols: impl ExactSizeIterator<Item = String>) -> String {
    let more = if symbols.len() > SHORT_SHOWN_MAX { ", ..." } else { "" };
    match symbols.take(SHORT_SHOWN_MAX).collect::<Vec<_>>().join(", ") {
        none if none.is_empty() => none,
        named => format!(": {named}{more}"),
    }
}

/// What is read and computed.
fn cost(text: &mut String, of: &Explanation, route: Route, asked: bool) {
    let threads = route.threads();
    let segments = counted(of.segments as usize, "segment");
    let names = of.columns.join(", ");
    let (bars, read) = (thousands(of.bars), bytes(of.read_bytes));
    // All of the snapshot, also those that are not scanned.
    let symbols = thousands(of.symbols_stored);
    line(text, "reads", &format!("{symbols} symbols in {segments}, {bars} bars: {names}, {read}"));
    if !of.references.is_empty() {
        let read = bytes(of.reference_bytes);
        line(text, "beside", &format!("{read} of {}, which each process also reads", of.references.join(", ")));
    }
    if of.cross_sections > 0 {
        let crosses = counted(of.cross_sections as usize, "cross-section");
        let (a_time, are) = (bytes(of.cross_bytes), if of.cross_sections == 1 { "is" } else { "are" });
        line(text, "gathered", &format!("{a_time} for each time at which {crosses} {are} read"));
    }
    line(text, "memory", &format!("{} for each thread besides the bars", bytes(of.workspace_bytes)));
    let whole = duration_ns(of.cost_ns);
    let shared = duration_ns(of.cost_ns / threads.max(1) as f64);
    let with = counted(threads, "thread");
    line(text, "cost", &format!("about {whole} of one core, {shared} with {with}, without reading"));
    let why = if asked { "set by --threads" } else { "chosen by cost; --threads overrides" };
    line(text, "runs", &format!("{route} of the CPU, {why}; the answer is the same"));
    line(text, "precision", &of.precision);
}
