//! Metrics of the dispatcher. Observes every command of the scheduler and every ending, and changes nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use trawl_telemetry::metrics::catalogue::coordinator::{
    DISPUTES, DispatchPurpose, RESULTS_REPLACED, SCANS_DOUBTED, SEGMENTS_ENDED, SHARD_DURATION, SHARDS_DISPATCHED,
    SHARDS_ENDED, SHARDS_IN_FLIGHT, SegmentEnd, ShardEnd, WORK_ENDED, WORK_SUBMITTED, WORKER_THREADS, WORKERS,
    WORKERS_JOINED, WORKERS_LOST, WORKERS_QUARANTINED, WorkerLoss, WorkerState,
};
use trawl_telemetry::metrics::{TraceId, trace_of};
use trawl_wire::ErrorKind;

use super::workers::RegisteredWorker;
use super::{State, Submission};
use crate::scheduler::{AttemptId, Command, Event, Loss, Piece, Purpose, ScanId};
use crate::server::attempt::Ending;
use crate::server::work::{RemainingWork, WorkShare};
use crate::worker_class::{BACKEND_COUNTERS, counter_of};

/// State of the metrics.
#[derive(Debug)]
pub(super) struct Meter {
    /// Per attempt: when it was sent, and its trace.
    sent: BTreeMap<AttemptId, (Instant, Option<TraceId>)>,
    /// Per running scan: its trace, and the pieces sent at least once.
    scans: BTreeMap<ScanId, (Option<TraceId>, BTreeSet<Piece>)>,
    /// Remaining work, in estimated nanoseconds of one core, as of the last update.
    left: u64,
    /// The same, as shares of the reported total, by [`counter_of`].
    work: [WorkShare; BACKEND_COUNTERS],
}

impl Meter {
    /// Nothing yet; the work is counted in `work`.
    pub fn new(work: &Arc<RemainingWork>) -> Self {
        let work = std::array::from_fn(|counter| WorkShare::empty(work, counter));
        Self { sent: BTreeMap::new(), scans: BTreeMap::new(), left: 0, work }
    }

    /// Records that a scan is submitted.
    pub fn submitted(&mut self, scan: ScanId, submission: &Submission) {
        let trace = submission.trace.as_ref().and_then(|trace| trace_of(&trace.traceparent));
        self.scans.insert(scan, (trace, BTreeSet::new()));
    }

    /// Records an event, before the scheduler handles it.
    pub fn event(&mut self, event: &Event) {
        match event {
            Event::Submitted { request, .. } => {
                let cost = request.shards.iter().fold(0u64, |sum, shard| sum.saturating_add(shard.cost));
                WORK_SUBMITTED.add(cost);
                self.left = self.left.saturating_add(cost);
            }
            Event::WorkerJoined { .. } => WORKERS_JOINED.inc(),
            Event::WorkerLost { loss: Loss::Died, .. } => WORKERS_LOST.of(WorkerLoss::Died).inc(),
            Event::WorkerLost { loss: Loss::Left, .. } => WORKERS_LOST.of(WorkerLoss::Left).inc(),
            _ => {}
        }
    }

    /// Records a command, before it is executed.
    pub fn command(&mut self, command: &Command) {
        match command {
            Command::Dispatch { attempt, scan, pieces, purpose, .. } => {
                self.dispatched(*attempt, *scan, pieces, *purpose)
            }
            Command::Stop { attempt } => self.ended(*attempt, ShardEnd::Stopped),
            Command::Accept { .. } => SEGMENTS_ENDED.of(SegmentEnd::Result).inc(),
            Command::Replace { .. } => RESULTS_REPLACED.inc(),
            Command::Fail { kind: ErrorKind::Poisoned, .. } => SEGMENTS_ENDED.of(SegmentEnd::Poisoned).inc(),
            Command::Fail { .. } => SEGMENTS_ENDED.of(SegmentEnd::Failed).inc(),
            Command::Contest { .. } => DISPUTES.inc(),
            Command::Quarantine { .. } | Command::Distrust { .. } => WORKERS_QUARANTINED.inc(),
            Command::Check { .. } => {}
            Command::Doubt { .. } => SCANS_DOUBTED.inc(),
            Command::End { scan, .. } => drop(self.scans.remove(scan)),
        }
    }

