//! Plans as CUDA kernels: generates, for each program, the text of a fused kernel over the hand-written steps of
//! `kernels/cuda`, compiles it and runs it.
//!
//! The text depends on a plan's shape only: periods, thresholds and constants are arguments, so that other values need
//! no compilation (docs/adr/0014). `codegen` and `time_chunks` are pure: text and bytes out, no driver, no compiler, no
//! device.
//!
//! Dependencies point down: `health` → `execute` → `collective` → `device` → `compile`, `time_chunks` → `codegen`.
//!
//! *Entry points:* [`Sequence::fused`] (a program as one kernel, or a few), [`Sequence::apart`] (kernels of single
//! primitives, shared by all programs), [`Market`] (bars in the kernels' layout), [`Lowered::launch`] (a kernel's
//! argument for a market), [`HEADERS`], [`Compiler`], [`Cache`], [`gpus`], [`Fleet`].

mod codegen;
mod collective;
mod compile;
mod device;
mod execute;
mod health;
mod time_chunks;

pub use codegen::averages::Constants;
pub use codegen::fixed::fixed_kernels;
pub use codegen::headers::HEADERS;
pub use codegen::lower::{Kernel, LowerError, Lowered};
pub use codegen::one_bar::OneBar;
pub use collective::nccl::Nccl;
pub use collective::{Collective, Connect, RankPart};
pub use compile::cache::{Cache, CacheError, Key};
pub use compile::device_name::DeviceName;
pub use compile::device_probe::{Gpu, Seen, Unavailable, devices, gpus};
pub use compile::library::{LIBRARIES_VARIABLE, Library, Search};
pub use compile::nvrtc::{CompileError, Compiled, Compiler, REGISTERS_MAX, Resources};
pub use device::arguments::{GROUP_LANES, Launch, Limits, Market, Pointers, SCATTERED, Wanted};
pub use device::driver::Cuda;
pub use device::graph::{KernelNode, LaunchGraph, LaunchGraphs};
pub use device::launcher::{Bound, Launcher};
pub use device::memory_mode::{HostAccess, MemoryMode};
pub use device::tensor::{ForeignStream, TensorDevice};
pub use device::{CELL_BYTES, Device, Facts, Fault, Function, Mark, Memory, Place, Staging, Stream, Urgency};
pub use execute::device_queue::{Executor, ExecutorOptions};
pub use execute::fleet::{DeviceLoss, Fleet};
pub use execute::gatherer::{GATHER_BYTES_MIN, GatherOptions, Gathers};
pub use execute::paying::Prefetches;
pub use execute::policy::{FEW_SYMBOLS_MAX, LONG_BARS_MIN, Lowering};
pub use execute::prefetch::Ahead;
pub use execute::request::{BarsSource, RequestEvent, RequestPart, SourceSymbol};
pub use execute::sequence::{KernelCall, Sequence, Series};
pub use execute::states::{DeviceStates, NewBar, STATES_PINNED_BYTES_MAX};
pub use execute::table::{FeatureTable, KeptOutputs, TableRow};
pub use execute::tensors::DeviceTensor;
pub use execute::tuning::{Tuned, Tuning};
pub use health::finding::{Finding, Health, Reading, Throttle, Throttling};
pub use health::nvml::{NoNvml, Nvml, driver_version, look as look_at_health};
pub use health::watch::{HEALTH_INTERVAL, HealthEvent, Watch};
pub use time_chunks::plan::{CHUNK_BARS, Chunks, Cut, Lane};

/// Name of the backend in the identity of an answer.
pub const BACKEND_CUDA: &str = "cuda";
