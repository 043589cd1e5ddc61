//! Channels and stops that lie over the price.

use super::{
    CLOSE, Formula, Function, HIGH, LOW, ONE, Param, ParamDefault, ParamType, REAL, TALIB, VOLUME, bars, output, period,
};
use crate::family::{Acceleration, Parabolic, SuperTrend};
use crate::graph::{Binary, NodeId, Op};

const GROUP: &str = "Overlap studies";

pub(super) const LIST: &[Function] = &[
    Function {
        name: "accbands",
        aliases: &[],
        group: GROUP,
        summary: "acceleration bands",
        formula: "upperband = sma of high*(1 + w), lowerband = sma of low*(1 - w), w = 4(high - low)/(high + low); middleband = sma of close",
        reference: TALIB,
        series: &[HIGH, LOW, CLOSE],
        params: &[period(20, 2)],
        outputs: &[output("upperband", &["upper"]), output("middleband", &["middle"]), output("lowerband", &["lower"])],
        build: acceleration,
    },
    Function {
        name: "kc",
        aliases: &[],
        group: GROUP,
        summary: "Keltner channel",
        formula: "middleband = ema of (high + low + close)/3; upperband and lowerband = middleband +- nbdev * atr(atrperiod)",
        reference: TALIB,
        series: &[HIGH, LOW, CLOSE],
        params: &[
            period(20, 2),
            bars("atrperiod", 10, 1),
            Param { name: "nbdev", kind: ParamType::Real { min: -3e37, max: 3e37 }, default: ParamDefault::Value(2.0) },
        ],
        outputs: &[output("upperband", &["upper"]), output("middleband", &["middle"]), output("lowerband", &["lower"])],
        build: keltner,
    },
    Function {
        name: "midpoint",
        aliases: &[],
        group: GROUP,
        summary: "middle of the range of a window",
        formula: "(highest value + lowest value)/2",
        reference: TALIB,
        series: &[REAL],
        params: &[period(14, 2)],
        outputs: ONE,
        build: |f| middle(f, 0, 0),
    },
    Function {
        name: "midprice",
        aliases: &[],
        group: GROUP,
        summary: "middle of the price range of a window",
        formula: "(highest high + lowest low)/2",
        reference: TALIB,
        series: &[HIGH, LOW],
        params: &[period(14, 2)],
        outputs: ONE,
        build: |f| middle(f, 0, 1),
    },
    Function {
        name: "vwma",
        aliases: &[],
        group: GROUP,
        summary: "moving average weighted by volume",
        formula: "sum of x*volume / sum of volume over the window; NA where no volume is",
        reference: TALIB,
        series: &[REAL, VOLUME],
        params: &[period(30, 1)],
        outputs: ONE,
        build: by_volume,
    },
    Function {
        name: "supertrend",
        aliases: &[],
        group: GROUP,
        summary: "stop of a trend at a multiple of the average true range",
        formula: "bands (high + low)/2 +- multiplier * atr, each moving only towards the price until a close passes it; supertrend is the lower band while the trend is 1, the upper one while it is -1",
        reference: TALIB,
        series: &[HIGH, LOW, CLOSE],
        params: &[
            period(10, 2),
            Param {
                name: "multiplier",
                kind: ParamType::Real { min: 0.0, max: 3e37 },
                default: ParamDefault::Value(3.0),
            },
        ],
        outputs: &[output("supertrend", &["line"]), output("trend", &[])],
        build: super_trend,
    },
    Function {
        name: "sar",
        aliases: &[],
        group: GROUP,
        summary: "Wilder's parabolic stop and reverse",
        formula: "stop + af*(extreme - stop), never inside the last two bars; af rises by acceleration with each new extreme, up to maximum",
        reference: TALIB,
        series: &[HIGH, LOW],
        params: &[
            Param {
                name: "acceleration",
                kind: ParamType::Real { min: 0.0, max: 3e37 },
                default: ParamDefault::Value(0.02),
            },
            Param { name: "maximum", kind: ParamType::Real { min: 0.0, max: 3e37 }, default: ParamDefault::Value(0.2) },
        ],
        outputs: ONE,
        build: parabolic,
    },
    Function {
        name: "sarext",
        aliases: &[],
        group: GROUP,
        summary: "parabolic stop and reverse with an acceleration of its own in each direction",
        formula: "as sar, negative while short; startvalue > 0 begins long at it, < 0 short at its magnitude; a reversal moves the stop by offsetonreverse of itself",
        reference: TALIB,
        series: &[HIGH, LOW],
        params: &[
            Param {
                name: "startvalue",
                kind: ParamType::Real { min: -3e37, max: 3e37 },
                default: ParamDefault::Value(0.0),
            },
            Param {
                name: "offsetonreverse",
                kind: ParamType::Real { min: 0.0, max: 3e37 },
                default: ParamDefault::Value(0.0),
            },
            Param {
                name: "accelerationinitlong",
                kind: ParamType::Real { min: 0.0, max: 3e37 },
                default: ParamDefault::Value(0.02),
            },
            Param {
                name: "accelerationlong",
                kind: ParamType::Real { min: 0.0, max: 3e37 },
                default: ParamDefault::Value(0.02),
            },
            Param {
                name: "accelerationmaxlong",
                kind: ParamType::Real { min: 0.0, max: 3e37 },
                default: ParamDefault::Value(0.2),
            },
            Param {
                name: "accelerationinitshort",
                kind: ParamType::Real { min: 0.0, max: 3e37 },
                default: ParamDefault::Value(0.02),
            },
            Param {
                name: "accelerationshort",
                kind: ParamType::Real { min: 0.0, max: 3e37 },
                default: ParamDefault::Value(0.02),
            },
            Param {
                name: "accelerationmaxshort",
                kind: ParamType::Real { min: 0.0, max: 3e37 },
                default: ParamDefault::Value(0.2),
            },
        ],
        outputs: ONE,
        build: parabolic_extended,
    },
];

