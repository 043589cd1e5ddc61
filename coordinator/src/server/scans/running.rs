//! What one scan has so far: turns what the dispatcher tells of it into events, results and a report.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use tokio::sync::mpsc;
use trawl_protocol::pb::scan_event::Event;
use trawl_protocol::{ErrorKind, Failure, SegmentResultV2, answer_digest, envelope, pb, segment_digest};

use super::{ANSWER_BYTES_MAX, Scan};
use crate::glue::{Glue, Part};
use crate::merge::{FailedSegment, merge};
use crate::prepare::PreparedScan;
use crate::report::{FailedRun, RunReport, ShardRun, incomplete, is_of_snapshot, ms_since, sharing_of};
use crate::scheduler::{Outcome, POISONED_MAX};
use crate::server::dispatcher::{News, Submitted, no_worker};

/// How following the news of a step ended.
pub(super) enum Followed {
    /// The last step is done.
    Answered,
    /// Another is.
    StepDone,
}

/// Why a step was not done.
pub(super) enum Stopped {
    /// Its time is over.
    Late,
    Failed(Failure),
    /// The term is over.
    Over,
}

/// See the module's header.
pub(super) struct RunningScan {
    scan: Arc<Scan>,
    prepared: Arc<PreparedScan>,
    begun: Instant,
    submitted: Submitted,
    results: BTreeMap<u32, SegmentResultV2>,
    failures: Vec<FailedSegment>,
    /// Of the present step.
    glue: Glue,
    /// Whether the step that runs gives the answer's rows.
    last: bool,
    report: RunReport,
}

impl RunningScan {
    pub fn new(scan: Arc<Scan>, prepared: Arc<PreparedScan>, submitted: Submitted) -> Self {
        let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let report = RunReport {
            mode: "cluster".to_owned(),
            precision: prepared.identity.precision.clone(),
            scan: scan.name.clone(),
            threads: submitted.threads,
            shards: count(submitted.shards),
            segments: count(prepared.segments.len()),
            symbols: prepared.symbol_count() as u64,
            bars: prepared.bar_count(),
            sharing: sharing_of(&prepared.plan),
            prepare_ms: ms_since(scan.asked.received),
            ..RunReport::default()
        };
        Self {
            scan,
            prepared,
            begun: Instant::now(),
            submitted,
            results: BTreeMap::new(),
            failures: Vec::new(),
            glue: Glue::default(),
            last: true,
            report,
        }
    }

    /// A step begins; `last`: it gives the answer's rows.
    pub fn begin(&mut self, last: bool) {
        (self.last, self.glue) = (last, Glue::default());
    }

    /// What a step gave.
    pub fn take_step(&mut self) -> (Vec<SegmentResultV2>, Vec<FailedSegment>) {
        if !self.last {
            // What fails of the snapshot's own fails again in the last step.
            self.report.failed.retain(|f| !is_of_snapshot(f.kind));
        }
        (std::mem::take(&mut self.results).into_values().collect(), std::mem::take(&mut self.failures))
    }

    /// Takes in what the dispatcher tells until the step ends.
    pub async fn follow(
        &mut self,
        mut told: mpsc::UnboundedReceiver<News>,
        no_worker_timeout_ms: u64,
    ) -> Result<Followed, Stopped> {
        loop {
            let failure = match told.recv().await {
                Some(News::End(Outcome::Complete { disputed })) => {
                    self.report.disputed |= disputed;
                    return Ok(if self.last { Followed::Answered } else { Followed::StepDone });
                }
                Some(News::End(Outcome::DeadlineExceeded)) => return Err(Stopped::Late),
                Some(News::End(Outcome::Poisoned)) => {
                    let message = format!("{POISONED_MAX} symbols of this scan kill the workers that evaluate them");
                    Failure::new(ErrorKind::Poisoned, message)
                }
                Some(News::End(Outcome::NoWorker)) => no_worker(no_worker_timeout_ms),
                Some(News::End(Outcome::Cancelled)) => Failure::new(ErrorKind::Cancelled, "the scan was cancelled"),
                // The dispatcher ends with the term.
                None => return Err(Stopped::Over),
                Some(news) => {
                    if let Some(event) = self.take(news) {
                        self.scan.log.push(event);
                        self.scan.segments_ended(self.results.len() + self.failures.len());
                        if self.scan.log.bytes() > ANSWER_BYTES_MAX {
                            return Err(Stopped::Failed(too_large()));
                        }
                    }
                    continue;
                }
            };
            return Err(Stopped::Failed(failure));
        }
    }

