//! The objects of a data root in a bucket, for threads that compute.
//!
//! Those threads are not of an async runtime, and wait for what a runtime of its own does. Objects are fetched in parts, a few of them
//! in advance: a part that fails, or is cut off, is asked for again, not the whole object. Whatever may pass is tried again with growing
//! waits, but no longer than [`PATIENCE`] after the first failure: then the scheduler's attempts take over, which may be elsewhere.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{Read as _, Seek as _, Write};
use std::ops::Range;
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use object_store::path::Path;
use object_store::{
    GetOptions, GetRange, ListResult, ObjectStore, ObjectStoreExt as _, PutMode, PutMultipartOptions, PutOptions,
    PutPayload,
};
use tokio::runtime::Runtime;
use tokio::sync::Semaphore;
use trawl_cluster_store::Backoff;
use trawl_market::{CacheEvent, Deadline, ListedFolder, ListedObject, Objects, ObjectsError};
use trawl_objects::{AddressError, BucketAddress, Environment, Trouble, TroubleKind, open_bucket, time_limit};
use trawl_telemetry::metrics::catalogue::worker::{
    CACHE_DAMAGED, CACHE_EVICTIONS, CACHE_FETCH_TIME, CACHE_FETCHED, CACHE_HITS, CACHE_MISSES, CACHE_RESIDENT,
    CacheLevel, DATA_ROOT_FAILURES,
};
use trawl_wire::limits::bounded_reason;

/// How long a call is tried again after its first failure.
const PATIENCE: Duration = Duration::from_secs(25);
/// Bytes of an answer whose size is not known when it is asked for: a head, a manifest, a listing.
const SMALL_BYTES: u64 = 4 << 20;
/// Waits between tries.
const WAITS: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(4));
/// Bytes of a part of an object that is fetched.
const PART_BYTES: u64 = 4 << 20;
/// Parts of one object that are asked for at once.
const PARTS_AT_ONCE: usize = 4;
/// Bytes between two ranges of an object that are asked for together: as long as they take, another request takes.
const GAP_BYTES_MAX: u64 = 64 << 10;
/// Ranges of one object that are asked for at once.
const RANGES_AT_ONCE: usize = 8;
/// Requests of this process at once: more would share the same bandwidth, and each take longer than it may.
const REQUESTS_AT_ONCE: usize = 16;
/// Bytes of a part of an object that is put; S3 takes at least 5 MiB. A shorter object is put at once.
const PUT_PART_BYTES: u64 = 16 << 20;
/// Parts that an object may have.
const PUT_PARTS_MAX: u64 = 10_000;
/// Threads of the runtime: they wait, and copy.
const RUNTIME_THREADS: usize = 2;

/// The runtime of all requests of this process.
fn runtime() -> Result<&'static Runtime, ObjectsError> {
    static RUNTIME: OnceLock<Result<Runtime, String>> = OnceLock::new();
    let made = RUNTIME.get_or_init(|| {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        builder.worker_threads(RUNTIME_THREADS).thread_name("trawl-objects").enable_all();
        builder.build().map_err(|error| error.to_string())
    });
    made.as_ref().map_err(|why| ObjectsError::Store(format!("the threads for its requests cannot be started: {why}")))
}

static PERMITS: Semaphore = Semaphore::const_new(REQUESTS_AT_ONCE);

/// Bytes of an object, and its size.
type Part = Result<(bytes::Bytes, u64), Trouble>;

/// What a request gives, later.
struct Asked<T>(Receiver<T>);

impl<T: Send + 'static> Asked<T> {
    fn new(request: impl Future<Output = T> + Send + 'static) -> Result<Self, ObjectsError> {
        let (sender, receiver) = sync_channel(1);
        runtime()?.spawn(async move {
            // Whoever asked may have given up.
            let _ = sender.send(request.await);
        });
        Ok(Self(receiver))
    }

    fn wait(self) -> Result<T, ObjectsError> {
        self.0.recv().map_err(|_| ObjectsError::Store("internal error: a request ended by itself".to_owned()))
    }
}

