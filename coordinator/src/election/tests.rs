//! Every transition, and invariants after arbitrary events.

use trawl_wire::LeaderRecord;

use super::*;

const TTL_MS: u64 = 5_000;
/// Lifetime of a lease by the candidate's own clock.
const LIFE_MS: u64 = 4_000;

fn record(boot: &str, campaign: u64) -> LeaderRecord {
    LeaderRecord { id: "c1".into(), boot: boot.into(), address: "127.0.0.1:1".into(), protocol_version: 1, campaign }
}

fn held(boot: &str, campaign: u64, epoch: i64) -> Event {
    let leader = Some(Incumbent { epoch, record: Some(record(boot, campaign)) });
    Event::Seen { leader, revision: epoch }
}

fn vacant(revision: i64) -> Event {
    Event::Seen { leader: None, revision }
}

fn grant(sent_ms: u64) -> Command {
    Command::GrantLease { sent_ms }
}

fn campaign(lease: LeaseId, number: u64) -> Command {
    Command::Campaign { lease, record: record("me", number) }
}

fn revoke(lease: LeaseId) -> Command {
    Command::RevokeLease { lease }
}

fn down(epoch: i64, reason: Reason) -> Command {
    Command::StepDown { epoch, reason }
}

fn election() -> Election {
    Election::new(record("me", 0), TTL_MS)
}

/// A candidate that has campaigned with lease 7 at time 0.
fn candidate() -> Election {
    let mut election = election();
    assert_eq!(election.step(vacant(1), 0), [grant(0)]);
    assert_eq!(election.step(Event::Granted { lease: 7, sent_ms: 0 }, 1), [campaign(7, 1)]);
    election
}

fn applied(revision: i64) -> Event {
    Event::Committed { campaign: 1, applied: true, revision }
}

/// A leader at epoch 5 until 4,000 ms.
fn leader() -> Election {
    let mut election = candidate();
    assert_eq!(election.step(applied(5), 2), [Command::BecomeLeader { epoch: 5 }]);
    election
}

/// A leader at epoch 5 whose lease was not renewed: the keep-alive of 1,700 ms is not answered yet.
fn suspended() -> Election {
    let mut election = leader();
    assert_eq!(election.step(Event::Tick, 1_700), [keep_alive(1_700)]);
    assert_eq!(election.step(Event::Tick, LIFE_MS), [suspend()]);
    assert_eq!(election.standing(), ElectionRole::Suspended { epoch: 5 });
    election
}

fn keep_alive(sent_ms: u64) -> Command {
    Command::KeepAlive { lease: 7, sent_ms }
}

fn suspend() -> Command {
    Command::Suspend { epoch: 5 }
}

fn leads_until(election: &Election, deadline_ms: u64) {
    assert_eq!(election.standing(), ElectionRole::Leading { epoch: 5, deadline_ms });
}

#[test]
fn nobody_campaigns_before_it_has_seen_the_key() {
    let mut election = election();
    assert_eq!(election.step(Event::Tick, 100_000), []);
    assert_eq!(election.standing(), ElectionRole::Standby { leader: None });
    assert_eq!(election.wake_ms(), None);
}

#[test]
fn a_standby_knows_the_leader_and_campaigns_when_the_key_goes() {
    let mut election = election();
    assert_eq!(election.step(held("other", 3, 4), 0), []);
    assert_eq!(election.standing(), ElectionRole::Standby { leader: Some(record("other", 3)) });
    assert_eq!(election.step(vacant(6), 10), [grant(10)]);
    assert_eq!(election.standing(), ElectionRole::Campaigning);
}

#[test]
fn views_that_come_late_are_nothing_new() {
    let mut election = election();
    assert_eq!(election.step(held("other", 3, 9), 0), []);
    assert_eq!(election.step(vacant(8), 0), []);
    let mut leading = leader();
    assert_eq!(leading.step(vacant(4), 3), [], "the key of the leader before went");
    leads_until(&leading, LIFE_MS);
}

