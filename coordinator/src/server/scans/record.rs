//! Persists a scan: its acceptance, its results, its end; and reads back scans of earlier terms.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use prost::Message as _;
use tokio::task::JoinHandle;
use trawl_cluster_store::{Backoff, ControlError, ControlStore};
use trawl_market::AsOf;
use trawl_plan::ColumnKind;
use trawl_wire::pb::scan_event::Event;
use trawl_wire::{ErrorKind, Failure, SegmentResult, envelope, pb};

use super::memory::{MemoryPermit, ScanMemory};
use super::outcome::{Answered, Ended};
use super::{Asked, Document, Scan, failure, now_us};
use crate::durable::ledger::{Ending, Written};
use crate::durable::records::{DocumentPlace, Level, sha256_hex};
use crate::durable::writer::{HeldUntilStored, WriterLimits, put_patiently};
use crate::durable::{
    Acceptance, AnswerEnds, Decision, End, EndOutcome, Header, Ledger, LedgerError, Named, Outcome, Recorded,
    ResultStore, Situation, StoreError, Stored, Writer, decide,
};
use crate::prepare::PreparedScan;
use crate::server::record_budget::RecordBudget;

/// Wait before an unconfirmed write to the control store is retried; doubles up to [`BACK_OFF_MAX`].
const BACK_OFF: Duration = Duration::from_millis(100);
/// Longest wait.
const BACK_OFF_MAX: Duration = Duration::from_secs(5);
/// Timeout of recording an acceptance.
const ACCEPT_TIMEOUT: Duration = Duration::from_secs(15);

/// Records of one term, in any control store.
pub(crate) type Records = Ledger<Arc<dyn ControlStore>>;

/// The stores in which scans are persisted.
#[derive(Clone)]
pub(crate) struct Archive {
    pub ledger: Records,
    pub results: ResultStore,
    /// Whether there is room for another record.
    pub room: RecordBudget,
}

/// Stored outcomes, by step and segment, until the steps that they belong to begin.
#[derive(Debug, Default)]
pub(super) struct StoredSteps {
    steps: BTreeMap<u32, BTreeMap<u32, Outcome>>,
    /// The ends of the answer, if all of it is stored.
    pub ends: Option<AnswerEnds>,
    /// The share of memory of all of them.
    permit: Option<MemoryPermit>,
}

impl StoredSteps {
    /// Those of a step.
    pub fn take(&mut self, step: u32) -> BTreeMap<u32, Outcome> {
        let outcomes = self.steps.remove(&step).unwrap_or_default();
        if self.steps.is_empty() {
            self.permit = None;
        }
        outcomes
    }
}

fn of_ledger(error: &LedgerError) -> Failure {
    failure(ErrorKind::Retryable, format!("the scan cannot be recorded: {error}; --ephemeral scans are not recorded"))
}

/// The header of a new scan.
pub(super) fn header_of(scan: &Scan, prepared: &PreparedScan, trace: Option<pb::TraceContext>) -> Header {
    let asked = &scan.asked;
    let deadline_us = asked
        .allowed
        .map(|allowed| asked.submitted_us.saturating_add(i64::try_from(allowed.as_micros()).unwrap_or(i64::MAX)));
    Header {
        scan: scan.name.clone(),
        generation: scan.generation(),
        owner: scan.owner.clone(),
        document: match scan.document.get() {
            Document::Here(json) => DocumentPlace::of(&json),
            // The scan is already recorded; its header is not written again.
            Document::Stored { sha256 } => DocumentPlace::Object { sha256, bytes: 0 },
            Document::Dropped => DocumentPlace::of(""),
        },
        dataset: prepared.dataset_reference(),
        as_of_us: prepared.as_of,
        adjustment: prepared.identity.adjustment.clone(),
        class: prepared.class(),
        placed: scan.placement().is_some(),
        backend: asked.backend.clone(),
        plan: prepared.identity.plan.clone(),
        segments: u32::try_from(prepared.segments.len()).unwrap_or(u32::MAX),
        symbols: prepared.symbol_count() as u64,
        shards: asked.shards.into(),
        priority: Level::from(asked.priority),
        submitted_us: asked.submitted_us,
        deadline_us,
        allow_partial: asked.allow_partial,
        request: asked.mark.clone(),
        trace: trace.map(Into::into),
    }
}

