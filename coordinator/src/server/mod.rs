//! A coordinator process: bind, read the registered workers, serve, shut down.
//!
//! - `leadership` runs for leadership, `leader_term` is one term of a leader, `registry` lists the other candidates;
//! - `membership` follows the workers' records, `dispatcher` drives the scheduler, `attempt` is one shard at one
//!   worker;
//! - `scans` takes each scan from its request to its end, `upkeep` recovers and deletes recorded scans, `record_budget`
//!   decides whether another record fits;
//! - `rpc` has the calls of clients and `service` their state, `in_process` makes them for other doors of this process, `proxy` forwards their calls to the leader, `quota` and `streams` limit each
//!   caller, `datasets` answers what clients ask about bars;
//! - `work` estimates the remaining work, `scaler` answers autoscalers, `watched` looks at how old datasets are, `data_care` checks
//!   and compacts what is stored.

mod attempt;
mod cluster_context;
mod counted_channel;
mod data_care;
mod datasets;
mod dispatcher;
mod heartbeat;
pub mod in_process;
mod leader_term;
pub mod leadership;
mod membership;
mod plans_at_worker;
mod proxy;
mod quota;
mod record_budget;
mod registry;
mod request;
mod rpc;
mod scaler;
mod scans;
mod service;
mod streaming;
mod streams;
mod transit_bytes;
mod upkeep;
mod watched;
mod work;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::watch;
use trawl_cluster_store::{ControlError, ControlStore, HISTORY_CHECK_INTERVAL, HistoryCheck, HistoryLost};
use trawl_market::Store;
use trawl_security::{Connector, Expect, Role, ServerSecurity, incoming};
use trawl_wire::limits::{MESSAGE_BYTES_MAX, REQUEST_BYTES_MAX};
use trawl_wire::record::leader_key;
use trawl_wire::{keda, pb};

use crate::durable::{PlacementError, ResultStore, RetentionPolicy, StoreError, check_placement};
use crate::scheduler::Limits;
use cluster_context::ClusterContext;
use datasets::Datasets;
use in_process::InProcess;
use leadership::Candidacy;
use proxy::Proxy;
use registry::{Coordinators, RegistryTimes};
use rpc::Handle;
use scans::Spool;
use service::{CoordinatorRole, CoordinatorService};
use streaming::WithBodies;

pub use data_care::DataCare;
pub use quota::{PLAN_BYTES_MAX, QuotaLimits, Quotas, RunningPermit, SCANS_PER_CALLER_MAX, SUBMISSIONS_PER_MINUTE_MAX};
pub use record_budget::RECORDS_MAX;
pub use scans::{
    ANSWER_BYTES_MAX, DOCUMENTS_BYTES_MAX, RESULTS_MEMORY_BYTES, SCANS_MAX, SCANS_WAITING_MAX, SPOOL_BYTES, SpoolError,
    WORKING_BYTES_MAX,
};
pub use service::LISTED_MAX;
pub use watched::{WATCHED_DATASETS_MAX, WatchedDataset};

/// Interval and timeout of pings to an idle client.
const HTTP2_KEEP_ALIVE: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(5));

/// Maximum streams and calls under way on one connection; a coordinator that forwards calls uses one for all its
/// clients.
const STREAMS_PER_CONNECTION_MAX: u32 = 4096;

/// How long the class of a recorded scan may be without workers, while those of another class could run it, before it
/// begins anew in that class.
pub const CLASS_PATIENCE: Duration = Duration::from_secs(60);

/// The configuration of a coordinator.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where to listen; port 0 takes a free one. The caller has to check whether plain text is allowed there.
    pub listen: SocketAddr,
    /// Its certificate, trusted authorities, and users' tokens. With a certificate it also uses TLS to workers.
    pub security: ServerSecurity,
    /// Limits of each caller.
    pub quotas: QuotaLimits,
    /// Limits of running and waiting scans.
    pub scans: ScanLimits,
    /// Prefix of the keys in the control store.
    pub cluster_name: String,
    /// Unique among the cluster's coordinators.
    pub id: String,
    /// `HOST:PORT` under which clients and other coordinators reach it; where it listens when `None`.
    pub advertise: Option<String>,
    /// Where results are kept: a directory, `file://` or `s3://`; see [`ResultStore::open`].
    pub results: String,
    /// Whether all coordinators share that directory.
    pub results_shared: bool,
    /// Directory of this machine for results that do not fit into memory, and their maximum bytes.
    pub spool: (PathBuf, u64),
    /// How long results are kept.
    pub retention: RetentionPolicy,
    /// How long a silent leader keeps its leadership; see [`leadership::LEADER_LEASE_TTL_DEFAULT`].
    pub leader_lease_ttl: Duration,
    /// Boot id, new at every start; part of the scans' ids.
    pub boot: String,
    /// Where datasets are.
    pub store: Store,
    /// Datasets whose age is watched.
    pub watched_datasets: Vec<WatchedDataset>,
    /// What it does for its datasets while it leads.
    pub data_care: DataCare,
    /// How long an ephemeral scan waits while there is no worker.
    pub no_worker_timeout: Duration,
    /// The backend of scans whose user names none; the class with the most capacity when `None`.
    pub default_backend: Option<String>,
    /// See [`CLASS_PATIENCE`].
    pub class_patience: Duration,
    /// How long to wait for the control store at start.
    pub start_timeout: Duration,
    /// How long running scans, or streams of clients, may take to finish once the coordinator ends.
    pub drain_timeout: Duration,
}

