//! `trawl data import FILE...`: files of bars into a dataset. The market crate decides about each row; here the decisions are
//! reported.

use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use trawl_market::Timeframe;
use trawl_market::limits::IMPORT_MEMORY_MIN;
use trawl_market::{
    Appending, AsOf, Calendar, FILE_ENDINGS, ImportOptions, ImportReport, import_files, now, preview_files,
};

use super::report::{preview_text, report_text};
use crate::app::Context;
use crate::commands::reading::ReadArgs;
use crate::failure::{UserMistake, of_market};
use crate::vendor::inbox::Inbox;
use crate::vendor::lake;
use trawl_front::human::counted;

/// Options of an import of files.
#[derive(Debug, clap::Args)]
pub struct FileArgs {
    /// Files of bars; a directory or s3://BUCKET/PREFIX means the files of bars in it, '-' is standard input
    #[arg(value_name = "FILE|URL", required_unless_present_any = ["factors", "symbols", "attributes", "calendar", "complete_to"])]
    files: Vec<PathBuf>,

    /// Dataset to create or to add to: a-z, 0-9, '_' and '-'
    // Optional only for the subcommands of vendors, which have one of their own.
    #[arg(long, short, value_name = "NAME", required = true)]
    dataset: Option<String>,

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

pub fn calendar(text: &str) -> Result<String, String> {
    Calendar::named(text).map(|c| c.name().to_owned()).map_err(|e| e.to_string())
}

/// Bytes, with a unit or without.
pub fn memory(text: &str) -> Result<u64, String> {
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
        false => Err(format!("an import needs {} at least", trawl_front::human::bytes(IMPORT_MEMORY_MIN))),
    }
}

fn time(text: &str) -> Result<AsOf, String> {
    match AsOf::parse(text).map_err(|mistake| format!("{mistake}; {}", mistake.help))? {
        AsOf::LastSession => Err("a date or a time is expected, such as 2024-11-29 or '2024-11-29 13:00'".to_owned()),
        time => Ok(time),
    }
}

/// Imports, and reports what happened to every row.
pub fn run(args: FileArgs, context: &Context) -> anyhow::Result<ExitCode> {
    let store = context.store()?;
    let dataset = args.dataset.unwrap_or_default();
    let inbox = Inbox::of(context, "files", &dataset);
    let (files, shown) = files_of(args.files, &inbox)?;
    let options = ImportOptions {
        dataset,
        files,
        shown,
        arrivals: None,
        dated_files: false,
        ticker_dates: false,
        replaced_dates: Vec::new(),
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
        let preview = preview_files(&store, &options).map_err(of_market)?;
        let text =
            if args.json { format!("{}\n", serde_json::to_string_pretty(&preview)?) } else { preview_text(&preview) };
        io::stdout().write_all(text.as_bytes()).context("cannot write to standard output")?;
        return Ok(ExitCode::SUCCESS);
    }
    let report = import_files(&store, &options).map_err(of_market)?;
    inbox.delete();
    print(&report, args.json, context)?;
    if !report.skipped.is_empty() {
        let (skipped, files) = (report.skipped.len(), counted(report.files as usize, "file"));
        crate::diagnostics::warning_line(&format!(
            "{skipped} of {files} could not be read and were left out; see above"
        ));
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints a report.
fn print(report: &ImportReport, json: bool, context: &Context) -> anyhow::Result<()> {
    let text = if json { format!("{}\n", serde_json::to_string_pretty(report)?) } else { report_text(report, context) };
    io::stdout().write_all(text.as_bytes()).context("cannot write to standard output")
}

/// Files, and what messages call those that are copies.
type Named = (Vec<PathBuf>, BTreeMap<PathBuf, String>);

/// The files, with each directory replaced by its files, sorted by name. A directory is useful where no shell expands
/// `*.csv`, such as in a scheduled job. Files of a bucket are copied first.
fn files_of(paths: Vec<PathBuf>, inbox: &Inbox) -> anyhow::Result<Named> {
    let (mut files, mut shown) = (Vec::new(), BTreeMap::new());
    for path in paths {
        if let Some(address) = path.to_str().filter(|text| text.contains("://")) {
            let (place, found) = lake::files_of(address)?;
            let (copies, _) = inbox.fetch(&place, &found.iter().collect::<Vec<_>>())?;
            for (copy, file) in copies.into_iter().zip(&found) {
                shown.insert(copy.clone(), place.shown(&file.path));
                files.push(copy);
            }
            continue;
        }
        if !path.is_dir() {
            files.push(path);
            continue;
        }
        let before = files.len();
        lake::files_in(&path, &mut files)?;
        if files.len() == before {
            return Err(UserMistake::with_help(
                format!("the directory '{}' contains no file of bars ({})", path.display(), FILE_ENDINGS.join(", ")),
                "name the files, or the directory that contains them: subdirectories are not searched, except those of a lake, such \
                 as symbol=AAPL",
            )
            .into());
        }
        files[before..].sort();
    }
    Ok((files, shown))
}
