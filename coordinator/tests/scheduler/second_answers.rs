//! Two answers for one piece: hedges, disputes, quarantine.

use trawl_coordinator::planner::Shard;
use trawl_coordinator::scheduler::{
    AttemptId, Command, DISPUTE_TIMEOUT_MS, Digest, Event, Loss, Outcome, Piece, Purpose,
};

use super::{Case, contested, request, shard, whole};

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
