//! Creates snapshots: groups of bars are written to files, the files are listed in a manifest, and only then does the
//! dataset's HEAD name it.
//!
//! Layout under the data root: `NAME/HEAD` (the newest snapshot's id), `NAME/snapshots/<id>.json`,
//! `NAME/files/<sha256>.arrow` with its checksums in `NAME/files/<sha256>.sums`, `NAME/quarantine/<id>.csv`; where bars were
//! appended also `NAME/files/<sha256>.tail` and `NAME/bases/<id>.json` (see `tail`). Files are named by content and never change,
//! so snapshots share them. Every file is written under a temporary name, synced and renamed; HEAD comes last. Nothing is deleted
//! here: see `removal`.

use std::fs;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use crate::arrow_file::encode_times;
use crate::calendar::Calendar;
use crate::error::MarketError;
use crate::files::{Files, MemoryFiles};
pub(crate) use crate::layout::{
    BASES, FILES, HEAD, base_path, file_path, manifest_path, parts_path, sums_path, table_path, tail_index_path,
    write_atomically,
};
use crate::layout::{make_readable, persist};
use crate::manifest::{Appended, GroupFile, MANIFEST_VERSION, Manifest, SymbolEntry, TableFile, TimesFile, sha256_hex};
use crate::remote::{Head, RemoteDataset};
use crate::sums::Sums;
use crate::time::TimeMicros;
use trawl_terms::Timeframe;

/// Bytes of two files that are compared at once.
const COMPARED_BYTES: u64 = 1 << 20;

/// Where the files of a snapshot go.
#[derive(Debug)]
pub(crate) enum Sink {
    /// A dataset's directory, and the dataset's name for messages. Where the dataset is in an object store, the folder in which its
    /// files are made before they are put there.
    Directory {
        path: PathBuf,
        name: String,
        remote: Option<RemoteDataset>,
        /// Files that were not there before, in the order in which they were made; relative to the dataset.
        made: Mutex<Vec<String>>,
    },
    /// In memory only.
    Memory(MemoryFiles),
}

impl Sink {
    /// The dataset's directory, and its name for messages.
    pub fn directory(&self) -> Option<(&Path, &str)> {
        match self {
            Self::Directory { path, name, .. } => Some((path, name)),
            Self::Memory(_) => None,
        }
    }

    /// The dataset, if it is in an object store.
    fn remote(&self) -> Option<&RemoteDataset> {
        match self {
            Self::Directory { remote, .. } => remote.as_ref(),
            Self::Memory(_) => None,
        }
    }

    /// What was made so far, and what the dataset had before; `None` in memory.
    pub fn reads(&self) -> Option<Files> {
        match self {
            Self::Directory { remote: Some(remote), .. } => Some(Files::Remote(remote.clone())),
            Self::Directory { path, .. } => Some(Files::Directory(path.clone())),
            Self::Memory(_) => None,
        }
    }

    /// The folder of the locks that writers of this dataset on this machine take.
    pub fn locks(&self) -> Option<PathBuf> {
        match self.remote() {
            Some(remote) => Some(remote.root.beside().join(&remote.name)),
            None => self.directory().map(|(path, _)| path.to_owned()),
        }
    }

    /// A directory, or the folder in which files for an object store are made.
    pub fn in_directory(path: PathBuf, name: String, remote: Option<RemoteDataset>) -> Self {
        Self::Directory { path, name, remote, made: Mutex::default() }
    }

    /// Does something that makes a file in the dataset's directory, and notes it if it was not there before.
    pub fn making<T>(&self, relative: &str, make: impl FnOnce() -> Result<T, MarketError>) -> Result<T, MarketError> {
        let Self::Directory { path, made, .. } = self else { return make() };
        let new = !path.join(relative).exists();
        let done = make()?;
        if new {
            made.lock().unwrap_or_else(PoisonError::into_inner).push(relative.to_owned());
        }
        Ok(done)
    }

    /// Deletes the files that were made here, where there is no room for all of them: they take what is missing, and without the
    /// others they are of no use. Nobody else may have begun to use them. What cannot be deleted stays, and with it what was made before it.
    pub fn undo(&self) {
        let Self::Directory { path, made, remote: None, .. } = self else { return };
        for relative in std::mem::take(&mut *made.lock().unwrap_or_else(PoisonError::into_inner)).into_iter().rev() {
            if fs::remove_file(path.join(relative)).is_err() {
                return;
            }
        }
    }

