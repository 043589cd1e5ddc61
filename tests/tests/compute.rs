//! `trawl compute` over the golden inputs equals TA-Lib, as a user would check it.

use std::collections::BTreeMap;
use std::io::Read;

use trawl_tests::executable::repository;
use trawl_tests::home::Home;

/// Of `max(1, |golden|)`.
const TOLERANCE: f64 = 1e-9;
const SERIES: [&str; 4] = ["AAPL", "IBM", "EDGE_FLAT", "EDGE_ZEROVOL_DEADBARS"];

/// Expressions with the golden columns that they must equal, and the bars before which an integer output is NA.
const CHECKED: [(&str, &str, usize); 35] = [
    ("sma(close, 30)", "SMA#0.real", 0),
    ("sma(close, 12)", "SMA#1.real", 0),
    ("ema(timeperiod=30)", "EMA#0.real", 0),
    ("ema(close, 12)", "EMA#1.real", 0),
    ("wma(close, 30)", "WMA#0.real", 0),
    ("wma(12)", "WMA#1.real", 0),
    ("rsi()", "RSI#0.real", 0),
    ("rsi(close, 9)", "RSI#1.real", 0),
    ("macd().line", "MACD#0.macd", 0),
    ("macd().signal", "MACD#0.macdsignal", 0),
    ("macd(close, 8, 17, 6).hist", "MACD#1.macdhist", 0),
    ("bbands(close, 20, 2).upper", "BBANDS#0.upperband", 0),
    ("bbands(close, 20, 2).middle", "BBANDS#0.middleband", 0),
    ("bbands(close, 34, 1.5, 2.5, matype='ema').lower", "BBANDS#1.lowerband", 0),
    ("atr(14)", "ATR#0.real", 0),
    ("atr(9)", "ATR#1.real", 0),
    ("stoch(5, 3, 3).k", "STOCH#0.slowk", 0),
    ("stoch(5, 3, 3).d", "STOCH#0.slowd", 0),
    ("adx(14)", "ADX#0.real", 0),
    ("adx(9)", "ADX#1.real", 0),
    ("cci(14)", "CCI#0.real", 0),
    ("obv()", "OBV#0.real", 0),
    ("vwap()", "VWAP#0.real", 0),
    ("mfi(14)", "MFI#0.real", 0),
    ("mfi(9)", "MFI#1.real", 0),
    ("kama(close, 30)", "KAMA#0.real", 0),
    ("max(close, 30)", "MAX#0.real", 0),
    ("min(close, 12)", "MIN#1.real", 0),
    ("donchian(20).upper", "DONCHIAN#0.upperband", 0),
    ("donchian(34).middle", "DONCHIAN#1.middleband", 0),
    ("donchian(34).lower", "DONCHIAN#1.lowerband", 0),
    ("roc(close, 10)", "ROC#0.real", 0),
    ("stddev(close, 5)", "STDDEV#0.real", 0),
    ("stddev(close, 8, 1.5)", "STDDEV#1.real", 0),
    ("cdlengulfing()", "CDLENGULFING#0.integer", 2),
];

/// Columns of a CSV by name; `None` where a cell is empty.
fn columns(bytes: &[u8]) -> BTreeMap<String, Vec<Option<f64>>> {
    let mut reader = csv::Reader::from_reader(bytes);
    let names: Vec<String> = reader.headers().expect("a header").iter().map(str::to_owned).collect();
    let mut columns: Vec<Vec<Option<f64>>> = vec![Vec::new(); names.len()];
    for record in reader.records() {
        for (column, cell) in columns.iter_mut().zip(record.expect("a row").iter()) {
            column.push(if cell.is_empty() { None } else { cell.parse().ok() });
        }
    }
    names.into_iter().zip(columns).collect()
}

fn golden(series: &str) -> BTreeMap<String, Vec<Option<f64>>> {
    let path = repository().join(format!("tests/golden/talib/{series}.csv.gz"));
    let mut text = Vec::new();
    let file = std::fs::File::open(path).expect("golden files are in the repository");
    flate2::read::GzDecoder::new(file).read_to_end(&mut text).expect("gzip");
    columns(&text)
}

