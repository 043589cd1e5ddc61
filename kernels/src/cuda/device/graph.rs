//! Several kernels that are launched by one call: CUDA graphs. A launch costs the host microseconds, and the device a pause;
//! sequences of many short kernels consist of little else.
//!
//! Graphs are built node by node and not captured from a stream: while a stream is captured, calls of other threads may
//! fail or invalidate the capture. A graph has kernels only, one after the other; memory is allocated and released in the
//! stream around it. Deliberately absent: which sequences get a graph, and how long it is kept (`execute/graphs`).

use std::ffi::c_void;

use cudarc::driver::sys;

use crate::cuda::device::arguments::{Launch, Pointers};
use crate::cuda::device::{Fault, Function, Stream};

/// Functions of the driver that graphs need.
pub(super) const GRAPH_FUNCTIONS: [&str; 7] = [
    "cuGraphCreate",
    "cuGraphAddKernelNode_v2",
    "cuGraphInstantiateWithFlags",
    "cuGraphExecKernelNodeSetParams_v2",
    "cuGraphLaunch",
    "cuGraphExecDestroy",
    "cuGraphDestroy",
];

/// A kernel with everything that its launch passes to the driver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelNode {
    function: Function,
    blocks: u32,
    threads: u32,
    shared_bytes: u32,
    /// Bytes of its argument, addresses included.
    arguments: Vec<u8>,
}

impl KernelNode {
    /// The kernel of a launch on these data.
    ///
    /// # Errors
    /// More blocks than a grid has.
    pub fn of(function: Function, launch: &Launch, pointers: &Pointers) -> Result<Self, Fault> {
        let count = |n: usize| u32::try_from(n).map_err(|_| Fault::Failed("a launch of too many blocks".to_owned()));
        Ok(Self {
            function,
            blocks: count(launch.blocks)?,
            threads: count(launch.threads)?,
            shared_bytes: count(launch.shared_bytes)?,
            arguments: launch.arguments(pointers),
        })
    }

    /// Lets `work` use the driver's description of it, which points into the node.
    pub(super) fn described<T>(&self, work: impl FnOnce(&sys::CUDA_KERNEL_NODE_PARAMS) -> T) -> T {
        // The driver copies the argument within the call and does not write it.
        let mut parameters = [self.arguments.as_ptr().cast::<c_void>().cast_mut()];
        let nothing = std::ptr::null_mut::<c_void>();
        work(&sys::CUDA_KERNEL_NODE_PARAMS {
            func: self.function.0 as sys::CUfunction,
            gridDimX: self.blocks,
            gridDimY: 1,
            gridDimZ: 1,
            blockDimX: self.threads,
            blockDimY: 1,
            blockDimZ: 1,
            sharedMemBytes: self.shared_bytes,
            kernelParams: parameters.as_mut_ptr(),
            extra: nothing.cast(),
            kern: nothing.cast(),
            ctx: nothing.cast(),
        })
    }
}

/// Kernels that one call launches. Released by [`LaunchGraphs::discard`]. Not to be used by two threads at a time.
#[derive(Debug)]
pub struct LaunchGraph {
    pub(super) graph: u64,
    pub(super) executable: u64,
    /// Handles of its nodes, in order.
    pub(super) nodes: Vec<u64>,
}

/// Graphs of a device. All errors are [`Fault::Lost`] or [`Fault::Failed`]; after the latter nothing was launched.
pub trait LaunchGraphs {
    /// A graph of these kernels, each behind the one before it.
    ///
    /// # Errors
    /// [`Fault`].
    fn build(&self, kernels: &[KernelNode]) -> Result<LaunchGraph, Fault>;

    /// Replaces kernel `at`, with any function, size and argument. Launches that were made are not affected.
    ///
    /// # Errors
    /// [`Fault`].
    fn replace(&self, graph: &LaunchGraph, at: usize, kernel: &KernelNode) -> Result<(), Fault>;

    /// Enqueues all kernels.
    ///
    /// # Errors
    /// [`Fault`].
    fn start(&self, stream: Stream, graph: &LaunchGraph) -> Result<(), Fault>;

    /// Releases a graph.
    fn discard(&self, graph: LaunchGraph);
}
