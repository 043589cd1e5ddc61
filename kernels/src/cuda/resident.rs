//! Columns that stay in the device's memory between scans, least recently used out first, bounded in bytes.
//!
//! What is used stays for its users after it went: memory is given back when the last of them is done.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::device::CELL_BYTES;
use super::transfer::Held;

/// What a column on the device is known by.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ColumnKey {
    /// Dataset, snapshot, adjustment, frame and as-of: whatever bars depend on beside what follows.
    pub source: Arc<str>,
    pub group: u32,
    pub column: Arc<str>,
    /// Of the symbols, their lanes and lengths.
    pub shape: u128,
}

#[derive(Debug, Default)]
struct State {
    columns: BTreeMap<ColumnKey, (Arc<Held>, u64)>,
    /// Last use -> key.
    order: BTreeMap<u64, ColumnKey>,
    bytes: u64,
    clock: u64,
}

/// Columns on a device.
#[derive(Debug)]
pub(super) struct ResidentColumns {
    bytes_max: u64,
    state: Mutex<State>,
}

fn bytes_of(held: &Held) -> u64 {
    (held.memory().cells() * CELL_BYTES) as u64
}

impl ResidentColumns {
    pub fn new(bytes_max: u64) -> Self {
        Self { bytes_max, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn get(&self, key: &ColumnKey) -> Option<Arc<Held>> {
        let state = &mut *self.state();
        let (held, used) = state.columns.get_mut(key)?;
        state.clock += 1;
        state.order.remove(used);
        *used = state.clock;
        state.order.insert(state.clock, key.clone());
        Some(Arc::clone(held))
    }

    /// Keeps a column that is wholly there.
    pub fn keep(&self, key: &ColumnKey, held: &Arc<Held>) {
        let bytes = bytes_of(held);
        let mut gone = Vec::new();
        let state = &mut *self.state();
        if bytes > self.bytes_max || state.columns.contains_key(key) {
            return;
        }
        while state.bytes + bytes > self.bytes_max {
            let Some(old) = state.pop() else { break };
            gone.push(old);
        }
        state.clock += 1;
        state.bytes += bytes;
        state.order.insert(state.clock, key.clone());
        state.columns.insert(key.clone(), (Arc::clone(held), state.clock));
    }

    /// Lets go of the column that was used least recently of those that nobody uses now; false when there is none.
    pub fn let_go_of_one(&self) -> bool {
        let gone = {
            let state = &mut *self.state();
            let unused =
                |key: &&ColumnKey| state.columns.get(*key).is_some_and(|(held, _)| Arc::strong_count(held) == 1);
            let key = state.order.values().find(unused).cloned();
            key.and_then(|key| state.remove(&key))
        };
        gone.is_some()
    }

    pub fn bytes(&self) -> u64 {
        self.state().bytes
    }
}

impl State {
    fn pop(&mut self) -> Option<Arc<Held>> {
        let key = self.order.values().next().cloned()?;
        self.remove(&key)
    }

    fn remove(&mut self, key: &ColumnKey) -> Option<Arc<Held>> {
        let (held, used) = self.columns.remove(key)?;
        self.order.remove(&used);
        self.bytes -= bytes_of(&held);
        Some(held)
    }
}
