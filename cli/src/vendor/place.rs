//! Directories and buckets from which files are imported: what is in them, with sizes, and a tag that changes when a file does.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use trawl_market::ObjectsError;
use trawl_worker::data_root::{Address, AddressError, SourceBucket, SourceObject};

use crate::failure::{UserMistake, io_reason};

/// Where the files are.
#[derive(Debug, Clone)]
pub enum Place {
    /// A directory of this machine.
    Directory(PathBuf),
    /// A bucket with a prefix, and its address without a slash at the end.
    Bucket(String, SourceBucket),
}

/// A file below a place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// Path from the folder or the bucket's prefix that was named.
    pub path: String,
    /// Bytes, as it is stored.
    pub bytes: u64,
    /// Changes with its content.
    pub tag: String,
}

impl Found {
    /// Its name without folders.
    pub fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or(&self.path)
    }
}

/// What is directly in a folder, by path: its folders and its files.
type Listed = (Vec<String>, Vec<Found>);

impl Place {
    /// By a path or an address.
    ///
    /// # Errors
    /// [`UserMistake`] for an address that is none.
    pub fn parse(text: &str) -> Result<Self, UserMistake> {
        let refused = |error: AddressError| UserMistake::plain(error.to_string());
        Ok(match Address::parse(text).map_err(refused)? {
            Address::Directory(path) => Self::Directory(path),
            Address::Bucket(address) => {
                let bucket = SourceBucket::open(&address).map_err(refused)?;
                Self::Bucket(address.to_string().trim_end_matches('/').to_owned(), bucket)
            }
        })
    }

    /// How messages call a file below it, or itself by an empty path.
    pub fn shown(&self, path: &str) -> String {
        match self {
            Self::Directory(folder) if path.is_empty() => folder.display().to_string(),
            Self::Directory(folder) => folder.join(path).display().to_string(),
            Self::Bucket(address, _) if path.is_empty() => address.clone(),
            Self::Bucket(address, _) => format!("{address}/{path}"),
        }
    }

    /// What is directly in a folder below it.
    ///
    /// # Errors
    /// [`UserMistake`] for a directory that cannot be listed; a bucket that fails.
    pub fn list(&self, folder: &str) -> anyhow::Result<Listed> {
        let below = |name: &str| if folder.is_empty() { name.to_owned() } else { format!("{folder}/{name}") };
        match self {
            Self::Directory(root) => list_directory(&root.join(folder), below).map_err(|error| {
                let help = "name the folder that has the files, or one above them";
                UserMistake::with_help(format!("cannot list '{}': {}", self.shown(folder), io_reason(&error)), help)
                    .into()
            }),
            Self::Bucket(_, bucket) => {
                let (folders, objects) = bucket.list(folder).map_err(|error| self.failed("list", folder, error))?;
                let found =
                    |object: SourceObject| Found { path: below(&object.name), bytes: object.bytes, tag: object.tag };
                let folders = folders.iter().map(|name| below(name)).collect();
                Ok((folders, objects.into_iter().map(found).collect()))
            }
        }
    }

    /// The error of a call of the bucket.
    pub fn failed(&self, action: &str, path: &str, error: ObjectsError) -> anyhow::Error {
        match error {
            ObjectsError::Store(why) => anyhow::anyhow!("cannot {action} {}: {why}", self.shown(path)),
            ObjectsError::Local(error) => {
                anyhow::Error::new(error).context(format!("cannot keep a copy of {}", self.shown(path)))
            }
        }
    }
}

fn list_directory(folder: &Path, below: impl Fn(&str) -> String) -> io::Result<Listed> {
    let (mut folders, mut files) = (Vec::new(), Vec::new());
    for entry in folder.read_dir()? {
        let entry = entry?;
        let Ok(name) = entry.file_name().into_string() else { continue };
        let found = fs::metadata(entry.path())?;
        if found.is_dir() {
            folders.push(below(&name));
        } else if found.is_file() {
            let modified = found.modified()?.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
            files.push(Found { path: below(&name), bytes: found.len(), tag: format!("modified {modified}") });
        }
    }
    folders.sort_unstable();
    files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok((folders, files))
}
