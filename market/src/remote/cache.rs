//! Files of a data root in an object store that are kept on a disk of this machine.
//!
//! Files never change and are named by their content, so the cache has no notion of age: what is in it is right, or damaged. A file
//! is fetched into `partial/`, whole or the ranges of it that somebody needs, its sha256 is compared with the manifest as it arrives, or
//! the checksums of the ranges afterwards, and it is renamed to its place below `files/ROOT/`. Nothing is synced: whatever a crash leaves is checked when it is read, like every other read, and fetched again.
//!
//! Several processes may share the folder. Whoever reads a file holds a shared lock on it, and only a file without locks is evicted;
//! whoever fetches one holds a lock on its partial file, for which the others wait; `.lock` guards the sum of bytes in `usage`.
//! The bytes below `files/` never exceed the budget: a file for which no room can be made is not kept, and is shared as long as
//! somebody has it open. Where the disk is
//! full before that, what others wrote to it being no business of the cache, the oldest files go first; if that does not help, a file is
//! fetched into memory, used once and not kept.

use std::collections::HashMap;
use std::fs::{self, File, TryLockError};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant, SystemTime};

use super::arriving::{CacheError, Content, Disk, aside, fetch_into};
use super::objects::{CacheEvent, Objects};
use crate::error::is_full;
use crate::manifest::sha256_hex;

/// Folder of the files that are kept, by data root.
const FILES: &str = "files";
/// Folder of the files that are being fetched.
const PARTIAL: &str = "partial";
/// The file that is locked to change what is kept.
const LOCK: &str = ".lock";
/// The file with the bytes that are kept.
const USAGE: &str = "usage";
/// Bytes of that file that are read: a number has fewer.
const USAGE_BYTES_MAX: u64 = 32;
/// Hex digits of a data root's folder, and of a partial file's name.
const KEY_DIGITS: usize = 32;
/// An eviction makes room for this part of the budget besides what is needed, so that not every fetch has to evict.
const SLACK_PARTS: u64 = 16;
/// A file that was used once counts as one that was used last so long ago: a pass over more than there is room for evicts nothing that
/// is used more often than that.
const ONCE_AGE: Duration = Duration::from_secs(60 * 60);
/// Uses so soon after the fetch are one use: a scan opens a file for each of its steps and parts.
const ONE_USE: Duration = Duration::from_secs(60);
/// Longest wait for another process that fetches the same file; then it is fetched twice.
const OTHERS_WAIT: Duration = Duration::from_secs(60);
/// How often it looks.
const OTHERS_POLL: Duration = Duration::from_millis(10);
/// Bytes of a file that is fetched into memory. Each thread that computes or fetches has one at a time.
const ASIDE_BYTES_MAX: u64 = 256 << 20;

/// A file of the cache, or `None` where the store has none.
type Fetched = Result<Option<Arc<File>>, CacheError>;

/// One fetch, for all threads that need the file.
#[derive(Debug, Default)]
struct Flight {
    ended: Mutex<Option<Fetched>>,
    changed: Condvar,
}

/// The cache of one data root; several may share a folder and its budget.
#[derive(Debug)]
pub(crate) struct DiskCache {
    folder: PathBuf,
    /// The folder of this data root's files.
    files: PathBuf,
    key: String,
    bytes_max: u64,
    /// See [`ONE_USE`].
    one_use: Duration,
    flights: Mutex<HashMap<String, Arc<Flight>>>,
    /// Files that were fetched, not kept, and may still be open.
    unkept: Mutex<HashMap<String, Weak<File>>>,
    disk: Disk,
}