/// A scan's document, read from the result store if it is not in memory.
///
/// # Errors
/// Why it cannot be read.
pub(super) async fn document_of(archive: &Archive, scan: &Scan) -> Result<Arc<str>, Failure> {
    let sha256 = match scan.document.get() {
        Document::Here(json) => return Ok(json),
        Document::Stored { sha256 } => sha256,
        Document::Dropped => return Err(failure(ErrorKind::Permanent, "the scan's document is not kept any more")),
    };
    let bytes = archive.results.named(&scan.name, Named::Document).await.map_err(Failure::from)?;
    let bytes = bytes.ok_or_else(|| failure(ErrorKind::Permanent, "the scan's document is not stored any more"))?;
    if sha256_hex(&bytes) != sha256 {
        return Err(failure(ErrorKind::Permanent, "the scan's document is not the one that was accepted"));
    }
    let json = String::from_utf8(bytes);
    json.map(Arc::from).map_err(|_| failure(ErrorKind::Permanent, "the scan's document is no text"))
}

impl Asked {
    /// Restores a request from a header.
    pub fn of_header(header: &Header) -> (Self, Document) {
        let left_us = header.deadline_us.map(|at| u64::try_from(at.saturating_sub(now_us())).unwrap_or(0));
        let allowed_us =
            header.deadline_us.map(|at| u64::try_from(at.saturating_sub(header.submitted_us)).unwrap_or(0));
        let received = Instant::now();
        let document = match &header.document {
            DocumentPlace::Inline(json) => Document::Here(json.as_str().into()),
            DocumentPlace::Object { sha256, .. } => Document::Stored { sha256: sha256.clone() },
        };
        let asked = Self {
            backend: header.backend.clone(),
            as_of: AsOf::Bar(header.as_of_us),
            shards: header.shards.into(),
            priority: header.priority.into(),
            allowed: allowed_us.map(Duration::from_micros),
            deadline: left_us.and_then(|left| received.checked_add(Duration::from_micros(left))),
            allow_partial: header.allow_partial,
            // What it has of its own is read.
            fresh: true,
            // Not recorded: it affects nothing but the trace.
            profile: false,
            durable: true,
            // Checked when it was accepted.
            datasets: Vec::new(),
            received,
            submitted_us: header.submitted_us,
            mark: header.request.clone(),
        };
        (asked, document)
    }
}

/// An acceptance being recorded.
pub(super) struct Accepting(Option<JoinHandle<Result<Acceptance, LedgerError>>>);

impl Accepting {
    /// Starts to record a scan.
    pub fn start(archive: &Archive, scan: &Arc<Scan>, header: Header) -> Self {
        let (archive, scan) = (archive.clone(), Arc::clone(scan));
        Self(Some(tokio::spawn(async move {
            if let (DocumentPlace::Object { sha256, .. }, Document::Here(json)) =
                (&header.document, scan.document.get())
            {
                let put = || archive.results.put_named(&scan.name, Named::Document, json.as_bytes());
                let stored = put_patiently(&archive.results, &WriterLimits::default(), put).await;
                stored.map_err(|error| {
                    let cause = error.to_string();
                    let endpoints = "the result store".to_owned();
                    LedgerError::Control(ControlError::Unreachable { endpoints, cause })
                })?;
                scan.document.replace(Document::Stored { sha256: sha256.clone() });
            }
            let accepted = archive.ledger.accept(&header).await;
            match &accepted {
                Ok(Acceptance::Accepted) => archive.room.add(),
                Err(LedgerError::Control(ControlError::NoSpace(why))) => archive.room.is_full(why, Instant::now()),
                _ => {}
            }
            accepted
        })))
    }

    /// For a scan that is already recorded, or never will be.
    pub fn none() -> Self {
        Self(None)
    }

