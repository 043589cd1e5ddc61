//! The tree of one scan: complete, in one trace, with names that a person would search for.

use std::collections::{BTreeMap, BTreeSet};

use super::*;
use trawl_tests::otlp::{Sink, Span};

/// Tolerance for a child that seems to begin before its parent, or to end after it: a thread may be delayed between
/// reading a clock and ending a span.
const SKEW_NS: u64 = 50_000_000;
/// As OTLP numbers kinds.
const SERVER: i32 = 2;
const CLIENT: i32 = 3;

/// The whole trace once it contains every dispatched shard, with what its worker did.
fn whole(sink: &Sink, shards: usize) -> Option<Vec<Span>> {
    let trace = sink.whole_trace("scan")?;
    let count = |name: &str| trace.iter().filter(|s| s.name == name).count();
    let all = count("shard") >= shards && count("execute") >= shards && count("encode") >= shards;
    (all && count("merge") > 0 && count("stream") > 0).then_some(trace)
}

#[test]
fn a_scan_over_three_workers_is_one_trace() {
    let sink = Sink::start();
    let variables = sending(&sink.url, &[("OTEL_EXPORTER_OTLP_HEADERS", "x-secret=sesame"), ("TRAWL_NODE", "rack-7")]);
    let home = Home::new();
    let cluster = cluster(&home, 3, &variables);
    let further = ["--shards", "per-group", "--profile", "--report", "report.json"];
    scan(&home, &cluster, &further, &variables).expect_code(0);
    let report: serde_json::Value = serde_json::from_slice(&home.read("report.json")).expect("a report is JSON");
    let runs = report["shard_runs"].as_array().expect("shard runs");

    let trace = wait_for("whole trace", || whole(&sink, runs.len()));
    assert_eq!(trace.iter().filter(|s| s.parent.is_empty()).count(), 1, "one root: {trace:#?}");
    assert_eq!(report["trace"], trace[0].trace.as_str(), "the report names it");
    let by_id: BTreeMap<&str, &Span> = trace.iter().map(|s| (s.span.as_str(), s)).collect();
    let parent = |span: &Span| by_id.get(span.parent.as_str()).copied();

    // Each span's parent, and its service.
    let edges: BTreeSet<(&str, &str, &str)> = trace
        .iter()
        .map(|s| (s.service.as_str(), parent(s).map_or("", |p| p.name.as_str()), s.name.as_str()))
        .collect();
    let stages = ["receive", "queue", "load", "kernel", "encode", "send"];
    let mut expected = BTreeSet::from([
        ("trawl", "", "scan"),
        ("trawl-coordinator", "scan", "submit"),
        ("trawl-coordinator", "scan", "stream"),
        ("trawl-coordinator", "submit", "plan"),
        ("trawl-coordinator", "submit", "shard"),
        ("trawl-coordinator", "submit", "merge"),
        ("trawl-worker", "shard", "execute"),
    ]);
    expected.extend(stages.map(|stage| ("trawl-worker", "execute", stage)));
    assert_eq!(edges, expected);

    // A parent's time holds its children's.
    for span in &trace {
        assert!(span.start_ns <= span.end_ns, "{span:#?}");
        let Some(parent) = parent(span) else { continue };
        let inside = span.start_ns + SKEW_NS >= parent.start_ns && span.end_ns <= parent.end_ns + SKEW_NS;
        assert!(inside, "{span:#?}\nis not within\n{parent:#?}");
    }

    // Attributes that shards are searched by.
    let shards: Vec<&Span> = trace.iter().filter(|s| s.name == "shard").collect();
    assert_eq!(shards.len(), runs.len(), "one span for each dispatch: {shards:#?}");
    let attributes = [
        "trawl.scan.id",
        "trawl.attempt",
        "trawl.shard",
        "trawl.step",
        "trawl.segments",
        "trawl.symbols",
        "trawl.bars",
        "trawl.bytes",
        "trawl.worker",
        "trawl.device",
        "trawl.cache",
        "trawl.queue_ms",
        "trawl.receive_ms",
        "trawl.threads_ms",
        "trawl.load_ms",
        "trawl.kernel_ms",
        "trawl.encode_ms",
        "trawl.slow_after_ms",
        "trawl.slow",
        "trawl.hedge",
        "trawl.purpose",
        "trawl.ending",
        "rpc.system.name",
        "rpc.method",
        "server.address",
        "server.port",
    ];
    for shard in &shards {
        let missing: Vec<&str> = attributes.into_iter().filter(|key| shard.get(key).is_empty()).collect();
        assert!(missing.is_empty(), "{missing:?} of {shard:#?}");
        assert_eq!((shard.kind, shard.get("rpc.method")), (CLIENT, "trawl.v1.Worker/Execute"));
        assert_eq!(
            (shard.get("trawl.scan.id"), shard.get("server.address")),
            (report["scan"].as_str().unwrap(), "127.0.0.1")
        );
    }
    let named = |key: &str| shards.iter().map(|s| s.get(key).to_owned()).collect::<BTreeSet<_>>();
    assert_eq!(named("trawl.worker"), BTreeSet::from(["w1", "w2", "w3"].map(str::to_owned)), "every worker had a part");
    let symbols: u64 = shards.iter().map(|s| s.get("trawl.symbols").parse::<u64>().unwrap()).sum();
    assert_eq!(symbols, 1200);
    for execute in trace.iter().filter(|s| s.name == "execute") {
        let shard = parent(execute).unwrap();
        assert_eq!((execute.kind, execute.get("trawl.attempt")), (SERVER, shard.get("trawl.attempt")));
        assert_eq!(execute.get("trawl.worker"), shard.get("trawl.worker"));
    }
    assert!(trace.iter().filter(|s| s.name == "kernel").all(|s| s.get("trawl.fusion_group") == "0"));
    assert!(trace.iter().all(|s| !s.failed), "{trace:#?}");

    // Each process is identified, and can be distinguished from the others.
    let instances: BTreeSet<&str> = trace.iter().map(|s| s.resource["service.instance.id"].as_str()).collect();
    assert_eq!(instances.len(), 5, "a command, a coordinator, three workers");
    assert!(trace.iter().all(|s| s.resource["host.name"] == "rack-7" && !s.resource["service.version"].is_empty()));
    // Headers for the receiver are sent to it, and appear nowhere else.
    assert_eq!(sink.secrets(), BTreeSet::from(["sesame".to_owned()]));
    let logs = format!("{}{}", cluster.coordinator.output(), cluster.workers[0].output());
    assert!(!logs.contains("sesame"), "{logs}");
    // Nothing of the scan is in another trace.
    let strays: Vec<Span> = sink.spans().into_iter().filter(|s| s.trace != trace[0].trace).collect();
    assert!(strays.is_empty(), "{strays:#?}");
}

