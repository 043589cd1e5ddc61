//! Momentum and volatility.

use super::oscillators::{MACD, with_signal};
use super::{CLOSE, Formula, Function, HIGH, LOW, ONE, REAL, TALIB, VOLUME, bars, period};
use crate::ast::CompareOp;
use crate::graph::{Binary, NodeId, Op};
use crate::scalar::TALIB_EPSILON;

const MOMENTUM: &str = "Momentum indicators";
const VOLATILITY: &str = "Volatility indicators";

pub(super) const LIST: &[Function] = &[
    Function {
        name: "rsi",
        aliases: &[],
        group: MOMENTUM,
        summary: "relative strength index, 0 to 100",
        formula: "100*g/(g + l), g and l being Wilder's means of the gains and of the losses; 0 when both are 0",
        reference: TALIB,
        series: &[REAL],
        params: &[period(14, 2)],
        outputs: ONE,
        build: |f| {
            let (x, p) = (f.series(0), f.bars(0));
            vec![f.relative_strength(x, p)]
        },
    },
    Function {
        name: "macd",
        aliases: &[],
        group: MOMENTUM,
        summary: "moving average convergence/divergence",
        formula: "macd = ema(fast) - ema(slow), both seeded at the slow one's first bar; macdsignal = ema(macd, signal); macdhist = macd - macdsignal; all three start together",
        reference: TALIB,
        series: &[REAL],
        params: &[bars("fastperiod", 12, 2), bars("slowperiod", 26, 2), bars("signalperiod", 9, 1)],
        outputs: MACD,
        build: macd,
    },
    Function {
        name: "cci",
        aliases: &[],
        group: MOMENTUM,
        summary: "commodity channel index",
        formula: "(t - sma(t))/(0.015 * mean of |t - sma(t)|), t = (high + low + close)/3; 0 where the deviation is below 1e-14 of the mean",
        reference: TALIB,
        series: &[HIGH, LOW, CLOSE],
        params: &[period(14, 2)],
        outputs: ONE,
        build: cci,
    },
    Function {
        name: "mfi",
        aliases: &[],
        group: MOMENTUM,
        summary: "money flow index, 0 to 100: an RSI weighted by volume",
        formula: "100*p/(p + n), p and n being the sums of t*volume on bars where t = (high + low + close)/3 rose or fell by more than 2e-14 of it; 0 where both are 0",
        reference: TALIB,
        series: &[HIGH, LOW, CLOSE, VOLUME],
        params: &[period(14, 2)],
        outputs: ONE,
        build: mfi,
    },
    Function {
        name: "atr",
        aliases: &[],
        group: VOLATILITY,
        summary: "average true range",
        formula: "Wilder's mean of max(high - low, |high - close[1]|, |low - close[1]|)",
        reference: TALIB,
        series: &[HIGH, LOW, CLOSE],
        params: &[period(14, 1)],
        outputs: ONE,
        build: |f| {
            let range = f.true_range(f.series(0), f.series(1), f.series(2));
            vec![f.wilder(range, f.bars(0))]
        },
    },
];

impl Formula<'_> {
    /// 100*g/(g + l), g and l being Wilder's means of the gains and of the losses; 0 when both are 0.
    pub fn relative_strength(&mut self, x: NodeId, p: u32) -> NodeId {
        let before = self.lag(x, 1);
        let change = self.subtract(x, before);
        let [gain, loss] = self.rises_and_falls(change).map(|part| self.step(Op::Wilder(p), part));
        let total = self.add(gain, loss);
        let ratio = self.binary(Binary::RatioOrZero, gain, total);
        self.scale(ratio, 100.0)
    }
}

fn macd(f: &mut Formula<'_>) -> Vec<NodeId> {
    let x = f.series(0);
    let (fast, slow) = (f.bars(0).min(f.bars(1)), f.bars(0).max(f.bars(1)));
    let fast = f.step(Op::Exponential { p: fast, delay: slow - fast }, x);
    let slow = f.step(Op::Exponential { p: slow, delay: 0 }, x);
    let line = f.subtract(fast, slow);
    let signal = f.step(Op::Exponential { p: f.bars(2), delay: 0 }, line);
    with_signal(f, line, signal)
}

fn cci(f: &mut Formula<'_>) -> Vec<NodeId> {
    let p = f.bars(0);
    let typical = f.typical(f.series(0), f.series(1), f.series(2));
    let mean = f.step(Op::Mean(p), typical);
    let deviation = f.step_of(Op::MeanDeviation(p), &[typical, mean]);
    let apart = f.subtract(typical, mean);
    let scaled = f.scale(deviation, 0.015);
    let ratio = f.binary(Binary::RatioOrZero, apart, scaled);
    // What is left of a flat window's deviation is rounding.
    let size = f.absolute(mean);
    let least = f.scale(size, TALIB_EPSILON);
    let varies = f.compare_unflagged(CompareOp::Greater, deviation, least);
    let zero = f.constant(0.0);
    vec![f.select(varies, ratio, zero)]
}

fn mfi(f: &mut Formula<'_>) -> Vec<NodeId> {
    let p = f.bars(0);
    let typical = f.typical(f.series(0), f.series(1), f.series(2));
    let before = f.lag(typical, 1);
    let flow = f.multiply(typical, f.series(3));
    let rise = f.subtract(typical, before);
    let fall = f.subtract(before, typical);
    let zero = f.constant(0.0);
    let [positive, negative] = [rise, fall].map(|moved| {
        let counts = f.beyond_rounding(moved, typical, before);
        let part = f.select(counts, flow, zero);
        // A bar without volume is NA even where the price did not move.
        let part = f.gate(part, flow);
        f.step(Op::Sum(p), part)
    });
    let total = f.add(positive, negative);
    let ratio = f.binary(Binary::RatioOrZero, positive, total);
    vec![f.scale(ratio, 100.0)]
}
