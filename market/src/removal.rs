//! Deleting unused snapshots and datasets, in an order that leaves consistent data after a crash at any point.
//!
//! A snapshot's manifest is deleted first, so that nobody can open it, then the files that no remaining manifest names;
//! what a crash leaves behind is deleted by the next removal. A snapshot that a scan of a cluster has pinned, or that a
//! process of this machine has open (it holds a lock on the manifest), is kept. The base of a snapshot with appended bars has a name
//! of its own, and goes with the last of these. Removals exclude imports and compactions, whose files no manifest names yet.
//!
//! In an object store there are no locks, and nothing can be moved: see `remote::removal`.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::error::MarketError;
use crate::files::Files;
use crate::import::check_writable_name;
use crate::manifest_reader::{read_base, read_manifest};
use crate::name::{HEX_DIGITS, split_reference};
use crate::pin_files::{latest, pins_in};
use crate::quarantine::{QUARANTINE, quarantine_path};
use crate::remote::{Remover, What};
use crate::removal_report::{InUse, RemovalReport, only_one, pinned_until, refusal};
use crate::snapshot::{BASES, CompactionLock, FILES, HEAD, WriteLock, base_path, manifest_path, write_atomically};
use crate::store::{Store, snapshots};
use crate::time::TimeMicros;

/// Suffix of the name of a manifest that is being deleted.
const GOING: &str = ".removed";
/// Prefix of the name of a dataset's directory that is being deleted; dataset names never begin with it.
const GOING_DATASET: &str = ".removed-";

/// A manifest that nobody has open, locked until it is deleted.
struct LockedManifest {
    snapshot: String,
    _lock: Option<fs::File>,
}

impl Store {
    /// Deletes a dataset (`NAME`) or one of its snapshots (`NAME@SNAPSHOT`; after the newest is deleted, the one before
    /// it is the newest). `now` decides which pins are valid.
    ///
    /// # Errors
    /// [`MarketError::Refused`] for bundled datasets, for data in use and for the only snapshot of a dataset;
    /// [`MarketError::UnknownDataset`], [`MarketError::UnknownSnapshot`], [`MarketError::AmbiguousSnapshot`],
    /// [`MarketError::Busy`], [`MarketError::Io`]; [`MarketError::Corrupt`] where a remaining manifest cannot be read.
    pub fn remove(&self, reference: &str, now: TimeMicros) -> Result<RemovalReport, MarketError> {
        let (name, prefix) = split_reference(reference)?;
        if let Some(remover) = self.remover(name, now)? {
            let Some(prefix) = prefix else { return remover.remove(What::Whole) };
            let snapshot = if prefix.len() == HEX_DIGITS { prefix.to_owned() } else { self.full_id(name, prefix)? };
            return remover.remove(What::One(&snapshot));
        }
        let directory = self.own_directory(name)?;
        let Some(prefix) = prefix else { return self.remove_dataset(name, &directory, now) };
        let _locks = (CompactionLock::take(&directory, name)?, WriteLock::take(&directory, name)?);
        self.finish_removals(name, &directory, now)?;
        let snapshot = self.full_id(name, prefix)?;
        let newest_first = newest_first(&directory, self.head(name)?.as_deref());
        let next = newest_first.iter().find(|s| **s != snapshot);
        let is_head = self.head(name)?.is_none_or(|head| head == snapshot);
        let Some(next) = next else {
            return Err(only_one(name, &snapshot));
        };
        let held = self.hold(name, &directory, &snapshot, now)?.map_err(|used| refusal(name, &[used]))?;
        if is_head {
            write_atomically(&directory, HEAD, format!("{next}\n").as_bytes(), name)?;
        }
        let mut report = RemovalReport { dataset: name.to_owned(), ..RemovalReport::default() };
        if let Some(used) = self.delete_manifest(name, &directory, &held, now)? {
            if is_head {
                write_atomically(&directory, HEAD, format!("{snapshot}\n").as_bytes(), name)?;
            }
            return Err(refusal(name, &[used]));
        }
        report.removed.push(snapshot);
        sweep(name, &directory, &mut report)?;
        Ok(report)
    }

