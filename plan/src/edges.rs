//! The `edge` flag: whether a comparison that a value covers is so close that rounding could turn it.
//!
//! For every node there is a node that is 1 where one of the comparisons behind it, at any bar that its value covers,
//! is near; anything else means no. Both sides of `and`, `or` and `iff` count. Of a cross-section the symbol's own
//! comparisons count, not those of the others; nor do those inside indicators.

use std::collections::{HashMap, HashSet};

use crate::frame::FrameId;
use crate::graph::{Binary, Graph, Kind, NodeId, Op};

/// Builds the flags of nodes on demand; shared parts once.
pub(crate) struct Edges<'a> {
    /// What stands in the parentheses of each `Cross` node.
    cross_arguments: &'a HashMap<NodeId, Vec<NodeId>>,
    /// Comparisons that the user wrote.
    written: &'a HashSet<NodeId>,
    known: HashMap<NodeId, Option<NodeId>>,
}

impl<'a> Edges<'a> {
    pub fn new(cross_arguments: &'a HashMap<NodeId, Vec<NodeId>>, written: &'a HashSet<NodeId>) -> Self {
        Self { cross_arguments, written, known: HashMap::new() }
    }

    /// The flag of `root`; `None` when no comparison stands behind it.
    pub fn of(&mut self, graph: &mut Graph, root: NodeId) -> Option<NodeId> {
        // An explicit stack: graphs built from many lets can be deeper than any thread's stack.
        let mut stack = vec![root];
        while let Some(&id) = stack.last() {
            if self.known.contains_key(&id) {
                stack.pop();
                continue;
            }
            let behind = self.behind(graph, id);
            let pending: Vec<NodeId> = behind.iter().copied().filter(|i| !self.known.contains_key(i)).collect();
            if pending.is_empty() {
                let flag = self.build(graph, id, &behind);
                self.known.insert(id, flag);
                stack.pop();
            } else {
                stack.extend(pending);
            }
        }
        self.known.get(&root).copied().flatten()
    }

    fn behind(&self, graph: &Graph, id: NodeId) -> Vec<NodeId> {
        match graph.node(id).op {
            Op::Cross(_) => self.cross_arguments.get(&id).cloned().unwrap_or_default(),
            _ => graph.node(id).inputs.clone(),
        }
    }

    fn build(&self, graph: &mut Graph, id: NodeId, behind: &[NodeId]) -> Option<NodeId> {
        let node = graph.node(id).clone();
        if node.frame == FrameId::ANY {
            return None;
        }
        let before = graph.enter(node.frame);
        let mut any: Option<NodeId> = None;
        for input in behind {
            if let Some(flag) = self.known.get(input).copied().flatten() {
                any = or(graph, any, flag);
            }
        }
        let crosses = matches!(node.op, Op::CrossesAbove | Op::CrossesBelow);
        if crosses || self.written.contains(&id) {
            let near = graph.add(Op::Binary(Binary::Near), &node.inputs, Kind::Bool);
            any = or(graph, any, near);
        }
        let flag = any.map(|flag| match node.op {
            Op::Read(how) => graph.read(how, flag),
            Op::Lag(p) => graph.add(Op::Lag(p), &[flag], Kind::Bool),
            Op::Since | Op::ValueWhen => graph.add(Op::EverSince, &[node.inputs[0], flag], Kind::Bool),
            op if op.is_recursive() => graph.add(Op::Ever, &[flag], Kind::Bool),
            op if op.look_back() > 0 => graph.add(Op::Within(op.look_back() as u32 + 1), &[flag], Kind::Bool),
            _ => flag,
        });
        graph.enter(before);
        flag
    }
}

fn or(graph: &mut Graph, any: Option<NodeId>, flag: NodeId) -> Option<NodeId> {
    Some(match any {
        None => flag,
        Some(before) => graph.add(Op::Or, &[before, flag], Kind::Bool),
    })
}
