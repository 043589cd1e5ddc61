//! `trawl data import`: files of bars into a dataset. The market crate decides about each row; here the decisions are
//! reported.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use trawl_market::Timeframe;
use trawl_market::limits::IMPORT_MEMORY_MIN;
use trawl_market::{
    Appending, AsOf, Calendar, FILE_ENDINGS, GZIP_ENDING, ImportOptions, ImportPreview, ImportReport, SkippedFile,
    format_time, import_files, now, preview_files,
};

use super::inspect::jumps;
use crate::app::Context;
use crate::commands::reading::{FORMATS_HELP, ReadArgs};
use crate::failure::{UserMistake, of_market};
use crate::human::{counted, thousands};
use crate::output::table::short_snapshot;

const AFTER_HELP: &str = "\
The timeframe is inferred from the spacing of the bars; a --timeframe that contradicts it is refused. Times without a zone are \
read as UTC unless --tz names one; if most bars would then lie outside the sessions of the calendar, the import is refused, \
and so it is if many bars are on days without a session (use --calendar 24/7). --dry-run shows all this and writes nothing.

Importing into an existing dataset adds to it: a new snapshot is made, the old ones stay. Bars that are imported again with other \
values replace the old ones. Rows that cannot be bars (high below low, no price, a duplicate time ...) go to a quarantine \
file with their reasons and are counted; they never stop an import unless nothing is left. A file that cannot be read is \
left out and reported; --strict refuses the import.

Prices are stored as they are. Splits and dividends are a separate table (--factors), applied when a scan asks for \
it; a row with split 1 and dividend 0 removes an event. Names and labels are another table (--symbols), which replaces the \
previous one. Numbers and dates of symbols are a third one (--attributes): each value is known from its date on. They may be \
imported without bars into an existing dataset.

  factors     symbol,date,split,dividend: ex-date, new shares for an old one (4, or 0.1), cash per share; or ticker, execution_date and split_from,split_to or historical_adjustment_factor
  symbols     symbol,ticker,from,to and one column for each label, such as sector; several rows of a symbol with intervals from <= time < to describe renames and changes
  attributes  symbol,date and one column for each attribute, such as market_cap or earnings: numbers or dates, known from date on; an empty cell changes nothing

Examples:
  trawl data import AAPL.csv IBM.csv --dataset mine
  trawl data import minutes.parquet --dataset minutes --tz America/New_York --dry-run
  trawl data import klines/ --dataset crypto
  duckdb -c \"copy bars to '/dev/stdout' (format parquet)\" | trawl data import - --dataset mine
  trawl data import --dataset mine --factors splits.csv --symbols names.csv";

/// Import files of bars into a dataset: CSV, JSON lines, Parquet, Arrow
#[derive(Debug, clap::Args)]
#[command(after_help = format!("{FORMATS_HELP}\n\n{AFTER_HELP}"))]
pub struct Args {
    /// Files of bars; a directory means the files of bars in it, '-' is standard input
    #[arg(value_name = "FILE", required_unless_present_any = ["factors", "symbols", "attributes", "calendar", "complete_to"])]
    files: Vec<PathBuf>,

    /// Dataset to create or to add to: a-z, 0-9, '_' and '-'
    #[arg(long, short, value_name = "NAME")]
    dataset: String,

    #[command(flatten)]
    read: ReadArgs,

    /// Length of a bar, such as 1d, 15m or 1h [default: the dataset's; for a new one it is inferred from the bars'
    /// spacing]
    #[arg(long, short, value_name = "TIMEFRAME")]
    timeframe: Option<Timeframe>,

    /// Exchange calendar: the exchange's code, such as XNYS, XLON or CMES, 24/7 or weekdays; a wrong name lists them all [default: the dataset's, XNYS for a new one]
    #[arg(long, value_name = "CALENDAR", value_parser = calendar)]
    calendar: Option<String>,

    /// Date (its end) or time on the exchange's clock up to which the bars are complete; a bar that ends later is still
    /// forming [default: the end of the last bar that has ended by now]
    #[arg(long, value_name = "WHEN", value_parser = time)]
    complete_to: Option<AsOf>,

    /// CSV file of splits and dividends, added to those there are
    #[arg(long, value_name = "FILE")]
    factors: Option<PathBuf>,

    /// CSV file of names and labels (sector, industry ...) of symbols
    #[arg(long, value_name = "FILE")]
    symbols: Option<PathBuf>,

    /// CSV file of numbers and dates of symbols (market capitalisation, next earnings ...), added to those there are
    #[arg(long, value_name = "FILE")]
    attributes: Option<PathBuf>,

    /// Memory that the import may use, such as 2GiB or 512MiB: rows that do not fit go to a file in the data root that
    /// vanishes with the import. The dataset is the same [default: half of what the machine has left]
    #[arg(long, value_name = "SIZE", value_parser = memory)]
    memory: Option<u64>,

    /// Refuse the import for a file that cannot be read, instead of leaving it out
    #[arg(long)]
    strict: bool,

    /// Show how the files are understood, and write nothing
    #[arg(long)]
    dry_run: bool,

