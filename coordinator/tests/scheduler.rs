//! The scheduler's wanted properties, under random orders of everything that can happen.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use trawl_coordinator::planner::Shard;
use trawl_coordinator::scheduler::{AttemptId, Command, Event, Limits, Outcome, ScanId, Scheduler, WorkerId};
use trawl_protocol::ErrorKind;

const LIMITS: Limits = Limits { attempts_max: 3, retry_delay_ms: 10, no_worker_timeout_ms: 1000 };
const SLOTS: usize = 2;
/// An attempt that the scheduler no longer knows.
const GIVEN_UP: AttemptId = AttemptId::MAX;

/// What the world outside does next; numbers choose among what is possible then.
#[derive(Debug, Clone)]
enum Move {
    Submit { shards: Vec<u8> },
    Join,
    Lose(usize),
    Done(usize),
    Fail(usize, ErrorKind),
    EndAttempt(usize),
    LateDone(usize),
    Duplicate(usize),
    Cancel(usize),
    Wait(u16),
}

fn moves() -> impl Strategy<Value = Vec<Move>> {
    let kind = prop_oneof![
        4 => Just(ErrorKind::Retryable),
        1 => Just(ErrorKind::Permanent),
        1 => Just(ErrorKind::OutOfMemory),
        1 => Just(ErrorKind::Cancelled),
    ];
    let one = prop_oneof![
        2 => proptest::collection::vec(1u8..5, 0..6).prop_map(|shards| Move::Submit { shards }),
        3 => Just(Move::Join),
        2 => any::<usize>().prop_map(Move::Lose),
        12 => any::<usize>().prop_map(Move::Done),
        4 => (any::<usize>(), kind).prop_map(|(i, kind)| Move::Fail(i, kind)),
        5 => any::<usize>().prop_map(Move::EndAttempt),
        2 => any::<usize>().prop_map(Move::LateDone),
        2 => any::<usize>().prop_map(Move::Duplicate),
        1 => any::<usize>().prop_map(Move::Cancel),
        2 => (0u16..300).prop_map(Move::Wait),
    ];
    proptest::collection::vec(one, 1..200)
}

#[derive(Debug, Default)]
struct Seen {
    segments: BTreeSet<u32>,
    accepted: BTreeSet<u32>,
    failed: BTreeSet<u32>,
    dispatched: BTreeMap<u32, u32>,
    outcome: Option<Outcome>,
}

/// The world as the commands make it, checking every property after every step.
struct World {
    scheduler: Scheduler,
    now_ms: u64,
    scans: BTreeMap<ScanId, Seen>,
    workers: BTreeSet<WorkerId>,
    next_worker: WorkerId,
    /// Attempts that run: scan, worker, unanswered segments.
    running: BTreeMap<AttemptId, (ScanId, WorkerId, BTreeSet<u32>)>,
    /// Segments of attempts that were stopped or lost, which may still be answered.
    late: Vec<(ScanId, u32)>,
    /// Answers given once already.
    told: Vec<(ScanId, u32)>,
}

impl World {
    fn new() -> Self {
        Self {
            scheduler: Scheduler::new(LIMITS, 0),
            now_ms: 0,
            scans: BTreeMap::new(),
            workers: BTreeSet::new(),
            next_worker: 1,
            running: BTreeMap::new(),
            late: Vec::new(),
            told: Vec::new(),
        }
    }

    fn step(&mut self, event: Event) {
        let commands = self.scheduler.step(event.clone(), self.now_ms);
        for command in commands {
            self.obey(&event, command);
        }
        for &worker in &self.workers {
            let running = self.running.values().filter(|(_, w, _)| *w == worker).count();
            assert!(running <= SLOTS, "worker {worker} has {running} shards in flight");
            assert_eq!(running, self.scheduler.in_flight(worker));
        }
    }

