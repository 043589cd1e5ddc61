//! Copies of a bucket's files on this machine, until they are imported. A copy is whole or not there: an import that was killed goes on
//! with the files that it had fetched. An import deletes only what it asked for: a larger one that was interrupted may need the rest.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use anyhow::Context as _;
use sha2::{Digest as _, Sha256};
use trawl_worker::data_root::SourceBucket;

use super::arriving::Arriving;
use super::place::{Found, Place};
use crate::app::Context;
use crate::failure::UserMistake;

/// Folder of the cache of this machine.
const FOLDER: &str = "inbox";
/// Folder beside it of the files that are locked. They stay: one that is deleted could be locked by two.
const LOCKS: &str = "inbox-locks";
/// Files that are fetched, folders that are listed, and questions that are asked, at once.
const AT_ONCE: usize = 4;
/// What an interrupted import left is deleted by another import after so long.
const ABANDONED: Duration = Duration::from_secs(30 * 24 * 3600);
/// Digits of a digest in a folder's name.
const DIGITS: usize = 24;

/// A folder for what one dataset imports.
#[derive(Debug)]
pub struct Inbox {
    folder: PathBuf,
    lock: PathBuf,
    dataset: String,
    /// Locked while this import uses the folder; the lock ends with the process.
    held: Mutex<Option<fs::File>>,
    /// Folders of what this import asked for.
    used: Mutex<BTreeSet<PathBuf>>,
}

/// The first digits of a digest of these parts.
pub fn digest(parts: &[&str]) -> String {
    let mut digest = Sha256::new();
    for part in parts {
        digest.update((part.len() as u64).to_le_bytes());
        digest.update(part.as_bytes());
    }
    hex::encode(digest.finalize())[..DIGITS].to_owned()
}

impl Inbox {
    /// That of one kind of import into a dataset, which may not exist. Nothing is made yet.
    pub fn of(context: &Context, kind: &str, dataset: &str) -> Self {
        Self::at(context.cache_folder(), &digest(&[&context.below(""), kind, dataset]), dataset)
    }

    pub(super) fn at(cache: &Path, name: &str, dataset: &str) -> Self {
        Self {
            folder: cache.join(FOLDER).join(name),
            lock: cache.join(LOCKS).join(name),
            dataset: dataset.to_owned(),
            held: Mutex::default(),
            used: Mutex::default(),
        }
    }

    /// Takes it for this import alone, until it ends.
    ///
    /// # Errors
    /// [`UserMistake`] where another import of this kind into the dataset runs: it would delete what this one fetches.
    pub fn take(&self) -> anyhow::Result<()> {
        let failed = || format!("cannot lock '{}'", self.lock.display());
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if held.is_some() {
            return Ok(());
        }
        fs::create_dir_all(self.lock.parent().unwrap_or(Path::new("."))).with_context(failed)?;
        let file =
            fs::File::options().create(true).truncate(false).write(true).open(&self.lock).with_context(failed)?;
        if let Err(TryLockError::WouldBlock) = file.try_lock() {
            return Err(UserMistake::with_help(
                format!("another import of this kind into '{}' is running on this machine", self.dataset),
                "run this one when that one has ended",
            )
            .into());
        }
        // A file system without locks: imports at once are not noticed there.
        *held = Some(file);
        self.sweep(SystemTime::now());
        Ok(())
    }

    /// Deletes what imports into any dataset left here long ago and nobody went on with.
    fn sweep(&self, now: SystemTime) {
        let (Some(inboxes), Some(locks)) = (self.folder.parent(), self.lock.parent()) else { return };
        for entry in fs::read_dir(inboxes).into_iter().flatten().flatten() {
            let path = entry.path();
            let changed = |path: &Path| fs::metadata(path).and_then(|found| found.modified()).ok();
            let newest =
                fs::read_dir(&path).into_iter().flatten().flatten().filter_map(|one| changed(&one.path())).max();
            let age = newest.max(changed(&path)).and_then(|newest| now.duration_since(newest).ok());
            if path == self.folder || age.is_none_or(|age| age < ABANDONED) {
                continue;
            }
            // Not that of an import that runs.
            let lock = fs::File::options().write(true).open(locks.join(entry.file_name()));
            if lock.as_ref().map_or(true, |lock| lock.try_lock().is_ok()) {
                let _ = fs::remove_dir_all(&path);
            }
        }
    }

    /// Where something with this key is kept, under a name that its readers see.
    pub fn path(&self, key: &[&str], name: &str) -> PathBuf {
        let folder = self.folder.join(digest(key));
        let path = folder.join(name);
        self.used.lock().unwrap_or_else(PoisonError::into_inner).insert(folder);
        path
    }

