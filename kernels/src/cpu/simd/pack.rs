//! A row in registers. One trait abstracts over instruction sets, so that a step is written once and its code does not
//! depend on the compiler's vectoriser.
//!
//! Every operation rounds at most once, as in IEEE 754, so each instruction set gives the same bits.

use std::ops::{Add, BitAnd, BitOr, Div, Mul, Sub};

use crate::cpu::simd::float::Real;
use crate::cpu::simd::vector::{LANES, RowOf};

/// One truth value per lane.
pub(crate) trait Mask: Copy + BitAnd<Output = Self> + BitOr<Output = Self> {
    /// Whether it holds in every lane.
    fn all(self) -> bool;
    /// Where it holds and `other` does not.
    fn and_not(self, other: Self) -> Self;
    /// One bit a lane, the first lane's lowest.
    fn bits(self) -> LaneBits;
    /// The reverse of [`Self::bits`].
    fn of_bits(bits: LaneBits) -> Self;
}

/// Truth values of a row, one bit a lane.
pub(crate) type LaneBits = u16;
const _: () = assert!(LANES == LaneBits::BITS as usize);

/// One row of lanes.
pub(crate) trait Pack<T: Real>:
    Copy + Add<Output = Self> + Sub<Output = Self> + Mul<Output = Self> + Div<Output = Self>
{
    type Mask: Mask;

    fn splat(x: T) -> Self;
    fn load(row: &RowOf<T>) -> Self;
    fn store(self, row: &mut RowOf<T>);
    fn sqrt(self) -> Self;
    fn abs(self) -> Self;
    fn negate(self) -> Self;
    /// See [`Real::leading`].
    fn leading(self) -> Self;
    /// `self` where it is larger, else `other`: also `other` where either is NaN.
    fn larger(self, other: Self) -> Self;
    /// `self` where it is smaller, else `other`: also `other` where either is NaN.
    fn smaller(self, other: Self) -> Self;
    fn lt(self, other: Self) -> Self::Mask;
    fn le(self, other: Self) -> Self::Mask;
    fn eq(self, other: Self) -> Self::Mask;
    fn is_nan(self) -> Self::Mask;
    /// `a` where the mask holds, else `b`.
    fn select(mask: Self::Mask, a: Self, b: Self) -> Self;
    /// `self + other`. `one` is 1 in every lane: on machines with separate multiply and add units, the sum is computed
    /// as a fused product with `one`, which is exact.
    fn add_beside(self, other: Self, one: Self) -> Self;

    #[inline(always)]
    fn of(x: f64) -> Self {
        Self::splat(T::of(x))
    }

    #[inline(always)]
    fn zero() -> Self {
        Self::splat(T::ZERO)
    }

    #[inline(always)]
    fn na() -> Self {
        Self::splat(T::NAN)
    }

    #[inline(always)]
    fn is_finite(self) -> Self::Mask {
        self.abs().lt(Self::splat(T::INFINITY))
    }

    /// `self` + `one` where the mask holds. `one` is 1 in every lane.
    #[inline(always)]
    fn counted(self, mask: Self::Mask, _one: Self) -> Self {
        self + Self::truth(mask)
    }

    /// 1 where the mask holds, else 0.
    #[inline(always)]
    fn truth(mask: Self::Mask) -> Self {
        Self::select(mask, Self::splat(T::ONE), Self::zero())
    }

    /// `self` where `mask` holds, else NA.
    #[inline(always)]
    fn only(self, mask: Self::Mask) -> Self {
        Self::select(mask, self, Self::na())
    }

    /// `self` where finite, else NA.
    #[inline(always)]
    fn defined(self) -> Self {
        self.only(self.is_finite())
    }
}

/// A row as an array, for any machine.
#[derive(Clone, Copy)]
pub(crate) struct Portable<T>([T; LANES]);

/// The first lane of a row, for any machine; the other lanes are neither read nor written.
#[derive(Clone, Copy)]
pub(crate) struct One<T>(T);

impl Mask for bool {
    #[inline(always)]
    fn all(self) -> bool {
        self
    }

    #[inline(always)]
    fn and_not(self, other: Self) -> Self {
        self & !other
    }

    #[inline(always)]
    fn bits(self) -> LaneBits {
        self.into()
    }

    #[inline(always)]
    fn of_bits(bits: LaneBits) -> Self {
        bits & 1 == 1
    }
}

impl<T: Real> Pack<T> for One<T> {
    type Mask = bool;

    #[inline(always)]
    fn splat(x: T) -> Self {
        Self(x)
    }

    #[inline(always)]
    fn load(row: &RowOf<T>) -> Self {
        Self(row.0[0])
    }

    #[inline(always)]
    fn store(self, row: &mut RowOf<T>) {
        row.0[0] = self.0;
    }

    #[inline(always)]
    fn sqrt(self) -> Self {
        Self(self.0.sqrt())
    }

    #[inline(always)]
    fn abs(self) -> Self {
        Self(self.0.abs())
    }

    #[inline(always)]
    fn negate(self) -> Self {
        Self(-self.0)
    }

    #[inline(always)]
    fn leading(self) -> Self {
        Self(self.0.leading())
    }

    #[inline(always)]
    fn larger(self, other: Self) -> Self {
        if self.0 > other.0 { self } else { other }
    }

    #[inline(always)]
    fn smaller(self, other: Self) -> Self {
        if self.0 < other.0 { self } else { other }
    }

