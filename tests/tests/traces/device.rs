//! The stages of a device in the trace and in `trawl scans trace`, on one of the test driver.

use std::collections::BTreeSet;

use super::*;
use trawl_test_driver::Driver;
use trawl_tests::otlp::Sink;

#[test]
fn stages_of_a_device_are_shown_beside_those_of_the_cpu() {
    let home = Home::new();
    if !home.trawl(&["scan", "--help"]).expect_code(0).stdout.contains("--backend") {
        eprintln!("SKIPPED: this build computes on the CPU only");
        return;
    }
    let sink = Sink::start();
    let device = Driver::built().environment("kernel_us=2000");
    let device: Vec<(&str, &str)> =
        device.iter().map(|(name, value)| (*name, value.to_str().expect("UTF-8"))).collect();
    let variables = sending(&sink.url, &device);
    let cluster = cluster(&home, 3, &variables);
    scan(&home, &cluster, &["--shards", "per-group", "--profile"], &variables).expect_code(0);
    let stages = ["h2d", "kernel", "d2h"];
    let trace = wait_for("whole trace with a device in it", || {
        let trace = sink.whole_trace("scan")?;
        let names: BTreeSet<&str> = trace.iter().map(|s| s.name.as_str()).collect();
        stages.iter().chain(&["merge", "stream"]).all(|name| names.contains(name)).then_some(trace)
    });
    for stage in trace.iter().filter(|s| stages.contains(&s.name.as_str())) {
        let execute = trace.iter().find(|s| s.span == stage.parent).expect("a parent");
        assert_eq!(execute.name, "execute");
        // Converted to the host's clock: within what the host measured.
        let inside = stage.start_ns + 50_000_000 >= execute.start_ns && stage.end_ns <= execute.end_ns + 50_000_000;
        assert!(inside, "{stage:#?}\nis not within\n{execute:#?}");
    }
    assert!(trace.iter().any(|s| s.name == "h2d" && !s.get("trawl.bytes").is_empty()), "{trace:#?}");
    let shown = profile(&home, &cluster.url, &newest(&home, &cluster));
    let summed: Vec<&str> =
        shown["stages"].as_array().expect("stages").iter().filter_map(|s| s["stage"].as_str()).collect();
    assert!(stages.iter().all(|stage| summed.contains(stage)), "{shown:#}");
}
