//! Columns of groups kept in memory, within a bound in bytes: between the steps of a scan, or between all scans of a process.
//!
//! Keyed by the sha256 of the group's file, the column and which chunks of it were read, so that an entry never becomes stale, and
//! snapshots, as-ofs, adjustments and plans that read the same bars share them: what is kept is as stored, adjusting comes later.
//!
//! What is asked for more often stays. A column replaces those that were used the longest ago only if it was asked for more often than
//! each of them lately (`popularity`): one pass over everything evicts nothing that is in use, and passes that are repeated over more bars
//! than there is room for find a part of them here each time, where the newest replacing the oldest would find none.

mod popularity;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use self::popularity::Popularity;
use crate::series::{Series, VALUE_BYTES};
use crate::time::TimeMicros;

/// Approximate bytes of an entry's series besides their values.
const SERIES_BYTES: u64 = 48;

/// A column of all symbols of a group.
#[derive(Debug, Clone)]
pub(crate) enum Column {
    Times(Vec<Series<TimeMicros>>),
    Values(Vec<Series<f64>>),
}

/// What was read of a group.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct GroupPart {
    /// The sha256 of the group's file, or whatever else names its bars.
    content: Arc<str>,
    /// By symbol, the number of chunks at its beginning that are not read; empty if all are.
    unread: Arc<[usize]>,
}

impl GroupPart {
    pub fn new(content: &str, unread: &[usize]) -> Self {
        let unread = if unread.iter().all(|chunks| *chunks == 0) { &[] } else { unread };
        Self { content: content.into(), unread: unread.into() }
    }

    /// All of the group.
    fn whole(&self) -> Self {
        Self { content: Arc::clone(&self.content), unread: Arc::default() }
    }
}

type Key = (GroupPart, Arc<str>);

#[derive(Debug)]
struct Entry {
    column: Column,
    bytes: u64,
    used: u64,
}

#[derive(Debug, Default)]
struct State {
    held: HashMap<Key, Entry>,
    /// Number of columns in `held`, by content.
    contents: HashMap<Arc<str>, usize>,
    /// Keys by time of last use.
    order: BTreeMap<u64, Key>,
    bytes: u64,
    clock: u64,
    popularity: Popularity,
}

/// The columns that are kept.
#[derive(Debug)]
pub struct ColumnCache {
    /// The columns that are worth keeping, the others are read once; `None`: all.
    columns: Option<BTreeSet<String>>,
    bytes_max: u64,
    state: Mutex<State>,
    /// See [`Self::generation`].
    generation: AtomicU64,
}

impl ColumnCache {
    /// Keeps columns of any datasets that share it, at most so many bytes of their values; 0 keeps none.
    pub fn new(bytes_max: u64) -> Self {
        Self { columns: None, bytes_max, state: Mutex::default(), generation: AtomicU64::new(0) }
    }

    /// Keeps these columns.
    pub(crate) fn of(columns: impl IntoIterator<Item = String>, bytes_max: u64) -> Self {
        Self {
            columns: Some(columns.into_iter().collect()),
            bytes_max,
            state: Mutex::default(),
            generation: AtomicU64::new(0),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes that are kept now.
    pub fn bytes(&self) -> u64 {
        self.state().bytes
    }

    /// Another number whenever contents have come or gone of which any column is here.
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Whether it is one for several snapshots, which have bars in common.
    pub(crate) fn is_shared(&self) -> bool {
        self.columns.is_none()
    }

    /// Whether a column is here; this counts as no use.
    pub(crate) fn holds(&self, part: &GroupPart, column: &str) -> bool {
        let name: Arc<str> = column.into();
        let state = self.state();
        [part.clone(), part.whole()].into_iter().any(|part| state.held.contains_key(&(part, Arc::clone(&name))))
    }

    /// The values whose content has any column here; this counts as no use.
    pub(crate) fn with_columns<'a, T>(&self, of: impl Iterator<Item = (T, &'a str)>) -> Vec<T> {
        let state = self.state();
        of.filter(|(_, content)| state.contents.contains_key(*content)).map(|(value, _)| value).collect()
    }

