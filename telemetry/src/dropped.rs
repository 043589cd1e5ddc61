//! Spans that were made and could not be kept or sent.

use std::sync::atomic::{AtomicU64, Ordering};

static DROPPED: AtomicU64 = AtomicU64::new(0);

/// How many so far.
pub fn dropped_spans() -> u64 {
    DROPPED.load(Ordering::Relaxed)
}
