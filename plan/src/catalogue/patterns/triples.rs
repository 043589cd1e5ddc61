//! Patterns of three bars.

use super::super::expression::Truth;
use super::super::{Function, Fused};
use super::candle::{Bar, Candles};
use super::{pattern, penetration};

pub(crate) const LIST: &[Function] = &[
    pattern(
        "cdl2crows",
        "two crows: two black bodies above a long white one, the last back into it",
        "1st long white; 2nd black, its body above the 1st's; 3rd black, opens inside the 2nd's body, closes \
         inside the 1st's: -100",
    )
    .pattern(12, |c| {
        let [first, second, third] = c.bars();
        let above = second.black() & second.body_above(first);
        let opens = third.open().between(second.close(), second.open());
        let closes = third.close().between(first.open(), first.close());
        c.mark(first.white() & first.long() & above & third.black() & opens & closes, -100.0)
    }),
    pattern(
        "cdl3inside",
        "three inside: a harami, then a close beyond the first bar's open",
        "1st long; 2nd small, inside the 1st's body; 3rd of the colour opposite to the 1st, closes beyond its \
         open: 100 for a white 3rd, -100 for a black one",
    )
    .pattern(12, |c| {
        let [first, second, third] = c.bars();
        let inside = second.top().below(first.top()) & second.bottom().above(first.bottom());
        let harami = first.long() & second.small() & inside;
        let up = first.black() & third.white() & third.close().above(first.open());
        let down = first.white() & third.black() & third.close().below(first.open());
        c.signal(harami & up, harami & down)
    }),
    pattern(
        "cdl3outside",
        "three outside: an engulfing pair, then a close further on",
        "2nd around the 1st's body, of the opposite colour; 3rd closes beyond the 2nd's close: 100 for a white \
         2nd, -100 for a black one",
    )
    .fused(&[])
    .pattern(3, |c| {
        let [first, second, third] = c.bars();
        let around = second.top().above(first.top()) & second.bottom().below(first.bottom());
        let up = second.white() & first.black() & third.close().above(second.close());
        let down = second.black() & first.white() & third.close().below(second.close());
        c.signal(around & up, around & down)
    }),
    pattern(
        "cdl3starsinsouth",
        "three stars in the south: three shrinking black bars with rising lows",
        "three black bars; 1st long with a lower shadow longer than its body; 2nd smaller, opens above the 1st's \
         close within its range, low not below the 1st's but below its close, with a lower shadow; 3rd short, \
         without shadows, inside the 2nd: 100",
    )
    .pattern(12, |c| {
        let bars @ [first, second, third] = c.bars();
        let black = c.every(&bars, Bar::black);
        let opens = second.open().above(first.close()) & second.open().at_most(first.high());
        let low = second.low().below(first.close()) & second.low().at_least(first.low());
        let shrinks = second.body().below(first.body()) & opens & low & second.some_lower();
        let last = third.short() & third.no_lower() & third.no_upper() & third.inside(second);
        c.mark(black & first.long() & first.long_lower() & shrinks & last, 100.0)
    }),
    pattern(
        "cdl3whitesoldiers",
        "three white soldiers: three white bodies of one size, each from the one before up",
        "three white bars without upper shadows, higher closes, each opens above the open before, inside or near \
         its body; no body far shorter than the one before, the 3rd not short: 100",
    )
    .pattern(12, |c| {
        let bars @ [_, _, third] = c.bars();
        let white = c.every(&bars, |b| b.white() & b.no_upper());
        let size = c.each_next(&bars, |before, b| b.body().above(before.body() - before.far()));
        c.mark(white & c.each_next(&bars, climbs) & size & !third.small(), 100.0)
    }),
    pattern(
        "cdlabandonedbaby",
        "abandoned baby: a doji with gaps on both sides between opposite bodies",
        "1st long; 2nd doji, below or above both others with its shadows; 3rd not short, opposite to the 1st, \
         closes beyond the 1st's close by more than penetration * its body: 100 for a white 3rd, -100 for a black \
         one",
    )
    .params(&[penetration(0.3)])
    .fused(&[Fused::Apart, Fused::PlusScaled, Fused::MinusScaled])
    .pattern(12, |c| {
        let [first, baby, third] = c.bars();
        let sizes = first.long() & baby.doji() & !third.small();
        let up = risen(c) & baby.wholly_below(first) & third.wholly_above(baby);
        let down = fallen(c) & baby.wholly_above(first) & third.wholly_below(baby);
        c.signal(sizes & up, sizes & down)
    }),
    pattern(
        "cdladvanceblock",
        "advance block: three white bars whose rise grows weak",
        "three white bars, higher closes, each opens above the open before, inside or near its body; 1st long with \
         a short upper shadow; the bodies shrink or the upper shadows grow: -100",
    )
    .pattern(12, |c| {
        let bars @ [first, second, third] = c.bars();
        let climb = c.every(&bars, Bar::white) & c.each_next(&bars, climbs);
        let start = first.long() & first.short_upper();
        let (smaller, shrinking) = (third.body().below(second.body()), second.body().below(first.body()));
        let weak = (second.far_smaller(first) & third.body().below(second.body() + second.near()))
            | third.far_smaller(second)
            | (smaller & shrinking & (third.more_upper() | second.more_upper()))
            | (smaller & third.long_upper());
        c.mark(climb & start & weak, -100.0)
    }),
    pattern(
        "cdleveningdojistar",
        "evening doji star: a doji above a long white body, then a black one back into it",
        "1st long white; 2nd doji, its body above the 1st's; 3rd black, not short, closes below the 1st's close \
         less penetration * its body: -100",
    )
    .params(&[penetration(0.3)])
    .fused(&[Fused::Apart, Fused::MinusScaled])
    .pattern(12, |c| {
        let [first, star, third] = c.bars();
        let above = star.doji() & star.body_above(first);
        c.mark(first.long() & above & !third.small() & fallen(c), -100.0)
    }),
    pattern(
        "cdleveningstar",
        "evening star: a small body above a long white one, then a black one back into it",
        "1st long white; 2nd small, its body above the 1st's; 3rd black, not short, closes below the 1st's close \
         less penetration * its body: -100",
    )
    .params(&[penetration(0.3)])
    .fused(&[Fused::Apart, Fused::MinusScaled])
    .pattern(12, |c| {
        let [first, star, third] = c.bars();
        let above = star.small() & star.body_above(first);
        c.mark(first.long() & above & !third.small() & fallen(c), -100.0)
    }),
    pattern(
        "cdlgapsidesidewhite",
        "side-by-side white lines: two like white bodies beyond a gap",
        "2nd and 3rd white, of near size and equal opens, both bodies above the 1st's: 100, below: -100",
    )
    .pattern(7, |c| {
        let [first, second, third] = c.bars();
        let white = second.white() & third.white();
        let size = third.body().about(second.body(), second.near());
        let alike = white & size & third.open().about(second.open(), second.equal());
        let up = second.body_above(first) & third.body_above(first);
        let down = second.body_below(first) & third.body_below(first);
        c.signal(alike & up, alike & down)
    }),
    pattern(
        "cdlidentical3crows",
        "identical three crows: three black bodies, each from where the one before closed",
        "three black bars without lower shadows, lower closes, each opens equal to the close before: -100",
    )
    .fused(&[])
    .pattern(12, |c| {
        let bars = c.bars::<3>();
        let crows = c.every(&bars, |b| b.black() & b.no_lower());
        let fall = c.each_next(&bars, |before, b| {
            b.close().below(before.close()) & b.open().about(before.close(), before.equal())
        });
        c.mark(crows & fall, -100.0)
    }),
    pattern(
        "cdlmorningdojistar",
        "morning doji star: a doji below a long black body, then a white one back into it",
        "1st long black; 2nd doji, its body below the 1st's; 3rd white, not short, closes above the 1st's close \
         plus penetration * its body: 100",
    )
    .params(&[penetration(0.3)])
    .fused(&[Fused::Apart, Fused::PlusScaled])
    .pattern(12, |c| {
        let [first, star, third] = c.bars();
        let below = star.doji() & star.body_below(first);
        c.mark(first.long() & below & !third.small() & risen(c), 100.0)
    }),
    pattern(
        "cdlmorningstar",
        "morning star: a small body below a long black one, then a white one back into it",
        "1st long black; 2nd small, its body below the 1st's; 3rd white, not short, closes above the 1st's close \
         plus penetration * its body: 100",
    )
    .params(&[penetration(0.3)])
    .fused(&[Fused::Apart, Fused::PlusScaled])
    .pattern(12, |c| {
        let [first, star, third] = c.bars();
        let below = star.small() & star.body_below(first);
        c.mark(first.long() & below & !third.small() & risen(c), 100.0)
    }),
    pattern(
        "cdlstalledpattern",
        "stalled pattern: two long white bodies, then a short one on top",
        "three white bars, higher closes; 1st and 2nd long, the 2nd without upper shadow, opens above the 1st's \
         open, inside or near its body; 3rd short, opens at the 2nd's close less its own body, near or above: -100",
    )
    .pattern(12, |c| {
        let bars @ [first, second, third] = c.bars();
        let white = c.every(&bars, Bar::white);
        let start = first.long() & second.long() & second.no_upper() & climbs(first, second);
        let rides = third.open().at_least(second.close() - third.body() - second.near());
        let stalls = third.short() & third.close().above(second.close()) & rides;
        c.mark(white & start & stalls, -100.0)
    }),
    pattern(
        "cdlsticksandwich",
        "stick sandwich: a white bar between two black ones with equal closes",
        "1st and 3rd black with equal closes; 2nd white, its low above the 1st's close: 100",
    )
    .fused(&[])
    .pattern(7, |c| {
        let [first, second, third] = c.bars();
        let colours = first.black() & second.white() & third.black();
        let equal = third.close().about(first.close(), first.equal());
        c.mark(colours & second.low().above(first.close()) & equal, 100.0)
    }),
    pattern(
        "cdltasukigap",
        "tasuki gap: a body beyond a gap, then an opposite one of near size back into the gap",
        "2nd's body beyond a gap from the 1st's; 3rd of the other colour and of near size, opens inside the 2nd's \
         body, closes inside the gap; gap up, 2nd white: 100, gap down, 2nd black: -100",
    )
    .pattern(7, |c| {
        let [first, second, third] = c.bars();
        let opens = third.open().between(second.bottom(), second.top());
        let size = (second.body() - third.body()).abs().below(second.near());
        let up = second.body_above(first) & second.white() & third.black();
        let up = up & third.close().between(first.top(), second.open());
        let down = second.body_below(first) & second.black() & third.white();
        let down = down & third.close().between(second.open(), first.bottom());
        c.signal(opens & size & up, opens & size & down)
    }),
    pattern(
        "cdltristar",
        "tristar: three dojis, the middle one apart",
        "three dojis; the 2nd's body below the 1st's and the 3rd's higher than the 2nd's: 100, the other way \
         round: -100",
    )
    .pattern(12, |c| {
        let bars @ [first, second, third] = c.bars();
        // The bars before the first are the measure of all three.
        let dojis = c.every(&bars, |b| b.body().at_most(first.doji_body()));
        let up = second.body_below(first) & third.bottom().above(second.bottom());
        let down = second.body_above(first) & third.top().below(second.top());
        c.signal(dojis & up, dojis & down)
    }),
    pattern(
        "cdlunique3river",
        "unique three river: a long black bar, a black one inside with a new low, a short white one",
        "1st long black; 2nd black, closes above the 1st's close, opens at most at its open, lower low; 3rd short \
         white, opens above the 2nd's low: 100",
    )
    .pattern(12, |c| {
        let [first, second, third] = c.bars();
        let body = second.close().above(first.close()) & second.open().at_most(first.open());
        let harami = second.black() & body & second.low().below(first.low());
        let last = third.white() & third.short() & third.open().above(second.low());
        c.mark(first.black() & first.long() & harami & last, 100.0)
    }),
    pattern(
        "cdlupsidegap2crows",
        "upside gap two crows: two black bodies above a long white one, the last around the other",
        "1st long white; 2nd small black, its body above the 1st's; 3rd black, around the 2nd's body, closes above \
         the 1st's close: -100",
    )
    .pattern(12, |c| {
        let [first, second, third] = c.bars();
        let above = second.black() & second.small() & second.body_above(first);
        let around = third.open().above(second.open()) & third.close().below(second.close());
        let last = third.black() & around & third.close().above(first.close());
        c.mark(first.white() & first.long() & above & last, -100.0)
    }),
    pattern(
        "cdlxsidegap3methods",
        "gap three methods: two bodies of one colour with a gap between, then an opposite one that closes it",
        "1st and 2nd of one colour, the 2nd's body beyond a gap; 3rd of the other colour, opens inside the 2nd's \
         body, closes inside the 1st's; white with a gap up: 100, black with a gap down: -100",
    )
    .fused(&[])
    .pattern(2, |c| {
        let [first, second, third] = c.bars();
        let opens = third.open().between(second.bottom(), second.top());
        let closes = third.close().between(first.bottom(), first.top());
        let fills = first.same_colour(second) & second.other_colour(third) & opens & closes;
        let up = first.white() & second.body_above(first);
        let down = first.black() & second.body_below(first);
        c.signal(fills & up, fills & down)
    }),
];

/// The next white bar closes higher and opens above the open before, inside or near its body.
fn climbs<'c>(before: Bar<'c>, next: Bar<'c>) -> Truth<'c> {
    next.close().above(before.close())
        & next.open().above(before.open())
        & next.open().at_most(before.close() + before.near())
}

/// Black, then two bars later white into the black body by more than the penetration.
fn risen<'c>(c: &'c Candles<'c>) -> Truth<'c> {
    let [first, _, third] = c.bars();
    let deep = first.close() + first.body() * c.penetration();
    first.black() & third.white() & third.close().above(deep)
}

/// White, then two bars later black into the white body by more than the penetration.
fn fallen<'c>(c: &'c Candles<'c>) -> Truth<'c> {
    let [first, _, third] = c.bars();
    let deep = first.close() - first.body() * c.penetration();
    first.white() & third.black() & third.close().below(deep)
}
