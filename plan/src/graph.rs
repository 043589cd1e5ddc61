//! The plan's graph: hash-consed nodes, each one step primitive over earlier nodes.
//!
//! Every series is `f64`, one value a bar: NaN is NA; a bool is 1, 0 or NA. Nodes are stored in an order
//! in which inputs come before their users, so evaluating by index is evaluating in order.
//!
//! Every node but a constant lives on one frame (see `frame`); only `Read` has its input on another.

use std::collections::HashMap;

use crate::frame::{CrossSection, FrameId, Read};
pub use crate::op::{Binary, Bits, Op, Unary};
pub use crate::op_facts::{Blocks, Class, Leaf, Memory, OpFacts, Pointwise, SHORT_WINDOW_BARS, WARM_UP_PERIODS};

/// Index of a node inside its [`Graph`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub u32);

impl NodeId {
    /// As an index into [`Graph::nodes`].
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// What a node's value means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A number, NaN = NA.
    Num,
    /// 1, 0 or NaN = NA.
    Bool,
}

/// A primitive applied to earlier nodes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Node {
    /// What it computes.
    pub op: Op,
    /// Earlier nodes, in the order that the primitive states.
    pub inputs: Vec<NodeId>,
    /// What its value means.
    pub kind: Kind,
    /// Whose bars it runs along.
    pub frame: FrameId,
}

/// Nodes with equal primitive and inputs are one node.
#[derive(Debug, Clone)]
pub struct Graph {
    nodes: Vec<Node>,
    /// Of a graph that is being built; as large as the nodes themselves.
    known: Option<HashMap<Node, NodeId>>,
    /// Where steps over constants alone live.
    frame: FrameId,
}

impl Default for Graph {
    fn default() -> Self {
        Self { nodes: Vec::new(), known: None, frame: FrameId::OWN }
    }
}

