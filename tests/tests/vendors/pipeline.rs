//! `trawl bench pipeline`: three ways of fetching the files of a scan from a bucket, in one run.

use trawl_tests::home::Home;
use trawl_tests::process;
use trawl_tests::s3::{BUCKET, S3};

use super::json as parsed;

#[test]
fn files_that_are_fetched_ahead_take_less_time_than_one_after_another() {
    let (home, s3) = (Home::new(), S3::start());
    let mut text = "date,symbol,close\n".to_owned();
    for symbol in 0..640 {
        for day in 2..30 {
            text += &format!("2024-01-{day:02},S{symbol:03},{}\n", 100 + (symbol * 7 + day * day) % 50);
        }
    }
    home.write("bars.csv", &text);
    let root = format!("s3://{BUCKET}/data");
    let trawl = |words: &[&str]| {
        let mut command = home.command(&[words, &["--data-root", &root]].concat());
        process::run(command.envs(s3.variables()))
    };
    trawl(&["data", "import", "bars.csv", "--dataset", "d", "--calendar", "24/7"]).expect_code(0);
    s3.faults(r#"{"delay_s": 0.04}"#);
    let bench = ["bench", "pipeline", "--dataset", "d", "--backend", "cpu", "--threads", "2", "--repeats", "1"];
    let ended = trawl(&[&bench[..], &["--json"]].concat());
    // A slow store takes minutes: each turn is reported as it ends.
    for line in
        ["1 of 4: Prefetched took ", " s, not counted\n", "2 of 4: Sequential took ", "4 of 4: Prefetched took "]
    {
        assert!(ended.stderr.contains(line), "{line}: {}", ended.stderr);
    }
    let report = parsed(ended);
    let seconds = |way: &str| report[way]["median_s"].as_f64().expect("seconds");
    let (sequential, prefetched) = (seconds("sequential"), seconds("prefetched"));
    assert!(seconds("overlapped") > 0.0 && report["files"].as_u64() > Some(4), "{report:#}");
    assert!(prefetched < 0.8 * sequential, "{prefetched} s ahead, {sequential} s one after another: {report:#}");
    let bundled = home.trawl(&["bench", "pipeline", "--dataset", "us5"]).expect_code(2);
    assert!(bundled.stderr.contains("'us5' is not in a bucket\nhelp: "), "{}", bundled.stderr);
}