    #[inline(always)]
    fn lt(self, other: Self) -> bool {
        self.0 < other.0
    }

    #[inline(always)]
    fn le(self, other: Self) -> bool {
        self.0 <= other.0
    }

    #[inline(always)]
    fn eq(self, other: Self) -> bool {
        self.0 == other.0
    }

    #[inline(always)]
    #[expect(clippy::eq_op, reason = "NaN alone differs from itself")]
    fn is_nan(self) -> bool {
        self.0 != self.0
    }

    #[inline(always)]
    fn select(mask: bool, a: Self, b: Self) -> Self {
        if mask { a } else { b }
    }

    #[inline(always)]
    fn add_beside(self, other: Self, _one: Self) -> Self {
        self + other
    }
}

/// Truth values as an array.
#[derive(Clone, Copy)]
pub(crate) struct Flags([bool; LANES]);

impl Flags {
    #[inline(always)]
    fn each(f: impl Fn(usize) -> bool) -> Self {
        let mut flags = [false; LANES];
        for (lane, flag) in flags.iter_mut().enumerate() {
            *flag = f(lane);
        }
        Self(flags)
    }
}

impl BitAnd for Flags {
    type Output = Self;
    #[inline(always)]
    fn bitand(self, other: Self) -> Self {
        Self::each(|i| self.0[i] & other.0[i])
    }
}

impl BitOr for Flags {
    type Output = Self;
    #[inline(always)]
    fn bitor(self, other: Self) -> Self {
        Self::each(|i| self.0[i] | other.0[i])
    }
}

impl Mask for Flags {
    #[inline(always)]
    fn all(self) -> bool {
        self.0.iter().fold(true, |all, flag| all & flag)
    }

    #[inline(always)]
    fn and_not(self, other: Self) -> Self {
        Self::each(|i| self.0[i] & !other.0[i])
    }

    #[inline(always)]
    fn bits(self) -> LaneBits {
        self.0.iter().rev().fold(0, |bits, flag| bits << 1 | LaneBits::from(*flag))
    }

    #[inline(always)]
    fn of_bits(bits: LaneBits) -> Self {
        Self::each(|i| bits >> i & 1 == 1)
    }
}

impl<T: Real> Portable<T> {
    #[inline(always)]
    fn each(f: impl Fn(usize) -> T) -> Self {
        let mut lanes = [T::ZERO; LANES];
        for (lane, x) in lanes.iter_mut().enumerate() {
            *x = f(lane);
        }
        Self(lanes)
    }
}

macro_rules! portable {
    ($($trait:ident $method:ident $op:tt),+) => {$(
        impl<T: Real> $trait for Portable<T> {
            type Output = Self;
            #[inline(always)]
            fn $method(self, other: Self) -> Self {
                Self::each(|i| self.0[i] $op other.0[i])
            }
        }
    )+};
}

portable!(Add add +, Sub sub -, Mul mul *, Div div /);

macro_rules! one {
    ($($trait:ident $method:ident $op:tt),+) => {$(
        impl<T: Real> $trait for One<T> {
            type Output = Self;
            #[inline(always)]
            fn $method(self, other: Self) -> Self {
                Self(self.0 $op other.0)
            }
        }
    )+};
}

one!(Add add +, Sub sub -, Mul mul *, Div div /);

impl<T: Real> Pack<T> for Portable<T> {
    type Mask = Flags;

    #[inline(always)]
    fn splat(x: T) -> Self {
        Self([x; LANES])
    }

    #[inline(always)]
    fn load(row: &RowOf<T>) -> Self {
        Self(row.0)
    }

    #[inline(always)]
    fn store(self, row: &mut RowOf<T>) {
        row.0 = self.0;
    }

    #[inline(always)]
    fn sqrt(self) -> Self {
        Self::each(|i| self.0[i].sqrt())
    }

    #[inline(always)]
    fn abs(self) -> Self {
        Self::each(|i| self.0[i].abs())
    }

    #[inline(always)]
    fn negate(self) -> Self {
        Self::each(|i| -self.0[i])
    }

    #[inline(always)]
    fn leading(self) -> Self {
        Self::each(|i| self.0[i].leading())
    }

    #[inline(always)]
    fn larger(self, other: Self) -> Self {
        Self::each(|i| if self.0[i] > other.0[i] { self.0[i] } else { other.0[i] })
    }

    #[inline(always)]
    fn smaller(self, other: Self) -> Self {
        Self::each(|i| if self.0[i] < other.0[i] { self.0[i] } else { other.0[i] })
    }

    #[inline(always)]
    fn lt(self, other: Self) -> Flags {
        Flags::each(|i| self.0[i] < other.0[i])
    }

    #[inline(always)]
    fn le(self, other: Self) -> Flags {
        Flags::each(|i| self.0[i] <= other.0[i])
    }

    #[inline(always)]
    fn eq(self, other: Self) -> Flags {
        Flags::each(|i| self.0[i] == other.0[i])
    }

    #[inline(always)]
    #[expect(clippy::eq_op, reason = "NaN alone differs from itself")]
    fn is_nan(self) -> Flags {
        Flags::each(|i| self.0[i] != self.0[i])
    }

    #[inline(always)]
    fn select(mask: Flags, a: Self, b: Self) -> Self {
        Self::each(|i| if mask.0[i] { a.0[i] } else { b.0[i] })
    }

    #[inline(always)]
    fn add_beside(self, other: Self, _one: Self) -> Self {
        self + other
    }
}
