//! What a run tells beside its answer: progress while it runs, and afterwards times, places and attempts.
//!
//! None of it enters the answer: two runs of one scan give the same answer and different reports.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use trawl_plan::{Plan, Sharing};
use trawl_wire::limits::bounded_reason;
use trawl_wire::{ErrorKind, Failure, pb};

use crate::scheduler::Purpose;

/// Told as a scan goes on. Called from one thread at a time; must return quickly.
pub trait Progress: Sync {
    /// The scan is accepted.
    fn accepted(&self, _segments: usize, _symbols: usize) {}
    /// A segment ended; `done` of all have.
    fn segment_ended(&self, _segment: u32, _done: usize) {}
    /// A segment has no result.
    fn segment_failed(&self, _segment: u32, _kind: ErrorKind, _message: &str) {}
}

/// Says nothing.
pub struct NoProgress;

impl Progress for NoProgress {}

/// A run of a scan, as `--report` writes it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct RunReport {
    /// `embedded` or `cluster`.
    pub mode: String,
    /// The scan's id; empty in embedded mode.
    pub scan: String,
    /// Threads of embedded mode; of all workers at the start in a cluster.
    pub threads: u32,
    /// The as-of on the exchange's clock, with its zone; empty in reports of coordinators that do not say.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub as_of_shown: String,
    /// What the user should know of the answer; see `PreparedScan::warnings`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// Number type of the arithmetic; empty in reports of coordinators that do not say.
    #[serde(default)]
    pub precision: String,
    /// What computed: `cpu`, `cuda`; empty in reports of coordinators that do not say.
    #[serde(default)]
    pub backend: String,
    /// Why that, where the one who reports chose it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub backend_reason: String,
    /// Shards the scan was cut into at first.
    pub shards: u32,
    /// Segments of the scan.
    pub segments: u32,
    /// Symbols of the snapshot.
    pub symbols: u64,
    /// Bars of the snapshot.
    pub bars: u64,
    /// How much of a sweep was computed once for several combinations; none without a sweep.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sharing: Option<Sharing>,
    /// Opening the snapshot and compiling the plan, where the one who reports did it.
    pub prepare_ms: f64,
    /// From the first dispatch to the last result.
    pub run_ms: f64,
    /// Putting the answer together.
    pub merge_ms: f64,
    /// Dispatches, in the order they were made.
    pub shard_runs: Vec<ShardRun>,
    /// Accepted results, by segment.
    pub segment_runs: Vec<SegmentRun>,
    /// Segments without a result, by segment.
    pub failed: Vec<FailedRun>,
    /// Segments that were dispatched more than once.
    pub retried_segments: u32,
    /// Workers that were lost while the scan ran.
    pub workers_lost: Vec<String>,
    /// Waiting for the scan's turn, where many run at once.
    #[serde(default)]
    pub turn_ms: f64,
    /// Reductions over all symbols between steps.
    #[serde(default)]
    pub cross_ms: f64,
    /// Hexadecimal id of the scan's trace; empty when none is exported.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub trace: String,
    /// Of an update: what could be left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub update: Option<UpdateReport>,
    /// Second attempts at shards that were late.
    #[serde(default)]
    pub hedges: u32,
    /// Segments for which workers gave different results, in the order it was seen.
    #[serde(default)]
    pub contested: Vec<u32>,
    /// Workers whose results proved wrong; nothing of theirs is in the answer.
    #[serde(default)]
    pub quarantined: Vec<String>,
    /// Whether it could not be settled which of different results is right: the answer holds the one that came first.
    #[serde(default)]
    pub disputed: bool,
}

/// What an update went on from.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct UpdateReport {
    /// `taken`, `none` at the first run, or why the state was not taken.
    pub state: String,
    /// Symbols that went on from their states.
    pub resumed: u64,
    /// Symbols that were computed from their first bar, by reason.
    pub recomputed: BTreeMap<String, u64>,
    /// Why parts of the plan are computed from the first bar for every symbol.
    pub in_full: Vec<String>,
}

/// Of a sweep.
pub(crate) fn sharing_of(plan: &Plan) -> Option<Sharing> {
    (plan.points.len() > 1).then(|| plan.sharing())
}

