//! `trawl bench`: what this machine's GPU does; the other benchmarks are a program of their own (`trawl-bench`).

use std::process::ExitCode;

use anyhow::Result;
use trawl_bench::gpu;

use crate::backend;

/// Measure this machine.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// Plans on this machine's GPU: the same bits as on the CPU, times by the device's clock, a JSON report; 8 minutes
    /// at most
    Gpu(gpu::Args),
}

/// Runs a benchmark.
///
/// # Errors
/// Those of [`gpu::run`].
pub fn run(args: Args) -> Result<ExitCode> {
    match args.what {
        What::Gpu(args) => gpu::run(&args, backend::device),
    }
}
