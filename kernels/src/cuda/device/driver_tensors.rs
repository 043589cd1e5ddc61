//! Memory that other libraries of the process use too, on the CUDA driver.

use std::ptr;

use cudarc::driver::{result, sys};

use crate::cuda::device::driver::Cuda;
use crate::cuda::device::tensor::{ForeignStream, TensorDevice};
use crate::cuda::device::{Device, Fault, Mark, Stream};

/// Waits of streams without flags.
const NO_FLAGS: sys::CUevent_wait_flags = sys::CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT;

impl TensorDevice for Cuda {
    fn let_wait(&self, stream: ForeignStream, mark: &Mark) -> Result<(), Fault> {
        self.bind()?;
        // SAFETY: the mark's event lives; the stream is one that its owner has just named.
        unsafe { result::stream::wait_event(stream.0 as sys::CUstream, mark.0 as sys::CUevent, NO_FLAGS) }
            .map_err(|e| self.fault(e))
    }

    fn wait_for(&self, stream: Stream, other: ForeignStream) -> Result<(), Fault> {
        self.bind()?;
        // SAFETY: by DLPack a stream that was named lives as long as what was handed out for it; the driver refuses the handle of
        // one that was destroyed all the same.
        let mark = unsafe { self.mark_in(other.0 as sys::CUstream)? };
        // SAFETY: both are this device's own.
        let waits = unsafe { result::stream::wait_event(stream.0 as sys::CUstream, mark.0 as sys::CUevent, NO_FLAGS) };
        // A stream waits for what was recorded when it was asked to.
        self.forget(mark);
        waits.map_err(|e| self.fault(e))
    }

    fn settle(&self) -> Result<(), Fault> {
        self.bind()?;
        result::ctx::synchronize().map_err(|e| self.fault(e))
    }

    fn aside(&self, work: &mut dyn FnMut()) {
        let before = result::ctx::get_current();
        work();
        if let Ok(before) = before {
            // SAFETY: the context that this thread had before, or none. If it has ended meanwhile, none is current.
            let _ = unsafe { result::ctx::set_current(before.unwrap_or(ptr::null_mut())) };
        }
    }
}
