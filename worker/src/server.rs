//! A worker process: bind, register, serve, leave.
//!
//! Leaving reverses the order: the record is first marked as draining, so that no new shards arrive; then running
//! shards finish within a time limit; then the record is deleted.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::net::TcpListener;
use trawl_cluster_store::{ControlError, ControlStore, HistoryLost};
use trawl_kernels::cuda::{DeviceLoss, Fleet};
use trawl_kernels::{Engine, Precision};
use trawl_market::Store;
use trawl_security::{ServerSecurity, incoming};
use trawl_telemetry::metrics::catalogue::worker::DRAINING;
use trawl_wire::limits::{MESSAGE_BYTES_MAX, PROTOCOL_VERSION, PROTOCOL_VERSION_OLDEST};
use trawl_wire::record::DeviceRecord;
use trawl_wire::{WorkerRecord, envelope, pb};

use crate::registration::{Registration, Superseded, register};
use crate::scrub::{Scrubbing, scrub};
use crate::service::{Handle, WorkerService};
use crate::watchdog::stalled;
use crate::{device_health, expected, measure, warm};

/// How long cancelled shards may take to stop.
const STOP_TIMEOUT: Duration = Duration::from_secs(2);
/// Interval of checking whether all shards have finished.
const DRAIN_POLL: Duration = Duration::from_millis(10);
/// Interval and timeout of pings to an idle coordinator.
const HTTP2_KEEP_ALIVE: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(5));

/// The configuration of a worker.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where to listen; port 0 takes a free one. The caller has to check whether plain text is allowed there.
    pub listen: SocketAddr,
    /// `HOST:PORT` under which coordinators reach it, if it differs from `listen`.
    pub advertise: Option<String>,
    /// Its certificate and trusted authorities: it accepts work from coordinators only.
    pub security: ServerSecurity,
    /// Prefix of the keys in the control store.
    pub cluster_name: String,
    /// Unique in the cluster.
    pub id: String,
    /// Boot id, new at every start.
    pub boot: String,
    /// Where datasets are.
    pub store: Store,
    /// Number of computing threads; 0 takes one per core.
    pub threads: usize,
    /// Bytes of bars kept in memory.
    pub cache_bytes: u64,
    /// The engine.
    pub engine: Engine,
    /// Time to live of the lease: how long a lost worker counts as present.
    pub lease_ttl: Duration,
    /// How long to wait for the control store at start.
    pub start_timeout: Duration,
    /// How long running shards may take to finish once the worker leaves.
    pub drain_timeout: Duration,
    /// How long its threads may make no progress while there are shards; see [`crate::STALL_TIMEOUT`].
    pub stall_timeout: Duration,
    /// How often the health of its devices is probed; see [`trawl_kernels::cuda::HEALTH_INTERVAL`].
    pub health_interval: Duration,
    /// How often a worker with devices asks for newer snapshots of the datasets that were scanned last; see
    /// [`crate::EXPECTED_LOOK_INTERVAL`].
    pub look_interval: Duration,
    /// How this machine's copies of files of a bucket are checked in the background.
    pub scrubbing: Scrubbing,
    /// For tests: sleep before each segment.
    pub fault_delay: Duration,
}

