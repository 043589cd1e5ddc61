//! The `edge` flag: whether a comparison that a value covers is so close that rounding could turn it.
//!
//! For every node there is a node that is 1 where one of the comparisons behind it, at any bar that its value covers,
//! is near; anything else means no. Both sides of `and`, `or` and `iff` count, and comparisons by which an indicator
//! decides. Of a cross-section the symbol's own comparisons count, not those of the others. Between exact values nothing
//! is near (see `exact`).

use std::collections::{HashMap, HashSet};

use crate::ast::CompareOp;
use crate::exact::{Exactness, Facts, Level, exactness};
use crate::family::SuperTrend;
use crate::frame::FrameId;
use crate::graph::{Binary, Class, Graph, Kind, Leaf, NodeId, Op, OpFacts, Pointwise};
use crate::op_facts::{Decides, Past, StepFacts};

/// Builds the flags of nodes on demand; shared parts once.
pub(crate) struct Edges<'a> {
    /// What stands in the parentheses of each `Cross` node.
    cross_arguments: &'a HashMap<NodeId, Vec<NodeId>>,
    /// Comparisons that the user wrote, and those by which indicators decide.
    decisive: &'a HashSet<NodeId>,
    facts: &'a Facts,
    known: HashMap<NodeId, Option<NodeId>>,
    exact: HashMap<NodeId, Exactness>,
}

impl<'a> Edges<'a> {
    pub fn new(
        cross_arguments: &'a HashMap<NodeId, Vec<NodeId>>,
        decisive: &'a HashSet<NodeId>,
        facts: &'a Facts,
    ) -> Self {
        Self { cross_arguments, decisive, facts, known: HashMap::new(), exact: HashMap::new() }
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
                let inputs: Vec<Exactness> =
                    graph.node(id).inputs.iter().filter_map(|i| self.exact.get(i).copied()).collect();
                self.exact.insert(id, exactness(self.facts, graph, id, &inputs));
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
        if let Op::Cross(_) = graph.node(id).op {
            self.cross_arguments.get(&id).cloned().unwrap_or_default()
        } else {
            graph.node(id).inputs.clone()
        }
    }

    fn build(&self, graph: &mut Graph, id: NodeId, behind: &[NodeId]) -> Option<NodeId> {
        let node = graph.node(id).clone();
        if node.frame == FrameId::ANY {
            return None;
        }
        let before = graph.enter(node.frame);
        let facts = node.op.facts();
        let mut any: Option<NodeId> = None;
        for (i, input) in behind.iter().enumerate() {
            if let Some(flag) = self.known.get(input).copied().flatten() {
                let bars = facts.look_back_into(i);
                let flag = if is_shifted(&facts) || facts.is_recursive() || bars == 0 {
                    flag
                } else {
                    graph.add(Op::Within(bars as u32 + 1), &[flag], Kind::Bool)
                };
                any = or(graph, any, flag);
            }
        }
        let near = match facts.class {
            Class::Leaf(_) => None,
            Class::Pointwise(Pointwise::Compare(_)) if self.decisive.contains(&id) => {
                self.near(graph, node.inputs[0], node.inputs[1])
            }
            Class::Pointwise(_) => None,
            Class::StepFacts(step) => match step.decides {
                Decides::Nothing => None,
                // Now and one bar ago.
                Decides::Crossing => self
                    .near(graph, node.inputs[0], node.inputs[1])
                    .map(|near| graph.add(Op::Within(2), &[near], Kind::Bool)),
                Decides::Change if self.exact_of(node.inputs[0]).level > Level::Exact => {
                    let before = graph.add(Op::Lag(1), &node.inputs[..1], Kind::Num);
                    Some(graph.add(Op::Binary(Binary::Near), &[node.inputs[0], before], Kind::Bool))
                }
                Decides::Change => None,
                Decides::Band => Some(turn_is_near(graph, &node.inputs)),
            },
        };
        if let Some(near) = near {
            any = or(graph, any, near);
        }
        let flag = any.map(|flag| match facts.class {
            Class::Leaf(Leaf::Read(how)) => graph.read(how, flag),
            Class::StepFacts(StepFacts { past: Past::Shifted(p), .. }) => graph.add(Op::Lag(p), &[flag], Kind::Bool),
            Class::StepFacts(StepFacts { past: Past::SinceTrue, .. }) => {
                graph.add(Op::EverSince, &[node.inputs[0], flag], Kind::Bool)
            }
            Class::StepFacts(_) if facts.is_recursive() => graph.add(Op::Ever, &[flag], Kind::Bool),
            Class::Leaf(_) | Class::Pointwise(_) | Class::StepFacts(_) => flag,
        });
        graph.enter(before);
        flag
    }