impl DiskCache {
    /// Opens the cache in a folder, which is made if it is missing, and removes what crashed processes left in it.
    pub fn open(folder: &Path, address: &str, bytes_max: u64) -> io::Result<Self> {
        let key = sha256_hex(address.as_bytes())[..KEY_DIGITS].to_owned();
        let files = folder.join(FILES).join(&key);
        fs::create_dir_all(&files)?;
        fs::create_dir_all(folder.join(PARTIAL))?;
        let (flights, unkept, disk) = (Mutex::default(), Mutex::default(), Disk::default());
        let one_use = ONE_USE;
        let cache = Self { folder: folder.to_owned(), files, key, bytes_max, one_use, flights, unkept, disk };
        let _lock = cache.lock()?;
        cache.remove_partial();
        Ok(cache)
    }

    /// A folder of this machine for what belongs to this data root and is not kept: locks, files that are being made.
    pub fn beside(&self) -> PathBuf {
        self.folder.join("local").join(&self.key)
    }

    /// Whether a file is kept.
    pub fn is_here(&self, relative: &str) -> bool {
        self.files.join(relative).is_file()
    }

    /// Whether a file of so many bytes could be kept if none were open.
    pub fn can_keep(&self, bytes: u64) -> bool {
        bytes <= self.bytes_max
    }

    /// Whether any file of a folder is kept.
    pub fn has_any(&self, folder: &str) -> bool {
        fs::read_dir(self.files.join(folder)).is_ok_and(|mut entries| entries.next().is_some())
    }

    /// A file, open for reading; while it is open it is not evicted. It is fetched if it is not here, once for all threads and
    /// processes. `None`: the store has no such object.
    pub fn get(&self, objects: &dyn Objects, relative: &str, content: Content<'_>) -> Fetched {
        if let Some(file) = self.at_hand(relative)? {
            objects.noted(CacheEvent::Hit, relative);
            return Ok(Some(file));
        }
        let (flight, leads) = {
            let mut flights = locked(&self.flights);
            match flights.get(relative) {
                Some(flight) => (Arc::clone(flight), false),
                None => (Arc::clone(flights.entry(relative.to_owned()).or_default()), true),
            }
        };
        if !leads {
            objects.noted(CacheEvent::Hit, relative);
            let mut ended = locked(&flight.ended);
            loop {
                if let Some(fetched) = &*ended {
                    return fetched.clone();
                }
                ended = flight.changed.wait(ended).unwrap_or_else(PoisonError::into_inner);
            }
        }
        let landing = Landing { cache: self, relative, flight: &flight };
        // Another flight may have ended just before.
        let fetched = match self.at_hand(relative) {
            Ok(None) => {
                objects.noted(CacheEvent::Miss, relative);
                self.fetch_somehow(objects, relative, content)
            }
            kept => kept.map_err(CacheError::from),
        };
        landing.end(fetched.clone());
        fetched
    }

    /// Deletes a file that was found damaged, unless another one has taken its place.
    pub fn discard(&self, objects: &dyn Objects, relative: &str, damaged: &File) -> io::Result<()> {
        let path = self.files.join(relative);
        // It was fetched and not kept: whoever opens it next fetches it again.
        let is_it = |file: &Weak<File>| std::ptr::eq(file.as_ptr(), damaged);
        locked(&self.unkept).retain(|_, file| !is_it(file));
        let _lock = self.lock()?;
        if !same_file(damaged, &path) {
            return Ok(());
        }
        objects.noted(CacheEvent::Damaged, relative);
        self.remove(objects, &path)
    }

    /// Deletes a file that the store has no more; whoever has it open may go on reading. Failing to is no error: a file that stays is
    /// right, and is evicted some time.
    pub fn forget(&self, objects: &dyn Objects, relative: &str) {
        let _ = self.lock().and_then(|_lock| self.remove(objects, &self.files.join(relative)));
    }

    /// Deletes a file; the lock is held.
    fn remove(&self, objects: &dyn Objects, path: &Path) -> io::Result<()> {
        let bytes = fs::metadata(path).map_or(0, |found| found.len());
        let used = self.used()?;
        fs::remove_file(path)?;
        self.set_used(objects, used.saturating_sub(bytes))
    }

