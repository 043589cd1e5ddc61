//! The intermediate state of one scan: turns the dispatcher's news into events, results and a report.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use trawl_telemetry::names::{attribute, span as name};
use trawl_telemetry::spans;
use trawl_wire::pb::scan_event::Event;
use trawl_wire::{Columns, CrossTimes, ErrorKind, Failure, SegmentResult, SegmentResultV2, Status, envelope, pb};
use trawl_worker::{ScanStep, StepKind};

use super::known_answers::key_of;
use super::memory::{DECODED_BYTES_PER_BYTE, HeldShare, ScanMemory};
use super::outcome::Answered;
use super::record::{Recorder, event_of, result_of};
use super::{ANSWER_BYTES_MAX, Scan};
use crate::bisection_join::BisectionJoin;
use crate::durable::Outcome;
use crate::durable::writer::HeldUntilStored;
use crate::merge::{FailedSegment, digest_of, failed_count};
use crate::prepare::PreparedScan;
use crate::report::{
    FailedRun, RunReport, ShardRun, ShardTimes, incomplete, is_of_snapshot, ms_of, ms_since, sharing_of,
};
use crate::scheduler::{self, Digest, POISONED_MAX};
use crate::server::dispatcher::{News, Submitted};

/// Messages of the dispatcher that are taken before readers of the log are woken.
const NEWS_AT_ONCE: usize = 64;

/// Why a step did not finish.
pub(super) enum Stopped {
    /// The deadline has passed.
    Late,
    Failed(Failure),
    /// The term is over.
    Over,
    /// It begins anew in another class.
    OtherClass,
}

/// What an answer's digest and summary depend on of a segment's rows.
#[derive(Debug, Clone, Copy)]
struct RowsKept {
    digest: Digest,
    /// Rows with status `failed`.
    failed: u64,
}

impl RowsKept {
    fn of(columns: &Columns) -> Result<Self, Failure> {
        let failed = columns.view()?.count(Status::Failed) as u64;
        Ok(Self { digest: columns.digest(), failed })
    }
}

/// See the module documentation.
pub(super) struct RunningScan {
    scan: Arc<Scan>,
    prepared: Arc<PreparedScan>,
    begun: Instant,
    /// The first event for clients.
    head: pb::Accepted,
    /// Persists the outcomes of a durable scan.
    recorder: Option<Recorder>,
    /// Index of the current step, from 0.
    step: u32,
    /// Results of a step that is not the last.
    results: BTreeMap<u32, SegmentResultV2>,
    /// The memory that `results` take.
    decoded: HeldShare,
    /// Results of the last step, which themselves are in the log alone.
    rows: BTreeMap<u32, RowsKept>,
    failures: Vec<FailedSegment>,
    /// Joins parts of bisected segments of the current step.
    glue: BisectionJoin,
    /// Segments whose first result was replaced.
    replaced: BTreeSet<u32>,
    /// Whether the current step returns the answer's rows.
    last: bool,
}

impl RunningScan {
    pub fn new(
        scan: Arc<Scan>,
        prepared: Arc<PreparedScan>,
        head: pb::Accepted,
        recorder: Option<Recorder>,
        (turn, memory): (Duration, &ScanMemory),
    ) -> Self {
        let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let report = RunReport {
            mode: "cluster".to_owned(),
            precision: prepared.identity.precision.clone(),
            as_of_shown: prepared.shown_bars(),
            zone: prepared.zone(),
            warnings: prepared.warnings.clone(),
            backend: prepared.identity.backend.clone(),
            scan: scan.name.clone(),
            segments: count(prepared.segments.len()),
            symbols: prepared.symbol_count() as u64,
            bars: prepared.bar_count(),
            sharing: sharing_of(&prepared.plan),
            prepare_ms: ms_since(scan.asked.received) - ms_of(turn),
            turn_ms: ms_of(turn),
            trace: spans::trace_id(&tracing::Span::current()).unwrap_or_default(),
            ..RunReport::default()
        };
        *scan.report() = report;
        Self {
            scan,
            prepared,
            begun: Instant::now(),
            head,
            recorder,
            step: 0,
            results: BTreeMap::new(),
            decoded: memory.results.share(),
            rows: BTreeMap::new(),
            failures: Vec::new(),
            glue: BisectionJoin::default(),
            replaced: BTreeSet::new(),
            last: true,
        }
    }

