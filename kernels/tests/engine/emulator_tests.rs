//! The emulator detects the errors it is meant to detect.

use std::collections::BTreeMap;

use trawl_kernels::cuda::{Limits, Market, Sequence, Wanted};
use trawl_kernels::{NoCancel, SymbolInput, evaluate_all};
use trawl_plan::compile_expressions;

use crate::emulator::{Emulator, Order};
use crate::properties::schema;

/// A plan of several warps that pass series to one another.
const PLAN: &[&str] = &["rsi(close,14) + adx(14) + mama(close).mama + wma(bbands(close,20,2).upper,9)", "sar()"];

struct Case {
    plan: Sequence,
    market: Market,
    want: Vec<f64>,
}

/// The plan over one symbol of 100 bars, and its values on the CPU.
fn case() -> Case {
    let items: Vec<String> = PLAN.iter().enumerate().map(|(i, item)| format!("{item} as o{i}")).collect();
    let compiled = compile_expressions(&items, "test", &schema()).expect("legal");
    let program = compiled.program();
    let walk = |c: usize| (0..100).map(|t| 50.0 + ((t * t * 31 + c * 7) % 701) as f64 / 100.0).collect::<Vec<f64>>();
    let columns: Vec<Vec<f64>> = (0..program.inputs.len()).map(walk).collect();
    let symbol = SymbolInput { columns: columns.iter().map(Vec::as_slice).collect(), visible: 100 };
    let want = evaluate_all(program, &symbol, &NoCancel).expect("not cancelled").concat();
    let market = Market::new(columns.len(), std::slice::from_ref(&symbol));
    Case { plan: Sequence::fused(program).expect("every primitive"), market, want }
}

/// The plan's values from a kernel whose text was changed, or the error found by the emulator.
fn with_text(case: &Case, order: Order, change: impl Fn(&str) -> String) -> Result<Vec<f64>, String> {
    let change = |(name, text): (String, String)| {
        let changed = change(&text);
        (name, changed)
    };
    let kernels: BTreeMap<String, String> = case.plan.kernels().into_iter().map(change).collect();
    let mut device = Emulator::new(&kernels);
    device.order = order;
    let out = case.plan.run(&device, &case.market, Wanted::All, Limits::default())?;
    let symbol =
        |series: &Vec<f64>| (0..100).map(|t| series[case.market.place(Wanted::All, 0, 0, t)]).collect::<Vec<_>>();
    Ok(out.iter().flat_map(symbol).collect())
}

fn equal(a: &[f64], b: &[f64]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.to_bits() == b.to_bits())
}

/// `text` with what one line is in all places replaced; the line must be there.
fn replaced(text: &str, from: &str, to: &str) -> String {
    assert!(text.contains(from), "'{from}' is not in the text");
    text.replace(from, to)
}

#[test]
fn a_kernel_as_it_is_written_agrees_in_every_order() {
    let case = case();
    assert!(case.plan.calls[0].lowered.kernel.warps > 2, "a plan of one warp tests no barrier");
    for order in [Order::Forward, Order::Reverse, Order::Random] {
        let got = with_text(&case, order, str::to_owned).expect("no problem");
        assert!(equal(&got, &case.want), "{order:?}");
    }
}

#[test]
fn another_operation_is_noticed() {
    let case = case();
    let got = with_text(&case, Order::Forward, |text| replaced(text, "step_add(", "step_subtract(")).expect("it runs");
    assert!(!equal(&got, &case.want));
}

#[test]
fn copies_that_nobody_waits_for_are_noticed() {
    let case = case();
    let got = with_text(&case, Order::Forward, |text| replaced(text, "copies_wait<0>();", ""));
    assert!(got.is_err_and(|e| e.contains("copied to")));
    // Of nothing that is read: the copies of the last tile.
    let last = body(&case, "if (self == 0) { copy_across(shared, a.column[0]); copies_end(); }");
    assert!(last.is_err_and(|e| e.contains("copies under way")));
    // Waiting after the barrier instead of before it: other threads' copies have not arrived yet.
    let late = |text: &str| {
        let barrier = "        copies_wait<0>();\n        block_barrier(b.threads);\n";
        replaced(text, barrier, "        block_barrier(b.threads);\n        copies_wait<0>();\n")
    };
    for order in [Order::Forward, Order::Reverse, Order::Random] {
        assert!(with_text(&case, order, late).is_err_and(|e| e.contains("a race")), "{order:?}");
    }
}

#[test]
fn one_warp_brings_the_columns() {
    for text in case().plan.kernels().values() {
        assert_eq!(text.matches("_fetch(a, b, c, step + 1);").count(), 1, "{text}");
    }
}

#[test]
fn values_of_bars_that_are_not_wanted_are_noticed() {
    let case = case();
    let later = with_text(&case, Order::Forward, |text| replaced(text, "b.wants(t)", "b.wants(t + 1)"));
    assert!(!equal(&later.expect("it runs"), &case.want));
}

