//! The same scan through a coordinator and workers registered in a real etcd: the same bytes, whatever dies.

use std::process::Command;
use std::time::Duration;

use trawl_cluster_store::{ControlStore as _, EtcdStore, HISTORY_CHECK_INTERVAL};
use trawl_tests::cluster::{Cluster, block_on};
use trawl_tests::etcd::{OwnEtcd, fresh_cluster_name};
use trawl_tests::home::Home;
use trawl_tests::process::{self, Background};
use trawl_tests::wait;

use crate::answers::{BARS, CLAUSES, SYMBOLS, answer_files, check_counts};

/// Longest that a scan with a lost worker may take: by then the loss has been noticed.
const LOSS_BOUND: Duration = Duration::from_secs(120);

fn report(home: &Home, name: &str) -> serde_json::Value {
    serde_json::from_slice(&home.read(name)).expect("a report is JSON")
}

/// The report proves that `lost` died with work in hand, and that another worker answered each of those segments.
#[track_caller]
fn check_that_its_work_was_done_elsewhere(report: &serde_json::Value, lost: &str) {
    let list = |of: &serde_json::Value| of.as_array().cloned().unwrap_or_default();
    assert!(list(&report["workers_lost"]).iter().any(|w| w.as_str().is_some_and(|w| w.contains(lost))), "{report:#}");
    let cut_short: Vec<serde_json::Value> = list(&report["shard_runs"])
        .into_iter()
        .filter(|run| run["worker"] == lost && run["ending"] != "done")
        .collect();
    assert!(!cut_short.is_empty(), "{lost} died with nothing in hand: {report:#}");
    for run in &cut_short {
        for segment in list(&run["segments"]) {
            let answered = list(&report["segment_runs"]).into_iter().find(|s| s["segment"] == segment);
            let answered = answered.unwrap_or_else(|| panic!("segment {segment} was not answered: {report:#}"));
            assert!(answered["worker"] != lost && answered["attempt"] != run["attempt"], "{report:#}");
        }
    }
}

#[test]
fn a_cluster_gives_the_bytes_of_one_process() {
    let home = Home::new();
    home.synth("market", SYMBOLS, BARS);
    let reference = answer_files(&home, "market", "embedded", &["--shards", "1"]);
    check_counts(&reference, SYMBOLS);
    let best = "scan --dataset market --where close>ma(close,n,matype=kind) --sweep n=5:50:15 --sweep kind=sma,wma \
                --best roc(close,n) --keep 2 --quiet --output";
    let best: Vec<&str> = best.split_whitespace().collect();
    home.trawl(&[&best[..], &["best.parquet"]].concat()).expect_code(0);
    let several =
        "dataset = 'market'\n[[scan]]\nname = 'a'\nwhere = 'close > 50'\n[[scan]]\nname = 'b'\nwhere = 'rsi() < 40'\n";
    home.write("several.toml", several);
    let several = ["scan", "--file", "several.toml", "--values", "all", "--quiet", "--output"];
    home.trawl(&[&several[..], &["several.csv"]].concat()).expect_code(0);
    for workers in [1, 3] {
        let cluster = Cluster::start(&home, workers);
        for shards in ["1", "7", "per-group"] {
            let label = format!("w{workers}_{shards}");
            let options = ["--coordinator", &cluster.url, "--shards", shards];
            let files = answer_files(&home, "market", &label, &options);
            for ((format, bytes), (_, wanted)) in files.iter().zip(&reference) {
                assert!(
                    bytes == wanted,
                    "{workers} workers, {shards} shards: the {format} file differs from the embedded one"
                );
            }
        }
        home.trawl(&[&best[..], &["there.parquet", "--coordinator", &cluster.url]].concat()).expect_code(0);
        assert!(
            home.read("there.parquet") == home.read("best.parquet"),
            "{workers} workers keep different combinations"
        );
        home.trawl(&[&several[..], &["there.csv", "--coordinator", &cluster.url]].concat()).expect_code(0);
        assert!(home.read("there.csv") == home.read("several.csv"), "{workers} workers: the values of several scans");
    }
}

/// Bars of 300 symbols on these days: more than a megabyte for 120 of them.
fn days(days: std::ops::Range<u32>) -> String {
    let mut text = "date,symbol,open,high,low,close,volume\n".to_owned();
    for day in days {
        for symbol in 0..300 {
            let close = f64::from((day * 37 + symbol * 53 + day * symbol * 11) % 8_900 + 1_000) / 100.0;
            let date = format!("2023-{:02}-{:02}", 1 + day / 28, 1 + day % 28);
            text += &format!("{date},S{symbol:03},{close},{},{},{close},{day}\n", close + 1.0, close - 1.0);
        }
    }
    text
}

