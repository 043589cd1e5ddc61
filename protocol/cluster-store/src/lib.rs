//! The control store: a small, watched, leased key-value store that the processes of a cluster share.
//!
//! One trait, [`ControlStore`]: [`EtcdStore`] for clusters, `trawl_testing::MemoryStore` for tests; [`Metered`] counts the calls on
//! a store. Keys, values and leases are all that is known here; `trawl_wire::record` defines the values.

#![forbid(unsafe_code)]

mod backoff;
mod etcd;
mod history;
mod metered;
mod page;

use std::time::Duration;

use tokio::sync::mpsc;

pub use backoff::Backoff;
pub use etcd::EtcdStore;
pub use history::{HISTORY_CHECK_INTERVAL, HistoryCheck, HistoryLost, StoreVersion};
pub use metered::Metered;
use page::listed;
pub use page::{PAGE_KEYS_MAX, Page, PageRequest, Pages, after};

/// Changes buffered for a slow watcher; a watch that falls further behind breaks, and the keys are listed again.
pub const WATCH_BACKLOG_MAX: usize = 256;
/// Maximum guards, and maximum writes, of one commit: etcd's default limit.
pub const COMMIT_OPERATIONS_MAX: usize = 128;
/// Maximum bytes of keys and values in one commit: below etcd's limit of 1.5 MiB per request.
pub const COMMIT_BYTES_MAX: usize = 1024 * 1024;

/// Maximum bytes of a decoded reply: gRPC's default limit, far above any reply to a read of one key.
pub const REPLY_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Why a call on the store failed, after its own retries.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ControlError {
    /// The store could not be reached or did not answer in time.
    #[error("etcd at {endpoints} does not answer: {cause}")]
    Unreachable {
        /// The endpoints tried.
        endpoints: String,
        /// The error of the last one.
        cause: String,
    },
    /// The lease is over: its holder has to request a new one.
    #[error("the lease is over")]
    LeaseOver,
    /// The store's quota is used up: it rejects writes until an operator frees space.
    #[error(
        "etcd has no space left ({0}): compact and defragment it or raise --quota-backend-bytes, then \
         'etcdctl alarm disarm'"
    )]
    NoSpace(String),
    /// The reply or the request exceeds the maximum size of a message.
    #[error("a message of etcd is too large: {0}")]
    TooLarge(String),
    /// The requested revision is compacted: read again at the current one.
    #[error("etcd has compacted the revision that was being read")]
    Compacted,
    /// The call is invalid and must not be retried: a bug, or a value that is too large.
    #[error("the control store refuses this: {0}")]
    Refused(String),
    /// An invalid address.
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
    /// The key, in UTF-8; other keys are ignored.
    pub key: String,
    /// The value as put.
    pub value: Vec<u8>,
    /// The store's revision when the key was created. Increases each time the key is created again; overwriting the
    /// value keeps it.
    pub created: i64,
}

/// A precondition of a commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Guard {
    /// The key is absent.
    Absent {
        /// The key.
        key: String,
    },
    /// The key exists and was created at `revision` ([`Entry::created`]).
    Created {
        /// The key.
        key: String,
        /// Its create revision.
        revision: i64,
    },
}

/// One write of a commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Write {
    /// Puts a value; with a lease, the key is deleted when the lease ends.
    Put {
        /// The key.
        key: String,
        /// The value.
        value: Vec<u8>,
        /// The lease, if any.
        lease: Option<LeaseId>,
    },
    /// Deletes a key, if it exists.
    Delete {
        /// The key.
        key: String,
    },
}

impl Write {
    /// The key written.
    pub fn key(&self) -> &str {
        match self {
            Self::Put { key, .. } | Self::Delete { key } => key,
        }
    }
}

/// The outcome of a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Committed {
    /// Whether every guard held and every write was made; otherwise none was.
    pub applied: bool,
    /// The store's revision afterwards: that of the writes, if there were any; new keys have it as create revision.
    pub revision: i64,
}

/// The entries under a prefix at one revision of the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listing {
    /// Sorted by key.
    pub entries: Vec<Entry>,
    /// The revision; a watch that starts after it misses nothing.
    pub revision: i64,
}

/// One change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Put, for the first time or again.
    Put(Entry),
    /// Deleted, or its lease ended.
    Deleted {
        /// The key.
        key: String,
        /// The store's revision of the deletion.
        revision: i64,
    },
}

impl Change {
    /// The key that changed.
    pub fn key(&self) -> &str {
        match self {
            Self::Put(entry) => &entry.key,
            Self::Deleted { key, .. } => key,
        }
    }
}

/// Stream of changes. When it ends, the watch is broken: list again, then watch again.
pub type Watch = mpsc::Receiver<Change>;

