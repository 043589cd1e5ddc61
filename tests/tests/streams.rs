//! Answers on standard output, documents from standard input, and options that depend on each other.

use std::fs::File;
use std::process::Stdio;

use trawl_tests::home::Home;

const SCAN: [&str; 5] = ["scan", "--dataset", "us5", "--where", "close > sma(close, 200)"];
/// Two scans in one document, of which FB has bars for the first alone.
const TWO_SCANS: &str = "dataset = 'us5'\n[[scan]]\nname = 'cheap'\nwhere = 'close < 100 # dollars'\n\
                         [[scan]]\nname = 'up'\nwhere = 'close > sma(200)'\n";

#[test]
fn an_answer_on_standard_output_is_the_file_and_nothing_else() {
    let home = Home::new();
    for format in ["csv", "json", "ndjson", "arrow", "parquet"] {
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
        (&["--select", "close as time"], "every answer has a column 'time' already"),
        (&["--format", "json"], "add --output -"),
        (&["--from", "2012-01-01"], "--all-bars"),
        (&["--all-bars", "a.csv", "--from", "05/06/2012"], "2012-06-05"),
        (&["--all-bars", "a.csv", "--from", "2040-01-01"], "'2040-01-01' is after the last bar of the span"),
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
    assert!(String::from_utf8_lossy(&answered.stdout).starts_with("time,place,symbol,status,"), "{answered:?}");
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

/// The rows of a CSV on standard output, each by its columns' names.
fn rows(home: &Home, arguments: &[&str]) -> Vec<std::collections::HashMap<String, String>> {
    let text = home.trawl(arguments).expect_code(0).stdout;
    csv::Reader::from_reader(text.as_bytes()).deserialize().map(|row| row.expect("a row")).collect()
}

#[test]
fn every_symbol_of_the_universe_has_values_where_that_is_asked_for() {
    let home = Home::new();
    let scan = [
        "scan",
        "--dataset",
        "demo",
        "--universe",
        "close > 20",
        "--where",
        "close > sma(close, n)",
        "--sweep",
        "n=50,200",
        "--rank",
        "close",
        "--select",
        "rsi(14) as rsi",
        "--select",
        "close > open as up",
        "--output",
        "-",
    ];
    let plain = rows(&home, &scan);
    let all = rows(&home, &[&scan[..], &["--values", "all"]].concat());
    assert_eq!(plain.len(), all.len());
    let mut filled = 0;
    for (plain, all) in plain.iter().zip(&all) {
        for column in ["time", "n", "place", "symbol", "status", "edge", "reason"] {
            assert_eq!(plain[column], all[column], "{plain:?}");
        }
        match plain["status"].as_str() {
            "matched" => assert_eq!(plain, all),
            "not_matched" | "unknown" => {
                assert_eq!(plain["rsi"], "");
                assert!(["true", "false"].contains(&all["up"].as_str()), "{all:?}");
                filled += 1;
            }
            _ => assert_eq!((all["rsi"].as_str(), all["up"].as_str()), ("", ""), "{all:?}"),
        }
    }
    assert!(filled > 20, "{filled}");
    // Of several scans each has its own condition, and their document has none.
    home.write("two.toml", TWO_SCANS);
    let several = ["scan", "--file", "two.toml", "--select", "rsi(14) as rsi", "--output", "-"];
    let (matches, every) = (rows(&home, &several), rows(&home, &[&several[..], &["--values", "all"]].concat()));
    assert_eq!(matches.len(), every.len());
    let one = rows(&home, &["scan", "-d", "us5", "-w", "true", "--select", "rsi(14) as rsi", "--output", "-"]);
    for row in &every {
        let alone = one.iter().find(|one| one["symbol"] == row["symbol"]).expect("each symbol");
        assert_eq!(row["rsi"], alone["rsi"], "{row:?}");
    }
    assert!(matches.iter().any(|row| row["rsi"].is_empty()) && every.len() == 10, "{every:?}");
    // At every bar they are the same, in a file by row and in one by column.
    let every = [&scan[..15], &["--values", "all", "--from", "2024-12-05", "--all-bars"]].concat();
    let of_last = rows(&home, &[&every[..], &["-"]].concat());
    assert_eq!(
        of_last.iter().filter(|row| row["time"] == "2024-12-06").collect::<Vec<_>>(),
        all.iter().collect::<Vec<_>>()
    );
    assert_eq!(of_last.len(), 2 * all.len());
    for format in ["arrow", "parquet", "json", "ndjson"] {
        let file = format!("every.{format}");
        home.trawl(&[&every[..], &[&file]].concat()).expect_code(0);
        home.trawl(&[&every[..], &["every.csv"]].concat()).expect_code(0);
        let diff = home.trawl(&["diff", "every.csv", &file, "--exit-code"]).expect_code(0);
        assert!(diff.stdout.starts_with("0 entered, 0 left, "), "{}", diff.stdout);
        assert!(diff.stderr.is_empty(), "{}", diff.stderr);
    }
}

#[test]
fn near_misses_are_named_with_the_term_that_they_fail_on() {
    let home = Home::new();
    let scan = [
        "scan",
        "--dataset",
        "us5",
        "--let",
        "up=close > sma(close, 50) and roc(20) > 0",
        "--where",
        "up and rsi(14) > 60 and close > 5",
        "--near",
    ];
    let near = |most: &str| -> serde_json::Value {
        serde_json::from_str(&home.trawl(&[&scan[..], &[most, "--json"]].concat()).expect_code(0).stdout).expect("JSON")
    };
    // The values of the terms from an ordinary scan: a let that joins terms is taken apart.
    let terms = ["close > sma(close, 50)", "roc(20) > 0", "rsi(14) > 60", "close > 5"];
    let select: Vec<String> = terms.iter().map(|term| format!("--select={term}")).collect();
    let select: Vec<&str> = select.iter().map(String::as_str).collect();
    let of_terms = rows(&home, &[&["scan", "-d", "us5", "-w", "true", "-o", "-"], &select[..]].concat());
    for most in [1, 2, 4] {
        let expected: std::collections::BTreeMap<String, Vec<&str>> = of_terms
            .iter()
            .map(|row| {
                (row["symbol"].clone(), terms.into_iter().filter(|term| row[*term] != "true").collect::<Vec<_>>())
            })
            .filter(|(_, fails)| (1..=most).contains(&fails.len()))
            .collect();
        let found = near(&most.to_string());
        let found: std::collections::BTreeMap<String, Vec<&str>> = found
            .as_array()
            .expect("a list")
            .iter()
            .map(|miss| {
                let fails = miss["fails"].as_array().expect("terms");
                let fails = fails.iter().map(|term| term["term"].as_str().expect("a term")).collect();
                (miss["symbol"].as_str().expect("a symbol").to_owned(), fails)
            })
            .collect();
        assert_eq!(found, expected, "{most}");
        assert!(most < 4 || !expected.is_empty());
    }
    let text = home.trawl(&[&scan[..], &["2"]].concat()).expect_code(0).stdout;
    assert!(text.contains("on at most 2 of 4 terms; "), "{text}");
    let text = home.trawl(&[&scan[..], &["4", "--rank", "close", "--limit", "1"]].concat()).expect_code(0).stdout;
    assert!(text.contains("more: --all shows them"), "{text}");
    let refused = home.trawl(&["scan", "-d", "us5", "-w", "close > 1", "--json"]).expect_code(2).stderr;
    assert!(refused.contains("--output - --format json"), "{refused}");
}

#[test]
fn a_near_miss_by_a_condition_shows_it_as_one() {
    let home = Home::new();
    let scan = ["scan", "-d", "us5", "-w", "not (close > 400)", "--near", "1"];
    let text = home.trawl(&scan).expect_code(0).stdout;
    assert!(text.contains("= true") && !text.contains("= 1"), "{text}");
    let json = home.trawl(&[&scan[..], &["--json"]].concat()).expect_code(0).stdout;
    let misses: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(misses[0]["fails"][0]["sees"][0]["value"], true, "{json}");
    // Whatever the universe and the terms before it show already.
    let scan = ["scan", "-d", "us5", "--let", "up=close > 400 and close > 5", "-u", "up or close > 100"];
    let scan = [&scan[..], &["-w", "up and rsi(14) > 50 and close < 500", "--near", "2", "--json"]].concat();
    let json = home.trawl(&scan).expect_code(0).stdout;
    let misses: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    let terms = misses.as_array().expect("misses").iter().flat_map(|miss| miss["fails"].as_array().expect("terms"));
    let seen: Vec<String> = terms.map(|term| format!("{} {}", term["term"], term["sees"])).collect();
    assert!(seen.iter().any(|term| term.contains("close > 400") && term.contains(r#""part":"close""#)), "{json}");
    assert!(seen.iter().all(|term| !term.ends_with("[]") && !term.contains("up =")), "{json}");
    let counted = home.trawl(&scan[..scan.len() - 1]).expect_code(0).stdout;
    assert!(counted.contains("of 4 terms"), "{counted}");
}

/// The identities of `k.csv` and `k.jsonl` do not overwrite each other; a wide panel has one for all its files.
#[test]
fn each_file_of_rows_has_its_own_identity() {
    let home = Home::new();
    let identity = |name: &str| -> serde_json::Value { serde_json::from_slice(&home.read(name)).expect("JSON") };
    for (file, dataset) in [("k.csv", "us5"), ("k.jsonl", "demo")] {
        home.trawl(&["scan", "-d", dataset, "-w", "close > 5", "-o", file, "-q"]).expect_code(0);
    }
    assert_eq!(identity("k.csv.identity.json")["identity"]["dataset"], "us5");
    assert_eq!(identity("k.jsonl.identity.json")["identity"]["dataset"], "demo");
    assert!(!home.path("k.identity.json").exists());
    let wide = ["panel", "-d", "us5", "-w", "close > 5", "-s", "close", "--from", "2013-02-25", "--wide", "-o"];
    let said = home.trawl(&[&wide[..], &["fr.csv"]].concat()).expect_code(0).stdout;
    assert_eq!(said, "wrote fr.close.csv, fr.matched.csv: 5 rows\n");
    assert!(home.path("fr.close.csv").exists() && home.path("fr.identity.json").exists());
    let help = home.trawl(&["panel", "--help"]).expect_code(0).stdout;
    assert!(help.contains("csv, parquet, arrow") && !help.contains("ndjson"), "{help}");
}

/// A dataset on the command line replaces those of the documents before they are compared.
#[test]
fn a_folder_of_scans_runs_on_the_dataset_that_is_given() {
    let home = Home::new();
    std::fs::create_dir(home.path("scans")).expect("a folder");
    home.write("scans/a.toml", "dataset = 'us5'\nwhere = 'close > 5'\n");
    home.write("scans/b.toml", "dataset = 'other'\nwhere = 'close > 50'\n");
    home.write("scans/c.toml", "where = 'rsi(14) < 60'\n");
    let refused = home.trawl(&["scan", "scans"]).expect_code(2).stderr;
    assert!(refused.contains("another 'dataset'"), "{refused}");
    let ran = home.trawl(&["scan", "scans", "-d", "demo"]).expect_code(0);
    assert!(ran.stdout.contains("demo"), "{}", ran.stdout);
    // A let is reported with its scan, unless the scan's own rank uses it.
    home.write(
        "scans/a.toml",
        "where = 'close > n'\nrank = 'strength'\n[let]\nn = 5\nidle = 7\nstrength = 'roc(20)'\n",
    );
    let warned = home.trawl(&["scan", "scans", "-d", "demo"]).expect_code(0).stderr;
    assert!(warned.contains("no clause uses the let 'idle' of a\n"), "{warned}");
    home.write("two.toml", &format!("{TWO_SCANS}[scan.let]\nidle = 7\n"));
    let warned = home.trawl(&["scan", "--file", "two.toml"]).expect_code(0).stderr;
    assert!(warned.contains("no clause uses the let 'idle' of up\n"), "{warned}");
}

#[test]
fn what_follows_one_condition_says_whether_a_sweep_or_several_scans_are_too_many() {
    let home = Home::new();
    home.write("two.toml", TWO_SCANS);
    home.write("sweep.toml", "dataset = 'us5'\nwhere = 'close > sma(n)'\n[sweep]\nn = [20, 50]\n");
    for (file, what) in [("two.toml", "the document has 2 scans"), ("sweep.toml", "the sweep has 2 combinations")] {
        let asked: [&[&str]; 5] = [
            &["scan", "--file", file, "--why", "AAPL"],
            &["scan", "--file", file, "--near", "1"],
            &["study", "--file", file],
            &["panel", "--file", file, "--output", "-"],
            &["chart", "AAPL", "--scan", file],
        ];
        for arguments in asked {
            let refused = home.trawl(arguments).expect_code(2).stderr;
            assert!(refused.starts_with(&format!("error: {what}, and ")), "{arguments:?}: {refused}");
            assert_eq!(refused.contains("a document of its own"), file == "two.toml", "{arguments:?}: {refused}");
        }
    }
    // One scan in a list is that scan.
    home.write(
        "one.toml",
        "dataset = 'us5'\n[[scan]]\nname = 'up'\nwhere = 'up and close > 5'\n[scan.let]\nup = 'close > sma(200)'\n",
    );
    let why = home.trawl(&["scan", "--file", "one.toml", "--why", "IBM"]).expect_code(0).stdout;
    assert!(why.contains("sma(200)") && why.contains("IBM  matched"), "{why}");
    let near = home.trawl(&["scan", "--file", "one.toml", "--near", "1"]).expect_code(0).stdout;
    assert!(near.contains("on at most 1 of 2 terms"), "{near}");
    home.trawl(&["study", "--file", "one.toml", "--horizons", "5"]).expect_code(0);
}

/// The end of a span is where it was asked to end.
#[test]
fn a_span_that_ends_before_the_newest_bar_is_no_reason_for_a_warning() {
    let home = Home::new();
    let span = ["-d", "us5", "-w", "close > 5", "--from", "2013-02-20", "--to", "2013-02-22"];
    let panel = home.trawl(&[&["panel", "-o", "p.csv"], &span[..]].concat()).expect_code(0);
    let every = home.trawl(&[&["scan", "--all-bars", "a.csv"], &span[..]].concat()).expect_code(0);
    assert_eq!((panel.stderr.as_str(), every.stderr.as_str()), ("", ""));
    let beyond = [&["panel", "-o", "p.csv"], &span[..6], &["--to", "2013-06-01"]].concat();
    let warned = home.trawl(&beyond).expect_code(0).stderr;
    assert!(warned.contains("is after the data"), "{warned}");
    let scan = home.trawl(&[&["scan"], &span[..4], &["--as-of", "2013-02-22"]].concat()).expect_code(0).stderr;
    assert!(scan.contains("the newest closed bar is that of 2013-03-01"), "{scan}");
}

#[test]
fn a_ticker_of_a_watchlist_that_is_not_there_is_reported_in_the_list() {
    let home = Home::new();
    home.write("mine.txt", "IBM\nGOGO\n");
    let scan = ["scan", "-d", "us5", "-w", "close > 5", "--watchlist", "mine.txt"];
    let refused = home.trawl(&scan).expect_code(2).stderr;
    for part in ["no symbol 'GOGO'", "mine.txt:2:1", "did you mean 'GOOG'?"] {
        assert!(refused.contains(part), "{part}: {refused}");
    }
}

#[test]
fn why_as_json_has_the_values_of_the_text() {
    let home = Home::new();
    let why = home.trawl(&[&SCAN[..], &["--why", "IBM,FB", "--json"]].concat()).expect_code(0).stdout;
    let why: serde_json::Value = serde_json::from_str(&why).expect("JSON");
    assert_eq!(
        (&why[0]["symbol"], &why[0]["status"], &why[1]["status"]),
        (&"IBM".into(), &"matched".into(), &"unknown".into())
    );
    let part = &why[0]["parts"][0];
    assert_eq!((&part["clause"], &part["value"], &part["kind"]), (&"where".into(), &true.into(), &"condition".into()));
    let mean = &why[1]["parts"].as_array().expect("parts")[2];
    assert_eq!(
        (&mean["text"], &mean["value"], &mean["decided"]),
        (&"sma(close, 200)".into(), &serde_json::Value::Null, &true.into())
    );
    assert_eq!(mean["bars_needed"], 200);
}

#[test]
fn what_a_scan_needs_is_explained_and_what_nothing_uses_is_reported() {
    let home = Home::new();
    let scan = [&SCAN[..3], &["--let", "unused=open", "--where", "close > sma(close, 200) and rsi(14) < 70"]].concat();
    let explained = home.trawl(&[&scan[..], &["--explain"]].concat()).expect_code(0);
    assert!(explained.stderr.contains("no clause uses the let 'unused'"), "{}", explained.stderr);
    for shown in
        ["needs      200 bars of a symbol", "    200 close > sma(close, 200)", "too short  1 of 5 symbols: FB (196)"]
    {
        assert!(explained.stdout.contains(shown), "{shown}: {}", explained.stdout);
    }
    assert!(!explained.stdout.contains("ns/bar"), "{}", explained.stdout);
    // FB has bars for the shortest mean of a sweep and for one of several scans.
    let sweep = [&SCAN[..3], &["--where", "close > sma(n)", "--sweep", "n=50,200,250", "--explain"]].concat();
    let swept = home.trawl(&sweep).expect_code(0).stdout;
    let short = "too short  0 of 5 symbols\n           1 more for some of the 3 combinations: FB (196, for 2)\n";
    assert!(swept.contains(short), "{swept}");
    home.write("two.toml", TWO_SCANS);
    let several = home.trawl(&["scan", "--file", "two.toml", "--explain"]).expect_code(0).stdout;
    assert!(several.contains("1 more for some of the 2 scans: FB (196, for 1)\n"), "{several}");
    let plan = home.trawl(&[&scan[..], &["--plan"]].concat()).expect_code(0).stdout;
    assert!(plan.contains("ns/bar") && plan.contains("too short"), "{plan}");
    let page = home.trawl(&["help", "language"]).expect_code(0).stdout;
    assert!(page.contains("crosses_above(a, b)") && page.lines().count() < 70, "{page}");
    let found = home.trawl(&["indicators", "--search", "bollinger"]).expect_code(0).stdout;
    assert!(found.contains("  bbands  "), "{found}");
    let foreign = home.trawl(&["indicators", "--search", "crossover"]).expect_code(0).stdout;
    assert!(foreign.contains("crosses_above"), "{foreign}");
    let listed = home.trawl(&["indicators", "--search", "barssince"]).expect_code(0).stdout;
    assert!(
        listed.contains("barssince: write since(c)") && listed.contains("  since  ") && !listed.contains("0 functions"),
        "{listed}"
    );
    let json = home.trawl(&["indicators", "--search", "barssince", "--json"]).expect_code(0).stdout;
    assert!(json.contains(r#""name": "since""#), "{json}");
    let none = home.trawl(&["indicators", "--search", "skew"]).expect_code(0).stdout;
    assert_eq!(none, "skew: there is no function of the skewness\n");
    home.trawl(&["indicators", "--search", "nosuchthing"]).expect_code(2);
    let named = home.trawl(&["indicators", "dmi"]).expect_code(2).stderr;
    assert!(named.contains("write plus_di(n), minus_di(n) or adx(n)") && !named.contains("imi'"), "{named}");
}

/// What a rank, another symbol or a longer bar is made of counts: with 1 bar there is no return over 63.
#[test]
fn an_explanation_counts_cross_sections_other_symbols_and_longer_bars() {
    let home = Home::new();
    let explained =
        |more: &[&str]| home.trawl(&[&["scan", "--dataset", "demo", "--explain"], more].concat()).expect_code(0).stdout;
    let ranked = explained(&["--where", "xs_rank(roc(close, 500)) <= 5 and close > 5"]);
    assert!(
        ranked.contains("needs      501 bars of a symbol before") && ranked.contains("    501 xs_rank"),
        "{ranked}"
    );
    assert!(ranked.contains("too short  2 of 61 symbols: HASHO (162), FIBRO (466)"), "{ranked}");
    assert!(ranked.contains("at which 1 cross-section is read"), "{ranked}");
    let other = explained(&["--where", "close > ref('SPY', sma(close, 50))", "--universe", "sma(volume, 300) > 0"]);
    assert!(other.contains("needs      1 bar of a symbol, 50 of SPY before"), "{other}");
    assert!(other.contains("universe   needs 300 bars of a symbol"), "{other}");
    let weekly = explained(&["--where", "close > sma(close, 150)", "--timeframe", "1w"]);
    assert!(weekly.contains("needs      1 bar of a symbol, 150 of 1w before"), "{weekly}");
    assert!(weekly.contains("too short  at least") && weekly.contains("HASHO (162)"), "{weekly}");
}

/// Midnight in UTC is a time within a day for an exchange elsewhere: a column of times has one form.
#[test]
fn times_of_bars_within_a_day_have_one_form() {
    let home = Home::new();
    let bars = ["2024-01-04T00:00:00Z", "2024-01-04T00:15:00Z", "2024-01-04T00:30:00Z", "2024-01-05T00:00:00Z"];
    let mut text = "symbol,time,open,high,low,close,volume\n".to_owned();
    for symbol in ["AAA", "BBB"] {
        text.extend(bars.iter().map(|time| format!("{symbol},{time},1,2,1,2,100\n")));
    }
    home.write("tokyo.csv", &text);
    home.trawl(&["import", "tokyo.csv", "--dataset", "t", "--calendar", "XTKS", "--timeframe", "15m"]).expect_code(0);
    let scan = ["scan", "--dataset", "t", "--where", "close > 0", "--quiet"];
    let times = |text: &str| -> Vec<String> {
        text.lines().skip(1).filter_map(|line| line.split(',').next()).map(str::to_owned).collect()
    };
    let one = home.trawl(&[&scan[..], &["--output", "-"]].concat()).expect_code(0).stdout;
    assert_eq!(times(&one), ["2024-01-05T00:00:00Z"; 2], "{one}");
    for file in ["all.csv", "all.parquet", "all.ndjson"] {
        home.trawl(&[&scan[..], &["--all-bars", file]].concat()).expect_code(0);
    }
    let all = String::from_utf8(home.read("all.csv")).expect("text");
    assert!(times(&all).iter().all(|time| time.len() == bars[0].len()), "{all}");
    let lines = String::from_utf8(home.read("all.ndjson")).expect("text");
    assert!(lines.contains("\"time\":\"2024-01-05T00:00:00Z\""), "{lines}");
    // The formats mean the same times.
    for (a, b) in [("all.csv", "all.parquet"), ("all.parquet", "all.ndjson")] {
        let compared = home.trawl(&["diff", a, b]).expect_code(0).stdout;
        assert!(compared.starts_with("0 entered, 0 left, 8 still there; 0 only in A, 0 only in B"), "{compared}");
    }
    home.trawl(&["panel", "-d", "t", "-w", "close > 0", "-s", "close", "-o", "p.csv", "-q"]).expect_code(0);
    let panel = String::from_utf8(home.read("p.csv")).expect("text");
    assert!(times(&panel).iter().all(|time| time.ends_with('Z')), "{panel}");
}

#[test]
fn an_answer_says_which_built_bar_was_read() {
    let home = Home::new();
    let scan =
        ["scan", "--dataset", "demo", "--timeframe", "1w", "--where", "close > 5", "--as-of", "2024-12-04", "--quiet"];
    home.trawl(&[&scan[..], &["--output", "a.json"]].concat()).expect_code(0);
    home.trawl(&[&scan[..], &["--output", "a.csv"]].concat()).expect_code(0);
    let expected = serde_json::json!({"timeframe": "1w", "time": "2024-11-25"});
    for file in ["a.json", "a.csv.identity.json"] {
        let read: serde_json::Value = serde_json::from_slice(&home.read(file)).expect("JSON");
        assert_eq!(read["bar"], expected, "{file}");
    }
    let piped = home.trawl(&[&scan[..9], &["--output", "-"]].concat()).expect_code(0);
    assert!(
        piped.stderr.contains("the bars of 1w are built: the newest whole one is that of 2024-11-25"),
        "{}",
        piped.stderr
    );
    home.trawl(&["scan", "--dataset", "demo", "--where", "close > 5", "--output", "own.json", "--quiet"])
        .expect_code(0);
    let own: serde_json::Value = serde_json::from_slice(&home.read("own.json")).expect("JSON");
    assert!(own.get("bar").is_none(), "the dataset's own bars are those of 'time'");
    let strange =
        home.trawl(&["scan", "--dataset", "demo", "--timeframe", "week", "--where", "close > 5"]).expect_code(2);
    assert!(strange.stderr.contains("'week' is not a timeframe"), "{}", strange.stderr);
}

#[test]
fn files_of_every_bar_are_compared_time_by_time() {
    let home = Home::new();
    let scan = ["scan", "--dataset", "us5", "--select", "close", "--to", "2012-03-30", "--quiet"];
    let write = |condition: &str, from: &str, file: &str| {
        home.trawl(&[&scan[..], &["--where", condition, "--from", from, "--all-bars", file]].concat()).expect_code(0);
    };
    write("rsi(14) < 30", "2012-01-03", "a.json");
    write("rsi(14) < 30", "2012-01-04", "b.ndjson");
    write("rsi(14) < 35", "2012-01-03", "c.parquet");
    let shorter = home.trawl(&["diff", "a.json", "b.ndjson"]).expect_code(0).stdout;
    assert!(shorter.contains("0 entered, 0 left") && shorter.contains("; 5 only in A, 0 only in B\n"), "{shorter}");
    assert!(shorter.contains("only in A: 5 symbols at a time\n"), "{shorter}");
    let wider = home.trawl(&["diff", "a.json", "c.parquet"]).expect_code(0);
    assert!(wider.stderr.contains("they differ in plan"), "{}", wider.stderr);
    assert!(wider.stdout.contains("\nentered: ") && !wider.stdout.contains("\nleft: "), "{}", wider.stdout);
    home.trawl(&["scan", "--dataset", "us5", "--where", "close > 1", "-o", "one.csv", "-q"]).expect_code(0);
    let refused = home.trawl(&["diff", "one.csv", "a.json"]).expect_code(2).stderr;
    assert!(refused.contains("has the answers at many times"), "{refused}");
}

#[test]
fn a_file_says_what_was_asked_and_types_its_columns() {
    let home = Home::new();
    home.write("scan.toml", "name = 'golden cross'\ndataset = 'us5'\nwhere = 'close > sma(close, n)'\nselect = ['close > open as up']\n[sweep]\nn = [20, 50]\n");
    home.trawl(&["scan", "-f", "scan.toml", "-o", "a.json", "-q"]).expect_code(0);
    let answer: serde_json::Value = serde_json::from_slice(&home.read("a.json")).expect("JSON");
    assert_eq!(answer["scan"]["name"], "golden cross");
    assert_eq!(answer["scan"]["where"], "close > sma(close, n)");
    let row = &answer["rows"][0];
    assert!(row["up"].is_boolean() && row["n"].is_u64() && row["time"] == "2013-03-01", "{row}");
    home.trawl(&["scan", "-f", "scan.toml", "-o", "a.ndjson", "-q"]).expect_code(0);
    let lines = String::from_utf8(home.read("a.ndjson")).expect("text");
    let first: serde_json::Value = serde_json::from_str(lines.lines().next().expect("a line")).expect("JSON");
    assert_eq!(&first, row);
    let about: serde_json::Value = serde_json::from_slice(&home.read("a.ndjson.identity.json")).expect("JSON");
    assert_eq!(about["scan"], answer["scan"]);
    let diff = home.trawl(&["diff", "a.json", "a.ndjson"]).expect_code(0).stdout;
    assert!(diff.contains("A a.json: golden cross, us5@"), "{diff}");
}

/// The newest complete longer bar would be repeated at each of the dataset's bars, and counted so many times.
#[test]
fn built_bars_are_refused_where_every_bar_is_wanted() {
    let home = Home::new();
    home.write(
        "week.toml",
        "dataset = 'demo'\ntimeframe = '1w'\nwhere = 'close > sma(close, 4)'\nselect = ['close']\n",
    );
    home.trawl(&["scan", "week.toml", "--quiet"]).expect_code(0);
    let wanted: [&[&str]; 5] = [
        &["scan", "week.toml", "--all-bars", "all.csv"],
        &["study", "--file", "week.toml"],
        &["panel", "--file", "week.toml", "--output", "panel.csv"],
        &["chart", "SPY", "--dataset", "demo", "--timeframe", "1w"],
        &["chart", "--scan", "week.toml"],
    ];
    for arguments in wanted {
        let ended = home.trawl(arguments).expect_code(2);
        assert!(ended.stderr.contains("write tf('1w', ...)") && !ended.panicked(), "{arguments:?}: {}", ended.stderr);
    }
    assert!(!home.path("panel.csv").exists() && !home.path("all.csv").exists());
    let own = ["study", "--dataset", "us5", "--where", "rsi(14) < 30", "--timeframe", "1d"];
    home.trawl(&own).expect_code(0);
}

/// A limit chooses among the matches of an answer; of every bar all count, which nobody would see.
#[test]
fn a_study_and_a_panel_say_that_a_limit_is_not_used() {
    let home = Home::new();
    let scan = ["-d", "us5", "-w", "close > 5", "-r", "close", "-l", "2", "--let", "spare=1"];
    let studied = home.trawl(&[&["study"], &scan[..]].concat()).expect_code(0);
    let panel = home.trawl(&[&["panel", "-o", "p.csv"], &scan[..]].concat()).expect_code(0);
    for ended in [studied, panel] {
        assert!(ended.stderr.contains("the scan's limit is not used"), "{}", ended.stderr);
        assert!(ended.stderr.contains("no clause uses the let 'spare'"), "{}", ended.stderr);
    }
    let plain = home.trawl(&["study", "-d", "us5", "-w", "close > 5"]).expect_code(0);
    assert!(plain.stderr.is_empty(), "{}", plain.stderr);
}

/// The training rows of one fold are the test rows of the others.
#[test]
fn a_scaler_is_refused_for_several_folds() {
    let home = Home::new();
    let asked =
        ["panel", "-d", "us5", "-w", "close > 5", "-s", "close", "--forward", "5", "--scaler", "s.json", "-o", "p.csv"];
    let ended = home.trawl(&[&asked[..], &["--folds", "3"]].concat()).expect_code(2);
    assert!(ended.stderr.contains("this panel has 3 folds"), "{}", ended.stderr);
    assert!(!home.path("p.csv").exists() && !home.path("s.json").exists());
    home.trawl(&[&asked[..], &["--split", "2012-01-03"]].concat()).expect_code(0);
}
