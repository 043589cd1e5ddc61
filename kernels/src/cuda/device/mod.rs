//! The interface of a device: memory, in-order streams of work, marks in them, kernels. Implemented by the driver
//! (`driver`), in whose place tests put one of their own (`testing/cuda`).
//!
//! Sizes are in cells of eight bytes. Work put into a stream happens later, in order; a mark shows when. Deliberately
//! absent: plans, batches, caching, which are up to the caller.

pub(super) mod arguments;
pub(super) mod driver;
mod driver_graphs;
mod driver_launch;
mod driver_setup;
mod driver_tensors;
mod event_pool;
pub(super) mod graph;
pub(super) mod launcher;
mod laying;
pub(super) mod memory_mode;
mod numa;
mod shared_memory;
mod state_launch;
pub(super) mod strips;
pub(super) mod tensor;

use std::fmt::Debug;
use std::time::{Duration, Instant};

use crate::cuda::codegen::lower::{Kernel, LowerError, Lowered};
use arguments::{Launch, Pointers};
use graph::LaunchGraphs;
use memory_mode::HostAccess;
use tensor::TensorDevice;

/// Bytes of a cell.
pub const CELL_BYTES: usize = 8;

/// The end of the name of every device of the driver for tests (`testing/cuda/driver/settings.h`).
const EMULATED: &str = "(emulated)";

/// From this ratio of f32 to f64 on, f64 is what a device waits for. It is 2 of devices for computing (A100, H100, B200), and 32 or
/// 64 of cards for inference and graphics (L4, L40, RTX).
const FEW_F64_UNITS: u32 = 16;

/// Properties of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    /// As the driver reports it.
    pub name: String,
    /// Its UUID, `GPU-...` or of a slice `MIG-...`; empty if the driver does not say.
    pub uuid: String,
    /// The profile of a slice of a GPU (MIG), such as `1g.10gb`; `None` for a whole one.
    pub slice: Option<String>,
    /// The backend's name in the identity of an answer.
    pub backend: &'static str,
    /// The driver's number of the device, from 0.
    pub ordinal: usize,
    /// Major and minor compute capability.
    pub capability: (i32, i32),
    /// Version of the driver, as `13.0`; empty if there is none.
    pub driver: String,
    /// Version of the run-time compiler.
    pub compiler: (i32, i32),
    /// Total device memory in bytes.
    pub memory_bytes: u64,
    /// Maximum bytes of shared memory per block.
    pub shared_bytes: usize,
    /// Number of multiprocessors.
    pub multiprocessors: u32,
    /// Operations in f32 that it does in the time of one in f64; 0 if the driver does not say.
    pub f32_per_f64: u32,
    /// How it reaches host memory.
    pub access: HostAccess,
}

impl Facts {
    /// The architecture that code is compiled for, such as 90.
    pub fn architecture(&self) -> u32 {
        (self.capability.0 * 10 + self.capability.1).unsigned_abs()
    }

    /// Whether its multiprocessors have few units of f64 beside those of f32.
    pub fn has_few_f64_units(&self) -> bool {
        self.f32_per_f64 >= FEW_F64_UNITS
    }

    /// Whether there is no such device: kernels run on the emulator of the driver for tests, and its times are modelled.
    pub fn is_emulated(&self) -> bool {
        self.name.ends_with(EMULATED)
    }
}

/// Why a device returned no values.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// Not even one group of symbols fits into memory.
    #[error("{}", out_of_memory(*needed_bytes, *free_bytes, *refused_by))]
    OutOfMemory {
        /// Bytes needed at once.
        needed_bytes: u64,
        /// Bytes of device memory that were free.
        free_bytes: u64,
        /// The driver's function that refused them although so many were free, or memory of the host.
        refused_by: Option<&'static str>,
    },
    /// A batch exceeded its time limit. The device is intact; another worker may be faster.
    #[error("a batch ran for {} ms on the device, {} ms are allowed", took.as_millis(), allowed.as_millis())]
    Late {
        /// How long it had run.
        took: Duration,
        /// Its time limit.
        allowed: Duration,
    },
    /// All later calls of this process would fail too: the device is no longer used.
    #[error("the device is lost for this process: {0}")]
    Lost(String),
    /// One call failed.
    #[error("the device failed: {0}")]
    Failed(String),
    /// The plan cannot run on a device.
    #[error(transparent)]
    Lower(#[from] LowerError),
    /// The compiler rejected a kernel's text, or the driver its code, as on every device of this kind.
    #[error("the device refuses a kernel: {0}")]
    Code(String),
    /// Bars that the host did not read are no longer on the device that computes them: with all of them read, it can.
    #[error("bars that were to be on the device are not there any more")]
    NotHeld,
    /// The values are no longer needed.
    #[error("the run was cancelled")]
    Cancelled,
}

