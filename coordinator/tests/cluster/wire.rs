//! Whatever one worker does, the answer is the same, and every failure is reported with the right kind.

use std::sync::atomic::Ordering;
use std::time::Duration;

use trawl_cluster_store::ControlStore as _;
use trawl_coordinator::client::{ClientError, ScanCall, Session};
use trawl_coordinator::{NoProgress, ShardSpec, answer_digest};
use trawl_security::ClientSecurity;
use trawl_wire::limits::PROTOCOL_VERSION;
use trawl_wire::record::worker_key;
use trawl_wire::{ErrorKind, Status, pb};

use crate::late_trailers::late_trailers;
use crate::world::{BOUND, Oddity, World};

#[tokio::test(flavor = "multi_thread")]
async fn two_workers_give_the_answer_of_one_thread_for_any_shards() {
    let mut world = World::new().await;
    let expected = world.expected();
    world.real_worker("w1").await;
    world.real_worker("w2").await;
    world.wait_for(&["w1", "w2"]).await;
    for shards in [ShardSpec::Automatic, ShardSpec::Count(1), ShardSpec::Count(3), ShardSpec::PerSegment] {
        let scanned = world.scan(shards).await.unwrap();
        assert_eq!(answer_digest(&scanned.answer), expected, "{shards:?}");
        assert!(scanned.synthetic && scanned.report.is_complete());
        assert_eq!(scanned.report.segment_runs.len(), scanned.report.segments as usize);
        assert!(scanned.report.shard_runs.iter().all(|r| r.ending == "done"), "{:?}", scanned.report.shard_runs);
    }
}

