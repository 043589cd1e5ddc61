//! An object store whose calls fail, hang or tear as a test requests.

use std::collections::VecDeque;
use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures::stream::BoxStream;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore, ObjectStoreExt as _,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};

use trawl_cluster_store::{
    Committed, ControlError, ControlStore, Entry, Guard, LeaseId, Page, PageRequest, StoreVersion, Watch, Write,
};
use trawl_testing::MemoryStore;

/// What happens to one put.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Fault {
    /// The put is not made.
    Fails(std::io::ErrorKind),
    /// The put is made and its reply lost.
    AnswerLost,
    /// This many bytes are written, and the put fails.
    Torn(usize),
}

/// How a process dies in the middle of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Death {
    /// Before the call reached the store.
    Before,
    /// After the store did it.
    After,
    /// With half an object written; of a transaction nothing.
    Torn,
}

/// Lets a number of writing calls pass, after which the process is dead: its calls reach nothing.
#[derive(Debug)]
pub(crate) struct Fuse {
    left: AtomicI64,
    death: Death,
}

impl Fuse {
    pub fn new(calls: i64, death: Death) -> Arc<Self> {
        Arc::new(Self { left: AtomicI64::new(calls), death })
    }

    pub fn is_dead(&self) -> bool {
        self.left.load(Ordering::SeqCst) < 0
    }

    /// A writing call: `Some` when the process dies in it, or is dead.
    fn burn(&self) -> Option<Death> {
        match self.left.fetch_sub(1, Ordering::SeqCst) {
            1.. => None,
            0 => Some(self.death),
            // Dead already: nothing is reached.
            _ => Some(Death::Before),
        }
    }
}

/// The control store as a process with a fuse sees it. Commits burn it; the ledger writes in no other way.
#[derive(Debug)]
pub(crate) struct FusedControl {
    pub inner: Arc<MemoryStore>,
    pub fuse: Arc<Fuse>,
}

fn dead() -> ControlError {
    ControlError::Unreachable { endpoints: "memory".to_owned(), cause: "this process is dead".to_owned() }
}

impl FusedControl {
    fn read(&self) -> std::result::Result<&MemoryStore, ControlError> {
        if self.fuse.is_dead() { Err(dead()) } else { Ok(&self.inner) }
    }
}

#[tonic::async_trait]
impl ControlStore for FusedControl {
    async fn put(&self, key: &str, value: Vec<u8>, lease: Option<LeaseId>) -> std::result::Result<(), ControlError> {
        self.read()?.put(key, value, lease).await
    }
    async fn delete(&self, key: &str) -> std::result::Result<(), ControlError> {
        self.read()?.delete(key).await
    }
    async fn get(&self, key: &str) -> std::result::Result<Option<Entry>, ControlError> {
        self.read()?.get(key).await
    }
    async fn commit(&self, guards: &[Guard], writes: Vec<Write>) -> std::result::Result<Committed, ControlError> {
        match self.fuse.burn() {
            None => self.inner.commit(guards, writes).await,
            Some(Death::After) => {
                self.inner.commit(guards, writes).await?;
                Err(dead())
            }
            Some(_) => Err(dead()),
        }
    }
    async fn page(&self, asked: &PageRequest) -> std::result::Result<Page, ControlError> {
        self.read()?.page(asked).await
    }
    async fn watch(&self, prefix: &str, revision: i64) -> std::result::Result<Watch, ControlError> {
        self.read()?.watch(prefix, revision).await
    }
    async fn grant(&self, ttl: Duration) -> std::result::Result<LeaseId, ControlError> {
        self.read()?.grant(ttl).await
    }
    async fn keep_alive(&self, lease: LeaseId) -> std::result::Result<(), ControlError> {
        self.read()?.keep_alive(lease).await
    }
    async fn revoke(&self, lease: LeaseId) -> std::result::Result<(), ControlError> {
        self.read()?.revoke(lease).await
    }
    async fn version(&self, key: &str) -> std::result::Result<StoreVersion, ControlError> {
        self.read()?.version(key).await
    }
}

/// A store in memory with faults before it.
#[derive(Debug, Default)]
pub(crate) struct Faulty {
    pub inner: Arc<InMemory>,
    /// Of the process that uses it.
    pub fuse: Option<Arc<Fuse>>,
    /// Faults of the next puts; once empty, puts succeed.
    pub faults: Mutex<VecDeque<Fault>>,
    /// How long each put takes.
    pub delay: Mutex<Duration>,
    pub puts: AtomicUsize,
}

