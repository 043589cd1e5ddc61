//! `trawl bench pipeline`: three ways of fetching the files of a scan from a bucket, in one run.

use std::ffi::OsString;

use trawl_test_driver::{Driver, REPORT_VARIABLE};
use trawl_tests::home::Home;
use trawl_tests::process::{self, Ended};
use trawl_tests::s3::{BUCKET, S3};

use super::json as parsed;

/// A bucket with daily bars of symbols, and what runs `trawl` on it.
struct Bucket {
    home: Home,
    s3: S3,
}

impl Bucket {
    fn new() -> Self {
        let bucket = Self { home: Home::new(), s3: S3::start() };
        let mut text = "date,symbol,close\n".to_owned();
        for symbol in 0..1_000 {
            for day in 2..30 {
                text += &format!("2024-01-{day:02},S{symbol:04},{}\n", 100 + (symbol * 7 + day * day) % 50);
            }
        }
        bucket.home.write("bars.csv", &text);
        bucket.trawl(&["data", "import", "bars.csv", "--dataset", "d", "--calendar", "24/7"], &[]).expect_code(0);
        bucket.s3.faults(r#"{"delay_s": 0.04}"#);
        bucket
    }

    fn trawl(&self, words: &[&str], environment: &[(&str, OsString)]) -> Ended {
        let root = format!("s3://{BUCKET}/data");
        let mut command = self.home.command(&[words, &["--data-root", &root]].concat());
        process::run(command.envs(self.s3.variables()).envs(environment.iter().cloned()))
    }
}

/// That files arrived while others were computed, in turns of that way and in no other. Whether one does in every turn depends on which threads
/// run: there is little to compute.
#[track_caller]
fn fetched_ahead(report: &serde_json::Value) {
    let ahead = |way: &str| -> Vec<u64> {
        let turns = report[way]["fetched_ahead"].as_array().expect("counts");
        turns.iter().map(|count| count.as_u64().expect("a count")).collect()
    };
    for way in ["sequential", "overlapped"] {
        assert!(ahead(way).iter().all(|count| *count == 0), "{way}: {report:#}");
    }
    assert!(ahead("prefetched").iter().any(|count| *count > 0), "{report:#}");
}

#[test]
fn files_that_are_fetched_ahead_take_less_time_than_one_after_another() {
    let bucket = Bucket::new();
    let bench = ["bench", "pipeline", "--dataset", "d", "--backend", "cpu", "--threads", "2", "--repeats", "3"];
    let ended = bucket.trawl(&[&bench[..], &["--json"]].concat(), &[]);
    // A slow store takes minutes: each turn is reported as it ends.
    for line in
        ["1 of 10: Prefetched took ", " s, not counted\n", "2 of 10: Sequential took ", "10 of 10: Prefetched took "]
    {
        assert!(ended.stderr.contains(line), "{line}: {}", ended.stderr);
    }
    let report = parsed(ended);
    // The least of three: another process may take the CPU in any of them.
    let seconds = |way: &str| {
        let all = report[way]["all_s"].as_array().expect("seconds").iter().filter_map(serde_json::Value::as_f64);
        all.fold(f64::INFINITY, f64::min)
    };
    let (sequential, prefetched) = (seconds("sequential"), seconds("prefetched"));
    fetched_ahead(&report);
    assert!(seconds("overlapped") > 0.0 && report["files"].as_u64() > Some(4), "{report:#}");
    assert!(prefetched < 0.8 * sequential, "{prefetched} s ahead, {sequential} s one after another: {report:#}");
    assert_eq!((&report["device"], &report["simulated"]), (&serde_json::Value::Null, &false.into()));
    let bundled = bucket.home.trawl(&["bench", "pipeline", "--dataset", "us5"]).expect_code(2);
    assert!(bundled.stderr.contains("'us5' is not in a bucket\nhelp: "), "{}", bundled.stderr);
}

/// The device is that of the test driver: it computes, and its clock is modelled.
#[test]
fn a_scan_from_a_bucket_is_computed_on_a_device_while_the_next_files_are_fetched() {
    let bucket = Bucket::new();
    let mut environment = Driver::built().environment("memory=200000000");
    environment.push((REPORT_VARIABLE, bucket.home.path("driver.jsonl").into_os_string()));
    let condition = "crosses_above(macd(close, 5, 9, 4).line, macd(close, 5, 9, 4).signal)";
    let scan = |backend: &str, name: &str| {
        let words = ["scan", "--dataset", "d", "--where", condition, "--backend", backend, "--output", name, "--quiet"];
        bucket.trawl(&words, &environment).expect_code(0);
        bucket.home.read(name)
    };
    assert_eq!(scan("cpu", "cpu.csv"), scan("cuda", "device.csv"), "files, MACD and rows of the device are the CPU's");
    let bench = ["bench", "pipeline", "--dataset", "d", "--where", condition, "--backend", "cuda", "--threads", "2"];
    let ended = bucket.trawl(&[&bench[..], &["--repeats", "1", "--json"]].concat(), &environment);
    // Every turn had the same answer, or the benchmark refuses.
    let found = parsed(ended);
    assert_eq!((&found["backend"], &found["simulated"]), (&"cuda".into(), &true.into()), "{found:#}");
    assert!(found["device"].as_str().is_some_and(|name| name.contains("(emulated)")), "{found:#}");
    fetched_ahead(&found);
    let lines = String::from_utf8(bucket.home.read("driver.jsonl")).expect("text");
    let did: serde_json::Value = serde_json::from_str(lines.lines().last().expect("a line")).expect("JSON");
    assert!(did["launches"].as_u64() >= Some(4) && did["bytes_in"].as_u64() > Some(100_000), "{did}");
    let shown = bucket.trawl(&[&bench[..], &["--repeats", "1"]].concat(), &environment).expect_code(0).stdout;
    assert!(shown.starts_with("SIMULATED: the device's clock is modelled"), "{shown}");
}
