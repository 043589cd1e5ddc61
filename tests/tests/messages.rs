//! The messages of `trawl` about bad input, word for word: one clear error, the right exit code, never a panic.
//!
//! The snapshots are refreshed only by `just bless`.

use std::net::TcpListener;

use trawl_tests::etcd::free_port;
use trawl_tests::home::Home;
use trawl_tests::process::Ended;

/// The complete output, with paths and random parts replaced by fixed names.
fn shown(home: &Home, ended: &Ended) -> String {
    assert!(!ended.panicked(), "{}", ended.stderr);
    let code = ended.code.expect("an exit code, not a signal");
    let lines = |text: &str| text.lines().map(str::trim_end).collect::<Vec<_>>().join("\n");
    let (stdout, stderr) = (home.plain(&ended.stdout), home.plain(&ended.stderr));
    format!("exit code {code}\n-- stdout\n{}\n-- stderr\n{}\n", lines(&stdout), lines(&stderr))
}

/// Runs `trawl` and compares with the snapshot.
macro_rules! says {
    ($home:expr, $name:literal, $($argument:expr),+ $(,)?) => {{
        let ended = $home.trawl(&[$($argument),+]);
        let text = shown(&$home, &ended);
        insta::with_settings!({ prepend_module_to_snapshot => false, omit_expression => true, filters => vec![
            (r"127\.0\.0\.1:[1-9][0-9]*", "127.0.0.1:PORT"),
            (r"\b[0-9a-f]{64}\b", "SNAPSHOT"),
            (r"@[0-9a-f]{12}\b", "@SNAPSHOT"),
            (r"in [0-9.]+ ?(ns|us|µs|ms|s)\b", "in TIME"),
        ]}, { insta::assert_snapshot!($name, text) });
        ended.code.unwrap_or(-1)
    }};
}

#[test]
fn a_misspelt_indicator() {
    let home = Home::new();
    assert_eq!(says!(home, "misspelt_indicator", "scan", "--dataset", "us5", "--where", "smaa(close, 50) > 10"), 2);
}

#[test]
fn a_wrong_argument() {
    let home = Home::new();
    assert_eq!(says!(home, "argument_out_of_range", "scan", "--dataset", "us5", "--where", "rsi(close, 1) > 10"), 2);
    assert_eq!(
        says!(home, "argument_misnamed", "scan", "--dataset", "us5", "--where", "rsi(close, timeperoid=9) > 10"),
        2
    );
    assert_eq!(says!(home, "argument_too_many", "scan", "--dataset", "us5", "--where", "sma(close, 5, 6) > 10"), 2);
    assert_eq!(says!(home, "offset_negative", "scan", "--dataset", "us5", "--where", "close[-1] > 10"), 2);
}

#[test]
fn a_type_error() {
    let home = Home::new();
    assert_eq!(says!(home, "condition_is_a_number", "scan", "--dataset", "us5", "--where", "sma(close, 50)"), 2);
    assert_eq!(says!(home, "bool_in_arithmetic", "scan", "--dataset", "us5", "--where", "close + (open > 1) > 2"), 2);
}

#[test]
fn bad_grammar() {
    let home = Home::new();
    assert_eq!(says!(home, "unclosed_call", "scan", "--dataset", "us5", "--where", "sma(close, 50 > 10"), 2);
    assert_eq!(says!(home, "unknown_column", "scan", "--dataset", "us5", "--where", "clsoe > 10"), 2);
    assert_eq!(says!(home, "unknown_field", "scan", "--dataset", "us5", "--where", "macd().sinal > 0"), 2);
}

#[test]
fn an_unknown_dataset() {
    let home = Home::new();
    assert_eq!(says!(home, "unknown_dataset", "scan", "--dataset", "us6", "--where", "close > 10"), 2);
    assert_eq!(says!(home, "dataset_is_a_path", "scan", "--dataset", "../us5", "--where", "close > 10"), 2);
    assert_eq!(
        says!(home, "unknown_snapshot", "scan", "--dataset", "us5@0123456789abcdef", "--where", "close > 10"),
        2
    );
    assert_eq!(says!(home, "inspect_unknown", "inspect", "us6"), 2);
}

#[test]
fn an_as_of_before_every_bar() {
    let home = Home::new();
    assert_eq!(
        says!(home, "as_of_too_early", "scan", "--dataset", "us5", "--as-of", "1970-01-05", "--where", "close > 10"),
        2
    );
    assert_eq!(says!(home, "as_of_no_date", "scan", "--dataset", "us5", "--as-of", "soon", "--where", "close > 10"), 2);
}

#[test]
fn a_bad_document() {
    let home = Home::new();
    home.write("scan.toml", "dataset = 'us5'\nwhere = 'close > 10'\nlimt = 5\n");
    assert_eq!(says!(home, "document_unknown_key", "scan", "--file", "scan.toml"), 2);
    assert_eq!(says!(home, "document_missing", "scan", "--file", "absent.toml"), 2);
}

