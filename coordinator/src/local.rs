//! Embedded mode: the planner and scheduler of the cluster around the threads of this process.
//!
//! One worker, as many shards in flight as threads; inside a shard the segments run in parallel too, so one shard
//! uses every thread as well.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use rayon::prelude::*;
use trawl_kernels::stages::Stages;
use trawl_kernels::{Cancel, NoCancel};
use trawl_market::{FetchedGroup, MarketError, Reads};
use trawl_telemetry::names::{attribute, span as name};
use trawl_telemetry::spans;
use trawl_wire::{Answer, ErrorKind, Failure, SegmentResult, SegmentResultV2, StepInputV1, pb};
use trawl_worker::timeline::{Asked, CacheLevel, SegmentRecord, Timeline};
use trawl_worker::{ScanSource, ScanStep, prefetch};

use crate::merge::{FailedSegment, merge};
use crate::planner::{Holdings, SHARDS_PER_WORKER, ShardSpec, WorkerSeat, name_key, plan_shards};
use crate::prepare::PreparedScan;
use crate::report::{
    FailedRun, Progress, RunReport, SegmentRun, ShardRun, ShardTimes, incomplete, is_of_snapshot, ms_of, ms_since,
    sharing_of,
};
use crate::scan_steps::{PassError, Passes};
use crate::scheduler::{AttemptId, Check, ClassId, Command, Event, Limits, Outcome, Piece, Request, Scheduler};

/// The one worker of embedded mode.
const WORKER: u64 = 1;
/// Its class: that of this build.
const CLASS: ClassId = 0;
/// Its name in reports.
const WORKER_NAME: &str = "embedded";
/// Interval of the scheduler's ticks while nothing else happens.
const TICK: Duration = Duration::from_millis(20);

/// How a scan runs in this process.
#[derive(Debug, Clone, Copy, Default)]
pub struct LocalOptions {
    /// How the scan is cut into shards; the answer does not depend on it.
    pub shards: ShardSpec,
    /// Threads that compute; 0 takes one for each core.
    pub threads: usize,
    /// How long it may take.
    pub deadline: Option<Duration>,
    /// Symbols that fail for reasons beyond the snapshot are left out, which the identity records.
    pub allow_partial: bool,
    /// At every bar: whether all rows of the universe have values, and not matches alone.
    pub every_value: bool,
    /// Whether whole histories are read, also where the plan needs the newest bars alone: by devices and updates.
    pub whole_histories: bool,
    /// Whether each thread fetches the files of its segment from a bucket itself; for measuring what fetching ahead is worth.
    pub no_prefetch: bool,
}

