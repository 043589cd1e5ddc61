//! `trawl import`: CSV files into a dataset. What becomes of each row is decided in the market room; here it is told.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use trawl_market::{
    Calendar, DateOrder, ImportFormat, ImportOptions, ImportReport, TimeMicros, format_time, import_files, now,
    parse_time,
};

use super::inspect::jumps;
use crate::context::Context;
use crate::failure::{UserMistake, of_market};
use crate::number::{counted, thousands};
use crate::output::table::short_snapshot;

const AFTER_HELP: &str = "\
Formats:
  yahoo-csv   Date,Open,High,Low,Close,Adj Close,Volume in any order; one symbol per file, named by the file
  csv         any header with a time and a close (or mapped to them); a symbol column, else named by the file

Files may be gzip. Importing into a dataset that exists adds to it: a new snapshot, the old ones stay. Bars that come \
again with other values replace the old ones. Rows that cannot be bars (high below low, no price, a double time ...) go \
to a quarantine file with their reasons and are counted; they never stop an import unless nothing is left.

Prices are stored as they are. Splits and dividends are a table beside them (--factors), applied when a scan asks for it; a row with split 1 and dividend 0 takes an event away. Names and labels are another (--symbols), which replaces the one there was. Both may be imported alone into a dataset that exists.

  factors     symbol,date,split,dividend: ex-date, new shares for an old one (4, or 0.1), cash per share; or ticker, execution_date and split_from,split_to or historical_adjustment_factor
  symbols     symbol,ticker,from,to and one column for each label, such as sector; several rows of a symbol with intervals from <= time < to tell renames and changes

Examples:
  trawl import AAPL.csv IBM.csv --dataset mine --format yahoo-csv
  trawl import minutes.csv.gz --dataset minutes --timeframe 1m --map close=last,symbol=ticker
  trawl import --dataset mine --factors splits.csv --symbols names.csv";

/// Import CSV files of bars into a dataset
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    /// CSV files of bars, plain or gzip; a directory stands for the .csv and .csv.gz files in it
    #[arg(value_name = "FILE", required_unless_present_any = ["factors", "symbols", "calendar", "complete_to"])]
    files: Vec<PathBuf>,

    /// Dataset to make or to add to: a-z, 0-9, '_' and '-'
    #[arg(long, short, value_name = "NAME")]
    dataset: String,

    /// How the files spell bars: yahoo-csv or csv
    #[arg(long, short, value_name = "FORMAT", default_value = "csv", value_parser = format)]
    format: ImportFormat,

    /// Length of a bar, such as 1d, 15m or 1h [default: the dataset's, 1d for a new one]
    #[arg(long, short, value_name = "TIMEFRAME")]
    timeframe: Option<String>,

    /// Exchange calendar: the exchange's code, such as XNYS, XLON or CMES, 24/7 or weekdays; a wrong name lists them all [default: the dataset's, XNYS for a new one]
    #[arg(long, value_name = "CALENDAR", value_parser = calendar)]
    calendar: Option<String>,

    /// Up to when the bars are complete; a bar that ends later is still forming [default: the end of the last bar that
    /// has ended by now]
    #[arg(long, value_name = "TIME", value_parser = time)]
    complete_to: Option<TimeMicros>,

    /// CSV file of splits and dividends, added to those there are
    #[arg(long, value_name = "FILE")]
    factors: Option<PathBuf>,

    /// CSV file of names and labels (sector, industry ...) of symbols
    #[arg(long, value_name = "FILE")]
    symbols: Option<PathBuf>,

    /// Take a meaning from a column of another name, such as close=price; several with commas or by repeating
    #[arg(long, value_name = "MEANING=COLUMN", value_delimiter = ',')]
    map: Vec<String>,

    /// Dates such as 1/4/1999 are month first [default: what all dates of the files together tell]
    #[arg(long, conflicts_with = "day_first")]
    month_first: bool,

    /// Dates such as 1/4/1999 are day first
    #[arg(long)]
    day_first: bool,

    /// Print JSON, times in microseconds since 1970-01-01 UTC
    #[arg(long)]
    json: bool,
}

fn format(text: &str) -> Result<ImportFormat, String> {
    text.parse().map_err(|_| "yahoo-csv or csv is expected".to_owned())
}

fn calendar(text: &str) -> Result<String, String> {
    Calendar::named(text).map(|c| c.name().to_owned()).map_err(|e| e.to_string())
}

