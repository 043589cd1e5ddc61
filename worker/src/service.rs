//! The gRPC service of a worker: takes a shard, runs its segments on the compute threads, streams each as it ends.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rayon::prelude::*;
use tokio::sync::{mpsc, watch};
use tokio_stream::Stream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Request, Response, Status};
use trawl_kernels::cuda::Fleet;
use trawl_kernels::stages::EngineStage;
use trawl_kernels::{Cancel, Engine};
use trawl_market::{FetchedGroup, LoadedBars, Store};
use trawl_telemetry::metrics::catalogue::worker::{
    CACHE_WAIT_TIME, SHARDS_FINISHED, SHARDS_REFUSED, SHARDS_STARTED, ShardRefusal,
};
use trawl_telemetry::names::{attribute, span};
use trawl_telemetry::spans;
use trawl_wire::error::{epoch_over, status_of};
use trawl_wire::limits::bounded_reason;
use trawl_wire::plan_key::{PlanAtWorker, unknown_plan};
use trawl_wire::{ErrorKind, Failure, pb, trace};

use crate::cache::{Loads, in_memory};
use crate::execute::ExecuteError;
use crate::expected::ExpectedScans;
use crate::gathering::gathered;
use crate::measure;
use crate::prefetch::{self, Order};
use crate::prepared::BAR_VALUE_BYTES;
use crate::replies::Replies;
use crate::shard::{self, Scans, Shard, invalid};
use crate::timeline::{Asked, CacheLevel, SegmentRecord, Timeline};
use crate::watchdog::Pulse;

/// Replies buffered for a slow coordinator; compute threads wait while the buffer is full.
const REPLIES_WAITING_MAX: usize = 64;
/// Maximum number of shards that a worker runs or holds, from all coordinators.
const SHARDS_MAX: usize = 64;
/// Interval at which a fault delay checks for cancellation.
const DELAY_STEP: Duration = Duration::from_millis(5);

/// State of a worker; shared by all requests.
#[derive(Debug)]
pub(crate) struct WorkerService {
    pub boot: String,
    pub id: String,
    /// What shards are checked against, and what they share.
    pub scans: Scans,
    pub pool: rayon::ThreadPool,
    /// Set once, when the worker begins to leave: new shards are rejected, running ones finish.
    pub draining: AtomicBool,
    /// Set once, when the drain timeout is over.
    pub stopped: AtomicBool,
    /// Number of shards that run or wait.
    pub shards: AtomicUsize,
    /// The highest epoch of any leader seen; requests of lower epochs are rejected.
    pub epoch: watch::Sender<i64>,
    /// Notified when a coordinator asks this worker to leave.
    pub leave: tokio::sync::Notify,
    /// Sign of life of the computing threads.
    pub pulse: Pulse,
    /// For tests: sleep before each segment.
    pub fault_delay: Duration,
    /// Scans like those that ran last.
    pub expected: ExpectedScans,
    loads: Loads,
}

/// Cancels when the coordinator no longer listens or leads, or when the worker has to stop.
pub(crate) struct Unwanted<'a> {
    pub replies: &'a Replies,
    pub stopped: &'a AtomicBool,
    /// Beats whenever cancellation is polled.
    pub pulse: &'a Pulse,
}

impl Cancel for Unwanted<'_> {
    fn cancelled(&self) -> bool {
        self.pulse.beat();
        self.replies.is_closed() || self.stopped.load(Ordering::Relaxed)
    }
}

/// Cancels when there is work, or no more of it will come.
struct Busy<'a>(&'a WorkerService);

impl Cancel for Busy<'_> {
    fn cancelled(&self) -> bool {
        let Self(service) = self;
        let leaves = [&service.draining, &service.stopped].iter().any(|flag| flag.load(Ordering::Relaxed));
        leaves || service.shards.load(Ordering::Relaxed) > 0
    }
}

/// A segment's bars, and the range of wanted symbols.
pub(crate) struct AtHand {
    pub group: Vec<LoadedBars>,
    pub wanted: Range<usize>,
}

impl AtHand {
    pub fn bars(&self) -> &[LoadedBars] {
        self.group.get(self.wanted.clone()).unwrap_or_default()
    }

    /// Whether some bars were left out, which a device has.
    pub fn is_unread(&self) -> bool {
        let lacks =
            |bars: &LoadedBars| bars.unread > 0 || bars.columns.iter().any(|column| column.len() < bars.times.len());
        self.bars().iter().any(lacks)
    }
}

/// Counts a shard for as long as it lives.
struct Counted(Arc<WorkerService>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.shards.fetch_sub(1, Ordering::Relaxed);
        SHARDS_FINISHED.inc();
    }
}