#[test]
fn a_trace_has_a_span_for_each_stage_of_a_shard_and_not_for_each_segment() {
    let sink = Sink::start();
    let variables = sending(&sink.url, &[]);
    let home = Home::new();
    // 157 segments, as 10,000 symbols have.
    home.synth("wide", 10_000, 30);
    let cluster = Cluster::start_with(&home, 2, &etcd::endpoint(), &variables);
    let command = ["scan", "--dataset", "wide", "--where", "close > 0", "--profile", "--coordinator", &cluster.url];
    process::run(home.command(&command).envs(variables.iter().copied())).expect_code(0);
    let trace = wait_for("whole trace", || whole(&sink, 1).filter(|t| t.iter().any(|s| s.name == "merge")));
    let shards = trace.iter().filter(|s| s.name == "shard").count();
    assert!(trace.len() < 300 && trace.len() <= shards * 30, "{} spans of {shards} shards", trace.len());
    // The sums show how much work they contain.
    let kernel =
        trace.iter().find(|s| s.name == "kernel" && !s.get("trawl.count").is_empty()).expect("a summed kernel");
    assert!(kernel.get("trawl.busy_ms").parse::<f64>().unwrap() > 0.0);
}

/// Whether something was wrong with an attempt, or another one was faster.
fn is_notable(shard: &Span) -> bool {
    shard.get("trawl.slow") == "true" || shard.get("trawl.hedge") == "true" || shard.get("trawl.ending") != "done"
}

