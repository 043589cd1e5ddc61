//! Pieces that fail: another host, a second opinion, hosts that are not believed.

use trawl_coordinator::scheduler::{
    AttemptId, Check, Command, Event, Loss, Outcome, Piece, Purpose, Request, WorkerId,
};
use trawl_wire::ErrorKind;

use super::{Case, LIMITS, SLOTS, contested, fails, request, shard, whole};

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
