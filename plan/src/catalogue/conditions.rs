//! Conditions over own bars.

use super::*;

const GROUP: &str = "Conditions";

/// How many occurrences `valuewhen` can look back: each is a step.
const OCCURRENCES_MAX: u32 = 50;

pub(super) const LIST: &[Function] = &[
    declare("crosses_above", GROUP)
        .summary("a rises through b on this bar")
        .formula("a > b and a[1] <= b[1]; NA when one of the four is NA or infinite")
        .reference(Reference::Language)
        .series(&[num("a", None), num("b", None)])
        .scaling(Scaling::PURE)
        .condition(|f| f.condition_of(Op::CrossesAbove, &f.series::<2>())),
    declare("crosses_below", GROUP)
        .summary("a falls through b on this bar")
        .formula("a < b and a[1] >= b[1]; NA when one of the four is NA or infinite")
        .reference(Reference::Language)
        .series(&[num("a", None), num("b", None)])
        .scaling(Scaling::PURE)
        .condition(|f| f.condition_of(Op::CrossesBelow, &f.series::<2>())),
    declare("within", GROUP)
        .summary("c was true on one of the last n bars, this one included")
        .formula("Kleene or over n bars")
        .reference(Reference::Language)
        .series(&[condition("c")])
        .params(&[count_of_bars(1)])
        .watches_condition()
        .scaling(Scaling::PURE)
        .condition(|f| f.condition().step(Op::Within(f.bars(0)))),
    declare("streak", GROUP)
        .summary("c was true on each of the last n bars, this one included")
        .formula("Kleene and over n bars; a bar before the first is NA")
        .reference(Reference::Language)
        .series(&[condition("c")])
        .params(&[count_of_bars(1)])
        .watches_condition()
        .scaling(Scaling::PURE)
        .condition(|f| f.condition().streak(f.bars(0))),
    declare("count", GROUP)
        .summary("on how many of the last n bars c was true")
        .formula("sum of c over n bars; NA when one of them is NA")
        .reference(Reference::Language)
        .series(&[condition("c")])
        .params(&[count_of_bars(1)])
        .watches_condition()
        .scaling(Scaling::PURE)
        .number(|f| f.condition().as_number().sum(f.bars(0))),
    declare("since", GROUP)
        .summary("bars since c was last true, 0 when it is true now")
        .formula("NA if it never was, or if an NA comes first")
        .reference(Reference::Language)
        .series(&[condition("c")])
        .scaling(Scaling::PURE)
        .number(|f| f.x().step(Op::Since)),
    declare("valuewhen", GROUP)
        .summary("x at the bar where c was last true, or at the n-th last of those bars")
        .formula("n = 1 is the last one; NA if c was true less often, or if an NA of c comes first")
        .reference(Reference::Language)
        .series(&[condition("c"), num("x", None)])
        .params(&[param("n", ParamType::Integer { min: 1, max: OCCURRENCES_MAX }, 1.0)])
        .number(|f| {
            let [c, x] = f.series();
            let when = |x| f.step(Op::ValueWhen, &[c, x]);
            // What the occurrence before was, as long as this one was not there.
            (1..f.bars(0)).fold(when(x), |later, _| when(later.lag(1)))
        }),
    declare("highest_since", GROUP)
        .summary("highest value from the bar where c was last true on")
        .formula("max of the defined values of x since then, that bar included; NA if c never was true, or if an NA of c comes first")
        .reference(Reference::Language)
        .series(&[num("x", None), condition("c")])
        .number(|f| {
            let [x, c] = f.series();
            f.step(Op::MaxSince, &[c, x])
        }),
    declare("lowest_since", GROUP)
        .summary("lowest value from the bar where c was last true on")
        .formula("min of the defined values of x since then, that bar included; NA if c never was true, or if an NA of c comes first")
        .reference(Reference::Language)
        .series(&[num("x", None), condition("c")])
        .number(|f| {
            let [x, c] = f.series();
            f.step(Op::MinSince, &[c, x])
        }),
];
