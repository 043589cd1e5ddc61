//! Whether a process lives, and whether it takes work: the health protocol of gRPC on a port of its own.
//!
//! A port of its own, in plain text, because the probes of Kubernetes speak no TLS and show no certificate; nothing but these
//! two words can be asked there. [`LIVE`] means that the process answers: neither the control store nor another process
//! counts, since restarting this one would help nobody. [`READY`] means that it is registered and does not leave.
//! It runs on the runtime that serves, so a runtime that is stuck does not answer.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_stream::wrappers::TcpListenerStream;
use tonic_health::ServingStatus;
use tonic_health::server::{HealthReporter, health_reporter};

/// Service name: the process answers. When it does not, restart it.
pub const LIVE: &str = "live";
/// Service name: it takes work. The empty name, which stands for the whole server, says the same.
pub const READY: &str = "ready";
/// Requests of one connection that are answered at once; a probe has one.
const REQUESTS_MAX: usize = 8;
/// Pings to whoever asked and says nothing more, and how long their answer may take.
const HTTP2_KEEP_ALIVE: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(5));

/// What probes are told; written by the process as it starts and leaves.
#[derive(Debug, Clone)]
pub struct Health {
    ready: watch::Sender<bool>,
}

impl Health {
    /// Answers probes at `address` from now on: alive, not ready. Without an address it only remembers. Call it inside a
    /// runtime.
    ///
    /// # Errors
    /// Most often: the port is in use.
    pub async fn listen(address: Option<SocketAddr>) -> io::Result<Self> {
        let (ready, changes) = watch::channel(false);
        let Some(address) = address else { return Ok(Self { ready }) };
        let listener = TcpListener::bind(address).await?;
        let (reporter, service) = health_reporter();
        reporter.set_service_status(LIVE, ServingStatus::Serving).await;
        tell(&reporter, false).await;
        let serving = tonic::transport::Server::builder()
            .concurrency_limit_per_connection(REQUESTS_MAX)
            .http2_keepalive_interval(Some(HTTP2_KEEP_ALIVE.0))
            .http2_keepalive_timeout(Some(HTTP2_KEEP_ALIVE.1))
            .serve_with_incoming(service, TcpListenerStream::new(listener));
        tokio::spawn(follow(reporter, changes));
        tokio::spawn(async move {
            if let Err(error) = serving.await {
                tracing::error!(%error, "probes are answered no longer");
            }
        });
        Ok(Self { ready })
    }

    /// It takes work.
    pub fn ready(&self) {
        self.ready.send_replace(true);
    }

    /// It leaves, and takes no more.
    pub fn leaving(&self) {
        self.ready.send_replace(false);
    }
}

async fn follow(reporter: HealthReporter, mut changes: watch::Receiver<bool>) {
    while changes.changed().await.is_ok() {
        let ready = *changes.borrow_and_update();
        tell(&reporter, ready).await;
    }
}

async fn tell(reporter: &HealthReporter, ready: bool) {
    let status = if ready { ServingStatus::Serving } else { ServingStatus::NotServing };
    reporter.set_service_status(READY, status).await;
    reporter.set_service_status("", status).await;
}