#[test]
fn an_output_that_cannot_be_written() {
    let home = Home::new();
    assert_eq!(
        says!(home, "output_extension", "scan", "--dataset", "us5", "--where", "close > 10", "--output", "a.xls"),
        2
    );
    assert_eq!(
        says!(home, "output_no_folder", "scan", "--dataset", "us5", "--where", "close > 10", "--output", "no/a.csv"),
        2
    );
}

#[test]
fn garbage_rows() {
    let home = Home::new();
    home.write(
        "BAD.csv",
        "Date,Open,High,Low,Close,Volume,Adj Close\n2020-01-02,10,11,9,10.5,100,10.5\n2020-01-03,10.5,9,10,11.5,100,11.5\n\
         not a date,11.5,12,11,11.75,100,11.75\n2020-01-07,abc,12,11,11.75,100,11.75\n2020-01-08\n",
    );
    assert_eq!(says!(home, "import_garbage_rows", "import", "BAD.csv", "--dataset", "bad"), 0);
    home.write("WORSE.csv", "\0\u{1}\u{2}nothing,here\n\"unclosed\n");
    assert_ne!(says!(home, "import_no_header", "import", "WORSE.csv", "--dataset", "worse"), 0);
    assert_ne!(says!(home, "import_no_file", "import", "absent.csv", "--dataset", "worse"), 0);
    home.write("bars.csv", "date,close\n1,10\n2,ten\n");
    assert_eq!(says!(home, "compute_garbage_cell", "compute", "--input", "bars.csv", "--expr", "close"), 2);
}

#[test]
fn an_empty_universe_is_counted() {
    let home = Home::new();
    assert_eq!(
        says!(
            home,
            "empty_universe",
            "scan",
            "--dataset",
            "us5",
            "--as-of",
            "2013-02-22",
            "--universe",
            "close > 1e9",
            "--where",
            "close > 10",
            "--all"
        ),
        0
    );
}

#[test]
fn a_coordinator_that_is_not_there() {
    let home = Home::new();
    let url = format!("http://127.0.0.1:{}", free_port());
    let code =
        says!(home, "no_coordinator", "scan", "--dataset", "us5", "--where", "close > 10", "--coordinator", &url);
    assert_eq!(code, 1);
}

#[test]
fn an_invalid_coordinator_url() {
    let home = Home::new();
    let scan = ["scan", "--dataset", "us5", "--where", "close > 10", "--coordinator"];
    let ended = home.trawl(&[&scan[..], &["not a url"]].concat());
    assert!(matches!(ended.code, Some(1 | 2)) && !ended.panicked(), "{ended:?}");
}

#[test]
fn a_port_in_use() {
    let home = Home::new();
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = taken.local_addr().expect("an address").to_string();
    let etcd = trawl_tests::etcd::endpoint();
    let name = trawl_tests::etcd::fresh_cluster_name();
    for role in ["coordinator", "worker"] {
        let ended = home.trawl(&[role, "--etcd", &etcd, "--cluster-name", &name, "--listen", &address]).expect_code(1);
        assert!(ended.stderr.contains(&address) && ended.stderr.contains("in use"), "{role}: {}", ended.stderr);
        assert_eq!(ended.stderr.trim_end().lines().filter(|l| l.starts_with("error")).count(), 1, "{}", ended.stderr);
    }
}

#[test]
fn a_port_in_use_ends_a_whole_cluster() {
    let home = Home::new();
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = taken.local_addr().expect("an address").to_string();
    let etcd = trawl_tests::etcd::executable();
    let ended = home.trawl(&["cluster", "up", "--listen", &address, "--etcd-binary", etcd.to_str().expect("a path")]);
    let ended = ended.expect_code(1);
    assert!(ended.stderr.contains(&address) && ended.stderr.contains("in use"), "{}", ended.stderr);
}

#[test]
fn usage() {
    let home = Home::new();
    assert_eq!(says!(home, "no_condition", "scan", "--dataset", "us5"), 2);
    assert_eq!(says!(home, "unknown_command", "scna"), 2);
    assert_eq!(says!(home, "unknown_flag", "scan", "--datset", "us5"), 2);
}

#[test]
fn an_answer_that_cannot_be_compared() {
    let home = Home::new();
    assert_eq!(says!(home, "diff_no_file", "diff", "monday.csv", "tuesday.csv"), 2);
    home.write("bars.csv", "date,close\n2020-01-02,10\n");
    assert_eq!(says!(home, "diff_no_answer", "diff", "bars.csv", "bars.csv"), 2);
    home.write("a.csv", "place,symbol,status,reason\n1,IBM,matched,\n");
    home.write("b.csv", "place,symbol,status,reason\n1,IBM,matchd,\n");
    assert_eq!(says!(home, "diff_bad_status", "diff", "a.csv", "b.csv"), 2);
    assert_eq!(says!(home, "diff_no_identity", "diff", "a.csv", "a.csv"), 0);
    assert_eq!(says!(home, "diff_extension", "diff", "a.txt", "b.csv"), 2);
    assert_eq!(says!(home, "diff_output", "diff", "a.csv", "a.csv", "--output", "a.parquet"), 2);
    home.write("c.json", "{\"identity\": {}, \"rows\": [{\"place\": 1, \"symbol\": 5}");
    assert_eq!(says!(home, "diff_cut_json", "diff", "a.csv", "c.json"), 2);
    home.write("d.parquet", "PAR1");
    assert_eq!(says!(home, "diff_cut_parquet", "diff", "a.csv", "d.parquet"), 2);
}

