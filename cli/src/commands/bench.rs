//! `trawl bench`: what this machine's GPU and bucket do; the other benchmarks are a program of their own (`trawl-bench`).

use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Result;
use trawl_bench::{devices, gpu, pipeline};
use trawl_coordinator::estimated_ns;
use trawl_kernels::cuda::DeviceName;

use crate::app::Context;
use crate::backend::{self, BackendArgs, Workload};
use crate::failure::UserMistake;

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
    /// What this machine's GPUs gain by overlap, streams, memory modes, bars that stay, and each other
    Devices {
        #[command(flatten)]
        args: devices::Args,

        /// GPUs to measure, by their numbers or UUIDs [default: as for a scan]
        #[arg(long, value_name = "NUMBERS", env = "TRAWL_DEVICES", hide_env = true, value_delimiter = ',')]
        devices: Option<Vec<DeviceName>>,
    },
    /// A scan of a dataset in a bucket, its files fetched before it, by the threads that compute, and ahead of them
    Pipeline {
        #[command(flatten)]
        args: pipeline::Args,

        #[command(flatten)]
        backend: BackendArgs,
    },
}

/// Runs a benchmark.
///
/// # Errors
/// Those of [`gpu::run`], [`devices::run`] and [`pipeline::run`].
pub fn run(args: Args, context: &Context) -> Result<ExitCode> {
    match args.what {
        What::Gpu(args) => gpu::run(&args, backend::device),
        What::Devices { args, devices } => {
            let cache = Arc::new(backend::kernel_cache());
            devices::run(&args, &|options, count| {
                let gpus = backend::gpus(devices.as_deref())?;
                backend::open_all(&gpus[..gpus.len().min(count)], &cache, |_| options.clone())
            })
        }
        What::Pipeline { args, backend } => pipeline::run(
            &args,
            |folder| context.store_with_cache(folder),
            |prepared| {
                if !prepared.dataset.is_in_objects() {
                    let dataset = &prepared.dataset.manifest.name;
                    let help =
                        "name a data root in a bucket, such as --data-root s3://BUCKET/PREFIX, and a dataset of it";
                    return Err(UserMistake::with_help(format!("dataset '{dataset}' is not in a bucket"), help).into());
                }
                let work = Workload::Scan { estimated_ns: estimated_ns(prepared) };
                Ok(backend.choose(work)?.engine)
            },
        ),
    }
}
