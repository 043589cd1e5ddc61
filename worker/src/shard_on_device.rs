//! A shard on a device: its segments are computed together, as many as fit into a call, while the compute threads load
//! those of the next call.
//!
//! The grouping of segments depends on the shard and the snapshot only, and does not affect results. Each result is
//! sent as soon as its batch is done.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use rayon::Scope;
use rayon::prelude::*;
use trawl_kernels::Cancel;
use trawl_kernels::cuda::{Ahead, Fault, Fleet};
use trawl_kernels::stages::{EngineStage, Stages};
use trawl_market::LoadedBars;
use trawl_wire::{Failure, pb};

use crate::execute::{BatchEvent, ExecuteError, Loaded};
use crate::measure;
use crate::replies::Replies;
use crate::service::{AtHand, Unwanted, WorkerService, micros, reply_of};
use crate::shard::Shard;
use crate::timeline::{SegmentRecord, Timeline};

/// Maximum bytes of bars per device in one call: some 2,500 symbols of 2,000 bars, enough lanes for a large device.
/// The worker's memory holds twice as many, for each device and running shard.
const CALL_BYTES_MAX: u64 = 256 << 20;
/// The bars of a call may take 1/`CALL_SHARE` of the device's memory.
const CALL_SHARE: u64 = 4;

/// A segment of a call: its loaded bars, or the error.
struct Coming {
    at: usize,
    loaded: Result<AtHand, Failure>,
    timings: pb::SegmentTimings,
    record: SegmentRecord,
    began: Instant,
    panicked: bool,
}

/// Segments of one call that are being loaded.
struct Loading {
    next: AtomicUsize,
    end: usize,
    sender: Sender<Coming>,
}

/// A running shard.
struct Run<'a> {
    service: &'a WorkerService,
    shard: &'a Shard,
    span: &'a tracing::Span,
    timeline: &'a Timeline,
    replies: &'a Replies,
    cancel: Unwanted<'a>,
    /// Per segment: whether its reply was sent.
    answered: Vec<AtomicBool>,
}

impl WorkerService {
    /// Runs all segments of a shard; returns when the last has ended or the receiver is dropped. Must not be called
    /// from a compute thread.
    pub fn run_on_device(
        &self,
        fleet: &Fleet,
        shard: &Shard,
        replies: &Replies,
        span: &tracing::Span,
        timeline: &Timeline,
    ) {
        let cancel = Unwanted { replies, stopped: &self.stopped, pulse: &self.pulse };
        let answered = shard.segments.iter().map(|_| AtomicBool::new(false)).collect();
        let run = Run { service: self, shard, span, timeline, replies, cancel, answered };
        let bytes_max = CALL_BYTES_MAX * fleet.executors().len() as u64;
        self.expected.remember(fleet, shard);
        let calls = shard.calls(bytes_max.min(fleet.device_memory_bytes() / CALL_SHARE));
        let is_wanted = AtomicBool::new(false);
        let run = &run;
        std::thread::scope(|waiting| {
            self.pool.in_place_scope(|scope| {
                let threads = self.pool.current_num_threads();
                // Half of the threads load ahead while the others prepare and finish the current call. A single thread does
                // not load ahead.
                let ahead = threads / 2;
                let mut coming = None;
                for (number, call) in calls.iter().enumerate() {
                    let here = coming.take().unwrap_or_else(|| run.load(scope, call, threads));
                    is_wanted.store(true, Ordering::Relaxed);
                    let here = here.into_iter().collect();
                    is_wanted.store(false, Ordering::Relaxed);
                    coming = calls.get(number + 1).filter(|_| ahead > 0).map(|call| {
                        let loaded = run.load(scope, call, ahead);
                        run.prefetch(waiting, fleet, loaded, &is_wanted)
                    });
                    run.call(fleet, here);
                    if run.cancel.cancelled() {
                        break;
                    }
                }
            })
        });
        measure::prefetches(fleet);
    }
}

impl Shard {
    /// A segment's bars, as far as the devices do not have them.
    ///
    /// # Errors
    /// [`ExecuteError`].
    pub fn load_beside(&self, fleet: &Fleet, segment: u32) -> Result<Vec<LoadedBars>, ExecuteError> {
        let (source, references) = (&self.scan.source, &self.scan.references);
        source.load_segment_beside(fleet, (segment, self.part.as_ref()), self.step, &self.input, references)
    }

    /// Splits the segments into runs whose bars take at most `bytes_max` bytes according to the manifest; at least one
    /// segment each.
    fn calls(&self, bytes_max: u64) -> Vec<Range<usize>> {
        let mut bars = vec![0u64; self.segments.len()];
        for symbol in &self.scan.source.dataset.manifest.symbols {
            if let Ok(at) = self.segments.binary_search(&symbol.group) {
                bars[at] += symbol.rows;
            }
        }
        cut(bars.into_iter().map(|bars| self.bytes_of(bars)), bytes_max)
    }
}

