//! Memory of a device that other libraries of the process use too, such as PyTorch: their streams wait for ours, and ours for theirs.

use crate::cuda::device::{Fault, Mark, Stream};

/// Functions of the driver that sharing needs.
pub(super) const TENSOR_FUNCTIONS: [&str; 3] = ["cuCtxGetCurrent", "cuCtxSynchronize", "cuStreamWaitEvent"];

/// A stream of another library, in the device's primary context.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ForeignStream(pub(super) u64);

impl ForeignStream {
    /// The default stream that waits for all blocking streams of the context.
    pub const LEGACY: Self = Self(1);
    /// The default stream of the calling thread.
    pub const PER_THREAD: Self = Self(2);

    /// The stream of a handle; 1 and 2 are the default streams, as the driver names them. `None` for 0, which could be either.
    pub fn of_handle(handle: u64) -> Option<Self> {
        (handle != 0).then_some(Self(handle))
    }
}

/// What sharing memory needs of a device. All errors are [`Fault::Lost`] or [`Fault::Failed`].
pub trait TensorDevice {
    /// Lets the later work of another library's stream wait for a mark.
    ///
    /// # Errors
    /// [`Fault`].
    fn let_wait(&self, stream: ForeignStream, mark: &Mark) -> Result<(), Fault>;

    /// Lets the later work of a stream wait for everything that is in another library's stream now.
    ///
    /// # Errors
    /// [`Fault`]; a stream that was destroyed.
    fn wait_for(&self, stream: Stream, other: ForeignStream) -> Result<(), Fault>;

    /// Waits for all work of the context.
    ///
    /// # Errors
    /// [`Fault`].
    fn settle(&self) -> Result<(), Fault>;

    /// Does `work` for a thread of another library, whose current context is the same afterwards.
    fn aside(&self, work: &mut dyn FnMut());
}