    /// Whether a file that was just made is new to the dataset.
    fn is_new(&self, relative: &str) -> bool {
        self.remote().and_then(|remote| remote.staged.as_ref()).is_none_or(|staged| !staged.is_known(relative))
    }

    /// Keeps the manifest of a snapshot as a base, so that it stays when the snapshot is deleted.
    pub fn keep_base(&self, snapshot: &str) -> Result<(), MarketError> {
        match (self.remote(), self.directory()) {
            (Some(remote), _) => remote.stage_base(snapshot),
            (None, Some((path, name))) => self.making(&base_path(snapshot), || keep_base(path, snapshot, name)),
            (None, None) => Err(MarketError::Refused("bars are not appended to a dataset in memory".to_owned())),
        }
    }

    /// Writes the manifest, and makes its snapshot the newest, which was `before`.
    ///
    /// # Errors
    /// [`MarketError::Busy`] where another writer was faster; [`MarketError::Io`], [`MarketError::DataRoot`].
    pub fn publish(&self, manifest: &Manifest, before: Option<&Head>) -> Result<(), MarketError> {
        match (self.remote(), self.directory()) {
            (Some(remote), _) => remote.publish(manifest, &json_of(manifest)?, before),
            (None, Some((path, name))) => {
                let (relative, json) = (manifest_path(&manifest.snapshot), json_of(manifest)?);
                self.making(&relative, || write_atomically(path, &relative, &json, name))?;
                write_head(path, manifest)
            }
            (None, None) => Err(MarketError::Refused("a dataset in memory has no files".to_owned())),
        }
    }

    /// Adds to a file that is no part of a snapshot: `add` is given the folder of the dataset, and returns what it wrote.
    pub fn add_to<T>(
        &self,
        relative: &str,
        add: impl FnOnce(&Path, &str) -> Result<T, MarketError>,
    ) -> Result<T, MarketError> {
        let Some((path, name)) = self.directory() else {
            return Err(MarketError::Refused("a dataset in memory has no files".to_owned()));
        };
        let Some(remote) = self.remote() else { return self.making(relative, || add(path, name)) };
        remote.stage_object(relative)?;
        let added = add(path, name)?;
        remote.put_staged(relative)?;
        Ok(added)
    }

    /// The folder of the dataset's files.
    pub fn files(&self) -> Option<PathBuf> {
        self.directory().map(|(path, _)| path.join(FILES))
    }

    /// Stores a file under its final name, unless the same file is there; returns whether it was new.
    pub fn put_file(&self, relative: &str, staged: tempfile::NamedTempFile) -> Result<bool, MarketError> {
        let Some((path, name)) = self.directory() else {
            return Err(MarketError::Refused("a dataset in memory has no files".to_owned()));
        };
        // A damaged file is replaced: importing again repairs a dataset.
        if same_content(&path.join(relative), staged.path()).unwrap_or(false) {
            return Ok(false);
        }
        let failed = MarketError::io("write", format!("{name}/{relative}"));
        self.making(relative, || persist(staged, &path.join(relative)).map_err(failed))?;
        Ok(self.is_new(relative))
    }

    /// Stores bytes under their sha256, at a path that contains it; returns whether they were new.
    pub fn put(&self, sha256: &str, relative: &str, bytes: Vec<u8>) -> Result<bool, MarketError> {
        match self {
            Self::Directory { path, name, .. } => {
                // A damaged file is replaced: importing again repairs a dataset.
                if let Ok(present) = fs::read(path.join(relative))
                    && present == bytes
                {
                    return Ok(false);
                }
                self.making(relative, || write_atomically(path, relative, &bytes, name))?;
                Ok(self.is_new(relative))
            }
            Self::Memory(files) => {
                let mut files = files.lock().unwrap_or_else(PoisonError::into_inner);
                Ok(files.insert(sha256.to_owned(), Arc::new(bytes)).is_none())
            }
        }
    }
}

/// Whether two files have the same bytes.
fn same_content(a: &Path, b: &Path) -> std::io::Result<bool> {
    let (a, b) = (fs::File::open(a)?, fs::File::open(b)?);
    if a.metadata()?.len() != b.metadata()?.len() {
        return Ok(false);
    }
    let (mut x, mut y) = (Vec::new(), Vec::new());
    loop {
        x.clear();
        y.clear();
        (&a).take(COMPARED_BYTES).read_to_end(&mut x)?;
        (&b).take(COMPARED_BYTES).read_to_end(&mut y)?;
        if x != y || x.is_empty() {
            return Ok(x == y);
        }
    }
}

