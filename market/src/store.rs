//! The datasets: the directories under one data root, and the bundled ones.
//!
//! Clients name datasets; paths or URLs from clients are never followed. This file only reads; snapshots are created
//! and deleted elsewhere.

use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::bundled;
use crate::bundled_names::{BUNDLED, is_bundled};
use crate::dataset::Dataset;
use crate::files::Files;
use crate::remote::{CacheOptions, Head, Objects, RemoteDataset, RemoteRoot, Staging};
use crate::removal_report::{GRACE_DEFAULT, GRACE_MAX};
use trawl_terms::suggest;

use crate::error::MarketError;
use crate::manifest_reader::open_manifest;
use trawl_terms::Timeframe;

use crate::name::{HEX_DIGITS, check_dataset_name, is_digest, split_reference};
use crate::snapshot::{HEAD, Sink, manifest_path};
use crate::time::TimeMicros;

/// The data root plus the bundled datasets.
#[derive(Debug, Clone)]
pub struct Store {
    /// Directory that contains one directory per dataset, and need not exist; for an object store a directory of this machine for
    /// locks and for what does not fit into memory.
    pub root: PathBuf,
    remote: Option<Arc<RemoteRoot>>,
    /// How long files of an object store stay after the last snapshot that names them was removed.
    pub(crate) grace: Duration,
    /// Recently opened snapshots, newest first; only a server keeps any.
    kept: Option<Arc<Mutex<VecDeque<Dataset>>>>,
}

/// How often the newest snapshot is looked up, if it is removed before it is opened.
const NEWEST_READS_MAX: u32 = 3;
/// Snapshots that a server keeps open. They never change, so none is out of date.
const KEPT_MAX: usize = 16;

/// One line of `trawl data list`.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
pub struct DatasetSummary {
    /// Name to use in `--dataset`.
    pub name: String,
    /// Bundled with the program.
    pub bundled: bool,
    /// Newest snapshot; empty when there is a problem, as are the fields below.
    pub snapshot: String,
    /// Number of snapshots kept.
    pub snapshots: usize,
    /// Length of a bar.
    #[schemars(with = "Option<String>")]
    pub timeframe: Option<Timeframe>,
    /// Generated, not a real market.
    pub synthetic: bool,
    /// Name of the exchange calendar.
    pub calendar: String,
    /// Names of the labels of symbols.
    pub labels: Vec<String>,
    /// Splits and dividends.
    pub factors: u64,
    /// The instant up to which the data are complete.
    pub complete_to: Option<TimeMicros>,
    /// Number of symbols.
    pub symbols: u64,
    /// Bars of all symbols.
    pub bars: u64,
    /// Earliest bar.
    pub first_time: Option<TimeMicros>,
    /// Latest bar.
    pub last_time: Option<TimeMicros>,
    /// Why the dataset cannot be opened.
    pub problem: Option<String>,
}

impl Store {
    /// Datasets under `root`, which is read only on request.
    pub fn new(root: PathBuf) -> Self {
        Self { root, remote: None, grace: GRACE_DEFAULT, kept: None }
    }

    /// Datasets in an object store, whose files are kept in a cache on this machine. The store is not asked anything yet.
    ///
    /// # Errors
    /// [`MarketError::Io`] when the folder of the cache cannot be used.
    pub fn in_objects(objects: Arc<dyn Objects>, cache: &CacheOptions) -> Result<Self, MarketError> {
        let remote = RemoteRoot::open(objects, cache)?;
        Ok(Self { root: remote.beside(), remote: Some(Arc::new(remote)), grace: GRACE_DEFAULT, kept: None })
    }

    /// For a server: it reads the manifest of a snapshot once, however often it is opened. The newest snapshot is looked up every
    /// time.
    #[must_use]
    pub fn keeping(self) -> Self {
        Self { kept: Some(Arc::default()), ..self }
    }

