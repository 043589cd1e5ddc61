//! The scans of a coordinator: their owners, their progress and their events.
//!
//! `log` holds the events that clients read, `memory` and `spool` limit what is held of them, `admission` limits running
//! scans, `environment` is what the scans of a term share, `run_scan` takes one scan from its request to its end, `prepare_scan` compiles it, `running` holds its
//! intermediate state, `record` persists it, `read_back` reads answers again, `stored_answer` also computes what is lost of them,
//! `known_answers` remembers whose they are, `answers` gives them to other scans, `earlier` gives them to clients of earlier releases, `document`
//! keeps what was asked, `ended_scans` knows which ended scan leaves memory next.

mod admission;
mod answers;
mod document;
mod earlier;
mod ended_scans;
mod environment;
mod known_answers;
mod known_scans;
mod log;
mod memory;
mod outcome;
mod prepare_scan;
mod read_back;
mod record;
mod run_scan;
mod running;
mod spool;
mod stored_answer;

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use tokio::sync::watch;
use trawl_market::AsOf;
use trawl_security::{Caller, Right};
use trawl_telemetry::AUDIT_TARGET;
use trawl_telemetry::metrics::catalogue::coordinator::{Origin, SCANS_ACCEPTED, ScanEnd};
use trawl_terms::Priority;
use trawl_wire::limits::bounded_reason;
use trawl_wire::pb::scan_event::Event;
use trawl_wire::{Failure, pb};

use crate::durable::{EndOutcome, Recorded, RequestMark};
use crate::planner::ShardSpec;
use crate::prepare::PreparedScan;
use crate::report::{RunReport, SegmentRun};
use crate::worker_class::WorkerClass;
pub(crate) use admission::Admission;
pub(crate) use document::Document;
use document::KeptDocument;
pub(crate) use earlier::as_before;
pub(crate) use environment::{Environment, TakenOver};
pub(crate) use known_scans::{Known, Scans};
use log::ScanLog;
pub(crate) use log::{Cursor, payload_bytes};
pub(crate) use memory::{DECODED_BYTES_PER_BYTE, ScanMemory};
pub use memory::{DOCUMENTS_BYTES_MAX, RESULTS_MEMORY_BYTES, WORKING_BYTES_MAX};
pub(crate) use record::Archive;
pub(crate) use run_scan::drive;
pub(crate) use spool::Spool;
pub use spool::{SPOOL_BYTES, SpoolError};
pub(crate) use stored_answer::{load, report_of};

/// Default maximum of running scans; further ones wait.
pub const SCANS_MAX: usize = 64;
/// Default maximum of waiting scans; further ones are rejected with `RESOURCE_EXHAUSTED`.
pub const SCANS_WAITING_MAX: usize = 4096;
/// Maximum bytes of one scan's results.
pub const ANSWER_BYTES_MAX: usize = 512 << 20;
/// Estimated bytes of a shard's run in a report, including its stages.
const SHARD_RUN_BYTES: usize = 1024;
/// Maximum characters of a scan's condition in lists.
const CONDITION_CHARS_MAX: usize = 120;

/// A client's request.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    /// The only backend to take, if the user names one.
    pub backend: Option<String>,
    pub as_of: AsOf,
    pub shards: ShardSpec,
    pub priority: Priority,
    /// How long it may take; `deadline` is the resulting time.
    pub allowed: Option<Duration>,
    pub deadline: Option<Instant>,
    pub allow_partial: bool,
    /// Whether it is computed even if its answer is known.
    pub fresh: bool,
    /// Whether the stages of every shard are in its trace.
    pub profile: bool,
    /// Whether it is recorded.
    pub durable: bool,
    /// Names of the datasets that its caller may scan; all if empty.
    pub datasets: Vec<String>,
    pub received: Instant,
    pub submitted_us: i64,
    /// The client's idempotency key.
    pub mark: Option<RequestMark>,
}