/// The text of [`Fault::OutOfMemory`].
fn out_of_memory(needed_bytes: u64, free_bytes: u64, refused_by: Option<&str>) -> String {
    match refused_by {
        None => format!("out of memory on the device: {needed_bytes} bytes are needed at once, {free_bytes} are free"),
        Some(function) => format!(
            "out of memory: the driver's {function} refuses {needed_bytes} bytes, while {free_bytes} bytes of device memory are free"
        ),
    }
}

impl Fault {
    /// A lack of memory, where at least so many bytes are needed at once. What the driver refuses keeps its own figure.
    #[must_use]
    pub fn needing(self, bytes: u64) -> Self {
        match self {
            Self::OutOfMemory { needed_bytes, free_bytes, refused_by: None } => {
                Self::OutOfMemory { needed_bytes: needed_bytes.max(bytes), free_bytes, refused_by: None }
            }
            fault => fault,
        }
    }

    /// Whether another worker, or this one later, may succeed.
    pub fn is_retryable(&self) -> bool {
        !self.has_no_kernel() && !matches!(self, Self::Cancelled)
    }

    /// Whether there is no kernel for the program, so that the CPU has to compute it, with the same bits.
    pub fn has_no_kernel(&self) -> bool {
        matches!(self, Self::Lower(_) | Self::Code(_))
    }
}

/// Where memory that kernels read and write lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Place {
    /// In the device's memory.
    Device,
    /// Where the driver moves it, between host and device.
    Managed,
    /// In host memory, which the device reads in place.
    Host,
}

/// How soon the work of a stream is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Urgency {
    /// Small requests, which someone waits for.
    Interactive,
    /// Large requests.
    Batch,
    /// What nobody waits for yet.
    Prefetch,
}

impl Urgency {
    /// How many there are.
    pub const COUNT: usize = 3;
}

/// Memory that kernels read and write. Released by [`Device::release`].
#[derive(Debug)]
pub struct Memory {
    pub(crate) address: u64,
    pub(crate) cells: usize,
    pub(crate) place: Place,
}

impl Memory {
    /// Address of a cell.
    pub fn at(&self, cell: usize) -> u64 {
        self.address + (cell * CELL_BYTES) as u64
    }

    /// Size in cells of [`CELL_BYTES`].
    pub fn cells(&self) -> usize {
        self.cells
    }

    /// Where it lies.
    pub fn place(&self) -> Place {
        self.place
    }
}

/// Pinned host memory, which the device copies from and to asynchronously. Lives as long as the device, unless it is released by
/// [`Device::unstage`].
#[derive(Debug)]
pub struct Staging {
    pub(crate) address: u64,
    pub(crate) cells: usize,
}

impl Staging {
    /// Size in cells of [`CELL_BYTES`].
    pub fn cells(&self) -> usize {
        self.cells
    }
}

/// An in-order queue of work. Lives as long as the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Stream(pub(super) u64);

impl Stream {
    /// The driver's handle.
    pub(in crate::cuda) fn handle(self) -> *mut std::ffi::c_void {
        self.0 as *mut std::ffi::c_void
    }
}

/// A position in a stream. Released by [`Device::forget`].
#[derive(Debug)]
pub struct Mark(pub(super) u64);

/// A loaded kernel. Lives as long as the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Function(pub(super) u64);

impl Function {
    /// The driver's handle.
    pub(in crate::cuda) fn handle(self) -> u64 {
        self.0
    }
}

/// A device. All errors are [`Fault::OutOfMemory`], [`Fault::Lost`], [`Fault::Failed`] or, from
/// [`Device::compile`] and [`Device::load`], [`Fault::Code`].
pub trait Device: Send + Sync + Debug {
    /// Properties of the device.
    fn facts(&self) -> &Facts;

    /// Current time of the clock used by [`Device::time`].
    fn now(&self) -> Instant;

    /// Free bytes of device memory.
    ///
    /// # Errors
    /// [`Fault`].
    fn free_bytes(&self) -> Result<u64, Fault>;

    /// Asks whether the device still answers: a context that an error has ended answers every call with that error. Takes
    /// microseconds, and waits for no work.
    ///
    /// # Errors
    /// [`Fault`].
    fn probe(&self) -> Result<(), Fault>;

    /// Returns what this process has released, but keeps for later use, to the device and to the system: memory and marks.
    /// Memory of the host is returned even if the device is lost, as far as nothing may access it any more.
    ///
    /// # Errors
    /// [`Fault`].
    fn trim(&self) -> Result<(), Fault>;

    /// Bytes of host memory that are allocated for the device: pinned, and read by kernels in place.
    fn host_bytes(&self) -> u64;

    /// A stream; of work that waits in several, the device begins with the more urgent.
    ///
    /// # Errors
    /// [`Fault`].
    fn stream(&self, urgency: Urgency) -> Result<Stream, Fault>;

    /// Allocates pinned host memory for copies.
    ///
    /// # Errors
    /// [`Fault`].
    fn stage(&self, cells: usize) -> Result<Staging, Fault>;

