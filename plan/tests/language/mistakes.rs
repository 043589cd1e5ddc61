//! Every kind of mistake: place, expectation, suggestion.

use trawl_plan::{ScanDocument, compile_scan};

use crate::{mistake, plan, scan, schema};

/// The message, and the text it points at.
fn reported(condition: &str) -> (String, String, String) {
    let d = mistake(condition);
    let at = d.text[d.span.clone()].to_owned();
    (d.message, at, d.help.unwrap_or_default())
}

#[test]
fn a_misspelt_function_is_pointed_at_with_the_nearest_name() {
    let (message, at, help) = reported("within(croses_above(close, 5), 3)");
    assert_eq!(message, "unknown function 'croses_above'");
    assert_eq!(at, "croses_above");
    assert_eq!(help, "did you mean 'crosses_above'?");
    assert_eq!(reported("SMA(close, 5) > 1").2, "did you mean 'sma'?");
}

#[test]
fn a_far_name_is_no_suggestion_and_words_of_other_languages_have_ours() {
    assert_eq!(reported("quux() > 1").2, "'trawl indicators' lists them");
    assert_eq!(reported("hour() > 1").2, "write time_of_day: minutes since midnight, or time_of_day >= '10:30'");
    assert_eq!(reported("hour > 1").2, "write time_of_day: minutes since midnight, or time_of_day >= '10:30'");
    assert_eq!(reported("mean(close, 5) > 1").2, "write sma(x, n) for a mean over time, (a + b) / 2 for one of values");
    assert_eq!(reported("crossover(close, open)").2, "write crosses_above(a, b)");
    assert_eq!(reported("change(close) > 1").2, "write x - x[1], or roc(x, n) in percent");
    assert_eq!(reported("ta.rsi(14) > 1").2, "write rsi(...), without what is before it");
    assert_eq!(reported("close.shift(1) > 1").2, "x[1] is x one bar before");
    assert_eq!(reported("ta.tr > 1").2, "write trange()");
    assert_eq!(reported("ta > 1").2, "functions have no prefix: leave 'ta.' out");
    assert!(reported("q > 1").2.starts_with("columns: "));
}

#[test]
fn only_functions_that_are_there_are_suggested_and_those_of_another_meaning_are_told_apart() {
    assert_eq!(reported("vbt.RSI.run(close, 14).rsi > 30").2, "write rsi(...), without what is before it");
    assert_eq!(reported("close.vbt.crossed_above(open)").2, "write crosses_above(a, b)");
    assert_eq!(reported("(ta.dmi(14, 14) > 1)").2, "write plus_di(n), minus_di(n) or adx(n)");
    assert_eq!(reported("sma(ta.bb(close, 20), 5) > 1").2, "write bbands(x, n, k).upper, .middle or .lower");
    assert_eq!(reported("dmi(14) > 1").2, "write plus_di(n), minus_di(n) or adx(n)");
    assert_eq!(reported("cum(volume) > 1").2, "write cumsum(x)");
    assert_eq!(reported("close.between(1, 2)").2, "write a <= x <= b");
    assert_eq!(reported("barstate.islast").2, "leave it out: an answer is about the last bar");
    assert_eq!(reported("df.close > 1").2, "write close, without what is before it");
    assert_eq!(reported("open.sma(20) > 1").2, "write sma(x, ...): the series goes between the parentheses");
    for strange in ["ta.quux(close)", "vbt.QUUX.run(close)", "close.vbt.quux()", "ta.quux > 1"] {
        let help = reported(strange).2;
        assert!(help.starts_with("there is no function 'quux': 'trawl indicators --search quux'"), "{strange}: {help}");
    }
    assert!(reported("ta.valuewhen(close > open, close, 0) > 1").2.contains("n begins at 1"));
    assert!(reported("math.max(close, open) > 1").2.starts_with("write maximum(a, b)"));
    assert!(reported("np.min(close, open) > 1").2.starts_with("write minimum(a, b)"));
    assert_eq!(reported("talib.MAX(close, 9) > 1").2, "write max(...), without what is before it");
    assert!(reported("close.cummax() > 1").2.starts_with("no function looks at all bars so far"));
    assert!(reported("close > open ? 1 : 0").2.starts_with("write iff(c, a, b)"));
    assert_eq!(reported("1 if close > open else 0").2, "write iff(c, a, b)");
}

