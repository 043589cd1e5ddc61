//! Bands.

use super::{Function, HIGH, LOW, Param, ParamDefault, REAL, REAL_RANGE, TALIB, average, output, period};
use crate::graph::Op;

const OVERLAP: &str = "Overlap studies";

pub(super) const LIST: &[Function] = &[
    Function {
        name: "bbands",
        aliases: &[],
        group: OVERLAP,
        summary: "Bollinger bands",
        formula: "middleband = average; upperband = middle + nbdevup * population deviation; lowerband = middle - nbdevdn * deviation",
        reference: TALIB,
        series: &[REAL],
        params: &[
            period(20, 2),
            Param { name: "nbdevup", kind: REAL_RANGE, default: ParamDefault::Value(2.0) },
            Param { name: "nbdevdn", kind: REAL_RANGE, default: ParamDefault::SameAs("nbdevup") },
            average("matype"),
        ],
        outputs: &[output("upperband", &["upper"]), output("middleband", &["middle"]), output("lowerband", &["lower"])],
        build: |f| {
            let (x, p) = (f.series(0), f.bars(0));
            let middle = f.average(f.real(3), x, p);
            let deviation = f.step(Op::Deviation(p), x);
            let up = f.scale(deviation, f.real(1));
            let down = f.scale(deviation, f.real(2));
            let (upper, lower) = (f.add(middle, up), f.subtract(middle, down));
            vec![upper, f.gate(middle, upper), lower]
        },
    },
    Function {
        name: "donchian",
        aliases: &[],
        group: OVERLAP,
        summary: "Donchian channel",
        formula: "upperband = highest high, lowerband = lowest low over timeperiod; middleband = their mean",
        reference: TALIB,
        series: &[HIGH, LOW],
        params: &[period(20, 2)],
        outputs: &[output("upperband", &["upper"]), output("middleband", &["middle"]), output("lowerband", &["lower"])],
        build: |f| {
            let p = f.bars(0);
            let upper = f.step(Op::Max(p), f.series(0));
            let lower = f.step(Op::Min(p), f.series(1));
            let sum = f.add(upper, lower);
            vec![upper, f.over(sum, 2.0), lower]
        },
    },
];
