//! Candle patterns: 100 bullish, -100 bearish, 0 none; 80 and 200 where TA-Lib says so.
//!
//! A pattern is NA where a price is missing at any bar of its look-back, and before TA-Lib's look-back.

mod candle;
pub(super) mod longer;
pub(super) mod pairs;
pub(super) mod single;
pub(super) mod triples;

pub(super) use candle::{Candles, shape};

use super::declaration::Declaration;
use super::{CLOSE, Function, Fused, HIGH, LOW, NON_NEGATIVE, OPEN, Param, Scaling, param};

/// Heading of the patterns.
pub(super) const GROUP: &str = "Pattern recognition";

/// What the words of the patterns' formulas mean.
pub(super) const NOTE: &str = "The 1st bar of a pattern is the oldest; \"the mean\" is that of the ten bars before. A body is long above the mean body, short below it, small at most as long, a doji's at most a tenth of the mean range. A shadow is short below the mean shadow (half of both), there is none below a tenth of the mean range. Equal, near and far are distances of 5%, 20% and 60% of the mean range of the five bars before. A bar is white when it closes at its open or above, else black. A pattern is NA where a price is missing on one of its bars or of those that it is measured by.";

/// The start of a pattern's declaration.
const fn pattern(name: &'static str, summary: &'static str, formula: &'static str) -> Declaration {
    Function::new(name, GROUP)
        .summary(summary)
        .formula(formula)
        .series(&[OPEN, HIGH, LOW, CLOSE])
        .integer()
        .scaling(Scaling::PURE)
        // The body's length.
        .fused(&[Fused::Apart])
}

/// How far the last body must reach into an earlier one, as a share of the earlier one.
const fn penetration(default: f64) -> Param {
    param("penetration", NON_NEGATIVE, default)
}