    /// Makes a file whole or not at all.
    ///
    /// # Errors
    /// Those of `write`, and of the disk.
    pub fn put<T>(path: &Path, write: impl FnOnce(&mut fs::File) -> anyhow::Result<T>) -> anyhow::Result<T> {
        let failed = || format!("cannot write '{}'", path.display());
        let folder = path.parent().unwrap_or(Path::new("."));
        fs::create_dir_all(folder).with_context(failed)?;
        let mut file = tempfile::NamedTempFile::new_in(folder).with_context(failed)?;
        let done = write(file.as_file_mut())?;
        file.as_file().sync_data().with_context(failed)?;
        file.persist(path).map_err(|error| error.error).with_context(failed)?;
        Ok(done)
    }

    /// Counts copies of these files as asked for, if there are any, so that they are deleted with the others.
    pub fn claim(&self, place: &Place, files: &[&Found]) {
        if matches!(place, Place::Bucket(..)) && self.folder.is_dir() {
            for file in files {
                self.copy_of(place, file);
            }
        }
    }

    /// Where the copy of a bucket's file is kept.
    fn copy_of(&self, place: &Place, file: &Found) -> PathBuf {
        self.path(&[&place.shown(&file.path), &file.tag], file.name())
    }

    /// Deletes what this import asked for. What is left, for want of a right, is used by the next import.
    pub fn delete(self) {
        for folder in self.used.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            let _ = fs::remove_dir_all(folder);
        }
        // Only when nothing else is in it.
        let _ = fs::remove_dir(&self.folder);
    }

    /// Files to read, in the order of those that are wanted: those of a directory as they are, copies of those of a bucket. Copies that
    /// are here are not fetched again. Returns also the bytes that were fetched.
    ///
    /// # Errors
    /// A bucket that fails; [`UserMistake`] for a file that was published again meanwhile; the disk.
    pub fn fetch(&self, place: &Place, files: &[&Found]) -> anyhow::Result<(Vec<PathBuf>, u64)> {
        let bucket = match place {
            Place::Directory(folder) => return Ok((files.iter().map(|file| folder.join(&file.path)).collect(), 0)),
            Place::Bucket(_, bucket) => bucket,
        };
        self.take()?;
        let paths: Vec<PathBuf> = files.iter().map(|file| self.copy_of(place, file)).collect();
        let both: Vec<(&&Found, &PathBuf)> = files.iter().zip(&paths).collect();
        let bytes = at_once(&both, |(file, path)| fetch(place, bucket, file, path))?.into_iter().sum();
        Ok((paths, bytes))
    }

    /// The same, but `read` is begun at once, with what tells it when each copy is there; `None` for a directory. Returns what it gives, and
    /// the bytes that were fetched. What it has not waited for when it ends need not be fetched.
    ///
    /// # Errors
    /// Those of [`Inbox::fetch`]; else those of `read`.
    pub fn fetch_while<R>(
        &self,
        place: &Place,
        files: &[&Found],
        read: impl FnOnce(Vec<PathBuf>, Option<&Arc<Arriving>>) -> anyhow::Result<R>,
    ) -> anyhow::Result<(R, u64)> {
        let bucket = match place {
            Place::Directory(folder) => {
                return Ok((read(files.iter().map(|file| folder.join(&file.path)).collect(), None)?, 0));
            }
            Place::Bucket(_, bucket) => bucket,
        };
        self.take()?;
        let paths: Vec<PathBuf> = files.iter().map(|file| self.copy_of(place, file)).collect();
        let both: Vec<(&&Found, &PathBuf)> = files.iter().zip(&paths).collect();
        let arriving = Arc::new(Arriving::of(both.iter().filter(|(f, path)| !is_here(f, path)).map(|b| b.1.clone())));
        let fetch_one = |(file, path): &(&&Found, &PathBuf)| {
            if arriving.is_over() {
                return Ok(0);
            }
            let bytes = fetch(place, bucket, file, path).inspect_err(|_| arriving.fail())?;
            arriving.arrived(path);
            Ok(bytes)
        };
        // However the fetching ends, nobody waits any longer.
        struct Ended<'a>(&'a Arriving);
        impl Drop for Ended<'_> {
            fn drop(&mut self) {
                self.0.fail();
            }
        }
        std::thread::scope(|scope| {
            let fetching = scope.spawn(|| {
                let _ended = Ended(&arriving);
                at_once(&both, fetch_one)
            });
            let done = read(paths.clone(), Some(&arriving));
            arriving.end();
            let fetched = fetching.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            Ok((fetched, done))
        })
        .and_then(|(fetched, done)| {
            let bytes = fetched?.into_iter().sum();
            Ok((done?, bytes))
        })
    }
}

