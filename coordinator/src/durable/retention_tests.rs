use std::sync::Arc;

use proptest::prelude::*;
use trawl_testing::MemoryStore;

use super::super::group::GroupName;
use super::super::records::{End, EndOutcome, Header, RequestMark, Tombstone};
use super::super::testing::{header, next_term, stored};
use super::*;

const HOUR: i64 = 3_600_000_000;

fn policy() -> RetentionPolicy {
    RetentionPolicy::default()
}

async fn scan(ledger: &Ledger<MemoryStore>, store: &ResultStore, scan: &str, ended_us: Option<i64>) {
    let request = Some(RequestMark::new("ana", scan, &[]));
    ledger.accept(&Header { request, ..header(scan, 1) }).await.unwrap();
    put(store, scan).await;
    if let Some(ended_us) = ended_us {
        ledger.end(scan, &End { generation: 0, outcome: EndOutcome::Cancelled, ended_us }).await.unwrap();
    }
}

async fn put(store: &ResultStore, scan: &str) {
    let name = GroupName { stage: 0, epoch: 1, number: 1 };
    store.put_group(scan, 0, name, &[stored(0, 10)]).await.unwrap();
}

/// The wall clock: objects are dated by it.
fn now_us() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    i64::try_from(since.as_micros()).unwrap()
}

#[tokio::test]
async fn an_old_scan_is_marked_and_after_the_grace_deleted_with_its_records() {
    let control = Arc::new(MemoryStore::default());
    let ledger = Ledger::new(Arc::clone(&control), "c", next_term(&control).await);
    let store = ResultStore::memory();
    let now = now_us();
    scan(&ledger, &store, "old-1", Some(now - 25 * HOUR)).await;
    scan(&ledger, &store, "new-1", Some(now - HOUR)).await;
    scan(&ledger, &store, "runs-1", None).await;
    put(&store, "orphan-1").await;
    let swept = async |at: i64| sweep(&ledger, &store, &policy(), true, at).await.unwrap();
    let first = swept(now).await;
    assert_eq!((first.marked, first.deleted), (vec!["old-1".to_owned()], Vec::new()));
    let grace = micros(TOMBSTONE_GRACE);
    assert_eq!(swept(now + grace - 1).await, SweepReport { recorded: 3, ..SweepReport::default() });
    let gone = swept(now + grace).await;
    assert_eq!((gone.deleted, gone.objects), (vec!["old-1".to_owned()], 1));
    // The orphan is old enough an hour later, and nothing else is touched.
    assert_eq!(swept(now + 2 * HOUR).await.marked, ["orphan-1"]);
    assert_eq!(swept(now + 3 * HOUR).await.deleted, ["orphan-1"]);
    let left: Vec<String> = store.scans().await.unwrap().into_keys().collect();
    assert_eq!(left, ["new-1", "runs-1"]);
    let keys: Vec<String> = control.list("c/").await.unwrap().entries.into_iter().map(|e| e.key).collect();
    assert!(!keys.iter().any(|key| key.contains("old-1") || key.contains("orphan-1")), "{keys:?}");
    assert_eq!(keys.iter().filter(|key| key.starts_with("c/requests/")).count(), 2);
}

#[tokio::test]
async fn the_oldest_go_when_there_are_too_many() {
    let control = Arc::new(MemoryStore::default());
    let ledger = Ledger::new(Arc::clone(&control), "c", next_term(&control).await);
    let store = ResultStore::memory();
    for (name, ended) in [("a-1", 30), ("a-2", 10), ("a-3", 20)] {
        scan(&ledger, &store, name, Some(ended)).await;
    }
    scan(&ledger, &store, "a-4", None).await;
    let few = RetentionPolicy { scans_kept_max: 1, ..policy() };
    assert_eq!(sweep(&ledger, &store, &few, true, 40).await.unwrap().marked, ["a-2", "a-3"]);
}

#[test]
fn many_scans_of_one_caller_do_not_push_out_those_of_another() {
    let mut loaded = Loaded::default();
    let mut add = |caller: &str, number: i64| {
        let name = format!("{caller}-{number}");
        let header = Header { owner: caller.to_owned(), ..header(&name, 1) };
        let end = End { generation: 0, outcome: EndOutcome::Cancelled, ended_us: number };
        loaded.scans.push(Recorded { header: Some(header), scan: name, end: Some(end), ..Recorded::default() });
    };
    (0..2).for_each(|number| add("ben", number));
    (10..18).for_each(|number| add("ana", number));
    let marked = |kept: usize| {
        let policy = RetentionPolicy { scans_kept_max: kept, ..policy() };
        plan(&loaded, &BTreeMap::new(), &policy, 1, 20).into_iter().map(|(scan, _)| scan.scan).collect::<Vec<_>>()
    };
    assert_eq!(marked(10), Vec::<String>::new());
    assert_eq!(marked(6), ["ana-10", "ana-11", "ana-12", "ana-13"], "ben's are older, and only two");
    // Of equal numbers the oldest scan goes.
    assert_eq!(marked(3), ["ben-0", "ana-10", "ana-11", "ana-12", "ana-13", "ana-14", "ana-15"]);
}

