//! Errors of the result store, with messages for operators that never contain a credential.

use trawl_objects::{AddressError, Trouble, TroubleKind};
use trawl_wire::limits::bounded_reason;
use trawl_wire::{ErrorKind, Failure};

/// Why the result store refused or failed; [`StoreError::kind`] decides retry.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// No space, or a quota is used up.
    #[error("the result store {store} is full: {cause}; free space there, or keep results for a shorter time")]
    Full {
        /// Address, without credentials.
        store: String,
        /// Its error.
        cause: String,
    },
    /// It does not answer, or its disk does not.
    #[error("the result store {store} cannot be used: {cause}")]
    Unreachable {
        /// Address, without credentials.
        store: String,
        /// Its error.
        cause: String,
    },
    /// This process lacks permission.
    #[error("the result store {store} refuses this coordinator: {cause}; it must read, write, list and delete there")]
    Denied {
        /// Address, without credentials.
        store: String,
        /// Its error.
        cause: String,
    },
    /// An object that was not written whole, or changed afterwards.
    #[error("object {object} of the result store is damaged: {why}")]
    Damaged {
        /// Its path.
        object: String,
        /// Why it counts as damaged.
        why: String,
    },
    /// Another object of the same name exists, and is intact.
    #[error("object {object} of the result store is there already with other bytes")]
    Conflict {
        /// Its path.
        object: String,
    },
    /// More bytes than an object may have.
    #[error("object {object} would have {found} bytes, at most {limit} are stored")]
    TooLarge {
        /// Its path.
        object: String,
        /// Its size in bytes.
        found: u64,
        /// The limit in bytes.
        limit: u64,
    },
    /// An invalid address.
    #[error("'{address}' is not a result store: {expected}")]
    Address {
        /// The address as given, without credentials.
        address: String,
        /// The expected form.
        expected: String,
    },
}

impl StoreError {
    /// The kind of failure of a scan whose results cannot be stored.
    pub fn kind(&self) -> ErrorKind {
        match self {
            // Space may be freed, a server may come back, a permission may be given.
            Self::Full { .. } | Self::Unreachable { .. } | Self::Denied { .. } | Self::Damaged { .. } => {
                ErrorKind::Retryable
            }
            Self::Conflict { .. } | Self::TooLarge { .. } => ErrorKind::Permanent,
            Self::Address { .. } => ErrorKind::Invalid,
        }
    }

    /// Whether trying the same call again may help.
    pub fn is_retried(&self) -> bool {
        matches!(self, Self::Full { .. } | Self::Unreachable { .. } | Self::Denied { .. })
    }

    /// Classifies an error of the object store at `store`.
    pub(crate) fn of(error: &object_store::Error, store: &str) -> Self {
        let Trouble { kind, cause } = Trouble::of(error);
        let (store, cause) = (store.to_owned(), bounded_reason(cause));
        match kind {
            TroubleKind::Full => Self::Full { store, cause },
            TroubleKind::Denied => Self::Denied { store, cause },
            TroubleKind::Absent | TroubleKind::Exists | TroubleKind::Unreachable => Self::Unreachable { store, cause },
        }
    }
}

impl From<AddressError> for StoreError {
    fn from(error: AddressError) -> Self {
        Self::Address { address: error.address, expected: error.expected }
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self::new(error.kind(), bounded_reason(error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn io(kind: std::io::ErrorKind) -> object_store::Error {
        object_store::Error::Generic { store: "test", source: Box::new(std::io::Error::from(kind)) }
    }

    #[test]
    fn a_full_disk_a_used_up_quota_and_a_full_bucket_are_full() {
        for kind in [std::io::ErrorKind::StorageFull, std::io::ErrorKind::QuotaExceeded] {
            assert!(matches!(StoreError::of(&io(kind), "x"), StoreError::Full { .. }));
        }
        let text = "Error: 507 Insufficient Storage: <Code>XMinioStorageFull</Code>".into();
        let error = StoreError::of(&object_store::Error::Generic { store: "S3", source: text }, "s3://b");
        assert!(matches!(error, StoreError::Full { .. }), "{error}");
        assert_eq!(Failure::from(error).kind, ErrorKind::Retryable);
    }

    #[test]
    fn a_refusal_is_distinguished_from_an_absence() {
        assert!(matches!(StoreError::of(&io(std::io::ErrorKind::PermissionDenied), "x"), StoreError::Denied { .. }));
        assert!(matches!(
            StoreError::of(&io(std::io::ErrorKind::ConnectionRefused), "x"),
            StoreError::Unreachable { .. }
        ));
    }
}
