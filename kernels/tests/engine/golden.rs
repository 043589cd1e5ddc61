//! Every indicator equals its reference output, TA-Lib's or that of an independent program: within 1e-9 relative, defined
//! exactly where the reference is.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::{Path, PathBuf};

use flate2::read::GzDecoder;
use trawl_kernels::{NoCancel, SymbolInput, evaluate_all};
use trawl_plan::catalogue::{Function, Reference, functions};
use trawl_plan::{Schema, compile_expressions};

const TOLERANCE: f64 = 1e-9;

/// Number of TA-Lib functions with reference columns.
const FUNCTIONS: usize = 201;
/// Reference columns: an output of a function with some parameters on one of the series.
const COLUMNS: usize = 1604;

/// Outputs that are whole numbers in TA-Lib and so cannot be NaN there.
const INTEGERS: [&str; 6] = ["integer", "trend", "minidx", "maxidx", "swinghigh", "swinglow"];

/// The columns that reference calls may read.
const BARS: [&str; 7] = ["open", "high", "low", "close", "volume", "periods", "unit"];

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
        assert!(found.is_some_and(|f| f.source == Reference::TaLib), "the catalogue has no {name} of TA-Lib's");
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
    let mut names = BTreeSet::new();
    let mut worst = (0.0, String::new());
    for series in ["AAPL", "IBM", "EDGE_FLAT", "EDGE_ZEROVOL_DEADBARS"] {
        let input = read(&format!("{series}.input.csv.gz"));
        let golden = read(&format!("{series}.csv.gz"));
        let schema = Schema::of_columns(BARS.map(str::to_owned).to_vec());
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

/// Cells of a file of reference values: series and bar first, then a column a call.
fn reference_values(file: &str) -> (Vec<String>, Vec<Vec<String>>) {
    let path = folder().join("..").join(file);
    let mut reader = csv::Reader::from_path(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let cells = |record: &csv::StringRecord| record.iter().map(str::to_owned).collect::<Vec<String>>();
    let headers = cells(reader.headers().expect("a header"));
    (headers, reader.records().map(|record| cells(&record.expect("a row"))).collect())
}

/// What of a function differs from the reference values that its declaration names.
fn differences(function: &Function, file: &str) -> Vec<String> {
    let (headers, rows) = reference_values(file);
    assert_eq!(headers[..2], ["series", "bar"], "{file}");
    let calls = &headers[2..];
    for output in function.outputs {
        let of_output = |call: &&String| function.outputs.len() == 1 || call.ends_with(&format!(".{}", output.name));
        let matching: Vec<&String> = calls.iter().filter(of_output).collect();
        let own = matching.iter().all(|call| call.starts_with(&format!("{}(", function.name)));
        let defaults = matching.iter().any(|call| call.starts_with(&format!("{}()", function.name)));
        assert!(
            own && defaults && matching.len() > 1,
            "{file} has defaults and other arguments of {}: {matching:?}",
            output.name
        );
    }
    let plan = compile_expressions(calls, "test", &Schema::of_columns(BARS.map(str::to_owned).to_vec()));
    let plan = plan.unwrap_or_else(|d| panic!("{file}: {}", d[0]));
    let mut wrong = Vec::new();
    for rows in rows.chunk_by(|a, b| a[0] == b[0]) {
        let input = read(&format!("{}.input.csv.gz", rows[0][0]));
        let first = |name: &String| input[name][..rows.len()].iter().map(|x| x.unwrap_or(f64::NAN)).collect();
        let data: Vec<Vec<f64>> = plan.columns.iter().map(first).collect();
        let symbol = SymbolInput { columns: data.iter().map(Vec::as_slice).collect(), visible: rows.len() };
        let got = evaluate_all(plan.program(), &symbol, &NoCancel).expect("not cancelled");
        for ((at, call), got) in calls.iter().enumerate().zip(&got) {
            let wanted: Vec<Option<f64>> = rows.iter().map(|row| row[at + 2].parse().ok()).collect();
            assert!(wanted.iter().flatten().count() > 1, "{file}: {call} has no values on {}", rows[0][0]);
            for (bar, (got, wanted)) in got.iter().zip(wanted).enumerate() {
                assert_eq!(rows[bar][1], bar.to_string(), "{file}: bars are counted from the first one");
                let agree = match wanted {
                    None => got.is_nan(),
                    Some(wanted) => (got - wanted).abs() <= TOLERANCE * wanted.abs().max(1.0),
                };
                if !agree {
                    wrong.push(format!("{call} on {} bar {bar}: {got}, reference {wanted:?}", rows[0][0]));
                }
            }
        }
    }
    wrong
}

/// The functions that bring a file of reference values.
fn with_values() -> impl Iterator<Item = (&'static Function, &'static str)> {
    functions().filter_map(|function| match function.source {
        Reference::Values(_, file) => Some((function, file)),
        Reference::TaLib | Reference::Language | Reference::Source(_) => None,
    })
}

#[test]
fn every_indicator_with_reference_values_of_its_own_equals_them() {
    let wrong: Vec<String> = with_values().flat_map(|(function, file)| differences(function, file)).collect();
    assert!(wrong.is_empty(), "{} differences:\n{}", wrong.len(), wrong.join("\n"));
    let names: Vec<&str> = with_values().map(|(function, _)| function.name).collect();
    println!("reference values of {names:?} agree");
    assert!(names.contains(&"cks"), "{names:?}");
}

#[test]
fn every_indicator_of_another_source_has_values_to_be_compared_with() {
    let talib: BTreeSet<String> = cases().into_iter().map(|case| case.function.to_lowercase()).collect();
    let compared = |function: &&Function| match function.source {
        Reference::TaLib => [&[function.name], function.aliases].concat().iter().any(|name| talib.contains(*name)),
        // Defined by the oracle, and by `families`.
        Reference::Language => true,
        Reference::Source(_) => function.name == "atc",
        Reference::Values(..) => true,
    };
    let without: Vec<&str> = functions().filter(|function| !compared(function)).map(|f| f.name).collect();
    assert!(without.is_empty(), "no reference values: {without:?}");
}

/// Rust files below a folder of the repository.
fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display())) {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// What CONTRIBUTING.md says: an indicator is a declaration and its reference values, and no other file has to know it.
#[test]
fn an_indicator_is_one_declaration_and_its_reference_values() {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut all = Vec::new();
    for folder in ["plan/src", "plan/tests", "kernels/src", "kernels/tests"] {
        sources(&root.join(folder), &mut all);
    }
    for (function, _) in with_values() {
        let word = |text: &str| {
            let mut words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
            words.any(|word| word == function.name)
        };
        let is_naming =
            |path: &&PathBuf| !path.ends_with(file!()) && word(&std::fs::read_to_string(path).expect("text"));
        let naming: Vec<&PathBuf> = all.iter().filter(is_naming).collect();
        let declared =
            naming.iter().all(|path| path.parent().is_some_and(|folder| folder.ends_with("plan/src/catalogue")));
        assert!(naming.len() == 1 && declared, "{} is named in {naming:?}", function.name);
    }
}

/// TA-Lib 0.8.2 takes a range for none up to 1e-14 of the sizes of its two ends, and in CCI a deviation up
/// to 1e-14 of the mean: where these calls turn was found by bisection with it.
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
