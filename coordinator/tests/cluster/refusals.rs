//! Rejected requests, with their codes and messages.

use std::time::{Duration, Instant};

use tonic::Code;
use trawl_coordinator::client::{ClientError, ScanCall};
use trawl_coordinator::server::ScanLimits;
use trawl_coordinator::{NoProgress, ShardSpec, answer_digest, client};
use trawl_kernels::Precision;
use trawl_plan::ScanDocument;
use trawl_wire::limits::{DOCUMENT_BYTES_MAX, PROTOCOL_VERSION};
use trawl_wire::pb::worker_client::WorkerClient;
use trawl_wire::{ErrorKind, Failure, pb};
use trawl_worker::{execution_class, execution_class_in};

use crate::world::{BOUND, Oddity, World};

/// Makes a good request a bad one.
type Spoil = fn(&mut pb::ShardRequest);

fn request(document: &ScanDocument) -> pb::ScanRequest {
    pb::ScanRequest {
        protocol_version: PROTOCOL_VERSION,
        fresh: true,
        document_json: document.to_json(),
        ..pb::ScanRequest::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_worker_an_ephemeral_scan_ends_and_says_so() {
    let world = World::new().await;
    let started = Instant::now();
    let error = world.call(ScanCall { ephemeral: true, ..ScanCall::default() }).await.unwrap_err();
    assert!(error.to_string().contains("no worker") && !error.is_users_mistake(), "{error}");
    assert!(started.elapsed() >= Duration::from_millis(700));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_recorded_scan_waits_for_a_worker_and_says_for_which() {
    let mut world = World::new().await;
    let (url, call) = (world.url.clone(), ScanCall { document: World::document(), ..ScanCall::default() });
    let scan = tokio::spawn(async move { trawl_coordinator::client::scan(&url, &call, &NoProgress).await });
    let mut client = world.client().await;
    let mut listed = async |wanted: bool| loop {
        let scans = client.list_scans(pb::ListScansRequest::default()).await.unwrap().into_inner().scans;
        if let Some(scan) = scans.first().filter(|scan| scan.waits_for.is_empty() != wanted) {
            return scan.clone();
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    let waits = tokio::time::timeout(BOUND, listed(true)).await.expect("it says so");
    assert!(waits.waits_for.contains("any backend") && waits.state() == pb::ScanState::Queued, "{waits:?}");
    // Longer than a scan that does not wait would have run.
    tokio::time::sleep(Duration::from_millis(900)).await;
    assert!(!scan.is_finished());
    world.real_worker("late").await;
    let scanned = tokio::time::timeout(BOUND, scan).await.expect("in time").unwrap().unwrap();
    assert_eq!(answer_digest(&scanned.answer), world.expected());
    assert_eq!(tokio::time::timeout(BOUND, listed(false)).await.expect("it says so").state(), pb::ScanState::Done);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_of_an_unknown_backend_version_or_schema_is_given_no_work() {
    let mut world = World::new().await;
    world.odd_worker("backend", Oddity::Hangs, |r| r.class.backend = "vulkan".to_owned()).await;
    world.odd_worker("version", Oddity::Hangs, |r| r.protocol_version += 1).await;
    world.odd_worker("schema", Oddity::Hangs, |r| r.result_schema = "0".to_owned()).await;
    world.real_worker("real").await;
    world.wait_for(&["real"]).await;
    assert!(world.scan(ShardSpec::Automatic).await.is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn mistakes_come_back_with_their_places() {
    let world = World::new().await;
    let scan = |change: fn(&mut ScanDocument)| {
        let mut document = World::document();
        change(&mut document);
        let (url, call) = (world.url.clone(), client::ScanCall { document, ..client::ScanCall::default() });
        async move { client::scan(&url, &call, &NoProgress).await.unwrap_err() }
    };
    let error = scan(|d| d.condition = "smaa(close, 3) > 1".to_owned()).await;
    assert!(matches!(&error, ClientError::Mistakes(m) if m[0].span == (0..4)), "{error:?}");
    let error = scan(|d| d.dataset = Some("markt".to_owned())).await;
    assert!(error.to_string().contains("did you mean 'market'") && error.is_users_mistake(), "{error}");
    let error = scan(|d| d.dataset = Some("../etc".to_owned())).await;
    assert!(error.is_users_mistake(), "{error}");
    let error = scan(|d| d.dataset = None).await;
    assert!(error.to_string().contains("--dataset") && error.is_users_mistake(), "{error}");
    let error = scan(|d| d.condition = "x".repeat(DOCUMENT_BYTES_MAX)).await;
    assert!(error.to_string().contains("at most") && error.is_users_mistake(), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_coordinator_refuses_other_versions_documents_too_long_and_scans_too_many() {
    let mut world =
        World::with(|options| options.scans = ScanLimits { running: 2, waiting: 3, ..ScanLimits::default() }).await;
    world.odd_worker("odd", Oddity::Hangs, |_| {}).await;
    world.wait_for(&["odd"]).await;
    let mut client = world.client().await;
    let code = |refused: Result<_, tonic::Status>| refused.map(|_: tonic::Response<_>| ()).unwrap_err();
    let other = pb::ScanRequest { protocol_version: PROTOCOL_VERSION + 1, ..request(&World::document()) };
    let status = code(client.scan(other).await);
    assert_eq!(
        (status.code(), Failure::from_status(&status).unwrap().kind),
        (Code::FailedPrecondition, ErrorKind::Invalid)
    );
    let long = pb::ScanRequest { document_json: " ".repeat(DOCUMENT_BYTES_MAX + 1), ..request(&World::document()) };
    assert_eq!(code(client.scan(long).await).code(), Code::ResourceExhausted);
    let mut streams = Vec::new();
    for _ in 0..5 {
        streams.push(client.scan(request(&World::document())).await.unwrap().into_inner());
    }
    let status = code(client.scan(request(&World::document())).await);
    assert_eq!(
        (status.code(), Failure::from_status(&status).unwrap().kind),
        (Code::ResourceExhausted, ErrorKind::Retryable)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_refuses_what_it_would_compute_otherwise() {
    let mut world = World::new().await;
    let address = world.real_worker("real").await;
    let scan = world.prepared();
    let good = pb::ShardRequest {
        protocol_version: PROTOCOL_VERSION,
        document_json: scan.document.to_json(),
        dataset: scan.dataset_reference(),
        as_of_us: scan.as_of,
        plan_fingerprint: scan.identity.plan.clone(),
        execution_class: Some(execution_class().into()),
        segments: vec![scan.segments[0]],
        ..pb::ShardRequest::default()
    };
    let mut client = WorkerClient::connect(format!("http://{address}")).await.unwrap();
    let mut stream = client.execute(good.clone()).await.unwrap().into_inner();
    let reply = stream.message().await.unwrap().unwrap();
    assert!(matches!(reply.outcome, Some(pb::segment_reply::Outcome::Result(_))));
    let spoilt: [(&str, Spoil); 8] = [
        ("protocol version", |r| r.protocol_version += 1),
        ("class", |r| r.execution_class = None),
        ("f32' was asked for, this worker's is", |r| {
            r.execution_class = Some(execution_class_in(Precision::F32).into())
        }),
        ("plan", |r| r.plan_fingerprint = "0".repeat(64)),
        ("cannot be read", |r| r.document_json = "{".to_owned()),
        ("smaa", |r| r.document_json = r.document_json.replace("sma", "smaa")),
        ("ascend", |r| r.segments = vec![2, 1]),
        ("too long", |r| r.document_json = " ".repeat(DOCUMENT_BYTES_MAX + 1)),
    ];
    for (why, spoil) in spoilt {
        let mut bad = good.clone();
        spoil(&mut bad);
        let failure = Failure::from_status(&client.execute(bad).await.unwrap_err()).expect("a failure in the status");
        assert!(failure.kind == ErrorKind::Invalid && failure.message.contains(why), "{why}: {failure:?}");
    }
    // Another worker may see the dataset.
    let elsewhere = pb::ShardRequest { dataset: "nowhere".to_owned(), ..good };
    let failure = Failure::from_status(&client.execute(elsewhere).await.unwrap_err()).unwrap();
    assert_eq!(failure.kind, ErrorKind::Retryable);
}
