//! Log lines have the id of their trace.

use super::*;
use trawl_tests::otlp::Sink;

#[test]
fn a_refused_shard_is_found_from_its_log_line_and_the_other_way_round() {
    let sink = Sink::start();
    let home = Home::new();
    let elsewhere = home.path("elsewhere").display().to_string();
    std::fs::create_dir(&elsewhere).expect("an empty data root");
    let plain = sending(&sink.url, &[]);
    let mut cluster = cluster(&home, 0, &plain);
    // They see no dataset, so they refuse every shard.
    for format in ["json", "text"] {
        let variables = [&plain[..], &[("TRAWL_LOG_FORMAT", format), ("TRAWL_DATA_ROOT", elsewhere.as_str())]].concat();
        cluster.start_worker(&home, &variables);
    }
    cluster.wait_for_workers(2);
    scan(&home, &cluster, &["--shards", "2"], &plain).expect_code(1);
    let trace = wait_for("whole trace", || sink.whole_trace("scan").filter(|t| t.iter().any(|s| s.name == "submit")));
    let refused: Vec<_> = trace.iter().filter(|s| s.name == "shard" && s.get("trawl.ending") == "refused").collect();
    assert!(!refused.is_empty() && refused.iter().all(|s| s.failed && s.get("error.type") == "refused"), "{trace:#?}");
    assert!(refused.iter().any(|s| s.links.iter().any(|(_, why)| why["trawl.link"] == "retry")), "{refused:#?}");
    assert!(trace.iter().any(|s| s.name == "submit" && s.failed), "the scan failed: {trace:#?}");
    let executes: Vec<&str> = trace.iter().filter(|s| s.name == "execute").map(|s| s.span.as_str()).collect();

    let log = cluster.workers[0].output();
    let lines: Vec<serde_json::Value> = log.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let line = lines.iter().find(|line| line["message"] == "refused a shard").unwrap_or_else(|| panic!("{log}"));
    assert_eq!((line["level"].as_str(), line["trace_id"].as_str()), (Some("WARN"), Some(trace[0].trace.as_str())));
    assert!(executes.contains(&line["span_id"].as_str().expect("an id")), "{line} of {executes:?}");
    assert!(line["timestamp"].as_str().is_some_and(|t| t.ends_with('Z')) && line["target"] == "trawl_worker::service");
    assert_eq!(line["spans"][0]["name"], "execute");
    assert_eq!(line["spans"][0]["trawl.worker"], "w1");
    assert!(line["fields"]["failure"].is_string(), "{line}");

    let log = cluster.workers[1].output();
    let line = log.lines().find(|line| line.contains("refused a shard")).unwrap_or_else(|| panic!("{log}"));
    let id = line.rsplit_once("trace_id=").and_then(|(_, rest)| rest.split_once(" span_id="));
    let (trace_id, span_id) = id.unwrap_or_else(|| panic!("{line}"));
    assert!(trace_id == trace[0].trace && executes.contains(&span_id), "{line}");
}
