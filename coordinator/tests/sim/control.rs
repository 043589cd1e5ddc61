//! The control store of a world: the one in memory, which behaves like etcd, behind a network in simulated time.
//!
//! Coordinators call it through a [`Handle`], whose calls wait on a [`Desk`] until the world has delivered them and
//! their replies; so their code is the real one, and every call can be late, lost, applied twice, or applied after it
//! failed.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use trawl_cluster_store::{
    Committed, ControlError, ControlStore, Entry, Guard, LeaseId, Page, PageRequest, StoreVersion, Watch, Write,
};
use trawl_testing::{Backup, MemoryLimits, MemoryStore};

/// Time to live of all leases, of coordinators and workers.
pub const LEASE_TTL_MS: u64 = 2_000;

#[derive(Debug, Clone)]
pub enum Call {
    Get(String),
    Version(String),
    Page(PageRequest),
    Commit(Vec<Guard>, Vec<Write>),
    Watch(String, i64),
    Grant,
    KeepAlive(LeaseId),
    Revoke(LeaseId),
    /// Not a call on the store: the caller sleeps.
    Sleep(u64),
}

#[derive(Debug)]
pub enum Answer {
    Entry(Option<Entry>),
    Version(StoreVersion),
    Page(Page),
    Committed(Committed),
    Watch(Watch),
    Lease(LeaseId),
    Done,
    Failed(ControlError),
}

/// Calls made, and replies waiting to be taken.
#[derive(Debug, Default)]
pub struct Desk {
    next: u64,
    pub calls: Vec<(u64, Call)>,
    pub answers: BTreeMap<u64, Answer>,
}

/// One coordinator's client of the store.
#[derive(Debug, Clone, Default)]
pub struct Handle {
    pub desk: Arc<Mutex<Desk>>,
}

struct Waiting {
    desk: Arc<Mutex<Desk>>,
    call: u64,
}

impl Future for Waiting {
    type Output = Answer;

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Answer> {
        self.desk.lock().unwrap().answers.remove(&self.call).map_or(Poll::Pending, Poll::Ready)
    }
}

impl Handle {
    pub async fn ask(&self, call: Call) -> Answer {
        let id = {
            let mut desk = self.desk.lock().unwrap();
            desk.next += 1;
            let id = desk.next;
            desk.calls.push((id, call));
            id
        };
        Waiting { desk: Arc::clone(&self.desk), call: id }.await
    }

    pub async fn sleep(&self, ms: u64) {
        self.ask(Call::Sleep(ms)).await;
    }
}

/// The reply of one kind, or the error.
macro_rules! answered {
    ($answer:expr, $kind:pat => $value:expr) => {
        match $answer {
            $kind => Ok($value),
            Answer::Failed(error) => Err(error),
            other => panic!("another call was answered: {other:?}"),
        }
    };
}

#[tonic::async_trait]
impl ControlStore for Handle {
    async fn put(&self, key: &str, value: Vec<u8>, lease: Option<LeaseId>) -> Result<(), ControlError> {
        self.commit(&[], vec![Write::Put { key: key.to_owned(), value, lease }]).await.map(|_| ())
    }
    async fn delete(&self, key: &str) -> Result<(), ControlError> {
        self.commit(&[], vec![Write::Delete { key: key.to_owned() }]).await.map(|_| ())
    }
    async fn get(&self, key: &str) -> Result<Option<Entry>, ControlError> {
        answered!(self.ask(Call::Get(key.to_owned())).await, Answer::Entry(entry) => entry)
    }
    async fn commit(&self, guards: &[Guard], writes: Vec<Write>) -> Result<Committed, ControlError> {
        answered!(self.ask(Call::Commit(guards.to_vec(), writes)).await, Answer::Committed(committed) => committed)
    }
    async fn page(&self, asked: &PageRequest) -> Result<Page, ControlError> {
        answered!(self.ask(Call::Page(asked.clone())).await, Answer::Page(page) => page)
    }
    async fn watch(&self, prefix: &str, revision: i64) -> Result<Watch, ControlError> {
        answered!(self.ask(Call::Watch(prefix.to_owned(), revision)).await, Answer::Watch(watch) => watch)
    }
    async fn grant(&self, _ttl: Duration) -> Result<LeaseId, ControlError> {
        answered!(self.ask(Call::Grant).await, Answer::Lease(lease) => lease)
    }
    async fn keep_alive(&self, lease: LeaseId) -> Result<(), ControlError> {
        answered!(self.ask(Call::KeepAlive(lease)).await, Answer::Done => ())
    }
    async fn revoke(&self, lease: LeaseId) -> Result<(), ControlError> {
        answered!(self.ask(Call::Revoke(lease)).await, Answer::Done => ())
    }
    async fn version(&self, key: &str) -> Result<StoreVersion, ControlError> {
        answered!(self.ask(Call::Version(key.to_owned())).await, Answer::Version(version) => version)
    }
}

