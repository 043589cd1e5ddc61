//! Compaction: the groups to which bars were appended are written whole, as an import of all bars would have written them.
//!
//! It reads one snapshot and makes another; the old one stays until it is removed. While the groups are written, imports go on:
//! only a lock of its own is held, which keeps removals from deleting files that no manifest names yet. Bars that were appended
//! meanwhile are appended to the new base by naming their files. A crash leaves the old snapshot, and files for the next removal
//! to delete.
//!
//! The locks are of one machine. Of a dataset in a bucket another machine may publish while this one does, which is then tried again;
//! or merge files that are being compacted with later ones, and then the new snapshot is compacted from the beginning.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::dataset::Dataset;
use crate::error::MarketError;
use crate::import::groups::merge_into;
use crate::import::memory::MemoryPlan;
use crate::import::{Spans, check_writable_name};
use crate::manifest::{Appended, Manifest, SymbolEntry};
use crate::manifest_reader::complete;
use crate::snapshot::{
    CompactionLock, Heading, Sink, WriteLock, assemble, assemble_appended, base_path, write_atomically,
};
use crate::store::Store;
use crate::unfinished::sweep_unfinished_of_imports;

/// How long a compaction waits for an import to end, at the end of which it takes over what it wrote.
const IMPORT_WAIT: Duration = Duration::from_secs(600);
/// How often it looks.
const IMPORT_POLL: Duration = Duration::from_millis(20);
/// How often a compaction begins again after another machine has merged files that it read: a merge comes once in
/// [`crate::limits::TAILS_MERGED`] imports.
const COMPACTIONS_MAX: u32 = 4;
/// How often a compaction publishes what it made, each time after the imports of other machines that were faster.
const PUBLISH_TRIES_MAX: u32 = 16;

/// The result of a compaction.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct CompactReport {
    /// Name.
    pub dataset: String,
    /// The snapshot that was read.
    pub before: String,
    /// Id of the dataset's newest snapshot after the compaction.
    pub snapshot: String,
    /// The snapshot had no appended bars; nothing was written.
    pub unchanged: bool,
    /// Files of appended bars that became part of the groups.
    pub appended_files: u64,
    /// Files of bars that were appended meanwhile, and still are.
    pub appended_left: u64,
    /// Group files that were written.
    pub files_written: u64,
    /// Group files that stayed as they were.
    pub files_shared: u64,
    /// Bars in the newest snapshot.
    pub bars: u64,
}

impl Store {
    /// Writes the groups of a dataset's newest snapshot whole, if bars were appended to it. The result is the snapshot that an
    /// import of the same bars at once would have made, with its id. Memory is that of an import; `None` takes half of what the
    /// machine has left.
    ///
    /// # Errors
    /// [`MarketError::UnknownDataset`]; [`MarketError::Refused`] for bundled datasets, and where an import wrote the groups anew
    /// meanwhile, or other machines merged its files again and again; [`MarketError::Compacting`], [`MarketError::Busy`], [`MarketError::Io`]; [`MarketError::Checksum`] and its like
    /// for a damaged dataset. Then the dataset is as it was.
    pub fn compact(&self, name: &str, memory: Option<u64>) -> Result<CompactReport, MarketError> {
        self.compact_while(name, memory, || ())
    }

    /// The same; `meanwhile` is called whenever the groups are written, and the lock of imports is not taken yet.
    pub(crate) fn compact_while(
        &self,
        name: &str,
        memory: Option<u64>,
        mut meanwhile: impl FnMut(),
    ) -> Result<CompactReport, MarketError> {
        check_writable_name(name)?;
        if self.head(name)?.is_none() {
            return Err(self.unknown(name));
        }
        let directory = self.directory(name);
        let _compaction = CompactionLock::take(&directory, name)?;
        sweep_unfinished_of_imports(&directory, name);
        for _ in 0..COMPACTIONS_MAX {
            let read = self.open(name)?;
            let mut report = CompactReport {
                dataset: name.to_owned(),
                before: read.manifest.snapshot.clone(),
                snapshot: read.manifest.snapshot.clone(),
                unchanged: true,
                appended_files: 0,
                appended_left: 0,
                files_written: 0,
                files_shared: read.manifest.files.len() as u64,
                bars: read.manifest.bars,
            };
            if read.tails().is_none() {
                return Ok(report);
            }
            let sink = self.sink(name, Some(&read))?;
            let made = self.compact_into(&sink, &read, &mut report, (memory, &mut meanwhile));
            if let Err(MarketError::Full { .. }) = made {
                self.undo_compaction(&sink, &read);
            }
            if made? {
                return Ok(report);
            }
        }
        Err(MarketError::Refused(format!(
            "dataset '{name}' was not compacted: other machines merged its files of appended bars {COMPACTIONS_MAX} times meanwhile; \
             its bars are as before: compact it again while less is imported, or on the machine that imports"
        )))
    }

