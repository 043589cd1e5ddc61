//! A plain call of every function, and an expression for every operator: what is compiled, compared and shown where all of the
//! language is meant.

use super::{Function, ParamDefault, functions};
use crate::graph::Kind;

/// What no function is: operators, conditions, looks back.
const OPERATORS: [&str; 14] = [
    "close + open",
    "close - open",
    "close * open",
    "close / open",
    "-close",
    "close > open",
    "close >= open",
    "close < open",
    "close <= open",
    "close == open",
    "close != open",
    "close > open and not (high > open) or low > open",
    "close[1]",
    "close[9]",
];

/// A call of a function with its defaults, and with plain arguments where it has none.
fn call(function: &Function) -> String {
    let mut numbers = ["close", "high", "low"].into_iter().cycle();
    let mut given: Vec<String> = Vec::new();
    for series in function.series.iter().filter(|s| s.default.is_none()) {
        let value = match (series.name, series.kind) {
            (_, Kind::Bool) => "close > open",
            ("periods", _) => "iff(close > open, 5, 9)",
            _ => numbers.next().unwrap_or("close"),
        };
        given.push(format!("{}={value}", series.name));
    }
    let required = function.params.iter().filter(|p| p.default == ParamDefault::Required);
    given.extend(required.map(|p| format!("{}=7", p.name)));
    format!("{}({})", function.name, given.join(", "))
}

/// Every output of a function, as an expression over the columns open, high, low, close and volume.
pub fn sample(function: &Function) -> Vec<String> {
    let field = |name: &str| if function.outputs.len() > 1 { format!(".{name}") } else { String::new() };
    function.outputs.iter().map(|output| format!("{}{}", call(function), field(output.name))).collect()
}

/// Plans that have every operator and every function between them, as lists of expressions.
pub fn samples() -> Vec<Vec<String>> {
    let operators = OPERATORS.iter().map(|text| (*text).to_owned()).collect();
    std::iter::once(operators).chain(functions().map(sample)).collect()
}
