//! Rows in the registers of AVX2 and AVX-512. The types exist everywhere on x86-64; values may be created only on a
//! machine with these instructions, which `vector` ensures.
#![allow(unused_unsafe)] // Masks of AVX-512 are plain integers, those of AVX2 are not.

use std::arch::x86_64::*;
use std::ops::{Add, BitAnd, BitOr, Div, Mul, Sub};

use crate::cpu::simd::float::Real;
use crate::cpu::simd::pack::{LaneBits, Mask, Pack};
use crate::cpu::simd::vector::{LANES, RowOf};

// SAFETY of every block in this file: the intrinsics need AVX2 or AVX-512 (F, DQ) and nothing else; these types are
// named only as `Real::Avx2` and `Real::Avx512`, whose sole users are functions compiled with these features, which
// run only where `Isa::detect` found them. Loads and stores go through references to whole rows.

macro_rules! wide {
    ($name:ident $mask:ident [$t:ty; $count:literal of $reg:ty; $($i:literal)+], masks $flags:ty,
     $set1:ident $loadu:ident $storeu:ident $add:ident $sub:ident $mul:ident $div:ident $sqrt:ident $max:ident $min:ident $and:ident $xor:ident,
     cmp $cmp:ident, select |$m:ident, $a:ident, $b:ident| $select:expr, fused |$x:ident, $y:ident, $one:ident| $fused:expr,
     counted |$counted:ident, $where:ident, $step:ident| $counting:expr,
     mask and $mand:expr, or $mor:expr, and not $mandnot:expr, all $mall:expr, bits $mbits:expr, of bits $mof:expr) => {
        #[derive(Clone, Copy)]
        pub(crate) struct $name([$reg; $count]);
        #[derive(Clone, Copy)]
        pub(crate) struct $mask([$flags; $count]);

        impl $name {
            const PER: usize = LANES / $count;
        }
        wide!(@ops $name [$($i)+] Add add $add, Sub sub $sub, Mul mul $mul, Div div $div);

        impl Pack<$t> for $name {
            type Mask = $mask;
            #[inline(always)]
            fn splat(x: $t) -> Self {
                Self([unsafe { $set1(x) }; $count])
            }
            #[inline(always)]
            fn load(row: &RowOf<$t>) -> Self {
                Self([$(unsafe { $loadu(row.0.as_ptr().add($i * Self::PER)) }),+])
            }
            #[inline(always)]
            fn store(self, row: &mut RowOf<$t>) {
                $(unsafe { $storeu(row.0.as_mut_ptr().add($i * Self::PER), self.0[$i]) };)+
            }
            #[inline(always)]
            fn sqrt(self) -> Self {
                Self([$(unsafe { $sqrt(self.0[$i]) }),+])
            }
            #[inline(always)]
            fn abs(self) -> Self {
                // Every bit but the sign's.
                let bits = Self::splat(<$t>::from_bits(!(-0.0 as $t).to_bits()));
                Self([$(unsafe { $and(self.0[$i], bits.0[$i]) }),+])
            }
            #[inline(always)]
            fn negate(self) -> Self {
                let sign = Self::splat(-0.0);
                Self([$(unsafe { $xor(self.0[$i], sign.0[$i]) }),+])
            }
            #[inline(always)]
            fn leading(self) -> Self {
                let bits = Self::splat(<$t as Real>::LEADING);
                Self([$(unsafe { $and(self.0[$i], bits.0[$i]) }),+])
            }
            #[inline(always)]
            fn larger(self, other: Self) -> Self {
                Self([$(unsafe { $max(self.0[$i], other.0[$i]) }),+])
            }
            #[inline(always)]
            fn smaller(self, other: Self) -> Self {
                Self([$(unsafe { $min(self.0[$i], other.0[$i]) }),+])
            }
            #[inline(always)]
            fn lt(self, other: Self) -> $mask {
                $mask([$(unsafe { $cmp::<_CMP_LT_OQ>(self.0[$i], other.0[$i]) }),+])
            }
            #[inline(always)]
            fn le(self, other: Self) -> $mask {
                $mask([$(unsafe { $cmp::<_CMP_LE_OQ>(self.0[$i], other.0[$i]) }),+])
            }
            #[inline(always)]
            fn eq(self, other: Self) -> $mask {
                $mask([$(unsafe { $cmp::<_CMP_EQ_OQ>(self.0[$i], other.0[$i]) }),+])
            }
            #[inline(always)]
            fn is_nan(self) -> $mask {
                $mask([$(unsafe { $cmp::<_CMP_UNORD_Q>(self.0[$i], self.0[$i]) }),+])
            }
            #[inline(always)]
            fn select(mask: $mask, a: Self, b: Self) -> Self {
                Self([$({
                    let ($m, $a, $b) = (mask.0[$i], a.0[$i], b.0[$i]);
                    unsafe { $select }
                }),+])
            }
            #[inline(always)]
            fn add_beside(self, other: Self, one: Self) -> Self {
                Self([$({
                    let ($x, $y, $one) = (self.0[$i], other.0[$i], one.0[$i]);
                    unsafe { $fused }
                }),+])
            }
            #[inline(always)]
            fn counted(self, mask: $mask, one: Self) -> Self {
                Self([$({
                    let ($counted, $where, $step) = (self.0[$i], mask.0[$i], one.0[$i]);
                    unsafe { $counting }
                }),+])
            }
        }

        impl BitAnd for $mask {
            type Output = Self;
            #[inline(always)]
            fn bitand(self, other: Self) -> Self {
                Self([$(unsafe { ($mand)(self.0[$i], other.0[$i]) }),+])
            }
        }
        impl BitOr for $mask {
            type Output = Self;
            #[inline(always)]
            fn bitor(self, other: Self) -> Self {
                Self([$(unsafe { ($mor)(self.0[$i], other.0[$i]) }),+])
            }
        }
        impl Mask for $mask {
            #[inline(always)]
            fn all(self) -> bool {
                true $(&& unsafe { ($mall)(self.0[$i]) })+
            }
            #[inline(always)]
            fn and_not(self, other: Self) -> Self {
                Self([$(unsafe { ($mandnot)(self.0[$i], other.0[$i]) }),+])
            }
            #[inline(always)]
            fn bits(self) -> LaneBits {
                0 $(| LaneBits::from(unsafe { ($mbits)(self.0[$i]) }) << ($i * $name::PER))+
            }
            #[inline(always)]
            fn of_bits(bits: LaneBits) -> Self {
                Self([$(unsafe { ($mof)(bits >> ($i * $name::PER)) }),+])
            }
        }
    };
    (@ops $name:ident [$($i:literal)+] $($trait:ident $method:ident $f:ident),+) => {
        wide!(@each $name [$($i)+]; $($trait $method $f),+);
    };
    (@each $name:ident $is:tt; $trait:ident $method:ident $f:ident $(, $($rest:tt)+)?) => {
        wide!(@one $name $is $trait $method $f);
        $(wide!(@each $name $is; $($rest)+);)?
    };
    (@one $name:ident [$($i:literal)+] $trait:ident $method:ident $f:ident) => {
        impl $trait for $name {
            type Output = Self;
            #[inline(always)]
            fn $method(self, other: Self) -> Self {
                Self([$(unsafe { $f(self.0[$i], other.0[$i]) }),+])
            }
        }
    };
}

