//! A cluster that grows and shrinks under load, as a Deployment of Kubernetes does it: workers that are told to go by
//! SIGTERM finish what they have, new ones are given work at once, and no answer changes.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use trawl_tests::cluster::{Cluster, Options};
use trawl_tests::etcd;
use trawl_tests::home::Home;
use trawl_tests::process::Background;
use trawl_tests::reference::random::Random;
use trawl_tests::wait;

use crate::answers::{BARS, CLAUSES, SYMBOLS, answer_files};

/// Longest that anything here may take, beyond what is bounded below.
const BOUND: Duration = Duration::from_secs(120);
/// `--drain-timeout-s`, and what leaving may take beside it: the grace period that the chart gives a worker.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(20);
const LEAVE_MARGIN: Duration = Duration::from_secs(15);
/// How soon a new worker has work.
const SCALE_UP_BOUND: Duration = Duration::from_secs(2);
/// Scans that run at once.
const SCANS: usize = 3;

fn workers_with(flags: &[&str]) -> Options {
    Options { worker: flags.iter().map(|flag| (*flag).to_owned()).collect(), ..Options::default() }
}

#[test]
fn two_of_four_workers_leave_at_random_under_load_and_no_byte_changes() {
    let nanos = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock after 1970").as_nanos();
    let seed = std::env::var("TRAWL_SCALING_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(nanos as u64);
    println!("TRAWL_SCALING_SEED={seed}");
    let mut random = Random::new(seed);
    let home = Home::new();
    home.synth("market", SYMBOLS, BARS);
    let reference = answer_files(&home, "market", "embedded", &[]);
    let drain = DRAIN_TIMEOUT.as_secs().to_string();
    let flags = ["--drain-timeout-s", &drain, "--threads", "1", "--fault-delay-ms-per-segment", "150"];
    let mut cluster = Cluster::start_as(&home, 4, &etcd::endpoint(), &[], workers_with(&flags));

    let url = cluster.url.clone();
    let scans: Vec<Background> = (0..SCANS)
        .map(|number| {
            let (answer, report) = (format!("{number}.json"), format!("{number}.report.json"));
            let mut arguments = vec!["scan", "--dataset", "market", "--coordinator", &url, "--shards", "per-group"];
            arguments.extend(["--output", &answer, "--report", &report]);
            arguments.extend(CLAUSES);
            Background::start(&format!("scan {number}"), &mut home.command(&arguments))
        })
        .collect();
    for leaves in 0..2 {
        // Not before work is in the hands of all of them: the one that leaves has something to finish.
        let busy = wait::until(BOUND, || {
            let seen = cluster.registered();
            (seen.len() == 4 - leaves && seen.iter().all(|(_, shards)| *shards > 0)).then_some(())
        });
        assert!(busy.is_some(), "seed {seed}: not all were busy: {:?}", cluster.registered());
        // A random moment of its work.
        let _ = wait::until(Duration::from_millis(random.below(200)), || None::<()>);
        let worker = cluster.workers.remove(usize::try_from(random.below(4 - leaves as u64)).expect("small"));
        let told = Instant::now();
        worker.signal("TERM");
        worker.wait(DRAIN_TIMEOUT + LEAVE_MARGIN).expect_code(0);
        println!("a worker left in {:.2} s", told.elapsed().as_secs_f64());
    }
    let wanted = &reference.iter().find(|(format, _)| format == "json").expect("JSON").1;
    let mut given = 0;
    for (number, scan) in scans.into_iter().enumerate() {
        scan.wait(BOUND).expect_code(0);
        assert!(home.read(&format!("{number}.json")) == *wanted, "seed {seed}: another answer to scan {number}");
        let report: serde_json::Value =
            serde_json::from_slice(&home.read(&format!("{number}.report.json"))).expect("a report is JSON");
        // Whoever leaves hands in what it has: nobody is lost, and nothing is done twice for it.
        assert_eq!(report["workers_lost"], serde_json::json!([]), "seed {seed}: {report:#}");
        let runs = report["shard_runs"].as_array().cloned().unwrap_or_default();
        given += runs.len();
    }
    assert!(given > SCANS * 8, "seed {seed}: only {given} shards were given out");
}

#[test]
fn a_new_worker_is_given_work_within_two_seconds() {
    let home = Home::new();
    home.synth("market", 2_000, 60);
    let flags = ["--threads", "1", "--fault-delay-ms-per-segment", "400"];
    let mut cluster = Cluster::start_as(&home, 1, &etcd::endpoint(), &[], workers_with(&flags));
    let scan = ["scan", "--dataset", "market", "--where", "close > 0", "--coordinator", &cluster.url.clone()];
    let scan = [&scan[..], &["--shards", "per-group", "--quiet", "--output", "there.csv"]].concat();
    let running = Background::start("scan", &mut home.command(&scan));
    let busy = wait::until(BOUND, || cluster.registered().iter().any(|(_, shards)| *shards > 0).then_some(()));
    assert!(busy.is_some(), "{:?}", cluster.registered());

    cluster.start_worker(&home, &[]);
    let ready = |line: &str| line.starts_with("ready worker ").then(Instant::now);
    let ready = cluster.workers[1].wait_for_line(BOUND, ready);
    let has_work = || cluster.registered().into_iter().find(|(id, shards)| id == "w2" && *shards > 0);
    assert!(wait::until(BOUND, has_work).is_some(), "the new worker was never given work: {:?}", cluster.registered());
    let waited = ready.elapsed();
    println!("a new worker had work after {:.2} s", waited.as_secs_f64());
    assert!(waited < SCALE_UP_BOUND, "the new worker had work only after {waited:?}");
    running.wait(BOUND).expect_code(0);
    home.trawl(&["scan", "--dataset", "market", "--where", "close > 0", "--quiet", "--output", "here.csv"])
        .expect_code(0);
    assert!(home.read("here.csv") == home.read("there.csv"), "another answer than one process gives");
}
