//! The control store in memory, for tests: leases end when a test says so.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::mpsc;

use super::{Change, ControlError, ControlStore, Entry, LeaseId, Listing, WATCH_BACKLOG_MAX, Watch};

/// The store; everything behind one lock.
#[derive(Debug, Default)]
pub struct MemoryStore {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    revision: i64,
    /// Value and lease.
    keys: BTreeMap<String, (Vec<u8>, Option<LeaseId>)>,
    leases: BTreeSet<LeaseId>,
    next_lease: LeaseId,
    /// Every change so far, for watches that begin in the past.
    history: Vec<(i64, Change)>,
    watchers: Vec<(String, mpsc::Sender<Change>)>,
    /// While true every call fails, as if the store were away.
    away: bool,
}

impl State {
    fn change(&mut self, change: Change) {
        self.revision += 1;
        let key = match &change {
            Change::Put(entry) => &entry.key,
            Change::Deleted { key } => key,
        };
        self.watchers.retain(|(prefix, sender)| !key.starts_with(prefix) || sender.try_send(change.clone()).is_ok());
        self.history.push((self.revision, change));
    }

    fn end(&mut self, lease: LeaseId) {
        self.leases.remove(&lease);
        let gone: Vec<String> =
            self.keys.iter().filter(|(_, (_, l))| *l == Some(lease)).map(|(key, _)| key.clone()).collect();
        for key in gone {
            self.keys.remove(&key);
            self.change(Change::Deleted { key });
        }
    }
}

impl MemoryStore {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn reached(&self) -> Result<MutexGuard<'_, State>, ControlError> {
        let state = self.state();
        if state.away {
            let (endpoints, cause) = ("memory".to_owned(), "away".to_owned());
            return Err(ControlError::Unreachable { endpoints, cause });
        }
        Ok(state)
    }

    /// Ends every lease, as if nobody had kept it alive.
    pub fn expire_leases(&self) {
        let mut state = self.state();
        for lease in std::mem::take(&mut state.leases) {
            state.end(lease);
        }
    }

    /// Breaks every watch.
    pub fn break_watches(&self) {
        self.state().watchers.clear();
    }

    /// Makes every call fail, or work again.
    pub fn set_away(&self, away: bool) {
        self.state().away = away;
    }
}

#[tonic::async_trait]
impl ControlStore for MemoryStore {
    async fn put(&self, key: &str, value: Vec<u8>, lease: Option<LeaseId>) -> Result<(), ControlError> {
        let mut state = self.reached()?;
        if lease.is_some_and(|id| !state.leases.contains(&id)) {
            return Err(ControlError::LeaseOver);
        }
        state.keys.insert(key.to_owned(), (value.clone(), lease));
        state.change(Change::Put(Entry { key: key.to_owned(), value }));
        Ok(())
    }

    async fn delete(&self, key: &str) -> Result<(), ControlError> {
        let mut state = self.reached()?;
        if state.keys.remove(key).is_some() {
            state.change(Change::Deleted { key: key.to_owned() });
        }
        Ok(())
    }

    async fn list(&self, prefix: &str) -> Result<Listing, ControlError> {
        let state = self.reached()?;
        let within = state.keys.iter().filter(|(key, _)| key.starts_with(prefix));
        let entries = within.map(|(key, (value, _))| Entry { key: key.clone(), value: value.clone() }).collect();
        Ok(Listing { entries, revision: state.revision })
    }

    async fn watch(&self, prefix: &str, revision: i64) -> Result<Watch, ControlError> {
        let mut state = self.reached()?;
        let (sender, receiver) = mpsc::channel(WATCH_BACKLOG_MAX);
        let within = |change: &Change| match change {
            Change::Put(entry) => entry.key.starts_with(prefix),
            Change::Deleted { key } => key.starts_with(prefix),
        };
        let missed = state.history.iter().filter(|(at, change)| *at > revision && within(change));
        let delivered = missed.into_iter().all(|(_, change)| sender.try_send(change.clone()).is_ok());
        if delivered {
            state.watchers.push((prefix.to_owned(), sender));
        }
        Ok(receiver)
    }

    async fn grant(&self, _ttl: Duration) -> Result<LeaseId, ControlError> {
        let mut state = self.reached()?;
        state.next_lease += 1;
        let lease = state.next_lease;
        state.leases.insert(lease);
        Ok(lease)
    }

    async fn keep_alive(&self, lease: LeaseId) -> Result<(), ControlError> {
        if self.reached()?.leases.contains(&lease) { Ok(()) } else { Err(ControlError::LeaseOver) }
    }

    async fn revoke(&self, lease: LeaseId) -> Result<(), ControlError> {
        self.reached()?.end(lease);
        Ok(())
    }
}
