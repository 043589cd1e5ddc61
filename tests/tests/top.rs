//! `trawl top` over a real cluster: one picture for scripts, and the screen of a terminal with keys, other sizes and a coordinator that
//! goes away.

use std::process::{Child, Command, ExitStatus};
use std::time::Duration;

use trawl_testing::{Pty, Screen};
use trawl_tests::cluster::{Cluster, Options};
use trawl_tests::home::Home;
use trawl_tests::process::Background;
use trawl_tests::{etcd, wait};

/// Longest that anything may take to be seen, on a loaded machine.
const SEEN_BOUND: Duration = Duration::from_secs(60);
const CONDITION: &str = "close > sma(close, 20)";

/// A cluster of two workers that has run one scan, and the scan's id.
fn cluster(home: &Home) -> (Cluster, String) {
    home.synth("market", 300, 40);
    let options = Options { coordinator: vec!["--results-shared".to_owned()], ..Options::default() };
    let cluster = Cluster::start_as(home, 2, &etcd::endpoint(), &[], options);
    let scan = ["scan", "--dataset", "market", "--where", CONDITION, "--detach", "--coordinator", &cluster.url];
    let id = home.trawl(&scan).expect_code(0).stdout.trim().to_owned();
    home.trawl(&["scans", "watch", &id, "--quiet", "--coordinator", &cluster.url]).expect_code(0);
    (cluster, id)
}

#[test]
fn one_picture_is_text_for_scripts() {
    let home = Home::new();
    let (mut cluster, id) = cluster(&home);
    let there = ["top", "--once", "--coordinator", &cluster.url];
    let once = |more: &[&str], width: &str| {
        trawl_tests::process::run(home.command(&[&there[..], more].concat()).env("COLUMNS", width))
    };
    let seen = once(&[], "200").expect_code(0).stdout;
    for part in [
        "0 running, 0 queued · 1 ended in a minute · 2 of 2 workers serving",
        "Workers (2)",
        "w1",
        "w2",
        "Scans (1)",
        &id,
        CONDITION,
    ] {
        assert!(seen.contains(part), "{part}\n{seen}");
    }
    assert!(seen.lines().any(|line| line.starts_with("done ") && line.ends_with(CONDITION)), "{seen}");
    assert!(!seen.contains('\u{1b}'), "{seen:?}");
    let seen = once(&["--scan", &id], "60").expect_code(0).stdout;
    assert!(seen.lines().all(|line| line.chars().count() <= 60), "{seen}");
    let shards = seen.lines().skip_while(|line| !line.contains("WAITED")).skip(1).filter(|line| line.starts_with('w'));
    assert!(seen.contains(&format!("Shards of {id}")) && shards.count() > 0, "{seen}");
    // A scan that there is none of is said in its place, and to the script.
    let seen = once(&["--scan", "nothing-1"], "100").expect_code(1).stdout;
    assert!(seen.contains("Shards of nothing-1") && seen.contains("w1"), "{seen}");
    cluster.coordinator.kill();
    let ended = once(&[], "100").expect_code(1);
    assert!(ended.stderr.contains("no coordinator answers at"), "{}", ended.stderr);
}

#[test]
fn without_a_terminal_it_says_what_to_do_instead() {
    let ended = Home::new().trawl(&["top"]).expect_code(2);
    assert!(ended.stderr.contains("this is none") && ended.stderr.contains("--once"), "{}", ended.stderr);
    for wrong in ["0", "0.1", "3601", "nan", "-1", "soon"] {
        let ended = Home::new().trawl(&["top", &format!("--interval={wrong}")]).expect_code(2);
        assert!(ended.stderr.contains("seconds from 0.2 to 3600 are expected"), "{wrong}: {}", ended.stderr);
    }
    let terminal = Pty::open(80, 24);
    let mut command = Home::new().command(&["top"]);
    let mut program = terminal.start(command.env("TERM", "dumb").current_dir("/"));
    assert_eq!(ended_with(&mut program).code(), Some(2));
    assert!(terminal.written().contains("TERM is dumb"), "{}", terminal.written());
}

#[track_caller]
fn ended_with(program: &mut Child) -> ExitStatus {
    let ended = wait::until(SEEN_BOUND, || program.try_wait().ok().flatten());
    ended.unwrap_or_else(|| {
        let _ = program.kill();
        panic!("it did not end")
    })
}

fn top(home: &Home, cluster: &Cluster, more: &[&str]) -> Command {
    let mut command = home.command(&[&["top", "--interval", "0.2", "--coordinator", &cluster.url], more].concat());
    command.env("TERM", "xterm-256color");
    command
}

