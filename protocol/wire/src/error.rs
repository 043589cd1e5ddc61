//! Kinds of failures exchanged between processes, as enums and never as text: the kind decides whether to retry.

use tonic::metadata::MetadataMap;

use crate::pb;

/// Metadata key that marks a gRPC status as returned deliberately by a Trawl server, not created by the transport.
pub const KIND_METADATA_KEY: &str = "trawl-error-kind";

/// The kind of a failure, which decides what happens to the work.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum ErrorKind {
    /// The request itself is wrong; the same request fails everywhere.
    Invalid,
    /// Another attempt, perhaps elsewhere, may succeed.
    Retryable,
    /// A property of the snapshot: every attempt fails in the same way.
    Permanent,
    /// The result is no longer needed.
    Cancelled,
    /// The work killed the workers that tried it.
    Poisoned,
    /// Smaller pieces may succeed.
    OutOfMemory,
    /// The deadline has passed.
    DeadlineExceeded,
    /// A file is damaged where it was read. Another copy may be intact, so the report of one host is not conclusive.
    Damaged,
}

impl ErrorKind {
    /// All variants.
    pub const ALL: [Self; 8] = [
        Self::Invalid,
        Self::Retryable,
        Self::Permanent,
        Self::Cancelled,
        Self::Poisoned,
        Self::OutOfMemory,
        Self::DeadlineExceeded,
        Self::Damaged,
    ];

    /// The name of this variant in reports and metadata.
    pub fn name(self) -> &'static str {
        match self {
            Self::Invalid => "invalid",
            Self::Retryable => "retryable",
            Self::Permanent => "permanent",
            Self::Cancelled => "cancelled",
            Self::Poisoned => "poisoned",
            Self::OutOfMemory => "out_of_memory",
            Self::DeadlineExceeded => "deadline_exceeded",
            Self::Damaged => "damaged",
        }
    }

    /// Whether a segment with this failure is retried.
    ///
    /// Includes `Cancelled`: a draining worker cancels work that the scan still needs.
    pub fn is_retried(self) -> bool {
        matches!(self, Self::Retryable | Self::OutOfMemory | Self::Cancelled)
    }
}

impl From<ErrorKind> for pb::ErrorKind {
    fn from(kind: ErrorKind) -> Self {
        match kind {
            ErrorKind::Invalid => Self::Invalid,
            ErrorKind::Retryable => Self::Retryable,
            ErrorKind::Permanent => Self::Permanent,
            ErrorKind::Cancelled => Self::Cancelled,
            ErrorKind::Poisoned => Self::Poisoned,
            ErrorKind::OutOfMemory => Self::OutOfMemory,
            ErrorKind::DeadlineExceeded => Self::DeadlineExceeded,
            ErrorKind::Damaged => Self::Damaged,
        }
    }
}

impl From<pb::ErrorKind> for ErrorKind {
    /// A kind unknown to this version is retryable: attempts are limited, so the worst is a late failure.
    fn from(kind: pb::ErrorKind) -> Self {
        match kind {
            pb::ErrorKind::Unspecified | pb::ErrorKind::Retryable => Self::Retryable,
            pb::ErrorKind::Invalid => Self::Invalid,
            pb::ErrorKind::Permanent => Self::Permanent,
            pb::ErrorKind::Cancelled => Self::Cancelled,
            pb::ErrorKind::Poisoned => Self::Poisoned,
            pb::ErrorKind::OutOfMemory => Self::OutOfMemory,
            pb::ErrorKind::DeadlineExceeded => Self::DeadlineExceeded,
            pb::ErrorKind::Damaged => Self::Damaged,
        }
    }
}

/// A failure as exchanged between processes and written to reports.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize, thiserror::Error, schemars::JsonSchema)]
#[error("{message}")]
pub struct Failure {
    /// The kind, which decides whether to retry.
    pub kind: ErrorKind,
    /// Lower case, without a full stop.
    pub message: String,
}

impl Failure {
    /// A failure of `kind`.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }

    /// Converts it to a gRPC status with its kind, so that the other side can distinguish it from a broken connection.
    pub fn to_status(&self) -> tonic::Status {
        let code = match self.kind {
            ErrorKind::Invalid => tonic::Code::InvalidArgument,
            ErrorKind::Retryable => tonic::Code::Unavailable,
            ErrorKind::Permanent | ErrorKind::Poisoned => tonic::Code::FailedPrecondition,
            ErrorKind::Cancelled => tonic::Code::Cancelled,
            ErrorKind::OutOfMemory => tonic::Code::ResourceExhausted,
            ErrorKind::DeadlineExceeded => tonic::Code::DeadlineExceeded,
            ErrorKind::Damaged => tonic::Code::DataLoss,
        };
        status_of(code, self.kind, &self.message)
    }

