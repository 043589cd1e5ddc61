use trawl_cluster_store::ControlError;
use trawl_testing::{MemoryLimits, MemoryStore};
use trawl_wire::ErrorKind;

use super::super::records::{EndOutcome, RecordError};
use super::super::testing::{header, next_term};
use super::*;

async fn new_leader(control: &Arc<MemoryStore>) -> Ledger<MemoryStore> {
    Ledger::new(Arc::clone(control), "c", next_term(control).await)
}

fn asked(scan: &str, key: &str, request: &[u8]) -> Header {
    Header { request: Some(RequestMark::new("ana", key, &[request])), ..header(scan, 3) }
}

fn end(message: &str) -> End {
    let outcome = EndOutcome::Failed { kind: ErrorKind::Permanent, message: message.to_owned() };
    End { generation: 0, outcome, ended_us: 5 }
}

#[tokio::test]
async fn a_scan_is_recorded_progresses_and_ends_once() {
    let control = Arc::new(MemoryStore::default());
    let ledger = new_leader(&control).await;
    assert_eq!(ledger.accept(&header("a-1", 3)).await.unwrap(), Acceptance::Accepted);
    let progress = Progress::new(0, 0, &[1].into());
    assert_eq!(ledger.progress("a-1", &progress).await.unwrap(), Written::Done);
    let known = ledger.get("a-1").await.unwrap().unwrap();
    assert_eq!((known.header, known.progress, known.end), (Some(header("a-1", 3)), Some(progress.clone()), None));
    assert_eq!(ledger.end("a-1", &end("x")).await.unwrap(), Ending::Recorded);
    assert_eq!(ledger.end("a-1", &end("x")).await.unwrap(), Ending::Recorded, "the same again");
    assert_eq!(ledger.end("a-1", &end("y")).await.unwrap(), Ending::Already(Box::new(end("x"))));
    assert_eq!(ledger.progress("a-1", &progress).await.unwrap(), Written::Over);
    assert_eq!(ledger.restart(&Header { generation: 1, ..header("a-1", 3) }).await.unwrap(), Written::Over);
    let loaded = ledger.load().await.unwrap();
    assert_eq!((loaded.scans.len(), loaded.scans[0].progress.is_none()), (1, true));
    assert_eq!(loaded.scans[0].end, Some(end("x")));
}

#[tokio::test]
async fn an_answer_of_another_generation_than_the_recorded_one_is_not_recorded() {
    let control = Arc::new(MemoryStore::default());
    let ledger = new_leader(&control).await;
    ledger.accept(&header("a-1", 3)).await.unwrap();
    let outcome = EndOutcome::Complete { answer_digest: "0".repeat(64), failed_symbols: 0, disputed: false };
    let answer = |generation| End { generation, outcome: outcome.clone(), ended_us: 5 };
    assert_eq!(ledger.end("a-1", &answer(1)).await.unwrap(), Ending::Unknown);
    assert!(ledger.get("a-1").await.unwrap().unwrap().is_open());
    assert_eq!(ledger.end("a-1", &answer(0)).await.unwrap(), Ending::Recorded);
}

#[tokio::test]
async fn a_failure_of_another_generation_ends_the_recorded_one() {
    let control = Arc::new(MemoryStore::default());
    let ledger = new_leader(&control).await;
    ledger.accept(&header("a-1", 3)).await.unwrap();
    let failure = EndOutcome::Failed { kind: ErrorKind::Retryable, message: "no worker".to_owned() };
    let end = End { generation: 1, outcome: failure, ended_us: 5 };
    for _ in 0..2 {
        assert_eq!(ledger.end("a-1", &end).await.unwrap(), Ending::Recorded, "also when it is tried again");
    }
    let recorded = ledger.get("a-1").await.unwrap().unwrap();
    assert_eq!(recorded.end, Some(End { generation: 0, ..end }), "as the end of the class that its header names");
    assert_eq!(recorded.header.unwrap().generation, 0);
}

