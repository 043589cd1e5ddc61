//! Timing of one shard: the stages recorded by engines and threads, summed up for the coordinator, and as spans.
//!
//! Segments run on many threads; their stages are added here when they end. Results do not depend on it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use trawl_kernels::stages::{EngineStage, Launches, Stages};
use trawl_telemetry::names::{attribute, span as name};
use trawl_telemetry::spans::{self, Finished, KeyValue};
use trawl_wire::pb;

/// Maximum number of stages exported as separate spans; beyond it, one span per kind of work.
pub const STAGE_SPANS_MAX: usize = 24;
/// Number of fusion groups that are distinguished; further ones count as the last.
pub const FUSION_GROUPS_MAX: u32 = 8;

/// The order in which a shard goes through its stages.
const ORDER: [&str; 8] =
    [name::RECEIVE, name::QUEUE, name::LOAD, name::H2D, name::KERNEL, name::D2H, name::ENCODE, name::SEND];

/// Where the bars of a segment were.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CacheLevel {
    /// In the memory of a device.
    Device,
    /// In the worker's memory.
    Memory,
    /// Read from a file.
    Disk,
}

/// The timings of one segment's execution.
#[derive(Debug, Clone, Default)]
pub struct SegmentRecord {
    /// Stages that its threads went through.
    pub stages: Stages,
    /// Where its bars were; `None` if they were not loaded.
    pub cache: Option<CacheLevel>,
    /// Number of its symbols.
    pub symbols: u64,
    /// Number of bars loaded, over all its symbols.
    pub bars: u64,
    /// Size of these bars in bytes.
    pub bytes: u64,
    /// Whether it has no result.
    pub failed: bool,
}

/// What the coordinator's request says about the shard.
#[derive(Debug, Clone, Copy, Default)]
pub struct Asked {
    /// How long it may take before it counts as slow.
    pub slow_after: Option<Duration>,
    /// Whether another worker runs it too.
    pub hedge: bool,
    /// Whether its stages are exported also if nothing is wrong with it.
    pub stages: bool,
    /// Whether it was stopped: another worker was faster, or the scan is over.
    pub stopped: bool,
}

/// One stage of one segment, or of a batch of several.
#[derive(Debug, Clone, Copy)]
struct Raw {
    name: &'static str,
    part: u32,
    segment: Option<u32>,
    started: Instant,
    ended: Instant,
    bytes: u64,
}

/// The sum over one kind of work.
#[derive(Debug, Clone, Copy)]
struct Sum {
    started: Instant,
    ended: Instant,
    busy: Duration,
    count: u32,
    bytes: u64,
}

#[derive(Debug, Default)]
struct State {
    /// Sums by index in [`ORDER`] and fusion group.
    sums: BTreeMap<(usize, u32), Sum>,
    /// The individual stages, while there are few.
    raw: Vec<Raw>,
    raw_over: bool,
    begun: bool,
    symbols: u64,
    bars: u64,
    bytes: u64,
    /// Number of segments by cache level: device, memory, disk.
    cached: [u32; 3],
    failed: u32,
    launches: Launches,
}

/// The record of one shard; shared by its threads.
#[derive(Debug)]
pub struct Timeline {
    arrived: Instant,
    ready: Instant,
    /// Number of segments that have not ended.
    left: AtomicUsize,
    segments: usize,
    device: &'static str,
    state: Mutex<State>,
}

