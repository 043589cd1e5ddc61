//! `trawl coordinator`: takes scans and has workers run them.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use trawl_coordinator::server;
use trawl_protocol::limits::DOCUMENT_BYTES_MAX;
use trawl_protocol::record::fresh_boot;
use trawl_protocol::security::Role;

use super::security::TlsArgs;
use super::serving::{ClusterArgs, any_address, runtime, say_ready, stop_signal};
use crate::context::Context;

const AFTER_HELP: &str = "\
Clients submit with: trawl scan --coordinator http://IP:PORT ... Ctrl-C or SIGTERM: running scans may finish (10 s at \
most), then it exits 0. When it is ready it prints one line: ready coordinator listen=IP:PORT url=http://IP:PORT (https \
with certificates). Certificates, key and the file of tokens are read again when they change.";

/// Run the coordinator of a cluster: it takes scans and has the workers in etcd run them
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    #[command(flatten)]
    cluster: ClusterArgs,

    /// Address to listen on, loopback only unless there are certificates; port 0 takes a free one
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:7400", value_parser = any_address)]
    listen: SocketAddr,

    /// Seconds that a scan waits while no worker is registered
    #[arg(long, value_name = "SECONDS", default_value_t = 15, value_parser = clap::value_parser!(u64).range(0..=86_400))]
    no_worker_timeout_s: u64,

    /// Scans that run at once; further ones wait for their turn, by priority and age
    #[arg(long, value_name = "N", default_value_t = server::SCANS_MAX as u32, value_parser = clap::value_parser!(u32).range(1..=1024), help_heading = "Limits")]
    scans_running_max: u32,

    /// Scans that wait; further ones are refused, and told when to come again
    #[arg(long, value_name = "N", default_value_t = server::SCANS_WAITING_MAX as u32, value_parser = clap::value_parser!(u32).range(0..=65_536), help_heading = "Limits")]
    scans_waiting_max: u32,

    #[command(flatten)]
    tls: TlsArgs,

    /// File of users' tokens, one 'NAME ROLES SHA256HEX' a line; with it, every user needs a token
    #[arg(long, value_name = "FILE", help_heading = "Security")]
    tokens: Option<PathBuf>,

    /// Scans that one caller may have running [default: 16; no limit on loopback without certificates and tokens]
    #[arg(long, value_name = "N", help_heading = "Limits of each caller")]
    scans_per_caller_max: Option<u32>,

    /// Submissions of one caller in a minute [default: 600; no limit on loopback without certificates and tokens]
    #[arg(long, value_name = "N", help_heading = "Limits of each caller")]
    submissions_per_minute_max: Option<u32>,

    /// Bytes of one scan's document [default: 1048576]
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u64).range(1..=DOCUMENT_BYTES_MAX as u64),
        help_heading = "Limits of each caller")]
    plan_bytes_max: Option<u64>,
}

/// Runs until it is told to stop.
pub fn run(args: Args, context: &Context) -> anyhow::Result<ExitCode> {
    let security = args.tls.server(Role::Coordinator, args.listen, args.tokens.as_ref())?;
    let store = args.cluster.store(&args.tls, security.tls.as_ref())?;
    let scheme = if security.tls.is_some() { "https" } else { "http" };
    let options = server::Options {
        listen: args.listen,
        security,
        quotas: server::QuotaLimits {
            scans: args.scans_per_caller_max,
            plan_bytes: args.plan_bytes_max.map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX)),
            submissions_per_minute: args.submissions_per_minute_max,
        },
        scans: server::ScanLimits {
            running: args.scans_running_max as usize,
            waiting: args.scans_waiting_max as usize,
        },
        cluster_name: args.cluster.cluster_name.clone(),
        boot: fresh_boot(),
        data_root: context.data_root.clone(),
        no_worker_timeout: Duration::from_secs(args.no_worker_timeout_s),
        start_timeout: args.cluster.start_timeout(),
    };
    let ready = |address| say_ready(&format!("ready coordinator listen={address} url={scheme}://{address}"));
    let runtime = runtime()?;
    let ended = runtime.block_on(async {
        let stop = stop_signal(args.cluster.until_stdin_ends)?;
        store.keep_fresh();
        server::run(options, store, ready, stop).await.map_err(anyhow::Error::from)
    });
    runtime.shutdown_background();
    ended.map(|()| ExitCode::SUCCESS)
}
