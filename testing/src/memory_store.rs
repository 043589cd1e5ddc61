//! The control store in memory, for tests: behaves like etcd, rejects what etcd rejects, and fails on demand.
//!
//! It enforces etcd's limits: bytes of a reply and of a request, operations of a transaction, compacted revisions, disk
//! quota. Leases end on demand; those of [`MemoryStore::timed`] also expire.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, watch};

use trawl_cluster_store::{
    Change, Committed, ControlError, ControlStore, Entry, Guard, LeaseId, Page, PageRequest, REPLY_BYTES_MAX,
    StoreVersion, WATCH_BACKLOG_MAX, Watch, Write, after, checked,
};

/// Timeout of a try while the store is stalled.
pub const MEMORY_CALL_TIMEOUT: Duration = Duration::from_secs(3);
/// Maximum tries of one call; only lost replies use one up.
const CALL_TRIES_MAX: u32 = 2;
/// Interval at which a timed store checks for expired leases.
const LEASE_CHECK: Duration = Duration::from_millis(5);
/// Bytes per key in a reply or on disk, besides its name and value.
const KEY_OVERHEAD_BYTES: usize = 32;

/// The limits of the store; the defaults are etcd's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryLimits {
    /// Maximum bytes of one reply; see [`REPLY_BYTES_MAX`].
    pub answer_bytes: usize,
    /// Maximum bytes of keys, values and their history, beyond which puts are rejected; compaction frees the history.
    pub quota_bytes: usize,
}

impl Default for MemoryLimits {
    fn default() -> Self {
        // etcd's own default quota.
        Self { answer_bytes: REPLY_BYTES_MAX, quota_bytes: 2 << 30 }
    }
}

/// The store; all state is behind one lock.
#[derive(Debug)]
pub struct MemoryStore {
    state: Arc<Mutex<State>>,
    /// Whether calls hang and watches are silent.
    stalled: watch::Sender<bool>,
}

#[derive(Debug, Clone)]
struct Value {
    value: Vec<u8>,
    lease: Option<LeaseId>,
    created: i64,
}

/// A change, and what it replaced, so that an earlier revision can be read.
#[derive(Debug)]
struct Past {
    revision: i64,
    change: Change,
    before: Option<Value>,
}

/// A watch, which receives changes of keys with its prefix after its revision.
#[derive(Debug)]
struct Watcher {
    prefix: String,
    after: i64,
    changes: mpsc::Sender<Change>,
}

/// The keys, leases and revision of a store at one time.
#[derive(Debug, Clone)]
pub struct Backup {
    revision: i64,
    keys: BTreeMap<String, Value>,
    leases: BTreeMap<LeaseId, Duration>,
}

impl Backup {
    /// The leases in it.
    pub fn leases(&self) -> impl Iterator<Item = LeaseId> {
        self.leases.keys().copied()
    }
}

#[derive(Debug)]
struct Lease {
    ttl: Duration,
    /// Expiry; used by timed stores only.
    ends: Instant,
}

#[derive(Debug, Default)]
struct State {
    /// Number of times it was set up anew.
    cluster: u64,
    revision: i64,
    keys: BTreeMap<String, Value>,
    leases: BTreeMap<LeaseId, Lease>,
    next_lease: LeaseId,
    /// Every change since the last compaction, for watches that start in the past and reads of earlier revisions.
    history: Vec<Past>,
    /// Changes up to this revision are compacted; the state at it can still be read.
    compacted: i64,
    watchers: Vec<Watcher>,
    /// Watches that receive nothing more and do not end, see [`MemoryStore::silence_watches`].
    silent: Vec<Watcher>,
    /// While true every call fails, as if the store were unavailable.
    away: bool,
    /// Whether leases expire by themselves.
    timed: bool,
    /// While true watches are silent; `withheld` buffers their changes.
    stalled: bool,
    withheld: Vec<(i64, Change)>,
    /// Number of tries whose reply is lost.
    answers_to_lose: u32,
    limits: MemoryLimits,
    /// Bytes of keys, values and history.
    used_bytes: usize,
    /// The quota was exceeded: puts are rejected until the alarm is lifted.
    no_space: bool,
}