fn has<'a>(parts: &'a [&'a str]) -> impl Fn(&Screen) -> bool + 'a {
    |screen| {
        let text = screen.lines().join("\n");
        parts.iter().all(|part| text.contains(part))
    }
}

#[test]
fn a_terminal_shows_the_cluster_follows_keys_and_sizes_and_is_given_back_as_it_was() {
    let home = Home::new();
    let (mut cluster, id) = cluster(&home);
    let terminal = Pty::open(120, 30);
    let before = terminal.modes();
    let mut program = terminal.start(&mut top(&home, &cluster, &[]));
    let screen = terminal.wait_for(SEEN_BOUND, has(&["w1", "w2", "done", CONDITION, "q quit"]));
    assert!(screen.alternate && screen.cursor_hidden);
    assert_ne!(format!("{:?}", terminal.modes()), format!("{before:?}"), "keys are read one by one");

    // The scan is selected and opened, and closed again.
    terminal.send(b"\x1b[B\r");
    terminal.wait_for(SEEN_BOUND, has(&[&format!("Shards of {id}"), "WHY IT IS LATE"]));
    terminal.send(b"\x1b");
    terminal.wait_for(SEEN_BOUND, |screen| !has(&["Shards of"])(screen));
    terminal.send(b"a");
    terminal.wait_for(SEEN_BOUND, has(&["Scans that wait or run (0)", "no scan waits or runs"]));
    terminal.send(b"a");

    // Smaller, larger, and too small to show anything.
    for (columns, rows) in [(50, 14), (8, 3), (160, 40)] {
        terminal.resize(columns, rows, &program);
        let wanted: &[&str] = if columns < 20 { &["too smal"] } else { &["serving", "done", "q quit"] };
        let screen = terminal.wait_for(SEEN_BOUND, has(wanted));
        if columns >= 20 {
            assert!(screen.lines()[usize::from(rows) - 1].starts_with("q quit"), "{:?}", screen.lines());
        }
    }

    // The coordinator dies. What was known stays, and a coordinator at the same address is found again.
    cluster.coordinator.kill();
    terminal.wait_for(SEEN_BOUND, has(&["AWAY, asked again", "w1", CONDITION]));
    assert!(program.try_wait().unwrap().is_none());
    let address = cluster.url.strip_prefix("http://").unwrap();
    let flags = [
        "coordinator",
        "--etcd",
        &etcd::endpoint(),
        "--cluster-name",
        &cluster.name,
        "--listen",
        address,
        "--results-shared",
    ];
    cluster.coordinator = Background::start("coordinator", &mut home.command(&flags));
    terminal.wait_for(SEEN_BOUND, |screen| has(&["leads", "w1", CONDITION])(screen) && !has(&["AWAY"])(screen));

    terminal.send(b"q");
    assert_eq!(ended_with(&mut program).code(), Some(0));
    is_given_back(&terminal, &format!("{before:?}"));
    for end in [&b"\x03"[..], b"TERM"] {
        let mut program = terminal.start(&mut top(&home, &cluster, &[]));
        terminal.wait_for(SEEN_BOUND, has(&["w1", "q quit"]));
        match end {
            b"TERM" => {
                let pid = program.id().to_string();
                assert!(Command::new("sh").args(["-c", &format!("kill -TERM {pid}")]).status().unwrap().success());
            }
            key => terminal.send(key),
        }
        assert_eq!(ended_with(&mut program).code(), Some(0));
        is_given_back(&terminal, &format!("{before:?}"));
    }
}

#[track_caller]
fn is_given_back(terminal: &Pty, before: &str) {
    terminal.wait_for(SEEN_BOUND, |screen| !screen.alternate && !screen.cursor_hidden);
    assert_eq!(format!("{:?}", terminal.modes()), before, "echo and lines are as they were");
}

#[test]
fn no_colour_is_drawn_where_none_is_wanted() {
    let home = Home::new();
    let cluster = Cluster::start(&home, 1);
    let colours = |value: &str| {
        let terminal = Pty::open(100, 24);
        let mut program = terminal.start(top(&home, &cluster, &[]).env("NO_COLOR", value));
        terminal.wait_for(SEEN_BOUND, has(&["serving", "no scans", "q quit"]));
        terminal.send(b"q");
        assert_eq!(ended_with(&mut program).code(), Some(0));
        terminal.written().contains("\u{1b}[38;") || terminal.written().contains("\u{1b}[32")
    };
    assert!(!colours("1"));
    assert!(colours(""), "an empty variable counts as none");
}
