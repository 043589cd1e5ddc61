//! The gRPC service of a coordinator: admits a scan, prepares it, and streams what the dispatcher tells of it.
//!
//! One task per scan. It holds the scan's results for the merge; the client's stream is bounded, and a client that
//! reads nothing for too long loses its scan, not the coordinator.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Request, Response, Status};
use tracing::Instrument as _;
use trawl_market::{MarketErrorKind, Store};
use trawl_plan::ScanDocument;
use trawl_protocol::error::{status_of, text_of};
use trawl_protocol::limits::{DOCUMENT_BYTES_MAX, PROTOCOL_VERSION, bounded_reason};
use trawl_protocol::pb::scan_event::Event;
use trawl_protocol::security::Caller;
use trawl_protocol::{ErrorKind, Failure, SegmentResultV2, answer_digest, envelope, pb, segment_digest, trace};

use super::dispatcher::{Dispatcher, News, Submission, Submitted, no_worker};
use super::quota::{QuotaLimits, Quotas};
use crate::glue::{Glue, Part};
use crate::local::seconds;
use crate::merge::{FailedSegment, merge};
use crate::passes::{PassError, Passes};
use crate::planner::ShardSpec;
use crate::prepare::{PrepareError, PreparedScan, prepare};
use crate::report::{FailedRun, RunReport, ShardRun, ms_since, sharing_of};
use crate::scheduler::{Outcome, POISONED_MAX, Priority};

/// Scans that run at once; more are refused with `RESOURCE_EXHAUSTED`.
pub const SCANS_MAX: usize = 64;
/// Events that wait for a slow client.
const CLIENT_EVENTS_MAX: usize = 32;
/// How long a client may read nothing before its scan is cancelled.
const CLIENT_STALL_TIMEOUT: Duration = Duration::from_secs(60);

/// State of a coordinator's service; shared by all requests.
pub(crate) struct CoordinatorService {
    store: Store,
    dispatcher: Dispatcher,
    admission: Arc<Semaphore>,
    quotas: Quotas,
    no_worker_timeout_ms: u64,
    /// Makes ids of scans unique over restarts.
    boot: String,
    scans: std::sync::atomic::AtomicU64,
}

/// Sends events to one client.
type Client = mpsc::Sender<Result<pb::ScanEvent, Status>>;

/// The client is gone or reads nothing: its scan is cancelled.
struct ClientLost;

async fn send(client: &Client, event: Event) -> Result<(), ClientLost> {
    let event = Ok(pb::ScanEvent { event: Some(event) });
    match tokio::time::timeout(CLIENT_STALL_TIMEOUT, client.send(event)).await {
        Ok(Ok(())) => Ok(()),
        _ => Err(ClientLost),
    }
}

fn refused(failure: Failure) -> Event {
    Event::Refused(pb::Refused { failure: Some(failure.into()), diagnostics_json: String::new() })
}

impl CoordinatorService {
    pub fn new(
        store: Store,
        dispatcher: Dispatcher,
        boot: String,
        no_worker_timeout_ms: u64,
        quotas: QuotaLimits,
    ) -> Self {
        let (admission, quotas) = (Arc::new(Semaphore::new(SCANS_MAX)), Quotas::new(quotas));
        Self { store, dispatcher, admission, quotas, no_worker_timeout_ms, boot, scans: 0.into() }
    }

    /// Limits that need no look at the document.
    fn admit(&self, request: &pb::ScanRequest) -> Result<OwnedSemaphorePermit, Status> {
        if request.protocol_version != PROTOCOL_VERSION {
            let asked = request.protocol_version;
            let message = format!("protocol version {asked} was asked for, this coordinator speaks {PROTOCOL_VERSION}");
            return Err(status_of(Code::FailedPrecondition, ErrorKind::Invalid, &message));
        }
        let bytes = request.document_json.len();
        if bytes > DOCUMENT_BYTES_MAX {
            let message = format!("the scan document has {bytes} bytes, at most {DOCUMENT_BYTES_MAX} are taken");
            return Err(status_of(Code::ResourceExhausted, ErrorKind::Invalid, &message));
        }
        Arc::clone(&self.admission).try_acquire_owned().map_err(|_| {
            let message = format!("{SCANS_MAX} scans are running already; try again later");
            status_of(Code::ResourceExhausted, ErrorKind::Retryable, &message)
        })
    }
}

