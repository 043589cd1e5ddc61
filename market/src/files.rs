//! Where the files of a dataset are, and how they are opened.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use sha2::{Digest as _, Sha256};

use crate::error::MarketError;
use crate::manifest::sha256_hex;
use crate::read_at::read_at;
use crate::remote::{RemoteDataset, content};

/// Bytes of a file that are in memory while its sha256 is computed.
const CHECKED_BYTES: u64 = 1 << 20;

/// Files in memory, by sha256: the bundled datasets.
pub(crate) type MemoryFiles = Mutex<BTreeMap<String, Arc<Vec<u8>>>>;

/// Where a snapshot's files are.
#[derive(Debug, Clone)]
pub(crate) enum Files {
    /// The dataset's directory.
    Directory(PathBuf),
    /// In an object store, and in a cache on this machine.
    Remote(RemoteDataset),
    /// Bundled with the program, or created by the caller.
    Memory(Arc<MemoryFiles>),
}

impl Files {
    /// Opens a file; its path is relative to the dataset, whose name is for messages. `digest` is its sha256, where that is known:
    /// it is compared when the file comes to this machine, not when it is opened.
    ///
    /// # Errors
    /// [`MarketError::Io`], also for a file that is not there, and [`MarketError::DataRoot`]; [`MarketError::Gone`] and
    /// [`MarketError::Checksum`] where an object store has none any more, or other content.
    pub fn open(&self, name: &str, relative: &str, digest: Option<&str>) -> Result<Arc<fs::File>, MarketError> {
        let failed = MarketError::io("read", format!("{name}/{relative}"));
        match self {
            Self::Directory(path) => fs::File::open(path.join(relative)).map(Arc::new).map_err(failed),
            Self::Remote(remote) => remote.open(relative, digest)?.ok_or_else(|| remote.gone(relative)),
            Self::Memory(_) => Err(failed(io::ErrorKind::NotFound.into())),
        }
    }

    /// What `read` makes of a file. Where that finds damage and the file is a copy, another one is fetched, once.
    ///
    /// # Errors
    /// Those of [`Files::open`] and of `read`.
    pub fn read_with<T>(
        &self,
        name: &str,
        relative: &str,
        digest: Option<&str>,
        read: impl Fn(&Arc<fs::File>) -> Result<T, MarketError>,
    ) -> Result<T, MarketError> {
        let file = self.open(name, relative, digest)?;
        match (read(&file), self) {
            (Err(MarketError::Checksum { .. } | MarketError::Corrupt { .. }), Self::Remote(remote))
                if remote.discard(relative, &file) =>
            {
                drop(file);
                read(&self.open(name, relative, digest)?)
            }
            (read, _) => read,
        }
    }

    /// The content of a file, whose sha256 is compared.
    ///
    /// # Errors
    /// Those of [`Files::open`]; [`MarketError::Checksum`].
    pub fn read(&self, name: &str, relative: &str, digest: &str) -> Result<Arc<Vec<u8>>, MarketError> {
        let file = || format!("{name}/{relative}");
        if let Self::Memory(files) = self {
            let files = files.lock().unwrap_or_else(PoisonError::into_inner);
            // Built in, therefore already trusted.
            return files.get(digest).cloned().ok_or_else(|| MarketError::Corrupt {
                file: file(),
                why: "it is missing from the dataset in memory".to_owned(),
            });
        }
        self.read_with(name, relative, Some(digest), |opened| {
            let bytes = Arc::new(content(opened).map_err(MarketError::io("read", file()))?);
            let found = sha256_hex(&bytes);
            if found != digest {
                return Err(MarketError::Checksum { file: file(), expected: digest.to_owned(), found });
            }
            Ok(bytes)
        })
    }

    /// Compares the sha256 of a file with its name without keeping its content in memory; returns its bytes. Of a dataset in an object
    /// store only this machine's copy is read, which is not a use of it: `None` where there is none, and a damaged one is deleted, so that it is fetched
    /// again.
    /// After each block of at most [`CHECKED_BYTES`] `pause` is called with its bytes; false ends it, with `None`.
    ///
    /// # Errors
    /// Those of [`Files::open`]; [`MarketError::Checksum`].
    pub fn check(
        &self,
        (name, relative, digest): (&str, &str, &str),
        mut pause: impl FnMut(u64) -> bool,
    ) -> Result<Option<u64>, MarketError> {
        let shown = || format!("{name}/{relative}");
        let file = match self {
            Self::Directory(_) => Some(self.open(name, relative, Some(digest))?),
            Self::Remote(remote) => remote.peek(relative)?,
            Self::Memory(_) => None,
        };
        let Some(file) = file else { return Ok(None) };
        let failed = || MarketError::io("read", shown());
        let bytes = file.metadata().map_err(failed())?.len();
        let mut block = vec![0; CHECKED_BYTES.min(bytes) as usize];
        let (mut hash, mut read) = (Sha256::new(), 0);
        while read < bytes {
            let part = &mut block[..CHECKED_BYTES.min(bytes - read) as usize];
            read_at(&file, part, read).map_err(failed())?;
            hash.update(&*part);
            read += part.len() as u64;
            if !pause(part.len() as u64) {
                return Ok(None);
            }
        }
        let found = hex::encode(hash.finalize());
        if found == digest {
            return Ok(Some(bytes));
        }
        if let Self::Remote(remote) = self {
            remote.discard(relative, &file);
        }
        Err(MarketError::Checksum { file: shown(), expected: digest.to_owned(), found })
    }

    /// The dataset's directory, if it is in one.
    pub fn directory(&self) -> Option<&PathBuf> {
        match self {
            Self::Directory(path) => Some(path),
            Self::Remote(_) | Self::Memory(_) => None,
        }
    }

    /// Whether files are read from a disk, where they may be damaged.
    pub fn are_on_disk(&self) -> bool {
        !matches!(self, Self::Memory(_))
    }
}