impl Graph {
    /// All nodes, inputs before users.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// One node.
    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.index()]
    }

    /// The value of a constant node.
    pub fn constant(&self, id: NodeId) -> Option<f64> {
        if let Op::Constant(bits) = self.node(id).op { Some(bits.value()) } else { None }
    }

    /// Sets the frame that new leaves and steps over constants live on; gives the one before.
    pub(crate) fn enter(&mut self, frame: FrameId) -> FrameId {
        std::mem::replace(&mut self.frame, frame)
    }

    /// Adds a node or finds the equal one. Element-wise functions of constants are computed here.
    pub fn add(&mut self, op: Op, inputs: &[NodeId], kind: Kind) -> NodeId {
        if let Class::Pointwise(function) = op.facts().class
            && let Some(value) = function.value(|i| self.constant(*inputs.get(i)?))
        {
            return self.literal(value, kind);
        }
        let on = inputs.iter().map(|i| self.node(*i).frame).find(|f| *f != FrameId::ANY);
        let frame = on.unwrap_or(self.frame);
        self.intern(Node { op, inputs: inputs.to_vec(), kind, frame })
    }

    /// A node without inputs on the frame that was entered.
    pub(crate) fn leaf(&mut self, op: Op, kind: Kind) -> NodeId {
        self.intern(Node { op, inputs: Vec::new(), kind, frame: self.frame })
    }

    /// A series of another frame, read on the frame that was entered.
    pub(crate) fn read(&mut self, how: Read, of: NodeId) -> NodeId {
        let kind = self.node(of).kind;
        self.intern(Node { op: Op::Read(how), inputs: vec![of], kind, frame: self.frame })
    }

    pub(crate) fn intern(&mut self, node: Node) -> NodeId {
        let numbered = |nodes: &[Node]| nodes.iter().cloned().zip((0..).map(NodeId)).collect();
        let known = self.known.get_or_insert_with(|| numbered(&self.nodes));
        if let Some(&id) = known.get(&node) {
            return id;
        }
        let id = NodeId(self.nodes.len() as u32);
        self.nodes.push(node.clone());
        known.insert(node, id);
        id
    }

    /// The same graph without what only building needs, which is made again if it is built further.
    pub(crate) fn built(self) -> Self {
        Self { known: None, ..self }
    }

    /// Bytes of a graph that is built, about.
    pub(crate) fn bytes(&self) -> usize {
        self.nodes.iter().map(|node| size_of::<Node>() + size_of_val(&*node.inputs)).sum()
    }

    fn literal(&mut self, value: f64, kind: Kind) -> NodeId {
        self.intern(Node { op: Op::Constant(value.into()), inputs: Vec::new(), kind, frame: FrameId::ANY })
    }

    /// A number.
    pub fn num(&mut self, value: f64) -> NodeId {
        self.literal(value, Kind::Num)
    }

    /// A truth value.
    pub fn truth(&mut self, value: bool) -> NodeId {
        self.literal(f64::from(u8::from(value)), Kind::Bool)
    }

    /// Keeps only what `roots` need, in an order that depends on them alone (depth first, inputs in order), with the
    /// cross-sections in the order of their first use, and returns the roots' new ids. So plans that compute the same
    /// are equal whatever was tried on the way.
    pub(crate) fn prune(&self, roots: &[NodeId], crosses: &[CrossSection]) -> (Graph, Vec<NodeId>, Vec<CrossSection>) {
        let mut map: Vec<Option<NodeId>> = vec![None; self.nodes.len()];
        let mut cross_map: Vec<Option<u16>> = vec![None; crosses.len()];
        let mut kept: Vec<CrossSection> = Vec::new();
        let mut out = Graph::default();
        for &root in roots {
            // An explicit stack: graphs built from many lets can be deeper than any thread's stack.
            let mut stack = vec![root];
            while let Some(&id) = stack.last() {
                if map[id.index()].is_some() {
                    stack.pop();
                    continue;
                }
                let node = self.node(id);
                let pending: Vec<NodeId> = needs(node, crosses).filter(|i| map[i.index()].is_none()).collect();
                if !pending.is_empty() {
                    stack.extend(pending.into_iter().rev());
                    continue;
                }
                let op = if let Op::Cross(i) = node.op {
                    Op::Cross(*cross_map[usize::from(i)].get_or_insert_with(|| {
                        let cross = &crosses[usize::from(i)];
                        let value = map[cross.value.index()].unwrap_or(cross.value);
                        kept.push(CrossSection { value, ..cross.clone() });
                        (kept.len() - 1) as u16
                    }))
                } else {
                    node.op
                };
                let inputs = node.inputs.iter().filter_map(|i| map[i.index()]).collect();
                map[id.index()] = Some(out.intern(Node { op, inputs, kind: node.kind, frame: node.frame }));
                stack.pop();
            }
        }
        let roots = roots.iter().filter_map(|r| map[r.index()]).collect();
        (out, roots, kept)
    }

    /// The same graph with leaves and frames renumbered.
    pub(crate) fn map_leaves(
        &self,
        mut leaf: impl FnMut(Op) -> Op,
        mut frame: impl FnMut(FrameId) -> FrameId,
    ) -> Graph {
        let mut out = Graph::default();
        for node in &self.nodes {
            let frame = if node.frame == FrameId::ANY { FrameId::ANY } else { frame(node.frame) };
            out.intern(Node { op: leaf(node.op), inputs: node.inputs.clone(), kind: node.kind, frame });
        }
        out
    }

    /// Bars before the first at which each node can be defined, counted along its own frame: what another frame or a
    /// cross-section gives counts as there.
    pub fn look_backs(&self) -> Vec<usize> {
        self.sums(OpFacts::look_back_into)
    }

    /// As [`Self::look_backs`], with the warm-up of filters.
    pub fn reaches(&self) -> Vec<usize> {
        self.sums(|facts, _| facts.reach())
    }

    fn sums(&self, step: impl Fn(&OpFacts, usize) -> usize) -> Vec<usize> {
        let mut sums: Vec<usize> = Vec::with_capacity(self.nodes.len());
        for node in &self.nodes {
            let facts = node.op.facts();
            let input = |(at, id): (usize, &NodeId)| sums[id.index()].saturating_add(step(&facts, at));
            let whole = node.inputs.iter().enumerate().map(input).max().unwrap_or(0);
            sums.push(if facts.is_leaf() { 0 } else { whole });
        }
        sums
    }
}

/// Nodes that must be there before `node`: its inputs, and what its cross-section is made of.
pub(crate) fn needs<'a>(node: &'a Node, crosses: &'a [CrossSection]) -> impl Iterator<Item = NodeId> + 'a {
    let cross = if let Op::Cross(i) = node.op { Some(crosses[usize::from(i)].value) } else { None };
    node.inputs.iter().copied().chain(cross)
}
