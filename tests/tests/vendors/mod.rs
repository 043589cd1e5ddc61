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

use serde_json::Value;
use trawl_tests::home::Home;
use trawl_tests::process::Ended;

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
