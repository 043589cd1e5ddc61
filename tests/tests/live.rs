//! The executable compared with TA-Lib itself, on random series and random legal parameters (`tools/live`), and the
//! page that reports how far both are from the exact values.

use std::path::PathBuf;
use std::process::Command;

use trawl_tests::executable::{repository, trawl};
use trawl_tests::home::Home;
use trawl_tests::process;

/// Calls compared, spread evenly over the functions: about half a minute on two cores.
const CASES: &str = "60000";
const SEED: &str = "20250";

#[test]
fn every_function_equals_talib_on_random_series_and_parameters() {
    let python = std::env::var_os("TRAWL_PYTHON")
        .map(PathBuf::from)
        .unwrap_or_else(|| repository().join("target/venv/bin/python"));
    assert!(python.is_file(), "no Python environment: run ./test, or tools/get-venv once");
    // Built with all targets, beside the executable.
    let reference = trawl().with_file_name("examples").join(format!("reference{}", std::env::consts::EXE_SUFFIX));
    assert!(reference.is_file(), "{} is missing: run ./test", reference.display());
    let mut command = Command::new(python);
    command.arg(repository().join("tools/live")).args(["--cases", CASES, "--seed", SEED]);
    command.arg("--trawl").arg(trawl()).arg("--reference").arg(reference);
    let ended = process::run(&mut command).expect_code(0);
    println!("{}", ended.stdout);
}

#[test]
fn the_page_of_accuracy_lists_every_function_with_numbers_to_measure() {
    let page = std::fs::read_to_string(repository().join("docs/accuracy.md")).expect("docs/accuracy.md");
    let listed = Home::new().trawl(&["indicators", "--json"]).expect_code(0).stdout;
    let listed: serde_json::Value = serde_json::from_str(&listed).expect("JSON");
    let whole = ["integer", "trend", "minidx", "maxidx", "swinghigh", "swinglow"];
    for function in listed.as_array().expect("a list") {
        let mut outputs = function["outputs"].as_array().expect("outputs").iter();
        let of_talib = function["reference"].as_str().is_some_and(|r| r.starts_with("TA-Lib"));
        let name = function["name"].as_str().expect("a name");
        if of_talib && outputs.any(|o| !whole.contains(&o["name"].as_str().unwrap_or_default())) {
            assert!(page.contains(&format!("| `{name}` |")), "docs/accuracy.md lacks {name}: run `just accuracy`");
        }
    }
}