    /// Waits until the scan is recorded; it is then visible to clients.
    pub async fn done(&mut self, scan: &Scan) -> Result<(), Ended> {
        if let Some(accepting) = self.0.take() {
            let accepted = match tokio::time::timeout(ACCEPT_TIMEOUT, accepting).await {
                Ok(Ok(accepted)) => accepted,
                Ok(Err(_)) => return Err(failure(ErrorKind::Permanent, "internal error").into()),
                Err(_) => return Err(failure(ErrorKind::Retryable, "the scan could not be recorded in time").into()),
            };
            match accepted.map_err(|error| of_ledger(&error))? {
                Acceptance::Accepted => {}
                Acceptance::Existing(header) => {
                    let message = format!("the same request was accepted before, as scan {}", header.scan);
                    return Err(failure(ErrorKind::Retryable, message).into());
                }
                Acceptance::Conflict { scan } => {
                    let message = format!("the idempotency key belongs to another request, scan {scan}");
                    return Err(failure(ErrorKind::Invalid, message).into());
                }
                Acceptance::NotLeader => return Err(Ended::Over),
            }
            scan.recorded();
        }
        scan.log.show();
        Ok(())
    }
}

/// Persists the outcomes of one generation of a scan.
pub(super) struct Recorder {
    writer: Writer,
    /// The summary of an earlier leader that got as far as that.
    before: Option<pb::Summary>,
}

impl Recorder {
    /// `ends`: those that are stored.
    pub fn new(archive: &Archive, scan: &Scan, ends: Option<&AnswerEnds>) -> Self {
        let (results, ledger) = (archive.results.clone(), archive.ledger.clone());
        let begun = (0, BTreeSet::new());
        let writer = Writer::start(results, ledger, &scan.name, scan.generation(), begun, WriterLimits::default());
        Self { writer, before: ends.and_then(|ends| pb::Summary::decode(&ends.summary[..]).ok()) }
    }

    /// Queues the outcome of a segment; waits while the store is behind. `held` is dropped when it is stored.
    pub async fn segment(
        &self,
        step: u32,
        segment: u32,
        outcome: Outcome,
        held: Option<HeldUntilStored>,
    ) -> Result<(), Failure> {
        self.writer.store(step, Stored { segment, outcome }, held).await
    }

    /// Completes when results cannot be stored, with the reason.
    pub async fn failure(&self) -> Failure {
        self.writer.failure().await
    }

    /// Stores what is needed to return the answer again: all that is left of it, in one object if it is small.
    ///
    /// # Errors
    /// The result store's error.
    pub async fn answer(&self, accepted: &pb::Accepted, summary: pb::Summary) -> Result<pb::Summary, Failure> {
        if let Some(before) = &self.before {
            self.writer.flush().await?;
            return Ok(before.clone());
        }
        let (accepted, encoded) = (accepted.encode_to_vec(), summary.encode_to_vec());
        self.writer.finish(AnswerEnds { accepted, summary: encoded }).await?;
        Ok(summary)
    }
}

/// Records the end of a scan, retrying without limit.
///
/// # Errors
/// The term is over: another leader will end the scan.
pub(super) async fn end(archive: &Archive, scan: &str, end: End) -> Result<(), Ended> {
    let mut backoff = Backoff::new(BACK_OFF, BACK_OFF_MAX);
    loop {
        match archive.ledger.end(scan, &end).await {
            Ok(Ending::Recorded) => return Ok(()),
            Ok(Ending::Already(_) | Ending::Unknown | Ending::NotLeader) => return Err(Ended::Over),
            Err(error) => tracing::warn!(scan, %error, "the end of a scan is not recorded yet"),
        }
        backoff.wait().await;
    }
}

/// The end record of a scan.
pub(super) fn end_of(generation: u32, outcome: Result<&Answered, Failure>) -> End {
    let outcome = match outcome {
        Ok(answered) => EndOutcome::Complete {
            answer_digest: answered.summary.answer_digest.clone(),
            failed_symbols: answered.failed_symbols,
            disputed: answered.disputed,
        },
        Err(failure) => failure.into(),
    };
    End { generation, outcome, ended_us: now_us() }
}