#[test]
fn appended_bars_give_the_answers_of_a_dataset_that_was_imported_at_once_embedded_and_in_a_cluster() {
    let home = Home::new();
    let import = |name: &str, days: String| {
        home.write(&format!("{name}.csv"), &days);
        let more = ["--dataset", name, "--calendar", "24/7"];
        home.trawl(&[&["data", "import", &format!("{name}.csv")], &more[..]].concat()).expect_code(0);
    };
    import("appended", days(0..120));
    for day in 120..140 {
        import("appended", days(day..day + 1));
    }
    import("whole", days(0..140));
    let inspect = |name: &str| -> serde_json::Value {
        serde_json::from_str(&home.trawl(&["data", "inspect", name, "--json"]).expect_code(0).stdout).expect("JSON")
    };
    assert_eq!(
        (&inspect("appended")["appended_files"], &inspect("appended")["appended_bars"]),
        (&20.into(), &6000.into())
    );
    let scans = [
        &["--where", "close > ma(close, 50) and rsi(close, 14) > 50"][..],
        &["--where", "xs_rank(close) > 0.9", "--as-of", "2023-05-20"],
        &["--where", "close > tf('1w', ma(close, 4)) and close > ref('S001', close)"],
    ];
    let cluster = Cluster::start(&home, 2);
    let answers = |name: &str| -> Vec<String> {
        let run = |scan: &&[&str], more: &[&str]| {
            let run = [&["scan", "--dataset", name, "--quiet", "--output", "-"], *scan, more].concat();
            home.trawl(&run).expect_code(0).stdout
        };
        let mut answers: Vec<String> = scans.iter().map(|scan| run(scan, &[])).collect();
        for (scan, embedded) in scans.iter().zip(&answers) {
            assert_eq!(&run(scan, &["--coordinator", &cluster.url]), embedded, "{name}: {scan:?}");
        }
        for scan in scans {
            let file = format!("{name}-all.csv");
            home.trawl(&[&["scan", "--dataset", name, "--quiet", "--all-bars", &file], &scan[..2]].concat())
                .expect_code(0);
            answers.push(String::from_utf8(home.read(&file)).expect("text"));
        }
        answers.push(home.trawl(&["data", "export", name, "-o", "-"]).expect_code(0).stdout);
        answers
    };
    let wanted = answers("whole");
    assert!(wanted.iter().all(|answer| answer.lines().count() > 100));
    assert!(answers("appended") == wanted, "as appended");
    let printed = home.trawl(&["data", "compact", "appended"]).expect_code(0).stdout;
    assert!(printed.contains("20 files of appended bars became part of 5 groups"), "{printed}");
    assert_eq!(inspect("appended")["snapshot"], inspect("whole")["snapshot"]);
    assert!(answers("appended") == wanted, "compacted");
    let printed = home.trawl(&["data", "compact", "appended"]).expect_code(0).stdout;
    assert!(printed.contains("has no appended bars: nothing to do"), "{printed}");
    home.trawl(&["data", "prune", "appended", "--keep", "1"]).expect_code(0);
    home.trawl(&["data", "inspect", "appended", "--verify"]).expect_code(0);
}

#[test]
fn workers_compute_in_both_precisions() {
    let home = Home::new();
    home.synth("market", SYMBOLS, BARS);
    let wide = answer_files(&home, "market", "wide", &[]);
    let requested = answer_files(&home, "market", "requested", &["--precision", "f64"]);
    // The documents differ, which files say; rows and digest do not.
    let rows = |files: &[(String, Vec<u8>)]| files.iter().find(|(format, _)| format == "csv").expect("a CSV").1.clone();
    let about = |label: &str| -> serde_json::Value {
        serde_json::from_slice(&home.read(&format!("{label}.csv.identity.json"))).expect("JSON")
    };
    assert!(rows(&wide) == rows(&requested), "f64 is the default precision");
    for part in ["identity", "answer_digest", "counts"] {
        assert_eq!(about("wide")[part], about("requested")[part]);
    }
    let reference = answer_files(&home, "market", "short", &["--precision", "f32", "--shards", "1", "--threads", "1"]);
    check_counts(&reference, SYMBOLS);
    let identity: serde_json::Value = serde_json::from_slice(&home.read("short.csv.identity.json")).expect("JSON");
    assert_eq!(identity["identity"]["precision"], "f32");
    let cluster = Cluster::start(&home, 2);
    for options in [vec!["--threads", "2"], vec!["--coordinator", &cluster.url, "--shards", "7"]] {
        let options = [&["--precision", "f32", "--report", "report.json"], &options[..]].concat();
        let files = answer_files(&home, "market", "again", &options);
        for (((format, bytes), (_, wanted)), (_, wide)) in files.iter().zip(&reference).zip(&wide) {
            assert!(bytes == wanted, "{options:?}: the {format} file differs from one thread's");
            assert!(bytes != wide, "{options:?}: the {format} file of another precision");
        }
        assert_eq!(report(&home, "report.json")["precision"], "f32");
    }
}