/// The failure of a result that cannot be sent: another attempt would give the same one.
fn of_own_result(error: &trawl_wire::EnvelopeError) -> Failure {
    let message = match error {
        trawl_wire::EnvelopeError::TooLong { .. } => {
            format!("the result of one segment is too large ({error}): select fewer columns or sweep over fewer values")
        }
        _ => error.to_string(),
    };
    Failure::new(ErrorKind::Invalid, bounded_reason(message))
}

impl WorkerService {
    pub fn new(
        (id, boot): (String, String),
        store: Store,
        pool: rayon::ThreadPool,
        (engine, cache_bytes): (Engine, u64),
        fault_delay: Duration,
    ) -> Self {
        Self {
            boot,
            scans: Scans::new(id.clone(), store, in_memory(cache_bytes), engine),
            id,
            pool,
            draining: AtomicBool::new(false),
            stopped: AtomicBool::new(false),
            shards: AtomicUsize::new(0),
            epoch: watch::Sender::new(0),
            leave: tokio::sync::Notify::new(),
            pulse: Pulse::default(),
            fault_delay,
            expected: ExpectedScans::default(),
            loads: Loads::default(),
        }
    }

    /// Brings bars for scans that are expected, as long as there is no work and there will be any.
    pub fn look_ahead(&self, fleet: &Fleet) {
        self.expected.look(&self.scans, &Busy(self), fleet);
    }

    /// Accepts the epoch of a leader; rejects one that has been succeeded.
    fn check_epoch(&self, epoch: i64) -> Result<(), Status> {
        self.epoch.send_if_modified(|highest| {
            let newer = epoch > *highest;
            *highest = epoch.max(*highest);
            newer
        });
        let highest = *self.epoch.borrow();
        if epoch >= highest {
            return Ok(());
        }
        let message = epoch_over(epoch, highest);
        SHARDS_REFUSED.of(ShardRefusal::OldEpoch).inc();
        tracing::warn!(epoch, highest, "refused what a coordinator asked that leads no longer");
        Err(status_of(Code::FailedPrecondition, ErrorKind::Retryable, &message))
    }

    /// What this worker holds, and where the bars of its segments were. Blocks on the file system.
    fn cache_report(&self) -> pb::CacheReport {
        self.scans.snapshots.report(self.scans.cache.generation(), self.loads.report())
    }

    /// Runs one segment, from bars in memory or on disk to an envelope.
    fn segment(
        &self,
        shard: &Shard,
        segment: u32,
        cancel: &dyn Cancel,
        record: &mut SegmentRecord,
    ) -> pb::SegmentReply {
        let mut timings = pb::SegmentTimings::default();
        let outcome = self.timed_segment(shard, segment, cancel, &mut timings, record);
        reply_of(segment, outcome, Some(timings), record)
    }

    fn timed_segment(
        &self,
        shard: &Shard,
        segment: u32,
        cancel: &dyn Cancel,
        timings: &mut pb::SegmentTimings,
        record: &mut SegmentRecord,
    ) -> Result<pb::Envelope, Failure> {
        let at_hand = self.load(shard, segment, cancel, timings, record)?;
        let (bars, started) = (at_hand.bars(), Instant::now());
        let result = shard
            .scan
            .source
            .evaluate(segment, shard.step, &shard.input, bars, &shard.scan.references, cancel, &mut record.stages)
            .map_err(Failure::from)?;
        timings.compute_us = micros(started.elapsed());
        record.stages.time(EngineStage::Encode, 0, 0, || shard.encode(result)).map_err(|error| of_own_result(&error))
    }

    /// A segment's bars, from memory or from disk.
    pub fn load(
        &self,
        shard: &Shard,
        segment: u32,
        cancel: &dyn Cancel,
        timings: &mut pb::SegmentTimings,
        record: &mut SegmentRecord,
    ) -> Result<AtHand, Failure> {
        self.delay(cancel);
        if cancel.cancelled() {
            return Err(ExecuteError::Cancelled.into());
        }
        let started = Instant::now();
        let reads = shard.reads(segment);
        let resident = shard.is_resident(segment, &reads);
        let load = || {
            let (waits, began) = (!resident && !shard.is_here(segment, &reads), Instant::now());
            let loaded = match shard.scan.source.device() {
                Some(fleet) => shard.load_beside(fleet, segment),
                None => shard.scan.source.load_segment_newest(segment, reads.newest),
            };
            if waits {
                CACHE_WAIT_TIME.add_time(began.elapsed());
            }
            loaded
        };
        let loaded = record.stages.time(EngineStage::Load, 0, 0, load);
        let group = loaded.inspect_err(|error| self.scans.log_damage(&shard.scan.source.dataset, error))?;
        self.loads.count(&self.scans.cache, shard.source_of(segment, resident));
        timings.load_us = micros(started.elapsed());
        timings.resident = resident;
        record.cache = Some(if resident { CacheLevel::Memory } else { CacheLevel::Disk });
        let symbols = group.len();
        let wanted = shard.part.clone().unwrap_or(0..symbols);
        let bars = group.get(wanted.clone()).ok_or_else(|| {
            invalid(format!("symbols {wanted:?} of segment {segment} were asked for, it has {symbols}"))
        })?;
        timings.symbols = bars.len() as u64;
        timings.bars = bars.iter().map(|s| s.times.len() as u64).sum();
        (record.symbols, record.bars) = (timings.symbols, timings.bars);
        record.bytes = bars.iter().map(bytes_read).sum();
        Ok(AtHand { group, wanted })
    }