wide!(Avx512F64 Mask8 [f64; 2 of __m512d; 0 1], masks __mmask8,
    _mm512_set1_pd _mm512_loadu_pd _mm512_storeu_pd _mm512_add_pd _mm512_sub_pd _mm512_mul_pd _mm512_div_pd
    _mm512_sqrt_pd _mm512_max_pd _mm512_min_pd _mm512_and_pd _mm512_xor_pd,
    cmp _mm512_cmp_pd_mask, select |m, a, b| _mm512_mask_blend_pd(m, b, a),
    fused |x, y, one| _mm512_fmadd_pd(x, one, y),
    counted |x, mask, one| _mm512_mask_add_pd(x, mask, x, one),
    mask and |a: u8, b: u8| a & b, or |a: u8, b: u8| a | b, and not |a: u8, b: u8| a & !b, all |a: u8| a == u8::MAX,
    bits |a: u8| a, of bits |bits: LaneBits| bits as u8);

wide!(Avx512F32 Mask16 [f32; 1 of __m512; 0], masks __mmask16,
    _mm512_set1_ps _mm512_loadu_ps _mm512_storeu_ps _mm512_add_ps _mm512_sub_ps _mm512_mul_ps _mm512_div_ps
    _mm512_sqrt_ps _mm512_max_ps _mm512_min_ps _mm512_and_ps _mm512_xor_ps,
    cmp _mm512_cmp_ps_mask, select |m, a, b| _mm512_mask_blend_ps(m, b, a),
    fused |x, y, one| _mm512_fmadd_ps(x, one, y),
    counted |x, mask, one| _mm512_mask_add_ps(x, mask, x, one),
    mask and |a: u16, b: u16| a & b, or |a: u16, b: u16| a | b, and not |a: u16, b: u16| a & !b, all |a: u16| a == u16::MAX,
    bits |a: u16| a, of bits |bits: LaneBits| bits);

