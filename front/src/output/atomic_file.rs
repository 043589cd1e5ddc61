//! An output file that is either complete or absent.
//!
//! It is written under a temporary name in the same folder and renamed at the end; creating that temporary file also
//! shows that the place is writable before anything is computed. A path that is not a regular file (a pipe,
//! `/dev/null`) is written directly.

use std::fs::File;
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

use crate::mistake::{UserMistake, io_reason};

/// Size of the write buffer in bytes.
const BUFFER_BYTES: usize = 256 * 1024;

/// A file that gets its name at the end. Dropped unfinished, it leaves nothing behind.
#[derive(Debug)]
pub struct StagedFile {
    target: PathBuf,
    place: Destination,
}

#[derive(Debug)]
enum Destination {
    Temporary(BufWriter<NamedTempFile>),
    Direct(BufWriter<File>),
}

impl StagedFile {
    /// Creates the temporary file for `path`.
    ///
    /// # Errors
    /// A [`UserMistake`] that says why `path` cannot be written.
    pub fn create(path: &Path) -> Result<Self, UserMistake> {
        Self::open(path).map_err(|e| {
            let help = match e.kind() {
                io::ErrorKind::NotFound => "create its folder first",
                io::ErrorKind::IsADirectory => "name a file inside it",
                _ => "choose a place you may write to",
            };
            UserMistake::with_help(format!("cannot write '{}': {}", path.display(), io_reason(&e)), help)
        })
    }

    fn open(path: &Path) -> io::Result<Self> {
        // Links are followed, so that the link stays and its target is replaced.
        let target = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        match std::fs::metadata(&target) {
            Ok(found) if found.is_dir() => {
                return Err(io::Error::from(io::ErrorKind::IsADirectory));
            }
            Ok(found) if !found.is_file() => {
                let file = File::options().write(true).open(&target)?;
                return Ok(Self { target, place: Destination::Direct(BufWriter::with_capacity(BUFFER_BYTES, file)) });
            }
            Ok(found) if found.permissions().readonly() => {
                return Err(io::Error::from(io::ErrorKind::PermissionDenied));
            }
            _ => {}
        }
        if target.file_name().is_none() {
            return Err(io::Error::from(io::ErrorKind::IsADirectory));
        }
        let folder = match target.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        let mut builder = tempfile::Builder::new();
        builder.prefix(".trawl-").suffix(".tmp");
        #[cfg(unix)]
        {
            // The mode that a plain create requests; the umask is applied to it.
            use std::os::unix::fs::PermissionsExt as _;
            builder.permissions(std::fs::Permissions::from_mode(0o666));
        }
        let file = builder.tempfile_in(folder)?;
        Ok(Self { target, place: Destination::Temporary(BufWriter::with_capacity(BUFFER_BYTES, file)) })
    }

    /// Replaces the first bytes of what was written.
    ///
    /// # Errors
    /// Errors of the disk; a pipe cannot.
    pub fn rewrite_start(&mut self, bytes: &[u8]) -> io::Result<()> {
        match &mut self.place {
            Destination::Temporary(writer) => {
                writer.seek(SeekFrom::Start(0))?;
                writer.write_all(bytes)
            }
            Destination::Direct(writer) => {
                writer.seek(SeekFrom::Start(0))?;
                writer.write_all(bytes)
            }
        }
    }

    /// Renames the file into place.
    ///
    /// # Errors
    /// Errors of the disk; the target is then unchanged.
    pub fn keep(self) -> anyhow::Result<PathBuf> {
        let result = match self.place {
            Destination::Temporary(writer) => writer
                .into_inner()
                .map_err(io::IntoInnerError::into_error)
                .and_then(|file| file.persist(&self.target).map(drop).map_err(|e| e.error)),
            Destination::Direct(mut writer) => writer.flush(),
        };
        match result {
            Ok(()) => Ok(self.target),
            Err(e) => Err(anyhow::Error::new(e).context(format!("cannot write '{}'", self.target.display()))),
        }
    }
}

impl Write for StagedFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.place {
            Destination::Temporary(writer) => writer.write(bytes),
            Destination::Direct(writer) => writer.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.place {
            Destination::Temporary(writer) => writer.flush(),
            Destination::Direct(writer) => writer.flush(),
        }
    }
}

/// The file that a path names, following links; by way of its folder when it does not exist yet. Two paths of one file
/// give the same result.
pub fn target(path: &Path) -> PathBuf {
    let in_folder = || {
        let folder = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        Some(folder.canonicalize().ok()?.join(path.file_name()?))
    };
    path.canonicalize().ok().or_else(in_folder).unwrap_or_else(|| path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unfinished_file_leaves_nothing_and_the_old_one_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.csv");
        std::fs::write(&path, "old").unwrap();
        let mut file = StagedFile::create(&path).unwrap();
        file.write_all(b"new").unwrap();
        drop(file);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "old");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);

        let mut file = StagedFile::create(&path).unwrap();
        file.write_all(b"new").unwrap();
        file.keep().unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "new");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn an_unwritable_place_is_reported_before_anything_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let missing = StagedFile::create(&folder.path().join("no/such/a.csv")).unwrap_err();
        assert!(missing.to_string().contains("no such file or folder"), "{missing}");
        let folder_itself = StagedFile::create(folder.path()).unwrap_err();
        assert!(folder_itself.to_string().contains("it is a folder"), "{folder_itself}");
        let file = folder.path().join("f");
        std::fs::write(&file, "").unwrap();
        assert!(StagedFile::create(&file.join("a.csv")).is_err());
    }

    #[cfg(unix)]
    #[test]
    fn a_link_stays_a_link_and_a_device_stays_a_device() {
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("file"), folder.path().join("link"));
        std::fs::write(&file, "old").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        let mut staged = StagedFile::create(&link).unwrap();
        staged.write_all(b"new").unwrap();
        staged.keep().unwrap();
        assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "new");

        let mut staged = StagedFile::create(Path::new("/dev/null")).unwrap();
        staged.write_all(b"gone").unwrap();
        staged.keep().unwrap();
        assert!(!std::fs::metadata("/dev/null").unwrap().is_file());
    }
}
