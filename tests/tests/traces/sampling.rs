//! Shards that are exported although the head sampler did not sample them: all that were slow, failed or were hedged.

use std::collections::BTreeMap;

use super::*;
use trawl_tests::otlp::{Sink, Span};

/// Whether a shard is one that is always exported.
fn is_notable(span: &Span) -> bool {
    span.name == "shard" && (span.get("trawl.slow") == "true" || span.get("trawl.hedge") == "true" || span.failed)
}

#[test]
fn a_slow_shard_is_kept_with_its_whole_trace_and_quick_ones_are_not() {
    let sink = Sink::start();
    let variables =
        sending(&sink.url, &[("OTEL_TRACES_SAMPLER", "parentbased_traceidratio"), ("OTEL_TRACES_SAMPLER_ARG", "0")]);
    let home = Home::new();
    let mut cluster = cluster(&home, 2, &variables);
    scan(&home, &cluster, &[], &variables).expect_code(0);
    // From now on there is a worker that is slow by any limit.
    cluster.start_worker_as(&home, &variables, &["--fault-delay-ms-per-segment", "400"]);
    cluster.wait_for_workers(3);
    scan(&home, &cluster, &["--shards", "per-group"], &variables).expect_code(0);
    let mut seen = Vec::new();
    let found = trawl_tests::wait::until(EXPORT_BOUND, || {
        seen = sink.spans();
        let trace = sink.whole_trace("scan")?;
        let stages = |of: &Span| trace.iter().filter(|s| s.parent == of.span).count();
        // Where a hedge was faster it was stopped, perhaps before its first segment: whatever it has recorded is
        // exported.
        let slow = |s: &Span| s.name == "execute" && s.get("trawl.worker") == "w3" && stages(s) > 0;
        let complete =
            trace.iter().any(slow) && trace.iter().any(is_notable) && trace.iter().any(|s| s.name == "merge");
        complete.then_some(trace)
    });
    let trace = found.unwrap_or_else(|| panic!("no whole trace was kept; there came: {seen:#?}"));
    assert!(trace.iter().any(|s| s.name == "submit") && trace.iter().any(|s| s.name == "plan"), "{trace:#?}");
    // A hedge links to the attempt that it duplicates.
    for hedge in trace.iter().filter(|s| s.name == "shard" && s.get("trawl.hedge") == "true") {
        let (linked, why) = hedge.links.first().expect("a link");
        assert_eq!(why.get("trawl.link").map(String::as_str), Some("hedge"));
        assert!(
            trace.iter().any(|s| s.name == "shard" && s.span == *linked && s.get("trawl.worker") == "w3"),
            "{hedge:#?}"
        );
    }
    // Nothing else arrived: a trace is here because something in it was slow, perhaps because of a loaded machine.
    let mut traces: BTreeMap<String, Vec<Span>> = BTreeMap::new();
    sink.spans().into_iter().for_each(|s| traces.entry(s.trace.clone()).or_default().push(s));
    assert!(traces.values().all(|spans| spans.iter().any(is_notable)), "{traces:#?}");
}
