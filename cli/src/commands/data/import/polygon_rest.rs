//! `trawl data import polygon-rest`: bars, splits, dividends and tickers from Polygon's HTTP interface into a dataset.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context as _;
use trawl_market::{
    Appending, Calendar, ImportFormat, ImportOptions, ImportReport, ReadOptions, Store, SymbolTable, TimeMicros,
    Timeframe, check_importable, import_files, now,
};

use super::files::{calendar, memory};
use super::polygon_flat::day;
use super::report::report_text;
use crate::app::Context;
use crate::failure::{UserMistake, of_market};
use crate::vendor::answers::Answers;
use crate::vendor::bars::{span_of, tickers_of};
use crate::vendor::client::{Client, ENDPOINT, Key, TRY_SECONDS};
use crate::vendor::companies::companies;
use crate::vendor::inbox::{Inbox, at_once};
use crate::vendor::listings::listing_table;
use crate::vendor::names::Held;
use crate::vendor::questions::{DAY, market_days, of_names, of_tickers};
use crate::vendor::reference::{Listings, corporate_actions, tickers};
use trawl_front::human::counted;

/// Requests a minute of the free plan.
const PER_MINUTE: u32 = 5;
/// Symbols without bars that are listed.
const WITHOUT_SHOWN: usize = 10;

const AFTER_HELP: &str = "\
The key comes from POLYGON_API_KEY or MASSIVE_API_KEY, or from the file that --api-key-file names; it is in no message and no file. \
Every answer is followed to its last page. What fails and may pass (429, 5xx, a lost connection) is tried again with growing random \
waits, at least as long as Retry-After asks for. Answers are kept in the folder of --data-cache until all are there: an import that \
was interrupted goes on where it was, with listings, splits and dividends that are not older than a week. Prices are not adjusted; --corporate-actions adds splits and dividends, which a scan applies \
with --adjust.

--universe means every stock: with 1d the market of each session in one request each, which includes those that are delisted since; \
with shorter bars each ticker that was listed on the first or on the last day, was delisted in between, or has a daily bar on one of the \
sessions, which takes one request each.

Examples:
  trawl data import polygon-rest --dataset us --universe --from 2024-01-02 --to 2024-06-28 --corporate-actions --listings
  trawl data import polygon-rest --dataset two --symbols AAPL,BRK.B --timeframe 1m --from 2024-06-03 --to 2024-06-28
  trawl data import polygon-rest --dataset us --from 2024-01-02 --to 2024-06-28 --corporate-actions";

/// Import bars, splits, dividends and tickers from Polygon's (Massive's) HTTP interface
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    /// Dataset to create or to add to: a-z, 0-9, '_' and '-'
    #[arg(long, short, value_name = "NAME")]
    dataset: String,

    /// Bars of these tickers, with commas or by repeating
    #[arg(long, value_name = "TICKER", value_delimiter = ',', conflicts_with = "universe")]
    symbols: Vec<String>,

    /// Bars of all stocks
    #[arg(long)]
    universe: bool,

    /// Length of a bar, a day or less [default: the dataset's, 1d for a new one]
    #[arg(long, short, value_name = "TIMEFRAME")]
    timeframe: Option<Timeframe>,

    /// First day
    #[arg(long, value_name = "DATE", value_parser = day)]
    from: TimeMicros,

    /// Last day
    #[arg(long, value_name = "DATE", value_parser = day)]
    to: TimeMicros,

    /// Splits and dividends with an ex-date in these days, of the symbols or of all
    #[arg(long)]
    corporate_actions: bool,

    /// The table of symbols: tickers with names, exchanges and kinds, also of stocks delisted in these days, and which tickers
    /// were those of one company, merged into the dataset's own
    #[arg(long)]
    listings: bool,

    /// With --universe and daily bars: what the dataset has on these days and does not come again is removed, of all symbols and
    /// from wherever
    #[arg(long)]
    again: bool,

    /// Exchange calendar [default: the dataset's, XNYS for a new one]
    #[arg(long, value_name = "CALENDAR", value_parser = calendar)]
    calendar: Option<String>,

    /// Requests a minute; the free plan allows 5, 0 means as many as are answered
    #[arg(long, value_name = "NUMBER", default_value_t = PER_MINUTE)]
    requests_per_minute: u32,

    /// Seconds that one try of a request may take
    #[arg(long, value_name = "SECONDS", default_value_t = TRY_SECONDS, value_parser = clap::value_parser!(u32).range(1..=3600))]
    request_timeout: u32,

    /// File with the key [default: POLYGON_API_KEY or MASSIVE_API_KEY of the environment]
    #[arg(long, value_name = "FILE")]
    api_key_file: Option<PathBuf>,

    /// Scheme and host of the interface
    #[arg(long, value_name = "URL", default_value = ENDPOINT)]
    endpoint: String,

    /// Memory that the import may use, such as 2GiB or 512MiB [default: half of what the machine has left]
    #[arg(long, value_name = "SIZE", value_parser = memory)]
    memory: Option<u64>,

    /// Print JSON, times in microseconds since 1970-01-01 UTC
    #[arg(long)]
    json: bool,
}