#[test]
fn the_deadline_counts_from_when_the_keep_alive_was_sent() {
    let mut election = leader();
    let due_ms = TTL_MS / 3;
    assert_eq!(election.wake_ms(), Some(due_ms));
    let sent = Command::KeepAlive { lease: 7, sent_ms: 1_700 };
    assert_eq!(election.step(Event::Tick, 1_700), [sent]);
    assert_eq!(election.step(Event::Tick, 1_800), [], "one at a time");
    // The next one is due a third of the time to live after the last was sent.
    let next = Command::KeepAlive { lease: 7, sent_ms: 3_500 };
    assert_eq!(election.step(Event::Renewed { lease: 7, sent_ms: 1_700 }, 3_500), [next]);
    leads_until(&election, 1_700 + LIFE_MS);
}

#[test]
fn an_answer_to_another_keep_alive_renews_nothing() {
    let mut election = leader();
    election.step(Event::Tick, 1_700);
    for (lease, sent_ms) in [(7, 1_699), (8, 1_700)] {
        assert_eq!(election.step(Event::Renewed { lease, sent_ms }, 1_800), []);
        leads_until(&election, LIFE_MS);
    }
}

#[test]
fn a_keep_alive_that_fails_is_sent_again_until_the_deadline() {
    let mut election = leader();
    election.step(Event::Tick, 1_700);
    assert_eq!(election.step(Event::Failed { call: StoreCall::KeepAlive { sent_ms: 1_700 } }, 2_000), []);
    assert_eq!(election.wake_ms(), Some(2_000 + RETRY_MS));
    assert_eq!(election.step(Event::Tick, 2_200), [Command::KeepAlive { lease: 7, sent_ms: 2_200 }]);
    assert_eq!(
        election.step(Event::Failed { call: StoreCall::KeepAlive { sent_ms: 1_700 } }, 2_201),
        [],
        "reported twice"
    );
    assert_eq!(election.wake_ms(), Some(LIFE_MS));
    assert_eq!(election.step(Event::Tick, LIFE_MS), [suspend()]);
    assert_eq!(election.wake_ms(), Some(LIFE_MS + SUSPENDED_MAX_MS));
    let commands = election.step(Event::Tick, LIFE_MS + SUSPENDED_MAX_MS);
    assert_eq!(commands, [down(5, Reason::NotRenewed), revoke(7)]);
    assert_eq!(election.standing(), ElectionRole::Standby { leader: None }, "its own old record is no other's");
}

#[test]
fn a_suspended_leader_leads_on_when_its_lease_is_renewed_and_its_key_is_there() {
    let mut election = suspended();
    let failed = Event::Failed { call: StoreCall::KeepAlive { sent_ms: 1_700 } };
    assert_eq!(election.step(failed, 9_000), []);
    assert_eq!(election.step(held("me", 1, 5), 9_100), [], "a view alone renews nothing");
    assert_eq!(election.step(Event::Tick, 9_200), [keep_alive(9_200)]);
    assert_eq!(election.step(Event::Renewed { lease: 7, sent_ms: 9_200 }, 9_210), [Command::Look]);
    assert_eq!(election.standing(), ElectionRole::Suspended { epoch: 5 }, "the key may be gone");
    assert_eq!(election.step(held("me", 1, 5), 9_220), [Command::Resume { epoch: 5 }]);
    leads_until(&election, 9_200 + LIFE_MS);
    assert_eq!(election.wake_ms(), Some(9_200 + TTL_MS / 3));
}

#[test]
fn a_suspended_leader_whose_view_fails_or_comes_too_late_renews_again() {
    let mut election = suspended();
    // This one renews for the past.
    assert_eq!(election.step(Event::Renewed { lease: 7, sent_ms: 1_700 }, 9_000), [Command::Look, keep_alive(9_000)]);
    assert_eq!(election.step(held("me", 1, 5), 9_010), []);
    assert_eq!(election.step(Event::Renewed { lease: 7, sent_ms: 9_000 }, 9_020), [Command::Look]);
    assert_eq!(election.step(Event::Failed { call: StoreCall::Look }, 9_030), []);
    assert_eq!(election.wake_ms(), Some(9_030 + RETRY_MS));
    assert_eq!(election.step(Event::Tick, 9_300), [keep_alive(9_300)]);
    assert_eq!(election.step(held("me", 1, 5), 9_310), [], "not asked for since the renewal");
}