    /// Removals of this store delete files from an object store only so long after the last snapshot that names them was removed, at
    /// most [`crate::GRACE_MAX`]. A directory has locks instead.
    #[must_use]
    pub fn deleting_after(self, grace: Duration) -> Self {
        Self { grace: grace.min(GRACE_MAX), ..self }
    }

    /// Where the datasets are, for messages.
    pub fn address(&self) -> String {
        match &self.remote {
            Some(remote) => remote.objects.address().to_owned(),
            None => self.root.display().to_string(),
        }
    }

    /// Whether the datasets are in an object store, and this machine keeps copies of their files.
    pub fn keeps_copies(&self) -> bool {
        self.remote.is_some()
    }

    pub(crate) fn remote(&self) -> Option<&Arc<RemoteRoot>> {
        self.remote.as_ref()
    }

    /// The files of a dataset whose name has been checked.
    pub(crate) fn files(&self, name: &str) -> Files {
        match &self.remote {
            Some(root) => Files::Remote(RemoteDataset { root: Arc::clone(root), name: name.to_owned(), staged: None }),
            None => Files::Directory(self.directory(name)),
        }
    }

    /// Where the files of a new snapshot go; `existing` is the dataset as it is, if it exists.
    pub(crate) fn sink(&self, name: &str, existing: Option<&Dataset>) -> Result<Sink, MarketError> {
        let name = name.to_owned();
        let Some(root) = &self.remote else {
            return Ok(Sink::in_directory(self.directory(&name), name, None));
        };
        let known = existing.map(|existing| existing.manifest.file_paths()).unwrap_or_default();
        let staged = Arc::new(Staging::new(&self.root, known)?);
        let path = staged.path().to_owned();
        let remote = Some(RemoteDataset { root: Arc::clone(root), name: name.clone(), staged: Some(staged) });
        Ok(Sink::in_directory(path, name, remote))
    }