/// Splits into runs of neighbours with at most `bytes_max` bytes in total; at least one element each.
fn cut(bytes: impl Iterator<Item = u64>, bytes_max: u64) -> Vec<Range<usize>> {
    let mut calls: Vec<Range<usize>> = Vec::new();
    let mut sum = 0u64;
    for (at, bytes) in bytes.enumerate() {
        sum = sum.saturating_add(bytes);
        match calls.last_mut().filter(|_| sum <= bytes_max) {
            Some(call) => call.end = at + 1,
            None => {
                sum = bytes;
                calls.push(at..at + 1);
            }
        }
    }
    calls
}

/// Whether bars that are brought ahead are wanted now, or not at all.
struct Superseded<'a> {
    run: &'a Run<'a>,
    is_wanted: &'a AtomicBool,
}

impl Cancel for Superseded<'_> {
    fn cancelled(&self) -> bool {
        self.is_wanted.load(Ordering::Relaxed) || self.run.cancel.cancelled()
    }
}

impl<'a> Run<'a> {
    /// Loads the segments of a call on `threads` threads.
    fn load<'s>(&'s self, scope: &Scope<'s>, call: &Range<usize>, threads: usize) -> Receiver<Coming> {
        let (sender, coming) = channel();
        let loading = Arc::new(Loading { next: AtomicUsize::new(call.start), end: call.end, sender });
        for _ in 0..threads.clamp(1, call.len()) {
            let loading = Arc::clone(&loading);
            scope.spawn(move |_| {
                while !self.cancel.cancelled() {
                    let at = loading.next.fetch_add(1, Ordering::Relaxed);
                    if at >= loading.end {
                        return;
                    }
                    // Fails only when the shard is over.
                    let _ = loading.sender.send(self.load_one(at));
                }
            });
        }
        coming
    }

    /// Passes on what is loaded, and meanwhile brings it to the devices, which compute the call before. When that has ended the rest
    /// `is_wanted`, and is passed on at once.
    fn prefetch<'s>(
        &'s self,
        scope: &'s std::thread::Scope<'s, '_>,
        fleet: &'s Fleet,
        loaded: Receiver<Coming>,
        is_wanted: &'s AtomicBool,
    ) -> Receiver<Coming> {
        // What to pass on is handed over once there is a thread: without one it is not brought ahead.
        let (hand_over, handed) = channel::<(Receiver<Coming>, Sender<Coming>)>();
        let passed = move || {
            let Ok((loaded, sender)) = handed.recv() else { return };
            let cancel = Superseded { run: self, is_wanted };
            for coming in loaded {
                if let Ok(bars) = &coming.loaded
                    && !cancel.cancelled()
                {
                    let Shard { scan, step, input, .. } = self.shard;
                    let segment = Loaded { segment: self.shard.segments[coming.at], bars: bars.bars() };
                    let ahead = Ahead::NextCall;
                    scan.source.prefetch(fleet, *step, input, &segment, &scan.references, ahead, &cancel);
                }
                // Fails only when the shard is over.
                let _ = sender.send(coming);
            }
        };
        let spawned = std::thread::Builder::new().name("trawl-prefetch".to_owned()).spawn_scoped(scope, passed);
        if spawned.is_err() {
            return loaded;
        }
        let (sender, coming) = channel();
        // Fails only if the thread is over, which waits for it.
        let _ = hand_over.send((loaded, sender));
        coming
    }

    fn load_one(&self, at: usize) -> Coming {
        let (_entered, began) = (self.span.enter(), Instant::now());
        self.timeline.begin();
        let (mut timings, mut record) = (pb::SegmentTimings::default(), SegmentRecord::default());
        let segment = self.shard.segments[at];
        let load = || self.service.load(self.shard, segment, &self.cancel, &mut timings, &mut record);
        let loaded = catch_unwind(AssertUnwindSafe(load));
        let panicked = loaded.is_err();
        let loaded = loaded.unwrap_or_else(|_| Err(ExecuteError::Panicked.into()));
        Coming { at, loaded, timings, record, began, panicked }
    }

    /// Runs one call: computes loaded segments, and reports those that failed to load.
    fn call(&self, fleet: &Fleet, coming: Vec<Coming>) {
        let missing = self.compute(fleet, coming);
        if !missing.is_empty() && !self.cancel.cancelled() {
            self.again(fleet, missing);
        }
    }

    /// As [`Self::call`]; segments of whose bars some are neither on a device nor on the host are returned, and not reported.
    fn compute(&self, fleet: &Fleet, mut coming: Vec<Coming>) -> Vec<Coming> {
        coming.sort_by_key(|coming| coming.at);
        let mut at_hand: Vec<(AtHand, Mutex<Coming>)> = Vec::with_capacity(coming.len());
        for mut coming in coming {
            match std::mem::replace(&mut coming.loaded, Err(ExecuteError::Cancelled.into())) {
                Ok(loaded) => at_hand.push((loaded, Mutex::new(coming))),
                Err(failure) => {
                    let timings = (!coming.panicked).then_some(coming.timings);
                    self.answer(coming, Err(failure), timings);
                }
            }
        }
        let missing: Mutex<Vec<usize>> = Mutex::default();
        if self.cancel.cancelled() {
            return Vec::new();
        }
        let loaded: Vec<Loaded<'_>> = at_hand
            .iter()
            .map(|(bars, coming)| Loaded { segment: self.shard.segments[held(coming).at], bars: bars.bars() })
            .collect();
        let Shard { scan, step, input, .. } = self.shard;
        let (source, references) = (&scan.source, &scan.references);
        let report = |event: BatchEvent| match event {
            BatchEvent::Stages(stages) => self.record(&stages),
            // Not here: this may be the thread that runs the device.
            BatchEvent::Segment { at, result: Err(ExecuteError::Device(Fault::NotHeld)), .. }
                if at_hand[at].0.is_unread() =>
            {
                missing.lock().unwrap_or_else(PoisonError::into_inner).push(at);
            }
            BatchEvent::Segment { at, result, stages, took } => {
                let mut coming = held(&at_hand[at].1).take();
                coming.record.stages.extend(&stages);
                coming.timings.compute_us = micros(took);
                let panicked = matches!(result, Err(ExecuteError::Panicked));
                let outcome = result.map_err(Failure::from).and_then(|result| {
                    coming
                        .record
                        .stages
                        .time(EngineStage::Encode, 0, 0, || self.shard.encode(result))
                        .map_err(Failure::from)
                });
                let timings = (!panicked).then_some(coming.timings);
                let _entered = self.span.enter();
                self.answer(coming, outcome, timings);
            }
        };
        let (pool, cancel) = (&self.service.pool, &self.cancel);
        let whole = catch_unwind(AssertUnwindSafe(|| {
            source.evaluate_together(fleet, *step, input, &loaded, references, pool, cancel, &report);
        }));
        if whole.is_err() {
            for (_, coming) in &at_hand {
                let coming = held(coming).take();
                if !self.answered[coming.at].load(Ordering::Relaxed) {
                    self.answer(coming, Err(ExecuteError::Panicked.into()), None);
                }
            }
            return Vec::new();
        }
        let missing = missing.into_inner().unwrap_or_else(PoisonError::into_inner);
        missing.into_iter().map(|at| held(&at_hand[at].1).take()).collect()
    }

    /// Loads segments whole whose bars were to be on a device, and computes them once more: they were evicted meanwhile, or the device was
    /// lost.
    fn again(&self, fleet: &Fleet, missing: Vec<Coming>) {
        let load = |mut coming: Coming| {
            let source = &self.shard.scan.source;
            let began = Instant::now();
            let load = || source.load_segment(self.shard.segments[coming.at]);
            let loaded = catch_unwind(AssertUnwindSafe(|| coming.record.stages.time(EngineStage::Load, 0, 0, load)));
            coming.panicked = loaded.is_err();
            coming.timings.load_us += micros(began.elapsed());
            let loaded = loaded.unwrap_or(Err(ExecuteError::Panicked)).map_err(Failure::from);
            coming.loaded = loaded.map(|group| {
                let wanted = self.shard.part.clone().unwrap_or(0..group.len());
                AtHand { group, wanted }
            });
            coming
        };
        let whole = self.service.pool.install(|| missing.into_par_iter().map(load).collect());
        self.compute(fleet, whole);
    }

    /// Records the stages of a batch of several segments in the shard's timeline.
    fn record(&self, stages: &Stages) {
        measure::stages(stages);
        self.timeline.record(stages);
    }

    fn answer(&self, coming: Coming, outcome: Result<pb::Envelope, Failure>, timings: Option<pb::SegmentTimings>) {
        let Coming { at, mut record, began, .. } = coming;
        if self.answered[at].swap(true, Ordering::Relaxed) {
            return;
        }
        let reply = reply_of(self.shard.segments[at], outcome, timings, &mut record);
        self.service.send(reply, &record, began, self.replies, self.timeline);
    }
}

/// A panicked thread only loses its own segment; what it recorded is still valid.
fn held(coming: &Mutex<Coming>) -> std::sync::MutexGuard<'_, Coming> {
    coming.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Coming {
    /// Takes the value out of the shared place.
    fn take(&mut self) -> Self {
        Self {
            at: self.at,
            loaded: Err(ExecuteError::Cancelled.into()),
            timings: std::mem::take(&mut self.timings),
            record: std::mem::take(&mut self.record),
            began: self.began,
            panicked: self.panicked,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_runs_of_segments_within_their_bytes() {
        let calls = |bytes: &[u64], max| cut(bytes.iter().copied(), max);
        assert_eq!(calls(&[3, 3, 3, 3], 6), [0..2, 2..4]);
        assert_eq!(calls(&[3, 3, 3, 3], 100), vec![0..4; 1]);
        // A segment larger than the limit still makes a call.
        assert_eq!(calls(&[3, 9, 3, 0, u64::MAX, u64::MAX], 6), [0..1, 1..2, 2..4, 4..5, 5..6]);
        assert!(calls(&[], 6).is_empty());
    }
}