/// Why a run failed.
#[derive(Debug, thiserror::Error)]
pub enum LocalError {
    /// The operating system gave no threads.
    #[error("cannot start the threads of the scan")]
    Threads(#[from] rayon::ThreadPoolBuildError),
    /// It took longer than its deadline.
    #[error("the scan was not done within {}", seconds(*.0))]
    DeadlineExceeded(Duration),
    /// Its caller cancelled it.
    #[error("the scan was cancelled")]
    Cancelled,
    /// No device is left of those that the scan runs on, with the reason of the last one.
    #[error("no device is left to compute on: {0}; --backend cpu computes without one")]
    DevicesLost(String),
    /// Segments failed for reasons beyond the snapshot, and a partial answer was not allowed.
    #[error("{0}")]
    Incomplete(Failure),
    /// The answer's rows are not well-formed: a mistake of this program.
    #[error("the results could not be merged")]
    Merge(#[from] trawl_wire::EnvelopeError),
    /// The cross-sections could not be made.
    #[error(transparent)]
    Pass(#[from] PassError),
}

/// A message from a thread.
enum ThreadEvent {
    Segment {
        attempt: AttemptId,
        segment: u32,
        result: Result<SegmentResult, (ErrorKind, String)>,
        busy_ms: f64,
        /// Timings of the whole shard, with its last segment.
        timings: Option<Box<pb::ShardTimings>>,
    },
    End {
        attempt: AttemptId,
    },
}

/// Runs a scan on threads of this process: `execute` is called once for each segment and step (again if it returns a
/// retryable error), and records its stages.
///
/// Segments that fail are in the answer (their symbols failed, with the reason) and in the report.
///
/// # Errors
/// [`LocalError`].
pub fn run(
    prepared: &PreparedScan,
    options: LocalOptions,
    execute: impl Fn(u32, ScanStep, &StepInputV1, &mut Stages) -> Result<SegmentResult, (ErrorKind, String)> + Sync,
    progress: &dyn Progress,
) -> Result<(Answer, RunReport), LocalError> {
    run_until(prepared, options, execute, progress, &NoCancel)
}

/// As [`run`]; ends soon after `cancel` says so, if `execute` asks it too: no further segment is begun, and those under way are
/// waited for.
///
/// # Errors
/// [`LocalError`].
pub fn run_until(
    prepared: &PreparedScan,
    options: LocalOptions,
    execute: impl Fn(u32, ScanStep, &StepInputV1, &mut Stages) -> Result<SegmentResult, (ErrorKind, String)> + Sync,
    progress: &dyn Progress,
    cancel: &dyn Cancel,
) -> Result<(Answer, RunReport), LocalError> {
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(options.threads)
        .thread_name(|i| format!("trawl-compute-{i}"))
        .build()?;
    let mut passes = Passes::new(prepared)?;
    let source = prepared.source();
    let mut run = Run::new(prepared, options, pool.current_num_threads(), progress);
    run.number = passes.leave_out_times(false)?;
    loop {
        let step = passes.step();
        // One input for all segments, which share this process's memory.
        let input = passes.input(&prepared.segments);
        let work = Work {
            execute: &|segment, stages| execute(segment, step, &input, stages),
            fetch: &|segment| fetch(&source, options, (segment, step), &input),
        };
        run.pass(&pool, step, &work, cancel);
        if run.cancelled {
            return Err(LocalError::Cancelled);
        }
        if let (true, Some(deadline)) = (run.over.load(Ordering::Relaxed), options.deadline) {
            return Err(LocalError::DeadlineExceeded(deadline));
        }
        if passes.is_last() {
            return run.finish();
        }
        let (results, failures) = run.take_pass();
        let began = Instant::now();
        let span = tracing::info_span!(name::CROSS_SECTION, { attribute::STEP } = i64::from(run.number) + 1);
        span.in_scope(|| passes.advance(results, &failures, options.allow_partial))?;
        run.report.cross_ms += ms_since(began);
        run.number += 1;
    }
}

/// Brings what a step reads of a segment to this machine.
fn fetch(
    source: &ScanSource,
    options: LocalOptions,
    (segment, step): (u32, ScanStep),
    input: &StepInputV1,
) -> Result<FetchedGroup, MarketError> {
    if options.no_prefetch {
        return Ok(FetchedGroup::Here);
    }
    let (columns, newest) = source.reads_of(segment, step, input);
    let newest = newest.filter(|_| !options.whole_histories);
    source.dataset.fetch_group(segment, &Reads { columns: &columns, adjustment: &source.adjustment, newest })
}

/// A shard to run on the pool.
struct Shard {
    attempt: AttemptId,
    segments: Vec<u32>,
    span: tracing::Span,
    timeline: Timeline,
    asked: Asked,
}

/// Runs one shard on the pool; reports the outcome of each segment, then the end of the shard.
fn run_shard(shard: Shard, prepared: &PreparedScan, work: &Work<'_>, over: &AtomicBool, sender: &Sender<ThreadEvent>) {
    let Shard { attempt, segments, span, timeline, asked } = shard;
    let values = prepared.plan.columns.len() as u64 + 1;
    let run_one = |sender: &mut Sender<ThreadEvent>, segment: u32| {
        let _entered = span.enter();
        let started = Instant::now();
        timeline.begin();
        let (symbols, bars) = prepared.size_of(segment);
        let bytes = bars * values * size_of::<f64>() as u64;
        let mut record =
            SegmentRecord { cache: Some(CacheLevel::Disk), symbols, bars, bytes, ..SegmentRecord::default() };
        // A panic is a mistake of this program; it costs the segment, not the scan.
        let result = catch_unwind(AssertUnwindSafe(|| (work.execute)(segment, &mut record.stages)))
            .unwrap_or_else(|_| Err((ErrorKind::Permanent, "internal error: the evaluation panicked".to_owned())));
        record.failed = result.is_err();
        let timings = timeline.take(segment, &record).map(Box::new);
        // Fails only when the run is over; the result is then not needed.
        let _ = sender.send(ThreadEvent::Segment { attempt, segment, result, busy_ms: ms_since(started), timings });
    };
    prefetch::ahead(&prepared.dataset, &segments, work.fetch, |order| {
        segments.par_iter().for_each_with(sender.clone(), |sender, _| {
            if let (false, Some(segment)) = (over.load(Ordering::Relaxed), order.begin()) {
                run_one(sender, segment);
            }
        });
    });
    timeline.finish(&span, asked);
    let _ = sender.send(ThreadEvent::End { attempt });
}

/// Executes one segment of the current step.
type Execute<'a> = dyn Fn(u32, &mut Stages) -> Result<SegmentResult, (ErrorKind, String)> + Sync + 'a;

/// Brings what one segment reads in the current step to this machine.
type Fetch<'a> = dyn Fn(u32) -> Result<FetchedGroup, MarketError> + Sync + 'a;

/// What threads do with the segments of a step.
struct Work<'a> {
    execute: &'a Execute<'a>,
    fetch: &'a Fetch<'a>,
}

/// Starts a shard: attempt, segments, and the time after which it counts as slow.
type Start<'a> = dyn Fn(AttemptId, Vec<u32>, Option<Duration>) + 'a;

/// State of one run; belongs to the thread that called [`run`].
struct Run<'a> {
    prepared: &'a PreparedScan,
    progress: &'a dyn Progress,
    started: Instant,
    scheduler: Scheduler,
    options: LocalOptions,
    step: ScanStep,
    /// Index of the scan's current step, from 0.
    number: u32,
    /// Start of the run.
    began: Instant,
    /// The scheduler's scan id of the current step; each step has its own.
    scan: u64,
    /// The result that is being reported to the scheduler.
    held: Option<(SegmentResult, SegmentRun)>,
    results: Vec<SegmentResult>,
    failures: Vec<FailedSegment>,
    /// Message of the last failed attempt, by segment.
    messages: BTreeMap<u32, String>,
    /// Set once results are no longer awaited, because the deadline has passed.
    over: Arc<AtomicBool>,
    /// Whether its caller cancelled it.
    cancelled: bool,
    report: RunReport,
}

impl<'a> Run<'a> {
    fn new(prepared: &'a PreparedScan, options: LocalOptions, threads: usize, progress: &'a dyn Progress) -> Self {
        // There is no other worker that could take over slow work.
        let limits = Limits { attempt_timeout_ms: u64::MAX, ..Limits::default() };
        let mut scheduler = Scheduler::new(limits, 0);
        scheduler.step(Event::WorkerJoined { worker: WORKER, host: WORKER, class: CLASS, slots: threads }, 0);
        let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        Self {
            prepared,
            progress,
            started: Instant::now(),
            scheduler,
            options,
            step: ScanStep { stage: 0, kind: trawl_worker::StepKind::Values },
            number: 0,
            began: Instant::now(),
            scan: 0,
            held: None,
            results: Vec::with_capacity(prepared.segments.len()),
            failures: Vec::new(),
            messages: BTreeMap::new(),
            over: Arc::default(),
            cancelled: false,
            report: RunReport {
                mode: "embedded".to_owned(),
                precision: prepared.identity.precision.clone(),
                as_of_shown: prepared.shown_bars(),
                zone: prepared.zone(),
                warnings: prepared.warnings.clone(),
                backend: prepared.identity.backend.clone(),
                threads: count(threads),
                segments: count(prepared.segments.len()),
                symbols: prepared.symbol_count() as u64,
                bars: prepared.bar_count(),
                sharing: sharing_of(&prepared.plan),
                trace: spans::trace_id(&tracing::Span::current()).unwrap_or_default(),
                ..RunReport::default()
            },
        }
    }