    /// Print JSON, times in microseconds since 1970-01-01 UTC
    #[arg(long)]
    json: bool,
}

fn calendar(text: &str) -> Result<String, String> {
    Calendar::named(text).map(|c| c.name().to_owned()).map_err(|e| e.to_string())
}

/// Bytes, with a unit or without.
pub(super) fn memory(text: &str) -> Result<u64, String> {
    const UNITS: [(&str, u64); 7] = [
        ("KiB", 1 << 10),
        ("MiB", 1 << 20),
        ("GiB", 1 << 30),
        ("TiB", 1 << 40),
        ("K", 1 << 10),
        ("M", 1 << 20),
        ("G", 1 << 30),
    ];
    let text = text.trim();
    let unit = UNITS.iter().find_map(|(name, bytes)| Some((text.strip_suffix(name)?, *bytes)));
    let (number, unit) = unit.unwrap_or((text, 1));
    let bytes = number.trim().parse::<u64>().ok().and_then(|number| number.checked_mul(unit));
    let bytes = bytes.ok_or("expected a number of bytes, such as 2GiB, 512MiB or 1073741824")?;
    match bytes >= IMPORT_MEMORY_MIN {
        true => Ok(bytes),
        false => Err(format!("an import needs {} at least", crate::human::bytes(IMPORT_MEMORY_MIN))),
    }
}

fn time(text: &str) -> Result<AsOf, String> {
    match AsOf::parse(text).map_err(|mistake| format!("{mistake}; {}", mistake.help))? {
        AsOf::LastSession => Err("a date or a time is expected, such as 2024-11-29 or '2024-11-29 13:00'".to_owned()),
        time => Ok(time),
    }
}

/// Imports, and reports what happened to every row.
pub fn run(args: Args, context: &Context) -> anyhow::Result<ExitCode> {
    let options = ImportOptions {
        dataset: args.dataset,
        files: files_of(args.files)?,
        read: args.read.options()?,
        timeframe: args.timeframe,
        strict: args.strict,
        calendar: args.calendar,
        complete_to: args.complete_to,
        clock: Some(now()),
        factors: args.factors,
        symbols: args.symbols,
        attributes: args.attributes,
        memory: args.memory,
        appending: Appending::Auto,
    };
    if args.dry_run {
        let preview = preview_files(&context.store()?, &options).map_err(of_market)?;
        let text =
            if args.json { format!("{}\n", serde_json::to_string_pretty(&preview)?) } else { preview_text(&preview) };
        io::stdout().write_all(text.as_bytes()).context("cannot write to standard output")?;
        return Ok(ExitCode::SUCCESS);
    }
    let report = import_files(&context.store()?, &options).map_err(of_market)?;
    let text = if args.json { format!("{}\n", serde_json::to_string_pretty(&report)?) } else { text(&report, context) };
    io::stdout().write_all(text.as_bytes()).context("cannot write to standard output")?;
    if !report.skipped.is_empty() {
        let (skipped, files) = (report.skipped.len(), counted(report.files as usize, "file"));
        crate::diagnostics::warning_line(&format!(
            "{skipped} of {files} could not be read and were left out; see above"
        ));
    }
    Ok(ExitCode::SUCCESS)
}

/// The files, with each directory replaced by its files, sorted by name. A directory is useful where no shell expands
/// `*.csv`, such as in a scheduled job.
fn files_of(paths: Vec<PathBuf>) -> Result<Vec<PathBuf>, UserMistake> {
    let mut files = Vec::new();
    for path in paths {
        if !path.is_dir() {
            files.push(path);
            continue;
        }
        let unreadable = |error: io::Error| UserMistake::plain(format!("cannot list '{}': {error}", path.display()));
        let entries = path.read_dir().and_then(Iterator::collect::<io::Result<Vec<_>>>).map_err(unreadable)?;
        let mut inside: Vec<PathBuf> = entries.into_iter().map(|entry| entry.path()).filter(|p| is_bars(p)).collect();
        if inside.is_empty() {
            return Err(UserMistake::with_help(
                format!("the directory '{}' contains no file of bars ({})", path.display(), FILE_ENDINGS.join(", ")),
                "name the files, or the directory that contains them: subdirectories are not searched",
            ));
        }
        inside.sort();
        files.append(&mut inside);
    }
    Ok(files)
}

fn is_bars(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_ascii_lowercase();
    let name = name.strip_suffix(GZIP_ENDING).unwrap_or(&name);
    FILE_ENDINGS.iter().any(|ending| name.ends_with(ending)) && path.is_file()
}

/// What a preview and a report have in common.
fn skipped(line: &mut impl FnMut(String), skipped: &[SkippedFile]) {
    for file in skipped.iter().take(SKIPPED_SHOWN) {
        line(format!("left out {}: {}", file.file, file.why));
    }
    if skipped.len() > SKIPPED_SHOWN {
        line(format!("left out {} more", counted(skipped.len() - SKIPPED_SHOWN, "file")));
    }
}

fn preview_text(preview: &ImportPreview) -> String {
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

/// Files left out that are listed.
const SKIPPED_SHOWN: usize = 10;

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
}

fn text(report: &ImportReport, context: &Context) -> String {
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