    /// A file that is kept, or that somebody has open.
    fn at_hand(&self, relative: &str) -> io::Result<Option<Arc<File>>> {
        let kept = self.kept(relative)?;
        Ok(kept.or_else(|| locked(&self.unkept).get(relative).and_then(Weak::upgrade)))
    }

    /// Shares a file that is not kept, as long as somebody has it open.
    fn share(&self, relative: &str, file: &Arc<File>) {
        let mut unkept = locked(&self.unkept);
        unkept.retain(|_, file| file.strong_count() > 0);
        unkept.insert(relative.to_owned(), Arc::downgrade(file));
    }

    /// A file that is here, which is used now.
    fn kept(&self, relative: &str) -> io::Result<Option<Arc<File>>> {
        let file = self.peek(relative)?;
        if let Some(file) = file.as_ref().filter(|file| !self.is_new(file)) {
            // The order of eviction, also for other processes and later ones.
            let _ = file.set_modified(SystemTime::now());
        }
        Ok(file)
    }

    /// Whether a file was fetched so recently that it is still in its first use. False on file systems that do not say when it was made.
    fn is_new(&self, file: &File) -> bool {
        let made = file.metadata().and_then(|facts| facts.created());
        made.is_ok_and(|made| made.elapsed().is_ok_and(|since| since < self.one_use))
    }

    /// A file that is here, open for reading; this counts neither as a use nor as a hit.
    pub fn peek(&self, relative: &str) -> io::Result<Option<Arc<File>>> {
        let file = match File::open(self.files.join(relative)) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        match file.try_lock_shared() {
            // It is being evicted.
            Err(TryLockError::WouldBlock) => return Ok(None),
            // A file system without locks: what is evicted stays readable while it is open.
            Ok(()) | Err(TryLockError::Error(_)) => {}
        }
        Ok(Some(Arc::new(file)))
    }

    /// Fetches a file, also where the disk is full.
    fn fetch_somehow(&self, objects: &dyn Objects, relative: &str, content: Content<'_>) -> Fetched {
        let is_full = |fetched: &Fetched| matches!(fetched, Err(CacheError::Local(kind, _)) if is_full(*kind));
        let mut fetched = self.fetch(objects, relative, content);
        if is_full(&fetched) && self.relieve(objects) {
            fetched = self.fetch(objects, relative, content);
        }
        if is_full(&fetched) {
            objects.noted(CacheEvent::DiskFull, relative);
            fetched = self.fetch_aside(objects, relative, content);
        }
        fetched
    }

    /// Makes some room on the disk; false if there was nothing to delete.
    fn relieve(&self, objects: &dyn Objects) -> bool {
        let made = || {
            let _lock = self.lock()?;
            let used = self.used()?;
            let left = self.evict(objects, used.saturating_sub(self.bytes_max / SLACK_PARTS))?;
            self.set_used(objects, left)?;
            Ok::<_, io::Error>(left < used)
        };
        made().unwrap_or(false)
    }

    /// Fetches a file that is not kept.
    fn fetch_aside(&self, objects: &dyn Objects, relative: &str, content: Content<'_>) -> Fetched {
        let file = aside()?;
        let none = Disk::default();
        let fetched = fetch_into(objects, (&file, &none, ASIDE_BYTES_MAX), relative, content)?;
        let file = fetched.map(|_| Arc::new(file));
        file.iter().for_each(|file| self.share(relative, file));
        Ok(file)
    }

    fn fetch(&self, objects: &dyn Objects, relative: &str, content: Content<'_>) -> Fetched {
        let partial = self.begin(relative)?;
        // Another process may have fetched it meanwhile.
        if let Some(kept) = self.kept(relative)? {
            let _ = fs::remove_file(&partial.path);
            return Ok(Some(kept));
        }
        let bytes = fetch_into(objects, (&partial.file, &self.disk, u64::MAX), relative, content);
        let fetched = bytes.and_then(|bytes| match bytes {
            Some(bytes) => Ok(Some(self.keep(objects, &partial, relative, bytes)?)),
            None => Ok(None),
        });
        if !matches!(fetched, Ok(Some(_))) {
            let left = partial.file.metadata().map_or(0, |found| found.len());
            if fs::remove_file(&partial.path).is_ok() {
                self.disk.freed(left);
            }
        }
        fetched
    }

