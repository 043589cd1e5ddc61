//! Waiting on a condition with a bound. There is no other way to wait in these tests.

use std::time::{Duration, Instant};

/// How often a condition is looked at.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Looks until `condition` gives a value; `None` when `bound` has passed without one.
pub fn until<T>(bound: Duration, mut condition: impl FnMut() -> Option<T>) -> Option<T> {
    let deadline = Instant::now() + bound;
    loop {
        if let Some(value) = condition() {
            return Some(value);
        }
        if Instant::now() >= deadline {
            return None;
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}
