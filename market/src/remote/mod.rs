//! A data root in an object store.
//!
//! The objects have the names of the files in a directory, with one difference: `HEAD` would have to be replaced, and two writers would
//! not notice each other. Instead `NAME/heads/NUMBER` are numbered, each contains the id of a snapshot, and each is made only if it is
//! not there; the highest is the newest. A data root that was copied from a directory has a `HEAD`, which counts as number 0.
//!
//! What is read comes from a cache on this machine (`cache`). What is written is made in a folder of this machine, and then put
//! (`publish`).

mod cache;
mod objects;
mod publish;

use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

pub(crate) use self::cache::content;
pub use self::objects::{CacheEvent, ListedFolder, ListedObject, Objects, ObjectsError};
pub(crate) use self::publish::Staging;

use self::cache::{CacheError, DiskCache};
use crate::error::MarketError;
use crate::layout::HEAD;
use crate::name::is_digest;

/// Folder of the numbered heads.
const HEADS: &str = "heads";
/// Folder of the manifests.
const SNAPSHOTS: &str = "snapshots";
/// Digits of a head's number.
const NUMBER_DIGITS: usize = 20;
/// How often the newest head is looked for, if it is deleted while it is read.
const HEAD_READS_MAX: u32 = 3;

/// The cache of files on this machine.
#[derive(Debug, Clone)]
pub struct CacheOptions {
    /// Its folder, which several processes may share.
    pub folder: PathBuf,
    /// Bytes that it may take.
    pub bytes_max: u64,
}

/// The newest snapshot of a dataset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Head {
    /// Its id.
    pub snapshot: String,
    /// Number of its head; 0 in a directory.
    pub number: u64,
}

/// A data root in an object store.
#[derive(Debug)]
pub(crate) struct RemoteRoot {
    pub objects: Arc<dyn Objects>,
    cache: DiskCache,
}

impl RemoteRoot {
    /// With a cache; the store is not asked anything yet.
    pub fn open(objects: Arc<dyn Objects>, cache: &CacheOptions) -> Result<Self, MarketError> {
        let shown = cache.folder.display().to_string();
        let cache = DiskCache::open(&cache.folder, objects.address(), cache.bytes_max)
            .map_err(MarketError::io("use the cache", shown))?;
        Ok(Self { objects, cache })
    }

    /// A folder of this machine for locks and rows of imports.
    pub fn beside(&self) -> PathBuf {
        self.cache.beside()
    }

    /// The newest snapshot of a dataset; `None` when it does not exist.
    pub fn head(&self, name: &str) -> Result<Option<Head>, MarketError> {
        for _ in 0..HEAD_READS_MAX {
            let Some(number) = self.numbers(name)?.into_iter().max() else {
                return match self.read(name, HEAD)? {
                    Some(content) => Ok(Some(Head { snapshot: id_of(name, HEAD, &content)?, number: 0 })),
                    None => Ok(None),
                };
            };
            let relative = head_path(number);
            if let Some(content) = self.read(name, &relative)? {
                return Ok(Some(Head { snapshot: id_of(name, &relative, &content)?, number }));
            }
        }
        Err(self.failed("read", format!("{name}/{HEADS}"), "its heads are deleted as fast as they are read".to_owned()))
    }

    /// Numbers of a dataset's heads.
    fn numbers(&self, name: &str) -> Result<Vec<u64>, MarketError> {
        let listed = self.list(&format!("{name}/{HEADS}"))?.objects;
        let number = |object: ListedObject| {
            let digits = object.name.len() == NUMBER_DIGITS && object.name.bytes().all(|c| c.is_ascii_digit());
            digits.then(|| object.name.parse().ok()).flatten()
        };
        Ok(listed.into_iter().filter_map(number).collect())
    }

    /// Ids of a dataset's snapshots, sorted.
    pub fn snapshots(&self, name: &str) -> Result<Vec<String>, MarketError> {
        let listed = self.list(&format!("{name}/{SNAPSHOTS}"))?.objects;
        let id = |object: ListedObject| object.name.strip_suffix(".json").filter(|id| is_digest(id)).map(str::to_owned);
        let mut ids: Vec<String> = listed.into_iter().filter_map(id).collect();
        ids.sort_unstable();
        Ok(ids)
    }

    /// Names of the folders that may be datasets.
    pub fn folders(&self) -> Result<Vec<String>, MarketError> {
        Ok(self.list("")?.folders)
    }

    /// Whether a folder is a dataset.
    pub fn is_dataset(&self, name: &str) -> Result<bool, MarketError> {
        Ok(self.list(name)?.folders.iter().any(|folder| folder == HEADS || folder == SNAPSHOTS))
    }

    pub(crate) fn list(&self, folder: &str) -> Result<ListedFolder, MarketError> {
        self.objects.list(folder).map_err(|error| self.of(error, "list", folder.to_owned()))
    }

    pub(crate) fn read(&self, name: &str, relative: &str) -> Result<Option<Vec<u8>>, MarketError> {
        let path = format!("{name}/{relative}");
        self.objects.read(&path).map_err(|error| self.of(error, "read", path))
    }

    pub(crate) fn of(&self, error: ObjectsError, action: &'static str, file: String) -> MarketError {
        match error {
            ObjectsError::Store(why) => self.failed(action, file, why),
            ObjectsError::Local(source) => MarketError::Io { action, file, source },
        }
    }

    fn failed(&self, action: &'static str, file: String, why: String) -> MarketError {
        let file = if file.is_empty() { "the data root".to_owned() } else { file };
        MarketError::DataRoot { action, file, address: self.objects.address().to_owned(), why }
    }
}

fn head_path(number: u64) -> String {
    format!("{HEADS}/{number:0NUMBER_DIGITS$}")
}

/// The id in a head.
fn id_of(name: &str, relative: &str, content: &[u8]) -> Result<String, MarketError> {
    let id = String::from_utf8_lossy(content).trim_end().to_owned();
    if is_digest(&id) {
        return Ok(id);
    }
    let why = "it should contain the 64 hex digits of a snapshot id".to_owned();
    Err(MarketError::Corrupt { file: format!("{name}/{relative}"), why })
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
        let file = format!("{}/{relative}", self.name);
        self.root.cache.get(&*self.root.objects, &file, digest).map_err(|error| match error {
            CacheError::Store(why) => self.root.failed("fetch", file, why),
            CacheError::Local(kind, why) => {
                MarketError::Io { action: "keep a copy of", file, source: io::Error::new(kind, why) }
            }
            CacheError::Checksum { expected, found } => MarketError::Checksum { file, expected, found },
        })
    }

    /// Deletes this machine's copy of a file, which is damaged: it is fetched again. False where that is not possible.
    pub fn discard(&self, relative: &str, damaged: &File) -> bool {
        let file = format!("{}/{relative}", self.name);
        self.root.cache.discard(&*self.root.objects, &file, damaged).is_ok()
    }
}

#[cfg(test)]
mod store_tests;
#[cfg(test)]
mod testing;
