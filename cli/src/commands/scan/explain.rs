//! `--explain`: the plan, and what it means for this dataset. Only the manifest is read, and nothing is run.

use std::fmt::Write as _;

use trawl_coordinator::{PreparedScan, Route};

use crate::human::{bytes, counted, duration_ns, thousands};

/// Bytes of one value or time.
const VALUE_BYTES: u64 = 8;

/// The text, ending in a line break.
pub fn text(prepared: &PreparedScan, route: Route, asked: bool) -> String {
    let manifest = &prepared.dataset.manifest;
    let threads = route.threads();
    let bars = prepared.bar_count();
    let columns = prepared.plan.columns.len() as u64;
    let read = bars * (columns + 1) * VALUE_BYTES;
    let work = bars as f64 * prepared.plan.cost_ns_per_bar();
    let mut text = prepared.plan.explain();
    text.push('\n');
    let synthetic = if manifest.synthetic { " (SYNTHETIC data, no real market)" } else { "" };
    let mut line = |key: &str, value: String| {
        let _ = writeln!(text, "{key:<10}{value}");
    };
    line("dataset", format!("{}, {} bars{synthetic}", prepared.dataset_reference(), manifest.timeframe));
    line("as of", prepared.shown_as_of());
    line(
        "symbols",
        format!("{} in {}", thousands(prepared.symbol_count() as u64), counted(prepared.segments.len(), "segment")),
    );
    line("bars", thousands(bars));
    line(
        "bytes",
        format!("{} to read: {} and the time of every bar", bytes(read), counted(columns as usize, "column")),
    );
    let references = prepared.plan.references();
    if !references.is_empty() {
        let rows: u64 = references.iter().filter_map(|name| manifest.symbol(name)).map(|entry| entry.rows).sum();
        let read = bytes(rows * (columns + 1) * VALUE_BYTES);
        line("beside", format!("{read} of {}, which each process also reads", references.join(", ")));
    }
    let crosses = prepared.plan.crosses.len();
    if crosses > 0 {
        let a_time = crosses as u64 * prepared.symbol_count() as u64 * VALUE_BYTES;
        let crosses = counted(crosses, "cross-section");
        line("gathered", format!("{} for each time at which {crosses} are read", bytes(a_time)));
    }
    if prepared.plan.points.len() > 1 {
        let rows = thousands(prepared.answer_rows());
        line("answer", format!("{rows} rows at most, about {} of memory", bytes(prepared.answer_bytes())));
    }
    line("memory", format!("{} for each thread besides the bars", bytes(prepared.workspace_bytes())));
    line(
        "cost",
        format!(
            "about {} of one core, {} with {}, without reading",
            duration_ns(work),
            duration_ns(work / threads.max(1) as f64),
            counted(threads, "thread")
        ),
    );
    let why = if asked { "set by --threads" } else { "chosen by cost; --threads overrides" };
    line("runs", format!("{route} of the CPU, {why}; the answer is the same"));
    line("precision", prepared.identity.precision.clone());
    text
}
