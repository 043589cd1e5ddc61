//! Results that do not fit into memory, in unnamed files of a directory of this machine.
//!
//! One file for each scan, without a name: it disappears with the last reader, and with the process however that ends.
//! Nothing depends on it after a restart; results of recorded scans are in the result store.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use trawl_telemetry::metrics::catalogue::coordinator::{RESULTS_SPOOL_LIMIT, RESULTS_SPOOLED};
use trawl_wire::pb;

/// Default of the bytes on disk.
pub const SPOOL_BYTES: u64 = 16 << 30;
/// Bytes that are read back for clients at once; further ones wait.
const READ_BYTES_MAX: usize = 128 << 20;
/// Bytes per permit of it.
const PERMIT_BYTES: usize = 1024;

/// Why a result is not in the spool.
#[derive(Debug, thiserror::Error)]
pub enum SpoolError {
    /// The directory cannot be used.
    #[error("cannot use {} for results that do not fit into memory: {source}", directory.display())]
    Directory {
        /// The directory.
        directory: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// It is full.
    #[error("the results of scans take {used} bytes on disk, at most {max} are kept")]
    Full {
        /// Bytes used.
        used: u64,
        /// Their maximum.
        max: u64,
    },
    /// A file cannot be written or read.
    #[error("a result that does not fit into memory cannot be kept on disk: {0}")]
    File(#[from] io::Error),
}

/// The spool. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Spool(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    directory: PathBuf,
    used: AtomicU64,
    max: u64,
    reads: Arc<Semaphore>,
}

impl Spool {
    /// In a directory, which is tried.
    ///
    /// # Errors
    /// [`SpoolError::Directory`].
    pub fn open(directory: &Path, max: u64) -> Result<Self, SpoolError> {
        let failed = |source| SpoolError::Directory { directory: directory.to_owned(), source };
        tempfile::tempfile_in(directory).and_then(|file| file.write_all_at(b"spool", 0)).map_err(failed)?;
        let reads = Arc::new(Semaphore::new(READ_BYTES_MAX / PERMIT_BYTES));
        RESULTS_SPOOL_LIMIT.set(i64::try_from(max).unwrap_or(i64::MAX));
        Ok(Self(Arc::new(Shared { directory: directory.to_owned(), used: AtomicU64::new(0), max, reads })))
    }

    /// Whether it is full.
    pub fn is_full(&self) -> bool {
        self.0.used.load(Ordering::Relaxed) >= self.0.max
    }

    /// A file for one scan.
    ///
    /// # Errors
    /// [`SpoolError::Directory`].
    pub fn file(&self) -> Result<SpoolFile, SpoolError> {
        let directory = &self.0.directory;
        let failed = |source| SpoolError::Directory { directory: directory.clone(), source };
        let file = tempfile::tempfile_in(directory).map_err(failed)?;
        Ok(SpoolFile { file, end: AtomicU64::new(0), of: self.clone() })
    }
}

/// The file of one scan; its bytes are given back when it is dropped.
#[derive(Debug)]
pub(crate) struct SpoolFile {
    file: File,
    end: AtomicU64,
    of: Spool,
}

impl SpoolFile {
    /// Bytes that it takes of the spool.
    pub fn bytes(&self) -> usize {
        usize::try_from(self.end.load(Ordering::Relaxed)).unwrap_or(usize::MAX)
    }

    /// Writes the payload of a result; blocks on the disk.
    ///
    /// # Errors
    /// [`SpoolError::Full`], [`SpoolError::File`].
    pub fn keep(self: &Arc<Self>, mut done: pb::SegmentDone) -> Result<SpooledResult, SpoolError> {
        let payload = done.result.as_mut().map(|envelope| std::mem::take(&mut envelope.payload)).unwrap_or_default();
        let bytes = payload.len() as u64;
        let shared = &self.of.0;
        let used = shared.used.fetch_add(bytes, Ordering::Relaxed);
        if used.saturating_add(bytes) > shared.max {
            shared.used.fetch_sub(bytes, Ordering::Relaxed);
            return Err(SpoolError::Full { used, max: shared.max });
        }
        RESULTS_SPOOLED.add(i64::try_from(bytes).unwrap_or(i64::MAX));
        // Counted as used also if the write fails: the file may have grown.
        let at = self.end.fetch_add(bytes, Ordering::Relaxed);
        self.file.write_all_at(&payload, at)?;
        Ok(SpooledResult { done, at, bytes: payload.len(), file: Arc::clone(self) })
    }
}

impl Drop for SpoolFile {
    fn drop(&mut self) {
        let bytes = *self.end.get_mut();
        self.of.0.used.fetch_sub(bytes, Ordering::Relaxed);
        RESULTS_SPOOLED.add(-i64::try_from(bytes).unwrap_or(i64::MAX));
    }
}

/// A result whose payload is in the spool.
#[derive(Debug)]
pub(crate) struct SpooledResult {
    /// The event without the payload.
    pub done: pb::SegmentDone,
    at: u64,
    pub bytes: usize,
    file: Arc<SpoolFile>,
}

impl SpooledResult {
    /// The event with its payload; blocks on the disk. The reader of the envelope compares its checksum.
    ///
    /// # Errors
    /// [`SpoolError::File`].
    pub fn read(&self) -> Result<pb::SegmentDone, SpoolError> {
        let mut payload = vec![0; self.bytes];
        self.file.file.read_exact_at(&mut payload, self.at)?;
        let mut done = self.done.clone();
        if let Some(envelope) = done.result.as_mut() {
            envelope.payload = payload.into();
        }
        Ok(done)
    }

    /// Waits until there is room to read it for a client.
    pub async fn room(&self) -> Option<OwnedSemaphorePermit> {
        let permits = self.bytes.min(READ_BYTES_MAX).div_ceil(PERMIT_BYTES);
        let permits = u32::try_from(permits).unwrap_or(u32::MAX);
        // It is never closed.
        Arc::clone(&self.file.of.0.reads).acquire_many_owned(permits).await.ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn done(segment: u32, payload: Vec<u8>) -> pb::SegmentDone {
        let result = Some(pb::Envelope { length: payload.len() as u64, payload: payload.into(), ..Default::default() });
        pb::SegmentDone { segment, result, ..Default::default() }
    }

    #[test]
    fn results_come_back_and_their_bytes_are_given_back_with_the_last_reader() {
        let spool = Spool::open(&std::env::temp_dir(), 100).unwrap();
        let file = Arc::new(spool.file().unwrap());
        let (one, two) = (done(1, vec![1; 40]), done(2, vec![2; 60]));
        let (first, second) = (file.keep(one.clone()).unwrap(), file.keep(two.clone()).unwrap());
        assert!(spool.is_full());
        assert!(matches!(file.keep(done(3, vec![3])), Err(SpoolError::Full { used: 100, max: 100 })));
        assert_eq!((second.read().unwrap(), first.read().unwrap()), (two, one));
        drop((file, first));
        assert!(spool.is_full(), "one is still read");
        drop(second);
        assert!(!spool.is_full());
    }

    #[test]
    fn a_directory_that_cannot_be_used_is_refused() {
        let missing = Path::new("/nowhere/at/all");
        let error = Spool::open(missing, 1).unwrap_err();
        assert!(error.to_string().starts_with("cannot use /nowhere/at/all for results that do not fit into memory: "));
    }
}