    /// Runs every segment through one step.
    fn pass(&mut self, pool: &rayon::ThreadPool, step: ScanStep, work: &Work<'_>, cancel: &dyn Cancel) {
        (self.step, self.began) = (step, Instant::now());
        self.scan += 1;
        let seat = WorkerSeat {
            worker: WORKER,
            key: name_key(WORKER_NAME),
            device: false,
            capacity: 1,
            holds: Holdings::default(),
        };
        let affinity = name_key(&self.prepared.identity.dataset);
        let spec = match self.options.shards {
            // A shard costs nothing here, and several of them show progress.
            ShardSpec::Automatic => ShardSpec::Count(SHARDS_PER_WORKER as u32),
            spec => spec,
        };
        let shards = plan_shards(&self.prepared.segment_costs(), &[seat], spec, affinity);
        self.report.shards = u32::try_from(shards.len()).unwrap_or(u32::MAX);
        self.progress.accepted(self.prepared.segments.len(), self.prepared.symbol_count());
        let parent = tracing::Span::current();
        let (sender, receiver) = channel();
        pool.in_place_scope(|scope| {
            let over = Arc::clone(&self.over);
            let (prepared, number) = (self.prepared, self.number);
            let is_on_device = prepared.identity.backend == trawl_kernels::cuda::BACKEND_CUDA;
            let backend = if is_on_device { trawl_kernels::cuda::BACKEND_CUDA } else { trawl_kernels::BACKEND_CPU };
            let start = |attempt: AttemptId, segments: Vec<u32>, slow_after: Option<Duration>| {
                let span = tracing::info_span!(
                    parent: &parent,
                    name::SHARD,
                    { attribute::ATTEMPT } = spans::number(attempt),
                    { attribute::WORKER } = WORKER_NAME,
                    { attribute::STEP } = i64::from(number) + 1,
                    { attribute::SHARD } = segments.first().copied().map(i64::from),
                );
                let timeline = Timeline::new(Instant::now(), segments.len(), backend);
                // Whoever computes in a process of their own looks at this one scan.
                let asked = Asked { slow_after, stages: true, ..Asked::default() };
                let shard = Shard { attempt, segments, span, timeline, asked };
                let (sender, over) = (sender.clone(), Arc::clone(&over));
                scope.spawn(move |_| run_shard(shard, prepared, work, &over, &sender));
            };
            let deadline_ms = self.options.deadline.map(|d| u64::try_from(d.as_millis()).unwrap_or(u64::MAX));
            // Without the segments' symbols, which are only needed for bisection: in embedded mode a segment can only
            // kill the process itself.
            let request = Request { shards, class: CLASS, deadline_ms, ..Request::default() };
            self.event(Event::Submitted { scan: self.scan, request }, &start);
            while !self.scheduler.is_idle() {
                if cancel.cancelled() {
                    // Threads see it before their next segment; the scope waits for those that have begun.
                    self.cancelled = true;
                    self.over.store(true, Ordering::Relaxed);
                    break;
                }
                match receiver.recv_timeout(TICK) {
                    Ok(event) => self.hear(event, &start),
                    Err(RecvTimeoutError::Timeout) => self.event(Event::Tick, &start),
                    // Unreachable: `sender` lives as long as the loop.
                    Err(RecvTimeoutError::Disconnected) => break,
                }
            }
        });
        if self.cancelled {
            return;
        }
        // All threads are done: drain the ends of their shards.
        while let Ok(event) = receiver.try_recv() {
            self.hear(event, &|_, _, _| {});
        }
    }

