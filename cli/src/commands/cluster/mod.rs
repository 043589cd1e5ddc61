//! `trawl cluster`: a whole cluster on this machine, for trying it out.

pub mod etcd;
pub mod local;
mod process;

use std::process::ExitCode;

use anyhow::Context as _;
use trawl_wire::record::checked_name;

use self::etcd::Etcd;
use self::local::{Addresses, LocalCluster, Size};
use super::serving::{listen_address, runtime, say_ready, stop_signal};
use crate::app::Context;

/// Run a whole cluster on this machine
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    Up(UpArgs),
}

const AFTER_HELP: &str = "\
Everything listens on loopback only and ends with Ctrl-C. When all workers are registered it prints one line beginning \
with 'ready cluster', then how to use it. A worker that ends is started again: kill one in the middle of a scan and see.";

/// Start etcd, a coordinator and workers here, and stop them all with Ctrl-C
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
struct UpArgs {
    /// How many workers
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=64))]
    workers: u16,

    /// Threads of each worker [default: the cores, shared among the workers]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,

    /// Address of the coordinator; port 0 takes a free one
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:7400", value_parser = listen_address)]
    listen: std::net::SocketAddr,

    /// The etcd to start [default: the one on PATH, else target/tools/etcd]
    #[arg(long, value_name = "FILE", conflicts_with = "etcd")]
    etcd_binary: Option<std::path::PathBuf>,

    /// Use an etcd that is running instead of starting one
    #[arg(long, value_name = "URL,...")]
    etcd: Option<String>,

    /// Name of the cluster in etcd
    #[arg(long, value_name = "NAME", default_value = "trawl", value_parser = checked_name)]
    cluster_name: String,

    /// Show metrics on loopback: the coordinator's on this port, the workers' on the next ones
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    metrics: Option<u16>,

    /// For tests: see 'trawl worker'
    #[arg(long, value_name = "MS", default_value_t = 0, hide = true)]
    fault_delay_ms_per_segment: u64,
}

/// Runs until Ctrl-C, SIGTERM, or until etcd or the coordinator ends.
pub fn run(args: Args, context: &Context) -> anyhow::Result<ExitCode> {
    let Command::Up(args) = args.command;
    context.make_usual();
    let etcd = etcd::find(args.etcd.as_deref(), args.etcd_binary.as_deref())?;
    let size = Size {
        workers: args.workers,
        threads: args.threads.map_or_else(|| threads_each(args.workers), u32::from),
        listen: args.listen,
        name: &args.cluster_name,
        data_root: &context.data_root,
        variables: context.cache_variables().into(),
        metrics: metrics_ports(args.metrics, args.workers)?,
        delay_ms_per_segment: args.fault_delay_ms_per_segment,
        quiet: false,
    };
    let runtime = runtime()?;
    let ended = runtime.block_on(async {
        let stop = stop_signal(false)?;
        let mut cluster = LocalCluster::new()?;
        let ended = tokio::select! {
            () = stop => Ok(()),
            ended = up(&mut cluster, &size, &etcd) => Err(ended),
        };
        cluster.down().await;
        ended
    });
    runtime.shutdown_background();
    ended.map(|()| ExitCode::SUCCESS)
}

/// Starts everything, prints how to use it, and returns only with an error.
async fn up(cluster: &mut LocalCluster, size: &Size<'_>, etcd: &Etcd) -> anyhow::Error {
    match cluster.start(size, etcd).await {
        Ok(addresses) => say_ready(&usage(&addresses, size, matches!(etcd, Etcd::Start(_)))),
        Err(error) => return error,
    }
    cluster.supervise().await
}

/// Ports of the coordinator and of each worker; none without --metrics.
fn metrics_ports(first: Option<u16>, workers: u16) -> anyhow::Result<Vec<u16>> {
    let Some(first) = first else { return Ok(Vec::new()) };
    let last = first.checked_add(workers).with_context(|| {
        format!("--metrics {first}: there are no ports for {workers} workers after it, 65535 is the last")
    })?;
    Ok((first..=last).collect())
}

/// Threads of each of `workers` workers when they share this machine's cores.
pub fn threads_each(workers: u16) -> u32 {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    u32::try_from(cores / usize::from(workers)).unwrap_or(1).max(1)
}

fn usage(addresses: &Addresses, size: &Size<'_>, own_etcd: bool) -> String {
    let (url, etcd, workers) = (&addresses.coordinator, &addresses.etcd, size.workers);
    let metrics = match &size.metrics[..] {
        [first, .., last] => format!("metrics      http://127.0.0.1:{first}/metrics, and on the ports to {last}\n"),
        _ => String::new(),
    };
    let (etcd_note, data) =
        (if own_etcd { " (temporary; its data are deleted with it)" } else { "" }, size.data_root.display());
    format!(
        "ready cluster url={url} etcd={etcd} workers={workers}\n\n\
         coordinator  {url}\n\
         workers      {workers}\n\
         etcd         {etcd}{etcd_note}\n\
         data root    {data}\n\
         {metrics}\n\
         Scan with it:\n  \
         trawl scan --coordinator {url} --dataset us5 --as-of 2013-02-22 \\\n      \
         --where 'within(crosses_above(sma(close,50), sma(close,200)), 3)'\n\n\
         Ctrl-C ends all of it."
    )
}
