//! Columns cached in the device's memory between scans, evicted least recently used first, bounded in bytes.
//!
//! A key identifies one column of one group of symbols, so that it is found whatever else shares a request. Several
//! columns and groups are copied at a time: such an allocation is cached and evicted as a whole. Evicted memory in use
//! stays valid for its users, and is released when the last of them is done.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::cuda::device::CELL_BYTES;
use crate::cuda::execute::transfer::DeviceBuffer;

/// Cache key of a column of a group.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ColumnKey {
    /// Hash of the symbols, their lanes, versions and numbers of bars. First, since it distinguishes most keys.
    pub shape: u128,
    pub column: Arc<str>,
    /// Dataset, snapshot, adjustment and frame: whatever else the bars depend on.
    pub source: Arc<str>,
    pub group: u32,
    /// Bytes of its numbers.
    pub number_bytes: usize,
}

/// For what a column was brought before a request asked for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Brought {
    NextCall,
    /// Scans that are expected, by the number of the round in which bars are brought for them.
    Round(u64),
}

/// Location of a column of a group: its memory, and its first cell in it.
pub(super) type CachedColumn = (Arc<DeviceBuffer>, usize);

/// Columns in one piece of memory, each with its first cell.
pub(super) type Neighbours = Vec<(ColumnKey, usize)>;

/// Memory that is cached as a whole.
#[derive(Debug)]
struct Allocation {
    held: Arc<DeviceBuffer>,
    keys: Vec<ColumnKey>,
    /// Sequence number of its last use.
    used: u64,
    /// For what it was brought before a request asked for it, until one has.
    ahead: Option<Brought>,
}

#[derive(Debug, Default)]
struct State {
    /// Allocation id and first cell, by key.
    columns: BTreeMap<ColumnKey, (u64, usize)>,
    /// Number of columns, by source.
    sources: BTreeMap<Arc<str>, usize>,
    pieces: BTreeMap<u64, Allocation>,
    /// Allocation ids by last use.
    order: BTreeMap<u64, u64>,
    bytes: u64,
    clock: u64,
    /// Bytes that were brought ahead and then read: all, and those that were brought for the next call.
    read_bytes: u64,
    read_next_bytes: u64,
    /// The same of each round that is under way.
    read_of_rounds: BTreeMap<u64, u64>,
    /// Bytes that requests copied themselves.
    copied_bytes: u64,
    /// Whether nothing is cached any more.
    is_closed: bool,
}

