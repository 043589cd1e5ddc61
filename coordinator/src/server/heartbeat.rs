//! Shows the election that the leader's work makes progress, and that it was succeeded: a leader whose work is stuck must
//! not keep its lease, and one that a worker knows to be succeeded need not wait for the control store to learn it.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Interval of beats of a task that waits for others.
const BEAT_INTERVAL: Duration = Duration::from_secs(1);

/// The time of the last sign of progress. Clones share it.
#[derive(Debug, Clone)]
pub struct Heartbeat {
    started: Instant,
    /// Milliseconds after `started`.
    last_ms: Arc<AtomicU64>,
    /// The latest epoch that a worker refused.
    over: Arc<AtomicI64>,
}

impl Default for Heartbeat {
    fn default() -> Self {
        Self { started: Instant::now(), last_ms: Arc::default(), over: Arc::default() }
    }
}

impl Heartbeat {
    /// Notes progress.
    pub fn beat(&self) {
        let now_ms = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last_ms.fetch_max(now_ms, Ordering::Relaxed);
    }

    /// Notes that a worker knows a leader of a later epoch than `epoch`.
    pub fn succeed(&self, epoch: i64) {
        self.over.fetch_max(epoch, Ordering::Relaxed);
    }

    /// Whether a worker has refused this epoch, or a later one.
    pub fn is_succeeded(&self, epoch: i64) -> bool {
        self.over.load(Ordering::Relaxed) >= epoch
    }

    /// Time since the last beat.
    pub fn age(&self) -> Duration {
        self.started.elapsed().saturating_sub(Duration::from_millis(self.last_ms.load(Ordering::Relaxed)))
    }

    /// Beats while `work`, which reports its own failures, waits for others.
    pub async fn during<T>(&self, work: impl Future<Output = T>) -> T {
        tokio::pin!(work);
        let mut beats = tokio::time::interval(BEAT_INTERVAL);
        loop {
            tokio::select! {
                done = &mut work => return done,
                _ = beats.tick() => self.beat(),
            }
        }
    }
}