#[tokio::test]
async fn deletion_keeps_pace_with_what_comes_in() {
    const SCANS: usize = 1_000;
    let control = Arc::new(MemoryStore::default());
    let ledger = Ledger::new(Arc::clone(&control), "c", next_term(&control).await);
    let store = ResultStore::memory();
    for number in 0..SCANS {
        scan(&ledger, &store, &format!("a-{number}"), Some(number as i64)).await;
    }
    let few = RetentionPolicy { scans_kept_max: 10, ..policy() };
    let marked = sweep(&ledger, &store, &few, false, 0).await.unwrap();
    assert_eq!((marked.marked.len(), marked.more), (SCANS - 10, false));
    // The scans of a minute go in one sweep, however many they were.
    let swept = sweep(&ledger, &store, &few, false, micros(TOMBSTONE_GRACE)).await.unwrap();
    assert_eq!((swept.deleted.len(), swept.objects, swept.recorded), (SCANS - 10, (SCANS - 10) as u64, SCANS));
    assert_eq!(ledger.load().await.unwrap().scans.len(), 10);
}

#[tokio::test]
async fn a_new_leader_waits_again_and_a_replaced_one_deletes_nothing() {
    let control = Arc::new(MemoryStore::default());
    let old = Ledger::new(Arc::clone(&control), "c", next_term(&control).await);
    let store = ResultStore::memory();
    scan(&old, &store, "a-1", Some(0)).await;
    let (now, grace) = (30 * HOUR, micros(TOMBSTONE_GRACE));
    assert_eq!(sweep(&old, &store, &policy(), true, now).await.unwrap().marked, ["a-1"]);
    let new = Ledger::new(Arc::clone(&control), "c", next_term(&control).await);
    let late = sweep(&old, &store, &policy(), true, now + grace).await.unwrap();
    assert_eq!((late.not_leader, late.objects), (true, 0));
    let first = sweep(&new, &store, &policy(), true, now + grace).await.unwrap();
    assert_eq!((first.marked, first.objects), (vec!["a-1".to_owned()], 0));
    assert_eq!(sweep(&new, &store, &policy(), true, now + 2 * grace).await.unwrap().deleted, ["a-1"]);
}

#[tokio::test]
async fn a_scan_that_cannot_be_read_keeps_its_objects() {
    let control = Arc::new(MemoryStore::default());
    let ledger = Ledger::new(Arc::clone(&control), "c", next_term(&control).await);
    let store = ResultStore::memory();
    put(&store, "newer-1").await;
    control.put("c/scans/newer-1/header", br#"{"version":9}"#.to_vec(), None).await.unwrap();
    let far = now_us() + 1000 * HOUR;
    assert_eq!(sweep(&ledger, &store, &policy(), true, far).await.unwrap(), SweepReport::default());
    assert_eq!(store.scans().await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_deletion_that_broke_off_goes_on() {
    let control = Arc::new(MemoryStore::default());
    let ledger = Ledger::new(Arc::clone(&control), "c", next_term(&control).await);
    let store = ResultStore::memory();
    scan(&ledger, &store, "a-1", Some(0)).await;
    let (now, grace) = (30 * HOUR, micros(TOMBSTONE_GRACE));
    sweep(&ledger, &store, &policy(), true, now).await.unwrap();
    // The objects went, and then the leader died: the records are still there.
    store.delete_scan("a-1").await.unwrap();
    let swept = sweep(&ledger, &store, &policy(), true, now + grace).await.unwrap();
    assert_eq!((swept.deleted, swept.objects), (vec!["a-1".to_owned()], 0));
    assert!(ledger.load().await.unwrap().scans.is_empty());
}

fn any_recorded() -> impl Strategy<Value = (Option<i64>, Option<(i64, i64)>, bool)> {
    let time = 0i64..100 * HOUR;
    (proptest::option::of(time.clone()), proptest::option::of((0i64..3, time)), any::<bool>())
}

proptest! {
    /// For any records: nothing of a scan that has not ended is touched, nothing is deleted without an old enough
    /// tombstone of this leader, and records of a newer program are left alone.
    #[test]
    fn nothing_that_is_wanted_is_deleted(
        scans in proptest::collection::vec(any_recorded(), 0..12),
        now in 0i64..200 * HOUR,
        kept in 0usize..5,
    ) {
        let epoch = 1;
        let policy = RetentionPolicy { scans_kept_max: kept, ..policy() };
        let mut loaded = Loaded::default();
        let mut objects = BTreeMap::new();
        for (i, (ended, tombstone, unreadable)) in scans.into_iter().enumerate() {
            let scan = format!("a-{i}");
            objects.insert(scan.clone(), ScanObjects { objects: 1, bytes: 1, newest_us: 0 });
            if unreadable {
                let error = super::super::records::RecordError::Version { what: "header", scan: scan.clone(), found: 9 };
                loaded.unreadable.insert(scan, error);
                continue;
            }
            let end = ended.map(|ended_us| End { generation: 0, outcome: EndOutcome::Cancelled, ended_us });
            // No tombstone is written without an end.
            let tombstone = tombstone.filter(|_| end.is_some());
            let tombstone = tombstone.map(|(epoch, marked_us)| Tombstone { epoch, marked_us });
            loaded.scans.push(Recorded { header: Some(header(&scan, 1)), scan, end, tombstone, ..Recorded::default() });
        }
        for (recorded, step) in plan(&loaded, &objects, &policy, epoch, now) {
            prop_assert!(recorded.end.is_some());
            prop_assert!(!loaded.unreadable.contains_key(&recorded.scan));
            if step == SweepAction::Delete {
                let tombstone = recorded.tombstone.unwrap();
                prop_assert_eq!(tombstone.epoch, epoch);
                prop_assert!(now - tombstone.marked_us >= micros(policy.tombstone_grace));
            }
        }
    }
}
