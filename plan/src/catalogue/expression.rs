//! What formulas are written in: series as values with operators, `(high + low + close) / 3.0`, `a.above(b) & !c`.
//!
//! Each method adds the node of one primitive of [`Op`]; see there for what it computes. A constant may take the place of a
//! number on the right of an operator. Averages are in `moving`, steps that several indicators share in `steps`.

use std::ops::{Add, BitAnd, BitOr, Div, Mul, Neg, Not, Sub};

use super::Formula;
use crate::ast::CompareOp;
use crate::graph::{Binary, NodeId, Op, Unary};

/// A numeric series of a formula.
#[derive(Clone, Copy)]
pub struct Num<'f> {
    pub(super) formula: &'f Formula,
    pub(super) id: NodeId,
}

/// A condition of a formula.
#[derive(Clone, Copy)]
pub struct Truth<'f> {
    pub(super) formula: &'f Formula,
    pub(super) id: NodeId,
}

/// What can be a number of a formula: a series, or a constant.
pub(super) trait Operand<'f> {
    fn of(self, formula: &'f Formula) -> Num<'f>;
}

impl<'f> Operand<'f> for Num<'f> {
    fn of(self, _: &'f Formula) -> Self {
        self
    }
}

impl<'f> Operand<'f> for f64 {
    fn of(self, formula: &'f Formula) -> Num<'f> {
        formula.constant(self)
    }
}

impl<'f> Operand<'f> for u32 {
    fn of(self, formula: &'f Formula) -> Num<'f> {
        formula.constant(f64::from(self))
    }
}

impl<'f> Num<'f> {
    /// A primitive of this series alone.
    pub(super) fn step(self, op: Op) -> Self {
        self.formula.step(op, &[self])
    }

    pub(super) fn unary(self, op: Unary) -> Self {
        self.step(Op::Unary(op))
    }

    pub(super) fn binary(self, op: Binary, other: impl Operand<'f>) -> Self {
        self.formula.step(Op::Binary(op), &[self, other.of(self.formula)])
    }

