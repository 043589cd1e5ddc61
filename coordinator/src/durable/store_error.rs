//! What can go wrong with the result store, told in the operator's words and never with a credential.

use trawl_wire::error::text_of;
use trawl_wire::limits::bounded_reason;
use trawl_wire::{ErrorKind, Failure};

/// Why the result store refused or failed; [`StoreError::kind`] decides retry.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// No space, or a quota is used up.
    #[error("the result store {store} is full: {cause}; free space there, or keep results for a shorter time")]
    Full {
        /// Where, without credentials.
        store: String,
        /// What it said.
        cause: String,
    },
    /// It does not answer, or its disk does not.
    #[error("the result store {store} cannot be used: {cause}")]
    Unreachable {
        /// Where.
        store: String,
        /// What it said.
        cause: String,
    },
    /// This process may not.
    #[error("the result store {store} refuses this coordinator: {cause}; it must read, write, list and delete there")]
    Denied {
        /// Where.
        store: String,
        /// What it said.
        cause: String,
    },
    /// An object that was not written whole, or changed afterwards.
    #[error("object {object} of the result store is damaged: {why}")]
    Damaged {
        /// Its path.
        object: String,
        /// What was found.
        why: String,
    },
    /// Another object of the same name is there, and it is whole.
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
        /// Bytes.
        found: u64,
        /// Bytes at most.
        limit: u64,
    },
    /// An address that is none.
    #[error("'{address}' is not a result store: {expected}")]
    Address {
        /// What was given, without credentials.
        address: String,
        /// What is expected instead.
        expected: String,
    },
}

impl StoreError {
    /// What a scan whose results cannot be stored ends with.
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

    /// From what the store said about `store`.
    pub(crate) fn of(error: &object_store::Error, store: &str) -> Self {
        use object_store::Error;
        let (store, cause) = (store.to_owned(), bounded_reason(text_of(error)));
        match (error, io_kind(error)) {
            (_, Some(std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded)) => {
                Self::Full { store, cause }
            }
            (Error::PermissionDenied { .. } | Error::Unauthenticated { .. }, _)
            | (_, Some(std::io::ErrorKind::PermissionDenied | std::io::ErrorKind::ReadOnlyFilesystem)) => {
                Self::Denied { store, cause }
            }
            // What S3 and its likes say when a bucket or its disks are full.
            _ if ["QuotaExceeded", "StorageFull", "507 Insufficient"].iter().any(|said| cause.contains(said)) => {
                Self::Full { store, cause }
            }
            _ => Self::Unreachable { store, cause },
        }
    }
}

/// The kind of the first I/O error among an error's causes.
fn io_kind(error: &(dyn std::error::Error + 'static)) -> Option<std::io::ErrorKind> {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(io) = error.downcast_ref::<std::io::Error>() {
            return Some(io.kind());
        }
        cause = error.source();
    }
    None
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
        let said = "Error: 507 Insufficient Storage: <Code>XMinioStorageFull</Code>".into();
        let error = StoreError::of(&object_store::Error::Generic { store: "S3", source: said }, "s3://b");
        assert!(matches!(error, StoreError::Full { .. }), "{error}");
        assert_eq!(Failure::from(error).kind, ErrorKind::Retryable);
    }

    #[test]
    fn a_refusal_is_told_apart_from_an_absence() {
        assert!(matches!(StoreError::of(&io(std::io::ErrorKind::PermissionDenied), "x"), StoreError::Denied { .. }));
        assert!(matches!(
            StoreError::of(&io(std::io::ErrorKind::ConnectionRefused), "x"),
            StoreError::Unreachable { .. }
        ));
    }
}
