//! Detects a store that lost acknowledged writes: set up anew, or restored from an older snapshot.
//!
//! Epochs are revisions of the store, and every process ignores older ones. Against a store that went back, such a
//! process waits without end for revisions that do not come, so it has to be started anew.

use std::time::Duration;

use crate::{ControlError, ControlStore};

/// Interval of the reads of [`HistoryCheck::lost`]: one read per process, far less than its renewals.
pub const HISTORY_CHECK_INTERVAL: Duration = Duration::from_secs(10);

/// The store's identity and revision, as read by one linearizable read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoreVersion {
    /// Id of the store's cluster; another one after the store was set up anew or restored.
    pub cluster: u64,
    /// Its current revision, which never decreases in one cluster.
    pub revision: i64,
}

impl StoreVersion {
    /// Whether a read that began after `before` was answered may return this.
    pub fn follows(self, before: Self) -> bool {
        self.cluster == before.cluster && self.revision >= before.revision
    }
}

/// A store that lost acknowledged writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "etcd lost what it had acknowledged: it was at revision {} of cluster {:x}, and is at revision {} of cluster {:x}. It \
     was set up anew or restored from an older snapshot; every coordinator and worker has to be started anew, and this \
     one ends",
    before.revision, before.cluster, now.revision, now.cluster
)]
pub struct HistoryLost {
    /// The newest version read before.
    pub before: StoreVersion,
    /// The version read now, twice, over two connections.
    pub now: StoreVersion,
}

/// Compares each read of the store's version with the newest one before it. The first read should come before whatever
/// else a process reads: what it read earlier is not compared.
#[derive(Debug, Default)]
pub struct HistoryCheck {
    newest: Option<StoreVersion>,
}

impl HistoryCheck {
    /// Reads the version for the first time.
    ///
    /// # Errors
    /// The store's error.
    pub async fn begin<S: ControlStore + ?Sized>(store: &S, key: &str) -> Result<Self, ControlError> {
        Ok(Self { newest: Some(store.version(key).await?) })
    }

    /// Reads the version once, and again over another connection if it went back. Returns the loss if both reads agree.
    /// `key` is any key that this process may read.
    pub async fn read<S: ControlStore + ?Sized>(&mut self, store: &S, key: &str) -> Option<HistoryLost> {
        // A store that does not answer is reported by those who need it.
        let now = store.version(key).await.ok()?;
        match self.newest {
            Some(before) if !now.follows(before) => {
                store.reconnect().await;
                let again = store.version(key).await.ok()?;
                let lost = !again.follows(before) && again.follows(now);
                lost.then_some(HistoryLost { before, now: again })
            }
            _ => {
                self.newest = Some(now);
                None
            }
        }
    }

    /// Reads the version every `interval`; completes when it went back.
    pub async fn lost<S: ControlStore + ?Sized>(mut self, store: &S, key: &str, interval: Duration) -> HistoryLost {
        loop {
            if let Some(lost) = self.read(store, key).await {
                return lost;
            }
            tokio::time::sleep(interval).await;
        }
    }
}
