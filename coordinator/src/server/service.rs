//! The state of a coordinator's gRPC service: finds the leader, checks submissions, and streams the events of scans.
//!
//! A coordinator that does not lead forwards every call to the one that does, so clients may use any of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tonic::{Code, Request, Status};
use tracing::Instrument as _;
use trawl_security::{Caller, RETRY_AFTER_METADATA_KEY, Shown};
use trawl_telemetry::metrics::catalogue::coordinator::{REFUSALS, Refusal};
use trawl_telemetry::names::{attribute, span};
use trawl_wire::error::status_of;
use trawl_wire::limits::{DOCUMENT_BYTES_MAX, NAME_BYTES_MAX};
use trawl_wire::{ErrorKind, Failure, pb, request_digest, trace};

use super::datasets::Datasets;
use super::proxy::{Proxy, RemoteLeader};
use super::quota::{QuotaLimits, Quotas, RunningPermit};
use super::record_budget::NoRoom;
use super::registry::Coordinators;
use super::request;
use super::scans::{Environment, Known, Scan, TakenOver, drive, may_see};
use super::streams::{StreamPermit, Streams};
use crate::durable::RequestMark;

/// Maximum number of scans in a reply to `ListScans`.
pub const LISTED_MAX: usize = 1000;
/// How long a call waits for a leader.
const LEADER_WAIT: Duration = Duration::from_secs(10);
/// Retry delay while too many scans wait, in seconds.
const RETRY_AFTER_FULL_S: u64 = 5;

/// The current role of this coordinator.
#[derive(Clone)]
pub(crate) enum CoordinatorRole {
    /// It leads.
    Leading(Box<Environment>),
    /// It led and could not renew its lease: most often etcd is away, and nobody leads.
    Suspended(Box<Environment>),
    /// Another coordinator leads, at this address; `None` if the leader is unknown.
    Following(Option<String>),
}

/// State of a coordinator's service; shared by all requests.
pub(crate) struct CoordinatorService {
    standing: watch::Receiver<CoordinatorRole>,
    pub(super) proxy: Proxy,
    quotas: Quotas,
    /// Boot id; makes scan ids unique across restarts.
    boot: String,
    pub(super) coordinators: Coordinators,
    scans: AtomicU64,
    streams: Streams,
    /// This coordinator's own data root.
    pub(super) datasets: Datasets,
}

/// Which coordinator leads.
pub(super) enum Leader {
    /// This one.
    Here(Box<Environment>),
    /// The one at this address.
    There(String),
}

/// The status for a leader's address that cannot be used.
pub(super) fn of_address(error: tonic::transport::Error) -> Status {
    retry(&format!("the leader's address is none: {error}"))
}

/// Where a call is answered.
pub(super) enum CallTarget {
    Here(Box<Environment>),
    There(Box<RemoteLeader>),
}

/// The caller and the metadata of a call.
pub(super) struct CallContext {
    pub caller: Caller,
    shown: Option<Shown>,
    passed_on: bool,
}

impl CallContext {
    pub fn of<T>(request: &Request<T>) -> Self {
        Self {
            // Set by the guard in front of this service.
            caller: request.extensions().get::<Caller>().cloned().unwrap_or_else(Caller::local),
            shown: request.extensions().get::<Shown>().cloned(),
            passed_on: Proxy::is_passed_on(request.metadata()),
        }
    }

    /// The call to forward to the leader.
    pub fn pass_on<T>(&self, message: T, trace: Option<&pb::TraceContext>) -> Request<T> {
        let mut request = Request::new(message);
        if let Some(shown) = &self.shown {
            shown.pass_on(&self.caller, request.metadata_mut());
        }
        Proxy::mark(request.metadata_mut());
        trace::inject(trace, request.metadata_mut());
        request
    }
}

impl CoordinatorService {
    /// The role of this coordinator, as a watch channel.
    pub fn standing(&self) -> watch::Receiver<CoordinatorRole> {
        self.standing.clone()
    }

    pub fn new(
        standing: watch::Receiver<CoordinatorRole>,
        proxy: Proxy,
        (boot, coordinators): (String, Coordinators),
        quotas: QuotaLimits,
        datasets: Datasets,
    ) -> Self {
        let (quotas, streams) = (Quotas::new(quotas), Streams::default());
        Self { standing, proxy, quotas, boot, coordinators, scans: 0.into(), streams, datasets }
    }

