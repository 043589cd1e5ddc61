//! `trawl probe`: what the health check of a container runs. Its image has nothing else that could ask.

use std::net::SocketAddr;
use std::process::ExitCode;

use trawl_telemetry::{LIVE, READY, ask_health};

use crate::failure::DONE;

/// Ask a process at its --health address whether it accepts work
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Address that the process has as --health
    #[arg(value_name = "IP:PORT")]
    address: SocketAddr,

    /// What is asked: 'ready', whether it accepts work, or 'live', whether it answers at all
    #[arg(long, value_name = "SERVICE", default_value = READY, value_parser = [LIVE, READY])]
    service: String,
}

/// Asks; the exit code is the answer.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    if !runtime.block_on(ask_health(args.address, &args.service))? {
        anyhow::bail!("the process at {} is not {}", args.address, args.service);
    }
    Ok(ExitCode::from(DONE))
}
