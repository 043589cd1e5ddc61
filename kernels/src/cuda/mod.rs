//! Plans as CUDA kernels: a program becomes the text of one fused kernel over the hand-written steps of `kernels/cuda`.
//!
//! The text depends on a plan's shape alone: periods, thresholds and constants are arguments, so that other numbers compile
//! nothing (docs/adr/0014). Everything here is pure: text and bytes out, no driver, no compiler, no device.
//!
//! *Entry points:* [`Sequence::fused`] (a program as one kernel, or a few), [`Sequence::apart`] (the same a primitive at a time,
//! by kernels that every program shares), [`Market`] (bars as kernels read them), [`Lowered::launch`] (a kernel's argument for
//! a market), [`HEADERS`],
//! [`Compiler`], [`Cache`], [`gpu_available`].

mod batch;
mod by_cpu;
mod cache;
mod call;
mod chunk_text;
mod chunks;
mod compiler;
mod device;
mod driver;
mod executor;
mod family;
mod family_text;
mod form;
mod gate;
mod launch;
mod library;
mod lower;
mod lowering;
mod over_chunks;
mod part_text;
mod parts;
mod programs;
mod resident;
mod sequence;
mod simulated;
mod steps;
mod text;
mod transfer;

pub use by_cpu::ByCpu;
pub use cache::{Cache, CacheError, Key};
pub use call::{Part, Source as BarsSource, Told};
pub use chunks::{CHUNK_BARS, Chunks, Cut, Lane};
pub use compiler::{CompileError, Compiled, Compiler, REGISTERS_MAX, Resources};
pub use device::{CELL_BYTES, Device, Facts, Fault, Function, Mark, Memory, Staging, Stream};
pub use driver::Cuda;
pub use executor::{Executor, ExecutorOptions};
pub use family::Constants;
pub use gate::{Gpu, Seen, Unavailable, devices, gpu_available};
pub use launch::{GROUP_LANES, Launch, Limits, Market, Pointers, SCATTERED, Wanted};
pub use library::{LIBRARIES_VARIABLE, Library, Search};
pub use lower::{Kernel, LowerError, Lowered};
pub use lowering::{FEW_SYMBOLS_MAX, LONG_BARS_MIN, Lowering};
pub use sequence::{Call, Sequence, Series};
pub use simulated::{BACKEND_SIMULATED, Bound, Counts, Launcher, Simulated, Simulation};

/// The backend's name enters the identity of an answer.
pub const BACKEND_CUDA: &str = "cuda";

/// Name and text of the headers that kernels include, in an order in which each includes earlier ones only.
pub const HEADERS: [(&str, &str); 20] = [
    ("base.cuh", include_str!("../../cuda/base.cuh")),
    ("run.cuh", include_str!("../../cuda/run.cuh")),
    ("elementwise.cuh", include_str!("../../cuda/elementwise.cuh")),
    ("math_tables.cuh", include_str!("../../cuda/math_tables.cuh")),
    ("math.cuh", include_str!("../../cuda/math.cuh")),
    ("angle.cuh", include_str!("../../cuda/angle.cuh")),
    ("power.cuh", include_str!("../../cuda/power.cuh")),
    ("window.cuh", include_str!("../../cuda/window.cuh")),
    ("extremes.cuh", include_str!("../../cuda/extremes.cuh")),
    ("joint.cuh", include_str!("../../cuda/joint.cuh")),
    ("recurrence.cuh", include_str!("../../cuda/recurrence.cuh")),
    ("events.cuh", include_str!("../../cuda/events.cuh")),
    ("stops.cuh", include_str!("../../cuda/stops.cuh")),
    ("anchored.cuh", include_str!("../../cuda/anchored.cuh")),
    ("cycle.cuh", include_str!("../../cuda/cycle.cuh")),
    ("trend.cuh", include_str!("../../cuda/trend.cuh")),
    ("chunked.cuh", include_str!("../../cuda/chunked.cuh")),
    ("family.cuh", include_str!("../../cuda/family.cuh")),
    ("lengths.cuh", include_str!("../../cuda/lengths.cuh")),
    ("kernel.cuh", include_str!("../../cuda/kernel.cuh")),
];
