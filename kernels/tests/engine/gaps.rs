//! What missing bars do to the catalogue's functions: windows are NA until they are complete, cumulative functions skip
//! the bar, and a series that begins late behaves like one that begins with the first bar.

use trawl_kernels::{NoCancel, SymbolInput, evaluate_all};
use trawl_plan::catalogue::{self, There};
use trawl_plan::graph::Op;
use trawl_plan::{Input, Schema, compile_expressions};

const COLUMNS: [&str; 5] = ["open", "high", "low", "close", "volume"];

const CUMULATIVE: [&str; 8] = ["cumsum(close)", "ad()", "obv()", "vwap()", "nvi()", "pvi()", "pvt()", "wad()"];

const WINDOWS: [&str; 33] = [
    "sum(7)",
    "minmax(close, 7).min",
    "maxindex(7)",
    "minindex(7)",
    "linearreg(7)",
    "linearreg_slope(7)",
    "linearreg_angle(7)",
    "linearreg_intercept(7)",
    "tsf(7)",
    "var(7)",
    "percentile(close, 7, 30)",
    "percentrank(7)",
    "beta(high, low, timeperiod=7)",
    "correl(high, low, timeperiod=7)",
    "aroon(7).up",
    "aroonosc(7)",
    "cmou(7)",
    "er(7)",
    "vhf(7)",
    "imi(7)",
    "willr(7)",
    "vortex(7).plus",
    "fractal(3, 2).high",
    "ultosc(2, 4, 7)",
    "cmf(7)",
    "dpo(7)",
    "fosc(7)",
    "qstick(7)",
    "ao(3, 7)",
    "ac(3, 5, 4)",
    "coppock(close, 4, 3, 5)",
    "rvol(7)",
    "mom(7)",
];

const OTHERS: [&str; 14] = [
    "trix(3)",
    "tsi(close, 4, 3)",
    "cmo(4)",
    "smi(4, 2, 3, 2).signal",
    "macdfix(5).hist",
    "macdext(close, 3, 5, 2).macd",
    "adxr(4)",
    "plus_dm(4)",
    "minus_di(4)",
    "stochrsi(5, 4, 3).d",
    "kdj(5, 3, 3).j",
    "adosc(2, 5)",
    "efi(4)",
    "eri(4).bull",
];

/// Bars without ties: open, high, low, close, volume.
fn market(bars: usize) -> Vec<Vec<f64>> {
    let wave = |t: usize, a: f64, b: f64| (t as f64 * a).sin() * 3.0 + (t as f64 * b).cos() * 2.0;
    let close: Vec<f64> = (0..bars).map(|t| 50.0 + wave(t, 0.7, 1.9)).collect();
    let open: Vec<f64> = (0..bars).map(|t| 50.0 + wave(t, 1.1, 2.3)).collect();
    let high = (0..bars).map(|t| open[t].max(close[t]) + 0.5 + wave(t, 0.3, 3.1).abs()).collect();
    let low = (0..bars).map(|t| open[t].min(close[t]) - 0.5 - wave(t, 0.9, 2.7).abs()).collect();
    let volume = (0..bars).map(|t| 1000.0 + 100.0 * wave(t, 1.3, 0.4)).collect();
    vec![open, high, low, close, volume]
}

fn values(item: &str, bars: &[Vec<f64>]) -> (Vec<f64>, usize) {
    let schema = Schema::of_columns(COLUMNS.map(str::to_owned).to_vec());
    let plan = compile_expressions(&[item.to_owned()], "test", &schema).unwrap_or_else(|d| panic!("{item}: {}", d[0]));
    let column = |c: &String| bars[COLUMNS.iter().position(|n| n == c).expect("a column")].as_slice();
    let symbol = SymbolInput { columns: plan.columns.iter().map(column).collect(), visible: bars[0].len() };
    let got = evaluate_all(plan.program(), &symbol, &NoCancel).expect("not cancelled");
    (got.into_iter().next().expect("an output"), plan.look_back())
}

