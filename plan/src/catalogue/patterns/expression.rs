//! The steps of a formula written as expressions: `a.above(b) & !c`.

use std::cell::RefCell;
use std::ops::{Add, BitAnd, BitOr, Mul, Not, Sub};

use crate::ast::CompareOp;
use crate::graph::{Binary, Graph, Kind, NodeId, Op, Unary};

/// Holds the graph while a formula is built: operators have no place for a `&mut`.
pub(super) struct Steps(RefCell<Graph>);

impl Steps {
    /// Takes `graph` over until [`Self::give_back`].
    pub fn over(graph: &mut Graph) -> Self {
        Self(RefCell::new(std::mem::take(graph)))
    }

    pub fn give_back(self, graph: &mut Graph) {
        *graph = self.0.into_inner();
    }

    /// The node `id` as a number.
    pub fn num(&self, id: NodeId) -> Num<'_> {
        Num { steps: self, id }
    }

    pub fn constant(&self, value: f64) -> Num<'_> {
        self.num(self.0.borrow_mut().num(value))
    }

    /// Whether all of `conditions` hold.
    pub fn all<'s>(&'s self, conditions: impl Iterator<Item = Truth<'s>>) -> Truth<'s> {
        let none = || Truth { steps: self, id: self.0.borrow_mut().truth(true) };
        conditions.reduce(|all, next| all & next).unwrap_or_else(none)
    }

    fn numeric(&self, op: Op, inputs: &[NodeId]) -> Num<'_> {
        self.num(self.0.borrow_mut().add(op, inputs, Kind::Num))
    }

    fn logical(&self, op: Op, inputs: &[NodeId]) -> Truth<'_> {
        Truth { steps: self, id: self.0.borrow_mut().add(op, inputs, Kind::Bool) }
    }
}

/// A numeric series of a formula.
#[derive(Clone, Copy)]
pub(super) struct Num<'c> {
    steps: &'c Steps,
    id: NodeId,
}

impl<'c> Num<'c> {
    fn binary(self, op: Binary, other: Self) -> Self {
        self.steps.numeric(Op::Binary(op), &[self.id, other.id])
    }

    pub fn id(self) -> NodeId {
        self.id
    }

    /// NA where `other` is NA or infinite.
    pub fn where_finite(self, other: Self) -> Self {
        self.binary(Binary::Gate, other)
    }

    /// NA where `condition` is NA.
    pub fn where_defined(self, condition: Truth<'c>) -> Self {
        self.steps.numeric(Op::Binary(Binary::Gate), &[self.id, condition.id])
    }

    pub fn maximum(self, other: Self) -> Self {
        self.binary(Binary::Maximum, other)
    }

    pub fn minimum(self, other: Self) -> Self {
        self.binary(Binary::Minimum, other)
    }

    /// The mean of the last `bars` values.
    pub fn mean(self, bars: u32) -> Self {
        self.steps.numeric(Op::Mean(bars), &[self.id])
    }

    fn compare(self, op: CompareOp, other: Self) -> Truth<'c> {
        self.steps.logical(Op::Compare(op), &[self.id, other.id])
    }

    /// As it was `bars` bars ago.
    pub fn lag(self, bars: u32) -> Self {
        if bars == 0 { self } else { self.steps.numeric(Op::Lag(bars), &[self.id]) }
    }

    pub fn abs(self) -> Self {
        self.steps.numeric(Op::Unary(Unary::Abs), &[self.id])
    }

    pub fn above(self, other: Self) -> Truth<'c> {
        self.compare(CompareOp::Greater, other)
    }

    pub fn below(self, other: Self) -> Truth<'c> {
        self.compare(CompareOp::Less, other)
    }

    pub fn at_least(self, other: Self) -> Truth<'c> {
        self.compare(CompareOp::GreaterEqual, other)
    }

    pub fn at_most(self, other: Self) -> Truth<'c> {
        self.compare(CompareOp::LessEqual, other)
    }

    pub fn equals(self, other: Self) -> Truth<'c> {
        self.compare(CompareOp::Equal, other)
    }

    /// Between the two, equal to neither.
    pub fn between(self, low: Self, high: Self) -> Truth<'c> {
        self.above(low) & self.below(high)
    }

    /// At most `tolerance` away from `other`.
    pub fn about(self, other: Self, tolerance: Self) -> Truth<'c> {
        self.at_most(other + tolerance) & self.at_least(other - tolerance)
    }
}

impl Add for Num<'_> {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        self.binary(Binary::Add, other)
    }
}

impl Sub for Num<'_> {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        self.binary(Binary::Subtract, other)
    }
}

impl Mul<f64> for Num<'_> {
    type Output = Self;

    fn mul(self, factor: f64) -> Self {
        self.binary(Binary::Multiply, self.steps.constant(factor))
    }
}

/// A condition of a formula.
#[derive(Clone, Copy)]
pub(super) struct Truth<'c> {
    steps: &'c Steps,
    id: NodeId,
}

impl<'c> Truth<'c> {
    /// As it was `bars` bars ago.
    pub fn lag(self, bars: u32) -> Self {
        if bars == 0 { self } else { self.steps.logical(Op::Lag(bars), &[self.id]) }
    }

    /// Both hold or neither.
    pub fn equals(self, other: Self) -> Self {
        self.steps.logical(Op::Compare(CompareOp::Equal), &[self.id, other.id])
    }

    /// Whether it held on each of the last `bars` bars; NA where it is NA on one of them and false on none.
    pub fn streak(self, bars: u32) -> Self {
        self.steps.logical(Op::Streak(bars), &[self.id])
    }

    /// `a` where it holds, else `b`.
    pub fn choose(self, a: Num<'c>, b: Num<'c>) -> Num<'c> {
        self.steps.numeric(Op::Select, &[self.id, a.id, b.id])
    }
}

impl BitAnd for Truth<'_> {
    type Output = Self;

    fn bitand(self, other: Self) -> Self {
        self.steps.logical(Op::And, &[self.id, other.id])
    }
}

impl BitOr for Truth<'_> {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        self.steps.logical(Op::Or, &[self.id, other.id])
    }
}

impl Not for Truth<'_> {
    type Output = Self;

    fn not(self) -> Self {
        self.steps.logical(Op::Not, &[self.id])
    }
}
