//! Files that an operator mounts and may change while a process runs: certificates, keys, tokens.
//!
//! The content in use is always complete and valid. An unusable change (half of a rotation, a wrong file) is reported
//! once and the previous content stays in use; the files are read again when they change again. Contents are never
//! logged.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use sha2::{Digest as _, Sha256};

/// Interval of checking files for changes.
pub const RELOAD_INTERVAL: Duration = Duration::from_secs(2);
/// Maximum bytes of such a file; a larger one is the wrong file.
pub const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// An error in a file: where, what, and what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{}': {what}; {help}", file.display())]
pub struct FileError {
    /// The file.
    pub file: PathBuf,
    /// The error.
    pub what: String,
    /// What to do.
    pub help: String,
}

impl FileError {
    /// An error with these fields.
    pub fn new(file: &Path, what: impl Into<String>, help: impl Into<String>) -> Self {
        Self { file: file.to_owned(), what: what.into(), help: help.into() }
    }
}

/// Builds the value from the contents of the files, in their order.
type Make<T> = Box<dyn Fn(&[Vec<u8>]) -> Result<T, FileError> + Send + Sync>;

/// A value built from files, kept up to date by [`keep_fresh`].
pub struct Watched<T> {
    /// What the files are, in the plural, for messages.
    what: &'static str,
    paths: Vec<PathBuf>,
    make: Make<T>,
    /// The current value: replaced by a refresh, read by every connection or call.
    current: RwLock<Arc<T>>,
    /// Digest of the content read by the last refresh, usable or not.
    seen: Mutex<[u8; 32]>,
}

impl<T> std::fmt::Debug for Watched<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watched").field("what", &self.what).field("paths", &self.paths).finish_non_exhaustive()
    }
}

impl<T> Watched<T> {
    /// Reads the files for the first time.
    ///
    /// # Errors
    /// Which file is wrong, and why.
    pub fn load(
        what: &'static str,
        paths: Vec<PathBuf>,
        make: impl Fn(&[Vec<u8>]) -> Result<T, FileError> + Send + Sync + 'static,
    ) -> Result<Self, FileError> {
        let read = read_all(&paths);
        let seen = Mutex::new(fingerprint(&read));
        let current = RwLock::new(Arc::new(make(&read?)?));
        Ok(Self { what, paths, make: Box::new(make), current, seen })
    }

    /// The current value.
    pub fn current(&self) -> Arc<T> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Reads the files; replaces the value if they have changed and are usable. Blocking I/O.
    pub fn refresh(&self) {
        let read = read_all(&self.paths);
        let now = fingerprint(&read);
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if *seen == now {
            return;
        }
        *seen = now;
        match read.and_then(|bytes| (self.make)(&bytes)) {
            Ok(made) => {
                *self.current.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(made);
                tracing::info!(files = ?self.paths, "new {} are in use", self.what);
            }
            Err(error) => {
                tracing::warn!("new {} cannot be used, the ones before stay in use: {error}", self.what);
            }
        }
    }
}

/// Refreshes `watched` every [`RELOAD_INTERVAL`] until its last handle is dropped. Must be called inside a runtime.
pub fn keep_fresh<T: Send + Sync + 'static>(watched: &Arc<Watched<T>>) {
    let watched = Arc::downgrade(watched);
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(RELOAD_INTERVAL).await;
            let Some(watched) = watched.upgrade() else { return };
            // A mount may hang; a panic has already been reported.
            let _ = tokio::task::spawn_blocking(move || watched.refresh()).await;
        }
    });
}

fn read_all(paths: &[PathBuf]) -> Result<Vec<Vec<u8>>, FileError> {
    paths.iter().map(|path| read(path)).collect()
}

/// Reads a whole file of at most [`FILE_BYTES_MAX`] bytes.
///
/// # Errors
/// The error of the operating system, or that it is too large.
pub fn read(path: &Path) -> Result<Vec<u8>, FileError> {
    let unreadable = |error: std::io::Error| {
        let text = error.to_string();
        let plain = text.split(" (os error").next().unwrap_or(&text).to_lowercase();
        FileError::new(path, plain, "name a file that this process may read")
    };
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path).map_err(unreadable)?;
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(FileError::new(
            path,
            format!("it has more than {FILE_BYTES_MAX} bytes"),
            "is it the file that was meant?",
        ));
    }
    Ok(bytes)
}

fn fingerprint(read: &Result<Vec<Vec<u8>>, FileError>) -> [u8; 32] {
    let mut hash = Sha256::new();
    match read {
        Ok(files) => {
            for bytes in files {
                hash.update((bytes.len() as u64).to_le_bytes());
                hash.update(bytes);
            }
        }
        Err(error) => {
            hash.update(u64::MAX.to_le_bytes());
            hash.update(error.to_string());
        }
    }
    hash.finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(path: &Path) -> Result<Watched<u32>, FileError> {
        let place = path.to_owned();
        Watched::load("numbers", vec![path.to_owned()], move |files| {
            let text = String::from_utf8_lossy(&files[0]).into_owned();
            text.trim().parse().map_err(|_| FileError::new(&place, "it is no number", "write one"))
        })
    }

    #[test]
    fn a_change_is_taken_and_a_broken_one_keeps_what_was() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("n");
        assert!(number(&path).unwrap_err().to_string().contains("no such file"));
        std::fs::write(&path, "x").unwrap();
        let message = number(&path).unwrap_err().to_string();
        assert_eq!(message, format!("'{}': it is no number; write one", path.display()));
        std::fs::write(&path, "1").unwrap();
        let watched = number(&path).unwrap();
        for (text, wanted) in [("2", 2), ("broken", 2), ("3", 3)] {
            std::fs::write(&path, text).unwrap();
            watched.refresh();
            assert_eq!(*watched.current(), wanted, "{text}");
        }
        std::fs::remove_file(&path).unwrap();
        watched.refresh();
        assert_eq!(*watched.current(), 3);
        std::fs::write(&path, "3 ".repeat(1 << 20)).unwrap();
        watched.refresh();
        assert_eq!(*watched.current(), 3, "too large a file is not taken");
    }
}
