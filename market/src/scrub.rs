//! Comparing stored files with their checksums although nothing reads them: what a scan reads is checked by the scan, and a disk
//! also loses what nobody has read for months.
//!
//! One pass goes through the files of the newest snapshot of each dataset once, in the order of their sha256 and from any of them on,
//! so that passes that were cut short have together looked at all files alike. Of a data root in an object store only the copies of this
//! machine are read: the store has checksums of its own, and reading it costs money.

use std::collections::BTreeSet;

use crate::error::MarketError;
use crate::store::Store;

/// A pass over the files of a data root.
#[derive(Debug)]
pub struct Scrub {
    store: Store,
    /// Sha256, dataset, place in the dataset; those that come next last.
    left: Vec<(String, String, String)>,
}

/// What a pass found.
#[derive(Debug)]
pub enum Scrubbed {
    /// A file of so many bytes is as its snapshot says.
    Intact(u64),
    /// There is nothing to read any more: the snapshot was replaced, or this machine has no copy.
    Gone,
    /// A file cannot be read, or has other content; this names dataset and file.
    Damaged(MarketError),
    /// A dataset or the data root cannot be opened.
    Unreadable(MarketError),
}

impl Store {
    /// Begins a pass at the first file whose sha256 is not below `from`, which may be any text. A dataset that cannot be opened is among
    /// the errors, and has no files in the pass.
    pub fn scrub(&self, from: &str) -> (Scrub, Vec<MarketError>) {
        // A server's store: an open dataset of another one keeps its snapshot from being deleted.
        let store = self.clone().keeping();
        let (mut errors, mut files) = (Vec::new(), BTreeSet::new());
        let names = store.names().unwrap_or_else(|error| {
            errors.push(error);
            Vec::new()
        });
        for name in names {
            match store.open(&name) {
                Ok(dataset) => {
                    let own = dataset.all_files();
                    files.extend(own.map(|(sha256, path)| (sha256.clone(), name.clone(), path)));
                }
                // It was removed meanwhile.
                Err(MarketError::UnknownDataset { .. }) => {}
                Err(error) => errors.push(error),
            }
        }
        let start = (from.to_owned(), String::new(), String::new());
        let before: Vec<_> = files.range(..&start).cloned().collect();
        let left = before.into_iter().rev().chain(files.range(&start..).rev().cloned()).collect();
        (Scrub { store, left }, errors)
    }
}

impl Scrub {
    /// Files that are left.
    pub fn files_left(&self) -> usize {
        self.left.len()
    }

    /// Looks at the next file; `None` at the end of the pass, or once `pause` has returned false. That is called after each block of at
    /// most a mebibyte with its bytes, and may wait.
    pub fn next(&mut self, mut pause: impl FnMut(u64) -> bool) -> Option<Scrubbed> {
        let (sha256, name, path) = self.left.pop()?;
        let mut goes_on = true;
        let mut watched = |bytes| {
            goes_on = pause(bytes);
            goes_on
        };
        let checked = self.store.files(&name).check((&name, &path, &sha256), &mut watched);
        if !goes_on {
            self.left.clear();
            return None;
        }
        Some(match checked {
            Ok(Some(bytes)) => Scrubbed::Intact(bytes),
            Ok(None) => Scrubbed::Gone,
            Err(error) => match self.is_still_named(&name, &sha256) {
                Ok(true) => Scrubbed::Damaged(error),
                Ok(false) => Scrubbed::Gone,
                Err(unreadable) => Scrubbed::Unreadable(unreadable),
            },
        })
    }