    /// Begins step `number`, from 0. `last`: whether it returns the answer's rows. `stored`: outcomes stored by an
    /// earlier leader; values of other times than those that are `wanted` are computed again.
    ///
    /// # Errors
    /// Stored outcomes cannot be kept.
    pub async fn begin(
        &mut self,
        number: u32,
        (step, wanted): (ScanStep, &[CrossTimes]),
        last: bool,
        stored: BTreeMap<u32, Outcome>,
    ) -> Result<(), Failure> {
        (self.step, self.last, self.glue) = (number, last, BisectionJoin::default());
        self.decoded.clear();
        let prepared = Arc::clone(&self.prepared);
        let fits = |result: &SegmentResult| {
            prepared.check_step(step, result).and_then(|()| PreparedScan::check_times(wanted, result)).is_ok()
        };
        for (segment, mut outcome) in stored {
            match result_of(&outcome) {
                Ok(result) if result.segment() == segment && fits(&result) => {
                    outcome = self.hold(result, Some(outcome))?;
                }
                // It runs again.
                Ok(_) => continue,
                Err(failure) if matches!(outcome, Outcome::Failed(_)) => {
                    let Failure { kind, message } = failure;
                    let symbols = self.prepared.symbols_of(segment);
                    let (attempts, none) = (1, Vec::new());
                    self.scan.report().failed.push(FailedRun {
                        segment,
                        kind,
                        message: message.clone(),
                        worker: String::new(),
                        attempts,
                        symbols: none,
                    });
                    self.failures.push(FailedSegment { segment, symbols, kind, message });
                }
                Err(_) => continue,
            }
            if last {
                let generation = self.scan.generation();
                self.scan.log.add_result(event_of(segment, outcome, generation, &self.prepared)).await?;
            }
        }
        self.scan.log.tell();
        self.scan.runs(number + 1, self.ended());
        Ok(())
    }

    /// Begins with the last step, all of whose results are known: see [`Self::keep`].
    ///
    /// # Errors
    /// Those of [`Self::begin`].
    pub async fn begin_last(&mut self) -> Result<(), Failure> {
        let stage = self.last_stage();
        // The times of all stages but the first come before, and the values of all but the last.
        let number = u32::try_from(2 * stage).unwrap_or(u32::MAX);
        self.begin(number, (ScanStep { stage, kind: StepKind::Values }, &[]), true, BTreeMap::new()).await
    }

    /// Takes a result of the last step that is known already, and persists it.
    ///
    /// # Errors
    /// It is not of this scan; it cannot be kept.
    pub async fn keep(&mut self, result: SegmentResult) -> Result<(), Failure> {
        let step = ScanStep { stage: self.last_stage(), kind: StepKind::Values };
        self.prepared.check_step(step, &result).map_err(|why| Failure::new(ErrorKind::Permanent, why))?;
        let segment = result.segment();
        let outcome = self.hold(result, None)?;
        if let Some(recorder) = &self.recorder {
            recorder.segment(self.step, segment, outcome.clone(), None).await?;
        }
        self.log_segment(segment, outcome).await?;
        self.scan.log.tell();
        Ok(())
    }

