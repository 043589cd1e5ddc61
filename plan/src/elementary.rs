//! Exponentials, logarithms, powers, angles: the elementary functions of every engine, within 0.51 units in the last place.
//!
//! The same text is `kernels/cuda/math.cuh`, `angle.cuh` and `power.cuh`, operation for operation, and each operation is one
//! of IEEE 754 on `f64` or one on integers, rounded once. No fused multiply-add is used, so the bits do not depend on the
//! machine, the compiler or a library. A change here is a change there, and another `NUMERICS_ID`.
//!
//! Method: a table brings the argument near a point where the function is known to about 79 bits; what is left is
//! small, so that the rounded operations of a short polynomial err by much less than the result's last place. The sum of both
//! is a [`Pair`], rounded once at the end. Products that have to be exact are products of short numbers ([`upper`]).
//! `tools/make_elementary.py` computes the constants; docs/adr/0022 says why, docs/accuracy.md how large the errors are.

mod angle;
mod arc;
mod exponential;
mod logarithm;
#[rustfmt::skip]
mod tables;
#[cfg(test)]
mod tests;

pub use angle::{cos, sin, tan};
pub use arc::{acos, asin, atan};
pub use exponential::{cosh, exp, sinh, tanh};
pub use logarithm::{ln, log10, pow};

/// An unevaluated sum; the second part is small beside the first.
#[derive(Clone, Copy)]
struct Pair {
    high: f64,
    low: f64,
}

impl Pair {
    /// The exact sum of two numbers. `a` is 0, or not smaller than `b` in size, or a multiple of `b`'s last place.
    #[inline(always)]
    fn sum(a: f64, b: f64) -> Self {
        let high = a + b;
        Self { high, low: b - (high - a) }
    }

    /// Rounded to one number.
    #[inline(always)]
    fn value(self) -> f64 {
        self.high + self.low
    }

    /// The quotient of two pairs, to about 2^-75 of itself.
    #[inline(always)]
    fn over(self, divisor: Self) -> Self {
        let inverse = 1.0 / divisor.high;
        let quotient = self.high * inverse;
        let (short, divisor_short) = (upper(quotient), upper(divisor.high));
        let rest = ((self.high - short * divisor_short)
            - (short * (divisor.high - divisor_short) + (quotient - short) * divisor.high))
            + (self.low - quotient * divisor.low);
        Self { high: quotient, low: rest * inverse }
    }
}

/// The first 26 bits of the significand: a product of two such numbers is exact.
#[inline(always)]
fn upper(x: f64) -> f64 {
    f64::from_bits(x.to_bits() & 0xffff_ffff_f800_0000)
}

/// x, or -x where `flipped` is all ones.
#[inline(always)]
fn with_sign(x: f64, flipped: u64) -> f64 {
    f64::from_bits(x.to_bits() ^ (flipped & 1 << 63))
}

/// Added and taken away again, it rounds a number below 2^51 in size to a whole one; the sum's last bits are that number's.
const TO_WHOLE: f64 = 6_755_399_441_055_744.0;

/// The nearest whole number below 2^31 in size.
#[inline(always)]
fn nearest(x: f64) -> (f64, i32) {
    let shifted = x + TO_WHOLE;
    (shifted - TO_WHOLE, shifted.to_bits() as i32)
}

/// 2^n, which must be a normal number.
#[inline(always)]
fn power_of_two(n: i32) -> f64 {
    f64::from_bits(((0x3ff + i64::from(n)) as u64) << 52)
}
