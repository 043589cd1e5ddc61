//! What a declaration's `build` works with: its arguments and short names for the primitives.

use std::collections::HashSet;

use crate::ast::CompareOp;
use crate::family::Period;
use crate::graph::{Binary, Graph, Kind, NodeId, Op, Unary};
use crate::scalar::TALIB_EPSILON;

/// A formula under construction. Method names are the primitives of [`Op`]; see there for what each computes.
pub struct Formula<'g> {
    pub(crate) graph: &'g mut Graph,
    /// Comparisons that decide: where rounding could turn one, what depends on it is flagged.
    pub(crate) decisive: &'g mut HashSet<NodeId>,
    pub(crate) series: Vec<NodeId>,
    pub(crate) params: Vec<f64>,
    /// Under a limited history the series that is 1 from its first bar on.
    pub(crate) origin: Option<NodeId>,
    /// Whether whole series are wanted and no scan.
    pub(crate) whole: bool,
    /// The least bars that a history must have.
    pub(crate) bars_needed: usize,
}

impl Formula<'_> {
    /// The i-th series argument.
    pub fn series(&self, i: usize) -> NodeId {
        self.series[i]
    }

    /// The i-th parameter.
    pub fn real(&self, i: usize) -> f64 {
        self.params[i]
    }

    /// The i-th parameter, a whole number within its declared range.
    pub fn bars(&self, i: usize) -> u32 {
        self.params[i] as u32
    }

    fn num(&mut self, op: Op, inputs: &[NodeId]) -> NodeId {
        self.graph.add(op, inputs, Kind::Num)
    }

    fn truth(&mut self, op: Op, inputs: &[NodeId]) -> NodeId {
        self.graph.add(op, inputs, Kind::Bool)
    }

    pub fn constant(&mut self, value: f64) -> NodeId {
        self.graph.num(value)
    }

    pub fn unary(&mut self, op: Unary, x: NodeId) -> NodeId {
        self.num(Op::Unary(op), &[x])
    }

    pub fn binary(&mut self, op: Binary, a: NodeId, b: NodeId) -> NodeId {
        self.num(Op::Binary(op), &[a, b])
    }

    pub fn add(&mut self, a: NodeId, b: NodeId) -> NodeId {
        self.binary(Binary::Add, a, b)
    }

    pub fn subtract(&mut self, a: NodeId, b: NodeId) -> NodeId {
        self.binary(Binary::Subtract, a, b)
    }

    pub fn multiply(&mut self, a: NodeId, b: NodeId) -> NodeId {
        self.binary(Binary::Multiply, a, b)
    }

    /// `x * factor`
    pub fn scale(&mut self, x: NodeId, factor: f64) -> NodeId {
        let factor = self.constant(factor);
        self.multiply(x, factor)
    }

    /// `x / divisor` with a divisor that is not 0.
    pub fn over(&mut self, x: NodeId, divisor: f64) -> NodeId {
        let divisor = self.constant(divisor);
        self.binary(Binary::Divide, x, divisor)
    }

    pub fn absolute(&mut self, x: NodeId) -> NodeId {
        self.unary(Unary::Abs, x)
    }

    pub fn maximum(&mut self, a: NodeId, b: NodeId) -> NodeId {
        self.binary(Binary::Maximum, a, b)
    }

    pub fn minimum(&mut self, a: NodeId, b: NodeId) -> NodeId {
        self.binary(Binary::Minimum, a, b)
    }

    /// `a`, NA where `b` is NA or infinite.
    pub fn gate(&mut self, a: NodeId, b: NodeId) -> NodeId {
        self.binary(Binary::Gate, a, b)
    }

    /// A comparison by which the function decides (see `edge_flags`).
    pub fn compare(&mut self, op: CompareOp, a: NodeId, b: NodeId) -> NodeId {
        let node = self.truth(Op::Compare(op), &[a, b]);
        self.decisive.insert(node);
        node
    }

    /// A comparison that is never flagged: it guards a division, leaves room for rounding itself, or decides a share of a
    /// value that fades (docs/adr/0009).
    pub fn compare_unflagged(&mut self, op: CompareOp, a: NodeId, b: NodeId) -> NodeId {
        self.truth(Op::Compare(op), &[a, b])
    }

    pub fn greater(&mut self, a: NodeId, b: NodeId) -> NodeId {
        self.compare(CompareOp::Greater, a, b)
    }

    pub fn and(&mut self, a: NodeId, b: NodeId) -> NodeId {
        self.truth(Op::And, &[a, b])
    }

    pub fn or(&mut self, a: NodeId, b: NodeId) -> NodeId {
        self.truth(Op::Or, &[a, b])
    }

    pub fn not(&mut self, a: NodeId) -> NodeId {
        self.truth(Op::Not, &[a])
    }

    /// `a` where `condition`, else `b`.
    pub fn select(&mut self, condition: NodeId, a: NodeId, b: NodeId) -> NodeId {
        self.num(Op::Select, &[condition, a, b])
    }

    pub fn lag(&mut self, x: NodeId, bars: u32) -> NodeId {
        let kind = self.graph.node(x).kind;
        self.graph.add(Op::Lag(bars), &[x], kind)
    }

    /// 1 on every bar that is seen, NA before the first one of a limited history.
    fn seen(&mut self) -> NodeId {
        self.origin.unwrap_or_else(|| self.graph.num(1.0))
    }

    /// The number of the bar among those that are seen: 1, 2 ...
    pub fn bar_number(&mut self) -> NodeId {
        let seen = self.seen();
        self.step(Op::Cumulative, seen)
    }

    /// `x` for histories of at least `bars` bars. A scan's value at a bar is what the bars up to it say, so it is NA on
    /// the bars before; whole series are refused when they are shorter, and have all their values otherwise.
    pub fn after_bars(&mut self, x: NodeId, bars: u32) -> NodeId {
        self.bars_needed = self.bars_needed.max(bars as usize);
        if self.whole {
            return x;
        }
        let seen = self.seen();
        let enough = self.lag(seen, bars.saturating_sub(1));
        self.gate(x, enough)
    }

    /// 1 on the first bar of each period, 0 on the others.
    pub fn begins(&mut self, period: Period) -> NodeId {
        self.graph.leaf(Op::Begins(period), Kind::Bool)
    }

    /// A window, recurrence or cumulative primitive of one series.
    pub fn step(&mut self, op: Op, x: NodeId) -> NodeId {
        self.num(op, &[x])
    }

    /// A numeric primitive of several series.
    pub fn step_of(&mut self, op: Op, inputs: &[NodeId]) -> NodeId {
        self.num(op, inputs)
    }

    /// A condition primitive.
    pub fn condition_of(&mut self, op: Op, inputs: &[NodeId]) -> NodeId {
        self.truth(op, inputs)
    }

    /// Whether `difference`, of values near `a` and `b`, is more than TA-Lib takes for their rounding: 1e-14 of |a| + |b|.
    pub fn beyond_rounding(&mut self, difference: NodeId, a: NodeId, b: NodeId) -> NodeId {
        let (a, b) = (self.absolute(a), self.absolute(b));
        let size = self.add(a, b);
        let least = self.scale(size, TALIB_EPSILON);
        self.compare_unflagged(CompareOp::Greater, difference, least)
    }

    /// (high + low + close)/3
    pub fn typical(&mut self, high: NodeId, low: NodeId, close: NodeId) -> NodeId {
        let sum = self.add(high, low);
        let sum = self.add(sum, close);
        self.over(sum, 3.0)
    }

    /// Wilder's true range; NA on the first bar.
    pub fn true_range(&mut self, high: NodeId, low: NodeId, close: NodeId) -> NodeId {
        let before = self.lag(close, 1);
        let range = self.subtract(high, low);
        let up = self.subtract(high, before);
        let up = self.absolute(up);
        let down = self.subtract(low, before);
        let down = self.absolute(down);
        let range = self.maximum(range, up);
        self.maximum(range, down)
    }

    /// Kaufman's adaptive mean over `p` bars.
    pub fn kaufman(&mut self, x: NodeId, p: u32) -> NodeId {
        if p == 1 {
            return x;
        }
        let before = self.lag(x, 1);
        let change = self.subtract(x, before);
        let change = self.absolute(change);
        let noise = self.step(Op::Sum(p), change);
        let far = self.lag(x, p);
        self.step_of(Op::Kaufman, &[x, before, far, noise])
    }
}
