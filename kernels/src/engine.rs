//! Which engine runs programs: this machine's processors, or a device. The values are the same, but for a device's over chunks of
//! long histories, which agree to 1e-12.

use std::sync::Arc;

use crate::cuda::{BarsSource, Executor, Fault, Lowering};
use crate::stages::Stages;
use crate::{BACKEND_CPU, Cancel, Cancelled, Executable, Precision, SymbolInput};

/// What runs programs. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub enum Engine {
    /// The calling thread.
    #[default]
    Cpu,
    /// A device that all threads share.
    Device(Arc<Executor>),
    /// The same, over chunks of each symbol's bars.
    Chunks(Arc<Executor>),
}

/// Why an engine gave no values.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EngineError {
    #[error(transparent)]
    Cancelled(#[from] Cancelled),
    #[error(transparent)]
    Device(Fault),
}

impl Engine {
    /// Its name in the identity of an answer of this precision: what is not of 64 bits is the CPU's.
    pub fn backend(&self, precision: Precision) -> &'static str {
        match self {
            Self::Device(executor) | Self::Chunks(executor) if precision == Precision::F64 => executor.facts().backend,
            _ => BACKEND_CPU,
        }
    }

    /// The same engine for a scan that is lowered so. The processors have one way.
    #[must_use]
    pub fn lowered(self, lowering: Lowering) -> Self {
        match (self, lowering) {
            (Self::Cpu, _) => Self::Cpu,
            (Self::Device(executor) | Self::Chunks(executor), Lowering::Serial) => Self::Device(executor),
            (Self::Device(executor) | Self::Chunks(executor), Lowering::Chunks) => Self::Chunks(executor),
        }
    }

    /// What changes whenever the same plan over the same bars could give other bits, in answers of this precision.
    pub fn numerics(&self, precision: Precision) -> String {
        match self {
            Self::Chunks(_) if precision == Precision::F64 => Lowering::Chunks.numerics(),
            _ => Lowering::Serial.numerics(),
        }
    }

    /// As [`Executable::evaluate_from`]. Bars of a known `source` stay on a device. Where a device's time went is recorded;
    /// that of the calling thread is the caller's to record. A program that no kernel can be written for, or whose kernel is
    /// refused, is run by the CPU, whose bits are the same.
    ///
    /// # Errors
    /// [`EngineError`].
    pub fn evaluate_from(
        &self,
        executable: &Executable,
        symbols: &[SymbolInput<'_>],
        from: &[usize],
        source: Option<&BarsSource<'_>>,
        cancel: &dyn Cancel,
        stages: &mut Stages,
    ) -> Result<Vec<Vec<Vec<f64>>>, EngineError> {
        if executable.precision() == Precision::F64
            && let Self::Device(executor) | Self::Chunks(executor) = self
        {
            let done = match self {
                Self::Chunks(_) => executor.evaluate_in_chunks(executable, symbols, from, source, cancel, stages, true),
                _ => executor.evaluate_from(executable, symbols, from, source, cancel, stages),
            };
            match done {
                Ok(values) => return Ok(values),
                Err(Fault::Cancelled) => return Err(Cancelled.into()),
                Err(fault) if fault.has_no_kernel() => {}
                Err(fault) => return Err(EngineError::Device(fault)),
            }
        }
        Ok(executable.evaluate_from(symbols, from, cancel)?)
    }
}