    /// Deletes what a compaction wrote, unless an import may use the same files.
    fn undo_compaction(&self, sink: &Sink, read: &Dataset) {
        let name = &read.manifest.name;
        if let Ok(_no_import) = WriteLock::take(&self.directory(name), name)
            && self.newest(name).is_ok_and(|head| head.is_some_and(|head| head.snapshot == read.manifest.snapshot))
        {
            sink.undo();
        }
    }

    /// Writes the groups of a snapshot, then a new snapshot of them. False: another machine has merged files that were read here, and
    /// nothing was published.
    fn compact_into(
        &self,
        sink: &Sink,
        read: &Dataset,
        report: &mut CompactReport,
        (memory, meanwhile): (Option<u64>, &mut impl FnMut()),
    ) -> Result<bool, MarketError> {
        let (name, directory) = (read.manifest.name.as_str(), self.directory(&read.manifest.name));
        let merged = merge_into(sink, Some(read), &[], (None, &Spans::default()), MemoryPlan::of(memory).groups())?;
        report.unchanged = false;
        report.appended_files = read.manifest.tails().len() as u64;
        (report.files_written, report.files_shared) = (merged.files_written, merged.files_shared);
        let base = assemble(sink, heading(&read.manifest), merged.files, merged.times)?;
        meanwhile();
        let _lock = wait_for_imports(|| WriteLock::take(&directory, name))?;
        for _ in 0..PUBLISH_TRIES_MAX {
            let head = self.newest(name)?.ok_or_else(|| self.unknown(name))?;
            let newest = self.open(&format!("{name}@{}", head.snapshot))?;
            let made = match newest.manifest.snapshot == read.manifest.snapshot {
                true => Some(base.clone()),
                false => rebase(sink, read, &newest, base.clone())?,
            };
            let Some(made) = made else { return Ok(false) };
            match sink.publish(&made, Some(&head)) {
                // Another machine was faster: what it appended is appended to the new groups as well.
                Err(MarketError::Busy { .. }) => {}
                published => {
                    published?;
                    report.appended_left = made.tails().len() as u64;
                    (report.snapshot, report.bars) = (made.snapshot, made.bars);
                    return Ok(true);
                }
            }
        }
        Err(MarketError::Busy { dataset: name.to_owned() })
    }
}

/// The parts of a snapshot besides its bars.
fn heading(manifest: &Manifest) -> Heading {
    Heading {
        name: manifest.name.clone(),
        timeframe: manifest.timeframe,
        synthetic: manifest.synthetic,
        origin: manifest.origin.clone(),
        groups: manifest.groups,
        columns: manifest.columns.clone(),
        calendar: manifest.calendar(),
        complete_to: manifest.complete_to,
        factors: manifest.factors.clone(),
        symbol_table: manifest.symbol_table.clone(),
        attributes: manifest.attributes.clone(),
    }
}

