//! Which worker is given what, and when: silence, classes, holders of data, turns of scans and callers, deadlines, workers that leave.

use trawl_coordinator::planner::Shard;
use trawl_coordinator::scheduler::{Command, Event, HOLDER_WAIT_MAX_MS, Loss, Outcome, Request, ScanId};
use trawl_terms::Priority;
use trawl_wire::ErrorKind;

use super::{Case, SLOTS, fails, request, shard, whole};

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