#[test]
fn a_word_that_other_tools_have_is_answered_with_the_word_here_or_with_that_there_is_none() {
    let answers = [
        ("rolling_median(close, 5) > 3", "write median(x, n)"),
        ("ewma(close, 5) > 3", "write ema(x, n)"),
        ("true_range() > 3", "write trange()"),
        ("true_range > 3", "write trange()"),
        (
            "ta.pivothigh(5, 5) > 3",
            "write fractal(leftbars=n, rightbars=m).high: 100 on the bar that confirms a swing high",
        ),
        ("skew(close, 5) > 3", "there is no function of the skewness"),
        ("close.isnull()", "x == x is NA where x is: nz(x, value) replaces NA"),
        ("symbol not in ('A')", "'not' is in front of the condition: not x in (1, 2)"),
        ("(close > 3 and month not in (1, 2))", "'not' is in front of the condition: not x in (1, 2)"),
        ("close between 3 and 5", "write a <= x <= b"),
        ("(close between 3 and 5)", "write a <= x <= b"),
        ("close not between 3 and 5", "write not (a <= x <= b)"),
        ("close > 5 adn open > 5", "did you mean 'and'?"),
    ];
    for (theirs, ours) in answers {
        assert_eq!(reported(theirs).2, ours, "{theirs}");
    }
    for (theirs, begins) in [
        ("cov(close, open, 5) > 3", "write correl(a, b, n)*stddev(a, n)*stddev(b, n)"),
        ("mad(close, 5) > 3", "write avgdev(x, n)"),
        ("bar_index > 3", "no word counts the bars"),
        ("bar_index() > 3", "no word counts the bars"),
        ("dropna(close) > 3", "nothing is left out"),
        ("close is true", "compare with '=='"),
    ] {
        let help = reported(theirs).2;
        assert!(help.starts_with(begins), "{theirs}: {help}");
    }
    // What the hints write is legal.
    for ours in ["fractal(leftbars=2, rightbars=3).high > 3", "not month in (1, 2)", "not (3 <= close <= 5)"] {
        plan(ours);
    }
}

#[test]
fn the_as_of_is_no_clause_of_a_document() {
    let mistake = ScanDocument::from_toml("as_of = '2012-06-01'\nwhere = 'close > 1'\n").unwrap_err();
    assert!(mistake.message.contains("unknown field `as_of`") && mistake.help.unwrap().contains("--as-of"));
}

/// The rows of the table in docs/language/words.md.
fn rows_of_words() -> Vec<Vec<String>> {
    let page = include_str!("../../../docs/language/words.md");
    let cell = |cell: &str| cell.trim().trim_matches('`').to_owned();
    let rows = page.lines().filter(|line| line.starts_with('|')).skip(2);
    rows.map(|row| row.trim_matches('|').split(" |").map(cell).collect()).collect()
}

/// What a row's last column calls, or its word; that of `close - close[1]` is the offset.
fn word_here(ours: &str) -> &str {
    let end = ours.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(ours.len());
    if ours.starts_with("close") { "x[1]" } else { &ours[..end] }
}

#[test]
fn every_word_of_pine_and_vectorbt_on_the_page_is_answered_with_the_word_here() {
    let rows = rows_of_words();
    assert!(rows.len() > 25, "{rows:?}");
    for row in rows {
        let [pine, _, vectorbt, ours] = &row[..] else { panic!("{row:?}") };
        for theirs in [pine, vectorbt].into_iter().filter(|theirs| !theirs.is_empty() && *theirs != ours) {
            // Quotes have a message of their own, which comes first.
            let theirs = theirs.replace('"', "'").replace("a.vbt", "close.vbt").replace("x.vbt", "close.vbt");
            let help = reported(&theirs).2;
            assert!(help.contains(word_here(ours)), "{theirs}: {help}, not {ours}");
        }
    }
}

