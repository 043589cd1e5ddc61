//! `trawl scan`: one scan, in this process or through a coordinator; the answer is the same either way.
//!
//! It collects the user's options, passes them to the coordinator crate and shows the answer. It neither plans shards
//! nor computes anything.

pub(crate) mod all_bars;
mod clauses;
mod explain;
mod near;
mod panel;
mod running;
mod several;
mod shown;
mod study;
mod submitted;
mod update;
mod values;
mod watchlist;
mod why;

pub use panel::Args as PanelArgs;
pub use panel::run as run_panel;
pub use shown::{Files, ShownArgs, finish};
pub use study::Args as StudyArgs;
pub use study::run as run_study;
pub use update::Args as UpdateArgs;
pub use update::run as run_update;

use std::io::{self, Write as _};
use std::mem::ManuallyDrop;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::builder::BoolishValueParser;
use trawl_coordinator::client;
use trawl_coordinator::local::LocalOptions;
use trawl_coordinator::{PreparedScan, prepare_opened};
use trawl_front::history::{Names, span_from};
use trawl_front::run::{self, Outcome};
use trawl_front::why::{Near, Why};
use trawl_market::AsOf;
use trawl_plan::ScanDocument;
use trawl_telemetry::names::{attribute, span as name};
use trawl_telemetry::spans::{self, KeyValue};
use trawl_terms::Priority;
use trawl_wire::Status;
use trawl_wire::record::checked_name;

use super::security::TlsArgs;
use crate::app::Context;
use crate::backend::Workload;
use crate::failure::{DONE, NOT_DONE, UserMistake};
use crate::output::page::Page;
use all_bars::AllBarsFile;
use running::{Running, embedded, routed};
use submitted::{call, submitted, submitted_of_all};
use values::Values;

pub(super) use clauses::{Clauses, as_of};
pub use submitted::of_client;

/// Unused lets that are named.
const UNUSED_SHOWN_MAX: usize = 5;

const AFTER_HELP: &str = "\
Every symbol of the dataset is reported with one status, the first that applies: failed (its bars could not be \
read), stale (no bar at the as-of time), outside (not in the universe), unknown (too short a history, or missing data), \
matched, not matched. The exit code is 0 only when no symbol failed.

The answer has the same bytes for any number of shards, threads and workers. Files contain one row for every symbol: time, the \
sweep's variables, place, symbol, status, edge, provisional, reason, then the select columns; the scan and its identity are in the metadata of \
Parquet and Arrow files, inside JSON, and beside FILE.csv and FILE.jsonl in FILE.identity.json.

Examples:
  trawl scan --dataset us5 --as-of 2013-02-22 \\
      --where 'within(crosses_above(sma(close,50), sma(close,200)), 3)'
  trawl scan --dataset us5 --where 'close > sma(close, 200)' --rank 'rsi(close, 14) asc' \\
      --select close --select 'rsi(close, 14) as rsi' --output answer.csv
  trawl scan --file scan.toml --as-of 2013-02-22 --explain
  trawl scan --file scan.toml --as-of 2013-02-22 --why IBM,AAPL
  trawl scan --file scan.toml --near 1
  trawl scan scans/ --dataset mine
  trawl scan --file scan.toml --output - --format ndjson
  trawl scan --file scan.toml --from 2012-01-01 --values all --all-bars panel.parquet
  trawl scan --coordinator http://127.0.0.1:7400 --dataset us5 --where 'rsi(close, 14) < 30'
  trawl scan --file scan.toml --notify https://example.org/hook --notify-secret-file secret";

