//! What a run reports besides its answer: progress while it runs, and afterwards times, places and attempts.
//!
//! None of it is part of the answer: two runs of one scan have the same answer and different reports.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use trawl_plan::{Plan, Sharing};
use trawl_wire::limits::bounded_reason;
use trawl_wire::{ErrorKind, Failure, pb};

use crate::scheduler::Purpose;

/// Receives the progress of a scan. Called from one thread at a time; must return quickly.
pub trait Progress: Sync {
    /// The scan is accepted.
    fn accepted(&self, _segments: usize, _symbols: usize) {}
    /// A segment ended; `done` segments have ended so far.
    fn segment_ended(&self, _segment: u32, _done: usize) {}
    /// A segment has no result.
    fn segment_failed(&self, _segment: u32, _kind: ErrorKind, _message: &str) {}
}

/// Ignores progress.
pub struct NoProgress;

impl Progress for NoProgress {}

/// The report of a run, as written by `--report`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct RunReport {
    /// `embedded` or `cluster`.
    pub mode: String,
    /// The scan's id; empty in embedded mode.
    pub scan: String,
    /// Threads of embedded mode; in a cluster, of all workers at the start.
    pub threads: u32,
    /// The as-of on the exchange's clock, with its zone; empty in reports of older coordinators.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub as_of_shown: String,
    /// Zone of the exchange, where bars are shorter than a day; else empty, as in reports of older coordinators.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub zone: String,
    /// Warnings about the answer; see `PreparedScan::warnings`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// Number type of the arithmetic; empty in reports of older coordinators.
    #[serde(default)]
    pub precision: String,
    /// Backend: `cpu`, `cuda`; empty in reports of older coordinators.
    #[serde(default)]
    pub backend: String,
    /// Why this backend was chosen, if the reporting process chose it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub backend_reason: String,
    /// Devices of the reporting process that were lost while the scan ran, and what was done again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub devices_lost: Vec<DeviceLost>,
    /// Number of shards that the scan was first cut into.
    pub shards: u32,
    /// Number of segments of the scan.
    pub segments: u32,
    /// Number of symbols of the snapshot.
    pub symbols: u64,
    /// Number of bars of the snapshot.
    pub bars: u64,
    /// How much of a sweep was computed once for several combinations; `None` without a sweep.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sharing: Option<Sharing>,
    /// Opening the snapshot and compiling the plan, if the reporting process did it.
    pub prepare_ms: f64,
    /// From the first dispatch to the last result.
    pub run_ms: f64,
    /// Merging the answer.
    pub merge_ms: f64,
    /// Dispatches, in the order they were made.
    pub shard_runs: Vec<ShardRun>,
    /// Accepted results, by segment.
    pub segment_runs: Vec<SegmentRun>,
    /// Segments without a result, by segment.
    pub failed: Vec<FailedRun>,
    /// The earlier scan whose answer this is, as its identity is the same: nothing was computed. Empty if it was computed.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub answer_of: String,
    /// Number of segments dispatched more than once.
    pub retried_segments: u32,
    /// Workers that were lost while the scan ran.
    pub workers_lost: Vec<String>,
    /// Waiting for admission, while too many other scans run.
    #[serde(default)]
    pub turn_ms: f64,
    /// Reductions over all symbols between steps.
    #[serde(default)]
    pub cross_ms: f64,
    /// Hexadecimal id of the scan's trace; empty if no trace is exported.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub trace: String,
    /// For an update: what was resumed from saved states.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub update: Option<UpdateReport>,
    /// Number of second attempts at late shards.
    #[serde(default)]
    pub hedges: u32,
    /// Segments for which workers returned different results, in order of detection.
    #[serde(default)]
    pub contested: Vec<u32>,
    /// Workers whose results proved wrong; the answer contains none of their results.
    #[serde(default)]
    pub quarantined: Vec<String>,
    /// Whether it could not be settled which of different results is right; the answer contains the one that arrived
    /// first.
    #[serde(default)]
    pub disputed: bool,
}

/// A device that was lost while a scan ran.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct DeviceLost {
    /// The driver's number of the device.
    pub device: u32,
    /// Its name.
    pub name: String,
    /// Why it is no longer used.
    pub why: String,
    /// The segments that it had begun, and the devices that computed them again; each segment once.
    pub again: Vec<SegmentAgain>,
}

/// A segment that was computed again.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema)]
pub struct SegmentAgain {
    /// The segment.
    pub segment: u32,
    /// The driver's number of the device that computed it.
    pub device: u32,
}