/// What was asked for.
#[derive(Debug, Default, serde::Serialize)]
struct Asked {
    /// Questions about bars.
    questions: usize,
    /// Those whose answer has no bar.
    without_bars: usize,
    /// Symbols without a bar in these days, if symbols were named.
    symbols_without_bars: Vec<String>,
    /// Rows of splits and dividends.
    corporate_actions: usize,
    /// Rows of the table of symbols.
    listings: usize,
    /// Companies that changed their tickers.
    renamed: usize,
    /// Decisions that the user should know.
    notes: Vec<String>,
}

/// What the command prints as JSON.
#[derive(Debug, serde::Serialize)]
struct Document<'a> {
    asked: &'a Asked,
    /// `None` where nothing was imported.
    import: Option<&'a ImportReport>,
}

/// Asks, and imports the answers.
pub fn run(mut args: Args, context: &Context) -> anyhow::Result<ExitCode> {
    check(&args)?;
    // A symbol that is named twice is asked for once.
    args.symbols.sort_unstable();
    args.symbols.dedup();
    let store = context.store()?;
    let (held, calendar) = known(&store, &args)?;
    let timeframe = args.timeframe.or(held).unwrap_or(Timeframe::DAY);
    if span_of(timeframe).is_none() {
        let message = format!("--timeframe {timeframe}: bars of a day or less are imported");
        return Err(UserMistake::with_help(message, "a scan makes longer bars of daily ones").into());
    }
    if args.again && !(args.universe && timeframe == Timeframe::DAY) {
        let message = if args.universe {
            format!("--again with bars of {timeframe}")
        } else {
            "--again without --universe".to_owned()
        };
        let help = "it is for daily bars of --universe, which come for all symbols of a day at once";
        return Err(UserMistake::with_help(message, help).into());
    }
    check_importable(&store, &args.dataset, timeframe).map_err(of_market)?;
    let key = Key::find(args.api_key_file.as_deref())?;
    let client = Client::new(&args.endpoint, key, (args.requests_per_minute, args.request_timeout))?;
    // Answers of another server are not mixed with those of this one.
    let inbox = Inbox::of(context, &format!("polygon-rest {}", args.endpoint), &args.dataset);
    inbox.take()?;
    let span = (args.from, args.to);
    let of_minutes = args.universe && timeframe != Timeframe::DAY;
    let answers = Answers { client: &client, inbox: &inbox, last_day: args.to };
    let listings = match args.listings || of_minutes {
        true => tickers(answers, span)?,
        false => Listings::default(),
    };
    let all_listed = listings.last.iter().chain(&listings.first);
    let mut tickers_of_all: Vec<String> = all_listed.map(|one| one.ticker.clone()).collect();
    if of_minutes {
        // A ticker that came and went between the first and the last day is in no listing of them.
        let markets = at_once(&market_days(calendar, span), |market| market.answer(&client, &inbox))?;
        for file in markets.iter().flatten() {
            tickers_of_all.extend(tickers_of(file)?);
            tickers_of_all.sort_unstable();
            tickers_of_all.dedup();
        }
    }
    let held = held_symbols(&store, &args.dataset)?;
    let mut asked = Asked::default();
    let (mut factors, mut symbols) = (None, None);
    if args.listings {
        let companies = companies(answers, listings, args.to, &mut asked.notes)?;
        let tenures = || companies.iter().flat_map(|company| &company.tenures);
        tickers_of_all.extend(tenures().map(|tenure| tenure.listed.ticker.clone()));
        asked.renamed = companies.iter().filter(|company| company.tenures.len() > 1).count();
        let held = held.as_ref().map(|held| Held {
            rows: held.table.rows(),
            labels: held.table.labels(),
            symbols: &held.symbols,
            known: (args.from, args.to + DAY),
            // A bar of the last day may be past midnight in UTC.
            is_newest: held.last_time < args.to + 2 * DAY,
        });
        let table = listing_table(&companies, held);
        asked.listings = table.rows;
        asked.notes.extend(table.notes);
        symbols = (table.rows > 0).then_some(table.text);
    }
    let names = held.iter().flat_map(|held| &held.symbols).map(|(symbol, ..)| symbol.as_str());
    let table = match (&symbols, &held) {
        (Some(text), _) => {
            Some(Arc::new(SymbolTable::parse("the table of symbols", text.as_bytes(), names).map_err(of_market)?))
        }
        (None, Some(held)) if !held.table.rows().is_empty() => Some(Arc::clone(&held.table)),
        _ => None,
    };
    let named = of_names(&args.symbols, table.as_deref(), timeframe, span);
    let questions = match (args.universe, timeframe == Timeframe::DAY) {
        (true, true) => market_days(calendar, span),
        (true, false) => {
            tickers_of_all.sort_unstable();
            tickers_of_all.dedup();
            of_tickers(tickers_of_all.iter().map(String::as_str), table.as_deref(), timeframe, span)
        }
        (false, _) => named.questions,
    };
    let files_of = at_once(&questions, |question| question.answer(&client, &inbox))?;
    asked.questions = questions.len();
    asked.without_bars = files_of.iter().filter(|answer| answer.is_none()).count();
    asked.notes.extend(named.notes);
    for (symbol, own) in args.symbols.iter().zip(&named.of_name) {
        if own.iter().all(|at| files_of.get(*at).is_none_or(Option::is_none)) {
            asked.symbols_without_bars.push(symbol.clone());
        }
    }
    if args.corporate_actions {
        let tickers: Vec<String> = named.tickers.into_iter().collect();
        // An old ticker of a symbol may be that of others by now.
        let is_wanted = |ticker: &str, date: TimeMicros| match &table {
            Some(table) if !args.symbols.is_empty() => named.symbols.contains(&*table.symbol_of_ticker(ticker, date)),
            _ => true,
        };
        let table = corporate_actions(answers, &tickers, span, is_wanted)?;
        asked.corporate_actions = table.rows;
        asked.notes.extend(table.notes);
        factors = (table.rows > 0).then_some(table.text);
    }
    let tables = [("factors.csv", factors), ("symbols.csv", symbols)].map(|(name, text)| {
        let path = inbox.path(&["tables"], name);
        let text = text?;
        Some(Inbox::put(&path, |file| Ok(file.write_all(text.as_bytes())?)).map(|()| path))
    });
    let [factors, symbols] = tables.map(Option::transpose);
    // A day without an answer is no reason to remove its bars.
    let replaced_dates = match args.again {
        true => questions
            .iter()
            .zip(&files_of)
            .filter(|(_, answer)| answer.is_some())
            .filter_map(|(q, _)| q.date())
            .collect(),
        false => Vec::new(),
    };
    let files: Vec<PathBuf> = files_of.into_iter().flatten().collect();
    let (factors, symbols) = (factors?, symbols?);
    if files.is_empty() && factors.is_none() && symbols.is_none() {
        inbox.delete();
        return print(&asked, None, args.json, context);
    }
    let options = ImportOptions {
        dataset: args.dataset,
        timeframe: (!files.is_empty()).then_some(timeframe),
        files,
        ticker_dates: true,
        replaced_dates,
        read: ReadOptions { format: ImportFormat::Polygon, ..ReadOptions::default() },
        strict: true,
        calendar: args.calendar,
        clock: Some(now()),
        factors,
        symbols,
        memory: args.memory,
        appending: Appending::Auto,
        ..ImportOptions::default()
    };
    let report = import_files(&store, &options).map_err(of_market)?;
    inbox.delete();
    print(&asked, Some(&report), args.json, context)
}