fn time(text: &str) -> Result<TimeMicros, String> {
    parse_time(text)
        .ok_or_else(|| "a time such as '2024-11-29 18:00' (UTC) or 2024-11-29T13:00:00-05:00 is expected".to_owned())
}

/// Imports and tells what became of every row.
pub fn run(args: Args, context: &Context) -> anyhow::Result<ExitCode> {
    let options = ImportOptions {
        dataset: args.dataset,
        files: files_of(args.files)?,
        format: args.format,
        timeframe: args.timeframe,
        map: args.map.iter().map(|item| split_map(item)).collect::<Result<_, _>>()?,
        date_order: match (args.month_first, args.day_first) {
            (true, _) => Some(DateOrder::MonthFirst),
            (_, true) => Some(DateOrder::DayFirst),
            _ => None,
        },
        calendar: args.calendar,
        complete_to: args.complete_to,
        clock: Some(now()),
        factors: args.factors,
        symbols: args.symbols,
    };
    let report = import_files(&context.store(), &options).map_err(of_market)?;
    let text = if args.json { format!("{}\n", serde_json::to_string_pretty(&report)?) } else { text(&report, context) };
    io::stdout().write_all(text.as_bytes()).context("cannot write to standard output")?;
    Ok(ExitCode::SUCCESS)
}

/// The files, with those of a directory in its place, by name. Where no shell spells out `*.csv`, a directory is what can be
/// named: in a job of a schedule, say.
fn files_of(paths: Vec<PathBuf>) -> Result<Vec<PathBuf>, UserMistake> {
    let mut files = Vec::new();
    for path in paths {
        if !path.is_dir() {
            files.push(path);
            continue;
        }
        let unreadable = |error: io::Error| UserMistake::plain(format!("cannot list '{}': {error}", path.display()));
        let entries = path.read_dir().and_then(Iterator::collect::<io::Result<Vec<_>>>).map_err(unreadable)?;
        let mut inside: Vec<PathBuf> = entries.into_iter().map(|entry| entry.path()).filter(|p| is_csv(p)).collect();
        if inside.is_empty() {
            return Err(UserMistake::with_help(
                format!("no .csv or .csv.gz file is in the directory '{}'", path.display()),
                "name the files, or a directory that holds them itself: directories in it are not looked into",
            ));
        }
        inside.sort();
        files.append(&mut inside);
    }
    Ok(files)
}

fn is_csv(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_ascii_lowercase();
    (name.ends_with(".csv") || name.ends_with(".csv.gz")) && path.is_file()
}

fn split_map(item: &str) -> Result<(String, String), UserMistake> {
    match item.split_once('=').map(|(m, c)| (m.trim(), c.trim())) {
        Some((meaning, column)) if !meaning.is_empty() && !column.is_empty() => {
            Ok((meaning.to_lowercase(), column.to_owned()))
        }
        _ => Err(UserMistake::with_help(
            format!("--map '{item}' does not name a meaning and a column"),
            "write MEANING=COLUMN, such as --map close=price",
        )),
    }
}

fn rows(line: &mut impl FnMut(String), report: &ImportReport) {
    line(format!(
        "read {} of {} from {}",
        counted(report.rows_read as usize, "row"),
        counted(report.symbols_imported as usize, "symbol"),
        counted(report.files as usize, "file")
    ));
    line(format!(
        "kept {}: {} new, {} there already, {} with other values than before",
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
            line(format!("  they are in {}", context.data_root.join(file).display()));
        }
    }
    if !report.ignored_columns.is_empty() {
        line(format!("passed over columns without numbers: {}", report.ignored_columns.join(", ")));
    }
    for note in &report.notes {
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
        "dataset {}@{} ({made}): {}, {} of {}, {} to {}",
        report.dataset,
        short_snapshot(&report.snapshot),
        counted(report.symbols as usize, "symbol"),
        counted(report.bars as usize, "bar"),
        report.timeframe,
        format_time(report.first_time),
        format_time(report.last_time)
    );
    let _ = writeln!(text, "calendar {}, complete to {}", report.calendar, format_time(report.complete_to));
    if report.symbol_rows > 0 {
        let labels = if report.labels.is_empty() { "none".to_owned() } else { report.labels.join(", ") };
        let _ = writeln!(text, "symbol table of {}, labels: {labels}", counted(report.symbol_rows as usize, "row"));
    }
    if report.factors > 0 {
        let _ = writeln!(text, "{} of splits and dividends", counted(report.factors as usize, "row"));
    }
    text
}
