//! Deletion of scans that ended long ago, and of objects that belong to no scan.
//!
//! First a tombstone under the current leader's epoch, then a grace period in which readers finish and in which a
//! replaced leader notices; then the objects; at last the records with the tombstone. A tombstone is never revoked, and
//! none is written for a scan that has not ended: the transaction that writes it is guarded by the presence of the end.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::time::Duration;

use futures::{StreamExt as _, TryStreamExt as _};
use trawl_cluster_store::ControlStore;

use super::ledger::{Ledger, LedgerError, Loaded, Recorded, Written};
use super::results::{ResultStore, ScanObjects};
use super::store_error::StoreError;

/// How long a scan's results are kept after it ended, unless configured otherwise.
pub const RESULTS_KEPT: Duration = Duration::from_secs(24 * 60 * 60);
/// Maximum number of ended scans kept, unless configured otherwise; the oldest of whoever has the most go first.
pub const SCANS_KEPT_MAX: usize = 1000;
/// Between a tombstone and the deletion.
pub const TOMBSTONE_GRACE: Duration = Duration::from_secs(5 * 60);
/// Minimum age of objects that belong to no scan before they are deleted: a scan's document is stored before the scan
/// is recorded.
pub const ORPHAN_GRACE: Duration = Duration::from_secs(60 * 60);
/// Marks and deletions per sweep; if there is more to do, the next sweep follows at once.
const STEPS_MAX: usize = 4096;
/// Concurrent marks and deletions: enough to keep up with incoming scans at the latency of a store.
const STEPS_AT_ONCE: usize = 16;

/// Retention times and limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetentionPolicy {
    /// How long results are kept after a scan's end.
    pub results_kept: Duration,
    /// Maximum number of ended scans.
    pub scans_kept_max: usize,
    /// Time between tombstone and deletion.
    pub tombstone_grace: Duration,
    /// Minimum age of objects without a scan.
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

/// The action of a sweep on a scan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SweepAction {
    /// Write a tombstone.
    Mark,
    /// Delete its objects, then its records.
    Delete,
}

/// The outcome of a sweep.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SweepReport {
    /// Scans that were marked.
    pub marked: Vec<String>,
    /// Scans that were deleted.
    pub deleted: Vec<String>,
    /// Number of objects deleted.
    pub objects: u64,
    /// Number of recorded scans when the sweep began.
    pub recorded: usize,
    /// Whether there is more to do.
    pub more: bool,
    /// Whether another coordinator leads now.
    pub not_leader: bool,
}

/// Why a sweep stopped; the next one continues.
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

/// The actions of a sweep, by scan; pure.
///
/// `objects` were listed before `loaded` was: so objects of a scan accepted in between are new, and are kept.
pub fn plan(
    loaded: &Loaded,
    objects: &BTreeMap<String, ScanObjects>,
    policy: &RetentionPolicy,
    epoch: i64,
    now_us: i64,
) -> Vec<(Recorded, SweepAction)> {
    let older = |since: i64, than: Duration| now_us.saturating_sub(since) >= micros(than);
    let surplus = surplus(loaded, policy.scans_kept_max);
    let mut steps = Vec::new();
    for recorded in &loaded.scans {
        let step = match (&recorded.tombstone, &recorded.end) {
            // Written by an earlier leader, which may be about to delete: give it time to notice.
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

/// The ended scans beyond the maximum: the oldest ones of whoever has the most, so that many scans of one caller do not
/// push out the results of the others.
fn surplus(loaded: &Loaded, kept_max: usize) -> BTreeSet<&str> {
    let mut callers: BTreeMap<&str, BTreeSet<(i64, &str)>> = BTreeMap::new();
    for recorded in loaded.scans.iter().filter(|r| r.tombstone.is_none()) {
        if let (Some(header), Some(end)) = (&recorded.header, &recorded.end) {
            callers.entry(&header.owner).or_default().insert((end.ended_us, &recorded.scan));
        }
    }
    let mut too_many = callers.values().map(BTreeSet::len).sum::<usize>().saturating_sub(kept_max);
    // By number of scans; of equal numbers the one with the oldest scan.
    let rank = |scans: &BTreeSet<(i64, &str)>| (scans.len(), Reverse(scans.first().map(|(ended_us, _)| *ended_us)));
    let mut heap: BinaryHeap<_> = callers.iter().map(|(caller, scans)| (rank(scans), Reverse(*caller))).collect();
    let mut surplus = BTreeSet::new();
    while too_many > 0 {
        let Some((_, caller)) = heap.pop() else { break };
        let Some(scans) = callers.get_mut(caller.0) else { break };
        surplus.extend(scans.pop_first().map(|(_, scan)| scan));
        too_many -= 1;
        if !scans.is_empty() {
            heap.push((rank(scans), caller));
        }
    }
    surplus
}

/// The outcome of one action.
enum Done {
    Marked(String),
    Deleted(String, u64),
    /// The records changed in the meantime: left to the next sweep.
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

/// Performs the actions of [`plan`] while this term's leader still leads. `orphans`: whether to look for objects that
/// belong to no scan, which takes a listing of every object. `now_us`: microseconds since 1970.
///
/// # Errors
/// [`SweepError`]; completed actions are kept.
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