#[tokio::test]
async fn a_scan_that_has_ended_is_one_key_and_no_longer_among_those_that_are_open() {
    let control = Arc::new(MemoryStore::default());
    let ledger = new_leader(&control).await;
    for scan in ["a-1", "a-2"] {
        assert_eq!(ledger.accept(&asked(scan, scan, b"one")).await.unwrap(), Acceptance::Accepted);
    }
    ledger.progress("a-1", &Progress::new(0, 0, &[1].into())).await.unwrap();
    assert_eq!(ledger.end("a-1", &end("x")).await.unwrap(), Ending::Recorded);
    let keys: Vec<String> = control.list("c/").await.unwrap().entries.into_iter().map(|entry| entry.key).collect();
    let of_scans: Vec<&str> = keys.iter().map(String::as_str).filter(|key| !key.contains("requests")).collect();
    assert_eq!(of_scans, ["c/ended/a-1", "c/leader", "c/scans/a-2/header"]);
    assert_eq!(ledger.open_names().await.unwrap().into_iter().collect::<Vec<_>>(), ["a-2"]);
    assert_eq!(ledger.open().await.unwrap().scans.iter().map(|r| r.scan.as_str()).collect::<Vec<_>>(), ["a-2"]);
    let ended = ledger.ended().next().await.unwrap().unwrap().scans.remove(0);
    assert_eq!((ended.header, ended.end), (Some(asked("a-1", "a-1", b"one")), Some(end("x"))));
    assert!(
        matches!(ledger.accept(&asked("a-1", "other", b"one")).await, Err(LedgerError::Id(_))),
        "an id is used once"
    );
    assert!(matches!(
        ledger.known_request(&RequestMark::new("ana", "a-1", &[b"one"])).await,
        Ok(Some(Acceptance::Existing(_)))
    ));
    let known = ledger.get("a-1").await.unwrap().unwrap();
    assert_eq!(ledger.mark(&known, 9).await.unwrap(), Written::Done);
    let marked = ledger.get("a-1").await.unwrap().unwrap();
    assert_eq!(ledger.forget(&marked).await.unwrap(), Written::Done);
    let left: Vec<String> = control.list("c/").await.unwrap().entries.into_iter().map(|entry| entry.key).collect();
    assert!(!left.iter().any(|key| key.contains("a-1")) && left.len() == 3, "{left:?}");
}

/// Twice as many records as fit into one reply of etcd.
#[tokio::test]
async fn however_much_is_recorded_a_new_leader_reads_all_of_it() {
    const SCANS: usize = 5_000;
    let control = Arc::new(MemoryStore::default());
    let ledger = new_leader(&control).await;
    let document = super::super::records::DocumentPlace::Inline("x".repeat(2_000));
    for number in 0..SCANS {
        let scan = format!("a-{number}");
        ledger.accept(&Header { document: document.clone(), ..header(&scan, 3) }).await.unwrap();
        if number % 2 == 0 {
            ledger.end(&scan, &end("x")).await.unwrap();
        }
    }
    let prefix = PageRequest { limit: usize::MAX, ..PageRequest::new("c/scans/") };
    assert!(matches!(control.page(&prefix).await, Err(ControlError::TooLarge(_))), "it does not fit into one answer");
    assert_eq!(new_leader(&control).await.open().await.unwrap().scans.len(), SCANS / 2);
    let loaded = ledger.load().await.unwrap().scans;
    assert_eq!((loaded.len(), loaded.iter().filter(|r| r.is_open()).count()), (SCANS, SCANS / 2));
}

