//! The bytes of results on their way from a worker's connection to the place where they are kept.
//!
//! Results that are received faster than they are stored would pile up without limit. While too many are under way,
//! connections to workers are not read: flow control of HTTP/2 then makes the workers wait.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::timeout;
use trawl_telemetry::metrics::catalogue::coordinator::RESULTS_HELD;

use super::scans::DECODED_BYTES_PER_BYTE;

/// Bytes of results under way, decoded ones included, from which on no connection to a worker is read. Each attempt
/// that was reading by then adds one more message at most.
pub(crate) const TRANSIT_BYTES_MAX: u64 = 256 << 20;

/// Counts the bytes under way; shared by all attempts of a term.
#[derive(Debug)]
pub(crate) struct TransitBytes {
    held: AtomicU64,
    max: u64,
    released: Notify,
}

/// One result's share, given back when it is dropped.
#[derive(Debug)]
pub(crate) struct TransitPermit {
    bytes: u64,
    /// Those of its envelope.
    envelope_bytes: u64,
    of: Arc<TransitBytes>,
}

impl TransitBytes {
    pub fn new(max: u64) -> Arc<Self> {
        Arc::new(Self { held: AtomicU64::new(0), max, released: Notify::new() })
    }

    /// Bytes under way.
    pub fn held(&self) -> u64 {
        self.held.load(Ordering::Acquire)
    }

    /// Counts a reply whose envelope has this many bytes, together with its decoded form.
    pub fn hold(self: &Arc<Self>, envelope_bytes: usize) -> TransitPermit {
        let envelope_bytes = envelope_bytes as u64;
        let bytes = envelope_bytes.saturating_mul(1 + DECODED_BYTES_PER_BYTE as u64);
        self.held.fetch_add(bytes, Ordering::AcqRel);
        RESULTS_HELD.add(i64::try_from(bytes).unwrap_or(i64::MAX));
        TransitPermit { bytes, envelope_bytes, of: Arc::clone(self) }
    }

    fn release(&self, bytes: u64) {
        self.held.fetch_sub(bytes, Ordering::AcqRel);
        RESULTS_HELD.add(-i64::try_from(bytes).unwrap_or(i64::MAX));
        self.released.notify_waiters();
    }

    /// Waits until less than the maximum is under way, for at most `patience`; whether there is room.
    pub async fn room(&self, patience: Duration) -> bool {
        let room = async {
            loop {
                let released = self.released.notified();
                if self.held() < self.max {
                    return;
                }
                released.await;
            }
        };
        timeout(patience, room).await.is_ok()
    }
}

impl TransitPermit {
    /// Counts the envelope alone from now on: the decoded form is counted elsewhere, or gone.
    pub fn keep_envelope(mut self) -> Self {
        self.of.release(self.bytes - self.envelope_bytes);
        self.bytes = self.envelope_bytes;
        self
    }
}

impl Drop for TransitPermit {
    fn drop(&mut self) {
        self.of.release(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_millis(20);

    #[tokio::test]
    async fn there_is_room_until_the_maximum_is_under_way_and_again_when_a_permit_is_dropped() {
        let held = TransitBytes::new(100);
        assert!(held.room(SOON).await);
        let (first, second) = (held.hold(20), held.hold(20));
        assert_eq!(held.held(), 160);
        assert!(!held.room(SOON).await);
        let waiting = Arc::clone(&held);
        let waiting = tokio::spawn(async move { waiting.room(Duration::from_secs(60)).await });
        tokio::task::yield_now().await;
        drop(first);
        assert!(waiting.await.unwrap());
        assert_eq!(held.held(), 80);
        let second = second.keep_envelope();
        assert_eq!(held.held(), 20);
        drop(second);
        assert_eq!(held.held(), 0);
    }

    #[tokio::test]
    async fn a_permit_that_is_dropped_between_the_check_and_the_wait_is_noticed() {
        let held = TransitBytes::new(1);
        for _ in 0..200 {
            let permit = held.hold(1);
            let waiting = Arc::clone(&held);
            let waiting = tokio::spawn(async move { waiting.room(Duration::from_secs(60)).await });
            tokio::task::yield_now().await;
            drop(permit);
            assert!(waiting.await.unwrap());
        }
    }
}
