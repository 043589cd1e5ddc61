//! `trawl coordinator`: accepts scans and distributes them to workers.

use std::net::SocketAddr;
use std::num::NonZero;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use tokio::net::TcpListener;
use tokio::sync::{oneshot, watch};
use trawl_cluster_store::Metered;
use trawl_coordinator::durable::RetentionPolicy;
use trawl_coordinator::server::{self, in_process::InProcess};
use trawl_front::http::{self, cluster::Cluster};
use trawl_market::Store;
use trawl_security::{Role, ServerSecurity};
use trawl_telemetry::metrics::Place;
use trawl_wire::limits::DOCUMENT_BYTES_MAX;
use trawl_wire::record::{checked_name, fresh_boot};

use super::security::TlsArgs;
use super::serving::{
    AuditArgs, ClusterArgs, MetricsArgs, ScrubArgs, advertised, any_address, runtime, say_ready, serve_metrics,
};
use crate::app::Context;
use crate::failure::UserMistake;

/// Folder of results in the data root; a dataset's name never begins with a dot.
const RESULTS_FOLDER: &str = ".results";

const AFTER_HELP: &str = "\
Of several coordinators with one cluster name one leads; the others forward calls to it and take over when it fails: \
give clients all their addresses, separated by commas. Every accepted scan is recorded in etcd and its results in \
--results, so that it completes whichever process dies. Clients submit with: trawl scan --coordinator http://IP:PORT ... Ctrl-C or \
SIGTERM: it hands over to another coordinator at once; without one, running scans may finish (within --drain-timeout-s); \
then it exits 0. When it is ready it prints one line: ready coordinator listen=IP:PORT url=http://IP:PORT (https with certificates), and http=http://IP:PORT with --http (docs/http.md). \
Certificates, the key and the token file are reloaded when they change. \
Environment variables set every option too: TRAWL_RESULTS sets --results, for instance; the one of --etcd is TRAWL_ETCD_ENDPOINTS.";