    fn obey(&mut self, event: &Event, command: Command) {
        match command {
            Command::Dispatch { attempt, scan, worker, segments } => {
                assert!(self.workers.contains(&worker), "dispatched to a worker that is not there");
                assert!(!segments.is_empty() && segments.is_sorted());
                let seen = self.scans.get_mut(&scan).expect("dispatch of an unknown scan");
                assert_eq!(seen.outcome, None, "dispatch after the end");
                for segment in &segments {
                    assert!(seen.segments.contains(segment));
                    assert!(
                        !seen.accepted.contains(segment) && !seen.failed.contains(segment),
                        "an ended segment runs"
                    );
                    let tries = seen.dispatched.entry(*segment).or_default();
                    *tries += 1;
                    assert!(*tries <= LIMITS.attempts_max, "segment {segment} dispatched {tries} times");
                    let elsewhere = self.running.values().any(|(s, _, left)| *s == scan && left.contains(segment));
                    assert!(!elsewhere, "segment {segment} runs twice");
                }
                let before = self.running.insert(attempt, (scan, worker, segments.into_iter().collect()));
                assert!(before.is_none(), "attempt {attempt} twice");
            }
            Command::Stop { attempt } => {
                let (scan, _, left) = self.running.remove(&attempt).expect("stop of an attempt that does not run");
                self.late.extend(left.into_iter().map(|segment| (scan, segment)));
            }
            Command::Accept { scan, segment } => {
                let reported =
                    matches!(event, Event::SegmentDone { scan: s, segment: g, .. } if (*s, *g) == (scan, segment));
                assert!(reported, "accepted what was not reported");
                let seen = self.scans.get_mut(&scan).unwrap();
                assert_eq!(seen.outcome, None);
                assert!(!seen.failed.contains(&segment) && seen.accepted.insert(segment), "accepted twice");
            }
            Command::Fail { scan, segment, attempts, .. } => {
                let seen = self.scans.get_mut(&scan).unwrap();
                assert_eq!(seen.outcome, None);
                assert_eq!(seen.dispatched.get(&segment), Some(&attempts));
                assert!(!seen.accepted.contains(&segment) && seen.failed.insert(segment), "failed twice");
            }
            Command::End { scan, outcome } => {
                let seen = self.scans.get_mut(&scan).unwrap();
                assert_eq!(seen.outcome.replace(outcome), None, "ended twice");
                let all: BTreeSet<u32> = seen.accepted.union(&seen.failed).copied().collect();
                assert_eq!(outcome == Outcome::Complete, all == seen.segments);
                for (s, _, left) in self.running.values() {
                    assert!(*s != scan || left.is_empty(), "an ended scan has a running attempt");
                }
            }
        }
    }

    fn pick<T: Clone>(items: impl Iterator<Item = T>, choice: usize) -> Option<T> {
        let items: Vec<T> = items.collect();
        (!items.is_empty()).then(|| items[choice % items.len()].clone())
    }

