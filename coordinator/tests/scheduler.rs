//! The behaviour of the scheduler, case by case. Invariants are checked in the simulator (`sim`).

use std::collections::BTreeMap;

use trawl_coordinator::planner::Shard;
use trawl_coordinator::scheduler::{
    AttemptId, Check, ClassId, Command, DISPUTE_TIMEOUT_MS, Digest, Event, HOLDER_WAIT_MAX_MS, HostId, Limits, Loss,
    Outcome, Piece, Purpose, Request, ScanId, Scheduler, WorkerId,
};
use trawl_terms::Priority;
use trawl_wire::ErrorKind;

const LIMITS: Limits = Limits {
    attempts_max: 3,
    retry_delay_ms: 10,
    no_worker_timeout_ms: 1000,
    deaths_max: 2,
    poisoned_max: 2,
    hedge_min_ms: 100,
    dispute_timeout_ms: DISPUTE_TIMEOUT_MS,
    attempt_timeout_ms: 5_000,
};
const SLOTS: usize = 2;
const SYMBOLS: u32 = 4;

/// A scheduler and its last commands.
struct Case {
    scheduler: Scheduler,
    commands: Vec<Command>,
    now_ms: u64,
}

fn whole(segment: u32) -> Piece {
    Piece { segment, first: 0, count: SYMBOLS }
}

fn shard(segments: &[u32], preferred: Option<WorkerId>) -> Shard {
    Shard { segments: segments.to_vec(), cost: segments.len() as u64, preferred, holders: Vec::new(), cold_ms: 0 }
}

fn request(shards: &[Shard]) -> Request {
    let symbols = shards.iter().flat_map(|s| s.segments.iter().map(|g| (*g, SYMBOLS))).collect();
    Request { shards: shards.to_vec(), symbols, ..Request::default() }
}

impl Case {
    /// Workers 1, 2, ... of class 0, each its own host.
    fn new(workers: u64, slots: usize) -> Self {
        let mut case = Self { scheduler: Scheduler::new(LIMITS, 0), commands: Vec::new(), now_ms: 0 };
        (1..=workers).for_each(|worker| case.join(worker, 0, slots));
        case
    }

    /// As [`Self::new`], with scan 1 of these shards.
    fn one_scan(workers: u64, shards: &[&[u32]]) -> Self {
        let mut case = Self::new(workers, SLOTS);
        let shards: Vec<Shard> = shards.iter().map(|s| shard(s, None)).collect();
        case.step(Event::Submitted { scan: 1, request: request(&shards) });
        case
    }

    fn step(&mut self, event: Event) -> &[Command] {
        self.commands = self.scheduler.step(event, self.now_ms);
        &self.commands
    }

    fn join(&mut self, worker: WorkerId, class: ClassId, slots: usize) {
        self.step(Event::WorkerJoined { worker, host: worker, class, slots });
    }

    fn wait(&mut self, ms: u64) -> &[Command] {
        self.now_ms += ms;
        self.step(Event::Tick)
    }

    fn done(&mut self, attempt: AttemptId, host: HostId, piece: Piece, digest: u8) -> &[Command] {
        let digest: Digest = [digest; 32];
        self.step(Event::PieceDone { scan: 1, attempt, host, piece, digest })
    }

    fn failed(&mut self, attempt: AttemptId, segment: u32, kind: ErrorKind) -> &[Command] {
        self.step(Event::PieceFailed { attempt, piece: whole(segment), kind })
    }

    fn died(&mut self, worker: WorkerId) -> &[Command] {
        self.step(Event::WorkerLost { worker, loss: Loss::Died })
    }

    /// The last dispatches: attempt, worker, pieces, purpose.
    fn dispatched(&self) -> Vec<(AttemptId, WorkerId, Vec<Piece>, Purpose)> {
        let taken = |c: &Command| match c {
            Command::Dispatch { attempt, worker, pieces, purpose, .. } => {
                Some((*attempt, *worker, pieces.clone(), *purpose))
            }
            _ => None,
        };
        self.commands.iter().filter_map(taken).collect()
    }

    /// Worker and segments of the last dispatches.
    fn places(&self) -> Vec<(WorkerId, Vec<u32>)> {
        self.dispatched().into_iter().map(|(_, w, pieces, _)| (w, pieces.iter().map(|p| p.segment).collect())).collect()
    }

    fn says(&self, command: &Command) -> bool {
        self.commands.contains(command)
    }
}

#[test]
fn what_a_lost_worker_left_goes_elsewhere_at_once() {
    let mut case = Case::one_scan(2, &[&[0, 1], &[2, 3]]);
    assert_eq!(case.places(), [(1, vec![0, 1]), (2, vec![2, 3])]);
    case.done(1, 1, whole(0), 0);
    case.died(1);
    assert_eq!(case.places(), [(2, vec![1])]);
}

