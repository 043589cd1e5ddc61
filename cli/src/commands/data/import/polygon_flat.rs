//! `trawl data import polygon-flat`: Polygon's flat files of day or minute aggregates into a dataset, each day once.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context as _;
use trawl_market::{
    Appending, Arrivals, Calendar, ImportFormat, ImportOptions, ImportReport, ReadOptions, Store, TimeMicros,
    Timeframe, check_importable, format_time, import_files, now,
};

use super::files::{calendar, memory};
use super::report::report_text;
use crate::app::Context;
use crate::failure::{UserMistake, of_market};
use crate::vendor::arriving::Arriving;
use crate::vendor::day_files::{DAY, DayFile, DayFiles, date, day_files, kind_of};
use crate::vendor::inbox::Inbox;
use crate::vendor::place::{Found, Place};
use crate::vendor::record::{Record, Work};
use trawl_front::human::{bytes, counted};

/// Sessions without a file that are listed.
const MISSING_SHOWN: usize = 10;

const AFTER_HELP: &str = "\
Files are YYYY-MM-DD.csv.gz in folders of years and months, in a directory or a bucket. Columns are bound by the names in each \
file's header. A day whose file is the one that was imported before (by size and ETag, in a directory by size and time) is neither \
fetched nor read; of a file that was published again, the day's bars replace those of before, also where they are gone. A session of \
the calendar without a file is reported, from --from to --to where they are given. A file that cannot be read refuses the import, and nothing changes. Files of a bucket are \
copied into the folder of --data-cache, several at once, and read as they arrive; an import that was interrupted goes on with what it \
had fetched. The copies are deleted when they are imported.

The bucket's variables are TRAWL_SOURCE_AWS_ENDPOINT_URL, TRAWL_SOURCE_AWS_ACCESS_KEY_ID, TRAWL_SOURCE_AWS_SECRET_ACCESS_KEY and \
TRAWL_SOURCE_AWS_REGION, of gs:// and az:// those of Google's and Azure's tools after TRAWL_SOURCE_; where none of them is set, those without it. Polygon's endpoint is https://files.massive.com.

With a table of symbols (--symbols, or the dataset's own) the bars of a company that was renamed, or whose share class is spelled in \
another way, are those of one symbol, and a ticker that two companies used is two symbols.

Prices of flat files are not adjusted for splits: 'trawl data import --factors' adds them.

Examples:
  trawl data import polygon-flat s3://flatfiles/us_stocks_sip/day_aggs_v1 --dataset us --from 2024-01-01
  trawl data import polygon-flat ~/flatfiles/us_stocks_sip/minute_aggs_v1 --dataset us-1m --from 2024-06-03 --to 2024-06-28";

/// Import Polygon's (Massive's) flat files of day or minute aggregates, from a directory or a bucket
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    /// Directory or s3://BUCKET/PREFIX with the files
    #[arg(value_name = "DIR|URL")]
    from_place: String,

    /// Dataset to create or to add to: a-z, 0-9, '_' and '-'
    #[arg(long, short, value_name = "NAME")]
    dataset: String,

    /// First day [default: the first that has a file]
    #[arg(long, value_name = "DATE", value_parser = day)]
    from: Option<TimeMicros>,

    /// Last day [default: the last that has a file]
    #[arg(long, value_name = "DATE", value_parser = day)]
    to: Option<TimeMicros>,

    /// Length of a bar [default: 1d for day_aggs, 1m for minute_aggs]
    #[arg(long, short, value_name = "TIMEFRAME")]
    timeframe: Option<Timeframe>,

    /// Exchange calendar [default: the dataset's, XNYS for a new one]
    #[arg(long, value_name = "CALENDAR", value_parser = calendar)]
    calendar: Option<String>,

    /// CSV file of names and labels (symbol, ticker, from, to ...): bars of a ticker are those of the symbol that has it on the day
    /// [default: the dataset's table, if it has one]
    #[arg(long, value_name = "FILE")]
    symbols: Option<PathBuf>,

    /// Import all days again, also those whose files are unchanged; their bars replace those that the dataset has, from wherever
    #[arg(long)]
    again: bool,

    /// Memory that the import may use, such as 2GiB or 512MiB [default: half of what the machine has left]
    #[arg(long, value_name = "SIZE", value_parser = memory)]
    memory: Option<u64>,

    /// Show which days would be imported; fetch and write nothing
    #[arg(long)]
    dry_run: bool,

    /// Print JSON, times in microseconds since 1970-01-01 UTC
    #[arg(long)]
    json: bool,
}

/// A date, as midnight in UTC.
pub fn day(text: &str) -> Result<TimeMicros, String> {
    date(text).ok_or_else(|| "a date is expected, such as 2024-06-28".to_owned())
}

