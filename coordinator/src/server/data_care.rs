//! What a leader does for the datasets of its data root while nobody asks: it compares stored files with their checksums, and
//! compacts datasets to which much was appended. Scans do not depend on any of this.

use std::collections::HashMap;
use std::convert::Infallible;
use std::num::NonZero;
use std::time::{Duration, Instant};

use trawl_market::{CompactReport, MarketError, Store};
use trawl_telemetry::metrics::catalogue::coordinator::{
    COMPACTION_FAILURES, COMPACTIONS, SCRUB_DAMAGED, SCRUB_PASSES, SCRUBBED,
};
use trawl_wire::error::text_of;
use trawl_worker::scrub::{ScrubEvent, Scrubbing, scrub};

/// How often datasets are looked at for appended bars.
const LOOK_INTERVAL: Duration = Duration::from_secs(60);
/// Time until a dataset is tried again whose compaction failed.
const RETRY_AFTER: Duration = Duration::from_secs(3600);
/// Memory of a compaction. It needs less where less is written.
const COMPACTION_BYTES: u64 = 1 << 30;

/// What a leader does for its datasets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DataCare {
    /// How stored files are checked.
    pub scrubbing: Scrubbing,
    /// A dataset with so many files of appended bars is compacted; `None`: none is. The data root has to be writable.
    pub compact_appended: Option<NonZero<u32>>,
    /// Interval of looking for them; [`LOOK_INTERVAL`] if `None`.
    pub look_interval: Option<Duration>,
}

/// Damaged files are those of this leader's term.
struct Damage;

impl Drop for Damage {
    fn drop(&mut self) {
        SCRUB_DAMAGED.set(0);
    }
}

/// Does it for as long as this coordinator leads; does not end.
pub(super) async fn care(store: Store, care: DataCare) -> Infallible {
    let _damage = Damage;
    let scrubbing = scrub(store.clone(), care.scrubbing, |event| match event {
        ScrubEvent::Read(bytes) => SCRUBBED.add(bytes),
        // The pass before may have found more, which is still damaged until a whole pass finds it in order.
        ScrubEvent::Damaged(count) => SCRUB_DAMAGED.set(SCRUB_DAMAGED.get().max(count.cast_signed())),
        ScrubEvent::Ended(count) => {
            SCRUB_PASSES.inc();
            SCRUB_DAMAGED.set_count(count);
        }
    });
    tokio::select! {
        never = scrubbing => never,
        never = compact(store, care) => never,
    }
}

/// What is known of datasets from one look to the next.
#[derive(Debug, Default)]
struct Looks {
    /// By dataset: the snapshot that was found to need nothing.
    settled: HashMap<String, String>,
    /// Datasets whose compaction failed, and when.
    failed: HashMap<String, Instant>,
}

/// Looks at the datasets again and again.
async fn compact(store: Store, care: DataCare) -> Infallible {
    let Some(files) = care.compact_appended else { return std::future::pending().await };
    let mut looks = Looks::default();
    let mut ticks = tokio::time::interval(care.look_interval.unwrap_or(LOOK_INTERVAL));
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let (store, mut now) = (store.clone(), std::mem::take(&mut looks));
        let looked = tokio::task::spawn_blocking(move || {
            now.look(&store, files.get() as usize);
            now
        });
        // A panic has been reported: everything is looked at anew.
        looks = looked.await.unwrap_or_default();
    }
}

