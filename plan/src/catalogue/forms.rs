//! Functions that change whose bars are looked at: references, timeframes, cross-sections.
//!
//! They are no formulas over one symbol's bars, so they have no primitives here; `forms` resolves them. Declared for
//! messages, listings and documentation.

use crate::frame::CrossFunction;

/// What a form changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FormKind {
    /// Reads another symbol.
    Reference,
    /// Reads higher bars.
    Timeframe,
    /// Reads all symbols at one time.
    Cross(CrossForm),
    /// Counts days between the bar's trading day and a date: to it if true, since it if not.
    Days(bool),
}

/// What a cross-section tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CrossForm {
    /// This of the first argument.
    Of(CrossFunction),
    /// Whether the rank is at most the argument `k`.
    Top,
    /// The quantile that the argument `q` says.
    Quantile,
}

/// A function that the resolver treats by itself.
#[derive(Debug)]
pub struct Form {
    /// As it is called.
    pub name: &'static str,
    /// What it is resolved to.
    pub kind: FormKind,
    /// Arguments in order or by name.
    pub positional: &'static [&'static str],
    /// Arguments by name only.
    pub named: &'static [&'static str],
    /// How a call looks.
    pub signature: &'static str,
    /// One line: what it tells.
    pub summary: &'static str,
    /// What it computes, and when it is NA.
    pub formula: &'static str,
    /// A condition with it.
    pub example: &'static str,
}

/// Which symbols a cross-section is of.
const MEMBERS: &[&str] = &["by", "where"];

/// All of them.
pub const FORMS: [Form; 11] = [
    Form {
        name: "ref",
        kind: FormKind::Reference,
        positional: &["symbol", "e"],
        named: &["asof"],
        signature: "ref('SYMBOL', e, asof=n)",
        summary: "e of another symbol",
        formula: "e on that symbol's own bars, at this bar's time; NA when it has no bar there. With asof=n its latest bar, if at most n of this symbol's bars are later",
        example: "roc(close, 63) > ref('SPY', roc(close, 63))",
    },
    Form {
        name: "tf",
        kind: FormKind::Timeframe,
        positional: &["timeframe", "e"],
        named: &["partial"],
        signature: "tf('TIMEFRAME', e, partial=false)",
        summary: "e on higher bars",
        formula: "e on bars built from the dataset's bars, at the last one that is complete; with partial=true at the one that is forming",
        example: "tf('1w', rsi(close, 14)) > 50",
    },
    Form {
        name: "xs_rank",
        kind: FormKind::Cross(CrossForm::Of(CrossFunction::Rank)),
        positional: &["e"],
        named: MEMBERS,
        signature: "xs_rank(e, by=label, where=condition)",
        summary: "place among all symbols at this time, 1 = largest",
        formula: "1 + how many values of the population are larger; NA outside the population",
        example: "xs_rank(roc(close, 63)) <= 10",
    },
    Form {
        name: "xs_pct",
        kind: FormKind::Cross(CrossForm::Of(CrossFunction::Percent)),
        positional: &["e"],
        named: MEMBERS,
        signature: "xs_pct(e, by=label, where=condition)",
        summary: "place among all symbols as a share, the largest near 1",
        formula: "(average ascending rank - 0.5) / n; NA outside the population",
        example: "xs_pct(roc(close, 126), by=sector) > 0.8",
    },
    Form {
        name: "xs_z",
        kind: FormKind::Cross(CrossForm::Of(CrossFunction::Score)),
        positional: &["e"],
        named: MEMBERS,
        signature: "xs_z(e, by=label, where=condition)",
        summary: "distance from the mean of all symbols in deviations",
        formula: "(e - mean) / population standard deviation; NA when that is 0, and outside the population",
        example: "xs_z(roc(close, 20), by=sector) < -2",
    },
    Form {
        name: "xs_demean",
        kind: FormKind::Cross(CrossForm::Of(CrossFunction::Demean)),
        positional: &["e"],
        named: MEMBERS,
        signature: "xs_demean(e, by=label, where=condition)",
        summary: "distance from the mean of all symbols",
        formula: "e - mean; NA outside the population",
        example: "xs_demean(roc(close, 20)) > 0",
    },
    Form {
        name: "xs_top",
        kind: FormKind::Cross(CrossForm::Top),
        positional: &["e", "k"],
        named: MEMBERS,
        signature: "xs_top(e, k, by=label, where=condition)",
        summary: "whether e is among the k largest of all symbols",
        formula: "xs_rank(e) <= k",
        example: "xs_top(close * volume, 50)",
    },
    Form {
        name: "xs_quantile",
        kind: FormKind::Cross(CrossForm::Quantile),
        positional: &["e", "q"],
        named: MEMBERS,
        signature: "xs_quantile(e, q, by=label, where=condition)",
        summary: "value that the share q of all symbols stays below",
        formula: "linear interpolation between the ordered values at q*(n-1); NA when the population is empty",
        example: "close * volume > xs_quantile(close * volume, 0.5)",
    },
    Form {
        name: "breadth",
        kind: FormKind::Cross(CrossForm::Of(CrossFunction::Breadth)),
        positional: &["c"],
        named: MEMBERS,
        signature: "breadth(c, by=label, where=condition)",
        summary: "share of symbols for which c is true",
        formula: "true / (true + false) over the population; NA when both are 0",
        example: "breadth(close > sma(close, 50)) > 0.6",
    },
    Form {
        name: "days_to",
        kind: FormKind::Days(true),
        positional: &["date"],
        named: &[],
        signature: "days_to(date)",
        summary: "calendar days from this bar's trading day to a date of the symbol",
        formula: "date - trading day; date is an attribute of dates, as it is known at the bar; below 0 once it is over",
        example: "days_to(earnings) > 3",
    },
    Form {
        name: "days_since",
        kind: FormKind::Days(false),
        positional: &["date"],
        named: &[],
        signature: "days_since(date)",
        summary: "calendar days from a date of the symbol to this bar's trading day",
        formula: "trading day - date; date is an attribute of dates, as it is known at the bar; below 0 before it",
        example: "days_since(earnings) <= 5",
    },
];

/// The form called `name`.
pub fn find_form(name: &str) -> Option<&'static Form> {
    FORMS.iter().find(|f| f.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signatures_show_the_declared_arguments() {
        for form in &FORMS {
            let (name, arguments) = form.signature.trim_end_matches(')').split_once('(').expect("a call");
            assert_eq!(name, form.name);
            let (named, positional): (Vec<&str>, Vec<&str>) = arguments.split(", ").partition(|a| a.contains('='));
            let names: Vec<&str> = named.iter().map(|a| a.split('=').next().unwrap_or(a)).collect();
            assert_eq!(names, form.named, "{name}");
            // Strings are shown by an example.
            let names: Vec<String> = positional.iter().map(|a| a.trim_matches('\'').to_lowercase()).collect();
            assert_eq!(names, form.positional, "{name}");
        }
    }
}