impl State {
    /// Puts and deletes in one transaction, which has one revision; none if nothing changes.
    fn apply(&mut self, writes: Vec<Write>) {
        let revision = self.revision + 1;
        for write in writes {
            self.used_bytes += size_of_write(&write);
            let (change, before) = match write {
                Write::Put { key, value, lease } => {
                    let created = self.keys.get(&key).map_or(revision, |there| there.created);
                    let before = self.keys.insert(key.clone(), Value { value: value.clone(), lease, created });
                    (Change::Put(Entry { key, value, created }), before)
                }
                Write::Delete { key } => match self.keys.remove(&key) {
                    Some(before) => (Change::Deleted { key, revision }, Some(before)),
                    None => continue,
                },
            };
            self.revision = revision;
            self.history.push(Past { revision, change: change.clone(), before });
            if self.stalled {
                self.withheld.push((revision, change));
            } else {
                self.notify(revision, &change);
            }
        }
    }

    fn notify(&mut self, revision: i64, change: &Change) {
        self.watchers.retain(|watcher| {
            let concerned = revision > watcher.after && change.key().starts_with(&watcher.prefix);
            !concerned || watcher.changes.try_send(change.clone()).is_ok()
        });
    }

    fn end(&mut self, lease: LeaseId) {
        self.leases.remove(&lease);
        let its = self.keys.iter().filter(|(_, value)| value.lease == Some(lease));
        let gone = its.map(|(key, _)| Write::Delete { key: key.clone() }).collect();
        self.apply(gone);
    }

    fn holds(&self, guard: &Guard) -> bool {
        match guard {
            Guard::Absent { key } => !self.keys.contains_key(key),
            Guard::Created { key, revision } => self.keys.get(key).is_some_and(|there| there.created == *revision),
        }
    }

    /// Rejects a write that exceeds the quota, and from then on every write that needs space.
    fn check_space(&mut self, bytes: usize) -> Result<(), ControlError> {
        if self.no_space || self.used_bytes.saturating_add(bytes) > self.limits.quota_bytes {
            self.no_space = true;
            return Err(ControlError::NoSpace("etcdserver: mvcc: database space exceeded".to_owned()));
        }
        Ok(())
    }

    fn commit(&mut self, guards: &[Guard], writes: &[Write]) -> Result<Committed, ControlError> {
        // As etcd does: before checking the guards, and only for transactions with puts.
        if writes.iter().any(|write| matches!(write, Write::Put { .. })) {
            self.check_space(writes.iter().map(size_of_write).sum())?;
        }
        let applied = guards.iter().all(|guard| self.holds(guard));
        if applied {
            let lease_of = |write: &Write| if let Write::Put { lease, .. } = write { *lease } else { None };
            if writes.iter().filter_map(lease_of).any(|lease| !self.leases.contains_key(&lease)) {
                return Err(ControlError::LeaseOver);
            }
            self.apply(writes.to_vec());
        }
        Ok(Committed { applied, revision: self.revision })
    }

    fn entry(&self, key: &str) -> Option<Entry> {
        let there = self.keys.get(key)?;
        Some(Entry { key: key.to_owned(), value: there.value.clone(), created: there.created })
    }

    /// The entries replaced by changes after `revision`, by key; `None` where the key was absent.
    fn before(&self, revision: i64) -> BTreeMap<&str, Option<&Value>> {
        let later = self.history.iter().rev().take_while(|past| past.revision > revision);
        // The earliest of them comes last, and counts.
        later.map(|past| (past.change.key(), past.before.as_ref())).collect()
    }