/// The result of a future that never waits.
fn now<T>(future: impl Future<Output = T>) -> T {
    let mut future = std::pin::pin!(future);
    match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("the store in memory waits"),
    }
}

/// Maximum bytes of a reply: so few that the records of three scans need two pages.
const REPLY_BYTES_MAX: usize = 1_500;

/// The simulated store.
#[derive(Debug)]
pub struct Control {
    pub store: MemoryStore,
    /// End of each lease, in milliseconds.
    leases: BTreeMap<LeaseId, u64>,
}

impl Default for Control {
    fn default() -> Self {
        let limits = MemoryLimits { answer_bytes: REPLY_BYTES_MAX, ..MemoryLimits::default() };
        Self { store: MemoryStore::with_limits(limits), leases: BTreeMap::new() }
    }
}

impl Control {
    pub fn make(&mut self, call: Call, now_ms: u64) -> Answer {
        let answer = match call {
            Call::Version(key) => now(self.store.version(&key)).map(Answer::Version),
            Call::Get(key) => now(self.store.get(&key)).map(Answer::Entry),
            Call::Page(asked) => now(self.store.page(&asked)).map(Answer::Page),
            Call::Commit(guards, writes) => now(self.store.commit(&guards, writes)).map(Answer::Committed),
            Call::Watch(prefix, revision) => now(self.store.watch(&prefix, revision)).map(Answer::Watch),
            Call::Grant => now(self.store.grant(Duration::from_millis(LEASE_TTL_MS))).map(|lease| {
                self.leases.insert(lease, now_ms + LEASE_TTL_MS);
                Answer::Lease(lease)
            }),
            Call::KeepAlive(lease) => now(self.store.keep_alive(lease)).map(|()| {
                let ends = self.leases.entry(lease).or_default();
                *ends = (*ends).max(now_ms + LEASE_TTL_MS);
                Answer::Done
            }),
            Call::Revoke(lease) => now(self.store.revoke(lease)).map(|()| Answer::Done),
            Call::Sleep(_) => Ok(Answer::Done),
        };
        answer.unwrap_or_else(Answer::Failed)
    }

    /// Ends expired leases; returns whether there were any.
    pub fn expire(&mut self, now_ms: u64) -> bool {
        let over: Vec<LeaseId> = self.leases.iter().filter(|(_, at)| **at <= now_ms).map(|(&l, _)| l).collect();
        for lease in &over {
            self.leases.remove(lease);
            self.store.expire(*lease);
        }
        !over.is_empty()
    }

    /// Restores a backup: its leases have their whole time to live again.
    pub fn restore(&mut self, backup: &Backup, as_new_cluster: bool, now_ms: u64) {
        self.store.restore(backup, as_new_cluster);
        self.leases = backup.leases().map(|lease| (lease, now_ms + LEASE_TTL_MS)).collect();
    }

    /// No lease ends before `until_ms`.
    pub fn extend_leases(&mut self, until_ms: u64) {
        self.leases.values_mut().for_each(|ends| *ends = (*ends).max(until_ms));
    }

    pub fn created(&self, key: &str) -> i64 {
        self.store.peek(key).map_or(0, |entry| entry.created)
    }
}