impl DeviceLost {
    /// It in one sentence: which device, why, and what was done again.
    pub fn sentence(&self) -> String {
        let Self { device, name, why, again } = self;
        let mut others: Vec<u32> = again.iter().map(|again| again.device).collect();
        others.sort_unstable();
        others.dedup();
        let others: Vec<String> = others.iter().map(u32::to_string).collect();
        let done = match (again.len(), others.as_slice()) {
            (0, _) => "no segment had to be computed again".to_owned(),
            (1, [other]) => format!("device {other} computed one segment again"),
            (count, [other]) => format!("device {other} computed {count} segments again"),
            (count, others) => format!("devices {} computed {count} segments again", others.join(", ")),
        };
        format!("a GPU is lost: device {device}, {name}: {why}; {done}")
    }
}

/// What an update resumed from.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct UpdateReport {
    /// `taken`, `none` at the first run, `not needed` if no value of the scan runs on from bar to bar, or why the state was not taken.
    pub state: String,
    /// Number of symbols resumed from their states.
    pub resumed: u64,
    /// Number of symbols computed from their first bar, by reason.
    pub recomputed: BTreeMap<String, u64>,
    /// Why parts of the plan are computed from the first bar for every symbol.
    pub in_full: Vec<String>,
}

/// How much computation a sweep shares; `None` without a sweep.
pub(crate) fn sharing_of(plan: &Plan) -> Option<Sharing> {
    (plan.points.len() > 1).then(|| plan.sharing())
}

impl RunReport {
    /// Sorts the entries, which arrive in order of events, and counts retried segments.
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

    /// The run of an attempt. Attempts are added in the order of their ids.
    pub(crate) fn run_of(&mut self, attempt: u64) -> Option<&mut ShardRun> {
        let at = self.shard_runs.binary_search_by_key(&attempt, |run| run.attempt).ok()?;
        self.shard_runs.get_mut(at)
    }

    /// Whether a shard was slow, failed or was hedged: its trace is then kept regardless of sampling.
    pub fn is_notable(&self) -> bool {
        let odd = |run: &ShardRun| run.is_slow() || run.purpose == RunPurpose::Hedge || run.ending.contains(':');
        !self.failed.is_empty() || !self.workers_lost.is_empty() || self.shard_runs.iter().any(odd)
    }

    /// Whether every segment has an undisputed result; the exit code is 0 only then.
    pub fn is_complete(&self) -> bool {
        self.failed.is_empty() && !self.disputed
    }
}

/// One dispatch of a shard.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ShardRun {
    /// Number of the dispatch; unique in the dispatching process.
    pub attempt: u64,
    /// Where it ran; `embedded` in embedded mode.
    pub worker: String,
    /// Segments of the dispatch.
    pub segments: Vec<u32>,
    /// Start, since the scan was accepted.
    pub started_ms: f64,
    /// End, since the scan was accepted; `None` if its end was not awaited.
    pub ended_ms: Option<f64>,
    /// `running`, `done`, `stopped`, or how it failed.
    pub ending: String,
    /// Why it was dispatched.
    #[serde(default)]
    pub purpose: RunPurpose,
    /// Index of the scan's step, from 0.
    #[serde(default)]
    pub step: u32,
    /// How long its segments waited for a worker.
    #[serde(default)]
    pub queued_ms: f64,
    /// How long it may take before it counts as slow; `None` if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slow_after_ms: Option<f64>,
    /// Where its time went at the worker; `None` if it did not finish.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timings: Option<ShardTimes>,
}

impl ShardRun {
    /// From its dispatch to its end, or as far as is known.
    pub fn took_ms(&self) -> Option<f64> {
        self.ended_ms.map(|ended| (ended - self.started_ms).max(0.0))
    }

    /// Whether it took longer than expected.
    pub fn is_slow(&self) -> bool {
        self.took_ms().zip(self.slow_after_ms).is_some_and(|(took, limit)| took >= limit)
    }
}

/// Where a shard's time went at its worker, and the amount of data it processed.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ShardTimes {
    /// From the request's arrival until the last result was ready.
    pub total_ms: f64,
    /// Number of symbols.
    pub symbols: u64,
    /// Number of bars, over all symbols.
    pub bars: u64,
    /// Size of these bars in bytes.
    pub bytes: u64,
    /// Number of segments whose bars were in device memory.
    pub from_device: u32,
    /// Number of segments whose bars were in the worker's memory.
    pub from_memory: u32,
    /// Number of segments whose bars were read from files.
    pub from_disk: u32,
    /// `cpu`, or a device's name.
    pub device: String,
    /// Kernels launched on a device.
    #[serde(default)]
    pub kernels: u64,
    /// Launches of kernels that graphs saved.
    #[serde(default)]
    pub launches_saved: u64,
    /// Stages in the order in which a shard passes through them.
    pub stages: Vec<StageTime>,
}

