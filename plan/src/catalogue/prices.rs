//! One price of a bar or a window.

use super::{CLOSE, Formula, Function, HIGH, LOW, ONE, OPEN, REAL, TALIB, output, period};
use crate::graph::{Binary, NodeId, Op};

const GROUP: &str = "Price transform";

pub(super) const LIST: &[Function] = &[
    Function {
        name: "avgdev",
        aliases: &[],
        group: GROUP,
        summary: "average deviation of a window",
        formula: "mean of |x - mean of the window|",
        reference: TALIB,
        series: &[REAL],
        params: &[period(14, 2)],
        outputs: ONE,
        build: deviation,
    },
    Function {
        name: "avgprice",
        aliases: &[],
        group: GROUP,
        summary: "average price of the bar",
        formula: "(open + high + low + close)/4",
        reference: TALIB,
        series: &[OPEN, HIGH, LOW, CLOSE],
        params: &[],
        outputs: ONE,
        build: |f| mean(f, &[1, 2, 3, 0]),
    },
    Function {
        name: "ha",
        aliases: &[],
        group: GROUP,
        summary: "Heikin-Ashi candles",
        formula: "haclose = (open + high + low + close)/4; haopen = (haopen[1] + haclose[1])/2, the first (open + close)/2; hahigh and halow = highest and lowest of the two and the bar's own",
        reference: TALIB,
        series: &[OPEN, HIGH, LOW, CLOSE],
        params: &[],
        outputs: &[
            output("haopen", &["open"]),
            output("hahigh", &["high"]),
            output("halow", &["low"]),
            output("haclose", &["close"]),
        ],
        build: heikin_ashi,
    },
    Function {
        name: "medprice",
        aliases: &[],
        group: GROUP,
        summary: "median price of the bar",
        formula: "(high + low)/2",
        reference: TALIB,
        series: &[HIGH, LOW],
        params: &[],
        outputs: ONE,
        build: |f| mean(f, &[0, 1]),
    },
    Function {
        name: "typprice",
        aliases: &[],
        group: GROUP,
        summary: "typical price of the bar",
        formula: "(high + low + close)/3",
        reference: TALIB,
        series: &[HIGH, LOW, CLOSE],
        params: &[],
        outputs: ONE,
        build: |f| mean(f, &[0, 1, 2]),
    },
    Function {
        name: "wclprice",
        aliases: &[],
        group: GROUP,
        summary: "price of the bar weighted to the close",
        formula: "(high + low + 2*close)/4",
        reference: TALIB,
        series: &[HIGH, LOW, CLOSE],
        params: &[],
        outputs: ONE,
        build: weighted_close,
    },
];

fn deviation(f: &mut Formula<'_>) -> Vec<NodeId> {
    let (x, p) = (f.series(0), f.bars(0));
    let mean = f.step(Op::Mean(p), x);
    vec![f.step_of(Op::MeanDeviation(p), &[x, mean])]
}

/// The mean of some series arguments, added in the order given.
fn mean(f: &mut Formula<'_>, series: &[usize]) -> Vec<NodeId> {
    let mut sum = f.series(series[0]);
    for i in &series[1..] {
        sum = f.add(sum, f.series(*i));
    }
    vec![f.over(sum, series.len() as f64)]
}

fn weighted_close(f: &mut Formula<'_>) -> Vec<NodeId> {
    let sum = f.add(f.series(0), f.series(1));
    let close = f.scale(f.series(2), 2.0);
    let sum = f.add(sum, close);
    vec![f.over(sum, 4.0)]
}

fn heikin_ashi(f: &mut Formula<'_>) -> Vec<NodeId> {
    let (open, high, low, close) = (f.series(0), f.series(1), f.series(2), f.series(3));
    let mean = mean(f, &[0, 1, 2, 3])[0];
    let candle_open = f.step_of(Op::HeikinAshi, &[open, close, mean]);
    let top = f.maximum(candle_open, mean);
    let bottom = f.binary(Binary::Minimum, candle_open, mean);
    vec![candle_open, f.maximum(high, top), f.binary(Binary::Minimum, low, bottom), mean]
}
