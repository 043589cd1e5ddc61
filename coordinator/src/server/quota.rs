//! Limits per caller: concurrent scans, bytes of a scan's document, submissions per minute.
//!
//! Callers are identified by the guard. `local` is any plain-text caller on this machine: it has the coordinator to
//! itself, so only explicitly configured limits apply to it. A token's own limits take precedence over the
//! coordinator's. A rejection includes the time to retry after.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tonic::{Code, Status};
use trawl_security::{Allowance, Caller, RETRY_AFTER_METADATA_KEY};
use trawl_telemetry::metrics::catalogue::coordinator::{REFUSALS, Refusal};
use trawl_wire::ErrorKind;
use trawl_wire::error::status_of;
use trawl_wire::limits::DOCUMENT_BYTES_MAX;

/// Default limit of concurrent scans per caller.
pub const SCANS_PER_CALLER_MAX: u32 = 16;
/// Default limit of bytes of a scan's document.
pub const PLAN_BYTES_MAX: usize = DOCUMENT_BYTES_MAX;
/// Default limit of submissions per caller and minute.
pub const SUBMISSIONS_PER_MINUTE_MAX: u32 = 600;
/// Maximum number of tracked callers; callers idle for a minute are dropped.
const CALLERS_MAX: usize = 4096;
/// The period of the submission rate.
const MINUTE: Duration = Duration::from_secs(60);
/// Retry delay after a rejection because of running scans, whose end is unknown.
const RETRY_AFTER_RUNNING: Duration = Duration::from_secs(5);

/// Configured limits; unset ones have defaults for every caller except `local`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct QuotaLimits {
    /// See [`SCANS_PER_CALLER_MAX`].
    pub scans: Option<u32>,
    /// See [`PLAN_BYTES_MAX`].
    pub plan_bytes: Option<usize>,
    /// See [`SUBMISSIONS_PER_MINUTE_MAX`].
    pub submissions_per_minute: Option<u32>,
}

/// The usage of one caller.
#[derive(Debug, Clone, Copy)]
struct Usage {
    running: u32,
    /// Time at which the submissions so far are used up at the permitted rate (a leaky bucket, stored as a time).
    spent_until: Instant,
}

/// Usage by caller; shared by all requests.
#[derive(Debug)]
pub struct Quotas {
    limits: QuotaLimits,
    callers: Arc<Mutex<BTreeMap<String, Usage>>>,
}

/// Counts a scan as running until it is dropped.
#[derive(Debug)]
pub struct RunningPermit {
    callers: Arc<Mutex<BTreeMap<String, Usage>>>,
    name: String,
}

impl Drop for RunningPermit {
    fn drop(&mut self) {
        let mut callers = self.callers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(usage) = callers.get_mut(&self.name) {
            usage.running = usage.running.saturating_sub(1);
        }
    }
}

impl Quotas {
    /// Nobody has used anything yet.
    pub fn new(limits: QuotaLimits) -> Self {
        Self { limits, callers: Arc::default() }
    }

    /// Admits a submission of `bytes`. A rejected submission is not counted.
    ///
    /// # Errors
    /// `RESOURCE_EXHAUSTED`, with the time to retry after where that helps.
    pub fn admit(&self, caller: &Caller, bytes: usize, now: Instant) -> Result<RunningPermit, Status> {
        let default_of = |default: u32| if caller.is_known() { default } else { u32::MAX };
        let bytes_max = self.limits.plan_bytes.unwrap_or(PLAN_BYTES_MAX);
        if bytes > bytes_max {
            let message = format!("the scan document has {bytes} bytes, {} may send {bytes_max} at most", caller.name);
            return Err(refused(caller, Refusal::TooLarge, &message, None));
        }
        let Allowance { scans, submissions_per_minute, .. } = &caller.allowance;
        let running_max = scans.or(self.limits.scans).unwrap_or_else(|| default_of(SCANS_PER_CALLER_MAX));
        let rate_max = submissions_per_minute.or(self.limits.submissions_per_minute);
        let rate_max = rate_max.unwrap_or_else(|| default_of(SUBMISSIONS_PER_MINUTE_MAX));
        let mut callers = self.callers.lock().unwrap_or_else(PoisonError::into_inner);
        if callers.len() >= CALLERS_MAX && !callers.contains_key(&caller.name) {
            callers.retain(|_, usage| usage.running > 0 || usage.spent_until > now);
            if callers.len() >= CALLERS_MAX {
                let message = format!("{CALLERS_MAX} callers are busy already");
                return Err(refused(caller, Refusal::Callers, &message, Some(MINUTE)));
            }
        }
        let usage = callers.get(&caller.name).copied().unwrap_or(Usage { running: 0, spent_until: now });
        if usage.running >= running_max {
            let message = format!("{} has {} scans running, {running_max} at most may", caller.name, usage.running);
            return Err(refused(caller, Refusal::CallerScans, &message, Some(RETRY_AFTER_RUNNING)));
        }
        let spent_until = usage.spent_until.max(now) + MINUTE / rate_max.max(1);
        let ahead = spent_until.duration_since(now);
        if rate_max == 0 || ahead > MINUTE {
            let message = format!("{} has submitted too often, {rate_max} scans a minute at most may be", caller.name);
            return Err(refused(caller, Refusal::CallerRate, &message, Some(ahead.saturating_sub(MINUTE))));
        }
        callers.insert(caller.name.clone(), Usage { running: usage.running + 1, spent_until });
        Ok(RunningPermit { callers: Arc::clone(&self.callers), name: caller.name.clone() })
    }
}