fn acceleration(f: &mut Formula<'_>) -> Vec<NodeId> {
    let (high, low, close) = (f.series(0), f.series(1), f.series(2));
    let p = f.bars(0);
    let range = f.subtract(high, low);
    let range = f.scale(range, 4.0);
    let sum = f.add(high, low);
    let width = f.binary(Binary::RatioOrZeroEpsilon, range, sum);
    let one = f.constant(1.0);
    let wider = f.add(one, width);
    let narrower = f.subtract(one, width);
    let upper = f.multiply(high, wider);
    let lower = f.multiply(low, narrower);
    // All three skip the same bars.
    let whole = f.add(sum, close);
    [upper, close, lower].map(|x| f.gate(x, whole)).map(|x| f.step(Op::Mean(p), x)).to_vec()
}

fn keltner(f: &mut Formula<'_>) -> Vec<NodeId> {
    let (high, low, close) = (f.series(0), f.series(1), f.series(2));
    let (p, atr) = (f.bars(0), f.bars(1));
    let typical = f.typical(high, low, close);
    let range = f.true_range(high, low, close);
    // TA-Lib seeds each where the later one starts.
    let look_back = atr.max(p - 1);
    let typical = f.skip(typical, look_back - (p - 1));
    let range = f.skip(range, look_back - atr);
    let middle = f.exponential(typical, p);
    let range = f.wilder(range, atr);
    let band = f.scale(range, f.real(2));
    vec![f.add(middle, band), f.gate(middle, band), f.subtract(middle, band)]
}

fn middle(f: &mut Formula<'_>, high: usize, low: usize) -> Vec<NodeId> {
    let p = f.bars(0);
    let high = f.step(Op::Max(p), f.series(high));
    let low = f.step(Op::Min(p), f.series(low));
    let sum = f.add(high, low);
    vec![f.over(sum, 2.0)]
}

fn by_volume(f: &mut Formula<'_>) -> Vec<NodeId> {
    let (x, volume, p) = (f.series(0), f.series(1), f.bars(0));
    if p == 1 {
        return vec![f.gate(x, volume)];
    }
    let value = f.multiply(x, volume);
    let volume = f.gate(volume, value);
    let value = f.step(Op::Sum(p), value);
    let volume = f.step(Op::Sum(p), volume);
    vec![f.binary(Binary::Divide, value, volume)]
}

fn super_trend(f: &mut Formula<'_>) -> Vec<NodeId> {
    let (high, low, close) = (f.series(0), f.series(1), f.series(2));
    let range = f.true_range(high, low, close);
    let range = f.wilder(range, f.bars(0));
    let band = f.scale(range, f.real(1));
    let sum = f.add(high, low);
    let median = f.over(sum, 2.0);
    let upper = f.add(median, band);
    let lower = f.subtract(median, band);
    [SuperTrend::Line, SuperTrend::Trend]
        .map(|result| f.step_of(Op::SuperTrend(result), &[upper, lower, close]))
        .to_vec()
}

fn parabolic(f: &mut Formula<'_>) -> Vec<NodeId> {
    let step = f.real(0).into();
    let both = Acceleration { start: step, step, most: f.real(1).into() };
    let constants = Parabolic { start: 0.0.into(), offset: 0.0.into(), long: both, short: both, signed: false };
    vec![f.step_of(Op::Parabolic(constants), &[f.series(0), f.series(1)])]
}

fn parabolic_extended(f: &mut Formula<'_>) -> Vec<NodeId> {
    let pace =
        |at: usize| Acceleration { start: f.real(at).into(), step: f.real(at + 1).into(), most: f.real(at + 2).into() };
    let constants =
        Parabolic { start: f.real(0).into(), offset: f.real(1).into(), long: pace(2), short: pace(5), signed: true };
    vec![f.step_of(Op::Parabolic(constants), &[f.series(0), f.series(1)])]
}
