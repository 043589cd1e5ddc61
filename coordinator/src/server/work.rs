//! The remaining work, in estimated seconds of one core, for autoscalers.
//!
//! Work is counted in two places: scans that wait for admission, and the scheduler. Each holds a share of the total,
//! and removes it when dropped.

use std::time::Duration;

use trawl_telemetry::metrics::catalogue::coordinator::WORK_REMAINING;

/// Estimated time of one core for all scans that run or wait at this coordinator; the metric
/// `trawl_work_remaining_seconds`. 0 where it does not lead.
pub fn work_remaining() -> Duration {
    Duration::from_nanos(u64::try_from(WORK_REMAINING.get()).unwrap_or_default())
}

/// A share of the remaining work; removed from the total when dropped.
#[derive(Debug, Default)]
pub(crate) struct WorkShare(i64);

impl WorkShare {
    /// A share of `nanos` nanoseconds of one core.
    pub fn of(nanos: u64) -> Self {
        let mut share = Self::default();
        share.set(nanos);
        share
    }

    /// Changes the share to `nanos` nanoseconds.
    pub fn set(&mut self, nanos: u64) {
        let now = i64::try_from(nanos).unwrap_or(i64::MAX);
        WORK_REMAINING.add(now.wrapping_sub(self.0));
        self.0 = now;
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
        let waits = WorkShare::of(2_000_000_000);
        let mut runs = WorkShare::default();
        runs.set(5_000_000_000);
        assert_eq!(work_remaining(), before + Duration::from_secs(7));
        drop(waits);
        runs.set(1_000_000_000);
        assert_eq!(work_remaining(), before + Duration::from_secs(1));
        drop(runs);
        assert_eq!(work_remaining(), before);
    }
}