    /// Where a call is answered that only reads: while nobody leads, what the last leader knows.
    pub async fn place_to_read(&self, call: &CallContext) -> Result<CallTarget, Status> {
        self.target(call, self.reader(call.passed_on).await?)
    }

    /// Where any other call is answered; waits until the leader is known.
    pub async fn place(&self, call: &CallContext) -> Result<CallTarget, Status> {
        self.target(call, self.leader(call.passed_on).await?)
    }

    fn target(&self, call: &CallContext, leader: Leader) -> Result<CallTarget, Status> {
        match leader {
            Leader::Here(environment) => Ok(CallTarget::Here(environment)),
            Leader::There(leader)
                if call.shown.as_ref().is_some_and(Shown::has_token) && !self.proxy.may_carry_tokens(&leader) =>
            {
                let message = format!(
                    "the coordinator at {leader} leads, and a token is not passed on to it in plain text: ask it \
                     directly, or give the coordinators certificates"
                );
                Err(status_of(Code::FailedPrecondition, ErrorKind::Invalid, &message))
            }
            Leader::There(leader) => {
                Ok(CallTarget::There(Box::new(self.proxy.leader_at(&leader).map_err(of_address)?)))
            }
        }
    }

    /// The leader, or who led until etcd was away.
    pub(super) async fn reader(&self, passed_on: bool) -> Result<Leader, Status> {
        if let CoordinatorRole::Suspended(environment) = &*self.standing.borrow() {
            return Ok(Leader::Here(environment.clone()));
        }
        self.leader(passed_on).await
    }

    /// Waits until the leader is known. `passed_on`: the call was forwarded by a coordinator that took this one for the
    /// leader.
    pub(super) async fn leader(&self, passed_on: bool) -> Result<Leader, Status> {
        let mut standing = self.standing.clone();
        let known =
            standing.wait_for(|s| !matches!(s, CoordinatorRole::Following(None) | CoordinatorRole::Suspended(_)));
        let known = match tokio::time::timeout(LEADER_WAIT, known).await {
            Ok(Ok(known)) => known.clone(),
            Ok(Err(_)) => return Err(retry("this coordinator is ending")),
            Err(_) => return Err(retry("no coordinator leads at present; is etcd there?")),
        };
        match known {
            CoordinatorRole::Leading(environment) | CoordinatorRole::Suspended(environment) => {
                Ok(Leader::Here(environment))
            }
            CoordinatorRole::Following(_) if passed_on => Err(retry("the coordinator that led is leading no longer")),
            CoordinatorRole::Following(leader) => Ok(Leader::There(leader.unwrap_or_default())),
        }
    }

    /// Checks limits that do not depend on the content of the document.
    fn admit(&self, caller: &Caller, request: &pb::ScanRequest) -> Result<RunningPermit, Status> {
        request::check_version(request.protocol_version).inspect_err(|_| REFUSALS.of(Refusal::Version).inc())?;
        let bytes = request.document_json.len();
        if bytes > DOCUMENT_BYTES_MAX {
            REFUSALS.of(Refusal::TooLarge).inc();
            let message = format!("the scan document has {bytes} bytes, at most {DOCUMENT_BYTES_MAX} are taken");
            return Err(status_of(Code::ResourceExhausted, ErrorKind::Invalid, &message));
        }
        if request.idempotency_key.len() > NAME_BYTES_MAX {
            REFUSALS.of(Refusal::TooLarge).inc();
            let message = format!("the idempotency key has more than {NAME_BYTES_MAX} bytes");
            return Err(status_of(Code::InvalidArgument, ErrorKind::Invalid, &message));
        }
        self.quotas.admit(caller, bytes, Instant::now())
    }

    /// Finds a scan that the caller may see; others are reported as not found.
    pub async fn find(environment: &Environment, caller: &Caller, name: &str) -> Result<Arc<Scan>, Status> {
        for stage in [TakenOver::Open, TakenOver::All] {
            if environment.scans.get(name).is_none() {
                until_known(environment, stage).await?;
            }
        }
        let found = environment.scans.get(name).filter(|scan| may_see(caller, &scan.owner));
        found.ok_or_else(|| {
            let name: String = name.chars().filter(|c| !c.is_control()).take(NAME_BYTES_MAX).collect();
            let message = format!("no scan '{name}' is known here; 'trawl scans list' shows those that are");
            status_of(Code::NotFound, ErrorKind::Invalid, &message)
        })
    }