#[test]
fn what_a_living_worker_failed_goes_to_another_first_and_back_only_when_all_failed() {
    let mut case = Case::one_scan(2, &[&[0]]);
    case.failed(1, 0, ErrorKind::Retryable);
    assert_eq!(case.places(), [], "a delay comes first");
    case.wait(10);
    assert_eq!(case.places(), [(2, vec![0])]);
    case.failed(2, 0, ErrorKind::Retryable);
    case.wait(20);
    assert_eq!(case.places().len(), 1);
    case.failed(3, 0, ErrorKind::Retryable);
    assert_eq!(
        case.commands,
        [
            Command::Fail { scan: 1, piece: whole(0), kind: ErrorKind::Retryable, attempts: 3 },
            Command::End { scan: 1, outcome: Outcome::Complete { disputed: false } }
        ]
    );
}

/// The failure of segment 0.
fn fails(kind: ErrorKind, attempts: u32) -> Command {
    Command::Fail { scan: 1, piece: whole(0), kind, attempts }
}

#[test]
fn a_failure_for_good_needs_a_second_host_that_says_the_same() {
    for (kind, reported) in [
        (ErrorKind::Permanent, ErrorKind::Permanent),
        (ErrorKind::Invalid, ErrorKind::Invalid),
        // Damage found by all hosts is a property of the snapshot.
        (ErrorKind::Damaged, ErrorKind::Permanent),
    ] {
        let mut case = Case::one_scan(2, &[&[0, 1]]);
        case.failed(1, 0, kind);
        assert_eq!(case.places(), [(2, vec![0])], "at once, and elsewhere");
        assert_eq!(case.commands.len(), 1, "{:?}", case.commands);
        case.failed(2, 0, kind);
        assert_eq!(case.commands, [fails(reported, 2)]);
    }
}

#[test]
fn a_host_whose_reply_cannot_be_a_result_is_not_believed_once_another_host_has_one() {
    let mut case = Case::one_scan(3, &[&[0, 1, 2]]);
    case.done(1, 1, whole(1), 5);
    case.step(Event::PieceMalformed { attempt: 1, piece: whole(0) });
    assert_eq!(case.commands, [], "by itself it proves nothing");
    case.wait(LIMITS.retry_delay_ms);
    let (attempt, host, pieces, _) = case.dispatched()[0].clone();
    assert!(host != 1 && pieces == [whole(0)]);
    case.done(attempt, host, whole(0), 5);
    assert!(case.says(&Command::Accept { scan: 1, piece: whole(0) }));
    assert!(case.says(&Command::Quarantine { host: 1, scan: 1, piece: whole(0) }));
    let ends = Command::End { scan: 1, outcome: Outcome::Complete { disputed: false } };
    assert!(!case.says(&ends), "it was believed about another piece");
    // What it answered, and what it was to answer; not to it.
    let mut asked: Vec<(AttemptId, WorkerId, Vec<Piece>, Purpose)> = case.dispatched();
    asked.sort_by_key(|(_, _, pieces, _)| pieces.clone());
    let pieces: Vec<Piece> = asked.iter().flat_map(|(_, _, pieces, _)| pieces.clone()).collect();
    assert!(pieces == [whole(1), whole(2)] && asked.iter().all(|(_, worker, ..)| *worker != 1), "{asked:?}");
    for (attempt, host, pieces, _) in asked {
        pieces.into_iter().for_each(|piece| drop(case.done(attempt, host, piece, 5).to_vec()));
    }
    assert!(case.says(&ends), "{:?}", case.commands);

    // Without another host it is tried again there.
    let mut alone = Case::one_scan(1, &[&[0]]);
    alone.step(Event::PieceMalformed { attempt: 1, piece: whole(0) });
    alone.wait(LIMITS.retry_delay_ms);
    assert_eq!(alone.places(), [(1, vec![0])]);
    alone.done(2, 1, whole(0), 5);
    let accepted = Command::Accept { scan: 1, piece: whole(0) };
    assert!(alone.says(&accepted) && alone.says(&ends), "it is believed if it has a result then: {:?}", alone.commands);
}

#[test]
fn a_reply_that_cannot_be_a_result_counts_as_well_once_another_host_has_one() {
    let mut case = Case::new(3, 1);
    case.step(Event::Submitted { scan: 1, request: request(&[shard(&[0, 1, 2], Some(1))]) });
    case.done(1, 1, whole(1), 5);
    // Another attempt had it, and was late.
    case.done(AttemptId::MAX, 2, whole(0), 5);
    assert_eq!(case.commands, [Command::Accept { scan: 1, piece: whole(0) }]);
    case.step(Event::PieceMalformed { attempt: 1, piece: whole(0) });
    assert!(case.says(&Command::Quarantine { host: 1, scan: 1, piece: whole(0) }), "{:?}", case.commands);
    assert!(case.says(&Command::Stop { attempt: 1 }), "{:?}", case.commands);
    let asked: Vec<(Vec<Piece>, Purpose)> = case.dispatched().into_iter().map(|(_, _, p, why)| (p, why)).collect();
    assert!(asked.contains(&(vec![whole(1)], Purpose::Vote)), "its word about another piece is taken back: {asked:?}");
    assert!(asked.contains(&(vec![whole(2)], Purpose::Work)), "{asked:?}");
    for (attempt, host, pieces, _) in case.dispatched() {
        assert!(host != 1);
        case.done(attempt, host, pieces[0], 5);
    }
    assert!(case.says(&Command::End { scan: 1, outcome: Outcome::Complete { disputed: false } }));
}