    fn exact_of(&self, id: NodeId) -> Exactness {
        // Every input of a node is decided before the node.
        self.exact.get(&id).copied().unwrap_or(Exactness::ROUNDED)
    }

    /// Where rounding could turn a comparison of `a` with `b`; `None` where it never can.
    fn near(&self, graph: &mut Graph, a: NodeId, b: NodeId) -> Option<NodeId> {
        let (left, right) = (self.exact_of(a), self.exact_of(b));
        let zero = |id| graph.constant(id) == Some(0.0);
        let signed = zero(a) && right.level <= Level::Signed || zero(b) && left.level <= Level::Signed;
        let exact = a == b || signed || left.level.max(right.level) <= Level::Exact;
        if exact && !left.adjusted && !right.adjusted {
            return None;
        }
        // A value is the extreme of a window that holds it when it is beyond the others.
        let [a, b] = match (others(graph, a, b), others(graph, b, a)) {
            (Some(others), _) if !exact => [a, others],
            (_, Some(others)) if !exact => [b, others],
            _ => [a, b],
        };
        let near = graph.add(Op::Binary(Binary::Near), &[a, b], Kind::Bool);
        if !exact {
            return Some(near);
        }
        // Equal prices of one factor are no rounding; of two factors those that miss each other by a little are.
        let differs = graph.add(Op::Compare(CompareOp::NotEqual), &[a, b], Kind::Bool);
        Some(graph.add(Op::And, &[near, differs], Kind::Bool))
    }
}

/// Whether its value is an earlier one as it was: then so is the flag.
fn is_shifted(facts: &OpFacts) -> bool {
    matches!(facts.class, Class::StepFacts(StepFacts { past: Past::Shifted(_), .. }))
}

/// When `extreme` is that of a window of `x`, that of the window's other values.
fn others(graph: &mut Graph, x: NodeId, extreme: NodeId) -> Option<NodeId> {
    let node = graph.node(extreme);
    let (Op::Max(p) | Op::Min(p)) = node.op else { return None };
    if p < 2 || node.inputs[..] != [x] {
        return None;
    }
    let shorter = if node.op == Op::Max(p) { Op::Max(p - 1) } else { Op::Min(p - 1) };
    let before = graph.add(Op::Lag(1), &[x], Kind::Num);
    Some(graph.add(shorter, &[before], Kind::Num))
}

/// Whether the close of a super trend is near the band whose passing turns it: the line of the bar before, moved towards
/// the price. Inputs upper and lower band before they trail, close.
fn turn_is_near(graph: &mut Graph, inputs: &[NodeId]) -> NodeId {
    let [upper, lower, close] = [0, 1, 2].map(|i| inputs[i]);
    let [line, trend] = [SuperTrend::Line, SuperTrend::Trend].map(|result| {
        let now = graph.add(Op::SuperTrend(result), inputs, Kind::Num);
        graph.add(Op::Lag(1), &[now], Kind::Num)
    });
    let below = graph.add(Op::Binary(Binary::Maximum), &[lower, line], Kind::Num);
    let above = graph.add(Op::Binary(Binary::Minimum), &[upper, line], Kind::Num);
    let one = graph.num(1.0);
    let rising = graph.add(Op::Compare(CompareOp::Equal), &[trend, one], Kind::Bool);
    let band = graph.add(Op::Select, &[rising, below, above], Kind::Num);
    graph.add(Op::Binary(Binary::Near), &[close, band], Kind::Bool)
}

fn or(graph: &mut Graph, any: Option<NodeId>, flag: NodeId) -> Option<NodeId> {
    Some(match any {
        None => flag,
        Some(before) if before == flag => flag,
        Some(before) => graph.add(Op::Or, &[before, flag], Kind::Bool),
    })
}