    /// Deletes all snapshots of a dataset but the newest `keep` and those in use, and the files that only they had. The
    /// newest is the one that the dataset's name opens; the others are ordered by the time they were made.
    ///
    /// # Errors
    /// Those of [`Store::remove`]; snapshots in use are kept and reported.
    pub fn prune(&self, name: &str, keep: usize, now: TimeMicros) -> Result<RemovalReport, MarketError> {
        if let Some(remover) = self.remover(name, now)? {
            if self.head(name)?.is_none() {
                return Err(self.unknown(name));
            }
            return remover.remove(What::AllBut(keep));
        }
        let directory = self.own_directory(name)?;
        let _locks = (CompactionLock::take(&directory, name)?, WriteLock::take(&directory, name)?);
        self.finish_removals(name, &directory, now)?;
        let mut report = RemovalReport { dataset: name.to_owned(), ..RemovalReport::default() };
        for snapshot in newest_first(&directory, self.head(name)?.as_deref()).into_iter().skip(keep.max(1)) {
            let used = match self.hold(name, &directory, &snapshot, now)? {
                Ok(held) => self.delete_manifest(name, &directory, &held, now)?,
                Err(used) => Some(used),
            };
            match used {
                Some(used) => report.kept_in_use.push(used),
                None => report.removed.push(snapshot),
            }
        }
        sweep(name, &directory, &mut report)?;
        Ok(report)
    }

    fn remove_dataset(&self, name: &str, directory: &Path, now: TimeMicros) -> Result<RemovalReport, MarketError> {
        let lock = (CompactionLock::take(directory, name)?, WriteLock::take(directory, name)?);
        let removed = snapshots(directory);
        let mut held = Vec::new();
        let mut used = Vec::new();
        for snapshot in &removed {
            match self.hold(name, directory, snapshot, now)? {
                Ok(one) => held.push(one),
                Err(one) => used.push(one),
            }
        }
        if !used.is_empty() {
            return Err(refusal(name, &used));
        }
        // From here on it can be neither opened nor pinned; a pin written just before keeps it.
        let going = self.root.join(format!("{GOING_DATASET}{name}-{}", std::process::id()));
        fs::rename(directory, &going).map_err(MarketError::io("delete", name))?;
        if let Some(pin) = latest(pins_in(&going, name)?, now).values().next() {
            fs::rename(&going, directory).map_err(MarketError::io("restore", name))?;
            return Err(refusal(name, &[pinned_until(pin)]));
        }
        let mut report = RemovalReport { dataset: name.to_owned(), whole: true, removed, ..RemovalReport::default() };
        measure(&going, &mut report);
        drop((held, lock));
        self.delete_old_datasets(name)?;
        Ok(report)
    }

    /// Deletes directories of datasets whose deletion had begun, also those that a crash left.
    fn delete_old_datasets(&self, shown: &str) -> Result<(), MarketError> {
        let entries = fs::read_dir(&self.root).map_err(MarketError::io("list the data root of", shown))?;
        for entry in entries.flatten() {
            if entry.file_name().to_string_lossy().starts_with(GOING_DATASET) {
                fs::remove_dir_all(entry.path()).map_err(MarketError::io("delete the files of", shown))?;
            }
        }
        Ok(())
    }

    /// What removes from an existing dataset in an object store; `None` for a directory.
    fn remover<'a>(&'a self, name: &'a str, now: TimeMicros) -> Result<Option<Remover<'a>>, MarketError> {
        let Some(root) = self.remote() else { return Ok(None) };
        check_own_name(name)?;
        let remover = Remover { root, name, now, grace: self.grace };
        if self.head(name)?.is_none() && !remover.has_rest()? {
            return Err(self.unknown(name));
        }
        Ok(Some(remover))
    }

    /// The directory of an existing dataset of the user's.
    fn own_directory(&self, name: &str) -> Result<PathBuf, MarketError> {
        check_own_name(name)?;
        let directory = self.directory(name);
        if directory.join(HEAD).is_file() || directory.join("snapshots").is_dir() {
            Ok(directory)
        } else {
            Err(self.unknown(name))
        }
    }

    /// Completes removals that a crash interrupted: snapshots pinned meanwhile are restored.
    fn finish_removals(&self, name: &str, directory: &Path, now: TimeMicros) -> Result<(), MarketError> {
        let Ok(entries) = fs::read_dir(directory.join("snapshots")) else { return Ok(()) };
        let pinned = self.pinned(name, now)?;
        for file in entries.flatten().filter_map(|e| e.file_name().into_string().ok()) {
            let Some(manifest) = file.strip_suffix(GOING) else { continue };
            let id = manifest.trim_end_matches(".json");
            let from = directory.join("snapshots").join(&file);
            let shown = format!("{name}/snapshots/{file}");
            let done = if pinned.contains_key(id) {
                fs::rename(&from, directory.join(manifest_path(id)))
            } else {
                fs::remove_file(&from)
            };
            done.map_err(MarketError::io("delete", shown))?;
        }
        Ok(())
    }

