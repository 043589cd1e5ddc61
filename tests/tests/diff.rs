//! `trawl diff` on the files that scans wrote, and `trawl completions`.

use std::process::{Command, Stdio};

use serde_json::Value;
use trawl_tests::home::Home;

use crate::answers::FORMATS;

/// Number of single damaged bytes that are tried.
const DAMAGES: usize = 150;

/// Writes the answers of two days in every format: `a.FORMAT` and `b.FORMAT`.
fn two_days(home: &Home) {
    for (name, as_of) in [("a", "2012-01-13"), ("b", "2012-08-15")] {
        for format in FORMATS {
            let file = format!("{name}.{format}");
            let condition = "rsi(close, 14) > 55";
            let scan = ["scan", "--dataset", "us5", "--where", condition, "--rank", "close", "--select", "close"];
            home.trawl(&[&scan[..], &["--as-of", as_of, "--output", &file, "--quiet"]].concat()).expect_code(0);
        }
    }
}

fn comparison(home: &Home, a: &str, b: &str) -> Value {
    home.trawl(&["diff", a, b, "--output", "d.json", "--quiet"]).expect_code(0);
    let mut read: Value = serde_json::from_slice(&home.read("d.json")).expect("JSON");
    for side in ["a", "b"] {
        read[side]["file"] = Value::Null;
    }
    read
}

/// The symbols that matched in an answer.
fn matched(home: &Home, file: &str) -> Vec<String> {
    let answer: Value = serde_json::from_slice(&home.read(file)).expect("JSON");
    let rows = answer["rows"].as_array().expect("rows");
    let mut symbols: Vec<String> = rows
        .iter()
        .filter(|r| r["status"] == "matched")
        .map(|r| r["symbol"].as_str().expect("a symbol").to_owned())
        .collect();
    symbols.sort();
    symbols
}

#[test]
fn every_pair_of_formats_gives_the_same_comparison() {
    let home = Home::new();
    two_days(&home);
    let reference = comparison(&home, "a.json", "b.json");
    let of = |part: &str| {
        let rows = reference[part].as_array().expect("rows").iter();
        rows.map(|r| r["symbol"].as_str().expect("a symbol").to_owned()).collect::<Vec<_>>()
    };
    let (a, b) = (matched(&home, "a.json"), matched(&home, "b.json"));
    let minus = |x: &[String], y: &[String]| x.iter().filter(|s| !y.contains(s)).cloned().collect::<Vec<_>>();
    let sorted = |mut symbols: Vec<String>| {
        symbols.sort();
        symbols
    };
    assert_eq!((sorted(of("entered")), sorted(of("left"))), (minus(&b, &a), minus(&a, &b)));
    assert!(!of("entered").is_empty() && !of("left").is_empty() && !of("still").is_empty(), "{reference:#}");
    assert_eq!(reference["comparable"], true);
    for left in FORMATS {
        for right in FORMATS {
            let found = comparison(&home, &format!("a.{left}"), &format!("b.{right}"));
            assert!(found == reference, "{left} with {right}: {found:#}\n{reference:#}");
        }
    }
}

#[test]
fn the_exit_code_shows_a_difference_only_when_requested() {
    let home = Home::new();
    two_days(&home);
    home.trawl(&["diff", "a.csv", "b.arrow"]).expect_code(0);
    home.trawl(&["diff", "a.csv", "b.arrow", "--exit-code"]).expect_code(1);
    home.trawl(&["diff", "a.csv", "a.parquet", "--exit-code"]).expect_code(0);
}

#[test]
fn symbols_of_one_answer_alone_are_listed_separately() {
    let home = Home::new();
    home.synth("small", 5, 50);
    home.synth("large", 7, 50);
    for name in ["small", "large"] {
        let file = format!("{name}.csv");
        home.trawl(&["scan", "--dataset", name, "--where", "close > 0", "--output", &file]).expect_code(0);
    }
    let ended = home.trawl(&["diff", "small.csv", "large.csv", "--exit-code"]).expect_code(1);
    assert!(ended.stdout.contains("only in B: 2 symbols"), "{}", ended.stdout);
    assert!(
        ended.stderr.contains("warning: the answers are not of the same scan")
            && ended.stderr.contains("dataset (small in A, large in B)"),
        "{}",
        ended.stderr
    );
}