    fn dispatched(&mut self, attempt: AttemptId, scan: ScanId, pieces: &[Piece], purpose: Purpose) {
        let (trace, known) = self.scans.entry(scan).or_default();
        let again = pieces.iter().any(|piece| known.contains(piece));
        known.extend(pieces);
        let purpose = match purpose {
            Purpose::Work if again => DispatchPurpose::Retry,
            Purpose::Work => DispatchPurpose::Work,
            Purpose::Isolation => DispatchPurpose::Isolation,
            Purpose::Hedge => DispatchPurpose::Hedge,
            Purpose::Vote => DispatchPurpose::Vote,
        };
        SHARDS_DISPATCHED.of(purpose).inc();
        self.sent.insert(attempt, (Instant::now(), *trace));
        SHARDS_IN_FLIGHT.set_count(self.sent.len());
    }

    /// Records the end of an attempt.
    pub fn over(&mut self, attempt: AttemptId, ending: &Ending) {
        self.ended(
            attempt,
            match ending {
                Ending::Done => ShardEnd::Done,
                Ending::Refused(_) => ShardEnd::Refused,
                Ending::Broken(_) => ShardEnd::Broken,
            },
        );
    }

    /// The first ending counts: one that broke is stopped afterwards.
    fn ended(&mut self, attempt: AttemptId, end: ShardEnd) {
        let Some((sent, trace)) = self.sent.remove(&attempt) else { return };
        SHARDS_ENDED.of(end).inc();
        SHARD_DURATION.observe(end, sent.elapsed(), trace);
        SHARDS_IN_FLIGHT.set_count(self.sent.len());
    }

    /// Updates the gauges. `left`: remaining work in estimated nanoseconds of one core, by [`counter_of`].
    fn now<'a>(&mut self, left: [u64; BACKEND_COUNTERS], workers: impl Iterator<Item = &'a RegisteredWorker>) {
        let total = left.iter().fold(0u64, |sum, &nanos| sum.saturating_add(nanos));
        WORK_ENDED.add(self.left.saturating_sub(total));
        self.left = total;
        self.work.iter_mut().zip(left).for_each(|(share, nanos)| share.set(nanos));
        let (mut counts, mut threads) = ([0i64; WorkerState::COUNT], 0);
        for worker in workers {
            counts[worker.state() as usize] += 1;
            threads += if worker.serves() { i64::from(worker.record.threads) } else { 0 };
        }
        for state in [WorkerState::Serving, WorkerState::Draining, WorkerState::Lost, WorkerState::Quarantined] {
            WORKERS.of(state).set(counts[state as usize]);
        }
        WORKER_THREADS.set(threads);
    }
}

impl Drop for Meter {
    /// The term is over: resets this coordinator's gauges.
    fn drop(&mut self) {
        for attempt in self.sent.keys().copied().collect::<Vec<_>>() {
            self.ended(attempt, ShardEnd::Stopped);
        }
        self.now([0; BACKEND_COUNTERS], std::iter::empty());
    }
}

impl State {
    /// Updates the gauges from the current state.
    pub(super) fn measure(&mut self) {
        let mut left = [0u64; BACKEND_COUNTERS];
        for (of, cost) in self.scheduler.work_left_by_class() {
            let class = self.classes.iter().find(|(_, id)| **id == of);
            let counter = counter_of(class.map(|(class, _)| class.backend.as_str()));
            left[counter] = left[counter].saturating_add(cost);
        }
        self.meter.now(left, self.registered.values());
    }
}