    /// Whether the newest snapshot of a dataset has a file; an older one may have been removed during the pass.
    fn is_still_named(&self, name: &str, sha256: &str) -> Result<bool, MarketError> {
        match self.store.open(name) {
            Ok(dataset) => Ok(dataset.all_files().any(|(own, _)| own == sha256)),
            Err(MarketError::UnknownDataset { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::import::{Appending, ImportOptions, import_files};

    /// A data root with datasets `a` and `b`, each of one group, appended bars, and a table of attributes.
    fn root() -> (tempfile::TempDir, Store) {
        let root = tempfile::tempdir().unwrap();
        let store = Store::new(root.path().join("data"));
        let attributes = root.path().join("attributes.csv");
        fs::write(&attributes, "symbol,date,market_cap\nX,2024-01-01,5\n").unwrap();
        for (dataset, price) in [("a", 1), ("b", 2)] {
            for day in 1..3 {
                let file = root.path().join("bars.csv");
                fs::write(
                    &file,
                    format!("symbol,date,open,high,low,close\nX,2024-01-0{day},{price},{price},{price},{price}\n"),
                )
                .unwrap();
                let options = ImportOptions {
                    dataset: dataset.to_owned(),
                    files: vec![file],
                    attributes: (day == 1).then(|| attributes.clone()),
                    calendar: Some("24/7".to_owned()),
                    timeframe: Some(trawl_terms::Timeframe::DAY),
                    appending: Appending::Always,
                    ..ImportOptions::default()
                };
                import_files(&store, &options).unwrap();
            }
        }
        (root, store)
    }

    /// What a pass finds, in its order: `None` where a file is intact, else the error. A dataset that cannot be opened comes first.
    fn pass(store: &Store, from: &str) -> Vec<Option<String>> {
        let (mut scrub, errors) = store.scrub(from);
        let mut found: Vec<Option<String>> = errors.iter().map(|error| Some(error.to_string())).collect();
        while let Some(one) = scrub.next(|_| true) {
            match one {
                Scrubbed::Intact(bytes) => {
                    assert!(bytes > 0);
                    found.push(None);
                }
                Scrubbed::Damaged(error) => found.push(Some(error.to_string())),
                Scrubbed::Gone | Scrubbed::Unreadable(_) => panic!("{one:?}"),
            }
        }
        found
    }

    fn names(store: &Store) -> Vec<(String, String)> {
        let all = |name: &str| {
            let dataset = store.open(name).unwrap();
            let own = dataset.all_files().map(|(_, path)| (name.to_owned(), path));
            own.collect::<Vec<_>>()
        };
        [all("a"), all("b")].concat()
    }

    #[test]
    fn a_pass_looks_at_every_file_once_from_wherever_it_begins() {
        let (_root, store) = root();
        let all = names(&store);
        assert!(all.len() >= 10, "{all:?}");
        for from in ["", "0", "8", "f", "~"] {
            assert_eq!(pass(&store, from), vec![None; all.len()], "{from}");
        }
        let order = |from: &str| store.scrub(from).0.left.into_iter().rev().collect::<Vec<_>>();
        let whole = order("");
        let middle = &whole[whole.len() / 2].0;
        assert_eq!(order(middle)[0].0, *middle);
        let mut turned = order(middle);
        turned.sort();
        assert_eq!(turned, whole);
    }

    #[test]
    fn every_flipped_byte_and_missing_file_is_found_though_size_and_times_are_as_before() {
        let (_root, store) = root();
        let count = names(&store).len();
        for (name, path) in names(&store) {
            let file = store.root.join(&name).join(&path);
            let (intact, modified) = (fs::read(&file).unwrap(), fs::metadata(&file).unwrap().modified().unwrap());
            let mut damaged = intact.clone();
            *damaged.last_mut().unwrap() ^= 1;
            fs::write(&file, &damaged).unwrap();
            fs::File::options().write(true).open(&file).unwrap().set_modified(modified).unwrap();
            let says = |what: &str| {
                let found = pass(&store, "");
                let damaged: Vec<&String> = found.iter().flatten().collect();
                assert_eq!(damaged.len(), 1, "{path}: {damaged:?}");
                // Without the index of appended bars a dataset cannot be opened.
                assert!(found.len() == count || path.ends_with(".tail"), "{path}: {damaged:?}");
                assert!(damaged[0].contains(&format!("{name}/{path}")) && damaged[0].contains(what), "{damaged:?}");
            };
            says("sha256");
            // `--verify` finds the same.
            assert!(
                store.open(&name).map_or_else(|_| path.ends_with(".tail"), |found| found.verify().len() == 1),
                "{path}"
            );
            fs::remove_file(&file).unwrap();
            says("cannot read");
            fs::write(&file, &intact).unwrap();
        }
        assert_eq!(pass(&store, ""), vec![None; count]);
    }

    #[test]
    fn what_is_replaced_during_a_pass_is_no_damage_and_a_pass_can_be_cut_short() {
        let (_root, store) = root();
        let (mut scrub, _) = store.scrub("");
        let files = scrub.files_left();
        store.remove("a", 0).unwrap();
        store.compact("b", None).unwrap();
        store.prune("b", 1, 0).unwrap();
        let mut gone = 0;
        while let Some(one) = scrub.next(|_| true) {
            match one {
                Scrubbed::Gone => gone += 1,
                Scrubbed::Intact(_) => {}
                other => panic!("{other:?}"),
            }
        }
        assert!(gone > files / 2, "{gone} of {files}");
        let (mut scrub, _) = store.scrub("");
        let mut asked = 0;
        assert!(
            scrub
                .next(|bytes| {
                    asked += bytes;
                    false
                })
                .is_none()
        );
        assert!(asked > 0 && scrub.next(|_| true).is_none());
    }
}
