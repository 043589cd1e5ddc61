//! The remaining work, in estimated seconds of one core, for autoscalers.
//!
//! Work is counted in two places: scans that wait for admission, and the scheduler. Each holds a share of the total,
//! and removes it when dropped. Shares are counted by the backend that will do the work; scans that wait for workers and
//! may run on any backend are work of each.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use trawl_telemetry::metrics::catalogue::coordinator::WORK_REMAINING;

use crate::worker_class::{BACKEND_COUNTERS, counter_of};

/// The remaining work of one term; the metric `trawl_work_remaining_seconds` is the sum of all terms of the process.
#[derive(Debug, Default)]
pub(crate) struct RemainingWork {
    /// Nanoseconds by [`counter_of`].
    by_backend: [AtomicI64; BACKEND_COUNTERS],
}

impl RemainingWork {
    /// Estimated time of one core for the scans that run or wait and that a backend may run, by [`counter_of`]; for all
    /// scans for 0.
    pub fn on(&self, counter: usize) -> Duration {
        let of = |one: &AtomicI64| u64::try_from(one.load(Ordering::Relaxed)).unwrap_or_default();
        Duration::from_nanos(match counter {
            0 => self.by_backend.iter().fold(0, |sum, one| of(one).saturating_add(sum)),
            one => of(&self.by_backend[one]).saturating_add(of(&self.by_backend[0])),
        })
    }
}

/// A share of the remaining work; removed from the total when dropped.
#[derive(Debug)]
pub(crate) struct WorkShare {
    total: Arc<RemainingWork>,
    nanos: i64,
    counter: usize,
}

impl WorkShare {
    /// A share of `nanos` nanoseconds of one core, for a backend or for any.
    pub fn of(total: &Arc<RemainingWork>, nanos: u64, backend: Option<&str>) -> Self {
        let mut share = Self::empty(total, counter_of(backend));
        share.set(nanos);
        share
    }

    /// No work yet, by [`counter_of`].
    pub fn empty(total: &Arc<RemainingWork>, counter: usize) -> Self {
        Self { total: Arc::clone(total), nanos: 0, counter }
    }

    /// Changes the share to `nanos` nanoseconds.
    pub fn set(&mut self, nanos: u64) {
        let now = i64::try_from(nanos).unwrap_or(i64::MAX);
        let more = now.wrapping_sub(self.nanos);
        WORK_REMAINING.add(more);
        self.total.by_backend[self.counter].fetch_add(more, Ordering::Relaxed);
        self.nanos = now;
    }
}

impl Drop for WorkShare {
    fn drop(&mut self) {
        self.set(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_and_what_runs_add_up_and_leave_nothing_behind() {
        let (term, other) = (Arc::new(RemainingWork::default()), Arc::new(RemainingWork::default()));
        let seconds = |backend| term.on(counter_of(backend)).as_secs();
        let waits = WorkShare::of(&term, 2_000_000_000, None);
        let mut runs = WorkShare::empty(&term, counter_of(Some("cuda")));
        runs.set(5_000_000_000);
        assert_eq!(seconds(None), 7);
        assert_eq!(seconds(Some("cpu")), 2, "what waits may run on any backend");
        assert_eq!(seconds(Some("cuda")), 7);
        assert_eq!(other.on(0), Duration::ZERO, "each term has its own");
        drop(waits);
        runs.set(1_000_000_000);
        assert_eq!(seconds(None), 1);
        drop(runs);
        assert_eq!(seconds(None), 0);
    }
}