fn check(args: &Args) -> Result<(), UserMistake> {
    if args.from > args.to {
        return Err(UserMistake::with_help("--from is after --to", "both days are included"));
    }
    let wants = args.universe || !args.symbols.is_empty() || args.corporate_actions || args.listings;
    if !wants {
        return Err(UserMistake::with_help(
            "there is nothing to ask for",
            "give --symbols or --universe for bars, --corporate-actions, or --listings",
        ));
    }
    let bad = |ticker: &&String| ticker.is_empty() || ticker.contains(|c: char| c.is_whitespace() || c == ',');
    match args.symbols.iter().find(bad) {
        Some(ticker) => Err(UserMistake::with_help(
            format!("--symbols: '{ticker}' is no ticker"),
            "write tickers as Polygon does, such as AAPL or BRK.B",
        )),
        None => Ok(()),
    }
}

/// Length of the bars and calendar of the dataset, if it exists.
fn known(store: &Store, args: &Args) -> anyhow::Result<(Option<Timeframe>, Calendar)> {
    let named = args.calendar.as_deref().map(Calendar::named).transpose().map_err(of_market)?;
    Ok(match store.open_for_import(&args.dataset).map_err(of_market)? {
        Some(found) => (Some(found.manifest.timeframe), named.unwrap_or_else(|| found.manifest.calendar())),
        None => (None, named.unwrap_or(Calendar::XNYS)),
    })
}

