//! Columns that stay in the device's memory between scans, least recently used out first, bounded in bytes.
//!
//! What is known by a key is one column of one group of symbols, so that it is found whatever else shares a call. Columns
//! came to the device several groups at a time: such a piece of memory comes and goes as one. What is used stays for its users
//! after it went: memory is given back when the last of them is done.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::cuda::device::CELL_BYTES;
use crate::cuda::execute::transfer::DeviceBuffer;

/// What a column of a group is known by on the device.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ColumnKey {
    /// Of the symbols, their lanes and lengths. First, since it tells most keys apart.
    pub shape: u128,
    pub column: Arc<str>,
    /// Dataset, snapshot, adjustment, frame and as-of: whatever bars depend on beside these.
    pub source: Arc<str>,
    pub group: u32,
}

/// Where a column of a group lies: its memory, and its first cell there.
pub(super) type CachedColumn = (Arc<DeviceBuffer>, usize);

/// Columns in one piece of memory, each with its first cell.
pub(super) type Neighbours = Vec<(ColumnKey, usize)>;

/// Memory that came as one.
#[derive(Debug)]
struct Allocation {
    held: Arc<DeviceBuffer>,
    keys: Vec<ColumnKey>,
    /// When it was last used.
    used: u64,
}

#[derive(Debug, Default)]
struct State {
    /// Key -> number of the piece, and first cell there.
    columns: BTreeMap<ColumnKey, (u64, usize)>,
    pieces: BTreeMap<u64, Allocation>,
    /// Last use -> number of the piece.
    order: BTreeMap<u64, u64>,
    bytes: u64,
    clock: u64,
}

/// Columns on a device.
#[derive(Debug)]
pub(super) struct ResidentColumns {
    bytes_max: u64,
    state: Mutex<State>,
}

fn bytes_of(held: &DeviceBuffer) -> u64 {
    (held.memory().cells() * CELL_BYTES) as u64
}

impl ResidentColumns {
    pub fn new(bytes_max: u64) -> Self {
        Self { bytes_max, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn has(&self, key: &ColumnKey) -> bool {
        self.state().columns.contains_key(key)
    }

    pub fn get(&self, key: &ColumnKey) -> Option<CachedColumn> {
        let state = &mut *self.state();
        let (number, cell) = *state.columns.get(key)?;
        let piece = state.pieces.get_mut(&number)?;
        state.clock += 1;
        state.order.remove(&piece.used);
        piece.used = state.clock;
        state.order.insert(state.clock, number);
        Some((Arc::clone(&piece.held), cell))
    }

    /// Keeps columns that are wholly there, each with its first cell; those that others brought meanwhile stay theirs.
    pub fn keep(&self, columns: &[(ColumnKey, usize)], held: &Arc<DeviceBuffer>) {
        let bytes = bytes_of(held);
        let mut gone = Vec::new();
        let state = &mut *self.state();
        let new: Vec<&(ColumnKey, usize)> =
            columns.iter().filter(|(key, _)| !state.columns.contains_key(key)).collect();
        if bytes > self.bytes_max || new.is_empty() {
            return;
        }
        while state.bytes + bytes > self.bytes_max {
            let Some(old) = state.pop() else { break };
            gone.push(old);
        }
        state.clock += 1;
        let number = state.clock;
        state.bytes += bytes;
        state.order.insert(number, number);
        let keys = new.iter().map(|(key, _)| key.clone()).collect();
        let places: Vec<_> = new.into_iter().map(|(key, cell)| (key.clone(), (number, *cell))).collect();
        state.columns.extend(places);
        state.pieces.insert(number, Allocation { held: Arc::clone(held), keys, used: number });
    }

    /// Lets go of the memory that was used least recently of what nobody uses now; false when there is none.
    pub fn let_go_of_one(&self) -> bool {
        let gone = {
            let state = &mut *self.state();
            let unused =
                |number: &&u64| state.pieces.get(*number).is_some_and(|piece| Arc::strong_count(&piece.held) == 1);
            let number = state.order.values().find(unused).copied();
            number.and_then(|number| state.remove(number))
        };
        gone.is_some()
    }

    pub fn bytes(&self) -> u64 {
        self.state().bytes
    }
}

impl State {
    fn pop(&mut self) -> Option<Arc<DeviceBuffer>> {
        let number = self.order.values().next().copied()?;
        self.remove(number)
    }

    fn remove(&mut self, number: u64) -> Option<Arc<DeviceBuffer>> {
        let piece = self.pieces.remove(&number)?;
        self.order.remove(&piece.used);
        for key in &piece.keys {
            self.columns.remove(key);
        }
        self.bytes -= bytes_of(&piece.held);
        Some(piece.held)
    }
}
