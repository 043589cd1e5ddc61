//! Workers report what they hold, work goes to those that hold its data, and the figures are shown.

use std::collections::BTreeMap;
use std::time::Duration;

use trawl_tests::cluster::{Cluster, Options};
use trawl_tests::etcd;
use trawl_tests::home::Home;
use trawl_tests::process;
use trawl_tests::s3::{BUCKET, S3};
use trawl_tests::scrape::{Samples, address_of};
use trawl_tests::wait;

/// Longest that a worker's report may take.
const BOUND: Duration = Duration::from_secs(30);
/// Segments of the market.
const SEGMENTS: u64 = 16;

/// The workers by id, as `trawl workers --json` prints them.
fn listed(home: &Home, url: &str) -> BTreeMap<String, serde_json::Value> {
    let printed = home.trawl(&["workers", "--json", "--coordinator", url]).expect_code(0).stdout;
    let line = |line: &str| -> (String, serde_json::Value) {
        let worker: serde_json::Value = serde_json::from_str(line).expect("JSON");
        (worker["worker"].as_str().expect("an id").to_owned(), worker)
    };
    printed.lines().map(line).collect()
}

/// How many segments had their bars at a place, summed over the workers.
fn from(workers: &BTreeMap<String, serde_json::Value>, place: &str) -> u64 {
    workers.values().filter_map(|worker| worker["loads"][place].as_u64()).sum()
}

#[test]
fn a_second_scan_of_the_same_bars_goes_to_the_workers_that_hold_them() {
    let (home, s3) = (Home::new(), S3::start());
    home.synth("market", 1_000, 300);
    let report = home.path("report.json").display().to_string();
    let scan = |columns: &str, there: &[&str]| {
        let condition = format!("{columns} > sma({columns}, 20)");
        let words =
            ["scan", "--dataset", "market", "--where", &condition, "--quiet", "--format", "csv", "--output", "-"];
        home.trawl(&[&words[..], there].concat()).expect_code(0).stdout
    };
    let reported =
        || -> serde_json::Value { serde_json::from_slice(&std::fs::read(&report).expect("a report")).expect("JSON") };
    let expected = ["close", "close * 2"].map(|columns| scan(columns, &[]));

    let cache = |name: &str| home.path(name).display().to_string();
    let variables = |name: &str| {
        let mut variables = s3.variables();
        variables.push(("TRAWL_DATA_ROOT".to_owned(), format!("s3://{BUCKET}/data")));
        variables.push(("TRAWL_DATA_CACHE".to_owned(), cache(name)));
        variables
    };
    fn borrowed(variables: &[(String, String)]) -> Vec<(&str, &str)> {
        variables.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect()
    }
    let synth = ["data", "synth", "--symbols", "1000", "--bars", "300", "--seed", "7", "--dataset", "market"];
    let mut command = home.command(&synth);
    command.envs(variables("importer"));
    process::run(&mut command).expect_code(0);

    // The first worker is slow, but a load from the store takes much longer: it is worth waiting for it.
    let worker = ["--threads", "1", "--metrics", "127.0.0.1:0"].map(str::to_owned);
    let options = Options { worker: worker.into(), ..Options::default() };
    let mut cluster = Cluster::start_as(&home, 0, &etcd::endpoint(), &borrowed(&variables("c")), options);
    cluster.start_worker_as(&home, &borrowed(&variables("w1")), &["--fault-delay-ms-per-segment", "15"]);
    cluster.start_worker(&home, &borrowed(&variables("w2")));
    let metrics: Vec<String> = cluster.workers.iter_mut().map(address_of).collect();
    cluster.wait_for_workers(2);
    let url = cluster.url.clone();
    let both = || listed(&home, &url).values().all(|worker| worker["loads"]["memory"] == 0);
    assert!(wait::until(BOUND, || both().then_some(())).is_some(), "workers report before their first shard");
    s3.faults(r#"{"delay_s": 0.5}"#);
    let there = ["--coordinator", url.as_str(), "--report", report.as_str()];
    assert_eq!(scan("close", &there), expected[0]);
    let (first, run) = (listed(&home, &url), reported());
    assert_eq!([from(&first, "memory"), from(&first, "disk"), from(&first, "data_root")], [0, 0, SEGMENTS]);
    assert!(first.values().all(|worker| worker["loads"]["hidden"].as_f64() > Some(0.0)), "{first:?}");
    let computed = run["segment_runs"].as_array().expect("a list").iter();
    let held: BTreeMap<u64, &str> = computed
        .map(|run| (run["segment"].as_u64().expect("a segment"), run["worker"].as_str().expect("a worker")))
        .collect();
    assert_eq!(held.len() as u64, SEGMENTS);

    // All work goes to where its bars are in memory, also while the faster worker idles.
    assert_eq!(scan("close * 2", &there), expected[1]);
    let run = reported();
    let dispatched = run["shard_runs"].as_array().expect("a list").iter().filter(|run| run["purpose"] == "work");
    for shard in dispatched {
        let segments = shard["segments"].as_array().expect("a list");
        assert!(segments.iter().all(|segment| shard["worker"] == held[&segment.as_u64().expect("a segment")]), "{run}");
    }
    // A second attempt at a straggler, on a machine that is slow for other reasons, loads what it does not hold.
    if run["hedges"] == 0 {
        // A worker's report comes behind its last result.
        let counted = || {
            let now = listed(&home, &url);
            [from(&now, "memory"), from(&now, "data_root")]
        };
        let all = wait::until(BOUND, || (counted() == [SEGMENTS, SEGMENTS]).then_some(()));
        assert!(all.is_some(), "{:?}", counted());
        let hits = |address: &String| Samples::of(address).get("trawl_cache_hits_total{level=\"memory\"}");
        assert_eq!(metrics.iter().map(hits).sum::<f64>(), SEGMENTS as f64);
    }

    let second = listed(&home, &url);

    // A coordinator that begins knows nothing of all that; the workers report it.
    cluster.replace_coordinator(&home, &borrowed(&variables("c")));
    cluster.wait_for_workers(2);
    let url = cluster.url.clone();
    let again = wait::until(BOUND, || (from(&listed(&home, &url), "memory") == from(&second, "memory")).then_some(()));
    assert!(again.is_some(), "{:?}", listed(&home, &url));
    let table = home.trawl(&["workers", "--coordinator", &url]).expect_code(0).stdout;
    assert!(table.contains("BARS FROM") && table.contains("memory ") && table.contains("%, data root "), "{table}");
}