/// What a dataset knows of symbols.
struct HeldSymbols {
    table: Arc<SymbolTable>,
    /// Symbols with the times of their first and last bars.
    symbols: Vec<(String, TimeMicros, TimeMicros)>,
    last_time: TimeMicros,
}

/// That of a dataset, if it exists.
fn held_symbols(store: &Store, dataset: &str) -> anyhow::Result<Option<HeldSymbols>> {
    let Some(found) = store.open_for_import(dataset).map_err(of_market)? else { return Ok(None) };
    let entries = found.manifest.symbols.iter().map(|entry| (entry.symbol.clone(), entry.first_time, entry.last_time));
    Ok(Some(HeldSymbols {
        table: found.symbol_table().map_err(of_market)?,
        symbols: entries.collect(),
        last_time: found.manifest.last_time,
    }))
}

fn print(asked: &Asked, report: Option<&ImportReport>, json: bool, context: &Context) -> anyhow::Result<ExitCode> {
    let text = if json {
        format!("{}\n", serde_json::to_string_pretty(&Document { asked, import: report })?)
    } else {
        let mut text = asked_text(asked);
        match report {
            Some(report) => text.push_str(&report_text(report, context)),
            None => text.push_str("nothing to import\n"),
        }
        text
    };
    io::stdout().write_all(text.as_bytes()).context("cannot write to standard output")?;
    Ok(ExitCode::SUCCESS)
}

fn asked_text(asked: &Asked) -> String {
    let mut text = String::new();
    if asked.questions > 0 {
        let answers = counted(asked.questions, "answer");
        let _ = writeln!(text, "{answers} with bars asked for, {} without a bar", asked.without_bars);
    }
    if !asked.symbols_without_bars.is_empty() {
        let shown: Vec<&str> = asked.symbols_without_bars.iter().take(WITHOUT_SHOWN).map(String::as_str).collect();
        let count = counted(asked.symbols_without_bars.len(), "symbol");
        let _ = writeln!(text, "{count} without a bar in these days: {}", shown.join(", "));
    }
    if asked.corporate_actions > 0 {
        let _ = writeln!(text, "{} with splits and dividends", counted(asked.corporate_actions, "row"));
    }
    if asked.listings > 0 {
        let renamed = match asked.renamed {
            0 => String::new(),
            _ => format!(", {} with several tickers", counted(asked.renamed, "stock")),
        };
        let _ = writeln!(text, "{} of the table of symbols{renamed}", counted(asked.listings, "row"));
    }
    for note in &asked.notes {
        let _ = writeln!(text, "note: {note}");
    }
    text
}
