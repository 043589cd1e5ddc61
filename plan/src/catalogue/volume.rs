//! Volume.

use super::{CLOSE, Formula, Function, HIGH, LOW, ONE, TALIB, VOLUME, bars, period};
use crate::ast::CompareOp;
use crate::graph::{Binary, NodeId, Op};

const GROUP: &str = "Volume indicators";

pub(super) const LIST: &[Function] = &[
    Function {
        name: "obv",
        aliases: &[],
        group: GROUP,
        summary: "on-balance volume",
        formula: "starts at the first bar's volume; adds the volume of bars that close higher, takes away that of bars that close lower",
        reference: TALIB,
        series: &[CLOSE, VOLUME],
        params: &[],
        outputs: ONE,
        build: |f| vec![f.step_of(Op::OnBalance, &[f.series(0), f.series(1)])],
    },
    Function {
        name: "vwap",
        aliases: &[],
        group: GROUP,
        summary: "volume-weighted average price over the whole history",
        formula: "running sum of t*volume / running sum of volume, t = (high + low + close)/3",
        reference: TALIB,
        series: &[HIGH, LOW, CLOSE, VOLUME],
        params: &[],
        outputs: ONE,
        build: |f| {
            let typical = f.typical(f.series(0), f.series(1), f.series(2));
            vec![running(f, typical, f.series(3))]
        },
    },
    Function {
        name: "ad",
        aliases: &[],
        group: GROUP,
        summary: "Chaikin's accumulation/distribution line",
        formula: "running sum of volume*((close - low) - (high - close))/(high - low); a bar whose high is not above its low adds nothing",
        reference: TALIB,
        series: &[HIGH, LOW, CLOSE, VOLUME],
        params: &[],
        outputs: ONE,
        build: |f| vec![accumulation(f)],
    },
    Function {
        name: "adosc",
        aliases: &[],
        group: GROUP,
        summary: "Chaikin's oscillator",
        formula: "exponential mean of ad over fastperiod - that over slowperiod, both starting from ad's first value",
        reference: TALIB,
        series: &[HIGH, LOW, CLOSE, VOLUME],
        params: &[bars("fastperiod", 3, 2), bars("slowperiod", 10, 2)],
        outputs: ONE,
        build: |f| {
            let line = accumulation(f);
            let longest = f.bars(0).max(f.bars(1));
            let [fast, slow] = [0, 1].map(|i| {
                let factor = 2.0 / (f64::from(f.bars(i)) + 1.0);
                f.step(Op::ExponentialBy { p: 1, delay: 0, factor: factor.into() }, line)
            });
            let apart = f.subtract(fast, slow);
            vec![f.skip(apart, longest - 1)]
        },
    },
    Function {
        name: "cmf",
        aliases: &[],
        group: GROUP,
        summary: "Chaikin's money flow, -1 to 1",
        formula: "sum of volume*((close - low) - (high - close))/(high - low) / sum of volume over timeperiod; a bar whose high is not above its low adds nothing above; 0 where no volume is",
        reference: TALIB,
        series: &[HIGH, LOW, CLOSE, VOLUME],
        params: &[period(20, 2)],
        outputs: ONE,
        build: |f| {
            let p = f.bars(0);
            let flow = money_flow(f);
            let volume = f.gate(f.series(3), flow);
            let flow = f.step(Op::Sum(p), flow);
            let volume = f.step(Op::Sum(p), volume);
            vec![f.binary(Binary::RatioOrZero, flow, volume)]
        },
    },
    Function {
        name: "efi",
        aliases: &[],
        group: GROUP,
        summary: "Elder's force index",
        formula: "exponential mean of (close - close[1])*volume",
        reference: TALIB,
        series: &[CLOSE, VOLUME],
        params: &[period(13, 1)],
        outputs: ONE,
        build: |f| {
            let before = f.lag(f.series(0), 1);
            let change = f.subtract(f.series(0), before);
            let force = f.multiply(change, f.series(1));
            vec![f.exponential(force, f.bars(0))]
        },
    },
    Function {
        name: "marketfi",
        aliases: &[],
        group: GROUP,
        summary: "market facilitation index",
        formula: "(high - low)/volume; 0 where nothing is traded",
        reference: TALIB,
        series: &[HIGH, LOW, VOLUME],
        params: &[],
        outputs: ONE,
        build: |f| {
            let range = f.subtract(f.series(0), f.series(1));
            let ratio = f.binary(Binary::RatioOrZero, range, f.series(2));
            // What an infinity takes part in is no 0.
            let whole = f.add(range, f.series(2));
            vec![f.gate(ratio, whole)]
        },
    },
    Function {
        name: "nvi",
        aliases: &[],
        group: GROUP,
        summary: "negative volume index",
        formula: "starts at 1000; on bars with less volume than the one before it is multiplied by close/close[1]",
        reference: TALIB,
        series: &[CLOSE, VOLUME],
        params: &[],
        outputs: ONE,
        build: |f| volume_index(f, CompareOp::Less),
    },
    Function {
        name: "pvi",
        aliases: &[],
        group: GROUP,
        summary: "positive volume index",
        formula: "starts at 1000; on bars with more volume than the one before it is multiplied by close/close[1]",
        reference: TALIB,
        series: &[CLOSE, VOLUME],
        params: &[],
        outputs: ONE,
        build: |f| volume_index(f, CompareOp::Greater),
    },
    Function {
        name: "pvt",
        aliases: &[],
        group: GROUP,
        summary: "price volume trend",
        formula: "running sum of volume*(close - close[1])/close[1], 0 on the first bar; where close[1] is 0 nothing is added",
        reference: TALIB,
        series: &[CLOSE, VOLUME],
        params: &[],
        outputs: ONE,
        build: |f| {
            let (close, volume) = together(f);
            let before = f.step(Op::Previous, close);
            let change = f.subtract(close, before);
            let share = f.binary(Binary::RatioOrZero, change, before);
            let part = f.multiply(share, volume);
            vec![f.step(Op::Cumulative, part)]
        },
    },
    Function {
        name: "wad",
        aliases: &[],
        group: "Momentum indicators",
        summary: "Williams' accumulation/distribution",
        formula: "running sum, 0 on the first bar: close - min(low, close[1]) where the close rose, close - max(high, close[1]) where it fell, else 0",
        reference: TALIB,
        series: &[HIGH, LOW, CLOSE],
        params: &[],
        outputs: ONE,
        build: |f| {
            let (high, low) = (f.series(0), f.series(1));
            let range = f.subtract(high, low);
            let close = f.gate(f.series(2), range);
            let before = f.step(Op::Previous, close);
            let bottom = f.minimum(low, before);
            let top = f.maximum(high, before);
            let bought = f.subtract(close, bottom);
            let sold = f.subtract(close, top);
            let rose = f.greater(close, before);
            let fell = f.greater(before, close);
            let zero = f.constant(0.0);
            let part = f.select(fell, sold, zero);
            let part = f.select(rose, bought, part);
            vec![f.step(Op::Cumulative, part)]
        },
    },
    Function {
        name: "rvol",
        aliases: &[],
        group: GROUP,
        summary: "relative volume",
        formula: "volume / mean volume of the timeperiod bars before, IEEE: an infinity where that alone is 0",
        reference: TALIB,
        series: &[VOLUME],
        params: &[period(20, 1)],
        outputs: ONE,
        build: |f| {
            let mean = f.step(Op::Mean(f.bars(0)), f.series(0));
            let before = f.lag(mean, 1);
            vec![f.binary(Binary::Quotient, f.series(0), before)]
        },
    },
];

