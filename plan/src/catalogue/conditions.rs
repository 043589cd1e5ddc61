//! Conditions over own bars.

use super::*;

const GROUP: &str = "Conditions";

pub(super) const LIST: &[Function] = &[
    Function::new("crosses_above", GROUP)
        .summary("a rises through b on this bar")
        .formula("a > b and a[1] <= b[1]; NA when one of the four is NA or infinite")
        .reference(Reference::Language)
        .series(&[num("a", None), num("b", None)])
        .scaling(Scaling::PURE)
        .condition(|f| f.condition_of(Op::CrossesAbove, &f.series::<2>())),
    Function::new("crosses_below", GROUP)
        .summary("a falls through b on this bar")
        .formula("a < b and a[1] >= b[1]; NA when one of the four is NA or infinite")
        .reference(Reference::Language)
        .series(&[num("a", None), num("b", None)])
        .scaling(Scaling::PURE)
        .condition(|f| f.condition_of(Op::CrossesBelow, &f.series::<2>())),
    Function::new("within", GROUP)
        .summary("c was true on one of the last n bars, this one included")
        .formula("Kleene or over n bars")
        .reference(Reference::Language)
        .series(&[condition("c")])
        .params(&[count_of_bars(1)])
        .watches_condition()
        .scaling(Scaling::PURE)
        .condition(|f| f.condition().step(Op::Within(f.bars(0)))),
    Function::new("streak", GROUP)
        .summary("c was true on each of the last n bars, this one included")
        .formula("Kleene and over n bars; a bar before the first is NA")
        .reference(Reference::Language)
        .series(&[condition("c")])
        .params(&[count_of_bars(1)])
        .watches_condition()
        .scaling(Scaling::PURE)
        .condition(|f| f.condition().streak(f.bars(0))),
    Function::new("count", GROUP)
        .summary("on how many of the last n bars c was true")
        .formula("sum of c over n bars; NA when one of them is NA")
        .reference(Reference::Language)
        .series(&[condition("c")])
        .params(&[count_of_bars(1)])
        .watches_condition()
        .scaling(Scaling::PURE)
        .number(|f| f.condition().as_number().sum(f.bars(0))),
    Function::new("since", GROUP)
        .summary("bars since c was last true, 0 when it is true now")
        .formula("NA if it never was, or if an NA comes first")
        .reference(Reference::Language)
        .series(&[condition("c")])
        .scaling(Scaling::PURE)
        .number(|f| f.x().step(Op::Since)),
    Function::new("valuewhen", GROUP)
        .summary("x at the bar where c was last true")
        .formula("NA if it never was, or if an NA of c comes first")
        .reference(Reference::Language)
        .series(&[condition("c"), num("x", None)])
        .number(|f| f.step(Op::ValueWhen, &f.series::<2>())),
];
