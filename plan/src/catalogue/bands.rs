//! Bands, extremes and dispersion.

use super::{
    Formula, Function, HIGH, LOW, ONE, Param, ParamDefault, ParamType, REAL, TALIB, average, num, output, period,
};
use crate::graph::{NodeId, Op};

const OVERLAP: &str = "Overlap studies";
const STATISTICS: &str = "Statistic functions";
const OPERATORS: &str = "Math operators";

/// TA-Lib's range of real parameters.
const REAL_RANGE: ParamType = ParamType::Real { min: -3e37, max: 3e37 };

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
    Function {
        name: "stddev",
        aliases: &[],
        group: STATISTICS,
        summary: "standard deviation of a window",
        formula: "nbdev * population standard deviation",
        reference: TALIB,
        series: &[REAL],
        params: &[period(5, 2), Param { name: "nbdev", kind: REAL_RANGE, default: ParamDefault::Value(1.0) }],
        outputs: ONE,
        build: |f| {
            let deviation = f.step(Op::Deviation(f.bars(0)), f.series(0));
            vec![f.scale(deviation, f.real(1))]
        },
    },
    Function {
        name: "correl",
        aliases: &[],
        group: STATISTICS,
        summary: "Pearson's correlation of two series over a window",
        formula: "covariance / (deviation * deviation); 0 where one of them does not vary",
        reference: TALIB,
        series: &[num("real0", None), num("real1", None)],
        params: &[period(30, 1)],
        outputs: ONE,
        build: |f| vec![f.step_of(Op::Correlation(f.bars(0)), &[f.series(0), f.series(1)])],
    },
    Function {
        name: "max",
        aliases: &[],
        group: OPERATORS,
        summary: "highest value of a window (element-wise: maximum)",
        formula: "max of the last timeperiod values",
        reference: TALIB,
        series: &[REAL],
        params: &[period(30, 2)],
        outputs: ONE,
        build: |f| window(f, Op::Max(f.bars(0))),
    },
    Function {
        name: "min",
        aliases: &[],
        group: OPERATORS,
        summary: "lowest value of a window (element-wise: minimum)",
        formula: "min of the last timeperiod values",
        reference: TALIB,
        series: &[REAL],
        params: &[period(30, 2)],
        outputs: ONE,
        build: |f| window(f, Op::Min(f.bars(0))),
    },
];

fn window(f: &mut Formula<'_>, op: Op) -> Vec<NodeId> {
    let x = f.series(0);
    vec![f.step(op, x)]
}