/// The volume-weighted mean of `x` from the first bar on.
pub(super) fn running(f: &mut Formula<'_>, x: NodeId, volume: NodeId) -> NodeId {
    let value = f.multiply(x, volume);
    // Both sums skip the same bars.
    let value = f.gate(value, value);
    let volume = f.gate(volume, value);
    let value = f.step(Op::Cumulative, value);
    let volume = f.step(Op::Cumulative, volume);
    f.binary(Binary::RatioOrZero, value, volume)
}

/// volume*((close - low) - (high - close))/(high - low); 0 where high is not above low.
fn money_flow(f: &mut Formula<'_>) -> NodeId {
    let (high, low, close, volume) = (f.series(0), f.series(1), f.series(2), f.series(3));
    let above = f.subtract(close, low);
    let below = f.subtract(high, close);
    let apart = f.subtract(above, below);
    let range = f.subtract(high, low);
    let place = f.binary(Binary::RatioOrZero, apart, range);
    let flow = f.multiply(place, volume);
    let zero = f.constant(0.0);
    let open = f.compare_unflagged(CompareOp::Greater, range, zero);
    let part = f.select(open, flow, zero);
    // A bar that is not whole is NA even where its range is 0.
    let whole = f.add(apart, volume);
    f.gate(part, whole)
}

fn accumulation(f: &mut Formula<'_>) -> NodeId {
    let flow = money_flow(f);
    f.step(Op::Cumulative, flow)
}

/// Close and volume, defined on the same bars.
fn together(f: &mut Formula<'_>) -> (NodeId, NodeId) {
    let (close, volume) = (f.series(0), f.series(1));
    let close = f.gate(close, volume);
    (close, f.gate(volume, close))
}

/// 1000 times the product of close/close[1] on the bars whose volume compares so with that of the bar before.
fn volume_index(f: &mut Formula<'_>, compare: CompareOp) -> Vec<NodeId> {
    let (close, volume) = together(f);
    let close_before = f.step(Op::Previous, close);
    let volume_before = f.step(Op::Previous, volume);
    let (zero, one) = (f.constant(0.0), f.constant(1.0));
    let counts = f.compare(compare, volume, volume_before);
    let known = f.compare_unflagged(CompareOp::NotEqual, close_before, zero);
    let counts = f.and(counts, known);
    let ratio = f.binary(Binary::RatioOrZero, close, close_before);
    let factor = f.select(counts, ratio, one);
    let product = f.step(Op::Product, factor);
    vec![f.scale(product, 1000.0)]
}
