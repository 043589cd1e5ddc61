//! Each key, and each word at the top of the screen.

use super::*;

/// The place of the selected row of the pane that has the keys, and its id.
fn selected(state: &State) -> (Option<usize>, Option<String>) {
    let sheet = match state.focus {
        Pane::Workers => &state.workers,
        Pane::Scans => &state.scans,
        Pane::Shards => &state.shards,
    };
    (sheet.selected_place(), sheet.selected().map(str::to_owned))
}

fn many_scans(count: usize) -> State {
    let mut state = State::new(Duration::from_secs(2), None);
    let many = (0..count).map(|i| scan(&format!("s{i:04}"), pb::ScanState::Running, "close > 0")).collect();
    state.take(News::Snapshot(snapshot(0, many, vec![worker("w", 0)]).into()));
    state
}

#[test]
fn letters_and_pages_move_as_arrows_do_and_by_as_much_as_they_say() {
    let mut state = many_scans(100);
    let mut at = |key| {
        press(&mut state, &[key]);
        selected(&state).0.unwrap()
    };
    let seen = [KeyCode::Down, KeyCode::Char('j'), KeyCode::Char('j'), KeyCode::Char('k'), KeyCode::Up].map(&mut at);
    assert_eq!(seen, [0, 1, 2, 1, 0]);
    let seen = [KeyCode::PageDown, KeyCode::PageDown, KeyCode::PageUp, KeyCode::End, KeyCode::Home].map(at);
    assert_eq!(seen, [10, 20, 10, 99, 0]);
}

#[test]
fn the_panes_are_gone_through_both_ways() {
    let mut state = at_work();
    press(&mut state, &[KeyCode::Down, KeyCode::Enter]);
    let mut after = |key| {
        press(&mut state, &[key]);
        state.focus
    };
    let forward = [KeyCode::Tab, KeyCode::Tab, KeyCode::Tab].map(&mut after);
    assert_eq!(forward, [Pane::Shards, Pane::Workers, Pane::Scans]);
    let back = [KeyCode::BackTab, KeyCode::BackTab, KeyCode::BackTab].map(after);
    assert_eq!(back, [Pane::Workers, Pane::Shards, Pane::Scans]);
}

#[test]
fn a_key_opens_a_scan_and_no_worker_and_columns_are_gone_through_both_ways() {
    let mut state = at_work();
    press(&mut state, &[KeyCode::Down, KeyCode::BackTab, KeyCode::Down, KeyCode::Enter]);
    assert_eq!((state.focus, state.wanted.scan.as_deref()), (Pane::Workers, None));
    press(&mut state, &[KeyCode::Tab, KeyCode::Right, KeyCode::Char('>'), KeyCode::Left]);
    assert_eq!(state.scans.order().column, Some(0));
    press(&mut state, &[KeyCode::Char('<')]);
    assert_eq!(state.scans.order().column, None);
}

#[test]
fn what_is_asked_for_at_once_is_asked_for_and_the_end_is_the_end() {
    let mut state = at_work();
    press(&mut state, &[KeyCode::Char('u')]);
    assert_eq!(state.wanted.now, 1);
    state.key(KeyEvent::new(KeyCode::Char('l'), KeyModifiers::CONTROL));
    assert_eq!(state.wanted.now, 2);
    state.key(KeyEvent::new(KeyCode::Char('q'), KeyModifiers::CONTROL));
    assert!(!state.ended);
    press(&mut state, &[KeyCode::Char('q')]);
    assert!(state.ended);
    let mut other = at_work();
    other.take(News::Stop);
    assert!(other.ended);
}

#[test]
fn timings_of_the_scan_that_was_open_before_are_never_those_of_the_one_that_is() {
    let mut state = at_work();
    press(&mut state, &[KeyCode::Down, KeyCode::Enter]);
    open(&mut state, "s1");
    find(&lines(&mut state, 120, 30), "3 shards, 1 late");
    press(&mut state, &[KeyCode::Down, KeyCode::Enter]);
    // The reply to the question before comes now.
    open(&mut state, "s1");
    let seen = lines(&mut state, 120, 30);
    find(&seen, "Shards of s2");
    find(&seen, "asking");
    assert!(state.shards.rows().is_empty());
}

