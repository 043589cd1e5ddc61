//! No text can make the planner panic, exhaust the stack, or take more than linear time.

use proptest::prelude::*;
use trawl_plan::{ScanDocument, compile_scan};

use crate::{mistake, plan, scan, schema};

#[test]
fn deep_nesting_is_refused_with_its_limit() {
    for text in [
        format!("{}close > 1{}", "(".repeat(100_000), ")".repeat(100_000)),
        format!("{}close > 1", "not ".repeat(10_000)),
        format!("{}close > 1", "-".repeat(60_000)),
        format!("abs({}close", "abs(".repeat(10_000)),
        format!("close{} > 1", "[0]".repeat(20_000)),
        format!("close{} > 1", " + 1".repeat(10_000)),
        format!("close > 1{}", " and close > 1".repeat(4_000)),
        format!("1{}", " < close".repeat(7_000)),
    ] {
        let mistakes = scan(&text).expect_err("too deep or too long");
        let message = &mistakes[0].message;
        assert!(message.contains("nested more than") || message.contains("bytes"), "{message}");
    }
}

/// Resolving an argument twice would take 2^200 steps: this test would not end.
#[test]
fn nested_calls_are_resolved_once() {
    plan(&format!("{}close{} > 1", "abs(".repeat(200), ")".repeat(200)));
    plan(&format!("{}close{} > 1", "sma(".repeat(100), ",2).real".repeat(100)));
    plan(&format!("{}close{} > 1", "max(real=".repeat(100), ",timeperiod=2)[1]".repeat(100)));
}

#[test]
fn a_hundred_conditions_in_a_row_are_fine() {
    plan(&vec!["close > 1"; 100].join(" and "));
}

#[test]
fn deep_lets_are_refused_too() {
    let lets = (0..250).map(|i| {
        let text = if i == 0 { "close".to_owned() } else { format!("((((v{} + 1) * 2) - 1) / 2)", i - 1) };
        (format!("v{i}"), text)
    });
    let document = ScanDocument { condition: "v249 > 1".to_owned(), lets: lets.collect(), ..ScanDocument::default() };
    let mistakes = compile_scan(&document, &schema()).expect_err("too deep");
    assert!(mistakes.iter().any(|d| d.message.contains("nested more than")), "{mistakes:?}");
}

#[test]
fn a_plan_of_too_many_steps_is_refused() {
    let terms: Vec<String> = (1..250)
        .map(|i| format!("macd(close,{},{},{}).hist+adx({})+mfi({})", i + 2, i + 300, i, i + 1, i + 1))
        .collect();
    let text = terms.chunks(40).map(|c| format!("({})", c.join("+"))).collect::<Vec<_>>().join("+") + " > 0";
    assert!(mistake(&text).message.contains("more than 4096 steps"));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_text_never_panics(text in "\\PC{0,60}") {
        let _ = scan(&text).map_err(|all| all.iter().map(ToString::to_string).collect::<String>());
    }

    #[test]
    fn random_words_of_the_language_never_panic(words in prop::collection::vec(prop::sample::select(vec![
        "close", "open", "rsi", "macd", "sma", "within", "crosses_above", "(", ")", "[", "]", ",", ".", "line", "1", "14", "-", "+", "*",
        "/", "%", "<", ">", "==", "!=", "and", "or", "not", "as", "desc", "timeperiod", "=", "'ema'", "matype", "true", "in", "é", "1e400", "_",
    ]), 0..25)) {
        let text = words.join(" ");
        let document = ScanDocument {
            condition: text.clone(),
            rank: Some(text.clone()),
            select: vec![text.clone()],
            lets: [("x".to_owned(), text)].into(),
            ..ScanDocument::default()
        };
        if let Err(all) = compile_scan(&document, &schema()) {
            for d in &all {
                prop_assert!(d.text.get(d.span.clone()).is_some(), "{d:?} points outside its text");
            }
        }
    }

    #[test]
    fn random_documents_never_panic(text in "\\PC{0,80}") {
        let _ = ScanDocument::from_toml(&text);
        let _ = ScanDocument::from_json(&text);
    }
}