/// Find the symbols of a dataset that fulfil a condition at one bar
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    /// Documents of scans, or folders of them, that are answered in one run; their select, rank and limit are not used
    #[arg(value_name = "SCANS", conflicts_with_all = ["file", "condition", "rank", "limit", "lets", "defs", "sweep", "best", "keep", "why", "near"])]
    scans: Vec<PathBuf>,

    #[command(flatten)]
    clauses: Clauses,

    /// Use the newest closed bar that ends at or before this: a date (to the end of that day), a time on the exchange's
    /// clock, an instant such as 2024-06-28T14:31:00Z, now, today or last-session [default: the newest closed bar]
    #[arg(long, value_name = "WHEN", allow_hyphen_values = true)]
    as_of: Option<String>,

    /// Send the scan to a coordinator, such as http://127.0.0.1:7400, instead of running it in this process; https://
    /// with certificates
    #[arg(
        long,
        value_name = "URL",
        env = "TRAWL_COORDINATOR",
        hide_env = true,
        conflicts_with = "threads",
        help_heading = "Running"
    )]
    coordinator: Option<String>,

    /// Share of the workers' time while other scans compete for it: high gets four times as much as normal, low a
    /// quarter
    #[arg(long, value_name = "PRIORITY", default_value = "normal", value_parser = Priority::parse, requires = "coordinator", help_heading = "Running")]
    priority: Priority,

    #[command(flatten)]
    running: Running,

    #[command(flatten)]
    shown: ShownArgs,

    /// Whose select columns have values: matches, or all symbols that have a bar and are in the universe
    #[arg(long, value_name = "WHOSE", value_enum, default_value_t, conflicts_with_all = ["detach", "explain", "why"], help_heading = "Output")]
    values: Values,

    /// Write the answers at all bars up to the as-of to a file ending in .csv, .json, .jsonl, .parquet or .arrow; '-'
    /// writes them to standard output
    #[arg(long, value_name = "FILE", conflicts_with_all = ["output", "report", "coordinator", "explain", "all", "url", "deadline", "profile", "allow_partial"], help_heading = "Output")]
    all_bars: Option<PathBuf>,

    /// With --all-bars: only bars that start at or after this date or time, on the exchange's clock
    #[arg(long, value_name = "WHEN", requires = "all_bars", value_parser = begin, help_heading = "Output")]
    from: Option<AsOf>,

    /// With --all-bars: the last bar, as --as-of
    #[arg(long, value_name = "WHEN", requires = "all_bars", conflicts_with = "as_of", help_heading = "Output")]
    to: Option<String>,

    /// Print how many bars the scan needs, which symbols have too few, what it would read and cost; run nothing
    #[arg(long, conflicts_with_all = ["output", "report", "coordinator", "quiet", "url", "deadline", "profile", "allow_partial"], help_heading = "Output")]
    explain: bool,

    /// As --explain, with the steps of the plan
    #[arg(long, conflicts_with_all = ["output", "report", "coordinator", "quiet", "url", "deadline", "profile", "allow_partial", "all_bars", "why", "near"], help_heading = "Output")]
    plan: bool,

    /// Print each part of the conditions with its value for this symbol, and which part decided; several with commas
    #[arg(long, value_name = "SYMBOL,...", conflicts_with_all = ["output", "report", "coordinator", "explain", "all_bars", "all", "quiet", "url", "deadline", "profile", "allow_partial"], help_heading = "Output")]
    why: Option<String>,

    /// Print the symbols that do not match because of at most N terms joined by 'and', and which terms these are
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = clap::value_parser!(u32).range(1..), conflicts_with_all = ["output", "report", "coordinator", "explain", "why", "all_bars", "quiet", "url", "deadline", "profile", "allow_partial"], help_heading = "Output")]
    near: Option<u32>,

    /// Print --why or --near as JSON
    #[arg(long, conflicts_with_all = ["output", "all_bars", "explain", "coordinator"], help_heading = "Output")]
    json: bool,

    /// Do not record the scan: faster, but lost when its coordinator or this command ends
    #[arg(long, requires = "coordinator", help_heading = "Running")]
    ephemeral: bool,

    /// Compute the answer even if the coordinator knows it from an earlier scan with the same identity
    #[arg(long, env = "TRAWL_FRESH", hide_env = true, value_parser = BoolishValueParser::new(), help_heading = "Running")]
    fresh: bool,

    /// Print the scan's id as soon as it is recorded, and return: 'trawl scans watch' and 'trawl scans results' show it
    #[arg(long, requires = "coordinator", conflicts_with_all = ["ephemeral", "output", "report", "all", "url", "profile"], help_heading = "Running")]
    detach: bool,

    /// A unique key for this request: sent twice, it is one scan
    #[arg(long, value_name = "KEY", requires = "coordinator", conflicts_with = "ephemeral", value_parser = checked_name, help_heading = "Running")]
    idempotency_key: Option<String>,

    #[command(flatten)]
    tls: TlsArgs,

    /// File that contains the token for the coordinator
    #[arg(long, value_name = "FILE", env = "TRAWL_TOKEN_FILE", hide_env = true, help_heading = "Security")]
    token_file: Option<PathBuf>,
}

