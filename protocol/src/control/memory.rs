//! The control store in memory, for tests: it does what etcd does, and fails as it is told to.
//!
//! Leases end when a test says so; those of [`MemoryStore::timed`] also when their time is over.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, watch};

use super::{
    Change, Committed, ControlError, ControlStore, Entry, Guard, LeaseId, Listing, WATCH_BACKLOG_MAX, Watch, Write,
    checked,
};

/// Longest that a try waits for a store that stands still.
pub const MEMORY_CALL_TIMEOUT: Duration = Duration::from_secs(3);
/// Tries of one call; only answers that are lost cost one.
const CALL_TRIES_MAX: u32 = 2;
/// How often a timed store looks for leases that are over.
const LEASE_CHECK: Duration = Duration::from_millis(5);

/// The store; everything behind one lock.
#[derive(Debug)]
pub struct MemoryStore {
    state: Arc<Mutex<State>>,
    /// Whether calls hang and watches say nothing.
    stalled: watch::Sender<bool>,
}

#[derive(Debug)]
struct Value {
    value: Vec<u8>,
    lease: Option<LeaseId>,
    created: i64,
}

#[derive(Debug)]
struct Lease {
    ttl: Duration,
    /// Looked at by timed stores only.
    ends: Instant,
}

#[derive(Debug, Default)]
struct State {
    revision: i64,
    keys: BTreeMap<String, Value>,
    leases: BTreeMap<LeaseId, Lease>,
    next_lease: LeaseId,
    /// Every change since the last compaction, for watches that begin in the past.
    history: Vec<(i64, Change)>,
    /// Revisions before the one after this are forgotten.
    compacted: i64,
    watchers: Vec<(String, mpsc::Sender<Change>)>,
    /// While true every call fails, as if the store were away.
    away: bool,
    /// While true watches say nothing; what they would say.
    stalled: bool,
    withheld: Vec<Change>,
    /// Tries whose answer does not arrive.
    answers_to_lose: u32,
}

impl State {
    /// Puts and deletes in one transaction, which has one revision; none when nothing changes.
    fn apply(&mut self, writes: Vec<Write>) {
        let revision = self.revision + 1;
        for write in writes {
            let change = match write {
                Write::Put { key, value, lease } => {
                    let created = self.keys.get(&key).map_or(revision, |there| there.created);
                    self.keys.insert(key.clone(), Value { value: value.clone(), lease, created });
                    Change::Put(Entry { key, value, created })
                }
                Write::Delete { key } => match self.keys.remove(&key) {
                    Some(_) => Change::Deleted { key, revision },
                    None => continue,
                },
            };
            self.revision = revision;
            self.history.push((revision, change.clone()));
            if self.stalled {
                self.withheld.push(change);
            } else {
                self.tell(&change);
            }
        }
    }

