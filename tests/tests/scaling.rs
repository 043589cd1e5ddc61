//! A cluster that is scaled up and down under load, as a Deployment of Kubernetes does it: workers that get SIGTERM
//! finish what they have, new ones are given work at once, and no answer changes.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use trawl_tests::cluster::{Cluster, Options};
use trawl_tests::etcd;
use trawl_tests::home::Home;
use trawl_tests::process::Background;
use trawl_tests::reference::random::Random;
use trawl_tests::wait;

use crate::answers::SYMBOLS;

/// Longest that anything here may take, beyond what is bounded below.
const BOUND: Duration = Duration::from_secs(120);
/// `--drain-timeout-s`, and how much longer leaving may take: the grace period that the chart gives a worker.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(20);
const LEAVE_MARGIN: Duration = Duration::from_secs(15);
/// How soon a new worker has work.
const SCALE_UP_BOUND: Duration = Duration::from_secs(2);
/// Scans that run at once.
const SCANS: usize = 2;
/// Duration of a segment: longer than anything else that a leaving worker waits for.
const SEGMENT_DELAY: Duration = Duration::from_millis(2_500);
/// How a shard ends that reached a worker after its SIGTERM.
const REFUSED: &str = "refused: this worker is leaving";

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
    home.synth("market", SYMBOLS, 60);
    let scan =
        ["scan", "--dataset", "market", "--where", "close > sma(close, 20)", "--select", "rsi(close, 14)", "--quiet"];
    home.trawl(&[&scan[..], &["--output", "embedded.csv"]].concat()).expect_code(0);
    let (drain, delay) = (DRAIN_TIMEOUT.as_secs().to_string(), SEGMENT_DELAY.as_millis().to_string());
    let flags = ["--drain-timeout-s", &drain, "--threads", "1", "--fault-delay-ms-per-segment", &delay];
    let mut cluster = Cluster::start_as(&home, 4, &etcd::endpoint(), &[], workers_with(&flags));

    let scans: Vec<Background> = (0..SCANS)
        .map(|number| {
            let (answer, report) = (format!("{number}.csv"), format!("{number}.report.json"));
            let there =
                ["--coordinator", &cluster.url, "--shards", "per-group", "--output", &answer, "--report", &report];
            Background::start(&format!("scan {number}"), &mut home.command(&[&scan[..], &there].concat()))
        })
        .collect();
    let busy = wait::until(BOUND, || {
        let seen = cluster.registered();
        (seen.len() == 4 && seen.iter().all(|(_, shards)| *shards > 0)).then_some(())
    });
    assert!(busy.is_some(), "seed {seed}: not all were busy: {:?}", cluster.registered());
    // Two of them, each at a random moment of its work, the second not only after the first has left.
    let mut ids: Vec<String> = (1..=4).map(|number| format!("w{number}")).collect();
    let mut leaving = Vec::new();
    for left in [4, 3] {
        let _ = wait::until(Duration::from_millis(random.below(500)), || None::<()>);
        let which = usize::try_from(random.below(left)).expect("small");
        let (id, worker) = (ids.remove(which), cluster.workers.remove(which));
        worker.signal("TERM");
        leaving.push((id, worker, Instant::now()));
    }
    let mut left = Vec::new();
    for (id, worker, signalled) in leaving {
        worker.wait(DRAIN_TIMEOUT + LEAVE_MARGIN).expect_code(0);
        println!("{id} left in {:.2} s", signalled.elapsed().as_secs_f64());
        left.push(id);
    }
    let (mut runs_of_theirs, mut given, mut refused) = (0, 0, 0);
    for (number, scan) in scans.into_iter().enumerate() {
        scan.wait(BOUND).expect_code(0);
        let answer = home.read(&format!("{number}.csv"));
        assert!(answer == home.read("embedded.csv"), "seed {seed}: scan {number} has a different answer");
        let report: serde_json::Value =
            serde_json::from_slice(&home.read(&format!("{number}.report.json"))).expect("a report is JSON");
        // A worker that leaves returns its results: none is lost, and none of its work was in vain.
        assert_eq!(report["workers_lost"], serde_json::json!([]), "seed {seed}: {report:#}");
        for run in report["shard_runs"].as_array().into_iter().flatten() {
            given += 1;
            if left.iter().any(|id| run["worker"] == id.as_str()) {
                // A shard that crossed the signal on its way was refused before it began; any other is finished.
                if run["ending"] == REFUSED {
                    refused += 1;
                    let (began, ended) = (run["started_ms"].as_f64(), run["ended_ms"].as_f64());
                    let took = ended.zip(began).map(|(ended, began)| ended - began);
                    let limit = SEGMENT_DELAY.as_secs_f64() * 1e3;
                    assert!(took.is_some_and(|took| took < limit), "seed {seed}: it was begun: {run:#}");
                    continue;
                }
                runs_of_theirs += 1;
                assert_eq!(run["ending"], "done", "seed {seed}: {run:#}");
            }
        }
    }
    assert!(given >= SCANS * 8 && runs_of_theirs >= 2, "seed {seed}: {runs_of_theirs} of {given} shards");
    // Each scan learns once from each worker that it leaves.
    assert!(refused <= SCANS * left.len(), "seed {seed}: {refused} shards were given to workers that leave");
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
    assert!(home.read("here.csv") == home.read("there.csv"), "the answer differs from that of one process");
}
