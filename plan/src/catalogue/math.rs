//! TA-Lib's math operators and transforms.

use super::{Formula, Function, INTEGER, ONE, REAL, TALIB, num, output, period};
use crate::graph::{Binary, Blocks, NodeId, Op, Unary};

const OPERATORS: &str = "Math operators";
const TRANSFORMS: &str = "Math transform";

macro_rules! operator {
    ($name:literal, $summary:literal, $formula:literal, $op:expr) => {
        Function {
            name: $name,
            aliases: &[],
            group: OPERATORS,
            summary: $summary,
            formula: $formula,
            reference: TALIB,
            series: &[num("real0", None), num("real1", None)],
            params: &[],
            outputs: ONE,
            build: |f| vec![f.binary($op, f.series(0), f.series(1))],
        }
    };
}

macro_rules! window {
    ($name:literal, $summary:literal, $formula:expr, $outputs:expr, $op:expr) => {
        Function {
            name: $name,
            aliases: &[],
            group: OPERATORS,
            summary: $summary,
            formula: $formula,
            reference: TALIB,
            series: &[REAL],
            params: &[period(30, 2)],
            outputs: $outputs,
            build: |f| window(f, $op),
        }
    };
}

macro_rules! transform {
    ($name:literal, $summary:literal, $formula:literal, $op:expr) => {
        Function {
            name: $name,
            aliases: &[],
            group: TRANSFORMS,
            summary: $summary,
            formula: $formula,
            reference: TALIB,
            series: &[REAL],
            params: &[],
            outputs: ONE,
            build: |f| vec![f.unary($op, f.series(0))],
        }
    };
}

pub(super) const LIST: &[Function] = &[
    operator!("add", "sum of two series", "real0 + real1", Binary::Add),
    operator!("sub", "difference of two series", "real0 - real1", Binary::Subtract),
    operator!("mult", "product of two series", "real0 * real1", Binary::Multiply),
    operator!(
        "div",
        "quotient of two series",
        "real0 / real1, IEEE: an infinity where real1 alone is 0",
        Binary::Quotient
    ),
    Function {
        name: "cumsum",
        aliases: &[],
        group: OPERATORS,
        summary: "running sum over the whole history",
        formula: "sum of the values so far",
        reference: TALIB,
        series: &[REAL],
        params: &[],
        outputs: ONE,
        build: |f| {
            let x = f.series(0);
            vec![f.step(Op::Cumulative, x)]
        },
    },
    window!("sum", "sum of a window", "sum of the last timeperiod values", ONE, Op::Sum),
    window!(
        "max",
        "highest value of a window (element-wise: maximum)",
        "max of the last timeperiod values",
        ONE,
        Op::Max
    ),
    window!(
        "min",
        "lowest value of a window (element-wise: minimum)",
        "min of the last timeperiod values",
        ONE,
        Op::Min
    ),
    window!("maxindex", "bar number of a window's highest value, the first bar being 0", INDEX, INTEGER, Op::MaxIndex),
    window!("minindex", "bar number of a window's lowest value, the first bar being 0", INDEX, INTEGER, Op::MinIndex),
    Function {
        name: "minmax",
        aliases: &[],
        group: OPERATORS,
        summary: "lowest and highest value of a window",
        formula: "min and max of the last timeperiod values",
        reference: TALIB,
        series: &[REAL],
        params: &[period(30, 2)],
        outputs: &[output("min", &[]), output("max", &[])],
        build: |f| both(f, Op::Min, Op::Max),
    },
    Function {
        name: "minmaxindex",
        aliases: &[],
        group: OPERATORS,
        summary: "bar numbers of a window's lowest and highest value, the first bar being 0",
        formula: INDEX,
        reference: TALIB,
        series: &[REAL],
        params: &[period(30, 2)],
        outputs: &[output("minidx", &[]), output("maxidx", &[])],
        build: |f| both(f, Op::MinIndex, Op::MaxIndex),
    },
    transform!("acos", "arc cosine", "in radians; NA outside -1..1", Unary::Acos),
    transform!("asin", "arc sine", "in radians; NA outside -1..1", Unary::Asin),
    transform!("atan", "arc tangent", "in radians", Unary::Atan),
    transform!("ceil", "rounded up", "the smallest whole number that is not below", Unary::Ceil),
    transform!("cos", "cosine", "of radians", Unary::Cos),
    transform!("cosh", "hyperbolic cosine", "(e^x + e^-x)/2", Unary::Cosh),
    transform!("exp", "exponential", "e^x", Unary::Exp),
    transform!("floor", "rounded down", "the largest whole number that is not above", Unary::Floor),
    transform!("ln", "natural logarithm (NA where undefined: log)", "-infinity at 0, NA below", Unary::Ln),
    transform!("log10", "decimal logarithm", "-infinity at 0, NA below", Unary::Log10),
    transform!("sin", "sine", "of radians", Unary::Sin),
    transform!("sinh", "hyperbolic sine", "(e^x - e^-x)/2", Unary::Sinh),
    transform!("sqrt", "square root", "NA below 0", Unary::Sqrt),
    transform!("tan", "tangent", "of radians", Unary::Tan),
    transform!("tanh", "hyperbolic tangent", "sinh/cosh", Unary::Tanh),
];

/// How TA-Lib chooses among equal extremes.
const INDEX: &str = "a new value that ties takes its place; when the extreme has left the window, the first of the largest (smallest) does";

fn window(f: &mut Formula<'_>, op: fn(u32) -> Op) -> Vec<NodeId> {
    let (x, p) = (f.series(0), f.bars(0));
    vec![placed(f, op(p), x)]
}

fn both(f: &mut Formula<'_>, low: fn(u32) -> Op, high: fn(u32) -> Op) -> Vec<NodeId> {
    let (x, p) = (f.series(0), f.bars(0));
    vec![placed(f, low(p), x), placed(f, high(p), x)]
}

/// A window's value; where it is a bar's number, counted from the first bar that the scan sees. The steps count from the first
/// bar that they are given, which may lie before it.
fn placed(f: &mut Formula<'_>, op: Op, x: NodeId) -> NodeId {
    let found = f.step(op, x);
    let (Blocks::BarNumbers, Some(seen)) = (op.facts().blocks, f.origin) else { return found };
    let now = f.step(Op::MaxIndex(1), seen);
    let ago = f.subtract(now, found);
    let number = f.bar_number();
    let first = f.constant(1.0);
    let number = f.subtract(number, first);
    f.subtract(number, ago)
}
