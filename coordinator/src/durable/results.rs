//! The result store: a directory or an object store that keeps the results of segments.
//!
//! Objects below `scans/{scan}/`: `document`, and per generation the groups of each stage, `g{n}/s{stage}/{epoch}-{number}.group`, the
//! last of which has the answer's first and last event. Earlier releases had these in `g{n}/accepted` and `g{n}/summary`, which are
//! still read. Everything is put if absent, so that two leaders never overwrite each
//! other; a retried put that finds its own bytes succeeds. Torn or modified objects are reported and count as absent:
//! their segments run again. Only the leader writes, which the ledger ensures, not this file.

use std::collections::BTreeMap;
use std::path::{Path as FilePath, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use futures::{StreamExt as _, TryStreamExt as _};
use object_store::local::LocalFileSystem;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStore, ObjectStoreExt as _, PutMode, PutOptions, PutPayload};
use trawl_objects::{Address, Environment};
use trawl_telemetry::metrics::catalogue::coordinator::{
    RESULT_PUT_BYTES, RESULT_PUT_DURATION, RESULT_PUT_FAILURES, RESULTS_HELD,
};
use trawl_telemetry::metrics::current_trace;

use super::group::{
    AnswerEnds, Group, GroupName, Kind, OBJECT_BYTES_MAX, Outcome, Stored, decode_group, encode_group, seal, unseal,
};
use super::records::is_scan_id;
use super::store_error::StoreError;

/// Number of objects read or deleted concurrently.
const CALLS_AT_ONCE: usize = 8;
/// What the names of files contain that are being written.
const PARTIAL_FILE_MARK: char = '#';
/// Folder of all scans.
const SCANS: &str = "scans";

/// An object of a scan that is not a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Named {
    /// The scan's document, if it is too long for the header.
    Document,
    /// The first event of a generation for clients, of an earlier release.
    Accepted(u32),
    /// The last event of a generation for clients, of an earlier release.
    Summary(u32),
}

impl Named {
    fn path(self) -> String {
        match self {
            Self::Document => "document".to_owned(),
            Self::Accepted(generation) => format!("g{generation}/accepted"),
            Self::Summary(generation) => format!("g{generation}/summary"),
        }
    }
}

/// An object that counts as absent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// Its path.
    pub object: String,
    /// Why it counts as damaged.
    pub why: String,
}

/// The stored outcomes of one stage.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct StageContents {
    /// By segment; if stored several times, the last one written by the latest leader.
    pub segments: BTreeMap<u32, Outcome>,
}

/// The stored outcomes of one generation of a scan.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ScanContents {
    /// By stage.
    pub stages: BTreeMap<u32, StageContents>,
    /// The answer's first and last event, if it is complete; of several the last one written by the latest leader.
    pub ends: Option<AnswerEnds>,
    /// Objects that count as absent.
    pub damaged: Vec<Damage>,
}

/// The objects of a scan, from a listing only.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ScanObjects {
    /// Number of objects, including damaged ones.
    pub objects: u64,
    /// Their bytes.
    pub bytes: u64,
    /// When the newest was written, microseconds since 1970 by the store's clock.
    pub newest_us: i64,
}

/// The store. Cheap to clone; may be used from many tasks.
#[derive(Clone)]
pub struct ResultStore {
    objects: Arc<dyn ObjectStore>,
    /// Address for messages; never contains a credential.
    shown: Arc<str>,
    /// The directory, if the store is one.
    root: Option<Arc<PathBuf>>,
}

/// The client of a store may have credentials, which the library shows.
impl std::fmt::Debug for ResultStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ResultStore").field("shown", &self.shown).finish_non_exhaustive()
    }
}

impl ResultStore {
    /// From a directory, `file:///DIRECTORY`, or the address of a bucket: `s3://`, `gs://`, `az://`. A missing directory is created; an object store
    /// is not contacted yet ([`ResultStore::probe`] does).
    ///
    /// # Errors
    /// [`StoreError::Address`]; [`StoreError::Denied`] and the like for a directory that cannot be made.
    pub fn open(address: &str) -> Result<Self, StoreError> {
        match Address::parse(address)? {
            Address::Directory(path) => Self::directory(&path),
            Address::Bucket(bucket) => {
                Ok(Self::over(trawl_objects::open_bucket(&bucket, &Environment::of_process())?, &bucket.to_string()))
            }
        }
    }

