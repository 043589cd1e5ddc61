//! Workers, arriving work, and the rules by which KEDA and the horizontal pod autoscaler act on readings: polled every
//! 15 s, `ceil(value / target)`, no change within 10 %, down only to the highest recommendation of the last five
//! minutes, to zero after a cooldown. A worker needs 40 s to start and finishes its shard before it goes.

use std::collections::VecDeque;
use std::fmt::Write as _;

use super::super::*;

const SYNC_S: u64 = 15;
const START_S: u64 = 40;
const COOLDOWN_S: u64 = 300;
const STABILISE_S: u64 = 300;
const TOLERANCE: f64 = 0.1;
const REPLICAS_MAX: u64 = 40;
const THREADS: f64 = 4.0;

/// Core-seconds of work that arrive in each second.
type Arrivals<'a> = &'a dyn Fn(u64) -> f64;

struct Run {
    /// Number of serving workers, by second.
    workers: Vec<u64>,
    /// Core-seconds of remaining work, by second.
    left: Vec<f64>,
    /// Number of times the desired number turned from rising to falling, or back.
    turns: usize,
    /// Number of changes of the desired number.
    changes: usize,
}

fn run(seconds: u64, goal: &Goal, arrivals: Arrivals<'_>) -> Run {
    let (mut demand, mut left, mut done) = (Demand::default(), 0.0f64, 0.0f64);
    // The second from which each worker serves.
    let mut pods: Vec<u64> = Vec::new();
    let (mut wishes, mut active_at) = (VecDeque::new(), None);
    let mut ran = Run { workers: Vec::new(), left: Vec::new(), turns: 0, changes: 0 };
    let (mut wished, mut direction) = (0u64, 0i8);
    for now in 0..seconds {
        left += arrivals(now);
        let serving = pods.iter().filter(|from| **from <= now).count() as u64;
        let worked = left.min(serving as f64 * THREADS);
        (left, done) = (left - worked, done + worked);
        demand.note(
            now,
            Sample {
                work_s: left,
                done_s: done,
                expected_s: done,
                scans: usize::from(left > 0.0 || worked > 0.0),
                workers: serving as u32,
                threads: (serving as f64 * THREADS) as u32,
            },
        );
        ran.workers.push(serving);
        ran.left.push(left);
        if now % SYNC_S != 0 {
            continue;
        }
        let reading = demand.reading(goal);
        if reading.active {
            active_at = Some(now);
        }
        let idle = active_at.is_none_or(|at: u64| now - at > COOLDOWN_S);
        let current = pods.len() as u64;
        let ratio = reading.work_s / (goal.target_s * current.max(1) as f64);
        let wish = match (idle, current) {
            (true, _) => 0,
            (false, 0) => u64::from(reading.active),
            (false, _) if (ratio - 1.0).abs() <= TOLERANCE => current,
            (false, _) => ((reading.work_s / goal.target_s).ceil() as u64).clamp(1, REPLICAS_MAX),
        };
        wishes.push_back((now, wish));
        while wishes.front().is_some_and(|(at, _)| now - at > STABILISE_S) {
            wishes.pop_front();
        }
        let wanted = if idle { 0 } else { wish.max(current.min(wishes.iter().map(|(_, w)| *w).max().unwrap_or(0))) };
        pods.truncate(wanted as usize);
        pods.resize(wanted as usize, now + START_S);
        if wanted != wished {
            let turned = if wanted > wished { 1 } else { -1 };
            ran.turns += usize::from(direction != 0 && turned != direction);
            (ran.changes, wished, direction) = (ran.changes + 1, wanted, turned);
        }
    }
    ran
}

fn goal() -> Goal {
    Goal { target_s: 30.0, threads_per_worker: Some(THREADS), ..Goal::default() }
}

#[test]
fn a_burst_from_nothing_is_done_soon_and_everybody_goes_home() {
    // 2,400 core-seconds: 600 s of one worker, so twenty of them.
    let ran = run(1800, &goal(), &|now| if now == 60 { 2400.0 } else { 0.0 });
    let most = *ran.workers.iter().max().unwrap();
    assert!((18..=22).contains(&most), "{most}");
    let done = ran.left.iter().rposition(|left| *left > 0.0).unwrap();
    // One poll, one start for the first worker, another poll and start for the rest, the target.
    assert!(done < 60 + 2 * (15 + 40) + 45, "done at {done}");
    assert_eq!((ran.turns, *ran.workers.last().unwrap()), (1, 0));
}

