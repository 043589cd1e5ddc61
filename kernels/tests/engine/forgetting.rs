//! A program whose means have forgotten gives the same bits over the last bars as over all, whatever the bars before were.

use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;
use trawl_kernels::{Forgetting, NoCancel, Precision, SymbolInput, evaluate_last};
use trawl_plan::catalogue::{functions, sample};
use trawl_plan::{Program, compile_expressions};

use crate::properties::{number, schema};

/// Bars of a history: more than most programs of the catalogue need.
const BARS: usize = 6_000;
/// Prices are of at most this size, also those of histories that are not given.
const LARGEST: f64 = 1e6;

/// Open, high, low, close and volume, with missing cells; other bars for each seed.
fn bars(seed: u64, count: usize, level: f64) -> Vec<Vec<f64>> {
    let mut state = seed;
    let mut next = |of: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % of
    };
    let mut columns = vec![Vec::new(); 5];
    let mut close = level;
    for _ in 0..count {
        let open = close;
        close = (close * (1.0 + (next(401) as f64 - 200.0) * 1e-4)).clamp(0.01, LARGEST / 2.0);
        let high = open.max(close) * (1.0 + next(50) as f64 * 1e-4);
        let low = open.min(close) * (1.0 - next(50) as f64 * 1e-4);
        for (column, value) in columns.iter_mut().zip([open, high, low, close, next(100_000) as f64]) {
            column.push(if next(500) == 0 { f64::NAN } else { value });
        }
    }
    columns
}

fn input<'a>(program: &Program, columns: &'a [Vec<f64>], begin: usize) -> SymbolInput<'a> {
    let names = ["open", "high", "low", "close", "volume"];
    let column = |input: &trawl_plan::Input| match input {
        trawl_plan::Input::Column(name) => {
            let at = names.iter().position(|known| known == name).expect("a column");
            &columns[at][begin..]
        }
        other => panic!("{other:?}"),
    };
    SymbolInput { columns: program.inputs.iter().map(column).collect(), visible: columns[0].len() - begin }
}

/// Whether the program was shown to forget what lies before about half of its bars; asserts that it has.
fn compare(expression: &str, seed: u64) -> Option<bool> {
    let plan = compile_expressions(&[format!("{expression} as a")], "test", &schema()).expect(expression);
    let program = plan.program();
    let forgetting = Forgetting::of(program, Precision::F64)?;
    let end = bars(seed, BARS, 100.0);
    let begin = forgetting.begin(BARS / 2 + (seed % 400) as usize, BARS);
    if begin >= BARS {
        return Some(false);
    }
    let largest = vec![vec![LARGEST; program.inputs.len()]];
    let short = [input(program, &end, begin)];
    let forgets = forgetting.forgets(&short, &largest, &NoCancel).expect("not cancelled");
    if forgets != [true] {
        return Some(false);
    }
    let found: Vec<u64> = last(program, &short);
    // Other beginnings, of another level, and missing altogether.
    let others =
        [(seed, 100.0), (seed + 1, 0.02), (seed + 2, LARGEST / 4.0)].map(|(seed, level)| bars(seed, BARS, level));
    for before in others.into_iter().chain([vec![vec![f64::NAN; BARS]; 5]]) {
        let join = |(before, end): (&Vec<f64>, &Vec<f64>)| [&before[..begin], &end[begin..]].concat();
        let whole: Vec<Vec<f64>> = before.iter().zip(&end).map(join).collect();
        assert_eq!(last(program, &[input(program, &whole, 0)]), found, "{expression}, {seed}");
    }
    Some(true)
}