/// Reads and prepares a scan; blocks on the dataset's files.
fn prepared_from(store: &Store, request: &pb::ScanRequest) -> Result<PreparedScan, pb::Refused> {
    let document = ScanDocument::from_json(&request.document_json).map_err(|error| {
        let message = format!("the scan document cannot be read: {error}");
        let failure = Failure::new(ErrorKind::Invalid, bounded_reason(message));
        pb::Refused { failure: Some(failure.into()), diagnostics_json: String::new() }
    })?;
    prepare(store, &document, request.as_of_us).map_err(|error| {
        let kind = match &error {
            PrepareError::Dataset(error) => match error.kind() {
                MarketErrorKind::Invalid => ErrorKind::Invalid,
                MarketErrorKind::Permanent => ErrorKind::Permanent,
                MarketErrorKind::Retryable => ErrorKind::Retryable,
            },
            _ => ErrorKind::Invalid,
        };
        let diagnostics_json = match &error {
            PrepareError::Plan(mistakes) => serde_json::to_string(mistakes).unwrap_or_default(),
            _ => String::new(),
        };
        let failure = Failure::new(kind, bounded_reason(text_of(&error)));
        pb::Refused { failure: Some(failure.into()), diagnostics_json }
    })
}

/// What tonic serves: a handle to the one state.
#[derive(Clone)]
pub(crate) struct Handle(pub Arc<CoordinatorService>);

#[tonic::async_trait]
impl pb::coordinator_server::Coordinator for Handle {
    type ScanStream = ReceiverStream<Result<pb::ScanEvent, Status>>;

    async fn scan(&self, request: Request<pb::ScanRequest>) -> Result<Response<Self::ScanStream>, Status> {
        let service = Arc::clone(&self.0);
        let carried = trace::extract(request.metadata());
        // Put there by the guard in front of this service.
        let caller = request.extensions().get::<Caller>().cloned().unwrap_or_else(Caller::local);
        let request = request.into_inner();
        let admitted = service.quotas.admit(&caller, request.document_json.len(), Instant::now());
        let permits = (admitted?, service.admit(&request)?);
        let number = service.scans.fetch_add(1, std::sync::atomic::Ordering::Relaxed) + 1;
        let name = format!("{}-{number}", service.boot);
        let span = tracing::info_span!("submit", otel.kind = "server", scan = name);
        trace::set_parent(&span, [request.trace.as_ref(), carried.as_ref()]);
        let (client, events) = mpsc::channel(CLIENT_EVENTS_MAX);
        tokio::spawn(
            async move {
                let _permits = permits;
                if run(&service, request, name, &client).await.is_err() {
                    tracing::info!("the client went away, its scan is cancelled");
                }
            }
            .instrument(span),
        );
        Ok(Response::new(ReceiverStream::new(events)))
    }

    async fn list_workers(
        &self,
        _request: Request<pb::ListWorkersRequest>,
    ) -> Result<Response<pb::ListWorkersReply>, Status> {
        Ok(Response::new(pb::ListWorkersReply { workers: self.0.dispatcher.list().await }))
    }
}