#[test]
fn a_worker_killed_in_the_middle_of_a_scan_changes_nothing() {
    let home = Home::new();
    home.synth("market", SYMBOLS, BARS);
    let reference = answer_files(&home, "market", "embedded", &[]);
    let mut cluster = Cluster::start(&home, 3);

    // A stopped worker accepts work and answers nothing, so the scan is certainly still running when it is killed.
    cluster.workers[1].signal("STOP");
    let mut arguments = vec!["scan", "--dataset", "market", "--coordinator", &cluster.url];
    arguments.extend(["--shards", "per-group", "--output", "killed.json", "--report", "killed.report.json"]);
    arguments.extend(CLAUSES);
    let scan = Background::start("scan", &mut home.command(&arguments));
    let in_flight = wait::until(LOSS_BOUND, || cluster.registered().into_iter().find(|(id, n)| id == "w2" && *n > 0));
    assert!(in_flight.is_some(), "w2 was never given work: {:?}", cluster.registered());
    cluster.workers[1].kill();
    scan.wait(LOSS_BOUND).expect_code(0);

    let wanted = &reference.iter().find(|(format, _)| format == "json").expect("JSON").1;
    assert!(home.read("killed.json") == *wanted, "the answer differs from the one without the loss");
    check_that_its_work_was_done_elsewhere(&report(&home, "killed.report.json"), "w2");
}

#[test]
fn a_worker_that_stops_is_hedged_before_it_is_given_up() {
    let home = Home::new();
    home.synth("market", SYMBOLS, BARS);
    let reference = answer_files(&home, "market", "embedded", &[]);
    let cluster = Cluster::start(&home, 3);
    cluster.workers[1].signal("STOP");
    let mut arguments = vec!["scan", "--dataset", "market", "--coordinator", &cluster.url, "--priority", "high"];
    arguments.extend(["--shards", "per-group", "--output", "stopped.json", "--report", "stopped.report.json"]);
    arguments.extend(CLAUSES);
    home.trawl(&arguments).expect_code(0);
    let wanted = &reference.iter().find(|(format, _)| format == "json").expect("JSON").1;
    assert!(home.read("stopped.json") == *wanted, "the answer differs from the one without the stop");
    let report = report(&home, "stopped.report.json");
    assert!(report["hedges"].as_u64().is_some_and(|n| n > 0), "{report:#}");
    assert_eq!(report["workers_lost"], serde_json::json!([]), "it was given up first: {report:#}");
}

#[test]
fn a_deadline_is_kept_here_and_there() {
    let home = Home::new();
    home.synth("market", SYMBOLS, BARS);
    let cluster = Cluster::start(&home, 0);
    let scan = ["scan", "--dataset", "market", "--where", "close > 0", "--quiet"];
    let coordinator = ["--coordinator", &cluster.url, "--deadline", "0.2"];
    let ended = home.trawl(&[&scan[..], &coordinator].concat()).expect_code(1);
    assert!(ended.stderr.contains("not done within 0.2 s"), "{}", ended.stderr);
    home.trawl(&[&scan[..], &["--deadline", "600"]].concat()).expect_code(0);
    for wrong in ["0", "-1", "soon", "1e30"] {
        let ended = home.trawl(&[&scan[..], &["--deadline", wrong]].concat()).expect_code(2);
        assert!(ended.stderr.contains("seconds above 0"), "{}", ended.stderr);
    }
    let ended = home.trawl(&[&scan[..], &coordinator, &["--priority", "hihg"]].concat()).expect_code(2);
    assert!(ended.stderr.contains("did you mean 'high'?"), "{}", ended.stderr);
}

#[test]
fn a_scan_survives_workers_that_join_and_leave() {
    let home = Home::new();
    home.synth("market", 60, 100);
    let mut cluster = Cluster::start(&home, 1);
    let scan =
        ["scan", "--dataset", "market", "--where", "close > 0", "--coordinator", &cluster.url.clone(), "--quiet"];
    home.trawl(&scan).expect_code(0);
    cluster.start_worker(&home, &[]);
    cluster.wait_for_workers(2);
    cluster.workers[0].signal("TERM");
    cluster.wait_for_workers(1);
    home.trawl(&scan).expect_code(0);
}