    /// Takes the results of a step that is not the last.
    fn take_pass(&mut self) -> (Vec<SegmentResultV2>, Vec<FailedSegment>) {
        self.messages.clear();
        // Failures that are properties of the snapshot occur again in the last step.
        self.report.failed.retain(|f| !is_of_snapshot(f.kind));
        let step = |result| match result {
            SegmentResult::Step(result) => Some(result),
            SegmentResult::Rows(_) => None,
        };
        let results = std::mem::take(&mut self.results).into_iter().filter_map(step).collect();
        (results, std::mem::take(&mut self.failures))
    }

    fn hear(&mut self, event: ThreadEvent, start: &Start<'_>) {
        match event {
            ThreadEvent::Segment { attempt, segment, result, busy_ms, timings } => {
                if let Some(timings) = timings
                    && let Some(run) = self.report.run_of(attempt)
                {
                    run.timings = Some(ShardTimes::from(*timings));
                }
                let checked = result.and_then(|result| match self.prepared.check_step(self.step, &result) {
                    Ok(()) => Ok(result),
                    Err(message) => Err((ErrorKind::Permanent, message)),
                });
                match checked {
                    Ok(result) => {
                        let worker = WORKER_NAME.to_owned();
                        let symbols = match &result {
                            SegmentResult::Rows(columns) => columns.view().map_or(0, |view| view.len() as u64),
                            SegmentResult::Step(_) => 0,
                        };
                        let (first, load_ms, resident) = (0, None, false);
                        let run = SegmentRun { segment, first, attempt, worker, busy_ms, load_ms, symbols, resident };
                        // There is one worker: no result is compared with another one.
                        let digest = [0; 32];
                        self.held = Some((result, run));
                        let (scan, piece) = (self.scan, whole(segment));
                        self.event(Event::PieceDone { scan, attempt, host: WORKER, piece, digest }, start);
                    }
                    Err((kind, message)) => {
                        self.messages.insert(segment, message);
                        self.event(Event::PieceFailed { attempt, piece: whole(segment), kind }, start);
                    }
                }
            }
            ThreadEvent::End { attempt } => {
                let ended_ms = ms_since(self.started);
                if let Some(run) = self.report.run_of(attempt) {
                    (run.ended_ms, run.ending) = (Some(ended_ms), "done".to_owned());
                }
                self.event(Event::AttemptEnded { attempt }, start);
            }
        }
    }

