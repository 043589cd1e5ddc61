//! Patterns of one bar, judged by the ten bars before it.

use super::super::{Function, Fused};
use super::pattern;

pub(crate) const LIST: &[Function] = &[
    pattern(
        "cdlbelthold",
        "belt hold: a long body from one end of the bar",
        "long white without lower shadow: 100; long black without upper shadow: -100",
    )
    .pattern(10, |c| {
        let bar = c.at(0);
        c.signal(bar.long() & bar.white() & bar.no_lower(), bar.long() & bar.black() & bar.no_upper())
    }),
    pattern(
        "cdlclosingmarubozu",
        "closing marubozu: a long body that ends at the close's extreme",
        "long white without upper shadow: 100; long black without lower shadow: -100",
    )
    .pattern(10, |c| {
        let bar = c.at(0);
        c.signal(bar.long() & bar.white() & bar.no_upper(), bar.long() & bar.black() & bar.no_lower())
    }),
    pattern("cdldoji", "doji: open and close as good as equal", "100 where the body is that of a doji")
        .pattern(10, |c| c.mark(c.at(0).doji(), 100.0)),
    pattern(
        "cdldragonflydoji",
        "dragonfly doji: a doji at the top of its bar",
        "doji without upper shadow, with a lower one: 100",
    )
    .pattern(10, |c| {
        let bar = c.at(0);
        c.mark(bar.doji() & bar.no_upper() & bar.some_lower(), 100.0)
    }),
    pattern(
        "cdlgravestonedoji",
        "gravestone doji: a doji at the bottom of its bar",
        "doji without lower shadow, with an upper one: 100",
    )
    .pattern(10, |c| {
        let bar = c.at(0);
        c.mark(bar.doji() & bar.no_lower() & bar.some_upper(), 100.0)
    }),
    pattern(
        "cdlhighwave",
        "high wave: a short body between very long shadows",
        "short body, both shadows longer than twice the body; white: 100, black: -100",
    )
    .pattern(10, |c| {
        let bar = c.at(0);
        c.coloured(bar.short() & bar.very_long_upper() & bar.very_long_lower(), bar)
    }),
    pattern(
        "cdllongleggeddoji",
        "long-legged doji: a doji with a shadow longer than its body",
        "doji, one shadow or both longer than the body: 100",
    )
    .pattern(10, |c| {
        let bar = c.at(0);
        c.mark(bar.doji() & (bar.long_lower() | bar.long_upper()), 100.0)
    }),
    pattern(
        "cdllongline",
        "long line: a long body between short shadows",
        "long body, both shadows short; white: 100, black: -100",
    )
    .pattern(10, |c| {
        let bar = c.at(0);
        c.coloured(bar.long() & bar.short_upper() & bar.short_lower(), bar)
    }),
    pattern(
        "cdlmarubozu",
        "marubozu: a long body that fills its bar",
        "long body without shadows; white: 100, black: -100",
    )
    .pattern(10, |c| {
        let bar = c.at(0);
        c.coloured(bar.long() & bar.no_upper() & bar.no_lower(), bar)
    }),
    pattern(
        "cdlrickshawman",
        "rickshaw man: a long-legged doji in the middle of its bar",
        "doji, both shadows longer than the body, the body at or near the middle of the bar: 100",
    )
    .fused(&[Fused::Apart, Fused::PlusScaled])
    .pattern(10, |c| {
        let bar = c.at(0);
        let middle = bar.low() + bar.range() * 0.5;
        let centred = bar.bottom().at_most(middle + bar.near()) & bar.top().at_least(middle - bar.near());
        c.mark(bar.doji() & bar.long_lower() & bar.long_upper() & centred, 100.0)
    }),
    pattern(
        "cdlshortline",
        "short line: a short body between short shadows",
        "short body, both shadows short; white: 100, black: -100",
    )
    .pattern(10, |c| {
        let bar = c.at(0);
        c.coloured(bar.short() & bar.short_upper() & bar.short_lower(), bar)
    }),
    pattern(
        "cdlspinningtop",
        "spinning top: a short body between longer shadows",
        "short body, both shadows longer than it; white: 100, black: -100",
    )
    .pattern(10, |c| {
        let bar = c.at(0);
        c.coloured(bar.short() & bar.long_upper() & bar.long_lower(), bar)
    }),
    pattern(
        "cdltakuri",
        "takuri: a dragonfly doji with a very long lower shadow",
        "doji without upper shadow, the lower one longer than twice the body: 100",
    )
    .pattern(10, |c| {
        let bar = c.at(0);
        c.mark(bar.doji() & bar.no_upper() & bar.very_long_lower(), 100.0)
    }),
];
