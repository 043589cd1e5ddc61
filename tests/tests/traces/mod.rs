//! Traces as a receiver sees them, and as a person sees them without one.

mod device;
mod faults;
mod logs;
mod receivers;
mod sampling;
mod tree;
mod waterfall;

use std::time::Duration;

use trawl_tests::cluster::Cluster;
use trawl_tests::home::Home;
use trawl_tests::process::{self, Ended};
use trawl_tests::{etcd, wait};

/// Spans are exported in batches, some moments apart.
const EXPORT_BOUND: Duration = Duration::from_secs(60);

/// Every process sends to this receiver, soon.
fn sending<'a>(url: &'a str, further: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    let mut variables = vec![("OTEL_EXPORTER_OTLP_ENDPOINT", url), ("OTEL_BSP_SCHEDULE_DELAY", "100")];
    variables.extend_from_slice(further);
    variables
}

/// A cluster of so many workers over a market of 1,200 symbols.
fn cluster(home: &Home, workers: usize, variables: &[(&str, &str)]) -> Cluster {
    home.synth("market", 1200, 100);
    Cluster::start_with(home, workers, &etcd::endpoint(), variables)
}

/// A scan of that market through that cluster.
#[track_caller]
fn scan(home: &Home, cluster: &Cluster, further: &[&str], variables: &[(&str, &str)]) -> Ended {
    let scan = ["scan", "--dataset", "market", "--where", "rsi() > 50", "--coordinator", &cluster.url];
    process::run(home.command(&[&scan[..], further].concat()).envs(variables.iter().copied()))
}

/// The id of the newest scan.
#[track_caller]
fn newest(home: &Home, cluster: &Cluster) -> String {
    let listed = home.trawl(&["list", "--json", "--limit", "1", "--coordinator", &cluster.url]).expect_code(0);
    let line: serde_json::Value = serde_json::from_str(listed.stdout.trim()).expect("a line of JSON");
    line["scan"].as_str().expect("an id").to_owned()
}

/// The output of `trawl scans trace SCAN --json`.
#[track_caller]
fn profile(home: &Home, url: &str, scan: &str) -> serde_json::Value {
    let ended = home.trawl(&["trace", scan, "--json", "--coordinator", url]).expect_code(0);
    serde_json::from_str(&ended.stdout).expect("JSON")
}

#[track_caller]
fn wait_for<T>(what: &str, found: impl FnMut() -> Option<T>) -> T {
    wait::until(EXPORT_BOUND, found).unwrap_or_else(|| panic!("within {EXPORT_BOUND:?} there was no {what}"))
}
