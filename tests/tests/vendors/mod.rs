//! Imports from vendors: Polygon's flat files in folders and buckets, and its HTTP interface.

mod flat;
mod lake;
mod pipeline;
mod quality;
mod renames;
mod rest;
mod secrets;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::Value;
use trawl_tests::home::Home;
use trawl_tests::process::{self, Background, Ended};
use trawl_tests::reference::random::Random;

/// How often an import is killed at random.
const KILLS: usize = 6;
/// Imports that are started for that: some end before they are killed.
const STARTS_MAX: usize = 10 * KILLS;
/// Longest that an import may take that is not killed.
const IMPORT_BOUND: Duration = Duration::from_secs(60);

/// What a command printed as JSON.
#[track_caller]
fn json(ended: Ended) -> Value {
    serde_json::from_str(&ended.expect_code(0).stdout).expect("JSON")
}

/// Id of the newest snapshot of a dataset.
#[track_caller]
fn snapshot(home: &Home, dataset: &str) -> String {
    json(home.trawl(&["data", "inspect", dataset, "--json"]))["snapshot"].as_str().expect("an id").to_owned()
}

/// All bars as CSV.
#[track_caller]
fn bars(home: &Home, dataset: &str) -> String {
    home.trawl(&["data", "export", dataset, "-o", "-"]).expect_code(0).stdout
}

/// The symbols that matched, in an answer as CSV.
fn matched(csv: &str) -> Vec<String> {
    let mut lines = csv.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let header = lines.next().expect("a header");
    let column = |name: &str| header.iter().position(|other| *other == name).expect("a column");
    let (symbol, status) = (column("symbol"), column("status"));
    lines.filter(|line| line[status] == "matched").map(|line| line[symbol].to_owned()).collect()
}

/// Bytes as gzip.
fn gzip(text: &str) -> Vec<u8> {
    let mut writer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    writer.write_all(text.as_bytes()).expect("memory");
    writer.finish().expect("memory")
}

fn files_below(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    entries.flat_map(|path| if path.is_dir() { files_below(&path) } else { vec![path] }).collect()
}

/// That none of these files, and nothing that was printed, contains a secret.
#[track_caller]
fn no_secret(folders: &[&Path], printed: &[&str], secrets: &[&str]) {
    let is_in = |bytes: &[u8], secret: &str| bytes.windows(secret.len()).any(|window| window == secret.as_bytes());
    for secret in secrets {
        for file in folders.iter().flat_map(|folder| files_below(folder)) {
            let bytes = std::fs::read(&file).unwrap_or_default();
            assert!(!is_in(&bytes, secret), "{secret} is in {}", file.display());
        }
        for text in printed {
            assert!(!text.contains(secret), "{secret} was printed: {text}");
        }
    }
}

/// Kills an import into `us` at random times, up to a little more than an import takes, each time after what the one before has left. One
/// that ends before it is killed has the bytes of `expected`, and the next one begins anew; the last one is not killed. Returns what all of
/// them printed. `TRAWL_KILL_SEED` repeats the times.
#[track_caller]
fn killed_at_random(home: &Home, import: impl Fn(&str) -> Command, expected: &str) -> String {
    let nanos = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock after 1970").as_nanos();
    let seed = std::env::var("TRAWL_KILL_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(nanos as u64);
    println!("TRAWL_KILL_SEED={seed}");
    let mut random = Random::new(seed);
    let began = Instant::now();
    let mut printed = process::run(&mut import("timed")).expect_code(0).stderr;
    let span = began.elapsed().as_micros() as u64 * 5 / 4;
    let is_whole = |ended: Ended| {
        let stderr = ended.expect_code(0).stderr;
        assert_eq!(snapshot(home, "us"), snapshot(home, expected), "seed {seed}");
        stderr
    };
    let mut killed = 0;
    for _ in 0..STARTS_MAX {
        let mut running = Background::start("an import", &mut import("us"));
        let until = Instant::now() + Duration::from_micros(random.below(span.max(1)));
        while running.running() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
        if running.running() {
            running.kill();
            printed += &running.output();
            killed += 1;
            if killed == KILLS {
                break;
            }
        } else {
            printed += &is_whole(running.wait(IMPORT_BOUND));
            home.trawl(&["data", "rm", "us"]).expect_code(0);
        }
    }
    assert_eq!(killed, KILLS, "seed {seed}");
    printed + &is_whole(process::run(&mut import("us")))
}
