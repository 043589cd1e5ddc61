//! One module per subcommand: `Args` and `run`.

use std::process::ExitCode;

pub use completions::answer as answer_shell;
pub use config_file::with_words_of_file;
pub use serving::with_variables;

use crate::app::Context;
use crate::failure::UserMistake;
use trawl_telemetry::{AuditFile, Role};

mod bench;
mod certs;
mod chart;
mod cluster;
mod completions;
mod compute;
mod config_file;
mod coordinator;
mod data;
mod debug;
mod demo;
mod devices;
mod diff;
mod indicators;
mod language;
mod members;
mod probe;
mod reading;
mod scan;
mod scans;
mod security;
mod serve;
mod serving;
mod tokens;
mod top;
mod worker;

/// The subcommands of `trawl`.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    Scan(Box<scan::Args>),
    Update(Box<scan::UpdateArgs>),
    Study(Box<scan::StudyArgs>),
    Panel(Box<scan::PanelArgs>),
    Diff(diff::Args),
    Compute(compute::Args),
    Chart(chart::Args),
    Indicators(indicators::Args),
    /// The scan language on one page; also 'trawl help language'
    #[command(hide = true, override_help = language::PAGE)]
    Language,
    Data(data::Args),
    Scans(Box<scans::Args>),
    Top(top::Args),
    Coordinators(members::CoordinatorsArgs),
    Workers(members::WorkersArgs),
    Drain(members::DrainArgs),
    Debug(debug::Args),
    Cluster(cluster::Args),
    Demo(demo::Args),
    Serve(Box<serve::Args>),
    Coordinator(Box<coordinator::Args>),
    Worker(worker::Args),
    Devices(devices::Args),
    Bench(bench::Args),
    Certs(certs::Args),
    Tokens(tokens::Args),
    Completions(completions::Args),
    #[command(hide = true)]
    Probe(probe::Args),
    #[command(flatten)]
    Earlier(Earlier),
}

/// Spellings from before `data` and `scans`: they still work, and no help lists them.
#[derive(Debug, clap::Subcommand)]
pub enum Earlier {
    #[command(hide = true)]
    Import(Box<data::import::Args>),
    #[command(hide = true)]
    Synth(data::synth::Args),
    /// See 'trawl data list'; 'rm', 'prune' and 'export' are those of 'trawl data'
    #[command(hide = true)]
    Datasets(Box<data::DatasetsArgs>),
    #[command(hide = true)]
    Inspect(data::inspect::Args),
    #[command(hide = true)]
    Export(Box<data::export::Args>),
    #[command(hide = true)]
    Prune(data::remove::PruneArgs),
    #[command(hide = true)]
    List(scans::ListArgs),
    #[command(hide = true)]
    Status(scans::StatusArgs),
    #[command(hide = true)]
    Trace(scans::trace::Args),
    #[command(hide = true)]
    Watch(scans::WatchArgs),
    #[command(hide = true)]
    Results(scans::ResultsArgs),
    #[command(hide = true)]
    Cancel(scans::CancelArgs),
}

impl Command {
    /// The role of the process in traces.
    pub fn role(&self) -> Role {
        match self {
            Self::Worker(_) => Role::Worker,
            Self::Coordinator(_) => Role::Coordinator,
            _ => Role::Command,
        }
    }

    /// The file of the audit log that a server of scans writes.
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn audit_file(&self) -> Result<Option<AuditFile>, UserMistake> {
        match self {
            Self::Coordinator(args) => args.audit.file(),
            Self::Serve(args) => args.audit.file(),
            _ => Ok(None),
        }
    }

    /// Runs the command.
    ///
    /// # Errors
    /// Any failure; see `failure` for how it becomes an exit code.
    pub fn run(self, context: &Context) -> anyhow::Result<ExitCode> {
        match self {
            Self::Scan(args) => scan::run(*args, context),
            Self::Update(args) => scan::run_update(*args, context),
            Self::Study(args) => scan::run_study(*args, context),
            Self::Panel(args) => scan::run_panel(*args, context),
            Self::Diff(args) => diff::run(args),
            Self::Compute(args) => compute::run(args, context),
            Self::Chart(args) => chart::run(args, context),
            Self::Indicators(args) => indicators::run(args, context),
            Self::Language => language::run(),
            Self::Data(args) => data::run(args, context),
            Self::Scans(args) => scans::run(&args),
            Self::Top(args) => top::run(&args),
            Self::Coordinators(args) => members::coordinators(&args),
            Self::Workers(args) => members::workers(&args),
            Self::Drain(args) => members::drain(&args),
            Self::Debug(args) => debug::run(&args),
            Self::Demo(args) => demo::run(&args, context),
            Self::Cluster(args) => cluster::run(args, context),
            Self::Serve(args) => serve::run(*args, context),
            Self::Coordinator(args) => coordinator::run(*args, context),
            Self::Worker(args) => worker::run(args, context),
            Self::Devices(args) => devices::run(&args),
            Self::Bench(args) => bench::run(args, context),
            Self::Certs(args) => certs::run(args),
            Self::Tokens(args) => tokens::run(args),
            Self::Completions(args) => completions::run(args),
            Self::Probe(args) => probe::run(&args),
            Self::Earlier(earlier) => earlier.run(context),
        }
    }
}

impl Earlier {
    fn run(self, context: &Context) -> anyhow::Result<ExitCode> {
        match self {
            Self::Import(args) => data::import::run(*args, context),
            Self::Synth(args) => data::synth::run(args, context),
            Self::Datasets(args) => data::run_datasets(&args, context),
            Self::Inspect(args) => data::inspect::run(args, context),
            Self::Export(args) => data::export::run(&args, context),
            Self::Prune(args) => data::remove::prune(&args, context),
            Self::List(args) => scans::list(&args),
            Self::Status(args) => scans::status(&args),
            Self::Trace(args) => scans::trace::run(&args),
            Self::Watch(args) => scans::watch(&args),
            Self::Results(args) => scans::results(&args),
            Self::Cancel(args) => scans::cancel(&args),
        }
    }
}