/// Does something with each of these, several at once, until one fails; results are in the order of the items.
///
/// # Errors
/// One of those of `work`.
pub fn at_once<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> anyhow::Result<R> + Sync) -> anyhow::Result<Vec<R>> {
    let next = AtomicUsize::new(0);
    let done: Mutex<anyhow::Result<BTreeMap<usize, R>>> = Mutex::new(Ok(BTreeMap::new()));
    let one_after_another = || {
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(at) else { return };
            let result = work(item);
            let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
            match (&mut *done, result) {
                (Ok(all), Ok(result)) => drop(all.insert(at, result)),
                (Err(_), _) => {}
                (all, Err(error)) => {
                    *all = Err(error);
                    next.store(items.len(), Ordering::Relaxed);
                }
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE.min(items.len()) {
            scope.spawn(one_after_another);
        }
    });
    Ok(done.into_inner().unwrap_or_else(PoisonError::into_inner)?.into_values().collect())
}

/// Whether the copy of a file is here.
fn is_here(file: &Found, path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| found.len() == file.bytes)
}

/// Fetches a file, if it is not here; returns the bytes that were fetched.
fn fetch(place: &Place, bucket: &SourceBucket, file: &Found, path: &Path) -> anyhow::Result<u64> {
    if is_here(file, path) {
        return Ok(0);
    }
    Inbox::put(path, |to| {
        let mut counted = Counted { to, bytes: 0 };
        let found = bucket.fetch(&file.path, &file.tag, &mut counted);
        let found = found.map_err(|error| place.failed("fetch", &file.path, error))?;
        if !found || counted.bytes != file.bytes {
            return Err(UserMistake::with_help(
                format!("{} was published again, or deleted, while it was fetched", place.shown(&file.path)),
                "run the import again: what was fetched by now is kept",
            )
            .into());
        }
        tracing::info!(file = place.shown(&file.path), bytes = file.bytes, "a file was fetched");
        Ok(file.bytes)
    })
}

/// Counts what is written.
struct Counted<'a> {
    to: &'a mut fs::File,
    bytes: u64,
}

impl io::Write for Counted<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = io::Write::write(self.to, bytes)?;
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        io::Write::flush(self.to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(inbox: &Inbox, key: &str) -> PathBuf {
        let path = inbox.path(&[key], "x.csv");
        Inbox::put(&path, |file| Ok(io::Write::write_all(file, b"x")?)).unwrap();
        path
    }

    #[test]
    fn an_import_deletes_only_what_it_asked_for() {
        let cache = tempfile::tempdir().unwrap();
        let inbox = || Inbox::at(cache.path(), "d", "us");
        let interrupted = inbox();
        let (one, two) = (kept(&interrupted, "one"), kept(&interrupted, "two"));
        drop(interrupted);
        let small = inbox();
        assert_eq!(small.path(&["one"], "x.csv"), one);
        // A copy that a killed process had not finished.
        fs::write(one.with_file_name(".tmp123"), "half").unwrap();
        small.delete();
        assert!(!one.parent().unwrap().exists() && two.is_file());
        let whole = inbox();
        whole.path(&["two"], "x.csv");
        whole.delete();
        assert!(!cache.path().join(FOLDER).join("d").exists());
    }

    #[test]
    fn a_second_import_of_the_same_kind_is_refused_while_the_first_runs() {
        let cache = tempfile::tempdir().unwrap();
        let first = Inbox::at(cache.path(), "d", "us");
        first.take().unwrap();
        first.take().unwrap();
        let second = Inbox::at(cache.path(), "d", "us");
        let error = second.take().unwrap_err().to_string();
        assert!(error.contains("another import of this kind into 'us' is running"), "{error}");
        Inbox::at(cache.path(), "e", "eu").take().unwrap();
        first.delete();
        second.take().unwrap();
    }

    #[test]
    fn what_an_interrupted_import_left_long_ago_is_deleted_by_another_one() {
        let cache = tempfile::tempdir().unwrap();
        let left = kept(&Inbox::at(cache.path(), "left", "us"), "one");
        let running = Inbox::at(cache.path(), "running", "eu");
        running.take().unwrap();
        let held = kept(&running, "one");
        let other = Inbox::at(cache.path(), "other", "uk");
        other.sweep(SystemTime::now() + ABANDONED / 2);
        assert!(left.is_file() && held.is_file());
        other.sweep(SystemTime::now() + ABANDONED + Duration::from_secs(60));
        assert!(!left.exists() && held.is_file());
    }
}
