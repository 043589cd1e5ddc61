//! TA-Lib's math operators and transforms.

use super::*;

const OPERATORS: &str = "Math operators";
const TRANSFORMS: &str = "Math transform";

pub(super) const LIST: &[Function] = &[
    Function::new("add", OPERATORS)
        .summary("sum of two series")
        .formula("real0 + real1")
        .series(&[num("real0", None), num("real1", None)])
        .number(|f| {
            let [a, b] = f.series();
            a + b
        }),
    Function::new("sub", OPERATORS)
        .summary("difference of two series")
        .formula("real0 - real1")
        .series(&[num("real0", None), num("real1", None)])
        .number(|f| {
            let [a, b] = f.series();
            a - b
        }),
    Function::new("mult", OPERATORS)
        .summary("product of two series")
        .formula("real0 * real1")
        .series(&[num("real0", None), num("real1", None)])
        .scaling(Scaling::Powers { prices: 2.0, volumes: 0.0 })
        .number(|f| {
            let [a, b] = f.series();
            a * b
        }),
    Function::new("div", OPERATORS)
        .summary("quotient of two series")
        .formula("real0 / real1, IEEE: an infinity where real1 alone is 0")
        .series(&[num("real0", None), num("real1", None)])
        .scaling(Scaling::PURE)
        .number(|f| {
            let [a, b] = f.series();
            a.quotient(b)
        }),
    Function::new("cumsum", OPERATORS)
        .summary("running sum over the whole history")
        .formula("sum of the values so far")
        .series(&[REAL])
        .number(|f| f.x().cumulative()),
    Function::new("sum", OPERATORS)
        .summary("sum of a window")
        .formula("sum of the last timeperiod values")
        .series(&[REAL])
        .params(&[period(30, 2)])
        .number(|f| f.x().sum(f.bars(0))),
    Function::new("max", OPERATORS)
        .summary("highest value of a window (element-wise: maximum)")
        .formula("max of the last timeperiod values")
        .series(&[REAL])
        .params(&[period(30, 2)])
        .number(|f| f.x().highest(f.bars(0))),
    Function::new("min", OPERATORS)
        .summary("lowest value of a window (element-wise: minimum)")
        .formula("min of the last timeperiod values")
        .series(&[REAL])
        .params(&[period(30, 2)])
        .number(|f| f.x().lowest(f.bars(0))),
    Function::new("maxindex", OPERATORS)
        .summary("bar number of a window's highest value, the first bar being 0")
        .formula(INDEX)
        .series(&[REAL])
        .params(&[period(30, 2)])
        .integer()
        .scaling(Scaling::PURE)
        .number(|f| placed(f, Op::MaxIndex)),
    Function::new("minindex", OPERATORS)
        .summary("bar number of a window's lowest value, the first bar being 0")
        .formula(INDEX)
        .series(&[REAL])
        .params(&[period(30, 2)])
        .integer()
        .scaling(Scaling::PURE)
        .number(|f| placed(f, Op::MinIndex)),
    Function::new("minmax", OPERATORS)
        .summary("lowest and highest value of a window")
        .formula("min and max of the last timeperiod values")
        .series(&[REAL])
        .params(&[period(30, 2)])
        .outputs(&[output("min", &[]), output("max", &[])])
        .numbers(|f| vec![f.x().lowest(f.bars(0)), f.x().highest(f.bars(0))]),
    Function::new("minmaxindex", OPERATORS)
        .summary("bar numbers of a window's lowest and highest value, the first bar being 0")
        .formula(INDEX)
        .series(&[REAL])
        .params(&[period(30, 2)])
        .outputs(&[output("minidx", &[]), output("maxidx", &[])])
        .scaling(Scaling::PURE)
        .numbers(|f| vec![placed(f, Op::MinIndex), placed(f, Op::MaxIndex)]),
    Function::new("acos", TRANSFORMS)
        .summary("arc cosine")
        .formula("in radians; NA outside -1..1")
        .series(&[REAL])
        .scaling(Scaling::Lawless("of a pure number"))
        .number(|f| f.x().unary(Unary::Acos)),
    Function::new("asin", TRANSFORMS)
        .summary("arc sine")
        .formula("in radians; NA outside -1..1")
        .series(&[REAL])
        .scaling(Scaling::Lawless("of a pure number"))
        .number(|f| f.x().unary(Unary::Asin)),
    Function::new("atan", TRANSFORMS)
        .summary("arc tangent")
        .formula("in radians")
        .series(&[REAL])
        .scaling(Scaling::Lawless("of a pure number"))
        .number(|f| f.x().unary(Unary::Atan)),
    Function::new("ceil", TRANSFORMS)
        .summary("rounded up")
        .formula("the smallest whole number that is not below")
        .series(&[REAL])
        .scaling(Scaling::Lawless("whole numbers are spaced absolutely"))
        .number(|f| f.x().unary(Unary::Ceil)),
    Function::new("cos", TRANSFORMS)
        .summary("cosine")
        .formula("of radians")
        .series(&[REAL])
        .scaling(Scaling::Lawless("of a pure number"))
        .number(|f| f.x().unary(Unary::Cos)),
    Function::new("cosh", TRANSFORMS)
        .summary("hyperbolic cosine")
        .formula("(e^x + e^-x)/2")
        .series(&[REAL])
        .scaling(Scaling::Lawless("of a pure number"))
        .number(|f| f.x().unary(Unary::Cosh)),
    Function::new("exp", TRANSFORMS)
        .summary("exponential")
        .formula("e^x")
        .series(&[REAL])
        .scaling(Scaling::Lawless("of a pure number"))
        .number(|f| f.x().unary(Unary::Exp)),
    Function::new("floor", TRANSFORMS)
        .summary("rounded down")
        .formula("the largest whole number that is not above")
        .series(&[REAL])
        .scaling(Scaling::Lawless("whole numbers are spaced absolutely"))
        .number(|f| f.x().unary(Unary::Floor)),
    Function::new("ln", TRANSFORMS)
        .summary("natural logarithm (NA where undefined: log)")
        .formula("-infinity at 0, NA below")
        .series(&[REAL])
        .scaling(Scaling::Lawless("a factor becomes a term"))
        .number(|f| f.x().unary(Unary::Ln)),
    Function::new("log10", TRANSFORMS)
        .summary("decimal logarithm")
        .formula("-infinity at 0, NA below")
        .series(&[REAL])
        .scaling(Scaling::Lawless("a factor becomes a term"))
        .number(|f| f.x().unary(Unary::Log10)),
    Function::new("sin", TRANSFORMS)
        .summary("sine")
        .formula("of radians")
        .series(&[REAL])
        .scaling(Scaling::Lawless("of a pure number"))
        .number(|f| f.x().unary(Unary::Sin)),
    Function::new("sinh", TRANSFORMS)
        .summary("hyperbolic sine")
        .formula("(e^x - e^-x)/2")
        .series(&[REAL])
        .scaling(Scaling::Lawless("of a pure number"))
        .number(|f| f.x().unary(Unary::Sinh)),
    Function::new("sqrt", TRANSFORMS)
        .summary("square root")
        .formula("NA below 0")
        .series(&[REAL])
        .scaling(Scaling::Powers { prices: 0.5, volumes: 0.0 })
        .number(|f| f.x().sqrt()),
    Function::new("tan", TRANSFORMS)
        .summary("tangent")
        .formula("of radians")
        .series(&[REAL])
        .scaling(Scaling::Lawless("of a pure number"))
        .number(|f| f.x().unary(Unary::Tan)),
    Function::new("tanh", TRANSFORMS)
        .summary("hyperbolic tangent")
        .formula("sinh/cosh")
        .series(&[REAL])
        .scaling(Scaling::Lawless("of a pure number"))
        .number(|f| f.x().unary(Unary::Tanh)),
];

/// How TA-Lib chooses among equal extremes.
const INDEX: &str = "a new value that ties takes its place; when the extreme has left the window, the first of the largest (smallest) does";

/// A bar's number, counted from the first bar that the scan sees. The steps count from the first bar that they are given,
/// which may lie before it.
fn placed(f: &Formula, op: fn(u32) -> Op) -> Num<'_> {
    let found = f.x().step(op(f.bars(0)));
    let Some(seen) = f.origin() else { return found };
    let ago = seen.step(Op::MaxIndex(1)) - found;
    f.bar_number() - 1.0 - ago
}
