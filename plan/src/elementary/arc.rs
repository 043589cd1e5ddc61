//! The inverses of sine, cosine and tangent. The angle with the tangent y/w, up to pi/4, is atan c + atan t, where c is the
//! 64th next to y/w and t = (y - c*w)/(w + c*y); steeper ones are complements. Arc sines up to 1/2 are a series whose second
//! term is computed in pairs; beyond, acos x = 2*asin(sqrt((1 - x)/2)).

use super::tables::{ASIN_POLY, ATAN_POLY, ATAN_TABLE, FULL_HALF_PI, SIXTH};
use super::{Pair, nearest, power_of_two, upper, with_sign};

/// 2^-27: the arc tangent and arc sine of anything smaller is the number itself.
const ARC_MIN: f64 = 7.450_580_596_923_828e-9;

/// `a` where `first` is all ones, `b` where it is 0: no branch, which random arguments would mispredict.
#[inline(always)]
fn either(first: u64, a: f64, b: f64) -> f64 {
    f64::from_bits(a.to_bits() & first | b.to_bits() & !first)
}

#[inline(always)]
fn smaller(a: f64, b: f64) -> f64 {
    if a < b { a } else { b }
}

#[inline(always)]
fn larger(a: f64, b: f64) -> f64 {
    if a > b { a } else { b }
}

/// All ones where a condition holds.
#[inline(always)]
fn ones(holds: bool) -> u64 {
    0u64.wrapping_sub(u64::from(holds))
}

/// Arc tangent, from -pi/2 to pi/2.
pub fn atan(x: f64) -> f64 {
    let size = x.abs();
    if size < ARC_MIN {
        return x;
    }
    if x.is_nan() {
        return f64::NAN;
    }
    // Beyond it the result no longer changes.
    let size = if size > power_of_two(66) { power_of_two(66) } else { size };
    // The smaller one of the angle and its complement has the tangent y/w.
    let steep = ones(size > 1.0);
    let (y, w) = (smaller(size, 1.0), larger(size, 1.0));
    let (steps, j) = nearest(y / w * 64.0);
    let c = steps * (1.0 / 64.0);
    // Products of c and a short number are exact.
    let (y_short, w_short) = (upper(y), upper(w));
    let above = Pair::sum(y - c * w_short, -(c * (w - w_short)));
    let below = Pair::sum(w, c * y_short);
    let below = Pair::sum(below.high, below.low + c * (y - y_short));
    let t = above.over(below);
    let square = t.high * t.high;
    let poly = (ATAN_POLY[0] + square * ATAN_POLY[1]) + (square * square) * (ATAN_POLY[2] + square * ATAN_POLY[3]);
    let more = t.low + (t.high * square) * poly;
    // Steep angles are complements: from the second half of the table, and falling.
    let [high, low] = ATAN_TABLE[j as usize + (steep & 65) as usize];
    let total = Pair::sum(high, with_sign(t.high, steep));
    (total.high + (total.low + (low + with_sign(more, steep)))).copysign(x)
}

/// asin(y + low) where y^2 = u + u_low, for y from 0 to 1/2: y + y*u*(1/6 + u*...), with the product known to 2^-75 of itself.
#[inline(always)]
fn small_arc(y: f64, low: f64, u: f64, u_low: f64) -> Pair {
    let (square, fourth) = (u * u, (u * u) * (u * u));
    let p = &ASIN_POLY;
    let first = (p[0] + u * p[1]) + square * (p[2] + u * p[3]);
    let second = (p[4] + u * p[5]) + square * (p[6] + u * p[7]);
    let third = (p[8] + u * p[9]) + square * (p[10] + u * p[11]);
    let more = u * (first + fourth * (second + fourth * (third + fourth * (p[12] + u * p[13]))));
    let factor = Pair::sum(SIXTH[0], more);
    let factor = Pair::sum(factor.high, factor.low + SIXTH[1]);
    let (u_short, factor_short) = (upper(u), upper(factor.high));
    let product = Pair::sum(
        u_short * factor_short,
        u_short * ((factor.high - factor_short) + factor.low) + ((u - u_short) + u_low) * factor.high,
    );
    let (y_short, product_short) = (upper(y), upper(product.high));
    let total = Pair::sum(y, y_short * product_short);
    let rest = y_short * ((product.high - product_short) + product.low) + (y - y_short) * product.high;
    Pair { high: total.high, low: total.low + (rest + (low + low * product.high)) }
}

/// asin x for x from 0 to 1/2; beyond, where `steep` is all ones, half of acos x, which is the arc sine of the root of (1 - x)/2.
struct ArcSine {
    angle: Pair,
    steep: u64,
}

#[inline(always)]
fn arc_sine(x: f64) -> ArcSine {
    if x < 0.5 {
        let short = upper(x);
        let square = x * x;
        let low = (short * short - square) + (x - short) * (x + short);
        return ArcSine { angle: small_arc(x, 0.0, square, low), steep: 0 };
    }
    let square = 0.5 * (1.0 - x);
    let root = square.sqrt();
    let short = upper(root);
    let rest = (square - short * short) - (root - short) * (root + short);
    let low = if root > 0.0 { rest * (0.5 / root) } else { 0.0 };
    ArcSine { angle: small_arc(root, low, square, 0.0), steep: u64::MAX }
}

/// `quarters` of a turn and `times` the angle.
#[inline(always)]
fn from_quarters(quarters: f64, times: f64, angle: Pair) -> f64 {
    let total = Pair::sum(quarters * FULL_HALF_PI[0], times * angle.high);
    total.high + (total.low + (quarters * FULL_HALF_PI[1] + times * angle.low))
}

/// Arc sine, from -pi/2 to pi/2; NaN beyond -1 and 1.
pub fn asin(x: f64) -> f64 {
    let size = x.abs();
    if size < ARC_MIN {
        return x;
    }
    if size > 1.0 || x.is_nan() {
        return f64::NAN;
    }
    let ArcSine { angle, steep } = arc_sine(size);
    from_quarters(either(steep, 1.0, 0.0), either(steep, -2.0, 1.0), angle).copysign(x)
}

/// Arc cosine, from 0 to pi; NaN beyond -1 and 1.
pub fn acos(x: f64) -> f64 {
    let size = x.abs();
    if size > 1.0 || x.is_nan() {
        return f64::NAN;
    }
    let ArcSine { angle, steep } = arc_sine(size);
    let negative = ((x.to_bits() as i64) >> 63) as u64;
    // pi/2 - asin x; 2*angle, or pi less that where x is negative.
    let quarters = either(steep, either(negative, 2.0, 0.0), 1.0);
    let times = either(steep, 2.0, -1.0);
    from_quarters(quarters, with_sign(times, negative), angle)
}