/// A client that does not read a stream to its end has it reset; h2 gives a connection up after 1,024 of those that were written to later,
/// and with it every scan on it.
#[tokio::test(flavor = "multi_thread")]
async fn a_session_runs_more_scans_than_its_connection_may_reset_streams() {
    let mut world = World::new().await;
    world.real_worker("w1").await;
    world.wait_for(&["w1"]).await;
    let session = Session::new(&late_trailers(&world.url).await, ClientSecurity::default());
    let scans = (0..2000).map(|_| {
        let session = session.clone();
        let document = World::document();
        let call =
            ScanCall { document, fresh: true, ephemeral: true, shards: ShardSpec::Count(1), ..ScanCall::default() };
        tokio::spawn(async move { session.scan(&call, &NoProgress).await.map(|scanned| scanned.answer.digest) })
    });
    let expected = world.expected_tree();
    for scan in scans.collect::<Vec<_>>() {
        assert_eq!(scan.await.unwrap().unwrap(), expected);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_misbehaves_costs_attempts_and_nothing_else() {
    let oddities = [
        Oddity::Corrupt,
        Oddity::Truncated,
        Oddity::Reordered,
        Oddity::Oversized,
        Oddity::ExtraValue,
        Oddity::OtherSegment,
        Oddity::LosesSymbol,
        Oddity::SaysNothing,
        Oddity::Refuses,
        Oddity::Fails(ErrorKind::Retryable),
        Oddity::Fails(ErrorKind::OutOfMemory),
        Oddity::BreaksOnce,
    ];
    for oddity in oddities {
        let mut world = World::new().await;
        let seen = world.odd_worker("odd", oddity, |_| {}).await;
        world.real_worker("real").await;
        world.wait_for(&["odd", "real"]).await;
        let scanned = world.scan(ShardSpec::PerSegment).await.unwrap();
        assert_eq!(answer_digest(&scanned.answer), world.expected(), "{oddity:?}");
        assert!(seen.shards.load(Ordering::SeqCst) > 0, "{oddity:?} was never asked");
        assert!(scanned.report.retried_segments > 0, "{oddity:?}");
        match oddity {
            // What arrives as it was sent, and cannot be a result, is the worker's doing.
            Oddity::Truncated
            | Oddity::Reordered
            | Oddity::Oversized
            | Oddity::ExtraValue
            | Oddity::OtherSegment
            | Oddity::LosesSymbol => {
                assert_eq!(scanned.report.quarantined, ["odd"], "{oddity:?}");
                assert!(!scanned.report.disputed, "{oddity:?}");
            }
            _ => assert!(scanned.report.quarantined.is_empty(), "{oddity:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_worker_claims_to_hold_changes_no_answer_and_is_no_reason_to_wait_for_long() {
    for oddity in [Oddity::ClaimsToHoldAll, Oddity::ClaimsTooMuch] {
        let mut world = World::new().await;
        world.odd_worker("odd", oddity, |_| {}).await;
        world.real_worker("real").await;
        world.wait_for(&["odd", "real"]).await;
        for shards in [ShardSpec::PerSegment, ShardSpec::Automatic, ShardSpec::Count(3)] {
            let began = std::time::Instant::now();
            let scanned = world.scan(shards).await.unwrap();
            assert_eq!(answer_digest(&scanned.answer), world.expected(), "{oddity:?}");
            assert!(began.elapsed() < BOUND / 4, "{oddity:?}: {:?}", began.elapsed());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_whose_connection_broke_is_pinged_and_joins_again() {
    let mut world = World::new().await;
    let seen = world.odd_worker("odd", Oddity::BreaksOnce, |_| {}).await;
    world.wait_for(&["odd"]).await;
    // Alone, it gets the work again once it answers a ping.
    let scanned = world.scan(ShardSpec::Count(1)).await.unwrap();
    assert_eq!(answer_digest(&scanned.answer), world.expected());
    assert_eq!(scanned.report.workers_lost, ["odd"]);
    assert!(seen.shards.load(Ordering::SeqCst) > 1);
    world.wait_for(&["odd"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failure_for_good_of_the_only_worker_fails_its_symbols_once_the_data_prove_sound() {
    let mut world = World::new().await;
    let seen = world.odd_worker("odd", Oddity::Fails(ErrorKind::Permanent), |_| {}).await;
    world.wait_for(&["odd"]).await;
    let scanned = world.scan(ShardSpec::Count(1)).await.unwrap();
    assert!(!scanned.report.is_complete());
    assert_eq!(seen.shards.load(Ordering::SeqCst), 1, "a permanent failure is not tried again");
    assert_eq!(scanned.answer.counts()[Status::Failed as usize], 300);
    assert!(scanned.answer.rows.iter().all(|r| r.row.reason == "as configured"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_copy_of_one_worker_changes_no_answer_and_the_worker_is_given_nothing_more() {
    let mut world = World::new().await;
    world.worker_with_damaged_files("rotten").await;
    world.real_worker("sound").await;
    world.wait_for(&["rotten", "sound"]).await;
    let scanned = world.scan(ShardSpec::PerSegment).await.unwrap();
    assert_eq!(answer_digest(&scanned.answer), world.expected());
    assert!(scanned.report.failed.is_empty() && scanned.report.quarantined == ["rotten"], "{:?}", scanned.report);
    world.wait_for(&["sound"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_copy_of_the_only_worker_gives_no_answer_before_another_comes() {
    let mut world = World::new().await;
    world.worker_with_damaged_files("rotten").await;
    world.wait_for(&["rotten"]).await;
    let (url, call) = (world.url.clone(), ScanCall { document: World::document(), ..ScanCall::default() });
    let scan =
        tokio::spawn(async move { trawl_coordinator::client::scan(&url, &call, &trawl_coordinator::NoProgress).await });
    world.wait_for(&[]).await;
    assert!(!scan.is_finished());
    world.real_worker("sound").await;
    let scanned = tokio::time::timeout(BOUND, scan).await.expect("in time").unwrap().unwrap();
    assert_eq!(answer_digest(&scanned.answer), world.expected());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_every_copy_finds_damaged_fails_its_symbols_and_is_counted_in_the_list() {
    let mut world = World::new().await;
    for id in ["a", "b"] {
        world.worker_with_damaged_files(id).await;
    }
    world.wait_for(&["a", "b"]).await;
    let scanned = world.scan(ShardSpec::PerSegment).await.unwrap();
    let failed = scanned.answer.counts()[Status::Failed as usize] as u64;
    assert!(failed > 0 && scanned.report.quarantined.is_empty(), "{:?}", scanned.report);
    let scans = world.client().await.list_scans(pb::ListScansRequest::default()).await.unwrap().into_inner().scans;
    assert_eq!((scans.len(), scans[0].failed_symbols), (1, failed));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_segment_that_fails_everywhere_is_given_up_after_its_attempts() {
    let mut world = World::new().await;
    world.odd_worker("odd", Oddity::Corrupt, |_| {}).await;
    world.wait_for(&["odd"]).await;
    let error = world.scan(ShardSpec::Count(1)).await.unwrap_err();
    let ClientError::Refused(failure) = &error else { panic!("{error}") };
    assert_eq!(failure.kind, ErrorKind::Retryable);
    assert!(failure.message.contains("checksum") && failure.message.contains("--allow-partial"), "{failure}");
    let segment =
        world.prepared().segments.iter().any(|s| failure.message.contains(&format!("segment {s} failed 5 times")));
    assert!(segment && failure.message.contains(", last at worker 'odd': "), "{failure}");
    let call = ScanCall { shards: ShardSpec::Count(1), allow_partial: true, ..ScanCall::default() };
    let scanned = world.call(call).await.unwrap();
    assert_eq!(scanned.answer.counts()[Status::Failed as usize], 300);
    assert!(scanned.answer.identity.partial, "another run may give another answer, and the identity says so");
    let failed = &scanned.report.failed[0];
    assert_eq!((failed.kind, failed.attempts), (ErrorKind::Retryable, 5));
    assert!(failed.message.contains("checksum") && failed.worker == "odd", "{failed:?}");
    assert!(
        scanned.answer.rows.iter().all(|row| !row.row.reason.contains("odd")),
        "no answer depends on who computed it"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_whose_record_goes_and_that_does_not_reply_loses_its_work_to_another() {
    let mut world = World::new().await;
    let seen = world.odd_worker("odd", Oddity::Hangs, |_| {}).await;
    world.wait_for(&["odd"]).await;
    let (url, document) = (world.url.clone(), World::document());
    let scan = tokio::spawn(async move {
        let call = ScanCall { document, shards: ShardSpec::Count(1), ..ScanCall::default() };
        trawl_coordinator::client::scan(&url, &call, &NoProgress).await
    });
    let begun = async {
        while seen.shards.load(Ordering::SeqCst) == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(BOUND, begun).await.expect("it has the only shard");
    world.real_worker("real").await;
    world.control.delete(&worker_key("test", "odd")).await.unwrap();
    let scanned = tokio::time::timeout(BOUND, scan).await.expect("in time").unwrap().unwrap();
    assert_eq!(answer_digest(&scanned.answer), world.expected());
    assert_eq!(scanned.report.workers_lost, ["odd"]);
    let dropped = async {
        while seen.dropped.load(Ordering::SeqCst) == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(BOUND, dropped).await.expect("the lost worker's stream is dropped");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_goes_away_cancels_its_scan_down_to_the_worker() {
    let mut world = World::new().await;
    let seen = world.odd_worker("odd", Oddity::Hangs, |_| {}).await;
    world.wait_for(&["odd"]).await;
    let mut client = world.client().await;
    let request = pb::ScanRequest {
        protocol_version: PROTOCOL_VERSION,
        fresh: true,
        document_json: World::document().to_json(),
        ephemeral: true,
        ..pb::ScanRequest::default()
    };
    let mut events = client.scan(request).await.unwrap().into_inner();
    assert!(events.message().await.unwrap().is_some());
    let wait = |what: &'static str, done: Box<dyn Fn() -> bool + Send>| async move {
        let until = async {
            while !done() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(BOUND, until).await.expect(what);
    };
    let shards = std::sync::Arc::clone(&seen);
    wait("work is sent", Box::new(move || shards.shards.load(Ordering::SeqCst) > 0)).await;
    drop(events);
    wait(
        "the worker is notified",
        Box::new(move || seen.dropped.load(Ordering::SeqCst) == seen.shards.load(Ordering::SeqCst)),
    )
    .await;
}
