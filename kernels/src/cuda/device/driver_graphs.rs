//! The CUDA driver's graphs as [`LaunchGraphs`]. The calls are made by [`Cuda`] alone, where the driver has them.

use cudarc::driver::{DriverError, sys};

use crate::cuda::device::driver::Cuda;
use crate::cuda::device::graph::{KernelNode, LaunchGraph, LaunchGraphs};
use crate::cuda::device::{Fault, Stream};

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