fn close(a: f64, b: f64) -> bool {
    (a.is_nan() && b.is_nan()) || (a - b).abs() <= 1e-11 * b.abs().max(1.0)
}

#[test]
fn windows_are_na_while_a_missing_bar_is_in_them() {
    let whole = market(60);
    let mut gap = whole.clone();
    gap.iter_mut().for_each(|column| column[30] = f64::NAN);
    for item in WINDOWS {
        let (with, look_back) = values(item, &gap);
        let (without, _) = values(item, &whole);
        for t in 0..60 {
            // A momentum reads only the ends of its window.
            let missing = if item == "mom(7)" { t == 30 || t == 37 } else { (30..=30 + look_back).contains(&t) };
            let want = if missing { f64::NAN } else { without[t] };
            assert!(close(with[t], want), "{item} at bar {t}: {} instead of {want}", with[t]);
        }
    }
}

#[test]
fn cumulative_functions_skip_a_missing_bar() {
    let whole = market(40);
    let mut gap = whole.clone();
    let mut shorter = whole;
    for (column, cut) in gap.iter_mut().zip(&mut shorter) {
        column[20] = f64::NAN;
        cut.remove(20);
    }
    for item in CUMULATIVE {
        let (with, _) = values(item, &gap);
        let (without, _) = values(item, &shorter);
        assert!(with[20].is_nan(), "{item}");
        let rest: Vec<f64> = with.into_iter().enumerate().filter(|(t, _)| *t != 20).map(|(_, x)| x).collect();
        for (t, (a, b)) in rest.iter().zip(&without).enumerate() {
            assert!(close(*a, *b), "{item} at bar {t}: {a} instead of {b}");
        }
    }
}

#[test]
fn a_series_begins_at_its_first_value() {
    let late = market(60);
    let mut padded: Vec<Vec<f64>> = vec![vec![f64::NAN; 9]; 5];
    padded.iter_mut().zip(&late).for_each(|(all, column)| all.extend(column));
    for item in CUMULATIVE.iter().chain(&WINDOWS).chain(&OTHERS) {
        let (shifted, _) = values(item, &padded);
        let (plain, _) = values(item, &late);
        assert!(shifted[..9].iter().all(|x| x.is_nan()), "{item}");
        // Bar numbers count from the first bar, not from the first value.
        let offset = if item.ends_with("index(7)") { 9.0 } else { 0.0 };
        for (t, (a, b)) in shifted[9..].iter().zip(&plain).enumerate() {
            assert!(close(*a, b + offset), "{item} at bar {t}: {a} instead of {}", b + offset);
        }
    }
}

#[test]
fn nothing_is_zero_before_it_is_known() {
    let bars = market(60);
    for item in WINDOWS.iter().chain(&OTHERS) {
        let (got, look_back) = values(item, &bars);
        assert!(got[..look_back].iter().all(|x| x.is_nan()), "{item}: {:?}", &got[..look_back]);
        assert!(got[look_back..].iter().all(|x| x.is_finite()), "{item}: {:?}", &got[look_back..]);
    }
}

