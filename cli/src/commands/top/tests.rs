//! The screen, drawn on terminals of many sizes. What keys and refreshes do to it in detail is in `details`.

mod details;

use std::time::{Duration, Instant};

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::style::{Color, Modifier};
use trawl_coordinator::RunReport;
use trawl_coordinator::profile::Profile;
use trawl_wire::pb;

use super::draw::{Look, draw, whole_height};
use super::feed::{News, Part, Scans, Shards, Snapshot};
use super::state::{Pane, State};

const SCREEN: Look = Look { colours: true, keys: true };
/// The time of every picture, in microseconds since 1970-01-01 UTC.
const NOW_US: i64 = 1_764_000_000_000_000;

fn scan(id: &str, state: pb::ScanState, condition: &str) -> pb::ScanInfo {
    let mut info = pb::ScanInfo {
        scan_id: id.to_owned(),
        owner: "local".to_owned(),
        submitted_us: NOW_US - 5_000_000,
        dataset: "market@0123456789abcdef".to_owned(),
        condition: condition.to_owned(),
        segments: 40,
        segments_ended: 10,
        ..pb::ScanInfo::default()
    };
    info.set_state(state);
    info
}

fn worker(id: &str, memory: u64) -> pb::WorkerInfo {
    pb::WorkerInfo {
        id: id.to_owned(),
        state: "serving".to_owned(),
        threads: 4,
        shards_in_flight: 3,
        loads: Some(pb::CacheLoads { memory, disk: 100, ..pb::CacheLoads::default() }),
        cache_bytes: 1 << 30,
        ..pb::WorkerInfo::default()
    }
}

fn snapshot(at_s: u64, listed: Vec<pb::ScanInfo>, workers: Vec<pb::WorkerInfo>) -> Snapshot {
    let count = |state| listed.iter().filter(|info| info.state() == state).count();
    let (queued, running) = (count(pb::ScanState::Queued), count(pb::ScanState::Running));
    let leader = pb::CoordinatorInfo { id: "c1".to_owned(), leads: true, epoch: 7, ..pb::CoordinatorInfo::default() };
    Snapshot {
        at: Duration::from_secs(at_s),
        now_us: NOW_US,
        urls: "http://127.0.0.1:7400".to_owned(),
        scans: Ok(Scans { listed, queued, running, more_active: false, ended_lately: 3, more_lately: true }),
        workers: Ok(workers),
        coordinators: Ok(vec![leader]),
        shards: None,
    }
}

/// A cluster at work, after two refreshes.
fn at_work() -> State {
    let mut state = State::new(Duration::from_secs(2), None);
    let scans = || {
        let running = pb::ScanState::Running;
        vec![
            scan("s1", running, "close > sma(close, 50)"),
            scan("s2", pb::ScanState::Queued, "rsi(close, 14) < 30"),
            scan("s3", pb::ScanState::Done, "volume > 0"),
        ]
    };
    state.take(News::Snapshot(snapshot(0, scans(), vec![worker("w1", 0), worker("w2", 0)]).into()));
    state.take(News::Snapshot(snapshot(2, scans(), vec![worker("w1", 20), worker("w2", 40)]).into()));
    state
}

/// Gives the state the shards of a scan: one of them late.
fn open(state: &mut State, scan: &str) {
    let run = |attempt: u64, worker: &str, ms: f64| {
        serde_json::json!({
            "attempt": attempt, "worker": worker, "segments": [attempt], "started_ms": 1.0, "ended_ms": 1.0 + ms,
            "ending": "done", "queued_ms": 1.0, "slow_after_ms": 250.0,
        })
    };
    let mut report = serde_json::to_value(RunReport::default()).unwrap();
    report["mode"] = "cluster".into();
    report["shard_runs"] = vec![run(1, "w1", 40.0), run(2, "w2", 400.0), run(3, "w1", 40.0)].into();
    let profile = Profile::of(&serde_json::from_value(report).unwrap());
    let mut next = (**state.snapshot.as_ref().unwrap()).clone();
    next.shards = Some((scan.to_owned(), Ok(Shards { state: pb::ScanState::Done, profile })));
    state.take(News::Snapshot(next.into()));
}