#[test]
fn a_suspended_leader_steps_down_when_another_may_lead() {
    for (event, reason) in [
        (vacant(9), Reason::KeyGone),
        (held("other", 1, 9), Reason::Deposed),
        (Event::LeaseOver { lease: 7 }, Reason::LeaseOver),
        (Event::Succeeded, Reason::Deposed),
        (Event::Resign, Reason::Resigned),
    ] {
        let mut election = suspended();
        let commands = election.step(event.clone(), 9_000);
        assert_eq!(commands.first(), Some(&down(5, reason)), "{event:?}");
        assert!(!matches!(election.standing(), ElectionRole::Suspended { .. } | ElectionRole::Leading { .. }));
    }
    let mut leading = leader();
    assert_eq!(leading.step(Event::Succeeded, 20), [], "by its clock nobody can have succeeded it");
}

#[test]
fn whoever_wakes_past_its_deadline_is_suspended_before_it_acts_on_anything() {
    let late = [
        (Event::Renewed { lease: 7, sent_ms: 1_700 }, vec![Command::Look, keep_alive(600_000)]),
        (Event::Tick, vec![]),
        (held("me", 1, 5), vec![]),
        (Event::Failed { call: StoreCall::KeepAlive { sent_ms: 1_700 } }, vec![]),
        (Event::LeaseOver { lease: 7 }, vec![down(5, Reason::LeaseOver)]),
    ];
    for (event, then) in late {
        let mut election = leader();
        // The clock stops for a while, then jumps.
        for _ in 0..3 {
            election.step(Event::Tick, 1_700);
        }
        let commands = election.step(event.clone(), 600_000);
        assert_eq!(commands, [vec![suspend()], then].concat(), "{event:?}");
        assert!(!matches!(election.standing(), ElectionRole::Leading { .. }));
    }
}

#[test]
fn a_candidate_that_was_stopped_does_not_lead_by_a_late_answer() {
    let mut election = candidate();
    assert_eq!(election.step(applied(5), LIFE_MS), [revoke(7)]);
    assert_eq!(election.step(Event::Tick, LIFE_MS + RETRY_MS), [grant(LIFE_MS + RETRY_MS)]);
}

#[test]
fn an_answer_that_is_older_than_what_is_known_of_the_key_makes_no_leader() {
    let mut election = candidate();
    assert_eq!(election.step(vacant(9), 2), [], "put at 5, gone by 9");
    assert_eq!(election.step(applied(5), 3), [revoke(7), grant(3)]);
}

#[test]
fn a_lease_that_came_too_late_is_given_back() {
    let mut election = election();
    election.step(vacant(1), 0);
    assert_eq!(election.step(Event::Granted { lease: 7, sent_ms: 0 }, LIFE_MS), [revoke(7), grant(LIFE_MS)]);
}

#[test]
fn a_lease_that_nobody_waits_for_is_given_back() {
    let mut election = election();
    election.step(vacant(1), 0);
    assert_eq!(election.step(held("other", 1, 2), 1), []);
    assert_eq!(election.step(Event::Granted { lease: 7, sent_ms: 0 }, 2), [revoke(7)]);
}

#[test]
fn a_put_that_was_answered_by_its_second_try_is_recognised_by_reading() {
    let mut election = candidate();
    let refused = Event::Committed { campaign: 1, applied: false, revision: 6 };
    assert_eq!(election.step(refused, 2), [Command::Look]);
    let mine = Some(Incumbent { epoch: 5, record: Some(record("me", 1)) });
    let seen = Event::Seen { leader: mine, revision: 6 };
    assert_eq!(election.step(seen, 3), [Command::BecomeLeader { epoch: 5 }]);
    leads_until(&election, LIFE_MS);
}

#[test]
fn a_put_that_failed_is_looked_for_until_it_is_known_who_leads() {
    let failed = Event::Failed { call: StoreCall::Campaign { campaign: 1 } };
    let mut election = candidate();
    assert_eq!(election.step(failed.clone(), 10), []);
    assert_eq!(election.step(Event::Tick, 10 + RETRY_MS), [Command::Look]);
    assert_eq!(election.step(Event::Failed { call: StoreCall::Look }, 300), []);
    assert_eq!(election.step(Event::Tick, 300 + RETRY_MS), [Command::Look]);
    assert_eq!(election.step(vacant(3), 600), [campaign(7, 1)], "not made: the same again, under the same lease");
    assert_eq!(election.step(applied(5), 601), [Command::BecomeLeader { epoch: 5 }]);
    leads_until(&election, LIFE_MS);

    let mut election = candidate();
    election.step(failed, 10);
    assert_eq!(election.step(held("me", 1, 5), 11), [Command::BecomeLeader { epoch: 5 }], "the watch says so");
}