/// The beginning of a span.
fn begin(text: &str) -> Result<AsOf, String> {
    match AsOf::parse(text).map_err(|mistake| format!("{mistake}; {}", mistake.help))? {
        AsOf::LastSession => Err("a date or a time is expected, such as 2024-06-28 or '2024-06-28 10:30'".to_owned()),
        time => Ok(time),
    }
}

/// Runs the scan and shows its answer; [`NOT_DONE`] when a symbol failed.
pub fn run(mut args: Args, context: &Context) -> anyhow::Result<ExitCode> {
    if !args.scans.is_empty() {
        args.clauses.several =
            Some(several::read_several(&args.scans, &|document| args.clauses.replace_shared(document))?);
    }
    let mode = match args.mode() {
        Mode::Detached(_) | Mode::Submitted(_) => "cluster",
        Mode::Explain | Mode::Why(_) | Mode::Near(_) | Mode::AllBars(_) | Mode::Embedded => "embedded",
    };
    let span = tracing::info_span!(name::SCAN, { attribute::MODE } = mode);
    let _entered = span.enter();
    let ran = run_scan(&args, context).map_err(|error| args.clauses.placed(error));
    if ran.is_err() {
        // A failed scan's trace is kept whatever the sampler decided.
        spans::fail(&span, "scan_failed", String::new());
        spans::keep(&span);
    }
    ran
}