impl Timeline {
    /// The timeline of a shard of `segments` segments whose request arrived at `arrived` and has now been validated.
    pub fn new(arrived: Instant, segments: usize, device: &'static str) -> Self {
        let ready = Instant::now();
        let timeline = Self { arrived, ready, left: segments.into(), segments, device, state: Mutex::default() };
        let receive = Raw { name: name::RECEIVE, part: 0, segment: None, started: arrived, ended: ready, bytes: 0 };
        timeline.state().add(receive);
        timeline
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that a thread begins a segment; the first one ends the wait for threads.
    pub fn begin(&self) {
        let mut state = self.state();
        if !std::mem::replace(&mut state.begun, true) {
            let (started, ended) = (self.ready, Instant::now());
            state.add(Raw { name: name::QUEUE, part: 0, segment: None, started, ended, bytes: 0 });
        }
    }

    /// Adds the stages of a device's batch, which covers several segments.
    pub fn record(&self, stages: &Stages) {
        self.state().add_all(stages, None);
    }

    /// Adds the timings of a segment; returns the timings of the whole shard if it was the last one.
    pub fn take(&self, segment: u32, record: &SegmentRecord) -> Option<pb::ShardTimings> {
        let mut state = self.state();
        state.add_all(&record.stages, Some(segment));
        state.symbols += record.symbols;
        state.bars += record.bars;
        state.bytes += record.bytes;
        state.failed += u32::from(record.failed);
        if let Some(level) = record.cache {
            state.cached[level as usize] += 1;
        }
        (self.left.fetch_sub(1, Ordering::Relaxed) == 1).then(|| self.timings(&state))
    }

    /// Records that a reply was sent, which took since `started`.
    pub fn sent(&self, segment: u32, started: Instant) {
        let (name, segment, ended) = (name::SEND, Some(segment), Instant::now());
        self.state().add(Raw { name, part: 0, segment, started, ended, bytes: 0 });
    }

    fn timings(&self, state: &State) -> pb::ShardTimings {
        let since = |at: Instant| micros(at.saturating_duration_since(self.arrived));
        let stage = |(&(place, part), sum): (&(usize, u32), &Sum)| pb::StageTiming {
            stage: ORDER.get(place).copied().unwrap_or_default().to_owned(),
            part,
            started_us: since(sum.started),
            ended_us: since(sum.ended),
            busy_us: micros(sum.busy),
            count: sum.count,
            bytes: sum.bytes,
        };
        let [from_device, from_memory, from_disk] = state.cached;
        pb::ShardTimings {
            total_us: micros(self.arrived.elapsed()),
            stages: state.sums.iter().map(stage).collect(),
            symbols: state.symbols,
            bars: state.bars,
            bytes: state.bytes,
            from_device,
            from_memory,
            from_disk,
            device: self.device.to_owned(),
            kernels: state.launches.kernels,
            launches: state.launches.calls,
        }
    }

    /// Ends the shard, finished or not, and records its timings on `span`. If the shard was slow, failed, stopped or a hedge, its
    /// stages and the rest of its trace are exported regardless of sampling; of others the stages are exported if they were asked for
    /// and the trace is sampled.
    pub fn finish(self, span: &tracing::Span, asked: Asked) {
        let ended = Instant::now();
        let slow = asked.slow_after.is_some_and(|limit| ended.duration_since(self.arrived) >= limit);
        if !spans::exporting() {
            return;
        }
        let state = self.state.into_inner().unwrap_or_else(PoisonError::into_inner);
        let [device, memory, disk] = state.cached;
        let cache = cache_name(device, memory, disk).map(|level| KeyValue::new(attribute::CACHE, level));
        spans::set(
            span,
            [
                KeyValue::new(attribute::SEGMENTS, spans::number(self.segments as u64)),
                KeyValue::new(attribute::SYMBOLS, spans::number(state.symbols)),
                KeyValue::new(attribute::BARS, spans::number(state.bars)),
                KeyValue::new(attribute::BYTES, spans::number(state.bytes)),
                KeyValue::new(attribute::DEVICE, self.device),
                KeyValue::new(attribute::HEDGE, asked.hedge),
                KeyValue::new(attribute::SLOW, slow),
            ]
            .into_iter()
            .chain(cache),
        );
        if state.failed > 0 {
            spans::fail(span, "segment_failed", format!("{} of {} segments failed", state.failed, self.segments));
        }
        let notable = slow || asked.hedge || asked.stopped || state.failed > 0;
        if notable {
            spans::keep(span);
        }
        if notable || (asked.stages && spans::is_sampled(span)) {
            spans::emit(span, state.count(), move || state.spans());
        }
    }
}

/// Where the bars of a shard's segments were, as named in spans and reports; `None` if there were no bars.
pub fn cache_name(device: u32, memory: u32, disk: u32) -> Option<&'static str> {
    match (device > 0, memory > 0, disk > 0) {
        (false, false, false) => None,
        (true, false, false) => Some("device"),
        (false, true, false) => Some("memory"),
        (false, false, true) => Some("disk"),
        _ => Some("mixed"),
    }
}

impl State {
    fn add_all(&mut self, stages: &Stages, segment: Option<u32>) {
        let Launches { kernels, calls } = stages.launches();
        self.launches.kernels += kernels;
        self.launches.calls += calls;
        for span in stages.spans() {
            let part = if span.stage == EngineStage::Kernel { span.part.min(FUSION_GROUPS_MAX - 1) } else { 0 };
            let (started, ended, bytes) = (span.started, span.ended, span.bytes);
            self.add(Raw { name: span.stage.name(), part, segment, started, ended, bytes });
        }
    }

    fn add(&mut self, raw: Raw) {
        let place = ORDER.iter().position(|name| *name == raw.name).unwrap_or(ORDER.len());
        let busy = raw.ended.saturating_duration_since(raw.started);
        let sum = self.sums.entry((place, raw.part)).or_insert(Sum {
            started: raw.started,
            ended: raw.ended,
            busy: Duration::ZERO,
            count: 0,
            bytes: 0,
        });
        sum.started = sum.started.min(raw.started);
        sum.ended = sum.ended.max(raw.ended);
        sum.busy += busy;
        sum.count = sum.count.saturating_add(1);
        sum.bytes = sum.bytes.saturating_add(raw.bytes);
        if !self.raw_over && self.raw.len() < STAGE_SPANS_MAX && spans::exporting() {
            self.raw.push(raw);
        } else {
            self.raw_over = true;
            self.raw = Vec::new();
        }
    }

    /// Number of [`Self::spans`].
    fn count(&self) -> usize {
        if self.raw_over { self.sums.len() } else { self.raw.len() }
    }

