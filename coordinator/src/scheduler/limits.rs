//! The bounds a scheduler keeps, each with its reason.

/// Shards in flight per worker of a cluster: one computes while the next is on its way.
pub const SHARDS_IN_FLIGHT_PER_WORKER: usize = 2;
/// Dispatches of a piece before it is given up; those to workers that left on purpose, hedges and votes do not count.
pub const ATTEMPTS_MAX: u32 = 5;
/// Wait before work that a living worker failed is dispatched again; doubles with each attempt.
pub const RETRY_DELAY_MS: u64 = 100;
/// How long a scan waits while there is no worker of its class at all.
pub const NO_WORKER_TIMEOUT_MS: u64 = 30_000;
/// Workers that die with a segment in hand before it is bisected, and with a lone symbol before that is poisoned.
pub const DEATHS_MAX: u32 = 2;
/// Poisoned symbols that end a scan: then it is the scan, not its symbols.
pub const POISONED_MAX: u32 = 3;
/// Pieces of a scan that have ended before its stragglers are hedged, in percent.
pub const HEDGE_AFTER_PERCENT: usize = 50;
/// An attempt is late when it takes so many times what the median attempt took for as much work.
pub const HEDGE_MULTIPLE: u64 = 3;
/// No attempt is late before: shorter waits cost less than a second attempt.
pub const HEDGE_MIN_MS: u64 = 250;
/// Costs are estimated in nanoseconds of one core.
pub const COST_PER_MS: u64 = 1_000_000;
/// Hosts that are asked for a result in doubt, besides those that gave one on their own account.
pub const VOTES_MAX: u32 = 4;
/// How long a result may stay in doubt before its scan ends as disputed.
pub const DISPUTE_TIMEOUT_MS: u64 = 10_000;
/// Hosts that have to fail a piece alike before that is final, unless the coordinator's own check agrees with one.
pub const AGREEING_HOSTS: usize = 2;
/// How long an attempt may say nothing, at least. Twice as long for a piece whose attempt was ended for it before: work that
/// is slow and alive gets done.
pub const ATTEMPT_TIMEOUT_MS: u64 = 60_000;
/// An attempt may say nothing for so many times what its largest piece is expected to take.
pub const ATTEMPT_TIMEOUT_MULTIPLE: u64 = 20;
/// And for so many times what all of it is expected to take: a device answers a whole call at once.
pub const ATTEMPT_TIMEOUT_WHOLE: u64 = 3;
/// No attempt may say nothing for longer than so many times the least, whatever is expected of it.
pub const ATTEMPT_TIMEOUT_STRETCH: u64 = 30;
/// Delivered scans whose digests are kept, to say when one of them turns out wrong.
pub const DELIVERED_KEPT: usize = 8;

/// The bounds a scheduler keeps.
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
    /// When work may run that was tried so often; 0 is at once.
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
