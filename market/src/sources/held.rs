//! Bytes that come only once, from a pipe or out of an archive, kept so that they can be read as often as needed: a few of them in memory,
//! more in a file without a name, which vanishes with the process, however it ends.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;

use crate::error::MarketError;
use crate::limits::{HELD_BYTES_MAX, HELD_FILE_BYTES_MAX, TEXT_FILE_BYTES_MAX};

/// Bytes that are copied at a time.
const COPIED_BYTES: usize = 1 << 20;

/// Kept bytes. A clone shares them.
#[derive(Clone)]
pub(crate) enum Held {
    Memory(Arc<[u8]>),
    /// A file, and its size.
    Disk(Arc<File>, u64),
}

impl Held {
    /// A file that is there, of which nothing is kept.
    ///
    /// # Errors
    /// The system's.
    pub fn file(file: File) -> io::Result<Self> {
        let bytes = file.metadata()?.len();
        Ok(Self::Disk(Arc::new(file), bytes))
    }

    /// Keeps what a reader gives: up to [`HELD_BYTES_MAX`] in memory, more in a file in `folder`, which is made where it is missing. Without a folder all
    /// of it is kept in memory.
    ///
    /// # Errors
    /// [`MarketError::Input`] where reading fails, named by `action`; [`MarketError::Io`] where writing does; [`MarketError::Limit`].
    pub fn keep(
        file: &str,
        mut reader: impl Read,
        action: &'static str,
        folder: Option<&Path>,
    ) -> Result<Self, MarketError> {
        let Some(folder) = folder else { return Ok(Self::Memory(read_limited(file, reader, action)?.into())) };
        let failed = |error| MarketError::input(action, file)(error);
        let mut bytes = Vec::new();
        reader.by_ref().take(HELD_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(failed)?;
        if bytes.len() as u64 <= HELD_BYTES_MAX {
            return Ok(Self::Memory(bytes.into()));
        }
        let not_written = |error| MarketError::io("write", file)(error);
        fs::create_dir_all(folder).map_err(not_written)?;
        let mut to = tempfile::tempfile_in(folder).map_err(not_written)?;
        to.write_all(&bytes).map_err(not_written)?;
        let mut kept = bytes.len() as u64;
        bytes.truncate(COPIED_BYTES);
        bytes.shrink_to_fit();
        loop {
            let read = match reader.read(&mut bytes) {
                Ok(0) => return Ok(Self::Disk(Arc::new(to), kept)),
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(failed(error)),
            };
            kept += read as u64;
            if kept > TEXT_FILE_BYTES_MAX {
                return Err(too_long(file, kept, TEXT_FILE_BYTES_MAX));
            }
            to.write_all(&bytes[..read]).map_err(not_written)?;
        }
    }

    /// Reads them from their start, at a position of its own.
    pub fn reader(&self) -> HeldReader {
        HeldReader { held: self.clone(), at: 0 }
    }

    /// Whether they begin with these.
    pub fn starts_with(&self, start: &[u8]) -> bool {
        let mut found = vec![0; start.len()];
        // Fewer bytes begin with nothing.
        self.reader().read_exact(&mut found).is_ok() && found == start
    }

    fn len(&self) -> u64 {
        match self {
            Self::Memory(bytes) => bytes.len() as u64,
            Self::Disk(_, bytes) => *bytes,
        }
    }
}

/// A position in kept bytes.
#[derive(Clone)]
pub(crate) struct HeldReader {
    held: Held,
    at: u64,
}

impl Read for HeldReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = match &self.held {
            Held::Memory(bytes) => {
                let at = usize::try_from(self.at).map_or(bytes.len(), |at| at.min(bytes.len()));
                (&bytes[at..]).read(buffer)?
            }
            Held::Disk(file, _) => file.read_at(buffer, self.at)?,
        };
        self.at += read as u64;
        Ok(read)
    }
}

