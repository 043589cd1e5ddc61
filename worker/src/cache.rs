//! Bars in memory between shards, bounded in bytes. The cache is that of `trawl_market`, by the content of files and by column, which
//! all snapshots, as-ofs, adjustments and plans of a worker share; here are its size and its metrics.

use std::sync::Arc;

use trawl_market::ColumnCache;
use trawl_telemetry::metrics::catalogue::worker::{CACHE_BUDGET, CACHE_HITS, CACHE_MISSES, CACHE_RESIDENT, CacheLevel};

/// Default capacity in bytes.
pub const CACHE_BYTES_DEFAULT: u64 = 1 << 30;

/// The cache of a worker, of at most `bytes_max` bytes; 0 disables it.
pub(crate) fn in_memory(bytes_max: u64) -> Arc<ColumnCache> {
    CACHE_BUDGET.of(CacheLevel::Memory).set_count(bytes_max);
    Arc::new(ColumnCache::new(bytes_max))
}

/// Counts a segment that was loaded: all of its bars were in memory, or some were not.
pub(crate) fn count_load(cache: &ColumnCache, resident: bool) {
    let counter = if resident { &CACHE_HITS } else { &CACHE_MISSES };
    counter.of(CacheLevel::Memory).inc();
    CACHE_RESIDENT.of(CacheLevel::Memory).set_count(cache.bytes());
}
