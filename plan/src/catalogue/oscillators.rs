//! Oscillators: differences of averages and of prices within a bar.

use super::{
    CLOSE, Formula, Function, HIGH, LOW, ONE, OPEN, Param, REAL, SeriesArg, TALIB, VOLUME, average, average_or, bars,
    output, period,
};
use crate::ast::CompareOp;
use crate::graph::{Binary, NodeId, Op};

const MOMENTUM: &str = "Momentum indicators";

/// TA-Lib's number of the exponential mean.
const EXPONENTIAL: u32 = 1;

macro_rules! oscillator {
    ($name:literal, $summary:literal, $formula:literal, $series:expr, $params:expr, $build:expr) => {
        Function {
            name: $name,
            aliases: &[],
            group: MOMENTUM,
            summary: $summary,
            formula: $formula,
            reference: TALIB,
            series: $series,
            params: $params,
            outputs: ONE,
            build: $build,
        }
    };
}

const PRICE: &[SeriesArg] = &[REAL];
const RANGE: &[SeriesArg] = &[HIGH, LOW];
const BODY: &[SeriesArg] = &[OPEN, CLOSE];
const TWO_AVERAGES: &[Param] =
    &[bars("fastperiod", 12, 2), bars("slowperiod", 26, 2), average_or("matype", EXPONENTIAL)];

pub(super) const LIST: &[Function] = &[
    oscillator!(
        "ao",
        "awesome oscillator",
        "sma(fastperiod) - sma(slowperiod) of (high + low)/2",
        RANGE,
        &[bars("fastperiod", 5, 2), bars("slowperiod", 34, 2)],
        |f| vec![awesome(f)]
    ),
    oscillator!(
        "ac",
        "accelerator oscillator",
        "ao - sma(ao, signalperiod)",
        RANGE,
        &[bars("fastperiod", 5, 2), bars("slowperiod", 34, 2), bars("signalperiod", 5, 2)],
        |f| {
            let oscillator = awesome(f);
            let mean = f.step(Op::Mean(f.bars(2)), oscillator);
            vec![f.subtract(oscillator, mean)]
        }
    ),
    oscillator!(
        "apo",
        "absolute price oscillator",
        "average(shorter period) - average(longer period)",
        PRICE,
        TWO_AVERAGES,
        |f| {
            let (fast, slow) = averages(f);
            vec![f.subtract(fast, slow)]
        }
    ),
    oscillator!(
        "ppo",
        "percentage price oscillator",
        "100*(average(shorter period) - average(longer period))/average(longer period); 0 where that is below 1e-14",
        PRICE,
        TWO_AVERAGES,
        percentage
    ),
    Function {
        name: "pvo",
        aliases: &[],
        group: "Volume indicators",
        summary: "percentage volume oscillator",
        formula: "100*(average(shorter period) - average(longer period))/average(longer period) of the volume; 0 where that is below 1e-14",
        reference: TALIB,
        series: &[VOLUME],
        params: TWO_AVERAGES,
        outputs: ONE,
        build: percentage,
    },
    Function {
        name: "macdext",
        aliases: &[],
        group: MOMENTUM,
        summary: "moving average convergence/divergence with averages of choice",
        formula: "macd = average(shorter period) - average(longer period), each over the values it needs for the first common bar; macdsignal = average of macd; macdhist = macd - macdsignal; all three start together",
        reference: TALIB,
        series: PRICE,
        params: &[
            bars("fastperiod", 12, 2),
            average("fastmatype"),
            bars("slowperiod", 26, 2),
            average("slowmatype"),
            bars("signalperiod", 9, 1),
            average("signalmatype"),
        ],
        outputs: MACD,
        build: |f| {
            let x = f.series(0);
            let (mut fast, mut slow) = ((f.real(1), f.bars(0)), (f.real(3), f.bars(2)));
            if slow.1 < fast.1 {
                (fast, slow) = (slow, fast);
            }
            let first = [fast, slow].map(|(kind, p)| Formula::average_look_back(kind, p));
            let first = first[0].max(first[1]);
            let fast = f.average_after(fast.0, x, fast.1, first);
            let slow = f.average_after(slow.0, x, slow.1, first);
            let line = f.subtract(fast, slow);
            let signal = f.average(f.real(5), line, f.bars(4));
            with_signal(f, line, signal)
        },
    },
    Function {
        name: "macdfix",
        aliases: &[],
        group: MOMENTUM,
        summary: "moving average convergence/divergence of 12 and 26 bars",
        formula: "as macd(12, 26), with factors 0.15 and 0.075",
        reference: TALIB,
        series: PRICE,
        params: &[bars("signalperiod", 9, 1)],
        outputs: MACD,
        build: |f| {
            let x = f.series(0);
            let fast = f.step(Op::ExponentialBy { p: 12, delay: 14, factor: 0.15.into() }, x);
            let slow = f.step(Op::ExponentialBy { p: 26, delay: 0, factor: 0.075.into() }, x);
            let line = f.subtract(fast, slow);
            let signal = f.exponential(line, f.bars(0));
            with_signal(f, line, signal)
        },
    },
    oscillator!(
        "dpo",
        "detrended price oscillator",
        "x[timeperiod/2 + 1] - sma(timeperiod), the half cut off to a whole number",
        PRICE,
        &[period(20, 2)],
        |f| {
            let (x, p) = (f.series(0), f.bars(0));
            let before = f.lag(x, p / 2 + 1);
            let mean = f.step(Op::Mean(p), x);
            vec![f.subtract(before, mean)]
        }
    ),
    Function {
        name: "eri",
        aliases: &[],
        group: MOMENTUM,
        summary: "Elder ray: bull and bear power",
        formula: "bullpower = high - ema(close); bearpower = low - ema(close)",
        reference: TALIB,
        series: &[HIGH, LOW, CLOSE],
        params: &[period(13, 1)],
        outputs: &[output("bullpower", &["bull"]), output("bearpower", &["bear"])],
        build: |f| {
            let mean = f.exponential(f.series(2), f.bars(0));
            vec![f.subtract(f.series(0), mean), f.subtract(f.series(1), mean)]
        },
    },
    oscillator!(
        "fosc",
        "forecast oscillator in percent",
        "100*(x - tsf[1])/x; 0 where x is 0",
        PRICE,
        &[period(5, 2)],
        |f| {
            let (x, p) = (f.series(0), f.bars(0));
            let forecast = f.regression(x, p, (f64::from(p) + 1.0) / 2.0);
            let forecast = f.lag(forecast, 1);
            let miss = f.subtract(x, forecast);
            let ratio = f.binary(Binary::RatioOrZero, miss, x);
            vec![f.scale(ratio, 100.0)]
        }
    ),
    oscillator!("qstick", "mean of the bodies", "sma of close - open", BODY, &[period(10, 1)], |f| {
        let body = f.subtract(f.series(1), f.series(0));
        vec![f.step(Op::Mean(f.bars(0)), body)]
    }),
    oscillator!(
        "imi",
        "intraday momentum index, 0 to 100",
        "100*g/(g + l), g and l being the sums of close - open where it is positive and of open - close where that is; 50 where both are 0",
        BODY,
        &[period(14, 2)],
        |f| {
            let p = f.bars(0);
            let body = f.subtract(f.series(1), f.series(0));
            let [rise, fall] = f.rises_and_falls(body).map(|part| f.step(Op::Sum(p), part));
            let total = f.add(rise, fall);
            let share = f.binary(Binary::RatioOrZero, rise, total);
            let index = f.scale(share, 100.0);
            let (zero, middle) = (f.constant(0.0), f.constant(50.0));
            let still = f.compare_unflagged(CompareOp::Equal, total, zero);
            vec![f.select(still, middle, index)]
        }
    ),
    oscillator!(
        "bop",
        "balance of power, -1 to 1",
        "(close - open)/(high - low); 0 where high is not above low",
        &[OPEN, HIGH, LOW, CLOSE],
        &[],
        |f| {
            let body = f.subtract(f.series(3), f.series(0));
            let range = f.subtract(f.series(1), f.series(2));
            let ratio = f.binary(Binary::RatioOrZero, body, range);
            let zero = f.constant(0.0);
            let open = f.compare_unflagged(CompareOp::Greater, range, zero);
            let balance = f.select(open, ratio, zero);
            vec![f.gate(balance, body)]
        }
    ),
    oscillator!(
        "ultosc",
        "ultimate oscillator, 0 to 100",
        "100*(4a + 2b + c)/7; a, b, c for the shortest, middle and longest period: sum of close - min(low, close[1]) / sum of the true range; 0 where that is 0",
        &[HIGH, LOW, CLOSE],
        &[bars("timeperiod1", 7, 1), bars("timeperiod2", 14, 1), bars("timeperiod3", 28, 1)],
        |f| {
            let (high, low, close) = (f.series(0), f.series(1), f.series(2));
            let before = f.lag(close, 1);
            let bottom = f.minimum(low, before);
            let pressure = f.subtract(close, bottom);
            let range = f.true_range(high, low, close);
            let mut periods = [0, 1, 2].map(|i| f.bars(i));
            periods.sort_unstable();
            let [short, middle, long] = periods.map(|p| {
                let pressure = f.step(Op::Sum(p), pressure);
                let range = f.step(Op::Sum(p), range);
                f.binary(Binary::RatioOrZero, pressure, range)
            });
            let short = f.scale(short, 4.0);
            let middle = f.scale(middle, 2.0);
            let sum = f.add(short, middle);
            let sum = f.add(sum, long);
            let mean = f.over(sum, 7.0);
            vec![f.scale(mean, 100.0)]
        }
    ),
];