#[test]
fn the_stages_of_a_quick_shard_are_sums_on_its_span_and_one_in_sixteen_has_them_as_spans() {
    let sink = Sink::start();
    let variables = sending(&sink.url, &[]);
    let home = Home::new();
    let cluster = cluster(&home, 2, &variables);
    // More than sixteen groups.
    scan(&home, &cluster, &["--shards", "per-group", "--report", "report.json"], &variables).expect_code(0);
    let report: serde_json::Value = serde_json::from_slice(&home.read("report.json")).expect("a report is JSON");
    let runs = report["shard_runs"].as_array().expect("shard runs").len();
    let sampled = |s: &Span| s.get("trawl.attempt").parse::<u64>().unwrap().is_multiple_of(16);
    let (trace, shards) = wait_for("whole trace", || {
        let trace = sink.whole_trace("scan")?;
        let count = |name: &str| trace.iter().filter(|s| s.name == name).count();
        let all = count("shard") >= runs && count("execute") >= runs && count("merge") > 0 && count("stream") > 0;
        let executes = trace.iter().filter(|s| s.name == "execute");
        // The execution of each attempt, with the number of its stages.
        let stages = |of: &Span| trace.iter().filter(|s| s.parent == of.span).count();
        let shards: Vec<(Span, usize)> = executes
            .filter_map(|execute| {
                let shard = trace.iter().find(|s| s.span == execute.parent)?;
                Some((shard.clone(), stages(execute)))
            })
            .collect();
        let seen = shards.iter().filter(|(shard, _)| sampled(shard)).all(|(_, stages)| *stages > 0);
        (all && seen).then_some((trace, shards))
    });
    assert!(shards.iter().any(|(shard, _)| sampled(shard)), "{trace:#?}");
    let quick = shards.iter().filter(|(shard, _)| !sampled(shard) && !is_notable(shard));
    let mut seen = 0;
    for (shard, stages) in quick {
        assert_eq!(*stages, 0, "{shard:#?}");
        let ms = |key: &str| shard.get(key).parse::<f64>().unwrap_or_else(|_| panic!("{key} of {shard:#?}"));
        let all = ["receive", "threads", "load", "kernel", "encode"].map(|stage| ms(&format!("trawl.{stage}_ms")));
        let whole = (shard.end_ns - shard.start_ns) as f64 / 1e6;
        // One group is computed by one thread.
        assert!(all.iter().sum::<f64>() <= whole + SKEW_NS as f64 / 1e6, "{all:?} within {whole} ms");
        assert!(shard.get("trawl.h2d_ms").is_empty(), "no device took part");
        seen += 1;
    }
    assert!(seen > 0, "every shard was slow: {trace:#?}");
}

#[test]
fn a_scan_in_this_process_and_one_in_steps_are_whole_traces_too() {
    let sink = Sink::start();
    let variables = sending(&sink.url, &[]);
    let home = Home::new();
    let run = |condition: &str| {
        let command = ["scan", "--dataset", "us5", "--where", condition, "--quiet"];
        process::run(home.command(&command).envs(variables.iter().copied())).expect_code(0);
    };
    run("xs_rank(close) <= 2");
    let trace = wait_for("whole trace", || sink.whole_trace("scan"));
    let names: BTreeSet<&str> = trace.iter().map(|s| s.name.as_str()).collect();
    let expected = ["cross_section", "encode", "kernel", "load", "merge", "plan", "queue", "receive", "scan", "shard"];
    assert_eq!(names, BTreeSet::from(expected), "{trace:#?}");
    assert!(trace.iter().all(|s| s.service == "trawl"));
    let steps: BTreeSet<&str> = trace.iter().filter(|s| s.name == "shard").map(|s| s.get("trawl.step")).collect();
    assert!(steps.len() > 1, "{steps:?}");
}
