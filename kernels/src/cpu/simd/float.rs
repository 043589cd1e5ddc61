//! The two number types that steps run in.

use std::ops::{Add, Div, Mul, Neg, Sub};

use crate::cpu::simd::pack::{Pack, Portable};
#[cfg(target_arch = "x86_64")]
use crate::cpu::simd::pack_x86::{Avx2F32, Avx2F64, Avx512F32, Avx512F64};
use crate::cpu::simd::spread;
use crate::cpu::simd::vector::{AnyStep, Isa, RowOf};
use crate::cpu::simd::widened::Widened;

/// `f64` or `f32`, and the packs that hold a row of it.
pub(crate) trait Real:
    Copy
    + Send
    + Sync
    + PartialOrd
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Neg<Output = Self>
    + 'static
{
    const NAN: Self;
    const ZERO: Self;
    const ONE: Self;
    const INFINITY: Self;
    /// Magnitude whose addition and subtraction round to an integer.
    const INTEGER: Self;
    /// Bars per strip: a series of a strip is 4 KiB, so a dozen series stay in the first-level cache.
    const STRIP_BARS: usize = 4096 / size_of::<RowOf<Self>>();
    /// Whether running totals have to be compensated in this type.
    const SHORT: bool;
    /// Rows of NA, for what lies before the first bar.
    const NA_ROWS: &'static [RowOf<Self>];

    type Portable: Pack<Self>;
    #[cfg(target_arch = "x86_64")]
    type Avx2: Pack<Self>;
    #[cfg(target_arch = "x86_64")]
    type Avx512: Pack<Self>;

    /// Rounds to the nearest value of this type.
    fn of(x: f64) -> Self;
    /// Converts to `f64`; exact.
    fn wide(self) -> f64;
    fn abs(self) -> Self;
    fn sqrt(self) -> Self;
    fn is_finite(self) -> bool;
    /// The value without the lower half of its digits, so that its product with a whole number of at most as many
    /// digits is exact.
    fn leading(self) -> Self;
    /// Mask of the bits that [`Self::leading`] keeps, as a number.
    const LEADING: Self;
    /// Writes rows lane by lane: the value of row i and lane k to `to[k * stride + i]`, NaNs as [`f64::NAN`]. With the code of `isa`,
    /// which this machine must support.
    ///
    /// # Panics
    /// `to` is too short.
    fn spread(isa: Isa, rows: &[RowOf<Self>], to: &mut [f64], stride: usize);
    /// Adapts a step that exists in `f64` only, and reads `back` rows back, to series of this type.
    fn narrow(step: Box<dyn AnyStep>, back: usize, bars: usize) -> Box<dyn AnyStep<Self>>;
}

macro_rules! real {
    ($t:ident, $integer:literal, $lower:literal, $avx2:ident, $avx512:ident, $spread:expr, |$step:ident, $back:ident, $bars:ident| $narrow:expr) => {
        impl Real for $t {
            const NAN: Self = $t::NAN;
            const ZERO: Self = 0.0;
            const ONE: Self = 1.0;
            const INFINITY: Self = $t::INFINITY;
            const INTEGER: Self = $integer;
            const LEADING: Self = $t::from_bits(!((1 << $lower) - 1));
            const SHORT: bool = size_of::<$t>() < 8;
            const NA_ROWS: &'static [RowOf<Self>] = &[RowOf::NA; 16];

            type Portable = Portable<$t>;
            #[cfg(target_arch = "x86_64")]
            type Avx2 = $avx2;
            #[cfg(target_arch = "x86_64")]
            type Avx512 = $avx512;

            #[inline(always)]
            fn of(x: f64) -> Self {
                x as $t
            }

            #[inline(always)]
            fn wide(self) -> f64 {
                f64::from(self)
            }

            #[inline(always)]
            fn abs(self) -> Self {
                $t::abs(self)
            }

            #[inline(always)]
            fn sqrt(self) -> Self {
                $t::sqrt(self)
            }

            #[inline(always)]
            fn is_finite(self) -> bool {
                $t::is_finite(self)
            }

            #[inline(always)]
            fn leading(self) -> Self {
                $t::from_bits(self.to_bits() & Self::LEADING.to_bits())
            }

            fn spread(isa: Isa, rows: &[RowOf<Self>], to: &mut [f64], stride: usize) {
                $spread(isa, rows, to, stride);
            }

            fn narrow($step: Box<dyn AnyStep>, $back: usize, $bars: usize) -> Box<dyn AnyStep<Self>> {
                $narrow
            }
        }
    };
}

real!(f64, 4_503_599_627_370_496.0, 26, Avx2F64, Avx512F64, spread::of_f64, |step, _back, _bars| step);
real!(f32, 8_388_608.0, 12, Avx2F32, Avx512F32, spread::of, |step, back, bars| Box::new(Widened::new(
    step, back, bars
)));
