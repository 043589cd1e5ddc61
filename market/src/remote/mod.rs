//! A data root in an object store.
//!
//! The objects have the names of the files in a directory, with one difference: `HEAD` would have to be replaced, and two writers would
//! not notice each other. Instead `NAME/heads/NUMBER` are numbered, each contains the id of a snapshot, and each is made only if it is
//! not there; the highest is the newest. A data root that was copied from a directory has a `HEAD`, which counts as number 0.
//!
//! What is read comes from a cache on this machine (`cache`). What is written is made in a folder of this machine, and then put
//! (`publish`). What is deleted is announced before (`announced`): snapshots go out of sight first (`removal`), and the files that only
//! they had are deleted later (`sweep`). How these work together is in ADR 34.

mod announced;
mod arriving;
mod cache;
mod heads;
mod objects;
mod pins;
mod publish;
mod removal;
mod sweep;

use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

pub(crate) use self::cache::content;
pub(crate) use self::heads::Head;
pub use self::objects::{CacheEvent, Deadline, ListedFolder, ListedObject, Objects, ObjectsError};
pub(crate) use self::publish::Staging;
pub(crate) use self::removal::{Remover, What};

use self::arriving::{CacheError, Content};
use self::cache::DiskCache;
use self::heads::HEADS;
use crate::error::MarketError;
use crate::limits::WHOLE_FILE_BYTES_MAX;
use crate::name::is_digest;
use crate::time::TimeMicros;

/// Folder of the manifests.
const SNAPSHOTS: &str = "snapshots";
/// Calls of one dataset at once.
const CALLS_AT_ONCE: usize = 8;

/// The cache of files on this machine.
#[derive(Debug, Clone)]
pub struct CacheOptions {
    /// Its folder, which several processes may share.
    pub folder: PathBuf,
    /// Bytes that it may take.
    pub bytes_max: u64,
    /// Bytes of a file of bars that is always fetched whole.
    pub whole_bytes_max: u64,
}

impl CacheOptions {
    /// A cache that fetches files of bars whole up to [`WHOLE_FILE_BYTES_MAX`].
    pub fn new(folder: PathBuf, bytes_max: u64) -> Self {
        Self { folder, bytes_max, whole_bytes_max: WHOLE_FILE_BYTES_MAX }
    }
}

/// A data root in an object store.
#[derive(Debug)]
pub(crate) struct RemoteRoot {
    pub objects: Arc<dyn Objects>,
    cache: DiskCache,
    whole_bytes_max: u64,
}

impl RemoteRoot {
    /// With a cache; the store is not asked anything yet.
    pub fn open(objects: Arc<dyn Objects>, cache: &CacheOptions) -> Result<Self, MarketError> {
        let shown = cache.folder.display().to_string();
        let opened = DiskCache::open(&cache.folder, objects.address(), cache.bytes_max)
            .map_err(MarketError::io("use the cache", shown))?;
        Ok(Self { objects, cache: opened, whole_bytes_max: cache.whole_bytes_max })
    }

    /// A folder of this machine for locks and rows of imports.
    pub fn beside(&self) -> PathBuf {
        self.cache.beside()
    }

    /// Ids of a dataset's snapshots, sorted.
    pub fn snapshots(&self, name: &str) -> Result<Vec<String>, MarketError> {
        Ok(self.dated_snapshots(name)?.into_iter().map(|(id, _)| id).collect())
    }

    /// The same, each with the time at which its manifest was put, by the store's clock.
    fn dated_snapshots(&self, name: &str) -> Result<Vec<(String, TimeMicros)>, MarketError> {
        let listed = self.list(&format!("{name}/{SNAPSHOTS}"))?.objects;
        let id = |object: ListedObject| {
            let id = object.name.strip_suffix(".json").filter(|id| is_digest(id))?;
            Some((id.to_owned(), object.modified))
        };
        let mut ids: Vec<(String, TimeMicros)> = listed.into_iter().filter_map(id).collect();
        ids.sort_unstable();
        Ok(ids)
    }

    /// Names of the folders that may be datasets.
    pub fn folders(&self) -> Result<Vec<String>, MarketError> {
        Ok(self.list("")?.folders)
    }

    /// Whether a folder is a dataset.
    pub fn is_dataset(&self, name: &str) -> Result<bool, MarketError> {
        let folders = self.list(name)?.folders;
        let has = |wanted: &str| folders.iter().any(|folder| folder == wanted);
        // Heads alone: of a dataset that was removed, or that has lost its snapshots.
        Ok(has(SNAPSHOTS) || (has(HEADS) && self.newest(name)?.snapshot.is_some()))
    }

    pub(crate) fn list(&self, folder: &str) -> Result<ListedFolder, MarketError> {
        self.objects.list(folder).map_err(|error| self.of(error, "list", folder.to_owned()))
    }

    pub(crate) fn read(&self, name: &str, relative: &str) -> Result<Option<Vec<u8>>, MarketError> {
        let path = format!("{name}/{relative}");
        self.objects.read(&path).map_err(|error| self.of(error, "read", path))
    }

    fn create(&self, name: &str, relative: &str, bytes: &[u8]) -> Result<bool, MarketError> {
        let path = format!("{name}/{relative}");
        self.objects.create(&path, bytes).map_err(|error| self.of(error, "put", path))
    }

    fn delete(&self, name: &str, relative: &str, until: Deadline) -> Result<(), MarketError> {
        let path = format!("{name}/{relative}");
        self.objects.delete(&path, until).map_err(|error| self.of(error, "delete", path))
    }