    /// The failure that a Trawl server put into `status`; `None` if the status comes from the transport or another
    /// program.
    pub fn from_status(status: &tonic::Status) -> Option<Self> {
        let name = status.metadata().get(KIND_METADATA_KEY)?.to_str().ok()?;
        let kind = ErrorKind::ALL.into_iter().find(|k| k.name() == name)?;
        Some(Self::new(kind, status.message()))
    }
}

/// A status with the given code, and the kind in its metadata.
pub fn status_of(code: tonic::Code, kind: ErrorKind, message: &str) -> tonic::Status {
    let mut metadata = MetadataMap::new();
    metadata.insert(KIND_METADATA_KEY, tonic::metadata::MetadataValue::from_static(kind.name()));
    tonic::Status::with_metadata(code, message, metadata)
}

impl From<Failure> for pb::Failure {
    fn from(failure: Failure) -> Self {
        Self { kind: pb::ErrorKind::from(failure.kind).into(), message: failure.message }
    }
}

impl From<pb::Failure> for Failure {
    fn from(failure: pb::Failure) -> Self {
        Self { kind: failure.kind().into(), message: failure.message }
    }
}

/// Between the two fingerprints of [`other_plan`].
const OTHER_PLAN: &str = " was asked for, this worker compiles the document to ";

/// The refusal of a shard whose document a worker compiles to another plan. Its form is part of the protocol:
/// coordinators ask workers of another release for their plan by a shard without one, and read it with [`plan_in`].
pub fn other_plan(asked: &str, own: &str) -> String {
    format!("plan {asked}{OTHER_PLAN}{own}")
}

/// The worker's plan in a message of [`other_plan`].
pub fn plan_in(message: &str) -> Option<&str> {
    let (_, own) = message.strip_prefix("plan ")?.split_once(OTHER_PLAN)?;
    (own.len() == 64 && own.bytes().all(|b| b.is_ascii_hexdigit())).then_some(own)
}

/// Begin and middle of [`epoch_over`].
const EPOCH_OVER: (&str, &str) = ("epoch ", " is over: this worker has heard of a leader of epoch ");

/// The refusal of what a leader of an earlier epoch asks. Its form is part of the protocol: a coordinator learns by it
/// that it was succeeded.
pub fn epoch_over(epoch: i64, highest: i64) -> String {
    let (begin, middle) = EPOCH_OVER;
    format!("{begin}{epoch}{middle}{highest} (if etcd was set up anew, restart the workers)")
}

/// The epoch that is over, in a message of [`epoch_over`].
pub fn over_in(message: &str) -> Option<i64> {
    let (epoch, _) = message.strip_prefix(EPOCH_OVER.0)?.split_once(EPOCH_OVER.1)?;
    epoch.parse().ok()
}

/// The innermost cause of an error, usually the operating system's, such as "connection reset by peer".
pub fn innermost(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    cause.to_string()
}

/// An error and its causes in one line, without duplicates.
pub fn text_of(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.ends_with(&more) {
            text = format!("{text}: {more}");
        }
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_survives_the_wire_and_a_status() {
        for kind in ErrorKind::ALL {
            let failure = Failure::new(kind, "why");
            assert_eq!(Failure::from(pb::Failure::from(failure.clone())), failure);
            assert_eq!(Failure::from_status(&failure.to_status()), Some(failure));
        }
    }

    #[test]
    fn a_status_of_the_transport_is_not_taken_for_an_answer() {
        assert_eq!(Failure::from_status(&tonic::Status::unavailable("connection reset")), None);
    }

    #[test]
    fn the_plan_of_a_worker_is_in_its_refusal() {
        let own = "0f".repeat(32);
        assert_eq!(plan_in(&other_plan("", &own)), Some(own.as_str()));
        assert_eq!(plan_in(&other_plan("abc", &own)), Some(own.as_str()));
        // As workers of c7b7003 write it.
        let written = format!("plan  was asked for, this worker compiles the document to {own}");
        assert_eq!(plan_in(&written), Some(own.as_str()));
        for other in ["", "plan x", "plan  was asked for, this worker compiles the document to x", &own] {
            assert_eq!(plan_in(other), None);
        }
    }

    #[test]
    fn an_epoch_that_is_over_is_in_the_refusal() {
        assert_eq!(over_in(&epoch_over(7, 12)), Some(7));
        // As workers of c7b7003 write it.
        let written = "epoch 7 is over: this worker has heard of a leader of epoch 12 (if etcd was set up anew, restart the workers)";
        assert_eq!(over_in(written), Some(7));
        for other in
            ["", "epoch x", "epoch 7 is over", "the epoch 7 is over: this worker has heard of a leader of epoch 12"]
        {
            assert_eq!(over_in(other), None);
        }
    }

    #[test]
    fn an_unknown_kind_is_retryable() {
        let failure = pb::Failure { kind: 99, message: String::new() };
        assert_eq!(Failure::from(failure).kind, ErrorKind::Retryable);
    }
}