fn terminal(state: &mut State, width: u16, height: u16, look: Look) -> Terminal<TestBackend> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(state, Instant::now(), frame.area(), frame.buffer_mut(), look)).unwrap();
    terminal
}

fn lines(state: &mut State, width: u16, height: u16) -> Vec<String> {
    let terminal = terminal(state, width, height, SCREEN);
    super::text_of(terminal.backend().buffer()).lines().map(str::to_owned).collect()
}

fn find<'a>(lines: &'a [String], part: &str) -> &'a str {
    lines.iter().find(|line| line.contains(part)).unwrap_or_else(|| panic!("no '{part}' in\n{}", lines.join("\n")))
}

fn press(state: &mut State, keys: &[KeyCode]) {
    keys.iter().for_each(|key| state.key(KeyEvent::new(*key, KeyModifiers::NONE)));
}

#[test]
fn a_cluster_at_work_is_seen_as_a_whole() {
    let seen = lines(&mut at_work(), 140, 30);
    assert!(
        seen[0].starts_with("trawl top  http://127.0.0.1:7400  c1 leads, epoch 7, of 1 coordinator"),
        "{}",
        seen[0]
    );
    for part in [
        "1 running, 1 queued",
        "at least 3 ended in a minute",
        "2 of 2 workers serving",
        "6 shards on 8 threads",
        "30 segments/s · 100% from memory",
    ] {
        assert!(seen[1].contains(part), "{part}: {}", seen[1]);
    }
    assert_eq!(
        find(&seen, "w1").split_whitespace().take(7).collect::<Vec<_>>(),
        ["w1", "serving", "3/4", "10", "100%", "17%", "100"]
    );
    assert!(find(&seen, "w2").contains(" 20 "), "{seen:?}");
    let running = find(&seen, "s1");
    assert!(
        running.contains("10/40 25%")
            && running.contains("market@01234567")
            && running.ends_with("close > sma(close, 50)"),
        "{running}"
    );
    let order: Vec<usize> = ["s1", "s2", "s3"].map(|id| seen.iter().position(|line| line.contains(id)).unwrap()).into();
    assert!(order.is_sorted(), "{seen:?}");
    let keys = seen.last().unwrap();
    for key in ["q quit", "Enter shards", "←→ sort by", "+ - interval"] {
        assert!(keys.contains(key), "{keys}");
    }
}

#[test]
fn every_size_of_terminal_shows_what_matters_most_and_none_panics() {
    for width in 1..=160 {
        for height in [1, 2, 4, 5, 6, 9, 12, 16, 24, 50] {
            let mut state = at_work();
            let seen = lines(&mut state, width, height);
            assert!(seen.iter().all(|line| ratatui::text::Span::raw(line.as_str()).width() <= usize::from(width)));
            if width < 20 || height < 5 {
                assert!("too small".starts_with(seen[0].trim()), "{width}x{height}: {seen:?}");
                continue;
            }
            assert!(seen[usize::from(height) - 1].starts_with("q quit"), "{width}x{height}: {seen:?}");
            if height >= 12 {
                let running = seen.iter().find(|line| line.starts_with("running")).unwrap();
                assert!(running.contains(" close"), "{width}x{height}: the condition has its place: {seen:?}");
                find(&seen, "serving");
            }
            press(&mut state, &[KeyCode::Down, KeyCode::Enter]);
            open(&mut state, "s1");
            lines(&mut state, width, height);
        }
    }
}

#[test]
fn where_there_is_no_room_the_pane_with_the_keys_is_shown_alone() {
    let mut state = at_work();
    let seen = lines(&mut state, 60, 8);
    assert!(
        seen.iter().any(|line| line.starts_with("Scans")) && !seen.iter().any(|line| line.starts_with("Workers (")),
        "{seen:?}"
    );
    press(&mut state, &[KeyCode::Tab]);
    let seen = lines(&mut state, 60, 8);
    assert!(
        seen.iter().any(|line| line.starts_with("Workers (2)")) && !seen.iter().any(|line| line.starts_with("Scans")),
        "{seen:?}"
    );
}