    /// Counts a stream of events to a client.
    pub fn open_stream(&self, caller: &Caller) -> Result<StreamPermit, Status> {
        self.streams.open(caller).map_err(|why| {
            REFUSALS.of(Refusal::Streams).inc();
            come_again(&why, RETRY_AFTER_FULL_S)
        })
    }

    pub async fn submit(
        &self,
        environment: Environment,
        caller: &Caller,
        request: pb::ScanRequest,
        trace: Option<&pb::TraceContext>,
    ) -> Result<Arc<Scan>, Status> {
        request::check_backend(&request.backend)?;
        let as_of = request::as_of(&request)?;
        request::check_allowance(caller, &request)?;
        let permit = self.admit(caller, &request)?;
        let digest = request_digest(&request);
        let keyed = !request.idempotency_key.is_empty();
        let mark = keyed.then(|| RequestMark::new(&caller.name, &request.idempotency_key, &[&digest]));
        if let Some(mark) = &mark {
            // A new leader that has not read all records yet queries this one request.
            let all = *environment.taken_over.borrow() == TakenOver::All;
            if !all && !matches!(environment.archive.ledger.known_request(mark).await, Ok(None)) {
                until_known(&environment, TakenOver::All).await?;
            }
            match environment.scans.known(mark) {
                Known::Same(scan) => return Ok(scan),
                Known::Other(name) => {
                    REFUSALS.of(Refusal::KeyReused).inc();
                    let message = format!("the idempotency key belongs to another request, scan {name}");
                    return Err(status_of(Code::AlreadyExists, ErrorKind::Invalid, &message));
                }
                Known::New => {}
            }
        }
        if !request.ephemeral
            && let Err(NoRoom { why, retry_after }) = environment.archive.room.check(Instant::now())
        {
            REFUSALS.of(Refusal::Records).inc();
            return Err(come_again(&why, retry_after.as_secs().max(1)));
        }
        let number = self.scans.fetch_add(1, Ordering::Relaxed) + 1;
        let name = format!("{}-{number}", self.boot);
        let span = tracing::info_span!(
            span::SUBMIT,
            otel.kind = "server",
            { attribute::RPC_SYSTEM } = "grpc",
            { attribute::RPC_METHOD } = "trawl.v1.Coordinator/Scan",
            { attribute::SCAN_ID } = name,
        );
        trace::set_parent(&span, [request.trace.as_ref(), trace]);
        let scan = Arc::new(Scan::new(
            name,
            caller.name.clone(),
            request::asked(request, as_of, mark, caller),
            &environment.memory,
        ));
        environment.scans.add(Arc::clone(&scan)).map_err(|why| {
            REFUSALS.of(Refusal::QueueFull).inc();
            come_again(&why, RETRY_AFTER_FULL_S)
        })?;
        let driven = Arc::clone(&scan);
        tokio::spawn(
            async move {
                let _permit = permit;
                drive(environment, driven, None).await;
            }
            .instrument(span),
        );
        Ok(scan)
    }
}

/// Waits until this coordinator has read `wanted` of the earlier records.
pub(super) async fn until_known(environment: &Environment, wanted: TakenOver) -> Result<(), Status> {
    let mut taken_over = environment.taken_over.clone();
    match tokio::time::timeout(LEADER_WAIT, taken_over.wait_for(|stage| *stage >= wanted)).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(_)) => Err(retry("this coordinator leads no longer")),
        Err(_) => Err(retry("this coordinator has begun to lead and still reads which scans are recorded")),
    }
}

/// The status of a rejection for lack of room, with a retry delay in seconds.
fn come_again(why: &str, seconds: u64) -> Status {
    let message = format!("{why}; try again in {seconds} s");
    let mut status = status_of(Code::ResourceExhausted, ErrorKind::Retryable, &message);
    status.metadata_mut().insert(RETRY_AFTER_METADATA_KEY, seconds.into());
    status
}

pub(super) fn retry(message: &str) -> Status {
    status_of(Code::Unavailable, ErrorKind::Retryable, message)
}

/// Maps the leader's status; a broken connection to it becomes retryable.
pub(super) fn of_leader(status: Status) -> Status {
    match Failure::from_status(&status) {
        Some(_) => status,
        None => retry(&format!("the coordinator that led does not answer: {}", status.message())),
    }
}