impl RunReport {
    /// Sorts what came in the order of events, and counts what was dispatched again.
    pub(crate) fn close(&mut self) {
        self.segment_runs.sort_by_key(|r| (r.segment, r.first));
        self.failed.sort_by_key(|r| r.segment);
        let mut dispatched: Vec<u32> = self.shard_runs.iter().flat_map(|r| r.segments.iter().copied()).collect();
        dispatched.sort_unstable();
        let again = dispatched.chunk_by(|a, b| a == b).filter(|times| times.len() > 1).count();
        let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        self.retried_segments = count(again);
        self.hedges = count(self.shard_runs.iter().filter(|r| r.purpose == RunPurpose::Hedge).count());
    }

    /// Whether a shard was slow, failed or was hedged: its trace is kept whatever the sampler said.
    pub fn is_notable(&self) -> bool {
        let odd = |run: &ShardRun| run.is_slow() || run.purpose == RunPurpose::Hedge || run.ending.contains(':');
        !self.failed.is_empty() || !self.workers_lost.is_empty() || self.shard_runs.iter().any(odd)
    }

    /// Whether every segment was answered beyond doubt: the exit code is 0 only then.
    pub fn is_complete(&self) -> bool {
        self.failed.is_empty() && !self.disputed
    }
}

/// One dispatch of a shard.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ShardRun {
    /// Number of the dispatch; unique in the process that dispatched.
    pub attempt: u64,
    /// Where it ran; `embedded` in embedded mode.
    pub worker: String,
    /// What was asked.
    pub segments: Vec<u32>,
    /// Since the scan was accepted.
    pub started_ms: f64,
    /// Since the scan was accepted; `None` when nobody waited for its end.
    pub ended_ms: Option<f64>,
    /// `running`, `done`, `stopped`, or how it failed.
    pub ending: String,
    /// Why it was made.
    #[serde(default)]
    pub purpose: RunPurpose,
    /// Which of the scan's steps, from 0.
    #[serde(default)]
    pub step: u32,
    /// How long its segments waited for a worker.
    #[serde(default)]
    pub queued_ms: f64,
    /// How long it may take before it counts as slow; none where nobody knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slow_after_ms: Option<f64>,
    /// Where its time went at the worker; none of one that did not come to its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timings: Option<ShardTimes>,
}

impl ShardRun {
    /// From its dispatch to its end, or as far as is known.
    pub fn took_ms(&self) -> Option<f64> {
        self.ended_ms.map(|ended| (ended - self.started_ms).max(0.0))
    }

    /// Whether it took longer than was to be expected.
    pub fn is_slow(&self) -> bool {
        self.took_ms().zip(self.slow_after_ms).is_some_and(|(took, limit)| took >= limit)
    }
}

/// Where a shard's time went at its worker, and what it worked on.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ShardTimes {
    /// From the request's arrival until the last result was ready.
    pub total_ms: f64,
    pub symbols: u64,
    pub bars: u64,
    /// Of these bars.
    pub bytes: u64,
    /// Segments whose bars were in a device's memory.
    pub from_device: u32,
    /// Segments whose bars were in the worker's memory.
    pub from_memory: u32,
    /// Segments whose bars were read from files.
    pub from_disk: u32,
    /// `cpu`, or a device's name.
    pub device: String,
    /// In the order of a shard's way.
    pub stages: Vec<StageTime>,
}

/// One kind of work of a shard.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct StageTime {
    /// `receive`, `queue`, `load`, `h2d`, `kernel`, `d2h`, `encode`, `send`.
    pub stage: String,
    /// Of kernels: which fusion group.
    #[serde(default)]
    pub part: u32,
    /// Since the request's arrival.
    pub started_ms: f64,
    /// Since the request's arrival.
    pub ended_ms: f64,
    /// Added up over threads.
    pub busy_ms: f64,
    /// How many times it was gone through.
    pub count: u32,
    /// Read, copied or written; 0 where nobody counted.
    #[serde(default)]
    pub bytes: u64,
}

