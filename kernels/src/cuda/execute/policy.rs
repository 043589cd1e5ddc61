//! How a device goes through time, and for which scans it does what.

use trawl_plan::Program;

use crate::NUMERICS_ID;
use crate::cuda::codegen::family::Constants;
use crate::cuda::codegen::lower::LowerError;
use crate::cuda::codegen::steps::KernelSteps;
use crate::cuda::execute::sequence::Sequence;
use crate::cuda::time_chunks::plan::{CHUNK_BARS, Levels};

/// Symbols of a universe, at most, whose histories are cut. One thread a symbol, 256 of them keep 8 of an H200's 132
/// multiprocessors busy; from some thousands on nothing is won.
pub const FEW_SYMBOLS_MAX: u64 = 256;

/// Bars of the longest history, at least. The kernels of a plan with two levels of recursion go through about 5,000 rows and maps
/// in a row, however long the history is: below ten times that the gain is not worth other bits.
pub const LONG_BARS_MIN: u64 = 50_000;

/// How a plan is lowered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Lowering {
    /// A thread goes through all bars of a symbol: the CPU's bits.
    #[default]
    Serial,
    /// Chunks of a symbol's bars side by side: within 1e-12 of the CPU, the CPU's bits where nothing is recursive.
    Chunks,
}

impl Lowering {
    /// What programs of a scan over a universe are lowered to, and why, where that is in question: few symbols with long
    /// histories. It hangs on nothing but the scan: not on segments, shards, workers or devices. `bars`: of the longest
    /// history in the snapshot.
    pub fn of_scan<'a>(
        programs: impl IntoIterator<Item = &'a Program>,
        symbols: u64,
        bars: u64,
    ) -> (Self, Option<String>) {
        if symbols > FEW_SYMBOLS_MAX || bars < LONG_BARS_MIN {
            return (Self::Serial, None);
        }
        let mut programs = programs.into_iter();
        match programs.find_map(|program| Levels::of(&KernelSteps::of(program)).err()) {
            Some(why) => (Self::Serial, Some(why.to_string())),
            None => (Self::Chunks, Some(format!("long histories are cut into chunks of {CHUNK_BARS} bars"))),
        }
    }

    /// What changes whenever the same plan over the same bars could give other bits.
    pub fn numerics(self) -> String {
        match self {
            Self::Serial => NUMERICS_ID.to_owned(),
            Self::Chunks => format!("{NUMERICS_ID}+chunks{CHUNK_BARS}"),
        }
    }

    /// As few kernels as there can be.
    pub(crate) fn fused(self, program: &Program, constants: Constants) -> Result<Sequence, LowerError> {
        match self {
            Self::Serial => Sequence::fused_with(program, constants),
            Self::Chunks => Sequence::in_chunks(program, false),
        }
    }

    /// A primitive at a time.
    pub(super) fn apart(self, program: &Program) -> Result<Sequence, LowerError> {
        match self {
            Self::Serial => Sequence::apart(program),
            Self::Chunks => Sequence::in_chunks(program, true),
        }
    }
}
