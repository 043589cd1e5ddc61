//! Many clients at once: memory stays bounded, and the scans go on.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::{Value, json};
use trawl_tests::cluster::{Cluster, Options};
use trawl_tests::etcd;
use trawl_tests::http::{JSON, Server, events, request};
use trawl_tests::scrape::{self, Samples};

use super::life::{WATCHERS, http_of, text};
use super::{market, scan};

/// Clients that submit meanwhile.
const SUBMITTERS: usize = 50;
/// Bytes by which these clients may make the process grow.
const GROWTH_BYTES_MAX: u64 = 256 << 20;
/// Workers of a cluster, of one thread each.
const WORKERS: usize = 2;
/// How long each takes for a segment, in milliseconds: the work of a scan is waiting, so that other programs of this machine hardly change it.
const SEGMENT_MS: &str = "40";
/// How often memory and progress are looked at.
const TICK: Duration = Duration::from_millis(20);

/// Bytes of a process that are resident.
fn resident_of(process: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).expect("a running process");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("its memory");
    line.split_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok()).expect("a number") * 1024
}

/// Looks at a process until the sender is dropped: the largest number of resident bytes, and how often it was looked at.
fn sampled(process: u32) -> (Sender<()>, JoinHandle<(u64, u32)>) {
    let (done, is_done) = channel::<()>();
    let sampled = std::thread::spawn(move || {
        let (mut peak, mut ticks) = (0, 0);
        while let Err(RecvTimeoutError::Timeout) = is_done.recv_timeout(TICK) {
            peak = peak.max(resident_of(process));
            ticks += 1;
        }
        (peak, ticks)
    });
    (done, sampled)
}

/// Clients that watch a scan.
fn watching(address: &str, id: &str) -> Vec<JoinHandle<Vec<(String, Value)>>> {
    let watch = |_| {
        let (address, path) = (address.to_owned(), format!("/v1/scans/{id}/events"));
        std::thread::spawn(move || events(&address, &path, &[]))
    };
    (0..WATCHERS).map(watch).collect()
}

/// Each of these clients saw the scan end well.
fn all_saw_it_done(watchers: Vec<JoinHandle<Vec<(String, Value)>>>) {
    for watcher in watchers {
        let seen = watcher.join().expect("the events end");
        let (name, data) = seen.last().expect("events");
        assert_eq!((name.as_str(), &data["state"]), ("ended", &json!("done")), "{seen:?}");
    }
}

#[test]
fn many_watch_one_scan_and_many_submit_and_memory_stays_bounded() {
    let home = market();
    let server = Server::start(&home, &["--scans-running-max", "1", "--scans-waiting-max", "100"]);
    // What the process and its allocator need for one scan after another is not what clients cost.
    for _ in 0..SUBMITTERS {
        server.post("/v1/answers?format=csv", &scan()).expect(200);
    }
    let before = resident_of(server.process.id());
    let (done, sampled) = sampled(server.process.id());
    let submitters: Vec<_> = (0..SUBMITTERS)
        .map(|_| {
            let address = server.address.clone();
            std::thread::spawn(move || {
                request(&address, "POST", "/v1/answers?format=csv", &[JSON], scan().to_string().as_bytes())
            })
        })
        .collect();
    // It waits for all of them.
    let mut watched = scan();
    watched["priority"] = "low".into();
    let id = text(&server.post("/v1/scans", &watched).expect(202).json()["scan"]).to_owned();
    let watchers = watching(&server.address, &id);
    let answers: Vec<Vec<u8>> = submitters.into_iter().map(|s| s.join().expect("a reply").expect(200).body).collect();
    assert!(answers.iter().all(|answer| *answer == answers[0]));
    all_saw_it_done(watchers);
    drop(done);
    let growth = sampled.join().expect("a number").0.saturating_sub(before);
    println!("{WATCHERS} watchers and {SUBMITTERS} submitted scans: {growth} bytes more at most");
    assert!(growth < GROWTH_BYTES_MAX, "{WATCHERS} watchers and {SUBMITTERS} scans: {growth} bytes more");
}

/// What the workers of a cluster have done: segments that they computed, and everything that would mean that one was kept from working.
#[derive(Debug, PartialEq, Eq, Clone, Copy)]
struct Done {
    segments: u64,
    /// Segments that failed or were computed in vain.
    otherwise: u64,
    leases_lost: u64,
}

