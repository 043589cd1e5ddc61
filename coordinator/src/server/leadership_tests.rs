//! Candidates around a store in memory whose leases expire.

use super::*;
use trawl_testing::MemoryStore;

/// Timeout of every awaited change.
const BOUND: Duration = Duration::from_secs(20);
const TTL: Duration = Duration::from_millis(1_200);

fn candidate(store: &Arc<MemoryStore>, id: &str) -> Candidate {
    let candidacy = Candidacy {
        cluster_name: "c".to_owned(),
        id: id.to_owned(),
        boot: format!("{id}-boot"),
        address: format!("{id}:1"),
        lease_ttl: TTL,
        stall_timeout: WORK_STALL_TIMEOUT,
    };
    stand(Arc::clone(store), candidacy).unwrap()
}

async fn until(candidate: &Candidate, wanted: impl Fn(&Leadership) -> bool) -> Leadership {
    let mut leadership = candidate.leadership();
    let seen = tokio::time::timeout(BOUND, leadership.wait_for(|now| wanted(now))).await;
    seen.expect("a change in time").expect("the thread lives").clone()
}

async fn leads(candidate: &Candidate) -> Term {
    match until(candidate, |now| matches!(now, Leadership::Leading(_))).await {
        Leadership::Leading(term) => term,
        other => unreachable!("waited for, not {other:?}"),
    }
}

async fn follows(candidate: &Candidate, id: &str) {
    until(candidate, |now| matches!(now, Leadership::Standby { leader: Some(record) } if record.id == id)).await;
}

#[tokio::test]
async fn one_leads_the_others_know_it_and_the_next_has_a_higher_epoch() {
    let store = Arc::new(MemoryStore::timed());
    let first = candidate(&store, "c1");
    let term = leads(&first).await;
    let second = candidate(&store, "c2");
    follows(&second, "c1").await;
    assert!(store.commit(&[term.guard()], vec![]).await.unwrap().applied);

    let handed = Instant::now();
    first.resign().await;
    let next = leads(&second).await;
    assert!(handed.elapsed() < Duration::from_secs(1), "handed over in {:?}", handed.elapsed());
    assert!(next.epoch > term.epoch);
    assert!(!store.commit(&[term.guard()], vec![]).await.unwrap().applied, "writes of the one before are refused");
    second.resign().await;
    assert_eq!(store.list("").await.unwrap().entries, []);
}

#[tokio::test]
async fn a_leader_renews_and_one_whose_lease_ends_steps_down() {
    let store = Arc::new(MemoryStore::timed());
    let first = candidate(&store, "c1");
    let term = leads(&first).await;
    tokio::time::sleep(TTL * 3).await;
    assert_eq!(*first.leadership().borrow(), Leadership::Leading(term.clone()));
    store.expire_lease_of("c/leader");
    until(&first, |now| matches!(now, Leadership::Leading(t) if t.epoch > term.epoch)).await;
    first.resign().await;
}

#[tokio::test]
async fn a_store_that_stalls_for_longer_than_its_leases_costs_the_lead_and_one_that_hiccups_does_not() {
    let store = Arc::new(MemoryStore::timed());
    let first = candidate(&store, "c1");
    let term = leads(&first).await;
    store.set_away(true);
    tokio::time::sleep(TTL / 4).await;
    store.set_away(false);
    tokio::time::sleep(TTL * 2).await;
    assert_eq!(*first.leadership().borrow(), Leadership::Leading(term.clone()));

    store.set_stalled(true);
    until(&first, |now| matches!(now, Leadership::Suspended { .. })).await;
    assert_eq!(store_epoch(&store), term.epoch, "the key is still there: it is suspended by its own clock");
    tokio::time::sleep(TTL).await;
    store.set_stalled(false);
    until(&first, |now| matches!(now, Leadership::Leading(t) if t.epoch > term.epoch)).await;
    first.resign().await;
}

#[tokio::test]
async fn a_leader_leads_on_when_a_store_that_was_away_comes_back_with_its_lease() {
    let store = Arc::new(MemoryStore::timed());
    let first = candidate(&store, "c1");
    let term = leads(&first).await;
    store.set_away(true);
    until(&first, |now| *now == Leadership::Suspended { epoch: term.epoch }).await;
    tokio::time::sleep(TTL * 2).await;
    assert_eq!(*first.leadership().borrow(), Leadership::Suspended { epoch: term.epoch });
    store.set_away(false);
    until(&first, |now| *now == Leadership::Leading(term.clone())).await;
    assert_eq!(store_epoch(&store), term.epoch);
    first.resign().await;
}

#[tokio::test]
async fn a_suspended_leader_steps_down_when_a_worker_knows_its_successor() {
    let store = Arc::new(MemoryStore::timed());
    let first = candidate(&store, "c1");
    let term = leads(&first).await;
    store.set_away(true);
    until(&first, |now| *now == Leadership::Suspended { epoch: term.epoch }).await;
    first.heartbeat().succeed(term.epoch - 1);
    tokio::time::sleep(TTL).await;
    assert_eq!(*first.leadership().borrow(), Leadership::Suspended { epoch: term.epoch });
    first.heartbeat().succeed(term.epoch);
    until(&first, |now| matches!(now, Leadership::Standby { .. })).await;
    first.resign().await;
}

#[tokio::test]
async fn a_leader_whose_work_is_stuck_hands_over_and_one_that_works_does_not() {
    let store = Arc::new(MemoryStore::timed());
    let candidacy = Candidacy {
        cluster_name: "c".to_owned(),
        id: "c1".to_owned(),
        boot: "b1".to_owned(),
        address: "c1:1".to_owned(),
        lease_ttl: TTL,
        stall_timeout: TTL,
    };
    let first = stand(Arc::clone(&store), candidacy).unwrap();
    let term = leads(&first).await;
    let second = candidate(&store, "c2");
    first.heartbeat().during(tokio::time::sleep(TTL * 3)).await;
    assert!(matches!(&*first.leadership().borrow(), Leadership::Leading(now) if now.epoch == term.epoch));
    let next = leads(&second).await;
    assert!(next.epoch > term.epoch);
    let mut leadership = first.leadership();
    while leadership.changed().await.is_ok() {}
    assert!(matches!(&*leadership.borrow(), Leadership::Standby { .. }), "it ended");
    second.resign().await;
}

fn store_epoch(store: &MemoryStore) -> i64 {
    store.peek("c/leader").map_or(0, |entry| entry.created)
}

#[tokio::test]
async fn an_answer_that_is_lost_does_not_keep_the_winner_from_leading() {
    let store = Arc::new(MemoryStore::timed());
    // Its own grant and put, each answered by the second try or not at all.
    store.lose_answers(5);
    let first = candidate(&store, "c1");
    let term = leads(&first).await;
    assert_eq!(store_epoch(&store), term.epoch);
    first.resign().await;
}

#[tokio::test]
async fn a_watch_that_breaks_or_was_forgotten_is_listed_anew() {
    let store = Arc::new(MemoryStore::timed());
    let first = candidate(&store, "c1");
    leads(&first).await;
    let second = candidate(&store, "c2");
    follows(&second, "c1").await;
    store.break_watches();
    store.compact();
    first.resign().await;
    leads(&second).await;
    second.resign().await;
}
