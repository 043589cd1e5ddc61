//! Every document of examples/ runs on the bundled bars, and the README's scan finds what the README shows.

use trawl_tests::executable::repository;
use trawl_tests::home::Home;

fn answer(home: &Home, name: &str) -> serde_json::Value {
    serde_json::from_slice(&home.read(name)).expect("an answer is JSON")
}

#[test]
fn every_example_has_a_row_for_every_symbol() {
    let mut documents: Vec<_> = std::fs::read_dir(repository().join("examples"))
        .expect("examples/")
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|e| e == "toml"))
        .collect();
    documents.sort();
    assert!(documents.len() >= 15, "{documents:?}");
    for document in documents {
        let home = Home::new();
        let file = document.to_str().expect("a path");
        home.trawl(&["scan", "--file", file, "--output", "a.json"]).expect_code(0);
        let answer = answer(&home, "a.json");
        let symbols = match answer["identity"]["dataset"].as_str() {
            Some("us5") => 5,
            Some("demo-1m") => 60,
            _ => 61,
        };
        assert_eq!(answer["rows"].as_array().map(Vec::len), Some(symbols), "{file}");
        assert_eq!(answer["counts"]["symbols"], symbols, "{file}");
        assert_eq!(answer["counts"]["failed"], 0, "{file}");
    }
}

/// Lines of the README that other tests run, or that cannot be run here, by their beginnings.
const RUN_ELSEWHERE: [&str; 4] = ["./test", "tools/get-etcd", "trawl cluster up", "trawl scan --coordinator"];

#[test]
fn every_line_of_the_readme_runs_in_a_fresh_clone() {
    let home = Home::new();
    for name in ["examples", "market"] {
        std::os::unix::fs::symlink(repository().join(name), home.path(name)).expect("a link");
    }
    std::os::unix::fs::symlink(trawl_tests::executable::trawl(), home.path("trawl")).expect("a link");
    let text = std::fs::read_to_string(repository().join("README.md")).expect("README.md");
    let blocks = text.split("```sh\n").skip(1).filter_map(|rest| rest.split_once("```")).map(|(block, _)| block);
    let lines: Vec<&str> = blocks.flat_map(str::lines).filter(|line| !line.trim().is_empty()).collect();
    let here = |line: &&&str| !RUN_ELSEWHERE.iter().any(|begin| line.starts_with(begin));
    let run: Vec<&&str> = lines.iter().filter(here).collect();
    assert_eq!(lines.len() - run.len(), RUN_ELSEWHERE.len(), "{lines:?}");
    assert!(run.len() > 15, "{run:?}");
    for line in run {
        let line = line.replace("cargo run --release -- ", "trawl ");
        let path = format!("{}:{}", home.path("").display(), std::env::var("PATH").unwrap_or_default());
        let mut shell = std::process::Command::new("sh");
        shell.env_clear().env("PATH", path).env("HOME", home.path("")).env("TRAWL_DATA_ROOT", home.data_root());
        shell.args(["-ec", &line]).current_dir(home.path(""));
        let ended = trawl_tests::process::run(&mut shell).expect_code(0);
        assert!(!ended.stderr.contains("error"), "{line}: {}", ended.stderr);
    }
}

#[test]
fn the_first_command_of_the_readme_finds_ibm() {
    let home = Home::new();
    let condition = "within(crosses_above(sma(close,50), sma(close,200)), 3)";
    let scan = ["scan", "--dataset", "us5", "--as-of", "2013-02-22", "--where", condition];
    let shown = home.trawl(&scan).expect_code(0).stdout;
    assert!(shown.contains("IBM"), "{shown}");
    home.trawl(&[&scan[..], &["--output", "a.json"]].concat()).expect_code(0);
    let answer = answer(&home, "a.json");
    let rows = answer["rows"].as_array().expect("rows");
    let status: Vec<(&str, &str)> =
        rows.iter().map(|r| (r["symbol"].as_str().unwrap_or(""), r["status"].as_str().unwrap_or(""))).collect();
    assert_eq!(
        status,
        [
            ("IBM", "matched"),
            ("AAPL", "not_matched"),
            ("FB", "unknown"),
            ("GOOG", "not_matched"),
            ("MSFT", "not_matched")
        ]
    );
}
