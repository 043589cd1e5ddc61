//! Element-wise helpers and the scan language's own names for extremes.

use super::{Function, LANGUAGE, ONE, count_of_bars, num};
use crate::graph::{Binary, Op, Unary};

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
            series: &[num("x", None)],
            params: &[count_of_bars()],
            outputs: ONE,
            build: |f| vec![f.step($op(f.bars(0)), f.series(0))],
        }
    };
}

pub(super) const LIST: &[Function] = &[
    extreme!("highest", "highest value of the last n bars", "max of the last n values", Op::Max),
    extreme!("lowest", "lowest value of the last n bars", "min of the last n values", Op::Min),
    one_series!("abs", "absolute value", "|x|", Unary::Abs),
    one_series!("sqrt", "square root", "NA below 0", Unary::Sqrt),
    one_series!("log", "natural logarithm", "NA at 0 and below", Unary::Log),
    one_series!("exp", "exponential", "e^x", Unary::Exp),
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
];
