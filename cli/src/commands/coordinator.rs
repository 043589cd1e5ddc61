//! `trawl coordinator`: takes scans and has workers run them.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use trawl_coordinator::server;
use trawl_protocol::record::fresh_boot;

use super::serving::{ClusterArgs, listen_address, runtime, say_ready, stop_signal};
use crate::context::Context;

const AFTER_HELP: &str = "\
Clients submit with: trawl scan --coordinator http://IP:PORT ... Ctrl-C or SIGTERM: running scans may finish (10 s at \
most), then it exits 0. When it is ready it prints one line: ready coordinator listen=IP:PORT url=http://IP:PORT";

/// Run the coordinator of a cluster: it takes scans and has the workers in etcd run them
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    #[command(flatten)]
    cluster: ClusterArgs,

    /// Address to listen on, loopback only; port 0 takes a free one
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:7400", value_parser = listen_address)]
    listen: SocketAddr,

    /// Seconds that a scan waits while no worker is registered
    #[arg(long, value_name = "SECONDS", default_value_t = 15, value_parser = clap::value_parser!(u64).range(0..=86_400))]
    no_worker_timeout_s: u64,
}

/// Runs until it is told to stop.
pub fn run(args: Args, context: &Context) -> anyhow::Result<ExitCode> {
    let store = args.cluster.store()?;
    let options = server::Options {
        listen: args.listen,
        cluster_name: args.cluster.cluster_name.clone(),
        boot: fresh_boot(),
        data_root: context.data_root.clone(),
        no_worker_timeout: Duration::from_secs(args.no_worker_timeout_s),
        start_timeout: args.cluster.start_timeout(),
    };
    let ready = |address| say_ready(&format!("ready coordinator listen={address} url=http://{address}"));
    let runtime = runtime()?;
    let ended = runtime.block_on(async {
        let stop = stop_signal(args.cluster.until_stdin_ends)?;
        server::run(options, store, ready, stop).await.map_err(anyhow::Error::from)
    });
    runtime.shutdown_background();
    ended.map(|()| ExitCode::SUCCESS)
}
