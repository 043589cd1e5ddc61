//! Several kernels that are launched by one call: CUDA graphs. A launch costs the host microseconds, and the device a pause;
//! sequences of many short kernels consist of little else.
//!
//! Graphs are built node by node and not captured from a stream: while a stream is captured, calls of other threads may
//! fail or invalidate the capture. A graph has kernels only, one after the other; memory is allocated and released in the
//! stream around it. Deliberately absent: which sequences get a graph, and how long it is kept (`execute/graphs`).

use std::ffi::c_void;

use cudarc::driver::{DriverError, sys};

use crate::cuda::device::arguments::{Launch, Pointers};
use crate::cuda::device::driver::Cuda;
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
    fn described<T>(&self, work: impl FnOnce(&sys::CUDA_KERNEL_NODE_PARAMS) -> T) -> T {
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
    graph: u64,
    executable: u64,
    /// Handles of its nodes, in order.
    nodes: Vec<u64>,
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

/// The handles of a graph that is being built; released unless it is completed.
struct Unfinished {
    graph: sys::CUgraph,
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if !self.graph.is_null() {
            // SAFETY: created by `build`, and destroyed once.
            let _ = unsafe { sys::cuGraphDestroy(self.graph) };
        }
    }
}

fn built(kernels: &[KernelNode]) -> Result<LaunchGraph, DriverError> {
    let mut unfinished = Unfinished { graph: std::ptr::null_mut() };
    let mut nodes: Vec<sys::CUgraphNode> = Vec::with_capacity(kernels.len());
    let mut executable: sys::CUgraphExec = std::ptr::null_mut();
    // SAFETY: handles are of this graph and written by the driver; descriptions live through their calls.
    unsafe {
        sys::cuGraphCreate(&raw mut unfinished.graph, 0).result()?;
        for kernel in kernels {
            let mut node: sys::CUgraphNode = std::ptr::null_mut();
            let before = nodes.last().map_or((std::ptr::null(), 0), |last| (std::ptr::from_ref(last), 1));
            kernel
                .described(|described| {
                    sys::cuGraphAddKernelNode_v2(&raw mut node, unfinished.graph, before.0, before.1, described)
                })
                .result()?;
            nodes.push(node);
        }
        sys::cuGraphInstantiateWithFlags(&raw mut executable, unfinished.graph, 0).result()?;
    }
    let graph = std::mem::replace(&mut unfinished.graph, std::ptr::null_mut()) as u64;
    Ok(LaunchGraph { graph, executable: executable as u64, nodes: nodes.into_iter().map(|node| node as u64).collect() })
}

impl LaunchGraphs for Cuda {
    fn build(&self, kernels: &[KernelNode]) -> Result<LaunchGraph, Fault> {
        self.bind()?;
        built(kernels).map_err(|e| self.fault(e))
    }

    fn replace(&self, graph: &LaunchGraph, at: usize, kernel: &KernelNode) -> Result<(), Fault> {
        self.bind()?;
        let node = graph.nodes.get(at).ok_or_else(|| Fault::Failed("a graph has no such kernel".to_owned()))?;
        let (executable, node) = (graph.executable as sys::CUgraphExec, *node as sys::CUgraphNode);
        // SAFETY: both live until `discard`; the description lives through the call.
        kernel
            .described(|described| unsafe { sys::cuGraphExecKernelNodeSetParams_v2(executable, node, described) })
            .result()
            .map_err(|e| self.fault(e))
    }

    fn start(&self, stream: Stream, graph: &LaunchGraph) -> Result<(), Fault> {
        self.bind()?;
        // SAFETY: as for single launches; memory that the arguments point to is released later in the stream.
        unsafe { sys::cuGraphLaunch(graph.executable as sys::CUgraphExec, stream.0 as sys::CUstream) }
            .result()
            .map_err(|e| self.fault(e))
    }

    fn discard(&self, graph: LaunchGraph) {
        if self.bind().is_ok() {
            // SAFETY: both were made by `build` and are destroyed once. A failure is reported by the next wait.
            unsafe {
                let _ = sys::cuGraphExecDestroy(graph.executable as sys::CUgraphExec);
                let _ = sys::cuGraphDestroy(graph.graph as sys::CUgraph);
            }
        }
    }
}