    pub fn header(&self) -> Event {
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
            generation: 0,
            durable: self.scan.asked.durable,
        })
    }

    /// Keeps what is new; an event when a segment of the last step is whole.
    fn take(&mut self, news: News) -> Option<Event> {
        match news {
            News::Started { attempt, worker, segments, purpose } => {
                let (started_ms, ending) = (ms_since(self.begun), "running".to_owned());
                let ended_ms = None;
                let run = ShardRun { attempt, worker, segments, started_ms, ended_ms, ending, purpose };
                self.report.shard_runs.push(run);
                None
            }
            News::Over { attempt, ending } => {
                let ended_ms = ms_since(self.begun);
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
                let part = piece != self.prepared.whole(segment);
                let symbols = if part { self.prepared.symbols_of_piece(piece) } else { Vec::new() };
                self.report.failed.push(FailedRun { segment, kind, message, attempts, symbols });
                let part = self.glue.take(&self.prepared, piece, Err(failure), self.last)?;
                self.segment(piece.segment, part, None, false)
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

    /// A segment that is whole; an event when clients have to know. `envelope`: as it came, if in one piece.
    fn segment(&mut self, segment: u32, part: Part, envelope: Option<pb::Envelope>, replaces: bool) -> Option<Event> {
        let encoded = part.and_then(|result| match envelope {
            Some(envelope) => Ok((result, envelope)),
            None => envelope::encode(&result).map(|envelope| (result, envelope)).map_err(Failure::from),
        });
        let generation = 0;
        match encoded {
            Ok((result, envelope)) => {
                let digest = segment_digest(&result).to_vec();
                self.results.insert(segment, result);
                let done = pb::SegmentDone { segment, result: Some(envelope), digest, replaces, generation };
                self.last.then_some(Event::SegmentDone(done))
            }
            Err(failure) => {
                let symbols = self.prepared.symbols_of(segment);
                let Failure { kind, message } = failure.clone();
                self.failures.push(FailedSegment { segment, symbols: symbols.clone(), kind, message });
                let failed = pb::SegmentFailed { segment, failure: Some(failure.into()), symbols, generation };
                self.last.then_some(Event::SegmentFailed(failed))
            }
        }
    }

    /// The end of a scan whose last step is done.
    ///
    /// # Errors
    /// Segments failed for reasons beyond the snapshot, and nobody asked for an answer without them.
    pub fn summary(&mut self) -> Result<pb::Summary, Failure> {
        let partial = incomplete(&self.report.failed);
        if let (Some(failure), false) = (&partial, self.scan.asked.allow_partial) {
            return Err(failure.clone());
        }
        self.report.run_ms = ms_since(self.begun);
        for run in self.report.shard_runs.iter_mut().filter(|r| r.ended_ms.is_none()) {
            // Everything is answered; the end of its stream is still on its way.
            (run.ended_ms, run.ending) = (Some(self.report.run_ms), "done".to_owned());
        }
        let started = Instant::now();
        let span = tracing::info_span!("merge", segments = self.results.len());
        let (results, failures) = self.take_step();
        let mut answer = span.in_scope(|| merge(&self.prepared, results, failures));
        answer.identity.partial = partial.is_some();
        let answer_digest = span.in_scope(|| answer_digest(&answer));
        self.report.merge_ms = ms_since(started);
        self.report.close();
        let report_json = serde_json::to_string(&self.report).unwrap_or_default();
        Ok(pb::Summary { answer_digest, report_json, partial: partial.is_some() })
    }
}

fn too_large() -> Failure {
    let message = format!(
        "the results of this scan take more than {ANSWER_BYTES_MAX} bytes: select fewer columns, sweep over fewer \
         values, or keep the best points alone"
    );
    Failure::new(ErrorKind::Invalid, message)
}