impl Looks {
    /// Compacts the datasets that need it.
    fn look(&mut self, store: &Store, files: usize) {
        self.failed.retain(|_, at| at.elapsed() < RETRY_AFTER);
        let newest = match store.newest_snapshots() {
            Ok(newest) => newest,
            Err(error) => {
                tracing::warn!(error = text_of(&error), "the datasets cannot be looked at");
                return;
            }
        };
        self.settled.retain(|name, snapshot| newest.get(name) == Some(snapshot));
        for (name, snapshot) in newest {
            if self.failed.contains_key(&name) || self.settled.contains_key(&name) {
                continue;
            }
            // Scans report what cannot be opened.
            let Ok(dataset) = store.open(&name) else { continue };
            if dataset.manifest.tails().len() < files {
                self.settled.insert(name, snapshot);
                continue;
            }
            drop(dataset);
            match compact_one(store, &name) {
                Ok(CompactReport { appended_files, appended_left, snapshot, .. }) => {
                    COMPACTIONS.inc();
                    tracing::info!(dataset = name, appended_files, appended_left, snapshot, "compacted a dataset");
                }
                // An import, a removal or another compaction is under way: the next look is soon.
                Err(MarketError::Busy { .. } | MarketError::Compacting { .. } | MarketError::Removing { .. }) => {}
                Err(error) => {
                    COMPACTION_FAILURES.inc();
                    let error = text_of(&error);
                    tracing::warn!(
                        dataset = name,
                        error,
                        "the dataset cannot be compacted: the next attempt is in an hour"
                    );
                    self.failed.insert(name, Instant::now());
                }
            }
        }
    }
}

/// Compacts one dataset on one core: scans need the others.
fn compact_one(store: &Store, name: &str) -> Result<CompactReport, MarketError> {
    let compact = || store.compact(name, Some(COMPACTION_BYTES));
    match rayon::ThreadPoolBuilder::new().num_threads(1).build() {
        Ok(pool) => pool.install(compact),
        // Without a thread of its own it takes those that there are.
        Err(_) => compact(),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use trawl_market::{Appending, ImportOptions, import_files};

    use super::*;

    /// Imports one bar of one day.
    fn import(store: &Store, dataset: &str, day: u32) {
        let file = tempfile::Builder::new().suffix(".csv").tempfile().unwrap();
        fs::write(file.path(), format!("symbol,date,open,high,low,close\nX,2024-01-{day:02},1,1,1,1\n")).unwrap();
        let options = ImportOptions {
            dataset: dataset.to_owned(),
            files: vec![file.path().to_owned()],
            calendar: Some("24/7".to_owned()),
            timeframe: Some(trawl_market::Timeframe::DAY),
            appending: Appending::Always,
            ..ImportOptions::default()
        };
        import_files(store, &options).unwrap();
    }

    #[test]
    fn a_dataset_is_compacted_once_it_has_so_many_appended_files_and_its_bars_stay() {
        let root = tempfile::tempdir().unwrap();
        let store = Store::new(root.path().to_path_buf()).keeping();
        (1..=4).for_each(|day| import(&store, "much", day));
        (1..=3).for_each(|day| import(&store, "little", day));
        let mut looks = Looks::default();
        let tails = |name: &str| store.open(name).unwrap().manifest.tails().len();
        looks.look(&store, 4);
        assert_eq!((tails("much"), tails("little"), looks.failed.len()), (3, 2, 0));
        assert_eq!(looks.settled.len(), 2, "neither is opened again before it changes");
        let little = store.open("little").unwrap().manifest.snapshot.clone();
        looks.look(&store, 3);
        import(&store, "much", 5);
        let bars = store.open("much").unwrap().manifest.bars;
        looks.look(&store, 4);
        let much = store.open("much").unwrap();
        assert_eq!((tails("much"), much.manifest.bars, bars), (0, 5, 5));
        assert!(much.verify().is_empty());
        assert_eq!(store.open("little").unwrap().manifest.snapshot, little);
    }

    #[test]
    fn a_compaction_that_fails_is_counted_and_not_tried_again_at_once() {
        let root = tempfile::tempdir().unwrap();
        let store = Store::new(root.path().to_path_buf()).keeping();
        (1..=3).for_each(|day| import(&store, "broken", day));
        let manifest = store.open("broken").unwrap().manifest;
        let tail = root.path().join("broken/files").join(format!("{}.arrow", manifest.tails()[0].sha256));
        fs::remove_file(tail).unwrap();
        let (before, mut looks) = (COMPACTION_FAILURES.get(), Looks::default());
        looks.look(&store, 2);
        looks.look(&store, 2);
        assert_eq!((COMPACTION_FAILURES.get() - before, looks.failed.len()), (1, 1));
    }
}
