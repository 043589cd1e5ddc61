//! One trace from the command line through the coordinator to every worker.

use std::collections::BTreeSet;
use std::time::Duration;

use trawl_tests::cluster::Cluster;
use trawl_tests::home::Home;
use trawl_tests::otlp::{Sink, Span};
use trawl_tests::{etcd, process, wait};

/// Spans are exported in batches, some seconds apart.
const EXPORT_BOUND: Duration = Duration::from_secs(60);

/// The spans of the one trace that holds the command's root, once nothing in it lacks its parent and every segment has
/// been loaded and computed in it.
fn whole_trace(sink: &Sink, segments: usize) -> Option<Vec<Span>> {
    let all = sink.spans();
    let root = all.iter().find(|s| s.parent.is_empty() && s.name == "scan")?;
    let trace: Vec<Span> = all.iter().filter(|s| s.trace == root.trace).cloned().collect();
    let ids: BTreeSet<&str> = trace.iter().map(|s| s.span.as_str()).collect();
    let no_orphan = trace.iter().all(|s| s.parent.is_empty() || ids.contains(s.parent.as_str()));
    let named = |name: &str| trace.iter().filter(|s| s.service == "trawl-worker" && s.name == name).count();
    (no_orphan && named("load") >= segments && named("compute") >= segments).then_some(trace)
}

#[test]
fn a_scan_over_three_workers_is_one_trace() {
    let sink = Sink::start();
    let variables = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", sink.url.as_str()),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
        ("OTEL_BSP_SCHEDULE_DELAY", "200"),
    ];
    let home = Home::new();
    home.synth("market", 1200, 100);
    let cluster = Cluster::start_with(&home, 3, &etcd::endpoint(), &variables);
    let scan = ["scan", "--dataset", "market", "--where", "rsi() > 50", "--coordinator", &cluster.url];
    let mut command = home.command(&[&scan[..], &["--shards", "per-group", "--report", "report.json"]].concat());
    process::run(command.envs(variables)).expect_code(0);
    let report: serde_json::Value = serde_json::from_slice(&home.read("report.json")).expect("a report is JSON");
    let runs = report["shard_runs"].as_array().expect("shard runs");
    let segments = usize::try_from(report["segments"].as_u64().expect("a count")).expect("a small count");

    let trace = wait::until(EXPORT_BOUND, || whole_trace(&sink, segments));
    let trace = trace.unwrap_or_else(|| panic!("no whole trace of {segments} segments among {:#?}", sink.spans()));
    assert_eq!(trace.iter().filter(|s| s.parent.is_empty()).count(), 1, "one root: {trace:#?}");
    let services: BTreeSet<&str> = trace.iter().map(|s| s.service.as_str()).collect();
    assert_eq!(services, BTreeSet::from(["trawl", "trawl-coordinator", "trawl-worker"]));
    let shards: Vec<&Span> = trace.iter().filter(|s| s.name == "shard").collect();
    assert_eq!(shards.len(), runs.len(), "one span for each dispatch: {shards:#?}");
    let traced: BTreeSet<&str> = shards.iter().map(|s| s.worker.as_str()).collect();
    let reported: BTreeSet<&str> = runs.iter().filter_map(|r| r["worker"].as_str()).collect();
    assert_eq!(traced, reported);
    assert_eq!(traced, BTreeSet::from(["w1", "w2", "w3"]), "every worker had a part");
    // Nothing of the scan is in another trace.
    let strays: Vec<Span> = sink.spans().into_iter().filter(|s| s.trace != trace[0].trace).collect();
    assert!(
        strays.iter().all(|s| !["scan", "submit", "shard", "load", "compute"].contains(&s.name.as_str())),
        "{strays:#?}"
    );
}

#[test]
fn without_the_variables_nothing_is_exported_and_nothing_said() {
    let home = Home::new();
    let ended = home.trawl(&["scan", "--dataset", "us5", "--where", "close > 0"]).expect_code(0);
    let said = format!("{}{}", ended.stdout, ended.stderr).to_lowercase();
    assert!(!said.contains("otel") && !said.contains("opentelemetry"), "{said}");
}

#[test]
fn a_collector_that_is_not_there_does_not_fail_a_scan() {
    let home = Home::new();
    let url = format!("http://127.0.0.1:{}", etcd::free_port());
    let mut command = home.command(&["scan", "--dataset", "us5", "--where", "close > 0"]);
    process::run(command.env("OTEL_EXPORTER_OTLP_ENDPOINT", url)).expect_code(0);
}
