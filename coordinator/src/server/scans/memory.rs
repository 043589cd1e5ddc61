//! What scans may hold in memory: results, documents, and what cross-sections and merges work on.
//!
//! Results beyond their budget go to the spool, so that no scan waits for another's reader. Work that needs much memory
//! at once waits until there is room.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use trawl_telemetry::metrics::Gauge;
use trawl_telemetry::metrics::catalogue::coordinator::{PLANS_HELD, RESULTS_HELD};

use super::spool::Spool;

/// Default of the bytes of results in memory; further ones go to the spool.
pub const RESULTS_MEMORY_BYTES: usize = 1 << 30;
/// Maximum bytes of documents in memory; beyond, no further scan is taken.
pub const DOCUMENTS_BYTES_MAX: usize = 256 << 20;
/// Bytes that cross-sections and merges work on at once; further ones wait. One that needs more works alone.
pub const WORKING_BYTES_MAX: u64 = 1 << 30;
/// Bytes of answers that are read from the result store at once; further ones wait. A larger one is read alone.
pub const LOADING_BYTES_MAX: u64 = 512 << 20;
/// Bytes of compiled plans of scans that wait for a turn; the plans of further ones are compiled again when it comes.
pub const WAITING_PLANS_BYTES_MAX: usize = 64 << 20;
/// Bytes of a decoded result per byte of its envelope; an estimate from above.
pub(crate) const DECODED_BYTES_PER_BYTE: usize = 3;
/// Bytes per permit.
const PERMIT_BYTES: u64 = 1 << 20;

/// A number of bytes in memory, with a budget.
#[derive(Debug, Clone)]
pub(crate) struct HeldBytes(Arc<Held>);

#[derive(Debug)]
struct Held {
    bytes: AtomicUsize,
    max: usize,
    /// What shows it, with others.
    gauge: &'static Gauge,
}

impl HeldBytes {
    fn new(max: usize, gauge: &'static Gauge) -> Self {
        Self(Arc::new(Held { bytes: AtomicUsize::new(0), max, gauge }))
    }

    pub fn bytes(&self) -> usize {
        self.0.bytes.load(Ordering::Relaxed)
    }

    /// Whether the budget is used up.
    pub fn is_full(&self) -> bool {
        self.bytes() >= self.0.max
    }

    /// A share of no bytes.
    pub fn share(&self) -> HeldShare {
        HeldShare { bytes: 0, of: self.clone() }
    }

    fn add(&self, bytes: usize) {
        self.0.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.0.gauge.add(i64::try_from(bytes).unwrap_or(i64::MAX));
    }

    fn sub(&self, bytes: usize) {
        self.0.bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.0.gauge.add(-i64::try_from(bytes).unwrap_or(i64::MAX));
    }
}

/// The bytes of one holder, given back when it is dropped.
#[derive(Debug)]
pub(crate) struct HeldShare {
    bytes: usize,
    of: HeldBytes,
}

impl HeldShare {
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether the budget of all holders is used up.
    pub fn is_full(&self) -> bool {
        self.of.is_full()
    }

    /// The share with so many bytes more.
    pub fn with(mut self, bytes: usize) -> Self {
        self.add(bytes);
        self
    }

    pub fn add(&mut self, bytes: usize) {
        self.bytes += bytes;
        self.of.add(bytes);
    }

    /// Gives everything back.
    pub fn clear(&mut self) {
        self.of.sub(std::mem::take(&mut self.bytes));
    }
}

impl Drop for HeldShare {
    fn drop(&mut self) {
        self.clear();
    }
}

/// The budgets of the scans of one coordinator. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct ScanMemory {
    /// Events for clients, and decoded results of running scans.
    pub results: HeldBytes,
    /// Documents of all scans.
    pub documents: HeldBytes,
    /// Compiled plans of scans that run; their number is the limit, and the size of a plan.
    pub plans: HeldBytes,
    /// Compiled plans of scans that wait for a turn.
    pub waiting_plans: HeldBytes,
    pub spool: Spool,
    working: Arc<Semaphore>,
    loading: Arc<Semaphore>,
    /// What holders of permits of these two use.
    in_use: HeldBytes,
}

