//! Every parameter of the catalogue takes what its declaration says and nothing else.

use trawl_plan::catalogue::{Function, Param, ParamDefault, ParamType, functions};
use trawl_plan::graph::Kind;
use trawl_plan::{Diagnostic, Plan, Schema, compile_expressions, legal_values};

use crate::schema;

/// The function with one argument more than those that must be given.
fn call(function: &Function, param: &str, value: &str) -> String {
    let series = function.series.iter().filter(|s| s.default.is_none());
    let series = series.map(|s| format!("{}={}", s.name, if s.kind == Kind::Bool { "close > 1" } else { "close" }));
    let required = function.params.iter().filter(|p| p.default == ParamDefault::Required && p.name != param);
    let required = required.map(|p| format!("{}=5", p.name));
    let arguments: Vec<String> = series.chain(required).chain([format!("{param}={value}")]).collect();
    let output = if function.outputs.len() > 1 { format!(".{}", function.outputs[0].name) } else { String::new() };
    format!("{}({}){output}", function.name, arguments.join(", "))
}

fn compiled(expression: &str) -> Result<Plan, Vec<Diagnostic>> {
    compile_expressions(&[format!("{expression} as x")], "test", &Schema { timeframe: None, ..schema() })
}

fn refused(expression: &str) -> Diagnostic {
    match compiled(expression) {
        Ok(_) => panic!("{expression} is taken"),
        Err(mut all) => all.remove(0),
    }
}

fn parameters() -> impl Iterator<Item = (&'static Function, &'static Param)> {
    functions().flat_map(|f| f.params.iter().map(move |p| (f, p)))
}

/// Values beyond the declaration, as they are written: numbers, words.
fn illegal(kind: ParamType) -> (Vec<String>, Vec<&'static str>) {
    match kind {
        ParamType::Integer { min, max } => {
            let (min, max) = (f64::from(min), f64::from(max));
            ([min - 1.0, min + 0.5, max + 1.0, -max, 1e30].map(|x| x.to_string()).to_vec(), vec![])
        }
        ParamType::Real { min, max } => {
            let far = |x: f64| if x == 0.0 { 1.0 } else { x.abs() };
            let beyond = [min.next_down(), max.next_up(), min - far(min), max + far(max)];
            // Beyond the ends of all numbers there is nothing to write.
            (beyond.into_iter().filter(|x| x.is_finite()).map(|x| x.to_string()).collect(), vec![])
        }
        ParamType::Average => (["14", "-1", "0.5"].map(str::to_owned).to_vec(), vec!["nothing", "", "smaa"]),
        ParamType::Choice(_) => (["0", "1", "-1"].map(str::to_owned).to_vec(), vec!["nothing", ""]),
        // Nothing but true and false is of its type.
        ParamType::Truth => (vec![], vec![]),
    }
}

#[test]
fn illegal_values_of_every_parameter_are_refused_with_the_legal_ones() {
    let mut seen = 0;
    for (function, param) in parameters() {
        let expected = format!("expected {}", legal_values(param.kind));
        let (numbers, words) = illegal(param.kind);
        let not_a_number = (param.kind != ParamType::Truth).then(|| "1/0".to_owned());
        for value in numbers.into_iter().chain(not_a_number) {
            let expression = call(function, param.name, &value);
            let mistake = refused(&expression);
            let message = format!("is not legal for '{}' of {}", param.name, function.name);
            assert!(mistake.message.ends_with(&message), "{expression}: {}", mistake.message);
            assert_eq!(mistake.label, expected, "{expression}");
            assert_eq!(&mistake.text[mistake.span.clone()], value, "{expression}");
            seen += 1;
        }
        for word in words {
            let expression = call(function, param.name, &format!("'{word}'"));
            let mistake = refused(&expression);
            assert_eq!(mistake.label, expected, "{expression}: {}", mistake.message);
            seen += 1;
        }
    }
    assert!(seen > 800, "{seen} values");
}

#[test]
fn every_parameter_refuses_what_is_of_another_type() {
    for (function, param) in parameters() {
        let (own, other, kind) = match param.kind {
            ParamType::Truth => ("close > 1", "close", "condition"),
            _ => ("close", "close > 1", "number"),
        };
        let mistake = refused(&call(function, param.name, own));
        let constant = format!("'{}' must be a constant", param.name);
        assert!(mistake.message.starts_with(&constant), "{}: {}", function.name, mistake.message);
        let mistake = refused(&call(function, param.name, other));
        let wanted = format!("'{}' must be a {kind}", param.name);
        assert!(mistake.message.starts_with(&wanted), "{}: {}", function.name, mistake.message);
        if matches!(param.kind, ParamType::Integer { .. } | ParamType::Real { .. }) {
            let expression = call(function, param.name, "'text'");
            let mistake = refused(&expression);
            assert_eq!(&mistake.text[mistake.span.clone()], "'text'", "{expression}: {}", mistake.message);
        }
    }
}

#[test]
fn every_parameter_takes_the_ends_of_its_range() {
    for (function, param) in parameters() {
        let legal: Vec<String> = match param.kind {
            // The shortest of a family's averages needs a bar at least.
            ParamType::Integer { max, .. } if function.name == "atc" => {
                vec!["5, robustness='narrow'".to_owned(), "8, robustness='wide'".to_owned(), max.to_string()]
            }
            ParamType::Integer { min, max } => vec![min.to_string(), max.to_string()],
            // One must be above the other, whose defaults are near 0.
            ParamType::Real { max, .. } if function.name == "atc" && param.name == "long" => vec![max.to_string()],
            ParamType::Real { min, .. } if function.name == "atc" && param.name == "short" => vec![min.to_string()],
            ParamType::Real { min, max } => vec![min.to_string(), max.to_string()],
            ParamType::Average => ["'sma'", "'EMA'", "'default'", "13", "0"].map(str::to_owned).to_vec(),
            ParamType::Choice(words) => words.iter().map(|w| format!("'{w}'")).collect(),
            ParamType::Truth => ["true", "false"].map(str::to_owned).to_vec(),
        };
        for value in legal {
            // The other one of an ordered pair must allow it.
            let pair = function.at_most.iter().find(|(a, b)| [*a, *b].contains(&param.name));
            let value = match pair {
                Some((less, more)) if param.name == *less => format!("{value}, {more}={value}"),
                Some((less, _)) => format!("{value}, {less}={value}"),
                None => value,
            };
            let expression = call(function, param.name, &value);
            if let Err(all) = compiled(&expression) {
                panic!("{expression}: {}, {}", all[0], all[0].label);
            }
        }
    }
}

#[test]
fn parameters_that_contradict_each_other_are_refused() {
    let mut seen = 0;
    for (function, (less, more)) in functions().flat_map(|f| f.at_most.iter().map(move |pair| (f, pair))) {
        let mistake = refused(&call(function, less, &format!("9, {more}=8")));
        assert_eq!(mistake.message, format!("{less} (9) is larger than {more} (8)"));
        assert!(compiled(&call(function, less, &format!("8, {more}=8"))).is_ok());
        seen += 1;
    }
    assert!(seen > 0, "no function declares such a pair");
}
