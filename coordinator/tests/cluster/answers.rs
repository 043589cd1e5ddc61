//! Answers that are given again to scans of the same identity.

use std::sync::atomic::Ordering;

use trawl_coordinator::client::{ClientError, ScanCall, Scanned};
use trawl_coordinator::{NoProgress, ShardSpec, answer_digest, client};
use trawl_plan::ScanDocument;

use crate::world::{BOUND, Oddity, World};

/// A scan that takes an answer which is known; `change` its document.
async fn ask(url: &str, change: impl Fn(&mut ScanDocument), call: ScanCall) -> Result<Scanned, ClientError> {
    let mut call = ScanCall { document: World::document(), ..call };
    change(&mut call.document);
    tokio::time::timeout(BOUND, client::scan(url, &call, &NoProgress)).await.expect("the scan ends in time")
}

/// Whether it was computed, or was given the answer of this scan.
fn source_of(scanned: &Scanned) -> Option<&str> {
    let report = &scanned.report;
    assert_eq!(report.shard_runs.is_empty(), !report.answer_of.is_empty(), "{report:?}");
    (!report.answer_of.is_empty()).then_some(report.answer_of.as_str())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_identity_gets_the_answer_that_is_known_and_fresh_computes_it() {
    let mut world = World::new().await;
    world.real_worker("w").await;
    world.wait_for(&["w"]).await;
    let same = |_: &mut ScanDocument| {};
    let first = ask(&world.url, same, ScanCall::default()).await.unwrap();
    assert_eq!((source_of(&first), answer_digest(&first.answer)), (None, world.expected()));
    // However it is cut, recorded or not, whatever else is asked of its run.
    let mut earlier = first.report.scan.clone();
    for (ephemeral, shards) in
        [(false, ShardSpec::PerSegment), (true, ShardSpec::Count(2)), (false, ShardSpec::Automatic)]
    {
        let call = ScanCall { ephemeral, shards, allow_partial: ephemeral, ..ScanCall::default() };
        let again = ask(&world.url, same, call).await.unwrap();
        assert_eq!(source_of(&again), Some(earlier.as_str()), "{:?}", again.report);
        assert_eq!((&again.answer, again.report.scan == earlier), (&first.answer, false));
        earlier = again.report.scan;
    }
    let fresh = ask(&world.url, same, ScanCall { fresh: true, ..ScanCall::default() }).await.unwrap();
    assert_eq!((source_of(&fresh), &fresh.answer), (None, &first.answer));
    // What has another answer is computed.
    let others: [fn(&mut ScanDocument); 4] = [
        |document| document.condition = "close > sma(close, 21)".to_owned(),
        |document| document.limit = Some(8),
        |document| document.rank = Some("open".to_owned()),
        |document| document.select = vec!["open".to_owned()],
    ];
    for other in others {
        assert_eq!(source_of(&ask(&world.url, other, ScanCall::default()).await.unwrap()), None);
    }
    // A recorded one has results of its own: the next coordinator reports it without those of the first.
    let results = world.data.path().join(".results/scans");
    std::fs::remove_dir_all(results.join(&first.report.scan)).unwrap();
    world.stop_coordinator();
    let url = world.coordinator("c2", |_| {}).await;
    let watched = tokio::task::spawn_blocking(move || {
        client::watch_blocking(&url, &trawl_security::ClientSecurity::default(), &earlier, &NoProgress).unwrap()
    });
    let watched = tokio::time::timeout(BOUND, watched).await.expect("in time").unwrap();
    assert_eq!(watched.answer, first.answer);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scan_of_several_steps_is_given_again_without_any_of_them() {
    let mut world = World::new().await;
    world.real_worker("w").await;
    world.wait_for(&["w"]).await;
    let ranks =
        |document: &mut ScanDocument| document.condition = "xs_pct(close) > 0.5 and xs_rank(volume) > 3".to_owned();
    let first = ask(&world.url, ranks, ScanCall::default()).await.unwrap();
    let again = ask(&world.url, ranks, ScanCall::default()).await.unwrap();
    assert_eq!((source_of(&first), source_of(&again)), (None, Some(first.report.scan.as_str())));
    assert_eq!(again.answer, first.answer);
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_given_again_that_was_computed_before_a_worker_was_found_to_be_wrong() {
    let mut world = World::new().await;
    world.real_worker("honest").await;
    world.wait_for(&["honest"]).await;
    let same: fn(&mut ScanDocument) = |_| {};
    let first = ask(&world.url, same, ScanCall::default()).await.unwrap();
    world.worker_with_damaged_files("rotten").await;
    world.wait_for(&["honest", "rotten"]).await;
    let other: fn(&mut ScanDocument) = |document| document.condition = "close > sma(close, 21)".to_owned();
    let call = ScanCall { shards: ShardSpec::PerSegment, ..ScanCall::default() };
    let found_out = ask(&world.url, other, call).await.unwrap();
    assert_eq!(found_out.report.quarantined, ["rotten"], "{:?}", found_out.report);
    for change in [same, other] {
        let again = ask(&world.url, change, ScanCall::default()).await.unwrap();
        assert_eq!(source_of(&again), None, "{:?}", again.report);
    }
    let again = ask(&world.url, same, ScanCall::default()).await.unwrap();
    assert_eq!(
        (source_of(&again).is_some(), again.answer),
        (true, first.answer),
        "what was computed after it may be given"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_with_a_failed_symbol_is_computed_again() {
    let mut world = World::new().await;
    let symbols = world.prepared().symbols_of(world.prepared().segments[1]);
    let poison: &'static str = Box::leak(symbols[0].clone().into_boxed_str());
    let seen = world.odd_worker("odd", Oddity::DiesOf(poison), |_| {}).await;
    world.wait_for(&["odd"]).await;
    let same = |_: &mut ScanDocument| {};
    let first = ask(&world.url, same, ScanCall::default()).await.unwrap();
    assert!(!first.report.failed.is_empty() && seen.shards.load(Ordering::SeqCst) > 0);
    let again = ask(&world.url, same, ScanCall::default()).await.unwrap();
    assert_eq!(source_of(&again), None);
}