#[test]
fn a_vote_that_cannot_be_a_result_is_the_voters_fault() {
    let mut case = contested(3);
    let (attempt, worker, pieces, purpose) = case.dispatched()[0].clone();
    assert_eq!((worker, pieces, purpose), (3, vec![whole(0)], Purpose::Vote));
    case.step(Event::PieceMalformed { attempt, piece: whole(0) });
    assert!(case.says(&Command::Quarantine { host: 3, scan: 1, piece: whole(0) }), "{:?}", case.commands);
    assert!(!case.commands.iter().any(|command| matches!(command, Command::Quarantine { host: 1 | 2, .. })));
    // The dispute goes on, with the next host that comes.
    case.join(4, 0, 1);
    let (attempt, worker, pieces, purpose) = case.dispatched()[0].clone();
    assert_eq!((worker, pieces, purpose), (4, vec![whole(0)], Purpose::Vote));
    case.done(attempt, 4, whole(0), 0);
    assert!(case.says(&Command::Quarantine { host: 1, scan: 1, piece: whole(0) }), "{:?}", case.commands);
    assert!(case.says(&Command::Replace { scan: 1, piece: whole(0) }), "{:?}", case.commands);
}

#[test]
fn a_host_that_answers_properly_the_second_time_is_believed_until_another_has_the_result_too() {
    let mut case = Case::one_scan(1, &[&[0], &[1]]);
    case.step(Event::PieceMalformed { attempt: 1, piece: whole(0) });
    case.step(Event::AttemptEnded { attempt: 1 });
    case.wait(LIMITS.retry_delay_ms);
    let (attempt, ..) = case.dispatched()[0].clone();
    case.done(attempt, 1, whole(0), 5);
    assert!(case.says(&Command::Accept { scan: 1, piece: whole(0) }), "{:?}", case.commands);
    case.join(2, 0, SLOTS);
    case.done(99, 2, whole(0), 5);
    assert!(case.says(&Command::Quarantine { host: 1, scan: 1, piece: whole(0) }), "{:?}", case.commands);
}

#[test]
fn a_host_that_fails_what_another_has_is_given_nothing_more_and_its_results_are_believed() {
    let mut case = Case::one_scan(2, &[&[0, 1, 2]]);
    case.done(1, 1, whole(1), 5);
    case.failed(1, 0, ErrorKind::Damaged);
    assert_eq!(case.places(), [(2, vec![0])]);
    case.done(2, 2, whole(0), 5);
    assert!(case.says(&Command::Accept { scan: 1, piece: whole(0) }));
    assert!(case.says(&Command::Distrust { host: 1, scan: 1, piece: whole(0) }));
    assert!(case.says(&Command::Stop { attempt: 1 }));
    assert_eq!(case.places(), [(2, vec![2])], "the rest of what it had; what it has answered is not asked for again");
    case.done(3, 2, whole(2), 5);
    assert!(case.says(&Command::End { scan: 1, outcome: Outcome::Complete { disputed: false } }));
    for attempt in [2, 3] {
        case.step(Event::AttemptEnded { attempt });
    }
    let next = Request { shards: vec![shard(&[0], Some(1))], ..request(&[shard(&[0], None)]) };
    case.step(Event::Submitted { scan: 2, request: next });
    assert_eq!(case.places(), [(2, vec![0])]);
    // After a restart it has another registration, and is trusted again.
    case.step(Event::WorkerLost { worker: 1, loss: Loss::Left });
    case.step(Event::WorkerJoined { worker: 9, host: 1, class: 0, slots: SLOTS });
    let next = Request { shards: vec![shard(&[0], Some(9))], ..request(&[shard(&[0], None)]) };
    case.step(Event::Submitted { scan: 3, request: next });
    assert_eq!(case.places(), [(9, vec![0])]);
}

#[test]
fn where_nobody_else_can_be_asked_the_coordinator_reads_its_own_copy() {
    let ends = |kind: ErrorKind, found: Check| {
        let mut case = Case::one_scan(1, &[&[0]]);
        case.failed(1, 0, kind);
        assert_eq!(case.commands, [Command::Check { scan: 1, piece: whole(0) }]);
        case.step(Event::AttemptEnded { attempt: 1 });
        assert_eq!(case.wait(60_000), [], "it waits for what is found");
        case.step(Event::Checked { scan: 1, piece: whole(0), found });
        case
    };
    assert!(ends(ErrorKind::Damaged, Check::Damaged).says(&fails(ErrorKind::Permanent, 1)));
    assert!(ends(ErrorKind::Permanent, Check::Sound).says(&fails(ErrorKind::Permanent, 1)));
    assert!(ends(ErrorKind::Permanent, Check::Damaged).says(&fails(ErrorKind::Permanent, 1)));
    for kind in [ErrorKind::Damaged, ErrorKind::Permanent] {
        assert!(ends(kind, Check::Unknown).says(&fails(ErrorKind::Retryable, 1)), "nothing is proven");
    }
    let mut alone = ends(ErrorKind::Damaged, Check::Sound);
    assert_eq!(alone.commands, [Command::Distrust { host: 1, scan: 1, piece: whole(0) }]);
    alone.join(2, 0, SLOTS);
    alone.wait(10);
    assert_eq!(alone.places(), [(2, vec![0])], "it waits for a worker that is trusted");
}

