//! Moving averages.

use super::{Formula, Function, ONE, REAL, TALIB, period};
use crate::graph::NodeId;

const GROUP: &str = "Overlap studies";

pub(super) const LIST: &[Function] = &[
    Function {
        name: "sma",
        aliases: &[],
        group: GROUP,
        summary: "simple moving average",
        formula: "mean of the last timeperiod values",
        reference: TALIB,
        series: &[REAL],
        params: &[period(30, 1)],
        outputs: ONE,
        build: |f| kind(f, 0.0),
    },
    Function {
        name: "ema",
        aliases: &[],
        group: GROUP,
        summary: "exponential moving average",
        formula: "m + (x - m)*2/(timeperiod+1), seeded with the mean of the first timeperiod values",
        reference: TALIB,
        series: &[REAL],
        params: &[period(30, 1)],
        outputs: ONE,
        build: |f| kind(f, 1.0),
    },
    Function {
        name: "wma",
        aliases: &[],
        group: GROUP,
        summary: "linearly weighted moving average",
        formula: "sum of k*x over the window, k = 1 (oldest) .. timeperiod, divided by the sum of k",
        reference: TALIB,
        series: &[REAL],
        params: &[period(30, 1)],
        outputs: ONE,
        build: |f| kind(f, 2.0),
    },
    Function {
        name: "kama",
        aliases: &[],
        group: GROUP,
        summary: "Kaufman's adaptive moving average",
        formula: "k + c*(x - k), c = (e*(2/3 - 2/31) + 2/31)^2, e = |change over timeperiod| / sum of |changes|; starts from the value before its first bar",
        reference: TALIB,
        series: &[REAL],
        params: &[period(30, 1)],
        outputs: ONE,
        build: |f| kind(f, 6.0),
    },
];

fn kind(f: &mut Formula<'_>, kind: f64) -> Vec<NodeId> {
    let (x, p) = (f.series(0), f.bars(0));
    vec![f.average(kind, x, p)]
}