/// Calls, each time with so many bytes sent or received, until it succeeds, fails for good, or has failed for too long.
async fn tried<T, F>(bytes: u64, call: impl Fn() -> F) -> Result<T, Trouble>
where
    F: Future<Output = Result<T, Trouble>>,
{
    let (limit, mut backoff) = (time_limit(bytes), Backoff::new(WAITS.0, WAITS.1));
    let mut failing_since = None;
    loop {
        let done = {
            // It is never closed.
            let _permit = PERMITS.acquire().await;
            let late = |_| {
                let cause = format!("no answer within {} s", limit.as_secs());
                Err(Trouble { kind: TroubleKind::Unreachable, cause })
            };
            tokio::time::timeout(limit, call()).await.unwrap_or_else(late)
        };
        match done {
            Err(Trouble { kind: TroubleKind::Unreachable, cause }) => {
                DATA_ROOT_FAILURES.inc();
                if failing_since.get_or_insert_with(Instant::now).elapsed() >= PATIENCE {
                    return Err(Trouble { kind: TroubleKind::Unreachable, cause });
                }
                backoff.wait().await;
            }
            done => return done,
        }
    }
}

fn trouble(error: object_store::Error) -> Trouble {
    Trouble::of(&error)
}

/// Trouble as a sentence.
fn failed(Trouble { kind, cause }: Trouble) -> ObjectsError {
    let cause = bounded_reason(cause);
    ObjectsError::Store(match kind {
        TroubleKind::Denied => format!("it refuses this process: {cause}"),
        TroubleKind::Full => format!("it is full: {cause}"),
        TroubleKind::Absent | TroubleKind::Exists | TroubleKind::Unreachable => cause,
    })
}

/// A bucket with a prefix. Cheap to clone.
#[derive(Clone)]
pub(super) struct Bucket {
    objects: Arc<dyn ObjectStore>,
    address: Arc<str>,
}