    /// Releases pinned host memory, which no copy in progress uses. The driver may refuse it for a device that is lost: then it is kept
    /// until the process ends.
    fn unstage(&self, staging: Staging);

    /// Lets `work` write cells of host memory. No copy in progress may read them.
    fn fill(&self, staging: &mut Staging, at: usize, cells: usize, work: &mut dyn FnMut(&mut [u64]));

    /// Lets `work` read cells of host memory. No copy in progress may write them.
    fn read(&self, staging: &Staging, at: usize, cells: usize, work: &mut dyn FnMut(&[u64]));

    /// Allocates uninitialised memory. It may be used by later work in `stream`, and by other streams once a later mark
    /// in `stream` is reached.
    ///
    /// # Errors
    /// [`Fault`].
    fn allocate(&self, stream: Stream, cells: usize) -> Result<Memory, Fault>;

    /// Allocates memory for the host to write and for kernels to read, elsewhere than in the device's own: as its
    /// [`HostAccess`] allows. Not initialised.
    ///
    /// # Errors
    /// [`Fault`].
    fn allocate_shared(&self, place: Place, cells: usize) -> Result<Memory, Fault>;

    /// Lets `work` write all cells of such memory, before any work of the device that reads it is enqueued.
    fn write(&self, memory: &mut Memory, work: &mut dyn FnMut(&mut [u64]));

    /// Enqueues the move of managed memory to the device.
    ///
    /// # Errors
    /// [`Fault`].
    fn prefetch(&self, stream: Stream, memory: &Memory) -> Result<(), Fault>;

    /// Releases memory after the work in `stream`; no other stream may use it any more.
    fn release(&self, stream: Stream, memory: Memory);

    /// Enqueues a copy of `cells` cells from `from.0`'s cell `from.1` to `to.0`'s cell `to.1`.
    ///
    /// # Errors
    /// [`Fault`].
    fn copy_in(&self, stream: Stream, from: (&Staging, usize), to: (&Memory, usize), cells: usize)
    -> Result<(), Fault>;

    /// As [`Device::copy_in`], in the other direction.
    ///
    /// # Errors
    /// [`Fault`].
    fn copy_out(
        &self,
        stream: Stream,
        from: (&Memory, usize),
        to: (&Staging, usize),
        cells: usize,
    ) -> Result<(), Fault>;

    /// Enqueues a copy within the device, or from host memory that it reads.
    ///
    /// # Errors
    /// [`Fault`].
    fn copy_within(
        &self,
        stream: Stream,
        from: (&Memory, usize),
        to: (&Memory, usize),
        cells: usize,
    ) -> Result<(), Fault>;

    /// Compiles a kernel for this device. Does not use device memory, and may take seconds.
    ///
    /// # Errors
    /// [`Fault`].
    fn compile(&self, kernel: &Kernel) -> Result<Vec<u8>, Fault>;

    /// # Errors
    /// [`Fault`].
    fn load(&self, kernel: &Kernel, code: &[u8]) -> Result<Function, Fault>;

    /// Enqueues a kernel.
    ///
    /// # Errors
    /// [`Fault`].
    fn launch(
        &self,
        stream: Stream,
        function: Function,
        lowered: &Lowered,
        launch: &Launch,
        pointers: &Pointers,
    ) -> Result<(), Fault>;

    /// Enqueues a kernel that is no plan's: blocks and threads of each; its argument is these cells.
    ///
    /// # Errors
    /// [`Fault`].
    fn launch_plain(
        &self,
        stream: Stream,
        function: Function,
        size: (usize, usize),
        argument: &[u64],
    ) -> Result<(), Fault>;

    /// How several kernels are launched by one call; `None` if each needs its own.
    fn graphs(&self) -> Option<&dyn LaunchGraphs> {
        None
    }

    /// How memory is shared with other libraries of the process; `None` where it cannot be.
    fn tensors(&self) -> Option<&dyn TensorDevice> {
        None
    }

    /// # Errors
    /// [`Fault`].
    fn mark(&self, stream: Stream) -> Result<Mark, Fault>;

    /// Waits until everything before the mark is done; returns `false` if that was not the case by `until`.
    /// Asynchronous errors of the device since the last call are reported here.
    ///
    /// # Errors
    /// [`Fault`].
    fn wait(&self, mark: &Mark, until: Instant) -> Result<bool, Fault>;

    /// Time at which a reached mark was reached, by the host's clock.
    ///
    /// # Errors
    /// [`Fault`].
    fn time(&self, mark: &Mark) -> Result<Instant, Fault>;

    /// Time between two reached marks of one stream, as the device measured it.
    ///
    /// # Errors
    /// [`Fault`].
    fn between(&self, first: &Mark, last: &Mark) -> Result<Duration, Fault>;

    /// Releases a mark, reached or not.
    fn forget(&self, mark: Mark);
}
