//! Workers that are late, return wrong results, leave, or crash on a symbol: over real connections, with the real
//! dispatcher.

use std::sync::atomic::Ordering;
use std::time::Duration;

use trawl_coordinator::client::{ClientError, ScanCall};
use trawl_coordinator::planner::{Holdings, WorkerSeat, name_key, plan_shards};
use trawl_coordinator::report::RunPurpose;
use trawl_coordinator::{ShardSpec, answer_digest};
use trawl_wire::{ErrorKind, Status};

use crate::world::{Oddity, World};

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_hangs_is_hedged_by_one_that_idles() {
    let mut world = World::new().await;
    let seen = world.odd_worker("odd", Oddity::Hangs, |_| {}).await;
    world.real_worker("real").await;
    world.wait_for(&["odd", "real"]).await;
    let scanned = world.scan(ShardSpec::PerSegment).await.unwrap();
    assert_eq!(answer_digest(&scanned.answer), world.expected());
    let report = &scanned.report;
    assert!(seen.shards.load(Ordering::SeqCst) > 0, "it was never asked");
    assert!(report.hedges > 0 && report.workers_lost.is_empty(), "{report:?}");
    let beaten = |r: &&trawl_coordinator::report::ShardRun| r.worker == "odd";
    assert!(report.shard_runs.iter().filter(beaten).all(|r| r.ending == "stopped"), "{report:?}");
}

