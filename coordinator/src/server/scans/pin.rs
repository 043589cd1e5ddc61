//! Keeps a scan's snapshot from being deleted while the scan runs: a pin in the dataset's folder, renewed until the scan ends.
//!
//! A coordinator that dies leaves its pin to the next one, which has the same name for it; one that nobody takes over ends
//! by itself.

use std::time::Duration;

use tokio::task::JoinHandle;
use trawl_market::{Store, TimeMicros};

use super::now_us;

/// How long a pin holds without being renewed.
const PIN_HELD: Duration = Duration::from_secs(6 * 60 * 60);
/// How often it is renewed.
const PIN_RENEWED: Duration = Duration::from_secs(5 * 60);

/// The pin of one scan. Dropped, it is renewed no longer; released, it is taken away.
pub(super) struct Pin {
    store: Store,
    reference: String,
    scan: String,
    renewing: JoinHandle<()>,
}

fn until() -> TimeMicros {
    now_us().saturating_add(i64::try_from(PIN_HELD.as_micros()).unwrap_or(i64::MAX))
}

impl Pin {
    /// Pins `NAME@SNAPSHOT` for a scan. A data root that cannot be written is told and keeps no scan from running.
    pub fn start(store: &Store, reference: String, scan: &str) -> Self {
        let (kept, name, holder) = (store.clone(), reference.clone(), scan.to_owned());
        let renewing = tokio::spawn(async move {
            loop {
                let (store, name, holder) = (kept.clone(), name.clone(), holder.clone());
                let pinned = tokio::task::spawn_blocking(move || store.pin(&name, &holder, until())).await;
                if let Ok(Err(error)) = pinned {
                    tracing::warn!(%error, "a snapshot cannot be pinned: whoever deletes snapshots may take this scan's");
                }
                tokio::time::sleep(PIN_RENEWED).await;
            }
        });
        Self { store: store.clone(), reference, scan: scan.to_owned(), renewing }
    }

    /// The scan has ended.
    pub fn release(self) {
        self.renewing.abort();
        let (store, reference, scan) = (self.store.clone(), self.reference.clone(), self.scan.clone());
        tokio::task::spawn_blocking(move || {
            if let Err(error) = store.unpin(&reference, &scan) {
                tracing::debug!(%error, "a pin was not taken away; it ends by itself");
            }
        });
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        self.renewing.abort();
    }
}
