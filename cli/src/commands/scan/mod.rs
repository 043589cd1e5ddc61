//! `trawl scan`: one scan, in this process or through a coordinator; the same answer either way.
//!
//! It gathers what the user said, hands it to the coordinator room and shows what comes back. It decides nothing about
//! shards and computes nothing.

mod all_bars;
mod clauses;
mod explain;
mod update;
mod why;

pub use update::Args as UpdateArgs;
pub use update::run as run_update;

use std::io::{self, Write as _};
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use trawl_coordinator::client::{self, ClientError, ScanCall};
use trawl_coordinator::local::{self, LocalOptions};
use trawl_coordinator::scheduler::Priority;
use trawl_coordinator::{
    NoSymbol, PrepareError, PreparedScan, Question, Route, RunReport, SeriesError, ShardSpec, WhyError, answer_digest,
    route,
};
use trawl_kernels::NoCancel;
use trawl_market::format_time;
use trawl_plan::{Diagnostic, ScanDocument, suggest};
use trawl_protocol::error::text_of;
use trawl_protocol::limits::bounded_reason;
use trawl_protocol::{Answer, Failure, Status, StepInputV1};
use trawl_worker::{Checkpoints, ExecuteError, ScanSource};

use super::security::TlsArgs;
use crate::context::Context;
use crate::failure::{DONE, NOT_DONE, UserMistake};
use crate::notify::{self, Notifier};
use crate::output::staged::StagedFile;
use crate::output::{AnswerFile, heading_clashes, table};
use crate::progress::Waiting;
use clauses::Clauses;

pub(super) use clauses::as_of;

/// Threads that may be asked for.
const THREADS_MAX: u32 = 1024;
/// Longest deadline: 30 days.
const DEADLINE_SECONDS_MAX: f64 = 2_592_000.0;

const AFTER_HELP: &str = "\
Every symbol of the dataset is accounted for with one status, the first that applies: failed (its bars could not be \
read), stale (no bar at the as-of time), outside (not in the universe), unknown (too short a history, or missing data), \
matched, not matched. The exit code is 0 only when no symbol failed.

The answer is the same bytes for any number of shards, threads and workers. Files hold one row for every symbol: the \
sweep's variables, place, symbol, status, edge, provisional, reason, then the select columns; Parquet and Arrow files carry the scan's identity in their metadata, \
JSON in itself, FILE.csv in FILE.identity.json beside it.

Examples:
  trawl scan --dataset us5 --as-of 2013-02-22 \\
      --where 'within(crosses_above(sma(close,50), sma(close,200)), 3)'
  trawl scan --dataset us5 --where 'close > sma(close, 200)' --rank 'rsi(close, 14) asc' \\
      --select close --select 'rsi(close, 14) as rsi' --output answer.csv
  trawl scan --file scan.toml --as-of 2013-02-22 --explain
  trawl scan --file scan.toml --as-of 2013-02-22 --why IBM
  trawl scan --coordinator http://127.0.0.1:7400 --dataset us5 --where 'rsi(close, 14) < 30'
  trawl scan --file scan.toml --notify https://example.org/hook --notify-secret-file secret";

