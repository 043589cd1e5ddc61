//! One module per subcommand: `Args` and `run`.

use std::process::ExitCode;

use crate::context::Context;

mod bench;
mod compute;
mod datasets;
mod import;
mod inspect;
mod scan;
mod synth;

/// What `trawl` is asked to do.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    Scan(Box<scan::Args>),
    Compute(compute::Args),
    Import(import::Args),
    Synth(synth::Args),
    Datasets(datasets::Args),
    Inspect(inspect::Args),
    Bench(bench::Args),
}

impl Command {
    /// Does it.
    ///
    /// # Errors
    /// What stopped it; see `failure` for how that becomes an exit code.
    pub fn run(self, context: &Context) -> anyhow::Result<ExitCode> {
        match self {
            Self::Scan(args) => scan::run(*args, context),
            Self::Compute(args) => compute::run(args, context),
            Self::Import(args) => import::run(args, context),
            Self::Synth(args) => synth::run(args, context),
            Self::Datasets(args) => datasets::run(args, context),
            Self::Inspect(args) => inspect::run(args, context),
            Self::Bench(args) => bench::run(args, context),
        }
    }
}
