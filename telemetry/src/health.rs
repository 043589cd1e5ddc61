//! Health probes: whether the process is alive, and whether it accepts work. The gRPC health protocol on a port of its
//! own.
//!
//! The port is separate and in plain text because the probes of Kubernetes speak no TLS and present no certificate;
//! nothing but these two services can be queried there. [`LIVE`] means that the process answers; it depends neither on
//! the control store nor on another process, because restarting this one would not help then. [`READY`] means that the
//! process is registered and not leaving. Probes are answered by the runtime that serves requests, so a stuck runtime
//! fails them.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::Endpoint;
use tonic_health::ServingStatus;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use tonic_health::server::{HealthReporter, health_reporter};

/// Service name: the process answers. When it does not, restart it.
pub const LIVE: &str = "live";
/// Service name: the process accepts work. The empty name, which means the whole server, has the same status.
pub const READY: &str = "ready";
/// Concurrent requests of one connection; a probe sends one.
const REQUESTS_MAX: usize = 8;
/// Interval of keep-alive pings to idle connections, and how long the reply may take.
const HTTP2_KEEP_ALIVE: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(5));

/// Longest that a probe waits for its answer.
const ASK_TIMEOUT: Duration = Duration::from_secs(4);
/// `SERVING` of the protocol.
const SERVING: i32 = 1;

/// Why a process could not be asked.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// Nothing accepts connections there, or it does not answer in time.
    #[error("nothing answers health probes at {address}: a process listens there if it has --health")]
    Unreachable {
        /// Where it was asked.
        address: SocketAddr,
        /// What the connection failed of.
        #[source]
        source: tonic::transport::Error,
    },
    /// It answers, and not as a process with `--health` does.
    #[error("{address} does not answer a health probe for '{service}': {code:?}")]
    Refused {
        /// Where it was asked.
        address: SocketAddr,
        /// For what.
        service: String,
        /// gRPC's code.
        code: tonic::Code,
    },
}

/// Asks the process whose health probes are answered at `address` for a service, [`LIVE`] or [`READY`]: whether it is serving. Call
/// it inside a runtime; it takes [`ASK_TIMEOUT`] at most for the connection and as long for the answer.
///
/// # Errors
/// It does not answer, or does not know the service.
pub async fn ask(address: SocketAddr, service: &str) -> Result<bool, AskError> {
    let unreachable = |source| AskError::Unreachable { address, source };
    let endpoint = Endpoint::from_shared(format!("http://{address}")).map_err(unreachable)?;
    let channel = endpoint.connect_timeout(ASK_TIMEOUT).timeout(ASK_TIMEOUT).connect().await.map_err(unreachable)?;
    let request = HealthCheckRequest { service: service.to_owned() };
    let answer = HealthClient::new(channel).check(request).await;
    let refused =
        |status: tonic::Status| AskError::Refused { address, service: service.to_owned(), code: status.code() };
    Ok(answer.map_err(refused)?.into_inner().status == SERVING)
}

/// The status that probes are given; the process sets it when it is ready and when it leaves.
#[derive(Debug, Clone)]
pub struct Health {
    ready: watch::Sender<bool>,
}

impl Health {
    /// Answers probes at `address` from now on: alive, not ready. Without an address it only stores the status. Call it
    /// inside a runtime.
    ///
    /// # Errors
    /// Most often: the port is in use.
    pub async fn listen(address: Option<SocketAddr>) -> io::Result<Self> {
        let (ready, changes) = watch::channel(false);
        let Some(address) = address else { return Ok(Self { ready }) };
        let listener = TcpListener::bind(address).await?;
        let (reporter, service) = health_reporter();
        reporter.set_service_status(LIVE, ServingStatus::Serving).await;
        report(&reporter, false).await;
        let serving = tonic::transport::Server::builder()
            .concurrency_limit_per_connection(REQUESTS_MAX)
            .http2_keepalive_interval(Some(HTTP2_KEEP_ALIVE.0))
            .http2_keepalive_timeout(Some(HTTP2_KEEP_ALIVE.1))
            .serve_with_incoming(service, TcpListenerStream::new(listener));
        tokio::spawn(follow(reporter, changes));
        tokio::spawn(async move {
            if let Err(error) = serving.await {
                tracing::error!(%error, "health probes are no longer answered");
            }
        });
        Ok(Self { ready })
    }

    /// The process accepts work.
    pub fn ready(&self) {
        self.ready.send_replace(true);
    }

    /// The process is leaving and accepts no more work.
    pub fn leaving(&self) {
        self.ready.send_replace(false);
    }
}

async fn follow(reporter: HealthReporter, mut changes: watch::Receiver<bool>) {
    while changes.changed().await.is_ok() {
        let ready = *changes.borrow_and_update();
        report(&reporter, ready).await;
    }
}

async fn report(reporter: &HealthReporter, ready: bool) {
    let status = if ready { ServingStatus::Serving } else { ServingStatus::NotServing };
    reporter.set_service_status(READY, status).await;
    reporter.set_service_status("", status).await;
}