    fn unanswered(&self) -> impl Iterator<Item = (AttemptId, ScanId, u32)> + '_ {
        self.running.iter().flat_map(|(&a, (s, _, left))| left.iter().map(move |&segment| (a, *s, segment)))
    }

    fn play(&mut self, next: &Move) {
        match next {
            Move::Submit { shards } => {
                let scan = self.scans.len() as ScanId + 1;
                let mut segment = 0;
                let shards: Vec<Shard> = shards
                    .iter()
                    .map(|&size| {
                        let segments: Vec<u32> = (segment..segment + u32::from(size)).collect();
                        segment += u32::from(size);
                        Shard { segments, cost: 1, preferred: Some(WorkerId::from(size)) }
                    })
                    .collect();
                self.scans.insert(scan, Seen { segments: (0..segment).collect(), ..Seen::default() });
                self.step(Event::Submitted { scan, shards });
            }
            Move::Join => {
                let worker = self.next_worker;
                self.next_worker += 1;
                self.workers.insert(worker);
                self.step(Event::WorkerJoined { worker, slots: SLOTS });
            }
            Move::Lose(choice) => {
                if let Some(worker) = Self::pick(self.workers.iter().copied(), *choice) {
                    self.workers.remove(&worker);
                    // Attempts that had answered everything end with their worker, unnoticed.
                    self.step_losing(worker);
                }
            }
            Move::Done(choice) => {
                if let Some((attempt, scan, segment)) = Self::pick(self.unanswered(), *choice) {
                    self.running.get_mut(&attempt).unwrap().2.remove(&segment);
                    self.told.push((scan, segment));
                    self.step(Event::SegmentDone { scan, attempt, segment });
                }
            }
            Move::Fail(choice, kind) => {
                if let Some((attempt, _, segment)) = Self::pick(self.unanswered(), *choice) {
                    self.running.get_mut(&attempt).unwrap().2.remove(&segment);
                    self.step(Event::SegmentFailed { attempt, segment, kind: *kind });
                }
            }
            Move::EndAttempt(choice) => {
                if let Some(attempt) = Self::pick(self.running.keys().copied(), *choice) {
                    let (scan, _, left) = self.running.remove(&attempt).unwrap();
                    self.late.extend(left.into_iter().map(|segment| (scan, segment)));
                    self.step(Event::AttemptEnded { attempt });
                }
            }
            Move::LateDone(choice) => {
                if let Some((scan, segment)) = Self::pick(self.late.iter().copied(), *choice) {
                    for (s, _, left) in self.running.values_mut() {
                        // The running attempt will answer it once more, as a duplicate.
                        if *s == scan && left.remove(&segment) {
                            self.told.push((scan, segment));
                        }
                    }
                    self.step(Event::SegmentDone { scan, attempt: GIVEN_UP, segment });
                }
            }
            Move::Duplicate(choice) => {
                if let Some((scan, segment)) = Self::pick(self.told.iter().copied(), *choice) {
                    self.step(Event::SegmentDone { scan, attempt: GIVEN_UP, segment });
                }
            }
            Move::Cancel(choice) => {
                if let Some(scan) = Self::pick(self.scans.keys().copied(), *choice) {
                    self.step(Event::Cancelled { scan });
                }
            }
            Move::Wait(ms) => {
                self.now_ms += u64::from(*ms);
                self.step(Event::Tick);
            }
        }
    }

    fn step_losing(&mut self, worker: WorkerId) {
        self.step(Event::WorkerLost { worker });
        assert!(self.running.values().all(|(_, w, _)| *w != worker), "an attempt outlives its worker");
    }

    /// Faults stop: workers are there, everything that runs is answered and ended.
    fn settle(&mut self) {
        self.play(&Move::Join);
        for _ in 0..10_000 {
            if self.scheduler.is_idle() {
                return;
            }
            if self.unanswered().next().is_some() {
                self.play(&Move::Done(0));
            } else if !self.running.is_empty() {
                self.play(&Move::EndAttempt(0));
            } else {
                self.play(&Move::Wait(50));
            }
        }
        panic!("no progress although nothing fails: {:?}", self.scheduler);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]
    #[test]
    fn whatever_happens_every_segment_ends_once_and_every_scan_ends(moves in moves()) {
        let mut world = World::new();
        for next in &moves {
            world.play(next);
        }
        world.settle();
        for (scan, seen) in &world.scans {
            prop_assert!(seen.outcome.is_some(), "scan {} never ended", scan);
        }
    }
}

fn one_scan(workers: u64, shards: &[&[u32]]) -> (Scheduler, Vec<Command>) {
    let mut scheduler = Scheduler::new(LIMITS, 0);
    for worker in 1..=workers {
        scheduler.step(Event::WorkerJoined { worker, slots: SLOTS }, 0);
    }
    let shards = shards.iter().map(|s| Shard { segments: s.to_vec(), cost: 1, preferred: None }).collect();
    let commands = scheduler.step(Event::Submitted { scan: 1, shards }, 0);
    (scheduler, commands)
}

fn dispatched(commands: &[Command]) -> Vec<(WorkerId, Vec<u32>)> {
    let pair = |c: &Command| match c {
        Command::Dispatch { worker, segments, .. } => Some((*worker, segments.clone())),
        _ => None,
    };
    commands.iter().filter_map(pair).collect()
}

