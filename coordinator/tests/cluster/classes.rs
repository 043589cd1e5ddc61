//! Classes of workers: scans run in a class that workers serve, whatever build the coordinator is of.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::task::JoinHandle;
use trawl_cluster_store::ControlStore as _;
use trawl_coordinator::client::{ClientError, ScanCall, Scanned, scan};
use trawl_coordinator::{NoProgress, answer_digest};
use trawl_kernels::cuda::ExecutorOptions;
use trawl_plan::ScanDocument;
use trawl_wire::record::worker_key;
use trawl_wire::{envelope, pb};
use trawl_worker::execution_class;

use crate::world::{BOUND, CLUSTER, Oddity, World};

/// Longer than an ephemeral scan waits for workers in these tests.
const LONG: Duration = Duration::from_millis(900);

impl World {
    /// A worker of another release: other numerics, the results of the version before.
    async fn earlier_worker(&mut self, id: &str, oddity: Oddity) -> std::sync::Arc<crate::world::Seen> {
        let change = |record: &mut trawl_wire::WorkerRecord| {
            record.class.numerics = "n0".to_owned();
            record.result_schema = format!("{:016x}", envelope::schema_fingerprint_v1());
        };
        self.odd_worker(id, oddity, change).await
    }

    pub fn submit(&self, call: ScanCall) -> JoinHandle<Result<Scanned, ClientError>> {
        let (url, call) = (self.url.clone(), ScanCall { fresh: true, ..call });
        tokio::spawn(async move { scan(&url, &call, &NoProgress).await })
    }

    /// The only scan of the list, once it is as wanted.
    pub async fn listed(&self, wanted: impl Fn(&pb::ScanInfo) -> bool) -> pb::ScanInfo {
        let mut client = self.client().await;
        let looking = async {
            loop {
                let scans = client.list_scans(pb::ListScansRequest::default()).await.unwrap().into_inner().scans;
                if let Some(scan) = scans.first().filter(|scan| wanted(scan)) {
                    return scan.clone();
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(BOUND, looking).await.expect("in time")
    }
}

pub async fn done(submitted: JoinHandle<Result<Scanned, ClientError>>) -> Scanned {
    tokio::time::timeout(BOUND, submitted).await.expect("in time").unwrap().unwrap()
}

fn call(document: ScanDocument) -> ScanCall {
    ScanCall { document, ..ScanCall::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scan_runs_in_the_class_of_the_workers_there_are() {
    let mut world = World::new().await;
    let earlier = world.earlier_worker("earlier", Oddity::SpeaksV1).await;
    world.wait_for(&["earlier"]).await;
    let scanned = done(world.submit(call(World::document()))).await;
    assert_eq!(scanned.answer.identity.numerics, "n0", "the identity names the class that computed");
    assert_eq!(scanned.answer.rows, world.expected_answer().rows);
    assert!(earlier.shards.load(Ordering::SeqCst) > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn cross_sections_are_made_in_the_coordinators_own_numerics_only() {
    let mut world = World::new().await;
    let earlier = world.earlier_worker("earlier", Oddity::SpeaksV1).await;
    world.wait_for(&["earlier"]).await;
    let condition = "xs_rank(close) <= 9".to_owned();
    let submitted = world.submit(call(ScanDocument { condition, ..World::document() }));
    let own = execution_class().numerics;
    let waits = world.listed(|scan| !scan.waits_for.is_empty()).await;
    assert!(waits.waits_for.contains(&own), "{waits:?}");
    tokio::time::sleep(LONG).await;
    assert!(!submitted.is_finished());
    world.real_worker("late").await;
    assert_eq!(done(submitted).await.answer.identity.numerics, own);
    assert_eq!(earlier.shards.load(Ordering::SeqCst), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scan_whose_class_is_gone_begins_anew_in_another() {
    for ephemeral in [false, true] {
        let mut world = World::with(|options| {
            options.class_patience = Duration::from_millis(300);
            // Half of it is the patience of an ephemeral scan.
            options.no_worker_timeout = Duration::from_secs(6);
        })
        .await;
        let earlier = world.earlier_worker("earlier", Oddity::Hangs).await;
        world.wait_for(&["earlier"]).await;
        let submitted = world.submit(ScanCall { ephemeral, ..call(World::document()) });
        let begun = async {
            while earlier.shards.load(Ordering::SeqCst) == 0 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(BOUND, begun).await.expect("it runs in its class");
        world.real_worker("own").await;
        world.control.delete(&worker_key(CLUSTER, "earlier")).await.unwrap();
        let scanned = done(submitted).await;
        assert_eq!(scanned.answer.identity.numerics, execution_class().numerics, "ephemeral: {ephemeral}");
        assert_eq!(answer_digest(&scanned.answer), world.expected());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scan_accepted_while_nobody_serves_gets_the_class_of_whoever_comes() {
    let mut world = World::new().await;
    let submitted = world.submit(call(World::document()));
    let waits = world.listed(|scan| !scan.waits_for.is_empty()).await;
    assert!(waits.waits_for.contains("any backend"), "{waits:?}");
    let _device = world.device_worker("late", "", ExecutorOptions::default()).await;
    let scanned = done(submitted).await;
    assert_eq!(scanned.answer.identity.backend, "cuda", "not its CPU");
    assert_eq!(scanned.answer.rows, world.expected_answer().rows);
    let ended = world.listed(|scan| scan.state() == pb::ScanState::Done).await;
    assert!(ended.waits_for.is_empty(), "{ended:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_backend_that_a_user_names_is_waited_for_and_an_unknown_one_is_refused() {
    let mut world = World::new().await;
    world.real_worker("cpu").await;
    world.wait_for(&["cpu"]).await;
    let wish = |backend: &str| ScanCall { backend: Some(backend.to_owned()), ..call(World::document()) };
    let refused = done_in_error(world.submit(wish("vulkan"))).await;
    assert!(refused.to_string().contains("'vulkan' is not known") && refused.is_users_mistake(), "{refused}");
    let missing = done_in_error(world.submit(ScanCall { ephemeral: true, ..wish("cuda") })).await;
    assert!(missing.to_string().contains("no worker with backend cuda"), "{missing}");
    let submitted = world.submit(wish("cuda"));
    world.listed(|scan| scan.waits_for.contains("cuda")).await;
    let _device = world.device_worker("device", "", ExecutorOptions::default()).await;
    assert_eq!(done(submitted).await.answer.identity.backend, "cuda");
    let single = ScanDocument { precision: Some("f32".to_owned()), ..World::document() };
    let single = done(world.submit(ScanCall { document: single, ..wish("cuda") })).await.answer.identity;
    assert_eq!((single.backend.as_str(), single.precision.as_str()), ("cuda", "f32"));
    assert_eq!(done(world.submit(wish("cpu"))).await.answer.identity.backend, "cpu");
}

async fn done_in_error(submitted: JoinHandle<Result<Scanned, ClientError>>) -> ClientError {
    tokio::time::timeout(BOUND, submitted).await.expect("in time").unwrap().unwrap_err()
}