#[test]
fn a_notification_that_cannot_be_sent() {
    let home = Home::new();
    let scan = |home: &Home, name: &str, more: &[&str]| {
        let arguments = [&["scan", "--dataset", "us5", "--where", "close > 10"], more].concat();
        let ended = home.trawl(&arguments);
        (name.to_owned(), shown(home, &ended), ended.code)
    };
    home.write("short", "hunter2\n");
    home.write("secret", "0123456789abcdef0123456789abcdef\n");
    let file = ["--notify-secret-file", "secret"];
    for (name, text, code) in [
        scan(&home, "notify_no_secret", &["--notify", "http://127.0.0.1:9/"]),
        scan(&home, "notify_short_secret", &["--notify", "http://127.0.0.1:9/", "--notify-secret-file", "short"]),
        scan(&home, "notify_no_secret_file", &["--notify", "http://127.0.0.1:9/", "--notify-secret-file", "absent"]),
        scan(&home, "notify_scheme", &[&["--notify", "file:///etc/passwd"], &file[..]].concat()),
        scan(&home, "notify_credentials", &[&["--notify", "https://me:hunter2@example.org/"], &file[..]].concat()),
        scan(
            &home,
            "notify_ca",
            &[&["--notify", "https://example.org/", "--notify-ca-file", "short"], &file[..]].concat(),
        ),
        scan(&home, "notify_explain", &["--notify", "https://example.org/", "--explain"]),
    ] {
        assert!(!text.contains("hunter2"), "{text}");
        insta::with_settings!({ prepend_module_to_snapshot => false, omit_expression => true },
            { insta::assert_snapshot!(name, text) });
        assert_eq!(code, Some(2));
    }
}

#[test]
fn an_unknown_shell() {
    let home = Home::new();
    assert_eq!(says!(home, "completions_unknown_shell", "completions", "csh"), 2);
}

#[test]
fn why_a_symbol_is_in_the_answer_or_not() {
    let home = Home::new();
    macro_rules! why {
        ($name:literal, $dataset:literal, $condition:literal, $symbol:literal) => {
            says!(
                home,
                $name,
                "scan",
                "--dataset",
                $dataset,
                "--as-of",
                "2013-02-22",
                "--let",
                "slow=sma(close,200)",
                "--where",
                $condition,
                "--why",
                $symbol
            )
        };
    }
    assert_eq!(why!("why_matched", "us5", "within(crosses_above(sma(close,50), slow), 3)", "IBM"), 0);
    assert_eq!(why!("why_not", "us5", "streak(close > slow, 3) and not (close[1] < 0 or rsi() > 20)", "AAPL"), 0);
    assert_eq!(why!("why_unknown", "us5", "close > slow or close < 0", "FB"), 0);
    assert_eq!(why!("why_no_symbol", "us5", "close > slow", "IBN"), 2);
}

#[test]
fn why_across_frames_and_symbols() {
    let home = Home::new();
    let condition = "xs_pct(roc(close, 63), by=sector) > 0.5 and tf('1w', rsi(close[1])) > ref('SPY', rsi())";
    assert_eq!(says!(home, "why_frames", "scan", "--dataset", "demo", "--where", condition, "--why", "SPY"), 0);
    assert_eq!(
        says!(
            home,
            "why_sweep",
            "scan",
            "--dataset",
            "us5",
            "--where",
            "close > n",
            "--sweep",
            "n=1,2",
            "--why",
            "IBM"
        ),
        2
    );
}

#[test]
fn a_panel_that_cannot_be_written() {
    let home = Home::new();
    let panel = ["panel", "--dataset", "us5", "--where", "true"];
    let says = |name: &str, more: &[&str]| {
        let ended = home.trawl(&[&panel[..], more].concat());
        let text = shown(&home, &ended);
        insta::with_settings!({ prepend_module_to_snapshot => false, omit_expression => true }, {
            insta::assert_snapshot!(name.to_owned(), text);
        });
        assert_eq!(ended.code, Some(2), "{name}");
    };
    says("panel_as_json", &["--output", "p.json"]);
    says("panel_without_output", &[]);
    says("panel_wide_to_a_pipe", &["--output", "-", "--wide"]);
    says("panel_split_before_the_bars", &["--output", "p.csv", "--split", "1990-01-02"]);
    says("panel_embargo_without_a_test", &["--output", "p.csv", "--embargo", "5"]);
    says("panel_with_a_column_of_its_own", &["--output", "p.csv", "--select", "close as forward_1"]);
    says("panel_scaler_without_a_test", &["--output", "p.csv", "--scaler", "s.json"]);
}
