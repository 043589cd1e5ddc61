//! Where the time of a run went, from its report: stages, workers, shards from the slowest on, and the probable causes
//! of stragglers.
//!
//! Pure: a report in, a profile out. It reads what was recorded and measures nothing.

use std::collections::BTreeMap;

use serde::Serialize;
use trawl_worker::timeline::cache_name;

use crate::report::{RunPurpose, RunReport, ShardRun, StageTime};

/// Multiple of the other shards' median time beyond which a shard is a straggler.
pub const STRAGGLER_MULTIPLE: f64 = 2.0;
/// Minimum excess over other shards, in milliseconds, for a straggler.
pub const STRAGGLER_MIN_MS: f64 = 10.0;
/// Minimum duration, in milliseconds, of optional phases to be listed.
const PHASE_MIN_MS: f64 = 0.1;
/// Share of a shard's time, or of its work, that one part has to take to be the cause.
pub const CAUSE_SHARE: f64 = 0.5;

/// Where a run's time went.
#[derive(Debug, Clone, Default, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Profile {
    /// The scan's id; empty in embedded mode.
    pub scan: String,
    /// `embedded` or `cluster`.
    pub mode: String,
    /// Trace id in hexadecimal; empty if no trace was exported.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub trace: String,
    /// The earlier scan whose answer this is: nothing was computed.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub answer_of: String,
    /// All phases together.
    pub total_ms: f64,
    /// Number of symbols of the snapshot.
    pub symbols: u64,
    /// Number of bars of the snapshot.
    pub bars: u64,
    /// The phases in order.
    pub phases: Vec<Phase>,
    /// Work of all shards, summed over threads and workers.
    pub stages: Vec<StageSum>,
    /// Workers, by name.
    pub workers: Vec<WorkerSum>,
    /// The slowest first: waiting and running together.
    pub shards: Vec<ShardLine>,
}

/// A part of a run.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Phase {
    /// `plan`, `queue`, `shards`, `cross_section`, `merge`.
    pub phase: &'static str,
    /// Its duration in milliseconds.
    pub ms: f64,
}

/// One kind of work over all shards.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
pub struct StageSum {
    /// Name of the stage, as in [`StageTime::stage`].
    pub stage: String,
    /// Busy time in milliseconds, summed over threads and workers.
    pub busy_ms: f64,
    /// Share of all work.
    pub share: f64,
}

/// Totals of one worker.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
pub struct WorkerSum {
    /// Name of the worker.
    pub worker: String,
    /// Number of dispatches to it.
    pub shards: u32,
    /// Number of stragglers among them.
    pub stragglers: u32,
    /// Sum of times from dispatch to end.
    pub took_ms: f64,
    /// Bars of its shards.
    pub bars: u64,
}

/// One dispatch.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
pub struct ShardLine {
    /// Number of the attempt, as the scheduler gave it.
    pub attempt: u64,
    /// The scan's step, from 1.
    pub step: u32,
    /// Name of the worker.
    pub worker: String,
    /// The first of its segments.
    pub shard: u32,
    /// Number of its segments.
    pub segments: u32,
    /// Number of symbols; 0 without the worker's timings.
    pub symbols: u64,
    /// Number of bars; 0 without the worker's timings.
    pub bars: u64,
    /// Where its bars were; `None` if the worker did not report it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache: Option<&'static str>,
    /// `cpu`, or the device's name; empty if the worker did not report it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub device: String,
    /// Why it was dispatched.
    pub purpose: RunPurpose,
    /// `done`, `stopped`, or how it failed.
    pub ending: String,
    /// Time spent waiting for a worker.
    pub queued_ms: f64,
    /// Time of its dispatch, since the scan was accepted.
    pub started_ms: f64,
    /// From its dispatch to its end; of a running shard, to the end of the report.
    pub took_ms: f64,
    /// How long it may take before it counts as slow; `None` if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slow_after_ms: Option<f64>,
    /// Stages at its worker; times are since the request's arrival there.
    pub stages: Vec<StageTime>,
    /// Set if the shard is a straggler.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub straggler: Option<Straggler>,
}

/// The probable cause of a late shard.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Straggler {
    /// The probable cause.
    pub cause: Cause,
    /// A sentence with the figures.
    pub why: String,
}

/// Probable causes of a late shard. Documented in `docs/telemetry.md`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// The attempt itself failed.
    Failed,
    /// An earlier attempt failed.
    Retry,
    /// It waited for a worker or for its threads.
    Queueing,
    /// Bars came from files, or the snapshot had to be opened first.
    ColdCache,
    /// It has more bars than others.
    BigShard,
    /// Its worker takes longer for each bar than others, or does not answer.
    SlowWorker,
    /// Its results waited for the coordinator.
    Sending,
    /// No part of it is conspicuous.
    Unclear,
}