#[test]
fn steady_work_has_its_workers_and_keeps_them() {
    // Twelve cores: three workers fully busy, so four.
    let ran = run(3600, &goal(), &|_| 12.0);
    let settled = &ran.workers[900..];
    let (least, most) = (settled.iter().min().unwrap(), settled.iter().max().unwrap());
    assert!((4..=5).contains(least) && most - least <= 1, "{least} to {most}");
    assert!(ran.left[900..].iter().all(|left| *left < 60.0), "work piles up");
    assert!(ran.turns <= 1 && settled.is_sorted_by(|a, b| a >= b), "{} turns", ran.turns);
    assert!(ran.workers[1800..].iter().all(|workers| *workers == ran.workers[1800]), "never settles");
}

#[test]
fn many_short_scans_are_not_mistaken_for_idleness() {
    // Work that is done within its second: no sample sees any remaining once there are workers.
    let ran = run(3600, &goal(), &|now| if now % 7 == 0 { 14.0 } else { 0.0 });
    assert!(ran.workers[300..].iter().all(|workers| *workers >= 1), "scaled to nothing between scans");
    let most_left = ran.left[600..].iter().copied().fold(0.0, f64::max);
    assert!(most_left <= 14.0, "{most_left} core-seconds wait");
    assert!(ran.turns <= 1, "{} turns", ran.turns);
}

#[test]
fn bursts_that_come_again_do_not_flap() {
    // 600 core-seconds every three minutes: within the autoscaler's window and the hold.
    let ran = run(7200, &goal(), &|now| if now % 180 == 30 { 600.0 } else { 0.0 });
    assert!(ran.turns <= 2, "{} turns in two hours", ran.turns);
    let waits = ran.left[1200..].windows(180).filter(|window| window.iter().all(|left| *left > 0.0)).count();
    assert_eq!(waits, 0, "a burst is not done before the next");
}

#[test]
fn what_is_reported_falls_while_the_target_rises() {
    let at = |target_s: f64| {
        let goal = Goal { target_s, ..goal() };
        run(1200, &goal, &|now| if now == 60 { 2400.0 } else { 0.0 }).workers.into_iter().max().unwrap()
    };
    let most: Vec<u64> = [15.0, 30.0, 60.0, 300.0].into_iter().map(at).collect();
    assert!(most.is_sorted_by(|a, b| a >= b) && most[0] > most[3], "{most:?}");
}

/// The simulated courses as a table for the documentation; regenerated with `TRAWL_BLESS=1`.
#[test]
fn courses_are_the_ones_that_were_written_down() {
    let burst = |now| if now == 60 { 2400.0 } else { 0.0 };
    let ramp = |now: u64| (now as f64 / 60.0).min(20.0);
    let cases: [(&str, Arrivals<'_>); 4] = [
        ("2,400 core-seconds at once", &burst),
        ("12 cores of steady work", &|_| 12.0),
        ("a core more every minute, up to 20", &ramp),
        ("600 core-seconds every three minutes", &|now| if now % 180 == 30 { 600.0 } else { 0.0 }),
    ];
    let mut text = String::from(
        "Workers (and core-seconds left) by minute; 4 threads each, targetSecondsPerWorker 30, holdSeconds 120\n",
    );
    for (name, arrivals) in cases {
        let ran = run(1801, &goal(), arrivals);
        let _ = writeln!(text, "\n{name}: {} changes, {} turns", ran.changes, ran.turns);
        for minute in 0..=30 {
            let _ = write!(text, " {minute}:{}({:.0})", ran.workers[minute * 60], ran.left[minute * 60]);
        }
        text.push('\n');
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/scaler/tests/courses.txt");
    if std::env::var_os("TRAWL_BLESS").is_some() {
        std::fs::write(path, &text).unwrap();
    }
    assert_eq!(text, std::fs::read_to_string(path).unwrap_or_default(), "TRAWL_BLESS=1 writes it down anew");
}