    fn delay(&self, cancel: &dyn Cancel) {
        let started = Instant::now();
        while started.elapsed() < self.fault_delay && !cancel.cancelled() {
            std::thread::sleep(DELAY_STEP.min(self.fault_delay));
        }
    }

    /// Records the metrics of a segment that has ended, and sends its reply. Blocks while the reply buffer is full.
    pub fn send(
        &self,
        mut reply: pb::SegmentReply,
        record: &SegmentRecord,
        began: Instant,
        replies: &Replies,
        timeline: &Timeline,
    ) {
        let segment = reply.segment;
        measure::segment(&reply, record, began.elapsed());
        reply.shard = timeline.take(segment, record);
        reply.cache = reply.shard.is_some().then(|| self.cache_report());
        let sending = Instant::now();
        replies.send(reply);
        timeline.sent(segment, sending);
    }

    /// Runs all segments of a shard on the compute threads; returns when the last has ended or the receiver is dropped.
    fn run(&self, shard: &Shard, replies: &Replies, span: &tracing::Span, timeline: &Timeline) {
        let cancel = Unwanted { replies, stopped: &self.stopped, pulse: &self.pulse };
        let run_one = |segment: u32| {
            let (_entered, began) = (span.enter(), Instant::now());
            timeline.begin();
            let mut record = SegmentRecord::default();
            // A panic is a bug that fails the segment, not the worker.
            let reply = catch_unwind(AssertUnwindSafe(|| self.segment(shard, segment, &cancel, &mut record)));
            let reply =
                reply.unwrap_or_else(|_| reply_of(segment, Err(ExecuteError::Panicked.into()), None, &mut record));
            self.send(reply, &record, began, replies, timeline);
        };
        let compute = |order: &Order<'_>| {
            shard.segments.par_iter().for_each(|_| {
                if let (false, Some(segment)) = (cancel.cancelled(), order.begin()) {
                    run_one(segment);
                }
            });
        };
        let dataset = &shard.scan.source.dataset;
        let fetch = |segment: u32| {
            let reads = shard.reads(segment);
            match shard.is_resident(segment, &reads) {
                true => Ok(FetchedGroup::Here),
                false => dataset.fetch_group(segment, &reads),
            }
        };
        prefetch::ahead(dataset, &shard.segments, fetch, compute);
    }
}

/// The reply for a segment that has ended. Only one whose evaluation panicked has no timings.
pub(crate) fn reply_of(
    segment: u32,
    outcome: Result<pb::Envelope, Failure>,
    timings: Option<pb::SegmentTimings>,
    record: &mut SegmentRecord,
) -> pb::SegmentReply {
    // A cancelled segment has not failed.
    record.failed = outcome.as_ref().is_err_and(|failure| failure.kind != ErrorKind::Cancelled);
    let outcome = match outcome {
        Ok(envelope) => pb::segment_reply::Outcome::Result(envelope),
        Err(failure) => pb::segment_reply::Outcome::Failure(failure.into()),
    };
    pb::SegmentReply { segment, outcome: Some(outcome), timings, shard: None, more: Vec::new(), cache: None }
}

/// Bytes of the times and values that were read of a symbol.
fn bytes_read(bars: &LoadedBars) -> u64 {
    let columns = bars.columns.iter().filter(|column| !column.is_empty()).count() as u64;
    (bars.times.len() - bars.unread) as u64 * (columns + 1) * BAR_VALUE_BYTES
}

pub(crate) fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// The service implementation for tonic: a handle to the shared state.
#[derive(Debug, Clone)]
pub(crate) struct Handle(pub Arc<WorkerService>);

#[tonic::async_trait]
impl pb::worker_server::Worker for Handle {
    type ExecuteStream = Pin<Box<dyn Stream<Item = Result<pb::SegmentReply, Status>> + Send>>;