#[test]
fn the_head_says_who_leads_how_many_and_when_it_asks_again() {
    let mut state = at_work();
    assert_eq!(find(&lines(&mut state, 160, 30), "s1 ").split_whitespace().nth(3), Some("5"), "an age of 5 s");
    let mut next = (**state.snapshot.as_ref().unwrap()).clone();
    next.coordinators = Ok(vec![pb::CoordinatorInfo::default(), pb::CoordinatorInfo::default()]);
    next.scans.as_mut().unwrap().more_active = true;
    next.scans.as_mut().unwrap().more_lately = false;
    next.scans.as_mut().unwrap().listed[0].waits_for = "another class".to_owned();
    next.workers.as_mut().unwrap()[1].state = "draining".to_owned();
    state.take(News::Snapshot(next.into()));
    let seen = lines(&mut state, 160, 30);
    assert!(seen[0].contains("  none of 2 coordinators leads  "), "{}", seen[0]);
    for part in ["at least 1 running", "1 without workers", "· 3 ended in a minute", "1 of 2 workers serving"] {
        assert!(seen[1].contains(part), "{part}: {}", seen[1]);
    }
    state.take(News::Away { why: "gone".to_owned(), again: Instant::now() });
    assert!(lines(&mut state, 140, 30)[2].starts_with("AWAY, asked again now; "), "the time has come");
}

#[test]
fn the_pane_with_the_keys_alone_is_reversed() {
    let mut state = at_work();
    let reversed = |state: &mut State| {
        let drawn = terminal(state, 100, 30, SCREEN);
        let buffer = drawn.backend().buffer();
        let rows = (0..30).filter(|y| buffer[(0, *y)].modifier.contains(Modifier::REVERSED));
        rows.map(|y| (0..8).map(|x| buffer[(x, y)].symbol()).collect::<String>()).collect::<Vec<_>>()
    };
    assert_eq!(reversed(&mut state), ["Scans (3"]);
    press(&mut state, &[KeyCode::Tab]);
    assert_eq!(reversed(&mut state), ["Workers "]);
    press(&mut state, &[KeyCode::Down]);
    assert_eq!(reversed(&mut state), ["Workers ", "w1      "], "and its selected row");
}

#[test]
fn the_line_of_the_last_refreshes_ends_with_the_newest_and_is_not_on_low_terminals() {
    let mut state = State::new(Duration::from_secs(2), None);
    let mut total = 0;
    for second in 0..200 {
        // Quiet for long, then busy.
        total += if second < 195 { 0 } else { 800 };
        state.take(News::Snapshot(snapshot(second, Vec::new(), vec![worker("w1", total)]).into()));
    }
    let seen = lines(&mut state, 40, 30);
    let line = seen.iter().find(|line| line.starts_with("segments/s ")).unwrap();
    assert!(line.contains('█'), "{line}");
    assert!(!lines(&mut state, 40, 15).iter().any(|line| line.starts_with("segments/s ")));
    find(&lines(&mut state, 40, 16), "segments/s ");
}

#[test]
fn keys_that_do_not_fit_are_left_out_whole_and_many_workers_leave_room_for_scans() {
    let mut state = many_scans(50);
    for width in 20..120 {
        let keys = lines(&mut state, width, 30).pop().unwrap();
        let known = [
            "quit", "select", "shards", "close", "pane", "sort by", "reverse", "active", "pause", "update", "interval",
        ];
        assert!(known.iter().any(|word| keys.ends_with(word)), "{width}: {keys}");
    }
    let mut next = (**state.snapshot.as_ref().unwrap()).clone();
    next.workers = Ok((0..100).map(|i| worker(&format!("w{i}"), 0)).collect());
    state.take(News::Snapshot(next.into()));
    let seen = lines(&mut state, 120, 40);
    let scans = seen.iter().filter(|line| line.starts_with("running")).count();
    assert!(scans > 15, "two thirds are for scans: {scans}");
}