/// Run the coordinator of a cluster: it accepts scans and distributes them to the workers in etcd
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    #[command(flatten)]
    cluster: ClusterArgs,

    /// Address to listen on, loopback only unless there are certificates; port 0 takes a free one
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:7400", value_parser = any_address)]
    listen: SocketAddr,

    /// Address at which clients and other coordinators reach it [default: the one it listens on]
    #[arg(long, value_name = "HOST:PORT", value_parser = advertised)]
    advertise: Option<String>,

    /// Address at which programs reach it by HTTP and JSON, loopback only unless there are certificates [default: not at all]
    #[arg(long, value_name = "IP:PORT", value_parser = any_address)]
    http: Option<SocketAddr>,

    /// Name of this coordinator, unique in the cluster [default: a random one]
    #[arg(long, value_name = "NAME", value_parser = checked_name)]
    id: Option<String>,

    /// Where results are kept: a directory, file:///DIRECTORY, s3://BUCKET/PREFIX, gs://BUCKET/PREFIX or az://CONTAINER/PREFIX [default: .results in the data root]
    #[arg(long, value_name = "DIR|URL", help_heading = "Results")]
    results: Option<String>,

    /// Declare that every coordinator sees the directory of --results
    #[arg(long, help_heading = "Results")]
    results_shared: bool,

    /// Hours that results are kept after their scan ended
    #[arg(long, value_name = "HOURS", default_value_t = 24, value_parser = clap::value_parser!(u64).range(1..=87_600), help_heading = "Results")]
    results_kept_h: u64,

    /// Ended scans that are kept; of more, the oldest of the caller with the most are deleted
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=100_000), help_heading = "Results")]
    results_kept_max: u32,

    /// Bytes of scans' results in memory; further ones are written to the spool
    #[arg(long, value_name = "BYTES", default_value_t = server::RESULTS_MEMORY_BYTES as u64, value_parser = clap::value_parser!(u64).range(1_048_576..), help_heading = "Results")]
    results_memory_bytes: u64,

    /// Directory of this machine for results that do not fit into memory [default: the one for temporary files]
    #[arg(long, value_name = "DIR", help_heading = "Results")]
    spool: Option<PathBuf>,

    /// Bytes of results on disk in the spool; while it is full no further scan begins
    #[arg(long, value_name = "BYTES", default_value_t = server::SPOOL_BYTES, help_heading = "Results")]
    spool_bytes: u64,

    /// Seconds after which a leader that does not respond is replaced
    #[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u64).range(2..=300))]
    leader_lease_ttl_s: u64,

    /// Seconds that an ephemeral scan waits while no worker is registered; recorded scans wait without limit
    #[arg(long, value_name = "SECONDS", default_value_t = 15, value_parser = clap::value_parser!(u64).range(0..=86_400))]
    no_worker_timeout_s: u64,

    /// What computes scans whose user gives no --backend; the workers with the most capacity without it
    #[arg(long, value_name = "BACKEND", value_parser = ["cpu", "cuda"])]
    default_backend: Option<String>,

    /// Seconds after which a recorded scan begins anew with workers of another class, if its own has no workers
    #[arg(long, value_name = "SECONDS", default_value_t = server::CLASS_PATIENCE.as_secs(), value_parser = clap::value_parser!(u64).range(1..=86_400))]
    class_patience_s: u64,

    /// Datasets whose newest bar may be at most so many hours old: counted in trawl_watched_datasets, named in the log
    #[arg(long, value_name = "NAME=HOURS,...", value_delimiter = ',')]
    watched_datasets: Vec<server::WatchedDataset>,

    #[command(flatten)]
    scrub: ScrubArgs,

    /// Compact a dataset in the background once so many files of bars were appended to it; the data root has to be writable [default: never]
    #[arg(long, value_name = "FILES", value_parser = clap::value_parser!(u32).range(2..=100_000), help_heading = "Data")]
    compact_appended: Option<u32>,

    /// Scans that run at once; further ones wait for their turn, by priority and age
    #[arg(long, value_name = "N", default_value_t = server::SCANS_MAX as u32, value_parser = clap::value_parser!(u32).range(1..=1024), help_heading = "Limits")]
    scans_running_max: u32,

    /// Scans that wait; further ones are refused with the time after which to retry
    #[arg(long, value_name = "N", default_value_t = server::SCANS_WAITING_MAX as u32, value_parser = clap::value_parser!(u32).range(0..=65_536), help_heading = "Limits")]
    scans_waiting_max: u32,

    #[command(flatten)]
    metrics: MetricsArgs,

    #[command(flatten)]
    tls: TlsArgs,

    /// File of users' tokens, one line 'NAME ROLES SHA256HEX' each; with it, every user needs a token
    #[arg(long, value_name = "FILE", help_heading = "Security")]
    tokens: Option<PathBuf>,

    #[command(flatten)]
    pub audit: AuditArgs,

    /// Scans that one caller may have running [default: 16; no limit on loopback without certificates and tokens]
    #[arg(long, value_name = "N", help_heading = "Limits of each caller")]
    scans_per_caller_max: Option<u32>,

    /// Submissions per minute of one caller [default: 600; no limit on loopback without certificates and tokens]
    #[arg(long, value_name = "N", help_heading = "Limits of each caller")]
    submissions_per_minute_max: Option<u32>,

    /// Bytes of one scan's document [default: 1048576]
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u64).range(1..=DOCUMENT_BYTES_MAX as u64),
        help_heading = "Limits of each caller")]
    plan_bytes_max: Option<u64>,
}

/// The door for programs, bound before anything is started.
struct HttpDoor {
    listener: TcpListener,
    address: SocketAddr,
    security: ServerSecurity,
    store: Store,
    drain: Duration,
}

impl HttpDoor {
    async fn bind(
        address: SocketAddr,
        security: ServerSecurity,
        store: Store,
        drain: Duration,
    ) -> anyhow::Result<Self> {
        let cannot = || format!("--http: cannot listen on {address}");
        let listener = TcpListener::bind(address).await.with_context(cannot)?;
        let address = listener.local_addr().with_context(cannot)?;
        Ok(Self { listener, address, security, store, drain })
    }

    async fn serve(self, service: InProcess, stopping: watch::Receiver<bool>) {
        let door = Arc::new(Cluster::new(service, self.store.keeping()));
        http::serve(self.listener, self.security, door, stopping, self.drain).await;
    }
}

