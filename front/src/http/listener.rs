//! The connections: how many, how long a request's head may take, how long a client may leave its reply unread.

use std::convert::Infallible;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderValue, Request, Response, header};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, Sleep};
use tokio_stream::StreamExt as _;
use tonic::codegen::Service as _;
use trawl_security::listen::Accepted;
use trawl_security::{Peer, Protocol, ServerSecurity, incoming_of};
use trawl_telemetry::AUDIT_TARGET;
use trawl_telemetry::metrics::catalogue::coordinator::{HTTP_CONNECTIONS, HTTP_REFUSALS, HttpRefusal};

use super::door::Door;
use super::refusals;
use super::routes::router;
use super::{App, until_true};

/// Maximum connections at once; further ones wait in the operating system.
pub const CONNECTIONS_MAX: usize = 512;
/// How long the head of a request may take to arrive, and how long a connection may be idle.
const HEAD_TIMEOUT: Duration = Duration::from_secs(20);
/// Bytes of a request's head.
const HEAD_BYTES_MAX: usize = 16 << 10;
/// Headers of a request.
const HEADERS_MAX: usize = 64;
/// How long a client may take to read [`STALL_BYTES`] of its reply.
const STALL_TIMEOUT: Duration = Duration::from_secs(20);
/// See [`STALL_TIMEOUT`].
const STALL_BYTES: usize = 64 << 10;

/// Serves the door on a bound port until `stopping` is true; then requests that have begun may finish, at most for `drain`.
/// Must be called inside a runtime. `security`: as for gRPC; the caller has checked whether plain text is allowed there.
pub async fn serve(
    listener: TcpListener,
    security: ServerSecurity,
    door: Arc<dyn Door>,
    mut stopping: watch::Receiver<bool>,
    drain: Duration,
) {
    let app = Arc::new(App::new(door, security.access(), stopping.clone()));
    let router = router(&app);
    let mut accepted = Box::pin(incoming_of(listener, security.tls, Protocol::Http1));
    let connections = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let open = Arc::new(AtomicUsize::new(0));
    loop {
        let next = async {
            // Never closed.
            let permit = Arc::clone(&connections).acquire_owned().await.ok()?;
            Some((permit, accepted.next().await?))
        };
        let (permit, connection) = tokio::select! {
            next = next => match next {
                Some((permit, Ok(connection))) => (permit, connection),
                Some((_, Err(_))) => continue,
                None => break,
            },
            () = until_true(&mut stopping) => break,
        };
        let (router, stopping, open) = (router.clone(), stopping.clone(), Arc::clone(&open));
        tokio::spawn(async move {
            let _permit = permit;
            HTTP_CONNECTIONS.set_count(open.fetch_add(1, Ordering::Relaxed) + 1);
            connected(connection, router, stopping).await;
            HTTP_CONNECTIONS.set_count(open.fetch_sub(1, Ordering::Relaxed) - 1);
        });
    }
    drop(accepted);
    let most = u32::try_from(CONNECTIONS_MAX).unwrap_or(u32::MAX);
    if tokio::time::timeout(drain, connections.acquire_many(most)).await.is_err() {
        tracing::warn!("requests of HTTP that did not finish in time are cut off");
    }
}

/// One connection, to its end.
async fn connected(connection: Accepted, router: Router, mut stopping: watch::Receiver<bool>) {
    let peer = connection.peer().clone();
    let of_requests = peer.clone();
    let service = service_fn(move |request: Request<Incoming>| {
        let (mut router, peer) = (router.clone(), of_requests.clone());
        async move { Ok::<_, Infallible>(answered(&mut router, request, peer).await) }
    });
    let io = TokioIo::new(Watched::new(connection));
    let serving = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(HEAD_BYTES_MAX)
        .max_headers(HEADERS_MAX)
        .serve_connection(io, service);
    let mut serving = std::pin::pin!(serving);
    let ended = tokio::select! {
        ended = &mut serving => Some(ended),
        () = until_true(&mut stopping) => None,
    };
    let ended = match ended {
        Some(ended) => ended,
        None => {
            serving.as_mut().graceful_shutdown();
            serving.await
        }
    };
    let stalled = |error: &hyper::Error| {
        let cause = std::error::Error::source(error).and_then(|cause| cause.downcast_ref::<io::Error>());
        cause.is_some_and(|cause| cause.kind() == io::ErrorKind::TimedOut)
    };
    if let Err(error) = &ended
        && error.is_parse()
    {
        HTTP_REFUSALS.of(HttpRefusal::Malformed).inc();
        refusals::log_connection(peer.address, &error.to_string());
    }
    if ended.is_err_and(|error| stalled(&error)) {
        HTTP_REFUSALS.of(HttpRefusal::SlowReader).inc();
        tracing::warn!(target: AUDIT_TARGET, peer = %peer.address, outcome = "closed",
            "the client did not read its reply");
    }
}

async fn answered(router: &mut Router, request: Request<Incoming>, peer: Peer) -> Response<Body> {
    let mut request = request.map(Body::new);
    request.extensions_mut().insert(peer);
    let mut reply = match router.call(request).await {
        Ok(reply) => reply,
        Err(never) => match never {},
    };
    let headers = reply.headers_mut();
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    reply
}

/// A connection whose writes fail once the other side has read too little for too long.
struct Watched {
    io: Accepted,
    /// Runs while a write waits.
    stall: Option<Pin<Box<Sleep>>>,
    /// Bytes written since it was started.
    written: usize,
}

impl Watched {
    fn new(io: Accepted) -> Self {
        Self { io, stall: None, written: 0 }
    }

    /// Looks at the outcome of a write.
    fn noted(&mut self, cx: &mut Context<'_>, outcome: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        match outcome {
            Poll::Ready(Ok(count)) => {
                self.written += count;
                if self.written >= STALL_BYTES {
                    self.stall = None;
                }
                Poll::Ready(Ok(count))
            }
            Poll::Pending => {
                if self.stall.is_none() {
                    self.written = 0;
                }
                let begin = || Box::pin(tokio::time::sleep_until(Instant::now() + STALL_TIMEOUT));
                match self.stall.get_or_insert_with(begin).as_mut().poll(cx) {
                    Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
                    Poll::Pending => Poll::Pending,
                }
            }
            failed => failed,
        }
    }
}

impl AsyncRead for Watched {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().io).poll_read(cx, buf)
    }
}

impl AsyncWrite for Watched {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let outcome = Pin::new(&mut this.io).poll_write(cx, bytes);
        this.noted(cx, outcome)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let outcome = Pin::new(&mut this.io).poll_write_vectored(cx, slices);
        this.noted(cx, outcome)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let flushed = Pin::new(&mut this.io).poll_flush(cx);
        if flushed.is_ready() {
            // All that was to be written is; the next reply begins anew.
            this.stall = None;
        }
        flushed
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().io).poll_shutdown(cx)
    }
}