impl Cause {
    /// The name of this variant.
    pub fn name(self) -> &'static str {
        match self {
            Self::Failed => "failed",
            Self::Retry => "retry",
            Self::Queueing => "queueing",
            Self::ColdCache => "cold-cache",
            Self::BigShard => "big-shard",
            Self::SlowWorker => "slow-worker",
            Self::Sending => "sending",
            Self::Unclear => "unclear",
        }
    }
}

impl Profile {
    /// The profile of a run.
    pub fn of(report: &RunReport) -> Self {
        let end_ms = report.shard_runs.iter().filter_map(|run| run.ended_ms).fold(report.run_ms, f64::max);
        let mut shards: Vec<ShardLine> = report.shard_runs.iter().map(|run| line_of(run, end_ms)).collect();
        let found: Vec<Option<Straggler>> =
            report.shard_runs.iter().map(|run| straggler(run, &report.shard_runs, end_ms)).collect();
        shards.iter_mut().zip(found).for_each(|(line, found)| line.straggler = found);
        let workers = workers_of(&shards);
        shards.sort_by(|a, b| {
            let whole = |line: &ShardLine| line.queued_ms + line.took_ms;
            whole(b).total_cmp(&whole(a)).then(a.attempt.cmp(&b.attempt))
        });
        let phases = [
            ("plan", report.prepare_ms),
            ("queue", report.turn_ms),
            ("shards", (end_ms - report.cross_ms).max(0.0)),
            ("cross_section", report.cross_ms),
            ("merge", report.merge_ms),
        ];
        let phases: Vec<Phase> = phases
            .into_iter()
            .filter(|(phase, ms)| *ms >= PHASE_MIN_MS || !matches!(*phase, "queue" | "cross_section"))
            .map(|(phase, ms)| Phase { phase, ms })
            .collect();
        Self {
            scan: report.scan.clone(),
            mode: report.mode.clone(),
            trace: report.trace.clone(),
            answer_of: report.answer_of.clone(),
            total_ms: phases.iter().map(|p| p.ms).sum(),
            symbols: report.symbols,
            bars: report.bars,
            phases,
            stages: stages_of(&report.shard_runs),
            workers,
            shards,
        }
    }

    /// Late shards, the slowest first.
    pub fn stragglers(&self) -> impl Iterator<Item = (&ShardLine, &Straggler)> {
        self.shards.iter().filter_map(|line| line.straggler.as_ref().map(|straggler| (line, straggler)))
    }
}

/// From its dispatch to its end, or to the end of the report.
fn took(run: &ShardRun, end_ms: f64) -> f64 {
    run.took_ms().unwrap_or_else(|| (end_ms - run.started_ms).max(0.0))
}

fn line_of(run: &ShardRun, end_ms: f64) -> ShardLine {
    let times = run.timings.as_ref();
    ShardLine {
        attempt: run.attempt,
        step: run.step + 1,
        worker: run.worker.clone(),
        shard: run.segments.first().copied().unwrap_or_default(),
        segments: u32::try_from(run.segments.len()).unwrap_or(u32::MAX),
        symbols: times.map_or(0, |t| t.symbols),
        bars: times.map_or(0, |t| t.bars),
        cache: times.and_then(|t| cache_name(t.from_device, t.from_memory, t.from_disk)),
        device: times.map_or_else(String::new, |t| t.device.clone()),
        purpose: run.purpose,
        ending: run.ending.clone(),
        queued_ms: run.queued_ms,
        started_ms: run.started_ms,
        took_ms: took(run, end_ms),
        slow_after_ms: run.slow_after_ms,
        stages: times.map_or_else(Vec::new, |t| t.stages.clone()),
        straggler: None,
    }
}

fn stages_of(runs: &[ShardRun]) -> Vec<StageSum> {
    let mut sums: Vec<StageSum> = Vec::new();
    for stage in runs.iter().filter_map(|run| run.timings.as_ref()).flat_map(|times| &times.stages) {
        match sums.iter_mut().find(|sum| sum.stage == stage.stage) {
            Some(sum) => sum.busy_ms += stage.busy_ms,
            None => sums.push(StageSum { stage: stage.stage.clone(), busy_ms: stage.busy_ms, share: 0.0 }),
        }
    }
    let all: f64 = sums.iter().map(|sum| sum.busy_ms).sum();
    if all > 0.0 {
        sums.iter_mut().for_each(|sum| sum.share = sum.busy_ms / all);
    }
    sums
}