/// One kind of work of a shard.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct StageTime {
    /// `receive`, `queue`, `load`, `h2d`, `kernel`, `d2h`, `encode`, `send`.
    pub stage: String,
    /// For kernels: index of the fusion group.
    #[serde(default)]
    pub part: u32,
    /// Start, since the request's arrival.
    pub started_ms: f64,
    /// End, since the request's arrival.
    pub ended_ms: f64,
    /// Busy time, summed over threads.
    pub busy_ms: f64,
    /// Number of times it ran.
    pub count: u32,
    /// Bytes read, copied or written; 0 if not measured.
    #[serde(default)]
    pub bytes: u64,
}

/// Maximum number of stages accepted from a worker.
const STAGES_MAX: usize = 64;
/// Maximum bytes of a stage name accepted from a worker.
const STAGE_NAME_BYTES_MAX: usize = 64;

impl From<pb::ShardTimings> for ShardTimes {
    fn from(reported: pb::ShardTimings) -> Self {
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
            total_ms: ms(reported.total_us),
            symbols: reported.symbols,
            bars: reported.bars,
            bytes: reported.bytes,
            from_device: reported.from_device,
            from_memory: reported.from_memory,
            from_disk: reported.from_disk,
            device: name(reported.device),
            kernels: reported.kernels,
            launches_saved: reported.kernels.saturating_sub(reported.launches),
            stages: reported.stages.into_iter().take(STAGES_MAX).map(stage).collect(),
        }
    }
}

/// Why a shard was dispatched.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RunPurpose {
    /// No other worker ran it.
    #[default]
    Work,
    /// A part of a segment suspected of killing workers.
    Isolation,
    /// Another worker was running it, and was late.
    Hedge,
    /// To determine which of different results is right.
    Vote,
}

impl RunPurpose {
    /// The name of this variant in reports and spans.
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
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct SegmentRun {
    /// The segment.
    pub segment: u32,
    /// Index of the first symbol covered; more than 0 only for a part of a bisected segment.
    #[serde(default)]
    pub first: u32,
    /// The dispatch that returned it.
    pub attempt: u64,
    /// Where it ran.
    pub worker: String,
    /// Loading and computing together.
    pub busy_ms: f64,
    /// Loading only; `None` in embedded mode, where it is not measured separately.
    pub load_ms: Option<f64>,
    /// Number of symbols in the result.
    pub symbols: u64,
    /// Whether the bars were already in memory.
    pub resident: bool,
}

/// A segment without a result.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct FailedRun {
    /// The segment.
    pub segment: u32,
    /// What kind of failure.
    pub kind: ErrorKind,
    /// Why.
    pub message: String,
    /// The worker that reported it, at the last attempt. Not part of an answer, which does not depend on who computed it; empty if it is
    /// nobody's report.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub worker: String,
    /// Number of dispatches.
    pub attempts: u32,
    /// The symbols that failed; empty if all symbols of the segment failed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub symbols: Vec<String>,
}

/// Whether a failure is a property of the snapshot and this program: it occurs in every run of the scan.
pub(crate) fn is_of_snapshot(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::Permanent | ErrorKind::Poisoned)
}

/// The failure that makes an answer without these segments incomplete; `None` if all failures are properties of the
/// snapshot.
pub(crate) fn incomplete(failed: &[FailedRun]) -> Option<Failure> {
    let beyond: Vec<&FailedRun> = failed.iter().filter(|f| !is_of_snapshot(f.kind)).collect();
    let first = beyond.first()?;
    let others = match beyond.len() - 1 {
        0 => String::new(),
        1 => "; so did another".to_owned(),
        more => format!("; so did {more} others"),
    };
    let message = format!(
        "segment {} failed {} times{}: {}{others}; --allow-partial answers without their symbols",
        first.segment,
        first.attempts,
        last_at(&first.worker),
        first.message
    );
    Some(Failure::new(first.kind, bounded_reason(message)))
}

/// Where a segment failed last, for a sentence; empty if no worker is known.
fn last_at(worker: &str) -> String {
    if worker.is_empty() { String::new() } else { format!(", last at worker '{worker}'") }
}

/// Milliseconds since `start`.
pub(crate) fn ms_since(start: std::time::Instant) -> f64 {
    ms_of(start.elapsed())
}

/// Milliseconds of a duration.
pub(crate) fn ms_of(duration: std::time::Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}
