//! A limit of the streams of events that clients have open at once, over all and for each caller.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use trawl_security::Caller;

/// Maximum streams at once, over all callers.
const STREAMS_MAX: usize = 4096;
/// Maximum streams at once of one caller; on loopback without certificates and tokens there is only the limit of all.
const STREAMS_PER_CALLER_MAX: usize = 1024;

/// The streams that are open. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(super) struct Streams(Arc<Mutex<Open>>);

#[derive(Debug, Default)]
struct Open {
    all: usize,
    callers: BTreeMap<String, usize>,
}

/// One open stream.
#[derive(Debug)]
pub(super) struct StreamPermit {
    streams: Streams,
    caller: String,
}

impl Streams {
    /// Opens a stream, unless there are too many.
    ///
    /// # Errors
    /// A message with the limit.
    pub fn open(&self, caller: &Caller) -> Result<StreamPermit, String> {
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if open.all >= STREAMS_MAX {
            return Err(format!("{STREAMS_MAX} streams of scans are open already"));
        }
        let of_caller = open.callers.get(&caller.name).copied().unwrap_or(0);
        if of_caller >= STREAMS_PER_CALLER_MAX && *caller != Caller::local() {
            return Err(format!("{} has {STREAMS_PER_CALLER_MAX} streams of scans open already", caller.name));
        }
        open.all += 1;
        open.callers.insert(caller.name.clone(), of_caller + 1);
        Ok(StreamPermit { streams: self.clone(), caller: caller.name.clone() })
    }

    /// Whether no stream is open.
    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).all == 0
    }
}

impl Drop for StreamPermit {
    fn drop(&mut self) {
        let mut open = self.streams.0.lock().unwrap_or_else(PoisonError::into_inner);
        open.all -= 1;
        if let Some(of_caller) = open.callers.get_mut(&self.caller) {
            *of_caller -= 1;
            if *of_caller == 0 {
                open.callers.remove(&self.caller);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caller(name: &str) -> Caller {
        Caller { name: name.to_owned(), ..Caller::local() }
    }

    #[test]
    fn a_caller_and_all_callers_have_their_limits_and_closed_streams_are_given_back() {
        let streams = Streams::default();
        let alice = caller("user alice");
        let mut held: Vec<_> = (0..STREAMS_PER_CALLER_MAX).map(|_| streams.open(&alice).unwrap()).collect();
        assert_eq!(streams.open(&alice).unwrap_err(), "user alice has 1024 streams of scans open already");
        held.pop();
        held.push(streams.open(&alice).unwrap());
        let local = Caller::local();
        held.extend((held.len()..STREAMS_MAX).map(|_| streams.open(&local).unwrap()));
        assert_eq!(streams.open(&caller("user ben")).unwrap_err(), "4096 streams of scans are open already");
        drop(held);
        assert!(streams.open(&caller("user ben")).is_ok());
        assert!(streams.0.lock().unwrap().callers.is_empty());
    }
}