#[test]
fn barriers_that_are_missing_are_noticed() {
    let case = case();
    let none = |text: &str| replaced(text, "        block_barrier(b.threads);\n    }\n}", "    }\n}");
    for order in [Order::Forward, Order::Reverse, Order::Random] {
        assert!(with_text(&case, order, none).is_err_and(|e| e.contains("a race")), "{order:?}");
    }
    let one = |text: &str| text.replacen("        block_barrier(b.threads);\n    }\n}", "    }\n}", 1);
    assert!(with_text(&case, Order::Forward, one).is_err_and(|e| e.contains("barrier")));
}

#[test]
fn shared_memory_that_nobody_wrote_is_poisoned() {
    let case = case();
    let got = with_text(&case, Order::Forward, |text| replaced(text, "b.fetch(", "if (tile != 2) b.fetch("));
    assert!(!equal(&got.expect("it runs"), &case.want));
}

#[test]
fn a_kernel_that_was_not_compiled_is_an_error() {
    let case = case();
    let device = Emulator::new(&BTreeMap::new());
    assert!(case.plan.run(&device, &case.market, Wanted::All, Limits::default()).is_err());
}

/// A text whose kernel runs `body` once a thread, in a block of 64 threads with the array `shared` of 64 numbers.
fn body(case: &Case, body: &str) -> Result<Vec<f64>, String> {
    let change = |text: &str| {
        let begin = text.find("(const __grid_constant__").expect("a kernel");
        let begin = begin + text[begin..].find("{\n").expect("its body") + 2;
        let end = begin + text[begin..].find("\n}\n").expect("its end");
        let given = "    double* shared = shared_memory();\n    const int self = (int)threadIdx.x;\n    ";
        format!("{}{given}{body}{}", &text[..begin], &text[end..])
    };
    with_text(case, Order::Forward, change)
}

#[test]
fn every_race_in_shared_memory_is_found_in_every_order() {
    let case = case();
    let threads = case.plan.calls[0].lowered.kernel.warps * 32;
    let barrier = format!("block_barrier({threads});");
    // Each thread has a cell of its own, and the neighbour's behind a barrier.
    let legal = format!(
        "shared[self] = self; {barrier} const double x = shared[(self + 1) % {threads}]; {barrier} shared[self] = x;"
    );
    body(&case, &legal).expect("no race");
    for (raced, why) in [
        // The neighbour's before the barrier: in this order it was written already, or is written later.
        (format!("shared[self] = self; if (self > 0 && shared[self - 1] < 0) shared[self] = 1; {barrier}"), "is written by thread"),
        (format!("shared[self] = self; if (self + 1 < {threads} && shared[self + 1] < 0) shared[self] = 1; {barrier}"), "is read by thread"),
        (format!("shared[0] = self; {barrier}"), "is written by thread 0 and written by thread 1"),
        // A barrier is missing behind the reads.
        (format!("shared[self] = self; {barrier} const double x = shared[(self + 1) % {threads}]; shared[self] = x;"), "is read by"),
        // What is copied is read before it is waited for, or by another thread before the barrier.
        ("if (self == 0) { copy_across(shared, a.column[0]); copies_end(); shared[5] = shared[0]; copies_wait<0>(); }".to_owned(), "copied to"),
        ("if (self == 0) { copy_across(shared, a.column[0]); copies_end(); copies_wait<0>(); } else shared[self + 2] = shared[1];".to_owned(), "is written by thread 0 and read by thread 1"),
    ] {
        let outcome = body(&case, &raced);
        assert!(outcome.as_ref().is_err_and(|e| e.contains("a race") && e.contains(why)), "{raced}: {outcome:?}");
    }
}

#[test]
fn accesses_that_are_not_aligned_and_numbers_that_no_integer_holds_are_found() {
    let case = case();
    let outcome = body(&case, "a.run.out[0] = *(const double*)((const char*)a.run.out + 4);");
    assert!(outcome.as_ref().is_err_and(|e| e.contains("8 bytes that is not aligned")), "{outcome:?}");
    // A structure needs the alignment of its numbers.
    let pairs = |offset: usize| {
        let pair = "struct Pair { double a, b; };";
        body(&case, &format!("{pair} Pair* at = (Pair*)((char*)a.run.out + {offset}); if (self == 0) at[1] = at[0];"))
    };
    assert!(pairs(8).is_ok(), "{:?}", pairs(8));
    assert!(pairs(4).is_err_and(|e| e.contains("16 bytes that is not aligned")));
    for (number, holds) in [("2147483647.0", true), ("2147483648.0", false), ("-3e9", false), ("na()", false)] {
        let outcome = body(
            &case,
            &format!("volatile double x = {number}; volatile int i = (int)x; if (i == 7) a.run.out[0] = 1;"),
        );
        assert_eq!(outcome.is_ok(), holds, "{number}: {outcome:?}");
        assert!(holds || outcome.is_err_and(|e| e.contains("cannot hold")), "{number}");
    }
}

#[test]
fn local_variables_that_nobody_wrote_are_no_zeroes() {
    let case = case();
    let of = |value: &str| {
        body(
            &case,
            &format!(
                "double x{value}; volatile double* at = &x; if (self == 0) a.run.out[0] = *at == 0.0 ? 1.0 : 2.0;"
            ),
        )
    };
    let zero = of(" = 0").expect("it runs");
    let none = of("").expect("it runs");
    assert_eq!((zero[0], none[0]), (1.0, 2.0));
}
