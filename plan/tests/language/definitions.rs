//! Functions that a document defines: what a call means, and what is refused.

use std::collections::BTreeMap;

use trawl_plan::{Diagnostic, Plan, ScanDocument, compile_scan};

use crate::schema;

fn document(defs: &[(&str, &str)], condition: &str) -> ScanDocument {
    let own = |(name, text): &(&str, &str)| ((*name).to_owned(), (*text).to_owned());
    ScanDocument { defs: defs.iter().map(own).collect(), condition: condition.to_owned(), ..ScanDocument::default() }
}

fn compiled(document: &ScanDocument) -> Result<Plan, Vec<Diagnostic>> {
    compile_scan(document, &schema())
}

/// Whether two conditions are the same plan.
fn same(defs: &[(&str, &str)], condition: &str, plain: &str) {
    let of = |defs, condition| {
        compiled(&document(defs, condition)).unwrap_or_else(|d| panic!("{condition}: {}", d[0])).fingerprint()
    };
    assert_eq!(of(defs, condition), of(&[], plain), "{condition}");
}

fn refused(defs: &[(&str, &str)], condition: &str) -> Diagnostic {
    let mut all = compiled(&document(defs, condition)).expect_err("a mistake was expected");
    assert_eq!(all.len(), 1, "{condition}: {all:?}");
    all.remove(0)
}

#[test]
fn a_call_is_its_text_with_the_arguments_in_place() {
    let rs = [("rs(n, of)", "roc(n) - ref(of, roc(n))")];
    same(&rs, "rs(20, 'SPY') > 1", "roc(20) - ref('SPY', roc(20)) > 1");
    same(&rs, "rs(of='SPY', n=2 * 10) > 1", "roc(20) - ref('SPY', roc(20)) > 1");
    same(&[("f()", "close")], "f() > f()[1]", "close > close[1]");
    // Names of labels, truths and strings are legal where only those are.
    same(&[("top(x, g)", "xs_rank(x, by=g) == 1")], "top(close, sector)", "xs_rank(close, by=sector) == 1");
    same(&[("b(k)", "bbands(20, matype=k).upper")], "close > b('ema')", "close > bbands(20, matype='ema').upper");
    // A parameter hides a column, inside its function alone.
    same(&[("f(close)", "sma(close, 5)")], "f(high) > close", "sma(high, 5) > close");
}

#[test]
fn functions_call_one_another_and_stand_in_their_own_arguments() {
    let defs = [("twice(x)", "x + x"), ("four(x)", "twice(twice(x))"), ("last(x)", "x[1]")];
    same(&defs, "four(close) > 1", "(close + close) + (close + close) > 1");
    same(&defs, "last(last(close)) > twice(last(open))", "close[1][1] > open[1] + open[1]");
}

#[test]
fn a_text_means_the_bars_of_its_call_and_an_argument_those_of_its_parameter() {
    same(&[("up(x)", "x > x[1]")], "tf('1w', up(close))", "tf('1w', close > close[1])");
    same(&[("beats(x)", "x > ref('SPY', x)")], "beats(roc(5))", "roc(5) > ref('SPY', roc(5))");
    // Lets and functions use one another.
    let mut both = document(&[("f(x)", "x > slow")], "f(close)");
    both.lets = BTreeMap::from([("slow".to_owned(), "g".to_owned()), ("g".to_owned(), "sma(50)".to_owned())]);
    let plain = compiled(&document(&[], "close > sma(50)")).expect("legal");
    assert_eq!(compiled(&both).expect("legal").fingerprint(), plain.fingerprint());
}

#[test]
fn deep_and_repeated_calls_end() {
    // Each argument stands twice in its function: 2^40 times if it were copied.
    let call = (0..40).fold("close".to_owned(), |inner, _| format!("d({inner})"));
    let plan = compiled(&document(&[("d(x)", "x + x")], &format!("{call} > 1"))).expect("legal");
    assert!(plan.nodes().len() < 60);
    // Each function calls the next one twice.
    let names: Vec<String> = (0..30).map(|i| format!("f{i}(x)")).collect();
    let texts: Vec<String> = (0..30).map(|i| format!("f{}(x) + f{}(x)", i + 1, i + 1)).collect();
    let mut defs: Vec<(&str, &str)> = names.iter().map(String::as_str).zip(texts.iter().map(String::as_str)).collect();
    defs.push(("f30(x)", "x"));
    let limit = refused(&defs, "f0(close) > 1");
    assert!(limit.message.contains("calls its own functions more than"), "{limit}");
}

#[test]
fn mistakes_name_the_function_and_are_reported_once() {
    let inside = refused(&[("f(x)", "smaa(x, 5)")], "f(close) > f(open)");
    assert_eq!((inside.clause.as_str(), &inside.text[inside.span.clone()]), ("def.f(x)", "smaa"));
    let argument = refused(&[("f(x)", "sma(x, 5)")], "f(clsoe + 1) > 1");
    assert_eq!((argument.clause.as_str(), &argument.text[argument.span.clone()]), ("where", "clsoe"));
    let cases = [
        ("f(1, 2) > 1", "f has too many arguments"),
        ("f() > 1", "f needs 'x'"),
        ("f(y=1) > 1", "f has no argument 'y'"),
        ("f(1, x=2) > 1", "'x' is given twice"),
        ("f > 1", "'f' is a function"),
        ("ff(1) > 1", "unknown function 'ff'"),
    ];
    for (condition, message) in cases {
        let found = refused(&[("f(x)", "x")], condition);
        assert!(found.message.contains(message), "{condition}: {found}");
        assert!(found.help.is_some(), "{condition}: {found}");
    }
}

#[test]
fn declarations_are_checked() {
    let cases: [(&[(&str, &str)], &str); 8] = [
        (&[("f", "close")], "'f' declares no function"),
        (&[("f(x", "close")], "declares no function"),
        (&[("f(1)", "close")], "a parameter is a name"),
        (&[("f(x=1)", "close")], "a parameter is a name"),
        (&[("f(x, x)", "close")], "two parameters 'x'"),
        (&[("sma(x)", "close")], "'sma' is a function of the language"),
        (&[("f(a)", "a"), ("f(b, c)", "b")], "'f' is defined twice"),
        (&[("f(a)", "a +")], "the text ends too early"),
    ];
    for (defs, message) in cases {
        let found = refused(defs, "close > 1");
        assert!(found.message.contains(message), "{defs:?}: {found}");
    }
    for (defs, condition) in
        [(vec![("f(x)", "f(x)")], "f(close) > 1"), (vec![("f(x)", "g(x)"), ("g(x)", "f(x)")], "g(open) > 1")]
    {
        assert!(refused(&defs, condition).message.contains("is defined by itself"), "{defs:?}");
    }
    let included = ScanDocument { include: vec!["lib.toml".to_owned()], ..document(&[], "close > 1") };
    assert!(compiled(&included).expect_err("refused")[0].message.contains("'include' is for the client"));
}