/// Limits of the scans of a coordinator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScanLimits {
    /// Maximum number of running scans; further ones wait.
    pub running: usize,
    /// Maximum number of waiting scans; further ones are rejected with `RESOURCE_EXHAUSTED`.
    pub waiting: usize,
    /// Bytes of their results in memory; further ones are written to the spool.
    pub results_memory_bytes: usize,
}

impl Default for ScanLimits {
    fn default() -> Self {
        Self { running: SCANS_MAX, waiting: SCANS_WAITING_MAX, results_memory_bytes: RESULTS_MEMORY_BYTES }
    }
}

/// Why a coordinator did not start, or ended.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The address could not be bound, most often because the port is in use.
    #[error("cannot listen on {address}: {source}")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// The cause.
        source: std::io::Error,
    },
    /// The control store failed.
    #[error("cannot see the workers: {0}")]
    Control(#[from] ControlError),
    /// The result store failed.
    #[error("{0}")]
    Results(#[from] StoreError),
    /// Results that do not fit into memory cannot be kept.
    #[error("{0}")]
    Spool(#[from] SpoolError),
    /// Other coordinators would not find the results.
    #[error("{0}")]
    Placement(#[from] PlacementError),
    /// The operating system could not start a thread.
    #[error("cannot start the thread that stands for election: {0}")]
    Thread(std::io::Error),
    /// Another process runs, or has registered, under this coordinator's id.
    #[error("{}", taken(.0))]
    Taken(String),
    /// The control store was set up anew or restored.
    #[error("{0}")]
    HistoryLost(HistoryLost),
    /// A task of the leader ended by itself: another coordinator continues the accepted scans.
    #[error("internal error: a task of this coordinator ended by itself; the log says which")]
    Broken,
    /// The gRPC server failed.
    #[error("the server ended: {0}")]
    Serve(#[from] tonic::transport::Error),
}

fn taken(address: &str) -> String {
    let whose = if address.is_empty() { String::new() } else { format!(" at {address}") };
    format!(
        "another process{whose} has registered under this coordinator's id: give each coordinator an --id of its own"
    )
}

/// Runs a coordinator until `stop` ends. `ready` receives the bound address once it serves, and the service for other doors of
/// this process. `election` is a separate
/// client of the same control store, so that renewing the leadership shares nothing with the work.
///
/// Nothing here is generic: whoever calls it would compile the whole server anew.
///
/// # Errors
/// [`ServerError`].
pub async fn run(
    options: Options,
    control: Arc<dyn ControlStore>,
    election: Arc<dyn ControlStore>,
    ready: Box<dyn FnOnce(SocketAddr, InProcess) + Send>,
    stop: Pin<Box<dyn Future<Output = ()> + Send>>,
) -> Result<(), ServerError> {
    let bind = |source| ServerError::Bind { address: options.listen, source };
    let listener = TcpListener::bind(options.listen).await.map_err(bind)?;
    let address = listener.local_addr().map_err(bind)?;
    let advertised = options.advertise.clone().unwrap_or_else(|| address.to_string());
    let (cluster_name, id) = (options.cluster_name.clone(), options.id.clone());
    membership::reachable(&control, &cluster_name, options.start_timeout).await?;
    let leader_key = leader_key(&cluster_name);
    let check = HistoryCheck::begin(&control, &leader_key).await?;
    let results = ResultStore::open(&options.results)?;
    results.probe(&options.boot).await?;
    let spool = Spool::open(&options.spool.0, options.spool.1)?;
    let registered = registry::register(
        Arc::clone(&control),
        &cluster_name,
        &id,
        (&options.boot, &advertised),
        RegistryTimes::within(options.start_timeout),
    )
    .await;
    let registered = registered.map_err(|error| match error {
        registry::RegisterError::Control(error) => ServerError::Control(error),
        registry::RegisterError::Taken(address) => ServerError::Taken(address),
    })?;
    let coordinators = registered.count().await?;
    if let Err(error) = check_placement(results.shown(), results.is_local(), options.results_shared, coordinators) {
        registered.leave().await;
        return Err(error.into());
    }
    let candidacy = Candidacy {
        cluster_name: cluster_name.clone(),
        id,
        boot: options.boot.clone(),
        address: advertised,
        lease_ttl: options.leader_lease_ttl,
        stall_timeout: leadership::WORK_STALL_TIMEOUT,
    };
    let candidate = leadership::stand(election, candidacy).map_err(ServerError::Thread)?;
    let no_worker_timeout_ms = u64::try_from(options.no_worker_timeout.as_millis()).unwrap_or(u64::MAX);
    let store = options.store.keeping();
    let cluster = ClusterContext {
        store: store.clone(),
        control,
        cluster_name: cluster_name.clone(),
        results,
        retention: options.retention,
        connector: Connector::new(options.security.tls.clone(), Expect::Role(Role::Worker)),
        scans: options.scans,
        spool,
        limits: Limits { no_worker_timeout_ms, ..Limits::default() },
        default_backend: options.default_backend,
        class_patience: options.class_patience,
        start_timeout: options.start_timeout,
        data_care: options.data_care,
        heartbeat: candidate.heartbeat(),
    };
    let watched_store = Arc::clone(&cluster.control);
    let history = check.lost(&watched_store, &leader_key, HISTORY_CHECK_INTERVAL);
    let (stand, standing) = watch::channel(CoordinatorRole::Following(None));
    let (quit, quits) = watch::channel(false);
    let mut leading = tokio::spawn(leader_term::lead(cluster, candidate.leadership(), stand, quits));
    let proxy = Proxy::new(
        Connector::new(options.security.tls.clone(), Expect::Role(Role::Coordinator)),
        options.security.tls.is_some(),
    );
    let coordinators = Coordinators { control: Arc::clone(&watched_store), cluster_name: cluster_name.clone() };
    let service = CoordinatorService::new(
        standing,
        proxy,
        (options.boot, coordinators),
        options.quotas,
        Datasets::new(store.clone()),
    );
    let (close, closed) = tokio::sync::oneshot::channel::<()>();
    let service = Arc::new(service);
    let watched = scaler::watch(service.standing());
    let scaler = scaler::Scaler::new(Arc::clone(&service), watched.demand());
    let scaler = keda::external_scaler_server::ExternalScalerServer::new(scaler)
        .max_decoding_message_size(scaler::MESSAGE_BYTES_MAX);
    let server = pb::coordinator_server::CoordinatorServer::new(Handle(service))
        .max_decoding_message_size(REQUEST_BYTES_MAX)
        .max_encoding_message_size(MESSAGE_BYTES_MAX);
    options.security.keep_fresh();
    let (server, scaler) =
        (options.security.access().guard(WithBodies(server)), options.security.access().guard(scaler));
    let in_process = InProcess::new(server.clone());
    let incoming = incoming(listener, options.security.tls);
    let serving = tonic::transport::Server::builder()
        .http2_keepalive_interval(Some(HTTP2_KEEP_ALIVE.0))
        .http2_keepalive_timeout(Some(HTTP2_KEEP_ALIVE.1))
        .max_concurrent_streams(Some(STREAMS_PER_CONNECTION_MAX))
        .add_service(server)
        .add_service(scaler)
        .serve_with_incoming_shutdown(incoming, async {
            let _ = closed.await;
        });
    let mut serving = tokio::spawn(serving);
    let watching = watched::watch(store, options.watched_datasets);
    ready(address, in_process);
    let mut failed = None;
    tokio::select! {
        () = stop => {}
        never = watching => match never {},
        // A server that ends by itself has failed; a panic has already been reported.
        ended = &mut serving => return ended.unwrap_or(Ok(())).map_err(ServerError::from),
        // So is a leader without its tasks: it must not keep others from leading.
        _ = &mut leading => failed = Some(ServerError::Broken),
        () = registered.replaced() => failed = Some(ServerError::Taken(String::new())),
        lost = history => {
            tracing::error!("{lost}");
            failed = Some(ServerError::HistoryLost(lost));
        }
    }
    if let Some(failed) = failed {
        quit.send_replace(true);
        candidate.resign().await;
        let _ = close.send(());
        let _ = tokio::time::timeout(options.drain_timeout, serving).await;
        registered.leave().await;
        return Err(failed);
    }
    // Another coordinator continues running scans at once; a single coordinator may finish them first.
    let alone = registered.count().await.is_ok_and(|count| count == 1);
    if !alone {
        quit.send_replace(true);
        let _ = leading.await;
        candidate.resign().await;
        let _ = close.send(());
        let _ = tokio::time::timeout(options.drain_timeout, serving).await;
    } else {
        let _ = close.send(());
        if tokio::time::timeout(options.drain_timeout, serving).await.is_err() {
            tracing::warn!(
                "scans that did not finish wait for the next coordinator; those that are not recorded are lost"
            );
        }
        quit.send_replace(true);
        let _ = leading.await;
        candidate.resign().await;
    }
    registered.leave().await;
    Ok(())
}
