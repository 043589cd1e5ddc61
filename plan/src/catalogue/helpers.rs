//! Element-wise helpers and the scan language's own names for extremes.

use super::*;

const GROUP: &str = "Helpers";

pub(super) const LIST: &[Function] = &[
    declare("highest", GROUP)
        .summary("highest value of the last n bars")
        .formula("max of the last n values")
        .reference(Reference::Language)
        .series(&[num("x", Some("close"))])
        .params(&[count_of_bars(1)])
        .number(|f| f.x().highest(f.bars(0))),
    declare("lowest", GROUP)
        .summary("lowest value of the last n bars")
        .formula("min of the last n values")
        .reference(Reference::Language)
        .series(&[num("x", Some("close"))])
        .params(&[count_of_bars(1)])
        .number(|f| f.x().lowest(f.bars(0))),
    declare("highestbars", GROUP)
        .summary("bars since the highest value of the last n bars")
        .formula("0 when it is this bar's; of equal values the latest counts")
        .reference(Reference::Language)
        .series(&[num("x", Some("close"))])
        .params(&[count_of_bars(1)])
        .scaling(Scaling::PURE)
        .number(|f| f.x().step(Op::BarsSinceMax(f.bars(0)))),
    declare("lowestbars", GROUP)
        .summary("bars since the lowest value of the last n bars")
        .formula("0 when it is this bar's; of equal values the latest counts")
        .reference(Reference::Language)
        .series(&[num("x", Some("close"))])
        .params(&[count_of_bars(1)])
        .scaling(Scaling::PURE)
        .number(|f| f.x().step(Op::BarsSinceMin(f.bars(0)))),
    declare("abs", GROUP)
        .summary("absolute value")
        .formula("|x|")
        .reference(Reference::Language)
        .series(&[num("x", None)])
        .number(|f| f.x().abs()),
    declare("log", GROUP)
        .summary("natural logarithm")
        .formula("NA at 0 and below")
        .reference(Reference::Language)
        .series(&[num("x", None)])
        .scaling(Scaling::Lawless("a factor becomes a term"))
        .number(|f| f.x().unary(Unary::Log)),
    declare("sign", GROUP)
        .summary("sign")
        .formula("-1, 0 or 1")
        .reference(Reference::Language)
        .series(&[num("x", None)])
        .scaling(Scaling::PURE)
        .number(|f| f.x().sign()),
    declare("round", GROUP)
        .summary("nearest whole number")
        .formula("half to even")
        .reference(Reference::Language)
        .series(&[num("x", None)])
        .scaling(Scaling::Lawless("whole numbers are spaced absolutely"))
        .number(|f| f.x().unary(Unary::Round)),
    declare("maximum", GROUP)
        .summary("the larger of two values")
        .formula("NA when one is NA")
        .reference(Reference::Language)
        .series(&[num("a", None), num("b", None)])
        .number(|f| {
            let [a, b] = f.series();
            a.maximum(b)
        }),
    declare("minimum", GROUP)
        .summary("the smaller of two values")
        .formula("NA when one is NA")
        .reference(Reference::Language)
        .series(&[num("a", None), num("b", None)])
        .number(|f| {
            let [a, b] = f.series();
            a.minimum(b)
        }),
    declare("pow", GROUP)
        .summary("power")
        .formula("a^b, NA where undefined")
        .reference(Reference::Language)
        .series(&[num("a", None), num("b", None)])
        .scaling(Scaling::Lawless("of a pure number"))
        .number(|f| {
            let [a, b] = f.series();
            a.binary(Binary::Power, b)
        }),
    declare("clamp", GROUP)
        .summary("x kept between two bounds")
        .formula("minimum(maximum(x, low), high)")
        .reference(Reference::Language)
        .series(&[num("x", None), num("low", None), num("high", None)])
        .number(|f| {
            let [x, low, high] = f.series();
            x.maximum(low).minimum(high)
        }),
    declare("iff", GROUP)
        .summary("one of two values")
        .formula("a where c is true, b where it is false, NA where it is NA")
        .reference(Reference::Language)
        .series(&[condition("c"), num("a", None), num("b", None)])
        .number(|f| {
            let [_, a, b] = f.series();
            f.condition().choose(a, b)
        }),
    declare("nz", GROUP)
        .summary("x, or a constant where it is NA")
        .formula("x unless it is NA, then value")
        .reference(Reference::Language)
        .series(&[num("x", None)])
        .params(&[param("value", ANY_NUMBER, 0.0)])
        .number(|f| f.x().or_else(f.real(0))),
    declare("zscore", GROUP)
        .summary("distance from the window's mean in deviations")
        .formula("(x - mean) / population standard deviation of the last n values; NA when that is 0")
        .reference(Reference::Language)
        .series(&[num("x", Some("close"))])
        .params(&[count_of_bars(2)])
        .scaling(Scaling::PURE)
        .number(|f| {
            let (x, n) = (f.x(), f.bars(0));
            (x - x.mean(n)) / x.deviation(n)
        }),
];

const ANY_NUMBER: ParamType = ParamType::Real { min: f64::MIN, max: f64::MAX };