#[test]
fn without_workers_an_ephemeral_scan_fails_with_that_reason() {
    let home = Home::new();
    home.synth("market", 10, 50);
    let cluster = Cluster::start(&home, 0);
    let ended = home
        .trawl(&["scan", "--ephemeral", "--dataset", "market", "--where", "close > 0", "--coordinator", &cluster.url])
        .expect_code(1);
    assert!(ended.stderr.contains("worker"), "{}", ended.stderr);
}

#[test]
fn mistakes_are_reported_by_a_coordinator_as_by_one_process() {
    let home = Home::new();
    home.synth("market", 10, 50);
    let cluster = Cluster::start(&home, 1);
    let scans: [&[&str]; 3] = [
        &["--dataset", "market", "--where", "smaa(close, 50) > 1"],
        &["--dataset", "markt", "--where", "close > 1"],
        &["--dataset", "market", "--where", "close"],
    ];
    for clauses in scans {
        let here = home.trawl(&[&["scan"], clauses].concat()).expect_code(2);
        let there = home.trawl(&[&["scan", "--coordinator", &cluster.url], clauses].concat()).expect_code(2);
        let first = |text: &str| text.lines().next().unwrap_or_default().to_owned();
        assert_eq!(first(&home.plain(&here.stderr)), first(&home.plain(&there.stderr)));
    }
}

#[test]
fn a_cluster_on_one_machine_starts_scans_and_ends_with_ctrl_c() {
    let home = Home::new();
    let etcd = trawl_tests::etcd::executable();
    let etcd = etcd.to_str().expect("a path");
    let up = ["cluster", "up", "--workers", "3", "--listen", "127.0.0.1:0", "--etcd-binary", etcd];
    let mut cluster = Background::start("cluster up", &mut home.command(&up));
    let (url, etcd_url) = cluster.wait_for_line(LOSS_BOUND, |line| {
        let words = line.strip_prefix("ready cluster ")?;
        let word = |key: &str| words.split_whitespace().find_map(|w| w.strip_prefix(key)).map(str::to_owned);
        Some((word("url=")?, word("etcd=")?))
    });
    let condition = "within(crosses_above(sma(close,50), sma(close,200)), 3)";
    let scan = ["scan", "--coordinator", &url, "--dataset", "us5", "--as-of", "2013-02-22", "--where", condition];
    let shown = home.trawl(&scan).expect_code(0).stdout;
    assert!(shown.contains("IBM"), "{shown}");
    cluster.signal("INT");
    cluster.wait(LOSS_BOUND).expect_code(0);
    for url in [url, etcd_url] {
        let address = url.trim_start_matches("http://").to_owned();
        assert!(std::net::TcpStream::connect(&address).is_err(), "something still listens on {address}");
    }
}

/// Process ids of the children of a process whose command line contains `word`.
fn children_of(parent: u32, word: &str) -> Vec<u32> {
    let children = std::fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).unwrap_or_default();
    let has_word = |id: &u32| {
        let line = std::fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0).any(|argument| argument == word.as_bytes())
    };
    children.split_whitespace().filter_map(|id| id.parse().ok()).filter(has_word).collect()
}

#[test]
fn a_cluster_on_one_machine_starts_a_killed_worker_again() {
    let home = Home::new();
    home.synth("market", 60, 100);
    let etcd = trawl_tests::etcd::executable();
    let etcd = etcd.to_str().expect("a path");
    let up = ["cluster", "up", "--workers", "2", "--listen", "127.0.0.1:0", "--etcd-binary", etcd];
    let mut cluster = Background::start("cluster up", &mut home.command(&up));
    let url = cluster.wait_for_line(LOSS_BOUND, |line| {
        let words = line.strip_prefix("ready cluster ")?;
        words.split_whitespace().find_map(|w| w.strip_prefix("url=")).map(str::to_owned)
    });
    let before = children_of(cluster.id(), "worker");
    assert_eq!(before.len(), 2, "{before:?}");
    assert!(Command::new("kill").args(["-KILL", &before[0].to_string()]).status().expect("kill").success());
    let scan = ["scan", "--coordinator", &url, "--dataset", "market", "--where", "close > 0", "--quiet"];
    home.trawl(&scan).expect_code(0);
    let again = wait::until(LOSS_BOUND, || {
        let now = children_of(cluster.id(), "worker");
        (now.len() == 2 && !now.contains(&before[0])).then_some(now)
    });
    let again = again.unwrap_or_else(|| panic!("no second worker: {}", cluster.output()));
    assert!(again.contains(&before[1]), "only the killed one is replaced: {before:?} {again:?}");
    assert!(cluster.running(), "{}", cluster.output());
    cluster.signal("INT");
    cluster.wait(LOSS_BOUND).expect_code(0);
}