/// The column cache of a device.
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

    /// Whether any column of a source is cached.
    pub fn has_any(&self, source: &str) -> bool {
        self.state().sources.contains_key(source)
    }

    /// As [`Self::has`], for a column that is read soon: it is evicted after others.
    pub fn touch(&self, key: &ColumnKey) -> bool {
        let state = &mut *self.state();
        let number = state.columns.get(key).map(|(number, _)| *number);
        number.is_some_and(|number| state.used_now(number))
    }

    pub fn get(&self, key: &ColumnKey) -> Option<CachedColumn> {
        let state = &mut *self.state();
        let (number, cell) = *state.columns.get(key)?;
        state.used_now(number);
        let piece = state.pieces.get_mut(&number)?;
        if let Some(brought) = piece.ahead.take() {
            let bytes = bytes_of(&piece.held);
            state.read_bytes += bytes;
            match brought {
                Brought::NextCall => state.read_next_bytes += bytes,
                Brought::Round(round) => {
                    // One that has ended is not counted any more.
                    if let Some(read) = state.read_of_rounds.get_mut(&round) {
                        *read += bytes;
                    }
                }
            }
        }
        Some((Arc::clone(&piece.held), cell))
    }

    /// Caches completely copied columns, each with its first cell. Columns that were cached meanwhile keep their
    /// existing entry.
    pub fn keep(&self, columns: &[(ColumnKey, usize)], held: &Arc<DeviceBuffer>) {
        self.state().copied_bytes += bytes_of(held);
        self.keep_any(columns, held, None);
    }

    /// Caches a column that no request has asked for yet.
    pub fn keep_prefetched(&self, key: ColumnKey, held: &Arc<DeviceBuffer>, brought: Brought) {
        if let Brought::Round(round) = brought {
            self.state().read_of_rounds.entry(round).or_default();
        }
        self.keep_any(&[(key, 0)], held, Some(brought));
    }

    /// Whether so many bytes fit without an eviction.
    pub fn has_room(&self, bytes: u64) -> bool {
        self.state().bytes + bytes <= self.bytes_max
    }

    /// Bytes that were brought ahead and then read.
    pub fn read_bytes(&self) -> u64 {
        self.state().read_bytes
    }

    /// Those of them that were brought for the next call.
    pub fn read_next_bytes(&self) -> u64 {
        self.state().read_next_bytes
    }

    /// Ends a round: bytes that were brought in it and then read.
    pub fn end_round(&self, round: u64) -> u64 {
        self.state().read_of_rounds.remove(&round).unwrap_or(0)
    }

    /// Bytes of cached columns that requests copied themselves.
    pub fn copied_bytes(&self) -> u64 {
        self.state().copied_bytes
    }

    fn keep_any(&self, columns: &[(ColumnKey, usize)], held: &Arc<DeviceBuffer>, ahead: Option<Brought>) {
        let bytes = bytes_of(held);
        let mut gone = Vec::new();
        let state = &mut *self.state();
        let new: Vec<&(ColumnKey, usize)> =
            columns.iter().filter(|(key, _)| !state.columns.contains_key(key)).collect();
        if bytes > self.bytes_max || new.is_empty() || state.is_closed {
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
        for (key, _) in &places {
            *state.sources.entry(Arc::clone(&key.source)).or_default() += 1;
        }
        state.columns.extend(places);
        state.pieces.insert(number, Allocation { held: Arc::clone(held), keys, used: number, ahead });
    }

    /// Replaces cached memory by a complete copy of it, unless it was evicted or replaced meanwhile.
    pub fn replace(&self, old: &Arc<DeviceBuffer>, copy: &Arc<DeviceBuffer>) {
        let state = &mut *self.state();
        if let Some(piece) = state.pieces.values_mut().find(|piece| Arc::ptr_eq(&piece.held, old)) {
            piece.held = Arc::clone(copy);
        }
    }

    /// Evicts everything, and caches nothing from now on.
    pub fn close(&self) {
        let pieces = {
            let state = &mut *self.state();
            state.is_closed = true;
            (state.columns, state.order, state.bytes) = (BTreeMap::new(), BTreeMap::new(), 0);
            state.sources.clear();
            std::mem::take(&mut state.pieces)
        };
        // Without the lock: releasing calls the driver.
        drop(pieces);
    }

    /// Evicts the least recently used allocation that is not in use; returns `false` if there is none.
    pub fn let_go_of_one(&self) -> bool {
        self.let_go_of(&|_| true)
    }

    /// The same among those whose source `is_superseded`.
    pub fn let_go_of(&self, is_superseded: &dyn Fn(&str) -> bool) -> bool {
        let gone = {
            let state = &mut *self.state();
            let unused = |number: &&u64| {
                state.pieces.get(*number).is_some_and(|piece| {
                    let mut keys = piece.keys.iter();
                    Arc::strong_count(&piece.held) == 1 && keys.all(|key| is_superseded(&key.source))
                })
            };
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
    /// Marks an allocation as the one that was used last; `false` if there is none.
    fn used_now(&mut self, number: u64) -> bool {
        let Some(piece) = self.pieces.get_mut(&number) else { return false };
        self.clock += 1;
        self.order.remove(&piece.used);
        piece.used = self.clock;
        self.order.insert(self.clock, number);
        true
    }

    fn pop(&mut self) -> Option<Arc<DeviceBuffer>> {
        let number = self.order.values().next().copied()?;
        self.remove(number)
    }

    fn remove(&mut self, number: u64) -> Option<Arc<DeviceBuffer>> {
        let piece = self.pieces.remove(&number)?;
        self.order.remove(&piece.used);
        for key in &piece.keys {
            self.columns.remove(key);
            if let Some(left) = self.sources.get_mut(&key.source) {
                *left -= 1;
                if *left == 0 {
                    self.sources.remove(&key.source);
                }
            }
        }
        self.bytes -= bytes_of(&piece.held);
        Some(piece.held)
    }
}
