//! `trawl cluster`: a whole cluster on this machine, for trying it out.

mod etcd;
mod process;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use tempfile::TempDir;
use trawl_wire::pb::ListWorkersRequest;
use trawl_wire::pb::coordinator_client::CoordinatorClient;
use trawl_wire::record::checked_name;

use self::etcd::Etcd;
use self::process::Child;
use super::serving::{listen_address, runtime, say_ready, stop_signal};
use crate::app::Context;

/// How long the processes may take to be ready.
const START_TIMEOUT: Duration = Duration::from_secs(30);
/// Interval at which the number of registered workers is checked.
const POLL: Duration = Duration::from_millis(50);
/// How long the processes may take to end before they are killed: their own drain timeout and a little more.
const STOP_TIMEOUT: Duration = Duration::from_secs(15);

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
with 'ready cluster', then how to use it.";

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

/// Runs until Ctrl-C, SIGTERM, or until one of its processes ends.
pub fn run(args: Args, context: &Context) -> anyhow::Result<ExitCode> {
    let Command::Up(args) = args.command;
    let etcd = etcd::find(args.etcd.as_deref(), args.etcd_binary.as_deref())?;
    let runtime = runtime()?;
    let ended = runtime.block_on(async {
        let stop = stop_signal(false)?;
        let mut cluster = Cluster::new()?;
        let ended = tokio::select! {
            () = stop => Ok(()),
            ended = cluster.up(&args, &etcd, context) => ended,
        };
        cluster.down().await;
        ended
    });
    runtime.shutdown_background();
    ended.map(|()| ExitCode::SUCCESS)
}

/// The processes in the order in which they were started.
struct Cluster {
    /// Holds etcd's data and log; deleted at the end.
    scratch: TempDir,
    children: Vec<Child>,
}

impl Cluster {
    fn new() -> anyhow::Result<Self> {
        let scratch = tempfile::Builder::new().prefix("trawl-cluster-").tempdir();
        Ok(Self { scratch: scratch.context("cannot make a temporary directory")?, children: Vec::new() })
    }

    /// Starts everything, prints how to use it, and returns only with an error: when one of the processes ends.
    async fn up(&mut self, args: &UpArgs, etcd: &Etcd, context: &Context) -> anyhow::Result<()> {
        let ports = metrics_ports(args.metrics, args.workers)?;
        let etcd_url = match etcd {
            Etcd::Running(urls) => urls.clone(),
            Etcd::Start(binary) => {
                let (child, url) = etcd::start(binary, self.scratch.path(), START_TIMEOUT).await?;
                self.children.push(child);
                url
            }
        };
        let shared = |role: &str| {
            let mut command = process::own_command()?;
            command.arg("--data-root").arg(&context.data_root).arg(role);
            command.args(["--etcd", &etcd_url, "--cluster-name", &args.cluster_name, "--until-stdin-ends"]);
            anyhow::Ok(command)
        };
        let mut coordinator = shared("coordinator")?;
        coordinator.args(["--listen", &args.listen.to_string()]);
        show_metrics(&mut coordinator, ports.first());
        // Its own etcd loses the record of the scans when it ends, so their results are deleted too.
        if matches!(etcd, Etcd::Start(_)) {
            coordinator.arg("--results").arg(self.scratch.path().join("results"));
        }
        self.children.push(Child::start("the coordinator", coordinator)?);
        let coordinator = self.children.len() - 1;
        let threads = args.threads.map_or_else(|| threads_each(args.workers), u32::from).to_string();
        let delay = args.fault_delay_ms_per_segment.to_string();
        for number in 1..=args.workers {
            let mut worker = shared("worker")?;
            worker.args(["--listen", "127.0.0.1:0", "--threads", &threads, "--fault-delay-ms-per-segment", &delay]);
            show_metrics(&mut worker, ports.get(usize::from(number)));
            self.children.push(Child::start(&format!("worker {number}"), worker)?);
        }
        let ready = self.children[coordinator].first_line(START_TIMEOUT).await?;
        let url = ready.split_whitespace().find_map(|word| word.strip_prefix("url="));
        let url = url
            .with_context(|| format!("the coordinator printed '{ready}' where its address was expected"))?
            .to_owned();
        tokio::select! {
            registered = all_registered(&url, usize::from(args.workers)) => registered?,
            error = any_end(&mut self.children) => return Err(error),
        }
        say_ready(&usage(&url, &etcd_url, &ports, args.workers, matches!(etcd, Etcd::Start(_)), context));
        Err(any_end(&mut self.children).await)
    }

    /// Ends all processes in the opposite order, within a time limit.
    async fn down(&mut self) {
        let deadline = Instant::now() + STOP_TIMEOUT;
        // All are signalled before any is waited for.
        for child in &mut self.children {
            child.ask_to_stop();
        }
        // The coordinator and the workers sign off from etcd, so it ends last.
        for child in self.children.iter_mut().rev() {
            child.end(deadline).await;
        }
    }
}

/// Returns when the first process ends; the error names it and its exit status.
async fn any_end(children: &mut [Child]) -> anyhow::Error {
    let ends = children.iter_mut().map(|child| Box::pin(child.unexpected_end()));
    process::first_of(ends.collect()).await
}

async fn all_registered(url: &str, workers: usize) -> anyhow::Result<()> {
    let deadline = Instant::now() + START_TIMEOUT;
    let mut client = CoordinatorClient::connect(url.to_owned()).await.context("cannot reach the coordinator")?;
    loop {
        let reply =
            client.list_workers(ListWorkersRequest::default()).await.context("the coordinator does not answer")?;
        let found = reply.into_inner().workers.len();
        if found >= workers {
            return Ok(());
        }
        if Instant::now() > deadline {
            bail!("only {found} of {workers} workers registered within {} s", START_TIMEOUT.as_secs());
        }
        tokio::time::sleep(POLL).await;
    }
}

/// Ports of the coordinator and of each worker; none without --metrics.
fn metrics_ports(first: Option<u16>, workers: u16) -> anyhow::Result<Vec<u16>> {
    let Some(first) = first else { return Ok(Vec::new()) };
    let last = first.checked_add(workers).with_context(|| {
        format!("--metrics {first}: there are no ports for {workers} workers after it, 65535 is the last")
    })?;
    Ok((first..=last).collect())
}

fn show_metrics(command: &mut tokio::process::Command, port: Option<&u16>) {
    if let Some(port) = port {
        command.args(["--metrics", &port.to_string()]);
    }
}

fn threads_each(workers: u16) -> u32 {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    u32::try_from(cores / usize::from(workers)).unwrap_or(1).max(1)
}

fn usage(url: &str, etcd: &str, ports: &[u16], workers: u16, own_etcd: bool, context: &Context) -> String {
    let metrics = match ports {
        [first, .., last] => format!("metrics      http://127.0.0.1:{first}/metrics, and on the ports to {last}\n"),
        _ => String::new(),
    };
    let (etcd_note, data) =
        (if own_etcd { " (temporary; its data are deleted with it)" } else { "" }, context.data_root.display());
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