    /// Takes a result; returns what is logged and stored of it. `came`: in the form of an earlier step, or as it came.
    fn hold(&mut self, result: SegmentResult, came: Option<Outcome>) -> Result<Outcome, Failure> {
        match result {
            SegmentResult::Rows(columns) => {
                let kept = RowsKept::of(&columns)?;
                self.rows.insert(columns.segment(), kept);
                let envelope = match &came {
                    Some(Outcome::Result { envelope, .. }) => envelope::seal_again(&columns, envelope)?,
                    _ => envelope::seal_columns(&columns)?,
                };
                Ok(Outcome::Result { envelope, digest: kept.digest })
            }
            SegmentResult::Step(result) => {
                let outcome = match came {
                    Some(outcome) => outcome,
                    None => {
                        let digest = trawl_wire::segment_digest(&result);
                        Outcome::Result { envelope: envelope::encode(&result)?, digest }
                    }
                };
                self.decoded.add(outcome.payload_bytes() * DECODED_BYTES_PER_BYTE);
                self.results.insert(result.segment, result);
                Ok(outcome)
            }
        }
    }

    fn last_stage(&self) -> usize {
        self.prepared.plan.stages().len() - 1
    }

    /// Records the shards made by the dispatcher.
    pub fn planned(&mut self, submitted: Submitted) {
        self.scan.report().threads = submitted.threads;
        self.scan.report().shards = u32::try_from(submitted.shards).unwrap_or(u32::MAX);
    }

    /// Segments of the current step without an outcome.
    pub fn missing(&self) -> BTreeSet<u32> {
        let failed: BTreeSet<u32> = self.failures.iter().map(|f| f.segment).collect();
        let open = |s: &u32| !self.results.contains_key(s) && !self.rows.contains_key(s) && !failed.contains(s);
        self.prepared.segments.iter().copied().filter(open).collect()
    }

    fn ended(&self) -> u32 {
        u32::try_from(self.results.len() + self.rows.len() + self.failures.len()).unwrap_or(u32::MAX)
    }

    /// Takes the results and failures of a step.
    pub fn take_step(&mut self) -> (Vec<SegmentResultV2>, Vec<FailedSegment>) {
        if !self.last {
            // Failures that are properties of the snapshot occur again in the last step.
            self.scan.report().failed.retain(|f| !is_of_snapshot(f.kind));
        }
        (std::mem::take(&mut self.results).into_values().collect(), std::mem::take(&mut self.failures))
    }

    /// Handles news of the dispatcher until the step ends. `no_worker`: the failure if it ends for lack of workers.
    pub async fn follow(
        &mut self,
        mut inbox: mpsc::UnboundedReceiver<News>,
        no_worker: &Failure,
    ) -> Result<(), Stopped> {
        let mut batch = Vec::with_capacity(NEWS_AT_ONCE);
        loop {
            let taken = match &self.recorder {
                None => inbox.recv_many(&mut batch, NEWS_AT_ONCE).await,
                Some(recorder) => tokio::select! {
                    taken = inbox.recv_many(&mut batch, NEWS_AT_ONCE) => taken,
                    failure = recorder.failure() => return Err(Stopped::Failed(failure)),
                },
            };
            if taken == 0 {
                // The dispatcher ends with the term.
                return Err(Stopped::Over);
            }
            for news in batch.drain(..) {
                if self.hear(news, no_worker).await? {
                    self.scan.log.tell();
                    return Ok(());
                }
            }
            self.scan.log.tell();
        }
    }

    /// Handles one message; whether the step is complete. Readers of the log are woken later.
    async fn hear(&mut self, mut news: News, no_worker: &Failure) -> Result<bool, Stopped> {
        let failure = match news {
            News::End(scheduler::Outcome::Complete { disputed }) => {
                self.scan.report().disputed |= disputed;
                return Ok(true);
            }
            News::End(scheduler::Outcome::DeadlineExceeded) => return Err(Stopped::Late),
            News::End(scheduler::Outcome::Poisoned) => {
                let message = format!("{POISONED_MAX} symbols of this scan kill the workers that evaluate them");
                Failure::new(ErrorKind::Poisoned, message)
            }
            News::End(scheduler::Outcome::NoWorker) => no_worker.clone(),
            News::End(scheduler::Outcome::Cancelled) => Failure::new(ErrorKind::Cancelled, "the scan was cancelled"),
            News::OtherClass => return Err(Stopped::OtherClass),
            _ => {
                let transit = news.take_transit();
                let Some((segment, outcome)) = self.take(news) else { return Ok(false) };
                if let Some(recorder) = &self.recorder {
                    // Given back once the result is stored.
                    let held = transit.map(|transit| Box::new(transit.keep_envelope()) as HeldUntilStored);
                    let stored = recorder.segment(self.step, segment, outcome.clone(), held).await;
                    stored.map_err(Stopped::Failed)?;
                }
                self.log_segment(segment, outcome).await.map_err(Stopped::Failed)?;
                if self.scan.log.answer_bytes() > ANSWER_BYTES_MAX {
                    return Err(Stopped::Failed(too_large()));
                }
                return Ok(false);
            }
        };
        Err(Stopped::Failed(failure))
    }