#[test]
fn an_attempt_that_says_nothing_for_too_long_is_ended_and_gets_longer_the_next_time() {
    let mut case = Case::one_scan(1, &[&[0, 1]]);
    case.wait(4_999);
    case.done(1, 1, whole(0), 0);
    assert_eq!(case.wait(4_999), [], "each reply begins its time anew");
    case.wait(1);
    assert_eq!(case.commands[0], Command::Stop { attempt: 1 });
    assert_eq!(case.places(), [(1, vec![1])], "alone, it gets the work again");
    assert_eq!(case.wait(9_999), [], "twice as long");
    case.wait(1);
    assert_eq!(case.commands[0], Command::Stop { attempt: 2 });
    // Another worker joins and is asked first.
    let mut case = Case::one_scan(1, &[&[0]]);
    case.join(2, 0, SLOTS);
    case.wait(5_000);
    assert_eq!(case.places(), [(2, vec![0])]);
    case.wait(10_000);
    case.wait(20_000);
    assert!(case.says(&fails(ErrorKind::Retryable, 3)), "and its attempts are bounded");
}

#[test]
fn an_attempt_whose_replies_wait_for_room_is_not_late() {
    let mut case = Case::one_scan(1, &[&[0]]);
    for _ in 0..10 {
        case.wait(4_999);
        case.step(Event::AttemptPaused { attempt: 1 });
    }
    assert_eq!(case.wait(4_999), []);
    case.wait(1);
    assert_eq!(case.commands[0], Command::Stop { attempt: 1 }, "silent again, it is");
    // Unknown attempts change nothing.
    case.step(Event::AttemptPaused { attempt: 99 });
}

#[test]
fn a_scan_that_waits_for_workers_does_not_end_without_them() {
    let mut case = Case::new(0, SLOTS);
    let request = Request { waits: true, ..request(&[shard(&[0], None)]) };
    case.step(Event::Submitted { scan: 1, request });
    assert!(case.scheduler.waits_for_workers(1));
    assert_eq!(case.wait(1_000_000), []);
    case.join(1, 0, SLOTS);
    assert_eq!(case.places(), [(1, vec![0])]);
    assert!(!case.scheduler.waits_for_workers(1));
    case.died(1);
    assert!(case.scheduler.waits_for_workers(1));
    case.join(2, 0, SLOTS);
    assert_eq!(case.places(), [(2, vec![0])]);
}

#[test]
fn without_a_worker_of_its_class_a_scan_ends_after_the_timeout_and_not_before() {
    let mut case = Case::new(0, SLOTS);
    case.join(1, 7, SLOTS);
    case.step(Event::Submitted { scan: 1, request: request(&[shard(&[0], None)]) });
    assert_eq!(case.commands, []);
    assert_eq!(case.wait(999), []);
    assert_eq!(case.wait(1), [Command::End { scan: 1, outcome: Outcome::NoWorker }]);
}

#[test]
fn work_stays_in_its_class() {
    let mut case = Case::new(0, SLOTS);
    case.join(1, 7, SLOTS);
    case.join(2, 8, SLOTS);
    let request = Request { class: 8, ..request(&[shard(&[0], Some(1)), shard(&[1], None), shard(&[2], None)]) };
    case.step(Event::Submitted { scan: 1, request });
    assert!(case.places().iter().all(|(worker, _)| *worker == 2), "{:?}", case.commands);
    assert_eq!(case.places().len(), 2, "and within its slots");
}

#[test]
fn an_idle_worker_takes_work_that_prefers_a_busy_one() {
    let mut case = Case::new(2, 1);
    let shards: Vec<Shard> = (0..3).map(|s| shard(&[s], Some(1))).collect();
    case.step(Event::Submitted { scan: 1, request: request(&shards) });
    assert_eq!(case.places(), [(1, vec![0]), (2, vec![2])]);
}

/// A scan whose shards prefer worker 1, which holds their data: loading them would take others `cold_ms`.
fn held_by_1(segments: u32, cold_ms: u64) -> Request {
    let shards: Vec<Shard> = (0..segments).map(|s| Shard { cold_ms, ..shard(&[s], Some(1)) }).collect();
    request(&shards)
}

