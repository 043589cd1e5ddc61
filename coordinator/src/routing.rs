//! Chooses how a scan runs in this process, on the calling thread or on several, by estimated cost. The answer never
//! depends on it.

use std::fmt;

use crate::prepare::PreparedScan;

/// Minimum work per thread, in nanoseconds; less is done before another thread has started.
const WORTH_A_THREAD_NS: f64 = 1e6;
/// Nanoseconds that reading a byte of a dataset takes, decoding included.
const READ_NS_PER_BYTE: f64 = 0.5;
/// Bytes of one value or time.
const VALUE_BYTES: f64 = 8.0;

/// How the segments of a scan are computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Route {
    /// One after the other.
    Sequential,
    /// In parallel on this many threads.
    Threads(usize),
}

impl Route {
    /// Number of computing threads.
    pub fn threads(self) -> usize {
        match self {
            Self::Sequential => 1,
            Self::Threads(threads) => threads,
        }
    }
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sequential => f.write_str("sequential"),
            Self::Threads(threads) => write!(f, "{threads} threads"),
        }
    }
}

/// The route for a scan on up to `available` threads: no more threads than segments, and none with too little work.
pub fn route(prepared: &PreparedScan, available: usize) -> Route {
    by_cost(estimated_ns(prepared), prepared.segments.len(), available)
}

/// Nanoseconds of one core that reading and computing a scan takes, estimated.
pub fn estimated_ns(prepared: &PreparedScan) -> f64 {
    let computing: f64 = prepared.segment_costs().iter().map(|s| s.cost as f64).sum();
    let columns = (prepared.plan.columns.len() + 1) as f64;
    let reading = prepared.bar_count() as f64 * columns * VALUE_BYTES * READ_NS_PER_BYTE;
    computing + reading
}

fn by_cost(ns: f64, segments: usize, available: usize) -> Route {
    // Saturating: a cost beyond usize is work for every thread.
    let worth = (ns / WORTH_A_THREAD_NS) as usize;
    match worth.min(segments).min(available) {
        0 | 1 => Route::Sequential,
        threads => Route::Threads(threads),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_are_taken_where_each_has_enough_to_do() {
        assert_eq!(by_cost(3e5, 100, 8), Route::Sequential);
        assert_eq!(by_cost(3.5e6, 100, 8), Route::Threads(3));
        assert_eq!(by_cost(1e12, 100, 8), Route::Threads(8));
        assert_eq!(by_cost(1e12, 2, 8), Route::Threads(2));
        assert_eq!(by_cost(1e12, 1, 8), Route::Sequential);
        assert_eq!(by_cost(f64::INFINITY, 9, 1), Route::Sequential);
    }
}
