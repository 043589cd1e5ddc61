//! Launch graphs kept between batches: a sequence of many kernels that runs again is launched by one call.
//!
//! A graph is built when its sequence runs a second time, and belongs to one batch at a time, since a graph in progress
//! would hold up its next launch. What differs from its last launch (addresses, sizes) is replaced before it is launched.
//! Any failure falls back to single launches, with the same bits; only the loss of the device is an error.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::cuda::device::graph::{KernelNode, LaunchGraph};
use crate::cuda::device::{Device, Fault, Stream};

/// Least number of kernels for which a graph is used.
pub(super) const GRAPH_KERNELS_MIN: usize = 5;
/// Most kernels of a graph.
const GRAPH_KERNELS_MAX: usize = 1024;
/// Most graphs that wait for a batch. Each has memory of the driver: some hundred bytes a kernel.
const IDLE_MAX: usize = 32;
/// Most sequences that are known to have run once.
const SEEN_MAX: usize = 256;
/// Failures of graphs after which a device is used without them.
const FAILURES_MAX: u32 = 3;

/// What a graph is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct GraphKey {
    /// Hash of the kernels in their order.
    pub kernels: u64,
    /// Whether every bar is wanted: the last bars of series that kernels pass on take further kernels.
    pub all: bool,
    /// How many kernels are launched.
    pub count: usize,
}

/// A graph and the kernels of its last launch; released on drop.
#[derive(Debug)]
struct OwnGraph {
    device: Arc<dyn Device>,
    key: GraphKey,
    graph: Option<LaunchGraph>,
    kernels: Vec<KernelNode>,
}

impl Drop for OwnGraph {
    fn drop(&mut self) {
        if let (Some(graph), Some(graphs)) = (self.graph.take(), self.device.graphs()) {
            graphs.discard(graph);
        }
    }
}

impl OwnGraph {
    fn build(device: &Arc<dyn Device>, key: GraphKey, kernels: Vec<KernelNode>) -> Result<Self, Fault> {
        let graphs = device.graphs().ok_or_else(|| Fault::Failed("the device has no graphs".to_owned()))?;
        let graph = Some(graphs.build(&kernels)?);
        Ok(Self { device: Arc::clone(device), key, graph, kernels })
    }

    /// Launches it with these kernels.
    fn launch(&mut self, stream: Stream, kernels: Vec<KernelNode>) -> Result<(), Fault> {
        let (Some(graphs), Some(graph)) = (self.device.graphs(), &self.graph) else {
            return Err(Fault::Failed("the device has no graphs".to_owned()));
        };
        if self.kernels.len() != kernels.len() {
            return Err(Fault::Failed("a graph of another number of kernels".to_owned()));
        }
        for (at, (known, kernel)) in self.kernels.iter().zip(&kernels).enumerate() {
            if known != kernel {
                graphs.replace(graph, at, kernel)?;
            }
        }
        self.kernels = kernels;
        graphs.start(stream, graph)
    }
}

#[derive(Debug, Default)]
struct State {
    /// Sequences that have run once, the oldest first.
    seen: Vec<GraphKey>,
    /// Graphs that no batch uses, the least recently used first.
    idle: Vec<OwnGraph>,
}

/// The graphs of a device.
#[derive(Debug)]
pub(super) struct Graphs {
    device: Arc<dyn Device>,
    is_on: bool,
    failures: AtomicU32,
    state: Mutex<State>,
}

/// A graph that was launched; it can be used again when this is dropped, which is after its kernels.
#[derive(Debug)]
pub(super) struct LaunchedGraph {
    graphs: Arc<Graphs>,
    graph: Option<OwnGraph>,
}

impl Drop for LaunchedGraph {
    fn drop(&mut self) {
        if let Some(graph) = self.graph.take() {
            self.graphs.keep(graph);
        }
    }
}

/// A sequence that is to be launched as a graph.
#[derive(Debug)]
pub(super) struct GraphTurn {
    key: GraphKey,
    /// Launched before; `None` if it has to be built.
    graph: Option<OwnGraph>,
}

impl Graphs {
    pub fn new(device: Arc<dyn Device>, is_on: bool) -> Self {
        let is_on = is_on && device.graphs().is_some();
        Self { device, is_on, failures: AtomicU32::new(0), state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a sequence is to be launched as a graph now: if it is long enough and has run before.
    pub fn turn(&self, key: GraphKey) -> Option<GraphTurn> {
        let fits = (GRAPH_KERNELS_MIN..=GRAPH_KERNELS_MAX).contains(&key.count);
        if !self.is_on || !fits || self.failures.load(Ordering::Relaxed) >= FAILURES_MAX {
            return None;
        }
        let mut state = self.state();
        if let Some(at) = state.idle.iter().rposition(|graph| graph.key == key) {
            return Some(GraphTurn { key, graph: Some(state.idle.remove(at)) });
        }
        if state.seen.contains(&key) {
            return Some(GraphTurn { key, graph: None });
        }
        if state.seen.len() >= SEEN_MAX {
            state.seen.remove(0);
        }
        state.seen.push(key);
        None
    }

    /// Launches kernels in order by one call; `None` if that failed, and nothing was launched.
    ///
    /// # Errors
    /// [`Fault::Lost`].
    pub fn launch(
        self: &Arc<Self>,
        turn: GraphTurn,
        stream: Stream,
        kernels: Vec<KernelNode>,
    ) -> Result<Option<LaunchedGraph>, Fault> {
        let GraphTurn { key, graph } = turn;
        let launched = match graph {
            Some(graph) => Ok(graph),
            None => OwnGraph::build(&self.device, key, kernels.clone()),
        }
        .and_then(|mut graph| graph.launch(stream, kernels).map(|()| graph));
        match launched {
            Ok(graph) => Ok(Some(LaunchedGraph { graphs: Arc::clone(self), graph: Some(graph) })),
            Err(fault @ Fault::Lost(_)) => Err(fault),
            Err(_) => {
                self.failures.fetch_add(1, Ordering::Relaxed);
                Ok(None)
            }
        }
    }

    /// Keeps a graph for the next batch of its sequence.
    fn keep(&self, graph: OwnGraph) {
        let mut state = self.state();
        state.idle.push(graph);
        let old = (state.idle.len() > IDLE_MAX).then(|| state.idle.remove(0));
        drop(state);
        drop(old);
    }

    /// Releases the graphs that no batch uses, for lack of memory.
    pub fn clear(&self) {
        let idle = std::mem::take(&mut self.state().idle);
        drop(idle);
    }

    /// Graphs that no batch uses.
    pub fn idle(&self) -> usize {
        self.state().idle.len()
    }
}
