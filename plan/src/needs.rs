//! How many bars a value needs before it can be defined, on each axis that it is made of: the symbol's own bars, longer ones, and those
//! of reference symbols.
//!
//! [`Graph::look_backs`] follows one axis and takes what is read from elsewhere as there, which is what plans and statuses go by. This
//! is for people, who ask whether a history is long enough: a rank of a return over 63 bars needs 64 of them, of the symbol itself too.

use crate::frame::{BarSize, CrossSection, Frame, FrameId, Subject};
use crate::graph::{Graph, NodeId, Op, needs};
use crate::scan_plan::Plan;

/// Bars that a value needs before it can be defined.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BarsNeeded {
    /// The symbol's own bars, at least 1.
    pub own: usize,
    /// Those of other axes, in the order of the plan's.
    pub others: Vec<(Frame, usize)>,
}

impl Frame {
    /// The axis as people name it: `SPY`, `1w`, `SPY 1w`.
    pub fn title(&self) -> String {
        let subject = match &self.subject {
            Subject::Own => "",
            Subject::Reference(symbol) => symbol,
        };
        let bars = match &self.bars {
            BarSize::Base => String::new(),
            BarSize::Higher { timeframe, .. } => timeframe.to_string(),
        };
        let between = if subject.is_empty() || bars.is_empty() { "" } else { " " };
        format!("{subject}{between}{bars}")
    }
}

/// Look-backs by axis, ascending by its number.
type LookBacks = Vec<(FrameId, usize)>;

fn raise(all: &mut LookBacks, frame: FrameId, bars: usize) {
    match all.binary_search_by_key(&frame, |(known, _)| *known) {
        Ok(at) => all[at].1 = all[at].1.max(bars),
        Err(at) => all.insert(at, (frame, bars)),
    }
}

impl Graph {
    /// For every node, the look-backs on each axis. What a window adds on one axis is not added on the others, so that those are the
    /// least that is needed.
    fn look_backs_by_frame(&self, crosses: &[CrossSection]) -> Vec<LookBacks> {
        let mut all: Vec<LookBacks> = Vec::with_capacity(self.nodes().len());
        for node in self.nodes() {
            let facts = node.op.facts();
            let mut own = LookBacks::new();
            if node.frame != FrameId::ANY {
                own.push((node.frame, 0));
            }
            let is_read = matches!(node.op, Op::Read(_));
            // What all symbols together give does not need the symbol's own value.
            let is_shared = matches!(node.op, Op::Cross(i) if crosses[usize::from(i)].function.is_market_series());
            for (at, input) in needs(node, crosses).enumerate().filter(|_| !is_shared) {
                let step = if facts.is_leaf() { 0 } else { facts.look_back_into(at) };
                for &(frame, bars) in &all[input.index()] {
                    // Of the bars that are read into nothing is needed before.
                    let goes_on = frame == node.frame && !is_read;
                    raise(&mut own, frame, if goes_on { bars.saturating_add(step) } else { bars });
                }
                // Constants have no axis of their own.
                if node.frame != FrameId::ANY && all[input.index()].is_empty() {
                    raise(&mut own, node.frame, step);
                }
            }
            all.push(own);
        }
        all
    }

    /// What each of `wanted` needs.
    pub(crate) fn bars_needed(&self, frames: &[Frame], crosses: &[CrossSection], wanted: &[NodeId]) -> Vec<BarsNeeded> {
        let all = self.look_backs_by_frame(crosses);
        let one = |id: &NodeId| {
            let mut needed = BarsNeeded { own: 1, others: Vec::new() };
            for &(frame, bars) in &all[id.index()] {
                match frames.get(frame.index()) {
                    Some(_) if frame == FrameId::OWN => needed.own = bars + 1,
                    Some(of) => needed.others.push((of.clone(), bars + 1)),
                    None => {}
                }
            }
            needed
        };
        wanted.iter().map(one).collect()
    }
}

impl Plan {
    /// What each of `wanted` needs before it can be defined.
    pub fn bars_needed_by(&self, wanted: &[NodeId]) -> Vec<BarsNeeded> {
        self.graph.bars_needed(&self.frames, &self.crosses, wanted)
    }
}