/// The operations that a cluster needs of its store. Every call has its own bounded retries, then returns an error.
#[tonic::async_trait]
pub trait ControlStore: Send + Sync + 'static {
    /// Puts a value; with a lease, the key is deleted when the lease ends.
    async fn put(&self, key: &str, value: Vec<u8>, lease: Option<LeaseId>) -> Result<(), ControlError>;
    /// Deletes a key, if it exists.
    async fn delete(&self, key: &str) -> Result<(), ControlError>;
    /// Reads one key.
    async fn get(&self, key: &str) -> Result<Option<Entry>, ControlError>;
    /// Makes all of `writes` in one transaction if every guard holds, and none otherwise.
    ///
    /// An unanswered try may have been applied, and is retried like any other call. So `applied: false` means only that
    /// the last try was not applied: if the writes themselves invalidate the guards, read the key and compare its value
    /// with your own, which must contain something unique. Likewise after an error the writes may have been applied, or
    /// may still be applied after a later read did not find them.
    ///
    /// # Errors
    /// [`ControlError::Refused`] for a key that is written twice and for more than [`COMMIT_OPERATIONS_MAX`] or
    /// [`COMMIT_BYTES_MAX`]; [`ControlError::LeaseOver`] if the guards hold and the lease of a put has ended.
    async fn commit(&self, guards: &[Guard], writes: Vec<Write>) -> Result<Committed, ControlError>;
    /// One page of the keys that begin with a prefix, in order. Use [`Pages`] or [`Self::list`] to read all of them.
    ///
    /// # Errors
    /// [`ControlError::TooLarge`] if fewer keys have to be requested, [`ControlError::Compacted`] if the revision is
    /// compacted.
    async fn page(&self, asked: &PageRequest) -> Result<Page, ControlError>;
    /// Lists all keys that begin with `prefix`, at one revision, page by page. For prefixes with few keys.
    async fn list(&self, prefix: &str) -> Result<Listing, ControlError> {
        listed(self, PageRequest::new(prefix)).await
    }
    /// As [`Self::list`], without values.
    async fn list_keys(&self, prefix: &str) -> Result<Listing, ControlError> {
        listed(self, PageRequest::new(prefix).keys_only()).await
    }
    /// Watches changes under `prefix` after `revision`. Ends at once if that revision is compacted.
    async fn watch(&self, prefix: &str, revision: i64) -> Result<Watch, ControlError>;
    /// Grants a lease; `ttl` is rounded up to whole seconds. The store may grant a longer time to live, never a shorter
    /// one.
    async fn grant(&self, ttl: Duration) -> Result<LeaseId, ControlError>;
    /// Renews a lease for its time to live; [`ControlError::LeaseOver`] once it has expired.
    async fn keep_alive(&self, lease: LeaseId) -> Result<(), ControlError>;
    /// Ends a lease and deletes its keys.
    async fn revoke(&self, lease: LeaseId) -> Result<(), ControlError>;
    /// The store's identity and current revision, by a linearizable read of `key`, which need not exist.
    async fn version(&self, key: &str) -> Result<StoreVersion, ControlError>;
    /// Makes the next call use another connection, to another endpoint if there are several.
    async fn reconnect(&self) {}
}

#[tonic::async_trait]
impl<S: ControlStore + ?Sized> ControlStore for std::sync::Arc<S> {
    async fn put(&self, key: &str, value: Vec<u8>, lease: Option<LeaseId>) -> Result<(), ControlError> {
        (**self).put(key, value, lease).await
    }
    async fn delete(&self, key: &str) -> Result<(), ControlError> {
        (**self).delete(key).await
    }
    async fn get(&self, key: &str) -> Result<Option<Entry>, ControlError> {
        (**self).get(key).await
    }
    async fn commit(&self, guards: &[Guard], writes: Vec<Write>) -> Result<Committed, ControlError> {
        (**self).commit(guards, writes).await
    }
    async fn page(&self, asked: &PageRequest) -> Result<Page, ControlError> {
        (**self).page(asked).await
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
    async fn version(&self, key: &str) -> Result<StoreVersion, ControlError> {
        (**self).version(key).await
    }
    async fn reconnect(&self) {
        (**self).reconnect().await;
    }
}

/// Refuses a commit that etcd would refuse, before it is sent, so that every store refuses the same.
///
/// # Errors
/// [`ControlError::Refused`] for too many operations or bytes, and for a key that is written twice.
pub fn checked(guards: &[Guard], writes: &[Write]) -> Result<(), ControlError> {
    let refused = |why: String| Err(ControlError::Refused(why));
    let operations = guards.len().max(writes.len());
    if operations > COMMIT_OPERATIONS_MAX {
        return refused(format!("{operations} operations in one commit, at most {COMMIT_OPERATIONS_MAX}"));
    }
    let guarded = guards.iter().map(|guard| match guard {
        Guard::Absent { key } | Guard::Created { key, .. } => key.as_str(),
    });
    let mut bytes = 0usize;
    let mut written = std::collections::BTreeSet::new();
    for write in writes {
        if !written.insert(write.key()) {
            return refused(format!("'{}' is written twice in one commit", write.key()));
        }
        if let Write::Put { value, .. } = write {
            bytes = bytes.saturating_add(value.len());
        }
    }
    for key in guarded.chain(writes.iter().map(Write::key)) {
        if key.is_empty() {
            return refused("an empty key".to_owned());
        }
        bytes = bytes.saturating_add(key.len());
    }
    if bytes > COMMIT_BYTES_MAX {
        return refused(format!("{bytes} bytes in one commit, at most {COMMIT_BYTES_MAX}"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(key: &str, bytes: usize) -> Write {
        Write::Put { key: key.to_owned(), value: vec![0; bytes], lease: None }
    }

    #[test]
    fn what_no_store_takes_is_refused_before_it_is_asked() {
        let refused =
            |guards: &[Guard], writes: &[Write]| matches!(checked(guards, writes), Err(ControlError::Refused(_)));
        assert_eq!(checked(&[], &[]), Ok(()));
        assert!(refused(&[], &[put("a", 1), Write::Delete { key: "a".to_owned() }]), "written twice");
        assert!(refused(&[], &[put("", 1)]), "no key");
        assert!(refused(&[Guard::Absent { key: String::new() }], &[]), "no key to guard");
        assert_eq!(checked(&[], &[put("a", COMMIT_BYTES_MAX - 1)]), Ok(()));
        assert!(refused(&[], &[put("a", COMMIT_BYTES_MAX)]), "too large");
        let many: Vec<Write> = (0..=COMMIT_OPERATIONS_MAX).map(|i| put(&format!("k{i}"), 1)).collect();
        assert!(refused(&[], &many), "too many");
        assert_eq!(checked(&[], &many[1..]), Ok(()));
    }
}
