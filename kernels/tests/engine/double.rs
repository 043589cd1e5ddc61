//! Double-double numbers: the unevaluated sum of two `f64`, about 32 digits. Errors of `f64` are measured against it.
//! Algorithms: Dekker, A floating-point technique for extending the available precision (1971); elementary functions by
//! argument reduction and Taylor series, their inverses by one Newton step from the `f64` value.

use std::cmp::Ordering;
use std::ops::{Add, AddAssign, Div, Mul, MulAssign, Neg, Sub, SubAssign};

use trawl_plan::elementary;
use trawl_plan::graph::{Binary, Unary};
use trawl_plan::scalar::{self, EDGE_TOLERANCE, TALIB_EPSILON};

use super::number::Number;

/// `high + low`, where `high` is the sum rounded. `low` is 0 where `high` is not finite.
#[derive(Debug, Clone, Copy)]
pub struct Double {
    high: f64,
    low: f64,
}

const HALF_PI: Double = Double { high: std::f64::consts::FRAC_PI_2, low: 6.123_233_995_736_766e-17 };
const LN_2: Double = Double { high: std::f64::consts::LN_2, low: 2.319_046_813_846_299_6e-17 };
const LN_10: Double = Double { high: std::f64::consts::LN_10, low: -2.170_756_223_382_249_4e-16 };

/// Terms of a Taylor series whose argument is below 1.
const TERMS: u32 = 30;

impl Double {
    fn two_sum(a: f64, b: f64) -> Self {
        let sum = a + b;
        let there = sum - a;
        Self { high: sum, low: (a - (sum - there)) + (b - there) }.sound()
    }

    fn two_product(a: f64, b: f64) -> Self {
        let product = a * b;
        Self { high: product, low: a.mul_add(b, -product) }.sound()
    }

    fn sound(self) -> Self {
        if self.high.is_finite() && self.low.is_finite() { self } else { Self { high: self.high, low: 0.0 } }
    }

    fn floor(self) -> Self {
        let high = self.high.floor();
        if high == self.high { Self::two_sum(high, self.low.floor()) } else { Self::of(high) }
    }

    fn exp(self) -> Self {
        if self.high.is_nan() || self.high.abs() >= 700.0 {
            return Self::of(elementary::exp(self.high));
        }
        let whole = (self.high / LN_2.high).round();
        // 2^-6 of the rest converges fast; its exponential is squared six times.
        let rest = (self - LN_2 * whole) / 64.0;
        let (mut term, mut sum) = (Self::of(1.0), Self::of(1.0));
        for k in 1..TERMS {
            term = term * rest / f64::from(k);
            sum += term;
        }
        let power = (0..6).fold(sum, |x, _| x * x);
        power * 2f64.powi(whole as i32)
    }

    fn ln(self) -> Self {
        let first = Self::of(elementary::ln(self.high));
        if first.is_finite() { first + (self * (-first).exp() - 1.0) } else { first }
    }

    /// Sine and cosine.
    fn turn(self) -> (Self, Self) {
        if self.high.is_nan() || self.high.abs() >= 1e15 {
            return (Self::of(elementary::sin(self.high)), Self::of(elementary::cos(self.high)));
        }
        let quarters = (self.high / HALF_PI.high).round();
        let x = self - HALF_PI * quarters;
        let (mut sine, mut cosine, mut term) = (Self::ZERO, Self::ZERO, Self::of(1.0));
        for k in 0..TERMS {
            match k % 4 {
                0 => cosine += term,
                1 => sine += term,
                2 => cosine -= term,
                _ => sine -= term,
            }
            term = term * x / f64::from(k + 1);
        }
        match quarters.rem_euclid(4.0) {
            0.0 => (sine, cosine),
            1.0 => (cosine, -sine),
            2.0 => (-sine, -cosine),
            _ => (-cosine, sine),
        }
    }

    fn arc_tangent(self) -> Self {
        let first = Self::of(elementary::atan(self.high));
        let (sine, cosine) = first.turn();
        // The tangent of the remainder is the remainder.
        let left = (self * cosine - sine) / (cosine + self * sine);
        if left.is_finite() { first + left } else { first }
    }

    fn arc_sine(self) -> Self {
        let height = (Self::of(1.0) - self * self).sqrt();
        if height == 0.0 { HALF_PI * self } else { (self / height).arc_tangent() }
    }

    /// The value where the function has no step within reach of an `f64`: rounding and signs.
    fn stepped(op: Unary, x: Self) -> Self {
        match op {
            Unary::Floor => x.floor(),
            Unary::Ceil => -(-x).floor(),
            Unary::Sign => Self::of(scalar::unary(op, x.high)),
            _ => {
                let (below, half) = (x.floor(), Self::of(0.5));
                let rest = x - below;
                let odd = (below / 2.0).floor() * 2.0 != below;
                if rest > half || (rest == half && odd) { below + 1.0 } else { below }
            }
        }
    }
}

impl PartialEq for Double {
    fn eq(&self, other: &Self) -> bool {
        self.high == other.high && self.low == other.low
    }
}

impl PartialOrd for Double {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        match self.high.partial_cmp(&other.high)? {
            Ordering::Equal => self.low.partial_cmp(&other.low),
            unequal => Some(unequal),
        }
    }
}

impl PartialEq<f64> for Double {
    fn eq(&self, other: &f64) -> bool {
        *self == Self::of(*other)
    }
}

