//! Every golden case of Adaptive Trend Classification, computed by another implementation: all columns, including the
//! averages, their crossings and their equities. `just atc-golden` prints the errors found.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::PathBuf;

use flate2::read::GzDecoder;
use serde_json::Value;
use trawl_plan::family::Trend;
use trawl_plan::graph::{NodeId, Op};
use trawl_plan::{Plan, Schema, compile_expressions};

use super::Tables;
use crate::cpu::lower::fused_op::FusedOp;
use crate::cpu::lower::steps::step_for;
use crate::cpu::simd::float::Real;
use crate::cpu::simd::vector::{Isa, Out, Row, View};
use crate::{NoCancel, SymbolInput, evaluate_all};

/// Of the larger magnitude, or 1.
const TOLERANCE: f64 = 1e-9;

const FAMILIES: [(&str, Trend); 6] = [
    ("EMA", Trend::Ema),
    ("HMA", Trend::Hma),
    ("WMA", Trend::Wma),
    ("DEMA", Trend::Dema),
    ("LSMA", Trend::Lsma),
    ("KAMA", Trend::Kama),
];

type Table = BTreeMap<String, Vec<f64>>;

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/golden/atc")
}

fn read(name: &str) -> Option<Table> {
    let file = File::open(folder().join(format!("{name}.csv.gz"))).ok()?;
    let mut reader = csv::Reader::from_reader(GzDecoder::new(file));
    let headers: Vec<String> = reader.headers().expect("a header").iter().map(str::to_owned).collect();
    let mut columns: Vec<Vec<f64>> = vec![Vec::new(); headers.len()];
    for record in reader.records() {
        for (column, cell) in columns.iter_mut().zip(&record.expect("a row")) {
            column.push(if cell.is_empty() { f64::NAN } else { cell.parse().expect("a number") });
        }
    }
    Some(headers.into_iter().zip(columns).collect())
}

fn cases() -> Vec<Value> {
    let text = std::fs::read_to_string(folder().join("manifest.json")).expect("the manifest");
    serde_json::from_str::<Vec<Value>>(&text).expect("a list of cases")
}

/// The call of a case.
fn call(case: &Value, table: &Table) -> String {
    let p = &case["params"];
    let number = |golden: &str, name: &str| format!("{name}={}", p[golden]);
    let mut arguments = vec![if table.contains_key("src") { "src".to_owned() } else { "close".to_owned() }];
    for family in ["ema", "hma", "wma", "dema", "lsma", "kama"] {
        let golden = if family == "hma" { "hull".to_owned() } else { family.to_owned() };
        arguments.push(number(&format!("{golden}_len"), &format!("{family}_len")));
        arguments.push(number(&format!("{family}_w"), &format!("{family}_w")));
    }
    arguments.push(format!("robustness='{}'", p["robustness"].as_str().expect("a word")));
    arguments.push(number("strategy_mode", "strategy_mode"));
    let numbers =
        [("La", "la"), ("De", "de"), ("cutout", "cutout"), ("long_threshold", "long"), ("short_threshold", "short")];
    arguments.extend(numbers.map(|(golden, name)| number(golden, name)));
    format!("atc({})", arguments.join(", "))
}

fn compile(call: &str) -> Result<Plan, String> {
    let outputs = |suffix: &str| FAMILIES.map(|(name, _)| format!("{call}.{}{suffix}", name.to_lowercase()));
    let mut items = vec![format!("{call}.signal")];
    items.extend(outputs("").into_iter().chain(outputs("_equity")));
    let schema = Schema::of_columns(vec!["close".to_owned(), "src".to_owned()]);
    compile_expressions(&items, "test", &schema).map_err(|all| all[0].to_string())
}

/// Largest error of each golden column, by file and column without length.
#[derive(Default)]
struct Errors {
    worst: BTreeMap<String, f64>,
    columns: usize,
    failures: Vec<String>,
}

impl Errors {
    fn check(&mut self, case: &str, file: &str, column: &str, got: &[f64], want: &[f64]) {
        self.columns += 1;
        assert_eq!(got.len(), want.len(), "{case} {column}");
        let kind = column.split_once(|c: char| c == '_' && !column.ends_with('S')).map_or(column, |(kind, _)| kind);
        let worst = self.worst.entry(format!("{file} {}", if file == "all" { column } else { kind })).or_insert(0.0);
        for (i, (g, w)) in got.iter().zip(want).enumerate() {
            let error = match (g.is_nan(), w.is_nan()) {
                (true, true) => 0.0,
                (false, false) if g == w => 0.0,
                (false, false) => (g - w).abs() / w.abs().max(g.abs()),
                _ => f64::INFINITY,
            };
            *worst = worst.max(error);
            // Written so that a NaN error fails too.
            let within = error <= TOLERANCE;
            if !within {
                self.failures.push(format!("{case} {file} {column} bar {i}: {g}, golden {w}"));
                break;
            }
        }
    }
}