pub(super) const MACD: &[super::OutputDecl] =
    &[output("macd", &["line"]), output("macdsignal", &["signal"]), output("macdhist", &["hist"])];

/// The three lines of a convergence/divergence, which start together.
pub(super) fn with_signal(f: &mut Formula<'_>, line: NodeId, signal: NodeId) -> Vec<NodeId> {
    let hist = f.subtract(line, signal);
    vec![f.gate(line, signal), signal, hist]
}

fn awesome(f: &mut Formula<'_>) -> NodeId {
    let sum = f.add(f.series(0), f.series(1));
    let middle = f.over(sum, 2.0);
    let fast = f.step(Op::Mean(f.bars(0)), middle);
    let slow = f.step(Op::Mean(f.bars(1)), middle);
    f.subtract(fast, slow)
}

/// The averages over the shorter and over the longer period.
fn averages(f: &mut Formula<'_>) -> (NodeId, NodeId) {
    let x = f.series(0);
    let (fast, slow) = (f.bars(0).min(f.bars(1)), f.bars(0).max(f.bars(1)));
    (f.average(f.real(2), x, fast), f.average(f.real(2), x, slow))
}

fn percentage(f: &mut Formula<'_>) -> Vec<NodeId> {
    let (fast, slow) = averages(f);
    let apart = f.subtract(fast, slow);
    let ratio = f.binary(Binary::RatioOrZeroEpsilon, apart, slow);
    vec![f.scale(ratio, 100.0)]
}
