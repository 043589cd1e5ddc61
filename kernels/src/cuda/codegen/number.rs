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

/// Rounds a parameter of a plan to the number type.
pub(crate) fn rounded(precision: Precision, x: f64) -> f64 {
    match precision {
        Precision::F64 => x,
        Precision::F32 => f64::from(x as f32),
    }
}
