//! What can be derived of a function beside its declaration: an example that runs, look-back, warm-up, what a missing bar does.

use super::gap::{Gap, gap};
use super::{Function, ParamDefault, ParamType};
use crate::call::default_text;
use crate::compile::compile_expressions;
use crate::graph::Kind;
use crate::schema::Schema;

/// The columns of ordinary bars.
const BAR_COLUMNS: [&str; 5] = ["open", "high", "low", "close", "volume"];

/// What follows from a function's declaration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    /// A legal call with the defaults written out, without a field.
    pub example: String,
    /// Own bars that the example needs before its first value.
    pub look_back: usize,
    /// Own bars that a limited history gives it before the first bar that is seen; `None` when no number is enough.
    pub warm_up: Option<usize>,
    /// What one missing bar does to the example.
    pub gap: Gap,
}

/// The facts of `function`.
pub fn facts(function: &Function) -> Facts {
    let example = example(function);
    let items: Vec<String> = match function.outputs {
        [_] => vec![example.clone()],
        several => several.iter().map(|o| format!("{example}.{}", o.name)).collect(),
    };
    let schema = Schema::of_columns(BAR_COLUMNS.map(str::to_owned).to_vec());
    // A declaration whose own example is no legal call fails its test, not its user.
    let Ok(plan) = compile_expressions(&items, "example", &schema) else {
        return Facts { example, look_back: 0, warm_up: None, gap: Gap::default() };
    };
    let bounded = !plan.nodes().iter().any(|node| node.op.facts().is_unbounded());
    Facts {
        example,
        look_back: plan.look_back().max(plan.bars_needed.saturating_sub(1)),
        warm_up: bounded.then(|| plan.reach()),
        // No series is NA for longer than what it looks back at.
        gap: gap(plan.program(), plan.look_back() + 2),
    }
}

/// `rsi(close, timeperiod=14)`.
fn example(function: &Function) -> String {
    if function.is_bare {
        return function.name.to_owned();
    }
    let mut others = ["close", "open", "high", "low"].iter();
    let series = function.given_series().map(|(_, s)| match (s.default, s.kind) {
        (Some(column), _) => column.to_owned(),
        (None, Kind::Num) => others.next().map_or_else(|| "close".to_owned(), |c| (*c).to_owned()),
        (None, Kind::Bool) => "close > open".to_owned(),
    });
    let params = function.params.iter().filter_map(|p| match p.default {
        ParamDefault::Required => Some(format!("{}={}", p.name, required(p.kind))),
        // The choice of averages and what follows another parameter is left to its default.
        ParamDefault::SameAs(_) => None,
        ParamDefault::Value(_) if p.kind == ParamType::Average => None,
        ParamDefault::Value(_) => Some(format!("{}={}", p.name, default_text(p))),
    });
    format!("{}({})", function.name, series.chain(params).collect::<Vec<_>>().join(", "))
}

/// A usual value of a parameter without a default.
fn required(kind: ParamType) -> f64 {
    match kind {
        ParamType::Integer { min, max } => 20.0_f64.clamp(f64::from(min), f64::from(max)),
        ParamType::Real { min, max } => 1.0_f64.clamp(min, max),
        ParamType::Average | ParamType::Choice(_) | ParamType::Truth => 0.0,
    }
}