    /// A column of at least these rows.
    pub(crate) fn get(&self, part: &GroupPart, column: &str) -> Option<Column> {
        let name: Arc<str> = column.into();
        let state = &mut *self.state();
        state.popularity.add(&part.content, column);
        for part in [part.clone(), part.whole()] {
            let key = (part, Arc::clone(&name));
            if let Some(entry) = state.held.get_mut(&key) {
                state.clock += 1;
                state.order.remove(&entry.used);
                entry.used = state.clock;
                state.order.insert(entry.used, key);
                return Some(entry.column.clone());
            }
        }
        None
    }

    /// Keeps a column if it is one of those to be kept, and asked for more often than what has to go for it. `unread_rows` are those
    /// of each symbol that were not read; none if there are fewer.
    pub(crate) fn keep(&self, part: &GroupPart, name: &str, column: &Column, unread_rows: &[u64]) {
        if self.columns.as_ref().is_some_and(|columns| !columns.contains(name)) {
            return;
        }
        let read = |(at, rows): (usize, usize)| (rows as u64).saturating_sub(unread_rows.get(at).copied().unwrap_or(0));
        let (values, count): (u64, usize) = match column {
            // Symbols with the same times share them: their buffer counts once.
            Column::Times(series) => {
                let own = |(at, times): &(usize, &Series<TimeMicros>)| !series[..*at].iter().any(|s| s.same_as(times));
                let own = series.iter().enumerate().filter(own).map(|(at, times)| read((at, times.len())));
                (own.sum(), series.len())
            }
            Column::Values(series) => {
                (series.iter().enumerate().map(|(at, values)| read((at, values.len()))).sum(), series.len())
            }
        };
        let bytes = values * VALUE_BYTES + count as u64 * SERIES_BYTES;
        let (key, state) = ((part.clone(), Arc::from(name)), &mut *self.state());
        if bytes > self.bytes_max || state.held.contains_key(&key) {
            return;
        }
        let (mut room, mut goes) = (self.bytes_max - state.bytes, Vec::new());
        let own = state.popularity.of(&part.content, name);
        for (used, key) in &state.order {
            if room >= bytes {
                break;
            }
            if state.popularity.of(&key.0.content, &key.1) >= own {
                return;
            }
            room += state.held.get(key).map_or(0, |entry| entry.bytes);
            goes.push(*used);
        }
        for used in goes {
            let Some(key) = state.order.remove(&used) else { continue };
            state.bytes -= state.held.remove(&key).map_or(0, |entry| entry.bytes);
            if let Some(columns) = state.contents.get_mut(&key.0.content) {
                *columns -= 1;
                if *columns == 0 {
                    state.contents.remove(&key.0.content);
                    self.generation.fetch_add(1, Ordering::Release);
                }
            }
        }
        state.clock += 1;
        state.bytes += bytes;
        let columns = state.contents.entry(Arc::clone(&key.0.content)).or_default();
        *columns += 1;
        if *columns == 1 {
            self.generation.fetch_add(1, Ordering::Release);
        }
        state.order.insert(state.clock, key.clone());
        state.held.insert(key, Entry { column: column.clone(), bytes, used: state.clock });
    }
}

#[cfg(test)]
mod tests {
    use super::popularity::HALVED_AFTER;
    use super::*;

    fn part(content: &str) -> GroupPart {
        GroupPart::new(content, &[])
    }

    fn column(value: f64) -> Column {
        Column::Values(vec![vec![value; 100].into(), vec![value; 100].into()])
    }

    /// Bytes of `column`.
    const BYTES: u64 = 200 * VALUE_BYTES + 2 * SERIES_BYTES;

    /// Whether a column was here; otherwise it is read, and kept if it may be.
    fn ask(cache: &ColumnCache, content: &str) -> bool {
        let found = cache.get(&part(content), "close").is_some();
        if !found {
            cache.keep(&part(content), "close", &column(1.0), &[]);
        }
        assert!(cache.bytes() <= cache.bytes_max);
        found
    }

    fn names(prefix: &str, count: usize) -> Vec<String> {
        (0..count).map(|at| format!("{prefix}{at}")).collect()
    }

    #[test]
    fn what_is_there_stays_and_the_bytes_are_bounded() {
        let cache = ColumnCache::of(["close".to_owned()], 2 * BYTES);
        for (sha256, value) in [("a", 1.0), ("b", 2.0), ("c", 3.0), ("a", 4.0)] {
            cache.keep(&part(sha256), "close", &column(value), &[]);
        }
        let first = |sha256, name| match cache.get(&part(sha256), name) {
            Some(Column::Values(series)) => Some(series[1][99]),
            _ => None,
        };
        assert_eq!([first("a", "close"), first("b", "close"), first("c", "close")], [Some(1.0), Some(2.0), None]);
        cache.keep(&part("a"), "open", &Column::Values(Vec::new()), &[]);
        assert!(cache.get(&part("a"), "open").is_none(), "not one of those to be kept");
    }