/// Writes the checksums of a file of bars. Not synced: what a crash leaves of it is not used.
pub(crate) fn store_sums(dataset: &Path, file: &GroupFile, sums: &Sums) -> std::io::Result<()> {
    let path = dataset.join(sums_path(&file.sha256));
    let directory = path.parent().unwrap_or(dataset);
    fs::create_dir_all(directory)?;
    let mut staged = tempfile::NamedTempFile::new_in(directory)?;
    staged.write_all(&sums.encode(&file.sha256, file.bytes, file.rows))?;
    make_readable(staged.as_file())?;
    staged.persist(&path).map_err(|e| e.error)?;
    Ok(())
}

/// Merges two sorted, distinct lists of times.
pub(crate) fn unite(mut a: Vec<TimeMicros>, b: &[TimeMicros]) -> Vec<TimeMicros> {
    // Symbols usually trade at the same times.
    let mut rest = a.iter();
    if !b.iter().all(|time| rest.find(|known| *known >= time) == Some(time)) {
        a.extend_from_slice(b);
        // Two ascending runs: the stable sort merges them.
        a.sort();
        a.dedup();
    }
    a
}

/// Stores a table of reference data.
pub(crate) fn store_table(
    sink: &Sink,
    bytes: Vec<u8>,
    rows: usize,
    labels: Vec<String>,
) -> Result<TableFile, MarketError> {
    let table = TableFile { sha256: sha256_hex(&bytes), bytes: bytes.len() as u64, rows: rows as u64, labels };
    sink.put(&table.sha256, &table_path(&table.sha256), bytes)?;
    Ok(table)
}

/// The parts of a manifest besides its files of bars.
pub(crate) struct Heading {
    pub name: String,
    pub timeframe: Timeframe,
    pub synthetic: bool,
    pub origin: String,
    pub groups: u32,
    pub columns: Vec<String>,
    pub calendar: Calendar,
    pub complete_to: Option<TimeMicros>,
    pub factors: Option<TableFile>,
    pub symbol_table: Option<TableFile>,
    pub attributes: Option<TableFile>,
}

/// Builds a manifest from stored groups (any order) and the distinct times of them all.
pub(crate) fn assemble(
    sink: &Sink,
    heading: Heading,
    groups: Vec<(GroupFile, Vec<SymbolEntry>)>,
    times: Vec<TimeMicros>,
) -> Result<Manifest, MarketError> {
    let rows = times.len() as u64;
    let bytes = encode_times(times).map_err(|e| MarketError::Refused(format!("bar times: {e}")))?;
    let times = TimesFile { sha256: sha256_hex(&bytes), bytes: bytes.len() as u64, rows };
    sink.put(&times.sha256, &file_path(&times.sha256), bytes)?;
    let mut files = Vec::with_capacity(groups.len());
    let mut symbols = Vec::new();
    for (file, entries) in groups {
        files.push(file);
        symbols.extend(entries);
    }
    files.sort_by_key(|f: &GroupFile| f.group);
    symbols.sort_by(|a: &SymbolEntry, b| a.symbol.cmp(&b.symbol));
    let mut manifest = Manifest {
        version: MANIFEST_VERSION,
        calendar: Manifest::calendar_to_keep(heading.calendar, heading.synthetic),
        complete_to: None,
        factors: heading.factors,
        symbol_table: heading.symbol_table,
        attributes: heading.attributes,
        name: heading.name,
        snapshot: String::new(),
        timeframe: heading.timeframe,
        synthetic: heading.synthetic,
        origin: heading.origin,
        groups: heading.groups,
        columns: heading.columns,
        bars: symbols.iter().map(|s| s.rows).sum(),
        first_time: symbols.iter().map(|s| s.first_time).min().unwrap_or(0),
        last_time: symbols.iter().map(|s| s.last_time).max().unwrap_or(0),
        times,
        appended: None,
        files,
        symbols,
    };
    manifest.seal(heading.complete_to)?;
    Ok(manifest)
}

impl Manifest {
    /// Completes a manifest with what follows from the rest: version and id.
    fn seal(&mut self, complete_to: Option<TimeMicros>) -> Result<(), MarketError> {
        // Defaults are left out, so that equal content has one form.
        self.complete_to = complete_to.filter(|&t| t != self.complete_to());
        self.version = self.version_needed();
        self.snapshot = self.content_id();
        self.check().map_err(|why| MarketError::Corrupt { file: format!("{} (being written)", self.name), why })
    }
}