/// What happened to the days.
#[derive(Debug, serde::Serialize)]
struct Days {
    /// Files in the span.
    files: usize,
    /// Days that were new.
    new: usize,
    /// Days whose file was published again.
    republished: Vec<String>,
    /// Days that the dataset had already.
    unchanged: usize,
    /// Sessions of the calendar without a file, from the first to the last day: those asked for, else those with a file.
    missing: Vec<String>,
    /// Bytes that were fetched; 0 from a directory.
    bytes_fetched: u64,
    /// Files that were begun to be read while others were still being fetched.
    read_early: usize,
}

/// What the command prints as JSON.
#[derive(Debug, serde::Serialize)]
struct Document<'a> {
    days: &'a Days,
    /// `None` where nothing was imported.
    import: Option<&'a ImportReport>,
}

/// Imports what is new.
pub fn run(args: Args, context: &Context) -> anyhow::Result<ExitCode> {
    let span = (args.from.unwrap_or(TimeMicros::MIN), args.to.unwrap_or(TimeMicros::MAX));
    if span.0 > span.1 {
        let mistake = UserMistake::with_help("--from is after --to", "both days are included");
        return Err(mistake.into());
    }
    let store = context.store()?;
    let place = Place::parse(&args.from_place)?;
    let DayFiles { days: files, unsearched } = day_files(&place, span)?;
    if let Some(unsearched) = unsearched {
        crate::diagnostics::warning_line(&unsearched);
    }
    let (market, timeframe) = kind_of(&place, &files)?;
    let timeframe = args.timeframe.or(timeframe).ok_or_else(|| {
        UserMistake::with_help(
            format!("{} does not say how long its bars are", place.shown("")),
            "give --timeframe 1d or --timeframe 1m, or a folder with day_aggs or minute_aggs in its path",
        )
    })?;
    check_importable(&store, &args.dataset, timeframe).map_err(of_market)?;
    let Held { mut record, dates, calendar: own } = held(&store, &args.dataset)?;
    check_market(&args.dataset, &record, market.as_deref())?;
    let named = args.calendar.as_deref().map_or(Ok(own.unwrap_or(Calendar::XNYS)), Calendar::named);
    let own = own.map(|own| own.name());
    let missing = missing(&files, named.map_err(of_market)?, (args.from, args.to), now());
    let count = files.len();
    let work = record.work(files.into_values(), args.again, &dates);
    let mut days = Days {
        files: count,
        new: work.new.len(),
        republished: work.republished.iter().map(|file| format_time(file.date)).collect(),
        unchanged: work.unchanged.len(),
        missing,
        bytes_fetched: 0,
        read_early: 0,
    };
    let has_days = !work.new.is_empty() || !work.republished.is_empty();
    // A table, or another calendar, is taken without days too.
    let has_facts = args.symbols.is_some() || args.calendar.as_deref().is_some_and(|named| own != Some(named));
    let inbox = Inbox::of(context, "polygon-flat", &args.dataset);
    // An import that was killed when all was imported left its copies.
    inbox.claim(&place, &work.unchanged.iter().map(|day| &day.file).collect::<Vec<_>>());
    if args.dry_run || !(has_days || has_facts) {
        if !args.dry_run && inbox.take().is_ok() {
            inbox.delete();
        }
        print(&days, None, (args.json, args.dry_run), context)?;
        return Ok(ExitCode::SUCCESS);
    }
    let wanted: Vec<&Found> = work.new.iter().chain(&work.republished).map(|day| &day.file).collect();
    let dataset = args.dataset.clone();
    let replaced_dates = work.republished.iter().map(|file| file.date).collect();
    // Copies are read as they arrive; the dataset is not touched before all have been read.
    let import = |files: Vec<PathBuf>, arriving: Option<&Arc<Arriving>>| {
        let shown = files.iter().zip(&wanted).map(|(path, file)| (path.clone(), place.shown(&file.path)));
        let options = ImportOptions {
            dataset,
            shown: shown.collect::<BTreeMap<_, _>>(),
            files,
            arrivals: arriving.map(|arriving| Arc::clone(arriving) as Arc<dyn Arrivals>),
            dated_files: has_days,
            ticker_dates: has_days,
            replaced_dates,
            read: ReadOptions { format: ImportFormat::Polygon, ..ReadOptions::default() },
            timeframe: has_days.then_some(timeframe),
            strict: true,
            calendar: args.calendar,
            clock: Some(now()),
            symbols: args.symbols,
            memory: args.memory,
            appending: Appending::Auto,
            ..ImportOptions::default()
        };
        let report = import_files(&store, &options).map_err(of_market)?;
        Ok((report, arriving.map_or(0, |arriving| arriving.read_early())))
    };
    let ((report, read_early), fetched) =
        if has_days { inbox.fetch_while(&place, &wanted, import)? } else { (import(Vec::new(), None)?, 0) };
    (days.bytes_fetched, days.read_early) = (fetched, read_early);
    if !has_days {
        print(&days, Some(&report), (args.json, false), context)?;
        return Ok(ExitCode::SUCCESS);
    }
    let Work { new, republished, .. } = work;
    record.add(new.into_iter().chain(republished));
    record.market = record.market.or(market);
    store.keep_vendor_record(&args.dataset, &record.write()?).map_err(of_market)?;
    inbox.delete();
    print(&days, Some(&report), (args.json, false), context)?;
    Ok(ExitCode::SUCCESS)
}

