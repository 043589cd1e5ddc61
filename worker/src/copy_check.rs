//! Checks this worker's whole copy of a snapshot after one of its files was found damaged, so that an operator learns at
//! once what has to be repaired, not file by file as scans meet them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use trawl_market::Dataset;
use trawl_telemetry::metrics::catalogue::worker::DAMAGED_FILES;
use trawl_wire::error::text_of;

/// A copy that was checked is not checked again for so long.
const AGAIN_AFTER: Duration = Duration::from_secs(600);
/// Damaged files named in the log; the rest is counted.
const FILES_NAMED_MAX: usize = 20;

/// When copies were checked, by `NAME@SNAPSHOT`.
#[derive(Debug, Default)]
struct Checks {
    running: bool,
    ended: BTreeMap<String, (Instant, usize)>,
}

/// Checks one copy at a time. Clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct CopyCheck(Arc<Mutex<Checks>>);

impl CopyCheck {
    /// Begins to check a copy on a thread of its own, unless one is being checked or this one was lately.
    pub fn begin(&self, worker: &str, dataset: &Dataset) {
        let reference = format!("{}@{}", dataset.manifest.name, dataset.manifest.snapshot);
        {
            let mut checks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            checks.ended.retain(|_, (at, _)| at.elapsed() < AGAIN_AFTER);
            if checks.running || checks.ended.contains_key(&reference) {
                return;
            }
            checks.running = true;
        }
        let (this, worker, dataset) = (self.clone(), worker.to_owned(), dataset.clone());
        let checking = std::thread::Builder::new().name("trawl-copy-check".to_owned());
        let spawned = checking.spawn(move || {
            let found = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| check(&worker, &reference, &dataset)));
            this.end(reference, found.unwrap_or_default());
        });
        if let Err(error) = spawned {
            tracing::warn!(%error, "the copy of a dataset cannot be checked");
            self.0.lock().unwrap_or_else(PoisonError::into_inner).running = false;
        }
    }

    fn end(&self, reference: String, damaged: usize) {
        let mut checks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        checks.running = false;
        checks.ended.insert(reference, (Instant::now(), damaged));
        DAMAGED_FILES.set_count(checks.ended.values().map(|(_, damaged)| damaged).sum::<usize>());
    }
}

/// Reads every file of a copy; returns how many are damaged or missing, and logs them.
fn check(worker: &str, dataset: &str, copy: &Dataset) -> usize {
    let errors = copy.verify();
    for error in errors.iter().take(FILES_NAMED_MAX) {
        tracing::warn!(
            worker,
            dataset,
            error = text_of(error),
            "a file of this worker's data root is damaged or missing"
        );
    }
    let (damaged, files) = (errors.len(), copy.manifest.files.len());
    if damaged > 0 {
        tracing::error!(worker, dataset, damaged, files, "this worker's copy has to be repaired, then start it anew");
    } else {
        tracing::warn!(worker, dataset, files, "every file of this worker's copy is sound now: a read of it was not");
    }
    damaged
}

#[cfg(test)]
mod tests {
    use super::*;
    use trawl_market::{Store, SynthOptions, synthesise};

    fn until_checked(check: &CopyCheck) -> Vec<usize> {
        let started = Instant::now();
        loop {
            let checks = check.0.lock().unwrap();
            if !checks.running {
                return checks.ended.values().map(|(_, damaged)| *damaged).collect();
            }
            drop(checks);
            assert!(started.elapsed() < Duration::from_secs(30));
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn all_damaged_files_of_a_copy_are_counted_once() {
        let folder = tempfile::TempDir::new().unwrap();
        let store = Store::new(folder.path().to_owned());
        let (name, timeframe) = ("m".to_owned(), trawl_market::Timeframe::DAY);
        synthesise(&store, &SynthOptions { name, symbols: 200, bars: 40, seed: 1, timeframe }).unwrap();
        let dataset = store.open("m").unwrap();
        let check = CopyCheck::default();
        check.begin("w", &dataset);
        assert_eq!(until_checked(&check), [0]);

        let mut files: Vec<_> = walk(folder.path());
        files.sort();
        assert!(files.len() > 2, "{files:?}");
        for file in &files[..2] {
            let mut bytes = std::fs::read(file).unwrap();
            let middle = bytes.len() / 2;
            bytes[middle] ^= 1;
            std::fs::write(file, bytes).unwrap();
        }
        check.begin("w", &dataset);
        assert_eq!(until_checked(&check), [0], "not again so soon");
        let later = CopyCheck::default();
        later.begin("w", &dataset);
        assert_eq!(until_checked(&later), [2]);
        assert_eq!(DAMAGED_FILES.get(), 2);
    }

    /// All files of bars below a folder.
    fn walk(folder: &std::path::Path) -> Vec<std::path::PathBuf> {
        let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let below = entries.flat_map(|path| if path.is_dir() { walk(&path) } else { vec![path] });
        below.filter(|path| path.extension().is_some_and(|extension| extension == "arrow")).collect()
    }
}