#[test]
fn extremes_are_of_the_close_by_default() {
    assert_eq!(plan("close > highest(20)").fingerprint(), plan("close > highest(close, 20)").fingerprint());
    assert_eq!(
        plan("zscore(20) > lowest(n=5)").fingerprint(),
        plan("zscore(close, 20) > lowest(close, 5)").fingerprint()
    );
}

#[test]
fn a_misspelt_column_is_pointed_at_with_the_nearest_name() {
    let (message, at, help) = reported("clsoe > 5");
    assert_eq!((message.as_str(), at.as_str()), ("unknown name 'clsoe'", "clsoe"));
    assert_eq!(help, "did you mean 'close'?");
    assert!(reported("zzz > 5").2.contains("open, high, low, close, volume"));
}

#[test]
fn types_are_checked_where_they_meet() {
    assert!(reported("close").0.contains("'where' must be a condition"));
    assert!(reported("close and open > 1").0.contains("each side of 'and'"));
    assert!(reported("(close > 1) + 1 > 0").0.contains("each side of '+'"));
    assert!(reported("not close").0.contains("'not'"));
    assert!(reported("sma(close > 1, 5) > 0").0.contains("'real' must be a number"));
    assert!(reported("within(close, 3)").0.contains("'c' must be a condition"));
    assert!(reported("close == 'SPY'").0.contains("no series"));
}

#[test]
fn illegal_arguments_are_refused_with_the_legal_range() {
    let d = mistake("rsi(close, 1) > 30");
    assert_eq!(d.message, "1 is not legal for 'timeperiod' of rsi");
    assert_eq!(d.label, "expected a whole number from 2 to 100000");
    assert_eq!(&d.text[d.span.clone()], "1");
    assert!(mistake("sma(close, 2.5) > 1").label.contains("whole number"));
    assert!(mistake("sma(close, 100001) > 1").label.contains("100000"));
    assert!(mistake("sma(close, -3) > 1").message.contains("-3 is not legal"));
    assert!(mistake("sma(close, 1/0) > 1").message.contains("NA is not legal"));
    assert!(mistake("bbands(matype='xyz').upper > 1").message.contains("'xyz' is no moving average"));
}

#[test]
fn arguments_that_do_not_fit_are_reported_with_the_signature() {
    assert!(reported("rsi(close, 14, 15) > 1").0.contains("too many"));
    assert!(reported("rsi(close, open) > 1").0.contains("takes 1 series"));
    assert!(reported("atr(14, close) > 1").0.contains("a series comes after a parameter"));
    assert!(reported("rsi(period=5) > 1").0.contains("no argument 'period'"));
    assert!(reported("rsi(14, timeperiod=5) > 1").0.contains("given twice"));
    assert!(reported("within(close > 1)").0.contains("needs 'n'"));
    assert!(reported("crosses_above(close)").0.contains("needs the series 'b'"));
    assert!(reported("rsi(period=5) > 1").0.ends_with("did you mean 'timeperiod'?"));
    assert!(reported("rsi(period=5) > 1").2.contains("rsi(real=close, timeperiod=14)"));
}

#[test]
fn outputs_must_exist_and_be_chosen() {
    let (message, _, help) = reported("macd() > 0");
    assert!(message.contains("3 outputs") && help.contains(".line, .signal, .hist"), "{message}; {help}");
    let (message, at, help) = reported("macd().lin > 0");
    assert_eq!((message.as_str(), at.as_str()), ("macd has no output 'lin'", "lin"));
    assert!(help.contains("did you mean '.line'?"));
}