#[test]
fn a_scan_opens_its_slow_shards_with_their_cause_and_closes_them() {
    let mut state = at_work();
    press(&mut state, &[KeyCode::Down, KeyCode::Down, KeyCode::Enter]);
    assert_eq!(state.wanted.scan.as_deref(), Some("s2"));
    assert!(find(&lines(&mut state, 120, 30), "Shards of s2").len() < 20, "nothing is known of it yet");
    find(&lines(&mut state, 120, 30), "asking");
    open(&mut state, "s2");
    let seen = lines(&mut state, 120, 30);
    assert!(
        find(&seen, "Shards of s2").contains("done: ") && find(&seen, "Shards of s2").contains("3 shards, 1 late"),
        "{seen:?}"
    );
    let first = seen.iter().skip_while(|line| !line.contains("WHY IT IS LATE")).nth(1).unwrap();
    assert!(
        first.starts_with("w2") && first.contains("400 ms") && first.contains("slow-worker: w2 did not answer"),
        "{first}"
    );
    // What belongs to another scan is not shown as this one's.
    press(&mut state, &[KeyCode::Up, KeyCode::Enter]);
    find(&lines(&mut state, 120, 30), "asking");
    press(&mut state, &[KeyCode::Tab, KeyCode::Esc]);
    assert_eq!((state.wanted.scan.clone(), state.focus), (None, Pane::Scans));
    assert!(!lines(&mut state, 120, 30).iter().any(|line| line.contains("Shards of")));
}

#[test]
fn keys_sort_filter_pause_and_change_the_pace() {
    let mut state = at_work();
    press(&mut state, &[KeyCode::Right, KeyCode::Right]);
    let seen = lines(&mut state, 120, 30);
    find(&seen, "PROGRESS▲");
    press(&mut state, &[KeyCode::Char('r')]);
    let seen = lines(&mut state, 120, 30);
    find(&seen, "PROGRESS▼");
    let first = seen.iter().skip_while(|line| !line.contains("PROGRESS")).nth(1).unwrap();
    assert!(first.starts_with("done"), "{first}");
    press(&mut state, &[KeyCode::Char('a')]);
    let seen = lines(&mut state, 120, 30);
    find(&seen, "Scans that wait or run (2)");
    assert!(!seen.iter().any(|line| line.starts_with("done")), "{seen:?}");
    press(&mut state, &[KeyCode::Char(' ')]);
    assert!(state.wanted.paused && lines(&mut state, 120, 30)[0].ends_with("paused"));
    press(&mut state, &[KeyCode::Char(' '), KeyCode::Char('+')]);
    assert!(lines(&mut state, 120, 30)[0].ends_with("every 4 s"));
    for _ in 0..40 {
        press(&mut state, &[KeyCode::Char('-')]);
    }
    assert_eq!(state.wanted.interval, super::INTERVAL_MIN);
    for _ in 0..40 {
        press(&mut state, &[KeyCode::Char('+')]);
    }
    assert_eq!(state.wanted.interval, super::INTERVAL_MAX);
    assert!(!state.ended);
    state.key(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL));
    assert!(state.ended);
}

#[test]
fn a_coordinator_that_goes_away_is_said_and_what_was_known_stays() {
    let mut state = at_work();
    let why = "no coordinator answers at http://127.0.0.1:7400: connection refused".to_owned();
    state.take(News::Away { why, again: Instant::now() + Duration::from_secs(8) });
    let seen = lines(&mut state, 140, 30);
    assert!(seen[2].starts_with("AWAY, asked again in 8 s; what is shown is of 2025-11-24T16:00:00"), "{}", seen[2]);
    assert!(seen[2].contains("connection refused"), "{}", seen[2]);
    find(&seen, "s1");
    find(&lines(&mut state, 30, 9), "AWAY, asked again in 8 s");
    // Back again: no rate is made of what happened meanwhile.
    state.take(News::Snapshot(
        snapshot(100, vec![scan("s9", pb::ScanState::Running, "x")], vec![worker("w1", 999_999)]).into(),
    ));
    let seen = lines(&mut state, 140, 30);
    assert!(!seen.iter().any(|line| line.contains("AWAY") || line.contains("segments/s ·")), "{seen:?}");
    assert_eq!(find(&seen, "w1").split_whitespace().nth(3), Some("-"));
}

