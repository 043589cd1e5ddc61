//! Logarithms and powers. x = 2^k * m with m next to 1; a table has a number c of few bits near 1/m and its logarithm, so
//! that ln x = k*ln 2 - ln c + ln(1 + r) with r = c*m - 1, which two short products give exactly.

use super::exponential::exp_of;
use super::tables::{LN_2, LOG_FIRST_BITS, LOG_POLY, LOG_TABLE, LOG10_E};
use super::{Pair, power_of_two, upper};

/// Powers whose exponent is beyond this, or whose inverse is, are 0, 1 or infinite: |ln x| is 2^-53 at least, where it is
/// not 0, and 745 at most.
const POW_EXPONENT_MAX: f64 = 36_893_488_147_419_103_232.0;

/// ln x to about 2^-70 of itself. x is positive and finite.
#[inline(always)]
fn ln_of(x: f64) -> Pair {
    let mut bits = x.to_bits();
    let mut k = 0i64;
    if x < f64::MIN_POSITIVE {
        bits = (x * power_of_two(54)).to_bits();
        k = -54;
    }
    let apart = (bits.wrapping_sub(LOG_FIRST_BITS)) as i64;
    let octaves = apart >> 52;
    let m = f64::from_bits(bits.wrapping_sub((octaves << 52) as u64));
    let [c, log_high, log_low] = LOG_TABLE[((apart >> 45) & 127) as usize];
    let k = (k + octaves) as f64;
    let short = upper(m);
    let r = Pair::sum(short * c - 1.0, (m - short) * c);
    // Exact: both are multiples of the same small number.
    let whole = k * LN_2[0] + log_high;
    let first = Pair::sum(whole, r.high);
    // -r^2/2, exactly for the short part.
    let head = upper(r.high);
    let tail = r.high - head;
    let second = Pair::sum(first.high, -0.5 * head * head);
    let s = r.high;
    let square = s * s;
    let poly = (LOG_POLY[0] + s * LOG_POLY[1])
        + square * ((LOG_POLY[2] + s * LOG_POLY[3]) + square * (LOG_POLY[4] + s * LOG_POLY[5]));
    let left = r.low - s * r.low;
    let small = (first.low + second.low) + ((k * LN_2[1] + log_low) + (left - 0.5 * tail * (s + head)));
    Pair::sum(second.high, small + (square * s) * poly)
}

/// The logarithm where [`ln_of`] has none.
#[inline(always)]
fn ln_at_the_ends(x: f64) -> f64 {
    if x == 0.0 {
        f64::NEG_INFINITY
    } else if x > 0.0 {
        x
    } else {
        f64::NAN
    }
}

/// Natural logarithm: -inf of 0, NaN below.
pub fn ln(x: f64) -> f64 {
    if x > 0.0 && x < f64::INFINITY { ln_of(x).value() } else { ln_at_the_ends(x) }
}

/// Logarithm to the base of 10: -inf of 0, NaN below.
pub fn log10(x: f64) -> f64 {
    if !(x > 0.0 && x < f64::INFINITY) {
        return ln_at_the_ends(x);
    }
    let log = ln_of(x);
    let short = upper(log.high);
    let rest = (log.high - short) + log.low;
    short * LOG10_E[0] + (rest * LOG10_E[0] + log.high * LOG10_E[1])
}

/// Whether a number is not whole (0), odd (1) or even (2).
#[inline(always)]
fn parity(y: f64) -> i32 {
    let size = y.abs();
    if size >= 9_007_199_254_740_992.0 {
        return 2;
    }
    let whole = size as i64;
    if whole as f64 != size {
        0
    } else if whole & 1 == 1 {
        1
    } else {
        2
    }
}

/// x^y as IEEE 754 has it: 1^y and x^0 are 1, also of NaN; powers of negative numbers are defined for whole exponents.
pub fn pow(x: f64, y: f64) -> f64 {
    if y == 0.0 || x == 1.0 {
        return 1.0;
    }
    if x.is_nan() || y.is_nan() {
        return f64::NAN;
    }
    // Frequent, and rounded once.
    if y == 1.0 {
        return x;
    }
    if y == 2.0 {
        return x * x;
    }
    let size = x.abs();
    let negative = x.is_sign_negative();
    let kind = if negative { parity(y) } else { 2 };
    let sign = if kind == 1 { -1.0 } else { 1.0 };
    if size == 0.0 || size == f64::INFINITY {
        return if (size == 0.0) == (y > 0.0) { sign * 0.0 } else { sign * f64::INFINITY };
    }
    if size == 1.0 && y.abs() == f64::INFINITY {
        return 1.0;
    }
    if kind == 0 {
        return f64::NAN;
    }
    let log = ln_of(size);
    // So that no product below overflows or loses bits; the power is what it was.
    let most = POW_EXPONENT_MAX;
    let y = if y > most {
        most
    } else if y < -most {
        -most
    } else if y.abs() < 1.0 / most {
        0.0
    } else {
        y
    };
    let (short, log_short) = (upper(y), upper(log.high));
    let product = short * log_short;
    let rest = (y - short) * log_short + y * ((log.high - log_short) + log.low);
    let exponent = Pair::sum(product, rest);
    sign * exp_of(exponent.high, exponent.low)
}