/// What to do with a scan; clap has already refused options that contradict each other.
#[derive(Debug, Clone, Copy)]
enum Mode<'a> {
    /// Print its plan.
    Explain,
    /// Print why these symbols are in the answer or not.
    Why(&'a str),
    /// Print the symbols that fail on at most so many terms.
    Near(u32),
    /// Write the answer at every bar to this file.
    AllBars(&'a Path),
    /// Run it in this process and show the answer.
    Embedded,
    /// Submit it to the coordinator at this address and print its id.
    Detached(&'a str),
    /// Run it on the cluster of the coordinator at this address and show the answer.
    Submitted(&'a str),
}

impl Args {
    fn mode(&self) -> Mode<'_> {
        match (self.coordinator.as_deref(), self.why.as_deref(), self.all_bars.as_deref()) {
            (Some(url), ..) if self.detach => Mode::Detached(url),
            (Some(url), ..) => Mode::Submitted(url),
            (None, Some(symbols), _) => Mode::Why(symbols),
            (None, None, Some(path)) => Mode::AllBars(path),
            (None, None, None) => match self.near {
                Some(most) => Mode::Near(most),
                None if self.explain || self.plan => Mode::Explain,
                None => Mode::Embedded,
            },
        }
    }
}

fn run_scan(args: &Args, context: &Context) -> anyhow::Result<ExitCode> {
    if args.json && args.why.is_none() && args.near.is_none() {
        let help = "for the answer as JSON: --output - --format json";
        return Err(UserMistake::with_help("--json is for --why and --near", help).into());
    }
    let (document, as_of) = asked(&args.clauses, args.as_of.as_deref().or(args.to.as_deref()))?;
    match args.mode() {
        Mode::Explain => {
            let prepared = prepared_with_warnings(args, context, &document, as_of)?;
            let route = routed(&args.running, &prepared);
            let explained = explain::text(&prepared, route, args.running.threads.is_some(), args.plan)?;
            io::stdout().write_all(explained.as_bytes())?;
            Ok(ExitCode::SUCCESS)
        }
        Mode::Why(symbols) => explain_symbols(args, &prepared_with_warnings(args, context, &document, as_of)?, symbols),
        Mode::Near(most) => near_misses(args, &prepared_with_warnings(args, context, &document, as_of)?, most),
        Mode::AllBars(path) => write_all_bars(args, &prepared_with_warnings(args, context, &document, as_of)?, path),
        Mode::Embedded => {
            let started = std::time::Instant::now();
            // The process ends, and so does its memory: symbols are many to give back one by one.
            let prepared = ManuallyDrop::new(prepare(context, &document, as_of)?);
            let prepare_ms = started.elapsed().as_secs_f64() * 1e3;
            let files = files(&args.shown, &args.running)?;
            warn_unused(&args.clauses, &document, args.shown.quiet);
            let mut outcome = embedded(&args.running, args.shown.quiet, &prepared, None)?;
            outcome.report.prepare_ms = prepare_ms;
            if args.values == Values::All {
                let (document, bar) = (trawl_front::every_value::of_all(&document), AsOf::Bar(prepared.as_of));
                let of_all = prepare_opened(prepared.dataset.clone(), &document, bar).map_err(anyhow::Error::new)?;
                let of_all = embedded(&args.running, args.shown.quiet, &of_all, None)?;
                trawl_front::every_value::fill(&mut outcome.answer, &of_all.answer);
            }
            show(args, outcome, files)
        }
        Mode::Detached(url) => {
            let scan = client::submit_detached(url, &call(args, &document, as_of)?).map_err(of_client)?;
            warn_unused(&args.clauses, &document, args.shown.quiet);
            writeln!(io::stdout(), "{scan}")?;
            Ok(ExitCode::SUCCESS)
        }
        Mode::Submitted(url) => {
            let files = files(&args.shown, &args.running)?;
            let mut outcome = submitted(args, url, &document, as_of)?;
            warn_unused(&args.clauses, &document, args.shown.quiet);
            if args.values == Values::All {
                let of_all = submitted_of_all(args, url, &document, &outcome.answer.identity)?;
                trawl_front::every_value::fill(&mut outcome.answer, &of_all.answer);
            }
            show(args, outcome, files)
        }
    }
}

/// Opens and compiles; prints the warnings that would otherwise come with the answer.
fn prepared_with_warnings(
    args: &Args,
    context: &Context,
    document: &ScanDocument,
    as_of: AsOf,
) -> anyhow::Result<PreparedScan> {
    let prepared = prepare(context, document, as_of)?;
    // The end of a span was asked for.
    let warnings: Vec<&str> = match args.to {
        Some(_) => prepared.span_warnings().collect(),
        None => prepared.warnings.iter().map(String::as_str).collect(),
    };
    for warning in warnings.into_iter().filter(|_| !args.shown.quiet) {
        crate::diagnostics::warning_line(warning);
    }
    warn_unused(&args.clauses, document, args.shown.quiet);
    Ok(prepared)
}

/// Shows an answer, and keeps the trace of a notable one.
fn show(args: &Args, outcome: Outcome, files: Files) -> anyhow::Result<ExitCode> {
    let span = tracing::Span::current();
    spans::set(&span, [KeyValue::new(attribute::SCAN_ID, outcome.report.scan.clone())]);
    if outcome.report.is_notable() {
        spans::keep(&span);
    }
    let report = args.running.profile.then(|| outcome.report.clone());
    let code = finish(&args.shown, outcome, files)?;
    report.as_ref().map_or(Ok(()), super::scans::trace::show)?;
    Ok(code)
}

fn write_all_bars(args: &Args, prepared: &PreparedScan, path: &Path) -> anyhow::Result<ExitCode> {
    args.running.backend.choose(Workload::CpuOnly("--all-bars runs"))?;
    let file = AllBarsFile::prepare(path, args.shown.format)?;
    let manifest = &prepared.dataset.manifest;
    let from = span_from(prepared, args.from.as_ref(), Names::OPTIONS_AS_OF)?;
    let options = LocalOptions {
        shards: args.running.shards,
        threads: routed(&args.running, prepared).threads(),
        every_value: args.values == Values::All,
        ..LocalOptions::default()
    };
    let written = file.write(prepared, options, from)?;
    if !args.shown.quiet && !file.is_piped() {
        let synthetic = if manifest.synthetic { " (SYNTHETIC data, no real market)" } else { "" };
        writeln!(
            io::stdout(),
            "wrote {}: {} bars, {} rows, {} matches{synthetic}",
            path.display(),
            written.times,
            written.rows,
            written.matched
        )?;
    }
    Ok(ExitCode::SUCCESS)
}

/// What is scanned, and as of when.
fn asked(clauses: &Clauses, as_of: Option<&str>) -> anyhow::Result<(ScanDocument, AsOf)> {
    let document = clauses.document()?;
    let as_of = clauses::as_of(as_of)?;
    Ok((document, as_of))
}

/// Reports the lets of a scan that compiles and uses them nowhere.
fn warn_unused(clauses: &Clauses, document: &ScanDocument, quiet: bool) {
    let mut unused = trawl_front::document::unused_lets(document);
    unused.retain(|unused| !clauses.several.as_ref().is_some_and(|several| several.uses_by_itself(unused)));
    let named = unused.iter().take(UNUSED_SHOWN_MAX).map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let message = match unused.len() {
        0 => return,
        1 => format!("no clause uses the let {named}"),
        count if count > UNUSED_SHOWN_MAX => {
            format!("no clause uses the lets {named} and {} more", count - UNUSED_SHOWN_MAX)
        }
        _ => format!("no clause uses the lets {named}"),
    };
    if !quiet {
        crate::diagnostics::warning_line(&message);
    }
}

/// Output files of the run.
fn files(shown: &ShownArgs, running: &Running) -> Result<Files, UserMistake> {
    if shown.is_piped() && running.profile {
        let help = "leave out --profile, or write the times with --report FILE.json";
        return Err(UserMistake::with_help("--output - and --profile both need standard output", help));
    }
    Files::check(shown)
}

/// Opens and compiles; mistakes are reported as the user's.
pub(super) fn prepare(context: &Context, document: &ScanDocument, as_of: AsOf) -> anyhow::Result<PreparedScan> {
    run::prepared(&context.store()?, document, as_of)
}

/// Why symbols are in the answer or not; [`NOT_DONE`] when the bars of one cannot be read.
fn explain_symbols(args: &Args, prepared: &PreparedScan, symbols: &str) -> anyhow::Result<ExitCode> {
    let mut synthetic = false;
    let why = Why::ask(prepared, symbols.split(','), &mut |scan| {
        let outcome = embedded(&args.running, args.shown.quiet, scan, None)?;
        synthetic = outcome.synthetic;
        Ok(outcome.answer)
    })?;
    let text = match args.json {
        true => format!("{}\n", serde_json::to_string_pretty(&why.json())?),
        false => {
            let text = |(question, explained): &(_, _)| why::text(question, explained, &why.answer, synthetic);
            why.explained.iter().map(text).collect::<Vec<_>>().join("\n")
        }
    };
    io::stdout().write_all(text.as_bytes())?;
    let asked = |symbol: &str| why.explained.iter().any(|(question, _)| question.symbol == symbol);
    let failed = why.answer.rows.iter().any(|r| asked(&r.row.symbol) && r.row.status == Status::Failed);
    Ok(ExitCode::from(if failed { NOT_DONE } else { DONE }))
}

/// The symbols that fail on few terms; [`NOT_DONE`] when the bars of a symbol cannot be read.
fn near_misses(args: &Args, prepared: &PreparedScan, most: u32) -> anyhow::Result<ExitCode> {
    let run = &mut |scan: &PreparedScan| Ok(embedded(&args.running, args.shown.quiet, scan, None)?.answer);
    let near = Near::ask(prepared, most, run)?;
    let text = match args.json {
        true => format!("{}\n", serde_json::to_string_pretty(&near.lines())?),
        false => {
            let (limit, page) = (prepared.plan.limit, Page::of_stdout());
            near::text(&near.question, &near.misses, &near.answer, most as usize, limit, args.shown.all, page)
        }
    };
    io::stdout().write_all(text.as_bytes())?;
    let failed = near.answer.counts()[Status::Failed as usize] > 0;
    Ok(ExitCode::from(if failed { NOT_DONE } else { DONE }))
}