/// Stages that are taken from one worker's word.
const STAGES_MAX: usize = 64;
/// Bytes of a name in a worker's word.
const STAGE_NAME_BYTES_MAX: usize = 64;

impl From<pb::ShardTimings> for ShardTimes {
    fn from(told: pb::ShardTimings) -> Self {
        let ms = |us: u64| us as f64 / 1e3;
        let name = |text: String| text.chars().filter(|c| !c.is_control()).take(STAGE_NAME_BYTES_MAX).collect();
        let stage = |s: pb::StageTiming| StageTime {
            stage: name(s.stage),
            part: s.part,
            started_ms: ms(s.started_us),
            ended_ms: ms(s.ended_us),
            busy_ms: ms(s.busy_us),
            count: s.count,
            bytes: s.bytes,
        };
        Self {
            total_ms: ms(told.total_us),
            symbols: told.symbols,
            bars: told.bars,
            bytes: told.bytes,
            from_device: told.from_device,
            from_memory: told.from_memory,
            from_disk: told.from_disk,
            device: name(told.device),
            stages: told.stages.into_iter().take(STAGES_MAX).map(stage).collect(),
        }
    }
}

/// Why a shard was dispatched.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunPurpose {
    /// Nobody else ran it.
    #[default]
    Work,
    /// A part of a segment that is suspected to kill workers.
    Isolation,
    /// Another worker ran it too, and was late.
    Hedge,
    /// To find out which of different results is right.
    Vote,
}

impl RunPurpose {
    /// As it stands in reports and spans.
    pub fn name(self) -> &'static str {
        match self {
            Self::Work => "work",
            Self::Isolation => "isolation",
            Self::Hedge => "hedge",
            Self::Vote => "vote",
        }
    }
}

impl From<Purpose> for RunPurpose {
    fn from(purpose: Purpose) -> Self {
        match purpose {
            Purpose::Work => Self::Work,
            Purpose::Isolation => Self::Isolation,
            Purpose::Hedge => Self::Hedge,
            Purpose::Vote => Self::Vote,
        }
    }
}

/// One accepted result.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SegmentRun {
    /// Which.
    pub segment: u32,
    /// The first of its symbols that this is about: more than 0 only in a part of a segment that was cut in two.
    #[serde(default)]
    pub first: u32,
    /// The dispatch that gave it.
    pub attempt: u64,
    /// Where it ran.
    pub worker: String,
    /// Loading and computing together.
    pub busy_ms: f64,
    /// Loading alone; `None` in embedded mode, where it is not told apart.
    pub load_ms: Option<f64>,
    /// Symbols in the result.
    pub symbols: u64,
    /// Whether the bars were in memory already.
    pub resident: bool,
}

/// A segment without a result.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FailedRun {
    /// Which.
    pub segment: u32,
    /// What kind of failure.
    pub kind: ErrorKind,
    /// Why.
    pub message: String,
    /// Dispatches it had.
    pub attempts: u32,
    /// The symbols that failed; empty when all of the segment's did.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub symbols: Vec<String>,
}

/// Whether a failure is a property of the snapshot and this program: every run of the scan has it.
pub(crate) fn is_of_snapshot(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::Permanent | ErrorKind::Poisoned)
}

/// Why an answer without these would be another one than the scan's; `None` when all of them are the snapshot's own.
pub(crate) fn incomplete(failed: &[FailedRun]) -> Option<Failure> {
    let beyond: Vec<&FailedRun> = failed.iter().filter(|f| !is_of_snapshot(f.kind)).collect();
    let first = beyond.first()?;
    let others = match beyond.len() - 1 {
        0 => String::new(),
        1 => "; so did another".to_owned(),
        more => format!("; so did {more} others"),
    };
    let message = format!(
        "segment {} failed {} times: {}{others}; --allow-partial answers without their symbols",
        first.segment, first.attempts, first.message
    );
    Some(Failure::new(first.kind, bounded_reason(message)))
}

/// Milliseconds since `start`.
pub(crate) fn ms_since(start: std::time::Instant) -> f64 {
    ms_of(start.elapsed())
}

/// Milliseconds of a duration.
pub(crate) fn ms_of(duration: std::time::Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}
