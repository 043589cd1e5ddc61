//! Patterns of four and five bars, and those that wait for a later bar.

use super::super::expression::{Num, Truth};
use super::super::{Function, Fused};
use super::candle::{Bar, Candles};
use super::{pattern, penetration};

pub(crate) const LIST: &[Function] = &[
    pattern(
        "cdl3blackcrows",
        "three black crows: three black bodies down from below a white bar's high",
        "1st white; 2nd to 4th black without lower shadows, lower closes, the 2nd's below the 1st's high; 3rd and \
         4th open inside the body before: -100",
    )
    .fused(&[])
    .pattern(13, |c| {
        let [white, first, second, third] = c.bars();
        let crows = [first, second, third];
        let fall = c.each_next(&crows, |before, b| {
            b.open().between(before.close(), before.open()) & b.close().below(before.close())
        });
        let crows = c.every(&crows, |b| b.black() & b.no_lower());
        c.mark(white.white() & white.high().above(first.close()) & crows & fall, -100.0)
    }),
    pattern(
        "cdl3linestrike",
        "three-line strike: three bars of one colour in a row, then one that takes them all back",
        "three bars of one colour, each opens inside or near the body before, white with higher closes or black \
         with lower ones; 4th of the other colour, opens beyond the 3rd's close, closes beyond the 1st's open; \
         white: 100, black: -100",
    )
    .fused(&[])
    .pattern(8, |c| {
        let [first, second, third, strike] = c.bars();
        let row = first.same_colour(second) & second.same_colour(third) & third.other_colour(strike);
        let opens = c.each_next(&[first, second, third], |before, b| {
            b.open().at_least(before.bottom() - before.near()) & b.open().at_most(before.top() + before.near())
        });
        let row = row & opens;
        let up = third.white()
            & third.close().above(second.close())
            & second.close().above(first.close())
            & strike.open().above(third.close())
            & strike.close().below(first.open());
        let down = third.black()
            & third.close().below(second.close())
            & second.close().below(first.close())
            & strike.open().below(third.close())
            & strike.close().above(first.open());
        c.signal(row & up, row & down)
    }),
    pattern(
        "cdlbreakaway",
        "breakaway: a gap, three bars further on, then an opposite close back into the gap",
        "1st long; 2nd of its colour, the body beyond a gap; 3rd and 4th go on with high and low, the 4th of the \
         1st's colour; 5th of the other colour, closes inside the gap; white: 100, black: -100",
    )
    .pattern(14, |c| {
        let [first, second, third, fourth, last] = c.bars();
        let colours = first.same_colour(second) & second.same_colour(fourth) & fourth.other_colour(last);
        let fall = second.body_below(first) & third.lower_than(second) & fourth.lower_than(third);
        let rise = second.body_above(first) & third.higher(second) & fourth.higher(third);
        let up = first.black() & fall & last.close().between(second.open(), first.close());
        let down = first.white() & rise & last.close().between(first.close(), second.open());
        let shaped = first.long() & colours;
        c.signal(shaped & up, shaped & down)
    }),
    pattern(
        "cdlconcealbabyswall",
        "concealing baby swallow: two black marubozus, then two black bars, the last around the third",
        "four black bars; 1st and 2nd without shadows; the 3rd's body below the 2nd's, its upper shadow up into \
         the 2nd's body; 4th around the 3rd with its shadows: 100",
    )
    .fused(&[])
    .pattern(13, |c| {
        let bars @ [first, second, third, last] = c.bars();
        let black = c.every(&bars, Bar::black);
        let bare = c.every(&[first, second], |b| b.no_lower() & b.no_upper());
        let reaches = third.body_below(second) & third.some_upper() & third.high().above(second.close());
        let around = last.high().above(third.high()) & last.low().below(third.low());
        c.mark(black & bare & reaches & around, 100.0)
    }),
    pattern(
        "cdlhikkake",
        "hikkake: a break out of an inside bar that fails",
        "2nd bar inside the 1st; 3rd with lower high and low: 100, higher: -100; then, up to three bars later, the \
         first close above the 2nd's high: 200, or below its low: -200",
    )
    .fused(&[])
    .pattern(5, |c| {
        let [first, second, third] = c.bars();
        let inside = second.inside(first);
        hikkake(c, (inside & third.lower_than(second), inside & third.higher(second)))
    }),
    pattern(
        "cdlhikkakemod",
        "modified hikkake: a break out of two nested inside bars that fails",
        "2nd bar inside the 1st, 3rd inside the 2nd; 4th with lower high and low, the 2nd closes near its low: \
         100, or higher, near its high: -100; then, up to three bars later, the first close above the 3rd's high: \
         200, or below its low: -200",
    )
    .fused(&[])
    .pattern(10, |c| {
        let [first, second, third, fourth] = c.bars();
        let nested = second.inside(first) & third.inside(second);
        let low = second.close().at_most(second.low() + second.near());
        let high = second.close().at_least(second.high() - second.near());
        hikkake(c, (nested & fourth.lower_than(third) & low, nested & fourth.higher(third) & high))
    }),
    pattern(
        "cdlladderbottom",
        "ladder bottom: four black bars down, the last with an upper shadow, then a white one beyond it",
        "1st to 3rd black with lower opens and closes; 4th black with an upper shadow; 5th white, opens above the \
         4th's open, closes above its high: 100",
    )
    .fused(&[])
    .pattern(14, |c| {
        let [first, second, third, fourth, last] = c.bars();
        let down = [first, second, third];
        let steps = c.each_next(&down, |before, b| b.open().below(before.open()) & b.close().below(before.close()));
        let ladder = c.every(&down, Bar::black) & steps;
        let turn = last.white() & last.open().above(fourth.open()) & last.close().above(fourth.high());
        c.mark(ladder & fourth.black() & fourth.some_upper() & turn, 100.0)
    }),
    pattern(
        "cdlmathold",
        "mat hold: a long white body, three short ones that fall back a little, a new high",
        "1st long white; 2nd to 4th short, the 2nd black with its body above the 1st's, 3rd and 4th falling, \
         partly within the 1st's body, by less than penetration * that body; 5th white, opens above the 4th's \
         close, closes above the highest high of the three: 100",
    )
    .params(&[penetration(0.5)])
    .fused(&[Fused::Apart, Fused::MinusScaled])
    .pattern(14, |c| {
        let [first, second, third, fourth, last] = c.bars();
        let short = c.every(&[second, third, fourth], Bar::short);
        let deep = first.close() - first.body() * c.penetration();
        let holds = c.every(&[third, fourth], |b| b.bottom().between(deep, first.close()));
        let falls = third.top().below(second.open()) & fourth.top().below(third.top());
        let mat = second.black() & second.body_above(first) & holds & falls;
        let high = c.every(&[second, third, fourth], |b| last.close().above(b.high()));
        let turn = last.white() & last.open().above(fourth.close()) & high;
        c.mark(first.white() & first.long() & short & mat & turn, 100.0)
    }),
    pattern(
        "cdlrisefall3methods",
        "rising and falling three methods: a long body, three short ones back within its range, a long one further on",
        "1st and 5th long and of one colour; 2nd to 4th short, of the other colour, within the 1st's range, \
         closing further back each; 5th opens before the 4th's close, closes beyond the 1st's close; white: 100, \
         black: -100",
    )
    .pattern(14, |c| {
        let [first, second, third, fourth, last] = c.bars();
        let long = first.long() & last.long();
        let back = c.every(&[second, third, fourth], |b| {
            b.short() & b.bottom().below(first.high()) & b.top().above(first.low())
        });
        let colours = first.other_colour(second)
            & second.same_colour(third)
            & third.same_colour(fourth)
            & fourth.other_colour(last);
        let shaped = long & back & colours;
        let up = first.white()
            & third.close().below(second.close())
            & fourth.close().below(third.close())
            & last.open().above(fourth.close())
            & last.close().above(first.close());
        let down = first.black()
            & third.close().above(second.close())
            & fourth.close().above(third.close())
            & last.open().below(fourth.close())
            & last.close().below(first.close());
        c.signal(shaped & up, shaped & down)
    }),
];

