//! Fetching an object into a file of this machine: its digest as it arrives, and what to do without a disk that has room.

use std::fs::File;
use std::io::{self, Seek as _, Write};
use std::ops::Range;

use sha2::{Digest as _, Sha256};

use super::objects::{CacheEvent, Objects, ObjectsError};

/// A file that arrives damaged is fetched so many times.
const FETCHES_MAX: u32 = 2;

/// What a file of the cache contains.
#[derive(Clone, Copy)]
pub(crate) enum Content<'a> {
    /// The object of the same name, with its sha256 if that is known.
    Whole(Option<&'a str>),
    /// Ranges of an object, one after the other, and whether a file has what they should be.
    Ranges { object: &'a str, ranges: &'a [Range<u64>], is_right: &'a dyn Fn(&File) -> bool },
}

/// Why a file could not be had. Shared by all that waited for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum CacheError {
    /// The object store failed.
    Store(String),
    /// A file of the cache could not be read or written.
    Local(io::ErrorKind, String),
    /// What the store has is not what the manifest names.
    Checksum { expected: String, found: String },
}

impl From<io::Error> for CacheError {
    fn from(error: io::Error) -> Self {
        Self::Local(error.kind(), error.to_string())
    }
}

impl From<ObjectsError> for CacheError {
    fn from(error: ObjectsError) -> Self {
        match error {
            ObjectsError::Store(why) => Self::Store(why),
            ObjectsError::Local(error) => error.into(),
        }
    }
}

/// Fetches a file into another one, which may have so many bytes, and checks it; returns its bytes, or `None` where the store has no such
/// object.
pub(super) fn fetch_into(
    objects: &dyn Objects,
    (mut file, disk, bytes_max): (&File, &Disk, u64),
    relative: &str,
    content: Content<'_>,
) -> Result<Option<u64>, CacheError> {
    let mut found = String::new();
    for _ in 0..FETCHES_MAX {
        file.set_len(0)?;
        file.rewind()?;
        let mut arriving = Arriving { file, disk, bytes_max, digest: Sha256::new(), bytes: 0 };
        let there = match content {
            Content::Whole(_) => objects.fetch(relative, &mut arriving),
            Content::Ranges { object, ranges, .. } => objects.fetch_ranges(object, ranges, &mut arriving),
        };
        objects.noted(CacheEvent::Fetched(arriving.bytes), relative);
        if !there? {
            return Ok(None);
        }
        found = hex::encode(arriving.digest.finalize());
        let is_right = match content {
            Content::Whole(digest) => digest.is_none_or(|digest| digest == found),
            Content::Ranges { is_right, .. } => is_right(file),
        };
        if is_right {
            return Ok(Some(arriving.bytes));
        }
        objects.noted(CacheEvent::Damaged, relative);
    }
    let expected = match content {
        Content::Whole(digest) => digest.unwrap_or_default().to_owned(),
        Content::Ranges { .. } => "what its checksums say".to_owned(),
    };
    Err(CacheError::Checksum { expected, found })
}

/// A file in memory.
#[cfg(target_os = "linux")]
pub(super) fn aside() -> io::Result<File> {
    Ok(rustix::fs::memfd_create("trawl-cache", rustix::fs::MemfdFlags::CLOEXEC)?.into())
}

/// A file without a name on the disk of temporary files, which may be another one.
#[cfg(not(target_os = "linux"))]
pub(super) fn aside() -> io::Result<File> {
    tempfile::tempfile()
}

/// The disk of the cache. Tests make it full.
#[derive(Debug, Default)]
pub(super) struct Disk {
    /// Bytes that it has room for.
    #[cfg(test)]
    pub left: Option<std::sync::Mutex<u64>>,
}

impl Disk {
    /// Writes as much as there is room for, and fails if that is not all.
    fn write(&self, mut file: &File, bytes: &[u8]) -> io::Result<()> {
        #[cfg(test)]
        if let Some(left) = &self.left {
            let mut left = left.lock().unwrap();
            let fits = bytes.len().min(*left as usize);
            *left -= fits as u64;
            file.write_all(&bytes[..fits])?;
            return if fits < bytes.len() { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) };
        }
        file.write_all(bytes)
    }

    /// So many bytes were deleted.
    pub fn freed(&self, _bytes: u64) {
        #[cfg(test)]
        if let Some(left) = &self.left {
            *left.lock().unwrap() += _bytes;
        }
    }
}

/// Computes the digest of what is written.
struct Arriving<'a> {
    file: &'a File,
    disk: &'a Disk,
    bytes_max: u64,
    digest: Sha256,
    bytes: u64,
}

impl Write for Arriving<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.bytes + bytes.len() as u64 > self.bytes_max {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.disk.write(self.file, bytes)?;
        self.digest.update(bytes);
        self.bytes += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