fn workers_of(shards: &[ShardLine]) -> Vec<WorkerSum> {
    let mut workers: BTreeMap<&str, WorkerSum> = BTreeMap::new();
    for line in shards {
        let sum = workers.entry(&line.worker).or_insert_with(|| WorkerSum {
            worker: line.worker.clone(),
            shards: 0,
            stragglers: 0,
            took_ms: 0.0,
            bars: 0,
        });
        sum.shards += 1;
        sum.stragglers += u32::from(line.straggler.is_some());
        sum.took_ms += line.took_ms;
        sum.bars += line.bars;
    }
    workers.into_values().collect()
}

/// The median; the lower one of two middle values; `None` if empty.
fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut sorted: Vec<f64> = values.collect();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len().saturating_sub(1) / 2).copied()
}

fn is_done(run: &ShardRun) -> bool {
    run.ending == "done"
}

/// Whether a shard was late, and why, compared with the other shards of its step.
pub fn straggler(run: &ShardRun, all: &[ShardRun], end_ms: f64) -> Option<Straggler> {
    let others = || all.iter().filter(|other| other.step == run.step && other.attempt != run.attempt);
    let whole = |run: &ShardRun| run.queued_ms + took(run, end_ms);
    let usual = median(others().filter(|other| is_done(other)).map(whole));
    let mine = whole(run);
    let longer = usual.is_some_and(|usual| mine > usual * STRAGGLER_MULTIPLE && mine - usual >= STRAGGLER_MIN_MS);
    let failed = run.ending.contains(':');
    // A shard that was answered by another attempt before it was late is not a straggler: a hedge may be stopped at
    // once.
    if !(failed || run.is_slow() || longer) {
        return None;
    }
    let (cause, why) = cause_of(run, all, end_ms);
    Some(Straggler { cause, why })
}

fn cause_of(run: &ShardRun, all: &[ShardRun], end_ms: f64) -> (Cause, String) {
    let mine = took(run, end_ms);
    let peers = || all.iter().filter(|other| other.step == run.step && other.attempt != run.attempt);
    if run.ending.contains(':') {
        return (Cause::Failed, format!("it {} after {}", run.ending, duration_text(mine)));
    }
    let shares = |other: &&ShardRun| other.segments.iter().any(|segment| run.segments.contains(segment));
    let before = |other: &&ShardRun| other.attempt < run.attempt && other.ending.contains(':');
    if let Some(first) = peers().filter(shares).find(before) {
        let lost = duration_text(took(first, end_ms));
        let why = format!("attempt {} on {} {} after {lost}", first.attempt, first.worker, first.ending);
        return (Cause::Retry, why);
    }
    let stages = run.timings.as_ref().map_or(&[][..], |times| &times.stages);
    let busy = |name: &str| stages.iter().filter(|s| s.stage == name).map(|s| s.busy_ms).sum::<f64>();
    let waited = run.queued_ms + busy("queue");
    if waited >= CAUSE_SHARE * (run.queued_ms + mine) && waited > 0.0 {
        let why =
            format!("it waited {} of {} for a worker", duration_text(waited), duration_text(run.queued_ms + mine));
        return (Cause::Queueing, why);
    }
    let Some(times) = &run.timings else {
        // Its timings are unknown: it was stopped, or is still running.
        let quicker = peers().filter(|other| is_done(other) && other.worker != run.worker);
        return match median(quicker.map(|other| took(other, end_ms))) {
            Some(usual) if mine >= usual * STRAGGLER_MULTIPLE => {
                let why = format!(
                    "{} did not answer within {}, others took {}",
                    run.worker,
                    duration_text(mine),
                    duration_text(usual)
                );
                (Cause::SlowWorker, why)
            }
            _ => (Cause::Unclear, format!("nothing is known of it but that it took {}", duration_text(mine))),
        };
    };
    if busy("receive") >= CAUSE_SHARE * mine {
        let why =
            format!("{} opened the snapshot and compiled the scan for {}", run.worker, duration_text(busy("receive")));
        return (Cause::ColdCache, why);
    }
    let work: f64 = ["load", "h2d", "kernel", "d2h", "encode"].map(busy).iter().sum();
    // A large share of little work does not explain a long time.
    if times.from_disk > 0 && busy("load") >= CAUSE_SHARE * work && work >= CAUSE_SHARE * mine {
        let (cold, loading) = (segments(times.from_disk), duration_text(busy("load")));
        return (
            Cause::ColdCache,
            format!("{cold} came from disk: {loading} of {} of work were loading", duration_text(work)),
        );
    }
    let known = || peers().filter(|other| is_done(other)).filter_map(|o| o.timings.as_ref().map(|t| (o, t)));
    let pace = |took: f64, bars: u64| took / (bars.max(1) as f64);
    let my_pace = pace(mine, times.bars);
    let bars = median(known().map(|(_, t)| t.bars as f64));
    let usual_pace = median(known().map(|(o, t)| pace(took(o, end_ms), t.bars)));
    if let (Some(bars), Some(usual)) = (bars, usual_pace)
        && times.bars as f64 >= bars * STRAGGLER_MULTIPLE
        && my_pace < usual * STRAGGLER_MULTIPLE
    {
        let why = format!("it has {} bars, the median shard {}", times.bars, bars.round());
        return (Cause::BigShard, why);
    }
    if busy("send") >= CAUSE_SHARE * mine {
        return (Cause::Sending, format!("its results waited {} for the coordinator", duration_text(busy("send"))));
    }
    let elsewhere = median(known().filter(|(o, _)| o.worker != run.worker).map(|(o, t)| pace(took(o, end_ms), t.bars)));
    match elsewhere {
        Some(usual) if my_pace >= usual * STRAGGLER_MULTIPLE && usual > 0.0 => {
            let why = format!("{} took {:.1} times as long for each bar as other workers", run.worker, my_pace / usual);
            (Cause::SlowWorker, why)
        }
        _ => (Cause::Unclear, format!("it took {}, and no stage of it stands out", duration_text(mine))),
    }
}

