//! Makes a snapshot in an object store.
//!
//! Its files are made in a folder of this machine, and put in the order in which a crash does no harm: bars and tables, bases, the
//! manifest, and at last the next head, which is made only if it is not there. Of two writers that began with the same snapshot the
//! second finds the head taken, and has changed nothing that anybody reads.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::{Head, RemoteDataset, head_path};
use crate::error::MarketError;
use crate::layout::{base_path, manifest_path, write_atomically};
use crate::manifest::Manifest;

/// Folder of this machine in which files are made, beside the locks.
const STAGING: &str = "staging-";
/// The file that is locked while its folder is in use.
const IN_USE: &str = ".in-use";
/// A folder without that file is left alone for so long: it may just be made.
const JUST_MADE: Duration = Duration::from_secs(3600);
/// Files that are put at once.
const PUTS_AT_ONCE: usize = 8;
/// Heads that are kept: a writer that took so long that this many others came meanwhile has lost.
const HEADS_KEPT: u64 = 256;

/// A folder with files that are not in the store yet; deleted when it is dropped.
#[derive(Debug)]
pub(crate) struct Staging {
    folder: tempfile::TempDir,
    _in_use: File,
    /// Files that the dataset had before, relative to it.
    known: BTreeSet<String>,
}

impl Staging {
    /// Makes a folder, and deletes those of processes that crashed. `known`: files that the dataset has.
    pub fn new(beside: &Path, known: BTreeSet<String>) -> Result<Self, MarketError> {
        let failed = || MarketError::io("make a folder in", beside.display().to_string());
        fs::create_dir_all(beside).map_err(failed())?;
        remove_abandoned(beside);
        let folder = tempfile::Builder::new().prefix(STAGING).tempdir_in(beside).map_err(failed())?;
        let in_use = File::create(folder.path().join(IN_USE)).map_err(failed())?;
        // Without locks only the age protects it.
        let _ = in_use.try_lock();
        Ok(Self { folder, _in_use: in_use, known })
    }

    /// The folder, which is like that of a dataset.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Whether the dataset had a file before.
    pub fn is_known(&self, relative: &str) -> bool {
        self.known.contains(relative)
    }
}

fn remove_abandoned(beside: &Path) {
    for entry in fs::read_dir(beside).into_iter().flatten().flatten() {
        if !entry.file_name().to_string_lossy().starts_with(STAGING) {
            continue;
        }
        let abandoned = match File::open(entry.path().join(IN_USE)) {
            Ok(file) => file.try_lock().is_ok(),
            Err(_) => {
                let made = entry.metadata().and_then(|found| found.modified()).ok();
                made.and_then(|made| made.elapsed().ok()).is_some_and(|age| age > JUST_MADE)
            }
        };
        if abandoned {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

impl RemoteDataset {
    /// Puts the base of a snapshot, which is to be appended to, beside the files that are being made.
    pub fn stage_base(&self, snapshot: &str) -> Result<(), MarketError> {
        let (from, to) = (manifest_path(snapshot), base_path(snapshot));
        let shown = format!("{}/{from}", self.name);
        let absent = || MarketError::io("read", &shown)(std::io::ErrorKind::NotFound.into());
        let file = self.open(&from, None)?.ok_or_else(absent)?;
        let bytes = super::content(&file).map_err(MarketError::io("read", &shown))?;
        self.stage(&to, &bytes)
    }

    /// Puts an object beside the files that are being made, if there is one.
    pub fn stage_object(&self, relative: &str) -> Result<(), MarketError> {
        match self.root.read(&self.name, relative)? {
            Some(bytes) => self.stage(relative, &bytes),
            None => Ok(()),
        }
    }

    fn stage(&self, relative: &str, bytes: &[u8]) -> Result<(), MarketError> {
        match &self.staged {
            Some(staged) => write_atomically(staged.path(), relative, bytes, &self.name),
            None => Err(MarketError::Refused(format!("nothing is being written to dataset '{}'", self.name))),
        }
    }

    /// Puts what was made, and makes the snapshot the newest, if `before` still is.
    ///
    /// # Errors
    /// [`MarketError::Busy`] if another writer was faster; [`MarketError::DataRoot`]; [`MarketError::Io`].
    pub fn publish(&self, manifest: &Manifest, json: &[u8], before: Option<&Head>) -> Result<(), MarketError> {
        let Some(staged) = &self.staged else {
            return Err(MarketError::Refused(format!("nothing was made for dataset '{}'", self.name)));
        };
        let mut files = manifest.file_paths();
        if let Some(appended) = &manifest.appended {
            files.insert(base_path(&appended.base));
        }
        files.retain(|relative| staged.path().join(relative).is_file());
        self.put_all(staged.path(), &files.into_iter().collect::<Vec<_>>())?;
        self.create(&manifest_path(&manifest.snapshot), json)?;
        if before.is_some_and(|before| before.snapshot == manifest.snapshot) {
            return Ok(());
        }
        let number = before.map_or(0, |before| before.number) + 1;
        let (head, content) = (head_path(number), format!("{}\n", manifest.snapshot));
        let busy = || MarketError::Busy { dataset: self.name.clone() };
        if !self.create(&head, content.as_bytes())?
            // It is ours if the answer to an earlier try was lost.
            && self.root.read(&self.name, &head)?.is_none_or(|found| found != content.as_bytes())
        {
            return Err(busy());
        }
        let numbers = self.root.numbers(&self.name)?;
        if numbers.iter().max().is_some_and(|newest| *newest > number + HEADS_KEPT) {
            // Others came long ago, and their heads of this number were deleted since.
            self.delete(&head)?;
            return Err(busy());
        }
        for old in numbers.into_iter().filter(|old| old + HEADS_KEPT < number) {
            // The next writer deletes what is left.
            let _ = self.delete(&head_path(old));
        }
        Ok(())
    }

    /// Puts files that were made besides a snapshot's own.
    pub fn put_staged(&self, relative: &str) -> Result<(), MarketError> {
        match &self.staged {
            Some(staged) if staged.path().join(relative).is_file() => {
                self.put_all(staged.path(), &[relative.to_owned()])
            }
            _ => Ok(()),
        }
    }

    /// Puts files, several at once. What is there already is put again: it may be about to be deleted as unused, which its age
    /// decides.
    fn put_all(&self, folder: &Path, files: &[String]) -> Result<(), MarketError> {
        let (next, failed) = (AtomicUsize::new(0), Mutex::new(None));
        let put = || {
            while let Some(relative) = files.get(next.fetch_add(1, Ordering::Relaxed)) {
                let path = format!("{}/{relative}", self.name);
                let file = File::open(folder.join(relative)).map_err(MarketError::io("read", &path));
                let done = file.and_then(|file| {
                    self.root.objects.put(&path, &file).map_err(|error| self.root.of(error, "put", path.clone()))
                });
                if let Err(error) = done {
                    next.store(files.len(), Ordering::Relaxed);
                    failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
                }
            }
        };
        std::thread::scope(|scope| {
            for _ in 0..PUTS_AT_ONCE.min(files.len()) {
                scope.spawn(put);
            }
        });
        failed.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
    }

    fn create(&self, relative: &str, bytes: &[u8]) -> Result<bool, MarketError> {
        let path = format!("{}/{relative}", self.name);
        self.root.objects.create(&path, bytes).map_err(|error| self.root.of(error, "put", path))
    }

    fn delete(&self, relative: &str) -> Result<(), MarketError> {
        let path = format!("{}/{relative}", self.name);
        self.root.objects.delete(&path).map_err(|error| self.root.of(error, "delete", path))
    }
}