    fn event(&mut self, event: Event, start: &Start<'_>) {
        let now_ms = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        let mut checked = Vec::new();
        for command in self.scheduler.step(event, now_ms) {
            match command {
                // The copy found damaged is this process's own.
                Command::Check { scan, piece } => checked.push(Event::Checked { scan, piece, found: Check::Damaged }),
                Command::Dispatch { attempt, pieces, purpose, .. } => {
                    let segments: Vec<u32> = pieces.iter().map(|p| p.segment).collect();
                    let slow_after = self.scheduler.slow_after_ms(attempt).map(Duration::from_millis);
                    self.report.shard_runs.push(ShardRun {
                        attempt,
                        worker: WORKER_NAME.to_owned(),
                        segments: segments.clone(),
                        started_ms: ms_since(self.started),
                        ended_ms: None,
                        ending: "running".to_owned(),
                        purpose: purpose.into(),
                        step: self.number,
                        queued_ms: ms_since(self.began),
                        slow_after_ms: slow_after.map(ms_of),
                        timings: None,
                    });
                    start(attempt, segments, slow_after);
                }
                Command::Accept { piece: Piece { segment, .. }, .. } => {
                    if let Some((result, run)) = self.held.take() {
                        self.results.push(result);
                        self.report.segment_runs.push(run);
                    }
                    self.progress.segment_ended(segment, self.ended());
                }
                Command::Fail { piece: Piece { segment, .. }, kind, attempts, .. } => {
                    let message = self.messages.remove(&segment).unwrap_or_else(|| gave_up(attempts));
                    self.progress.segment_failed(segment, kind, &message);
                    let symbols = self.prepared.symbols_of(segment);
                    self.failures.push(FailedSegment { segment, symbols, kind, message: message.clone() });
                    let (worker, symbols) = (String::new(), Vec::new());
                    self.report.failed.push(FailedRun { segment, kind, message, worker, attempts, symbols });
                    self.progress.segment_ended(segment, self.ended());
                }
                Command::End { outcome: Outcome::DeadlineExceeded, .. } => self.over.store(true, Ordering::Relaxed),
                // There is one worker, which is never lost or contradicted; the end is detected by `is_idle`.
                Command::Stop { .. }
                | Command::End { .. }
                | Command::Replace { .. }
                | Command::Contest { .. }
                | Command::Distrust { .. }
                | Command::Quarantine { .. }
                | Command::Doubt { .. } => {}
            }
        }
        self.held = None;
        checked.into_iter().for_each(|event| self.event(event, start));
    }

    fn ended(&self) -> usize {
        self.results.len() + self.failures.len()
    }

    fn finish(mut self) -> Result<(Answer, RunReport), LocalError> {
        let partial = incomplete(&self.report.failed);
        if let (Some(failure), false) = (&partial, self.options.allow_partial) {
            return Err(LocalError::Incomplete(failure.clone()));
        }
        self.report.run_ms = ms_since(self.started);
        let started = Instant::now();
        let span = tracing::info_span!(name::MERGE, { attribute::SEGMENTS } = spans::number(self.results.len() as u64));
        let answer = span.in_scope(|| merge(self.prepared, self.results, self.failures, partial.is_some()))?;
        self.report.merge_ms = ms_since(started);
        self.report.close();
        Ok((answer, self.report))
    }
}

/// A segment as a piece; its symbols are not counted here.
fn whole(segment: u32) -> Piece {
    Piece { segment, first: 0, count: 1 }
}

/// A time limit, formatted as users write it.
pub(crate) fn seconds(time: Duration) -> String {
    format!("{} s", time.as_secs_f64())
}

/// The message for a segment whose attempts ended without an error message.
pub(crate) fn gave_up(attempts: u32) -> String {
    format!("gave up after {attempts} attempts")
}
