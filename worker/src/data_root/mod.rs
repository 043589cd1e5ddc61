//! The data root by its address: a directory, `file:///DIRECTORY`, or a bucket's, `s3://`, `gs://` or `az://`.
//!
//! Datasets in an object store are read through a cache on this machine (`trawl_market`); here are the requests that it makes
//! (`bucket`), and the metrics of both.

mod bucket;
mod source;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use trawl_market::{CacheOptions, MarketError, Store};
pub use trawl_objects::{Address, AddressError};
use trawl_objects::{Trouble, TroubleKind};
use trawl_telemetry::metrics::catalogue::worker::{CACHE_BUDGET, CacheLevel};
use trawl_wire::limits::bounded_reason;

use bucket::Bucket;
pub use source::{PREFIX as SOURCE_PREFIX, SourceBucket, SourceObject};

/// Default for the bytes that files of an object store take on a machine.
pub const DISK_CACHE_BYTES_DEFAULT: u64 = 20 << 30;

/// Why a data root cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DataRootError {
    /// No address.
    #[error("the data root {0}")]
    Address(#[from] AddressError),
    /// A directory that is not there, or no directory.
    #[error("the data root {} {why}", root.display())]
    Directory {
        /// The directory.
        root: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// A bucket that is not there, or that this process may not use.
    #[error("the data root {address} {why}")]
    Bucket {
        /// Address, without credentials.
        address: String,
        /// What is wrong with it.
        why: String,
    },
    /// A bucket that does not answer.
    #[error("the data root {address} does not answer: {why}")]
    Away {
        /// Address, without credentials.
        address: String,
        /// The last error.
        why: String,
    },
    /// The cache cannot be used.
    #[error(transparent)]
    Cache(#[from] MarketError),
}

/// The datasets of a data root; nothing is asked of it yet.
///
/// # Errors
/// [`DataRootError::Address`], [`DataRootError::Cache`].
pub fn open(root: &Path, cache: &CacheOptions) -> Result<Store, DataRootError> {
    Ok(match address_of(root)? {
        Address::Directory(folder) => Store::new(folder),
        Address::Bucket(bucket) => {
            CACHE_BUDGET.of(CacheLevel::Disk).set_count(cache.bytes_max);
            Store::in_objects(Arc::new(Bucket::open(&bucket)?), cache)?
        }
    })
}

/// The same, checked: a directory has to exist, a bucket to answer a listing. For servers, which would otherwise refuse one scan after
/// the other. A bucket that does not answer is tried for as long as any other call is.
///
/// # Errors
/// [`DataRootError`]. Blocks.
pub fn open_checked(root: &Path, cache: &CacheOptions) -> Result<Store, DataRootError> {
    match address_of(root)? {
        Address::Directory(folder) => {
            let wrong = |why: String| DataRootError::Directory { root: folder.clone(), why };
            let listed = std::fs::read_dir(&folder).map_err(|error| match error.kind() {
                std::io::ErrorKind::NotFound => wrong("does not exist".to_owned()),
                std::io::ErrorKind::NotADirectory => wrong("is not a directory".to_owned()),
                _ => wrong(format!("cannot be listed: {error}")),
            });
            listed.map(drop)?;
        }
        Address::Bucket(bucket) => {
            let address = bucket.to_string();
            Bucket::open(&bucket)?.probe().map_err(|Trouble { kind, cause }| {
                let cause = bounded_reason(cause);
                match kind {
                    TroubleKind::Absent => {
                        DataRootError::Bucket { address, why: format!("is in a bucket that does not exist: {cause}") }
                    }
                    TroubleKind::Denied => {
                        DataRootError::Bucket { address, why: format!("refuses this process: {cause}") }
                    }
                    TroubleKind::Full | TroubleKind::Exists | TroubleKind::Unreachable => {
                        DataRootError::Away { address, why: cause }
                    }
                }
            })?;
        }
    }
    open(root, cache)
}

/// A path that is no text is a directory.
fn address_of(root: &Path) -> Result<Address, AddressError> {
    root.to_str().map_or_else(|| Ok(Address::Directory(root.to_owned())), Address::parse)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_has_to_be_one_and_other_schemes_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let cache = CacheOptions::new(folder.path().join("cache"), 1);
        let file = folder.path().join("file");
        std::fs::write(&file, b"x").unwrap();
        let text = |root: &Path| open_checked(root, &cache).unwrap_err().to_string();
        assert!(text(&folder.path().join("missing")).contains("missing does not exist"));
        assert!(text(&file).contains("is not a directory"));
        assert!(text(Path::new("abfs://bucket/x")).contains("expected a directory, file:///DIRECTORY, s3://BUCKET"));
        let secret = text(Path::new("s3://id:hunter2@bucket"));
        assert!(secret.contains("AWS_ACCESS_KEY_ID") && !secret.contains("hunter2"), "{secret}");
        let by_url = open_checked(Path::new(&format!("file://{}", folder.path().display())), &cache).unwrap();
        assert_eq!(by_url.root, folder.path());
        assert!(!cache.folder.exists(), "a directory needs no cache");
    }
}
