//! `cargo run -p trawl-plan --example plans > FILE`: what every function of the catalogue compiles to, over many arguments.
//!
//! A rewrite of formulas that changes no answer leaves this text as it is, byte for byte: nodes in order, comparisons that
//! are flagged, look-backs, fingerprints, messages. Calls with defaults are shown in full, others by a hash.

#[path = "../tests/language/market.rs"]
mod market;

use std::fmt::Write as _;
use std::hash::{DefaultHasher, Hash, Hasher};

use trawl_plan::catalogue::{Function, Param, ParamDefault, ParamType, functions, sample};
use trawl_plan::graph::Kind;
use trawl_plan::{Diagnostic, History, Plan, ScanDocument, Schema, compile_expressions, compile_scan};

/// Values of a parameter that a formula could treat each in its own way.
fn values(param: &Param) -> Vec<String> {
    match param.kind {
        ParamType::Integer { min, max } => {
            let near = [min, min + 1, min + 2, 3, 4, 5, 9, 16, 50, 201];
            near.into_iter().filter(|v| (min..=max).contains(v)).map(|v| v.to_string()).collect()
        }
        ParamType::Real { min, max } => {
            let near = [min, max, 0.0, 1.0, 0.5, -2.0, 40.0, 7.25];
            near.into_iter().filter(|v| (min..=max).contains(v)).map(|v| v.to_string()).collect()
        }
        ParamType::Average => (0..14).map(|v| v.to_string()).collect(),
        ParamType::Choice(words) => words.iter().map(|word| format!("'{word}'")).collect(),
        ParamType::Truth => vec!["true".to_owned(), "false".to_owned()],
    }
}

/// What must be given, and `more`.
fn call(function: &Function, series: &[&str; 3], more: &[(&str, String)]) -> String {
    let mut numbers = series.iter().cycle();
    let mut given: Vec<String> = Vec::new();
    for (_, series) in function.given_series().filter(|(_, s)| s.default.is_none()) {
        let value = match series.kind {
            Kind::Bool => "close > open",
            Kind::Num => numbers.next().expect("endless"),
        };
        given.push(format!("{}={value}", series.name));
    }
    let required = function.params.iter().filter(|p| p.default == ParamDefault::Required);
    given.extend(required.filter(|p| more.iter().all(|(name, _)| *name != p.name)).map(|p| format!("{}=7", p.name)));
    given.extend(more.iter().map(|(name, value)| format!("{name}={value}")));
    format!("{}({})", function.name, given.join(", "))
}

fn calls(function: &Function) -> Vec<String> {
    const PRICES: [&str; 3] = ["close", "high", "low"];
    let with = |more: &[(&str, String)]| call(function, &PRICES, more);
    let mut all = vec![with(&[]), call(function, &["rsi(close, 5)", "volume", "open"], &[])];
    all.push(call(function, &["5", "close", "2"], &[]));
    for param in function.params {
        all.extend(values(param).into_iter().map(|value| with(&[(param.name, value)])));
    }
    // All of them at once, in step and against each other.
    for at in 0..12 {
        let one = |(i, p): (usize, &Param)| {
            let values = values(p);
            let place = if at % 2 == 0 { at + i } else { at + 7 * i };
            (p.name, values[place % values.len()].clone())
        };
        all.push(with(&function.params.iter().enumerate().map(one).collect::<Vec<_>>()));
    }
    for (_, series) in function.given_series() {
        let value = if series.kind == Kind::Bool { "volume > 9" } else { "open - 2 * low" };
        if series.default.is_some() {
            all.extend([value, "3"].map(|value| with(&[(series.name, value.to_owned())])));
        }
    }
    all
}

fn text(result: &Result<Plan, Vec<Diagnostic>>) -> String {
    let mut text = String::new();
    match result {
        Err(mistakes) => writeln!(text, "{mistakes:?}").expect("memory"),
        Ok(plan) => {
            for (i, node) in plan.nodes().iter().enumerate() {
                let inputs: Vec<u32> = node.inputs.iter().map(|id| id.0).collect();
                writeln!(text, "  {i} {:?} {inputs:?} {:?} {:?}", node.op, node.kind, node.frame).expect("memory");
            }
            let numbers = (plan.look_back(), plan.reach(), plan.bars_needed, plan.needed_by);
            writeln!(text, "  {:?} {numbers:?} {:?} {:?}", plan.columns, plan.crosses, plan.points).expect("memory");
            writeln!(text, "  {}", plan.fingerprint()).expect("memory");
        }
    }
    text
}

/// The plans of `items` in all surroundings that formulas can see.
fn plans(function: &Function, items: &[String], schema: &Schema) -> String {
    let mut all = text(&compile_expressions(items, "test", schema));
    let over = |condition: &str, adjust: Option<&str>, origin: Option<bool>| {
        let document = ScanDocument {
            condition: condition.to_owned(),
            adjust: adjust.map(str::to_owned),
            history: origin.map(|origin| History { bars: 300, origin }),
            ..ScanDocument::default()
        };
        text(&compile_scan(&document, schema))
    };
    for (item, output) in items.iter().zip(function.outputs) {
        let (condition, number) = match output.kind {
            Kind::Bool => (format!("iff({item}, 1, 2) > 1"), format!("count({item}, 2)")),
            Kind::Num => (format!("iff({item} != 1, 1, 2) > 1"), item.clone()),
        };
        for (adjust, origin) in [(Some("none"), None), (Some("split"), None), (None, Some(true)), (None, Some(false))] {
            all.push_str(&over(&condition, adjust, origin));
        }
        all.push_str(&over(&format!("tf('1w', {number}) > ref('SPY', {number})"), None, Some(true)));
    }
    all
}

fn main() {
    let schema = market::schema();
    for function in functions() {
        println!("{} {:?} {}", function.name, function.aliases, function.group);
        println!("  {} | {} | {}", function.summary, function.formula, function.reference);
        println!("  {:?} {:?} {:?}", function.series, function.params, function.outputs);
        println!("{}", plans(function, &sample(function), &schema));
        for call in calls(function) {
            let field = |name: &str| if function.outputs.len() > 1 { format!(".{name}") } else { String::new() };
            let items: Vec<String> = function.outputs.iter().map(|o| format!("{call}{}", field(o.name))).collect();
            let mut hash = DefaultHasher::new();
            plans(function, &items, &schema).hash(&mut hash);
            println!("{:016x} {call}", hash.finish());
        }
    }
}