#[test]
fn a_demonstration_that_loses_a_worker_shows_two_equal_answers() {
    let home = Home::new();
    let etcd = trawl_tests::etcd::executable();
    let ended = home.trawl(&["demo", "--kill-worker", "--etcd-binary", etcd.to_str().expect("a path")]).expect_code(0);
    let shown = ended.stdout;
    assert!(shown.contains("worker 2 killed with SIGKILL"), "{shown}");
    assert!(shown.contains("Equal, byte for byte, although a worker was lost."), "{shown}");
    let digests: Vec<&str> =
        shown.lines().filter_map(|line| line.split_whitespace().last()).filter(|word| word.len() == 64).collect();
    assert!(digests.len() == 2 && digests[0] == digests[1], "{shown}");
    // The waterfall shows that the fault had an effect.
    assert!(shown.contains("lost") || shown.contains("retr") || shown.contains("again"), "{shown}");
}

#[test]
fn the_address_of_a_coordinator_can_come_from_the_environment() {
    let home = Home::new();
    home.synth("market", 10, 50);
    let cluster = Cluster::start(&home, 1);
    let mut scan = home.command(&["scan", "--dataset", "market", "--where", "close > 0", "--detach"]);
    let id = process::run(scan.env("TRAWL_COORDINATOR", &cluster.url)).expect_code(0).stdout;
    let listed = home.trawl(&["scans", "list", "--coordinator", &cluster.url]).expect_code(0).stdout;
    assert!(!id.trim().is_empty() && listed.contains(id.trim()), "{id} {listed}");
}

#[test]
fn an_etcd_that_is_not_there_is_an_error_with_its_address() {
    let home = Home::new();
    let address = format!("http://127.0.0.1:{}", trawl_tests::etcd::free_port());
    for role in ["coordinator", "worker"] {
        let name = fresh_cluster_name();
        let ended = home.trawl(&[role, "--etcd", &address, "--cluster-name", &name, "--listen", "127.0.0.1:0"]);
        assert_eq!(ended.code, Some(1), "{role}: {ended:?}");
        assert!(ended.stderr.contains("etcd") && !ended.panicked(), "{role}: {}", ended.stderr);
    }
}

#[test]
fn an_etcd_that_dies_does_not_stop_scans_of_known_workers_from_ending() {
    let home = Home::new();
    home.synth("market", 10, 50);
    let mut etcd = OwnEtcd::start();
    let cluster = Cluster::start_with(&home, 2, &etcd.url, &[]);
    etcd.process.kill();
    // It ends, and reports whether it was answered or refused.
    let ended = home.trawl(&["scan", "--dataset", "market", "--where", "close > 0", "--coordinator", &cluster.url]);
    assert!(matches!(ended.code, Some(0 | 1)) && !ended.panicked(), "{ended:?}");
}

#[test]
fn an_etcd_that_is_set_up_anew_ends_every_process_with_that_reason() {
    let home = Home::new();
    let mut etcd = OwnEtcd::start();
    let mut cluster = Cluster::start_with(&home, 1, &etcd.url, &[]);
    // So many revisions that the processes' own new records do not reach the earlier one.
    block_on(async {
        let store = EtcdStore::new(&etcd.url).unwrap();
        for _ in 0..200 {
            store.put("another/key", Vec::new(), None).await.unwrap();
        }
    });
    // Each process has to have read the store's revision once after that.
    std::thread::sleep(HISTORY_CHECK_INTERVAL + Duration::from_secs(1));
    etcd.set_up_anew();
    let worker = cluster.workers.remove(0);
    for process in [cluster.coordinator, worker] {
        let ended = process.wait(Duration::from_secs(60));
        assert_eq!(ended.code, Some(1), "{}", ended.stderr);
        assert!(
            ended.stderr.contains("ERROR") && ended.stderr.contains("was set up anew or restored"),
            "{}",
            ended.stderr
        );
    }
}

#[test]
fn only_loopback_is_bound() {
    let home = Home::new();
    for role in ["coordinator", "worker"] {
        let ended = home.trawl(&[role, "--etcd", "http://127.0.0.1:1", "--listen", "0.0.0.0:0"]).expect_code(2);
        assert!(ended.stderr.contains("loopback"), "{}", ended.stderr);
    }
}
