//! e^x and what is made of it. With n = 128*p + j the whole number next to x*128/ln 2, and r what is left of x,
//! e^x = 2^p * 2^(j/128) * e^r, where |r| <= ln 2/256.

use super::tables::{COSH_POLY, EXP_POLY, EXP_STEP, EXP_STEPS_PER_UNIT, EXP_TABLE, SINH_POLY};
use super::{Pair, nearest, power_of_two, upper};

/// e^x is 0 or infinite, and stays so, beyond this.
const EXP_MAX: f64 = 760.0;
/// The hyperbolic tangent differs from 1 by less than 2^-64 beyond this.
const TANH_MAX: f64 = 23.0;
/// An exponent of 2 below which a term does not count beside 1.
const NEGLIGIBLE: i32 = -200;

/// x is n steps of ln 2/128 and what is left.
struct Steps {
    n: i32,
    rest: Pair,
}

/// `low` is small beside a step.
#[inline(always)]
fn steps(x: f64, low: f64) -> Steps {
    let (whole, n) = nearest(x * EXP_STEPS_PER_UNIT);
    // Exact: the first part of a step is short enough for its product, and the difference is small.
    let first = x - whole * EXP_STEP[0];
    let second = low - whole * EXP_STEP[1];
    let high = first + second;
    Steps { n, rest: Pair { high, low: second - (high - first) } }
}

/// e^(x + low), where `low` is small beside 1/128. x is no NaN.
#[inline(always)]
pub(super) fn exp_of(x: f64, low: f64) -> f64 {
    let beyond = !(-EXP_MAX..=EXP_MAX).contains(&x);
    let x = x.clamp(-EXP_MAX, EXP_MAX);
    let Steps { n, rest } = steps(x, if beyond { 0.0 } else { low });
    let [high, low] = EXP_TABLE[(n & 127) as usize];
    let r = rest.high;
    let poly = EXP_POLY[0] + r * EXP_POLY[1] + (r * r) * (EXP_POLY[2] + r * EXP_POLY[3]);
    let more = r + ((r * r) * poly + rest.low);
    scaled(Pair { high, low: low + (high + low) * more }, n >> 7)
}

/// A pair near 1 or 2 times 2^n, rounded once, also below the normal numbers.
#[inline(always)]
fn scaled(x: Pair, n: i32) -> f64 {
    let mut value = x.value();
    if n <= -1022 {
        // The last place of this number is that of the result.
        let unit = power_of_two(-1022 - n);
        if value < unit {
            let sum = Pair::sum(unit, x.high);
            value = (sum.high + (sum.low + x.low)) - unit;
        }
    }
    let half = n >> 1;
    value * power_of_two(half) * power_of_two(n - half)
}

/// e^x.
pub fn exp(x: f64) -> f64 {
    if x.is_nan() { f64::NAN } else { exp_of(x, 0.0) }
}

/// 2^(1-p) times the hyperbolic sine and cosine of x, and p. x is 0 to `EXP_MAX`.
#[inline(always)]
fn hyperbolic(x: f64) -> (Pair, Pair, i32) {
    let Steps { n, rest } = steps(x, 0.0);
    let (p, j) = (n >> 7, (n & 127) as usize);
    // 2^-p times e^x and e^-x, without their e^r and e^-r.
    let [grown_high, grown_low] = EXP_TABLE[j];
    let exponent = -2 * p - 1;
    let scale = power_of_two(if exponent < NEGLIGIBLE { NEGLIGIBLE } else { exponent });
    let [shrunk_high, shrunk_low] = EXP_TABLE[128 - j];
    let (shrunk_high, shrunk_low) = (shrunk_high * scale, shrunk_low * scale);
    let sum = Pair::sum(grown_high, shrunk_high);
    let sum = Pair::sum(sum.high, sum.low + (grown_low + shrunk_low));
    let difference = Pair::sum(grown_high, -shrunk_high);
    let difference = Pair::sum(difference.high, difference.low + (grown_low - shrunk_low));
    let r = rest.high;
    let square = r * r;
    // sinh r - r and cosh r - 1.
    let sine = (r * square) * (SINH_POLY[0] + square * SINH_POLY[1]) + rest.low;
    let cosine = square * (COSH_POLY[0] + square * (COSH_POLY[1] + square * COSH_POLY[2])) + r * rest.low;
    let short = upper(r);
    let left = r - short;
    let along = |by: Pair, from: Pair| {
        // from*cosh r + by*sinh r
        let factor = upper(by.high);
        let total = Pair::sum(from.high, factor * short);
        let by_rest = (by.high - factor) + by.low;
        let small = by.high * left + by_rest * short;
        let low = total.low + (from.low + (small + (by.high * sine + from.high * cosine)));
        Pair::sum(total.high, low)
    };
    (along(sum, difference), along(difference, sum), p)
}

/// Hyperbolic sine.
pub fn sinh(x: f64) -> f64 {
    if x.is_nan() {
        return f64::NAN;
    }
    let size = x.abs();
    let (sine, _, p) = hyperbolic(if size > EXP_MAX { EXP_MAX } else { size });
    (sine.value() * power_of_two(p >> 1) * power_of_two((p - 1) - (p >> 1))).copysign(x)
}

/// Hyperbolic cosine.
pub fn cosh(x: f64) -> f64 {
    if x.is_nan() {
        return f64::NAN;
    }
    let size = x.abs();
    let (_, cosine, p) = hyperbolic(if size > EXP_MAX { EXP_MAX } else { size });
    cosine.value() * power_of_two(p >> 1) * power_of_two((p - 1) - (p >> 1))
}

/// Hyperbolic tangent.
pub fn tanh(x: f64) -> f64 {
    if x.is_nan() {
        return f64::NAN;
    }
    let size = x.abs();
    // Below this the first term is the result, and what a quotient rounds away could lie below the normal numbers.
    if size < power_of_two(-30) {
        return x;
    }
    let (sine, cosine, _) = hyperbolic(if size > TANH_MAX { TANH_MAX } else { size });
    sine.over(cosine).value().copysign(x)
}
