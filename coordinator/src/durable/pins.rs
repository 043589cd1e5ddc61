//! Scans that have not ended pin the snapshots they read.
//!
//! The leader pins when it accepts a scan, and renews all pins every [`PIN_REFRESH`]: without the snapshot's files a
//! scan could neither continue nor be run again. A data root that cannot be written is reported once and leaves the
//! scans running: 'trawl datasets rm' and 'prune' on other machines then do not see them.

use std::collections::BTreeSet;
use std::time::Duration;

use trawl_market::{MarketError, Store, TimeMicros};

/// Interval of renewing pins.
pub const PIN_REFRESH: Duration = Duration::from_secs(5 * 60);
/// Lifetime of a pin: how long a cluster may be without a leader before its snapshots may be deleted.
pub const PIN_HELD: Duration = Duration::from_secs(6 * 60 * 60);

/// The outcome of [`refresh_pins`].
#[derive(Debug, Default)]
pub struct PinReport {
    /// Scans whose snapshot is pinned.
    pub pinned: usize,
    /// Scans whose snapshot could not be pinned, and why.
    pub failed: Vec<(String, MarketError)>,
}

/// Pins `NAME@SNAPSHOT` for a scan that begins. Blocks on files.
///
/// # Errors
/// Those of [`Store::pin`].
pub fn hold(store: &Store, dataset: &str, scan: &str, now: TimeMicros) -> Result<(), MarketError> {
    let held = i64::try_from(PIN_HELD.as_micros()).unwrap_or(i64::MAX);
    store.pin(dataset, &holder(scan), now.saturating_add(held))
}

/// Removes the pin of a scan that has ended. Blocks on files.
///
/// # Errors
/// Those of [`Store::unpin`].
pub fn let_go(store: &Store, dataset: &str, scan: &str) -> Result<(), MarketError> {
    store.unpin(dataset, &holder(scan))
}

/// Pins the snapshots of all scans that have not ended, and removes the pins of those that have: `(scan, NAME@SNAPSHOT,
/// whether it has ended)`. Blocks on files.
pub fn refresh_pins(store: &Store, scans: &[(String, String, bool)], now: TimeMicros) -> PinReport {
    let mut report = PinReport::default();
    let mut datasets = BTreeSet::new();
    // A scan that is not prepared yet has no dataset.
    for (scan, dataset, ended) in scans.iter().filter(|(_, dataset, _)| !dataset.is_empty()) {
        datasets.insert(dataset.split('@').next().unwrap_or_default());
        let done = if *ended {
            let_go(store, dataset, scan)
        } else {
            hold(store, dataset, scan, now).map(|()| report.pinned += 1)
        };
        if let Err(error) = done {
            report.failed.push((scan.clone(), error));
        }
    }
    for dataset in datasets {
        // Remove expired pins of coordinators that died; what fails here is found by the next call.
        let _ = store.drop_old_pins(dataset, now);
    }
    report
}

/// A scan's id as a pin's holder, which must not contain dots.
fn holder(scan: &str) -> String {
    scan.replace('.', "_")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scans_pin_their_snapshot_until_they_end() {
        let root = tempfile::tempdir().unwrap();
        let snapshot = "ab".repeat(32);
        std::fs::create_dir_all(root.path().join("d/snapshots")).unwrap();
        std::fs::write(root.path().join(format!("d/snapshots/{snapshot}.json")), b"{}").unwrap();
        let store = Store::new(root.path().to_owned());
        let scan = |name: &str, dataset: String| (name.to_owned(), dataset, false);
        let mut scans = vec![scan("a.b-1", format!("d@{snapshot}")), scan("a-2", format!("d@{}", "cd".repeat(32)))];
        let report = refresh_pins(&store, &scans, 10);
        assert_eq!((report.pinned, report.failed.len(), report.failed[0].0.as_str()), (1, 1, "a-2"));
        let until = 10 + i64::try_from(PIN_HELD.as_micros()).unwrap();
        assert_eq!(store.pinned("d", 11).unwrap().into_iter().collect::<Vec<_>>(), [(snapshot, until)]);
        scans[0].2 = true;
        refresh_pins(&store, &scans, 12);
        assert!(store.pinned("d", 12).unwrap().is_empty());
    }
}
