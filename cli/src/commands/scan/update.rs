//! `trawl update`: a scan that saves the state of its symbols, and resumes from it the next time.
//!
//! The answer is that of `trawl scan`, byte for byte. The state is a cache: it is written as a whole or not at all, and
//! parts that no longer fit are computed again.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context as _;
use trawl_coordinator::{PreparedScan, UpdateReport};
use trawl_worker::{Checkpoints, Outcome as Of, STATE_BYTES_MAX, StateError};

use super::clauses::Clauses;
use super::running::{Running, embedded};
use super::shown::{ShownArgs, finish};
use super::{asked, files, prepare, warn_unused};
use crate::app::Context;
use crate::failure::UserMistake;
use crate::failure::io_reason;
use trawl_front::human::counted;
use trawl_front::output::atomic_file::StagedFile;

/// The one file of a state's folder.
const FILE: &str = "state.trawl";

/// What a report says of the state of a scan that has none.
const NOT_NEEDED: &str = "not needed";

const AFTER_HELP: &str = "\
The first run computes everything and saves a state in DIR. Later runs check, symbol by symbol, that the bars before \
the state are unchanged, and compute only what follows; a symbol whose history changed (a correction, a split) is \
computed from its first bar again. The answer, its files and the exit code are those of 'trawl scan'. A damaged state, or one \
of another engine or format, is reported, ignored and replaced; a state of another scan, dataset or precision \
is refused.

Examples:
  trawl update --file scan.toml --dataset mine --state states/scan
  trawl data import today.csv --dataset mine && trawl update --file scan.toml --dataset mine --state states/scan -o answer.csv";

/// Scan again after new bars: compute only what they change, using the state that the last run saved
#[derive(Debug, clap::Args)]
#[command(
    after_help = AFTER_HELP,
    mut_arg("backend", |arg| arg.hide(true)),
    mut_arg("device_memory", |arg| arg.hide(true))
)]
pub struct Args {
    #[command(flatten)]
    clauses: Clauses,

    /// Use the newest closed bar that ends at or before this: a date (to the end of that day), a time on the exchange's
    /// clock, an instant such as 2024-06-28T14:31:00Z, now, today or last-session [default: the newest closed bar]
    #[arg(long, value_name = "WHEN", allow_hyphen_values = true)]
    as_of: Option<String>,

    /// Folder of the state, one for each scan; created when it does not exist
    #[arg(long, value_name = "DIR")]
    state: PathBuf,

    #[command(flatten)]
    running: Running,

    #[command(flatten)]
    shown: ShownArgs,
}

/// Runs the update and shows its answer.
///
/// # Errors
/// As a scan; a [`UserMistake`] for a state of another scan or precision and for a folder that cannot be used.
pub fn run(args: Args, context: &Context) -> anyhow::Result<ExitCode> {
    let span = tracing::info_span!(trawl_telemetry::names::span::UPDATE);
    let _entered = span.enter();
    let Args { clauses, as_of, state, running, shown } = args;
    let (document, as_of) = asked(&clauses, as_of.as_deref())?;
    let started = std::time::Instant::now();
    let prepared = prepare(context, &document, as_of).map_err(|error| clauses.placed(error))?;
    let prepare_ms = started.elapsed().as_secs_f64() * 1e3;
    let files = files(&shown, &running)?;
    warn_unused(&clauses, &document, shown.quiet);
    fs::create_dir_all(&state).map_err(|e| {
        UserMistake::with_help(format!("cannot use '{}': {}", state.display(), io_reason(&e)), "--state names a folder")
    })?;
    let path = state.join(FILE);
    // Checked before anything is computed.
    StagedFile::create(&path)?;
    let mut checkpoints = Checkpoints::new(&prepared.executable, &prepared.identity.dataset);
    let found = load(&mut checkpoints, &path)?;
    let checkpoints = Arc::new(checkpoints);
    let mut outcome = embedded(&running, shown.quiet, &prepared, Some(Arc::clone(&checkpoints)))?;
    outcome.report.prepare_ms = prepare_ms;
    let found = if checkpoints.are_needless() { NOT_NEEDED.to_owned() } else { found };
    let report = report(&checkpoints, found);
    if !shown.quiet {
        io::stderr().write_all(summary(&report, &path).as_bytes())?;
    }
    outcome.report.update = Some(report);
    let profiled = running.profile.then(|| outcome.report.clone());
    let kept = keep(&checkpoints, &prepared, &path);
    let code = finish(&shown, outcome, files)?;
    kept.context("the answer is complete, but the state for the next update was not saved")?;
    profiled.as_ref().map_or(Ok(()), crate::commands::scans::trace::show)?;
    Ok(code)
}