    fn tell(&mut self, change: &Change) {
        self.watchers
            .retain(|(prefix, sender)| !change.key().starts_with(prefix) || sender.try_send(change.clone()).is_ok());
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

    fn commit(&mut self, guards: &[Guard], writes: &[Write]) -> Result<Committed, ControlError> {
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

/// Ends leases whose time is over until the store is gone. A thread, so that no runtime that stands still stops it.
fn end_by_time(state: &Weak<Mutex<State>>) {
    while let Some(state) = state.upgrade() {
        {
            let mut state = lock(&state);
            let now = Instant::now();
            let over: Vec<LeaseId> = state.leases.iter().filter(|(_, l)| l.ends <= now).map(|(&id, _)| id).collect();
            // A store that stands still ends nothing; it has seen the time pass once it goes on.
            if !state.stalled {
                over.into_iter().for_each(|lease| state.end(lease));
            }
        }
        drop(state);
        std::thread::sleep(LEASE_CHECK);
    }
}

impl MemoryStore {
    /// A store whose leases end by themselves.
    pub fn timed() -> Self {
        let store = Self::default();
        let state = Arc::downgrade(&store.state);
        // Without the thread leases would never end, and the test that asked for it fails.
        let _ = std::thread::Builder::new().name("memory-leases".to_owned()).spawn(move || end_by_time(&state));
        store
    }

    /// Ends every lease, as if nobody had kept it alive.
    pub fn expire_leases(&self) {
        let mut state = lock(&self.state);
        let all: Vec<LeaseId> = state.leases.keys().copied().collect();
        all.into_iter().for_each(|lease| state.end(lease));
    }

    /// Ends one lease.
    pub fn expire(&self, lease: LeaseId) {
        lock(&self.state).end(lease);
    }

    /// Ends the lease that keeps `key`, if one does.
    pub fn expire_lease_of(&self, key: &str) {
        let mut state = lock(&self.state);
        if let Some(lease) = state.keys.get(key).and_then(|value| value.lease) {
            state.end(lease);
        }
    }

    /// A key, read past every fault.
    pub fn peek(&self, key: &str) -> Option<Entry> {
        lock(&self.state).entry(key)
    }

    /// Breaks every watch.
    pub fn break_watches(&self) {
        lock(&self.state).watchers.clear();
    }

    /// Forgets every change so far: a watch that begins before ends at once.
    pub fn compact(&self) {
        let mut state = lock(&self.state);
        state.compacted = state.revision;
        state.history.clear();
    }

    /// Makes every call fail, or work again.
    pub fn set_away(&self, away: bool) {
        lock(&self.state).away = away;
    }

    /// Makes every call hang and every watch silent, or go on. A try waits [`MEMORY_CALL_TIMEOUT`] at most.
    pub fn set_stalled(&self, stalled: bool) {
        {
            let mut state = lock(&self.state);
            state.stalled = stalled;
            if !stalled {
                let withheld = std::mem::take(&mut state.withheld);
                withheld.iter().for_each(|change| state.tell(change));
            }
        }
        self.stalled.send_replace(stalled);
    }

    /// The next `tries` are made and their answers lost: the call is made again, or fails although it was made.
    pub fn lose_answers(&self, tries: u32) {
        lock(&self.state).answers_to_lose = tries;
    }

    async fn call<T>(&self, operation: impl Fn(&mut State) -> Result<T, ControlError>) -> Result<T, ControlError> {
        for _ in 0..CALL_TRIES_MAX {
            let mut stalled = self.stalled.subscribe();
            // Only then a runtime is needed.
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

    async fn list(&self, prefix: &str) -> Result<Listing, ControlError> {
        self.call(|state| {
            let within = state.keys.keys().filter(|key| key.starts_with(prefix));
            Ok(Listing { entries: within.filter_map(|key| state.entry(key)).collect(), revision: state.revision })
        })
        .await
    }

    async fn watch(&self, prefix: &str, revision: i64) -> Result<Watch, ControlError> {
        self.call(|state| {
            let (sender, receiver) = mpsc::channel(WATCH_BACKLOG_MAX);
            let withheld = state.history.len().saturating_sub(state.withheld.len());
            let told = state.history.get(..withheld).unwrap_or_default();
            let missed = told.iter().filter(|(at, change)| *at > revision && change.key().starts_with(prefix));
            let delivered = missed.into_iter().all(|(_, change)| sender.try_send(change.clone()).is_ok());
            if delivered && revision >= state.compacted {
                state.watchers.push((prefix.to_owned(), sender));
            }
            Ok(receiver)
        })
        .await
    }

    async fn grant(&self, ttl: Duration) -> Result<LeaseId, ControlError> {
        self.call(|state| {
            state.next_lease += 1;
            let lease = state.next_lease;
            state.leases.insert(lease, Lease { ttl, ends: Instant::now() + ttl });
            Ok(lease)
        })
        .await
    }

    async fn keep_alive(&self, lease: LeaseId) -> Result<(), ControlError> {
        self.call(|state| {
            let lease = state.leases.get_mut(&lease).ok_or(ControlError::LeaseOver)?;
            lease.ends = Instant::now() + lease.ttl;
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
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(key: &str, value: &str, lease: Option<LeaseId>) -> Write {
        Write::Put { key: key.to_owned(), value: value.as_bytes().to_vec(), lease }
    }

    fn absent(key: &str) -> Guard {
        Guard::Absent { key: key.to_owned() }
    }

    #[tokio::test]
    async fn a_commit_is_made_whole_or_not_at_all() {
        let store = MemoryStore::default();
        let first = store.commit(&[absent("a")], vec![put("a", "1", None), put("b", "1", None)]).await.unwrap();
        assert!(first.applied);
        let created = |key| {
            let store = &store;
            async move { store.get(key).await.unwrap().unwrap().created }
        };
        assert_eq!((created("a").await, created("b").await), (first.revision, first.revision));
        let second = store.commit(&[absent("a")], vec![put("b", "2", None)]).await.unwrap();
        assert_eq!(second, Committed { applied: false, revision: first.revision });
        let mine = Guard::Created { key: "a".to_owned(), revision: first.revision };
        let writes = vec![put("b", "3", None), Write::Delete { key: "a".to_owned() }];
        assert!(store.commit(&[mine.clone(), absent("c")], writes).await.unwrap().applied);
        let b = store.get("b").await.unwrap().unwrap();
        assert_eq!((b.value, b.created), (b"3".to_vec(), first.revision), "put over another keeps its creation");
        assert!(!store.commit(&[mine], vec![]).await.unwrap().applied, "that life of the key is over");
    }

    #[tokio::test]
    async fn an_answer_that_is_lost_leaves_the_caller_to_read_whether_it_was_itself() {
        let store = MemoryStore::default();
        store.lose_answers(1);
        let committed = store.commit(&[absent("leader")], vec![put("leader", "me, try 7", None)]).await.unwrap();
        assert!(!committed.applied, "the second try finds what the first one wrote");
        let there = store.get("leader").await.unwrap().unwrap();
        assert_eq!((there.value, there.created), (b"me, try 7".to_vec(), committed.revision));
        store.lose_answers(CALL_TRIES_MAX);
        let failed = store.commit(&[absent("other")], vec![put("other", "me, try 8", None)]).await;
        assert!(matches!(failed, Err(ControlError::Unreachable { .. })));
        assert!(store.get("other").await.unwrap().is_some(), "it was made although it failed");
    }

    #[tokio::test]
    async fn a_lease_takes_its_keys_along_and_is_asked_for_only_when_the_guards_hold() {
        let store = MemoryStore::default();
        let lease = store.grant(Duration::from_secs(5)).await.unwrap();
        assert!(store.commit(&[], vec![put("a", "1", Some(lease)), put("b", "1", None)]).await.unwrap().applied);
        let mut watch = store.watch("", store.list("").await.unwrap().revision).await.unwrap();
        store.expire_lease_of("a");
        assert!(matches!(watch.recv().await, Some(Change::Deleted { key, revision: 2 }) if key == "a"));
        assert_eq!(store.keep_alive(lease).await, Err(ControlError::LeaseOver));
        assert_eq!(store.commit(&[absent("a")], vec![put("a", "2", Some(lease))]).await, Err(ControlError::LeaseOver));
        assert!(!store.commit(&[absent("b")], vec![put("a", "2", Some(lease))]).await.unwrap().applied);
    }

    #[tokio::test]
    async fn a_timed_lease_ends_unless_it_is_kept_alive() {
        let store = MemoryStore::timed();
        let lease = store.grant(Duration::from_millis(200)).await.unwrap();
        store.put("a", vec![1], Some(lease)).await.unwrap();
        for _ in 0..6 {
            tokio::time::sleep(Duration::from_millis(50)).await;
            store.keep_alive(lease).await.unwrap();
        }
        let mut watch = store.watch("a", 1).await.unwrap();
        let gone = tokio::time::timeout(Duration::from_secs(10), watch.recv()).await.expect("it ends");
        assert!(matches!(gone, Some(Change::Deleted { .. })));
        assert_eq!(store.keep_alive(lease).await, Err(ControlError::LeaseOver));
    }

    #[tokio::test]
    async fn a_watch_from_before_a_compaction_ends_and_one_from_after_it_does_not() {
        let store = MemoryStore::default();
        store.put("a", vec![1], None).await.unwrap();
        let before = store.list("").await.unwrap().revision;
        store.put("a", vec![2], None).await.unwrap();
        store.compact();
        assert_eq!(store.watch("a", before).await.unwrap().recv().await, None);
        let after = store.list("").await.unwrap().revision;
        let mut watch = store.watch("a", after).await.unwrap();
        store.put("a", vec![3], None).await.unwrap();
        assert!(matches!(watch.recv().await, Some(Change::Put(entry)) if entry.value == [3]));
    }

    #[tokio::test]
    async fn a_store_that_stands_still_holds_calls_and_watches_until_it_goes_on() {
        let store = Arc::new(MemoryStore::default());
        let lease = store.grant(Duration::from_secs(5)).await.unwrap();
        store.put("a", vec![1], Some(lease)).await.unwrap();
        let mut watch = store.watch("a", 1).await.unwrap();
        store.set_stalled(true);
        store.expire_leases();
        let late = Arc::clone(&store);
        let call = tokio::spawn(async move { late.get("a").await });
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert!(watch.try_recv().is_err() && !call.is_finished());
        store.set_stalled(false);
        assert_eq!(call.await.unwrap(), Ok(None));
        assert!(matches!(watch.recv().await, Some(Change::Deleted { .. })));
    }

    #[tokio::test]
    async fn a_call_on_a_store_that_stands_still_for_too_long_fails() {
        let store = MemoryStore::default();
        store.set_stalled(true);
        let started = Instant::now();
        assert!(matches!(store.get("a").await, Err(ControlError::Unreachable { .. })));
        assert!(started.elapsed() >= MEMORY_CALL_TIMEOUT);
    }
}
