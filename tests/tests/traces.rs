//! One trace from the command line through the coordinator to every worker.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use trawl_tests::cluster::Cluster;
use trawl_tests::home::Home;
use trawl_tests::otlp::{Sink, Span};
use trawl_tests::{etcd, process, wait};

/// Spans are exported in batches, some seconds apart.
const EXPORT_BOUND: Duration = Duration::from_secs(60);

/// The spans of the one trace that holds the command's root, once nothing in it lacks its parent.
fn whole_trace(sink: &Sink, services: usize) -> Option<Vec<Span>> {
    let all = sink.spans();
    let root = all.iter().find(|s| s.parent.is_empty() && s.name.contains("scan"))?;
    let trace: Vec<Span> = all.iter().filter(|s| s.trace == root.trace).cloned().collect();
    let ids: BTreeSet<&str> = trace.iter().map(|s| s.span.as_str()).collect();
    let whole = trace.iter().all(|s| s.parent.is_empty() || ids.contains(s.parent.as_str()));
    let seen: BTreeSet<&str> = trace.iter().map(|s| s.service.as_str()).collect();
    (whole && seen.len() >= services).then_some(trace)
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
    home.synth("market", 600, 100);
    let cluster = Cluster::start_with(&home, 3, &etcd::endpoint(), &variables);
    let scan = ["scan", "--dataset", "market", "--where", "rsi() > 50", "--coordinator", &cluster.url];
    let mut command = home.command(&[&scan[..], &["--shards", "per-group", "--report", "report.json"]].concat());
    process::run(command.envs(variables)).expect_code(0);

    let trace = wait::until(EXPORT_BOUND, || whole_trace(&sink, 3));
    let trace = trace.unwrap_or_else(|| panic!("no whole trace among {:#?}", sink.spans()));
    let mut by_service: BTreeMap<&str, usize> = BTreeMap::new();
    for span in &trace {
        *by_service.entry(&span.service).or_default() += 1;
    }
    assert_eq!(trace.iter().filter(|s| s.parent.is_empty()).count(), 1, "one root: {trace:#?}");
    assert!(by_service.len() >= 3, "command line, coordinator, worker: {by_service:?}");
    // Every span of the whole run belongs to this trace, but for what servers do on their own.
    let strays: Vec<Span> = sink.spans().into_iter().filter(|s| s.trace != trace[0].trace).collect();
    assert!(strays.iter().all(|s| !s.name.contains("segment") && !s.name.contains("shard")), "{strays:#?}");
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