#[test]
fn an_idle_holder_gets_its_work_and_a_busy_one_is_waited_for_while_that_costs_less_than_a_load() {
    let mut case = Case::new(2, 1);
    case.step(Event::Submitted { scan: 1, request: held_by_1(2, 500) });
    assert_eq!(case.places(), [(1, vec![0])], "worker 2 waits for it");
    assert_eq!(case.scheduler.wake_ms(), Some(500));
    case.wait(499);
    assert_eq!(case.places(), []);
    case.done(1, 1, whole(0), 0);
    case.step(Event::AttemptEnded { attempt: 1 });
    assert_eq!(case.places(), [(1, vec![1])], "it was free in time");
    assert_eq!(case.scheduler.wake_ms(), None);
}

#[test]
fn a_holder_that_is_busy_for_longer_than_a_load_takes_is_not_waited_for() {
    let mut case = Case::new(2, 1);
    case.step(Event::Submitted { scan: 1, request: held_by_1(3, 500) });
    case.wait(500);
    assert_eq!(case.places(), [(2, vec![2])], "what it would reach last");
    case.done(2, 2, whole(2), 0);
    case.step(Event::AttemptEnded { attempt: 2 });
    assert_eq!(case.places(), [(2, vec![1])], "the time of all of them began when a worker was free");
    assert_eq!(case.scheduler.wake_ms(), None);
}

#[test]
fn the_wait_begins_when_another_worker_is_free_and_is_bounded_whatever_the_estimate_says() {
    let mut case = Case::new(1, 1);
    case.step(Event::Submitted { scan: 1, request: held_by_1(3, u64::MAX) });
    case.wait(4_000);
    assert_eq!((case.places(), case.scheduler.wake_ms()), (vec![], None), "nobody else is there");
    case.join(2, 0, 1);
    assert_eq!((case.places(), case.scheduler.wake_ms()), (vec![], Some(4_000 + HOLDER_WAIT_MAX_MS)));
    case.done(1, 1, whole(0), 0);
    case.wait(HOLDER_WAIT_MAX_MS - 1);
    assert_eq!(case.places(), []);
    case.wait(1);
    assert_eq!(case.places(), [(2, vec![2])]);
}

#[test]
fn work_of_other_scans_does_not_wait_and_a_holder_that_goes_is_waited_for_no_longer() {
    let mut case = Case::new(2, 1);
    case.step(Event::Submitted { scan: 1, request: held_by_1(3, 500) });
    case.step(Event::Submitted { scan: 2, request: request(&[shard(&[7], None)]) });
    assert_eq!(case.places(), [(2, vec![7])]);
    case.step(Event::AttemptEnded { attempt: 2 });
    case.step(Event::Cancelled { scan: 2 });
    assert_eq!(case.places(), []);
    case.step(Event::WorkerDraining { worker: 1 });
    assert_eq!((case.places(), case.scheduler.wake_ms()), (vec![(2, vec![1])], None));
}

#[test]
fn another_worker_that_holds_the_data_takes_it_at_once() {
    let mut case = Case::new(3, 1);
    let copies = held_by_1(3, 500).shards.into_iter().map(|shard| Shard { holders: vec![3, 1, 77], ..shard });
    case.step(Event::Submitted { scan: 1, request: Request { shards: copies.collect(), ..held_by_1(3, 500) } });
    assert_eq!(case.places(), [(1, vec![0]), (3, vec![2])], "worker 2 waits");
    case.wait(500);
    assert_eq!(case.places(), [(2, vec![1])]);
}

#[test]
fn a_worker_that_fails_what_it_says_to_hold_is_not_waited_for_again() {
    let mut case = Case::new(2, 2);
    case.step(Event::Submitted { scan: 1, request: held_by_1(1, 1_000) });
    case.failed(1, 0, ErrorKind::Retryable);
    case.wait(10);
    assert_eq!(case.places(), [(2, vec![0])]);
}

#[test]
fn scans_take_turns_and_more_of_them_with_a_higher_priority() {
    let turns = |priorities: [Priority; 2]| {
        let mut case = Case::new(0, SLOTS);
        for (scan, priority) in (1..).zip(priorities) {
            let shards: Vec<Shard> = (0..40).map(|s| shard(&[s], None)).collect();
            case.step(Event::Submitted { scan, request: Request { priority, ..request(&shards) } });
        }
        case.join(1, 0, 20);
        let scans = case.commands.iter().filter_map(|c| match c {
            Command::Dispatch { scan, .. } => Some(*scan),
            _ => None,
        });
        scans.collect::<Vec<ScanId>>()
    };
    assert_eq!(turns([Priority::Normal; 2])[..4], [1, 2, 1, 2]);
    let served = |priorities| turns(priorities).iter().filter(|scan| **scan == 1).count();
    assert_eq!(served([Priority::High, Priority::Normal]), 16);
    assert_eq!(served([Priority::Low, Priority::Normal]), 4);
    assert!(served([Priority::Low, Priority::High]) >= 1, "nobody starves");
}