#[test]
fn a_record_of_an_earlier_campaign_is_not_taken_for_this_one() {
    let mut election = leader();
    assert_eq!(election.step(Event::LeaseOver { lease: 7 }, 4_000), [suspend(), down(5, Reason::LeaseOver)]);
    // A vacancy was reported although the old record still exists, or exists again.
    assert_eq!(election.step(vacant(6), 5_000), [grant(5_000)]);
    assert_eq!(election.step(Event::Granted { lease: 8, sent_ms: 5_000 }, 5_001), [campaign(8, 2)]);
    let refused = Event::Committed { campaign: 2, applied: false, revision: 8 };
    assert_eq!(election.step(refused, 5_002), [Command::Look]);
    let old = Some(Incumbent { epoch: 7, record: Some(record("me", 1)) });
    assert_eq!(election.step(Event::Seen { leader: old, revision: 8 }, 5_003), [revoke(8)]);
    assert_eq!(election.standing(), ElectionRole::Standby { leader: None });
    assert_eq!(election.step(vacant(9), 5_004), [grant(5_004)]);
}

#[test]
fn a_candidate_that_lost_gives_its_lease_back_and_follows() {
    let mut election = candidate();
    let refused = Event::Committed { campaign: 1, applied: false, revision: 6 };
    assert_eq!(election.step(refused, 2), [Command::Look]);
    assert_eq!(election.step(held("other", 1, 6), 3), [revoke(7)]);
    assert_eq!(election.standing(), ElectionRole::Standby { leader: Some(record("other", 1)) });
    assert_eq!(election.step(applied(5), 4), [], "an answer that nobody waits for");
}

#[test]
fn a_key_that_cannot_be_read_is_held_by_somebody() {
    let mut election = election();
    let strange = Some(Incumbent { epoch: 2, record: None });
    assert_eq!(election.step(Event::Seen { leader: strange, revision: 2 }, 0), []);
    assert_eq!(election.standing(), ElectionRole::Standby { leader: None });
    assert_eq!(election.step(Event::Tick, 100_000), []);
}

#[test]
fn a_leader_whose_key_goes_or_is_taken_steps_down_at_once() {
    let mut election = leader();
    assert_eq!(election.step(vacant(9), 20), [down(5, Reason::KeyGone), revoke(7), grant(20)]);
    let mut election = leader();
    assert_eq!(election.step(held("other", 1, 9), 20), [down(5, Reason::Deposed), revoke(7)]);
    let mut election = leader();
    assert_eq!(election.step(held("me", 1, 5), 20), [], "its own");
}

#[test]
fn a_leader_whose_lease_is_over_steps_down_and_may_lead_again() {
    let mut election = leader();
    assert_eq!(election.step(Event::LeaseOver { lease: 6 }, 20), [], "another lease");
    assert_eq!(election.step(Event::LeaseOver { lease: 7 }, 20), [down(5, Reason::LeaseOver)]);
    assert_eq!(election.step(vacant(8), 30), [grant(30)]);
    let mut election = candidate();
    assert_eq!(election.step(Event::LeaseOver { lease: 7 }, 20), [grant(20)]);
}

#[test]
fn a_lease_that_could_not_be_had_is_asked_for_again_after_a_while() {
    let mut election = election();
    election.step(vacant(1), 0);
    assert_eq!(election.step(Event::Failed { call: StoreCall::Grant { sent_ms: 0 } }, 50), []);
    assert_eq!(election.wake_ms(), Some(50 + RETRY_MS));
    assert_eq!(election.step(Event::Tick, 49 + RETRY_MS), []);
    assert_eq!(election.step(Event::Tick, 50 + RETRY_MS), [grant(50 + RETRY_MS)]);
}

#[test]
fn who_resigns_hands_over_and_never_leads_again() {
    let mut election = leader();
    let handed = Command::Abdicate { epoch: 5, lease: 7 };
    assert_eq!(election.step(Event::Resign, 10), [down(5, Reason::Resigned), handed]);
    assert_eq!(election.standing(), ElectionRole::Resigning);
    assert_eq!(election.step(Event::Resign, 10), []);
    assert_eq!(election.step(vacant(8), 20), []);
    assert_eq!(election.step(Event::Abdicated, 30), []);
    assert_eq!(election.standing(), ElectionRole::Resigned);
    assert_eq!(election.step(vacant(9), 40), []);

    let mut election = candidate();
    assert_eq!(election.step(Event::Resign, 10), [revoke(7)]);
    assert_eq!(election.step(applied(5), 11), []);
    assert_eq!(election.standing(), ElectionRole::Resigned);
    let mut election = super::tests::election();
    assert_eq!(election.step(Event::Resign, 10), []);
    assert_eq!(election.standing(), ElectionRole::Resigned);
}

