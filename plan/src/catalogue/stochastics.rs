//! Stochastics: where a value stands in the range of a window.

use super::{CLOSE, Formula, Function, HIGH, LOW, ONE, REAL, TALIB, average, average_or, bars, output, period};
use crate::graph::{Binary, NodeId, Op};
use crate::scalar::TALIB_EPSILON;

const GROUP: &str = "Momentum indicators";

/// TA-Lib's number of Wilder's mean.
const WILDER: u32 = 13;

pub(super) const LIST: &[Function] = &[
    Function {
        name: "stoch",
        aliases: &[],
        group: GROUP,
        summary: "slow stochastic, 0 to 100",
        formula: "slowk = average of 100*(close - lowest low)/(highest high - lowest low) over fastk_period, 0 where the range is at most rounding up to rounding; slowd = average of slowk; both start together",
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
        build: |f| {
            let (k, d) = slow(f);
            vec![f.gate(k, d), d]
        },
    },
    Function {
        name: "stochf",
        aliases: &[],
        group: GROUP,
        summary: "fast stochastic, 0 to 100",
        formula: "fastk = 100*(close - lowest low)/(highest high - lowest low) over fastk_period, 0 where the range is at most rounding; fastd = average of fastk; both start together",
        reference: TALIB,
        series: &[HIGH, LOW, CLOSE],
        params: &[bars("fastk_period", 5, 1), bars("fastd_period", 3, 1), average("fastd_matype")],
        outputs: &[output("fastk", &["k"]), output("fastd", &["d"])],
        build: |f| {
            let (high, low, close) = (f.series(0), f.series(1), f.series(2));
            let k = place(f, high, low, close, f.bars(0));
            let d = f.average(f.real(2), k, f.bars(1));
            vec![f.gate(k, d), d]
        },
    },
    Function {
        name: "stochrsi",
        aliases: &[],
        group: GROUP,
        summary: "fast stochastic of the relative strength index, 0 to 100",
        formula: "stochf of rsi(timeperiod) in the places of high, low and close",
        reference: TALIB,
        series: &[REAL],
        params: &[period(14, 2), bars("fastk_period", 5, 1), bars("fastd_period", 3, 1), average("fastd_matype")],
        outputs: &[output("fastk", &["k"]), output("fastd", &["d"])],
        build: |f| {
            let (x, p) = (f.series(0), f.bars(0));
            let index = f.relative_strength(x, p);
            let k = place(f, index, index, index, f.bars(1));
            let d = f.average(f.real(3), k, f.bars(2));
            vec![f.gate(k, d), d]
        },
    },
    Function {
        name: "kdj",
        aliases: &[],
        group: GROUP,
        summary: "slow stochastic with a third line",
        formula: "k = average of stochf's fastk; d = average of k; j = 3k - 2d; all three start together",
        reference: TALIB,
        series: &[HIGH, LOW, CLOSE],
        params: &[
            bars("fastk_period", 9, 1),
            bars("slowk_period", 3, 1),
            average_or("slowk_matype", WILDER),
            bars("slowd_period", 3, 1),
            average_or("slowd_matype", WILDER),
        ],
        outputs: &[output("k", &["slowk"]), output("d", &["slowd"]), output("j", &[])],
        build: |f| {
            let (k, d) = slow(f);
            let k = f.gate(k, d);
            let triple = f.scale(k, 3.0);
            let double = f.scale(d, 2.0);
            vec![k, d, f.subtract(triple, double)]
        },
    },
    Function {
        name: "willr",
        aliases: &[],
        group: GROUP,
        summary: "Williams' %R, -100 to 0",
        formula: "-100*(highest high - close)/(highest high - lowest low); 0 where the range is at most rounding",
        reference: TALIB,
        series: &[HIGH, LOW, CLOSE],
        params: &[period(14, 2)],
        outputs: ONE,
        build: |f| {
            let p = f.bars(0);
            let highest = f.step(Op::Max(p), f.series(0));
            let lowest = f.step(Op::Min(p), f.series(1));
            let range = f.subtract(highest, lowest);
            let below = f.subtract(highest, f.series(2));
            let share = f.binary(Binary::RatioOrZero, below, range);
            let place = f.scale(share, -100.0);
            vec![zero_where_flat(f, place, highest, lowest)]
        },
    },
    Function {
        name: "smi",
        aliases: &[],
        group: GROUP,
        summary: "Blau's stochastic momentum index",
        formula: "smi = 200*m/r; m the exponential mean over fastperiod of that over slowperiod of close - (highest high + lowest low)/2, r the same of highest high - lowest low, both over timeperiod; 0 where r is 0; smisignal = exponential mean of smi; both start together",
        reference: TALIB,
        series: &[HIGH, LOW, CLOSE],
        params: &[
            bars("timeperiod", 13, 2),
            bars("fastperiod", 2, 2),
            bars("slowperiod", 25, 2),
            bars("signalperiod", 9, 2),
        ],
        outputs: &[output("smi", &["line"]), output("smisignal", &["signal"])],
        build: |f| {
            let p = f.bars(0);
            let highest = f.step(Op::Max(p), f.series(0));
            let lowest = f.step(Op::Min(p), f.series(1));
            let sum = f.add(highest, lowest);
            let middle = f.scale(sum, 0.5);
            let apart = f.subtract(f.series(2), middle);
            let range = f.subtract(highest, lowest);
            // Both means hold at the same bars.
            let range = f.gate(range, apart);
            let [apart, range] = [apart, range].map(|part| {
                let slow = f.exponential(part, f.bars(2));
                f.exponential(slow, f.bars(1))
            });
            let half = f.scale(range, 0.5);
            let ratio = f.binary(Binary::RatioOrZero, apart, half);
            let index = f.scale(ratio, 100.0);
            let signal = f.exponential(index, f.bars(3));
            vec![f.gate(index, signal), signal]
        },
    },
];

/// 100*(close - lowest low)/(highest high - lowest low) of `p` bars; 0 where the range is at most rounding.
fn place(f: &mut Formula<'_>, high: NodeId, low: NodeId, close: NodeId, p: u32) -> NodeId {
    let highest = f.step(Op::Max(p), high);
    let lowest = f.step(Op::Min(p), low);
    let range = f.subtract(highest, lowest);
    let hundredth = f.over(range, 100.0);
    let above = f.subtract(close, lowest);
    let place = f.binary(Binary::RatioOrZero, above, hundredth);
    zero_where_flat(f, place, highest, lowest)
}

/// `place` where `highest` and `lowest` are further apart than TA-Lib takes for rounding, else 0.
fn zero_where_flat(f: &mut Formula<'_>, place: NodeId, highest: NodeId, lowest: NodeId) -> NodeId {
    let range = f.subtract(highest, lowest);
    let sizes = [highest, lowest].map(|x| f.absolute(x));
    let size = f.add(sizes[0], sizes[1]);
    let least = f.scale(size, TALIB_EPSILON);
    let varies = f.greater(range, least);
    let zero = f.constant(0.0);
    f.select(varies, place, zero)
}

/// The slow stochastic's two lines.
fn slow(f: &mut Formula<'_>) -> (NodeId, NodeId) {
    let (high, low, close) = (f.series(0), f.series(1), f.series(2));
    let fast = place(f, high, low, close, f.bars(0));
    let k = f.average(f.real(2), fast, f.bars(1));
    (k, f.average(f.real(4), k, f.bars(3)))
}