impl PartialOrd<f64> for Double {
    fn partial_cmp(&self, other: &f64) -> Option<Ordering> {
        self.partial_cmp(&Self::of(*other))
    }
}

impl Neg for Double {
    type Output = Self;

    fn neg(self) -> Self {
        Self { high: -self.high, low: -self.low }
    }
}

impl Add for Double {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        let (high, low) = (Self::two_sum(self.high, other.high), Self::two_sum(self.low, other.low));
        let middle = Self::two_sum(high.high, high.low + low.high);
        Self::two_sum(middle.high, middle.low + low.low)
    }
}

impl Sub for Double {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        self + -other
    }
}

impl Mul for Double {
    type Output = Self;

    fn mul(self, other: Self) -> Self {
        let product = Self::two_product(self.high, other.high);
        if !product.high.is_finite() {
            return product;
        }
        Self::two_sum(product.high, product.low + (self.high * other.low + self.low * other.high))
    }
}

impl Div for Double {
    type Output = Self;

    fn div(self, other: Self) -> Self {
        let first = self.high / other.high;
        if !first.is_finite() || other.high.is_infinite() {
            return Self::of(first);
        }
        let rest = self - other * first;
        let second = rest.high / other.high;
        let rest = rest - other * second;
        Self::two_sum(first, second) + Self::of(rest.high / other.high)
    }
}

macro_rules! with_f64 {
    ($($operator:ident $function:ident)*) => {$(
        impl $operator<f64> for Double {
            type Output = Self;

            fn $function(self, other: f64) -> Self {
                self.$function(Self::of(other))
            }
        }
    )*};
}
with_f64!(Add add Sub sub Mul mul Div div);

macro_rules! assigned {
    ($($operator:ident $function:ident $plain:ident)*) => {$(
        impl $operator for Double {
            fn $function(&mut self, other: Self) {
                *self = self.$plain(other);
            }
        }
    )*};
}
assigned!(AddAssign add_assign add SubAssign sub_assign sub MulAssign mul_assign mul);

impl Number for Double {
    const ZERO: Self = Self { high: 0.0, low: 0.0 };
    const NAN: Self = Self { high: f64::NAN, low: 0.0 };

    fn of(x: f64) -> Self {
        Self { high: x, low: 0.0 }
    }

    fn value(self) -> f64 {
        self.high
    }

    fn sqrt(self) -> Self {
        let first = self.high.sqrt();
        if !first.is_finite() || first == 0.0 {
            return Self::of(first);
        }
        let rest = self - Self::two_product(first, first);
        Self::two_sum(first, rest.high / (2.0 * first))
    }

    fn sum(values: &[Self]) -> Self {
        values.iter().fold(Self::ZERO, |sum, x| sum + *x)
    }

    fn unary(op: Unary, x: Self) -> Self {
        if x.is_nan() {
            return x;
        }
        match op {
            Unary::Negate => -x,
            Unary::Abs => x.abs(),
            Unary::Sqrt => x.sqrt(),
            Unary::Log if x <= 0.0 => Self::NAN,
            Unary::Log | Unary::Ln => x.ln(),
            Unary::Log10 => x.ln() / LN_10,
            Unary::Exp => x.exp(),
            Unary::Sign | Unary::Round | Unary::Ceil | Unary::Floor => Self::stepped(op, x),
            Unary::Sin => x.turn().0,
            Unary::Cos => x.turn().1,
            Unary::Tan => x.turn().0 / x.turn().1,
            Unary::Asin | Unary::Acos if x.abs() > 1.0 => Self::NAN,
            Unary::Asin => x.arc_sine(),
            Unary::Acos => HALF_PI - x.arc_sine(),
            Unary::Atan => x.arc_tangent(),
            Unary::Sinh => (x.exp() - (-x).exp()) / 2.0,
            Unary::Cosh => (x.exp() + (-x).exp()) / 2.0,
            Unary::Tanh if x.abs() > 350.0 => Self::unary(Unary::Sign, x),
            Unary::Tanh => (x.exp() - (-x).exp()) / (x.exp() + (-x).exp()),
        }
    }

    fn binary(op: Binary, a: Self, b: Self) -> Self {
        match op {
            Binary::Add => a + b,
            Binary::Subtract => a - b,
            Binary::Multiply => a * b,
            Binary::Divide if b == 0.0 => Self::NAN,
            Binary::Divide | Binary::Quotient => a / b,
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
            Binary::RatioOrZero if b == 0.0 && a.is_finite() => Self::ZERO,
            Binary::RatioOrZeroEpsilon if b.abs() < TALIB_EPSILON && a.is_finite() => Self::ZERO,
            Binary::RatioOrZero | Binary::RatioOrZeroEpsilon => a / b,
            Binary::MaskUndefined => {
                if b.is_finite() {
                    a
                } else {
                    Self::NAN
                }
            }
            Binary::Coalesce => {
                if a.is_nan() {
                    b
                } else {
                    a
                }
            }
            Binary::Near if a.is_finite() && b.is_finite() => {
                Self::truth((a - b).abs() <= a.abs().max(b.abs()).max(Self::of(1.0)) * EDGE_TOLERANCE)
            }
            Binary::Near => Self::NAN,
            // Not used by any indicator; computed in `f64`.
            Binary::Remainder | Binary::Power => Self::of(scalar::binary(op, a.high, b.high)),
        }
    }
}
