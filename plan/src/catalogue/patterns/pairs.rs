//! Patterns of two bars.

use super::super::expression::{Num, Truth};
use super::super::{Function, Fused};
use super::candle::{Bar, Candles};
use super::{pattern, penetration};

pub(crate) const LIST: &[Function] = &[
    pattern(
        "cdlcounterattack",
        "counterattack: a long body back to where the opposite one closed",
        "two long bodies of opposite colours with equal closes; 2nd white: 100, black: -100",
    )
    .pattern(11, |c| {
        let [first, second] = c.bars();
        let met = second.close().about(first.close(), first.equal());
        c.coloured(first.other_colour(second) & first.long() & second.long() & met, second)
    }),
    pattern(
        "cdldarkcloudcover",
        "dark cloud cover: a black body from above a long white one deep into it",
        "1st long white; 2nd black, opens above the 1st's high, closes inside its body, below its close less \
         penetration * body: -100",
    )
    .params(&[penetration(0.5)])
    .fused(&[Fused::Apart, Fused::MinusScaled])
    .pattern(11, |c| {
        let [first, second] = c.bars();
        let deep = first.close() - first.body() * c.penetration();
        let covers = second.open().above(first.high()) & second.close().above(first.open());
        c.mark(first.white() & first.long() & second.black() & covers & second.close().below(deep), -100.0)
    }),
    pattern(
        "cdldojistar",
        "doji star: a doji that gaps away from a long body, in its direction",
        "1st long; 2nd doji, its body below a black 1st's: 100, above a white 1st's: -100",
    )
    .pattern(11, |c| {
        let [first, star] = c.bars();
        let both = first.long() & star.doji();
        c.signal(both & first.black() & star.body_below(first), both & first.white() & star.body_above(first))
    }),
    pattern(
        "cdlengulfing",
        "engulfing: a body around the opposite body before it",
        "bodies of opposite colours, the 2nd around the 1st: 100 for white, -100 for black; 80 and -80 when one \
         end of the bodies is equal",
    )
    .fused(&[])
    .pattern(2, |c| {
        let [first, second] = c.bars();
        let (top, bottom) = (second.top(), second.bottom());
        let around = (top.at_least(first.top()) & bottom.below(first.bottom()))
            | (top.above(first.top()) & bottom.at_most(first.bottom()));
        let engulfs = around & first.other_colour(second);
        c.graded(engulfs & second.white(), engulfs, one_end_equal(first, second))
    }),
    pattern(
        "cdlhammer",
        "hammer: a short body on a long lower shadow, near the low before it",
        "2nd short, lower shadow longer than its body, no upper one, body at or near the 1st's low or below: 100",
    )
    .pattern(11, |c| {
        let [before, hammer] = c.bars();
        let low = hammer.bottom().at_most(before.low() + before.near());
        c.mark(hammer.short() & hammer.long_lower() & hammer.no_upper() & low, 100.0)
    }),
    pattern(
        "cdlhangingman",
        "hanging man: a hammer near the high before it",
        "2nd short, lower shadow longer than its body, no upper one, body at or near the 1st's high or above: \
         -100",
    )
    .pattern(11, |c| {
        let [before, man] = c.bars();
        let high = man.bottom().at_least(before.high() - before.near());
        c.mark(man.short() & man.long_lower() & man.no_upper() & high, -100.0)
    }),
    pattern(
        "cdlharami",
        "harami: a small body inside a long one",
        "1st long; 2nd small, inside the 1st's body: 100 for a black 1st, -100 for a white one; 80 and -80 when an \
         end of the bodies is equal",
    )
    .pattern(11, |c| {
        let [_, second] = c.bars();
        harami(c, second.small())
    }),
    pattern(
        "cdlharamicross",
        "harami cross: a doji inside a long body",
        "1st long; 2nd doji, inside the 1st's body: 100 for a black 1st, -100 for a white one; 80 and -80 when an \
         end of the bodies is equal",
    )
    .pattern(11, |c| {
        let [_, second] = c.bars();
        harami(c, second.doji())
    }),
    pattern(
        "cdlhomingpigeon",
        "homing pigeon: a small black body inside a long black one",
        "1st long black; 2nd small black, inside the 1st's body: 100",
    )
    .pattern(11, |c| {
        let [first, second] = c.bars();
        let black = first.black() & second.black();
        let within = second.open().below(first.open()) & second.close().above(first.close());
        c.mark(black & first.long() & second.small() & within, 100.0)
    }),
    pattern(
        "cdlinneck",
        "in-neck: a white body from below a long black one just back into it",
        "1st long black; 2nd white, opens below the 1st's low, closes equal to its close or slightly above: -100",
    )
    .pattern(11, |c| {
        let [first, second] = c.bars();
        let (close, neck) = (second.close(), first.close());
        c.mark(from_below(first, second) & close.at_most(neck + first.equal()) & close.at_least(neck), -100.0)
    }),
    pattern(
        "cdlinvertedhammer",
        "inverted hammer: a short body under a long upper shadow, below the body before it",
        "2nd short, upper shadow longer than its body, no lower one, body below the 1st's: 100",
    )
    .pattern(11, |c| {
        let [before, hammer] = c.bars();
        let shaped = hammer.short() & hammer.long_upper() & hammer.no_lower();
        c.mark(shaped & hammer.body_below(before), 100.0)
    }),
    pattern(
        "cdlkicking",
        "kicking: two opposite marubozus with a gap between",
        "two long bodies without shadows and of opposite colours; 2nd white and above the 1st: 100, black and \
         below: -100",
    )
    .pattern(11, |c| {
        let (up, down) = kicks(c);
        c.signal(up, down)
    }),
    pattern(
        "cdlkickingbylength",
        "kicking, signed by the longer body",
        "as cdlkicking, but 100 where the longer body is white, -100 where it is black; the 1st decides a tie",
    )
    .pattern(11, |c| {
        let [first, second] = c.bars();
        let (up, down) = kicks(c);
        let last_longer = second.body().above(first.body());
        let white = (last_longer & second.white()) | (!last_longer & first.white());
        c.signal((up | down) & white, up | down)
    }),
    pattern(
        "cdlmatchinglow",
        "matching low: two black bodies with equal closes",
        "two black bars, the 2nd's close equal to the 1st's: 100",
    )
    .fused(&[])
    .pattern(6, |c| {
        let [first, second] = c.bars();
        let matching = second.close().about(first.close(), first.equal());
        c.mark(first.black() & second.black() & matching, 100.0)
    }),
    pattern(
        "cdlonneck",
        "on-neck: a white body from below a long black one up to its low",
        "1st long black; 2nd white, opens below the 1st's low, closes equal to it: -100",
    )
    .pattern(11, |c| {
        let [first, second] = c.bars();
        c.mark(from_below(first, second) & second.close().about(first.low(), first.equal()), -100.0)
    }),
    pattern(
        "cdlpiercing",
        "piercing: a long white body from below a long black one into its upper half",
        "1st long black; 2nd long white, opens below the 1st's low, closes inside its body, above the middle: 100",
    )
    .fused(&[Fused::Apart, Fused::PlusScaled])
    .pattern(11, |c| {
        let [first, second] = c.bars();
        let upper_half = second.close().between(first.close() + first.body() * 0.5, first.open());
        c.mark(from_below(first, second) & second.long() & upper_half, 100.0)
    }),
    pattern(
        "cdlseparatinglines",
        "separating lines: a long body off the open of the opposite one before it",
        "opposite colours and equal opens; 2nd long white without lower shadow: 100, long black without upper \
         shadow: -100",
    )
    .pattern(11, |c| {
        let [first, second] = c.bars();
        let parted = first.other_colour(second) & second.open().about(first.open(), first.equal());
        let lines = parted & second.long();
        c.signal(lines & second.white() & second.no_lower(), lines & second.black() & second.no_upper())
    }),
    pattern(
        "cdlshootingstar",
        "shooting star: a short body under a long upper shadow, above the body before it",
        "2nd short, upper shadow longer than its body, no lower one, body above the 1st's: -100",
    )
    .pattern(11, |c| {
        let [before, star] = c.bars();
        let shaped = star.short() & star.long_upper() & star.no_lower();
        c.mark(shaped & star.body_above(before), -100.0)
    }),
    pattern(
        "cdlthrusting",
        "thrusting: a white body from below a long black one into its lower half",
        "1st long black; 2nd white, opens below the 1st's low, closes above its close, at most at the middle of \
         its body: -100",
    )
    .fused(&[Fused::Apart, Fused::PlusScaled])
    .pattern(11, |c| {
        let [first, second] = c.bars();
        let (close, neck) = (second.close(), first.close());
        let lower_half = close.above(neck + first.equal()) & close.at_most(neck + first.body() * 0.5);
        c.mark(from_below(first, second) & lower_half, -100.0)
    }),
];

fn one_end_equal<'c>(first: Bar<'c>, second: Bar<'c>) -> Truth<'c> {
    second.top().equals(first.top()) | second.bottom().equals(first.bottom())
}

/// A body inside the long one before it, if it is `small` as the pattern wants it.
fn harami<'c>(c: &'c Candles<'c>, small: Truth<'c>) -> Num<'c> {
    let [first, second] = c.bars();
    let within = second.top().at_most(first.top()) & second.bottom().at_least(first.bottom());
    let hit = first.long() & small & within;
    c.graded(hit & first.black(), hit, one_end_equal(first, second))
}

/// Long black, then white from below its low.
fn from_below<'c>(first: Bar<'c>, second: Bar<'c>) -> Truth<'c> {
    first.black() & first.long() & second.white() & second.open().below(first.low())
}

/// Opposite marubozus: black, then white above; white, then black below.
fn kicks<'c>(c: &'c Candles<'c>) -> (Truth<'c>, Truth<'c>) {
    let bars @ [first, second] = c.bars();
    let both = c.every(&bars, |b| b.long() & b.no_upper() & b.no_lower());
    let up = both & first.black() & second.white() & second.wholly_above(first);
    let down = both & first.white() & second.black() & second.wholly_below(first);
    (up, down)
}
