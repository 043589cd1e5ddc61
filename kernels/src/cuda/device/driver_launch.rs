//! Launches of kernels by the CUDA driver.

use std::ffi::c_void;

use cudarc::driver::{result, sys};

use crate::cuda::device::driver::Cuda;
use crate::cuda::device::{Fault, Function, Stream};

impl Cuda {
    /// Enqueues a kernel: blocks, threads of each, and bytes of their shared memory. The argument has the layout of the kernel's one
    /// parameter, and is copied by the call.
    pub(super) fn enqueue<T>(
        &self,
        stream: Stream,
        function: Function,
        (blocks, threads, shared): (usize, usize, usize),
        argument: &mut [T],
    ) -> Result<(), Fault> {
        self.bind()?;
        let too_many = || Fault::Failed("a launch of too many blocks".to_owned());
        let count = |n: usize| u32::try_from(n).map_err(|_| too_many());
        let (blocks, threads, shared) = (count(blocks)?, count(threads)?, count(shared)?);
        let mut parameters = [argument.as_mut_ptr().cast::<c_void>()];
        let (function, stream) = (function.0 as sys::CUfunction, stream.0 as sys::CUstream);
        // SAFETY: the function's one parameter has the layout of the argument, as the caller says; what it points to is released
        // later in the stream.
        unsafe { result::launch_kernel(function, (blocks, 1, 1), (threads, 1, 1), shared, stream, &mut parameters) }
            .map_err(|e| self.fault(e))
    }
}
