//! Background tasks of a leader: takes over earlier scans, deletes expired scans, and claims recorded scans that are
//! not running.
//!
//! Scans are taken over while it already leads: open scans first, then ended ones, page by page. Calls that depend on
//! all scans wait for the end of it; others do not.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tracing::Instrument as _;
use trawl_cluster_store::Backoff;
use trawl_telemetry::names::{attribute, span as name};
use trawl_wire::{pb, trace};

use super::cluster_context::ClusterContext;
use super::scans::{Archive, Asked, Environment, Scan, TakenOver, drive, now_us};
use crate::durable::{LedgerError, Recorded, sweep};

/// Wait before the records are read again after a failure; doubles up to [`BACK_OFF_MAX`].
const BACK_OFF: Duration = Duration::from_millis(200);
/// Longest wait.
const BACK_OFF_MAX: Duration = Duration::from_secs(5);
/// Interval of sweeps for expired scans and for open scans that are not running.
const SWEEP_INTERVAL: Duration = Duration::from_secs(60);
/// Interval of sweeps for objects that belong to no scan.
const ORPHAN_INTERVAL: Duration = Duration::from_secs(10 * 60);

/// Takes over all recorded scans, retrying until it succeeds; sends what it has reached to `progress`.
pub(super) async fn take_over(
    cluster: &ClusterContext,
    environment: &Environment,
    progress: &watch::Sender<TakenOver>,
) {
    let mut backoff = Backoff::new(BACK_OFF, BACK_OFF_MAX);
    loop {
        match try_take_over(cluster, environment, progress).await {
            Ok(()) => break,
            Err(error) => tracing::warn!(%error, "the records of scans cannot be read yet"),
        }
        backoff.wait().await;
    }
    progress.send_replace(TakenOver::All);
}

/// Known scans are left unchanged, so this may be called again.
async fn try_take_over(
    cluster: &ClusterContext,
    environment: &Environment,
    progress: &watch::Sender<TakenOver>,
) -> Result<(), LedgerError> {
    let ledger = &environment.archive.ledger;
    let loaded = ledger.open().await?;
    for (scan, error) in &loaded.unreadable {
        tracing::error!(scan, %error, "this scan's record cannot be read: it is neither run nor deleted");
    }
    let mut recorded = loaded.scans.len();
    let open = loaded.scans.iter().filter(|recorded| recorded.is_open()).count();
    let mut ended = BTreeMap::new();
    for found in loaded.scans {
        if found.is_open() {
            recover(environment, found);
        } else {
            keep_newest(&mut ended, found, cluster.retention.scans_kept_max);
        }
    }
    if open > 0 {
        tracing::info!(open, "took over the scans that were accepted before");
    }
    progress.send_replace(TakenOver::Open);
    let mut pages = ledger.ended();
    while let Some(page) = pages.next().await? {
        recorded += page.scans.len();
        page.scans.into_iter().for_each(|found| keep_newest(&mut ended, found, cluster.retention.scans_kept_max));
    }
    let kept = ended.len();
    ended.into_values().for_each(|found| recover(environment, found));
    if kept > 0 {
        tracing::info!(ended = kept, "knows the scans that ended before");
    }
    environment.archive.room.set(recorded);
    Ok(())
}

/// Keeps the newest `kept_max` ended scans; older ones are about to be deleted and are not listed.
fn keep_newest(ended: &mut BTreeMap<(i64, String), Recorded>, found: Recorded, kept_max: usize) {
    let Some(end) = found.end.as_ref().filter(|_| found.tombstone.is_none()) else { return };
    ended.insert((end.ended_us, found.scan.clone()), found);
    if ended.len() > kept_max {
        ended.pop_first();
    }
}

/// Takes a scan over, unless it is already known or being deleted.
fn recover(environment: &Environment, recorded: Recorded) {
    let Some(header) = recorded.header.as_ref().filter(|_| recorded.tombstone.is_none()) else { return };
    if environment.scans.get(&recorded.scan).is_some() {
        return;
    }
    let Some(scan) = Scan::of_record(&recorded, Asked::of_header(header), &environment.memory) else { return };
    let scan = Arc::new(scan);
    environment.scans.recover(Arc::clone(&scan));
    if recorded.is_open() {
        // In the trace of the submitting client.
        let span = tracing::info_span!(name::SUBMIT, { attribute::SCAN_ID } = scan.name);
        trace::set_parent(&span, [header.trace.clone().map(pb::TraceContext::from).as_ref(), None]);
        tokio::spawn(drive(environment.clone(), scan, Some(recorded)).instrument(span));
    }
}

/// Deletes expired scans, and claims recorded scans that are not running: an acceptance that was given up may have been
/// recorded after all.
pub(super) async fn keep_tidy(cluster: &ClusterContext, environment: &Environment) {
    let Archive { ledger, results, room } = &environment.archive;
    let mut looked = None::<Instant>;
    let mut more = false;
    loop {
        if !more {
            tokio::time::sleep(SWEEP_INTERVAL).await;
        }
        let orphans = looked.is_none_or(|at| at.elapsed() >= ORPHAN_INTERVAL);
        more = match sweep(ledger, results, &cluster.retention, orphans, now_us()).await {
            Ok(report) => {
                looked = if orphans { Some(Instant::now()) } else { looked };
                report.deleted.iter().for_each(|scan| environment.scans.forget(scan));
                room.set(report.recorded.saturating_sub(report.deleted.len()));
                if !report.deleted.is_empty() {
                    tracing::info!(scans = report.deleted.len(), objects = report.objects, "deleted old results");
                }
                report.more
            }
            Err(error) => {
                tracing::warn!(%error, "old results could not be deleted");
                false
            }
        };
        if let Err(error) = claim(environment).await {
            tracing::debug!(%error, "the records cannot be read");
        }
    }
}

/// Claims open scans that are not running.
async fn claim(environment: &Environment) -> Result<(), LedgerError> {
    let ledger = &environment.archive.ledger;
    for scan in ledger.open_names().await? {
        if environment.scans.get(&scan).is_some() {
            continue;
        }
        if let Some(recorded) = ledger.get(&scan).await?.filter(Recorded::is_open) {
            tracing::warn!(scan, "takes up a scan that is recorded but does not run");
            recover(environment, recorded);
        }
    }
    Ok(())
}