/// One scan from its request to its last event.
async fn run(
    service: &CoordinatorService,
    request: pb::ScanRequest,
    name: String,
    client: &Client,
) -> Result<(), ClientLost> {
    let started = Instant::now();
    let span = tracing::Span::current();
    let shards = match request.shards.and_then(|s| s.spec) {
        None | Some(pb::shard_spec::Spec::PerSegment(false)) => ShardSpec::Automatic,
        Some(pb::shard_spec::Spec::Count(count)) => ShardSpec::Count(count),
        Some(pb::shard_spec::Spec::PerSegment(true)) => ShardSpec::PerSegment,
    };
    let priority = match request.priority() {
        pb::Priority::Low => Priority::Low,
        pb::Priority::Normal => Priority::Normal,
        pb::Priority::High => Priority::High,
    };
    let allowed = request.deadline_ms.map(Duration::from_millis);
    // A limit beyond what the clock can say is none.
    let deadline = allowed.and_then(|time| started.checked_add(time));
    let (store, inner) = (service.store.clone(), span.clone());
    let preparing = tokio::task::spawn_blocking(move || inner.in_scope(|| prepared_from(&store, &request)));
    let prepared = match preparing.await {
        Ok(Ok(prepared)) => Arc::new(prepared),
        Ok(Err(mistake)) => return send(client, Event::Refused(mistake)).await,
        Err(_) => {
            let failure = Failure::new(ErrorKind::Permanent, "internal error while the scan was prepared");
            return send(client, refused(failure)).await;
        }
    };
    let refuse = |error: &dyn std::error::Error, kind| refused(Failure::new(kind, bounded_reason(text_of(error))));
    let mut passes = match Passes::new(&prepared) {
        Ok(passes) => Arc::new(passes),
        Err(error) => return send(client, refuse(&error, ErrorKind::Permanent)).await,
    };
    let mut scan: Option<RunningScan> = None;
    loop {
        let (news, told) = mpsc::unbounded_channel();
        let submission = Submission {
            scan_name: name.clone(),
            prepared: Arc::clone(&prepared),
            passes: Arc::clone(&passes),
            shards,
            priority,
            deadline,
            trace: trace::context_of(&span),
            news,
        };
        let Some(submitted) = service.dispatcher.submit(submission).await else {
            let failure = Failure::new(ErrorKind::Retryable, "this coordinator is ending");
            return send(client, refused(failure)).await;
        };
        let running = match &mut scan {
            Some(running) => running,
            None => {
                let running = scan.insert(RunningScan::new(name.clone(), Arc::clone(&prepared), submitted, started));
                running.allowed = allowed;
                send(client, running.header()).await?;
                running
            }
        };
        running.last = passes.is_last();
        match running.follow(told, client, service.no_worker_timeout_ms).await {
            Ok(Followed::Over) => return Ok(()),
            Ok(Followed::PassDone) => {}
            Err(lost) => {
                service.dispatcher.cancel(submitted.scan).await;
                return Err(lost);
            }
        }
        let (results, failures) = running.take_pass();
        let advanced = tokio::task::spawn_blocking(move || {
            // The dispatcher may hold its share of the pass before for a moment longer.
            let mut passes = Arc::try_unwrap(passes).unwrap_or_else(|shared| Passes::clone(&shared));
            passes.advance(results, &failures).map(|()| Arc::new(passes))
        });
        passes = match advanced.await {
            Ok(Ok(passes)) => passes,
            Ok(Err(error)) => {
                let kind = match &error {
                    PassError::TooLarge { .. } => ErrorKind::Invalid,
                    PassError::Incomplete { kind, .. } => *kind,
                    PassError::Labels(_) => ErrorKind::Permanent,
                };
                return send(client, refuse(&error, kind)).await;
            }
            Err(_) => {
                let failure = Failure::new(ErrorKind::Permanent, "internal error while cross-sections were made");
                return send(client, refused(failure)).await;
            }
        };
    }
}

/// How following the news of a step ended.
enum Followed {
    /// The client has its last event.
    Over,
    /// A step that is not the last is done.
    PassDone,
}

/// What one scan has so far.
struct RunningScan {
    prepared: Arc<PreparedScan>,
    accepted: Instant,
    submitted: Submitted,
    results: BTreeMap<u32, SegmentResultV2>,
    failures: Vec<FailedSegment>,
    /// Of the present step.
    glue: Glue,
    /// How long the scan may take.
    allowed: Option<Duration>,
    /// Whether the step that runs gives the answer's rows.
    last: bool,
    report: RunReport,
}

