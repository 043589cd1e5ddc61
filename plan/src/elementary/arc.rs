//! The inverses of sine, cosine and tangent, of angles up to pi/4; the others are complements of those. The angle with the
//! tangent y/w is atan c + atan t, where c is the 64th next to y/w and t = (y - c*w)/(w + c*y).

use super::tables::{ANGLE_STEP, ASIN_GUESS, ASIN_POLY, ATAN_POLY, ATAN_TABLE, FULL_HALF_PI, SINE_TABLE};
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

/// `quarters` of a turn and `angle`, whose sign is changed where `falling` is all ones.
#[inline(always)]
fn from_quarters(quarters: f64, angle: Pair, falling: u64) -> f64 {
    let sign = either(falling, -1.0, 1.0);
    let total = Pair::sum(quarters * FULL_HALF_PI[0], sign * angle.high);
    total.high + (total.low + (quarters * FULL_HALF_PI[1] + sign * angle.low))
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

/// The square root of 1 - x^2, for x from 0 to 1.
#[inline(always)]
fn height(x: f64) -> Pair {
    // As 1 - x^2, or next to 1 as 2*z - z^2 with z = 1 - x: z^2 is known to far below the difference's last place.
    let (base, z) = (smaller(2.0 * (1.0 - x), 1.0), smaller(1.0 - x, x));
    let short = upper(z);
    let first = Pair::sum(base, -(short * short));
    let square = Pair::sum(first.high, first.low - (z - short) * (z + short));
    let root = square.high.sqrt();
    let root_short = upper(root);
    let root_left = root - root_short;
    let rest = (square.high - root_short * root_short) - root_left * (root + root_short);
    Pair { high: root, low: either(ones(root > 0.0), (rest + square.low) * (0.5 / root), 0.0) }
}

/// The smaller one of an angle up to a quarter of a turn and its complement.
struct Slope {
    angle: Pair,
    /// All ones where `angle` is the complement.
    steep: u64,
}

/// Of the angle whose sine is x, for x from 0 to 1. Let y be the sine and w the cosine of the angle that is at most pi/4, and
/// c the 512th of a turn next to it: the sine of what is left is y*cos c - w*sin c.
#[inline(always)]
fn slope(x: f64) -> Slope {
    let height = height(x);
    let steep = ones(x > height.high);
    let (y, y_low) = (smaller(x, height.high), either(steep, height.low, 0.0));
    let (w, w_low) = (larger(x, height.high), either(steep, 0.0, height.low));
    let square = y * y;
    let guess = y * (ASIN_GUESS[0] + square * (ASIN_GUESS[1] + square * (ASIN_GUESS[2] + square * ASIN_GUESS[3])));
    let (steps, j) = nearest(guess);
    let [sine, sine_low] = SINE_TABLE[j as usize];
    let [cosine, cosine_low] = SINE_TABLE[128 - j as usize];
    let (y_short, w_short) = (upper(y), upper(w));
    let rest = (y_short * cosine_low + ((y - y_short) + y_low) * (cosine + cosine_low))
        - (w_short * sine_low + ((w - w_short) + w_low) * (sine + sine_low));
    let t = Pair::sum(y_short * cosine - w_short * sine, rest);
    let square = t.high * t.high;
    let more = t.low + (t.high * square) * (ASIN_POLY[0] + square * (ASIN_POLY[1] + square * ASIN_POLY[2]));
    // A multiple of a short number, which is exact.
    let first = Pair::sum(steps * ANGLE_STEP[0], t.high);
    Slope { angle: Pair::sum(first.high, first.low + (steps * ANGLE_STEP[1] + more)), steep }
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
    let Slope { angle, steep } = slope(size);
    from_quarters(either(steep, 1.0, 0.0), angle, steep).copysign(x)
}

/// Arc cosine, from 0 to pi; NaN beyond -1 and 1.
pub fn acos(x: f64) -> f64 {
    let size = x.abs();
    if size > 1.0 || x.is_nan() {
        return f64::NAN;
    }
    let Slope { angle, steep } = slope(size);
    let negative = ((x.to_bits() as i64) >> 63) as u64;
    from_quarters(either(steep, either(negative, 2.0, 0.0), 1.0), angle, !(steep ^ negative))
}
