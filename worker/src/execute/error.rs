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
    Reference {
        /// The symbol that the plan refers to.
        symbol: String,
        /// Why its bars could not be read.
        error: MarketError,
    },
    /// The result is no longer needed.
    #[error("cancelled")]
    Cancelled,
    /// The device failed; that of another worker may succeed.
    #[error("{0}")]
    Device(Fault),
    /// The bars do not match the manifest or the plan.
    #[error("{0}")]
    Inconsistent(String),
    /// A panic, which is a bug in this program.
    #[error("internal error: the evaluation panicked")]
    Panicked,
}

impl ExecuteError {
    /// Whether another attempt may succeed.
    ///
    /// A damaged file may be intact in another copy. A missing file may not have arrived yet, or may be hidden by a
    /// stale cache of the file system.
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
