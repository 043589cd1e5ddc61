//! Makes a snapshot in an object store.
//!
//! Its files are made in a folder of this machine, and put in the order in which a crash does no harm: bars and tables, bases, the
//! manifest, and at last the next head, which is made only if it is not there. Of two writers that began with the same snapshot the
//! second finds the head taken, and has changed nothing that anybody reads.
//!
//! A removal may be deleting files with the same names. Therefore the newest head is read first, then the announcements of removals
//! (`announced`), then everything is put, and only the head after the one that was read is made. A removal makes a head too, between its
//! announcement and its deletions: whoever did not see it finds its head taken, and begins again. Nothing here depends on time.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::{Head, RemoteDataset, at_once};
use crate::error::MarketError;
use crate::layout::{BASES, FILES, base_path, manifest_path, write_atomically};
use crate::manifest::Manifest;
use crate::quarantine::{QUARANTINE, quarantine_path};

/// Folder of this machine in which files are made, beside the locks.
const STAGING: &str = "staging-";
/// The file that is locked while its folder is in use.
const IN_USE: &str = ".in-use";
/// A folder without that file is left alone for so long: it may just be made.
const JUST_MADE: Duration = Duration::from_secs(3600);
/// How often a snapshot is published whose head is taken by removals, which leave the newest snapshot as it is.
const PUBLISH_TRIES_MAX: u32 = 100;
/// How long a writer waits for removals that are deleting files that it needs.
const REMOVAL_WAIT: Duration = if cfg!(test) { Duration::from_millis(20) } else { Duration::from_secs(60) };
/// How often it looks.
const REMOVAL_POLL: Duration = if cfg!(test) { Duration::from_millis(5) } else { Duration::from_millis(500) };

/// A folder with files that are not in the store yet; deleted when it is dropped.
#[derive(Debug)]
pub(crate) struct Staging {
    folder: tempfile::TempDir,
    _in_use: File,
    /// Files that the dataset had before, relative to it.
    known: BTreeSet<String>,
    /// Files that were put, by a writer that may publish several times: not all of them again, which could take longer than the time
    /// between two imports of others.
    put: Mutex<BTreeSet<String>>,
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
        Ok(Self { folder, _in_use: in_use, known, put: Mutex::default() })
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
        let file = self.open(&from, None)?.ok_or_else(|| self.gone(&from))?;
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
    /// [`MarketError::Busy`] if another writer was faster; [`MarketError::Removing`]; [`MarketError::Gone`] for a file that the dataset
    /// had before; [`MarketError::DataRoot`]; [`MarketError::Io`].
    pub fn publish(&self, manifest: &Manifest, json: &[u8], before: Option<&Head>) -> Result<(), MarketError> {
        let Some(staged) = &self.staged else {
            return Err(MarketError::Refused(format!("nothing was made for dataset '{}'", self.name)));
        };
        let before = before.map(|before| &before.snapshot);
        let (root, name) = (&*self.root, self.name.as_str());
        let mut files = manifest.file_paths();
        files.extend(manifest.appended.as_ref().map(|appended| base_path(&appended.base)));
        let (own, rows) = (manifest_path(&manifest.snapshot), quarantine_path(&manifest.snapshot));
        let all = files.iter().cloned().chain([own.clone(), rows.clone()]).collect();
        let is_staged = |relative: &String| staged.path().join(relative).is_file();
        let mut put = staged.put.lock().unwrap_or_else(PoisonError::into_inner);
        let mut are_put = !put.is_empty();
        for _ in 0..PUBLISH_TRIES_MAX {
            let newest = root.newest(name)?;
            if newest.snapshot.as_ref() != before {
                break;
            }
            if self.wait_for_removals(&all)? {
                continue;
            }
            let mut missing: Vec<String> = files.iter().chain([&rows]).cloned().collect();
            if are_put {
                // Another head was made meanwhile, perhaps by a removal. What that deleted is put again; what the dataset had before is
                // there, or is lost.
                let there = self.there()?;
                missing.retain(|relative| !put.contains(relative) || !there.contains(relative));
                let lost = files.iter().filter(|relative| !there.contains(*relative) && !is_staged(relative));
                if let Some(lost) = lost.into_iter().find(|relative| !is_optional(relative)) {
                    return Err(self.gone(lost));
                }
            }
            missing.retain(is_staged);
            self.put_all(staged.path(), &missing)?;
            put.extend(missing);
            are_put = true;
            root.create(name, &own, json)?;
            if before == Some(&manifest.snapshot) || root.claim(name, &newest, &manifest.snapshot)? {
                return Ok(());
            }
        }
        Err(MarketError::Busy { dataset: self.name.clone() })
    }

    /// Waits while a removal may delete one of these; true if it had to wait.
    fn wait_for_removals(&self, paths: &BTreeSet<String>) -> Result<bool, MarketError> {
        let until = Instant::now() + REMOVAL_WAIT;
        let mut waited = false;
        while self.root.is_announced(&self.name, paths)? {
            if Instant::now() >= until {
                return Err(MarketError::Removing { dataset: self.name.clone() });
            }
            waited = true;
            std::thread::sleep(REMOVAL_POLL);
        }
        Ok(waited)
    }

    /// The files that the dataset has, relative to it.
    pub fn there(&self) -> Result<BTreeSet<String>, MarketError> {
        let mut there = BTreeSet::new();
        for folder in [FILES, BASES, QUARANTINE] {
            let listed = self.root.list(&format!("{}/{folder}", self.name))?.objects;
            there.extend(listed.into_iter().map(|object| format!("{folder}/{}", object.name)));
        }
        Ok(there)
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
    /// decides, or be damaged.
    fn put_all(&self, folder: &Path, files: &[String]) -> Result<(), MarketError> {
        at_once(files, |relative| {
            let path = format!("{}/{relative}", self.name);
            let file = File::open(folder.join(relative)).map_err(MarketError::io("read", &path))?;
            self.root.objects.put(&path, &file).map_err(|error| self.root.of(error, "put", path))
        })
    }
}

/// Whether a file only makes reading faster: datasets of earlier programs lack it.
pub(super) fn is_optional(relative: &str) -> bool {
    relative.ends_with(".sums")
}
