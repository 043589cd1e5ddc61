//! Whether bringing bars ahead pays: what was brought, and what of it was read.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Bytes that are brought before it is asked whether they were read.
const TRIAL_BYTES: u64 = 64 << 20;
/// Of bytes that were brought, 1/`READ_SHARE` at least have to be read.
const READ_SHARE: u64 = 2;
/// Calls for which prefetching is off when they were not.
const REST_CALLS: u64 = 16;

/// What prefetching did so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Prefetches {
    /// Bytes of bars that were brought.
    pub brought_bytes: u64,
    /// Bytes of those that a request read: copies that it did not wait for.
    pub read_bytes: u64,
    /// Bytes that requests copied themselves.
    pub copied_bytes: u64,
    /// Calls that were left out because too little was read.
    pub left_out: u64,
}

impl Prefetches {
    /// The share of the bars that requests needed on the device whose copies were hidden; 0 if none were needed.
    pub fn hidden_share(self) -> f64 {
        let needed = self.read_bytes + self.copied_bytes;
        if needed == 0 { 0.0 } else { self.read_bytes as f64 / needed as f64 }
    }

    pub(super) fn minus(self, other: Self) -> Self {
        Self {
            brought_bytes: self.brought_bytes - other.brought_bytes,
            read_bytes: self.read_bytes - other.read_bytes,
            copied_bytes: self.copied_bytes - other.copied_bytes,
            left_out: self.left_out - other.left_out,
        }
    }

    pub(super) fn plus(self, other: Self) -> Self {
        Self {
            brought_bytes: self.brought_bytes + other.brought_bytes,
            read_bytes: self.read_bytes + other.read_bytes,
            copied_bytes: self.copied_bytes + other.copied_bytes,
            left_out: self.left_out + other.left_out,
        }
    }
}

/// Whether prefetching pays on a device.
#[derive(Debug, Default)]
pub(super) struct Paying {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Brought, and read of all, since the last trial began.
    brought: u64,
    read_before: u64,
    /// Calls that are still left out.
    rest: u64,
    left_out: u64,
    all_brought: u64,
}

impl Paying {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a call may bring anything. `read`: bytes read so far of those that were brought.
    pub fn is_on(&self, read: u64) -> bool {
        let mut state = self.state();
        if state.rest > 0 {
            state.rest -= 1;
            state.left_out += 1;
            if state.rest == 0 {
                (state.brought, state.read_before) = (0, read);
            }
            return false;
        }
        let was_read = read.saturating_sub(state.read_before);
        if state.brought >= TRIAL_BYTES && was_read.saturating_mul(READ_SHARE) < state.brought {
            state.rest = REST_CALLS;
            state.left_out += 1;
            return false;
        }
        if state.brought >= TRIAL_BYTES {
            (state.brought, state.read_before) = (0, read);
        }
        true
    }

    /// Counts bytes that were brought; those of a trial if `on_trial`.
    pub fn brought(&self, bytes: u64, on_trial: bool) {
        let mut state = self.state();
        if on_trial {
            state.brought += bytes;
        }
        state.all_brought += bytes;
    }

    /// Bytes brought so far, and calls left out.
    pub fn so_far(&self) -> (u64, u64) {
        let state = self.state();
        (state.all_brought, state.left_out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_read_turns_it_off_for_some_calls_and_what_is_read_does_not() {
        let paying = Paying::default();
        assert!(paying.is_on(0));
        paying.brought(TRIAL_BYTES - 1, true);
        assert!(paying.is_on(0), "a trial has not ended");
        paying.brought(TRIAL_BYTES, false);
        assert!(paying.is_on(0), "what is brought for others is not on trial");
        paying.brought(1, true);
        // Half of it was read: the next trial begins.
        assert!(paying.is_on(TRIAL_BYTES / 2));
        paying.brought(TRIAL_BYTES, true);
        let calls: Vec<bool> = (0..=REST_CALLS + 1).map(|_| paying.is_on(TRIAL_BYTES - 1)).collect();
        assert_eq!(calls.iter().filter(|on| **on).count(), 1);
        assert!(calls[calls.len() - 1], "tried again");
        assert_eq!(paying.state().left_out, REST_CALLS + 1);
    }

    #[test]
    fn the_hidden_share_is_of_what_requests_needed() {
        let some = Prefetches { brought_bytes: 100, read_bytes: 60, copied_bytes: 20, left_out: 0 };
        assert!((some.hidden_share() - 0.75).abs() < 1e-12);
        assert!(Prefetches::default().hidden_share().abs() < 1e-12);
    }
}