/// The client of a store may have credentials, which the library shows.
impl std::fmt::Debug for Bucket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Bucket").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Bucket {
    /// By its address and this process's environment. No request is made yet.
    pub fn open(address: &BucketAddress) -> Result<Self, AddressError> {
        Ok(Self::of(open_bucket(address, &Environment::of_process())?, &address.to_string()))
    }

    /// By its client.
    pub fn of(objects: Arc<dyn ObjectStore>, address: &str) -> Self {
        Self { objects, address: address.into() }
    }

    /// What is directly in a folder.
    pub fn listed(&self, folder: &str) -> Result<ListResult, ObjectsError> {
        let list = |objects: Arc<dyn ObjectStore>, path: Path| async move {
            objects.list_with_delimiter(Some(&path).filter(|path| !path.as_ref().is_empty())).await
        };
        self.call((folder, SMALL_BYTES), list)?.wait()?.map_err(failed)
    }

    /// Asks for a listing.
    pub fn probe(&self) -> Result<(), Trouble> {
        let objects = Arc::clone(&self.objects);
        let list = move || {
            let objects = Arc::clone(&objects);
            async move { objects.list_with_delimiter(None).await.map(drop).map_err(trouble) }
        };
        let internal = |error: ObjectsError| Trouble { kind: TroubleKind::Unreachable, cause: format!("{error:?}") };
        Asked::new(async move { tried(SMALL_BYTES, list).await })
            .and_then(Asked::wait)
            .unwrap_or_else(|error| Err(internal(error)))
    }

    /// Runs a call of the store, which sends or receives so many bytes, on the runtime, with retries.
    fn call<T, F>(
        &self,
        (path, bytes): (&str, u64),
        call: impl Fn(Arc<dyn ObjectStore>, Path) -> F + Send + Sync + 'static,
    ) -> Result<Asked<Result<T, Trouble>>, ObjectsError>
    where
        T: Send + 'static,
        F: Future<Output = object_store::Result<T>> + Send,
    {
        // As it is: a listing names objects with percent signs, which are not to be encoded once more.
        let path = Path::parse(path).unwrap_or_else(|_| Path::from(path));
        let objects = Arc::clone(&self.objects);
        Asked::new(async move {
            tried(bytes, || {
                let done = call(Arc::clone(&objects), path.clone());
                async move { done.await.map_err(trouble) }
            })
            .await
        })
    }

    /// Bytes of a range, which may end behind the object, and the object's size; of no object with another tag.
    fn part(&self, path: &str, range: Range<u64>, tag: Option<Arc<str>>) -> Result<Asked<Part>, ObjectsError> {
        self.call((path, range.end.saturating_sub(range.start)), move |objects, path| {
            let (range, if_match) = (range.clone(), tag.as_deref().map(str::to_owned));
            async move {
                let options =
                    GetOptions { range: Some(GetRange::Bounded(range.clone())), if_match, ..GetOptions::default() };
                let found = objects.get_opts(&path, options).await?;
                let size = found.meta.size;
                let expected = range.end.min(size).saturating_sub(range.start);
                let bytes = found.bytes().await?;
                if bytes.len() as u64 != expected {
                    let message = format!("{} bytes of {path} came, not {expected}", bytes.len());
                    return Err(object_store::Error::Generic { store: "S3", source: message.into() });
                }
                Ok((bytes, size))
            }
        })
    }

    /// Writes the content of an object, if it has this tag; false where it is not there, or has another one.
    pub fn fetch_if(&self, path: &str, tag: Option<Arc<str>>, to: &mut dyn Write) -> Result<bool, ObjectsError> {
        let changed = |kind| [TroubleKind::Absent, TroubleKind::Exists].contains(&kind);
        let (first, size) = match self.part(path, 0..PART_BYTES, tag.clone())?.wait()? {
            Ok(first) => first,
            Err(trouble) if changed(trouble.kind) => return Ok(false),
            Err(trouble) => return Err(failed(trouble)),
        };
        let (mut next, mut asked) = (first.len() as u64, VecDeque::new());
        to.write_all(&first)?;
        while next < size || !asked.is_empty() {
            if next < size && asked.len() < PARTS_AT_ONCE {
                let end = size.min(next + PART_BYTES);
                asked.push_back(self.part(path, next..end, tag.clone())?);
                next = end;
            } else if let Some(part) = asked.pop_front() {
                match Asked::wait(part)? {
                    Ok((bytes, _)) => to.write_all(&bytes)?,
                    Err(trouble) if tag.is_some() && changed(trouble.kind) => return Ok(false),
                    Err(trouble) => return Err(failed(trouble)),
                }
            }
        }
        Ok(true)
    }

    /// Puts a long object, several parts at once. A part is tried again by the client of the store, the whole by the caller.
    fn put_parts(&self, path: &str, mut file: &File, size: u64) -> Result<(), ObjectsError> {
        let start = |objects: Arc<dyn ObjectStore>, path: Path| async move {
            objects.put_multipart_opts(&path, PutMultipartOptions::default()).await
        };
        let mut upload = self.call((path, 0), start)?.wait()?.map_err(failed)?;
        let part = PUT_PART_BYTES.max(size.div_ceil(PUT_PARTS_MAX));
        let (mut left, mut asked) = (size, VecDeque::new());
        let mut put = || {
            while left > 0 || !asked.is_empty() {
                if left > 0 && asked.len() < PARTS_AT_ONCE {
                    let mut bytes = vec![0; left.min(part) as usize];
                    file.read_exact(&mut bytes)?;
                    left -= bytes.len() as u64;
                    asked.push_back(Asked::new(upload.put_part(PutPayload::from(bytes)))?);
                } else if let Some(first) = asked.pop_front() {
                    Asked::wait(first)?.map_err(trouble).map_err(failed)?;
                }
            }
            Ok::<(), ObjectsError>(())
        };
        let done = put();
        Asked::new(async move {
            match done {
                Ok(()) => upload.complete().await.map(drop).map_err(trouble).map_err(failed),
                Err(error) => {
                    // What is left of it costs until the bucket's own rules delete it.
                    let _ = upload.abort().await;
                    Err(error)
                }
            }
        })?
        .wait()?
    }
}

