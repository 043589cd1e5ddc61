//! The element-wise functions on single values: the one definition that constant folding, the CPU engine and its
//! oracle share. Transcendental ones are those of [`elementary`], so that they give the same bits on every machine.

use crate::ast::CompareOp;
use crate::elementary;
use crate::graph::{Binary, Unary};

/// Comparisons closer than this, relative to the larger side or 1, are flagged `edge`: rounding could turn them.
pub const EDGE_TOLERANCE: f64 = 1e-9;

/// TA-Lib's idea of zero.
pub const TALIB_EPSILON: f64 = 1e-14;

/// See [`Unary`].
#[inline(always)]
pub fn unary(op: Unary, x: f64) -> f64 {
    match op {
        Unary::Negate => -x,
        Unary::Abs => x.abs(),
        Unary::Sqrt => x.sqrt(),
        Unary::Log => {
            if x > 0.0 {
                elementary::ln(x)
            } else {
                f64::NAN
            }
        }
        Unary::Exp => elementary::exp(x),
        Unary::Sign => {
            if x > 0.0 {
                1.0
            } else if x < 0.0 {
                -1.0
            } else {
                x + 0.0
            }
        }
        Unary::Round => round_half_even(x),
        Unary::Ceil => x.ceil(),
        Unary::Floor => x.floor(),
        Unary::Ln => elementary::ln(x),
        Unary::Log10 => elementary::log10(x),
        Unary::Sin => elementary::sin(x),
        Unary::Cos => elementary::cos(x),
        Unary::Tan => elementary::tan(x),
        Unary::Asin => elementary::asin(x),
        Unary::Acos => elementary::acos(x),
        Unary::Atan => elementary::atan(x),
        Unary::Sinh => elementary::sinh(x),
        Unary::Cosh => elementary::cosh(x),
        Unary::Tanh => elementary::tanh(x),
    }
}

/// Adding and taking away 2^52 rounds to an integer in the current mode, which is half to even.
#[inline(always)]
fn round_half_even(x: f64) -> f64 {
    const TWO_52: f64 = 4_503_599_627_370_496.0;
    let rounded = ((x.abs() + TWO_52) - TWO_52).copysign(x);
    if x.abs() < TWO_52 { rounded } else { x }
}

/// See [`Binary`].
#[inline(always)]
pub fn binary(op: Binary, a: f64, b: f64) -> f64 {
    match op {
        Binary::Add => a + b,
        Binary::Subtract => a - b,
        Binary::Multiply => a * b,
        Binary::Divide => {
            if b == 0.0 {
                f64::NAN
            } else {
                a / b
            }
        }
        Binary::Quotient => a / b,
        Binary::Remainder => remainder(a, b),
        Binary::Maximum => {
            if a > b || a.is_nan() {
                a
            } else {
                b
            }
        }
        Binary::Minimum => {
            if a < b || a.is_nan() {
                a
            } else {
                b
            }
        }
        Binary::Power => power(a, b),
        Binary::RatioOrZero => {
            let ratio = a / b;
            if b == 0.0 && a.is_finite() { 0.0 } else { ratio }
        }
        Binary::RatioOrZeroEpsilon => {
            let ratio = a / b;
            if b.abs() < TALIB_EPSILON && a.is_finite() { 0.0 } else { ratio }
        }
        Binary::MaskUndefined => {
            if b.is_finite() {
                a
            } else {
                f64::NAN
            }
        }
        Binary::Coalesce => {
            if a.is_nan() {
                b
            } else {
                a
            }
        }
        Binary::Near => {
            let near = (a - b).abs() <= EDGE_TOLERANCE * a.abs().max(b.abs()).max(1.0);
            if defined(a, b) { f64::from(u8::from(near)) } else { f64::NAN }
        }
    }
}

/// Floored: the result has the divisor's sign, and a = b*floor(a/b) + (a % b) up to rounding.
fn remainder(a: f64, b: f64) -> f64 {
    if b == 0.0 {
        return f64::NAN;
    }
    let r = a % b;
    if r != 0.0 && (r < 0.0) != (b < 0.0) { r + b } else { r }
}

/// `pow(0, negative)` and `pow(negative, fraction)` are undefined; so is a power of NA, even NA^0.
fn power(a: f64, b: f64) -> f64 {
    if a.is_nan() || b.is_nan() || (a == 0.0 && b < 0.0) { f64::NAN } else { elementary::pow(a, b) }
}

fn defined(a: f64, b: f64) -> bool {
    a.is_finite() && b.is_finite()
}

/// 1, 0, or NaN when a side is NA or infinite.
#[inline(always)]
pub fn compare(op: CompareOp, a: f64, b: f64) -> f64 {
    let truth = match op {
        CompareOp::Less => a < b,
        CompareOp::LessEqual => a <= b,
        CompareOp::Greater => a > b,
        CompareOp::GreaterEqual => a >= b,
        CompareOp::Equal => a == b,
        CompareOp::NotEqual => a != b,
    };
    if defined(a, b) { f64::from(u8::from(truth)) } else { f64::NAN }
}

/// Kleene and.
#[inline(always)]
pub fn and(a: f64, b: f64) -> f64 {
    if a == 0.0 || b == 0.0 { 0.0 } else { a * b }
}

/// Kleene or.
#[inline(always)]
pub fn or(a: f64, b: f64) -> f64 {
    if a == 1.0 || b == 1.0 { 1.0 } else { a + b }
}

/// Kleene not.
#[inline(always)]
pub fn not(a: f64) -> f64 {
    1.0 - a
}

/// `a` where true, `b` where false, NA where NA.
#[inline(always)]
pub fn select(condition: f64, a: f64, b: f64) -> f64 {
    if condition == 1.0 {
        a
    } else if condition == 0.0 {
        b
    } else {
        f64::NAN
    }
}