/// The newest snapshot on a new base: `base` has the bars of `read`, to which `newest` appended some. `None` where the appended files of
/// both begin with other ones, though the groups are the same: which bars are later cannot be seen from their names.
fn rebase(sink: &Sink, read: &Dataset, newest: &Dataset, base: Manifest) -> Result<Option<Manifest>, MarketError> {
    let name = &base.name;
    let same_base = newest.tails().zip(read.tails()).is_some_and(|(new, old)| new.base.snapshot == old.base.snapshot);
    if !same_base {
        return Err(MarketError::Refused(format!(
            "dataset '{name}' was written anew while it was compacted, and is as that left it: compact it again if bars are appended"
        )));
    }
    let Some(later) = newest.manifest.tails().strip_prefix(read.manifest.tails()) else { return Ok(None) };
    let (manifest, times) = (&*newest.manifest, newest.manifest.distinct_times());
    if later.is_empty() {
        // Its tables, its calendar, or the time up to which it is complete changed.
        let mut symbols: BTreeMap<u32, Vec<SymbolEntry>> = BTreeMap::new();
        for entry in base.symbols {
            symbols.entry(entry.group).or_default().push(entry);
        }
        let files = base.files.into_iter().map(|file| {
            let own = symbols.remove(&file.group).unwrap_or_default();
            (file, own)
        });
        return assemble(sink, heading(manifest), files.collect(), newest.times()?).map(Some);
    }
    let mut json = serde_json::to_vec_pretty(&base).map_err(|e| MarketError::Refused(e.to_string()))?;
    json.push(b'\n');
    let Some(((directory, _), files)) = sink.directory().zip(sink.reads()) else {
        return Err(MarketError::Refused("a dataset in memory has no bases".to_owned()));
    };
    write_atomically(directory, &base_path(&base.snapshot), &json, name)?;
    let appended = Appended { base: base.snapshot.clone(), times, tails: later.to_vec() };
    let bars = (manifest.bars, manifest.first_time, manifest.last_time);
    let made = assemble_appended(heading(manifest), &base, bars, appended)?;
    // Everything that readers check is checked before HEAD names it.
    let (made, tails) = complete(&files, made, Some(Arc::new(base)))?;
    let dataset = Dataset::new(Arc::new(made.clone()), files).with_tails(Some(tails));
    dataset.times()?;
    Ok(Some(made))
}