impl ScanMemory {
    /// `results_max`: see [`RESULTS_MEMORY_BYTES`].
    pub fn new(results_max: usize, spool: Spool) -> Self {
        let budget = |bytes: u64| {
            let permits = usize::try_from(bytes / PERMIT_BYTES).unwrap_or(usize::MAX);
            Arc::new(Semaphore::new(permits.min(Semaphore::MAX_PERMITS)))
        };
        Self {
            results: HeldBytes::new(results_max, &RESULTS_HELD),
            documents: HeldBytes::new(DOCUMENTS_BYTES_MAX, &PLANS_HELD),
            plans: HeldBytes::new(usize::MAX, &PLANS_HELD),
            waiting_plans: HeldBytes::new(WAITING_PLANS_BYTES_MAX, &PLANS_HELD),
            spool,
            working: budget(WORKING_BYTES_MAX),
            loading: budget(LOADING_BYTES_MAX),
            in_use: HeldBytes::new(usize::MAX, &RESULTS_HELD),
        }
    }

    /// Waits until there is room for work on so many bytes. A caller must not hold another permit.
    pub async fn work_on(&self, bytes: u64) -> MemoryPermit {
        self.permit(&self.working, bytes, WORKING_BYTES_MAX).await
    }

    /// Waits until so many bytes may be read from the result store. A caller must not hold a permit of
    /// [`Self::work_on`].
    pub async fn load(&self, bytes: u64) -> MemoryPermit {
        self.permit(&self.loading, bytes, LOADING_BYTES_MAX).await
    }

    async fn permit(&self, budget: &Arc<Semaphore>, bytes: u64, most: u64) -> MemoryPermit {
        let permits = u32::try_from(bytes.min(most).div_ceil(PERMIT_BYTES)).unwrap_or(u32::MAX);
        let share = Arc::clone(budget).acquire_many_owned(permits).await.ok();
        MemoryPermit { _share: share, _held: self.in_use.share().with(usize::try_from(bytes).unwrap_or(usize::MAX)) }
    }
}

/// A share of a budget, given back when it is dropped.
#[derive(Debug)]
pub(crate) struct MemoryPermit {
    /// The budgets are never closed, so that there is one.
    _share: Option<OwnedSemaphorePermit>,
    _held: HeldShare,
}

#[cfg(test)]
pub(super) mod tests {
    use std::time::Duration;

    use super::*;

    /// Budgets in which so many bytes of results fit.
    pub fn memory(results_max: usize) -> ScanMemory {
        ScanMemory::new(results_max, Spool::open(&std::env::temp_dir(), 1 << 20).unwrap())
    }

    #[test]
    fn shares_are_given_back_whichever_way_they_end() {
        let memory = memory(100);
        let (mut first, mut second) = (memory.results.share(), memory.results.share());
        first.add(60);
        assert!(!memory.results.is_full());
        second.add(40);
        assert!(second.is_full());
        first.clear();
        assert_eq!((memory.results.bytes(), first.bytes()), (40, 0));
        drop(second);
        assert_eq!(memory.results.bytes(), 0);
    }

    #[tokio::test]
    async fn work_waits_for_room_and_work_beyond_the_budget_is_alone() {
        let (memory, soon) = (memory(1), Duration::from_millis(20));
        let half = memory.work_on(WORKING_BYTES_MAX / 2).await;
        assert!(tokio::time::timeout(soon, memory.work_on(u64::MAX)).await.is_err());
        let other = memory.work_on(WORKING_BYTES_MAX / 2).await;
        drop((half, other));
        let _alone = memory.work_on(u64::MAX).await;
        assert!(tokio::time::timeout(soon, memory.work_on(1)).await.is_err());
    }
}
