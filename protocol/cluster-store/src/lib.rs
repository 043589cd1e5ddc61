//! The control store: a small, watched, leased key-value store that the processes of a cluster share.
//!
//! One trait, [`ControlStore`]: [`EtcdStore`] for clusters, `trawl_testing::MemoryStore` for tests; [`Metered`] counts the calls on
//! a store. Keys, values and leases are all that is known here; `trawl_wire::record` defines the values.

#![forbid(unsafe_code)]

mod etcd;
mod metered;
mod page;

use std::time::Duration;

use tokio::sync::mpsc;

pub use etcd::EtcdStore;
pub use metered::Metered;
use page::listed;
pub use page::{PAGE_KEYS_MAX, Page, PageRequest, Pages, after};

/// Changes that wait for a slow watcher; a watch that falls further behind breaks and is listed anew.
pub const WATCH_BACKLOG_MAX: usize = 256;
/// Guards, and writes, of one commit: etcd's own bound, unless it is started with another.
pub const COMMIT_OPERATIONS_MAX: usize = 128;
/// Bytes of keys and values in one commit: below etcd's bound of 1.5 MiB on a request.
pub const COMMIT_BYTES_MAX: usize = 1024 * 1024;

/// Bytes of one answer that are decoded: gRPC's usual bound, which no answer to a read of one key comes near.
pub const ANSWER_BYTES_MAX: usize = 4 * 1024 * 1024;

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
    /// The store's quota is used up: it takes nothing more until an operator makes room.
    #[error(
        "etcd has no space left ({0}): compact and defragment it or raise --quota-backend-bytes, then \
         'etcdctl alarm disarm'"
    )]
    NoSpace(String),
    /// The answer, or the request, has more bytes than a message may have.
    #[error("a message of etcd is too large: {0}")]
    TooLarge(String),
    /// The revision that was to be read is compacted: read again from the present one.
    #[error("etcd has compacted the revision that was being read")]
    Compacted,
    /// A call that no store takes, however often it is made: a program's mistake, or one value that is too large.
    #[error("the control store refuses this: {0}")]
    Refused(String),
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
    /// The store's revision when the key was put where none was. It grows with each new life of a key, and a value that is
    /// put over another keeps it.
    pub created: i64,
}

/// What has to hold for a commit to apply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Guard {
    /// The key is not there.
    Absent {
        /// Which.
        key: String,
    },
    /// The key is there, in the life that began at `revision` ([`Entry::created`]).
    Created {
        /// Which.
        key: String,
        /// Of its creation.
        revision: i64,
    },
}

/// One write of a commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Write {
    /// Puts a value; with a lease it goes when the lease does.
    Put {
        /// Where.
        key: String,
        /// What.
        value: Vec<u8>,
        /// Under which lease.
        lease: Option<LeaseId>,
    },
    /// Deletes a key, if it is there.
    Delete {
        /// Which.
        key: String,
    },
}

impl Write {
    /// The key that is written.
    pub fn key(&self) -> &str {
        match self {
            Self::Put { key, .. } | Self::Delete { key } => key,
        }
    }
}

/// How a commit ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Committed {
    /// Whether every guard held and every write was made; otherwise none was.
    pub applied: bool,
    /// The store's revision afterwards: of what was written, when anything was; keys that are new were created at it.
    pub revision: i64,
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
        /// The store's revision when it went.
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

/// Changes as they come. When it ends the watch is broken: list again, then watch again.
pub type Watch = mpsc::Receiver<Change>;

/// What a cluster needs of its store. Every call has its own bounded retries and gives up with an error.
#[tonic::async_trait]
pub trait ControlStore: Send + Sync + 'static {
    /// Puts a value; with a lease it goes when the lease does.
    async fn put(&self, key: &str, value: Vec<u8>, lease: Option<LeaseId>) -> Result<(), ControlError>;
    /// Deletes a key, if it is there.
    async fn delete(&self, key: &str) -> Result<(), ControlError>;
    /// One key.
    async fn get(&self, key: &str) -> Result<Option<Entry>, ControlError>;
    /// Makes all of `writes` in one transaction if every guard holds, and none otherwise.
    ///
    /// A call that was not answered may have applied; it is made again like every other. So `applied: false` does not say
    /// that this commit never applied, only that its last try did not: when the writes themselves break the guards, read
    /// the key and see whether its value is one's own. Values that are told apart so carry something unique. An error says
    /// as little: the writes may stand, and may even come to stand after a later read did not find them.
    ///
    /// # Errors
    /// [`ControlError::Refused`] for a key that is written twice and for more than [`COMMIT_OPERATIONS_MAX`] or
    /// [`COMMIT_BYTES_MAX`]; [`ControlError::LeaseOver`] when the guards hold and the lease of a put is over.
    async fn commit(&self, guards: &[Guard], writes: Vec<Write>) -> Result<Committed, ControlError>;
    /// Some of the keys that begin with a prefix, in order. Whoever wants all of them uses [`Pages`] or [`Self::list`].
    ///
    /// # Errors
    /// [`ControlError::TooLarge`] when fewer keys have to be asked for, [`ControlError::Compacted`] when the revision is gone.
    async fn page(&self, asked: &PageRequest) -> Result<Page, ControlError>;
    /// All keys that begin with `prefix`, of one revision, read page by page. For prefixes with few keys.
    async fn list(&self, prefix: &str) -> Result<Listing, ControlError> {
        listed(self, PageRequest::new(prefix)).await
    }
    /// The same without their values.
    async fn list_keys(&self, prefix: &str) -> Result<Listing, ControlError> {
        listed(self, PageRequest::new(prefix).keys_only()).await
    }
    /// Changes under `prefix` after `revision`. It ends at once when the store has forgotten that revision (compaction).
    async fn watch(&self, prefix: &str, revision: i64) -> Result<Watch, ControlError>;
    /// A new lease, of whole seconds. The store may let it live longer than asked, never shorter.
    async fn grant(&self, ttl: Duration) -> Result<LeaseId, ControlError>;
    /// Renews a lease for its time to live; [`ControlError::LeaseOver`] once that has passed.
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