    /// Locks a snapshot that is not in use; otherwise the error says what uses it.
    fn hold(
        &self,
        name: &str,
        directory: &Path,
        snapshot: &str,
        now: TimeMicros,
    ) -> Result<Result<LockedManifest, InUse>, MarketError> {
        if let Some(used) = self.pin_of(name, snapshot, now)? {
            return Ok(Err(used));
        }
        let shown = format!("{name}/{}", manifest_path(snapshot));
        // Some file systems allow locks only on files opened for writing.
        let file = fs::File::options().read(true).write(true).open(directory.join(manifest_path(snapshot)));
        let file = file.map_err(MarketError::io("open", &shown))?;
        Ok(match file.try_lock() {
            Ok(()) => Ok(LockedManifest { snapshot: snapshot.to_owned(), _lock: Some(file) }),
            Err(fs::TryLockError::WouldBlock) => {
                let why = "a process on this machine is reading it".to_owned();
                Err(InUse { snapshot: snapshot.to_owned(), why })
            }
            // A file system without locks: only the pins can be checked.
            Err(fs::TryLockError::Error(_)) => Ok(LockedManifest { snapshot: snapshot.to_owned(), _lock: None }),
        })
    }

    /// Deletes a manifest; restores it, and says so, when a pin was written meanwhile.
    fn delete_manifest(
        &self,
        name: &str,
        directory: &Path,
        held: &LockedManifest,
        now: TimeMicros,
    ) -> Result<Option<InUse>, MarketError> {
        let shown = format!("{name}/{}", manifest_path(&held.snapshot));
        let (from, going) =
            (directory.join(manifest_path(&held.snapshot)), directory.join(manifest_path(&held.snapshot) + GOING));
        fs::rename(&from, &going).map_err(MarketError::io("delete", &shown))?;
        // Pinning checks the manifest after writing the pin, so one of the two notices the other.
        if let Some(used) = self.pin_of(name, &held.snapshot, now)? {
            fs::rename(&going, &from).map_err(MarketError::io("restore", &shown))?;
            return Ok(Some(used));
        }
        fs::remove_file(&going).map_err(MarketError::io("delete", &shown))?;
        Ok(None)
    }

    fn pin_of(&self, name: &str, snapshot: &str, now: TimeMicros) -> Result<Option<InUse>, MarketError> {
        Ok(latest(self.pins(name)?, now).get(snapshot).map(pinned_until))
    }
}

/// Refuses names that no dataset of the user's has.
fn check_own_name(name: &str) -> Result<(), MarketError> {
    check_writable_name(name).map_err(|error| match error {
        MarketError::Refused(_) => MarketError::Refused(format!(
            "dataset '{name}' is bundled with the program: it uses no space in the data root and cannot be deleted"
        )),
        error => error,
    })
}

/// The existing snapshots, the newest first: HEAD's, then by when their manifests were written.
fn newest_first(directory: &Path, head: Option<&str>) -> Vec<String> {
    let written = |id: &String| {
        let written = fs::metadata(directory.join(manifest_path(id))).and_then(|m| m.modified());
        written.unwrap_or(SystemTime::UNIX_EPOCH)
    };
    let mut ids = snapshots(directory);
    ids.sort_by_key(|id| (Some(id.as_str()) != head, Reverse(written(id)), id.clone()));
    ids
}

/// Deletes the files that no remaining snapshot names.
fn sweep(name: &str, directory: &Path, report: &mut RemovalReport) -> Result<(), MarketError> {
    let (left, files) = (snapshots(directory), Files::Directory(directory.to_owned()));
    report.snapshots = left.len();
    let mut named = BTreeSet::new();
    for id in &left {
        let manifest = read_manifest(&files, name, id)?.0;
        if let Some(appended) = &manifest.appended
            && named.insert(base_path(&appended.base))
        {
            named.extend(read_base(&files, name, &appended.base)?.file_paths());
        }
        named.extend(manifest.file_paths());
    }
    let quarantine: BTreeSet<String> = report.removed.iter().map(|id| quarantine_path(id)).collect();
    for folder in [FILES, BASES, QUARANTINE] {
        let Ok(entries) = fs::read_dir(directory.join(folder)) else { continue };
        for entry in entries.flatten() {
            let Ok(file) = entry.file_name().into_string() else { continue };
            let path = format!("{folder}/{file}");
            let kept = if folder == QUARANTINE { !quarantine.contains(&path) } else { named.contains(&path) };
            if kept {
                continue;
            }
            let bytes = entry.metadata().map_or(0, |m| m.len());
            fs::remove_file(entry.path()).map_err(MarketError::io("delete", format!("{name}/{path}")))?;
            report.files += 1;
            report.bytes += bytes;
        }
    }
    Ok(())
}

/// Counts the files of a dataset's directory.
fn measure(directory: &Path, report: &mut RemovalReport) {
    let mut folders = vec![directory.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            match entry.metadata() {
                Ok(found) if found.is_dir() => folders.push(entry.path()),
                Ok(found) => {
                    report.files += 1;
                    report.bytes += found.len();
                }
                Err(_) => {}
            }
        }
    }
}

#[cfg(test)]
#[path = "removal_tests.rs"]
mod tests;