impl Seek for HeldReader {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let at = match to {
            SeekFrom::Start(at) => Some(at),
            SeekFrom::End(by) => self.held.len().checked_add_signed(by),
            SeekFrom::Current(by) => self.at.checked_add_signed(by),
        };
        self.at = at.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
        Ok(self.at)
    }
}

/// All bytes of a reader, decompressed, in memory.
///
/// # Errors
/// [`MarketError::Input`] where reading fails, named by `action`; [`MarketError::Limit`].
pub(super) fn read_limited(file: &str, reader: impl Read, action: &'static str) -> Result<Vec<u8>, MarketError> {
    let mut bytes = Vec::new();
    reader.take(HELD_FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(MarketError::input(action, file))?;
    if bytes.len() as u64 > HELD_FILE_BYTES_MAX {
        return Err(too_long(file, bytes.len() as u64, HELD_FILE_BYTES_MAX));
    }
    Ok(bytes)
}

/// The error that so many bytes are too many.
pub(super) fn too_long(file: &str, found: u64, limit: u64) -> MarketError {
    MarketError::Limit { what: format!("decompressed bytes of {file}"), found, limit }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(held: &Held) -> Vec<u8> {
        let mut all = Vec::new();
        held.reader().read_to_end(&mut all).unwrap();
        all
    }

    #[test]
    fn few_bytes_stay_in_memory_and_more_go_to_a_file_without_a_name() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("made");
        let bytes = |count: u64| (0..count).map(|at| (at % 251) as u8).collect::<Vec<u8>>();
        for (count, on_disk) in [
            (0, false),
            (HELD_BYTES_MAX, false),
            (HELD_BYTES_MAX + 1, true),
            (HELD_BYTES_MAX + 3 * COPIED_BYTES as u64, true),
        ] {
            let given = bytes(count);
            let held = Held::keep("pipe", given.as_slice(), "read", Some(&root)).unwrap();
            assert_eq!(matches!(held, Held::Disk(..)), on_disk, "{count}");
            assert!(read(&held) == given && held.len() == count, "{count}");
            assert!(read(&held.clone()) == given, "a second time");
        }
        assert_eq!(fs::read_dir(&root).unwrap().count(), 0, "no name is left");
    }

    #[test]
    fn positions_are_independent_and_seek_as_files_do() {
        let held = Held::Memory(Arc::from(b"0123456789".as_slice()));
        let (mut one, mut other) = (held.reader(), held.reader());
        assert_eq!(one.seek(SeekFrom::End(-3)).unwrap(), 7);
        assert_eq!(other.seek(SeekFrom::Start(2)).unwrap(), 2);
        let mut two = [0; 2];
        one.read_exact(&mut two).unwrap();
        assert_eq!(&two, b"78");
        other.read_exact(&mut two).unwrap();
        assert_eq!(&two, b"23");
        assert!(other.seek(SeekFrom::Current(-5)).is_err());
        assert_eq!(other.seek(SeekFrom::Start(50)).unwrap(), 50);
        assert_eq!(other.read(&mut two).unwrap(), 0);
        assert!(held.starts_with(b"012") && !held.starts_with(b"12") && !held.starts_with(&[0; 20]));
    }

    #[test]
    fn a_failed_read_and_a_failed_write_are_distinguished() {
        let folder = tempfile::tempdir().unwrap();
        struct Broken;
        impl Read for Broken {
            fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
                Err(io::ErrorKind::ConnectionReset.into())
            }
        }
        let cut_off = io::repeat(7).take(HELD_BYTES_MAX + 9).chain(Broken);
        assert!(matches!(Held::keep("pipe", cut_off, "read", Some(folder.path())), Err(MarketError::Input { .. })));
        let no_folder = folder.path().join("file");
        fs::write(&no_folder, "x").unwrap();
        let long = io::repeat(7).take(HELD_BYTES_MAX + 9);
        assert!(matches!(Held::keep("pipe", long, "read", Some(&no_folder)), Err(MarketError::Io { .. })));
    }
}
