//! Where a lake is written: a directory that appears when all of it is there, or a prefix of a bucket, which has the files that were put.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use trawl_worker::data_root::{Address, SourceBucket};

use super::client::encoded;
use super::place::Place;
use crate::failure::UserMistake;

/// The file of a symbol.
const PART: &str = "bars.parquet";

/// A lake that is being written.
#[derive(Debug)]
pub enum LakeOut {
    /// The files are in a folder of another name until all are there.
    Directory { staged: tempfile::TempDir, target: PathBuf },
    /// Each file is put when it is whole.
    Bucket { place: Place, bucket: SourceBucket },
}

/// Whether an output is an address of a bucket.
pub fn is_address(output: &Path) -> bool {
    output.to_str().is_some_and(|text| text.contains("://"))
}

impl LakeOut {
    /// By a path or an address at which there is nothing yet.
    ///
    /// # Errors
    /// [`UserMistake`] for an address that is none, and where there is something; a bucket or a disk that fails.
    pub fn open(output: &Path) -> anyhow::Result<Self> {
        let text = output.to_str().unwrap_or_default();
        let target = match Address::parse(text) {
            _ if output == Path::new("-") => return Err(taken("-", "name a directory that does not exist yet")),
            Err(_) if !is_address(output) => output.to_owned(),
            Err(error) => return Err(UserMistake::plain(error.to_string()).into()),
            Ok(Address::Directory(target)) => target,
            Ok(Address::Bucket(_)) => {
                let place = Place::parse(text)?;
                let (folders, files) = place.list("")?;
                if !folders.is_empty() || !files.is_empty() {
                    return Err(taken(
                        &place.shown(""),
                        "name a prefix with nothing below it, or delete what is there",
                    ));
                }
                let Place::Bucket(_, bucket) = &place else { anyhow::bail!("internal error: no bucket") };
                return Ok(Self::Bucket { bucket: bucket.clone(), place });
            }
        };
        if target.exists() {
            return Err(taken(&target.display().to_string(), "name a directory that does not exist yet"));
        }
        let beside = target.parent().filter(|parent| *parent != Path::new("")).unwrap_or(Path::new("."));
        let staged = tempfile::Builder::new().prefix(".trawl-export-").tempdir_in(beside);
        Ok(Self::Directory { staged: staged.with_context(|| cannot_write(&target))?, target })
    }

    /// Writes the file of a symbol.
    ///
    /// # Errors
    /// Those of `write`; a bucket or a disk that fails.
    pub fn part(&self, symbol: &str, write: impl FnOnce(&mut fs::File) -> anyhow::Result<()>) -> anyhow::Result<()> {
        let folder = format!("symbol={}", encoded(symbol));
        match self {
            Self::Directory { staged, target } => {
                let failed = || cannot_write(target);
                let own = staged.path().join(folder);
                fs::create_dir(&own).with_context(failed)?;
                let mut file = fs::File::create(own.join(PART)).with_context(failed)?;
                write(&mut file).with_context(failed)?;
                file.sync_data().with_context(failed)
            }
            Self::Bucket { place, bucket } => {
                let path = format!("{folder}/{PART}");
                let mut file = tempfile::tempfile().with_context(|| format!("cannot write {}", place.shown(&path)))?;
                write(&mut file).with_context(|| format!("cannot write {}", place.shown(&path)))?;
                bucket.put(&path, &file).map_err(|error| {
                    let left = format!("the lake is not whole: delete {} before it is written again", place.shown(""));
                    place.failed("put", &path, error).context(left)
                })
            }
        }
    }

    /// All files are written. Returns what messages call it.
    ///
    /// # Errors
    /// A disk that fails.
    pub fn keep(self) -> anyhow::Result<String> {
        let (staged, target) = match self {
            Self::Bucket { place, .. } => return Ok(place.shown("")),
            Self::Directory { staged, target } => (staged, target),
        };
        let failed = || cannot_write(&target);
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt as _;
            fs::set_permissions(staged.path(), fs::Permissions::from_mode(0o755)).with_context(failed)?;
        }
        fs::rename(staged.path(), &target).with_context(failed)?;
        // It has another name now: there is nothing to delete.
        let _ = staged.keep();
        Ok(target.display().to_string())
    }
}

fn cannot_write(target: &Path) -> String {
    format!("cannot write '{}'", target.display())
}

fn taken(target: &str, help: &str) -> anyhow::Error {
    UserMistake::with_help(format!("--hive cannot write to '{target}'"), help).into()
}