#[test]
fn callers_share_the_workers_and_many_scans_of_one_have_its_share_together() {
    let mut case = Case::new(0, SLOTS);
    for scan in 1..=5 {
        let shards: Vec<Shard> = (0..40).map(|s| shard(&[s], None)).collect();
        let caller = if scan == 5 { 2 } else { 1 };
        case.step(Event::Submitted { scan, request: Request { caller, ..request(&shards) } });
    }
    case.join(1, 0, 40);
    let of = |wanted: ScanId| {
        let dispatched = |c: &&Command| matches!(c, Command::Dispatch { scan, .. } if *scan == wanted);
        case.commands.iter().filter(dispatched).count()
    };
    assert_eq!((1..=5).map(of).collect::<Vec<_>>(), [5, 5, 5, 5, 20]);
    // A caller alone has all of it.
    case.step(Event::Cancelled { scan: 5 });
    case.join(2, 0, 20);
    let of = |wanted: ScanId| {
        let dispatched = |c: &&Command| matches!(c, Command::Dispatch { scan, .. } if *scan == wanted);
        case.commands.iter().filter(dispatched).count()
    };
    assert_eq!((1..=4).map(of).collect::<Vec<_>>(), [5, 5, 5, 5]);
}

#[test]
fn a_scan_without_segments_ends_at_once() {
    let case = Case::one_scan(1, &[]);
    assert_eq!(case.commands, [Command::End { scan: 1, outcome: Outcome::Complete { disputed: false } }]);
}

#[test]
fn a_deadline_ends_a_scan_and_stops_what_runs() {
    let mut case = Case::new(1, SLOTS);
    let request = Request { deadline_ms: Some(500), ..request(&[shard(&[0], None)]) };
    case.step(Event::Submitted { scan: 1, request });
    assert_eq!(case.wait(499), []);
    let ended = Command::End { scan: 1, outcome: Outcome::DeadlineExceeded };
    assert_eq!(case.wait(1), [Command::Stop { attempt: 1 }, ended]);
    assert!(case.scheduler.is_idle());
}

#[test]
fn a_draining_worker_finishes_what_it_has_and_is_given_nothing_more() {
    let mut case = Case::new(2, 1);
    let shards: Vec<Shard> = (0..4).map(|s| shard(&[s], Some(1))).collect();
    case.step(Event::Submitted { scan: 1, request: request(&shards) });
    assert_eq!(case.places(), [(1, vec![0]), (2, vec![3])]);
    case.step(Event::WorkerDraining { worker: 1 });
    assert_eq!(case.commands, []);
    case.done(1, 1, whole(0), 0);
    assert!(case.says(&Command::Accept { scan: 1, piece: whole(0) }));
    case.step(Event::AttemptEnded { attempt: 1 });
    assert_eq!(case.places(), []);
    case.step(Event::WorkerLost { worker: 1, loss: Loss::Left });
    case.done(2, 2, whole(3), 0);
    case.step(Event::AttemptEnded { attempt: 2 });
    assert_eq!(case.places(), [(2, vec![1])]);
}

#[test]
fn work_of_workers_that_leave_is_never_used_up() {
    let mut case = Case::one_scan(1, &[&[0]]);
    for worker in 2..20 {
        case.join(worker, 0, SLOTS);
        case.step(Event::WorkerLost { worker: worker - 1, loss: Loss::Left });
        assert_eq!(case.places(), [(worker, vec![0])]);
    }
}

/// Most of a scan is done, its last piece is late, and a worker is idle.
fn straggler() -> Case {
    let mut case = Case::new(2, 1);
    let shards: Vec<Shard> = (0..5).map(|s| shard(&[s], None)).collect();
    case.step(Event::Submitted { scan: 1, request: request(&shards) });
    // Worker 1 runs segment 0 and does not finish; worker 2 does the others.
    for segment in 1..5 {
        let attempt = AttemptId::from(segment) + 1;
        case.now_ms += 10;
        case.done(attempt, 2, whole(segment), 0);
        case.step(Event::AttemptEnded { attempt });
    }
    case
}

#[test]
fn a_straggler_is_hedged_once_and_the_beaten_attempt_is_stopped() {
    let mut case = straggler();
    assert_eq!(case.wait(59), [], "at 99 ms it is not late");
    case.wait(1);
    assert_eq!(case.dispatched(), [(6, 2, vec![whole(0)], Purpose::Hedge)]);
    assert_eq!(case.wait(1000), [], "one hedge is enough");
    case.done(6, 2, whole(0), 0);
    let end = Command::End { scan: 1, outcome: Outcome::Complete { disputed: false } };
    assert_eq!(case.commands, [Command::Accept { scan: 1, piece: whole(0) }, Command::Stop { attempt: 1 }, end]);
}

#[test]
fn a_hedge_that_is_lost_leaves_the_first_attempt_alone() {
    let mut case = straggler();
    case.wait(60);
    case.died(2);
    assert_eq!(case.places(), []);
    case.done(1, 1, whole(0), 0);
    assert!(case.says(&Command::Accept { scan: 1, piece: whole(0) }));
}