    pub(crate) fn of(&self, error: ObjectsError, action: &'static str, file: String) -> MarketError {
        match error {
            ObjectsError::Store(why) => self.failed(action, file, why),
            ObjectsError::Local(source) => MarketError::io(action, file)(source),
        }
    }

    fn failed(&self, action: &'static str, file: String, why: String) -> MarketError {
        let file = if file.is_empty() { "the data root".to_owned() } else { file };
        MarketError::DataRoot { action, file, address: self.objects.address().to_owned(), why }
    }
}

/// Does something with each of these, several at once, until one fails.
fn at_once<T: Sync>(items: &[T], work: impl Fn(&T) -> Result<(), MarketError> + Sync) -> Result<(), MarketError> {
    let (next, failed) = (AtomicUsize::new(0), Mutex::new(None));
    let one_after_another = || {
        while let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed)) {
            if let Err(error) = work(item) {
                next.store(items.len(), Ordering::Relaxed);
                failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..CALLS_AT_ONCE.min(items.len()) {
            scope.spawn(one_after_another);
        }
    });
    failed.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
}

/// The files of one dataset in an object store.
#[derive(Debug, Clone)]
pub(crate) struct RemoteDataset {
    pub root: Arc<RemoteRoot>,
    pub name: String,
    /// Files that are being made, and are not in the store yet.
    pub staged: Option<Arc<Staging>>,
}

impl RemoteDataset {
    /// A file, open for reading, from this machine if it is here; `None` when the store has none either. Its sha256 is `digest`,
    /// where that is known: other content is never returned right after it was fetched.
    pub fn open(&self, relative: &str, digest: Option<&str>) -> Result<Option<Arc<File>>, MarketError> {
        if let Some(file) = self.staged.as_ref().and_then(|staged| File::open(staged.path().join(relative)).ok()) {
            return Ok(Some(Arc::new(file)));
        }
        self.get(relative, Content::Whole(digest))
    }

    /// Fetches files that are not here, several at once: their paths, each with its sha256. They are kept as long as what is returned is,
    /// also where the cache has no room for them. One that the store lacks is left out.
    pub fn fetch(&self, files: &[(String, &str)]) -> Result<Vec<Arc<File>>, MarketError> {
        let missing: Vec<_> = files.iter().filter(|(relative, _)| !self.is_here(relative)).collect();
        let fetched = Mutex::new(Vec::with_capacity(missing.len()));
        at_once(&missing, |(relative, digest)| {
            let file = self.open(relative, Some(digest))?;
            fetched.lock().unwrap_or_else(PoisonError::into_inner).extend(file);
            Ok(())
        })?;
        Ok(fetched.into_inner().unwrap_or_else(PoisonError::into_inner))
    }

    /// A file with ranges of another one, in the order of the store's file, open for reading; `None` when the store has no such file.
    /// `is_right` says whether a file that was fetched is as it should be.
    pub fn open_ranges(
        &self,
        relative: &str,
        of: &str,
        ranges: &[Range<u64>],
        is_right: &dyn Fn(&File) -> bool,
    ) -> Result<Option<Arc<File>>, MarketError> {
        let object = format!("{}/{of}", self.name);
        self.get(relative, Content::Ranges { object: &object, ranges, is_right })
    }

    fn get(&self, relative: &str, content: Content<'_>) -> Result<Option<Arc<File>>, MarketError> {
        let file = format!("{}/{relative}", self.name);
        self.root.cache.get(&*self.root.objects, &file, content).map_err(|error| match error {
            CacheError::Store(why) => self.root.failed("fetch", file, why),
            CacheError::Local(kind, why) => MarketError::io("keep a copy of", file)(io::Error::new(kind, why)),
            CacheError::Checksum { expected, found } => MarketError::Checksum { file, expected, found },
        })
    }

    /// Whether a file of so many bytes is always fetched whole, or is here as a whole already.
    pub fn reads_whole(&self, relative: &str, bytes: u64) -> bool {
        let is_staged = || self.staged.as_ref().is_some_and(|staged| staged.path().join(relative).is_file());
        bytes <= self.root.whole_bytes_max || is_staged() || self.is_here(relative)
    }

    /// Whether this machine has any file of a folder.
    pub fn has_any(&self, folder: &str) -> bool {
        self.root.cache.has_any(&format!("{}/{folder}", self.name))
    }

    /// The error for a file that the store has no more.
    pub fn gone(&self, relative: &str) -> MarketError {
        MarketError::Gone { file: format!("{}/{relative}", self.name), address: self.root.objects.address().to_owned() }
    }

    /// Whether this machine has a copy of a file. Neither counts as a use nor as a hit.
    pub fn is_here(&self, relative: &str) -> bool {
        self.root.cache.is_here(&format!("{}/{relative}", self.name))
    }

    /// This machine's copy of a file, if it has one. Neither counts as a use nor as a hit.
    pub fn peek(&self, relative: &str) -> Result<Option<Arc<File>>, MarketError> {
        let file = format!("{}/{relative}", self.name);
        self.root.cache.peek(&file).map_err(MarketError::io("read the copy of", file))
    }

    /// Whether this machine's cache could keep a file of so many bytes.
    pub fn can_keep(&self, bytes: u64) -> bool {
        self.root.cache.can_keep(bytes)
    }

    /// Deletes this machine's copy of a file, which is damaged: it is fetched again. False where that is not possible.
    pub fn discard(&self, relative: &str, damaged: &File) -> bool {
        let file = format!("{}/{relative}", self.name);
        self.root.cache.discard(&*self.root.objects, &file, damaged).is_ok()
    }
}

#[cfg(test)]
mod removal_tests;
#[cfg(test)]
mod steps;
#[cfg(test)]
mod store_tests;
#[cfg(test)]
mod testing;
