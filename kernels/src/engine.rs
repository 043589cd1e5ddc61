//! Selects the engine that runs programs: the CPU of this machine or a device. Both give the same values in either
//! precision; a device that cuts long histories into chunks, in `f64` only, agrees to 1e-12.

use std::sync::Arc;

use crate::cuda::{BarsSource, Fault, Fleet, Lowering};
use crate::stages::Stages;
use crate::{BACKEND_CPU, Cancel, Cancelled, Executable, Precision, SymbolInput, Values};

/// The engine that runs programs. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub enum Engine {
    /// The calling thread.
    #[default]
    Cpu,
    /// One or several devices shared by all threads.
    Device(Arc<Fleet>),
    /// Devices that cut each symbol's bars into chunks.
    Chunks(Arc<Fleet>),
}

/// Why an engine gave no values.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EngineError {
    /// The run was cancelled; nothing was computed.
    #[error(transparent)]
    Cancelled(#[from] Cancelled),
    /// The device returned no values.
    #[error(transparent)]
    Device(Fault),
}

impl Engine {
    /// The backend's name in the identity of an answer.
    pub fn backend(&self) -> &'static str {
        match self {
            Self::Device(fleet) | Self::Chunks(fleet) => fleet.facts().backend,
            Self::Cpu => BACKEND_CPU,
        }
    }

    /// The same engine with the lowering of a scan. The CPU has one lowering, so it is returned unchanged.
    #[must_use]
    pub fn lowered(self, lowering: Lowering) -> Self {
        match (self, lowering) {
            (Self::Cpu, _) => Self::Cpu,
            (Self::Device(fleet) | Self::Chunks(fleet), Lowering::Serial) => Self::Device(fleet),
            (Self::Device(fleet) | Self::Chunks(fleet), Lowering::Chunks) => Self::Chunks(fleet),
        }
    }

    /// Identifies the numerics of answers of this precision: changes whenever the same plan over the same bars could
    /// give other bits.
    pub fn numerics(&self, precision: Precision) -> String {
        match self {
            Self::Chunks(_) if precision == Precision::F64 => Lowering::Chunks.numerics(),
            _ => Lowering::Serial.numerics(),
        }
    }

    /// As [`Executable::evaluate_from`]. Bars of a known `source` are cached on a device. The stages of a device are
    /// recorded; those of the calling thread are recorded by the caller. A program for which no kernel can be
    /// generated, or whose kernel is rejected, falls back to the CPU, which gives the same bits.
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
    ) -> Result<Values, EngineError> {
        if let Self::Device(fleet) | Self::Chunks(fleet) = self {
            let done = match self {
                // Histories are cut in `f64` only.
                Self::Chunks(_) if executable.precision() == Precision::F64 => {
                    fleet.evaluate_in_chunks(executable, symbols, from, source, cancel, stages)
                }
                _ => fleet.evaluate_from(executable, symbols, from, source, cancel, stages),
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