fn done_by(metrics: &[String]) -> Done {
    let of = |samples: &Samples, name: &str| samples.sum(name) as u64;
    let all: Vec<Samples> = metrics.iter().map(|address| Samples::of(address)).collect();
    let segments = all.iter().map(|s| s.get("trawl_segments_run_total{outcome=\"result\"}") as u64).sum();
    let run: u64 = all.iter().map(|s| of(s, "trawl_segments_run_total")).sum();
    let leases_lost = all.iter().map(|s| of(s, "trawl_leases_lost_total")).sum();
    Done { segments, otherwise: run - segments, leases_lost }
}

/// The coordinator serves the clients and hands out the work: neither may keep it from the other.
#[test]
fn workers_of_a_cluster_go_on_while_many_watch_and_many_submit() {
    let home = market();
    let options = Options {
        coordinator: ["--http", "127.0.0.1:0", "--metrics", "0"].map(str::to_owned).to_vec(),
        worker: ["--threads", "1", "--metrics", "0", "--fault-delay-ms-per-segment", SEGMENT_MS]
            .map(str::to_owned)
            .to_vec(),
        ..Options::default()
    };
    let mut cluster = Cluster::start_as(&home, WORKERS, &etcd::endpoint(), &[], options);
    let address = http_of(&mut cluster.coordinator);
    let metrics: Vec<String> = cluster.workers.iter_mut().map(scrape::address_of).collect();
    let mut body = scan();
    // Known answers would be given again.
    body["fresh"] = true.into();
    let fresh = body.to_string();
    let submit = |address: &str, body: &str| {
        request(address, "POST", "/v1/answers?format=csv", &[JSON], body.as_bytes()).expect(200).body
    };
    let expected = submit(&address, &fresh);
    let of_one = done_by(&metrics);
    assert!(of_one.segments > 1 && of_one.otherwise == 0, "{of_one:?}");

    // An idle cluster: one client, one scan after the other.
    let process = cluster.coordinator.id();
    let (done, idle) = sampled(process);
    (0..SUBMITTERS).for_each(|_| assert_eq!(submit(&address, &fresh), expected));
    drop(done);
    let (_, idle_ticks) = idle.join().expect("numbers");
    let after_idle = done_by(&metrics);
    assert_eq!(after_idle.segments, of_one.segments * (1 + SUBMITTERS as u64), "{after_idle:?}");

    // The same scans of as many clients at once, and one more that two hundred others watch.
    let before = resident_of(process);
    let (done, loaded) = sampled(process);
    let submitters: Vec<_> = (0..SUBMITTERS)
        .map(|_| {
            let (address, body) = (address.clone(), fresh.clone());
            std::thread::spawn(move || submit(&address, &body))
        })
        .collect();
    body["priority"] = "low".into();
    let watched = request(&address, "POST", "/v1/scans", &[JSON], body.to_string().as_bytes()).expect(202).json();
    let watchers = watching(&address, text(&watched["scan"]));
    for submitter in submitters {
        assert_eq!(submitter.join().expect("a reply"), expected, "the same answer for everybody");
    }
    all_saw_it_done(watchers);
    drop(done);
    let (peak, loaded_ticks) = loaded.join().expect("numbers");

    // Each segment was computed once, by workers that never lost their leases.
    let now = done_by(&metrics);
    let segments = of_one.segments * (2 + 2 * SUBMITTERS as u64);
    assert_eq!(now, Done { segments, otherwise: 0, leases_lost: 0 });
    let coordinator = Samples::of(&scrape::address_of(&mut cluster.coordinator));
    for never in ["trawl_workers_lost_total", "trawl_workers_quarantined_total", "trawl_disputes_total"] {
        assert_eq!(coordinator.sum(never), 0.0, "{never}");
    }
    // In as many looks as the idle cluster needed, at least half as much was computed.
    let rate = |segments: u64, ticks: u32| segments as f64 / f64::from(ticks.max(1));
    let (idle, loaded) = (
        rate(after_idle.segments - of_one.segments, idle_ticks),
        rate(now.segments - after_idle.segments, loaded_ticks),
    );
    println!(
        "{WATCHERS} watchers and {SUBMITTERS} submitters: {loaded:.2} segments a look, {idle:.2} of an idle cluster; the coordinator \
         grew by {} bytes at most",
        peak.saturating_sub(before)
    );
    assert!(loaded > idle / 2.0, "{loaded} segments a look under load, {idle} of an idle cluster");
    assert!(peak.saturating_sub(before) < GROWTH_BYTES_MAX, "{peak} bytes, {before} before");
}
