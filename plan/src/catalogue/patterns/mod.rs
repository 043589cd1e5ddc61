//! Candle patterns: 100 bullish, -100 bearish, 0 none; 80 and 200 where TA-Lib says so.
//!
//! A pattern is NA where a price is missing at any bar of its look-back, and before TA-Lib's look-back.

mod candle;
mod expression;
pub(super) mod longer;
pub(super) mod pairs;
pub(super) mod single;
pub(super) mod triples;

use super::{CLOSE, Formula, Function, HIGH, INTEGER, LOW, OPEN, Param, ParamDefault, ParamType, TALIB};
use crate::graph::NodeId;

/// Heading of the patterns.
pub(super) const GROUP: &str = "Pattern recognition";

/// What the words of the patterns' formulas mean.
pub(super) const NOTE: &str = "The 1st bar of a pattern is the oldest; \"the mean\" is that of the ten bars before. A body is long above the mean body, short below it, small at most as long, a doji's at most a tenth of the mean range. A shadow is short below the mean shadow (half of both), there is none below a tenth of the mean range. Equal, near and far are distances of 5%, 20% and 60% of the mean range of the five bars before. A bar is white when it closes at its open or above, else black. A pattern is NA where a price is missing on one of its bars or of those that it is measured by.";

/// The declaration of a pattern without parameters.
const fn pattern(
    name: &'static str,
    summary: &'static str,
    formula: &'static str,
    build: fn(&mut Formula<'_>) -> Vec<NodeId>,
) -> Function {
    Function {
        name,
        aliases: &[],
        group: GROUP,
        summary,
        formula,
        reference: TALIB,
        series: &[OPEN, HIGH, LOW, CLOSE],
        params: &[],
        outputs: INTEGER,
        build,
    }
}

/// How far the last body must reach into an earlier one, as a share of the earlier one.
const fn penetration(default: f64) -> Param {
    // TA-Lib's own limits.
    let kind = ParamType::Real { min: 0.0, max: 3e37 };
    Param { name: "penetration", kind, default: ParamDefault::Value(default) }
}
