//! One module per subcommand: `Args` and `run`.

use std::process::ExitCode;

pub use serving::with_variables;

use crate::context::Context;
use trawl_telemetry::Role;

mod bench;
mod certs;
mod chart;
mod cluster;
mod completions;
mod compute;
mod coordinator;
mod datasets;
mod devices;
mod diff;
mod import;
mod indicators;
mod inspect;
mod reading;
mod scan;
mod scans;
mod security;
mod serving;
mod synth;
mod tokens;
mod trace;
mod worker;

/// What `trawl` is asked to do.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    Scan(Box<scan::Args>),
    Update(Box<scan::UpdateArgs>),
    List(scans::ListArgs),
    Status(scans::StatusArgs),
    Trace(trace::Args),
    Watch(scans::WatchArgs),
    Results(scans::ResultsArgs),
    Cancel(scans::CancelArgs),
    Workers(scans::WorkersArgs),
    Drain(scans::DrainArgs),
    Diff(diff::Args),
    Compute(compute::Args),
    Chart(chart::Args),
    Indicators(indicators::Args),
    Import(import::Args),
    Synth(synth::Args),
    Datasets(datasets::Args),
    /// As 'trawl datasets prune'
    #[command(hide = true)]
    Prune(datasets::remove::PruneArgs),
    /// As 'trawl datasets export'
    #[command(hide = true)]
    Export(Box<datasets::export::Args>),
    Inspect(inspect::Args),
    Devices(devices::Args),
    Bench(bench::Args),
    Cluster(cluster::Args),
    Worker(worker::Args),
    Coordinator(coordinator::Args),
    Certs(certs::Args),
    Tokens(tokens::Args),
    Completions(completions::Args),
}

impl Command {
    /// What the process is in traces.
    pub fn role(&self) -> Role {
        match self {
            Self::Worker(_) => Role::Worker,
            Self::Coordinator(_) => Role::Coordinator,
            _ => Role::Command,
        }
    }

    /// Does it.
    ///
    /// # Errors
    /// What stopped it; see `failure` for how that becomes an exit code.
    pub fn run(self, context: &Context) -> anyhow::Result<ExitCode> {
        match self {
            Self::Scan(args) => scan::run(*args, context),
            Self::Update(args) => scan::run_update(*args, context),
            Self::List(args) => scans::list(&args),
            Self::Status(args) => scans::status(&args),
            Self::Trace(args) => trace::run(&args),
            Self::Watch(args) => scans::watch(&args),
            Self::Results(args) => scans::results(&args),
            Self::Cancel(args) => scans::cancel(&args),
            Self::Workers(args) => scans::workers(&args),
            Self::Drain(args) => scans::drain(&args),
            Self::Diff(args) => diff::run(args),
            Self::Compute(args) => compute::run(args, context),
            Self::Chart(args) => chart::run(args, context),
            Self::Indicators(args) => indicators::run(args, context),
            Self::Import(args) => import::run(args, context),
            Self::Synth(args) => synth::run(args, context),
            Self::Datasets(args) => datasets::run(args, context),
            Self::Prune(args) => datasets::remove::prune(&args, context),
            Self::Export(args) => datasets::export::run(&args, context),
            Self::Devices(args) => devices::run(&args),
            Self::Inspect(args) => inspect::run(args, context),
            Self::Bench(args) => bench::run(args, context),
            Self::Cluster(args) => cluster::run(args, context),
            Self::Coordinator(args) => coordinator::run(args, context),
            Self::Worker(args) => worker::run(args, context),
            Self::Certs(args) => certs::run(args),
            Self::Tokens(args) => tokens::run(args),
            Self::Completions(args) => completions::run(args),
        }
    }
}