/// One step over whole series.
fn step(op: Op, inputs: &[&[f64]]) -> Vec<f64> {
    let bars = inputs[0].len();
    let rows: Vec<Vec<Row>> = inputs.iter().map(|x| x.iter().map(|x| Row::splat(*x)).collect()).collect();
    let views: Vec<View<'_>> = rows.iter().map(|rows| View::column((rows, 0))).collect();
    let mut step = step_for::<f64>(&FusedOp::Op(op), inputs.len(), bars, &mut Tables::default()).expect("a step");
    let mut ring = vec![Row::NA; f64::STRIP_BARS];
    let mut out = Vec::with_capacity(bars);
    for start in (0..bars).step_by(f64::STRIP_BARS) {
        let rows = start..(start + f64::STRIP_BARS).min(bars);
        step.strip(Isa::detect(), &views, &mut [Out::new(&mut ring)], rows.clone());
        out.extend(rows.map(|t| ring[t % f64::STRIP_BARS].0[3]));
    }
    out
}

/// The series of every node of the plan.
fn every_node(plan: &Plan, table: &Table) -> Vec<Vec<f64>> {
    let program = plan.program();
    let every = program.with_outputs((0..program.nodes().len() as u32).map(NodeId).collect());
    let column = |c: &String| table[if c == "close" { "price" } else { "src" }].as_slice();
    let columns: Vec<&[f64]> = plan.columns.iter().map(column).collect();
    let symbol = SymbolInput { visible: columns[0].len(), columns };
    evaluate_all(&every, &symbol, &NoCancel).expect("not cancelled")
}

#[test]
fn every_golden_case_is_met_in_every_column() {
    let (mut passed, mut refused, mut errors) = (0, 0, Errors::default());
    for case in cases() {
        let name = case["case"].as_str().expect("a name");
        let table = read(name).expect("its file");
        let bars = table["price"].len();
        let plan = compile(&call(&case, &table));
        if case["expect"] == "error" {
            let too_short = plan.as_ref().is_ok_and(|plan| bars < plan.bars_needed);
            assert!(plan.is_err() || too_short, "{name} is taken");
            refused += 1;
            continue;
        }
        let plan = plan.unwrap_or_else(|e| panic!("{name}: {e}"));
        assert!(bars >= plan.bars_needed, "{name} is refused");
        let nodes = plan.program().nodes();
        let series = every_node(&plan, &table);
        let outputs: Vec<&[f64]> = plan.program().outputs.iter().map(|id| series[id.index()].as_slice()).collect();
        let before = errors.failures.len();
        let mut main = |column: String, got: &[f64]| {
            if let Some(want) = table.get(&column) {
                errors.check(name, "all", &column, got, want);
            }
        };
        main("Average_Signal".to_owned(), outputs[0]);
        for (k, (family, _)) in FAMILIES.iter().enumerate() {
            main(format!("{family}_Signal"), outputs[1 + k]);
            main(format!("{family}_S"), outputs[7 + k]);
        }
        let find = |wanted: &dyn Fn(&Op) -> bool| nodes.iter().position(|node| wanted(&node.op)).expect("a node");
        let average = |column: &str| {
            let (family, len) = column.split_once('_').expect("a length");
            let family = FAMILIES.iter().find(|f| f.0 == family).expect("a family").1;
            let len = len.parse().expect("a length");
            series[find(&|op| *op == Op::TrendMean { family, len })].as_slice()
        };
        for (file, columns) in ["ma", "l1_signals", "l1_equities"].map(|f| (f, read(&format!("{name}__{f}")))) {
            for (column, want) in columns.iter().flatten().filter(|(c, _)| *c != "i" && *c != "price") {
                let grown = find(&|op| matches!(op, Op::GrownReturn { .. }));
                let family = find(&|op| matches!(op, Op::FamilySignal { .. }));
                let number = nodes[family].inputs[2].index();
                let Op::FamilySignal { decay, cutout } = nodes[family].op else { continue };
                // The signal of a family of one average is its crossing; its equity is that of following the crossing.
                let inputs = [table["price"].as_slice(), &series[grown], &series[number], average(column)];
                let crossing = step(nodes[family].op, &inputs);
                let equity = Op::SignalEquity { start: 1.0.into(), decay, cutout };
                match file {
                    "ma" => errors.check(name, file, column, average(column), want),
                    "l1_signals" => errors.check(name, file, column, &crossing, want),
                    _ => errors.check(name, file, column, &step(equity, &[&crossing, inputs[1], inputs[2]]), want),
                }
            }
        }
        passed += usize::from(errors.failures.len() == before);
    }
    for (column, worst) in &errors.worst {
        println!("{column:<24} largest relative error {worst:.1e}");
    }
    println!(
        "{passed} cases agree in {} columns within {TOLERANCE:e}; {refused} cases are refused as they must be",
        errors.columns
    );
    assert!(errors.failures.is_empty(), "{} failures:\n{}", errors.failures.len(), errors.failures.join("\n"));
    assert_eq!(passed + refused, cases().len());
}
