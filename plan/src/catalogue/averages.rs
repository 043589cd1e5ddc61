//! Moving averages.

use super::moving::{MESA_FAST, MESA_SLOW, T3_FACTOR};
use super::{Formula, Function, ONE, Param, ParamDefault, ParamType, REAL, TALIB, average, bars, num, output, period};
use crate::ast::CompareOp;
use crate::family::Mesa;
use crate::graph::{NodeId, Op};
use crate::limits::PLAN_NODES_MAX;

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
    Function {
        name: "dema",
        aliases: &[],
        group: GROUP,
        summary: "double exponential moving average",
        formula: "2e - ema(e), e = ema(x)",
        reference: TALIB,
        series: &[REAL],
        params: &[period(30, 1)],
        outputs: ONE,
        build: |f| kind(f, 3.0),
    },
    Function {
        name: "tema",
        aliases: &[],
        group: GROUP,
        summary: "triple exponential moving average",
        formula: "3e - 3*ema(e) + ema(ema(e)), e = ema(x)",
        reference: TALIB,
        series: &[REAL],
        params: &[period(30, 1)],
        outputs: ONE,
        build: |f| kind(f, 4.0),
    },
    Function {
        name: "trima",
        aliases: &[],
        group: GROUP,
        summary: "triangular moving average",
        formula: "weights rise by one to the middle of the window and fall again",
        reference: TALIB,
        series: &[REAL],
        params: &[period(30, 1)],
        outputs: ONE,
        build: |f| kind(f, 5.0),
    },
    Function {
        name: "t3",
        aliases: &[],
        group: GROUP,
        summary: "Tillson's T3 moving average",
        formula: "c1*e6 + c2*e5 + c3*e4 + c4*e3, en being n exponential means over each other; c1 = -v^3, c2 = 3(v^2 + v^3), c3 = -6v^2 - 3(v + v^3), c4 = 1 + 3v + 3v^2 + v^3, v = vfactor",
        reference: TALIB,
        series: &[REAL],
        params: &[
            period(5, 1),
            Param {
                name: "vfactor",
                kind: ParamType::Real { min: 0.0, max: 1.0 },
                default: ParamDefault::Value(T3_FACTOR),
            },
        ],
        outputs: ONE,
        build: |f| vec![f.tillson(f.series(0), f.bars(0), f.real(1))],
    },
    Function {
        name: "hma",
        aliases: &[],
        group: GROUP,
        summary: "Hull's moving average",
        formula: "wma over sqrt(timeperiod) of 2*wma(timeperiod/2) - wma(timeperiod), both periods cut off to whole numbers",
        reference: TALIB,
        series: &[REAL],
        params: &[period(20, 1)],
        outputs: ONE,
        build: |f| kind(f, 9.0),
    },
    Function {
        name: "zlema",
        aliases: &[],
        group: GROUP,
        summary: "exponential moving average without lag",
        formula: "ema of 2x - x[(timeperiod-1)/2], the offset cut off to a whole number",
        reference: TALIB,
        series: &[REAL],
        params: &[period(30, 1)],
        outputs: ONE,
        build: |f| kind(f, 12.0),
    },
    Function {
        name: "rma",
        aliases: &[],
        group: GROUP,
        summary: "Wilder's moving average",
        formula: "(m*(timeperiod-1) + x)/timeperiod, seeded with the mean of the first timeperiod values",
        reference: TALIB,
        series: &[REAL],
        params: &[period(30, 1)],
        outputs: ONE,
        build: |f| kind(f, 13.0),
    },
    Function {
        name: "ma",
        aliases: &[],
        group: GROUP,
        summary: "moving average of a chosen type",
        formula: "the average that matype names; default is sma",
        reference: TALIB,
        series: &[REAL],
        params: &[period(30, 1), average("matype")],
        outputs: ONE,
        build: |f| kind(f, f.real(1)),
    },
    Function {
        name: "mama",
        aliases: &[],
        group: GROUP,
        summary: "Ehlers' adaptive moving average and the average that follows it",
        formula: "mama = a*x + (1-a)*mama, a = fastlimit / degrees that the phase of the cycle fell by, between slowlimit and fastlimit; fama = the same of mama with a/2",
        reference: TALIB,
        series: &[REAL],
        params: &[
            Param {
                name: "fastlimit",
                kind: ParamType::Real { min: 0.01, max: 0.99 },
                default: ParamDefault::Value(MESA_FAST),
            },
            Param {
                name: "slowlimit",
                kind: ParamType::Real { min: 0.01, max: 0.99 },
                default: ParamDefault::Value(MESA_SLOW),
            },
        ],
        outputs: &[output("mama", &[]), output("fama", &[])],
        build: |f| [Mesa::Mama, Mesa::Fama].map(|result| f.mesa(f.series(0), f.real(0), f.real(1), result)).to_vec(),
    },
    Function {
        name: "mavp",
        aliases: &[],
        group: GROUP,
        summary: "moving average with a period of each bar's own",
        formula: "the average of matype over as many bars as periods says, cut off to a whole number and held between minperiod and maxperiod; all start where maxperiod does",
        reference: TALIB,
        series: &[REAL, num("periods", None)],
        params: &[bars("minperiod", 2, 1), bars("maxperiod", 30, 1), average("matype")],
        outputs: ONE,
        build: variable,
    },
];

fn kind(f: &mut Formula<'_>, kind: f64) -> Vec<NodeId> {
    let (x, p) = (f.series(0), f.bars(0));
    vec![f.average(kind, x, p)]
}

fn variable(f: &mut Formula<'_>) -> Vec<NodeId> {
    let (x, periods) = (f.series(0), f.series(1));
    let (least, most, kind) = (f.bars(0), f.bars(1), f.real(2));
    let x = f.gate(x, periods);
    if kind == 0.0 {
        let mean = f.step_of(Op::VariableMean { least, most }, &[x, periods]);
        let begun = f.skip(x, most - 1);
        return vec![f.gate(mean, begun)];
    }
    let look_back = Formula::average_look_back(kind, most);
    let before = f.graph.nodes().len();
    let mut value = f.average(kind, x, most);
    for p in (least..most).rev() {
        // Nothing larger than this gets past the resolver.
        if f.graph.nodes().len() - before > PLAN_NODES_MAX {
            break;
        }
        let mean = f.average_after(kind, x, p, look_back);
        let next = f.constant(f64::from(p + 1));
        let shorter = f.compare(CompareOp::Less, periods, next);
        value = f.select(shorter, mean, value);
    }
    vec![value]
}
