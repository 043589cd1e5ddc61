//! Why a segment has no result, and whether another attempt may have one.

use trawl_kernels::EngineError;
use trawl_kernels::cuda::Fault;
use trawl_market::{MarketError, MarketErrorKind};
use trawl_wire::error::text_of;
use trawl_wire::limits::bounded_reason;
use trawl_wire::{ErrorKind, Failure};

/// Why a segment has no result.
#[derive(Debug, thiserror::Error)]
pub enum ExecuteError {
    /// The group's bars could not be read.
    #[error(transparent)]
    Market(#[from] MarketError),
    /// The bars of a reference could not be read.
    #[error("reference {symbol}: {error}")]
    Reference { symbol: String, error: MarketError },
    /// Nobody wants the result any more.
    #[error("cancelled")]
    Cancelled,
    /// The device did not give the values; another worker's may.
    #[error("{0}")]
    Device(Fault),
    /// The bars are not what the manifest or the plan says.
    #[error("{0}")]
    Inconsistent(String),
    /// A mistake of this program.
    #[error("internal error: the evaluation panicked")]
    Panicked,
}

impl ExecuteError {
    /// Whether another attempt may succeed.
    ///
    /// A damaged file is damaged where it was read: another copy may be sound. A file that is missing may be on its way, or
    /// hidden by a cache of the file system that has not heard of it yet.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Market(MarketError::Checksum { .. } | MarketError::Corrupt { .. })
            | Self::Reference { error: MarketError::Checksum { .. } | MarketError::Corrupt { .. }, .. } => {
                ErrorKind::Damaged
            }
            Self::Market(MarketError::Io { .. }) | Self::Reference { error: MarketError::Io { .. }, .. } => {
                ErrorKind::Retryable
            }
            Self::Market(error) | Self::Reference { error, .. } if error.kind() == MarketErrorKind::Retryable => {
                ErrorKind::Retryable
            }
            Self::Device(Fault::OutOfMemory { .. }) => ErrorKind::OutOfMemory,
            Self::Device(fault) if fault.is_retryable() => ErrorKind::Retryable,
            Self::Market(_) | Self::Reference { .. } | Self::Inconsistent(_) | Self::Device(_) | Self::Panicked => {
                ErrorKind::Permanent
            }
            Self::Cancelled => ErrorKind::Cancelled,
        }
    }
}

impl From<EngineError> for ExecuteError {
    fn from(error: EngineError) -> Self {
        match error {
            EngineError::Cancelled(_) => Self::Cancelled,
            EngineError::Device(fault) => Self::Device(fault),
        }
    }
}

impl From<ExecuteError> for Failure {
    fn from(error: ExecuteError) -> Self {
        Self::new(error.kind(), bounded_reason(text_of(&error)))
    }
}
