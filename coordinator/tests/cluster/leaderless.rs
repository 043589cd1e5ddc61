//! A client during a change of leader.

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
use trawl_coordinator::NoProgress;
use trawl_coordinator::client::ScanCall;
use trawl_wire::ErrorKind;
use trawl_wire::error::status_of;

use crate::world::{BOUND, World};

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
