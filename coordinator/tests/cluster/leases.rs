//! Leases that end while their workers compute: an etcd that does not answer is no reason to throw work away.

use std::time::Duration;

use trawl_cluster_store::ControlStore as _;
use trawl_coordinator::ShardSpec;
use trawl_coordinator::answer_digest;
use trawl_wire::record::worker_key;

use crate::world::{BOUND, CLUSTER, Oddity, World};

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_whose_lease_ends_while_it_computes_finishes_and_is_back_afterwards() {
    let mut world = World::new().await;
    world.slow_worker("a", Duration::from_millis(150)).await;
    world.wait_for(&["a"]).await;
    let store = world.control.clone();
    let ends = tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(250)).await;
        store.expire_lease_of(&worker_key(CLUSTER, "a"));
    });
    let scanned = world.scan(ShardSpec::Count(1)).await.unwrap();
    ends.await.unwrap();
    assert_eq!(answer_digest(&scanned.answer), world.expected());
    assert_eq!(scanned.report.workers_lost, Vec::<String>::new());
    assert_eq!(scanned.report.shard_runs.len(), 1, "nothing was done twice: {:?}", scanned.report.shard_runs);
    // It has registered again by itself, and gets work.
    world.wait_for(&["a"]).await;
    assert_eq!(answer_digest(&world.scan(ShardSpec::Automatic).await.unwrap().answer), world.expected());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_whose_record_is_gone_and_that_does_not_answer_is_lost() {
    let mut world = World::new().await;
    let seen = world.odd_worker("silent", Oddity::Hangs, |_| {}).await;
    world.wait_for(&["silent"]).await;
    let (url, document) = (world.url.clone(), World::document());
    let scan = tokio::spawn(async move {
        let call = trawl_coordinator::client::ScanCall { document, ..Default::default() };
        trawl_coordinator::client::scan(&url, &call, &trawl_coordinator::NoProgress).await
    });
    let begun = async {
        while seen.shards.load(std::sync::atomic::Ordering::SeqCst) == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(BOUND, begun).await.expect("it has work");
    // Its process ends, and its record with it.
    world.stop_the_last();
    world.control.delete(&worker_key(CLUSTER, "silent")).await.unwrap();
    world.real_worker("other").await;
    let scanned = tokio::time::timeout(BOUND, scan).await.expect("in time").unwrap().unwrap();
    assert_eq!(answer_digest(&scanned.answer), world.expected());
}