/// Loads the saved state; returns what happened to it.
fn load(checkpoints: &mut Checkpoints, path: &Path) -> anyhow::Result<String> {
    let unreadable = |e: &io::Error| {
        UserMistake::with_help(
            format!("cannot read '{}': {}", path.display(), io_reason(e)),
            "name another folder with --state, or make it readable",
        )
    };
    let mut bytes = Vec::new();
    match File::open(path) {
        Ok(file) => file.take(STATE_BYTES_MAX).read_to_end(&mut bytes).map_err(|e| unreadable(&e))?,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok("none".to_owned()),
        Err(e) => return Err(unreadable(&e).into()),
    };
    match checkpoints.read(&bytes) {
        Ok(()) => Ok("taken".to_owned()),
        Err(error @ StateError::Other { what, .. }) => {
            let help = format!("give each scan a folder of its own; delete '{}' to start over", path.display());
            let message = match what {
                "scan" => "the state is of a scan with other clauses".to_owned(),
                _ => error.to_string(),
            };
            Err(UserMistake::with_help(format!("cannot resume from '{}': {message}", path.display()), help).into())
        }
        Err(error) => {
            let what = format!("'{}' is ignored and replaced: {error}", path.display());
            crate::diagnostics::warning_line(&format!("{what}; every symbol is computed from its first bar"));
            Ok(error.to_string())
        }
    }
}

fn keep(checkpoints: &Checkpoints, prepared: &PreparedScan, path: &Path) -> anyhow::Result<()> {
    let bytes = checkpoints.write(|symbol| prepared.dataset.manifest.symbol(symbol).is_some());
    let mut file = StagedFile::create(path)?;
    file.write_all(&bytes).with_context(|| format!("cannot write '{}'", path.display()))?;
    file.keep()?;
    Ok(())
}

fn report(checkpoints: &Checkpoints, state: String) -> UpdateReport {
    let outcomes = checkpoints.outcomes();
    let recomputed = outcomes.iter().filter(|(outcome, _)| **outcome != Of::Resumed);
    let recomputed: BTreeMap<String, u64> = recomputed.map(|(outcome, n)| (outcome.name().to_owned(), *n)).collect();
    UpdateReport {
        state,
        resumed: outcomes.get(&Of::Resumed).copied().unwrap_or(0),
        recomputed,
        in_full: checkpoints.refusals().into_iter().map(str::to_owned).collect(),
    }
}

/// One line, and one for each reason why a part of the plan cannot resume.
fn summary(report: &UpdateReport, path: &Path) -> String {
    if report.state == NOT_NEEDED {
        return "update: the scan needs no state: no value of it runs on from bar to bar\n".to_owned();
    }
    let symbols = |n: u64| counted(usize::try_from(n).unwrap_or(usize::MAX), "symbol");
    let recomputed: Vec<String> =
        report.recomputed.iter().map(|(why, n)| format!("{} recomputed ({why})", symbols(*n))).collect();
    let mut parts = Vec::new();
    if report.resumed > 0 {
        parts.push(format!("{} resumed", symbols(report.resumed)));
    }
    parts.extend(recomputed);
    if parts.is_empty() {
        parts.push("no part of the scan keeps a state".to_owned());
    }
    let mut text = format!("update: {}; state in {}\n", parts.join(", "), path.display());
    for why in &report.in_full {
        text.push_str(&format!("update: a part of the scan is computed in full every time: {why}\n"));
    }
    text
}
