//! One module per subcommand: `Args` and `run`.

use std::process::ExitCode;

use crate::context::Context;

pub mod compute;
pub mod scan;

/// What `trawl` is asked to do.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    Compute(compute::Args),
}

impl Command {
    /// Does it.
    pub fn run(self, context: &Context) -> anyhow::Result<ExitCode> {
        match self {
            Self::Compute(args) => compute::run(args, context),
        }
    }
}
