//! Receivers from other projects understand what is sent, and the standard variables have their effect.

use std::collections::BTreeSet;

use super::*;
use trawl_tests::collectors::{PrintedSpan, Rotel};
use trawl_tests::otlp::Sink;
use trawl_tests::tls_receiver::{Asked, TlsReceiver};

#[test]
fn a_receiver_of_another_project_accepts_the_same_tree_by_grpc_and_by_http() {
    let Some(rotel) = Rotel::start() else { return };
    let home = Home::new();
    home.synth("market", 1200, 100);
    for (url, protocol) in [(&rotel.grpc, "grpc"), (&rotel.http, "http/protobuf")] {
        let before: BTreeSet<String> = rotel.spans().into_iter().map(|s| s.trace).collect();
        let variables =
            sending(url, &[("OTEL_EXPORTER_OTLP_PROTOCOL", protocol), ("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip")]);
        let cluster = Cluster::start_with(&home, 3, &etcd::endpoint(), &variables);
        scan(&home, &cluster, &["--shards", "per-group"], &variables).expect_code(0);
        let trace = wait::until(EXPORT_BOUND, || newer(&rotel, &before));
        let trace = trace.unwrap_or_else(|| panic!("by {protocol} rotel received no whole trace:\n{}", rotel.output()));
        let services: BTreeSet<&str> = trace.iter().map(|s| s.service.as_str()).collect();
        assert_eq!(services, BTreeSet::from(["trawl", "trawl-coordinator", "trawl-worker"]), "{protocol}");
        let shard = trace.iter().find(|s| s.name == "shard").expect("a shard");
        assert_eq!(shard.kind, "SPAN_KIND_CLIENT");
        for attribute in
            ["trawl.scan.id: Str(", "trawl.worker: Str(w", "trawl.symbols: Int(", "rpc.system.name: Str(grpc)"]
        {
            assert!(shard.attributes.iter().any(|a| a.starts_with(attribute)), "{attribute} of {shard:#?}");
        }
        let execute = trace.iter().find(|s| s.name == "execute").expect("a worker's span");
        assert_eq!(execute.kind, "SPAN_KIND_SERVER");
    }
}

/// The whole trace of a scan that rotel had not printed before, once the workers' stages are in it.
fn newer(rotel: &Rotel, before: &BTreeSet<String>) -> Option<Vec<PrintedSpan>> {
    let all = rotel.spans();
    let root = all.iter().find(|s| s.name == "scan" && s.parent.is_empty() && !before.contains(&s.trace))?;
    let trace: Vec<PrintedSpan> = all.iter().filter(|s| s.trace == root.trace).cloned().collect();
    let ids: BTreeSet<&str> = trace.iter().map(|s| s.span.as_str()).collect();
    let whole = trace.iter().all(|s| s.parent.is_empty() || ids.contains(s.parent.as_str()));
    let named = |name: &str| trace.iter().any(|s| s.name == name);
    (whole && named("execute") && named("kernel") && named("merge") && named("stream")).then_some(trace)
}

fn embedded(home: &Home, variables: &[(&str, &str)]) -> Ended {
    let command = ["scan", "--dataset", "us5", "--where", "close > 0", "--quiet"];
    process::run(home.command(&command).envs(variables.iter().copied())).expect_code(0)
}

#[test]
fn http_uses_tls_with_the_trusted_ca_and_the_headers_of_the_variables() {
    let home = Home::new();
    let receiver = TlsReceiver::start(&home.data_root());
    let ca = receiver.ca.display().to_string();
    let variables = sending(
        &receiver.url,
        &[
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20sesame"),
            ("OTEL_SERVICE_NAME", "screening"),
            ("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=lab"),
        ],
    );
    let trusting = [&variables[..], &[("OTEL_EXPORTER_OTLP_CERTIFICATE", ca.as_str())]].concat();
    let ended = embedded(&home, &trusting);
    // A scan that takes long is sent in several requests.
    let holds = |text: &str| {
        let is_in = |asked: &Asked| asked.body.windows(text.len()).any(|window| window == text.as_bytes());
        receiver.asked().iter().any(is_in)
    };
    for text in ["scan", "kernel", "screening", "lab", "trawl.scan.mode"] {
        wait_for(text, || holds(text).then_some(()));
    }
    for asked in receiver.asked() {
        assert_eq!(asked.line, "POST /v1/traces HTTP/1.1");
        let header = |name: &str| asked.headers.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str());
        assert_eq!(header("content-type"), Some("application/x-protobuf"));
        assert_eq!(header("authorization"), Some("Bearer sesame"));
    }
    assert!(!holds("trawl-worker") && !format!("{}{}", ended.stdout, ended.stderr).contains("sesame"));
    // Nothing is sent to an untrusted receiver, and the scan is not affected.
    let before = receiver.asked().len();
    let ended = embedded(&home, &variables);
    assert_eq!(receiver.asked().len(), before);
    assert!(
        ended.stderr.contains("traces cannot be delivered") && !ended.stderr.contains("sesame"),
        "{}",
        ended.stderr
    );
}

#[test]
fn signals_that_the_variables_turn_off_are_not_sent() {
    let sink = Sink::start();
    let home = Home::new();
    for off in
        [[("OTEL_SDK_DISABLED", "true")], [("OTEL_TRACES_EXPORTER", "none")], [("OTEL_TRACES_SAMPLER", "always_off")]]
    {
        embedded(&home, &sending(&sink.url, &off));
    }
    embedded(&home, &sending(&sink.url, &[]));
    wait_for("whole trace", || sink.whole_trace("scan"));
    let traces: BTreeSet<String> = sink.spans().into_iter().map(|s| s.trace).collect();
    assert_eq!(traces.len(), 1, "only of the last scan: {:#?}", sink.spans());
}

#[test]
fn without_the_variables_nothing_is_exported_and_nothing_printed() {
    let home = Home::new();
    let ended = embedded(&home, &[]);
    let printed = format!("{}{}", ended.stdout, ended.stderr).to_lowercase();
    assert!(!printed.contains("otel") && !printed.contains("opentelemetry") && !printed.contains("trace"), "{printed}");
}

#[test]
fn a_variable_with_an_invalid_value_is_reported_and_the_scan_runs() {
    let home = Home::new();
    for (name, value, expected) in [
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json", "'grpc' or 'http/protobuf' is expected"),
        ("OTEL_TRACES_EXPORTER", "zipkin", "'otlp' or 'none' is expected"),
        ("OTEL_EXPORTER_OTLP_CERTIFICATE", "nowhere.pem", "nowhere.pem, which cannot be used"),
        ("OTEL_EXPORTER_OTLP_CLIENT_KEY", "key.pem", "cannot be used alone"),
        ("TRAWL_LOG_FORMAT", "xml", "'text' or 'json' is expected"),
    ] {
        let ended = embedded(&home, &sending("http://127.0.0.1:1", &[(name, value)]));
        assert!(ended.stderr.contains(name) && ended.stderr.contains(expected), "{name}: {}", ended.stderr);
    }
}
