//! Where the files of a dataset are, and how they are opened.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use crate::error::MarketError;
use crate::manifest::sha256_hex;
use crate::remote::{RemoteDataset, content};

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
