//! Clients while nobody leads.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio_stream::wrappers::TcpListenerStream;
use tonic::Code;
use tonic::body::Body;
use tonic::codegen::{Service, http};
use tonic::server::NamedService;
use trawl_coordinator::client::ScanCall;
use trawl_coordinator::{NoProgress, ShardSpec, answer_digest};
use trawl_wire::error::status_of;
use trawl_wire::limits::PROTOCOL_VERSION;
use trawl_wire::record::leader_key;
use trawl_wire::{ErrorKind, pb};

use crate::classes::done;
use crate::world::{BOUND, CLUSTER, World};

/// A coordinator that knows no leader, and answers all calls accordingly.
#[derive(Clone, Default)]
struct Leaderless(Arc<AtomicUsize>);

impl NamedService for Leaderless {
    const NAME: &'static str = "trawl.v1.Coordinator";
}

impl Service<http::Request<Body>> for Leaderless {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Ready<Result<http::Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: http::Request<Body>) -> Self::Future {
        self.0.fetch_add(1, Ordering::Relaxed);
        ready(Ok(status_of(Code::Unavailable, ErrorKind::Retryable, "no coordinator leads at present").into_http()))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_between_two_leaders_is_asked_again_although_one_coordinator_is_down() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let there = listener.local_addr().unwrap();
    let leaderless = Leaderless::default();
    let asked = Arc::clone(&leaderless.0);
    let server = tonic::transport::Server::builder().add_service(leaderless);
    let serving = tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
    // Nothing listens on this port any more.
    let down = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let scan = tokio::spawn(async move {
        let call = ScanCall { document: World::document(), ..ScanCall::default() };
        trawl_coordinator::client::scan(&format!("http://{there},http://{down}"), &call, &NoProgress).await
    });
    let asked_again = async {
        while asked.load(Ordering::Relaxed) < 3 {
            assert!(!scan.is_finished(), "given up");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(BOUND, asked_again).await.expect("asked again and again");
    scan.abort();
    serving.abort();
}

/// More than the leader's lease in this test.
const AWAY: Duration = Duration::from_millis(1_500);

#[tokio::test(flavor = "multi_thread")]
async fn while_the_control_store_is_away_running_scans_go_on_and_what_is_known_can_be_read() {
    let mut world = World::with(|options| options.leader_lease_ttl = Duration::from_millis(600)).await;
    world.slow_worker("w", Duration::from_millis(500)).await;
    world.wait_for(&["w"]).await;
    let before = world.scan(ShardSpec::Automatic).await.unwrap();
    let submitted = world.submit(ScanCall { document: World::document(), ..ScanCall::default() });
    let running = world.listed(|scan| scan.segments_ended == 1 && scan.ended_us.is_none()).await;
    let epoch = world.control.peek(&leader_key(CLUSTER)).unwrap().created;
    world.control.set_away(true);
    tokio::time::sleep(AWAY).await;

    let went_on = world.listed(|scan| scan.scan_id == running.scan_id).await;
    assert!(went_on.segments_ended > running.segments_ended && went_on.ended_us.is_none(), "{went_on:?}");
    let mut client = world.client().await;
    let workers = client.list_workers(pb::ListWorkersRequest::default()).await.unwrap().into_inner().workers;
    assert_eq!(workers.len(), 1);
    let scan_id = before.report.scan.clone();
    let ended = client.trace(pb::TraceRequest { scan_id: scan_id.clone() }).await.unwrap().into_inner();
    assert_eq!(ended.scan.unwrap().answer_digest, world.expected_tree());
    let request = pb::WatchRequest { scan_id, protocol_version: PROTOCOL_VERSION, ..pb::WatchRequest::default() };
    let mut events = client.watch(request).await.unwrap().into_inner();
    let mut last = None;
    while let Some(event) = events.message().await.unwrap() {
        last = event.event;
    }
    assert!(matches!(last, Some(pb::scan_event::Event::Summary(summary)) if summary.answer_digest == world.expected()));
    // What has to be recorded waits, or is refused.
    let cancel = client.cancel(pb::CancelRequest { scan_id: running.scan_id.clone() });
    assert!(tokio::time::timeout(Duration::from_millis(300), cancel).await.is_err());
    assert!(!submitted.is_finished(), "its end cannot be recorded");

    world.control.set_away(false);
    let scanned = done(submitted).await;
    assert_eq!(answer_digest(&scanned.answer), world.expected());
    assert_eq!(scanned.report.scan, running.scan_id);
    assert_eq!(scanned.report.retried_segments, 0, "nothing was computed twice");
    let now = world.control.peek(&leader_key(CLUSTER)).unwrap().created;
    assert_eq!(now, epoch, "the same coordinator leads on");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_coordinator_that_starts_while_etcd_is_full_waits_for_space_and_names_it_if_there_is_none() {
    let mut world = World::new().await;
    world.control.raise_alarm();
    let error = world.try_coordinator("c2", |_| {}).await.unwrap_err().to_string();
    assert!(error.contains("etcd has no space left"), "{error}");
    let control = Arc::clone(&world.control);
    let mended = tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(600)).await;
        control.lift_alarm(2 << 30);
    });
    world.coordinator("c3", |options| options.start_timeout = BOUND).await;
    mended.await.unwrap();
}
