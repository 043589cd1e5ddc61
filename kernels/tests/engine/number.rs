//! The arithmetic that the oracle's definitions are written over.

use std::fmt::Debug;
use std::ops::{Add, AddAssign, Div, Mul, MulAssign, Neg, Sub, SubAssign};

use trawl_plan::ast::CompareOp;
use trawl_plan::graph::{Binary, Unary};
use trawl_plan::scalar;

/// A real number, NaN = NA. Operators take another number or an `f64` on their right.
pub trait Number:
    Copy
    + Debug
    + PartialOrd
    + PartialOrd<f64>
    + Neg<Output = Self>
    + Add<Output = Self>
    + Add<f64, Output = Self>
    + Sub<Output = Self>
    + Sub<f64, Output = Self>
    + Mul<Output = Self>
    + Mul<f64, Output = Self>
    + Div<Output = Self>
    + Div<f64, Output = Self>
    + AddAssign
    + SubAssign
    + MulAssign
{
    const ZERO: Self;
    const NAN: Self;

    /// The number that `x` is.
    fn of(x: f64) -> Self;
    /// Rounded to `f64`.
    fn value(self) -> f64;
    fn sqrt(self) -> Self;
    /// The sum with at most one rounding.
    fn sum(values: &[Self]) -> Self;
    /// See [`Unary`].
    fn unary(op: Unary, x: Self) -> Self;
    /// See [`Binary`].
    fn binary(op: Binary, a: Self, b: Self) -> Self;

    fn truth(truth: bool) -> Self {
        Self::of(f64::from(u8::from(truth)))
    }

    fn is_finite(self) -> bool {
        self.value().is_finite()
    }

    fn is_nan(self) -> bool {
        self.value().is_nan()
    }

    fn abs(self) -> Self {
        if self < 0.0 { -self } else { self }
    }

    /// Of two defined numbers.
    fn max(self, other: Self) -> Self {
        if other > self { other } else { self }
    }

    /// Of two defined numbers.
    fn min(self, other: Self) -> Self {
        if other < self { other } else { self }
    }

    fn sin(self) -> Self {
        Self::unary(Unary::Sin, self)
    }

    fn cos(self) -> Self {
        Self::unary(Unary::Cos, self)
    }

    fn atan(self) -> Self {
        Self::unary(Unary::Atan, self)
    }

    /// 1, 0, or NaN when a side is NA or infinite.
    fn compare(op: CompareOp, a: Self, b: Self) -> Self {
        let truth = match op {
            CompareOp::Less => a < b,
            CompareOp::LessEqual => a <= b,
            CompareOp::Greater => a > b,
            CompareOp::GreaterEqual => a >= b,
            CompareOp::Equal => a == b,
            CompareOp::NotEqual => a != b,
        };
        if a.is_finite() && b.is_finite() { Self::truth(truth) } else { Self::NAN }
    }
}

impl Number for f64 {
    const ZERO: Self = 0.0;
    const NAN: Self = f64::NAN;

    fn of(x: f64) -> Self {
        x
    }

    fn value(self) -> f64 {
        self
    }

    fn sqrt(self) -> Self {
        f64::sqrt(self)
    }

    /// Partials that do not overlap (Shewchuk).
    fn sum(values: &[f64]) -> f64 {
        let mut partials: Vec<f64> = Vec::new();
        for &value in values {
            let mut x = value;
            let mut kept = Vec::new();
            for &y in &partials {
                let (big, small) = if x.abs() < y.abs() { (y, x) } else { (x, y) };
                let sum = big + small;
                let error = small - (sum - big);
                if error != 0.0 {
                    kept.push(error);
                }
                x = sum;
            }
            kept.push(x);
            partials = kept;
        }
        partials.iter().sum()
    }

    fn unary(op: Unary, x: Self) -> Self {
        scalar::unary(op, x)
    }

    fn binary(op: Binary, a: Self, b: Self) -> Self {
        scalar::binary(op, a, b)
    }
}