/// Two hosts returned different results for segment 0; segment 1 is still open on the second. Worker 3 is free.
fn contested(workers: u64) -> Case {
    let mut case = Case::new(2, 1);
    let shards = [shard(&[0, 1], None), shard(&[2], None), shard(&[3], None), shard(&[4], None), shard(&[5], None)];
    case.step(Event::Submitted { scan: 1, request: request(&shards) });
    for segment in 2..6 {
        let attempt = AttemptId::from(segment);
        case.now_ms += 1;
        case.done(attempt, 2, whole(segment), 0);
        case.step(Event::AttemptEnded { attempt });
    }
    case.wait(200);
    assert_eq!(case.dispatched(), [(6, 2, vec![whole(0), whole(1)], Purpose::Hedge)]);
    case.done(1, 1, whole(0), 9);
    (3..=workers).for_each(|worker| case.join(worker, 0, 1));
    case.done(6, 2, whole(0), 0);
    assert!(case.says(&Command::Contest { scan: 1, piece: whole(0) }));
    case
}

#[test]
fn a_third_host_decides_a_dispute_and_the_minority_is_quarantined() {
    let mut case = contested(3);
    let (attempt, worker, pieces, purpose) = case.dispatched()[0].clone();
    assert_eq!((worker, pieces, purpose), (3, vec![whole(0)], Purpose::Vote));
    case.done(attempt, 3, whole(0), 0);
    assert!(case.says(&Command::Quarantine { host: 1, scan: 1, piece: whole(0) }), "{:?}", case.commands);
    assert!(case.says(&Command::Replace { scan: 1, piece: whole(0) }), "{:?}", case.commands);
    assert!(case.says(&Command::Stop { attempt: 1 }), "the liar's work is taken away: {:?}", case.commands);
    case.step(Event::AttemptEnded { attempt });
    case.done(6, 2, whole(1), 0);
    assert!(case.says(&Command::End { scan: 1, outcome: Outcome::Complete { disputed: false } }));
    // It returns, but remains quarantined.
    case.step(Event::WorkerLost { worker: 1, loss: Loss::Died });
    case.step(Event::WorkerJoined { worker: 10, host: 1, class: 0, slots: 4 });
    case.step(Event::Submitted { scan: 2, request: request(&[shard(&[0], Some(10)), shard(&[1], None)]) });
    assert!(case.places().iter().all(|(worker, _)| *worker != 10), "{:?}", case.commands);
}

#[test]
fn what_only_a_quarantined_host_answered_is_asked_for_again() {
    let mut case = Case::new(3, 1);
    case.step(Event::Submitted { scan: 1, request: request(&[shard(&[0, 1, 2], Some(1))]) });
    case.done(1, 1, whole(0), 9);
    case.done(1, 1, whole(1), 9);
    case.done(AttemptId::MAX, 2, whole(0), 0);
    let vote = case.dispatched()[0].0;
    case.done(vote, 3, whole(0), 0);
    // Segment 1 was answered only by the liar; segment 2 was running on the liar.
    let mut asked: Vec<(Vec<Piece>, Purpose)> = case.dispatched().into_iter().map(|(_, _, p, why)| (p, why)).collect();
    case.step(Event::AttemptEnded { attempt: vote });
    asked.extend(case.dispatched().into_iter().map(|(_, _, p, why)| (p, why)));
    assert!(asked.contains(&(vec![whole(1)], Purpose::Vote)), "{asked:?}");
    assert!(asked.contains(&(vec![whole(2)], Purpose::Work)), "{asked:?}");
}

#[test]
fn no_scan_ends_while_answers_of_a_liar_are_being_looked_at() {
    let mut case = Case::new(3, 4);
    for scan in [1, 2] {
        case.step(Event::Submitted { scan, request: request(&[shard(&[0, 1], None)]) });
    }
    let attempt = AttemptId::MAX;
    let mut says = |scan, host, segment, digest: u8| {
        let digest: Digest = [digest; 32];
        case.step(Event::PieceDone { scan, attempt, host, piece: whole(segment), digest });
        case.commands.clone()
    };
    // In scan 2 the liar contradicts one right result, and returned the other.
    says(2, 2, 0, 0);
    says(2, 1, 0, 9);
    says(2, 1, 1, 9);
    says(1, 1, 0, 9);
    says(1, 2, 0, 0);
    let commands = says(1, 3, 0, 0);
    assert!(commands.contains(&Command::Quarantine { host: 1, scan: 1, piece: whole(0) }), "{commands:?}");
    assert!(
        !commands.iter().any(|c| matches!(c, Command::End { scan: 2, .. })),
        "its last word was the liar's: {commands:?}"
    );
    let commands = says(2, 2, 1, 0);
    assert!(commands.contains(&Command::Replace { scan: 2, piece: whole(1) }), "{commands:?}");
    assert!(
        commands.contains(&Command::End { scan: 2, outcome: Outcome::Complete { disputed: false } }),
        "{commands:?}"
    );
}

