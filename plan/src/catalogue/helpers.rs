//! Element-wise helpers and the scan language's own names for extremes.

use super::{Function, LANGUAGE, ONE, Param, ParamDefault, ParamType, condition, count_of_bars, num};
use crate::graph::{Binary, Op, Unary};
use crate::limits::PERIOD_MAX;

const GROUP: &str = "Helpers";

macro_rules! one_series {
    ($name:literal, $summary:literal, $formula:literal, $op:expr) => {
        Function {
            name: $name,
            aliases: &[],
            group: GROUP,
            summary: $summary,
            formula: $formula,
            reference: LANGUAGE,
            series: &[num("x", None)],
            params: &[],
            outputs: ONE,
            build: |f| vec![f.unary($op, f.series(0))],
        }
    };
}

macro_rules! two_series {
    ($name:literal, $summary:literal, $formula:literal, $op:expr) => {
        Function {
            name: $name,
            aliases: &[],
            group: GROUP,
            summary: $summary,
            formula: $formula,
            reference: LANGUAGE,
            series: &[num("a", None), num("b", None)],
            params: &[],
            outputs: ONE,
            build: |f| vec![f.binary($op, f.series(0), f.series(1))],
        }
    };
}

macro_rules! extreme {
    ($name:literal, $summary:literal, $formula:literal, $op:expr) => {
        Function {
            name: $name,
            aliases: &[],
            group: GROUP,
            summary: $summary,
            formula: $formula,
            reference: LANGUAGE,
            series: &[num("x", Some("close"))],
            params: &[count_of_bars()],
            outputs: ONE,
            build: |f| vec![f.step($op(f.bars(0)), f.series(0))],
        }
    };
}

pub(super) const LIST: &[Function] = &[
    extreme!("highest", "highest value of the last n bars", "max of the last n values", Op::Max),
    extreme!("lowest", "lowest value of the last n bars", "min of the last n values", Op::Min),
    extreme!(
        "highestbars",
        "bars since the highest value of the last n bars",
        "0 when it is this bar's; of equal values the latest counts",
        Op::SinceMax
    ),
    extreme!(
        "lowestbars",
        "bars since the lowest value of the last n bars",
        "0 when it is this bar's; of equal values the latest counts",
        Op::SinceMin
    ),
    one_series!("abs", "absolute value", "|x|", Unary::Abs),
    one_series!("log", "natural logarithm", "NA at 0 and below", Unary::Log),
    one_series!("sign", "sign", "-1, 0 or 1", Unary::Sign),
    one_series!("round", "nearest whole number", "half to even", Unary::Round),
    two_series!("maximum", "the larger of two values", "NA when one is NA", Binary::Maximum),
    two_series!("minimum", "the smaller of two values", "NA when one is NA", Binary::Minimum),
    two_series!("pow", "power", "a^b, NA where undefined", Binary::Power),
    Function {
        name: "clamp",
        aliases: &[],
        group: GROUP,
        summary: "x kept between two bounds",
        formula: "minimum(maximum(x, low), high)",
        reference: LANGUAGE,
        series: &[num("x", None), num("low", None), num("high", None)],
        params: &[],
        outputs: ONE,
        build: |f| {
            let raised = f.maximum(f.series(0), f.series(1));
            vec![f.binary(Binary::Minimum, raised, f.series(2))]
        },
    },
    Function {
        name: "iff",
        aliases: &[],
        group: GROUP,
        summary: "one of two values",
        formula: "a where c is true, b where it is false, NA where it is NA",
        reference: LANGUAGE,
        series: &[condition("c"), num("a", None), num("b", None)],
        params: &[],
        outputs: ONE,
        build: |f| vec![f.select(f.series(0), f.series(1), f.series(2))],
    },
    Function {
        name: "nz",
        aliases: &[],
        group: GROUP,
        summary: "x, or a constant where it is NA",
        formula: "x unless it is NA, then value",
        reference: LANGUAGE,
        series: &[num("x", None)],
        params: &[Param { name: "value", kind: ANY_NUMBER, default: ParamDefault::Value(0.0) }],
        outputs: ONE,
        build: |f| {
            let value = f.constant(f.real(0));
            vec![f.binary(Binary::OrElse, f.series(0), value)]
        },
    },
    Function {
        name: "zscore",
        aliases: &[],
        group: GROUP,
        summary: "distance from the window's mean in deviations",
        formula: "(x - mean) / population standard deviation of the last n values; NA when that is 0",
        reference: LANGUAGE,
        series: &[num("x", Some("close"))],
        params: &[window_of_two()],
        outputs: ONE,
        build: |f| {
            let (x, n) = (f.series(0), f.bars(0));
            let mean = f.step(Op::Mean(n), x);
            let deviation = f.step(Op::Deviation(n), x);
            let distance = f.subtract(x, mean);
            vec![f.binary(Binary::Divide, distance, deviation)]
        },
    },
];

const ANY_NUMBER: ParamType = ParamType::Real { min: f64::MIN, max: f64::MAX };

/// The number of values of a window that has to hold more than one.
const fn window_of_two() -> Param {
    Param { name: "n", kind: ParamType::Integer { min: 2, max: PERIOD_MAX }, default: ParamDefault::Required }
}
