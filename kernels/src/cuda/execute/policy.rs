//! The lowering of plans for a device, and the choice between lowerings.

use trawl_plan::Program;

use crate::cuda::codegen::averages::Constants;
use crate::cuda::codegen::lower::LowerError;
use crate::cuda::codegen::steps::KernelSteps;
use crate::cuda::execute::sequence::Sequence;
use crate::cuda::time_chunks::plan::{CHUNK_BARS, Levels};
use crate::{NUMERICS_ID, Precision};

/// Maximum number of symbols of a universe for histories to be cut into chunks. With one thread per symbol, 256 symbols
/// keep 8 of an H200's 132 multiprocessors busy; from some thousands on there is no gain.
pub const FEW_SYMBOLS_MAX: u64 = 256;

/// Minimum number of bars of the longest history for it to be cut. The kernels of a plan with two levels of recursion
/// process about 5,000 rows and maps sequentially, however long the history is: below ten times that the gain does not
/// justify different bits.
pub const LONG_BARS_MIN: u64 = 50_000;

/// Why a history is not cut in `f32`.
const F64_ONLY: &str = "histories are cut into chunks in f64 only";

/// How a plan is lowered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Lowering {
    /// One thread processes all bars of a symbol; same bits as the CPU.
    #[default]
    Serial,
    /// Chunks of a symbol's bars run in parallel; within 1e-12 of the CPU, and the same bits if no step is recursive.
    Chunks,
}

impl Lowering {
    /// The lowering of a scan over a universe, and the reason for few symbols with long histories. It depends only on
    /// the scan, not on segments, shards, workers or devices. `bars`: length of the longest history in the snapshot.
    /// Histories are cut in `f64` only.
    pub fn of_scan<'a>(
        programs: impl IntoIterator<Item = &'a Program>,
        symbols: u64,
        bars: u64,
        precision: Precision,
    ) -> (Self, Option<String>) {
        if symbols > FEW_SYMBOLS_MAX || bars < LONG_BARS_MIN {
            return (Self::Serial, None);
        }
        if precision != Precision::F64 {
            return (Self::Serial, Some(F64_ONLY.to_owned()));
        }
        let mut programs = programs.into_iter();
        match programs.find_map(|program| Levels::of(&KernelSteps::of(program)).err()) {
            Some(why) => (Self::Serial, Some(why.to_string())),
            None => (Self::Chunks, Some(format!("long histories are cut into chunks of {CHUNK_BARS} bars"))),
        }
    }

    /// Identifies the numerics: changes whenever the same plan over the same bars could give other bits.
    pub fn numerics(self) -> String {
        match self {
            Self::Serial => NUMERICS_ID.to_owned(),
            Self::Chunks => format!("{NUMERICS_ID}+chunks{CHUNK_BARS}"),
        }
    }

    /// Lowers to the smallest possible number of kernels.
    pub(crate) fn fused(
        self,
        program: &Program,
        constants: Constants,
        precision: Precision,
    ) -> Result<Sequence, LowerError> {
        match self {
            Self::Serial => Sequence::fused_in(program, constants, precision),
            Self::Chunks => Self::cut(program, false, precision),
        }
    }

    /// Lowers to kernels of single primitives.
    pub(super) fn apart(self, program: &Program, precision: Precision) -> Result<Sequence, LowerError> {
        match self {
            Self::Serial => Sequence::apart_in(program, precision),
            Self::Chunks => Self::cut(program, true, precision),
        }
    }

    /// Kernels over chunks; there are some in `f64` only.
    fn cut(program: &Program, apart: bool, precision: Precision) -> Result<Sequence, LowerError> {
        match precision {
            Precision::F64 => Sequence::in_chunks(program, apart),
            Precision::F32 => Err(LowerError::Serial(F64_ONLY.to_owned())),
        }
    }
}
