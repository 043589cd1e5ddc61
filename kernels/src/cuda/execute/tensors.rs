//! Memory of a device that is handed out to other libraries of the process, which use it in streams of their own.

use std::sync::Arc;

use crate::cuda::device::tensor::ForeignStream;
use crate::cuda::device::{Device, Fault, Stream};
use crate::cuda::execute::transfer::{DeviceBuffer, OwnMark};

/// Values on a device. They are complete, or will be behind what is in its stream; they are released behind the work of everyone who
/// said that they use them, also when the engine that made them is gone. In a context that has ended nothing is released: the driver
/// has done that.
#[derive(Debug)]
pub struct DeviceTensor {
    device: Arc<dyn Device>,
    stream: Stream,
    buffer: Option<DeviceBuffer>,
}

impl DeviceTensor {
    /// Memory whose work, and release, are in `stream`.
    pub(super) fn new(device: &Arc<dyn Device>, stream: Stream, buffer: DeviceBuffer) -> Self {
        Self { device: Arc::clone(device), stream, buffer: Some(buffer) }
    }

    /// Address of the first value.
    pub fn address(&self) -> u64 {
        self.buffer.as_ref().map_or(0, |buffer| buffer.memory().at(0))
    }

    /// The driver's number of its device.
    pub fn ordinal(&self) -> usize {
        self.device.facts().ordinal
    }

    /// Lets a stream of another library wait until the values are complete.
    ///
    /// # Errors
    /// [`Fault`]; a stream that there is not.
    pub fn ready_for(&self, stream: ForeignStream) -> Result<(), Fault> {
        self.aside(|| {
            let tensors = self.device.tensors().ok_or_else(not_shared)?;
            tensors.let_wait(stream, OwnMark::new(&self.device, self.stream)?.mark())
        })
    }

    /// A copy in memory of its own, complete behind what is in its stream.
    ///
    /// # Errors
    /// [`Fault`].
    pub fn copied(&self) -> Result<Self, Fault> {
        self.aside(|| {
            let Some(from) = &self.buffer else { return Err(not_shared()) };
            let cells = from.memory().cells();
            let allocate = || self.device.allocate(self.stream, cells);
            let to = from.beside(self.stream, cells, allocate)?;
            self.device.copy_within(self.stream, (from.memory(), 0), (to.memory(), 0), cells)?;
            Ok(Self::new(&self.device, self.stream, to))
        })
    }

    /// Keeps the memory until what is in a stream of another library now is done; for all of them where it is not known which one.
    /// Where a stream was destroyed meanwhile, all work of the context is waited for.
    pub fn used_in(&self, stream: Option<ForeignStream>) {
        self.aside(|| {
            let Some(tensors) = self.device.tensors() else { return };
            let waits = stream.map(|other| tensors.wait_for(self.stream, other));
            if !matches!(waits, Some(Ok(()))) {
                // It fails where the context has ended: nothing runs there.
                let _ = tensors.settle();
            }
        });
    }

    /// Does `work` on a thread of another library.
    fn aside<T>(&self, work: impl FnOnce() -> T) -> T {
        on_foreign_thread(&self.device, work)
    }
}

impl Drop for DeviceTensor {
    fn drop(&mut self) {
        let buffer = self.buffer.take();
        self.aside(move || drop(buffer));
    }
}

/// Does `work`, after which the thread's current context is what it was.
pub(super) fn on_foreign_thread<T>(device: &Arc<dyn Device>, work: impl FnOnce() -> T) -> T {
    let (mut work, mut done) = (Some(work), None);
    let mut once = || done = work.take().map(|work| work());
    match device.tensors() {
        Some(tensors) => tensors.aside(&mut once),
        None => once(),
    }
    match done {
        Some(done) => done,
        None => unreachable!("the work was done once"),
    }
}

/// The fault of a driver that lacks what sharing needs.
pub(super) fn not_shared() -> Fault {
    Fault::Failed("this driver does not let streams of other libraries wait for the engine's".to_owned())
}
