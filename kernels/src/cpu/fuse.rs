//! Which nodes are run together.

use trawl_plan::Program;
use trawl_plan::graph::{NodeId, Op};

use super::steps::reads_back;

/// What a task computes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Work {
    /// One primitive.
    Op(Op),
}

impl Work {
    /// Rows before the current one that it reads of its inputs.
    pub fn reads_back(self) -> usize {
        match self {
            Self::Op(op) => reads_back(op),
        }
    }
}

/// Work with the nodes that it reads and makes.
pub(crate) struct Part {
    pub work: Work,
    pub inputs: Vec<NodeId>,
    pub outputs: Vec<NodeId>,
}

/// The program as parts, in an order in which they can be run.
pub(crate) fn fuse(program: &Program) -> Vec<Part> {
    let nodes = program.nodes();
    let run = |(_, node): &(usize, &trawl_plan::graph::Node)| {
        !matches!(node.op, Op::Column(_) | Op::Constant(_) | Op::Lag(_))
    };
    let part = |(i, node): (usize, &trawl_plan::graph::Node)| Part {
        work: Work::Op(node.op),
        inputs: node.inputs.clone(),
        outputs: vec![NodeId(i as u32)],
    };
    nodes.iter().enumerate().filter(run).map(part).collect()
}
