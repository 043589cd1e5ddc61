//! What an import did, or would do, in words.

use std::fmt::Write as _;

use trawl_market::{ImportPreview, ImportReport, SkippedFile, format_time};

use crate::app::Context;
use crate::commands::data::jumps::jumps;
use crate::output::table::short_snapshot;
use trawl_front::human::{counted, thousands};

/// Files left out that are listed.
const SKIPPED_SHOWN: usize = 10;

/// What a preview and a report have in common.
fn skipped(line: &mut impl FnMut(String), skipped: &[SkippedFile]) {
    for file in skipped.iter().take(SKIPPED_SHOWN) {
        line(format!("left out {}: {}", file.file, file.why));
    }
    if skipped.len() > SKIPPED_SHOWN {
        line(format!("left out {} more", counted(skipped.len() - SKIPPED_SHOWN, "file")));
    }
}

/// A preview, in words.
pub fn preview_text(preview: &ImportPreview) -> String {
    let mut text = String::new();
    let mut line = |words: String| {
        let _ = writeln!(text, "{words}");
    };
    for layout in &preview.layouts {
        line(format!(
            "{} as {}, such as {}:",
            counted(layout.files as usize, "file"),
            layout.format,
            layout.first_file
        ));
        for (column, meaning) in &layout.meanings {
            let column = if column.is_empty() { "(no name)" } else { column };
            line(format!("  {column:<24} -> {meaning}"));
        }
        if !layout.ignored.is_empty() {
            line(format!("  not kept: {}", layout.ignored.join(", ")));
        }
    }
    skipped(&mut line, &preview.skipped);
    let inferred = if preview.timeframe_inferred { " (inferred from the spacing of the bars)" } else { "" };
    line(format!("timeframe  {}{inferred}", preview.timeframe));
    line(format!("zone       {}", preview.zone.as_deref().unwrap_or("as written, UTC where none is")));
    let fit = preview.fit.as_deref().unwrap_or("all bars fit");
    line(format!("calendar   {}: {fit}", preview.calendar));
    line(format!(
        "bars       {} of {}, from {}",
        thousands(preview.bars),
        counted(preview.symbols as usize, "symbol"),
        counted(preview.rows_read as usize, "row")
    ));
    for bar in &preview.first_bars {
        let values = preview.columns.iter().zip(&bar.values);
        let values = values.map(|(name, v)| format!("{name} {}", v.map_or_else(|| "-".to_owned(), |v| v.to_string())));
        line(format!("  {} {}  {}", bar.symbol, format_time(bar.time), values.collect::<Vec<_>>().join("  ")));
    }
    for (reason, count) in &preview.quarantined {
        line(format!("quarantine {} {reason}", thousands(*count)));
    }
    for (file, number, reason, row) in &preview.bad_rows {
        line(format!("  {file}, line {number}, {reason}: {row}"));
    }
    for note in &preview.notes {
        line(format!("note: {note}"));
    }
    let what = if preview.created { "would be created" } else { "would be added to" };
    line(format!("dataset {} {what}; nothing was written (--dry-run)", preview.dataset));
    text
}

fn rows(line: &mut impl FnMut(String), report: &ImportReport) {
    line(format!(
        "read {} of {} from {}",
        counted(report.rows_read as usize, "row"),
        counted(report.symbols_imported as usize, "symbol"),
        counted(report.files as usize - report.skipped.len(), "file")
    ));
    let formats: Vec<String> = report.formats.keys().filter(|f| *f != "csv").cloned().collect();
    if !formats.is_empty() {
        line(format!("recognised {}", formats.join(", ")));
    }
    skipped(line, &report.skipped);
    line(format!(
        "kept {}: {} new, {} unchanged, {} with new values",
        thousands(report.rows_kept),
        thousands(report.rows_added),
        thousands(report.rows_unchanged),
        thousands(report.rows_revised)
    ));
    if report.rows_removed > 0 {
        line(format!(
            "removed {} of replaced days that did not come again",
            counted(report.rows_removed as usize, "bar")
        ));
    }
}

/// A report, in words.
pub fn report_text(report: &ImportReport, context: &Context) -> String {
    let mut text = String::new();
    let mut line = |words: String| {
        let _ = writeln!(text, "{words}");
    };
    if report.files > 0 {
        rows(&mut line, report);
    }
    if report.rows_quarantined > 0 {
        line(format!("put {} into quarantine:", counted(report.rows_quarantined as usize, "bad row")));
        for (reason, count) in &report.quarantined {
            line(format!("  {} {reason}", thousands(*count)));
        }
        if let Some(file) = &report.quarantine_file {
            line(format!("  they are in {}", context.below(file)));
        }
    }
    if !report.ignored_columns.is_empty() {
        line(format!("columns not kept: {}", report.ignored_columns.join(", ")));
    }
    for note in report.fit.iter().chain(&report.notes) {
        line(format!("note: {note}"));
    }
    jumps(&mut text, report.jumps, &report.jumps_listed);
    let made = match (report.created, report.unchanged) {
        (true, _) => "new",
        (_, true) => "unchanged",
        _ => "now",
    };
    let _ = writeln!(
        text,
        "dataset {}@{} ({made}): {}, {} of {}{}, {} to {}",
        report.dataset,
        short_snapshot(&report.snapshot),
        counted(report.symbols as usize, "symbol"),
        counted(report.bars as usize, "bar"),
        report.timeframe,
        if report.timeframe_inferred { " (inferred from their spacing)" } else { "" },
        format_time(report.first_time),
        format_time(report.last_time)
    );
    let _ = writeln!(text, "calendar {}, complete to {}", report.calendar, format_time(report.complete_to));
    if report.symbol_rows > 0 {
        let labels = if report.labels.is_empty() { "none".to_owned() } else { report.labels.join(", ") };
        let _ = writeln!(text, "symbol table of {}, labels: {labels}", counted(report.symbol_rows as usize, "row"));
    }
    if !report.attributes.is_empty() {
        let _ = writeln!(text, "attributes: {}", report.attributes.join(", "));
    }
    if report.factors > 0 {
        let _ = writeln!(text, "{} of splits and dividends", counted(report.factors as usize, "row"));
    }
    text
}
