//! Groups of bars kept in memory between shards, evicted least recently used first, bounded in bytes.
//!
//! Keyed by (dataset, snapshot, group, columns, number of newest bars): a snapshot never changes, so entries never become stale. A group in
//! use stays alive after it is evicted.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use trawl_market::LoadedBars;
use trawl_telemetry::metrics::catalogue::worker::{CACHE_BUDGET, CACHE_HITS, CACHE_MISSES, CACHE_RESIDENT, CacheLevel};

/// Default capacity in bytes.
pub const CACHE_BYTES_DEFAULT: u64 = 1 << 30;
/// Estimated bytes per symbol, besides its bars: name, vectors, allocator.
const SYMBOL_OVERHEAD_BYTES: u64 = 160;
/// Bytes of a time or a value.
const VALUE_BYTES: u64 = 8;

/// The key of a group's bars.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct GroupKey {
    /// Name and full snapshot: `NAME@SNAPSHOT`.
    pub dataset: Arc<str>,
    /// Group id.
    pub group: u32,
    /// Columns in the order they were loaded.
    pub columns: Arc<[String]>,
    /// Of each symbol only so many of its newest bars; all if `None`.
    pub newest: Option<u64>,
}

/// The bars of a group, shared.
pub type Group = Arc<Vec<LoadedBars>>;

/// The cache, one per worker.
#[derive(Debug)]
pub struct GroupCache {
    bytes_max: u64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    groups: BTreeMap<GroupKey, CachedGroup>,
    /// Keys by time of last use.
    order: BTreeMap<u64, GroupKey>,
    bytes: u64,
    clock: u64,
}

#[derive(Debug)]
struct CachedGroup {
    group: Group,
    bytes: u64,
    used: u64,
}

impl GroupCache {
    /// A cache of at most `bytes_max` bytes; 0 disables it.
    pub fn new(bytes_max: u64) -> Self {
        CACHE_BUDGET.of(CacheLevel::Memory).set_count(bytes_max);
        Self { bytes_max, state: Mutex::default() }
    }

    /// The group, and whether it was in memory. Loads without holding the lock: two threads may load the same group at
    /// once, and one copy is kept.
    ///
    /// # Errors
    /// Those of `load`.
    pub fn get_or_load<E>(
        &self,
        key: &GroupKey,
        load: impl FnOnce() -> Result<Vec<LoadedBars>, E>,
    ) -> Result<(Group, bool), E> {
        if let Some(group) = self.get(key) {
            CACHE_HITS.of(CacheLevel::Memory).inc();
            return Ok((group, true));
        }
        CACHE_MISSES.of(CacheLevel::Memory).inc();
        let group = Arc::new(load()?);
        self.keep(key, &group);
        Ok((group, false))
    }

    /// Whether the group is in memory; does not count as a use.
    pub fn holds(&self, key: &GroupKey) -> bool {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).groups.contains_key(key)
    }

    fn get(&self, key: &GroupKey) -> Option<Group> {
        let state = &mut *self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let held = state.groups.get_mut(key)?;
        state.clock += 1;
        state.order.remove(&held.used);
        held.used = state.clock;
        state.order.insert(held.used, key.clone());
        Some(Arc::clone(&held.group))
    }

    fn keep(&self, key: &GroupKey, group: &Group) {
        let bytes = size_of_bars(group);
        if bytes > self.bytes_max {
            return;
        }
        let state = &mut *self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.groups.contains_key(key) {
            return;
        }
        while state.bytes + bytes > self.bytes_max {
            let Some((_, oldest)) = state.order.pop_first() else { break };
            if let Some(held) = state.groups.remove(&oldest) {
                state.bytes -= held.bytes;
            }
        }
        state.clock += 1;
        state.bytes += bytes;
        state.order.insert(state.clock, key.clone());
        state.groups.insert(key.clone(), CachedGroup { group: Arc::clone(group), bytes, used: state.clock });
        CACHE_RESIDENT.of(CacheLevel::Memory).set_count(state.bytes);
    }

    /// Bytes currently held.
    pub fn bytes(&self) -> u64 {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).bytes
    }
}

fn size_of_bars(bars: &[LoadedBars]) -> u64 {
    let of_symbol = |symbol: &LoadedBars| {
        let read = |values: usize| values.saturating_sub(symbol.unread);
        let values = read(symbol.times.len()) + symbol.columns.iter().map(|column| read(column.len())).sum::<usize>();
        SYMBOL_OVERHEAD_BYTES + values as u64 * VALUE_BYTES
    };
    bars.iter().map(of_symbol).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(group: u32) -> GroupKey {
        GroupKey { dataset: Arc::from("a@1"), group, columns: Arc::from(vec!["close".to_owned()]), newest: None }
    }

    /// Bars of about 8 kB.
    fn bars() -> Vec<LoadedBars> {
        vec![LoadedBars {
            symbol: Arc::from("A"),
            times: vec![0; 500].into(),
            columns: vec![vec![0.0; 500].into()],
            unread: 0,
        }]
    }

    fn load(cache: &GroupCache, group: u32) -> bool {
        cache.get_or_load(&key(group), || Ok::<_, ()>(bars())).unwrap().1
    }

    #[test]
    fn the_least_recently_used_group_goes_and_the_bytes_stay_bounded() {
        let cache = GroupCache::new(20_000);
        assert!(!load(&cache, 1) && !load(&cache, 2));
        assert!(load(&cache, 1), "1 is in memory and now the younger one");
        assert!(!load(&cache, 3), "3 pushes 2 out");
        assert!(load(&cache, 1) && load(&cache, 3));
        assert!(!load(&cache, 2));
        assert!(cache.bytes() <= 20_000 && cache.bytes() > 16_000, "{}", cache.bytes());
    }

    #[test]
    fn a_group_too_big_and_a_group_that_cannot_be_loaded_are_not_kept() {
        let cache = GroupCache::new(100);
        assert!(!load(&cache, 1) && !load(&cache, 1));
        assert_eq!(cache.get_or_load(&key(2), || Err("torn")).unwrap_err(), "torn");
        assert_eq!(cache.bytes(), 0);
    }

    #[test]
    fn other_columns_are_another_group() {
        let cache = GroupCache::new(1 << 20);
        let open = GroupKey { columns: Arc::from(vec!["open".to_owned()]), ..key(1) };
        assert!(!load(&cache, 1));
        assert!(!cache.get_or_load(&open, || Ok::<_, ()>(bars())).unwrap().1);
    }
}
