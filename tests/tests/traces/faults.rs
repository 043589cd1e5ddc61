//! A receiver that dies, is slow or answers nonsense: scans are not affected, and it is reported.

use std::time::Instant;

use super::*;
use trawl_tests::collectors::{Bad, Does};
use trawl_tests::otlp::Sink;

/// The most that a receiver may delay a command at its end; a second of it is for a loaded machine.
const COST_BOUND: Duration = Duration::from_millis(1_500);

#[test]
fn a_scan_does_not_notice_what_its_receiver_does() {
    let home = Home::new();
    home.synth("market", 1200, 100);
    let run = |name: &str, variables: &[(&str, &str)]| {
        let command = ["scan", "--dataset", "market", "--where", "rsi() > 50", "--quiet", "--output", name];
        let started = Instant::now();
        let ended = process::run(home.command(&command).envs(variables.iter().copied())).expect_code(0);
        (started.elapsed(), ended)
    };
    let (usual, _) = run("plain.csv", &[]);
    let free = format!("http://127.0.0.1:{}", etcd::free_port());
    let bad = [Does::Hangs, Does::Babbles, Does::HangsUp].map(Bad::start);
    let urls = [free.as_str()].into_iter().chain(bad.iter().map(|b| b.url.as_str()));
    for (i, url) in urls.enumerate() {
        for protocol in ["grpc", "http/protobuf"] {
            let variables = sending(url, &[("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)]);
            let name = format!("{i}.csv");
            let (took, ended) = run(&name, &variables);
            assert!(
                took < usual * 3 + COST_BOUND,
                "{took:?} instead of {usual:?} with {url} by {protocol}: {}",
                ended.stderr
            );
            assert_eq!(home.read(&name), home.read("plain.csv"), "{url} by {protocol}");
        }
    }
    assert!(bad.iter().all(|b| b.met() > 0), "each was used: {bad:?}");
}

#[test]
fn a_cluster_does_not_notice_that_its_receiver_dies() {
    let sink = Sink::start();
    let url = sink.url.clone();
    let variables = sending(&url, &[("OTEL_BSP_EXPORT_TIMEOUT", "300"), ("OTEL_BSP_MAX_QUEUE_SIZE", "16")]);
    let home = Home::new();
    let cluster = cluster(&home, 2, &variables);
    // With so short a queue a loaded machine drops spans of any one scan: scans until the coordinator's have come.
    wait_for("span of the coordinator", || {
        scan(&home, &cluster, &["--output", "before.csv"], &variables).expect_code(0);
        sink.spans().iter().any(|span| span.service == "trawl-coordinator").then_some(())
    });
    drop(sink);
    for _ in 0..3 {
        scan(&home, &cluster, &["--output", "after.csv"], &variables).expect_code(0);
        assert_eq!(home.read("after.csv"), home.read("before.csv"));
    }
    // Logged once by each process, and reported nowhere else.
    let failures = |log: &str| log.lines().filter(|line| line.contains("traces cannot be delivered")).count();
    wait_for("word of it", || (failures(&cluster.coordinator.output()) > 0).then_some(()));
    assert_eq!(failures(&cluster.coordinator.output()), 1);
    let log = cluster.coordinator.output();
    assert!(!log.contains("ERROR") && !log.contains("panicked"), "{log}");
}

#[test]
fn a_cluster_does_not_notice_that_its_receiver_hangs() {
    let bad = Bad::start(Does::Hangs);
    let variables = sending(&bad.url, &[("OTEL_BSP_MAX_QUEUE_SIZE", "8"), ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "4")]);
    let home = Home::new();
    let cluster = cluster(&home, 2, &variables);
    let started = Instant::now();
    scan(&home, &cluster, &["--output", "plain.csv"], &[]).expect_code(0);
    let usual = started.elapsed();
    for _ in 0..3 {
        let started = Instant::now();
        scan(&home, &cluster, &["--output", "with.csv"], &variables).expect_code(0);
        let took = started.elapsed();
        assert!(took < usual * 3 + COST_BOUND, "{took:?} instead of {usual:?}");
        assert_eq!(home.read("with.csv"), home.read("plain.csv"));
    }
    assert!(bad.met() > 0);
}