    async fn execute(&self, request: Request<pb::ShardRequest>) -> Result<Response<Self::ExecuteStream>, Status> {
        let service = Arc::clone(&self.0);
        let (epoch, gathers) = (request.get_ref().epoch, request.get_ref().gathers);
        service.check_epoch(epoch)?;
        if service.draining.load(Ordering::Relaxed) {
            SHARDS_REFUSED.of(ShardRefusal::Leaving).inc();
            return Err(Failure::new(ErrorKind::Retryable, "this worker is leaving").to_status());
        }
        let known = service.scans.prepared.known(request.get_ref());
        if known.is_none() && request.get_ref().document_json.is_empty() {
            // Not a shard yet: the same request comes again with the document.
            return Err(unknown_plan());
        }
        let counted = Counted(Arc::clone(&service));
        SHARDS_STARTED.inc();
        if service.shards.fetch_add(1, Ordering::Relaxed) >= SHARDS_MAX {
            SHARDS_REFUSED.of(ShardRefusal::Full).inc();
            let message = format!("this worker holds {SHARDS_MAX} shards already");
            return Err(Failure::new(ErrorKind::Retryable, message).to_status());
        }
        let carried = trace::extract(request.metadata());
        let request = request.into_inner();
        let span = tracing::info_span!(
            span::EXECUTE,
            otel.kind = "server",
            { attribute::RPC_SYSTEM } = "grpc",
            { attribute::RPC_METHOD } = "trawl.v1.Worker/Execute",
            { attribute::SCAN_ID } = request.scan_id,
            { attribute::ATTEMPT } = spans::number(request.attempt),
            { attribute::WORKER } = service.id,
        );
        // The context inside the request takes precedence: it is the same for every attempt.
        trace::set_parent(&span, [request.trace.as_ref(), carried.as_ref()]);
        let (arrived, segments) = (Instant::now(), request.segments.len());
        let asked = Asked {
            slow_after: (request.slow_after_ms > 0).then(|| Duration::from_millis(request.slow_after_ms)),
            hedge: request.hedge,
            stages: request.stages,
            stopped: false,
        };
        let checked = if known.is_some() && shard::is_small(&request) {
            Ok(span.in_scope(|| service.scans.check(request, known)))
        } else {
            let (service, span) = (Arc::clone(&service), span.clone());
            tokio::task::spawn_blocking(move || span.in_scope(|| service.scans.check(request, known))).await
        };
        let shard = match checked {
            Ok(Ok(shard)) => shard,
            Ok(Err(failure)) => {
                SHARDS_REFUSED.of(ShardRefusal::Invalid).inc();
                tracing::warn!(parent: &span, %failure, "refused a shard");
                spans::fail(&span, failure.kind.name(), failure.to_string());
                spans::keep(&span);
                return Err(failure.to_status());
            }
            Err(_) => return Err(Failure::new(ErrorKind::Permanent, "internal error").to_status()),
        };
        let (sender, receiver) = mpsc::channel(REPLIES_WAITING_MAX);
        let replies = Replies::new(sender, epoch, service.epoch.subscribe());
        let (runner, waiting) = (Arc::clone(&service), replies.waiting());
        let timeline = Timeline::new(arrived, segments, shard.scan.source.engine.backend());
        let device = shard.scan.source.device().cloned();
        let on_device = device.is_some();
        let work = move || {
            match device {
                Some(executor) => runner.run_on_device(&executor, &shard, &replies, &span, &timeline),
                None => runner.run(&shard, &replies, &span, &timeline),
            }
            timeline.finish(&span, Asked { stopped: replies.is_closed(), ..asked });
            // In this order: the span ends before the stream does, so that the trace is complete when the answer
            // arrives.
            drop(span);
            drop(counted);
        };
        if on_device {
            // Not a thread of the pool: it waits for those, and for the device.
            let thread = std::thread::Builder::new().name("trawl-device".to_owned());
            let no_thread = |error: std::io::Error| {
                Failure::new(ErrorKind::Retryable, format!("no thread could be started: {error}")).to_status()
            };
            thread.spawn(work).map_err(no_thread)?;
        } else {
            service.pool.spawn(work);
        }
        let mut response: Response<Self::ExecuteStream> = Response::new(match gathers {
            true => Box::pin(gathered(receiver, waiting)),
            false => Box::pin(ReceiverStream::new(receiver)),
        });
        PlanAtWorker::Kept.mark(response.metadata_mut());
        Ok(response)
    }

    async fn drain(&self, request: Request<pb::DrainRequest>) -> Result<Response<pb::DrainReply>, Status> {
        self.0.check_epoch(request.get_ref().epoch)?;
        tracing::info!("a coordinator asks this worker to leave");
        self.0.leave.notify_one();
        Ok(Response::new(pb::DrainReply {}))
    }

    async fn ping(&self, _request: Request<pb::PingRequest>) -> Result<Response<pb::PingReply>, Status> {
        let service = Arc::clone(&self.0);
        let cache = tokio::task::spawn_blocking(move || service.cache_report()).await.ok();
        Ok(Response::new(pb::PingReply { boot: self.0.boot.clone(), cache }))
    }
}