/// The manifest of a snapshot whose bars are those of a base and of files that were appended to it (`times` distinct times in
/// all): as it is stored, without symbols.
pub(crate) fn assemble_appended(
    heading: Heading,
    base: &Manifest,
    (bars, first_time, last_time): (u64, TimeMicros, TimeMicros),
    appended: Appended,
) -> Result<Manifest, MarketError> {
    let mut manifest = Manifest {
        version: MANIFEST_VERSION,
        calendar: Manifest::calendar_to_keep(heading.calendar, heading.synthetic),
        complete_to: None,
        factors: heading.factors,
        symbol_table: heading.symbol_table,
        attributes: heading.attributes,
        name: heading.name,
        snapshot: String::new(),
        timeframe: heading.timeframe,
        synthetic: heading.synthetic,
        origin: heading.origin,
        groups: heading.groups,
        columns: heading.columns,
        bars,
        first_time,
        last_time,
        times: base.times.clone(),
        appended: Some(appended),
        files: Vec::new(),
        symbols: Vec::new(),
    };
    manifest.seal(heading.complete_to)?;
    Ok(manifest)
}

/// Keeps the manifest of a snapshot as a base, so that it stays when the snapshot is deleted: a second name of its file where the
/// file system has that, else a copy.
fn keep_base(dataset: &Path, snapshot: &str, name: &str) -> Result<(), MarketError> {
    let (from, relative) = (dataset.join(manifest_path(snapshot)), base_path(snapshot));
    let to = dataset.join(&relative);
    let failed = |action| MarketError::io(action, format!("{name}/{relative}"));
    // Another size: a copy that was damaged. The content is compared with the id whenever it is read.
    let size = |path: &Path| fs::metadata(path).map(|found| found.len()).ok();
    if size(&to).is_some() && size(&to) == size(&from) {
        return Ok(());
    }
    fs::create_dir_all(dataset.join(BASES)).map_err(failed("create the directory of"))?;
    if fs::hard_link(&from, &to).is_ok() {
        return Ok(());
    }
    let bytes = fs::read(&from).map_err(failed("copy"))?;
    write_atomically(dataset, &relative, &bytes, name)
}

/// Makes a snapshot the newest.
fn write_head(dataset: &Path, manifest: &Manifest) -> Result<(), MarketError> {
    write_atomically(dataset, HEAD, format!("{}\n", manifest.snapshot).as_bytes(), &manifest.name)
}

/// A manifest as it is stored, without what follows from the base and from indices.
fn json_of(manifest: &Manifest) -> Result<Vec<u8>, MarketError> {
    let stored = manifest.appended.is_some().then(|| manifest.stored());
    let json = serde_json::to_vec_pretty(stored.as_ref().unwrap_or(manifest));
    let mut json = json.map_err(|e| MarketError::Refused(e.to_string()))?;
    json.push(b'\n');
    Ok(json)
}

/// Locks a dataset against other writers until dropped; the lock ends with the process, however that ends.
#[derive(Debug)]
pub(crate) struct WriteLock {
    _file: fs::File,
}

impl WriteLock {
    pub(crate) fn take(dataset: &Path, name: &str) -> Result<Self, MarketError> {
        let busy = || MarketError::Busy { dataset: name.to_owned() };
        Ok(Self { _file: lock(dataset, ".lock", name)?.ok_or_else(busy)? })
    }
}

/// Locks a dataset against removals while a compaction writes files that no manifest names yet, and against another compaction.
/// Imports do not wait for it.
#[derive(Debug)]
pub(crate) struct CompactionLock {
    _file: fs::File,
}

impl CompactionLock {
    pub(crate) fn take(dataset: &Path, name: &str) -> Result<Self, MarketError> {
        let busy = || MarketError::Compacting { dataset: name.to_owned() };
        Ok(Self { _file: lock(dataset, ".compaction-lock", name)?.ok_or_else(busy)? })
    }
}

/// Locks a file of a dataset; `None` when another process has the lock.
fn lock(dataset: &Path, file: &str, name: &str) -> Result<Option<fs::File>, MarketError> {
    let shown = format!("{name}/{file}");
    fs::create_dir_all(dataset).map_err(MarketError::io("create the directory of dataset", name))?;
    let mut options = fs::File::options();
    options.create(true).truncate(false).write(true);
    let file = options.open(dataset.join(file)).map_err(MarketError::io("open", &shown))?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(fs::TryLockError::WouldBlock) => Ok(None),
        Err(fs::TryLockError::Error(e)) => Err(MarketError::io("lock", shown)(e)),
    }
}
