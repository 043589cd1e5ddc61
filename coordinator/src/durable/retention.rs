//! What is deleted, and when: scans that ended long ago, and objects that belong to no scan.
//!
//! First a tombstone under the present leader's epoch, then a grace period in which readers finish and in which a replaced leader
//! notices; then the objects; at last the records with the tombstone. A tombstone is never taken back, and none is written for a
//! scan that has not ended: the transaction that writes it holds only while the end is there.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures::{StreamExt as _, TryStreamExt as _};
use trawl_cluster_store::ControlStore;

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
/// Marks and deletions of one sweep; when there is more to do the next one follows at once.
const STEPS_MAX: usize = 4096;
/// Marks and deletions that are under way at once: more than scans come in, at the latency of a store.
const STEPS_AT_ONCE: usize = 16;

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
pub enum SweepAction {
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
    /// Scans that are recorded, and were when the sweep began.
    pub recorded: usize,
    /// Whether there is more to do.
    pub more: bool,
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
) -> Vec<(Recorded, SweepAction)> {
    let older = |since: i64, than: Duration| now_us.saturating_sub(since) >= micros(than);
    let mut ended: Vec<(i64, &str)> = loaded
        .scans
        .iter()
        .filter(|r| r.tombstone.is_none() && r.header.is_some())
        .filter_map(|r| r.end.as_ref().map(|end| (end.ended_us, r.scan.as_str())))
        .collect();
    ended.sort_unstable();
    let too_many = ended.len().saturating_sub(policy.scans_kept_max);
    let surplus: BTreeSet<&str> = ended.iter().take(too_many).map(|(_, scan)| *scan).collect();
    let mut steps = Vec::new();
    for recorded in &loaded.scans {
        let step = match (&recorded.tombstone, &recorded.end) {
            // Of a leader before: it may be about to delete, and is given its time to notice.
            (Some(tombstone), _) if tombstone.epoch != epoch => SweepAction::Mark,
            (Some(tombstone), _) if older(tombstone.marked_us, policy.tombstone_grace) => SweepAction::Delete,
            (None, Some(end)) if older(end.ended_us, policy.results_kept) => SweepAction::Mark,
            (None, Some(_)) if surplus.contains(&recorded.scan.as_str()) => SweepAction::Mark,
            _ => continue,
        };
        steps.push((recorded.clone(), step));
    }
    let known: BTreeSet<&str> = loaded.scans.iter().map(|r| r.scan.as_str()).collect();
    for (scan, found) in objects {
        let known = loaded.unreadable.contains_key(scan) || known.contains(scan.as_str());
        if !known && older(found.newest_us, policy.orphan_grace) {
            steps.push((Recorded { scan: scan.clone(), ..Recorded::default() }, SweepAction::Mark));
        }
    }
    steps
}

/// What became of one step.
enum Done {
    Marked(String),
    Deleted(String, u64),
    /// Somebody changed the records in the meantime: the next sweep looks again.
    Spared,
    NotLeader,
}

async fn take<S: ControlStore>(
    ledger: &Ledger<S>,
    store: &ResultStore,
    (recorded, step): (Recorded, SweepAction),
    now_us: i64,
) -> Result<Done, SweepError> {
    if step == SweepAction::Mark {
        return Ok(match ledger.mark(&recorded, now_us).await? {
            Written::Done => Done::Marked(recorded.scan),
            Written::Over => Done::Spared,
            Written::NotLeader => Done::NotLeader,
        });
    }
    if !ledger.leads().await? {
        return Ok(Done::NotLeader);
    }
    let objects = store.delete_scan(&recorded.scan).await?;
    Ok(match ledger.forget(&recorded).await? {
        Written::Done => Done::Deleted(recorded.scan, objects),
        Written::Over => Done::Spared,
        Written::NotLeader => Done::NotLeader,
    })
}

/// Does what [`plan`] says, as far as this term's leader still leads. `orphans`: whether to look for objects that belong to no
/// scan, which takes a listing of every object. `now_us`: microseconds since 1970.
///
/// # Errors
/// [`SweepError`]; what was done stays done.
pub async fn sweep<S: ControlStore>(
    ledger: &Ledger<S>,
    store: &ResultStore,
    policy: &RetentionPolicy,
    orphans: bool,
    now_us: i64,
) -> Result<SweepReport, SweepError> {
    let objects = if orphans { store.scans().await? } else { BTreeMap::new() };
    let loaded = ledger.load().await?;
    let mut report = SweepReport { recorded: loaded.scans.len(), ..SweepReport::default() };
    let mut steps = plan(&loaded, &objects, policy, ledger.term().epoch, now_us);
    report.more = steps.len() > STEPS_MAX;
    steps.truncate(STEPS_MAX);
    let steps = futures::stream::iter(steps).map(|step| take(ledger, store, step, now_us));
    let mut steps = steps.buffered(STEPS_AT_ONCE);
    while let Some(done) = steps.try_next().await? {
        match done {
            Done::Marked(scan) => report.marked.push(scan),
            Done::Deleted(scan, objects) => {
                report.objects += objects;
                report.deleted.push(scan);
            }
            Done::Spared => {}
            Done::NotLeader => {
                report.not_leader = true;
                break;
            }
        }
    }
    Ok(report)
}

#[cfg(test)]
#[path = "retention_tests.rs"]
mod tests;
