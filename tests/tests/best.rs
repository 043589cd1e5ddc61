//! `best`: what each symbol keeps of a sweep is the best of the whole sweep, however the scan is run.

use std::collections::BTreeMap;

use trawl_tests::home::Home;

const SWEEP: [&str; 10] = [
    "--universe",
    "close > sma(close, n)",
    "--sweep",
    "n=5:45:10",
    "--sweep",
    "m=10,30",
    "--sweep",
    "kind=sma,ema",
    "--select",
    "close",
];
const WHERE: &str = "close > ma(close, m, matype=kind)";
const BY: &str = "roc(close, n) - rsi(close, m)";

/// The cells of a CSV by heading, row by row.
fn rows(home: &Home, name: &str) -> Vec<BTreeMap<String, String>> {
    let bytes = home.read(name);
    let mut reader = csv::Reader::from_reader(bytes.as_slice());
    let names: Vec<String> = reader.headers().expect("a header").iter().map(str::to_owned).collect();
    let row = |r: Result<csv::StringRecord, csv::Error>| {
        names.iter().cloned().zip(r.expect("a row").iter().map(str::to_owned)).collect()
    };
    reader.records().map(row).collect()
}

fn run(home: &Home, output: &str, condition: &str, more: &[&str]) {
    let first = ["scan", "--dataset", "market", "--output", output, "--quiet", "--where", condition];
    home.trawl(&[&first[..], &SWEEP, more].concat()).expect_code(0);
}

/// The combination of a row.
fn point(row: &BTreeMap<String, String>) -> [&str; 3] {
    [&row["kind"], &row["m"], &row["n"]]
}

#[test]
fn the_best_of_a_sweep_are_the_best_of_all_its_answers() {
    let home = Home::new();
    home.synth("market", 200, 120);
    // The value itself for every combination: a scan whose condition is always true gives it for all in the universe.
    let columns = ["--select", &format!("{BY} as best"), "--select", "ma(close, m, matype=kind)"];
    run(&home, "values.csv", "1 == 1", &columns);
    run(&home, "answers.csv", WHERE, &[]);
    for (keep, direction) in [("1", "desc"), ("3", "asc"), ("100", "desc")] {
        run(&home, "best.csv", WHERE, &["--best", &format!("{BY} {direction}"), "--keep", keep]);
        let (values, answers, best) = (rows(&home, "values.csv"), rows(&home, "answers.csv"), rows(&home, "best.csv"));
        let answer = |row: &BTreeMap<String, String>| {
            answers.iter().find(|a| a["symbol"] == row["symbol"] && point(a) == point(row)).expect("in the whole sweep")
        };
        let mut by_symbol: BTreeMap<&str, Vec<&BTreeMap<String, String>>> = BTreeMap::new();
        for row in &best {
            let whole = answer(row);
            assert_eq!(
                (&row["status"], &row["reason"], &row["close"]),
                (&whole["status"], &whole["reason"], &whole["close"])
            );
            by_symbol.entry(&row["symbol"]).or_default().push(row);
        }
        assert_eq!(by_symbol.len(), 200, "every symbol has a row");
        let number = |row: &BTreeMap<String, String>| row["best"].parse::<f64>().ok();
        let mut compared = 0;
        for (symbol, kept) in by_symbol {
            let stale = kept[0]["status"] == "stale";
            let wanted = if stale { 1 } else { keep.parse::<usize>().expect("a number").min(20) };
            assert_eq!(kept.len(), wanted, "{symbol}");
            // Every combination that is kept is at least as good as those that are not.
            let mut open: Vec<f64> =
                values.iter().filter(|v| v["symbol"] == symbol && !v["best"].is_empty()).filter_map(number).collect();
            open.sort_by(|a, b| if direction == "asc" { a.total_cmp(b) } else { b.total_cmp(a) });
            let of = |row: &&BTreeMap<String, String>| {
                values.iter().find(|v| v["symbol"] == symbol && point(v) == point(row)).and_then(number)
            };
            let mut mine: Vec<f64> = kept.iter().filter_map(of).collect();
            mine.sort_by(|a, b| if direction == "asc" { a.total_cmp(b) } else { b.total_cmp(a) });
            assert_eq!(mine, open[..mine.len()], "{symbol}");
            assert!(mine.len() == wanted.min(open.len()), "{symbol}: those in the universe come first");
            compared += mine.len();
        }
        assert!(compared > 100, "{compared} numbers");
        // One table: places count all matches, in the order of the value.
        let placed: Vec<&BTreeMap<String, String>> = best.iter().filter(|r| !r["place"].is_empty()).collect();
        assert!(placed.len() > 20);
        for (i, row) in placed.iter().enumerate() {
            assert_eq!(row["place"], (i + 1).to_string());
        }
        let numbers: Vec<f64> = placed.iter().filter_map(|r| number(r)).collect();
        assert!(numbers.is_sorted_by(|a, b| if direction == "asc" { a <= b } else { a >= b }));
    }
}

#[test]
fn the_best_do_not_depend_on_shards_or_threads() {
    let home = Home::new();
    home.synth("market", 200, 120);
    let best = ["--best", BY, "--keep", "2"];
    run(&home, "one.parquet", WHERE, &[&best[..], &["--shards", "1", "--threads", "1"]].concat());
    run(&home, "many.parquet", WHERE, &[&best[..], &["--shards", "per-group", "--threads", "2"]].concat());
    assert_eq!(home.read("one.parquet"), home.read("many.parquet"));
    // Written to a file and read back: words are still words.
    let printed = home.trawl(&["diff", "one.parquet", "many.parquet"]).expect_code(0).stdout;
    assert!(!printed.contains("entered 1"), "{printed}");
}