fn segments(count: u32) -> String {
    if count == 1 { "1 segment".to_owned() } else { format!("{count} segments") }
}

/// A duration in milliseconds, formatted for people.
pub fn duration_text(ms: f64) -> String {
    match ms {
        ms if ms >= 10_000.0 => format!("{:.1} s", ms / 1e3),
        ms if ms >= 1_000.0 => format!("{:.2} s", ms / 1e3),
        ms if ms >= 10.0 => format!("{ms:.0} ms"),
        ms if ms >= 0.1 => format!("{ms:.1} ms"),
        ms => format!("{:.0} µs", ms * 1e3),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::ShardTimes;

    /// A shard of 1,000 bars that took `took_ms` on a worker, all of it computing.
    fn run(attempt: u64, worker: &str, took_ms: f64) -> ShardRun {
        ShardRun {
            attempt,
            worker: worker.to_owned(),
            segments: vec![u32::try_from(attempt).unwrap()],
            started_ms: 1.0,
            ended_ms: Some(1.0 + took_ms),
            ending: "done".to_owned(),
            purpose: RunPurpose::Work,
            step: 0,
            queued_ms: 0.0,
            slow_after_ms: Some(250.0),
            timings: Some(times(&[("kernel", took_ms)])),
        }
    }

    fn times(stages: &[(&str, f64)]) -> ShardTimes {
        let stage = |(stage, busy_ms): &(&str, f64)| StageTime {
            stage: (*stage).to_owned(),
            ended_ms: *busy_ms,
            busy_ms: *busy_ms,
            count: 1,
            ..StageTime::default()
        };
        ShardTimes {
            bars: 1000,
            symbols: 4,
            from_memory: 1,
            stages: stages.iter().map(stage).collect(),
            ..<_>::default()
        }
    }

    /// The verdict on `odd` beside five quick shards on two workers.
    fn found(odd: ShardRun) -> Option<Straggler> {
        let mut all: Vec<ShardRun> = (1..=5).map(|i| run(i, if i % 2 == 0 { "w1" } else { "w2" }, 20.0)).collect();
        all.push(odd.clone());
        straggler(&odd, &all, 1000.0)
    }

    #[test]
    fn a_shard_as_quick_as_the_others_is_no_straggler() {
        assert_eq!(found(run(9, "w3", 39.0)), None);
        assert_eq!(straggler(&run(1, "w1", 100.0), &[], 100.0), None, "there is nothing to compare with");
        // Small differences of small times are ignored.
        let all: Vec<ShardRun> = (1..5).map(|i| run(i, "w1", 1.0)).collect();
        assert_eq!(straggler(&run(9, "w1", 9.0), &all, 100.0), None);
    }

    #[test]
    fn each_cause_is_distinguished_from_the_others() {
        let cause = |odd: ShardRun| found(odd).map(|s| s.cause);
        assert_eq!(cause(run(9, "w3", 400.0)), Some(Cause::SlowWorker));
        let queued = ShardRun { queued_ms: 300.0, ..run(9, "w1", 20.0) };
        assert_eq!(cause(queued), Some(Cause::Queueing));
        let threads = ShardRun { timings: Some(times(&[("queue", 90.0), ("kernel", 10.0)])), ..run(9, "w1", 100.0) };
        assert_eq!(cause(threads), Some(Cause::Queueing));
        let cold = ShardTimes { from_disk: 1, ..times(&[("load", 80.0), ("kernel", 20.0)]) };
        let cold = ShardRun { timings: Some(cold), ..run(9, "w1", 100.0) };
        assert_eq!(cause(cold.clone()), Some(Cause::ColdCache));
        let opening = ShardRun { timings: Some(times(&[("receive", 90.0), ("kernel", 9.0)])), ..run(9, "w1", 100.0) };
        assert_eq!(cause(opening), Some(Cause::ColdCache));
        let warm = ShardTimes { from_disk: 0, ..cold.timings.clone().unwrap() };
        assert_eq!(cause(ShardRun { timings: Some(warm), ..cold.clone() }), Some(Cause::SlowWorker));
        // A large share of little work: something else took the time.
        let little = ShardTimes { from_disk: 1, ..times(&[("load", 4.0), ("kernel", 1.0)]) };
        assert_eq!(cause(ShardRun { timings: Some(little), ..cold }), Some(Cause::SlowWorker));
        let big = ShardTimes { bars: 8000, ..times(&[("kernel", 160.0)]) };
        assert_eq!(cause(ShardRun { timings: Some(big), ..run(9, "w1", 160.0) }), Some(Cause::BigShard));
        let sending = ShardRun { timings: Some(times(&[("kernel", 20.0), ("send", 80.0)])), ..run(9, "w1", 100.0) };
        assert_eq!(cause(sending), Some(Cause::Sending));
        let broken = ShardRun { ending: "broken: connection reset".to_owned(), timings: None, ..run(9, "w3", 5.0) };
        assert_eq!(cause(broken), Some(Cause::Failed));
        let silent = ShardRun { ending: "stopped".to_owned(), timings: None, ..run(9, "w3", 700.0) };
        let late = found(silent).unwrap();
        assert_eq!(late.cause, Cause::SlowWorker);
        assert_eq!(late.why, "w3 did not answer within 700 ms, others took 20 ms");
    }

    #[test]
    fn a_shard_that_began_again_says_after_what() {
        let first =
            ShardRun { ending: "broken: gone".to_owned(), segments: vec![7], timings: None, ..run(6, "w3", 500.0) };
        let again = ShardRun { segments: vec![7], queued_ms: 0.0, ..run(7, "w1", 300.0) };
        let mut all: Vec<ShardRun> = (1..=3).map(|i| run(i, "w1", 20.0)).collect();
        all.extend([first, again.clone()]);
        let found = straggler(&again, &all, 1000.0).unwrap();
        assert_eq!((found.cause, found.why.as_str()), (Cause::Retry, "attempt 6 on w3 broken: gone after 500 ms"));
    }

    #[test]
    fn a_profile_adds_up_and_begins_with_the_slowest() {
        let report = RunReport {
            mode: "cluster".to_owned(),
            prepare_ms: 5.0,
            run_ms: 401.0,
            merge_ms: 4.0,
            shard_runs: vec![run(1, "w1", 20.0), run(2, "w2", 400.0), run(3, "w1", 30.0)],
            ..RunReport::default()
        };
        let profile = Profile::of(&report);
        assert_eq!(profile.shards.iter().map(|s| s.attempt).collect::<Vec<_>>(), [2, 3, 1]);
        let phases: Vec<(&str, f64)> = profile.phases.iter().map(|p| (p.phase, p.ms)).collect();
        assert_eq!(phases, [("plan", 5.0), ("shards", 401.0), ("merge", 4.0)]);
        assert_eq!((profile.stages.len(), profile.stages[0].busy_ms, profile.stages[0].share), (1, 450.0, 1.0));
        let workers: Vec<(&str, u32, u32)> =
            profile.workers.iter().map(|w| (w.worker.as_str(), w.shards, w.stragglers)).collect();
        assert_eq!(workers, [("w1", 2, 0), ("w2", 1, 1)]);
        let late: Vec<(u64, Cause)> = profile.stragglers().map(|(line, s)| (line.attempt, s.cause)).collect();
        assert_eq!(late, [(2, Cause::SlowWorker)]);
        assert_eq!(Profile::of(&RunReport::default()).shards, []);
    }
}
