//! How a scan or an update runs in this process: threads, backend, deadline.

use std::sync::Arc;
use std::time::Duration;

use trawl_coordinator::{PreparedScan, Route, ShardSpec, estimated_ns};
use trawl_front::run::{self, Outcome, RunOptions};
use trawl_worker::Checkpoints;

use crate::backend::{BackendArgs, Workload};
use crate::progress::Waiting;

/// Most threads that may be requested.
const THREADS_MAX: u32 = 1024;
/// Longest deadline: 30 days.
const DEADLINE_SECONDS_MAX: f64 = 2_592_000.0;

/// How a scan or an update runs.
#[derive(Debug, clap::Args)]
pub struct Running {
    /// How the work is divided: a number of shards, 'per-group' (one for each group of symbols) or 'auto'
    #[arg(long, value_name = "N", default_value = "auto", allow_negative_numbers = true, value_parser = shard_spec, help_heading = "Running")]
    pub(super) shards: ShardSpec,

    /// Threads to run on [default: by the scan's estimated cost, at most one per core]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = clap::value_parser!(u32).range(1..=i64::from(THREADS_MAX)), help_heading = "Running")]
    pub(super) threads: Option<u32>,

    /// Give up when the scan is not finished within this many seconds
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true, value_parser = deadline, help_heading = "Running")]
    pub(super) deadline: Option<Duration>,

    #[command(flatten)]
    pub(super) backend: BackendArgs,

    /// Leave out symbols whose evaluation failed for reasons other than their data, and record that in the answer's
    /// identity, instead of failing the scan
    #[arg(long, help_heading = "Running")]
    pub(super) allow_partial: bool,

    /// Print where the time went: stages, the slowest shards, and what probably delayed them
    #[arg(long, help_heading = "Output")]
    pub(super) profile: bool,
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

fn deadline(text: &str) -> Result<Duration, String> {
    let seconds = text.parse::<f64>().ok().filter(|s| *s > 0.0 && *s <= DEADLINE_SECONDS_MAX);
    let time = seconds.and_then(|s| Duration::try_from_secs_f64(s).ok()).filter(|t| !t.is_zero());
    time.ok_or_else(|| format!("seconds above 0 and up to {DEADLINE_SECONDS_MAX} are expected, such as 30 or 0.5"))
}

/// The number of threads that the user requested, else the number that the scan's cost justifies.
pub(super) fn routed(running: &Running, prepared: &PreparedScan) -> Route {
    run::routed(running.threads.map(|threads| threads as usize), prepared)
}

/// Runs the scan here; an update resumes from `checkpoints`.
pub(super) fn embedded(
    running: &Running,
    quiet: bool,
    prepared: &PreparedScan,
    checkpoints: Option<Arc<Checkpoints>>,
) -> anyhow::Result<Outcome> {
    let work = if checkpoints.is_some() { Workload::CpuOnly("an update runs") } else { work_of(prepared) };
    let options = RunOptions {
        shards: running.shards,
        threads: running.threads.map(|threads| threads as usize),
        deadline: running.deadline,
        allow_partial: running.allow_partial,
        chosen: running.backend.choose(work)?,
        checkpoints,
        cancel: None,
    };
    let outcome = run::embedded(prepared, options, &Waiting::new(quiet))?;
    for lost in outcome.report.devices_lost.iter().filter(|_| !quiet) {
        let sentence = lost.sentence();
        crate::diagnostics::warning_line(&format!("{sentence}; 'trawl devices' shows what is wrong with it"));
    }
    Ok(outcome)
}

/// The estimated work, for choosing what computes it.
fn work_of(prepared: &PreparedScan) -> Workload {
    Workload::Scan { estimated_ns: estimated_ns(prepared) }
}
