//! The number type of a kernel's series.

use crate::Precision;

/// Threads of a warp.
const LANES: usize = 32;

/// Bytes of a number of a kernel's series: `real` of `kernels/cuda/base.cuh`.
pub(crate) const fn number_bytes(precision: Precision) -> usize {
    match precision {
        Precision::F64 => size_of::<f64>(),
        Precision::F32 => size_of::<f32>(),
    }
}

/// Bytes of one bar of a group of symbols, in shared memory and elsewhere.
pub(crate) const fn row_bytes(precision: Precision) -> usize {
    LANES * number_bytes(precision)
}

/// Rows that one slot of a ring takes, if its step is wide or not.
pub(crate) const fn rows_of_slot(precision: Precision, wide: bool) -> usize {
    if wide { size_of::<f64>() / number_bytes(precision) } else { 1 }
}

/// Maximum whole number that is divided by as one: `f32` has all of these.
const WHOLE_MAX: f64 = 1e6;

/// A whole number, its inverse, and the inverse's rounding error: dividing by it takes two operations, or five of `f32`,
/// which need no rounding error (`divided` in base.cuh).
pub(crate) fn divisor(by: u64, precision: Precision) -> [f64; 3] {
    let by = rounded(precision, by as f64);
    let share = 1.0 / by;
    [by, rounded(precision, share), (-by).mul_add(share, 1.0) / by]
}

/// The inverse and its rounding error of a constant, if it is a whole number above 0 that [`divisor`] is right for.
pub(crate) fn whole_divisor(by: f64, precision: Precision) -> Option<[f64; 2]> {
    if !(1.0..=WHOLE_MAX).contains(&by) || by.fract() != 0.0 {
        return None;
    }
    let [_, share, rest] = divisor(by as u64, precision);
    Some([share, rest])
}

/// Rounds a parameter of a plan to the number type.
pub(crate) fn rounded(precision: Precision, x: f64) -> f64 {
    match precision {
        Precision::F64 => x,
        Precision::F32 => f64::from(x as f32),
    }
}