fn agree(got: Option<f64>, wanted: Option<f64>) -> bool {
    match (got, wanted) {
        (None, None) => true,
        (Some(g), Some(w)) => g == w || (g - w).abs() <= TOLERANCE * w.abs().max(1.0),
        _ => false,
    }
}

#[test]
fn every_checked_column_equals_talib() {
    for series in SERIES {
        let home = Home::new();
        let input = repository().join(format!("tests/golden/talib/{series}.input.csv.gz"));
        let mut arguments = vec!["compute", "--input", input.to_str().expect("a path"), "--output", "out.csv"];
        let named: Vec<String> = CHECKED.iter().enumerate().map(|(i, (e, ..))| format!("{e} as c{i}")).collect();
        for expression in &named {
            arguments.extend(["--expr", expression]);
        }
        home.trawl(&arguments).expect_code(0);
        let (got, wanted) = (columns(&home.read("out.csv")), golden(series));
        for (i, (expression, column, lookback)) in CHECKED.iter().enumerate() {
            let (got, wanted) = (&got[&format!("c{i}")], &wanted[*column]);
            assert_eq!(got.len(), wanted.len(), "{series}: bars");
            for (bar, (&got, &wanted)) in got.iter().zip(wanted).enumerate() {
                let wanted = if bar < *lookback { None } else { wanted };
                assert!(agree(got, wanted), "{series}, {expression}, bar {bar}: {got:?}, TA-Lib gives {wanted:?}");
            }
        }
    }
}

/// Whatever else the scan depends on, and wherever the history begins in a symbol's bars.
#[test]
fn a_classification_of_a_limited_history_is_that_of_bars_which_are_cut() {
    const BARS: usize = 400;
    let calls =
        ["atc().signal as a", "atc(hl2, 14, cutout=9, strategy_mode=true).signal as b", "atc(len=40).kama_equity as c"];
    let home = Home::new();
    for symbol in ["AAPL", "IBM"] {
        let input = repository().join(format!("tests/golden/talib/{symbol}.input.csv.gz"));
        let file = std::fs::File::open(input).expect("golden files are in the repository");
        let mut text = String::new();
        flate2::read::GzDecoder::new(file).read_to_string(&mut text).expect("gzip");
        let lines: Vec<&str> = text.lines().collect();
        // Histories of different lengths share tiles.
        let from = if symbol == "IBM" { 200 } else { 1 };
        home.write(&format!("{symbol}.csv"), &[&lines[..1], &lines[from..]].concat().join("\n"));
        home.write(&format!("{symbol}.cut.csv"), &[&lines[..1], &lines[lines.len() - BARS..]].concat().join("\n"));
        home.trawl(&["import", &format!("{symbol}.csv"), "--dataset", "mine"]).expect_code(0);
    }
    let select: Vec<String> = calls.iter().map(|c| format!("'{c}'")).collect();
    for condition in ["close > 0", "sma(close, 150) > 0"] {
        for (symbol, as_of) in [("AAPL", "2007-09-20"), ("IBM", "2002-12-12")] {
            let document = format!(
                "dataset = 'mine'\nwhere = '{condition}'\nselect = [{}]\nhistory = {{ bars = {BARS}, origin = true }}\n",
                select.join(", ")
            );
            home.write("scan.toml", &document);
            home.trawl(&["scan", "--file", "scan.toml", "--as-of", as_of, "--output", "scan.json"]).expect_code(0);
            let answer: serde_json::Value = serde_json::from_slice(&home.read("scan.json")).expect("JSON");
            let input = format!("{symbol}.cut.csv");
            let expressions = calls.iter().flat_map(|call| ["--expr", call]);
            let arguments = ["compute", "--input", &input, "--output", "out.csv"].into_iter().chain(expressions);
            home.trawl(&arguments.collect::<Vec<_>>()).expect_code(0);
            let cut = columns(&home.read("out.csv"));
            let rows = answer["rows"].as_array().expect("rows");
            let row = rows.iter().find(|row| row["symbol"] == symbol).expect("a row");
            for name in ["a", "b", "c"] {
                let (got, wanted) = (row[name].as_f64(), cut[name].last().copied().flatten());
                // The test's JSON reader is exact but for the last bit.
                let same = got.zip(wanted).is_some_and(|(g, w)| (g - w).abs() <= f64::EPSILON * w.abs());
                assert!(same, "{symbol} {name}, {condition}: {got:?}, of cut bars {wanted:?}");
            }
        }
    }
}