    #[test]
    fn shared_times_count_once() {
        let times: Series<i64> = vec![0; 1_000].into();
        let cache = ColumnCache::of(["time".to_owned()], 1_000 * VALUE_BYTES + 64 * SERIES_BYTES);
        cache.keep(&part("a"), "time", &Column::Times(vec![times; 64]), &[]);
        assert!(cache.get(&part("a"), "time").is_some());
    }

    #[test]
    fn one_pass_over_everything_evicts_nothing_that_is_used_often() {
        let cache = ColumnCache::new(20 * BYTES);
        let often = names("often", 16);
        for _ in 0..4 {
            for name in &often {
                ask(&cache, name);
            }
        }
        for name in names("once", 5_000) {
            assert!(!ask(&cache, &name));
        }
        assert_eq!(often.iter().filter(|name| ask(&cache, name)).count(), often.len());
    }

    #[test]
    fn passes_over_more_than_there_is_room_for_find_what_there_is_room_for() {
        let (cache, all) = (ColumnCache::new(50 * BYTES), names("bars", 100));
        let pass = || all.iter().filter(|name| ask(&cache, name)).count();
        assert_eq!(pass(), 0);
        for _ in 0..20 {
            let found = pass();
            assert!(found >= 45, "{found} of the 50 that there is room for");
        }
    }

    #[test]
    fn what_was_used_often_once_makes_room_for_what_is_used_now() {
        let cache = ColumnCache::new(20 * BYTES);
        let (old, new) = (names("old", 20), names("new", 20));
        for _ in 0..100 {
            for name in &old {
                ask(&cache, name);
            }
        }
        let pass = || new.iter().filter(|name| ask(&cache, name)).count();
        let questions = new.len() * (1..).find(|_| pass() == new.len()).unwrap();
        assert!(questions <= 2 * HALVED_AFTER as usize, "{questions} questions until all are here");
        assert!(!old.iter().any(|name| cache.holds(&part(name), "close")));
    }

    #[test]
    fn a_part_of_the_rows_is_another_column_and_all_of_them_serve_it_too() {
        let cache = ColumnCache::new(10 * BYTES);
        let newest = GroupPart::new("a", &[2, 0]);
        cache.keep(&newest, "close", &column(1.0), &[90, 0]);
        assert_eq!(cache.bytes(), BYTES - 90 * VALUE_BYTES, "what was not read takes no memory");
        assert!(cache.holds(&newest, "close") && !cache.holds(&part("a"), "close"));
        assert!(!cache.holds(&GroupPart::new("a", &[1, 0]), "close"));
        cache.keep(&part("a"), "close", &column(1.0), &[]);
        assert!(cache.get(&GroupPart::new("a", &[1, 0]), "close").is_some());
        assert_eq!(GroupPart::new("a", &[0, 0]), part("a"));
    }

    #[test]
    fn which_contents_have_columns_follows_what_is_kept_and_evicted() {
        let cache = ColumnCache::new(2 * BYTES);
        let of = |names: &[&'static str]| cache.with_columns(names.iter().map(|name| (*name, *name)));
        cache.keep(&part("a"), "close", &column(1.0), &[]);
        cache.keep(&part("a"), "open", &column(1.0), &[]);
        assert_eq!(of(&["a", "b"]), ["a"]);
        assert_eq!(cache.generation(), 1, "one content");
        for (gone, generation) in [("close", 1), ("open", 2)] {
            assert_eq!(of(&["a"]), ["a"], "until the last column goes");
            assert_eq!(cache.generation(), generation);
            (0..2).for_each(|_| drop(cache.get(&part("b"), gone)));
            cache.keep(&part("b"), gone, &column(2.0), &[]);
        }
        assert_eq!(of(&["a", "b"]), ["b"]);
        assert_eq!(cache.generation(), 3, "one has come and one has gone");
    }

    #[test]
    fn a_cache_without_room_keeps_nothing() {
        let cache = ColumnCache::new(0);
        assert!(!ask(&cache, "a") && !ask(&cache, "a"));
        assert_eq!(cache.bytes(), 0);
    }
}