/// One request for some ranges of an object, and what lies between them.
#[derive(Debug, PartialEq, Eq)]
struct RangeRequest {
    span: Range<u64>,
    ranges: Vec<Range<u64>>,
}

/// As few requests for ranges that ascend as there can be, without much that is not wanted: each is of at most [`PART_BYTES`].
fn requests_of(ranges: &[Range<u64>]) -> Vec<RangeRequest> {
    let mut requests: Vec<RangeRequest> = Vec::new();
    for range in ranges {
        let mut start = range.start;
        while start < range.end {
            let part = start..range.end.min(start + PART_BYTES);
            start = part.end;
            match requests.last_mut() {
                Some(last)
                    if part.start - last.span.end <= GAP_BYTES_MAX && part.end - last.span.start <= PART_BYTES =>
                {
                    last.span.end = part.end;
                    last.ranges.push(part);
                }
                _ => requests.push(RangeRequest { span: part.clone(), ranges: vec![part] }),
            }
        }
    }
    requests
}

/// Adds the time of a fetch, however it ends.
struct Timed(Instant);

impl Drop for Timed {
    fn drop(&mut self) {
        CACHE_FETCH_TIME.add_time(self.0.elapsed());
    }
}

impl Objects for Bucket {
    fn address(&self) -> &str {
        &self.address
    }

    fn read(&self, path: &str) -> Result<Option<Vec<u8>>, ObjectsError> {
        let read = |objects: Arc<dyn ObjectStore>, path: Path| async move { objects.get(&path).await?.bytes().await };
        match self.call((path, SMALL_BYTES), read)?.wait()? {
            Ok(bytes) => Ok(Some(bytes.to_vec())),
            Err(trouble) if trouble.kind == TroubleKind::Absent => Ok(None),
            Err(trouble) => Err(failed(trouble)),
        }
    }

    fn fetch(&self, path: &str, to: &mut dyn Write) -> Result<bool, ObjectsError> {
        let _timed = Timed(Instant::now());
        self.fetch_if(path, None, to)
    }

    fn fetch_ranges(&self, path: &str, ranges: &[Range<u64>], to: &mut dyn Write) -> Result<bool, ObjectsError> {
        let _timed = Timed(Instant::now());
        let requests = requests_of(ranges);
        let (mut next, mut asked) = (requests.iter(), VecDeque::new());
        loop {
            while asked.len() < RANGES_AT_ONCE
                && let Some(request) = next.next()
            {
                asked.push_back((request, self.part(path, request.span.clone(), None)?));
            }
            let Some((request, part)) = asked.pop_front() else { return Ok(true) };
            let bytes = match Asked::wait(part)? {
                Ok((bytes, _)) => bytes,
                Err(trouble) if trouble.kind == TroubleKind::Absent => return Ok(false),
                Err(trouble) => return Err(failed(trouble)),
            };
            for range in &request.ranges {
                let within = |at: u64| (at - request.span.start).min(bytes.len() as u64) as usize;
                to.write_all(&bytes[within(range.start)..within(range.end)])?;
            }
        }
    }

    fn list(&self, folder: &str) -> Result<ListedFolder, ObjectsError> {
        let found = self.listed(folder)?;
        let name = |path: &Path| path.filename().map(str::to_owned);
        let object = |meta: &object_store::ObjectMeta| {
            let modified = meta.last_modified.timestamp_micros();
            Some(ListedObject { name: name(&meta.location)?, bytes: meta.size, modified })
        };
        Ok(ListedFolder {
            objects: found.objects.iter().filter_map(object).collect(),
            folders: found.common_prefixes.iter().filter_map(name).collect(),
        })
    }

