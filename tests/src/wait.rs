//! Waiting on a condition with a bound. These tests wait in no other way.

use std::time::{Duration, Instant};

/// Interval at which a condition is checked.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Checks until `condition` gives a value; `None` when `bound` has passed without one.
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