#[test]
fn a_truncated_file_is_a_mistake_with_a_place_and_never_an_internal_error() {
    let home = Home::new();
    two_days(&home);
    for format in FORMATS {
        let whole = home.read(&format!("b.{format}"));
        let name = format!("cut.{format}");
        for parts in 0..16 {
            std::fs::write(home.path(&name), &whole[..whole.len() * parts / 16]).expect("a file");
            if format == "csv" {
                std::fs::copy(home.path("b.csv.identity.json"), home.path("cut.csv.identity.json")).expect("a file");
            }
            let ended = home.trawl(&["diff", "a.json", &name]).expect_code(2);
            assert!(ended.stderr.starts_with(&format!("error: cannot read '{name}'")), "{}", ended.stderr);
            assert!(ended.stderr.contains("help: "), "{}", ended.stderr);
            assert_eq!(ended.stdout, "");
        }
    }
}

#[test]
fn damage_at_which_the_reading_library_panics_is_reported_like_any_other() {
    let home = Home::new();
    two_days(&home);
    let whole = home.read("b.arrow");
    let mut caught = 0;
    for at in (0..whole.len()).step_by(whole.len() / DAMAGES) {
        let mut damaged = whole.clone();
        damaged[at] ^= 0xff;
        std::fs::write(home.path("damaged.arrow"), damaged).expect("a file");
        let ended = home.trawl(&["diff", "a.json", "damaged.arrow"]);
        assert!(matches!(ended.code, Some(0 | 2)) && !ended.panicked(), "byte {at}: {ended:?}");
        caught += usize::from(ended.stderr.contains("the file is damaged"));
    }
    assert!(caught > 0, "no damaged byte made the library panic");
}

#[test]
fn completions_include_commands_options_and_values_and_bash_can_parse_them() {
    let home = Home::new();
    let help = home.trawl(&["help"]).expect_code(0).stdout;
    let commands: Vec<&str> = help
        .lines()
        .skip_while(|line| *line != "Commands:")
        .skip(1)
        .take_while(|line| !line.is_empty())
        .filter_map(|line| line.strip_prefix("  ").filter(|rest| !rest.starts_with(' ')))
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    assert!(commands.len() >= 12 && commands.contains(&"diff") && commands.contains(&"completions"), "{commands:?}");
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = home.trawl(&["completions", shell]).expect_code(0).stdout;
        assert!(script.contains("trawl") && script.contains("TRAWL_COMPLETE"), "{shell}: {script}");
    }
    // What fish is given for a line; the last word is the one that is typed.
    let words = |line: &[&str]| -> Vec<String> {
        let mut command = home.command(&[&["--", "trawl"], line].concat());
        let output = command.env("TRAWL_COMPLETE", "fish").output().expect("it runs");
        assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
        let text = String::from_utf8(output.stdout).expect("text");
        text.lines().map(|line| line.split('\t').next().unwrap_or_default().to_owned()).collect()
    };
    let first = words(&[""]);
    assert!(commands.iter().all(|command| first.iter().any(|word| word == command)), "{first:?}");
    assert!(words(&["scan", "--noti"]).contains(&"--notify".to_owned()));
    home.write("bars.csv", "symbol,date,close\nAAA,2021-02-01,1\nABB,2021-02-01,1\nBBB,2021-02-01,1\n");
    home.trawl(&["data", "import", "bars.csv", "--dataset", "mine", "--timeframe", "1d"]).expect_code(0);
    assert_eq!(words(&["scan", "--dataset", "m"]), ["mine"]);
    assert_eq!(words(&["chart", "-d", "mine", "a"]), ["AAA", "ABB"]);
    assert_eq!(words(&["scan", "-d", "mine", "--why", "BBB,ab"]), ["BBB,ABB"]);
    assert_eq!(words(&["data", "inspect", "mine", "--symbol", "B"]), ["BBB"]);
    assert_eq!(words(&["indicators", "crosses_a"]), ["crosses_above"]);
    assert_eq!(words(&["scan", "-d", "mine", "--where", "close > 5 and crosses_a"]), ["close > 5 and crosses_above"]);
    assert_eq!(words(&["scan", "-d", "mine", "--select", "crosses_b"]), ["crosses_below"]);
    assert_eq!(words(&["data", "import", "x.csv", "--calendar", "XN"]), ["XNAS", "XNYS"]);
    assert_eq!(words(&["scan", "--let", "up=crosses_a"]), ["up=crosses_above"]);
    assert_eq!(words(&["chart", "-d", "mine", "AAA", "--expr", "crosses_b"]), ["crosses_below"]);
    assert_eq!(words(&["study", "-d", "demo", "--by", "s"]), ["sector"]);
    assert_eq!(words(&["study", "-d", "mine", "--by", "q"]), ["quarter"]);
    let script = home.trawl(&["completions", "bash"]).stdout;
    let file = home.write("trawl.bash", &script);
    match Command::new("bash").arg("-n").arg(&file).stdin(Stdio::null()).output() {
        Ok(output) => assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr)),
        Err(_) => eprintln!("bash is not installed: its syntax is not checked"),
    }
}