    /// Adds the event of a segment of the last step to the log, whose readers are woken later.
    async fn log_segment(&mut self, segment: u32, outcome: Outcome) -> Result<(), Failure> {
        if self.last {
            let mut event = event_of(segment, outcome, self.scan.generation(), &self.prepared);
            if let Event::SegmentDone(done) = &mut event {
                // Clients may already have an earlier, wrong result of it.
                done.replaces = self.replaced.contains(&segment);
            }
            self.scan.log.add_result(event).await?;
        }
        self.scan.runs(self.step + 1, self.ended());
        Ok(())
    }

    /// Handles one message; returns the outcome of a segment once it is complete.
    fn take(&mut self, news: News) -> Option<(u32, Outcome)> {
        match news {
            News::Started { attempt, worker, segments, purpose, queued, slow_after } => {
                let run = ShardRun {
                    attempt,
                    worker,
                    segments,
                    started_ms: ms_since(self.begun),
                    ended_ms: None,
                    ending: "running".to_owned(),
                    purpose,
                    step: self.step,
                    queued_ms: ms_of(queued),
                    slow_after_ms: slow_after.map(ms_of),
                    timings: None,
                };
                self.scan.report().shard_runs.push(run);
                None
            }
            News::Timed { attempt, timings } => {
                let mut report = self.scan.report();
                if let Some(run) = report.run_of(attempt) {
                    run.timings = Some(ShardTimes::from(*timings));
                }
                None
            }
            News::Over { attempt, ending } => {
                let ended_ms = ms_since(self.begun);
                // The first ending counts: one that broke is stopped afterwards.
                let mut report = self.scan.report();
                if let Some(run) = report.run_of(attempt).filter(|run| run.ended_ms.is_none()) {
                    (run.ended_ms, run.ending) = (Some(ended_ms), ending);
                }
                None
            }
            News::Result { piece, result, digest, envelope, run, replaces, transit: _ } => {
                if replaces {
                    self.replaced.insert(piece.segment);
                    // The replaced result is not part of the answer.
                    let mut report = self.scan.report();
                    report.segment_runs.retain(|r| (r.segment, r.first) != (run.segment, run.first));
                }
                self.scan.report().segment_runs.push(run);
                if piece == self.prepared.whole(piece.segment) {
                    let came = Outcome::Result { envelope, digest };
                    return Some(self.segment(piece.segment, Ok(result), Some(came)));
                }
                let part = result.into_v2().map_err(Failure::from);
                let whole = self.glue.take(&self.prepared, piece, part, self.last)?;
                let whole = whole.and_then(|whole| SegmentResult::of(whole).map_err(Failure::from));
                Some(self.segment(piece.segment, whole, None))
            }
            News::Failed { piece, failure, attempts, worker } => {
                let (segment, Failure { kind, message }) = (piece.segment, failure.clone());
                let part = piece != self.prepared.whole(segment);
                let symbols = if part { self.prepared.symbols_of_piece(piece) } else { Vec::new() };
                self.scan.report().failed.push(FailedRun { segment, kind, message, worker, attempts, symbols });
                let whole = self.glue.take(&self.prepared, piece, Err(failure), self.last)?;
                let whole = whole.and_then(|whole| SegmentResult::of(whole).map_err(Failure::from));
                Some(self.segment(piece.segment, whole, None))
            }
            News::Contested { segment } => {
                self.scan.report().contested.push(segment);
                None
            }
            News::Quarantined { worker } => {
                self.scan.report().quarantined.push(worker);
                None
            }
            News::Waits(class) => {
                self.scan.waits_for(class);
                None
            }
            News::WorkerLost { worker } => {
                self.scan.report().workers_lost.push(worker);
                None
            }
            News::End(_) | News::OtherClass => None,
        }
    }