#[test]
fn a_symbol_with_too_few_bars_for_a_classification_is_unknown_and_says_why() {
    let home = Home::new();
    let condition = "atc(cutout=300).trend >= -1";
    home.trawl(&["scan", "--dataset", "us5", "--where", condition, "--output", "a.json"]).expect_code(0);
    let answer: serde_json::Value = serde_json::from_slice(&home.read("a.json")).expect("JSON");
    let rows = answer["rows"].as_array().expect("rows");
    let of = |symbol: &str| rows.iter().find(|row| row["symbol"] == symbol).expect("a row");
    assert_eq!(
        (&of("FB")["status"], &of("FB")["reason"]),
        (&"unknown".into(), &"too short: 196 bars, 301 needed".into())
    );
    assert_eq!(of("IBM")["status"], "matched");
}

#[test]
fn what_is_written_is_what_was_promised() {
    let home = Home::new();
    home.write(
        "bars.csv",
        "I,Price,Volume,My Factor\n2020-01-02,10,5,0.1\n2020-01-03,,5,0.2\n2020-01-06,0,5,0.3\nlast,12.5,5,\n",
    );
    let ended = home
        .trawl(&[
            "compute",
            "--input",
            "bars.csv",
            "--map",
            "close=price",
            "--expr",
            "close",
            "--expr",
            "close > 11 as above, \"eleven\"",
            "--expr",
            "close",
        ])
        .code;
    assert_eq!(ended, Some(2), "a name cannot contain a comma");

    let ended = home.trawl(&[
        "compute",
        "--input",
        "bars.csv",
        "--map",
        "close=price",
        "--expr",
        "close",
        "--expr",
        "close > 11 as high_now",
        "--expr",
        "sma(close, 2)",
        "--expr",
        "volume / close",
    ]);
    let ended = ended.expect_code(0);
    assert_eq!(
        ended.stdout,
        "I,close,high_now,\"sma(close, 2)\",volume / close\n\
         2020-01-02,10,0,,0.5\n\
         2020-01-03,,,,\n\
         2020-01-06,0,0,,\n\
         last,12.5,1,6.25,0.4\n"
    );
}

#[test]
fn a_column_of_the_file_is_a_series() {
    let home = Home::new();
    home.write("bars.csv", "date,close,Spread\n1,10,1\n2,11,2\n3,12,3\n");
    let ended = home.trawl(&["compute", "--input", "bars.csv", "--expr", "sma(spread, 3) + close[2]"]).expect_code(0);
    assert_eq!(ended.stdout.lines().last(), Some("3,12"));
}

#[test]
fn a_scan_that_needs_too_much_memory_is_refused_before_anything_runs() {
    let home = Home::new();
    let mut bars = String::from("i,close\n");
    for i in 0..100_000 {
        bars.push_str(&format!("{i},{}\n", i % 97 + 1));
    }
    home.write("long.csv", &bars);
    let many: Vec<String> = (0..200).map(|k| format!("highest(close + {k}, 100000)")).collect();
    let mut arguments = vec!["compute", "--input", "long.csv"];
    arguments.extend(many.iter().flat_map(|e| ["--expr", e.as_str()]));
    let ended = home.trawl(&arguments).expect_code(2);
    assert!(ended.stderr.contains("bytes of memory besides the bars") && ended.stdout.is_empty(), "{}", ended.stderr);
    home.trawl(&["compute", "--input", "long.csv", "--expr", "highest(close, 100000)", "--output", "out.csv"])
        .expect_code(0);
}
