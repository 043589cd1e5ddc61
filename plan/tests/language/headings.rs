//! Columns of an answer have different names, and a sweep's variables are used.

use std::collections::BTreeMap;

use trawl_plan::{Best, Diagnostic, Plan, ScanDocument, SweepValues, compile_expressions, compile_scan};

use crate::schema;

fn compiled(condition: &str, select: &[&str], sweep: &[&str]) -> Result<Plan, Vec<Diagnostic>> {
    let values = || SweepValues::List(vec![5.0.into(), 10.0.into()]);
    let document = ScanDocument {
        condition: condition.to_owned(),
        select: select.iter().map(|text| (*text).to_owned()).collect(),
        lets: BTreeMap::from([("slow".to_owned(), "sma(close, k)".to_owned())]),
        sweep: sweep.iter().map(|name| ((*name).to_owned(), values())).collect(),
        best: sweep.contains(&"best").then(|| Best { by: "roc(best)".to_owned(), keep: 1 }),
        ..ScanDocument::default()
    };
    compile_scan(&document, &schema())
}

#[test]
fn a_heading_that_every_answer_has_is_refused_however_it_is_written() {
    for (select, place) in [
        ("close as symbol", 9..15),
        ("close as 'symbol'", 9..17),
        ("close as symbol # c", 9..15),
        ("close as k", 9..10),
        ("k", 0..1),
        ("roc(close, k) as k # k", 17..18),
    ] {
        let refused = compiled("close > slow", &["close", select], &["k"]).expect_err(select);
        assert_eq!(refused.len(), 1, "{select}: {refused:?}");
        assert!(refused[0].message.starts_with("every answer has a column '"), "{select}: {}", refused[0]);
        assert_eq!((refused[0].clause.as_str(), refused[0].span.clone()), ("select[2]", place), "{select}");
    }
    assert!(compiled("close > slow", &["close + 1 as placebo"], &["k"]).is_ok());
    let status = compiled("close > sma(close, status)", &[], &["k", "status"]).expect_err("a heading");
    assert!(status[0].message.contains("every answer has a column 'status' already"), "{}", status[0]);
    let best = compiled("close > slow", &[], &["k", "best"]).expect_err("a heading");
    assert!(best[0].message.contains("a column is named 'best'"), "{}", best[0]);
    let bare = ["close as symbol".to_owned()];
    assert!(compile_expressions(&bare, "--expr", &schema()).is_ok(), "there is no answer");
}

#[test]
fn a_sweep_variable_that_no_clause_uses_is_refused() {
    assert!(compiled("close > slow", &[], &["k"]).is_ok(), "by way of a let");
    assert!(compiled("close > slow", &["roc(n)"], &["k", "n"]).is_ok());
    let refused = compiled("close > slow", &[], &["k", "n"]).expect_err("n is not used");
    assert_eq!(refused.len(), 1);
    assert_eq!(refused[0].message, "no clause uses the sweep's variable 'n'");
    // Only a let that nothing uses has it.
    assert!(compiled("close > open", &[], &["k"]).is_err());
}

#[test]
fn a_let_may_be_a_bare_number_or_truth() {
    let document = |lets: &str| ScanDocument::from_toml(&format!("where = 'close > a'\n[let]\n{lets}\n"));
    for (written, text) in
        [("a = 20", "20"), ("a = -2.5", "-2.5"), ("a = 1e300", "1e300"), ("a = true", "true"), ("a = '5'", "5")]
    {
        assert_eq!(document(written).expect(written).lets["a"], text);
    }
    let number = document("a = -2.5").expect("a number");
    assert!(compile_scan(&number, &schema()).is_ok());
    let refused = document("b = '1'\na = [1]").expect_err("a list");
    assert!(refused.message.contains("an expression in quotes, a number, true or false"), "{refused}");
    assert!(refused.span.start >= 31, "{refused:?}");
}
