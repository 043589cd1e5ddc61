//! Rows written lane by lane: the way from the engine's layout to one series for each symbol.
//!
//! Blocks of rows are transposed in registers: value by value, the way out took longer than many a step.

use crate::cpu::simd::float::Real;
use crate::cpu::simd::vector::{Isa, LANES, RowOf};

/// The value as it leaves the engine.
#[inline(always)]
fn canonical(x: f64) -> f64 {
    if x.is_nan() { f64::NAN } else { x }
}

/// See [`Real::spread`].
pub(crate) fn of<T: Real>(isa: Isa, rows: &[RowOf<T>], to: &mut [f64], stride: usize) {
    let lanes = if isa == Isa::OneLane { 1 } else { LANES };
    for lane in 0..lanes {
        let to = &mut to[lane * stride..][..rows.len()];
        for (row, value) in rows.iter().zip(to) {
            *value = canonical(row.0[lane].wide());
        }
    }
}

/// As [`of`], for `f64`.
pub(crate) fn of_f64(isa: Isa, rows: &[RowOf<f64>], to: &mut [f64], stride: usize) {
    #[cfg(target_arch = "x86_64")]
    if isa == Isa::Avx512 {
        let blocks = rows.len() / x86::ROWS * x86::ROWS;
        assert!(to.len() >= (LANES - 1) * stride + rows.len(), "a place for each value");
        let (whole, rest) = rows.split_at(blocks);
        for (at, block) in whole.chunks_exact(x86::ROWS).enumerate() {
            // SAFETY: `isa` says that the CPU has AVX-512; lane k of the block is written to the eight places from
            // `k * stride + at * ROWS` on, which are in `to` by the assertion above.
            unsafe { x86::spread(block, to.as_mut_ptr().add(at * x86::ROWS), stride) };
        }
        if !rest.is_empty() {
            of(isa, rest, &mut to[blocks..], stride);
        }
        return;
    }
    of(isa, rows, to, stride);
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use super::{LANES, RowOf};

    /// Rows of a block.
    pub const ROWS: usize = 8;

    /// Writes eight rows lane by lane, NaNs canonical.
    ///
    /// # Safety
    /// The CPU has AVX-512F. `rows` are [`ROWS`], and `to.add(lane * stride)` is the begin of as many places for each lane.
    #[target_feature(enable = "avx512f")]
    pub unsafe fn spread(rows: &[RowOf<f64>], to: *mut f64, stride: usize) {
        for first in (0..LANES).step_by(ROWS) {
            let row = |i: usize| {
                let row = &rows[i].0[first..first + ROWS];
                // SAFETY: eight values, as the slice says.
                let values = unsafe { _mm512_loadu_pd(row.as_ptr()) };
                let nan = _mm512_cmp_pd_mask::<_CMP_UNORD_Q>(values, values);
                _mm512_mask_blend_pd(nan, values, _mm512_set1_pd(f64::NAN))
            };
            let r = [row(0), row(1), row(2), row(3), row(4), row(5), row(6), row(7)];
            // Pairs of rows: lanes 0 2 4 6 and 1 3 5 7.
            let even = |i: usize| _mm512_unpacklo_pd(r[i], r[i + 1]);
            let odd = |i: usize| _mm512_unpackhi_pd(r[i], r[i + 1]);
            let store = |lane: usize, values: __m512d| {
                // SAFETY: the caller says that eight places begin there.
                unsafe { _mm512_storeu_pd(to.add((first + lane) * stride), values) }
            };
            for (odd_lanes, [a, b, c, d]) in
                [(0, [even(0), even(2), even(4), even(6)]), (1, [odd(0), odd(2), odd(4), odd(6)])]
            {
                // Quarters of a register are of two rows: 0b10_00_10_00 takes the first and third of both, the other the rest.
                let (ab_04, ab_26) =
                    (_mm512_shuffle_f64x2::<0b10_00_10_00>(a, b), _mm512_shuffle_f64x2::<0b11_01_11_01>(a, b));
                let (cd_04, cd_26) =
                    (_mm512_shuffle_f64x2::<0b10_00_10_00>(c, d), _mm512_shuffle_f64x2::<0b11_01_11_01>(c, d));
                store(odd_lanes, _mm512_shuffle_f64x2::<0b10_00_10_00>(ab_04, cd_04));
                store(odd_lanes + 4, _mm512_shuffle_f64x2::<0b11_01_11_01>(ab_04, cd_04));
                store(odd_lanes + 2, _mm512_shuffle_f64x2::<0b10_00_10_00>(ab_26, cd_26));
                store(odd_lanes + 6, _mm512_shuffle_f64x2::<0b11_01_11_01>(ab_26, cd_26));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_goes_to_its_lane_and_row_and_nothing_else_is_written() {
        let bits = |row: usize, lane: usize| match (row * LANES + lane) % 11 {
            // NaNs of both signs and any payload.
            0 => f64::from_bits(0xfff8_0000_0000_0123),
            1 => f64::from_bits(0x7ff0_0000_0000_0001),
            2 => f64::NEG_INFINITY,
            3 => -0.0,
            _ => (row * 100 + lane) as f64,
        };
        for count in 0..=33 {
            let rows: Vec<RowOf<f64>> =
                (0..count).map(|row| RowOf(std::array::from_fn(|lane| bits(row, lane)))).collect();
            for isa in Isa::all() {
                let stride = count + 3;
                let mut to = vec![-7.0; LANES * stride];
                f64::spread(isa, &rows, &mut to, stride);
                for (at, value) in to.iter().enumerate() {
                    let (lane, row) = (at / stride, at % stride);
                    let expected = if row < count { canonical(bits(row, lane)) } else { -7.0 };
                    assert_eq!(value.to_bits(), expected.to_bits(), "{isa:?} {count}: row {row} of lane {lane}");
                }
            }
        }
    }
}