#[test]
fn what_is_refused_and_what_there_is_none_of_is_said_in_its_place() {
    let mut state = at_work();
    let mut next = snapshot(4, Vec::new(), Vec::new());
    next.workers = Part::Err("you may not list workers: the right 'read' is required".to_owned());
    state.take(News::Snapshot(next.into()));
    let seen = lines(&mut state, 100, 24);
    find(&seen, "you may not list workers");
    find(&seen, "no scans");
    press(&mut state, &[KeyCode::Char('a')]);
    find(&lines(&mut state, 100, 24), "no scan waits or runs");
    state.take(News::Snapshot(snapshot(6, Vec::new(), Vec::new()).into()));
    find(&lines(&mut state, 100, 24), "no worker is registered");
    // Keys do nothing where there is nothing.
    press(&mut state, &[KeyCode::Down, KeyCode::Enter, KeyCode::End, KeyCode::Tab, KeyCode::Enter, KeyCode::Char('r')]);
    lines(&mut state, 100, 24);
}

#[test]
fn without_colours_no_cell_has_one_and_problems_stand_out_still() {
    let mut state = at_work();
    state.take(News::Away { why: "gone".to_owned(), again: Instant::now() });
    let plain = terminal(&mut state, 120, 30, Look { colours: false, keys: true });
    let cells = || plain.backend().buffer().content().iter();
    assert!(cells().all(|cell| cell.fg == Color::Reset && cell.bg == Color::Reset));
    assert!(cells().any(|cell| cell.symbol() == "A" && cell.modifier.contains(Modifier::BOLD)), "AWAY is bold");
    let coloured = terminal(&mut state, 120, 30, SCREEN);
    assert!(coloured.backend().buffer().content().iter().any(|cell| cell.fg == Color::Red));
}

#[test]
fn names_of_others_stay_in_their_cells() {
    let mut state = State::new(Duration::from_secs(2), None);
    let mut nasty = scan("s1", pb::ScanState::Running, "close > 0 /* \u{1b}[2J\u{202e}gnirts */ 日本語日本語");
    nasty.owner = "a\u{1b}]0;title\u{7}\nb".to_owned();
    let long = scan("s2", pb::ScanState::Running, &"x".repeat(10_000));
    state.take(News::Snapshot(snapshot(0, vec![nasty, long], vec![worker("\u{2066}w", 0)]).into()));
    for width in [20, 41, 80, 133] {
        let seen = lines(&mut state, width, 20).join("");
        assert!(!seen.chars().any(|c| c.is_control() || ('\u{202a}'..='\u{2069}').contains(&c)), "{seen:?}");
    }
    find(&lines(&mut state, 200, 20), "日本語日本語");
}

#[test]
fn a_thousand_scans_scroll_and_the_selected_one_is_seen() {
    let mut state = State::new(Duration::from_secs(2), None);
    let many = (0..1000).map(|i| scan(&format!("s{i:04}"), pb::ScanState::Running, "close > 0")).collect();
    state.take(News::Snapshot(snapshot(0, many, vec![worker("w", 0)]).into()));
    press(&mut state, &[KeyCode::End]);
    find(&lines(&mut state, 120, 20), "s0999");
    press(&mut state, &[KeyCode::PageUp]);
    let seen = lines(&mut state, 120, 20);
    find(&seen, "s0989");
    press(&mut state, &[KeyCode::Home]);
    find(&lines(&mut state, 120, 20), "s0000");
}

#[test]
fn one_picture_on_paper_has_every_row_and_no_keys() {
    let mut few = State::new(Duration::from_secs(2), None);
    let one = vec![scan("s1", pb::ScanState::Done, "close > 0")];
    few.take(News::Snapshot(snapshot(0, one, vec![worker("w1", 0)]).into()));
    let mut none = State::new(Duration::from_secs(2), None);
    none.take(News::Snapshot(snapshot(0, Vec::new(), Vec::new()).into()));
    let all = [
        (at_work(), &["w1", "w2", "s1", "s2", "s3"][..]),
        (few, &["w1", "s1"]),
        (none, &["no worker is registered", "no scans"]),
    ];
    for (mut state, parts) in all {
        let height = whole_height(&state);
        let paper = terminal(&mut state, 120, height, Look { colours: false, keys: false });
        let text = super::text_of(paper.backend().buffer());
        assert_eq!(text.lines().count(), usize::from(height));
        for part in parts {
            assert!(text.contains(part), "{part}\n{text}");
        }
        assert!(!text.contains("quit"), "{text}");
    }
}