    fn kept(&self) -> Option<MutexGuard<'_, VecDeque<Dataset>>> {
        self.kept.as_ref().map(|kept| kept.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Directory of a dataset whose name has been checked.
    pub(crate) fn directory(&self, name: &str) -> PathBuf {
        debug_assert!(check_dataset_name(name).is_ok());
        self.root.join(name)
    }

    /// Opens and pins `NAME` (its newest snapshot) or `NAME@SNAPSHOT` (a prefix of at least 8 digits will do).
    ///
    /// # Errors
    /// [`MarketError::BadName`] for anything else (paths and URLs too), [`MarketError::UnknownDataset`] with the
    /// nearest name, [`MarketError::UnknownSnapshot`], [`MarketError::AmbiguousSnapshot`];
    /// [`MarketError::Checksum`] and [`MarketError::Corrupt`] when the manifest is damaged.
    pub fn open(&self, reference: &str) -> Result<Dataset, MarketError> {
        let (name, prefix) = split_reference(reference)?;
        if let Some(dataset) = bundled::open(name) {
            let dataset = dataset?;
            return match prefix {
                Some(prefix) if !dataset.manifest.snapshot.starts_with(prefix) => {
                    Err(MarketError::UnknownSnapshot { dataset: name.to_owned(), prefix: prefix.to_owned() })
                }
                _ => Ok(dataset),
            };
        }
        let Some(prefix) = prefix else { return self.open_newest(name) };
        let snapshot = self.full_id(name, prefix)?;
        self.open_snapshot(name, snapshot)
    }

    /// The newest snapshot of a dataset that is imported into; `None` where there is no such dataset. Where nothing says which snapshot is the
    /// newest, a single one is: the process that made it was killed before it said so.
    ///
    /// # Errors
    /// Those of [`Store::open`]; [`MarketError::Corrupt`] where nothing says which of several snapshots is the newest.
    pub fn open_for_import(&self, name: &str) -> Result<Option<Dataset>, MarketError> {
        match self.open(name) {
            Ok(dataset) => Ok(Some(dataset)),
            Err(MarketError::UnknownDataset { .. }) => Ok(None),
            Err(error @ MarketError::Corrupt { .. }) if self.head(name).is_ok_and(|head| head.is_none()) => {
                match <[String; 1]>::try_from(self.left_without_head(name)?) {
                    Ok([only]) => self.open_snapshot(name, only).map(Some),
                    Err(_) => Err(error),
                }
            }
            Err(error) => Err(error),
        }
    }

    /// The newest snapshot of a dataset. One that is removed between looking it up and opening it is no longer the newest.
    fn open_newest(&self, name: &str) -> Result<Dataset, MarketError> {
        let newest = || self.head(name)?.ok_or_else(|| self.without_head(name));
        let mut snapshot = newest()?;
        for _ in 0..NEWEST_READS_MAX {
            let opened = self.open_snapshot(name, snapshot.clone());
            if !matches!(opened, Err(MarketError::UnknownSnapshot { .. })) {
                return opened;
            }
            let later = newest()?;
            if later == snapshot {
                return opened;
            }
            snapshot = later;
        }
        self.open_snapshot(name, snapshot)
    }

    fn open_snapshot(&self, name: &str, snapshot: String) -> Result<Dataset, MarketError> {
        let same = |d: &Dataset| d.manifest.name == name && d.manifest.snapshot == snapshot;
        if let Some(known) = self.kept().and_then(|kept| kept.iter().find(|d| same(d)).cloned()) {
            return Ok(known);
        }
        let files = self.files(name);
        let (manifest, tails, file) = open_manifest(&files, name, &snapshot).map_err(|error| match error {
            MarketError::Gone { file, .. } if file.ends_with(&manifest_path(&snapshot)) => {
                MarketError::UnknownSnapshot { dataset: name.to_owned(), prefix: snapshot.clone() }
            }
            error => error,
        })?;
        let dataset = Dataset::new(manifest, files).with_tails(tails);
        if let Some(mut kept) = self.kept() {
            kept.push_front(dataset.clone());
            kept.truncate(KEPT_MAX);
            return Ok(dataset);
        }
        if self.remote.is_some() {
            return Ok(dataset.reading(file));
        }
        // Deleting a snapshot needs this lock. A server keeps datasets open for good: its scans pin the snapshots
        // instead.
        let locked = file.try_lock_shared();
        if matches!(locked, Err(fs::TryLockError::WouldBlock))
            || !self.directory(name).join(manifest_path(&snapshot)).is_file()
        {
            return Err(MarketError::UnknownSnapshot { dataset: name.to_owned(), prefix: snapshot });
        }
        Ok(dataset.reading(file))
    }

    /// The snapshot whose id begins with these digits.
    pub(crate) fn full_id(&self, name: &str, prefix: &str) -> Result<String, MarketError> {
        let mut found = match &self.remote {
            // Its manifest says whether there is such a snapshot.
            Some(_) if prefix.len() == HEX_DIGITS => return Ok(prefix.to_owned()),
            Some(remote) => remote.snapshots(name)?,
            None => {
                let directory = self.directory(name);
                if !directory.is_dir() {
                    return Err(self.unknown(name));
                }
                if prefix.len() == HEX_DIGITS && directory.join(manifest_path(prefix)).is_file() {
                    return Ok(prefix.to_owned());
                }
                snapshots(&directory)
            }
        };
        if found.is_empty() && self.remote.is_some() {
            return Err(self.unknown(name));
        }
        found.retain(|s| s.starts_with(prefix));
        let (dataset, prefix) = (name.to_owned(), prefix.to_owned());
        match found.len() {
            0 => Err(MarketError::UnknownSnapshot { dataset, prefix }),
            1 => Ok(found.remove(0)),
            count => Err(MarketError::AmbiguousSnapshot { dataset, prefix, count }),
        }
    }

    /// Opens `NAME`, or if it has bars of another length its sibling `NAME-TIMEFRAME` (`demo-1m` beside `demo`) if that
    /// exists. Without a sibling, and for `NAME@SNAPSHOT`, `NAME` itself is opened: check its timeframe.
    ///
    /// # Errors
    /// Those of [`Store::open`].
    pub fn sibling(&self, reference: &str, timeframe: Timeframe) -> Result<Dataset, MarketError> {
        let dataset = self.open(reference)?;
        let has = dataset.manifest.timeframe;
        let same = has == timeframe || (has.minutes().is_some() && has.minutes() == timeframe.minutes());
        if same || reference.contains('@') {
            return Ok(dataset);
        }
        match self.open(&format!("{reference}-{timeframe}")) {
            Ok(sibling) => Ok(sibling),
            Err(MarketError::UnknownDataset { .. } | MarketError::BadName { .. }) => Ok(dataset),
            Err(other) => Err(other),
        }
    }

    /// All datasets, bundled ones first, then by name; one that cannot be opened contains the reason.
    ///
    /// # Errors
    /// [`MarketError::Io`] when the data root exists but cannot be listed; [`MarketError::DataRoot`].
    pub fn list(&self) -> Result<Vec<DatasetSummary>, MarketError> {
        let bundled = |name: &&str| bundled::open(name).map(|opened| summary(name, true, 1, opened));
        let mut list: Vec<DatasetSummary> = BUNDLED.iter().filter_map(bundled).collect();
        for name in self.names()? {
            let kept = self.snapshots_of(&name).map_or(0, |snapshots| snapshots.len());
            let opened = self.open(&name);
            // A bucket's dataset that was removed, of which something is left.
            if self.remote.is_none() || !matches!(opened, Err(MarketError::UnknownDataset { .. })) {
                list.push(summary(&name, false, kept, opened));
            }
        }
        Ok(list)
    }

    /// The datasets under the root and the ids of their newest snapshots, none of which is opened.
    ///
    /// # Errors
    /// [`MarketError::Io`] when the data root exists but cannot be listed; [`MarketError::DataRoot`].
    pub fn newest_snapshots(&self) -> Result<BTreeMap<String, String>, MarketError> {
        let mut newest = BTreeMap::new();
        for name in self.names()? {
            if let Some(snapshot) = self.head(&name)? {
                newest.insert(name, snapshot);
            }
        }
        Ok(newest)
    }

    /// The id of a dataset's newest snapshot, which is not opened; `None` if there is no such dataset under the root.
    ///
    /// # Errors
    /// [`MarketError::Io`], [`MarketError::Corrupt`], [`MarketError::DataRoot`].
    pub fn newest_snapshot(&self, name: &str) -> Result<Option<String>, MarketError> {
        self.head(name)
    }

    /// Names of the datasets under the root, sorted. Other directory entries are skipped.
    pub(crate) fn names(&self) -> Result<Vec<String>, MarketError> {
        if let Some(remote) = &self.remote {
            let mut names = Vec::new();
            for name in remote.folders()? {
                if check_dataset_name(&name).is_ok() && !is_bundled(&name) && remote.is_dataset(&name)? {
                    names.push(name);
                }
            }
            names.sort_unstable();
            return Ok(names);
        }
        let shown = self.root.display().to_string();
        let entries = match fs::read_dir(&self.root) {
            Ok(entries) => entries,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(e) => return Err(MarketError::io("list the data root", shown)(e)),
        };
        let mut names = Vec::new();
        for entry in entries {
            let entry = entry.map_err(MarketError::io("list the data root", &shown))?;
            let Ok(name) = entry.file_name().into_string() else { continue };
            let named = check_dataset_name(&name).is_ok() && !is_bundled(&name);
            if named && (entry.path().join(HEAD).is_file() || entry.path().join("snapshots").is_dir()) {
                names.push(name);
            }
        }
        names.sort_unstable();
        Ok(names)
    }

    /// Ids of a dataset's snapshots, sorted.
    fn snapshots_of(&self, name: &str) -> Result<Vec<String>, MarketError> {
        match &self.remote {
            Some(remote) => remote.snapshots(name),
            None => Ok(snapshots(&self.directory(name))),
        }
    }

    /// The newest snapshot; `None` when the dataset does not exist.
    pub(crate) fn newest(&self, name: &str) -> Result<Option<Head>, MarketError> {
        match &self.remote {
            Some(remote) => remote.head(name),
            None => Ok(self.head(name)?.map(|snapshot| Head { snapshot, number: 0 })),
        }
    }

    /// Id of the newest snapshot; `None` when the dataset does not exist.
    pub(crate) fn head(&self, name: &str) -> Result<Option<String>, MarketError> {
        if let Some(remote) = &self.remote {
            return Ok(remote.head(name)?.map(|head| head.snapshot));
        }
        let shown = format!("{name}/{HEAD}");
        let text = match fs::read(self.directory(name).join(HEAD)) {
            Ok(text) => text,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(e) if e.kind() == std::io::ErrorKind::NotADirectory => return Ok(None),
            Err(e) => return Err(MarketError::io("read", shown)(e)),
        };
        let id = String::from_utf8_lossy(&text).trim_end().to_owned();
        if !is_digest(&id) {
            let why = "it should contain the 64 hex digits of a snapshot id".to_owned();
            return Err(MarketError::Corrupt { file: shown, why });
        }
        Ok(Some(id))
    }

    /// The error when HEAD is missing: the dataset does not exist, or its HEAD was lost.
    fn without_head(&self, name: &str) -> MarketError {
        let snapshots = match self.left_without_head(name) {
            Ok(snapshots) => snapshots,
            Err(error) => return error,
        };
        match snapshots.last() {
            None => self.unknown(name),
            Some(any) => MarketError::Corrupt {
                file: format!("{name}/{HEAD}"),
                why: format!(
                    "it is missing; an existing snapshot can be opened by its id, as in {name}@{}",
                    &any[..12]
                ),
            },
        }
    }

    /// Ids of the snapshots of a dataset whose HEAD is missing; none of a dataset that was removed.
    fn left_without_head(&self, name: &str) -> Result<Vec<String>, MarketError> {
        match &self.remote {
            Some(remote) if remote.was_removed(name)? => Ok(Vec::new()),
            _ => self.snapshots_of(name),
        }
    }

    pub(crate) fn unknown(&self, name: &str) -> MarketError {
        let names = self.names().unwrap_or_default();
        let candidates = names.iter().map(String::as_str).chain(BUNDLED);
        MarketError::UnknownDataset {
            name: name.to_owned(),
            root: self.address(),
            suggestion: suggest(name, candidates).map(str::to_owned),
        }
    }
}

fn summary(name: &str, bundled: bool, snapshots: usize, opened: Result<Dataset, MarketError>) -> DatasetSummary {
    let manifest = opened.as_ref().ok().map(|d| &*d.manifest);
    DatasetSummary {
        name: name.to_owned(),
        bundled,
        snapshot: manifest.map(|m| m.snapshot.clone()).unwrap_or_default(),
        snapshots,
        timeframe: manifest.map(|m| m.timeframe),
        synthetic: manifest.is_some_and(|m| m.synthetic),
        calendar: manifest.map(|m| m.calendar().name().to_owned()).unwrap_or_default(),
        labels: manifest.map(|m| m.labels().to_vec()).unwrap_or_default(),
        factors: manifest.and_then(|m| m.factors.as_ref()).map_or(0, |f| f.rows),
        complete_to: manifest.map(|m| m.complete_to()),
        symbols: manifest.map_or(0, |m| m.symbols.len() as u64),
        bars: manifest.map_or(0, |m| m.bars),
        first_time: manifest.map(|m| m.first_time),
        last_time: manifest.map(|m| m.last_time),
        problem: opened.as_ref().err().map(ToString::to_string),
    }
}

/// Ids of the snapshots in a dataset's directory, sorted.
pub(crate) fn snapshots(directory: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(directory.join("snapshots")) else { return Vec::new() };
    let names = entries.flatten().filter_map(|e| e.file_name().into_string().ok());
    let mut ids: Vec<String> =
        names.filter_map(|n| n.strip_suffix(".json").map(str::to_owned)).filter(|id| is_digest(id)).collect();
    ids.sort_unstable();
    ids
}
