//! Why a segment has no result, and whether another attempt may have one.

use trawl_kernels::EngineError;
use trawl_kernels::cuda::Fault;
use trawl_market::{MarketError, MarketErrorKind};
use trawl_protocol::error::text_of;
use trawl_protocol::limits::bounded_reason;
use trawl_protocol::{ErrorKind, Failure};

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
    /// Damaged or missing bars are a property of the snapshot, the same everywhere.
    pub fn kind(&self) -> ErrorKind {
        match self {
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
