//! The audit log as a file: one JSON object a line for each call and for the beginning and end of each scan.
//!
//! It receives the events of the target `trawl::audit`, whatever the filter of the log on stderr is. Lines are appended;
//! a file that was renamed or deleted is created anew within a second, so that logrotate needs no signal.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Target of the events.
pub const AUDIT_TARGET: &str = "trawl::audit";
/// How often the file's name is looked up.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// An open file.
#[derive(Debug)]
pub struct AuditFile {
    path: PathBuf,
    opened: Mutex<Opened>,
}

#[derive(Debug)]
struct Opened {
    file: File,
    looked: Instant,
}

impl AuditFile {
    /// Opens or creates the file for appending; only its owner may read a new one.
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn open(path: &Path) -> io::Result<Self> {
        let opened = Opened { file: append_to(path)?, looked: Instant::now() };
        Ok(Self { path: path.to_owned(), opened: Mutex::new(opened) })
    }
}

fn append_to(path: &Path) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt as _;
    OpenOptions::new().append(true).create(true).mode(0o600).open(path)
}

impl Write for &AuditFile {
    /// Writes a whole line.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        if opened.looked.elapsed() >= LOOK_INTERVAL {
            opened.looked = Instant::now();
            let ours = opened.file.metadata().map(|found| (found.dev(), found.ino()))?;
            if !std::fs::metadata(&self.path).is_ok_and(|found| (found.dev(), found.ino()) == ours) {
                opened.file = append_to(&self.path)?;
            }
        }
        opened.file.write_all(line)?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_was_renamed_is_created_anew() {
        let directory = tempfile::tempdir().unwrap();
        let (path, old) = (directory.path().join("audit.jsonl"), directory.path().join("audit.1"));
        let file = AuditFile::open(&path).unwrap();
        (&file).write_all(b"one\n").unwrap();
        std::fs::rename(&path, &old).unwrap();
        file.opened.lock().unwrap().looked -= LOOK_INTERVAL;
        (&file).write_all(b"two\n").unwrap();
        assert_eq!(std::fs::read_to_string(&old).unwrap(), "one\n");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "two\n");
        assert!(AuditFile::open(directory.path()).is_err());
    }
}
