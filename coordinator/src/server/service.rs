//! The state of a coordinator's gRPC service: finds the leader, checks submissions, and streams the events of scans.
//!
//! A coordinator that does not lead forwards every call to the one that does, so clients may use any of them.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::ReceiverStream;
use tokio_stream::{Stream, StreamExt as _};
use tonic::{Code, Request, Status};
use tracing::Instrument as _;
use tracing::field::Empty;
use trawl_security::{Caller, RETRY_AFTER_METADATA_KEY, Shown};
use trawl_telemetry::metrics::catalogue::coordinator::{
    CLIENT_WAIT, REFUSALS, Refusal, STREAMS_ENDED, STREAMS_OPENED, StreamEnd,
};
use trawl_telemetry::names::{attribute, span};
use trawl_wire::error::status_of;
use trawl_wire::limits::{DOCUMENT_BYTES_MAX, GATHERED_BYTES_MAX, NAME_BYTES_MAX};
use trawl_wire::pb::scan_event::Event;
use trawl_wire::{ErrorKind, Failure, pb, request_digest, trace};

use super::datasets::Datasets;
use super::proxy::Proxy;
use super::quota::{QuotaLimits, Quotas, RunningPermit};
use super::record_budget::NoRoom;
use super::registry::Coordinators;
use super::request;
use super::scans::{Cursor, Environment, Known, Scan, Scans, TakenOver, drive, load, may_see, payload_bytes};
use super::streams::{StreamPermit, Streams};
use crate::durable::RequestMark;

/// Events buffered for a slow client.
const CLIENT_EVENTS_MAX: usize = 4;
/// How long a client may stall before its stream ends; an ephemeral scan ends with it.
const CLIENT_STALL_TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum number of scans in a reply to `ListScans`.
pub const LISTED_MAX: usize = 1000;
/// Bytes of an event beside its payload, about: its digest and the frames.
const EVENT_BYTES: usize = 128;
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

pub(super) type Events = Pin<Box<dyn Stream<Item = Result<pb::ScanEvent, Status>> + Send>>;

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
    There(pb::coordinator_client::CoordinatorClient<tonic::transport::Channel>),
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
            Leader::There(leader) => Ok(CallTarget::There(self.proxy.client_to(&leader).map_err(of_address)?)),
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

/// Keeps the events of a scan loaded for a reply. If they were read back for it, the limit of what ended scans hold is applied
/// afterwards: otherwise nothing would apply it before another scan ends.
pub(super) struct Reading {
    // Dropped in this order.
    _log: Arc<()>,
    _relief: Option<Relief>,
}

struct Relief(Arc<Scans>);

impl Drop for Relief {
    fn drop(&mut self) {
        self.0.relieve();
    }
}

/// Loads the events of an ended scan if its log was unloaded; they stay loaded while the reply is held.
pub(super) async fn loaded(environment: &Environment, scan: &Arc<Scan>) -> Result<Reading, Status> {
    let relief = scan.log.is_unloaded().then(|| Relief(Arc::clone(&environment.scans)));
    let reading = Reading { _log: scan.log.reading(), _relief: relief };
    load(environment, scan).await.map_err(|failure| failure.to_status())?;
    Ok(reading)
}

/// The events that the leader sends.
pub(super) fn passed_on(events: tonic::Streaming<pb::ScanEvent>, permit: StreamPermit) -> Events {
    Box::pin(events.map(move |event| {
        let _open = &permit;
        event.map_err(of_leader)
    }))
}

fn scan_event(event: Arc<Event>) -> pb::ScanEvent {
    pb::ScanEvent { event: Some(Arc::unwrap_or_clone(event)), more: Vec::new() }
}

/// Streams a scan's events to one client. `ends_it`: the scan ends with the stream. `detached`: only the first event is
/// sent. `gathers`: small results that are there already share a message.
pub(super) fn stream(
    scan: Arc<Scan>,
    mut cursor: Cursor,
    (ends_it, detached, gathers): (bool, bool, bool),
    within: Option<&pb::TraceContext>,
    held: (StreamPermit, Reading),
) -> Events {
    let (client, events) = mpsc::channel(CLIENT_EVENTS_MAX);
    STREAMS_OPENED.inc();
    // A child of the client's own span: it may last longer than the scan.
    let mut span = within.map_or_else(tracing::Span::none, |within| {
        let span = tracing::info_span!(span::STREAM, { attribute::SCAN_ID } = scan.name, { attribute::EVENTS } = Empty);
        trace::set_parent(&span, [Some(within), None]);
        span
    });
    tokio::spawn(async move {
        let mut events_sent = 0i64;
        let reading = async {
            while let Some(read) = scan.log.next(&mut cursor).await.transpose() {
                let (mut event, permit) = match read {
                    Ok(read) => (Ok(scan_event(read.event)), read.permit),
                    Err(status) => (Err(status), None),
                };
                let broken = event.is_err();
                let first = event.as_ref().ok().and_then(|event| event.event.as_ref());
                let enough = detached && matches!(first, Some(Event::Accepted(_)));
                let last = matches!(first, Some(Event::Summary(_) | Event::Refused(_)));
                events_sent += 1;
                if let (Ok(event), true) = (&mut event, gathers)
                    && let Some(Event::SegmentDone(done)) = &event.event
                {
                    let mut room = GATHERED_BYTES_MAX.saturating_sub(payload_bytes(done));
                    while let Some(next) = scan.log.next_small(&mut cursor, room) {
                        if let Event::SegmentDone(done) = &*next {
                            room = room.saturating_sub(payload_bytes(done) + EVENT_BYTES);
                        }
                        event.more.push(scan_event(next));
                        events_sent += 1;
                    }
                }
                if last || enough || broken {
                    // End it before the client can have read the event, so that the client's span ends later.
                    span.record(attribute::EVENTS, events_sent);
                    drop(std::mem::replace(&mut span, tracing::Span::none()));
                }
                let waits = Instant::now();
                let sent = tokio::time::timeout(CLIENT_STALL_TIMEOUT, client.send((event, permit))).await;
                CLIENT_WAIT.add_time(waits.elapsed());
                match sent {
                    Ok(Ok(())) if broken => return StreamEnd::Broken,
                    Ok(Ok(())) if enough => break,
                    Ok(Ok(())) => {}
                    Ok(Err(_)) => return StreamEnd::ClientGone,
                    Err(_) => return StreamEnd::Stalled,
                }
            }
            StreamEnd::Complete
        };
        let end = tokio::select! {
            end = reading => end,
            () = client.closed() => StreamEnd::ClientGone,
        };
        STREAMS_ENDED.of(end).inc();
        drop(held);
        if matches!(end, StreamEnd::ClientGone | StreamEnd::Stalled) && ends_it {
            tracing::info!(scan = scan.name, "the client went away, its scan is cancelled");
            scan.cancel();
        }
    });
    // The permit is given back when the transport takes the event.
    Box::pin(ReceiverStream::new(events).map(|(event, _permit)| event))
}