/// Reads what is stored of a scan, and decides how to resume it.
pub(super) async fn resume(
    (archive, memory): (&Archive, &ScanMemory),
    scan: &Arc<Scan>,
    recorded: &Recorded,
    prepared: &PreparedScan,
) -> Result<StoredSteps, Ended> {
    let Some(header) = &recorded.header else { return Err(Ended::Over) };
    let bytes = archive.results.stored_bytes(&scan.name, header.generation).await.map_err(Failure::from)?;
    let permit = memory.load(bytes).await;
    let contents = archive.results.contents(&scan.name, header.generation).await.map_err(Failure::from)?;
    let stored: BTreeMap<u32, BTreeSet<u32>> =
        contents.stages.iter().map(|(step, found)| (*step, found.segments.keys().copied().collect())).collect();
    let situation = Situation::Ready {
        class: prepared.class(),
        plan: prepared.identity.plan.clone(),
        segments: prepared.segments.to_vec(),
    };
    match decide(recorded, &stored, &situation, now_us()) {
        Decision::Nothing => Err(Ended::Over),
        Decision::Resume { stage, missing } => {
            tracing::info!(scan = scan.name, stage, missing = missing.len(), "goes on with a scan");
            let steps = contents.stages.into_iter().map(|(step, found)| (step, found.segments)).collect();
            let ends = match contents.ends {
                Some(ends) => Some(ends),
                None => earlier_ends(archive, scan).await?,
            };
            Ok(StoredSteps { steps, ends, permit: Some(permit) })
        }
        Decision::Restart { generation, why } => {
            tracing::warn!(scan = scan.name, generation, why, "begins a scan anew");
            scan.begin_generation(generation);
            let (class, plan) = (prepared.class(), prepared.identity.plan.clone());
            let next = Header { generation, class, placed: true, plan, ..header.clone() };
            match archive.ledger.restart(&next).await.map_err(|error| of_ledger(&error))? {
                Written::Done => Ok(StoredSteps::default()),
                Written::Over | Written::NotLeader => Err(Ended::Over),
            }
        }
        Decision::Fail(failure) | Decision::Later(failure) => Err(failure.into()),
    }
}

/// Reads the records of a scan that begins anew, retrying without limit.
///
/// # Errors
/// The scan is no longer recorded as open: another leader has ended it.
pub(super) async fn read_again(archive: &Archive, scan: &str) -> Result<Recorded, Ended> {
    let mut backoff = Backoff::new(BACK_OFF, BACK_OFF_MAX);
    loop {
        match archive.ledger.get(scan).await {
            Ok(recorded) => return recorded.filter(Recorded::is_open).ok_or(Ended::Over),
            Err(error) => tracing::warn!(scan, %error, "the record of a scan cannot be read yet"),
        }
        backoff.wait().await;
    }
}

/// The report of a scan that has an answer, as JSON.
///
/// # Errors
/// Why it cannot be read.
pub(super) async fn stored_report(archive: &Archive, scan: &Scan) -> Result<String, Failure> {
    let ends = match earlier_ends(archive, scan).await? {
        Some(ends) => Some(ends),
        None => archive.results.ends(&scan.name, scan.generation()).await.map_err(Failure::from)?,
    };
    let summary = ends.and_then(|ends| pb::Summary::decode(&ends.summary[..]).ok());
    let lost = || failure(ErrorKind::Permanent, format!("the report of scan {} is not stored any more", scan.name));
    summary.map(|summary| summary.report_json).ok_or_else(lost)
}

/// The ends of an answer as an earlier release stored them.
async fn earlier_ends(archive: &Archive, scan: &Scan) -> Result<Option<AnswerEnds>, Failure> {
    let generation = scan.generation();
    let named = async |named| match archive.results.named(&scan.name, named).await {
        Err(StoreError::Damaged { .. }) => Ok(None),
        found => found.map_err(Failure::from),
    };
    let Some(summary) = named(Named::Summary(generation)).await? else { return Ok(None) };
    let accepted = named(Named::Accepted(generation)).await?;
    Ok(accepted.map(|accepted| AnswerEnds { accepted, summary }))
}

