//! Detects stuck compute threads: a hanging file system, a deadlock, an endless loop.
//!
//! The lease is renewed and pings are answered by other threads, so nothing else would notice. Every computing thread
//! polls for cancellation regularly, and each poll is a beat. A worker that has shards but no beat for
//! [`STALL_TIMEOUT`] leaves and ends with an error, so that its supervisor restarts it.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::time::Instant;

/// How long shards may make no progress. No single read or strip takes that long.
pub const STALL_TIMEOUT: Duration = Duration::from_secs(300);
/// Number of checks within that time.
const LOOKS: u32 = 10;

/// The sign of life of computing threads: a counter of beats.
#[derive(Debug, Default)]
pub(crate) struct Pulse(AtomicU64);

impl Pulse {
    pub fn beat(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// Completes when there have been shards but no beat for `timeout`.
pub(crate) async fn stalled(pulse: &Pulse, shards: &AtomicUsize, timeout: Duration) {
    let (mut beats, mut since) = (pulse.0.load(Ordering::Relaxed), Instant::now());
    loop {
        tokio::time::sleep(timeout / LOOKS).await;
        let now = pulse.0.load(Ordering::Relaxed);
        if now != beats || shards.load(Ordering::Relaxed) == 0 {
            (beats, since) = (now, Instant::now());
        } else if since.elapsed() >= timeout {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_millis(200);

    /// Whether [`stalled`] completes within three times its timeout.
    async fn ends(pulse: &Pulse, shards: &AtomicUsize) -> bool {
        tokio::time::timeout(3 * TIMEOUT, stalled(pulse, shards, TIMEOUT)).await.is_ok()
    }

    #[tokio::test]
    async fn threads_that_are_stuck_are_noticed_and_those_that_compute_or_idle_are_not() {
        let (pulse, shards) = (Pulse::default(), AtomicUsize::new(0));
        assert!(!ends(&pulse, &shards).await, "nothing to do");
        shards.store(1, Ordering::Relaxed);
        assert!(ends(&pulse, &shards).await, "a shard, and no beat");
        let beating = async {
            loop {
                pulse.beat();
                tokio::time::sleep(TIMEOUT / 4).await;
            }
        };
        tokio::select! {
            ended = ends(&pulse, &shards) => assert!(!ended, "it computes"),
            () = beating => {}
        }
    }
}