/// Find the symbols of a dataset that fulfil a condition at one bar
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    #[command(flatten)]
    clauses: Clauses,

    /// Look at the newest bar at or before this date or UTC time [default: the newest bar of the dataset]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    as_of: Option<String>,

    /// Send the scan to a coordinator, such as http://127.0.0.1:7400, instead of running it in this process; https:// with
    /// certificates
    #[arg(long, value_name = "URL", help_heading = "Running")]
    coordinator: Option<String>,

    /// How the work is cut: a number of shards, 'per-group' (one for each group of symbols) or 'auto'
    #[arg(long, value_name = "N", default_value = "auto", allow_negative_numbers = true, value_parser = shard_spec, help_heading = "Running")]
    shards: ShardSpec,

    /// Threads to run on [default: by the scan's cost, at most one for each core]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = clap::value_parser!(u32).range(1..=i64::from(THREADS_MAX)),
        conflicts_with = "coordinator", help_heading = "Running")]
    threads: Option<u32>,

    /// Share of the workers' time while other scans want it too: a high one gets four times a normal one's, a low one a
    /// quarter
    #[arg(long, value_name = "PRIORITY", default_value = "normal", value_parser = priority, requires = "coordinator", help_heading = "Running")]
    priority: Priority,

    /// Give up when the scan is not done within so many seconds
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true, value_parser = deadline, conflicts_with_all = ["explain", "why", "all_bars"], help_heading = "Running")]
    deadline: Option<Duration>,

    /// Write the answer to a file ending in .csv, .json, .parquet or .arrow
    #[arg(long, short, value_name = "FILE", help_heading = "Output")]
    output: Option<PathBuf>,

    /// Write times and places of the run as JSON; they are never part of the answer
    #[arg(long, value_name = "FILE.json", help_heading = "Output")]
    report: Option<PathBuf>,

    /// Write the answer at every bar up to the as-of to a file ending in .csv, .parquet or .arrow, behind a column 'time'
    #[arg(long, value_name = "FILE", conflicts_with_all = ["output", "report", "coordinator", "explain", "all", "url"], help_heading = "Output")]
    all_bars: Option<PathBuf>,

    /// Print the plan, its look-back and cost, and what it would read; run nothing
    #[arg(long, conflicts_with_all = ["output", "report", "coordinator", "quiet"], help_heading = "Output")]
    explain: bool,

    /// Print each part of the conditions with its value for this symbol, and which part decided
    #[arg(long, value_name = "SYMBOL", conflicts_with_all = ["output", "report", "coordinator", "explain", "all_bars", "all", "quiet", "url"], help_heading = "Output")]
    why: Option<String>,

    /// Show every match, and every symbol with its status and reason
    #[arg(long, help_heading = "Output")]
    all: bool,

    /// Print no table and no progress; files, errors and the exit code tell
    #[arg(long, short, conflicts_with = "all", help_heading = "Output")]
    quiet: bool,

    #[command(flatten)]
    notify: notify::Args,

    #[command(flatten)]
    tls: TlsArgs,

    /// File that holds the token to show to the coordinator
    #[arg(long, value_name = "FILE", env = "TRAWL_TOKEN_FILE", hide_env = true, help_heading = "Security")]
    token_file: Option<PathBuf>,
}

fn shard_spec(text: &str) -> Result<ShardSpec, String> {
    match text {
        "per-group" => Ok(ShardSpec::PerSegment),
        "auto" => Ok(ShardSpec::Automatic),
        number => match number.parse() {
            Ok(count @ 1..) => Ok(ShardSpec::Count(count)),
            _ => Err("a number from 1, 'per-group' or 'auto' is expected".to_owned()),
        },
    }
}

fn priority(text: &str) -> Result<Priority, String> {
    Priority::named(text).ok_or_else(|| {
        let names: Vec<&str> = Priority::ALL.iter().map(|p| p.name()).collect();
        let near =
            suggest(text, names.iter().copied()).map_or_else(String::new, |near| format!("; did you mean '{near}'?"));
        format!("one of {} is expected{near}", names.join(", "))
    })
}

fn deadline(text: &str) -> Result<Duration, String> {
    let seconds = text.parse::<f64>().ok().filter(|s| *s > 0.0 && *s <= DEADLINE_SECONDS_MAX);
    let time = seconds.and_then(|s| Duration::try_from_secs_f64(s).ok()).filter(|t| !t.is_zero());
    time.ok_or_else(|| format!("seconds above 0 and up to {DEADLINE_SECONDS_MAX} are expected, such as 30 or 0.5"))
}

/// Where a run is written to, checked before it begins.
struct Files {
    answer: Option<AnswerFile>,
    report: Option<PathBuf>,
    notifier: Option<Notifier>,
}

impl Files {
    fn check(args: &Args) -> Result<Self, UserMistake> {
        if let (Some(output), Some(report)) = (&args.output, &args.report)
            && (output == report || crate::output::identity_path(output) == *report)
        {
            return Err(UserMistake::plain(format!("--report would overwrite the answer in '{}'", report.display())));
        }
        let answer = args.output.as_deref().map(AnswerFile::prepare).transpose()?;
        if let Some(report) = &args.report {
            StagedFile::create(report)?;
        }
        Ok(Self { answer, report: args.report.clone(), notifier: args.notify.prepare()? })
    }
}

/// What came back, and what a table says beside it.
struct Outcome {
    answer: Answer,
    report: RunReport,
    synthetic: bool,
    timeframe: String,
}