impl RunningScan {
    fn new(name: String, prepared: Arc<PreparedScan>, submitted: Submitted, started: Instant) -> Self {
        let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let report = RunReport {
            mode: "cluster".to_owned(),
            precision: prepared.identity.precision.clone(),
            scan: name,
            threads: submitted.threads,
            shards: count(submitted.shards),
            segments: count(prepared.segments.len()),
            symbols: prepared.symbol_count() as u64,
            bars: prepared.bar_count(),
            sharing: sharing_of(&prepared.plan),
            prepare_ms: ms_since(started),
            ..RunReport::default()
        };
        Self {
            prepared,
            accepted: Instant::now(),
            submitted,
            results: BTreeMap::new(),
            failures: Vec::new(),
            glue: Glue::default(),
            allowed: None,
            last: true,
            report,
        }
    }

    /// What a step that is not the last gave.
    fn take_pass(&mut self) -> (Vec<SegmentResultV2>, Vec<FailedSegment>) {
        self.glue = Glue::default();
        (std::mem::take(&mut self.results).into_values().collect(), std::mem::take(&mut self.failures))
    }

    /// Passes on what the dispatcher tells until the scan ends.
    async fn follow(
        &mut self,
        mut told: mpsc::UnboundedReceiver<News>,
        client: &Client,
        no_worker_timeout_ms: u64,
    ) -> Result<Followed, ClientLost> {
        let over = |sent: Result<(), ClientLost>| sent.map(|()| Followed::Over);
        loop {
            let news = tokio::select! {
                news = told.recv() => news,
                () = client.closed() => return Err(ClientLost),
            };
            match news {
                Some(News::End(Outcome::Complete { disputed })) => {
                    self.report.disputed |= disputed;
                    if !self.last {
                        return Ok(Followed::PassDone);
                    }
                    return over(send(client, self.summary()).await);
                }
                Some(News::End(Outcome::DeadlineExceeded)) => {
                    let message = format!("the scan was not done within {}", seconds(self.allowed.unwrap_or_default()));
                    let failure = Failure::new(ErrorKind::DeadlineExceeded, message);
                    return over(send(client, refused(failure)).await);
                }
                Some(News::End(Outcome::Poisoned)) => {
                    let message = format!("{POISONED_MAX} symbols of this scan kill the workers that evaluate them");
                    return over(send(client, refused(Failure::new(ErrorKind::Poisoned, message))).await);
                }
                Some(News::End(Outcome::NoWorker)) => {
                    return over(send(client, refused(no_worker(no_worker_timeout_ms))).await);
                }
                Some(News::End(Outcome::Cancelled)) | None => {
                    let failure = Failure::new(ErrorKind::Cancelled, "the scan was cancelled");
                    return over(send(client, refused(failure)).await);
                }
                Some(news) => {
                    if let Some(event) = self.take(news) {
                        send(client, event).await?;
                    }
                }
            }
        }
    }

    fn header(&self) -> Event {
        let spec = self.prepared.merge_spec();
        let manifest = &self.prepared.dataset.manifest;
        Event::Accepted(pb::Accepted {
            scan_id: self.report.scan.clone(),
            identity_json: serde_json::to_string(&spec.identity).unwrap_or_default(),
            select: spec.select,
            rank_descending: spec.descending,
            limit: spec.limit,
            segments: self.report.segments,
            shards: u32::try_from(self.submitted.shards).unwrap_or(u32::MAX),
            symbols: self.report.symbols,
            synthetic: manifest.synthetic,
            timeframe: manifest.timeframe.clone(),
            points_json: serde_json::to_string(&spec.points).unwrap_or_default(),
            best: spec.best,
        })
    }