/// Takes the lock of writers as soon as an import that is running has ended.
fn wait_for_imports<T>(take: impl Fn() -> Result<T, MarketError>) -> Result<T, MarketError> {
    let until = Instant::now() + IMPORT_WAIT;
    loop {
        match take() {
            Err(MarketError::Busy { .. }) if Instant::now() < until => std::thread::sleep(IMPORT_POLL),
            taken => return taken,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::import::{Appending, ImportOptions, import_files};
    use crate::limits::TAILS_MERGED;

    /// Imports bars of these symbols on these days of January 2024.
    fn import(store: &Store, symbols: &[&str], days: std::ops::Range<u32>, close: u32) -> String {
        let mut text = "date,symbol,close\n".to_owned();
        for day in days {
            symbols.iter().for_each(|symbol| text += &format!("2024-01-{day:02},{symbol},{}\n", close + day));
        }
        fs::create_dir_all(&store.root).unwrap();
        let file = tempfile::Builder::new().suffix(".csv").tempfile().unwrap();
        fs::write(file.path(), text).unwrap();
        let options = ImportOptions {
            dataset: "d".to_owned(),
            files: vec![file.path().to_owned()],
            calendar: Some("24/7".to_owned()),
            appending: Appending::Always,
            ..ImportOptions::default()
        };
        import_files(store, &options).unwrap().snapshot
    }

    fn store() -> (tempfile::TempDir, Store) {
        let root = tempfile::tempdir().unwrap();
        let store = Store::new(root.path().join("data"));
        (root, store)
    }

    fn bars(store: &Store) -> String {
        let dataset = store.open("d").unwrap();
        assert!(dataset.verify().is_empty());
        format!("{:?} {:?}", dataset.load_group(0, &dataset.manifest.columns).unwrap(), dataset.times().unwrap())
    }

    #[test]
    fn bars_that_are_appended_while_a_dataset_is_compacted_are_appended_to_its_new_groups() {
        let (_root, store) = store();
        import(&store, &["B", "D"], 1..4, 10);
        import(&store, &["A", "B"], 4..6, 10);
        let report = store.compact_while("d", None, || {
            // Also of symbols that come before others, and of new ones.
            import(&store, &["A", "C", "D"], 6..8, 10);
            import(&store, &["B"], 8..9, 10);
            assert!(matches!(store.prune("d", 1, 0), Err(MarketError::Compacting { .. })));
            assert!(matches!(store.compact("d", None), Err(MarketError::Compacting { .. })));
        });
        let report = report.unwrap();
        assert_eq!((report.appended_files, report.appended_left, report.bars), (1, 2, 6 + 4 + 6 + 1));
        let found = bars(&store);
        let manifest = store.open("d").unwrap().manifest;
        assert_eq!((manifest.tails().len(), manifest.version, &manifest.snapshot), (2, 3, &report.snapshot));
        // Without the snapshots of before.
        store.prune("d", 1, 0).unwrap();
        assert_eq!(bars(&store), found);
        let whole = store.compact("d", None).unwrap();
        assert!(whole.appended_left == 0 && bars(&store) == found);
        let (_other_root, other) = self::store();
        import(&other, &["B", "D"], 1..4, 10);
        import(&other, &["A", "B"], 4..6, 10);
        import(&other, &["A", "C", "D"], 6..8, 10);
        import(&other, &["B"], 8..9, 10);
        assert_eq!(other.compact("d", None).unwrap().snapshot, whole.snapshot);
    }

    #[test]
    fn files_that_a_compaction_reads_are_merged_after_it_only() {
        let (_root, store) = store();
        import(&store, &["A"], 1..2, 10);
        let add = |range: std::ops::Range<usize>| {
            range.for_each(|number| drop(import(&store, &[&format!("N{number}")], 1..2, 10)));
        };
        add(0..TAILS_MERGED - 1);
        let report = store.compact_while("d", None, || add(TAILS_MERGED - 1..TAILS_MERGED + 2)).unwrap();
        assert_eq!((report.appended_files, report.appended_left), (TAILS_MERGED as u64 - 1, 3));
        add(TAILS_MERGED + 2..2 * TAILS_MERGED);
        assert_eq!(store.open("d").unwrap().manifest.tails().len(), 2, "the first of them are merged");
        assert_eq!(store.open("d").unwrap().manifest.symbols.len(), 2 * TAILS_MERGED + 1);
        assert!(store.open("d").unwrap().verify().is_empty());
    }

    #[test]
    fn a_compaction_of_what_was_written_anew_meanwhile_is_refused_and_changes_nothing() {
        let (_root, store) = store();
        import(&store, &["A", "B"], 1..4, 10);
        import(&store, &["A", "B"], 4..6, 10);
        let mut revised = String::new();
        let error = store.compact_while("d", None, || revised = import(&store, &["A"], 5..6, 99)).unwrap_err();
        assert!(error.to_string().contains("written anew while it was compacted"), "{error}");
        assert_eq!(store.open("d").unwrap().manifest.snapshot, revised);
        assert!(store.open("d").unwrap().verify().is_empty());
        // What it wrote is deleted by the next removal.
        assert!(store.prune("d", 1, 0).unwrap().files > 0);
        assert!(store.open("d").unwrap().verify().is_empty());
    }

    #[test]
    fn tables_that_come_while_a_dataset_is_compacted_are_kept() {
        let (root, store) = store();
        import(&store, &["A", "B"], 1..4, 10);
        import(&store, &["A", "B"], 4..6, 10);
        let factors = root.path().join("factors.csv");
        fs::write(&factors, "symbol,date,split\nA,2024-01-03,2\n").unwrap();
        let options = ImportOptions {
            dataset: "d".to_owned(),
            factors: Some(factors),
            appending: Appending::Always,
            ..ImportOptions::default()
        };
        store.compact_while("d", None, || drop(import_files(&store, &options).unwrap())).unwrap();
        let dataset = store.open("d").unwrap();
        assert!(dataset.manifest.factors.is_some() && dataset.manifest.tails().is_empty());
        assert!(dataset.verify().is_empty() && dataset.manifest.bars == 10);
    }

    #[test]
    fn names_that_cannot_be_compacted_are_refused() {
        let (_root, store) = store();
        assert!(matches!(store.compact("d", None), Err(MarketError::UnknownDataset { .. })));
        assert!(matches!(store.compact("us5", None), Err(MarketError::Refused(_))));
        assert!(!store.root.exists(), "asking makes nothing");
    }
}
