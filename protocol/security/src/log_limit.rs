//! How many lines of a kind the log shows: whoever is refused thousands of times must neither fill the log nor hide there what somebody
//! else does.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Lines of one kind that are shown in a [`WINDOW`]; more are counted, and logged at debug level.
pub const SHOWN_MAX: u32 = 20;
/// See [`SHOWN_MAX`].
pub const WINDOW: Duration = Duration::from_secs(10);

/// Begin of the current window, the number in it, and how many of the windows before were not shown.
#[derive(Debug)]
pub struct LogLimit(Mutex<(Option<Instant>, u32, u64)>);

impl LogLimit {
    /// Of no lines so far.
    #[expect(clippy::declare_interior_mutable_const, reason = "each use is one of its own")]
    pub const NEW: Self = Self(Mutex::new((None, 0, 0)));

    /// Counts one more line: how many were not shown since the last that was, or `None` if this one is not shown either.
    pub fn again(&self, now: Instant) -> Option<u64> {
        let mut counted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (begin, count, hidden) = &mut *counted;
        if begin.is_none_or(|begin| now.saturating_duration_since(begin) >= WINDOW) {
            (*begin, *count) = (Some(now), 0);
        }
        *count = count.saturating_add(1);
        if *count <= SHOWN_MAX {
            return Some(std::mem::take(hidden));
        }
        *hidden = hidden.saturating_add(1);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_are_shown_as_can_be_read_and_the_others_are_counted() {
        let (limit, start) = (LogLimit::NEW, Instant::now());
        let first = (0..1000).filter(|_| limit.again(start).is_some()).count();
        assert_eq!(first, SHOWN_MAX as usize);
        assert_eq!(limit.again(start + WINDOW / 2), None);
        assert_eq!(limit.again(start + WINDOW), Some(1001 - u64::from(SHOWN_MAX)));
        assert_eq!(limit.again(start + WINDOW), Some(0));
    }
}
