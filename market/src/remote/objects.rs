//! What a data root that is no directory has to offer. This crate knows no network: an object store is handed to it.

use std::fmt;
use std::fs::File;
use std::io::{self, Write};
use std::ops::Range;
use std::time::{Duration, Instant, SystemTime};

use crate::time::TimeMicros;

/// The objects below a data root, by path without a leading slash. Calls block; they retry what may pass, and end in a bounded
/// time.
pub trait Objects: fmt::Debug + Send + Sync {
    /// Address for messages, without credentials.
    fn address(&self) -> &str;

    /// The content of a small object; `None` when it is not there.
    ///
    /// # Errors
    /// [`ObjectsError`].
    fn read(&self, path: &str) -> Result<Option<Vec<u8>>, ObjectsError>;

    /// Writes the content of an object, in order and each byte once; false when it is not there.
    ///
    /// # Errors
    /// [`ObjectsError`]; what was written by then is a part of the content.
    fn fetch(&self, path: &str, to: &mut dyn Write) -> Result<bool, ObjectsError>;

    /// Writes the bytes of some ranges of an object, which ascend, in order and each byte once; false when it is not there. Where the
    /// object is too short, fewer bytes are written.
    ///
    /// # Errors
    /// [`ObjectsError`]; what was written by then is a part of the content.
    fn fetch_ranges(&self, path: &str, ranges: &[Range<u64>], to: &mut dyn Write) -> Result<bool, ObjectsError>;

    /// What is directly in a folder; the root is the empty text. Nothing where there is no such folder.
    ///
    /// # Errors
    /// [`ObjectsError`].
    fn list(&self, folder: &str) -> Result<ListedFolder, ObjectsError>;

    /// Makes an object if there is none; false if there is one, which stays as it is. Where an answer was lost, an object that this
    /// very call made may be reported as one that was there.
    ///
    /// # Errors
    /// [`ObjectsError`].
    fn create(&self, path: &str, bytes: &[u8]) -> Result<bool, ObjectsError>;

    /// Stores a file, in place of an object that is there.
    ///
    /// # Errors
    /// [`ObjectsError`].
    fn put(&self, path: &str, file: &File) -> Result<(), ObjectsError>;

    /// Deletes an object; no error if it is not there. No try begins after `until`: that is an error.
    ///
    /// # Errors
    /// [`ObjectsError`]; then it may or may not be deleted, also later.
    fn delete(&self, path: &str, until: Deadline) -> Result<(), ObjectsError>;

    /// Is called for what happens in the cache of this machine, with the file, if it is about one.
    fn noted(&self, _event: CacheEvent, _file: &str) {}
}

/// How long a call that depends on nothing else may be tried.
const CALL_HELD: Duration = Duration::from_secs(15 * 60);

/// The instant after which something is no longer done, by both clocks of this machine: one does not run while the machine sleeps,
/// the other may be set.
#[derive(Debug, Clone, Copy)]
pub struct Deadline {
    since: Instant,
    since_by_calendar: SystemTime,
    held: Duration,
}

impl Deadline {
    /// So long from now.
    pub fn after(held: Duration) -> Self {
        Self { since: Instant::now(), since_by_calendar: SystemTime::now(), held }
    }

    pub(super) fn of_a_call() -> Self {
        Self::after(CALL_HELD)
    }

    /// Whether it is over by one of the clocks; also when one was set back, and cannot be relied on.
    pub fn has_passed(&self) -> bool {
        let by_calendar = self.since_by_calendar.elapsed();
        self.since.elapsed() >= self.held || by_calendar.map_or(true, |since| since >= self.held)
    }
}

/// What is directly in a folder.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ListedFolder {
    /// In no order.
    pub objects: Vec<ListedObject>,
    /// Names of the folders in it.
    pub folders: Vec<String>,
}

/// An object in a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedObject {
    /// Without the folder.
    pub name: String,
    /// Size.
    pub bytes: u64,
    /// When it was written, by the store's clock.
    pub modified: TimeMicros,
}

/// Why a call failed.
#[derive(Debug)]
pub enum ObjectsError {
    /// The store did not do it, and may later: it does not answer, or refuses this process.
    Store(String),
    /// A file of this machine could not be read or written.
    Local(io::Error),
}

impl From<io::Error> for ObjectsError {
    fn from(error: io::Error) -> Self {
        Self::Local(error)
    }
}

/// Something that happened in the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CacheEvent {
    /// A file was there, or another thread was already fetching it.
    Hit,
    /// A file was not there and is fetched.
    Miss,
    /// So many bytes were fetched.
    Fetched(u64),
    /// A file was deleted to make room.
    Evicted,
    /// A file was not as it was written, and was deleted.
    Damaged,
    /// A file did not fit beside those in use: it was used and not kept.
    NotKept,
    /// The disk is full, also without what could be deleted here: a file was used from memory and not kept.
    DiskFull,
    /// So many bytes are kept now, of all processes that share the cache.
    Resident(u64),
}
