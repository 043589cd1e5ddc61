//! How much there is to do, as an autoscaler should see it: seconds of one worker, held for a while after a peak.
//!
//! Pure: no clock, no I/O. It says what the workers have before them; how many of them that takes is the autoscaler's sum,
//! `ceil(seconds / target)`. Two things make up the number, and the larger counts:
//!
//! - what is left of accepted scans, by the cost model as it proved right so far, at its highest within the hold: a lull between two scans, or a sample
//!   that falls between many short ones, takes no worker away;
//! - what was computed of late, with some room above it: many short scans leave nothing behind at any moment, and need their
//!   workers all the same.
//!
//! Neither a share of processors nor a number of jobs is asked: a scan of ten symbols and one of a million are both one job,
//! and a worker that waits for its disk is not idle.

mod goal;

use std::collections::VecDeque;

pub use goal::{Goal, GoalError, HOLD_S_MAX, TARGET_S_MAX};

/// What was computed is averaged over so long.
pub const RATE_WINDOW_S: u64 = 60;
/// Workers for steady work are busy for this share of the time; the rest is room for what comes by chance.
pub const BUSY_SHARE: f64 = 0.8;
/// Less of what was estimated says nothing of how good estimates are.
const EXPECTED_S_MIN: f64 = 1e-3;
/// Estimates are not corrected by more: beyond it something else is wrong.
const CORRECTION_MAX: f64 = 100.0;
/// Samples that are kept: as far back as any hold or window looks, one a second.
const SAMPLES_MAX: usize = HOLD_S_MAX as usize + 2;

/// The cluster at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Sample {
    /// Estimated seconds of one core for everything that is accepted and not done.
    pub work_s: f64,
    /// Seconds of one core that workers have computed since the coordinator began to lead; never falls.
    pub done_s: f64,
    /// What was estimated for the same results, in seconds of one core.
    pub expected_s: f64,
    /// Scans that run or wait.
    pub scans: usize,
    /// Workers that take shards, and their threads together.
    pub workers: u32,
    pub threads: u32,
}

impl Sample {
    /// How many times what was estimated things really took.
    fn correction(&self) -> f64 {
        let known = self.expected_s >= EXPECTED_S_MIN && self.done_s > 0.0;
        if known { (self.done_s / self.expected_s).clamp(1.0 / CORRECTION_MAX, CORRECTION_MAX) } else { 1.0 }
    }
}

/// What an autoscaler is told.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Reading {
    /// Whether there should be any worker.
    pub active: bool,
    /// Seconds of one worker that all of them have before them.
    pub work_s: f64,
}

/// The last samples.
#[derive(Debug, Clone, Default)]
pub struct Demand {
    /// With the second each was taken in, ascending.
    samples: VecDeque<(u64, Sample)>,
    /// Threads of a worker when there last was one.
    threads_per_worker: Option<f64>,
}

impl Demand {
    /// Takes a sample of second `now_s`; of several in one second the last counts. Time that runs backwards is not believed.
    pub fn note(&mut self, now_s: u64, sample: Sample) {
        match self.samples.back_mut() {
            Some((last_s, last)) if *last_s >= now_s => *last = sample,
            _ => self.samples.push_back((now_s, sample)),
        }
        while self.samples.len() > SAMPLES_MAX {
            self.samples.pop_front();
        }
        if sample.workers > 0 && sample.threads > 0 {
            self.threads_per_worker = Some(f64::from(sample.threads) / f64::from(sample.workers));
        }
    }

    /// What is to be told of the last sample.
    pub fn reading(&self, goal: &Goal) -> Reading {
        let Some((now_s, now)) = self.samples.back() else { return Reading { active: false, work_s: 0.0 } };
        let held = || self.samples.iter().rev().take_while(|(s, _)| now_s.saturating_sub(*s) <= goal.hold_s);
        let active = held().any(|(_, sample)| sample.scans > 0 || sample.work_s > 0.0);
        let left_s = held().map(|(_, sample)| sample.work_s).fold(0.0, f64::max) * now.correction();
        let steady_s = self.rate(*now_s, now) / BUSY_SHARE * goal.target_s;
        let threads = goal.threads_per_worker.or(self.threads_per_worker).unwrap_or(1.0);
        let work_s = left_s.max(steady_s) / threads.max(f64::MIN_POSITIVE);
        Reading { active, work_s: if active && work_s.is_finite() { work_s } else { 0.0 } }
    }

    /// Cores that were busy, on average over the last [`RATE_WINDOW_S`].
    fn rate(&self, now_s: u64, now: &Sample) -> f64 {
        let inside = |(s, _): &&(u64, Sample)| now_s.saturating_sub(*s) <= RATE_WINDOW_S;
        match self.samples.iter().find(inside) {
            // Less than the window is known: what came before was nothing.
            Some((_, first)) => (now.done_s - first.done_s).max(0.0) / RATE_WINDOW_S as f64,
            None => 0.0,
        }
    }
}

#[cfg(test)]
mod tests;
