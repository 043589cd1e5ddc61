use trawl_cluster_store::{HistoryCheck, Metered};
use trawl_telemetry::metrics::catalogue::process::{ETCD_CALL_DURATION, ETCD_CALL_FAILURES, EtcdFailure};

use super::*;

fn put(key: &str, value: &str, lease: Option<LeaseId>) -> Write {
    Write::Put { key: key.to_owned(), value: value.as_bytes().to_vec(), lease }
}

fn absent(key: &str) -> Guard {
    Guard::Absent { key: key.to_owned() }
}

#[tokio::test]
async fn a_commit_is_made_whole_or_not_at_all() {
    let store = MemoryStore::default();
    let first = store.commit(&[absent("a")], vec![put("a", "1", None), put("b", "1", None)]).await.unwrap();
    assert!(first.applied);
    let created = |key| {
        let store = &store;
        async move { store.get(key).await.unwrap().unwrap().created }
    };
    assert_eq!((created("a").await, created("b").await), (first.revision, first.revision));
    let second = store.commit(&[absent("a")], vec![put("b", "2", None)]).await.unwrap();
    assert_eq!(second, Committed { applied: false, revision: first.revision });
    let mine = Guard::Created { key: "a".to_owned(), revision: first.revision };
    let writes = vec![put("b", "3", None), Write::Delete { key: "a".to_owned() }];
    assert!(store.commit(&[mine.clone(), absent("c")], writes).await.unwrap().applied);
    let b = store.get("b").await.unwrap().unwrap();
    assert_eq!((b.value, b.created), (b"3".to_vec(), first.revision), "put over another keeps its creation");
    assert!(!store.commit(&[mine], vec![]).await.unwrap().applied, "that life of the key is over");
}

#[tokio::test]
async fn an_answer_that_is_lost_leaves_the_caller_to_read_whether_it_was_itself() {
    let store = MemoryStore::default();
    store.lose_answers(1);
    let committed = store.commit(&[absent("leader")], vec![put("leader", "me, try 7", None)]).await.unwrap();
    assert!(!committed.applied, "the second try finds what the first one wrote");
    let there = store.get("leader").await.unwrap().unwrap();
    assert_eq!((there.value, there.created), (b"me, try 7".to_vec(), committed.revision));
    store.lose_answers(CALL_TRIES_MAX);
    let failed = store.commit(&[absent("other")], vec![put("other", "me, try 8", None)]).await;
    assert!(matches!(failed, Err(ControlError::Unreachable { .. })));
    assert!(store.get("other").await.unwrap().is_some(), "it was made although it failed");
}

#[tokio::test]
async fn a_lease_takes_its_keys_along_and_is_asked_for_only_when_the_guards_hold() {
    let store = MemoryStore::default();
    let lease = store.grant(Duration::from_secs(5)).await.unwrap();
    assert!(store.commit(&[], vec![put("a", "1", Some(lease)), put("b", "1", None)]).await.unwrap().applied);
    let mut watch = store.watch("", store.list("").await.unwrap().revision).await.unwrap();
    store.expire_lease_of("a");
    assert!(matches!(watch.recv().await, Some(Change::Deleted { key, revision: 2 }) if key == "a"));
    assert_eq!(store.keep_alive(lease).await, Err(ControlError::LeaseOver));
    assert_eq!(store.commit(&[absent("a")], vec![put("a", "2", Some(lease))]).await, Err(ControlError::LeaseOver));
    assert!(!store.commit(&[absent("b")], vec![put("a", "2", Some(lease))]).await.unwrap().applied);
}

#[tokio::test]
async fn a_timed_lease_ends_unless_it_is_kept_alive() {
    let store = MemoryStore::timed();
    let lease = store.grant(Duration::from_millis(200)).await.unwrap();
    store.put("a", vec![1], Some(lease)).await.unwrap();
    for _ in 0..6 {
        tokio::time::sleep(Duration::from_millis(50)).await;
        store.keep_alive(lease).await.unwrap();
    }
    let mut watch = store.watch("a", 1).await.unwrap();
    let gone = tokio::time::timeout(Duration::from_secs(10), watch.recv()).await.expect("it ends");
    assert!(matches!(gone, Some(Change::Deleted { .. })));
    assert_eq!(store.keep_alive(lease).await, Err(ControlError::LeaseOver));
}