/// Runs the scan and shows its answer; [`NOT_DONE`] when a symbol failed.
pub fn run(args: Args, context: &Context) -> anyhow::Result<ExitCode> {
    let span = tracing::info_span!("scan", mode = if args.coordinator.is_some() { "cluster" } else { "embedded" });
    let _entered = span.enter();
    let (document, as_of) = asked(&args)?;
    let (outcome, files) = match &args.coordinator {
        None => {
            let started = std::time::Instant::now();
            let prepared = prepare(context, &document, as_of)?;
            let prepare_ms = started.elapsed().as_secs_f64() * 1e3;
            if args.explain {
                io::stdout()
                    .write_all(explain::text(&prepared, routed(&args, &prepared), args.threads.is_some()).as_bytes())?;
                return Ok(ExitCode::SUCCESS);
            }
            if let Some(symbol) = &args.why {
                return explain_symbol(&args, &prepared, symbol);
            }
            if let Some(path) = &args.all_bars {
                let options = LocalOptions {
                    shards: args.shards,
                    threads: routed(&args, &prepared).threads(),
                    ..LocalOptions::default()
                };
                let written = all_bars::write(&prepared, options, path)?;
                if !args.quiet {
                    let synthetic =
                        if prepared.dataset.manifest.synthetic { " (SYNTHETIC data, no real market)" } else { "" };
                    println!(
                        "wrote {}: {} bars, {} rows, {} matches{synthetic}",
                        written.path.display(),
                        written.times,
                        written.rows,
                        written.matched
                    );
                }
                return Ok(ExitCode::SUCCESS);
            }
            let files = Files::check(&args)?;
            let mut outcome = embedded(&args, &prepared, None)?;
            outcome.report.prepare_ms = prepare_ms;
            (outcome, files)
        }
        Some(url) => {
            let files = Files::check(&args)?;
            (submitted(&args, url, &document, as_of)?, files)
        }
    };
    finish(&args, outcome, files)
}

/// What is scanned, and as of when.
fn asked(args: &Args) -> anyhow::Result<(ScanDocument, Option<i64>)> {
    let document = args.clauses.document()?;
    let as_of = args.as_of.as_deref().map(clauses::as_of).transpose()?;
    let clashes = heading_clashes(&document);
    if !clashes.is_empty() {
        return Err(UserMistake::Drawn(clashes).into());
    }
    Ok((document, as_of))
}

/// As many threads as were asked for, else as the scan's cost is worth.
fn routed(args: &Args, prepared: &PreparedScan) -> Route {
    match args.threads {
        Some(1) => Route::Sequential,
        Some(threads) => Route::Threads(threads as usize),
        None => route(prepared, std::thread::available_parallelism().map_or(1, NonZero::get)),
    }
}

/// A symbol that the dataset does not have.
pub(super) fn no_symbol(error: &NoSymbol) -> UserMistake {
    let help = match &error.near {
        Some(near) => format!("did you mean '{near}'?"),
        None => format!("'trawl inspect {}' lists its symbols", error.dataset),
    };
    UserMistake::with_help(error.to_string(), help)
}

/// Opens and compiles, with mistakes told as the user's.
pub(super) fn prepare(context: &Context, document: &ScanDocument, as_of: Option<i64>) -> anyhow::Result<PreparedScan> {
    let store = context.store();
    trawl_coordinator::prepare(&store, document, as_of).map_err(|error| match error {
        PrepareError::Plan(mistakes) => drawn(mistakes),
        PrepareError::Dataset(error) => crate::failure::of_market(error),
        PrepareError::NoBar { .. } => {
            let dataset = document.dataset.as_deref().and_then(|name| store.open(name).ok());
            let help = dataset.map(|d| format!("its first bar is of {}", format_time(d.manifest.first_time)));
            UserMistake::Plain { message: error.to_string(), help }.into()
        }
        error => UserMistake::plain(error.to_string()).into(),
    })
}

/// Mistakes in the clauses, with what only the command line knows.
fn drawn(mut mistakes: Vec<Diagnostic>) -> anyhow::Error {
    for mistake in &mut mistakes {
        let at_comma = mistake.text.get(mistake.span.clone()).is_some_and(|t| t.starts_with(','));
        if at_comma && mistake.help.is_none() && mistake.clause.starts_with("select[") {
            mistake.help = Some("give each column its own --select (in a document: its own string)".to_owned());
        }
    }
    UserMistake::Drawn(mistakes).into()
}

/// Why a symbol is in the answer or not; [`NOT_DONE`] when its bars cannot be read.
fn explain_symbol(args: &Args, prepared: &PreparedScan, symbol: &str) -> anyhow::Result<ExitCode> {
    let question = Question::new(prepared, symbol).map_err(|error| match error {
        WhyError::Series(SeriesError::Symbol(error)) => no_symbol(&error).into(),
        WhyError::Sweep(_) => {
            let help = Some("give each variable one value: --sweep 'n=20'".to_owned());
            UserMistake::Plain { message: error.to_string(), help }.into()
        }
        WhyError::Market(error) => crate::failure::of_market(error),
        error => anyhow::Error::from(error),
    })?;
    let Outcome { answer, synthetic, .. } = embedded(args, prepared, None)?;
    let explained = question.explained(&embedded(args, &question.scan, None)?.answer);
    io::stdout().write_all(why::text(&question, &explained, &answer, synthetic).as_bytes())?;
    let failed = answer.rows.iter().any(|r| r.row.symbol == question.symbol && r.row.status == Status::Failed);
    Ok(ExitCode::from(if failed { NOT_DONE } else { DONE }))
}

