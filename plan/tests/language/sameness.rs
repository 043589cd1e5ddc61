//! What computes the same is the same plan; what does not is not.

use std::collections::BTreeMap;

use trawl_plan::graph::Op;
use trawl_plan::{ScanDocument, Schema, compile_scan};

use crate::{plan, schema};

#[test]
fn spelling_does_not_change_a_plan() {
    assert_eq!(plan("close>5").fingerprint(), plan("  close  >  5.0 # a comment").fingerprint());
    assert_eq!(plan("20 < close < 30").fingerprint(), plan("20 < close and close < 30").fingerprint());
    assert_eq!(plan("a_ > 1".replace("a_", "(close)").as_str()).fingerprint(), plan("close > 1").fingerprint());
}

#[test]
fn meaning_does_change_a_plan() {
    let all: Vec<String> =
        ["close > 5", "close >= 5", "close > 6", "open > 5", "5 > close", "close[1] > 5", "not close > 5"]
            .iter()
            .map(|c| plan(c).fingerprint())
            .collect();
    let distinct: std::collections::BTreeSet<&String> = all.iter().collect();
    assert_eq!(distinct.len(), all.len());
}

#[test]
fn lets_are_shared_and_their_names_do_not_matter() {
    let with = |name: &str| {
        let lets: BTreeMap<String, String> = [(name.to_owned(), "sma(close, 50)".to_owned())].into();
        let document = ScanDocument {
            universe: Some(format!("{name} > 5")),
            condition: format!("close > {name}"),
            rank: Some(format!("close/{name}")),
            lets,
            ..ScanDocument::default()
        };
        compile_scan(&document, &schema()).expect("legal")
    };
    assert_eq!(with("slow").fingerprint(), with("fast").fingerprint());
    let means = with("slow").nodes().iter().filter(|n| matches!(n.op, Op::Mean(_))).count();
    assert_eq!(means, 1, "sma(close, 50) is computed once");
}

#[test]
fn precedence_is_as_documented() {
    for (loose, bracketed) in [
        ("close > 1 or open > 2 and low > 3", "close > 1 or (open > 2 and low > 3)"),
        ("not close > 1 and open > 2", "(not close > 1) and open > 2"),
        ("close + open * 2 > 3", "(close + (open * 2)) > 3"),
        ("close - open - 1 > 0", "((close - open) - 1) > 0"),
        ("-close[1] < 0", "(-(close[1])) < 0"),
        ("-close * 2 < 0", "((-close) * 2) < 0"),
        ("close % 3 * 2 > 1", "((close % 3) * 2) > 1"),
    ] {
        assert_eq!(plan(loose).fingerprint(), plan(bracketed).fingerprint(), "{loose}");
    }
}

#[test]
fn constants_are_computed_once_by_the_rules_of_the_language() {
    assert_eq!(plan("close > 2*3+4").fingerprint(), plan("close > 10").fingerprint());
    assert_eq!(plan("close > -7 % 3").fingerprint(), plan("close > 2").fingerprint());
    assert_eq!(plan("close > round(2.5)").fingerprint(), plan("close > 2").fingerprint());
    assert_eq!(plan("close > log(0)").fingerprint(), plan("close > 1/0").fingerprint());
}

#[test]
fn look_back_and_columns_are_known() {
    let golden = plan("within(crosses_above(sma(close,50), sma(close,200)), 3)");
    assert_eq!(golden.look_back(), 199 + 1 + 2);
    assert_eq!(golden.columns, ["close"]);
    assert_eq!(plan("highest(high, 252)[1] < close").look_back(), 252);
    assert_eq!(plan("macd().hist > 0").look_back(), 33);
}

#[test]
fn every_function_declares_a_legal_default_call_and_explains_itself() {
    for function in trawl_plan::catalogue::functions() {
        assert!(!function.summary.is_empty() && !function.formula.is_empty(), "{}", function.name);
        let given: Vec<String> = function
            .series
            .iter()
            .filter(|s| s.default.is_none())
            .map(|s| match s.kind {
                trawl_plan::graph::Kind::Num => format!("{}=close", s.name),
                trawl_plan::graph::Kind::Bool => format!("{}=(close > open)", s.name),
            })
            .chain(
                function
                    .params
                    .iter()
                    .filter(|p| p.default == trawl_plan::catalogue::ParamDefault::Required)
                    .map(|p| format!("{}=3", p.name)),
            )
            .collect();
        for output in function.outputs {
            let field = if function.outputs.len() > 1 { format!(".{}", output.name) } else { String::new() };
            let call = format!("{}({}){field}", function.name, given.join(", "));
            let condition = if output.kind == trawl_plan::graph::Kind::Bool { call } else { format!("{call} > 0") };
            // Words of the time of day are legal over bars shorter than a day.
            let any = Schema { timeframe: None, ..schema() };
            let document = ScanDocument { condition: condition.clone(), ..ScanDocument::default() };
            let explained = compile_scan(&document, &any).unwrap_or_else(|d| panic!("{condition}: {}", d[0])).explain();
            assert!(explained.contains("look-back"), "{explained}");
        }
    }
}
