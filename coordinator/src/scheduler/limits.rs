//! The limits of a scheduler, each with its reason.

/// Shards in flight per worker of a cluster: one computes while the next is on its way.
pub const SHARDS_IN_FLIGHT_PER_WORKER: usize = 2;
/// Dispatches of a piece before it fails; those to workers that left on purpose, hedges and votes do not count.
pub const ATTEMPTS_MAX: u32 = 5;
/// Wait before work that a living worker failed is dispatched again; doubles with each attempt.
pub const RETRY_DELAY_MS: u64 = 100;
/// How long a scan waits while there is no worker of its class at all.
pub const NO_WORKER_TIMEOUT_MS: u64 = 30_000;
/// Workers that die running a segment before it is bisected, and running a lone symbol before it counts as poisoned.
pub const DEATHS_MAX: u32 = 2;
/// Number of poisoned symbols that ends a scan: the cause is then the scan, not its symbols.
pub const POISONED_MAX: u32 = 3;
/// Longest wait of a free worker for the one that holds the data of waiting work, whatever a load is estimated to cost.
pub const HOLDER_WAIT_MAX_MS: u64 = 2_000;
/// Pieces of a scan that have ended before its stragglers are hedged, in percent.
pub const HEDGE_AFTER_PERCENT: usize = 50;
/// An attempt is late when it takes this multiple of the median attempt's time for the same amount of work.
pub const HEDGE_MULTIPLE: u64 = 3;
/// Minimum time before an attempt is late: shorter waits cost less than a second attempt.
pub const HEDGE_MIN_MS: u64 = 250;
/// Cost per millisecond: costs are estimated in nanoseconds of one core.
pub const COST_PER_MS: u64 = 1_000_000;
/// Hosts asked to vote on an unconfirmed result, besides those that returned one unasked.
pub const VOTES_MAX: u32 = 4;
/// How long a result may stay unconfirmed before its scan ends as disputed.
pub const DISPUTE_TIMEOUT_MS: u64 = 10_000;
/// Number of hosts that have to fail a piece before the failure is final, unless the coordinator's own check confirms
/// it.
pub const AGREEING_HOSTS: usize = 2;
/// Minimum time that an attempt may go without a reply. Doubles for a piece whose attempt timed out before, so that
/// slow work gets done.
pub const ATTEMPT_TIMEOUT_MS: u64 = 60_000;
/// An attempt may go without a reply for this multiple of the expected time of its largest piece.
pub const ATTEMPT_TIMEOUT_MULTIPLE: u64 = 20;
/// And for this multiple of the expected time of all its pieces: a device returns a whole call at once.
pub const ATTEMPT_TIMEOUT_WHOLE: u64 = 3;
/// Upper bound of the timeout, as a multiple of the minimum.
pub const ATTEMPT_TIMEOUT_STRETCH: u64 = 30;
/// Delivered scans whose digests are kept, to report when one of them proves wrong.
pub const DELIVERED_KEPT: usize = 8;

/// The limits of a scheduler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// See [`ATTEMPTS_MAX`].
    pub attempts_max: u32,
    /// See [`RETRY_DELAY_MS`].
    pub retry_delay_ms: u64,
    /// See [`NO_WORKER_TIMEOUT_MS`].
    pub no_worker_timeout_ms: u64,
    /// See [`DEATHS_MAX`].
    pub deaths_max: u32,
    /// See [`POISONED_MAX`].
    pub poisoned_max: u32,
    /// See [`HEDGE_MIN_MS`].
    pub hedge_min_ms: u64,
    /// See [`DISPUTE_TIMEOUT_MS`].
    pub dispute_timeout_ms: u64,
    /// See [`ATTEMPT_TIMEOUT_MS`].
    pub attempt_timeout_ms: u64,
}

/// Doublings of the delay before a retry, and of the time of an attempt.
pub(super) const DOUBLINGS_MAX: u32 = 16;

impl Limits {
    /// Earliest time to run work after `tries` attempts; 0 means immediately.
    pub(super) fn not_before(&self, delayed: bool, tries: u32, now_ms: u64) -> u64 {
        let doublings = tries.saturating_sub(1).min(DOUBLINGS_MAX);
        if delayed { now_ms.saturating_add(self.retry_delay_ms << doublings) } else { 0 }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            attempts_max: ATTEMPTS_MAX,
            retry_delay_ms: RETRY_DELAY_MS,
            no_worker_timeout_ms: NO_WORKER_TIMEOUT_MS,
            deaths_max: DEATHS_MAX,
            poisoned_max: POISONED_MAX,
            hedge_min_ms: HEDGE_MIN_MS,
            dispute_timeout_ms: DISPUTE_TIMEOUT_MS,
            attempt_timeout_ms: ATTEMPT_TIMEOUT_MS,
        }
    }
}