/// What release 0.1.0 wrote, byte by byte: a scan that runs, one that ended, and one that is being deleted.
#[tokio::test]
async fn records_of_the_release_before_are_read_ended_and_deleted() {
    let control = Arc::new(MemoryStore::default());
    let header = |scan: &str, slot: &str| {
        format!(
            r#"{{"adjustment":"none","allow_partial":false,"as_of_us":0,"class":{{"backend":"cpu","engine":"trawl/0.1.0","numerics":"n6","precision":"f64"}},"dataset":"d@00","document":{{"inline":"{{\"condition\":\"close > open\"}}"}},"generation":0,"owner":"ana","plan":"p","priority":"normal","request":{{"digest":"0b","slot":"{slot}"}},"scan":"{scan}","segments":3,"shards":"automatic","submitted_us":1,"symbols":9,"version":1}}"#
        )
    };
    let end = r#"{"ended_us":5,"generation":0,"outcome":{"complete":{"answer_digest":"ee","disputed":false,"failed_symbols":2}},"version":1}"#;
    let put = async |key: &str, value: &str| control.put(key, value.as_bytes().to_vec(), None).await.unwrap();
    for scan in ["a-1", "a-2", "a-3"] {
        put(&format!("c/scans/{scan}/header"), &header(scan, scan)).await;
        put(&format!("c/requests/{scan}"), &format!(r#"{{"digest":"0b","scan":"{scan}","version":1}}"#)).await;
    }
    put("c/scans/a-1/progress", r#"{"bitmap":"01","generation":0,"stage":0,"stored":1,"version":1}"#).await;
    put("c/scans/a-2/end", end).await;
    put("c/scans/a-3/end", end).await;
    put("c/scans/a-3/tombstone", r#"{"epoch":1,"marked_us":6,"version":1}"#).await;

    let ledger = new_leader(&control).await;
    let loaded = ledger.open().await.unwrap();
    assert!(loaded.unreadable.is_empty(), "{:?}", loaded.unreadable);
    let open: Vec<&str> = loaded.scans.iter().filter(|r| r.is_open()).map(|r| r.scan.as_str()).collect();
    assert_eq!((open, loaded.scans.len()), (vec!["a-1"], 3));
    assert_eq!(ledger.open_names().await.unwrap().into_iter().collect::<Vec<_>>(), ["a-1"]);
    assert!(matches!(ledger.end("a-2", &self::end("x")).await.unwrap(), Ending::Already(_)), "the first end stays");
    let mark = RequestMark { slot: "a-2".into(), digest: "0b".into() };
    assert!(matches!(ledger.known_request(&mark).await.unwrap(), Some(Acceptance::Existing(h)) if h.scan == "a-2"));
    // The running scan ends in the current format; the others are deleted in the earlier one.
    assert_eq!(ledger.end("a-1", &self::end("x")).await.unwrap(), Ending::Recorded);
    for scan in ["a-1", "a-2", "a-3"] {
        let known = ledger.get(scan).await.unwrap().unwrap();
        assert!(known.end.is_some() && known.header.is_some(), "{scan}");
        assert_eq!(ledger.mark(&known, 9).await.unwrap(), Written::Done, "{scan}");
        let marked = ledger.get(scan).await.unwrap().unwrap();
        assert_eq!(ledger.forget(&marked).await.unwrap(), Written::Done, "{scan}");
    }
    let left: Vec<String> = control.list("c/").await.unwrap().entries.into_iter().map(|entry| entry.key).collect();
    assert_eq!(left, ["c/leader"]);
}

#[tokio::test]
async fn a_store_without_space_is_named_as_such() {
    let limits = MemoryLimits { quota_bytes: 4_000, ..MemoryLimits::default() };
    let control = Arc::new(MemoryStore::with_limits(limits));
    let ledger = new_leader(&control).await;
    let refused = async {
        for number in 0.. {
            if let Err(error) = ledger.accept(&header(&format!("a-{number}"), 3)).await {
                return error;
            }
        }
        unreachable!("the quota is finite")
    };
    let refused = refused.await;
    assert!(matches!(refused, LedgerError::Control(ControlError::NoSpace(_))), "{refused:?}");
    assert!(refused.to_string().contains("etcd has no space left"), "{refused}");
}

#[tokio::test]
async fn nothing_is_written_about_a_scan_that_never_was() {
    let control = Arc::new(MemoryStore::default());
    let ledger = new_leader(&control).await;
    assert_eq!(ledger.end("a-1", &end("x")).await.unwrap(), Ending::Unknown);
    assert_eq!(ledger.restart(&Header { generation: 1, ..header("a-1", 3) }).await.unwrap(), Written::Over);
    for bad in ["", "..", "a/b"] {
        assert!(matches!(ledger.accept(&header(bad, 1)).await, Err(LedgerError::Id(_))), "{bad}");
        assert_eq!(ledger.get(bad).await.unwrap(), None);
    }
    assert!(ledger.load().await.unwrap().scans.is_empty());
}

#[tokio::test]
async fn the_same_request_is_the_same_scan_and_another_is_a_conflict() {
    let control = Arc::new(MemoryStore::default());
    let ledger = new_leader(&control).await;
    let first = asked("a-1", "k", b"one");
    assert_eq!(ledger.accept(&first).await.unwrap(), Acceptance::Accepted);
    assert_eq!(ledger.accept(&first).await.unwrap(), Acceptance::Accepted, "its own record");
    let existing = Acceptance::Existing(Box::new(first.clone()));
    assert_eq!(ledger.accept(&asked("a-2", "k", b"one")).await.unwrap(), existing);
    assert_eq!(ledger.known_request(first.request.as_ref().unwrap()).await.unwrap(), Some(existing.clone()));
    let conflict = Acceptance::Conflict { scan: "a-1".into() };
    assert_eq!(ledger.accept(&asked("a-3", "k", b"two")).await.unwrap(), conflict);
    assert_eq!(ledger.accept(&asked("a-4", "l", b"two")).await.unwrap(), Acceptance::Accepted);
    // Ended or not: until it is deleted the key is taken.
    ledger.end("a-1", &end("x")).await.unwrap();
    assert_eq!(new_leader(&control).await.accept(&asked("b-1", "k", b"one")).await.unwrap(), existing);
    let scans: Vec<String> = ledger.load().await.unwrap().scans.into_iter().map(|r| r.scan).collect();
    assert_eq!(scans, ["a-1", "a-4"]);
}

#[tokio::test]
async fn of_many_who_send_one_request_at_once_one_is_recorded() {
    let control = Arc::new(MemoryStore::default());
    let ledger = new_leader(&control).await;
    let send = |i: u32| {
        let ledger = ledger.clone();
        tokio::spawn(async move { ledger.accept(&asked(&format!("a-{i}"), "k", b"one")).await.unwrap() })
    };
    let sent: Vec<_> = (0..20).map(send).collect();
    let mut accepted = 0;
    for one in sent {
        match one.await.unwrap() {
            Acceptance::Accepted => accepted += 1,
            Acceptance::Existing(_) => {}
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((accepted, ledger.load().await.unwrap().scans.len()), (1, 1));
}

#[tokio::test]
async fn a_replaced_leader_writes_nothing() {
    let control = Arc::new(MemoryStore::default());
    let old = new_leader(&control).await;
    old.accept(&header("a-1", 3)).await.unwrap();
    old.accept(&header("a-2", 3)).await.unwrap();
    old.end("a-2", &end("x")).await.unwrap();
    let new = new_leader(&control).await;
    assert!(new.term().epoch > old.term().epoch);
    let before = control.list("c/").await.unwrap();
    assert_eq!(old.accept(&header("a-3", 3)).await.unwrap(), Acceptance::NotLeader);
    assert_eq!(old.accept(&asked("a-3", "k", b"one")).await.unwrap(), Acceptance::NotLeader);
    assert_eq!(old.progress("a-1", &Progress::default()).await.unwrap(), Written::NotLeader);
    assert_eq!(old.restart(&Header { generation: 1, ..header("a-1", 3) }).await.unwrap(), Written::NotLeader);
    assert_eq!(old.end("a-1", &end("x")).await.unwrap(), Ending::NotLeader);
    let ended = old.get("a-2").await.unwrap().unwrap();
    assert_eq!(old.mark(&ended, 9).await.unwrap(), Written::NotLeader);
    assert_eq!(control.list("c/").await.unwrap(), before);
    assert_eq!(new.mark(&ended, 9).await.unwrap(), Written::Done);
    let marked = new.get("a-2").await.unwrap().unwrap();
    assert_eq!(old.forget(&marked).await.unwrap(), Written::NotLeader);
    assert_eq!(new.forget(&marked).await.unwrap(), Written::Done);
    assert_eq!(new.get("a-2").await.unwrap(), None);
    assert!(new.get("a-1").await.unwrap().is_some());
}

#[tokio::test]
async fn a_commit_whose_answer_is_lost_is_recognised_as_its_own() {
    let control = Arc::new(MemoryStore::default());
    let ledger = new_leader(&control).await;
    for lost in 1..=5 {
        let scan = format!("a-{lost}");
        control.lose_answers(lost);
        let mut accepted = ledger.accept(&asked(&scan, &scan, b"one")).await;
        for _ in 0..3 {
            if accepted.is_ok() {
                break;
            }
            // The call failed in the store: the caller tries again with the same header.
            accepted = ledger.accept(&asked(&scan, &scan, b"one")).await;
        }
        assert_eq!(accepted.unwrap(), Acceptance::Accepted, "{lost} answers lost");
        control.lose_answers(lost);
        let mut ended = ledger.end(&scan, &end("x")).await;
        for _ in 0..3 {
            if ended.is_ok() {
                break;
            }
            ended = ledger.end(&scan, &end("x")).await;
        }
        assert_eq!(ended.unwrap(), Ending::Recorded, "{lost} answers lost");
    }
    assert_eq!(ledger.load().await.unwrap().scans.len(), 5);
}

#[tokio::test]
async fn a_next_generation_takes_the_place_of_the_one_before() {
    let control = Arc::new(MemoryStore::default());
    let ledger = new_leader(&control).await;
    ledger.accept(&header("a-1", 3)).await.unwrap();
    ledger.progress("a-1", &Progress::new(0, 0, &[1].into())).await.unwrap();
    let next = Header { generation: 1, plan: "q".into(), ..header("a-1", 3) };
    assert_eq!(ledger.restart(&Header { generation: 2, ..next.clone() }).await.unwrap(), Written::Over);
    assert_eq!(ledger.restart(&next).await.unwrap(), Written::Done);
    assert_eq!(ledger.restart(&next).await.unwrap(), Written::Done, "the same again");
    let known = ledger.get("a-1").await.unwrap().unwrap();
    assert_eq!((known.header, known.progress), (Some(next), None));
}

#[tokio::test]
async fn a_scan_of_a_newer_program_is_left_alone_and_does_not_hide_the_others() {
    let control = Arc::new(MemoryStore::default());
    let ledger = new_leader(&control).await;
    ledger.accept(&header("a-1", 3)).await.unwrap();
    control.put("c/scans/a-2/header", br#"{"version":9}"#.to_vec(), None).await.unwrap();
    control.put("c/scans/a-3/header", b"no json".to_vec(), None).await.unwrap();
    control.put("c/scans/a-4/header", header("a-1", 3).to_bytes("a-1").unwrap(), None).await.unwrap();
    control.put("c/scans/a-5/other", b"".to_vec(), None).await.unwrap();
    let loaded = ledger.load().await.unwrap();
    assert_eq!(loaded.scans.iter().map(|r| r.scan.as_str()).collect::<Vec<_>>(), ["a-1"]);
    assert_eq!(loaded.unreadable.keys().collect::<Vec<_>>(), ["a-2", "a-3", "a-4"]);
    assert!(matches!(ledger.get("a-2").await, Err(LedgerError::Record(RecordError::Version { found: 9, .. }))));
}

#[tokio::test]
async fn a_store_that_is_away_is_reported_and_a_marked_id_is_not_used_again() {
    let control = Arc::new(MemoryStore::default());
    let ledger = new_leader(&control).await;
    control.set_away(true);
    assert!(matches!(ledger.accept(&header("a-1", 3)).await, Err(LedgerError::Control(_))));
    control.set_away(false);
    let orphan = Recorded { scan: "a-1".into(), ..Recorded::default() };
    assert_eq!(ledger.mark(&orphan, 1).await.unwrap(), Written::Done);
    assert!(matches!(ledger.accept(&header("a-1", 3)).await, Err(LedgerError::Id(_))));
    // An orphan's mark is refused once there is a header.
    ledger.accept(&header("a-2", 3)).await.unwrap();
    let late = Recorded { scan: "a-2".into(), ..Recorded::default() };
    assert_eq!(ledger.mark(&late, 1).await.unwrap(), Written::Over);
}