fn last(program: &Program, symbols: &[SymbolInput<'_>]) -> Vec<u64> {
    let values = evaluate_last(program, symbols, &NoCancel).expect("not cancelled").remove(0);
    values.iter().map(|value| if value.is_nan() { u64::MAX } else { value.to_bits() }).collect()
}

#[test]
fn functions_that_forget_have_the_bits_of_any_whole_history() {
    let (mut forgot, mut remembers, mut not_shown) = (Vec::new(), 0, Vec::new());
    for function in functions() {
        for (at, call) in sample(function).into_iter().enumerate() {
            let call = call.split(" as ").next().unwrap_or_default().to_owned();
            match compare(&call, at as u64 * 7 + call.len() as u64) {
                Some(true) => forgot.push(call),
                Some(false) => not_shown.push(call),
                None => remembers += 1,
            }
        }
    }
    assert!(forgot.len() >= 20, "{forgot:?} forgot, {not_shown:?} did not, {remembers} need nothing or remember");
}

#[test]
fn random_programs_that_forget_have_the_bits_of_any_whole_history() {
    const PROGRAMS: u64 = 600;
    let mut runner = TestRunner::deterministic();
    let drawn = (number(2), number(1), 2u32..40, 2u32..40);
    let forgot = (0..PROGRAMS).filter(|seed| {
        let (a, b, p, q) = drawn.new_tree(&mut runner).expect("a program").current();
        compare(&format!("ema(real={a}, timeperiod={p}) - rsi(real={b}, timeperiod={q})"), *seed) == Some(true)
    });
    let forgot = forgot.count();
    assert!(forgot > 30, "{forgot} of {PROGRAMS} forgot");
}

#[test]
fn zeros_of_either_sign_are_chosen_as_in_whole_histories() {
    let text =
        ["ema(close, 9) as e", "highest(round(close - close[1]), 3) as h", "lowest(round(close - close[1]), 7) as l"];
    let plan = compile_expressions(&text.map(str::to_owned), "test", &schema()).expect("legal");
    let program = plan.program();
    let forgetting = Forgetting::of(program, Precision::F64).expect("a mean");
    let mut columns = bars(5, BARS, 100.0);
    // Steps of less than a half, up and down.
    columns[3] = columns[3]
        .iter()
        .enumerate()
        .map(|(at, c)| if c.is_nan() { *c } else { 100.0 + ((at * 7) % 5) as f64 * 0.1 })
        .collect();
    for visible in BARS - 40..BARS {
        let columns: Vec<Vec<f64>> = columns.iter().map(|column| column[..visible].to_vec()).collect();
        let begin = forgetting.begin(BARS / 2, visible);
        assert_eq!(begin % 21, 0);
        let (short, whole) =
            (last(program, &[input(program, &columns, begin)]), last(program, &[input(program, &columns, 0)]));
        assert_eq!(short[1..], whole[1..], "{visible}");
    }
}

#[test]
fn what_was_larger_beside_an_infinite_divisor_is_not_forgotten_early() {
    let plan =
        compile_expressions(&["ema(-close % log10(volume), 20) as a".to_owned()], "test", &schema()).expect("legal");
    let program = plan.program();
    let Some(forgetting) = Forgetting::of(program, Precision::F64) else { return };
    let end = bars(9, BARS, 100.0);
    let begin = forgetting.begin(BARS / 2, BARS);
    let largest: Vec<Vec<f64>> = vec![vec![1e140; program.inputs.len()]];
    let shown = forgetting.forgets(&[input(program, &end, begin)], &largest, &NoCancel).expect("not cancelled");
    assert_eq!(shown, [false], "1e140 takes more bars than there are");
}

#[test]
fn programs_that_remember_are_refused() {
    let of = |text: &str, precision| {
        let plan = compile_expressions(&[format!("{text} as a")], "test", &schema()).expect(text);
        Forgetting::of(plan.program(), precision)
    };
    assert!(of("ema(close, 20)", Precision::F64).is_some());
    assert!(of("ema(close, 20)", Precision::F32).is_none(), "its numbers are not followed");
    for text in [
        "sma(close, 20)",
        "ema(close, 2000)",
        "obv()",
        "cumsum(close)",
        "kama(close, 10) + ema(close, 3)",
        "since(close > open) + ema(close, 3)",
    ] {
        assert!(of(text, Precision::F64).is_none(), "{text}");
    }
}