#[test]
fn syntax_mistakes_say_what_was_expected() {
    assert!(reported("close = 5").2.contains("'=='"));
    assert_eq!(reported("close > ").0, "the text ends too early");
    assert!(reported("(close > 5").2.contains("still open"));
    assert!(reported("close > 5 && open > 5").2.contains("'and'"));
    assert!(reported("close > \"a\"").2.contains("single quotes"));
    assert!(reported("20 < close > 30").0.contains("one direction"));
    assert!(reported("1 != close != 3").0.contains("one direction"));
    assert!(reported("close > 5 AND open > 1").0.contains("'AND' is not expected"));
    assert!(reported("'abc").0.contains("no closing quote"));
    assert!(reported("close > 5x").0.contains("not a number"));
    assert_eq!(reported("").0, "the text ends too early");
    assert!(reported("close[-1] > 5").2.contains("future"));
}

#[test]
fn a_function_without_parentheses_and_a_column_with_them_are_recognised() {
    assert!(reported("rsi > 5").2.contains("rsi(...)"));
    assert!(reported("close(5) > 5").2.contains("without parentheses"));
}

fn document() -> ScanDocument {
    ScanDocument { condition: "close > 1".to_owned(), ..ScanDocument::default() }
}

#[test]
fn lets_may_not_clash_cycle_or_hide_mistakes() {
    let with = |lets: &[(&str, &str)]| {
        let lets = lets.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        compile_scan(&ScanDocument { lets, ..document() }, &schema()).expect_err("a mistake")[0].clone()
    };
    assert!(with(&[("close", "open")]).message.contains("a column already"));
    assert!(with(&[("and", "open")]).message.contains("cannot be a name"));
    assert!(with(&[("a", "b + 1"), ("b", "a + 1")]).message.contains("defined by itself"));
    let unused = with(&[("a", "opne + 1")]);
    assert_eq!((unused.clause.as_str(), unused.message.as_str()), ("let.a", "unknown name 'opne'"));
}

#[test]
fn every_clause_reports_its_own_mistake_in_one_go() {
    let document = ScanDocument {
        universe: Some("vol > 1".to_owned()),
        condition: "clsoe > 1".to_owned(),
        rank: Some("rsi( desc".to_owned()),
        select: vec!["hgih".to_owned()],
        timeframe: Some("1h".to_owned()),
        ..ScanDocument::default()
    };
    let all = compile_scan(&document, &schema()).expect_err("mistakes");
    let clauses: Vec<&str> = all.iter().map(|d| d.clause.as_str()).collect();
    assert_eq!(clauses, ["timeframe", "universe", "where", "rank", "select[1]"]);
}

#[test]
fn columns_of_one_name_are_refused() {
    let select = vec!["close as x".to_owned(), "open as x".to_owned()];
    let all = compile_scan(&ScanDocument { select, ..document() }, &schema()).expect_err("a mistake");
    assert!(all[0].message.contains("two columns are named 'x'"));
}

#[test]
fn a_missing_column_is_named_by_the_function_that_needs_it() {
    let schema = trawl_plan::Schema::of_columns(vec!["close".to_owned()]);
    let of = |text: &str| {
        let document = ScanDocument { condition: text.to_owned(), ..ScanDocument::default() };
        compile_scan(&document, &schema).expect_err("a mistake")[0].message.clone()
    };
    assert!(of("atr() > 1").contains("atr needs the column 'high'"));
    assert!(of("hl2 > 1").contains("'hl2' needs the columns high, low"));
}

#[test]
fn toml_documents_refuse_unknown_keys_with_a_place() {
    let mistake = ScanDocument::from_toml("where = 'close > 1'\nlimt = 5\n").expect_err("a mistake");
    assert!(mistake.message.contains("unknown field `limt`"), "{}", mistake.message);
    assert_eq!(mistake.text.get(mistake.span.clone()), Some("limt"));
    assert_eq!(mistake.help.as_deref(), Some("did you mean 'limit'?"));
    let none = ScanDocument::from_toml("limit = 5").expect("flags may give the condition");
    assert!(compile_scan(&none, &schema()).is_err(), "a scan has one");
    assert!(scan("close > 1").is_ok());
}