    /// Keeps what is new; an event when the client has to know.
    fn take(&mut self, news: News) -> Option<Event> {
        match news {
            News::Started { attempt, worker, segments, purpose } => {
                let (started_ms, ending) = (ms_since(self.accepted), "running".to_owned());
                let ended_ms = None;
                let run = ShardRun { attempt, worker, segments, started_ms, ended_ms, ending, purpose };
                self.report.shard_runs.push(run);
                None
            }
            News::Over { attempt, ending } => {
                let ended_ms = ms_since(self.accepted);
                // The first ending counts: one that broke is stopped afterwards.
                let run = self.report.shard_runs.iter_mut().find(|r| r.attempt == attempt && r.ended_ms.is_none());
                if let Some(run) = run {
                    (run.ended_ms, run.ending) = (Some(ended_ms), ending);
                }
                None
            }
            News::Result { piece, result, envelope, run, replaces } => {
                if replaces {
                    // What was replaced is not in the answer.
                    self.report.segment_runs.retain(|r| (r.segment, r.first) != (run.segment, run.first));
                }
                self.report.segment_runs.push(run);
                let whole = (piece == self.prepared.whole(piece.segment)).then_some(envelope);
                let part = self.glue.take(&self.prepared, piece, Ok(result), self.last)?;
                self.segment(piece.segment, part, whole, replaces)
            }
            News::Failed { piece, failure, attempts } => {
                let (segment, Failure { kind, message }) = (piece.segment, failure.clone());
                if self.last {
                    let part = piece != self.prepared.whole(segment);
                    let symbols = if part { self.prepared.symbols_of_piece(piece) } else { Vec::new() };
                    self.report.failed.push(FailedRun { segment, kind, message, attempts, symbols });
                }
                let part = self.glue.take(&self.prepared, piece, Err(failure), self.last)?;
                self.segment(segment, part, None, false)
            }
            News::Contested { segment } => {
                self.report.contested.push(segment);
                None
            }
            News::Quarantined { worker } => {
                self.report.quarantined.push(worker);
                None
            }
            News::WorkerLost { worker } => {
                self.report.workers_lost.push(worker);
                None
            }
            News::End(_) => None,
        }
    }

    /// A segment that is whole; an event when the client has to know. `envelope`: as it came, if in one piece.
    fn segment(&mut self, segment: u32, part: Part, envelope: Option<pb::Envelope>, replaces: bool) -> Option<Event> {
        let encoded = part.and_then(|result| match envelope {
            Some(envelope) => Ok((result, envelope)),
            None => envelope::encode(&result).map(|envelope| (result, envelope)).map_err(Failure::from),
        });
        match encoded {
            Ok((result, envelope)) => {
                let digest = segment_digest(&result).to_vec();
                self.results.insert(segment, result);
                let done = pb::SegmentDone { segment, result: Some(envelope), digest, replaces };
                self.last.then_some(Event::SegmentDone(done))
            }
            Err(failure) => {
                let symbols = self.prepared.symbols_of(segment);
                let Failure { kind, message } = failure.clone();
                self.failures.push(FailedSegment { segment, symbols: symbols.clone(), kind, message });
                let failed = pb::SegmentFailed { segment, failure: Some(failure.into()), symbols };
                self.last.then_some(Event::SegmentFailed(failed))
            }
        }
    }

    fn summary(&mut self) -> Event {
        self.report.run_ms = ms_since(self.accepted);
        for run in self.report.shard_runs.iter_mut().filter(|r| r.ended_ms.is_none()) {
            // Everything is answered; the end of its stream is still on its way.
            (run.ended_ms, run.ending) = (Some(self.report.run_ms), "done".to_owned());
        }
        let started = Instant::now();
        let span = tracing::info_span!("merge", segments = self.results.len());
        let (results, failures) = self.take_pass();
        let answer_digest = span.in_scope(|| answer_digest(&merge(&self.prepared, results, failures)));
        self.report.merge_ms = ms_since(started);
        self.report.close();
        let report_json = serde_json::to_string(&self.report).unwrap_or_default();
        Event::Summary(pb::Summary { answer_digest, report_json })
    }
}