/// The progress of a scan.
#[derive(Debug, Clone, Default)]
pub(crate) struct Stand {
    pub state: pb::ScanState,
    pub generation: u32,
    /// Current step, from 1.
    pub step: u32,
    pub segments: u32,
    pub segments_ended: u32,
    pub dataset: String,
    pub condition: String,
    pub ended_us: Option<i64>,
    pub failure: Option<Failure>,
    pub answer_digest: String,
    /// Number of symbols with status `failed`.
    pub failed_symbols: u64,
    /// The class whose workers it waits for.
    pub waits_for: String,
    /// Whether it was accepted.
    pub accepted: bool,
    /// Whether it is recorded.
    pub recorded: bool,
}

/// Where a scan runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Placement {
    /// The class of all its attempts.
    pub class: WorkerClass,
    /// The plan of workers of another build; `None` if it was not asked for yet, or is this build's own.
    pub plan: Option<String>,
}

/// One scan.
#[derive(Debug)]
pub(crate) struct Scan {
    pub name: String,
    /// Who submitted it.
    pub owner: String,
    pub asked: Asked,
    document: KeptDocument,
    /// Held while its events are read from the result store.
    loading: tokio::sync::Mutex<()>,
    /// How it came to this coordinator.
    origin: Origin,
    pub log: ScanLog,
    /// Set once, when it is cancelled.
    cancelled: watch::Sender<bool>,
    /// Set once, when it has ended; for a recorded scan, when its end is recorded.
    over: watch::Sender<bool>,
    stand: Mutex<Stand>,
    /// Where it runs; `None` until workers of a class that it may run in serve.
    placement: Mutex<Option<Placement>>,
    /// Classes whose workers cannot run its document.
    unfit: Mutex<Vec<WorkerClass>>,
    /// The report of the run so far. For a finished scan it is in the log's last event.
    report: Mutex<RunReport>,
}

impl Scan {
    pub fn new(name: String, owner: String, (asked, document): (Asked, Document), memory: &ScanMemory) -> Self {
        let stand = Stand { state: pb::ScanState::Queued, ..Stand::default() };
        Self {
            name,
            owner,
            asked,
            document: KeptDocument::new(document, memory),
            loading: tokio::sync::Mutex::default(),
            origin: Origin::Client,
            log: ScanLog::new(memory),
            cancelled: watch::Sender::new(false),
            over: watch::Sender::new(false),
            stand: Mutex::new(stand),
            placement: Mutex::default(),
            unfit: Mutex::default(),
            report: Mutex::default(),
        }
    }

    /// The report of the run so far.
    fn report(&self) -> MutexGuard<'_, RunReport> {
        self.report.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Drops the report of a finished scan: its last event has it as JSON.
    fn forget_report(&self) {
        *self.report() = RunReport::default();
    }

    /// The report as JSON; for a finished scan, that of its last event. `None` if there is none.
    pub fn report_json(&self) -> Option<String> {
        if let Some(summary) = self.log.summary() {
            return Some(summary.report_json);
        }
        let report = self.report();
        (!report.mode.is_empty()).then(|| serde_json::to_string(&*report).unwrap_or_default())
    }

    /// Estimated bytes of its report.
    fn report_bytes(&self) -> usize {
        let report = self.report();
        report.shard_runs.len() * SHARD_RUN_BYTES + report.segment_runs.len() * size_of::<SegmentRun>()
    }

