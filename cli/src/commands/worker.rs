//! `trawl worker`: one worker of a cluster.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use trawl_cluster_store::Metered;
use trawl_security::Role;
use trawl_telemetry::metrics::Place;
use trawl_wire::record::{checked_name, fresh_boot};
use trawl_worker::cache::CACHE_BYTES_DEFAULT;
use trawl_worker::registration::LEASE_TTL_DEFAULT;
use trawl_worker::server::{self, ServerError};

use super::security::TlsArgs;
use super::serving::{
    ClusterArgs, MetricsArgs, ScrubArgs, advertised, any_address, runtime, say_ready, serve_metrics, stop_signal,
};
use crate::app::Context;
use crate::backend::{BackendArgs, Workload};
use crate::failure::UserMistake;

const AFTER_HELP: &str = "\
A worker registers in etcd under a lease and computes what coordinators send it. It reads datasets under its data root, \
which must contain the same datasets as the coordinator's. Ctrl-C or SIGTERM: it removes itself from etcd, finishes what \
runs (within --drain-timeout-s) and exits 0. With --backend auto it computes on a GPU where 'trawl devices' finds one \
that can be used; if the GPU is lost while working, the worker returns its work and exits 1, with --metrics after 20 s. When it \
is ready it prints one line: ready worker id=ID address=IP:PORT. Environment variables set every option too: \
TRAWL_THREADS sets --threads, for instance; the one of --etcd is TRAWL_ETCD_ENDPOINTS.";

/// How long a worker whose device is lost still answers scrapes. What was counted by a process that has ended is never seen;
/// Prometheus usually asks every 15 s.
const LAST_SCRAPE: Duration = Duration::from_secs(20);

/// Run a worker of a cluster: it registers in etcd and computes what coordinators send
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    #[command(flatten)]
    cluster: ClusterArgs,

    /// Address to listen on, loopback only unless there are certificates; port 0 takes a free one
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:0", value_parser = any_address)]
    listen: SocketAddr,

    /// Address at which coordinators reach it [default: the one it listens on]
    #[arg(long, value_name = "HOST:PORT", value_parser = advertised)]
    advertise: Option<String>,

    /// Name of this worker, unique in the cluster [default: a random one]
    #[arg(long, value_name = "NAME", value_parser = checked_name)]
    id: Option<String>,

    /// Threads that compute [default: one per core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,

    /// Bytes of bars kept in memory between scans
    #[arg(long, value_name = "BYTES", default_value_t = CACHE_BYTES_DEFAULT)]
    cache_bytes: u64,

    /// Seconds after which a worker that does not respond counts as lost
    #[arg(long, value_name = "SECONDS", default_value_t = LEASE_TTL_DEFAULT.as_secs(),
        value_parser = clap::value_parser!(u64).range(2..=300))]
    lease_ttl_s: u64,

    #[command(flatten)]
    scrub: ScrubArgs,

    #[command(flatten)]
    backend: BackendArgs,

    #[command(flatten)]
    metrics: MetricsArgs,

    #[command(flatten)]
    tls: TlsArgs,

    /// For tests: wait before each segment, so that a fault hits a scan while it runs
    #[arg(long, value_name = "MS", default_value_t = 0, hide = true)]
    fault_delay_ms_per_segment: u64,
}

/// Runs until it is asked to stop.
pub fn run(args: Args, context: &Context) -> anyhow::Result<ExitCode> {
    let security = args.tls.server(Role::Worker, args.listen, None)?;
    if args.listen.ip().is_unspecified() && args.advertise.is_none() {
        return Err(UserMistake::with_help(
            format!("a worker at {} cannot be reached from elsewhere", args.listen),
            "give --advertise HOST:PORT, the address at which coordinators reach it",
        )
        .into());
    }
    let data = context.store_of_server()?;
    let chosen = args.backend.choose(Workload::Server)?;
    tracing::info!(backend = chosen.engine.backend(), reason = chosen.reason, "computes");
    let store = args.cluster.store(&args.tls, security.tls.as_ref())?;
    let boot = fresh_boot();
    let id = args.id.unwrap_or_else(|| format!("w-{boot}"));
    let options = server::Options {
        listen: args.listen,
        advertise: args.advertise,
        security,
        cluster_name: args.cluster.cluster_name.clone(),
        id: id.clone(),
        boot,
        store: data,
        threads: args.threads.map_or(0, usize::from),
        cache_bytes: args.cache_bytes,
        engine: chosen.engine,
        lease_ttl: Duration::from_secs(args.lease_ttl_s),
        start_timeout: args.cluster.start_timeout(),
        drain_timeout: args.cluster.drain_timeout(),
        stall_timeout: trawl_worker::STALL_TIMEOUT,
        health_interval: trawl_kernels::cuda::HEALTH_INTERVAL,
        look_interval: trawl_worker::EXPECTED_LOOK_INTERVAL,
        scrubbing: args.scrub.scrubbing(),
        fault_delay: Duration::from_millis(args.fault_delay_ms_per_segment),
    };
    let scrapes = args.metrics.bind()?;
    let runtime = runtime()?;
    let ended = runtime.block_on(async {
        let (health, stop) = args.cluster.health_and_stop().await?;
        store.keep_fresh();
        let scraped = scrapes.is_some();
        let metrics = serve_metrics(scrapes, Place::Worker)?;
        let ready = Box::new(move |address| {
            health.ready();
            say_ready(&format!("ready worker id={id} address={address}{metrics}"));
        });
        let ended = server::run(options, Arc::new(Metered(store)), ready, Box::pin(stop)).await;
        if scraped && matches!(ended, Err(ServerError::DeviceLost(_))) {
            let seconds = LAST_SCRAPE.as_secs();
            tracing::warn!(seconds, "this worker ends after these seconds, so that its metrics are read once more");
            tokio::select! {
                () = stop_signal(false)? => {}
                () = tokio::time::sleep(LAST_SCRAPE) => {}
            }
        }
        ended.map_err(anyhow::Error::from)
    });
    runtime.shutdown_background();
    ended.map(|()| ExitCode::SUCCESS)
}
