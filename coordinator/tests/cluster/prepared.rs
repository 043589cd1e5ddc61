//! Plans that workers keep: requests name them, and bring the document only where it is needed.

use std::sync::atomic::Ordering;

use trawl_coordinator::{ShardSpec, answer_digest, prepare};
use trawl_plan::ScanDocument;
use trawl_wire::limits::PROTOCOL_VERSION;
use trawl_wire::pb::worker_client::WorkerClient;
use trawl_wire::plan_key::PlanAtWorker;
use trawl_wire::{ErrorKind, Failure, pb};

use crate::world::{Oddity, World};

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_gets_a_document_until_it_says_that_it_keeps_the_plan() {
    let mut world = World::new().await;
    let seen = world.odd_worker("keeps", Oddity::KeepsPlans, |_| {}).await;
    world.wait_for(&["keeps"]).await;
    assert_eq!(answer_digest(&world.scan(ShardSpec::PerSegment).await.unwrap().answer), world.expected());
    let (shards, named) = (seen.shards.load(Ordering::SeqCst), seen.named.load(Ordering::SeqCst));
    assert!(named < shards, "{named} of {shards}");
    assert_eq!(answer_digest(&world.scan(ShardSpec::PerSegment).await.unwrap().answer), world.expected());
    let again = seen.shards.load(Ordering::SeqCst) - shards;
    assert_eq!(seen.named.load(Ordering::SeqCst) - named, again, "the second scan brings no document");
    assert!(again > 3, "{again}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_has_dropped_a_plan_gets_its_document_and_nothing_is_tried_again() {
    let mut world = World::new().await;
    let seen = world.odd_worker("forgets", Oddity::ForgetsPlans, |_| {}).await;
    world.wait_for(&["forgets"]).await;
    for _ in 0..2 {
        let scanned = world.scan(ShardSpec::PerSegment).await.unwrap();
        assert_eq!(answer_digest(&scanned.answer), world.expected());
        let report = &scanned.report;
        assert!(report.is_complete() && report.retried_segments == 0 && report.workers_lost.is_empty(), "{report:?}");
        assert!(report.shard_runs.iter().all(|run| run.ending == "done"), "{:?}", report.shard_runs);
        assert_eq!(report.shard_runs.len(), world.prepared().segments.len());
    }
    assert!(seen.named.load(Ordering::SeqCst) > 3);
}

/// As those of earlier releases.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_says_nothing_of_plans_gets_every_document() {
    let mut world = World::new().await;
    let seen = world.odd_worker("earlier", Oddity::SendsRows, |_| {}).await;
    world.wait_for(&["earlier"]).await;
    for _ in 0..2 {
        assert_eq!(answer_digest(&world.scan(ShardSpec::PerSegment).await.unwrap().answer), world.expected());
    }
    assert_eq!(seen.named.load(Ordering::SeqCst), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_runs_what_it_keeps_by_its_key_and_asks_for_the_document_of_anything_else() {
    let mut world = World::new().await;
    let address = world.real_worker("real").await;
    let reference = world.prepared().dataset.manifest.symbols[7].symbol.clone();
    let document = ScanDocument { condition: format!("close > ref('{reference}', close)"), ..World::document() };
    let scan = prepare(&world.store, &document, None).unwrap();
    let whole = pb::ShardRequest {
        protocol_version: PROTOCOL_VERSION,
        document_json: document.to_json(),
        dataset: scan.dataset_reference(),
        as_of_us: scan.as_of,
        plan_fingerprint: scan.identity.plan.clone(),
        execution_class: Some(scan.class().into()),
        segments: vec![scan.segments[0]],
        columns: true,
        ..pb::ShardRequest::default()
    };
    let named = pb::ShardRequest { document_json: String::new(), ..whole.clone() };
    let mut client = WorkerClient::connect(format!("http://{address}")).await.unwrap();
    let mut run = async |request: &pb::ShardRequest| {
        let response = client.execute(request.clone()).await?;
        assert_eq!(PlanAtWorker::of(response.metadata()), Some(PlanAtWorker::Kept));
        let reply = response.into_inner().message().await.unwrap().unwrap();
        Ok::<_, tonic::Status>(reply.outcome.expect("an outcome"))
    };
    let unknown = |status: tonic::Status| {
        let mark = PlanAtWorker::of(status.metadata());
        assert_eq!(
            (mark, Failure::from_status(&status).unwrap().kind),
            (Some(PlanAtWorker::Unknown), ErrorKind::Retryable)
        );
    };
    unknown(run(&named).await.unwrap_err());
    let expected = run(&whole).await.unwrap();
    assert!(matches!(expected, pb::segment_reply::Outcome::Result(_)));
    assert_eq!(run(&named).await.unwrap(), expected);
    assert_eq!(run(&whole).await.unwrap(), expected);
    // Another segment of the same scan, and the same segment of other scans.
    let other = run(&pb::ShardRequest { segments: vec![scan.segments[1]], ..named.clone() }).await.unwrap();
    assert!(matches!(other, pb::segment_reply::Outcome::Result(_)) && other != expected);
    unknown(run(&pb::ShardRequest { as_of_us: named.as_of_us - 1, ..named.clone() }).await.unwrap_err());
    unknown(run(&pb::ShardRequest { plan_fingerprint: "0".repeat(64), ..named.clone() }).await.unwrap_err());
    unknown(run(&pb::ShardRequest { plan_fingerprint: String::new(), ..named.clone() }).await.unwrap_err());
    unknown(run(&pb::ShardRequest { execution_class: None, ..named.clone() }).await.unwrap_err());
    unknown(run(&pb::ShardRequest { adjustment: "none".to_owned(), ..named }).await.unwrap_err());
}
