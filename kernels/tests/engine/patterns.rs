//! Properties of all candle patterns.

use trawl_kernels::{NoCancel, SymbolInput, evaluate_all};
use trawl_plan::catalogue::{Function, functions};
use trawl_plan::{Schema, compile_expressions};

/// Nodes that a pattern may add to a plan, so that a scan can hold all patterns.
const NODES_MAX: usize = 100;

const BARS: usize = 400;

fn patterns() -> impl Iterator<Item = &'static Function> {
    functions().filter(|f| f.name.starts_with("cdl"))
}

fn schema() -> Schema {
    Schema::of_columns(["open", "high", "low", "close"].map(str::to_owned).to_vec())
}

/// Four columns of a walk on a grid of cents.
fn bars() -> Vec<Vec<f64>> {
    let mut columns: Vec<Vec<f64>> = vec![Vec::new(); 4];
    for t in 0..BARS {
        let open = 5_000 + (t * 7_919) % 97;
        let close = 5_000 + (t * 104_729) % 89;
        let high = open.max(close) + (t * 31) % 17;
        let low = open.min(close) - (t * 37) % 13;
        for (column, cents) in columns.iter_mut().zip([open, high, low, close]) {
            column.push(cents as f64 / 100.0);
        }
    }
    columns
}

fn evaluate(name: &str, bars: &[Vec<f64>]) -> (Vec<f64>, usize) {
    let plan = compile_expressions(&[format!("{name}()")], "test", &schema()).expect("legal");
    let column = |name: &String| ["open", "high", "low", "close"].iter().position(|c| c == name).expect("a price");
    let columns = plan.columns.iter().map(|c| bars[column(c)].as_slice()).collect();
    let input = SymbolInput { columns, visible: BARS };
    let got = evaluate_all(plan.program(), &input, &NoCancel).expect("not cancelled").remove(0);
    (got, plan.look_back())
}

#[test]
fn there_are_all_of_talib() {
    assert_eq!(patterns().count(), 61);
}

#[test]
fn a_pattern_is_na_exactly_where_its_bars_lack_a_price() {
    let mut data = bars();
    for (column, bar, value) in [
        (0, 40, f64::NAN),
        (1, 90, f64::NAN),
        (2, 140, f64::INFINITY),
        (3, 190, f64::NEG_INFINITY),
        (1, 240, f64::NAN),
        (2, 241, f64::NAN),
        (3, 254, f64::NAN),
    ] {
        data[column][bar] = value;
    }
    for function in patterns() {
        let (got, look_back) = evaluate(function.name, &data);
        for (t, value) in got.iter().enumerate() {
            let covered = t.checked_sub(look_back).map(|first| first..=t);
            let whole = covered.is_some_and(|mut bars| bars.all(|t| data.iter().all(|c| c[t].is_finite())));
            assert_eq!(!value.is_nan(), whole, "{} at bar {t}: {value}", function.name);
        }
    }
}

#[test]
fn what_a_gap_leaves_behind_is_nothing() {
    let whole = bars();
    let mut gap = bars();
    gap[2][100] = f64::NAN;
    for function in patterns() {
        let ((with, look_back), (without, _)) = (evaluate(function.name, &gap), evaluate(function.name, &whole));
        assert_eq!(with[100 + look_back + 1..], without[100 + look_back + 1..], "{}", function.name);
    }
}

#[test]
fn patterns_add_few_nodes_to_a_plan_and_share_them() {
    let count =
        |items: &[String]| compile_expressions(items, "test", &schema()).expect("legal").program().nodes().len();
    let calls: Vec<String> = patterns().map(|f| format!("{}()", f.name)).collect();
    let mut alone = 0;
    for call in &calls {
        let nodes = count(std::slice::from_ref(call));
        assert!(nodes <= NODES_MAX, "{call}: {nodes} nodes");
        alone += nodes;
    }
    let together = count(&calls);
    println!("{alone} nodes one by one, {together} together");
    assert!(together * 2 < alone, "{together} nodes together, {alone} one by one");
}
