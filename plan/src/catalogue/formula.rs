//! A call's formula under construction: its arguments, and the graph that its steps are added to.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;

use super::expression::{Num, Truth};
use crate::graph::{Graph, Kind, NodeId, Op};
use trawl_terms::{Clock, Period};

/// Holds the graph while a formula is built: operators have no place for a `&mut`.
pub struct Formula {
    pub(super) graph: RefCell<Graph>,
    /// Comparisons that decide: where rounding could turn one, what depends on it is flagged.
    pub(super) decisive: RefCell<HashSet<NodeId>>,
    /// The least bars that a history must have.
    bars_needed: Cell<usize>,
    arguments: Arguments,
}

/// What a formula is built of.
pub(crate) struct Arguments {
    /// In the order of the declaration.
    pub series: Vec<NodeId>,
    /// In the order of the declaration.
    pub params: Vec<f64>,
    /// Under a limited history the series that is 1 from its first bar on.
    pub origin: Option<NodeId>,
    /// Whether whole series are wanted and no scan.
    pub whole: bool,
}

impl Formula {
    /// What `build` gives of a formula over `graph`, and the least bars that its history must have.
    pub(crate) fn over<T>(
        graph: &mut Graph,
        decisive: &mut HashSet<NodeId>,
        arguments: Arguments,
        build: impl FnOnce(&Self) -> T,
    ) -> (T, usize) {
        let formula = Self {
            graph: RefCell::new(std::mem::take(graph)),
            decisive: RefCell::new(std::mem::take(decisive)),
            bars_needed: Cell::new(0),
            arguments,
        };
        let built = build(&formula);
        *graph = formula.graph.into_inner();
        *decisive = formula.decisive.into_inner();
        (built, formula.bars_needed.get())
    }

    /// The first series argument.
    pub(super) fn x(&self) -> Num<'_> {
        self.num(self.arguments.series[0])
    }

    /// The first series arguments.
    pub(super) fn series<const N: usize>(&self) -> [Num<'_>; N] {
        std::array::from_fn(|i| self.num(self.arguments.series[i]))
    }

    /// The first series argument, a condition.
    pub(super) fn condition(&self) -> Truth<'_> {
        Truth { formula: self, id: self.arguments.series[0] }
    }

    /// The parameters.
    pub(super) fn params(&self) -> &[f64] {
        &self.arguments.params
    }

    /// The i-th parameter.
    pub(super) fn real(&self, i: usize) -> f64 {
        self.arguments.params[i]
    }

    /// The i-th parameter, a whole number within its declared range.
    pub(super) fn bars(&self, i: usize) -> u32 {
        self.arguments.params[i] as u32
    }

    /// The node `id` as a number.
    pub(super) fn num(&self, id: NodeId) -> Num<'_> {
        Num { formula: self, id }
    }

    pub(super) fn constant(&self, value: f64) -> Num<'_> {
        self.num(self.graph.borrow_mut().num(value))
    }

    pub(super) fn truth(&self, value: bool) -> Truth<'_> {
        Truth { formula: self, id: self.graph.borrow_mut().truth(value) }
    }

    fn add(&self, op: Op, inputs: &[Num<'_>], kind: Kind) -> NodeId {
        let inputs: Vec<NodeId> = inputs.iter().map(|x| x.id).collect();
        self.graph.borrow_mut().add(op, &inputs, kind)
    }

    /// A numeric primitive of several series.
    pub(super) fn step(&self, op: Op, inputs: &[Num<'_>]) -> Num<'_> {
        self.num(self.add(op, inputs, Kind::Num))
    }

    /// A condition primitive of several series.
    pub(super) fn condition_of(&self, op: Op, inputs: &[Num<'_>]) -> Truth<'_> {
        Truth { formula: self, id: self.add(op, inputs, Kind::Bool) }
    }

    /// A series of either kind as it was `bars` bars ago.
    pub(super) fn lagged(&self, id: NodeId, bars: u32) -> NodeId {
        let mut graph = self.graph.borrow_mut();
        let kind = graph.node(id).kind;
        graph.add(Op::Lag(bars), &[id], kind)
    }

    /// 1 on the first bar of each period, 0 on the others.
    pub(super) fn begins(&self, period: Period) -> Truth<'_> {
        Truth { formula: self, id: self.graph.borrow_mut().leaf(Op::Begins(period), Kind::Bool) }
    }

    /// What the calendar says of each bar's time.
    pub(super) fn clock(&self, clock: Clock) -> Num<'_> {
        self.num(self.graph.borrow_mut().leaf(Op::Clock(clock), Kind::Num))
    }

    /// Whether the bar is of a regular session; bars of a day and longer are.
    pub(super) fn in_session(&self) -> Truth<'_> {
        Truth { formula: self, id: self.graph.borrow_mut().leaf(Op::Clock(Clock::InSession), Kind::Bool) }
    }

    /// Whether all of `conditions` hold.
    pub(super) fn all<'f>(&'f self, conditions: impl Iterator<Item = Truth<'f>>) -> Truth<'f> {
        conditions.reduce(|all, next| all & next).unwrap_or_else(|| self.truth(true))
    }

    /// Nodes so far.
    pub(super) fn size(&self) -> usize {
        self.graph.borrow().nodes().len()
    }

    /// Under a limited history the series that is 1 from its first bar on.
    pub(super) fn origin(&self) -> Option<Num<'_>> {
        self.arguments.origin.map(|id| self.num(id))
    }

    /// 1 on every bar that is seen, NA before the first one of a limited history.
    fn seen(&self) -> Num<'_> {
        self.origin().unwrap_or_else(|| self.constant(1.0))
    }

    /// The number of the bar among those that are seen: 1, 2 ...
    pub(super) fn bar_number(&self) -> Num<'_> {
        self.seen().cumulative()
    }
}

impl Num<'_> {
    /// The series for histories of at least `bars` bars. A scan's value at a bar is what the bars up to it say, so it is NA
    /// on the bars before; whole series are refused when they are shorter, and have all their values otherwise.
    pub(super) fn after_bars(self, bars: u32) -> Self {
        let formula = self.formula;
        formula.bars_needed.set(formula.bars_needed.get().max(bars as usize));
        if formula.arguments.whole {
            return self;
        }
        self.where_finite(formula.seen().lag(bars.saturating_sub(1)))
    }
}
