//! What of a program is run, in which order, and where its series are kept.

use trawl_plan::Program;
use trawl_plan::graph::{Node, NodeId, Op};

use super::fuse::{Part, Work, fuse};

/// Where a node's values are read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Source {
    /// The node that is read.
    pub of: NodeId,
    pub place: Place,
    /// Bars late.
    pub lag: usize,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Place {
    /// An input of the program.
    Column(usize),
    Slot(usize),
}

/// Some work, once a strip.
#[derive(Debug)]
pub(crate) struct Task {
    pub work: Work,
    pub inputs: Vec<Source>,
    /// Slots it writes.
    pub outputs: Vec<usize>,
    /// What it makes: says from which row on it runs.
    pub nodes: Vec<NodeId>,
}

/// What a slot holds.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Slot {
    /// The same value at every bar.
    Constant(f64),
    /// A ring that holds so many bars before the strip.
    Ring(usize),
}

/// The tasks of a program, and its slots. Series that nobody reads back share slots, so that they stay in cache.
pub(crate) struct Tasks {
    pub tasks: Vec<Task>,
    pub slots: Vec<Slot>,
    /// Per output of the program.
    pub outputs: Vec<Source>,
}

/// The node whose values `id` repeats, and how many bars later: lags are read, not run.
fn origin(nodes: &[Node], id: NodeId) -> (NodeId, usize) {
    let (mut id, mut lag) = (id, 0usize);
    while let Op::Lag(bars) = nodes[id.index()].op {
        lag = lag.saturating_add(bars as usize);
        id = nodes[id.index()].inputs[0];
    }
    (id, lag)
}

impl Tasks {
    pub fn new(program: &Program) -> Self {
        Self::of(program, fuse(program))
    }

    /// Of a program that is cut into `parts`.
    pub fn of(program: &Program, fused: Vec<Part>) -> Self {
        let nodes = program.nodes();
        // Bars that are read of each node before the current one, and the last task that reads it.
        let mut history = vec![0usize; nodes.len()];
        let mut last = vec![0usize; nodes.len()];
        for (i, part) in fused.iter().enumerate() {
            for id in &part.inputs {
                let (of, lag) = origin(nodes, *id);
                history[of.index()] = history[of.index()].max(lag.saturating_add(part.work.reads_back()));
                last[of.index()] = i;
            }
        }
        for id in &program.outputs {
            let (of, lag) = origin(nodes, *id);
            history[of.index()] = history[of.index()].max(lag);
            last[of.index()] = usize::MAX;
        }
        let mut slots: Vec<Slot> = Vec::new();
        let mut slot_of = vec![usize::MAX; nodes.len()];
        for (slot, node) in slot_of.iter_mut().zip(nodes) {
            if let Op::Constant(bits) = node.op {
                *slot = slots.len();
                slots.push(Slot::Constant(bits.value()));
            }
        }
        let mut free: Vec<usize> = Vec::new();
        let mut tasks = Vec::with_capacity(fused.len());
        for (i, part) in fused.into_iter().enumerate() {
            for id in &part.outputs {
                let ring = history[id.index()];
                slot_of[id.index()] = free.pop().filter(|_| ring == 0).unwrap_or_else(|| {
                    slots.push(Slot::Ring(ring));
                    slots.len() - 1
                });
            }
            let source = |id: &NodeId| source(nodes, &slot_of, *id);
            let inputs = part.inputs.iter().map(source).collect();
            // What is read for the last time makes room, unless older bars of it stand there.
            let mut read: Vec<NodeId> =
                part.inputs.iter().chain(&part.outputs).map(|id| origin(nodes, *id).0).collect();
            read.sort_unstable();
            read.dedup();
            for id in read {
                let leaf = matches!(nodes[id.index()].op, Op::Column(_) | Op::Constant(_));
                if !leaf && last[id.index()] <= i && history[id.index()] == 0 {
                    free.push(slot_of[id.index()]);
                }
            }
            let outputs = part.outputs.iter().map(|id| slot_of[id.index()]).collect();
            tasks.push(Task { work: part.work, inputs, outputs, nodes: part.outputs });
        }
        let outputs = program.outputs.iter().map(|id| source(nodes, &slot_of, *id)).collect();
        Self { tasks, slots, outputs }
    }
}

fn source(nodes: &[Node], slot_of: &[usize], id: NodeId) -> Source {
    let (of, lag) = origin(nodes, id);
    let place = if let Op::Column(column) = nodes[of.index()].op {
        Place::Column(usize::from(column))
    } else {
        Place::Slot(slot_of[of.index()])
    };
    Source { of, place, lag }
}

/// First row to run of every node when all outputs are wanted from `wanted_from` on; `usize::MAX` for those that
/// nothing needs.
pub(crate) fn begins(program: &Program, wanted_from: usize) -> Vec<usize> {
    let nodes = program.nodes();
    let mut needed = vec![usize::MAX; nodes.len()];
    for node in &program.outputs {
        needed[node.index()] = wanted_from;
    }
    for (i, node) in nodes.iter().enumerate().rev() {
        if needed[i] == usize::MAX {
            continue;
        }
        let facts = node.op.facts();
        if facts.is_recursive() {
            needed[i] = 0;
        }
        let read = needed[i].saturating_sub(facts.reads_back);
        for input in &node.inputs {
            needed[input.index()] = needed[input.index()].min(read);
        }
    }
    needed
}