    /// A directory of this machine, or one that is mounted. Files and their directories are synced before a put
    /// returns.
    ///
    /// # Errors
    /// [`StoreError`] when it cannot be made or opened.
    pub fn directory(path: &FilePath) -> Result<Self, StoreError> {
        let shown = format!("file://{}", path.display());
        let failed = |source: std::io::Error| {
            StoreError::of(&object_store::Error::Generic { store: "directory", source: Box::new(source) }, &shown)
        };
        std::fs::create_dir_all(path).map_err(failed)?;
        let root = path.canonicalize().map_err(failed)?;
        // Its rename or link is atomic; with fsync it syncs the file before and the directories after.
        let objects = LocalFileSystem::new_with_prefix(&root).map_err(|e| StoreError::of(&e, &shown))?.with_fsync(true);
        Ok(Self { objects: Arc::new(objects), shown: shown.into(), root: Some(Arc::new(root)) })
    }

    /// In memory, for tests: gone with the process.
    pub fn memory() -> Self {
        Self::over(Arc::new(InMemory::new()), "memory")
    }

    /// Over any object store; `shown` names it in messages and must not contain a credential.
    pub fn over(objects: Arc<dyn ObjectStore>, shown: &str) -> Self {
        Self { objects, shown: shown.into(), root: None }
    }

    /// Address for messages.
    pub fn shown(&self) -> &str {
        &self.shown
    }

    /// Whether it is a directory, which other machines may not see.
    pub fn is_local(&self) -> bool {
        self.root.is_some()
    }