#[test]
fn every_function_is_na_after_a_missing_bar_for_as_long_as_its_page_says() {
    let schema = Schema::of_columns(COLUMNS.map(str::to_owned).to_vec());
    let (mut wrong, mut checked) = (Vec::new(), 0);
    for function in catalogue::functions() {
        let facts = catalogue::facts(function);
        let items: Vec<String> = match function.outputs {
            [_] => vec![facts.example.clone()],
            several => several.iter().map(|output| format!("{}.{}", facts.example, output.name)).collect(),
        };
        let plan = compile_expressions(&items, "test", &schema).expect("an example is legal");
        let program = plan.program();
        let horizon = plan.look_back() + 2;
        // Where the value is missing, and following bars for as long as it may matter.
        let missing = 3 * plan.look_back().max(plan.bars_needed) + 70;
        let whole = market(missing + horizon + 60);
        let run = |bars: &[Vec<f64>]| {
            let column = |c: &Input| match c {
                Input::Column(name) => bars[COLUMNS.iter().position(|n| n == name).expect("a column")].clone(),
                // Nothing begins within a single period.
                _ => (0..bars[0].len()).map(|bar| f64::from(u8::from(bar == 0))).collect(),
            };
            let columns: Vec<Vec<f64>> = program.inputs.iter().map(column).collect();
            let columns = columns.iter().map(Vec::as_slice).collect();
            evaluate_all(program, &SymbolInput { columns, visible: bars[0].len() }, &NoCancel).expect("not cancelled")
        };
        let without = run(&whole);
        let mut longest = 0;
        let inputs = || program.inputs.iter().enumerate();
        let named = |at: &usize| match &program.inputs[*at] {
            Input::Column(name) => COLUMNS.iter().position(|n| n == name).expect("a column"),
            _ => panic!("no column"),
        };
        let columns: Vec<usize> = inputs().filter(|(_, i)| matches!(i, Input::Column(_))).map(|(at, _)| at).collect();
        // Each alone, then all of them.
        let cases = columns.iter().map(|at| vec![*at]).chain([columns.clone()]);
        for case in cases {
            let mut gap = whole.clone();
            case.iter().for_each(|at| gap[named(at)][missing] = f64::NAN);
            let predicted = catalogue::gaps(program, &case, horizon);
            for ((with, without), predicted) in run(&gap).iter().zip(&without).zip(&predicted) {
                for (bar, there) in predicted.iter().enumerate() {
                    let (is, was) = (with[missing + bar], without[missing + bar]);
                    let agrees = match there {
                        There::No => is.is_nan(),
                        There::Yes => !is.is_nan() || was.is_nan(),
                        There::Perhaps => true,
                    };
                    if !agrees {
                        wrong.push(format!(
                            "{} without {case:?}: {bar} bars later {is}, predicted {there:?}",
                            facts.example
                        ));
                    }
                    if case.len() == columns.len() && is.is_nan() && !was.is_nan() {
                        longest = longest.max(bar + 1);
                    }
                }
            }
        }
        // A price has no arc sine.
        if without.iter().all(|series| series[missing..].iter().all(|x| x.is_nan())) {
            continue;
        }
        checked += 1;
        // A function that restarted after the missing bar would have the values of a history that begins there.
        let has_faded = |op: Op| !op.facts().is_unbounded() && op.facts().reach() < horizon;
        let keeps = |op: Op| {
            let is_windowed = matches!(op, Op::Skip(_) | Op::MaxIndex(_) | Op::MinIndex(_));
            let restarts = matches!(op, Op::Since | Op::ValueWhen | Op::MaxSince | Op::MinSince);
            op.facts().is_recursive() && !has_faded(op) && !is_windowed && !restarts
        };
        if program.nodes().iter().any(|node| keeps(node.op)) {
            let mut cut = whole.clone();
            cut.iter_mut().for_each(|column| column[..=missing].fill(f64::NAN));
            let mut gap = whole.clone();
            gap.iter_mut().for_each(|column| column[missing] = f64::NAN);
            let later = |bars: &[Vec<f64>]| -> Vec<u64> {
                run(bars).iter().flat_map(|series| &series[missing + horizon - 1..]).map(|x| x.to_bits()).collect()
            };
            let kept = later(&gap);
            // Equal whole numbers, such as a trend's mode, do not reveal where they began.
            if later(&cut) == kept && kept.iter().any(|x| f64::from_bits(*x).fract().abs() > 0.0) {
                wrong.push(format!("{}: begins anew behind a missing bar", facts.example));
            }
        }
        if facts.gap.span < longest || (!facts.gap.depends && facts.gap.span != longest) {
            wrong.push(format!("{}: NA up to {longest} bars, predicted {:?}", facts.example, facts.gap));
        }
    }
    assert!(checked > 180, "{checked} functions");
    assert!(wrong.is_empty(), "{} of them:\n{}", wrong.len(), wrong.join("\n"));
}