/// Why a worker did not start, or ended.
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
    /// The operating system could not start threads.
    #[error("cannot start the compute threads: {0}")]
    Threads(#[from] rayon::ThreadPoolBuildError),
    /// The control store failed.
    #[error("cannot register: {0}")]
    Register(#[from] ControlError),
    /// The device failed for good; the worker's shards were handed back.
    #[error("the device is lost ({0}): the work was handed back; start this worker anew")]
    DeviceLost(String),
    /// Another process registered under this worker's id.
    #[error("another process has registered under this worker's id: give each worker an --id of its own")]
    Replaced,
    /// The control store was set up anew or restored.
    #[error("{0}")]
    HistoryLost(HistoryLost),
    /// The compute threads are stuck.
    #[error("the compute threads did nothing for {} s: the work was handed back; start this worker anew", .0.as_secs())]
    Stalled(Duration),
    /// The gRPC server failed.
    #[error("the server ended: {0}")]
    Serve(#[from] tonic::transport::Error),
}

/// Runs a worker until `stop` ends. `ready` receives the bound address once the worker is registered.
///
/// Nothing here is generic: whoever calls it would compile the whole server anew.
///
/// # Errors
/// [`ServerError`].
pub async fn run(
    options: Options,
    control: Arc<dyn ControlStore>,
    ready: Box<dyn FnOnce(SocketAddr) + Send>,
    stop: Pin<Box<dyn Future<Output = ()> + Send>>,
) -> Result<(), ServerError> {
    let bind = |source| ServerError::Bind { address: options.listen, source };
    let listener = TcpListener::bind(options.listen).await.map_err(bind)?;
    let address = listener.local_addr().map_err(bind)?;
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(options.threads)
        .thread_name(|i| format!("trawl-compute-{i}"))
        .build()?;
    let record = WorkerRecord {
        id: options.id.clone(),
        address: options.advertise.unwrap_or_else(|| address.to_string()),
        boot: options.boot.clone(),
        protocol_version: PROTOCOL_VERSION,
        protocol_oldest: PROTOCOL_VERSION_OLDEST,
        result_schema: format!("{:016x}", envelope::schema_fingerprint()),
        result_schemas_earlier: Vec::new(),
        class: crate::execution_class_on(&options.engine, Precision::F64),
        threads: u32::try_from(pool.current_num_threads()).unwrap_or(u32::MAX),
        cache_bytes: options.cache_bytes,
        device: device_of(&options.engine),
        draining: false,
    };
    let scrubbing = match options.store.keeps_copies() {
        // Bars in a directory are checked by the leading coordinator, once for all.
        false => Scrubbing { every: None, ..options.scrubbing },
        true => options.scrubbing,
    };
    let scrubbing = scrub(options.store.clone(), scrubbing, |_| ());
    let service = Arc::new(WorkerService::new(
        (options.id, options.boot),
        options.store,
        pool,
        (options.engine.clone(), options.cache_bytes),
        options.fault_delay,
    ));
    let (report_lost, lost) = tokio::sync::oneshot::channel::<String>();
    let (health, health_seen) = tokio::sync::watch::channel(String::new());
    let mut watching = None;
    if let Engine::Device(fleet) = &options.engine {
        fleet.executors().iter().for_each(measure::device);
        warm::start(fleet);
        fleet.on_gather_failure(|why| {
            tracing::warn!(
                why,
                "devices did not gather the values of a cross-section; the host did, with the same bits"
            );
        });
        let mut report_lost = Some(report_lost);
        fleet.on_lost(move |loss| {
            measure::device_lost();
            let DeviceLoss { ordinal, name, why, left } = loss;
            if *left > 0 {
                tracing::error!(ordinal, name, why, left, "a device is lost: the others take its part");
            } else if let Some(report_lost) = report_lost.take() {
                drop(report_lost.send(why.clone()));
            }
        });
        watching = device_health::watch(fleet, options.health_interval, health);
    }
    let (close, closed) = tokio::sync::oneshot::channel::<()>();
    let server = pb::worker_server::WorkerServer::new(Handle(Arc::clone(&service)))
        .max_decoding_message_size(MESSAGE_BYTES_MAX)
        .max_encoding_message_size(MESSAGE_BYTES_MAX);
    options.security.keep_fresh();
    let server = options.security.access().guard(server);
    let incoming = incoming(listener, options.security.tls);
    let serving = tonic::transport::Server::builder()
        .http2_keepalive_interval(Some(HTTP2_KEEP_ALIVE.0))
        .http2_keepalive_timeout(Some(HTTP2_KEEP_ALIVE.1))
        .serve_with_incoming_shutdown(server, incoming, async {
            let _ = closed.await;
        });
    // Serve before registering, so that readers of the record can connect.
    let mut serving = tokio::spawn(serving);
    let registration = Registration {
        cluster_name: options.cluster_name,
        record,
        lease_ttl: options.lease_ttl,
        start_timeout: options.start_timeout,
    };
    let registered = register(control, registration).await?;
    ready(address);
    let looks = Arc::clone(&service);
    let look_ahead = move |fleet: &Fleet| looks.look_ahead(fleet);
    let mut failed = None;
    let broken = tokio::select! {
        () = stop => None,
        never = scrubbing => match never {},
        never = expected::bring(&options.engine, options.look_interval, look_ahead) => match never {},
        never = device_health::show(health_seen, options.health_interval, &registered) => match never {},
        () = service.leave.notified() => None,
        // Without a device this never completes.
        Ok(why) = lost => {
            tracing::error!(why, "no device is left: this worker hands its work back and ends");
            failed = Some(ServerError::DeviceLost(why));
            None
        }
        why = registered.superseded() => {
            failed = Some(match why {
                Superseded::Replaced => ServerError::Replaced,
                Superseded::HistoryLost(lost) => ServerError::HistoryLost(lost),
            });
            None
        }
        () = stalled(&service.pulse, &service.shards, options.stall_timeout) => {
            let after_s = options.stall_timeout.as_secs();
            tracing::error!(after_s, "the compute threads are stuck: this worker hands its work back and ends");
            service.stopped.store(true, Ordering::Relaxed);
            failed = Some(ServerError::Stalled(options.stall_timeout));
            None
        }
        ended = &mut serving => Some(ended),
    };
    service.draining.store(true, Ordering::Relaxed);
    DRAINING.set(1);
    if let Some(ended) = broken {
        registered.leave().await;
        // A server that ends by itself has failed; a panic has already been reported.
        return ended.unwrap_or(Ok(())).map_err(ServerError::from);
    }
    // The record remains, marked as draining, while the last shards run, so that coordinators wait for them.
    registered.drain().await;
    // Its thread may be in a call of a device that does not respond.
    drop(tokio::task::spawn_blocking(move || drop(watching)));
    drain(&service, options.drain_timeout).await;
    registered.leave().await;
    let _ = close.send(());
    let _ = tokio::time::timeout(STOP_TIMEOUT, serving).await;
    failed.map_or(Ok(()), Err)
}

/// The devices in the worker's record.
fn device_of(engine: &Engine) -> Option<DeviceRecord> {
    let Engine::Device(fleet) = engine else { return None };
    let count = u32::try_from(fleet.executors().len()).unwrap_or(u32::MAX);
    let multiprocessors = fleet.executors().iter().map(|executor| executor.facts().multiprocessors);
    Some(DeviceRecord {
        name: fleet.name(),
        memory_bytes: fleet.device_memory_bytes(),
        count,
        multiprocessors: multiprocessors.fold(0, u32::saturating_add),
        has_few_f64_units: fleet.executors().iter().any(|executor| executor.facts().has_few_f64_units()),
        health: String::new(),
    })
}

/// Lets running shards finish, and cancels those that take too long.
async fn drain(service: &WorkerService, drain_timeout: Duration) {
    let finished = || async {
        while service.shards.load(Ordering::Relaxed) > 0 {
            tokio::time::sleep(DRAIN_POLL).await;
        }
    };
    if tokio::time::timeout(drain_timeout, finished()).await.is_err() {
        tracing::warn!(shards = service.shards.load(Ordering::Relaxed), "cancelling shards that did not finish");
        service.stopped.store(true, Ordering::Relaxed);
        let _ = tokio::time::timeout(STOP_TIMEOUT, finished()).await;
    }
}