    fn page(&self, asked: &PageRequest) -> Result<Page, ControlError> {
        let revision = asked.revision.unwrap_or(self.revision);
        if revision < self.compacted {
            return Err(ControlError::Compacted);
        }
        if revision > self.revision {
            return Err(ControlError::Refused("etcdserver: mvcc: required revision is a future revision".to_owned()));
        }
        let before = self.before(revision);
        let there = |key: &str| before.get(key).copied().unwrap_or_else(|| self.keys.get(key));
        let from = String::from_utf8_lossy(&asked.from).into_owned();
        let present = self.keys.range(from.clone()..).map(|(key, _)| key.as_str());
        let present = present.take_while(|key| key.starts_with(&asked.prefix));
        let past = before.range(from.as_str()..).map(|(key, _)| *key).filter(|key| key.starts_with(&asked.prefix));
        // Enough entries, even if some of them did not exist at that revision.
        let keys: BTreeSet<&str> = present.take(asked.limit.saturating_add(before.len() + 1)).chain(past).collect();
        let mut found = keys.into_iter().filter_map(|key| Some((key, there(key)?)));
        let (mut entries, mut bytes) = (Vec::new(), 0);
        for (key, value) in found.by_ref().take(asked.limit) {
            let value = Value { value: if asked.keys_only { Vec::new() } else { value.value.clone() }, ..*value };
            bytes += key.len() + value.value.len() + KEY_OVERHEAD_BYTES;
            entries.push(Entry { key: key.to_owned(), value: value.value, created: value.created });
        }
        if bytes > self.limits.answer_bytes {
            let limit = self.limits.answer_bytes;
            let message = format!("decoded message length too large: found {bytes} bytes, the limit is: {limit} bytes");
            return Err(ControlError::TooLarge(message));
        }
        let next = found.next().and(entries.last()).map(|last| after(last.key.as_bytes()));
        Ok(Page { entries, revision, next })
    }
}