fn io(kind: std::io::ErrorKind) -> object_store::Error {
    object_store::Error::Generic { store: "faulty", source: Box::new(std::io::Error::from(kind)) }
}

impl Faulty {
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    pub fn fail(&self, faults: impl IntoIterator<Item = Fault>) {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner).extend(faults);
    }

    pub fn slow_down(&self, delay: Duration) {
        *self.delay.lock().unwrap_or_else(PoisonError::into_inner) = delay;
    }

    /// Number of puts requested.
    pub fn puts(&self) -> usize {
        self.puts.load(Ordering::SeqCst)
    }
}

impl fmt::Display for Faulty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("faulty")
    }
}

#[tonic::async_trait]
impl ObjectStore for Faulty {
    async fn put_opts(&self, location: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        self.puts.fetch_add(1, Ordering::SeqCst);
        let delay = *self.delay.lock().unwrap_or_else(PoisonError::into_inner);
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        let fault = self.faults.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        let death = self.fuse.as_ref().and_then(|fuse| fuse.burn());
        let fault = death.map_or(fault, |death| {
            Some(match death {
                Death::Before => Fault::Fails(std::io::ErrorKind::ConnectionReset),
                Death::After => Fault::AnswerLost,
                Death::Torn => Fault::Torn(30),
            })
        });
        match fault {
            None => self.inner.put_opts(location, payload, options).await,
            Some(Fault::Fails(kind)) => Err(io(kind)),
            Some(Fault::AnswerLost) => {
                self.inner.put_opts(location, payload, options).await?;
                Err(io(std::io::ErrorKind::TimedOut))
            }
            Some(Fault::Torn(length)) => {
                let bytes = Bytes::from(payload);
                self.inner.put(location, bytes.slice(..length.min(bytes.len())).into()).await?;
                Err(io(std::io::ErrorKind::UnexpectedEof))
            }
        }
    }

    async fn put_multipart_opts(&self, at: &Path, options: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        self.inner.put_multipart_opts(at, options).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.inner.get_opts(location, options).await
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        self.inner.get_ranges(location, ranges).await
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        self.inner.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.inner.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await
    }
}

/// Takes the leader's key again: the term of the next leader.
pub(crate) async fn next_term(control: &MemoryStore) -> super::ledger::Term {
    let key = "c/leader".to_owned();
    control.delete(&key).await.unwrap();
    control.put(&key, b"leader".to_vec(), None).await.unwrap();
    let epoch = control.get(&key).await.unwrap().unwrap().created;
    super::ledger::Term { key, epoch }
}

/// A header of a scan over `segments` segments.
pub(crate) fn header(scan: &str, segments: u32) -> super::records::Header {
    let text = |t: &str| t.to_owned();
    super::records::Header {
        scan: text(scan),
        generation: 0,
        owner: text("ana"),
        document: super::records::DocumentPlace::Inline(text("{}")),
        dataset: text("d@0"),
        as_of_us: 0,
        adjustment: text("none"),
        class: class("n1"),
        placed: true,
        backend: None,
        plan: text("p"),
        segments,
        symbols: 9,
        shards: super::records::Shards::Automatic,
        priority: super::records::Level::Normal,
        submitted_us: 1,
        deadline_us: None,
        allow_partial: false,
        request: None,
        trace: None,
    }
}

/// An execution class with the given numerics.
pub(crate) fn class(numerics: &str) -> trawl_wire::record::ExecutionClass {
    let (engine, backend, precision) = ("e".to_owned(), "cpu".to_owned(), "f64".to_owned());
    trawl_wire::record::ExecutionClass { engine, numerics: numerics.to_owned(), backend, precision }
}

/// A segment's outcome: a pure function of the segment, like every result.
pub(crate) fn stored(segment: u32, bytes: usize) -> super::group::Stored {
    let payload = segment.to_le_bytes().into_iter().cycle().take(bytes).collect();
    let envelope = trawl_wire::pb::Envelope { version: 2, schema: 7, length: 3, checksum: segment, payload };
    super::group::Stored { segment, outcome: super::group::Outcome::Result { envelope, digest: [9; 32] } }
}
