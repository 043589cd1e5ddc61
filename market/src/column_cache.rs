//! Columns of groups kept between the steps of a scan, within a bound in bytes.
//!
//! Keyed by the sha256 of the group's file and the column, so that an entry never becomes stale. The steps of a scan pass
//! over the same groups in the same order, for which replacing the oldest entry would give no hits at all once the bars
//! are more than the bound: what is there stays, and what does not fit is read again.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, PoisonError};

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

/// By the sha256 of a file and the name of a column.
type Held = HashMap<(String, String), Column>;

/// The columns that are kept.
#[derive(Debug)]
pub(crate) struct ColumnCache {
    /// The columns that are worth keeping; the others are read once.
    columns: BTreeSet<String>,
    bytes_max: u64,
    /// With their bytes.
    held: Mutex<(Held, u64)>,
}

impl ColumnCache {
    pub fn new(columns: impl IntoIterator<Item = String>, bytes_max: u64) -> Self {
        Self { columns: columns.into_iter().collect(), bytes_max, held: Mutex::default() }
    }

    pub fn get(&self, sha256: &str, column: &str) -> Option<Column> {
        let key = (sha256.to_owned(), column.to_owned());
        self.held.lock().unwrap_or_else(PoisonError::into_inner).0.get(&key).cloned()
    }

    /// Keeps a column if it is one of those to be kept, and there is room.
    pub fn keep(&self, sha256: &str, name: &str, column: &Column) {
        if !self.columns.contains(name) {
            return;
        }
        let values: u64 = match column {
            // Symbols with the same times share them: their buffer counts once.
            Column::Times(series) => {
                let own = |(at, times): &(usize, &Series<TimeMicros>)| !series[..*at].iter().any(|s| s.same_as(times));
                series.iter().enumerate().filter(own).map(|(_, times)| times.len() as u64).sum()
            }
            Column::Values(series) => series.iter().map(|values| values.len() as u64).sum(),
        };
        let count = match column {
            Column::Times(series) => series.len(),
            Column::Values(series) => series.len(),
        };
        let bytes = values * VALUE_BYTES + count as u64 * SERIES_BYTES;
        let (held, used) = &mut *self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (sha256.to_owned(), name.to_owned());
        if *used + bytes <= self.bytes_max && !held.contains_key(&key) {
            *used += bytes;
            held.insert(key, column.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_stays_and_the_bytes_are_bounded() {
        let column = |value| Column::Values(vec![vec![value; 100].into(), vec![value; 100].into()]);
        let cache = ColumnCache::new(["close".to_owned()], 2 * (200 * VALUE_BYTES + 2 * SERIES_BYTES));
        for (sha256, value) in [("a", 1.0), ("b", 2.0), ("c", 3.0), ("a", 4.0)] {
            cache.keep(sha256, "close", &column(value));
        }
        let first = |sha256, name| match cache.get(sha256, name) {
            Some(Column::Values(series)) => Some(series[1][99]),
            _ => None,
        };
        assert_eq!([first("a", "close"), first("b", "close"), first("c", "close")], [Some(1.0), Some(2.0), None]);
        cache.keep("a", "open", &Column::Values(Vec::new()));
        assert!(cache.get("a", "open").is_none(), "not one of those to be kept");
    }

    #[test]
    fn shared_times_count_once() {
        let times: Series<i64> = vec![0; 1_000].into();
        let cache = ColumnCache::new(["time".to_owned()], 1_000 * VALUE_BYTES + 64 * SERIES_BYTES);
        cache.keep("a", "time", &Column::Times(vec![times; 64]));
        assert!(cache.get("a", "time").is_some());
    }
}