    /// Gives a file that was fetched its place, if there is room for it.
    fn keep(&self, objects: &dyn Objects, partial: &Partial, relative: &str, bytes: u64) -> io::Result<Arc<File>> {
        let path = self.files.join(relative);
        let _lock = self.lock()?;
        let file = Arc::new(partial.file.try_clone()?);
        let mut used = self.used()?;
        // Nothing goes for a file that has no room in an empty cache either.
        if self.can_keep(bytes) && used + bytes > self.bytes_max {
            used = self.evict(objects, self.bytes_max.saturating_sub(bytes + self.bytes_max / SLACK_PARTS))?;
        }
        if used + bytes > self.bytes_max {
            objects.noted(CacheEvent::NotKept, relative);
            self.set_used(objects, used)?;
            // It stays readable while it is open.
            fs::remove_file(&partial.path)?;
            self.share(relative, &file);
            return Ok(file);
        }
        // From now on it is read.
        let _ = file.try_lock_shared();
        let _ = file.set_modified(SystemTime::now().checked_sub(ONCE_AGE).unwrap_or(SystemTime::UNIX_EPOCH));
        fs::create_dir_all(path.parent().unwrap_or(&self.files))?;
        let replaced = fs::metadata(&path).map_or(0, |found| found.len());
        fs::rename(&partial.path, &path)?;
        self.set_used(objects, (used + bytes).saturating_sub(replaced))?;
        Ok(file)
    }

    /// A file to fetch into, which no other process fetches into.
    fn begin(&self, relative: &str) -> io::Result<Partial> {
        let name = format!("{}-{}", self.key, &sha256_hex(relative.as_bytes())[..KEY_DIGITS]);
        let path = self.folder.join(PARTIAL).join(name);
        let until = Instant::now() + OTHERS_WAIT;
        loop {
            fs::create_dir_all(self.folder.join(PARTIAL))?;
            let file = File::options().create(true).truncate(false).read(true).write(true).open(&path)?;
            match file.try_lock() {
                // It has ended if the file has another place by now, or none.
                Ok(()) if same_file(&file, &path) => return Ok(Partial { file, path }),
                Ok(()) => {}
                Err(TryLockError::WouldBlock) if Instant::now() < until => std::thread::sleep(OTHERS_POLL),
                Err(_) => break,
            }
        }
        static OWN: AtomicU64 = AtomicU64::new(0);
        let number = OWN.fetch_add(1, Ordering::Relaxed);
        let path = path.with_extension(format!("{}-{number}", std::process::id()));
        let file = File::options().create_new(true).read(true).write(true).open(&path)?;
        let _ = file.try_lock();
        Ok(Partial { file, path })
    }

    /// Deletes the files that were used the longest ago (see [`ONCE_AGE`]) and are not open, until at most so many bytes are left; returns how many are.
    fn evict(&self, objects: &dyn Objects, bytes: u64) -> io::Result<u64> {
        self.remove_partial();
        let mut kept = Vec::new();
        walk(&self.folder.join(FILES), &mut kept);
        kept.sort_unstable();
        let mut used = kept.iter().map(|(_, bytes, _)| bytes).sum();
        for (_, own, path) in kept {
            if used <= bytes {
                break;
            }
            // Gone, or in use.
            let Ok(file) = File::open(&path) else { continue };
            if matches!(file.try_lock(), Err(TryLockError::WouldBlock)) || fs::remove_file(&path).is_err() {
                continue;
            }
            objects.noted(CacheEvent::Evicted, &path.display().to_string());
            self.disk.freed(own);
            used -= own;
        }
        Ok(used)
    }