#[test]
fn a_dispute_that_nobody_can_settle_marks_the_scan() {
    let mut case = contested(2);
    case.done(6, 2, whole(1), 0);
    assert_eq!(case.wait(DISPUTE_TIMEOUT_MS - 1), []);
    case.wait(1);
    assert_eq!(case.commands, [Command::End { scan: 1, outcome: Outcome::Complete { disputed: true } }]);
}

#[test]
fn another_result_for_a_delivered_scan_is_reported_once() {
    let mut case = Case::one_scan(1, &[&[0]]);
    case.done(1, 1, whole(0), 0);
    assert_eq!(case.done(AttemptId::MAX, 2, whole(0), 0), []);
    assert_eq!(case.done(AttemptId::MAX, 2, whole(0), 9), [Command::Doubt { scan: 1 }]);
    assert_eq!(case.done(AttemptId::MAX, 3, whole(0), 9), []);
}

/// Workers die of `poison`, symbols of segment 0, until the scan ends. Returns how each symbol ended.
fn bisect(poison: &[u32]) -> (BTreeMap<u32, &'static str>, Outcome, usize) {
    let mut case = Case::one_scan(1, &[&[0]]);
    let (mut ends, mut deaths, mut worker) = (BTreeMap::new(), 0, 1);
    for _ in 0..100 {
        let mut next = case.dispatched();
        let end = case.commands.iter().find_map(|c| match c {
            Command::End { outcome, .. } => Some(*outcome),
            _ => None,
        });
        if let Some(outcome) = end {
            return (ends, outcome, deaths);
        }
        let Some((attempt, host, pieces, purpose)) = next.pop() else {
            // A worker took its work with it: the next one starts.
            worker += 1;
            case.join(worker, 0, SLOTS);
            continue;
        };
        assert!(next.is_empty(), "one worker, one suspect at a time");
        let piece = pieces[0];
        assert_eq!(purpose == Purpose::Isolation, piece.count < SYMBOLS, "{piece:?}");
        let symbols = piece.first..piece.first + piece.count;
        if symbols.clone().any(|s| poison.contains(&s)) {
            deaths += 1;
            let commands = case.died(host).to_vec();
            for command in &commands {
                if let Command::Fail { piece, kind, .. } = command {
                    assert_eq!((*kind, piece.count), (ErrorKind::Poisoned, 1));
                    ends.insert(piece.first, "poisoned");
                }
            }
        } else {
            case.done(attempt, host, piece, 0);
            let ended = case.commands.clone();
            symbols.for_each(|s| assert_eq!(ends.insert(s, "answered"), None));
            if ended.iter().all(|c| !matches!(c, Command::End { .. })) {
                case.step(Event::AttemptEnded { attempt });
            }
        }
    }
    panic!("it never ends: {:?}", case.scheduler);
}

#[test]
fn a_segment_that_kills_workers_is_cut_down_to_the_symbol_that_does_it() {
    for poison in 0..SYMBOLS {
        let (ends, outcome, deaths) = bisect(&[poison]);
        assert_eq!(outcome, Outcome::Complete { disputed: false });
        let wanted = |s| (s, if s == poison { "poisoned" } else { "answered" });
        assert_eq!(ends, (0..SYMBOLS).map(wanted).collect());
        assert_eq!(deaths, 5, "twice whole, once halved, twice alone");
    }
}

#[test]
fn a_scan_of_too_many_poisoned_symbols_ends() {
    let (ends, outcome, _) = bisect(&[0, 1, 3]);
    assert_eq!(outcome, Outcome::Poisoned);
    assert_eq!(ends.values().filter(|end| **end == "poisoned").count(), 2);
}

#[test]
fn a_suspect_runs_with_nothing_beside_it_and_is_not_starved() {
    let mut case = Case::one_scan(3, &[&[0]]);
    case.died(1);
    assert_eq!(case.places(), [(2, vec![0])]);
    // Other scans keep the last worker busy before the second death.
    let shards: Vec<Shard> = (0..9).map(|s| shard(&[s], None)).collect();
    case.step(Event::Submitted { scan: 2, request: request(&shards) });
    case.died(2);
    let half = |first| Piece { segment: 0, first, count: 2 };
    assert!(case.dispatched().iter().all(|d| d.3 != Purpose::Isolation), "worker 3 is busy");
    let mut seen = Vec::new();
    for attempt in 2..12 {
        case.step(Event::AttemptEnded { attempt });
        for (id, worker, pieces, purpose) in case.dispatched() {
            if purpose == Purpose::Isolation {
                assert_eq!(case.scheduler.in_flight(worker), 1, "it runs alone");
                seen.extend(pieces.clone());
                case.done(id, worker, pieces[0], 0);
                case.step(Event::AttemptEnded { attempt: id });
                for (_, _, pieces, purpose) in case.dispatched() {
                    if purpose == Purpose::Isolation {
                        seen.extend(pieces);
                    }
                }
                assert_eq!(seen, [half(0), half(2)]);
                return;
            }
        }
    }
    panic!("the suspect never ran");
}
