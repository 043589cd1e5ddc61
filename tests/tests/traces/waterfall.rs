//! `trawl scans trace` and `--profile`: where the time went, without any receiver.

use super::*;
use trawl_tests::process::Background;

fn lines(profile: &serde_json::Value) -> &Vec<serde_json::Value> {
    profile["shards"].as_array().expect("shards")
}

/// Milliseconds of shards that were late because their worker is slow, by `trawl scans trace`: those of one worker, and of all. Times, not
/// shards: on a busy machine a shard of any worker can lose some milliseconds.
fn lost_to_slow_workers(profile: &serde_json::Value, worker: &str) -> (f64, f64) {
    let slow = || lines(profile).iter().filter(|line| line["straggler"]["cause"] == "slow-worker");
    let took = |line: &serde_json::Value| line["took_ms"].as_f64().unwrap_or(0.0);
    (slow().filter(|line| line["worker"] == worker).map(took).sum(), slow().map(took).sum())
}

#[test]
fn a_slowed_worker_is_shown_as_the_cause() {
    let home = Home::new();
    let mut cluster = cluster(&home, 2, &[]);
    // Warm, so that only the worker is slow.
    scan(&home, &cluster, &[], &[]).expect_code(0);
    cluster.start_worker_as(&home, &[], &["--fault-delay-ms-per-segment", "500"]);
    cluster.wait_for_workers(3);
    scan(&home, &cluster, &["--shards", "per-group"], &[]).expect_code(0);
    let id = newest(&home, &cluster);
    let shown_profile = profile(&home, &cluster.url, &id);
    assert_eq!((shown_profile["state"].as_str(), shown_profile["mode"].as_str()), (Some("done"), Some("cluster")));
    let (by_w3, by_all) = lost_to_slow_workers(&shown_profile, "w3");
    assert!(by_w3 > 0.0 && by_w3 * 2.0 > by_all, "{shown_profile:#}");
    assert_eq!(lines(&shown_profile)[0]["worker"], "w3", "the slowest is first: {shown_profile:#}");
    let others = lines(&shown_profile).iter().filter(|line| line["worker"] != "w3" && line["ending"] == "done");
    for line in others {
        let stages: Vec<&str> = line["stages"].as_array().unwrap().iter().filter_map(|s| s["stage"].as_str()).collect();
        assert_eq!(stages[..2], ["receive", "queue"], "{line:#}");
        assert!(["load", "kernel", "encode"].iter().all(|stage| stages.contains(stage)), "{line:#}");
        assert!(line["bars"].as_u64() > Some(0) && line["device"] == "cpu", "{line:#}");
    }
    let shown = home.trawl(&["trace", &id, "--coordinator", &cluster.url]).expect_code(0).stdout;
    assert!(shown.contains("slow-worker: w3 ") && shown.contains("time by stage"), "{shown}");
    let first = shown.lines().skip_while(|l| !l.contains("ATTEMPT")).nth(1).expect("a shard");
    assert!(first.contains("  w3 "), "{shown}");
    // As wide as the page, whatever that is.
    for columns in ["60", "140"] {
        let mut command = home.command(&["trace", &id, "--all-shards", "--coordinator", &cluster.url]);
        let shown = process::run(command.env("COLUMNS", columns)).expect_code(0).stdout;
        let widest = shown.lines().map(|l| l.chars().count()).max().unwrap_or(0);
        assert!(widest <= columns.parse().unwrap() && widest > 50, "{widest}\n{shown}");
    }
}

#[test]
fn where_the_time_went_is_known_after_a_restart_as_long_as_the_answer_is() {
    let home = Home::new();
    let mut cluster = cluster(&home, 1, &[]);
    scan(&home, &cluster, &[], &[]).expect_code(0);
    let id = newest(&home, &cluster);
    let before = profile(&home, &cluster.url, &id);
    assert!(lines(&before).iter().all(|line| !line["stages"].as_array().unwrap().is_empty()), "{before:#}");
    cluster.coordinator.kill();
    let endpoint = etcd::endpoint();
    let flags = ["coordinator", "--etcd", &endpoint, "--cluster-name", &cluster.name, "--listen", "127.0.0.1:0"];
    // The killed one is still registered until its lease expires.
    let flags = [&flags[..], &["--results-shared"]].concat();
    let mut again = Background::start("coordinator 2", &mut home.command(&flags));
    let url = again.wait_for_line(EXPORT_BOUND, |line| {
        let words = line.strip_prefix("ready coordinator ")?;
        words.split_whitespace().find_map(|word| word.strip_prefix("url=")).map(str::to_owned)
    });
    let after = wait_for("trace", || {
        let shown_profile = home.trawl(&["trace", &id, "--json", "--coordinator", &url]);
        (shown_profile.code == Some(0))
            .then(|| serde_json::from_str::<serde_json::Value>(&shown_profile.stdout).expect("JSON"))
    });
    assert_eq!(after, before);
}

#[test]
fn a_profile_follows_a_scan_here_and_in_a_cluster() {
    let home = Home::new();
    let cluster = cluster(&home, 2, &[]);
    let here = ["scan", "--dataset", "market", "--where", "rsi() > 50", "--profile"];
    let shown = home.trawl(&here).expect_code(0).stdout;
    assert!(
        shown.contains("(embedded): 1 200 symbols") && shown.contains("kernel") && shown.contains("ATTEMPT"),
        "{shown}"
    );
    let shown = scan(&home, &cluster, &["--profile", "--ephemeral"], &[]).expect_code(0).stdout;
    assert!(shown.contains("(cluster): 1 200 symbols") && shown.contains("workers") && shown.contains("w2"), "{shown}");
    // Also of a scan that was not recorded, as long as its coordinator remembers it.
    let shown_profile = profile(&home, &cluster.url, &newest(&home, &cluster));
    assert!(!lines(&shown_profile).is_empty(), "{shown_profile:#}");
    let ended = home.trawl(&["trace", "nothing-1", "--coordinator", &cluster.url]);
    assert_ne!(ended.code, Some(0));
    assert!(
        ended.stderr.contains("no scan 'nothing-1' is known here; 'trawl scans list' shows those that are"),
        "{}",
        ended.stderr
    );
}
