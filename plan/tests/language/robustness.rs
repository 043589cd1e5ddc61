//! No text can make the planner panic, exhaust the stack, or take more than linear time.

use proptest::prelude::*;
use trawl_plan::{ScanDocument, compile_scan};

use crate::soup::{check, document, long_texts};
use crate::{mistake, plan, scan, schema};

/// Stack of the threads that must suffice whatever the text is: a quarter of what Rust gives a thread.
const STACK_BYTES: usize = 512 * 1024;
/// Random documents unless set otherwise.
const DOCUMENTS: u64 = 30_000;

/// Runs `f` on a thread with little stack: an overflow ends the test run, and a panic fails the test.
fn on_a_small_stack(f: impl FnOnce() + Send + 'static) {
    let thread = std::thread::Builder::new().stack_size(STACK_BYTES).spawn(f).expect("a thread");
    thread.join().expect("no panic");
}

#[test]
fn mutated_scans_and_soups_of_words_give_plans_or_mistakes_inside_their_text() {
    on_a_small_stack(|| {
        let mut good = 0;
        for seed in 0..DOCUMENTS {
            let document = document(seed);
            let result = std::panic::catch_unwind(|| check(&document, &schema()));
            good += u64::from(result.unwrap_or_else(|_| panic!("seed {seed}: {document:?}")).is_ok());
        }
        // Both ends of the planner are reached.
        assert!(good > DOCUMENTS / 1000, "only {good} documents compile");
    });
}

#[test]
fn the_longest_and_deepest_texts_end_without_a_panic_on_a_small_stack() {
    on_a_small_stack(|| {
        for text in long_texts(trawl_plan::limits::CLAUSE_BYTES_MAX) {
            let everywhere = ScanDocument {
                condition: text.clone(),
                universe: Some(text.clone()),
                rank: Some(text.clone()),
                select: vec![text.clone()],
                lets: [("x".to_owned(), text)].into(),
                ..ScanDocument::default()
            };
            let _ = check(&everywhere, &schema());
            for depth in [100, 200, 250, 255, 256, 257] {
                let nested = format!("{}close{} > 1", "abs(-".repeat(depth / 2), ")".repeat(depth / 2));
                let _ = check(&ScanDocument { condition: nested, ..ScanDocument::default() }, &schema());
            }
        }
    });
}

/// Four times the text may take ten times as long, and whatever takes less than a second is fine: quadratic work on
/// 64 KiB would take minutes.
#[test]
fn time_grows_with_the_length_of_the_text() {
    let fastest = |text: &String| {
        let once = || {
            let begin = std::time::Instant::now();
            let _ = scan(text);
            begin.elapsed().as_secs_f64()
        };
        (0..3).map(|_| once()).fold(f64::INFINITY, f64::min)
    };
    let most = trawl_plan::limits::CLAUSE_BYTES_MAX;
    for (short, long) in long_texts(most / 4).iter().zip(&long_texts(most)) {
        let (quarter, whole) = (fastest(short), fastest(long));
        let start: String = long.chars().take(20).collect();
        assert!(whole <= 10.0 * quarter + 1.0, "{start}...: {quarter} s for a quarter, {whole} s for all");
    }
}

#[test]
fn lets_that_use_one_another_twice_or_in_a_circle_end() {
    on_a_small_stack(|| {
        for link in ["{} + {}", "maximum({}, {})", "sma({}, 2) - {}[1]", "iff({} > 1, {}, 0)"] {
            for count in [50, 256, 257] {
                let lets = (0..count).map(|i| {
                    let before = format!("v{:03}", if i == 0 { count - 1 } else { i - 1 });
                    let text = if i == 0 { "close".to_owned() } else { link.replace("{}", &before) };
                    (format!("v{i:03}"), text)
                });
                let condition = format!("v{:03} > 1", count - 1);
                let straight = ScanDocument { condition, lets: lets.collect(), ..ScanDocument::default() };
                let result = check(&straight, &schema());
                assert!(count != 50 || result.is_ok() || link.starts_with("iff"), "{link}: {result:?}");
                let mut circle = straight;
                circle.lets.insert("v000".to_owned(), format!("v{:03} + 1", count - 1));
                assert!(check(&circle, &schema()).is_err());
            }
        }
    });
}

#[test]
fn deep_nesting_is_refused_with_its_limit() {
    for text in [
        format!("{}close > 1{}", "(".repeat(100_000), ")".repeat(100_000)),
        format!("{}close > 1", "not ".repeat(10_000)),
        format!("{}close > 1", "-".repeat(60_000)),
        format!("abs({}close", "abs(".repeat(10_000)),
        format!("close{} > 1", "[0]".repeat(20_000)),
        format!("close{} > 1", " - 1".repeat(10_000)),
        format!("1{}", " < close".repeat(7_000)),
    ] {
        let mistakes = scan(&text).expect_err("too deep or too long");
        let message = &mistakes[0].message;
        assert!(message.contains("nested more than") || message.contains("bytes"), "{message}");
    }
}

#[test]
fn a_long_run_of_one_operator_is_not_nested() {
    on_a_small_stack(|| {
        for (run, part) in [("close > 1", " or close > 1"), ("close > 1", " and close > 1")] {
            plan(&format!("{run}{}", part.repeat(300)));
            plan(&format!("{run}{}", part.repeat(4_000)));
        }
        plan(&format!("close{} > 1", " + open".repeat(4_000)));
        plan(&format!("close{} > 1", "*2".repeat(4_000)));
        // What is too much is refused for what it is: the steps, or the text.
        let distinct: String = (0..5_000).map(|i| format!(" or high>{i}")).collect();
        assert!(mistake(&format!("high < 0{distinct}")).message.contains("more than 4096 steps"));
        assert!(mistake(&format!("close > 1{}", " or close > 1".repeat(10_000))).message.contains("bytes"));
        let short = ScanDocument {
            condition: format!("a{}", " or a".repeat(10_000)),
            lets: [("a".to_owned(), "close > sma(close, 9)".to_owned())].into(),
            ..ScanDocument::default()
        };
        let refused = check(&short, &schema()).map(|_| ()).expect_err("10,000 steps");
        assert!(refused[0].message.contains("more than 4096 steps"), "{}", refused[0]);
        // In parentheses on the left it is the same run, on the right another one.
        assert_eq!(plan("(close + open) + high > 1").fingerprint(), plan("close + open + high > 1").fingerprint());
        assert_ne!(plan("close + (open + high) > 1").fingerprint(), plan("close + open + high > 1").fingerprint());
    });
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
