//! Sine, cosine and tangent. An angle is a whole number of 512ths of a turn and what is left: sin(c + d) and cos(c + d) are
//! made of a table of c and of short series of d. Angles of any size are reduced alike, in whole numbers: of x*2/pi the
//! 128 bits that matter are computed, from a window of 192 bits of 2/pi.

use super::tables::{COS_POLY, HALF_PI, SIN_POLY, SINE_TABLE, TURN_BITS};
use super::{Pair, power_of_two, upper, with_sign};

/// 2^-27: the sine of anything smaller is the angle itself, the cosine 1.
const ANGLE_MIN: f64 = 7.450_580_596_923_828e-9;

/// Which 512th of a turn (modulo a turn), and the angle left of it, whose size is pi/512 at most.
struct Turned {
    at: u64,
    rest: Pair,
}

/// x is finite, and at least `ANGLE_MIN` in size.
#[inline(always)]
fn turned(x: f64) -> Turned {
    let bits = x.abs().to_bits();
    // x = whole * 2^e, and the first bit of the window has the weight 2^(1 - e): those before add whole turns.
    let whole = bits & 0x000f_ffff_ffff_ffff | 0x0010_0000_0000_0000;
    let from = (bits >> 52) as usize - 996;
    let (word, shift) = (from >> 6, (from & 63) as u32);
    let window = |i: usize| TURN_BITS[word + i] << shift | (TURN_BITS[word + i + 1] >> 1) >> (63 - shift);
    let product = u128::from(whole) * u128::from(window(1));
    let below = (u128::from(whole) * u128::from(window(2))) >> 64;
    let sum = product + below;
    let top = ((sum >> 64) as u64).wrapping_add(whole.wrapping_mul(window(0)));
    // Quarters of a turn in two bits, 128ths of a quarter in seven; the nearest of them.
    let at = top.wrapping_add(1 << 54) >> 55;
    let high = top.wrapping_sub(at << 55);
    // All ones where the rest is below 0, and where x is: no branches, which random angles would mispredict.
    let below = ((high as i64) >> 63) as u64;
    let negative = ((x.to_bits() as i64) >> 63) as u64;
    let (high, next) = (high ^ below, sum as u64 ^ below);
    let zeros = (high | 1).leading_zeros();
    let first = high << zeros | (next >> 1) >> (63 - zeros);
    let last = next << zeros;
    // The first 26 bits, and 53 more, of which the last 15 are of `last`.
    let short = (first >> 38) as f64;
    let more = ((first << 26 | last >> 38) >> 11) as f64 * power_of_two(-53);
    let scale = with_sign(power_of_two(-24 - zeros as i32), below ^ negative);
    let rest = short * HALF_PI[1] + more * (HALF_PI[0] + HALF_PI[1]);
    let sum = Pair::sum(short * HALF_PI[0], rest);
    Turned { at: (at ^ negative).wrapping_sub(negative), rest: Pair { high: sum.high * scale, low: sum.low * scale } }
}

/// What a small angle d adds: d in a short part and the rest, sin d - d and cos d - 1.
#[derive(Clone, Copy)]
struct Small {
    short: f64,
    rest: f64,
    sine: f64,
    cosine: f64,
}

/// -d where `flipped` is all ones.
#[inline(always)]
fn small(angle: Pair, flipped: u64) -> Small {
    let (d, low) = (with_sign(angle.high, flipped), with_sign(angle.low, flipped));
    let square = d * d;
    let short = upper(d);
    Small {
        short,
        rest: (d - short) + low,
        sine: (d * square) * (SIN_POLY[0] + square * (SIN_POLY[1] + square * SIN_POLY[2])),
        cosine: square * (COS_POLY[0] + square * (COS_POLY[1] + square * COS_POLY[2])),
    }
}

/// from*cos d + by*sin d of two entries of the table.
#[inline(always)]
fn moved(from: [f64; 2], by: [f64; 2], d: Small) -> Pair {
    let total = Pair::sum(from[0], by[0] * d.short);
    let along = by[1] * d.short + (by[0] + by[1]) * (d.rest + d.sine);
    Pair { high: total.high, low: total.low + (from[1] + (along + (from[0] + from[1]) * d.cosine)) }
}

/// All ones in odd quarters of a turn, the entry of the sine there, and that of the cosine.
#[inline(always)]
fn entries(at: u64) -> (u64, [f64; 2], [f64; 2]) {
    let odd = 0u64.wrapping_sub(at >> 7 & 1);
    // 128 - j in odd quarters, as a difference of two's complements.
    let j = ((at & 127) ^ odd).wrapping_sub(odd).wrapping_add(odd & 128);
    (odd, SINE_TABLE[j as usize], SINE_TABLE[(128 - j) as usize])
}

/// The sine of the angle, and `quarters` of a turn more.
#[inline(always)]
fn sine(angle: &Turned, quarters: u64) -> f64 {
    let at = angle.at.wrapping_add(quarters << 7);
    let (odd, from, by) = entries(at);
    // The second quarter is the first one backwards, the other two are the negatives of both.
    let sine = moved(from, by, small(angle.rest, odd));
    with_sign(sine.value(), 0u64.wrapping_sub(at >> 8 & 1))
}

/// Sine of an angle in radians; NaN of an infinite one.
pub fn sin(x: f64) -> f64 {
    if x.abs() < ANGLE_MIN {
        return x;
    }
    if !x.is_finite() {
        return f64::NAN;
    }
    sine(&turned(x), 0)
}

/// Cosine of an angle in radians; NaN of an infinite one.
pub fn cos(x: f64) -> f64 {
    if x.abs() < ANGLE_MIN {
        return 1.0;
    }
    if !x.is_finite() {
        return f64::NAN;
    }
    sine(&turned(x), 1)
}

/// Tangent of an angle in radians; NaN of an infinite one.
pub fn tan(x: f64) -> f64 {
    if x.abs() < ANGLE_MIN {
        return x;
    }
    if !x.is_finite() {
        return f64::NAN;
    }
    let angle = turned(x);
    let (odd, from, by) = entries(angle.at);
    let d = small(angle.rest, odd);
    let sine = moved(from, by, d);
    let cosine = moved(by, from, Small { short: -d.short, rest: -d.rest, sine: -d.sine, cosine: d.cosine });
    // Backwards, the cosine changes its sign.
    with_sign(Pair::sum(sine.high, sine.low).over(Pair::sum(cosine.high, cosine.low)).value(), odd)
}