    fn create(&self, path: &str, bytes: &[u8]) -> Result<bool, ObjectsError> {
        let payload = PutPayload::from(bytes.to_vec());
        let create = move |objects: Arc<dyn ObjectStore>, path: Path| {
            let payload = payload.clone();
            async move { objects.put_opts(&path, payload, PutOptions::from(PutMode::Create)).await }
        };
        match self.call((path, bytes.len() as u64), create)?.wait()? {
            Ok(_) => Ok(true),
            Err(trouble) if trouble.kind == TroubleKind::Exists => Ok(false),
            Err(trouble) => Err(failed(trouble)),
        }
    }

    fn put(&self, path: &str, mut file: &File) -> Result<(), ObjectsError> {
        let size = file.metadata()?.len();
        file.rewind()?;
        if size > PUT_PART_BYTES {
            return match self.put_parts(path, file, size) {
                Err(ObjectsError::Store(_)) => {
                    file.rewind()?;
                    self.put_parts(path, file, size)
                }
                done => done,
            };
        }
        let mut bytes = Vec::with_capacity(size as usize);
        file.read_to_end(&mut bytes)?;
        let payload = PutPayload::from(bytes);
        let put = move |objects: Arc<dyn ObjectStore>, path: Path| {
            let payload = payload.clone();
            async move { objects.put(&path, payload).await }
        };
        self.call((path, size), put)?.wait()?.map(drop).map_err(failed)
    }

    fn delete(&self, path: &str, until: Deadline) -> Result<(), ObjectsError> {
        let delete = move |objects: Arc<dyn ObjectStore>, path: Path| async move {
            // Asked before each try: this process may have been stopped, or its machine asleep, since the last one.
            if until.has_passed() {
                let source = "the time in which it may be deleted is over".into();
                return Err(object_store::Error::Precondition { path: path.to_string(), source });
            }
            objects.delete(&path).await
        };
        match self.call((path, 0), delete)?.wait()? {
            Err(trouble) if trouble.kind != TroubleKind::Absent => Err(failed(trouble)),
            _ => Ok(()),
        }
    }

    fn noted(&self, event: CacheEvent, file: &str) {
        match event {
            CacheEvent::Hit => CACHE_HITS.of(CacheLevel::Disk).inc(),
            CacheEvent::Miss => CACHE_MISSES.of(CacheLevel::Disk).inc(),
            CacheEvent::Fetched(bytes) => CACHE_FETCHED.add(bytes),
            CacheEvent::Evicted => CACHE_EVICTIONS.inc(),
            CacheEvent::Damaged => {
                CACHE_DAMAGED.inc();
                tracing::warn!(file, "a cached file of the data root was damaged, or arrived so, and is fetched again");
            }
            CacheEvent::NotKept => {
                tracing::warn!(file, "no room for a file of the data root in its cache: raise --data-cache-bytes");
            }
            CacheEvent::DiskFull => {
                tracing::warn!(file, "the disk of the cache of files is full, and nothing is kept: free space on it");
            }
            CacheEvent::Resident(bytes) => CACHE_RESIDENT.of(CacheLevel::Disk).set_count(bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_that_lie_near_each_other_are_one_request_and_none_is_long() {
        let near = GAP_BYTES_MAX;
        let ranges = [0..100, 100 + near..200 + near, 201 + 2 * near..300 + 2 * near];
        let requests = requests_of(&ranges);
        let spans: Vec<Range<u64>> = requests.iter().map(|request| request.span.clone()).collect();
        assert_eq!(spans, [0..200 + near, ranges[2].clone()]);
        assert_eq!(requests[0].ranges, ranges[..2]);
        let long = requests_of(&[10..20, 30..30 + 3 * PART_BYTES]);
        assert!(long.iter().all(|request| request.span.end - request.span.start <= PART_BYTES), "{long:?}");
        let all: Vec<Range<u64>> = long.into_iter().flat_map(|request| request.ranges).collect();
        assert_eq!(all.iter().map(|range| range.end - range.start).sum::<u64>(), 10 + 3 * PART_BYTES);
        assert!(all.windows(2).all(|two| two[0].end <= two[1].start));
        assert!(requests_of(&[]).is_empty());
    }
}