    /// Completes a segment. `came`: its outcome as it arrived, if it did in one piece.
    fn segment(
        &mut self,
        segment: u32,
        whole: Result<SegmentResult, Failure>,
        came: Option<Outcome>,
    ) -> (u32, Outcome) {
        match whole.and_then(|result| self.hold(result, came)) {
            Ok(outcome) => (segment, outcome),
            Err(failure) => {
                let symbols = self.prepared.symbols_of(segment);
                let Failure { kind, message } = failure.clone();
                self.failures.push(FailedSegment { segment, symbols, kind, message });
                (segment, Outcome::Failed(failure))
            }
        }
    }

    /// Sums up the answer of a scan whose last step has finished, while the dispatcher had `doubts`.
    ///
    /// # Errors
    /// Segments failed for reasons beyond the snapshot and a partial answer was not allowed, or the results cannot be
    /// stored.
    pub async fn answer(&mut self, doubts: u64) -> Result<Answered, Failure> {
        let partial = incomplete(&self.scan.report().failed);
        if let (Some(failure), false) = (&partial, self.scan.asked.allow_partial) {
            return Err(failure.clone());
        }
        {
            let mut report = self.scan.report();
            let run_ms = ms_since(self.begun);
            report.run_ms = run_ms;
            for run in report.shard_runs.iter_mut().filter(|r| r.ended_ms.is_none()) {
                // Everything is answered; the end of its stream has not arrived yet.
                (run.ended_ms, run.ending) = (Some(run_ms), "done".to_owned());
            }
        }
        let is_whole = self.failures.is_empty() && self.scan.report().failed.is_empty();
        let started = Instant::now();
        let segments = spans::number(self.rows.len() as u64);
        let span = tracing::info_span!(name::MERGE, { attribute::SEGMENTS } = segments);
        let mut spec = self.prepared.merge_spec();
        spec.identity.partial = partial.is_some();
        let (rows, mut failures) = (std::mem::take(&mut self.rows), std::mem::take(&mut self.failures));
        // A result takes precedence.
        failures.retain(|failure| !rows.contains_key(&failure.segment));
        let digests = rows.iter().map(|(segment, kept)| (*segment, kept.digest));
        let answer_digest = span.in_scope(|| digest_of(&spec, digests, &failures));
        drop(span);
        let failed_symbols = failures.iter().map(|failure| failed_count(failure, &spec)).sum::<u64>()
            + rows.values().map(|kept| kept.failed).sum::<u64>();
        let (report_json, disputed, is_certain) = {
            let mut report = self.scan.report();
            report.merge_ms = ms_since(started);
            report.close();
            if report.is_notable() {
                spans::keep(&tracing::Span::current());
            }
            let is_certain = !report.disputed && report.contested.is_empty() && report.quarantined.is_empty();
            (serde_json::to_string(&*report).unwrap_or_default(), report.disputed, is_certain)
        };
        let mut summary = pb::Summary { answer_digest, report_json, partial: partial.is_some(), tree: true };
        if let Some(recorder) = &self.recorder {
            summary = recorder.answer(&self.head, summary).await?;
        }
        let reusable = (is_whole && is_certain && failed_symbols == 0).then(|| (key_of(&self.head), doubts));
        Ok(Answered { summary, failed_symbols, disputed, reusable })
    }
}

fn too_large() -> Failure {
    let message = format!(
        "the results of this scan take more than {ANSWER_BYTES_MAX} bytes: select fewer columns, sweep over fewer \
         values, or keep the best points alone"
    );
    Failure::new(ErrorKind::Invalid, message)
}