    /// The stages as spans: individually, or one per kind if there are many.
    fn spans(&self) -> Vec<Finished> {
        let kernel = |name: &str, part: u32| {
            (name == name::KERNEL).then(|| KeyValue::new(attribute::FUSION_GROUP, i64::from(part)))
        };
        let bytes = |bytes: u64| (bytes > 0).then(|| KeyValue::new(attribute::BYTES, spans::number(bytes)));
        if !self.raw_over {
            let single = |raw: &Raw| {
                let segment = raw.segment.map(|segment| KeyValue::new(attribute::SEGMENT, i64::from(segment)));
                let attributes = segment.into_iter().chain(kernel(raw.name, raw.part)).chain(bytes(raw.bytes));
                Finished { name: raw.name, started: raw.started, ended: raw.ended, attributes: attributes.collect() }
            };
            return self.raw.iter().map(single).collect();
        }
        let summed = |(&(place, part), sum): (&(usize, u32), &Sum)| {
            let name = ORDER.get(place).copied()?;
            let attributes = [
                KeyValue::new(attribute::COUNT, i64::from(sum.count)),
                KeyValue::new(attribute::BUSY_MS, sum.busy.as_secs_f64() * 1e3),
            ];
            let attributes = attributes.into_iter().chain(kernel(name, part)).chain(bytes(sum.bytes)).collect();
            Some(Finished { name, started: sum.started, ended: sum.ended, attributes })
        };
        self.sums.iter().filter_map(summed).collect()
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use trawl_kernels::stages::StageSpan;

    use super::*;

    /// Stages of a segment: milliseconds from `start`.
    fn segment_record(start: Instant, stages: &[(EngineStage, u32, u64, u64)]) -> SegmentRecord {
        let mut record = SegmentRecord { symbols: 64, bars: 100, bytes: 4800, ..SegmentRecord::default() };
        for &(stage, part, from, to) in stages {
            let at = |ms| start + Duration::from_millis(ms);
            record.stages.record(StageSpan { stage, part, bytes: 10, started: at(from), ended: at(to) });
        }
        record
    }

    #[test]
    fn stages_of_all_segments_are_summed_up_and_reported_with_the_last() {
        let start = Instant::now();
        let timeline = Timeline::new(start, 2, "cpu");
        timeline.begin();
        timeline.begin();
        let first =
            [(EngineStage::Load, 0, 10, 20), (EngineStage::Kernel, 0, 20, 50), (EngineStage::Kernel, 1, 50, 60)];
        let first = SegmentRecord { cache: Some(CacheLevel::Disk), ..segment_record(start, &first) };
        assert_eq!(timeline.take(7, &first), None);
        let second = [
            (EngineStage::HostToDevice, 0, 12, 15),
            (EngineStage::Kernel, 0, 15, 90),
            (EngineStage::DeviceToHost, 3, 90, 91),
        ];
        let mut second = SegmentRecord { cache: Some(CacheLevel::Device), ..segment_record(start, &second) };
        second.stages.launched(Launches { kernels: 9, calls: 1 });
        let timings = timeline.take(8, &second).expect("the last");
        let names: Vec<(&str, u32)> = timings.stages.iter().map(|s| (s.stage.as_str(), s.part)).collect();
        let expected =
            [("receive", 0), ("queue", 0), ("load", 0), ("h2d", 0), ("kernel", 0), ("kernel", 1), ("d2h", 0)];
        assert_eq!(names, expected);
        let kernel = timings.stages.iter().find(|s| s.stage == "kernel").unwrap();
        assert_eq!((kernel.started_us, kernel.ended_us, kernel.busy_us), (15_000, 90_000, 105_000));
        assert_eq!((kernel.count, kernel.bytes), (2, 20));
        assert_eq!(timings.stages[1].count, 1, "the wait for threads ends once");
        assert_eq!((timings.symbols, timings.bars, timings.bytes), (128, 200, 9600));
        assert_eq!((timings.from_device, timings.from_memory, timings.from_disk), (1, 0, 1));
        assert_eq!((timings.kernels, timings.launches), (9, 1));
        assert_eq!(cache_name(1, 0, 1), Some("mixed"));
    }

    #[test]
    fn few_stages_are_spans_of_their_own_and_many_are_one_of_each_kind() {
        let start = Instant::now();
        let mut state = State::default();
        let raw = |ms: u64, part| Raw {
            name: name::KERNEL,
            part,
            segment: Some(3),
            started: start + Duration::from_millis(ms),
            ended: start + Duration::from_millis(ms + 1),
            bytes: 0,
        };
        // Without an exporter no individual stages are kept.
        state.add(raw(0, 0));
        assert!(state.raw.is_empty() && state.raw_over);
        state.raw_over = false;
        state.raw.push(raw(0, 2));
        let spans = state.spans();
        assert_eq!((spans.len(), spans[0].name, spans[0].attributes.len()), (1, "kernel", 2));
        assert_eq!(state.count(), 1);
        (1..500).for_each(|ms| state.add(raw(ms, 0)));
        state.add(raw(9, 1));
        let spans = state.spans();
        assert_eq!(spans.iter().map(|s| s.name).collect::<Vec<_>>(), ["kernel", "kernel"]);
        assert_eq!(state.count(), 2);
        assert_eq!(spans[0].ended - spans[0].started, Duration::from_millis(500));
    }
}