/// A worker's name for which the planner gives it one shard of several segments when three are cut.
fn name_of_one_with_several_segments(world: &World) -> String {
    let costs = world.prepared().segment_costs();
    let names = (0..100).map(|i| format!("a-liar-{i}"));
    let fits = |name: &String| {
        let seat = |(worker, name): (u64, &str)| WorkerSeat {
            worker,
            key: name_key(name),
            device: false,
            capacity: 1,
            holds: Holdings::default(),
        };
        let seats = [(1, name.as_str()), (2, "b"), (3, "c")].map(seat);
        let shards = plan_shards(&costs, &seats, ShardSpec::Count(3), name_key("market"));
        let its: Vec<_> = shards.iter().filter(|s| s.preferred == Some(1)).collect();
        its.len() == 1 && its[0].segments.len() == 2
    };
    names.into_iter().find(fits).expect("one of a hundred names")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lie_is_found_out_by_a_hedge_put_right_by_a_third_worker_and_the_liar_gets_nothing_more() {
    let mut world = World::new().await;
    let liar = name_of_one_with_several_segments(&world);
    let seen = world.odd_worker(&liar, Oddity::Lies, |_| {}).await;
    world.slow_worker("b", Duration::from_millis(400)).await;
    world.slow_worker("c", Duration::from_millis(400)).await;
    world.wait_for(&[&liar, "b", "c"]).await;
    let (url, document) = (world.url.clone(), World::document());
    let scan = tokio::spawn(async move {
        let call = ScanCall { document, shards: ShardSpec::Count(3), ..ScanCall::default() };
        trawl_coordinator::client::scan(&url, &call, &trawl_coordinator::NoProgress).await
    });
    let mut client = world.client().await;
    let hedged = async {
        let mut alone = false;
        loop {
            let reply = client.list_workers(trawl_wire::pb::ListWorkersRequest::default()).await.unwrap().into_inner();
            let busy = |w: &trawl_wire::pb::WorkerInfo| w.shards_in_flight > 0;
            let others = reply.workers.iter().any(|w| w.id != liar && busy(w));
            if alone && others {
                return;
            }
            // The others are done, the liar is late: any further dispatch to them is a hedge.
            alone |= !others && reply.workers.iter().any(|w| w.id == liar && busy(w));
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(crate::world::BOUND, hedged).await.expect("the liar is hedged");
    seen.speak.notify_one();
    let scanned = tokio::time::timeout(crate::world::BOUND, scan).await.expect("in time").unwrap().unwrap();
    let report = &scanned.report;
    assert_eq!(report.quarantined, [liar], "{report:?}");
    assert!(report.contested.len() == 1 && !report.disputed, "{report:?}");
    assert!(report.shard_runs.iter().any(|r| r.purpose == RunPurpose::Vote), "{report:?}");
    assert_eq!(answer_digest(&scanned.answer), world.expected());
    world.wait_for(&["b", "c"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_symbol_that_kills_workers_fails_alone_with_its_reason() {
    let mut world = World::new().await;
    let symbols = world.prepared().symbols_of(world.prepared().segments[1]);
    let poison: &'static str = Box::leak(symbols[symbols.len() / 3].clone().into_boxed_str());
    world.odd_worker("odd", Oddity::DiesOf(poison), |_| {}).await;
    world.wait_for(&["odd"]).await;
    let scanned = world.scan(ShardSpec::PerSegment).await.unwrap();
    let failed: Vec<_> = scanned.answer.rows.iter().filter(|r| r.row.status == Status::Failed).collect();
    assert_eq!(failed.len(), 1, "{failed:?}");
    assert_eq!(failed[0].row.symbol, poison);
    assert!(failed[0].row.reason.contains("kills the worker"), "{}", failed[0].row.reason);
    assert_eq!(scanned.answer.rows.len(), 300);
    let [run] = &scanned.report.failed[..] else { panic!("{:?}", scanned.report.failed) };
    assert_eq!((run.kind, &run.symbols), (ErrorKind::Poisoned, &vec![poison.to_owned()]));
    assert!(scanned.report.shard_runs.iter().any(|r| r.purpose == RunPurpose::Isolation));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scan_that_is_not_done_by_its_deadline_ends_and_says_so() {
    let mut world = World::new().await;
    let seen = world.odd_worker("odd", Oddity::Hangs, |_| {}).await;
    world.wait_for(&["odd"]).await;
    let call = ScanCall { deadline: Some(Duration::from_millis(300)), ..ScanCall::default() };
    let error = world.call(call).await.unwrap_err();
    let ClientError::Refused(failure) = &error else { panic!("{error}") };
    assert_eq!(failure.kind, ErrorKind::DeadlineExceeded);
    assert!(failure.message.contains("0.3 s"), "{failure}");
    assert!(seen.shards.load(Ordering::SeqCst) > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_leaves_finishes_what_it_has() {
    let mut world = World::new().await;
    world.slow_worker("w1", Duration::from_millis(300)).await;
    world.wait_for(&["w1"]).await;
    let (url, document) = (world.url.clone(), World::document());
    let scan = tokio::spawn(async move {
        let call = ScanCall { document, shards: ShardSpec::PerSegment, ..ScanCall::default() };
        trawl_coordinator::client::scan(&url, &call, &trawl_coordinator::NoProgress).await
    });
    let mut client = world.client().await;
    let busy = async {
        loop {
            let workers =
                client.list_workers(trawl_wire::pb::ListWorkersRequest::default()).await.unwrap().into_inner().workers;
            if workers.iter().any(|w| w.shards_in_flight == 2) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(crate::world::BOUND, busy).await.expect("w1 is given work");
    // A dispatched shard may not have been received yet, and is rejected if it arrives after the request to leave; a
    // segment takes 300 ms.
    tokio::time::sleep(Duration::from_millis(150)).await;
    world.stop_the_last();
    // Slower, so that it is never idle and never hedges the other's shard.
    world.slow_worker("w2", Duration::from_millis(500)).await;
    let scanned = tokio::time::timeout(crate::world::BOUND, scan).await.expect("in time").unwrap().unwrap();
    assert_eq!(answer_digest(&scanned.answer), world.expected());
    let report = &scanned.report;
    let of = |worker: &str| report.shard_runs.iter().filter(|r| r.worker == worker).cloned().collect::<Vec<_>>();
    assert!(!of("w1").is_empty() && of("w1").iter().all(|r| r.ending == "done"), "{report:?}");
    assert!(!of("w2").is_empty() && report.retried_segments == 0, "{report:?}");
}
