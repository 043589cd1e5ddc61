//! Answers on standard output, documents from standard input, and options that depend on each other.

use std::fs::File;
use std::process::Stdio;

use trawl_tests::home::Home;

const SCAN: [&str; 5] = ["scan", "--dataset", "us5", "--where", "close > sma(close, 200)"];

#[test]
fn an_answer_on_standard_output_is_the_file_and_nothing_else() {
    let home = Home::new();
    for format in ["csv", "json", "arrow", "parquet"] {
        let file = format!("answer.{format}");
        home.trawl(&[&SCAN[..], &["--output", &file]].concat()).expect_code(0);
        let piped =
            home.command(&[&SCAN[..], &["--output", "-", "--format", format]].concat()).output().expect("it runs");
        assert!(piped.status.success() && piped.stderr.is_empty(), "{piped:?}");
        assert_eq!(piped.stdout, home.read(&file), "{format}");
    }
    let plain = home.trawl(&[&SCAN[..], &["--output", "-", "--report", "run.json"]].concat()).expect_code(0);
    assert_eq!(plain.stdout.as_bytes(), home.read("answer.csv"), "CSV is the default");
    for (more, expected) in [
        (&["--output", "-", "--profile"][..], "both need standard output"),
        (&["--output", "-", "--all"], "both need standard output"),
        (&["--output", "a.csv", "--format", "json"], "in the format of its extension"),
        (&["--output", "a.json", "--report", "./a.json"], "would overwrite the answer"),
        (&["--select", "close as time", "--all-bars", "a.csv"], "adds a column 'time'"),
    ] {
        let refused = home.trawl(&[&SCAN[..], more].concat()).expect_code(2);
        assert!(refused.stdout.is_empty() && refused.stderr.contains(expected), "{more:?}: {}", refused.stderr);
    }
}

#[test]
fn a_document_comes_from_standard_input_and_its_mistakes_are_shown_in_it() {
    let home = Home::new();
    let ask = |text: &str| {
        let file = File::open(home.write("scan.toml", text)).expect("the document");
        let mut command = home.command(&["scan", "--file", "-", "--output", "-"]);
        command.stdin(Stdio::from(file)).output().expect("it runs")
    };
    let answered = ask("dataset = 'us5'\nwhere = 'close > highest(n)[1] - n'\n[let]\nn = 20\n");
    assert!(answered.status.success(), "{answered:?}");
    assert!(String::from_utf8_lossy(&answered.stdout).starts_with("place,symbol,status,"), "{answered:?}");
    let refused = ask("dataset = 'us5'\nwhere = '''\nclose > 1\n  and clsoe > 2'''\n");
    assert_eq!(refused.status.code(), Some(2));
    assert!(refused.stdout.is_empty());
    assert!(String::from_utf8_lossy(&refused.stderr).contains("--> standard input:4:7"), "{refused:?}");
    let none = ask("dataset = 'us5'\n");
    assert!(String::from_utf8_lossy(&none.stderr).contains("standard input has no condition"), "{none:?}");
}

#[test]
fn several_symbols_are_explained_and_an_update_accepts_only_its_own_options() {
    let home = Home::new();
    let why = home.trawl(&[&SCAN[..], &["--why", "IBM, AAPL"]].concat()).expect_code(0).stdout;
    let (ibm, aapl) = (why.find("IBM  matched").expect("IBM"), why.find("AAPL  not matched").expect("AAPL"));
    assert!(ibm < aapl && why.matches("where").count() == 2, "{why}");
    let update = ["update", "--dataset", "us5", "--where", "close > sma(close, 200)", "--state", "kept"];
    let profiled = home.trawl(&[&update[..], &["--profile"]].concat()).expect_code(0).stdout;
    assert!(profiled.contains("shard"), "{profiled}");
    for option in ["--detach", "--coordinator=http://127.0.0.1:1", "--priority=high", "--why=IBM", "--tls-ca=a"] {
        let refused = home.trawl(&[&update[..], &[option]].concat()).expect_code(2).stderr;
        assert!(refused.contains("unexpected argument"), "{option}: {refused}");
    }
    let help = home.trawl(&["update", "--help"]).expect_code(0).stdout;
    assert!(!help.contains("--token-file") && !help.contains("--idempotency-key"), "{help}");
}
