//! Directional movement and what else tells the direction of a trend.

use super::{CLOSE, Formula, Function, HIGH, LOW, ONE, SeriesArg, TALIB, bars, output, period};
use crate::ast::CompareOp;
use crate::graph::{Binary, NodeId, Op};

const GROUP: &str = "Momentum indicators";

macro_rules! directional {
    ($name:literal, $summary:literal, $formula:literal, $series:expr, $params:expr, $build:expr) => {
        Function {
            name: $name,
            aliases: &[],
            group: GROUP,
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

const BAR: &[SeriesArg] = &[HIGH, LOW, CLOSE];
const RANGE: &[SeriesArg] = &[HIGH, LOW];

pub(super) const LIST: &[Function] = &[
    directional!(
        "plus_dm",
        "plus directional movement",
        "Wilder's sum of high - high[1] where that is positive and exceeds low[1] - low, else of 0",
        RANGE,
        &[period(14, 1)],
        |f| vec![movement(f, Side::Plus)]
    ),
    directional!(
        "minus_dm",
        "minus directional movement",
        "Wilder's sum of low[1] - low where that is positive and exceeds high - high[1], else of 0",
        RANGE,
        &[period(14, 1)],
        |f| vec![movement(f, Side::Minus)]
    ),
    directional!(
        "plus_di",
        "plus directional indicator, 0 to 100",
        "100 * Wilder's sum of the plus directional movement / Wilder's sum of the true range; for one bar the plain ratio",
        BAR,
        &[period(14, 1)],
        |f| vec![indicator(f, Side::Plus)]
    ),
    directional!(
        "minus_di",
        "minus directional indicator, 0 to 100",
        "100 * Wilder's sum of the minus directional movement / Wilder's sum of the true range; for one bar the plain ratio",
        BAR,
        &[period(14, 1)],
        |f| vec![indicator(f, Side::Minus)]
    ),
    directional!(
        "dx",
        "directional movement index, 0 to 100",
        "100*|+DI - -DI|/(+DI + -DI); 0 where both are 0",
        BAR,
        &[period(14, 2)],
        |f| {
            let [apart, total] = apart(f);
            let ratio = f.binary(Binary::RatioOrZero, apart, total);
            vec![f.scale(ratio, 100.0)]
        }
    ),
    directional!(
        "adx",
        "average directional index, 0 to 100: strength of a trend whatever its direction",
        "Wilder's mean of 100*|+DI - -DI|/(+DI + -DI); each DI is 100 * Wilder's sum of the directional movement / Wilder's sum of the true range",
        BAR,
        &[period(14, 2)],
        |f| vec![adx(f)]
    ),
    directional!(
        "adxr",
        "average directional index rating",
        "(adx + adx[timeperiod-1])/2",
        BAR,
        &[period(14, 2)],
        |f| {
            let now = adx(f);
            let before = f.lag(now, f.bars(0) - 1);
            let sum = f.add(now, before);
            vec![f.over(sum, 2.0)]
        }
    ),
    Function {
        name: "aroon",
        aliases: &[],
        group: GROUP,
        summary: "how lately the extremes of a window were reached, 0 to 100",
        formula: "100*(timeperiod - bars since the lowest low (highest high) of timeperiod+1 bars)/timeperiod",
        reference: TALIB,
        series: RANGE,
        params: &[period(14, 2)],
        outputs: &[output("aroondown", &["down"]), output("aroonup", &["up"])],
        build: |f| {
            let (high, low) = (f.series(0), f.series(1));
            let down = recency(f, Op::SinceMin, low);
            let up = recency(f, Op::SinceMax, high);
            vec![f.gate(down, up), f.gate(up, down)]
        },
    },
    directional!("aroonosc", "Aroon oscillator, -100 to 100", "aroonup - aroondown", RANGE, &[period(14, 2)], |f| {
        let (high, low) = (f.series(0), f.series(1));
        let up = recency(f, Op::SinceMax, high);
        let down = recency(f, Op::SinceMin, low);
        vec![f.subtract(up, down)]
    }),
    Function {
        name: "vortex",
        aliases: &[],
        group: GROUP,
        summary: "vortex indicator",
        formula: "plusvi = sum of |high - low[1]| / sum of the true range over timeperiod; minusvi = sum of |low - high[1]| / the same; 0 where that is 0",
        reference: TALIB,
        series: BAR,
        params: &[period(14, 1)],
        outputs: &[output("plusvi", &["plus"]), output("minusvi", &["minus"])],
        build: |f| {
            let (high, low, close, p) = (f.series(0), f.series(1), f.series(2), f.bars(0));
            let range = f.true_range(high, low, close);
            let range = f.step(Op::Sum(p), range);
            let plus = crossed(f, high, low, p);
            let minus = crossed(f, low, high, p);
            vec![f.binary(Binary::RatioOrZero, plus, range), f.binary(Binary::RatioOrZero, minus, range)]
        },
    },
    Function {
        name: "fractal",
        aliases: &[],
        group: GROUP,
        summary: "swing highs and lows: 100 on the bar that confirms one, else 0",
        formula: "the high (low) of rightbars ago is above (below) those of the leftbars before it and of the rightbars since",
        reference: TALIB,
        series: RANGE,
        params: &[bars("leftbars", 2, 1), bars("rightbars", 2, 1)],
        outputs: &[output("swinghigh", &["high"]), output("swinglow", &["low"])],
        build: |f| {
            let (high, low) = (f.series(0), f.series(1));
            let top = swing(f, high, Op::Max, Binary::Maximum, true);
            let bottom = swing(f, low, Op::Min, Binary::Minimum, false);
            vec![f.gate(top, bottom), f.gate(bottom, top)]
        },
    },
];

/// Which of the two directions.
#[derive(Clone, Copy, PartialEq)]
enum Side {
    Plus,
    Minus,
}

/// Wilder's directional movements up and down: each where it is positive and exceeds the other, else 0. The third series
/// is NA where they are not to count.
fn movements(f: &mut Formula<'_>) -> [NodeId; 3] {
    let (high, low) = (f.series(0), f.series(1));
    let high_before = f.lag(high, 1);
    let low_before = f.lag(low, 1);
    let up = f.subtract(high, high_before);
    let down = f.subtract(low_before, low);
    let zero = f.constant(0.0);
    let plus = prevailing(f, up, down, zero);
    let minus = prevailing(f, down, up, zero);
    [plus, minus, f.add(up, down)]
}

/// `this` where it is positive and exceeds `other`, else 0.
fn prevailing(f: &mut Formula<'_>, this: NodeId, other: NodeId, zero: NodeId) -> NodeId {
    let positive = f.compare_unflagged(CompareOp::Greater, this, zero);
    let larger = f.compare_unflagged(CompareOp::Greater, this, other);
    let both = f.and(positive, larger);
    f.select(both, this, zero)
}

/// Wilder's sum of one directional movement; of one bar the movement itself.
fn movement(f: &mut Formula<'_>, side: Side) -> NodeId {
    let [plus, minus, moved] = movements(f);
    // Both skip the same bars.
    let moved = f.gate(if side == Side::Plus { plus } else { minus }, moved);
    match f.bars(0) {
        1 => moved,
        p => f.step(Op::WilderTotal(p), moved),
    }
}

/// The directional movements and the true range, defined on the same bars.
fn parts(f: &mut Formula<'_>) -> [NodeId; 3] {
    let [plus, minus, moved] = movements(f);
    let range = f.true_range(f.series(0), f.series(1), f.series(2));
    let whole = f.add(moved, range);
    [plus, minus, range].map(|part| f.gate(part, whole))
}

/// Wilder's sums of [`parts`] over a window of more than one bar.
fn sums(f: &mut Formula<'_>) -> [NodeId; 3] {
    let p = f.bars(0);
    parts(f).map(|part| f.step(Op::WilderSum(p), part))
}

/// +DI and -DI of a window of more than one bar.
fn indicators(f: &mut Formula<'_>) -> [NodeId; 2] {
    let [plus, minus, range] = sums(f);
    [plus, minus].map(|moved| {
        let share = f.binary(Binary::RatioOrZero, moved, range);
        f.scale(share, 100.0)
    })
}

fn indicator(f: &mut Formula<'_>, side: Side) -> NodeId {
    if f.bars(0) == 1 {
        let [plus, minus, range] = parts(f);
        return f.binary(Binary::RatioOrZero, if side == Side::Plus { plus } else { minus }, range);
    }
    let [plus, minus] = indicators(f);
    if side == Side::Plus { plus } else { minus }
}

/// What |+DI - -DI| and +DI + -DI are in proportion to: the true range, by which both are divided, cancels in their
/// quotient. Where it is 0 the indicators are.
fn apart(f: &mut Formula<'_>) -> [NodeId; 2] {
    let [plus, minus, range] = sums(f);
    let apart = f.subtract(minus, plus);
    let total = f.add(minus, plus);
    let zero = f.constant(0.0);
    let ranged = f.compare_unflagged(CompareOp::Greater, range, zero);
    [f.absolute(apart), f.select(ranged, total, zero)]
}

fn adx(f: &mut Formula<'_>) -> NodeId {
    let [apart, total] = apart(f);
    f.step_of(Op::WilderRatio(f.bars(0)), &[apart, total])
}

/// 100 when the extreme is this bar's, 0 when it is the oldest of the window's.
fn recency(f: &mut Formula<'_>, op: fn(u32) -> Op, x: NodeId) -> NodeId {
    let p = f.bars(0);
    let since = f.step(op(p + 1), x);
    let whole = f.constant(f64::from(p));
    let left = f.subtract(whole, since);
    let left = f.scale(left, 100.0);
    f.over(left, f64::from(p))
}

/// Window sum of |a - b[1]|.
fn crossed(f: &mut Formula<'_>, a: NodeId, b: NodeId, p: u32) -> NodeId {
    let before = f.lag(b, 1);
    let apart = f.subtract(a, before);
    let apart = f.absolute(apart);
    f.step(Op::Sum(p), apart)
}

/// 100 where the value `rightbars` ago exceeds its neighbours, else 0.
fn swing(f: &mut Formula<'_>, x: NodeId, extreme: fn(u32) -> Op, larger: Binary, above: bool) -> NodeId {
    let (left, right) = (f.bars(0), f.bars(1));
    let pivot = f.lag(x, right);
    let older = f.step(extreme(left), x);
    let older = f.lag(older, right + 1);
    let newer = f.step(extreme(right), x);
    let others = f.binary(larger, older, newer);
    let beyond = if above { f.greater(pivot, others) } else { f.greater(others, pivot) };
    let (full, none) = (f.constant(100.0), f.constant(0.0));
    f.select(beyond, full, none)
}
