//! Candle patterns: 100 or 80 bullish, -100 or -80 bearish, 0 none.

use super::{CLOSE, Formula, Function, HIGH, INTEGER, LOW, OPEN, TALIB};
use crate::ast::CompareOp::{Equal, GreaterEqual, Less, LessEqual};
use crate::graph::NodeId;

pub(super) const LIST: &[Function] = &[Function {
    name: "cdlengulfing",
    aliases: &[],
    group: "Pattern recognition",
    summary: "engulfing pattern",
    formula: "a white body around the black body before it: 100, or 80 when one end of the bodies is equal; mirrored: negative",
    reference: TALIB,
    series: &[OPEN, HIGH, LOW, CLOSE],
    params: &[],
    outputs: INTEGER,
    build: engulfing,
}];

fn engulfing(f: &mut Formula<'_>) -> Vec<NodeId> {
    let (open, close) = (f.series(0), f.series(3));
    let (open_before, close_before) = (f.lag(open, 1), f.lag(close, 1));
    let white = f.compare(GreaterEqual, close, open);
    let black = f.not(white);
    let white_before = f.lag(white, 1);
    let black_before = f.not(white_before);
    let up = around(f, close, open, open_before, close_before);
    let up = f.and(up, white);
    let up = f.and(up, black_before);
    let down = around(f, open, close, close_before, open_before);
    let down = f.and(down, black);
    let down = f.and(down, white_before);
    let low_tie = f.compare(Equal, open, close_before);
    let high_tie = f.compare(Equal, close, open_before);
    let tie = f.or(low_tie, high_tie);
    let (zero, weak, full) = (f.constant(0.0), f.constant(80.0), f.constant(100.0));
    let strength = f.select(tie, weak, full);
    let bearish = f.scale(strength, -1.0);
    let bearish = f.select(down, bearish, zero);
    let signal = f.select(up, strength, bearish);
    // Kleene logic could decide without a body that is NA.
    let body = f.add(open, close);
    let body_before = f.add(open_before, close_before);
    let bodies = f.add(body, body_before);
    let signal = f.gate(signal, bodies);
    // TA-Lib starts one bar later than the formula could.
    let start = f.lag(close, 2);
    vec![f.gate(signal, start)]
}

/// The body from `bottom` to `top` encloses the one from `bottom_before` to `top_before`; at most one end may be equal.
fn around(f: &mut Formula<'_>, top: NodeId, bottom: NodeId, top_before: NodeId, bottom_before: NodeId) -> NodeId {
    let at_least = f.compare(GreaterEqual, top, top_before);
    let below = f.compare(Less, bottom, bottom_before);
    let first = f.and(at_least, below);
    let above = f.greater(top, top_before);
    let at_most = f.compare(LessEqual, bottom, bottom_before);
    let second = f.and(above, at_most);
    f.or(first, second)
}