/// What a dataset has.
struct Held {
    /// As far as it has the days.
    record: Record,
    /// Its days, whatever their origin.
    dates: BTreeSet<TimeMicros>,
    /// `None` where there is no dataset.
    calendar: Option<Calendar>,
}

/// What is known of a dataset, which may not exist.
fn held(store: &Store, dataset: &str) -> anyhow::Result<Held> {
    let Some(found) = store.open_for_import(dataset).map_err(of_market)? else {
        return Ok(Held { record: Record::read(None), dates: BTreeSet::new(), calendar: None });
    };
    let dates = found.dates().map_err(of_market)?;
    let mut record = Record::read(store.vendor_record(dataset).map_err(of_market)?.as_deref());
    record.keep_dates(&dates);
    Ok(Held { record, dates, calendar: Some(found.manifest.calendar()) })
}

/// Refuses days of another market: the days of both would replace each other.
fn check_market(dataset: &str, record: &Record, market: Option<&str>) -> Result<(), UserMistake> {
    match (record.market.as_deref(), market) {
        (Some(held), Some(other)) if held != other => Err(UserMistake::with_help(
            format!("dataset '{dataset}' has days of {held}, and these files are of {other}"),
            format!("import them into a dataset of their own, such as --dataset {}", other.replace('_', "-")),
        )),
        _ => Ok(()),
    }
}

/// Sessions that have no file, from the first day to the last: those that were asked for, else those with a file. Today and later days
/// have none yet.
fn missing(
    files: &BTreeMap<TimeMicros, DayFile>,
    calendar: Calendar,
    (from, to): (Option<TimeMicros>, Option<TimeMicros>),
    now: TimeMicros,
) -> Vec<String> {
    let (Some((&first, _)), Some((&last, _))) = (files.first_key_value(), files.last_key_value()) else {
        return Vec::new();
    };
    let before = from.unwrap_or(first).saturating_sub(DAY);
    let yesterday = now - now.rem_euclid(DAY) - DAY;
    let last = last.max(to.unwrap_or(last).min(yesterday));
    let sessions = std::iter::successors(calendar.next_session(before), |session| calendar.next_session(session.date));
    let without = sessions.map(|session| session.date).take_while(|date| *date <= last);
    without.filter(|date| !files.contains_key(date)).map(format_time).collect()
}

fn print(
    days: &Days,
    report: Option<&ImportReport>,
    (json, dry): (bool, bool),
    context: &Context,
) -> anyhow::Result<()> {
    let text = if json {
        format!("{}\n", serde_json::to_string_pretty(&Document { days, import: report })?)
    } else {
        let mut text = days_text(days, dry);
        match report {
            Some(report) => text.push_str(&report_text(report, context)),
            None if dry => text.push_str("nothing was fetched or written (--dry-run)\n"),
            None => text.push_str("nothing to import\n"),
        }
        text
    };
    io::stdout().write_all(text.as_bytes()).context("cannot write to standard output")
}

fn days_text(days: &Days, dry: bool) -> String {
    let mut text = String::new();
    let fetched = match days.bytes_fetched {
        0 => String::new(),
        fetched => format!("; {} were fetched", bytes(fetched)),
    };
    let _ = writeln!(
        text,
        "{}: {} new, {} published again, {} unchanged{fetched}",
        counted(days.files, "day"),
        days.new,
        days.republished.len(),
        days.unchanged,
    );
    if !days.republished.is_empty() {
        let verb = if dry { "would be replaced" } else { "replaced" };
        let _ = writeln!(text, "{verb}: {}", listed(&days.republished));
    }
    if !days.missing.is_empty() {
        let sessions = counted(days.missing.len(), "session");
        let _ = writeln!(text, "{sessions} without a file: {}", listed(&days.missing));
    }
    text
}

fn listed(days: &[String]) -> String {
    let shown = days.iter().take(MISSING_SHOWN).map(String::as_str).collect::<Vec<_>>().join(", ");
    match days.len().saturating_sub(MISSING_SHOWN) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}
