//! Events of the driver that are used again: creating one takes the driver's locks, and a batch marks its stream six times.
//!
//! Neither taking nor returning waits for another thread.

use std::sync::atomic::{AtomicU64, Ordering};

/// Most events that wait for their next use: those of some twenty batches.
pub(super) const EVENTS_MAX: usize = 128;

/// Handles of events that nobody uses; 0 is a free place.
#[derive(Debug)]
pub(super) struct EventPool {
    places: [AtomicU64; EVENTS_MAX],
}

impl Default for EventPool {
    fn default() -> Self {
        Self { places: [const { AtomicU64::new(0) }; EVENTS_MAX] }
    }
}

impl EventPool {
    /// An event that nobody uses, if there is one.
    pub fn take(&self) -> Option<u64> {
        let taken = |place: &AtomicU64| match place.load(Ordering::Relaxed) {
            0 => None,
            _ => Some(place.swap(0, Ordering::Acquire)).filter(|event| *event != 0),
        };
        self.places.iter().find_map(taken)
    }

    /// Keeps an event; `false` if there is no place for it.
    pub fn keep(&self, event: u64) -> bool {
        let put = |place: &AtomicU64| {
            place.load(Ordering::Relaxed) == 0
                && place.compare_exchange(0, event, Ordering::Release, Ordering::Relaxed).is_ok()
        };
        self.places.iter().any(put)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn an_event_is_given_to_one_user_at_a_time_and_no_more_are_kept_than_there_are_places() {
        let pool = EventPool::default();
        assert_eq!(pool.take(), None);
        assert!((1..=EVENTS_MAX as u64).all(|event| pool.keep(event)));
        assert!(!pool.keep(1_000));
        let used = Mutex::new(BTreeSet::new());
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..2_000 {
                        let event = pool.take().expect("as many as there are places");
                        assert!(used.lock().unwrap().insert(event), "{event} is used twice");
                        std::thread::yield_now();
                        assert!(used.lock().unwrap().remove(&event));
                        assert!(pool.keep(event));
                    }
                });
            }
        });
        let left: BTreeSet<u64> = std::iter::from_fn(|| pool.take()).collect();
        assert_eq!(left, (1..=EVENTS_MAX as u64).collect());
    }
}
