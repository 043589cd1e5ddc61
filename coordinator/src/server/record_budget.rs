//! Whether the control store has room for another scan: a budget of records, and a pause after the store reported that
//! it is full.
//!
//! Nothing here queries the store: the count is kept by the leader and corrected by every sweep of the records.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Maximum number of recorded scans, open and ended. At 3 KiB each (an upper estimate), they and an hour of history
/// stay below half of etcd's default quota of 2 GiB.
pub const RECORDS_MAX: usize = 131_072;
/// Retry delay when the budget is used up: the next records to be deleted may only just have been marked.
const RETRY_AFTER_RECORDS: Duration = Duration::from_secs(60);
/// How long submissions pause after the store reported that it is full.
const NO_SPACE_PAUSE: Duration = Duration::from_secs(10);

/// Why there is no room, and the retry delay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NoRoom {
    pub why: String,
    pub retry_after: Duration,
}

/// See the module's header. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct RecordBudget(Arc<State>);

#[derive(Debug)]
struct State {
    records_max: usize,
    records: AtomicUsize,
    /// The store's last error of no space, and the end of the pause.
    full: Mutex<Option<(String, Instant)>>,
}

impl Default for RecordBudget {
    fn default() -> Self {
        Self::new(RECORDS_MAX)
    }
}

impl RecordBudget {
    pub fn new(records_max: usize) -> Self {
        Self(Arc::new(State { records_max, records: AtomicUsize::new(0), full: Mutex::default() }))
    }

    /// Sets the number of recorded scans.
    pub fn set(&self, records: usize) {
        self.0.records.store(records, Ordering::Relaxed);
    }

    /// Counts one more recorded scan.
    pub fn add(&self) {
        self.0.records.fetch_add(1, Ordering::Relaxed);
    }

    /// Records that the store reported no space.
    pub fn is_full(&self, why: &str, now: Instant) {
        let mut full = self.0.full.lock().unwrap_or_else(PoisonError::into_inner);
        *full = Some((why.to_owned(), now + NO_SPACE_PAUSE));
    }

    /// Whether another scan may be recorded.
    ///
    /// # Errors
    /// Why there is no room.
    pub fn check(&self, now: Instant) -> Result<(), NoRoom> {
        let full = self.0.full.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((why, until)) = full.as_ref().filter(|(_, until)| *until > now) {
            let why = format!("scans cannot be recorded: etcd has no space left ({why})");
            return Err(NoRoom { why, retry_after: until.duration_since(now) });
        }
        let (records, records_max) = (self.0.records.load(Ordering::Relaxed), self.0.records_max);
        if records >= records_max {
            let why = format!(
                "{records} scans are recorded, at most {records_max} may be: those that ended are deleted after a while; \
                 --ephemeral scans are not recorded"
            );
            return Err(NoRoom { why, retry_after: RETRY_AFTER_RECORDS });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_room_up_to_the_budget_and_again_once_records_are_gone() {
        let (room, now) = (RecordBudget::new(2), Instant::now());
        room.set(1);
        assert_eq!(room.check(now), Ok(()));
        room.add();
        let full = room.check(now).unwrap_err();
        assert!(full.why.contains("2 scans are recorded") && full.retry_after == RETRY_AFTER_RECORDS, "{full:?}");
        room.set(0);
        assert_eq!(room.check(now), Ok(()));
    }

    #[test]
    fn a_store_without_space_is_left_alone_for_a_while_and_named() {
        let (room, now) = (RecordBudget::default(), Instant::now());
        room.is_full("database space exceeded", now);
        let full = room.check(now + NO_SPACE_PAUSE / 2).unwrap_err();
        assert!(full.why.contains("no space left (database space exceeded)"), "{full:?}");
        assert_eq!(full.retry_after, NO_SPACE_PAUSE / 2);
        assert_eq!(room.check(now + NO_SPACE_PAUSE), Ok(()));
    }
}