    fn compare(self, op: CompareOp, other: impl Operand<'f>) -> Truth<'f> {
        let other = other.of(self.formula);
        self.formula.condition_of(Op::Compare(op), &[self, other])
    }

    pub(super) fn abs(self) -> Self {
        self.unary(Unary::Abs)
    }

    pub(super) fn sign(self) -> Self {
        self.unary(Unary::Sign)
    }

    pub(super) fn sqrt(self) -> Self {
        self.unary(Unary::Sqrt)
    }

    pub(super) fn square(self) -> Self {
        self * self
    }

    pub(super) fn maximum(self, other: impl Operand<'f>) -> Self {
        self.binary(Binary::Maximum, other)
    }

    pub(super) fn minimum(self, other: impl Operand<'f>) -> Self {
        self.binary(Binary::Minimum, other)
    }

    /// TA-Lib's quotient: 0 where the divisor is 0.
    pub(super) fn ratio_or_zero(self, divisor: Self) -> Self {
        self.binary(Binary::RatioOrZero, divisor)
    }

    /// TA-Lib's quotient: 0 where the divisor is below 1e-14.
    pub(super) fn ratio_or_zero_epsilon(self, divisor: Self) -> Self {
        self.binary(Binary::RatioOrZeroEpsilon, divisor)
    }

    /// NA where `other` is NA or infinite.
    pub(super) fn where_finite(self, other: Self) -> Self {
        self.binary(Binary::MaskUndefined, other)
    }

    /// NA where `condition` is NA.
    pub(super) fn where_defined(self, condition: Truth<'f>) -> Self {
        self.where_finite(condition.as_number())
    }

    /// `other` where this is NA.
    pub(super) fn or_else(self, other: impl Operand<'f>) -> Self {
        self.binary(Binary::Coalesce, other)
    }

    /// As it was `bars` bars ago.
    pub(super) fn lag(self, bars: u32) -> Self {
        self.formula.num(self.formula.lagged(self.id, bars))
    }

    /// The defined value before the current one, at the first that one itself.
    pub(super) fn previous(self) -> Self {
        self.step(Op::Previous)
    }

    /// The series without its first `count` defined values.
    pub(super) fn skip(self, count: u32) -> Self {
        if count == 0 { self } else { self.step(Op::Skip(count)) }
    }

    /// Running sum over the whole history.
    pub(super) fn cumulative(self) -> Self {
        self.step(Op::Cumulative)
    }

    /// The sum of the last `bars` values.
    pub(super) fn sum(self, bars: u32) -> Self {
        self.step(Op::Sum(bars))
    }

    /// The mean of the last `bars` values.
    pub(super) fn mean(self, bars: u32) -> Self {
        self.step(Op::Mean(bars))
    }

    /// The largest of the last `bars` values.
    pub(super) fn highest(self, bars: u32) -> Self {
        self.step(Op::Max(bars))
    }

    /// The smallest of the last `bars` values.
    pub(super) fn lowest(self, bars: u32) -> Self {
        self.step(Op::Min(bars))
    }

    /// The population deviation of the last `bars` values.
    pub(super) fn deviation(self, bars: u32) -> Self {
        self.step(Op::StdDev(bars))
    }

    /// The mean distance of the last `bars` values from `mean`, which is theirs.
    pub(super) fn mean_deviation(self, bars: u32, mean: Self) -> Self {
        self.formula.step(Op::MeanAbsDev(bars), &[self, mean])
    }

    /// The slope a bar of the least-squares line through the last `bars` values.
    pub(super) fn slope(self, bars: u32) -> Self {
        self.step(Op::Slope(bars))
    }

    pub(super) fn above(self, other: impl Operand<'f>) -> Truth<'f> {
        self.compare(CompareOp::Greater, other)
    }

    pub(super) fn below(self, other: impl Operand<'f>) -> Truth<'f> {
        self.compare(CompareOp::Less, other)
    }

    pub(super) fn at_least(self, other: impl Operand<'f>) -> Truth<'f> {
        self.compare(CompareOp::GreaterEqual, other)
    }

    pub(super) fn at_most(self, other: impl Operand<'f>) -> Truth<'f> {
        self.compare(CompareOp::LessEqual, other)
    }

    pub(super) fn equals(self, other: impl Operand<'f>) -> Truth<'f> {
        self.compare(CompareOp::Equal, other)
    }

    pub(super) fn differs(self, other: impl Operand<'f>) -> Truth<'f> {
        self.compare(CompareOp::NotEqual, other)
    }

    /// Between the two, equal to neither.
    pub(super) fn between(self, low: Self, high: Self) -> Truth<'f> {
        self.above(low) & self.below(high)
    }

    /// At most `tolerance` away from `other`.
    pub(super) fn about(self, other: Self, tolerance: Self) -> Truth<'f> {
        self.at_most(other + tolerance) & self.at_least(other - tolerance)
    }
}

macro_rules! operators {
    ($($operator:ident, $method:ident, $op:ident;)*) => {$(
        impl<'f, T: Operand<'f>> $operator<T> for Num<'f> {
            type Output = Self;

            fn $method(self, other: T) -> Self {
                self.binary(Binary::$op, other)
            }
        }
    )*};
}

operators! {
    Add, add, Add;
    Sub, sub, Subtract;
    Mul, mul, Multiply;
    // NA where the divisor is 0.
    Div, div, Divide;
}

impl<'f> Add<Num<'f>> for f64 {
    type Output = Num<'f>;

    fn add(self, other: Num<'f>) -> Num<'f> {
        self.of(other.formula) + other
    }
}

impl<'f> Sub<Num<'f>> for f64 {
    type Output = Num<'f>;

    fn sub(self, other: Num<'f>) -> Num<'f> {
        self.of(other.formula) - other
    }
}

/// A factor is the second input of its node, on whichever side it is written.
impl<'f> Mul<Num<'f>> for f64 {
    type Output = Num<'f>;

    fn mul(self, other: Num<'f>) -> Num<'f> {
        other * self
    }
}

impl Neg for Num<'_> {
    type Output = Self;

    fn neg(self) -> Self {
        self.unary(Unary::Negate)
    }
}

impl<'f> Truth<'f> {
    /// 1 where it holds, 0 where it does not.
    pub(super) fn as_number(self) -> Num<'f> {
        self.formula.num(self.id)
    }

    /// The same condition, by which the function decides: where rounding could turn it, what depends on it is flagged (see
    /// `edge_flags`). Other comparisons guard a division, leave room for rounding themselves, or decide a share of a value
    /// that fades (docs/adr/0009).
    pub(super) fn decides(self) -> Self {
        self.formula.decisive.borrow_mut().insert(self.id);
        self
    }

    /// A condition primitive of this one alone.
    pub(super) fn step(self, op: Op) -> Self {
        self.formula.condition_of(op, &[self.as_number()])
    }

    /// As it was `bars` bars ago.
    pub(super) fn lag(self, bars: u32) -> Self {
        Self { id: self.formula.lagged(self.id, bars), ..self }
    }

    /// Both hold or neither.
    pub(super) fn equals(self, other: Self) -> Self {
        self.as_number().equals(other.as_number())
    }

    /// Whether it held on each of the last `bars` bars; NA where it is NA on one of them and false on none.
    pub(super) fn streak(self, bars: u32) -> Self {
        self.step(Op::Streak(bars))
    }

    /// `a` where it holds, else `b`.
    pub(super) fn choose(self, a: impl Operand<'f>, b: impl Operand<'f>) -> Num<'f> {
        let formula = self.formula;
        formula.step(Op::Select, &[self.as_number(), a.of(formula), b.of(formula)])
    }
}

impl BitAnd for Truth<'_> {
    type Output = Self;

    fn bitand(self, other: Self) -> Self {
        self.formula.condition_of(Op::And, &[self.as_number(), other.as_number()])
    }
}

impl BitOr for Truth<'_> {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        self.formula.condition_of(Op::Or, &[self.as_number(), other.as_number()])
    }
}

impl Not for Truth<'_> {
    type Output = Self;

    fn not(self) -> Self {
        self.step(Op::Not)
    }
}