/// Bars that a hikkake waits for its confirmation.
const PATIENCE: u32 = 3;

/// `up` and `down`: whether a bullish and a bearish pattern ends at the current bar. The latest one is confirmed by the
/// first close beyond the bar before its last, within three bars.
fn hikkake<'c>(c: &'c Candles<'c>, (up, down): (Truth<'c>, Truth<'c>)) -> Num<'c> {
    let none_now = !(up | down);
    let now = c.at(0);
    let confirmed = |pattern: Truth<'c>, beyond: &dyn Fn(Bar<'c>) -> Truth<'c>| {
        let wait = |age: u32, unconfirmed: Truth<'c>| {
            let waiting = unconfirmed.lag(1) & none_now;
            let beyond = beyond(c.at(age + 1));
            (waiting & beyond, waiting & !beyond)
        };
        let first = wait(1, pattern);
        let (found, _) = (2..=PATIENCE).fold(first, |(found, unconfirmed), age| {
            let (now, still) = wait(age, unconfirmed);
            (found | now, still)
        });
        found
    };
    let risen = confirmed(up, &|inside| now.close().above(inside.high()));
    let fallen = confirmed(down, &|inside| now.close().below(inside.low()));
    let later = risen.choose(c.constant(200.0), c.mark(fallen, -200.0));
    up.choose(c.constant(100.0), down.choose(c.constant(-100.0), later))
}