wide!(Avx2F64 Flags4 [f64; 4 of __m256d; 0 1 2 3], masks __m256d,
    _mm256_set1_pd _mm256_loadu_pd _mm256_storeu_pd _mm256_add_pd _mm256_sub_pd _mm256_mul_pd _mm256_div_pd
    _mm256_sqrt_pd _mm256_max_pd _mm256_min_pd _mm256_and_pd _mm256_xor_pd,
    cmp _mm256_cmp_pd, select |m, a, b| _mm256_blendv_pd(b, a, m), fused |x, y, _one| _mm256_add_pd(x, y),
    counted |x, mask, one| _mm256_add_pd(x, _mm256_and_pd(mask, one)),
    mask and _mm256_and_pd, or _mm256_or_pd, and not not_pd, all all_pd, bits bits_pd, of bits of_bits_pd);

wide!(Avx2F32 Flags8 [f32; 2 of __m256; 0 1], masks __m256,
    _mm256_set1_ps _mm256_loadu_ps _mm256_storeu_ps _mm256_add_ps _mm256_sub_ps _mm256_mul_ps _mm256_div_ps
    _mm256_sqrt_ps _mm256_max_ps _mm256_min_ps _mm256_and_ps _mm256_xor_ps,
    cmp _mm256_cmp_ps, select |m, a, b| _mm256_blendv_ps(b, a, m), fused |x, y, _one| _mm256_add_ps(x, y),
    counted |x, mask, one| _mm256_add_ps(x, _mm256_and_ps(mask, one)),
    mask and _mm256_and_ps, or _mm256_or_ps, and not not_ps, all all_ps, bits bits_ps, of bits of_bits_ps);

#[inline]
#[target_feature(enable = "avx2")]
fn all_pd(a: __m256d) -> bool {
    _mm256_movemask_pd(a) == 0xf
}

#[inline]
#[target_feature(enable = "avx2")]
fn all_ps(a: __m256) -> bool {
    _mm256_movemask_ps(a) == 0xff
}

#[inline]
#[target_feature(enable = "avx2")]
fn not_pd(a: __m256d, b: __m256d) -> __m256d {
    _mm256_andnot_pd(b, a)
}

#[inline]
#[target_feature(enable = "avx2")]
fn not_ps(a: __m256, b: __m256) -> __m256 {
    _mm256_andnot_ps(b, a)
}

#[inline]
#[target_feature(enable = "avx2")]
fn bits_pd(a: __m256d) -> u8 {
    // Four bits.
    _mm256_movemask_pd(a) as u8
}

#[inline]
#[target_feature(enable = "avx2")]
fn bits_ps(a: __m256) -> u8 {
    // Eight bits.
    _mm256_movemask_ps(a) as u8
}

/// The four lowest bits.
#[inline]
#[target_feature(enable = "avx2")]
fn of_bits_pd(bits: LaneBits) -> __m256d {
    let each = _mm256_set_epi64x(8, 4, 2, 1);
    let own = _mm256_and_si256(_mm256_set1_epi64x(i64::from(bits)), each);
    _mm256_castsi256_pd(_mm256_cmpeq_epi64(own, each))
}

/// The eight lowest bits.
#[inline]
#[target_feature(enable = "avx2")]
fn of_bits_ps(bits: LaneBits) -> __m256 {
    let each = _mm256_set_epi32(128, 64, 32, 16, 8, 4, 2, 1);
    let own = _mm256_and_si256(_mm256_set1_epi32(i32::from(bits)), each);
    _mm256_castsi256_ps(_mm256_cmpeq_epi32(own, each))
}
