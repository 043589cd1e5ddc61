//! Bars in memory between shards, bounded in bytes. The cache is that of `trawl_market`, by the content of files and by column, which
//! all snapshots, as-ofs, adjustments and plans of a worker share; here are its size and its metrics.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use trawl_market::ColumnCache;
use trawl_telemetry::metrics::catalogue::worker::{
    CACHE_BUDGET, CACHE_FETCH_TIME, CACHE_HITS, CACHE_MISSES, CACHE_RESIDENT, CACHE_WAIT_TIME, CacheLevel,
};
use trawl_wire::pb;

/// Default capacity in bytes.
pub const CACHE_BYTES_DEFAULT: u64 = 1 << 30;

/// The cache of a worker, of at most `bytes_max` bytes; 0 disables it.
pub(crate) fn in_memory(bytes_max: u64) -> Arc<ColumnCache> {
    CACHE_BUDGET.of(CacheLevel::Memory).set_count(bytes_max);
    Arc::new(ColumnCache::new(bytes_max))
}

/// Nanoseconds of a microsecond.
const MICROSECOND: u64 = 1_000;

/// Where the bars of a segment were when its shard arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    /// In this process's memory.
    Memory,
    /// In a file on this machine, or in a folder that is mounted.
    Disk,
    /// In an object store only.
    DataRoot,
}

/// How many segments had their bars where, since the worker was started.
#[derive(Debug, Default)]
pub(crate) struct Loads {
    memory: AtomicU64,
    disk: AtomicU64,
    data_root: AtomicU64,
}

impl Loads {
    /// Counts a segment that was loaded.
    pub fn count(&self, cache: &ColumnCache, source: Source) {
        let (loads, counter) = match source {
            Source::Memory => (&self.memory, &CACHE_HITS),
            Source::Disk => (&self.disk, &CACHE_MISSES),
            Source::DataRoot => (&self.data_root, &CACHE_MISSES),
        };
        loads.fetch_add(1, Ordering::Relaxed);
        counter.of(CacheLevel::Memory).inc();
        CACHE_RESIDENT.of(CacheLevel::Memory).set_count(cache.bytes());
    }

    /// The counts, and the times of this process's fetches.
    pub fn report(&self) -> pb::CacheLoads {
        let count = |loads: &AtomicU64| loads.load(Ordering::Relaxed);
        pb::CacheLoads {
            memory: count(&self.memory),
            disk: count(&self.disk),
            data_root: count(&self.data_root),
            fetch_us: CACHE_FETCH_TIME.get() / MICROSECOND,
            wait_us: CACHE_WAIT_TIME.get() / MICROSECOND,
        }
    }
}