#[test]
fn what_a_lost_worker_left_goes_elsewhere_at_once() {
    let (mut scheduler, commands) = one_scan(2, &[&[0, 1], &[2, 3]]);
    assert_eq!(dispatched(&commands), [(1, vec![0, 1]), (2, vec![2, 3])]);
    scheduler.step(Event::SegmentDone { scan: 1, attempt: 1, segment: 0 }, 1);
    let commands = scheduler.step(Event::WorkerLost { worker: 1 }, 2);
    assert_eq!(dispatched(&commands), [(2, vec![1])]);
}

#[test]
fn what_a_living_worker_failed_goes_to_another_first_and_back_only_when_all_failed() {
    let (mut scheduler, _) = one_scan(2, &[&[0]]);
    let failed = |attempt| Event::SegmentFailed { attempt, segment: 0, kind: ErrorKind::Retryable };
    assert_eq!(dispatched(&scheduler.step(failed(1), 0)), [], "a delay comes first");
    assert_eq!(dispatched(&scheduler.step(Event::Tick, 10)), [(2, vec![0])]);
    scheduler.step(failed(2), 10);
    assert_eq!(dispatched(&scheduler.step(Event::Tick, 30)).len(), 1);
    let commands = scheduler.step(failed(3), 30);
    assert_eq!(
        commands,
        [
            Command::Fail { scan: 1, segment: 0, kind: ErrorKind::Retryable, attempts: 3 },
            Command::End { scan: 1, outcome: Outcome::Complete }
        ]
    );
}

#[test]
fn a_permanent_failure_is_not_tried_again() {
    let (mut scheduler, _) = one_scan(2, &[&[0, 1]]);
    let commands = scheduler.step(Event::SegmentFailed { attempt: 1, segment: 0, kind: ErrorKind::Permanent }, 0);
    assert_eq!(commands, [Command::Fail { scan: 1, segment: 0, kind: ErrorKind::Permanent, attempts: 1 }]);
}

#[test]
fn without_a_worker_a_scan_ends_after_the_timeout_and_not_before() {
    let (mut scheduler, commands) = one_scan(0, &[&[0]]);
    assert_eq!(commands, []);
    assert_eq!(scheduler.step(Event::Tick, 999), []);
    assert_eq!(scheduler.step(Event::Tick, 1000), [Command::End { scan: 1, outcome: Outcome::NoWorker }]);
}

#[test]
fn an_idle_worker_takes_work_that_prefers_a_busy_one() {
    let mut scheduler = Scheduler::new(LIMITS, 0);
    scheduler.step(Event::WorkerJoined { worker: 1, slots: 1 }, 0);
    scheduler.step(Event::WorkerJoined { worker: 2, slots: 1 }, 0);
    let shards = (0..3).map(|s| Shard { segments: vec![s], cost: 1, preferred: Some(1) }).collect();
    let commands = scheduler.step(Event::Submitted { scan: 1, shards }, 0);
    assert_eq!(dispatched(&commands), [(1, vec![0]), (2, vec![2])]);
}

#[test]
fn scans_take_turns() {
    let mut scheduler = Scheduler::new(LIMITS, 0);
    for scan in 1..=2 {
        let shards = (0..4).map(|s| Shard { segments: vec![s], cost: 1, preferred: None }).collect();
        scheduler.step(Event::Submitted { scan, shards }, 0);
    }
    let commands = scheduler.step(Event::WorkerJoined { worker: 1, slots: 4 }, 0);
    let scans: Vec<ScanId> = commands
        .iter()
        .filter_map(|c| if let Command::Dispatch { scan, .. } = c { Some(*scan) } else { None })
        .collect();
    assert_eq!(scans, [1, 2, 1, 2]);
}

#[test]
fn a_scan_without_segments_ends_at_once() {
    let (_, commands) = one_scan(1, &[]);
    assert_eq!(commands, [Command::End { scan: 1, outcome: Outcome::Complete }]);
}