/// Runs the scan here; an update goes on from `checkpoints`.
fn embedded(args: &Args, prepared: &PreparedScan, checkpoints: Option<Arc<Checkpoints>>) -> anyhow::Result<Outcome> {
    let options = LocalOptions {
        shards: args.shards,
        threads: routed(args, prepared).threads(),
        deadline: args.deadline,
        allow_partial: args.allow_partial,
    };
    let source = ScanSource { checkpoints, ..prepared.source() };
    // Told as a worker of a cluster tells it: the reason is part of the answer.
    let told = |error: &ExecuteError| {
        let failure = Failure::new(error.kind(), bounded_reason(text_of(error)));
        (failure.kind, failure.message)
    };
    let references = source.load_references();
    let execute = |segment, step, input: &StepInputV1| {
        let references = references.as_ref().map_err(told)?;
        source.execute(segment, step, input, references, &NoCancel).map_err(|error| told(&error))
    };
    let waiting = Waiting::new(args.quiet);
    let (answer, report) = local::run(prepared, options, execute, &waiting)?;
    let manifest = &prepared.dataset.manifest;
    Ok(Outcome { answer, report, synthetic: manifest.synthetic, timeframe: manifest.timeframe.clone() })
}

fn submitted(args: &Args, url: &str, document: &ScanDocument, as_of: Option<i64>) -> anyhow::Result<Outcome> {
    let call = ScanCall {
        document: document.clone(),
        as_of,
        shards: args.shards,
        security: args.tls.client(args.token_file.as_ref())?,
        priority: args.priority,
        deadline: args.deadline,
    };
    let waiting = Waiting::new(args.quiet);
    let scanned = client::scan_blocking(url, &call, &waiting).map_err(|error| match error {
        ClientError::Mistakes(mistakes) => drawn(mistakes),
        error if error.is_users_mistake() => UserMistake::plain(error.to_string()).into(),
        error => anyhow::Error::new(error),
    })?;
    let client::Scanned { answer, report, synthetic, timeframe } = scanned;
    Ok(Outcome { answer, report, synthetic, timeframe })
}

fn finish(args: &Args, outcome: Outcome, files: Files) -> anyhow::Result<ExitCode> {
    let Outcome { answer, report, synthetic, timeframe } = outcome;
    let written = match files.answer {
        Some(file) => file.write(&answer, &answer_digest(&answer))?,
        None => Vec::new(),
    };
    if let Some(path) = &files.report {
        write_report(&report, path)?;
    }
    let mut printed = Ok(());
    if !args.quiet {
        let options = table::Options { all: args.all, synthetic, timeframe: &timeframe };
        let mut text = table::render(&answer, options);
        for path in written.iter().chain(&files.report) {
            text.push_str(&format!("wrote {}\n", path.display()));
        }
        printed = io::stdout().write_all(text.as_bytes()).context("cannot write to standard output");
    }
    // Posted also when nobody reads the table to its end.
    let posted = files.notifier.is_none_or(|n| n.deliver(&answer, &answer_digest(&answer), args.quiet));
    printed?;
    let failed = answer.counts()[Status::Failed as usize];
    if failed == 0 && report.is_complete() {
        return Ok(ExitCode::from(if posted { DONE } else { NOT_DONE }));
    }
    if failed == 0 {
        let message = "workers gave different results and it could not be settled which are right: run the scan again";
        crate::diagnostics::error_line(message, None);
        return Ok(ExitCode::from(NOT_DONE));
    }
    let first = answer.rows.iter().find(|r| r.row.status == Status::Failed).map(|r| &r.row);
    let example = first.map_or_else(String::new, |r| format!(" ({}: {})", r.symbol, r.reason));
    let message = format!("the scan is not complete: {} failed{example}", crate::number::counted(failed, "symbol"));
    crate::diagnostics::error_line(&message, None);
    Ok(ExitCode::from(NOT_DONE))
}

fn write_report(report: &RunReport, path: &Path) -> anyhow::Result<()> {
    let mut file = StagedFile::create(path)?;
    serde_json::to_writer_pretty(&mut file, report)?;
    file.write_all(b"\n")?;
    file.keep()?;
    Ok(())
}
