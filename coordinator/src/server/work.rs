//! The remaining work, in estimated seconds of one core, for autoscalers.
//!
//! Work is counted in two places: scans that wait for admission, and the scheduler. Each holds a share of the total,
//! and removes it when dropped. Shares are counted by the backend that will do the work; scans that wait for workers and
//! may run on any backend are work of each.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use trawl_telemetry::metrics::catalogue::coordinator::WORK_REMAINING;

use crate::worker_class::{BACKEND_COUNTERS, counter_of};

/// Nanoseconds by [`counter_of`].
static BY_BACKEND: [AtomicI64; BACKEND_COUNTERS] = [const { AtomicI64::new(0) }; BACKEND_COUNTERS];

/// Estimated time of one core for all scans that run or wait at this coordinator; the metric
/// `trawl_work_remaining_seconds`. 0 where it does not lead.
pub fn work_remaining() -> Duration {
    Duration::from_nanos(u64::try_from(WORK_REMAINING.get()).unwrap_or_default())
}

/// The part of [`work_remaining`] that a backend may do, by [`counter_of`]; of all backends for 0.
pub(crate) fn work_remaining_on(counter: usize) -> Duration {
    let of = |counter: usize| u64::try_from(BY_BACKEND[counter].load(Ordering::Relaxed)).unwrap_or_default();
    match counter {
        0 => work_remaining(),
        one => Duration::from_nanos(of(one).saturating_add(of(0))),
    }
}

/// A share of the remaining work; removed from the total when dropped.
#[derive(Debug, Default)]
pub(crate) struct WorkShare {
    nanos: i64,
    counter: usize,
}

impl WorkShare {
    /// A share of `nanos` nanoseconds of one core, for a backend or for any.
    pub fn of(nanos: u64, backend: Option<&str>) -> Self {
        let mut share = Self::empty(counter_of(backend));
        share.set(nanos);
        share
    }

    /// No work yet, by [`counter_of`].
    pub fn empty(counter: usize) -> Self {
        Self { nanos: 0, counter }
    }

    /// Changes the share to `nanos` nanoseconds.
    pub fn set(&mut self, nanos: u64) {
        let now = i64::try_from(nanos).unwrap_or(i64::MAX);
        let more = now.wrapping_sub(self.nanos);
        WORK_REMAINING.add(more);
        BY_BACKEND[self.counter].fetch_add(more, Ordering::Relaxed);
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
        let before = work_remaining();
        let on = |backend| work_remaining_on(counter_of(backend));
        let (cpu, cuda) = (on(Some("cpu")), on(Some("cuda")));
        let waits = WorkShare::of(2_000_000_000, None);
        let mut runs = WorkShare::empty(counter_of(Some("cuda")));
        runs.set(5_000_000_000);
        assert_eq!(work_remaining(), before + Duration::from_secs(7));
        assert_eq!(on(None), work_remaining());
        assert_eq!(on(Some("cpu")), cpu + Duration::from_secs(2), "what waits may run on any backend");
        assert_eq!(on(Some("cuda")), cuda + Duration::from_secs(7));
        drop(waits);
        runs.set(1_000_000_000);
        assert_eq!(work_remaining(), before + Duration::from_secs(1));
        drop(runs);
        assert_eq!(work_remaining(), before);
    }
}
