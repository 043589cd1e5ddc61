//! The snapshots that a worker has open, and what it reports of the bars that it holds of them.
//!
//! The report is a hint for the coordinator's choice of a worker. It is made from what is in memory and on disk at that moment, and is out of date
//! as soon as anything is evicted; nothing else depends on it.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use prost::Message as _;
use trawl_market::{ColumnCache, Dataset, Store};
use trawl_wire::error::text_of;
use trawl_wire::limits::{CACHE_REPORT_BYTES_MAX, CACHE_REPORT_SNAPSHOTS_MAX, bounded_reason};
use trawl_wire::{ErrorKind, Failure, group_bits, pb};

/// Maximum number of open snapshots that are kept.
const OPEN_MAX: usize = 8;

/// Longest time for which files on this machine are believed to be where they were: other processes may share the folder.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// See the module's header.
#[derive(Debug, Default)]
pub(crate) struct Snapshots {
    /// By NAME@SNAPSHOT, the one that was used last at the end.
    open: Mutex<VecDeque<(String, Dataset)>>,
    /// What was found for the last report.
    found: Mutex<Option<Found>>,
}

/// What is held of some snapshots. Each shard ends with a report: looking at every group of large snapshots would take longer than
/// computing a small shard.
#[derive(Debug)]
struct Found {
    /// Of these snapshots, in this order.
    references: Vec<String>,
    /// [`ColumnCache::generation`] before it was looked for.
    generation: u64,
    at: Instant,
    held: Vec<pb::HeldGroups>,
}

impl Snapshots {
    fn opened(&self) -> MutexGuard<'_, VecDeque<(String, Dataset)>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens a snapshot, or reuses an open one; its columns are kept in `cache`.
    ///
    /// # Errors
    /// Retryable: another worker may see the data.
    pub fn open(&self, store: &Store, reference: &str, cache: &Arc<ColumnCache>) -> Result<Dataset, Failure> {
        let known = |open: &mut VecDeque<(String, Dataset)>| {
            let at = open.iter().position(|(name, _)| name == reference)?;
            let used = open.remove(at)?;
            let dataset = used.1.clone();
            open.push_back(used);
            Some(dataset)
        };
        if let Some(dataset) = known(&mut self.opened()) {
            return Ok(dataset);
        }
        let dataset = store
            .open(reference)
            .map_err(|error| Failure::new(ErrorKind::Retryable, bounded_reason(text_of(&error))))?
            .sharing_columns(cache);
        let mut open = self.opened();
        if let Some(dataset) = known(&mut open) {
            return Ok(dataset);
        }
        if open.len() >= OPEN_MAX {
            open.pop_front();
        }
        open.push_back((reference.to_owned(), dataset.clone()));
        Ok(dataset)
    }

    /// A snapshot is used by a scan that keeps it open itself: it is the last one used.
    pub fn used(&self, reference: &str, dataset: &Dataset) {
        let mut open = self.opened();
        if open.back().is_some_and(|(name, _)| name == reference) {
            return;
        }
        match open.iter().position(|(name, _)| name == reference).and_then(|at| open.remove(at)) {
            Some(used) => open.push_back(used),
            None => {
                if open.len() >= OPEN_MAX {
                    open.pop_front();
                }
                open.push_back((reference.to_owned(), dataset.clone()));
            }
        }
    }

    /// What is held of the snapshots that were used last, within [`CACHE_REPORT_BYTES_MAX`]; `generation` is that of the cache of their
    /// columns. Looks at files: not for threads of a runtime.
    pub fn report(&self, generation: u64, loads: pb::CacheLoads) -> pb::CacheReport {
        let newest: Vec<(String, Dataset)> =
            self.opened().iter().rev().take(CACHE_REPORT_SNAPSHOTS_MAX).cloned().collect();
        let held = self.held(&newest, generation).into_iter();
        bounded(pb::CacheReport { held: Vec::new(), loads: Some(loads) }, held)
    }

    fn held(&self, newest: &[(String, Dataset)], generation: u64) -> Vec<pb::HeldGroups> {
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        let looks_at_files = newest.iter().any(|(_, dataset)| dataset.is_in_objects());
        let still = |found: &&Found| {
            found.generation == generation
                && found.references.iter().eq(newest.iter().map(|(reference, _)| reference))
                && !(looks_at_files && found.at.elapsed() >= LOOK_INTERVAL)
        };
        if let Some(known) = found.as_ref().filter(still) {
            return known.held.clone();
        }
        let at = Instant::now();
        let of = |(reference, dataset): &(String, Dataset)| pb::HeldGroups {
            dataset: reference.clone(),
            memory: group_bits::pack(dataset.groups_in_memory()),
            disk: group_bits::pack(dataset.groups_on_disk()),
        };
        let held: Vec<pb::HeldGroups> = newest.iter().map(of).collect();
        let references = newest.iter().map(|(reference, _)| reference.clone()).collect();
        *found = Some(Found { references, generation, at, held: held.clone() });
        held
    }
}

/// The report with as many of these as there is room for.
fn bounded(mut report: pb::CacheReport, held: impl Iterator<Item = pb::HeldGroups>) -> pb::CacheReport {
    for groups in held.filter(|groups| !(groups.memory.is_empty() && groups.disk.is_empty())) {
        report.held.push(groups);
        if report.encoded_len() > CACHE_REPORT_BYTES_MAX {
            report.held.pop();
        }
    }
    report
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_stays_within_its_bytes_and_leaves_out_what_does_not_fit() {
        let groups = |name: &str, bytes: usize| pb::HeldGroups {
            dataset: name.to_owned(),
            memory: vec![1; bytes],
            disk: Vec::new(),
        };
        let held = [groups("a", 10), groups("large", CACHE_REPORT_BYTES_MAX), groups("nothing", 0), groups("b", 10)];
        let report = bounded(pb::CacheReport::default(), held.into_iter());
        assert!(report.encoded_len() <= CACHE_REPORT_BYTES_MAX);
        assert_eq!(report.held.iter().map(|groups| groups.dataset.as_str()).collect::<Vec<_>>(), ["a", "b"]);
    }

    #[test]
    fn what_was_loaded_is_reported_of_the_snapshot_that_was_used_last_first() {
        let folder = tempfile::tempdir().unwrap();
        let (store, cache) = (Store::new(folder.path().to_owned()), Arc::new(ColumnCache::new(1 << 20)));
        let snapshots = Snapshots::default();
        let bundled = ["demo", "us5"].map(|name| snapshots.open(&store, name, &cache).unwrap());
        let report = || snapshots.report(cache.generation(), pb::CacheLoads::default());
        assert_eq!(report().held, [], "nothing is held");
        for dataset in &bundled {
            let group = dataset.manifest.filled_groups()[0];
            dataset.load_group(group, &["close".to_owned()]).unwrap();
        }
        let names = || -> Vec<String> { report().held.into_iter().map(|groups| groups.dataset).collect() };
        assert_eq!(names(), ["us5", "demo"]);
        let demo = snapshots.open(&store, "demo", &cache).unwrap();
        assert_eq!(names(), ["demo", "us5"]);
        let report = report();
        let held =
            demo.manifest.filled_groups().into_iter().filter(|g| group_bits::contains(&report.held[0].memory, *g));
        assert_eq!(held.collect::<Vec<_>>(), [demo.manifest.filled_groups()[0]]);
    }
}