    /// Where it runs; `None` while no worker serves a class that it may run in.
    fn placement(&self) -> Option<Placement> {
        self.placement.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The backend on which it runs, or has to; `default` is that of scans whose user names none.
    pub fn backend(&self, default: Option<&str>) -> Option<String> {
        let placed = self.placement().map(|placement| placement.class.backend);
        placed.or_else(|| self.asked.backend.clone()).or_else(|| default.map(str::to_owned))
    }

    fn place(&self, placement: Option<Placement>) {
        *self.placement.lock().unwrap_or_else(PoisonError::into_inner) = placement;
    }

    /// Classes whose workers cannot run its document.
    fn unfit(&self) -> MutexGuard<'_, Vec<WorkerClass>> {
        self.unfit.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn stand(&self) -> MutexGuard<'_, Stand> {
        self.stand.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Cancels it, unless it has ended.
    pub fn cancel(&self) {
        if !self.has_ended() {
            self.cancelled.send_replace(true);
        }
    }

    /// When it has to be done; one that has ended may be read at any time.
    fn deadline(&self) -> Option<Instant> {
        self.asked.deadline.filter(|_| !self.has_ended())
    }

    /// Completes when the scan is cancelled.
    pub async fn until_cancelled(&self) {
        // The sender lives as long as this scan.
        let _ = self.cancelled.subscribe().wait_for(|cancelled| *cancelled).await;
    }

    /// Completes when the scan has ended.
    pub async fn until_ended(&self) {
        // The sender lives as long as this scan.
        let _ = self.over.subscribe().wait_for(|over| *over).await;
    }

    pub fn has_ended(&self) -> bool {
        matches!(self.stand().state, pb::ScanState::Done | pb::ScanState::Failed | pb::ScanState::Cancelled)
    }

    /// A scan of an earlier leader, running or ended.
    pub fn of_record(recorded: &Recorded, asked: (Asked, Document), memory: &ScanMemory) -> Option<Self> {
        let header = recorded.header.as_ref()?;
        let mut scan = Self::new(header.scan.clone(), header.owner.clone(), asked, memory);
        scan.origin = Origin::Predecessor;
        let plan = Some(header.plan.clone());
        scan.place(header.placed.then(|| Placement { class: WorkerClass::of(&header.class), plan }));
        {
            let mut stand = scan.stand();
            (stand.generation, stand.recorded) = (header.generation, true);
            (stand.dataset, stand.segments) = (header.dataset.clone(), header.segments);
            if let Document::Here(json) = scan.document.get() {
                stand.condition = condition_of(&json);
            }
        }
        if let Some(end) = &recorded.end {
            let failed = |kind, message: &str| Failure::new(kind, message);
            match &end.outcome {
                EndOutcome::Complete { answer_digest, failed_symbols, .. } => {
                    scan.ended(Ok((answer_digest, *failed_symbols)));
                    scan.log.put_away();
                }
                EndOutcome::Failed { kind, message } => scan.ended(Err(&failed(*kind, message))),
                EndOutcome::Cancelled => {
                    scan.ended(Err(&failed(trawl_wire::ErrorKind::Cancelled, "the scan was cancelled")));
                }
            }
            let mut stand = scan.stand();
            (stand.ended_us, stand.generation, stand.segments_ended) =
                (Some(end.ended_us), end.generation, header.segments);
            if let Some(failure) = stand.failure.clone() {
                let failure = Some(failure.into());
                drop(stand);
                scan.log.close(Event::Refused(pb::Refused { failure, diagnostics_json: String::new() }));
            }
        }
        Some(scan)
    }

    /// Fills in what is known once the scan is prepared.
    fn describe(&self, prepared: &PreparedScan) {
        let mut stand = self.stand();
        stand.dataset = prepared.dataset_reference();
        stand.condition = cut(&prepared.document.condition);
        stand.segments = u32::try_from(prepared.segments.len()).unwrap_or(u32::MAX);
    }

    fn runs(&self, step: u32, segments_ended: u32) {
        let mut stand = self.stand();
        if stand.ended_us.is_none() {
            // One that has ended may be computed again, and is done all the same.
            stand.state = pb::ScanState::Running;
        }
        (stand.step, stand.segments_ended) = (step, segments_ended);
    }

    pub fn generation(&self) -> u32 {
        self.stand().generation
    }

    fn begin_generation(&self, generation: u32) {
        self.stand().generation = generation;
        self.log.restart(generation);
    }

    /// Marks it as accepted.
    fn accepted(&self) {
        let before = std::mem::replace(&mut self.stand().accepted, true);
        if !before {
            SCANS_ACCEPTED.of(self.origin).inc();
            let Stand { dataset, segments, .. } = self.stand().clone();
            let (caller, durable) = (&self.owner, self.asked.durable);
            tracing::info!(target: AUDIT_TARGET, scan = self.name, caller, dataset, segments, durable, "scan accepted");
        }
    }

    /// Writes one log line for each scan that ends.
    fn tell_end(&self, end: ScanEnd) {
        let Stand { dataset, failed_symbols, failure, answer_digest: digest, .. } = self.stand().clone();
        let (caller, seconds) = (&self.owner, self.asked.received.elapsed().as_secs_f64());
        let why = failure.map(|failure| failure.message).unwrap_or_default();
        let outcome = end.value();
        tracing::info!(target: AUDIT_TARGET, scan = self.name, caller, dataset, outcome, failed_symbols, seconds, digest, why, "scan ended");
    }

    fn was_accepted(&self) -> bool {
        let stand = self.stand();
        stand.accepted || stand.recorded
    }

    /// Marks it as recorded: from now on its end has to be recorded as well.
    fn recorded(&self) {
        self.stand().recorded = true;
    }

    fn is_recorded(&self) -> bool {
        self.stand().recorded
    }

    /// Sets the class it waits for because no worker serves it; `None` once one does.
    fn waits_for(&self, class: Option<String>) {
        match &class {
            Some(class) => tracing::warn!(scan = self.name, class, "this scan waits for a worker of its class"),
            None => tracing::info!(scan = self.name, "this scan goes on"),
        }
        self.stand().waits_for = class.unwrap_or_default();
    }

    /// Marks it as ended, with the answer's digest and the number of failed symbols, or with the failure.
    fn ended(&self, outcome: Result<(&str, u64), &Failure>) {
        let mut stand = self.stand();
        // Waiting tasks read the outcome after this.
        self.over.send_replace(true);
        stand.ended_us = Some(now_us());
        stand.waits_for.clear();
        match outcome {
            Ok((digest, failed_symbols)) => {
                (stand.state, stand.answer_digest) = (pb::ScanState::Done, digest.to_owned());
                stand.failed_symbols = failed_symbols;
                *self.report() = RunReport::default();
            }
            Err(failure) => {
                let cancelled = failure.kind == trawl_wire::ErrorKind::Cancelled;
                stand.state = if cancelled { pb::ScanState::Cancelled } else { pb::ScanState::Failed };
                stand.failure = Some(failure.clone());
            }
        }
    }

    /// Its public description.
    pub fn info(&self) -> pb::ScanInfo {
        let stand = self.stand().clone();
        let priority = pb::Priority::from(self.asked.priority);
        pb::ScanInfo {
            scan_id: self.name.clone(),
            state: stand.state.into(),
            owner: self.owner.clone(),
            generation: stand.generation,
            durable: self.asked.durable,
            priority: priority.into(),
            submitted_us: self.asked.submitted_us,
            ended_us: stand.ended_us,
            dataset: stand.dataset,
            condition: stand.condition,
            segments: stand.segments,
            segments_ended: stand.segments_ended,
            step: stand.step,
            failure: stand.failure.map(Into::into),
            answer_digest: stand.answer_digest,
            failed_symbols: stand.failed_symbols,
            waits_for: stand.waits_for,
        }
    }
}

/// A condition, cut where it is long.
fn cut(condition: &str) -> String {
    let mut text: String = condition.chars().take(CONDITION_CHARS_MAX).collect();
    if condition.chars().nth(CONDITION_CHARS_MAX).is_some() {
        text.push('…');
    }
    text
}

fn condition_of(document_json: &str) -> String {
    trawl_plan::ScanDocument::from_json(document_json).map(|d| cut(&d.condition)).unwrap_or_default()
}

/// Whether `caller` may see scans of `owner`.
pub(crate) fn may_see(caller: &Caller, owner: &str) -> bool {
    caller.name == owner || caller.rights.iter().any(|right| right.covers(Right::ReadAll))
}

/// Whether `caller` may cancel scans of `owner`.
pub(crate) fn may_end(caller: &Caller, owner: &str) -> bool {
    caller.name == owner || caller.rights.iter().any(|right| right.covers(Right::Admin))
}

/// Microseconds since 1970 by this machine's clock; for display, never for decisions.
pub(crate) fn now_us() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}

/// A failure with a message of bounded length.
pub(crate) fn failure(kind: trawl_wire::ErrorKind, message: impl Into<String>) -> Failure {
    Failure::new(kind, bounded_reason(message.into()))
}