#[tokio::test]
async fn a_watch_from_before_a_compaction_ends_and_one_from_after_it_does_not() {
    let store = MemoryStore::default();
    store.put("a", vec![1], None).await.unwrap();
    let before = store.list("").await.unwrap().revision;
    store.put("a", vec![2], None).await.unwrap();
    store.compact();
    assert_eq!(store.watch("a", before).await.unwrap().recv().await, None);
    let after = store.list("").await.unwrap().revision;
    let mut watch = store.watch("a", after).await.unwrap();
    store.put("a", vec![3], None).await.unwrap();
    assert!(matches!(watch.recv().await, Some(Change::Put(entry)) if entry.value == [3]));
}

#[tokio::test]
async fn a_store_that_stands_still_holds_calls_and_watches_until_it_goes_on() {
    let store = Arc::new(MemoryStore::default());
    let lease = store.grant(Duration::from_secs(5)).await.unwrap();
    store.put("a", vec![1], Some(lease)).await.unwrap();
    let mut watch = store.watch("a", 1).await.unwrap();
    store.set_stalled(true);
    store.expire_leases();
    let late = Arc::clone(&store);
    let call = tokio::spawn(async move { late.get("a").await });
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(watch.try_recv().is_err() && !call.is_finished());
    store.set_stalled(false);
    assert_eq!(call.await.unwrap(), Ok(None));
    assert!(matches!(watch.recv().await, Some(Change::Deleted { .. })));
}

#[tokio::test]
async fn a_call_on_a_store_that_stands_still_for_too_long_fails() {
    let store = MemoryStore::default();
    store.set_stalled(true);
    let started = Instant::now();
    assert!(matches!(store.get("a").await, Err(ControlError::Unreachable { .. })));
    assert!(started.elapsed() >= MEMORY_CALL_TIMEOUT);
}

/// Three keys of 100 bytes in a store with replies of at most 250 bytes.
async fn narrow() -> MemoryStore {
    let store = MemoryStore::with_limits(MemoryLimits { answer_bytes: 300, ..MemoryLimits::default() });
    for key in ["k/a", "k/b", "k/c"] {
        store.put(key, vec![7; 100], None).await.unwrap();
    }
    store
}

#[tokio::test]
async fn an_answer_that_is_too_large_is_refused_and_a_listing_reads_smaller_pages() {
    let store = narrow().await;
    let at_once = store.page(&PageRequest::new("k/")).await;
    assert!(matches!(&at_once, Err(ControlError::TooLarge(why)) if why.contains("the limit is: 300")), "{at_once:?}");
    let listing = store.list("k/").await.unwrap();
    assert_eq!(listing.entries.iter().map(|e| e.key.as_str()).collect::<Vec<_>>(), ["k/a", "k/b", "k/c"]);
    let keys = store.list_keys("k/").await.unwrap();
    assert_eq!((keys.entries.len(), keys.entries[0].value.len()), (3, 0));
    // A key larger than a reply cannot be read.
    store.put("k/d", vec![7; 400], None).await.unwrap();
    assert!(matches!(store.list("k/").await, Err(ControlError::TooLarge(_))));
}

#[tokio::test]
async fn all_pages_are_of_the_revision_that_the_first_was_read_at() {
    let store = narrow().await;
    let mut pages = trawl_cluster_store::Pages::new(&store, PageRequest { limit: 1, ..PageRequest::new("k/") });
    let first = pages.next().await.unwrap().unwrap();
    assert_eq!((first.entries[0].key.as_str(), first.revision), ("k/a", 3));
    store.delete("k/b").await.unwrap();
    store.put("k/bb", vec![1], None).await.unwrap();
    store.put("k/c", vec![2], None).await.unwrap();
    let mut later = Vec::new();
    while let Some(page) = pages.next().await.unwrap() {
        assert_eq!(page.revision, 3);
        later.extend(page.entries);
    }
    assert_eq!(later.iter().map(|e| (e.key.as_str(), e.value.len())).collect::<Vec<_>>(), [("k/b", 100), ("k/c", 100)]);
    let now: Vec<String> = store.list("k/").await.unwrap().entries.into_iter().map(|e| e.key).collect();
    assert_eq!(now, ["k/a", "k/bb", "k/c"]);
}