    /// Deletes the files of fetches that ended without an end.
    fn remove_partial(&self) {
        for entry in fs::read_dir(self.folder.join(PARTIAL)).into_iter().flatten().flatten() {
            if File::open(entry.path()).is_ok_and(|file| file.try_lock().is_ok()) {
                let _ = fs::remove_file(entry.path());
            }
        }
    }

    fn lock(&self) -> io::Result<File> {
        let file = File::options().create(true).truncate(false).write(true).open(self.folder.join(LOCK))?;
        match file.lock() {
            Err(error) if error.kind() == io::ErrorKind::Unsupported => Ok(file),
            locked => locked.map(|()| file),
        }
    }

    /// Bytes that are kept; counted anew where the file that says so cannot be read.
    fn used(&self) -> io::Result<u64> {
        // A part of the number lacks the end of the line.
        let mut text = String::new();
        let known =
            File::open(self.folder.join(USAGE)).and_then(|file| file.take(USAGE_BYTES_MAX).read_to_string(&mut text));
        let known = known.ok().and_then(|_| text.strip_suffix('\n')?.parse().ok());
        Ok(known.unwrap_or_else(|| {
            let mut kept = Vec::new();
            walk(&self.folder.join(FILES), &mut kept);
            kept.iter().map(|(_, bytes, _)| bytes).sum()
        }))
    }

    fn set_used(&self, objects: &dyn Objects, bytes: u64) -> io::Result<()> {
        objects.noted(CacheEvent::Resident(bytes), "");
        match fs::write(self.folder.join(USAGE), format!("{bytes}\n")) {
            // It is counted anew where it is needed.
            Err(error) if is_full(error.kind()) => Ok(()),
            written => written,
        }
    }
}

/// A file that is being fetched.
struct Partial {
    file: File,
    path: PathBuf,
}

/// Ends a flight however its fetch ends.
struct Landing<'a> {
    cache: &'a DiskCache,
    relative: &'a str,
    flight: &'a Flight,
}

impl Landing<'_> {
    fn end(self, fetched: Fetched) {
        *locked(&self.flight.ended) = Some(fetched);
    }
}

impl Drop for Landing<'_> {
    fn drop(&mut self) {
        locked(&self.cache.flights).remove(self.relative);
        let panicked = || Err(CacheError::Local(io::ErrorKind::Other, "the fetch ended by a panic".to_owned()));
        locked(&self.flight.ended).get_or_insert_with(panicked);
        self.flight.changed.notify_all();
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// All files below a folder: when they were used, their bytes, their paths.
fn walk(folder: &Path, found: &mut Vec<(SystemTime, u64, PathBuf)>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        match entry.metadata() {
            Ok(facts) if facts.is_dir() => walk(&entry.path(), found),
            Ok(facts) => found.push((facts.modified().unwrap_or(SystemTime::UNIX_EPOCH), facts.len(), entry.path())),
            Err(_) => {}
        }
    }
}

/// Whether a path still names an open file.
fn same_file(file: &File, path: &Path) -> bool {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt as _;
        let of = |facts: fs::Metadata| (facts.dev(), facts.ino());
        file.metadata().ok().map(of) == fs::metadata(path).ok().map(of)
    }
    #[cfg(not(unix))]
    {
        let _ = file;
        path.exists()
    }
}

/// The whole content of an open file, whose position others may share.
pub(crate) fn content(file: &File) -> io::Result<Vec<u8>> {
    let bytes = usize::try_from(file.metadata()?.len()).map_err(io::Error::other)?;
    let mut all = vec![0; bytes];
    crate::read_at::read_at(file, &mut all, 0)?;
    Ok(all)
}

#[cfg(test)]
#[path = "cache_tests.rs"]
mod tests;
