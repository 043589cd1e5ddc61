//! Every indicator equals TA-Lib's reference output: within 1e-9 relative, defined exactly where TA-Lib is.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::PathBuf;

use flate2::read::GzDecoder;
use trawl_kernels::{NoCancel, SymbolInput, evaluate_all};
use trawl_plan::{Schema, compile_expressions};

const TOLERANCE: f64 = 1e-9;

/// Number of TA-Lib functions with reference columns.
const FUNCTIONS: usize = 201;
/// Reference columns: an output of a function with some parameters on one of the series.
const COLUMNS: usize = 1604;

/// Outputs that are whole numbers in TA-Lib and so cannot be NaN there.
const INTEGERS: [&str; 6] = ["integer", "trend", "minidx", "maxidx", "swinghigh", "swinglow"];

/// Column name -> cells, `None` where empty.
pub type Table = BTreeMap<String, Vec<Option<f64>>>;

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/golden/talib")
}

pub fn read(name: &str) -> Table {
    let path = folder().join(name);
    let file = File::open(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let mut reader = csv::Reader::from_reader(GzDecoder::new(file));
    let headers: Vec<String> = reader.headers().expect("a header").iter().map(str::to_owned).collect();
    let mut columns: Vec<Vec<Option<f64>>> = vec![Vec::new(); headers.len()];
    for record in reader.records() {
        for (column, cell) in columns.iter_mut().zip(&record.expect("a row")) {
            // The date is opaque text, not a series.
            column.push(cell.parse().ok());
        }
    }
    headers.into_iter().zip(columns).collect()
}

struct Case {
    function: String,
    number: String,
    outputs: Vec<String>,
    inputs: Vec<String>,
    params: Vec<(String, f64)>,
    look_back: usize,
    series: Vec<String>,
}

impl Case {
    /// `rsi(close, timeperiod=14).real`, written with every argument by name or position as a user would.
    fn call(&self) -> String {
        let params = self.params.iter().map(|(k, v)| format!("{k}={v}"));
        let args: Vec<String> = self.inputs.iter().cloned().chain(params).collect();
        format!("{}({})", self.function.to_lowercase(), args.join(", "))
    }
}

fn cases() -> Vec<Case> {
    let text = std::fs::read_to_string(folder().join("functions.json")).expect("functions.json");
    let root: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let strings = |v: &serde_json::Value| -> Vec<String> {
        v.as_array().expect("a list").iter().map(|s| s.as_str().expect("text").to_owned()).collect()
    };
    let mut cases = Vec::new();
    for function in root["functions"].as_array().expect("functions") {
        let name = function["name"].as_str().expect("a name");
        let found = trawl_plan::catalogue::find(&name.to_lowercase());
        assert!(found.is_some_and(|f| f.reference.starts_with("TA-Lib")), "the catalogue has no {name} of TA-Lib's");
        for (number, case) in function["cases"].as_object().expect("cases") {
            let params = case["params"].as_object().expect("params");
            let outputs = strings(&function["outputs"]);
            cases.push(Case {
                function: name.to_owned(),
                number: number.clone(),
                inputs: strings(&case["inputs"]),
                params: params.iter().map(|(k, v)| (k.clone(), v.as_f64().expect("a number"))).collect(),
                look_back: case["lookback"].as_u64().expect("lookback") as usize,
                series: strings(&case["series"]),
                outputs,
            });
        }
    }
    cases
}

#[test]
fn every_indicator_equals_talib_on_every_golden_column() {
    let mut failures = Vec::new();
    let mut columns = 0;
    let mut names = std::collections::BTreeSet::new();
    let mut worst = (0.0, String::new());
    for series in ["AAPL", "IBM", "EDGE_FLAT", "EDGE_ZEROVOL_DEADBARS"] {
        let input = read(&format!("{series}.input.csv.gz"));
        let golden = read(&format!("{series}.csv.gz"));
        let schema = Schema::of_columns(
            ["open", "high", "low", "close", "volume", "periods", "unit"].map(str::to_owned).to_vec(),
        );
        for case in cases().iter().filter(|c| c.series.iter().any(|s| s == series)) {
            let call = case.call();
            let single = case.outputs.len() == 1;
            let items: Vec<String> =
                case.outputs.iter().map(|o| if single { call.clone() } else { format!("{call}.{o}") }).collect();
            let plan = compile_expressions(&items, "test", &schema).unwrap_or_else(|d| panic!("{call}: {}", d[0]));
            let data: Vec<Vec<f64>> =
                plan.columns.iter().map(|c| input[c].iter().map(|x| x.unwrap_or(f64::NAN)).collect()).collect();
            let symbol = SymbolInput { columns: data.iter().map(Vec::as_slice).collect(), visible: data[0].len() };
            let got = evaluate_all(plan.program(), &symbol, &NoCancel).expect("not cancelled");
            names.insert(case.function.clone());
            for (output, got) in case.outputs.iter().zip(&got) {
                let name = format!("{}#{}.{output}", case.function, case.number);
                let want = &golden[&name];
                columns += 1;
                for (i, (g, w)) in got.iter().zip(want).enumerate() {
                    // Integer outputs are 0 in TA-Lib's look-back and NA here.
                    let integer = INTEGERS.contains(&output.as_str());
                    let want = w.filter(|_| !(integer && i < case.look_back));
                    let error = match want {
                        None if g.is_nan() => continue,
                        Some(w) if w == *g => continue,
                        Some(w) => (g - w).abs() / w.abs().max(1.0),
                        None => f64::INFINITY,
                    };
                    if error > worst.0 && error <= TOLERANCE {
                        worst = (error, format!("{series} {name} bar {i}"));
                    }
                    // Written so that a NaN error fails too.
                    let within = error <= TOLERANCE;
                    if !within {
                        failures.push(format!("{series} {name} bar {i}: {g}, TA-Lib {want:?}"));
                        break;
                    }
                }
                let look_back = plan.look_back();
                if look_back != case.look_back && single {
                    failures.push(format!("{name}: look-back {look_back}, TA-Lib {}", case.look_back));
                }
            }
        }
    }
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
    assert_eq!((names.len(), columns), (FUNCTIONS, COLUMNS), "functions and columns that were compared");
    println!(
        "{} functions, {columns} golden columns agree; largest relative error {:e} ({})",
        names.len(),
        worst.0,
        worst.1
    );
}

/// TA-Lib 0.8.2 treats a range as zero up to 1e-14 of the magnitudes of its two ends, and in CCI a deviation up to
/// 1e-14 of the mean; the thresholds of these calls were found by bisection with it.
#[test]
fn what_is_but_rounding_of_a_flat_window_counts_as_flat() {
    let schema = Schema::of_columns(["open", "high", "low", "close", "volume"].map(str::to_owned).to_vec());
    let items = ["stochf(4, 1).fastk", "stoch(4, 1, 1).k", "kdj(4, 1, slowd_period=1).k", "willr(4)", "cci(4)"];
    let plan = compile_expressions(&items.map(str::to_owned), "test", &schema).expect("legal");
    for base in [1.0, 100.0, 7e-7, -3.0] {
        let last = |share: f64| -> Vec<f64> {
            let flat = vec![base; 5];
            let mut high = flat.clone();
            high[2] = base + share * f64::abs(base);
            let mut close = flat.clone();
            close[4] = high[2];
            high[4] = high[2];
            let known = |name: &String| match name.as_str() {
                "high" => high.as_slice(),
                "close" => close.as_slice(),
                _ => flat.as_slice(),
            };
            let symbol = SymbolInput { columns: plan.columns.iter().map(known).collect(), visible: 5 };
            let got = evaluate_all(plan.program(), &symbol, &NoCancel).expect("not cancelled");
            got.iter().map(|series| series[4]).collect()
        };
        let within = last(1.9e-14);
        assert_eq!(within, [0.0; 5], "base {base}");
        let beyond = last(2.2e-14);
        assert_eq!(beyond[..3], [100.0; 3], "base {base}");
        assert!(last(1e-12)[4] != 0.0, "base {base}");
    }
}