fn refused(caller: &Caller, why: Refusal, message: &str, retry_after: Option<Duration>) -> Status {
    REFUSALS.of(why).inc();
    let kind = if why == Refusal::TooLarge { ErrorKind::Invalid } else { ErrorKind::Retryable };
    tracing::warn!(target: "trawl::audit", caller = caller.name, action = "submit", outcome = "refused", why = message,
        "limit");
    let Some(after) = retry_after else { return status_of(Code::ResourceExhausted, kind, message) };
    // Whole seconds, rounded up.
    let seconds = after.as_secs() + u64::from(after.subsec_nanos() > 0);
    let message = format!("{message}; try again in {seconds} s");
    let mut status = status_of(Code::ResourceExhausted, kind, &message);
    status.metadata_mut().insert(RETRY_AFTER_METADATA_KEY, seconds.into());
    status
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caller(name: &str) -> Caller {
        Caller { name: name.to_owned(), ..Caller::local() }
    }

    fn retry_after(status: &Status) -> u64 {
        let value = status.metadata().get(RETRY_AFTER_METADATA_KEY).expect("says when to come again");
        value.to_str().unwrap().parse().unwrap()
    }

    #[test]
    fn running_scans_are_counted_by_caller_until_they_end() {
        let quotas = Quotas::new(QuotaLimits { scans: Some(2), ..QuotaLimits::default() });
        let (alice, bob, now) = (caller("user alice"), caller("user bob"), Instant::now());
        let held = [quotas.admit(&alice, 1, now).unwrap(), quotas.admit(&alice, 1, now).unwrap()];
        let status = quotas.admit(&alice, 1, now).unwrap_err();
        assert_eq!((status.code(), retry_after(&status)), (Code::ResourceExhausted, 5));
        assert_eq!(status.message(), "user alice has 2 scans running, 2 at most may; try again in 5 s");
        assert!(quotas.admit(&bob, 1, now).is_ok(), "another caller has its own");
        drop(held);
        assert!(quotas.admit(&alice, 1, now).is_ok());
    }

    #[test]
    fn a_rate_comes_back_evenly_and_the_refusal_says_when() {
        let quotas = Quotas::new(QuotaLimits { submissions_per_minute: Some(3), ..QuotaLimits::default() });
        let (alice, start) = (caller("user alice"), Instant::now());
        for _ in 0..3 {
            drop(quotas.admit(&alice, 1, start).unwrap());
        }
        let status = quotas.admit(&alice, 1, start).unwrap_err();
        assert_eq!((status.code(), retry_after(&status)), (Code::ResourceExhausted, 20));
        let early = start + Duration::from_millis(18_500);
        assert_eq!(retry_after(&quotas.admit(&alice, 1, early).unwrap_err()), 2);
        assert!(quotas.admit(&alice, 1, start + Duration::from_secs(20)).is_ok());
        assert!(quotas.admit(&alice, 1, start + Duration::from_secs(21)).is_err());
    }

    #[test]
    fn a_plan_that_is_too_large_is_refused_for_good() {
        let quotas = Quotas::new(QuotaLimits { plan_bytes: Some(100), ..QuotaLimits::default() });
        assert!(quotas.admit(&caller("user alice"), 100, Instant::now()).is_ok());
        let status = quotas.admit(&caller("user alice"), 101, Instant::now()).unwrap_err();
        assert_eq!(status.code(), Code::ResourceExhausted);
        assert_eq!(status.message(), "the scan document has 101 bytes, user alice may send 100 at most");
        assert!(status.metadata().get(RETRY_AFTER_METADATA_KEY).is_none(), "later it is as large");
    }

    #[test]
    fn without_settings_a_known_caller_has_the_defaults_and_local_has_none() {
        let (quotas, now) = (Quotas::new(QuotaLimits::default()), Instant::now());
        let held: Vec<_> =
            (0..SCANS_PER_CALLER_MAX).map(|_| quotas.admit(&caller("user a"), 1, now).unwrap()).collect();
        assert!(quotas.admit(&caller("user a"), 1, now).is_err());
        drop(held);
        for n in SCANS_PER_CALLER_MAX..SUBMISSIONS_PER_MINUTE_MAX {
            assert!(quotas.admit(&caller("user a"), 1, now).is_ok(), "{n}");
        }
        assert!(quotas.admit(&caller("user a"), 1, now).is_err());
        let local = Caller::local();
        let held: Vec<_> = (0..2 * SUBMISSIONS_PER_MINUTE_MAX).map(|_| quotas.admit(&local, 1, now).unwrap()).collect();
        assert_eq!(held.len(), 1200);
    }

    #[test]
    fn callers_that_do_nothing_are_forgotten_and_the_busy_ones_are_not() {
        let (quotas, now) = (Quotas::new(QuotaLimits::default()), Instant::now());
        let held = quotas.admit(&caller("busy"), 1, now).unwrap();
        for n in 1..CALLERS_MAX {
            drop(quotas.admit(&caller(&format!("user {n}")), 1, now).unwrap());
        }
        assert!(quotas.admit(&caller("one more"), 1, now).is_err());
        assert!(quotas.admit(&caller("one more"), 1, now + MINUTE).is_ok());
        let callers = quotas.callers.lock().unwrap();
        assert!(callers.len() == 2 && callers["busy"].running == 1, "{}", callers.len());
        drop(callers);
        drop(held);
    }
}
