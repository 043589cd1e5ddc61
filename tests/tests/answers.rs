//! One answer: the same bytes however a scan is divided and however many threads run it, in every file format.

use std::io::Read;

use trawl_tests::executable::repository;
use trawl_tests::home::Home;

/// A market with enough groups to be divided into seven shards.
pub const SYMBOLS: u32 = 600;
pub const BARS: u32 = 300;
/// Clauses that use recurrences, windows, a universe, cross-sections of cross-sections, weeks, a reference, ranking with
/// ties and a limit.
pub const CLAUSES: [&str; 18] = [
    "--universe",
    "close > 2 and sma(volume, 20) > 1000",
    "--where",
    "within(crosses_above(ema(close, 12), sma(close, 26)), 5) or rsi() < 35 or adx(14) > 30 \
     or (xs_pct(roc(close, 20)) > 0.9 and tf('1w', rsi(close, 5)) > 50)",
    "--rank",
    "round(rsi(close, 14) / 10) desc, close asc",
    "--limit",
    "40",
    "--select",
    "close",
    "--select",
    "macd().hist as hist",
    "--select",
    "roc(close, 20)",
    "--select",
    "xs_rank(close - xs_quantile(close, 0.5)[1]) as place_by_price",
    "--select",
    "ref('SYN00002', xs_z(volume)) as other",
];
pub const FORMATS: [&str; 4] = ["csv", "json", "parquet", "arrow"];

/// Runs the scan once per format and returns the bytes of all files that it wrote.
#[track_caller]
pub fn answer_files(home: &Home, dataset: &str, label: &str, options: &[&str]) -> Vec<(String, Vec<u8>)> {
    let mut files = Vec::new();
    for format in FORMATS {
        let name = format!("{label}.{format}");
        let mut arguments = vec!["scan", "--dataset", dataset, "--output", &name];
        arguments.extend(CLAUSES);
        arguments.extend(options);
        home.trawl(&arguments).expect_code(0);
        files.push((format.to_owned(), home.read(&name)));
    }
    files.push(("identity".to_owned(), home.read(&format!("{label}.csv.identity.json"))));
    files
}

/// The counts of a JSON answer add up and are not trivial.
#[track_caller]
pub fn check_counts(files: &[(String, Vec<u8>)], symbols: u32) {
    let json = files.iter().find(|(format, _)| format == "json").expect("a JSON answer");
    let answer: serde_json::Value = serde_json::from_slice(&json.1).expect("JSON");
    let counts = answer["counts"].as_object().expect("counts");
    let of = |name: &str| counts[name].as_u64().unwrap_or_else(|| panic!("no count of {name}"));
    let sum: u64 = ["failed", "stale", "outside", "unknown", "matched", "not_matched"].into_iter().map(of).sum();
    assert_eq!((of("symbols"), sum), (u64::from(symbols), u64::from(symbols)), "{counts:?}");
    assert!(of("matched") > 40 && of("not_matched") > 0, "the scan decides nothing: {counts:?}");
    assert_eq!(answer["rows"].as_array().map(Vec::len), Some(symbols as usize));
}

#[test]
fn shards_and_threads_do_not_change_a_byte() {
    let home = Home::new();
    home.synth("market", SYMBOLS, BARS);
    let reference = answer_files(&home, "market", "reference", &["--shards", "1", "--threads", "1"]);
    check_counts(&reference, SYMBOLS);
    let ways: [(&str, &[&str]); 5] = [
        ("default", &[]),
        ("one_shard_two_threads", &["--shards", "1", "--threads", "2"]),
        ("seven_shards", &["--shards", "7", "--threads", "2"]),
        ("a_shard_per_group", &["--shards", "per-group", "--threads", "2"]),
        ("groups_one_thread", &["--shards", "per-group", "--threads", "1"]),
    ];
    for (label, options) in ways {
        for ((format, bytes), (_, wanted)) in answer_files(&home, "market", label, options).iter().zip(&reference) {
            assert!(bytes == wanted, "{label}: the {format} file differs from that of one shard and one thread");
        }
    }
}

#[test]
fn a_past_as_of_sees_no_later_bar() {
    // The same real bars twice: whole, and cut after the as-of.
    let home = Home::new();
    let mut whole = String::new();
    let file = std::fs::File::open(repository().join("tests/golden/talib/IBM.input.csv.gz")).expect("golden bars");
    flate2::read::GzDecoder::new(file).read_to_string(&mut whole).expect("gzip");
    let lines: Vec<&str> = whole.lines().collect();
    let kept = &lines[..lines.len() - 100];
    for (folder, text) in [("whole", whole.clone()), ("cut", format!("{}\n", kept.join("\n")))] {
        std::fs::create_dir(home.path(folder)).expect("a folder");
        let path = home.write(&format!("{folder}/IBM.csv"), &text);
        home.trawl(&["import", path.to_str().expect("a path"), "--dataset", folder]).expect_code(0);
    }
    let rows = |dataset: &str, more: &[&str]| {
        let base = ["scan", "--dataset", dataset, "--where", "close > 0", "--output", "a.csv"];
        let expressions =
            ["--select", "rsi()", "--select", "kama()", "--select", "stddev(close, 20)", "--select", "obv()"];
        home.trawl(&[&base[..], &expressions, more].concat()).expect_code(0);
        String::from_utf8(home.read("a.csv")).expect("text")
    };
    let as_of = kept.last().and_then(|line| line.split(',').next()).expect("a date");
    assert_eq!(rows("whole", &["--as-of", as_of]), rows("cut", &[]));
    assert_ne!(rows("whole", &[]), rows("cut", &[]));
}
