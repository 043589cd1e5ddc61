//! Momentum and volatility.

use super::{CLOSE, Formula, Function, HIGH, LOW, ONE, REAL, TALIB, VOLUME, average, bars, output, period};
use crate::ast::CompareOp;
use crate::graph::{Binary, NodeId, Op, Unary};

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
        build: rsi,
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
        outputs: &[output("macd", &["line"]), output("macdsignal", &["signal"]), output("macdhist", &["hist"])],
        build: macd,
    },
    Function {
        name: "stoch",
        aliases: &[],
        group: MOMENTUM,
        summary: "slow stochastic, 0 to 100",
        formula: "slowk = average of 100*(close - lowest low)/(highest high - lowest low) over fastk_period, 0 where the range is 0; slowd = average of slowk; both start together",
        reference: TALIB,
        series: &[HIGH, LOW, CLOSE],
        params: &[
            bars("fastk_period", 5, 1),
            bars("slowk_period", 3, 1),
            average("slowk_matype"),
            bars("slowd_period", 3, 1),
            average("slowd_matype"),
        ],
        outputs: &[output("slowk", &["k"]), output("slowd", &["d"])],
        build: stoch,
    },
    Function {
        name: "adx",
        aliases: &[],
        group: MOMENTUM,
        summary: "average directional index, 0 to 100: strength of a trend whatever its direction",
        formula: "Wilder's mean of 100*|+DI - -DI|/(+DI + -DI); each DI is 100 * Wilder's sum of the directional movement / Wilder's sum of the true range",
        reference: TALIB,
        series: &[HIGH, LOW, CLOSE],
        params: &[period(14, 2)],
        outputs: ONE,
        build: adx,
    },
    Function {
        name: "cci",
        aliases: &[],
        group: MOMENTUM,
        summary: "commodity channel index",
        formula: "(t - sma(t))/(0.015 * mean of |t - sma(t)|), t = (high + low + close)/3; 0 where the deviation is 0",
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
        formula: "100*p/(p + n), p and n being the sums of t*volume on bars where t = (high + low + close)/3 rose or fell; 0 where p + n < 1",
        reference: TALIB,
        series: &[HIGH, LOW, CLOSE, VOLUME],
        params: &[period(14, 2)],
        outputs: ONE,
        build: mfi,
    },
    Function {
        name: "roc",
        aliases: &[],
        group: MOMENTUM,
        summary: "rate of change in percent",
        formula: "100*(x/x[timeperiod] - 1); 0 where x[timeperiod] is 0",
        reference: TALIB,
        series: &[REAL],
        params: &[period(10, 1)],
        outputs: ONE,
        build: roc,
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

fn rsi(f: &mut Formula<'_>) -> Vec<NodeId> {
    let (x, p) = (f.series(0), f.bars(0));
    let before = f.lag(x, 1);
    let change = f.subtract(x, before);
    // Both means hold at the same bars.
    let change = f.gate(change, change);
    let zero = f.constant(0.0);
    let gain = f.maximum(change, zero);
    let fall = f.unary(Unary::Negate, change);
    let loss = f.maximum(fall, zero);
    let gain = f.step(Op::Wilder(p), gain);
    let loss = f.step(Op::Wilder(p), loss);
    let total = f.add(gain, loss);
    let ratio = f.binary(Binary::RatioOrZeroEpsilon, gain, total);
    vec![f.scale(ratio, 100.0)]
}

fn macd(f: &mut Formula<'_>) -> Vec<NodeId> {
    let x = f.series(0);
    let (fast, slow) = (f.bars(0).min(f.bars(1)), f.bars(0).max(f.bars(1)));
    let fast = f.step(Op::Exponential { p: fast, delay: slow - fast }, x);
    let slow = f.step(Op::Exponential { p: slow, delay: 0 }, x);
    let line = f.subtract(fast, slow);
    let signal = f.step(Op::Exponential { p: f.bars(2), delay: 0 }, line);
    let hist = f.subtract(line, signal);
    vec![f.gate(line, signal), signal, hist]
}

fn stoch(f: &mut Formula<'_>) -> Vec<NodeId> {
    let (high, low, close) = (f.series(0), f.series(1), f.series(2));
    let (fastk, slowk, slowd) = (f.bars(0), f.bars(1), f.bars(3));
    let highest = f.step(Op::Max(fastk), high);
    let lowest = f.step(Op::Min(fastk), low);
    let range = f.subtract(highest, lowest);
    let hundredth = f.over(range, 100.0);
    let above = f.subtract(close, lowest);
    let fast = f.binary(Binary::RatioOrZero, above, hundredth);
    let k = f.average(f.real(2), fast, slowk);
    let d = f.average(f.real(4), k, slowd);
    vec![f.gate(k, d), d]
}

fn adx(f: &mut Formula<'_>) -> Vec<NodeId> {
    let (high, low, close) = (f.series(0), f.series(1), f.series(2));
    let p = f.bars(0);
    let zero = f.constant(0.0);
    let high_before = f.lag(high, 1);
    let low_before = f.lag(low, 1);
    let up = f.subtract(high, high_before);
    let down = f.subtract(low_before, low);
    let plus = directional(f, up, down, zero);
    let minus = directional(f, down, up, zero);
    let range = f.true_range(high, low, close);
    // All three sums hold at the same bars.
    let moved = f.add(up, down);
    let whole = f.add(moved, range);
    let (plus, minus, range) = (f.gate(plus, whole), f.gate(minus, whole), f.gate(range, whole));
    let plus = f.step(Op::WilderSum(p), plus);
    let minus = f.step(Op::WilderSum(p), minus);
    let range = f.step(Op::WilderSum(p), range);
    let plus = f.binary(Binary::RatioOrZeroEpsilon, plus, range);
    let plus = f.scale(plus, 100.0);
    let minus = f.binary(Binary::RatioOrZeroEpsilon, minus, range);
    let minus = f.scale(minus, 100.0);
    let apart = f.subtract(minus, plus);
    let apart = f.absolute(apart);
    let total = f.add(minus, plus);
    vec![f.step_of(Op::WilderRatio(p), &[apart, total])]
}

/// Wilder's directional movement: `this` where it is positive and exceeds `other`, else 0.
fn directional(f: &mut Formula<'_>, this: NodeId, other: NodeId, zero: NodeId) -> NodeId {
    let positive = f.greater(this, zero);
    let larger = f.greater(this, other);
    let both = f.and(positive, larger);
    f.select(both, this, zero)
}

fn cci(f: &mut Formula<'_>) -> Vec<NodeId> {
    let p = f.bars(0);
    let typical = f.typical(f.series(0), f.series(1), f.series(2));
    let mean = f.step(Op::Mean(p), typical);
    let deviation = f.step_of(Op::MeanDeviation(p), &[typical, mean]);
    let apart = f.subtract(typical, mean);
    let scaled = f.scale(deviation, 0.015);
    vec![f.binary(Binary::RatioOrZero, apart, scaled)]
}

fn mfi(f: &mut Formula<'_>) -> Vec<NodeId> {
    let p = f.bars(0);
    let typical = f.typical(f.series(0), f.series(1), f.series(2));
    let before = f.lag(typical, 1);
    let flow = f.multiply(typical, f.series(3));
    let zero = f.constant(0.0);
    let rose = f.greater(typical, before);
    let fell = f.greater(before, typical);
    let positive = f.select(rose, flow, zero);
    let negative = f.select(fell, flow, zero);
    // A bar without volume is NA even where the price did not move.
    let (positive, negative) = (f.gate(positive, flow), f.gate(negative, flow));
    let positive = f.step(Op::Sum(p), positive);
    let negative = f.step(Op::Sum(p), negative);
    let total = f.add(positive, negative);
    let one = f.constant(1.0);
    let tiny = f.compare(CompareOp::Less, total, one);
    let ratio = f.binary(Binary::RatioOrZero, positive, total);
    let index = f.scale(ratio, 100.0);
    vec![f.select(tiny, zero, index)]
}

fn roc(f: &mut Formula<'_>) -> Vec<NodeId> {
    let x = f.series(0);
    let before = f.lag(x, f.bars(0));
    let zero = f.constant(0.0);
    let nothing = f.compare(CompareOp::Equal, before, zero);
    let ratio = f.binary(Binary::RatioOrZero, x, before);
    let one = f.constant(1.0);
    let change = f.subtract(ratio, one);
    let percent = f.scale(change, 100.0);
    let change = f.select(nothing, zero, percent);
    // NA stays NA where x[timeperiod] is 0.
    vec![f.gate(change, x)]
}
