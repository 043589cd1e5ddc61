//! The control store: a small, watched, leased key-value store that the processes of a cluster share.
//!
//! One trait, two stores: [`EtcdStore`] for clusters, [`MemoryStore`] for tests. It knows keys, values and leases; what
//! stands in them is said elsewhere (`record`).

mod etcd;
mod memory;

use std::time::Duration;

use tokio::sync::mpsc;

pub use etcd::EtcdStore;
pub use memory::MemoryStore;

/// Changes that wait for a slow watcher; a watch that falls further behind breaks and is listed anew.
pub const WATCH_BACKLOG_MAX: usize = 256;

/// Why a call on the store failed, after its own retries.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ControlError {
    /// The store could not be reached or did not answer in time.
    #[error("etcd at {endpoints} does not answer: {cause}")]
    Unreachable {
        /// All that were tried.
        endpoints: String,
        /// What the last of them said.
        cause: String,
    },
    /// The lease is over: whoever held it has to take a new one.
    #[error("the lease is over")]
    LeaseOver,
    /// An address that is none.
    #[error(
        "'{0}' is not an etcd address: write http://HOST:PORT (https:// with --tls-ca), several separated by commas"
    )]
    Address(String),
}

/// A lease's id.
pub type LeaseId = i64;

/// A key and its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// UTF-8; other keys are not ours and are left out.
    pub key: String,
    /// As it was put.
    pub value: Vec<u8>,
}

/// What stood under a prefix at one revision of the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listing {
    /// Sorted by key.
    pub entries: Vec<Entry>,
    /// A watch that begins after it misses nothing.
    pub revision: i64,
}

/// One change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Put for the first time or anew.
    Put(Entry),
    /// Deleted, or its lease is over.
    Deleted {
        /// Which.
        key: String,
    },
}

/// Changes as they come. When it ends the watch is broken: list again, then watch again.
pub type Watch = mpsc::Receiver<Change>;

/// What a cluster needs of its store. Every call has its own bounded retries and gives up with an error.
#[tonic::async_trait]
pub trait ControlStore: Send + Sync + 'static {
    /// Puts a value; with a lease it goes when the lease does.
    async fn put(&self, key: &str, value: Vec<u8>, lease: Option<LeaseId>) -> Result<(), ControlError>;
    /// Deletes a key, if it is there.
    async fn delete(&self, key: &str) -> Result<(), ControlError>;
    /// All keys that begin with `prefix`.
    async fn list(&self, prefix: &str) -> Result<Listing, ControlError>;
    /// Changes under `prefix` after `revision`.
    async fn watch(&self, prefix: &str, revision: i64) -> Result<Watch, ControlError>;
    /// A new lease.
    async fn grant(&self, ttl: Duration) -> Result<LeaseId, ControlError>;
    /// Renews a lease for its time to live.
    async fn keep_alive(&self, lease: LeaseId) -> Result<(), ControlError>;
    /// Ends a lease and deletes its keys.
    async fn revoke(&self, lease: LeaseId) -> Result<(), ControlError>;
}

#[tonic::async_trait]
impl<S: ControlStore + ?Sized> ControlStore for std::sync::Arc<S> {
    async fn put(&self, key: &str, value: Vec<u8>, lease: Option<LeaseId>) -> Result<(), ControlError> {
        (**self).put(key, value, lease).await
    }
    async fn delete(&self, key: &str) -> Result<(), ControlError> {
        (**self).delete(key).await
    }
    async fn list(&self, prefix: &str) -> Result<Listing, ControlError> {
        (**self).list(prefix).await
    }
    async fn watch(&self, prefix: &str, revision: i64) -> Result<Watch, ControlError> {
        (**self).watch(prefix, revision).await
    }
    async fn grant(&self, ttl: Duration) -> Result<LeaseId, ControlError> {
        (**self).grant(ttl).await
    }
    async fn keep_alive(&self, lease: LeaseId) -> Result<(), ControlError> {
        (**self).keep_alive(lease).await
    }
    async fn revoke(&self, lease: LeaseId) -> Result<(), ControlError> {
        (**self).revoke(lease).await
    }
}
