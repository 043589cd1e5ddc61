//! What an engine on a device is written against: memory, streams of work in order, marks in them, kernels. The driver of a
//! real device (`driver`) and a simulated one (`simulated`) both are one.
//!
//! Everything is counted in cells of eight bytes. What is put into a stream happens later, in order; a mark tells when.
//! Deliberately absent: plans, batches, what is kept. Those who call decide that.

pub(super) mod arguments;
pub(super) mod by_cpu;
pub(super) mod driver;
pub(super) mod simulated;

use std::fmt::Debug;
use std::time::{Duration, Instant};

use crate::cuda::codegen::lower::{Kernel, LowerError, Lowered};
use arguments::{Launch, Pointers};

/// Bytes of a cell.
pub const CELL_BYTES: usize = 8;

/// What a device is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    pub name: String,
    /// As it is named in the identity of an answer: `cuda`, or `simulated`.
    pub backend: &'static str,
    pub ordinal: usize,
    /// Major and minor compute capability.
    pub capability: (i32, i32),
    /// Version of the driver, as `13.0`; empty where there is none.
    pub driver: String,
    /// Of the run-time compiler.
    pub compiler: (i32, i32),
    pub memory_bytes: u64,
    /// Shared memory that one block may take.
    pub shared_bytes: usize,
    pub multiprocessors: u32,
}

impl Facts {
    /// The architecture that code is compiled for, such as 90.
    pub fn architecture(&self) -> u32 {
        (self.capability.0 * 10 + self.capability.1).unsigned_abs()
    }
}

/// Why a device gave no values.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// Not even one group of symbols finds room.
    #[error("out of memory on the device: {needed_bytes} bytes are needed at once, {free_bytes} are free")]
    OutOfMemory { needed_bytes: u64, free_bytes: u64 },
    /// The device ran for longer than a batch may. It is whole; somebody else may be faster.
    #[error("a batch ran for {} ms on the device, {} ms are allowed", took.as_millis(), allowed.as_millis())]
    Late { took: Duration, allowed: Duration },
    /// Every later call of this process would fail too: the device is used no more.
    #[error("the device is lost for this process: {0}")]
    Lost(String),
    /// One call failed.
    #[error("the device failed: {0}")]
    Failed(String),
    /// The plan cannot run on a device.
    #[error(transparent)]
    Lower(#[from] LowerError),
    /// The compiler refused a kernel's text, or the driver its code. It would on every device of this kind.
    #[error("the device refuses a kernel: {0}")]
    Code(String),
    /// Nobody wants the values any more.
    #[error("the run was cancelled")]
    Cancelled,
}

impl Fault {
    /// Whether another worker, or this one later, may succeed.
    pub fn is_retryable(&self) -> bool {
        !self.has_no_kernel() && !matches!(self, Self::Cancelled)
    }

    /// Whether there is no kernel for the program here, and the CPU computes it, with the same bits.
    pub fn has_no_kernel(&self) -> bool {
        matches!(self, Self::Lower(_) | Self::Code(_))
    }
}

/// Cells of the device. Given back by [`Device::release`].
#[derive(Debug)]
pub struct Memory {
    pub(crate) address: u64,
    pub(crate) cells: usize,
}

impl Memory {
    /// Address of a cell.
    pub fn at(&self, cell: usize) -> u64 {
        self.address + (cell * CELL_BYTES) as u64
    }

    pub fn cells(&self) -> usize {
        self.cells
    }
}

/// Cells of the host that the device copies from and to by itself. Lives as long as the device.
#[derive(Debug)]
pub struct Staging {
    pub(crate) address: u64,
    pub(crate) cells: usize,
}

impl Staging {
    pub fn cells(&self) -> usize {
        self.cells
    }
}

/// Work in order. Lives as long as the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Stream(pub(super) u64);

/// A place in a stream. Given back by [`Device::forget`].
#[derive(Debug)]
pub struct Mark(pub(super) u64);

/// A kernel that was loaded. Lives as long as the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Function(pub(super) u64);

/// A device, real or simulated. All errors are [`Fault::OutOfMemory`], [`Fault::Lost`], [`Fault::Failed`] or, of [`Device::compile`]
/// and [`Device::load`], [`Fault::Code`].
pub trait Device: Send + Sync + Debug {
    fn facts(&self) -> &Facts;

    /// The time by which [`Device::time`] tells marks.
    fn now(&self) -> Instant;

    /// Bytes that nobody has.
    ///
    /// # Errors
    /// [`Fault`].
    fn free_bytes(&self) -> Result<u64, Fault>;

    /// Bytes of this process's share, beside what it has: kept for later allocations, given back by this call.
    ///
    /// # Errors
    /// [`Fault`].
    fn trim(&self) -> Result<(), Fault>;

    /// # Errors
    /// [`Fault`].
    fn stream(&self) -> Result<Stream, Fault>;

    /// Memory of the host for copies.
    ///
    /// # Errors
    /// [`Fault`].
    fn stage(&self, cells: usize) -> Result<Staging, Fault>;

    /// Lets `work` write cells of the host's, none of which a copy under way reads.
    fn fill(&self, staging: &mut Staging, at: usize, cells: usize, work: &mut dyn FnMut(&mut [u64]));

    /// Lets `work` read cells of the host's, none of which a copy under way writes.
    fn read(&self, staging: &Staging, at: usize, cells: usize, work: &mut dyn FnMut(&[u64]));

    /// Memory whose cells hold anything. It may be used by what follows in `stream`, and by others once a mark behind
    /// this was reached.
    ///
    /// # Errors
    /// [`Fault`].
    fn allocate(&self, stream: Stream, cells: usize) -> Result<Memory, Fault>;

    /// Gives memory back behind what `stream` holds; no other stream may use it any more.
    fn release(&self, stream: Stream, memory: Memory);

    /// Copies `cells` cells from `from.0`'s cell `from.1` to `to.0`'s cell `to.1`, later.
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

    /// Copies within the device, later.
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

    /// Code of a kernel for this device. Touches no memory of the device and may take seconds.
    ///
    /// # Errors
    /// [`Fault`].
    fn compile(&self, kernel: &Kernel) -> Result<Vec<u8>, Fault>;

    /// # Errors
    /// [`Fault`].
    fn load(&self, kernel: &Kernel, code: &[u8]) -> Result<Function, Fault>;

    /// Runs a kernel, later.
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

    /// # Errors
    /// [`Fault`].
    fn mark(&self, stream: Stream) -> Result<Mark, Fault>;

    /// Waits until everything before the mark is done; false if that was not by `until`. What went wrong on the device since the
    /// last call is told here.
    ///
    /// # Errors
    /// [`Fault`].
    fn wait(&self, mark: &Mark, until: Instant) -> Result<bool, Fault>;

    /// When a reached mark was reached, by the host's clock.
    ///
    /// # Errors
    /// [`Fault`].
    fn time(&self, mark: &Mark) -> Result<Instant, Fault>;

    /// Time between two reached marks of one stream, as the device measured it.
    ///
    /// # Errors
    /// [`Fault`].
    fn between(&self, first: &Mark, last: &Mark) -> Result<Duration, Fault>;

    fn forget(&self, mark: Mark);
}