/// Arbitrary events, including ones that no shell would report.
mod whatever_happens {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    fn events() -> impl Strategy<Value = Event> {
        let (lease, epoch, number) = (1..4i64, 1..9i64, 0..4u64);
        let sent = || (0..40u64).prop_map(|t| t * 500);
        let calls = prop_oneof![
            sent().prop_map(|sent_ms| StoreCall::Grant { sent_ms }),
            number.clone().prop_map(|campaign| StoreCall::Campaign { campaign }),
            Just(StoreCall::Look),
            sent().prop_map(|sent_ms| StoreCall::KeepAlive { sent_ms }),
        ];
        prop_oneof![
            2 => epoch.clone().prop_map(vacant),
            2 => (any::<bool>(), number.clone(), epoch.clone())
                .prop_map(|(mine, campaign, epoch)| held(if mine { "me" } else { "other" }, campaign, epoch)),
            3 => (lease.clone(), sent()).prop_map(|(lease, sent_ms)| Event::Granted { lease, sent_ms }),
            3 => (number, any::<bool>(), epoch)
                .prop_map(|(campaign, applied, revision)| Event::Committed { campaign, applied, revision }),
            3 => (lease.clone(), sent()).prop_map(|(lease, sent_ms)| Event::Renewed { lease, sent_ms }),
            1 => lease.prop_map(|lease| Event::LeaseOver { lease }),
            1 => Just(Event::Succeeded),
            2 => calls.prop_map(|call| Event::Failed { call }),
            1 => Just(Event::Abdicated),
            3 => Just(Event::Tick),
        ]
    }

    proptest! {
        #[test]
        fn it_leads_between_its_two_words_only_and_never_past_its_deadline(
            steps in vec((events(), 0..4u64), 1..60), resigns_at in 0..80usize,
        ) {
            let mut election = election();
            let (mut now_ms, mut term, mut suspended) = (0, None, false);
            let mut latest_sent_ms = 0;
            for (i, (event, half_seconds)) in steps.into_iter().enumerate() {
                now_ms += half_seconds * 500;
                let event = if i == resigns_at { Event::Resign } else { event };
                for (place, command) in election.step(event, now_ms).into_iter().enumerate() {
                    match command {
                        Command::BecomeLeader { epoch } => {
                            prop_assert!(term.is_none() && i <= resigns_at);
                            term = Some(epoch);
                        }
                        Command::Suspend { epoch } => {
                            prop_assert_eq!((place, term, suspended), (0, Some(epoch), false));
                            suspended = true;
                        }
                        Command::Resume { epoch } => {
                            prop_assert_eq!((term, suspended), (Some(epoch), true));
                            suspended = false;
                        }
                        Command::StepDown { epoch, .. } => {
                            prop_assert!(place <= usize::from(suspended));
                            prop_assert_eq!(term.take(), Some(epoch));
                            suspended = false;
                        }
                        Command::GrantLease { sent_ms } | Command::KeepAlive { sent_ms, .. } => {
                            prop_assert_eq!(sent_ms, now_ms);
                            latest_sent_ms = sent_ms;
                        }
                        _ => {}
                    }
                }
                match election.standing() {
                    ElectionRole::Suspended { epoch } => prop_assert_eq!((term, suspended), (Some(epoch), true)),
                    ElectionRole::Leading { epoch, deadline_ms } => {
                        prop_assert_eq!((term, suspended), (Some(epoch), false));
                        prop_assert!(now_ms < deadline_ms && deadline_ms <= latest_sent_ms + LIFE_MS);
                    }
                    _ => prop_assert!(term.is_none()),
                }
                // It always has a next action, or an answer to wait for.
                if let Some(wake_ms) = election.wake_ms() {
                    prop_assert!(wake_ms > now_ms, "{:?} at {}", election, now_ms);
                }
            }
        }
    }
}