/// Bytes that a write adds on disk.
fn size_of_write(write: &Write) -> usize {
    let value = if let Write::Put { value, .. } = write { value.len() } else { 0 };
    write.key().len() + value + KEY_OVERHEAD_BYTES
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self { state: Arc::default(), stalled: watch::channel(false).0 }
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

fn unreachable(cause: &str) -> ControlError {
    ControlError::Unreachable { endpoints: "memory".to_owned(), cause: cause.to_owned() }
}

/// Ends expired leases until the store is dropped. A thread, so that a paused runtime does not stop it.
fn end_by_time(state: &Weak<Mutex<State>>) {
    while let Some(state) = state.upgrade() {
        {
            let mut state = lock(&state);
            let now = Instant::now();
            let over: Vec<LeaseId> = state.leases.iter().filter(|(_, l)| l.ends <= now).map(|(&id, _)| id).collect();
            // A stalled store ends no leases; those that expired meanwhile end once it resumes. Nor does one that is away.
            if !state.stalled && !state.away {
                over.into_iter().for_each(|lease| state.end(lease));
            }
        }
        drop(state);
        std::thread::sleep(LEASE_CHECK);
    }
}

impl MemoryStore {
    /// A store with the given limits, so that tests need not reach etcd's.
    pub fn with_limits(limits: MemoryLimits) -> Self {
        let store = Self::default();
        lock(&store.state).limits = limits;
        store
    }

    /// Lifts the alarm of an exceeded quota, as an operator does after a compaction; `quota_bytes` is the new quota.
    pub fn lift_alarm(&self, quota_bytes: usize) {
        let mut state = lock(&self.state);
        (state.no_space, state.limits.quota_bytes) = (false, quota_bytes);
    }

    /// A store whose leases expire by themselves.
    pub fn timed() -> Self {
        let store = Self::default();
        lock(&store.state).timed = true;
        let state = Arc::downgrade(&store.state);
        // If the thread cannot be started, leases never expire and the test fails.
        let _ = std::thread::Builder::new().name("memory-leases".to_owned()).spawn(move || end_by_time(&state));
        store
    }

    /// Expires all leases.
    pub fn expire_leases(&self) {
        let mut state = lock(&self.state);
        let all: Vec<LeaseId> = state.leases.keys().copied().collect();
        all.into_iter().for_each(|lease| state.end(lease));
    }

    /// Expires one lease.
    pub fn expire(&self, lease: LeaseId) {
        lock(&self.state).end(lease);
    }

    /// Expires the lease of `key`, if it has one.
    pub fn expire_lease_of(&self, key: &str) {
        let mut state = lock(&self.state);
        if let Some(lease) = state.keys.get(key).and_then(|value| value.lease) {
            state.end(lease);
        }
    }

    /// Reads a key, bypassing all faults.
    pub fn peek(&self, key: &str) -> Option<Entry> {
        lock(&self.state).entry(key)
    }

    /// Breaks every watch.
    pub fn break_watches(&self) {
        lock(&self.state).watchers.clear();
    }

    /// Compacts all changes so far: a watch that starts earlier ends at once.
    pub fn compact(&self) {
        let mut state = lock(&self.state);
        state.compacted = state.revision;
        state.history.clear();
        state.used_bytes =
            state.keys.iter().map(|(key, there)| key.len() + there.value.len() + KEY_OVERHEAD_BYTES).sum();
    }

    /// Loses everything, as an etcd that is set up anew: no keys, no leases, a revision that begins again.
    pub fn set_up_anew(&self) {
        let mut state = lock(&self.state);
        *state = State { cluster: state.cluster + 1, limits: state.limits, ..State::default() };
    }

    /// A copy to restore later.
    pub fn back_up(&self) -> Backup {
        let state = lock(&self.state);
        let leases = state.leases.iter().map(|(&id, lease)| (id, lease.ttl)).collect();
        Backup { revision: state.revision, keys: state.keys.clone(), leases }
    }

    /// Loses everything since the backup, as an etcd whose data were restored: its leases have their whole time to live
    /// again, its watches end. `as_new_cluster`: under another id of the cluster, as `etcdutl snapshot restore` gives it;
    /// a disk that was rolled back keeps its id.
    pub fn restore(&self, backup: &Backup, as_new_cluster: bool) {
        let mut state = lock(&self.state);
        let ends = |ttl: Duration| Lease { ttl, ends: Instant::now() + ttl };
        *state = State {
            cluster: state.cluster + u64::from(as_new_cluster),
            revision: backup.revision,
            compacted: backup.revision,
            keys: backup.keys.clone(),
            leases: backup.leases.iter().map(|(&id, &ttl)| (id, ends(ttl))).collect(),
            // Real ones are random: none is granted twice.
            next_lease: state.next_lease,
            limits: state.limits,
            ..State::default()
        };
    }

    /// All present watches receive nothing more and do not end, as over a connection that lost its peer.
    pub fn silence_watches(&self) {
        let mut state = lock(&self.state);
        let watchers = std::mem::take(&mut state.watchers);
        state.silent.extend(watchers);
    }

    /// Raises the alarm of an exceeded quota; see [`MemoryStore::lift_alarm`].
    pub fn raise_alarm(&self) {
        lock(&self.state).no_space = true;
    }

    /// Makes all calls fail, or succeed again: then all leases begin anew, as those of an etcd that was restarted.
    pub fn set_away(&self, away: bool) {
        let mut state = lock(&self.state);
        state.away = away;
        if !away {
            let now = Instant::now();
            state.leases.values_mut().for_each(|lease| lease.ends = now + lease.ttl);
        }
    }

    /// Makes all calls hang and all watches silent, or resumes them. A try waits [`MEMORY_CALL_TIMEOUT`] at most.
    pub fn set_stalled(&self, stalled: bool) {
        {
            let mut state = lock(&self.state);
            state.stalled = stalled;
            if !stalled {
                let withheld = std::mem::take(&mut state.withheld);
                withheld.iter().for_each(|(revision, change)| state.notify(*revision, change));
            }
        }
        self.stalled.send_replace(stalled);
    }

    /// The next `tries` are applied and their replies lost: the call is retried, or fails although it was applied.
    pub fn lose_answers(&self, tries: u32) {
        lock(&self.state).answers_to_lose = tries;
    }

    async fn call<T>(&self, operation: impl Fn(&mut State) -> Result<T, ControlError>) -> Result<T, ControlError> {
        for _ in 0..CALL_TRIES_MAX {
            let mut stalled = self.stalled.subscribe();
            // A runtime is needed only if it is stalled.
            let stands_still = *stalled.borrow();
            if stands_still
                && tokio::time::timeout(MEMORY_CALL_TIMEOUT, stalled.wait_for(|stalled| !*stalled)).await.is_err()
            {
                return Err(unreachable("no answer in time"));
            }
            let mut state = lock(&self.state);
            if state.away {
                return Err(unreachable("away"));
            }
            let answer = operation(&mut state);
            if state.answers_to_lose == 0 {
                return answer;
            }
            state.answers_to_lose -= 1;
        }
        Err(unreachable("no answer in time"))
    }
}

#[tonic::async_trait]
impl ControlStore for MemoryStore {
    async fn put(&self, key: &str, value: Vec<u8>, lease: Option<LeaseId>) -> Result<(), ControlError> {
        self.commit(&[], vec![Write::Put { key: key.to_owned(), value, lease }]).await.map(|_| ())
    }

    async fn delete(&self, key: &str) -> Result<(), ControlError> {
        self.commit(&[], vec![Write::Delete { key: key.to_owned() }]).await.map(|_| ())
    }

    async fn get(&self, key: &str) -> Result<Option<Entry>, ControlError> {
        self.call(|state| Ok(state.entry(key))).await
    }

    async fn commit(&self, guards: &[Guard], writes: Vec<Write>) -> Result<Committed, ControlError> {
        checked(guards, &writes)?;
        self.call(|state| state.commit(guards, &writes)).await
    }

    async fn page(&self, asked: &PageRequest) -> Result<Page, ControlError> {
        self.call(|state| state.page(asked)).await
    }

    async fn watch(&self, prefix: &str, revision: i64) -> Result<Watch, ControlError> {
        self.call(|state| {
            let (sender, receiver) = mpsc::channel(WATCH_BACKLOG_MAX);
            let withheld = state.history.len().saturating_sub(state.withheld.len());
            let published = state.history.get(..withheld).unwrap_or_default();
            let missed =
                published.iter().filter(|past| past.revision > revision && past.change.key().starts_with(prefix));
            let delivered = missed.into_iter().all(|past| sender.try_send(past.change.clone()).is_ok());
            if delivered && revision >= state.compacted {
                state.watchers.push(Watcher { prefix: prefix.to_owned(), after: revision, changes: sender });
            }
            Ok(receiver)
        })
        .await
    }

    async fn grant(&self, ttl: Duration) -> Result<LeaseId, ControlError> {
        self.call(|state| {
            // etcd rejects leases too.
            state.check_space(0)?;
            state.next_lease += 1;
            let lease = state.next_lease;
            state.leases.insert(lease, Lease { ttl, ends: Instant::now() + ttl });
            Ok(lease)
        })
        .await
    }

    async fn keep_alive(&self, lease: LeaseId) -> Result<(), ControlError> {
        self.call(|state| {
            let (timed, now) = (state.timed, Instant::now());
            // As etcd does, also before it has ended the lease.
            let alive = state.leases.get_mut(&lease).filter(|lease| !timed || lease.ends > now);
            let lease = alive.ok_or(ControlError::LeaseOver)?;
            lease.ends = now + lease.ttl;
            Ok(())
        })
        .await
    }

    async fn revoke(&self, lease: LeaseId) -> Result<(), ControlError> {
        self.call(|state| {
            state.end(lease);
            Ok(())
        })
        .await
    }

    async fn version(&self, _: &str) -> Result<StoreVersion, ControlError> {
        self.call(|state| Ok(StoreVersion { cluster: state.cluster, revision: state.revision })).await
    }
}

#[cfg(test)]
#[path = "memory_store_tests.rs"]
mod tests;