    /// Writes, reads, lists and deletes an object: checks that the store works before a scan depends on it.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn probe(&self, name: &str) -> Result<(), StoreError> {
        let path = Path::from(format!("probe/{name}"));
        let bytes = Bytes::from(seal(Kind::Named, b"probe"));
        self.put_if_absent(&path, bytes, Kind::Named).await?;
        let found = self.objects.list(Some(&Path::from("probe"))).map_ok(|meta| meta.location);
        let found: Vec<Path> = found.try_collect().await.map_err(|e| self.error(&e))?;
        if !found.contains(&path) {
            let cause = format!("{path} was written and is not listed: a store must list what it holds at once");
            return Err(StoreError::Unreachable { store: self.shown.to_string(), cause });
        }
        self.objects.delete(&path).await.map_err(|e| self.error(&e))
    }

    /// Makes the directory of a stage's groups, if the store is one: a put that finds no directory makes and syncs each of its
    /// parents, in the time that a client waits for the end of its scan. A failure here is left to the put to report.
    pub(super) async fn make_directory(&self, scan: &str, generation: u32, stage: u32) {
        let Some(root) = self.root.clone().filter(|_| is_scan_id(scan)) else { return };
        let scan = scan.to_owned();
        let made = tokio::task::spawn_blocking(move || {
            let mut directory = root.join(SCANS);
            for name in [scan, format!("g{generation}"), format!("s{stage}")] {
                let parent = directory.clone();
                directory.push(name);
                std::fs::create_dir(&directory).or_else(|error| match error.kind() {
                    std::io::ErrorKind::AlreadyExists => Ok(()),
                    _ => Err(error),
                })?;
                // Also of one that was there: whoever made it may have been killed before this.
                std::fs::File::open(&parent)?.sync_all()?;
            }
            Ok::<_, std::io::Error>(())
        });
        if let Ok(Err(error)) = made.await {
            tracing::debug!(%error, "the directory of a scan's results is not there yet");
        }
    }

    /// Stores a group. Storing the same again is no error.
    ///
    /// # Errors
    /// [`StoreError`]; [`StoreError::Conflict`] if another group has its name, which one leader never uses twice.
    pub async fn put_group(
        &self,
        scan: &str,
        generation: u32,
        name: GroupName,
        segments: &[Stored],
    ) -> Result<(), StoreError> {
        self.put_group_with(scan, generation, name, segments, None).await
    }

    /// As [`ResultStore::put_group`], with the ends of the answer if it is the last group of a generation.
    ///
    /// # Errors
    /// Those of [`ResultStore::put_group`].
    pub(super) async fn put_group_with(
        &self,
        scan: &str,
        generation: u32,
        name: GroupName,
        segments: &[Stored],
        ends: Option<&AnswerEnds>,
    ) -> Result<(), StoreError> {
        let path = self.path(scan, &format!("g{generation}/{}", name.path()))?;
        let bytes = Bytes::from(encode_group(scan, generation, name, segments, ends));
        match self.put_if_absent(&path, bytes, Kind::Group).await? {
            None => Ok(()),
            Some(_) => Err(StoreError::Conflict { object: path.to_string() }),
        }
    }

    /// Stores an object of a scan, unless it exists; the existing content is then kept and returned.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn put_named(&self, scan: &str, named: Named, content: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        let path = self.path(scan, &named.path())?;
        let other = self.put_if_absent(&path, Bytes::from(seal(Kind::Named, content)), Kind::Named).await?;
        Ok(other.and_then(|bytes| unseal(Kind::Named, &bytes).ok().map(<[u8]>::to_vec)))
    }

    /// Reads an object of a scan; `None` when it is not there.
    ///
    /// # Errors
    /// [`StoreError::Damaged`], or that the store cannot be read.
    pub async fn named(&self, scan: &str, named: Named) -> Result<Option<Vec<u8>>, StoreError> {
        let path = self.path(scan, &named.path())?;
        let Some(bytes) = self.read(&path).await? else { return Ok(None) };
        match unseal(Kind::Named, &bytes) {
            Ok(content) => Ok(Some(content.to_vec())),
            Err(why) => Err(StoreError::Damaged { object: path.to_string(), why }),
        }
    }

    /// Bytes of the groups of a generation, from a listing.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn stored_bytes(&self, scan: &str, generation: u32) -> Result<u64, StoreError> {
        let folder = self.path(scan, &format!("g{generation}"))?;
        let listed = self.objects.list(Some(&folder)).map_err(|e| self.error(&e));
        listed.try_fold(0u64, |sum, meta| futures::future::ready(Ok(sum.saturating_add(meta.size)))).await
    }

    /// Reads every group of a generation.
    ///
    /// # Errors
    /// [`StoreError`] when the store cannot be listed or read; damaged objects are not errors.
    pub async fn contents(&self, scan: &str, generation: u32) -> Result<ScanContents, StoreError> {
        self.read_groups(scan, generation, |_| true).await
    }

    /// Reads the groups of one stage.
    ///
    /// # Errors
    /// As [`ResultStore::contents`].
    pub async fn stage(&self, scan: &str, generation: u32, stage: u32) -> Result<ScanContents, StoreError> {
        self.read_groups(scan, generation, |name| name.stage == stage).await
    }

    async fn read_groups(
        &self,
        scan: &str,
        generation: u32,
        wanted: impl Fn(&GroupName) -> bool,
    ) -> Result<ScanContents, StoreError> {
        let groups = self.list_groups(scan, generation, wanted).await?;
        let read = futures::stream::iter(groups).map(|(name, meta)| async move {
            let found = self.read_group(scan, generation, name, &meta).await?;
            Ok::<_, StoreError>((name, meta.location, found))
        });
        let mut read = read.buffered(CALLS_AT_ONCE);
        let mut contents = ScanContents::default();
        while let Some((name, location, found)) = read.try_next().await? {
            match found {
                None => {}
                Some(Ok(Group { segments, ends })) => {
                    contents.ends = ends.or(contents.ends);
                    if !segments.is_empty() {
                        let stage = contents.stages.entry(name.stage).or_default();
                        stage.segments.extend(segments.into_iter().map(|s| (s.segment, s.outcome)));
                    }
                }
                Some(Err(why)) => {
                    let object = location.to_string();
                    tracing::warn!(object, why, "a damaged object of the result store counts as absent");
                    contents.damaged.push(Damage { object, why });
                }
            }
        }
        Ok(contents)
    }

    /// The groups of a generation, those of the latest leader last.
    async fn list_groups(
        &self,
        scan: &str,
        generation: u32,
        wanted: impl Fn(&GroupName) -> bool,
    ) -> Result<Vec<(GroupName, ObjectMeta)>, StoreError> {
        let folder = self.path(scan, &format!("g{generation}"))?;
        let prefix = format!("{folder}/");
        let listed: Vec<ObjectMeta> =
            self.objects.list(Some(&folder)).try_collect().await.map_err(|e| self.error(&e))?;
        let parse = |meta: ObjectMeta| {
            let name = GroupName::parse(meta.location.as_ref().strip_prefix(&prefix)?)?;
            wanted(&name).then_some((name, meta))
        };
        let mut groups: Vec<(GroupName, ObjectMeta)> = listed.into_iter().filter_map(parse).collect();
        // Later leaders, and later groups of one leader, override earlier ones.
        groups.sort_by_key(|(name, _)| *name);
        Ok(groups)
    }

    /// A group, or why it is damaged; `None` if it is gone since it was listed: the scan is being deleted.
    async fn read_group(
        &self,
        scan: &str,
        generation: u32,
        name: GroupName,
        meta: &ObjectMeta,
    ) -> Result<Option<Result<Group, String>>, StoreError> {
        if meta.size > OBJECT_BYTES_MAX {
            return Ok(Some(Err(format!("it has {} bytes, at most {OBJECT_BYTES_MAX} are written", meta.size))));
        }
        let bytes = self.read(&meta.location).await?;
        Ok(bytes.map(|bytes| decode_group(scan, generation, name, &bytes)))
    }

    /// The answer's first and last event, without its results where these are large: [`ScanContents::ends`].
    ///
    /// # Errors
    /// [`StoreError`]; a damaged object counts as absent.
    pub async fn ends(&self, scan: &str, generation: u32) -> Result<Option<AnswerEnds>, StoreError> {
        for (name, meta) in self.list_groups(scan, generation, |_| true).await?.into_iter().rev() {
            if let Some(Ok(Group { ends: Some(ends), .. })) = self.read_group(scan, generation, name, &meta).await? {
                return Ok(Some(ends));
            }
        }
        Ok(None)
    }

    /// All scans that have objects here.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn scans(&self) -> Result<BTreeMap<String, ScanObjects>, StoreError> {
        let mut scans: BTreeMap<String, ScanObjects> = BTreeMap::new();
        let mut listed = self.objects.list(Some(&Path::from(SCANS)));
        while let Some(meta) = listed.try_next().await.map_err(|e| self.error(&e))? {
            let mut parts = meta.location.as_ref().split('/').skip(1);
            let Some(scan) = parts.next().filter(|scan| is_scan_id(scan)) else { continue };
            let known = scans.entry(scan.to_owned()).or_default();
            known.objects += 1;
            known.bytes += meta.size;
            known.newest_us = known.newest_us.max(meta.last_modified.timestamp_micros());
        }
        Ok(scans)
    }

    /// Deletes every object of a scan; returns how many there were.
    ///
    /// # Errors
    /// [`StoreError`]; deletions are kept, and a further call continues.
    pub async fn delete_scan(&self, scan: &str) -> Result<u64, StoreError> {
        let folder = self.path(scan, "")?;
        if let Some(root) = &self.root {
            // In one call: a sweep deletes many scans, and each blocking call that is under way takes a thread. It also
            // removes partial files of a crash, which are not listed, and empty directories, which are not objects.
            let directory = root.join(SCANS).join(scan);
            let removed = tokio::task::spawn_blocking(move || remove_directory(&directory)).await;
            let removed = removed.unwrap_or_else(|error| Err(std::io::Error::other(error)));
            return removed.map_err(|error| {
                self.error(&object_store::Error::Generic { store: "directory", source: Box::new(error) })
            });
        }
        let listed = self.objects.list(Some(&folder)).map_err(|e| self.error(&e));
        let delete = |meta: ObjectMeta| async move {
            match self.objects.delete(&meta.location).await {
                Ok(()) => Ok(1),
                // Deleted by an earlier try of ours.
                Err(object_store::Error::NotFound { .. }) => Ok(0),
                Err(error) => Err(self.error(&error)),
            }
        };
        let deleted = listed.map_ok(delete).try_buffer_unordered(CALLS_AT_ONCE);
        deleted.try_fold(0, |sum, one| futures::future::ready(Ok(sum + one))).await
    }

    /// Puts an object if it is absent. `None`: it is stored with these bytes. `Some`: another intact object exists, and
    /// is kept.
    async fn put_if_absent(&self, path: &Path, bytes: Bytes, kind: Kind) -> Result<Option<Bytes>, StoreError> {
        if bytes.len() as u64 > OBJECT_BYTES_MAX {
            let (object, found) = (path.to_string(), bytes.len() as u64);
            return Err(StoreError::TooLarge { object, found, limit: OBJECT_BYTES_MAX });
        }
        match self.put(path, &bytes, PutMode::Create).await {
            Ok(()) => return Ok(None),
            Err(object_store::Error::AlreadyExists { .. } | object_store::Error::Precondition { .. }) => {}
            Err(error) => return Err(self.error(&error)),
        }
        let present = self.read(path).await?.unwrap_or_default();
        match unseal(kind, &present) {
            Ok(_) if present == bytes && !self.is_local() => Ok(None),
            Ok(_) if present != bytes => Ok(Some(present)),
            // Torn, so it counts as absent; or our own, but the try that wrote it may not have synced its directory.
            _ => self.put(path, &bytes, PutMode::Overwrite).await.map(|()| None).map_err(|e| self.error(&e)),
        }
    }

    async fn put(&self, path: &Path, bytes: &Bytes, mode: PutMode) -> Result<(), object_store::Error> {
        // The log has the results too: this is their copy in the store's format.
        let _held = Held::of(bytes.len());
        let (payload, asked) = (PutPayload::from(bytes.clone()), Instant::now());
        let put = self.objects.put_opts(path, payload, PutOptions::from(mode)).await.map(|_| ());
        RESULT_PUT_DURATION.observe((), asked.elapsed(), current_trace());
        match &put {
            Ok(()) => RESULT_PUT_BYTES.add(bytes.len() as u64),
            // An object that already exists is not an error.
            Err(object_store::Error::AlreadyExists { .. } | object_store::Error::Precondition { .. }) => {}
            Err(_) => RESULT_PUT_FAILURES.inc(),
        }
        put
    }

    /// The object's bytes; `None` when it is not there. An object longer than any that is written is truncated, and so
    /// counts as damaged.
    async fn read(&self, path: &Path) -> Result<Option<Bytes>, StoreError> {
        let found = match self.objects.get(path).await {
            Ok(found) => found,
            Err(object_store::Error::NotFound { .. }) => return Ok(None),
            Err(error) => return Err(self.error(&error)),
        };
        if found.meta.size > OBJECT_BYTES_MAX {
            return Ok(Some(Bytes::new()));
        }
        found.bytes().await.map(Some).map_err(|e| self.error(&e))
    }

    fn path(&self, scan: &str, below: &str) -> Result<Path, StoreError> {
        if !is_scan_id(scan) {
            let (object, why) = (format!("{SCANS}/..."), "its scan's id is none".to_owned());
            return Err(StoreError::Damaged { object, why });
        }
        Ok(Path::from(format!("{SCANS}/{scan}/{below}")))
    }

    fn error(&self, error: &object_store::Error) -> StoreError {
        StoreError::of(error, &self.shown)
    }
}

/// Bytes of an object on its way to the store, counted while this lives.
struct Held(i64);

impl Held {
    fn of(bytes: usize) -> Self {
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        RESULTS_HELD.add(bytes);
        Self(bytes)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        RESULTS_HELD.add(-self.0);
    }
}

/// Removes a directory with everything in it; returns the number of objects, which partial files of a crash are not. None
/// is no error.
fn remove_directory(directory: &FilePath) -> std::io::Result<u64> {
    fn count(directory: &FilePath) -> std::io::Result<u64> {
        let mut files = 0;
        for entry in std::fs::read_dir(directory)? {
            let entry = entry?;
            let is_object = || !entry.file_name().to_string_lossy().contains(PARTIAL_FILE_MARK);
            files += if entry.file_type()?.is_dir() { count(&entry.path())? } else { u64::from(is_object()) };
        }
        Ok(files)
    }
    let removed = count(directory).and_then(|files| std::fs::remove_dir_all(directory).map(|()| files));
    match removed {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(0),
        removed => removed,
    }
}

#[cfg(test)]
#[path = "results_tests.rs"]
mod tests;