/// Runs until it is asked to stop.
pub fn run(args: Args, context: &Context) -> anyhow::Result<ExitCode> {
    if args.watched_datasets.len() > server::WATCHED_DATASETS_MAX {
        let most = server::WATCHED_DATASETS_MAX;
        return Err(UserMistake::with_help(
            format!("--watched-datasets names {} datasets", args.watched_datasets.len()),
            format!("name at most {most}"),
        )
        .into());
    }
    let security = args.tls.server(Role::Coordinator, args.listen, args.tokens.as_ref())?;
    if args.listen.ip().is_unspecified() && args.advertise.is_none() {
        return Err(UserMistake::with_help(
            format!("a coordinator at {} cannot be reached from elsewhere", args.listen),
            "give --advertise HOST:PORT, the address at which clients and other coordinators reach it",
        )
        .into());
    }
    if let Some(http) = args.http {
        // The same certificates and tokens; its address may need them where the other does not.
        args.tls.server(Role::Coordinator, http, args.tokens.as_ref())?;
    }
    let data = context.store_of_server()?;
    let store = args.cluster.store(&args.tls, security.tls.as_ref())?;
    // The threads that renew the leadership are separate from those that do the work.
    let election = args.cluster.store(&args.tls, security.tls.as_ref())?;
    let boot = fresh_boot();
    let results = args.results.unwrap_or_else(|| context.below(RESULTS_FOLDER));
    let scheme = if security.tls.is_some() { "https" } else { "http" };
    let door_security = security.clone();
    let door_store = data.clone();
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
            results_memory_bytes: usize::try_from(args.results_memory_bytes).unwrap_or(usize::MAX),
        },
        cluster_name: args.cluster.cluster_name.clone(),
        id: args.id.unwrap_or_else(|| format!("c-{boot}")),
        boot,
        advertise: args.advertise,
        results,
        results_shared: args.results_shared,
        spool: (args.spool.unwrap_or_else(std::env::temp_dir), args.spool_bytes),
        retention: RetentionPolicy {
            results_kept: Duration::from_secs(args.results_kept_h * 3600),
            scans_kept_max: args.results_kept_max as usize,
            ..RetentionPolicy::default()
        },
        leader_lease_ttl: Duration::from_secs(args.leader_lease_ttl_s),
        store: data,
        no_worker_timeout: Duration::from_secs(args.no_worker_timeout_s),
        default_backend: args.default_backend,
        watched_datasets: args.watched_datasets,
        data_care: server::DataCare {
            scrubbing: args.scrub.scrubbing(),
            compact_appended: args.compact_appended.and_then(NonZero::new),
            look_interval: None,
        },
        class_patience: Duration::from_secs(args.class_patience_s),
        start_timeout: args.cluster.start_timeout(),
        drain_timeout: args.cluster.drain_timeout(),
    };
    let scrapes = args.metrics.bind()?;
    let runtime = runtime()?;
    let ended = runtime.block_on(async {
        let (health, stop) = args.cluster.health_and_stop().await?;
        store.keep_fresh();
        election.keep_fresh();
        let metrics = serve_metrics(scrapes, Place::Coordinator)?;
        let drain = args.cluster.drain_timeout();
        let door = match args.http {
            Some(address) => Some(HttpDoor::bind(address, door_security, door_store, drain).await?),
            None => None,
        };
        let http = door.as_ref().map_or_else(String::new, |door| format!(" http={scheme}://{}", door.address));
        let (stopping, stopped) = watch::channel(false);
        let (served, serving) = oneshot::channel();
        let ready = Box::new(move |address, service| {
            health.ready();
            if let Some(door) = door {
                // Fails only if this coordinator has ended.
                let _ = served.send(tokio::spawn(door.serve(service, stopped)));
            }
            say_ready(&format!("ready coordinator listen={address} url={scheme}://{address}{http}{metrics}"));
        });
        let stop = async move {
            stop.await;
            stopping.send_replace(true);
        };
        let (control, election) = (Arc::new(Metered(store)), Arc::new(Metered(election)));
        let ended = server::run(options, control, election, ready, Box::pin(stop)).await;
        if let Ok(serving) = serving.await {
            // It is bounded by the same time-out, which began when it was asked to stop.
            let _ = serving.await;
        }
        ended.map_err(anyhow::Error::from)
    });
    runtime.shutdown_background();
    ended.map(|()| ExitCode::SUCCESS)
}
