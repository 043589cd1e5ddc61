//! The load reported to an autoscaler: seconds of work of one worker, held for a while after a peak.
//!
//! Pure: no clock, no I/O. It reports the work ahead of the workers; the autoscaler computes the number of workers as
//! `ceil(seconds / target)`. The number is the larger of:
//!
//! - the remaining work of accepted scans, by the cost model corrected by measurements, at its highest within the hold:
//!   a lull between two scans, or a sample that falls between many short ones, removes no worker;
//! - the work computed recently, with some headroom: many short scans leave no remaining work at any moment, but still
//!   need workers.
//!
//! Neither CPU utilisation nor the number of jobs is used: a scan of ten symbols and one of a million are both one job,
//! and a worker that waits for its disk is not idle.

mod goal;

use std::collections::VecDeque;

pub use goal::{Goal, GoalError, HOLD_S_MAX, TARGET_S_MAX};

/// Window over which computed work is averaged.
pub const RATE_WINDOW_S: u64 = 60;
/// Target utilisation of workers under steady load; the rest is headroom for bursts.
pub const BUSY_SHARE: f64 = 0.8;
/// Minimum estimated work, in seconds, for judging the estimates.
const EXPECTED_S_MIN: f64 = 1e-3;
/// Maximum factor by which estimates are corrected; beyond it something else is wrong.
const CORRECTION_MAX: f64 = 100.0;
/// Samples kept, one per second: as far back as any hold or window reaches.
const SAMPLES_MAX: usize = HOLD_S_MAX as usize + 2;

/// The cluster at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Sample {
    /// Estimated seconds of one core for all work accepted and not done.
    pub work_s: f64,
    /// Seconds of one core that workers have computed since the coordinator began to lead; never decreases.
    pub done_s: f64,
    /// Estimated time of the same results, in seconds of one core.
    pub expected_s: f64,
    /// Number of scans that run or wait.
    pub scans: usize,
    /// Number of workers that take shards; `threads` is the total of their threads.
    pub workers: u32,
    /// Total compute threads of these workers.
    pub threads: u32,
}

impl Sample {
    /// Ratio of measured to estimated time.
    fn correction(&self) -> f64 {
        let known = self.expected_s >= EXPECTED_S_MIN && self.done_s > 0.0;
        if known { (self.done_s / self.expected_s).clamp(1.0 / CORRECTION_MAX, CORRECTION_MAX) } else { 1.0 }
    }
}

/// The values reported to an autoscaler.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Reading {
    /// Whether any worker is needed.
    pub active: bool,
    /// Work ahead of all workers, in seconds of one worker.
    pub work_s: f64,
}

/// The recent samples.
#[derive(Debug, Clone, Default)]
pub struct Demand {
    /// Samples with the second in which each was taken, ascending.
    samples: VecDeque<(u64, Sample)>,
    /// Threads per worker when there last was a worker.
    threads_per_worker: Option<f64>,
}

impl Demand {
    /// Takes a sample of second `now_s`; of several in one second the last counts. Samples with an earlier time are
    /// ignored.
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

    /// The reading as of the last sample.
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
            // Less than the window is known: assume no work before.
            Some((_, first)) => (now.done_s - first.done_s).max(0.0) / RATE_WINDOW_S as f64,
            None => 0.0,
        }
    }
}

#[cfg(test)]
mod tests;