/// Reads the events of a scan that has ended; `None` if a part of them is not stored any more.
///
/// # Errors
/// Why they cannot be read.
pub(super) async fn reload(
    archive: &Archive,
    scan: &Scan,
    prepared: &PreparedScan,
) -> Result<Option<Vec<Event>>, Failure> {
    let generation = scan.generation();
    let (results, name) = (&archive.results, &scan.name);
    let mut contents = results.contents(name, generation).await.map_err(Failure::from)?;
    let ends = match contents.ends.take() {
        Some(ends) => Some(ends),
        None => earlier_ends(archive, scan).await?,
    };
    let Some(AnswerEnds { accepted, summary }) = ends else { return Ok(None) };
    let (Ok(accepted), Ok(summary)) = (pb::Accepted::decode(&accepted[..]), pb::Summary::decode(&summary[..])) else {
        return Ok(None);
    };
    // The last step returned the answer's rows.
    let last = contents.stages.pop_last().map(|(_, found)| found.segments).unwrap_or_default();
    let is_answer = |outcome: &Outcome| match result_of(outcome) {
        Ok(result) => matches!(result, SegmentResult::Rows(_)),
        Err(_) => matches!(outcome, Outcome::Failed(_)),
    };
    let complete = prepared.segments.iter().all(|segment| last.contains_key(segment));
    if !complete || !last.values().next().is_some_and(is_answer) {
        return Ok(None);
    }
    let mut events = vec![Event::Accepted(accepted)];
    events.extend(last.into_iter().map(|(segment, outcome)| event_of(segment, outcome, generation, prepared)));
    events.push(Event::Summary(summary));
    Ok(Some(events))
}

/// What is still stored of a scan that has ended.
///
/// # Errors
/// Why it cannot be read.
pub(super) async fn stored_steps(archive: &Archive, scan: &Scan, permit: MemoryPermit) -> Result<StoredSteps, Failure> {
    let contents = archive.results.contents(&scan.name, scan.generation()).await.map_err(Failure::from)?;
    let steps = contents.stages.into_iter().map(|(step, found)| (step, found.segments)).collect();
    let ends = match contents.ends {
        Some(ends) => Some(ends),
        None => earlier_ends(archive, scan).await?,
    };
    Ok(StoredSteps { steps, ends, permit: Some(permit) })
}

/// The event for a stored segment.
pub(super) fn event_of(segment: u32, outcome: Outcome, generation: u32, prepared: &PreparedScan) -> Event {
    match outcome {
        Outcome::Result { envelope, digest } => Event::SegmentDone(pb::SegmentDone {
            segment,
            result: Some(envelope),
            digest: digest.to_vec(),
            replaces: false,
            generation,
        }),
        Outcome::Failed(failure) => Event::SegmentFailed(pb::SegmentFailed {
            segment,
            failure: Some(failure.into()),
            symbols: prepared.symbols_of(segment),
            generation,
        }),
    }
}

/// The result in a stored outcome, checked like one from a worker.
pub(super) fn result_of(outcome: &Outcome) -> Result<SegmentResult, Failure> {
    match outcome {
        Outcome::Result { envelope, digest } => envelope::read_checked(envelope, digest).map_err(Failure::from),
        Outcome::Failed(failure) => Err(failure.clone()),
    }
}

/// The first event for clients.
pub(super) fn accepted(scan: &Scan, prepared: &PreparedScan) -> pb::Accepted {
    let (spec, manifest) = (prepared.merge_spec(), &prepared.dataset.manifest);
    pb::Accepted {
        scan_id: scan.name.clone(),
        identity_json: serde_json::to_string(&spec.identity).unwrap_or_default(),
        select: spec.select,
        rank_descending: spec.descending,
        limit: spec.limit,
        segments: u32::try_from(prepared.segments.len()).unwrap_or(u32::MAX),
        symbols: prepared.symbol_count() as u64,
        synthetic: manifest.synthetic,
        timeframe: manifest.timeframe.to_string(),
        points_json: serde_json::to_string(&spec.points).unwrap_or_default(),
        best: spec.best,
        generation: scan.generation(),
        durable: scan.asked.durable,
        time_us: spec.time,
        bar_us: spec.bar,
        // Earlier clients read this.
        conditions: spec.kinds.iter().map(|kind| *kind == ColumnKind::Condition).collect(),
        kinds_json: serde_json::to_string(&spec.kinds).unwrap_or_default(),
        document_json: prepared.document.to_json(),
    }
}