#[tokio::test]
async fn a_page_of_a_compacted_revision_is_refused() {
    let store = narrow().await;
    let first = store.page(&PageRequest { limit: 1, ..PageRequest::new("k/") }).await.unwrap();
    store.put("k/z", vec![1], None).await.unwrap();
    store.compact();
    let second = PageRequest { from: first.next.unwrap(), revision: Some(first.revision), ..PageRequest::new("k/") };
    assert_eq!(store.page(&second).await, Err(ControlError::Compacted));
    let present = PageRequest { revision: Some(4), limit: 1, ..PageRequest::new("k/") };
    assert_eq!(store.page(&present).await.unwrap().entries[0].key, "k/a");
    let future = PageRequest { revision: Some(5), ..PageRequest::new("k/") };
    assert!(matches!(store.page(&future).await, Err(ControlError::Refused(_))));
}

#[tokio::test]
async fn a_store_whose_quota_is_used_up_takes_deletions_alone_until_the_alarm_is_lifted() {
    let store = MemoryStore::with_limits(MemoryLimits { quota_bytes: 1_000, ..MemoryLimits::default() });
    let lease = store.grant(Duration::from_secs(5)).await.unwrap();
    store.put("a", vec![1; 600], None).await.unwrap();
    // History counts: putting the same key again needs its space again.
    let full = store.put("a", vec![2; 600], None).await;
    assert!(matches!(&full, Err(ControlError::NoSpace(why)) if why.contains("space exceeded")), "{full:?}");
    assert!(matches!(store.put("b", vec![1], None).await, Err(ControlError::NoSpace(_))), "however small");
    assert!(matches!(store.grant(Duration::from_secs(5)).await, Err(ControlError::NoSpace(_))));
    assert_eq!(store.keep_alive(lease).await, Ok(()));
    assert_eq!(store.get("a").await.unwrap().unwrap().value, vec![1; 600]);
    store.delete("a").await.unwrap();
    store.compact();
    assert!(matches!(store.put("b", vec![1], None).await, Err(ControlError::NoSpace(_))), "the alarm stays");
    store.lift_alarm(1_000);
    store.put("b", vec![1; 600], None).await.unwrap();
}

#[tokio::test]
async fn failed_calls_are_counted_by_their_reason() {
    let store = Metered(std::sync::Arc::new(MemoryStore::default()));
    let (calls, away) = (ETCD_CALL_DURATION.count(), ETCD_CALL_FAILURES.of(EtcdFailure::Unreachable).get());
    store.put("a", vec![1], None).await.unwrap();
    assert_eq!(store.get("a").await.unwrap().unwrap().value, [1]);
    store.0.set_away(true);
    assert!(store.get("a").await.is_err());
    assert!(ETCD_CALL_DURATION.count() >= calls + 3);
    assert_eq!(ETCD_CALL_FAILURES.of(EtcdFailure::Unreachable).get(), away + 1);
    store.0.set_away(false);
    let over = ETCD_CALL_FAILURES.of(EtcdFailure::LeaseOver).get();
    assert_eq!(store.keep_alive(77).await, Err(ControlError::LeaseOver));
    assert_eq!(ETCD_CALL_FAILURES.of(EtcdFailure::LeaseOver).get(), over + 1);
}

#[tokio::test]
async fn a_store_that_lost_its_history_is_noticed_and_one_that_is_away_is_not() {
    let (interval, store) = (Duration::from_millis(5), Arc::new(MemoryStore::default()));
    for _ in 0..5 {
        store.put("a", Vec::new(), None).await.unwrap();
    }
    let before = store.version("a").await.unwrap();
    let watched = Arc::clone(&store);
    let watching = tokio::spawn(async move { HistoryCheck::default().lost(&*watched, "a", interval).await });
    tokio::time::sleep(interval * 4).await;
    store.set_away(true);
    tokio::time::sleep(interval * 4).await;
    store.set_away(false);
    store.put("a", Vec::new(), None).await.unwrap();
    tokio::time::sleep(interval * 4).await;
    assert!(!watching.is_finished());
    store.set_up_anew();
    let lost = tokio::time::timeout(Duration::from_secs(20), watching).await.expect("in time").unwrap();
    assert_eq!(lost.before.revision, before.revision + 1);
    assert_eq!(lost.now, store.version("a").await.unwrap());
}
