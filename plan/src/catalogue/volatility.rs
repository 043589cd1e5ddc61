//! How far prices move.

use super::{CLOSE, Formula, Function, HIGH, LOW, ONE, REAL, TALIB, bars, period};
use crate::ast::CompareOp;
use crate::graph::{Binary, NodeId, Op};

const GROUP: &str = "Volatility indicators";

pub(super) const LIST: &[Function] = &[
    Function {
        name: "adr",
        aliases: &[],
        group: GROUP,
        summary: "average range of the bars",
        formula: "sma of high - low",
        reference: TALIB,
        series: &[HIGH, LOW],
        params: &[period(14, 1)],
        outputs: ONE,
        build: average_range,
    },
    Function {
        name: "cvi",
        aliases: &[],
        group: GROUP,
        summary: "Chaikin's volatility",
        formula: "100*(e/e[rocperiod] - 1), e = ema of high - low; 0 where e[rocperiod] is 0",
        reference: TALIB,
        series: &[HIGH, LOW],
        params: &[period(10, 2), bars("rocperiod", 10, 1)],
        outputs: ONE,
        build: chaikin,
    },
    Function {
        name: "massi",
        aliases: &[],
        group: GROUP,
        summary: "mass index",
        formula: "sum over slowperiod of ema(r)/ema(ema(r)), r = high - low, both over fastperiod; 1 where the divisor is 0",
        reference: TALIB,
        series: &[HIGH, LOW],
        params: &[bars("fastperiod", 9, 2), bars("slowperiod", 25, 2)],
        outputs: ONE,
        build: mass,
    },
    Function {
        name: "natr",
        aliases: &[],
        group: GROUP,
        summary: "average true range in percent of the close",
        formula: "100*atr/close; 0 where the close is 0; the true range itself when timeperiod is 1",
        reference: TALIB,
        series: &[HIGH, LOW, CLOSE],
        params: &[period(14, 1)],
        outputs: ONE,
        build: normalised,
    },
    Function {
        name: "rvi",
        aliases: &[],
        group: GROUP,
        summary: "relative volatility index, 0 to 100",
        formula: "100*u/(u + d), u and d being Wilder's means of the deviation over stddevperiod on bars that rose and on bars that fell; 50 where both are 0",
        reference: TALIB,
        series: &[REAL],
        params: &[period(14, 1), bars("stddevperiod", 10, 2)],
        outputs: ONE,
        build: relative,
    },
    Function {
        name: "trange",
        aliases: &[],
        group: GROUP,
        summary: "true range",
        formula: "max(high - low, |high - close[1]|, |low - close[1]|)",
        reference: TALIB,
        series: &[HIGH, LOW, CLOSE],
        params: &[],
        outputs: ONE,
        build: |f| vec![f.true_range(f.series(0), f.series(1), f.series(2))],
    },
];

fn average_range(f: &mut Formula<'_>) -> Vec<NodeId> {
    let range = f.subtract(f.series(0), f.series(1));
    vec![f.step(Op::Mean(f.bars(0)), range)]
}

fn chaikin(f: &mut Formula<'_>) -> Vec<NodeId> {
    let range = f.subtract(f.series(0), f.series(1));
    let mean = f.exponential(range, f.bars(0));
    let before = f.lag(mean, f.bars(1));
    let change = f.subtract(mean, before);
    let ratio = f.binary(Binary::RatioOrZero, change, before);
    vec![f.scale(ratio, 100.0)]
}

fn mass(f: &mut Formula<'_>) -> Vec<NodeId> {
    let range = f.subtract(f.series(0), f.series(1));
    let p = f.bars(0);
    let once = f.exponential(range, p);
    let twice = f.exponential(once, p);
    let (zero, one) = (f.constant(0.0), f.constant(1.0));
    let nothing = f.compare_unflagged(CompareOp::Equal, twice, zero);
    let ratio = f.binary(Binary::Divide, once, twice);
    let ratio = f.select(nothing, one, ratio);
    vec![f.step(Op::Sum(f.bars(1)), ratio)]
}

fn normalised(f: &mut Formula<'_>) -> Vec<NodeId> {
    let close = f.series(2);
    let range = f.true_range(f.series(0), f.series(1), close);
    if f.bars(0) == 1 {
        return vec![range];
    }
    let range = f.wilder(range, f.bars(0));
    let ratio = f.binary(Binary::RatioOrZero, range, close);
    // A quotient by an infinity would be defined.
    let ratio = f.gate(ratio, close);
    vec![f.scale(ratio, 100.0)]
}

fn relative(f: &mut Formula<'_>) -> Vec<NodeId> {
    let (x, p) = (f.series(0), f.bars(0));
    let deviation = f.step(Op::Deviation(f.bars(1)), x);
    let before = f.lag(x, 1);
    let zero = f.constant(0.0);
    let rose = f.greater(x, before);
    let fell = f.greater(before, x);
    let up = f.select(rose, deviation, zero);
    let down = f.select(fell, deviation, zero);
    let (up, down) = (f.gate(up, deviation), f.gate(down, deviation));
    let up = f.wilder(up, p);
    let down = f.wilder(down, p);
    let total = f.add(up, down);
    let nothing = f.compare_unflagged(CompareOp::Equal, total, zero);
    let ratio = f.binary(Binary::Divide, up, total);
    let index = f.scale(ratio, 100.0);
    let half = f.constant(50.0);
    vec![f.select(nothing, half, index)]
}
