//! A program in the form used for kernels: steps over columns, constants and earlier steps. Each use of a constant is a
//! separate argument, so that a plan's shape does not depend on which constants happen to be equal.

use trawl_plan::Program;
use trawl_plan::graph::{Leaf, NodeId, Op};

use crate::cuda::codegen::averages::Averages;

/// An input of a step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum StepInput {
    /// An input of the program.
    Column(usize),
    Constant(f64),
    /// An earlier step.
    Step(usize),
}

impl StepInput {
    pub fn step(self) -> Option<usize> {
        match self {
            Self::Step(step) => Some(step),
            Self::Column(_) | Self::Constant(_) => None,
        }
    }
}

#[derive(Debug, Clone)]
pub(crate) struct KernelStep {
    pub op: Op,
    pub inputs: Vec<StepInput>,
    /// Set for a family's signal that computes its averages itself: its inputs are then their series, price, return,
    /// bar number.
    pub averages: Option<Averages>,
}

impl KernelStep {
    pub fn is_recursive(&self) -> bool {
        self.op.facts().is_recursive()
    }
}

#[derive(Debug, Clone)]
pub(crate) struct KernelSteps {
    pub columns: usize,
    /// Inputs before users, in the order in which the outputs first need them.
    pub steps: Vec<KernelStep>,
    pub outputs: Vec<StepInput>,
}

impl KernelSteps {
    /// The steps that the program's outputs need.
    pub fn of(program: &Program) -> Self {
        let nodes = program.nodes();
        let mut place: Vec<Option<StepInput>> = nodes
            .iter()
            .map(|node| {
                node.op.facts().leaf().and_then(|leaf| match leaf {
                    Leaf::Column(column) => Some(StepInput::Column(usize::from(column))),
                    Leaf::Constant(bits) => Some(StepInput::Constant(bits.value())),
                    // Programs have inputs instead of these leaves; lowering would reject them.
                    Leaf::Label(_)
                    | Leaf::HistoryMask
                    | Leaf::Begins(_)
                    | Leaf::Clock(_)
                    | Leaf::Attribute(_)
                    | Leaf::Cross(_)
                    | Leaf::Read(_) => None,
                })
            })
            .collect();
        let mut steps = Vec::new();
        // Depth first with an explicit stack: graphs can be deeper than a thread's stack.
        let mut open: Vec<(NodeId, bool)> = program.outputs.iter().rev().map(|id| (*id, false)).collect();
        while let Some((id, inputs_done)) = open.pop() {
            if place[id.index()].is_some() {
                continue;
            }
            let node = &nodes[id.index()];
            if inputs_done {
                place[id.index()] = Some(StepInput::Step(steps.len()));
                let inputs = node.inputs.iter().filter_map(|input| place[input.index()]).collect();
                steps.push(KernelStep { op: node.op, inputs, averages: None });
            } else {
                open.push((id, true));
                open.extend(node.inputs.iter().rev().map(|input| (*input, false)));
            }
        }
        let outputs = program.outputs.iter().filter_map(|id| place[id.index()]).collect();
        Self { columns: program.inputs.len(), steps, outputs }
    }
}
