//! The records of scans as they are read, and why they cannot be.

use std::collections::BTreeMap;

use trawl_cluster_store::ControlError;

use super::records::{End, Header, Progress, RecordError, Tombstone};

/// Why the records could not be read or written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LedgerError {
    /// The control store failed. The write may have been applied, or may be applied later.
    #[error("{0}")]
    Control(#[from] ControlError),
    /// A record that cannot be written, or is not valid.
    #[error("{0}")]
    Record(#[from] RecordError),
    /// An id that was used before, or is not valid.
    #[error("'{0}' is not a new scan's id")]
    Id(String),
    /// The idempotency key's scan is being deleted, and its place was not free in time.
    #[error("the scan of this idempotency key is being deleted; try again in a while")]
    Busy,
}

/// All records of one scan.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Recorded {
    /// Its id.
    pub scan: String,
    /// `None` if there is only a tombstone, for objects that belong to no scan.
    pub header: Option<Header>,
    /// The latest progress record.
    pub progress: Option<Progress>,
    /// Its end.
    pub end: Option<End>,
    /// Present if its objects are going to be deleted.
    pub tombstone: Option<Tombstone>,
    /// Create revision of each part.
    pub created: BTreeMap<&'static str, i64>,
}

impl Recorded {
    /// Whether it still has to be run.
    pub fn is_open(&self) -> bool {
        self.header.is_some() && self.end.is_none() && self.tombstone.is_none()
    }
}

/// All records of a set of scans.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Loaded {
    /// By id.
    pub scans: Vec<Recorded>,
    /// Scans with a record that this program cannot read; they are neither run nor deleted.
    pub unreadable: BTreeMap<String, RecordError>,
}
