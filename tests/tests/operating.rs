//! What operators use: options from a file, the audit log, the datasets and lists of a cluster, the debug bundle.

use std::io::{Cursor, Read as _};

use trawl_tests::cluster::{Cluster, Options};
use trawl_tests::etcd;
use trawl_tests::home::Home;
use trawl_tests::process::Ended;

/// A cluster whose coordinator has its options from a file, and writes an audit log.
fn cluster(home: &Home) -> Cluster {
    home.synth("market", 200, 40);
    let config = home.write("coordinator.toml", "scans-per-caller-max = 3\nspool = '.'\naudit = 'audit.jsonl'\n");
    let coordinator = vec!["--config".to_owned(), config.display().to_string()];
    Cluster::start_as(home, 1, &etcd::endpoint(), &[], Options { coordinator, ..Options::default() })
}

fn scan(home: &Home, cluster: &Cluster, condition: &str) -> Ended {
    home.trawl(&["scan", "--dataset", "market", "--where", condition, "--quiet", "--coordinator", &cluster.url])
}

#[test]
fn calls_and_scans_are_in_the_audit_log_with_subject_and_outcome() {
    let home = Home::new();
    let cluster = cluster(&home);
    scan(&home, &cluster, "close > 0").expect_code(0);
    home.trawl(&["scans", "cancel", "nothing-1", "--coordinator", &cluster.url]).expect_code(2);
    let text = String::from_utf8(home.read("audit.jsonl")).unwrap();
    let lines: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let find = |message: &str, key: &str, value: &str| {
        let found = lines.iter().find(|l| l["message"] == message && l["fields"][key] == value);
        found.unwrap_or_else(|| panic!("no '{message}' with {key} {value}:\n{text}"))["fields"].clone()
    };
    let accepted = find("scan accepted", "caller", "local");
    let name = accepted["scan"].as_str().unwrap();
    let ended = find("scan ended", "scan", name);
    assert_eq!((&ended["outcome"], &ended["failed_symbols"]), (&"done".into(), &0.into()), "{ended}");
    assert_eq!(ended["digest"].as_str().map(str::len), Some(64), "{ended}");
    let call = find("call", "action", "/trawl.v1.Coordinator/Scan");
    assert_eq!((&call["subject"], &call["outcome"], &call["caller"]), (&name.into(), &"done".into(), &"local".into()));
    let refused = find("call", "action", "/trawl.v1.Coordinator/Cancel");
    assert_eq!(refused["outcome"], "failed", "{refused}");
    assert!(refused["why"].as_str().unwrap().contains("nothing-1"), "{refused}");
}

#[test]
fn a_mistake_in_a_file_of_options_is_shown_with_its_line() {
    let home = Home::new();
    let config = home.write("worker.toml", "threads = 2\nlisten = 'nowhere'\n");
    let config = config.display().to_string();
    let ended = home.trawl(&["worker", "--config", &config]).expect_code(2);
    assert!(ended.stderr.contains("invalid value 'nowhere' for '--listen"), "{}", ended.stderr);
    assert!(ended.stderr.contains(&format!("note: {config}:2 sets --listen")), "{}", ended.stderr);
    home.write("worker.toml", "threads = 2\nlissen = '127.0.0.1:0'\n");
    let ended = home.trawl(&["worker", "--config", &config]).expect_code(2);
    assert!(
        ended.stderr.contains(&format!("{config}:2: 'lissen' is not an option of 'trawl worker'")),
        "{}",
        ended.stderr
    );
    assert!(ended.stderr.contains("did you mean 'listen'?"), "{}", ended.stderr);
}

#[test]
fn a_data_root_that_was_named_and_is_not_there_is_no_empty_list() {
    let home = Home::new();
    let away = home.path("not/there");
    for json in [&[][..], &["--json"]] {
        let options = [&["--data-root", away.to_str().expect("a path"), "data", "list"], json].concat();
        let ended = home.trawl(&options).expect_code(2);
        assert!(ended.stdout.is_empty(), "{}", ended.stdout);
        for said in ["does not exist", &away.display().to_string(), "help: make it", "--data-root"] {
            assert!(ended.stderr.contains(said), "{said}: {}", ended.stderr);
        }
    }
    assert!(!away.exists(), "it is not made either");
}

#[test]
fn lists_datasets_and_bundles_show_the_cluster() {
    let home = Home::new();
    let cluster = cluster(&home);
    let there = ["--coordinator", &cluster.url];
    scan(&home, &cluster, "close > 0").expect_code(0);
    let here = home.trawl(&["data", "list", "--json"]).expect_code(0);
    assert_eq!(home.trawl(&[&["data", "list", "--json"], &there[..]].concat()).expect_code(0).stdout, here.stdout);
    let here = home.trawl(&["data", "inspect", "market", "--all"]).expect_code(0);
    let remote = home.trawl(&[&["data", "inspect", "market", "--all"], &there[..]].concat()).expect_code(0);
    assert_eq!(remote.stdout, here.stdout);
    let list = |options: &[&str]| {
        let ended = home.trawl(&[&["scans", "list", "--json"], options, &there[..]].concat()).expect_code(0);
        ended.stdout.lines().count()
    };
    assert_eq!(list(&["--state", "done", "--dataset", "market", "--since", "2020-01-01"]), 1);
    assert_eq!(list(&["--state", "failed,cancelled"]), 0);
    assert_eq!(list(&["--before", "2020-01-01"]), 0);
    let ended = home.trawl(&[&["scans", "list", "--state", "finished"], &there[..]].concat()).expect_code(2);
    assert!(ended.stderr.contains("one of queued, running, done, failed, cancelled is expected"), "{}", ended.stderr);
    home.trawl(&[&["debug", "bundle", "-o", "problem.zip"], &there[..]].concat()).expect_code(0);
    let names = names_in(&home.read("problem.zip"));
    for name in ["about.txt", "coordinators.jsonl", "workers.jsonl", "datasets.jsonl", "scans.jsonl"] {
        assert!(names.iter().any(|(found, text)| found == name && !text.is_empty()), "{name}: {names:?}");
    }
    assert!(names.iter().any(|(found, text)| found.starts_with("report-") && text.contains("shard_runs")), "{names:?}");
    // What cannot be had is named, and the rest is there.
    let options = ["debug", "bundle", "-o", "problem.zip", "--metrics", "http://127.0.0.1:9"];
    home.trawl(&[&options[..], &there[..]].concat()).expect_code(1);
    let names = names_in(&home.read("problem.zip"));
    assert!(names.iter().any(|(found, text)| found == "errors.txt" && text.contains("metrics-1.txt")), "{names:?}");
}

/// The files of an archive.
fn names_in(bytes: &[u8]) -> Vec<(String, String)> {
    let mut archive = zip::ZipArchive::new(Cursor::new(bytes)).unwrap();
    (0..archive.len())
        .map(|at| {
            let mut file = archive.by_index(at).unwrap();
            let mut text = String::new();
            file.read_to_string(&mut text).unwrap();
            (file.name().unwrap().into_owned(), text)
        })
        .collect()
}
