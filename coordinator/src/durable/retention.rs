//! What is deleted, and when: scans that ended long ago, and objects that belong to no scan.
//!
//! First a tombstone under the present leader's epoch, then a grace period in which readers finish and in which a replaced leader
//! notices; then the objects; at last the records with the tombstone. A tombstone is never taken back, and none is written for a
//! scan that has not ended: the transaction that writes it holds only while the end is there.

use std::collections::BTreeMap;
use std::time::Duration;

use trawl_protocol::control::ControlStore;

use super::ledger::{Ledger, LedgerError, Loaded, Recorded, Written};
use super::results::{ResultStore, ScanObjects};
use super::store_error::StoreError;

/// How long a scan's results are kept after it ended, unless configured otherwise.
pub const RESULTS_KEPT: Duration = Duration::from_secs(24 * 60 * 60);
/// Ended scans that are kept at most, unless configured otherwise; the oldest go first.
pub const SCANS_KEPT_MAX: usize = 1000;
/// Between a tombstone and the deletion.
pub const TOMBSTONE_GRACE: Duration = Duration::from_secs(5 * 60);
/// How old objects are that belong to no scan: a scan's document is stored before the scan is recorded.
pub const ORPHAN_GRACE: Duration = Duration::from_secs(60 * 60);
/// Deletions of one sweep; the rest waits for the next.
const DELETIONS_MAX: usize = 64;

/// How long what is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetentionPolicy {
    /// After a scan's end.
    pub results_kept: Duration,
    /// Ended scans.
    pub scans_kept_max: usize,
    /// Between tombstone and deletion.
    pub tombstone_grace: Duration,
    /// Of objects without a scan.
    pub orphan_grace: Duration,
}

impl Default for RetentionPolicy {
    fn default() -> Self {
        Self {
            results_kept: RESULTS_KEPT,
            scans_kept_max: SCANS_KEPT_MAX,
            tombstone_grace: TOMBSTONE_GRACE,
            orphan_grace: ORPHAN_GRACE,
        }
    }
}

/// What a sweep does with a scan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Write a tombstone.
    Mark,
    /// Delete its objects, then its records.
    Delete,
}

/// What a sweep did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SweepReport {
    /// Scans that were marked.
    pub marked: Vec<String>,
    /// Scans that are gone.
    pub deleted: Vec<String>,
    /// Objects that are gone.
    pub objects: u64,
    /// Whether another leads by now.
    pub not_leader: bool,
}

/// Why a sweep stopped; the next one goes on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SweepError {
    /// The records.
    #[error("{0}")]
    Ledger(#[from] LedgerError),
    /// The objects.
    #[error("{0}")]
    Store(#[from] StoreError),
}

fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

/// What is to be done, by scan; pure.
///
/// `objects` were listed before `loaded` was: so objects of a scan that was accepted in between are new, and spared.
pub fn plan(
    loaded: &Loaded,
    objects: &BTreeMap<String, ScanObjects>,
    policy: &RetentionPolicy,
    epoch: i64,
    now_us: i64,
) -> Vec<(Recorded, Step)> {
    let older = |since: i64, than: Duration| now_us.saturating_sub(since) >= micros(than);
    let mut ended: Vec<(i64, &str)> = loaded
        .scans
        .iter()
        .filter(|r| r.tombstone.is_none() && r.header.is_some())
        .filter_map(|r| r.end.as_ref().map(|end| (end.ended_us, r.scan.as_str())))
        .collect();
    ended.sort_unstable();
    let too_many = ended.len().saturating_sub(policy.scans_kept_max);
    let surplus: Vec<&str> = ended.iter().take(too_many).map(|(_, scan)| *scan).collect();
    let mut steps = Vec::new();
    for recorded in &loaded.scans {
        let step = match (&recorded.tombstone, &recorded.end) {
            // Of a leader before: it may be about to delete, and is given its time to notice.
            (Some(tombstone), _) if tombstone.epoch != epoch => Step::Mark,
            (Some(tombstone), _) if older(tombstone.marked_us, policy.tombstone_grace) => Step::Delete,
            (None, Some(end)) if older(end.ended_us, policy.results_kept) => Step::Mark,
            (None, Some(_)) if surplus.contains(&recorded.scan.as_str()) => Step::Mark,
            _ => continue,
        };
        steps.push((recorded.clone(), step));
    }
    for (scan, found) in objects {
        let known = loaded.unreadable.contains_key(scan) || loaded.scans.iter().any(|r| r.scan == *scan);
        if !known && older(found.newest_us, policy.orphan_grace) {
            steps.push((Recorded { scan: scan.clone(), ..Recorded::default() }, Step::Mark));
        }
    }
    steps
}

/// Does what [`plan`] says, as far as this term's leader still leads. `now_us`: microseconds since 1970.
///
/// # Errors
/// [`SweepError`]; what was done stays done.
pub async fn sweep<S: ControlStore>(
    ledger: &Ledger<S>,
    store: &ResultStore,
    policy: &RetentionPolicy,
    now_us: i64,
) -> Result<SweepReport, SweepError> {
    let objects = store.scans().await?;
    let loaded = ledger.load().await?;
    let mut report = SweepReport::default();
    for (recorded, step) in plan(&loaded, &objects, policy, ledger.term().epoch, now_us) {
        let scan = recorded.scan.clone();
        match step {
            Step::Mark => match ledger.mark(&recorded, now_us).await? {
                Written::Done => report.marked.push(scan),
                // Accepted in the meantime: it is not ours to delete.
                Written::Over => {}
                Written::NotLeader => report.not_leader = true,
            },
            Step::Delete if report.deleted.len() >= DELETIONS_MAX => {}
            Step::Delete => {
                if !ledger.leads().await? {
                    report.not_leader = true;
                    break;
                }
                report.objects += store.delete_scan(&scan).await?;
                match ledger.forget(&recorded).await? {
                    Written::Done => report.deleted.push(scan),
                    Written::Over => {}
                    Written::NotLeader => report.not_leader = true,
                }
            }
        }
        if report.not_leader {
            break;
        }
    }
    Ok(report)
}

#[cfg(test)]
#[path = "retention_tests.rs"]
mod tests;
