//! A program as the kernels see it: steps over columns, constants and earlier steps. Constants stand at their uses, each
//! an argument of its own, so that which of them happen to be equal does not show in a plan's shape.

use trawl_plan::Program;
use trawl_plan::graph::{Leaf, NodeId, Op};

use super::family::Averages;

/// What a step reads.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Source {
    /// An input of the program.
    Column(usize),
    Constant(f64),
    /// An earlier step.
    Step(usize),
}

impl Source {
    pub fn step(self) -> Option<usize> {
        match self {
            Self::Step(step) => Some(step),
            Self::Column(_) | Self::Constant(_) => None,
        }
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Step {
    pub op: Op,
    pub inputs: Vec<Source>,
    /// Of a family's signal that makes its averages itself: inputs are then their series, price, return, bar number.
    pub averages: Option<Averages>,
}

impl Step {
    pub fn is_recursive(&self) -> bool {
        self.op.facts().is_recursive()
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Steps {
    pub columns: usize,
    /// Inputs before users, in the order in which the outputs first need them.
    pub steps: Vec<Step>,
    pub outputs: Vec<Source>,
}

impl Steps {
    /// The steps that the program's outputs need.
    pub fn of(program: &Program) -> Self {
        let nodes = program.nodes();
        let mut place: Vec<Option<Source>> = nodes
            .iter()
            .map(|node| {
                node.op.facts().leaf().and_then(|leaf| match leaf {
                    Leaf::Column(column) => Some(Source::Column(usize::from(column))),
                    Leaf::Constant(bits) => Some(Source::Constant(bits.value())),
                    // A program has inputs in their places; were one to have it, lowering refuses it.
                    Leaf::Label(_) | Leaf::Window | Leaf::Begins(_) | Leaf::Cross(_) | Leaf::Read(_) => None,
                })
            })
            .collect();
        let mut steps = Vec::new();
        // Depth first with a stack of its own: graphs can be deeper than a thread's stack.
        let mut open: Vec<(NodeId, bool)> = program.outputs.iter().rev().map(|id| (*id, false)).collect();
        while let Some((id, inputs_done)) = open.pop() {
            if place[id.index()].is_some() {
                continue;
            }
            let node = &nodes[id.index()];
            if inputs_done {
                place[id.index()] = Some(Source::Step(steps.len()));
                let inputs = node.inputs.iter().filter_map(|input| place[input.index()]).collect();
                steps.push(Step { op: node.op, inputs, averages: None });
            } else {
                open.push((id, true));
                open.extend(node.inputs.iter().rev().map(|input| (*input, false)));
            }
        }
        let outputs = program.outputs.iter().filter_map(|id| place[id.index()]).collect();
        Self { columns: program.inputs.len(), steps, outputs }
    }
}
