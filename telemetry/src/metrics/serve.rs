//! Answers scrapes: `GET /metrics` and nothing else, over HTTP/1.1, one request per connection.
//!
//! Whether to listen beyond loopback is decided, and warned about, by the caller. This file only bounds what a stranger
//! can use: connections, bytes, time.

use std::convert::Infallible;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ACCEPT, ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::sync::Semaphore;

use super::Place;
use super::text::{Format, render};

/// The default port in the documentation; Prometheus' list of default ports assigns it to OpenTelemetry's exporters.
pub const METRICS_PORT: u16 = 9464;
/// Concurrent connections; further ones wait in the operating system.
const CONNECTIONS_MAX: usize = 16;
/// Longest that a connection may last.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest that the head of a request may take to arrive.
const HEAD_TIMEOUT: Duration = Duration::from_secs(5);
/// Bytes of a request's head: the smallest limit that hyper accepts.
const HEAD_BYTES_MAX: usize = 8192;
/// Headers of a request.
const HEADERS_MAX: usize = 64;
/// Pause after accepting a connection failed, for instance for want of file descriptors.
const ACCEPT_BACK_OFF: Duration = Duration::from_millis(100);

/// A port on which scrapes will be answered.
#[derive(Debug)]
pub struct Scrapes {
    listener: TcpListener,
    /// Its address.
    pub address: SocketAddr,
}

impl Scrapes {
    /// Binds the port; requests are not answered yet.
    ///
    /// # Errors
    /// Most often: the port is in use.
    pub fn bind(address: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        Ok(Self { listener, address })
    }

    /// Answers until the current runtime ends.
    ///
    /// # Errors
    /// The runtime does not accept the listener.
    pub fn serve(self, place: Place) -> io::Result<()> {
        let listener = tokio::net::TcpListener::from_std(self.listener)?;
        super::begin();
        tokio::spawn(accept(listener, place));
        Ok(())
    }
}

async fn accept(listener: tokio::net::TcpListener, place: Place) {
    let connections = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        // Never closed.
        let Ok(permit) = Arc::clone(&connections).acquire_owned().await else { return };
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "cannot accept a scrape of metrics, trying again");
                tokio::time::sleep(ACCEPT_BACK_OFF).await;
                continue;
            }
        };
        tokio::spawn(async move {
            let _permit = permit;
            let answering = hyper::server::conn::http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEAD_TIMEOUT)
                .max_buf_size(HEAD_BYTES_MAX)
                .max_headers(HEADERS_MAX)
                .keep_alive(false)
                .serve_connection(TokioIo::new(stream), service_fn(move |request| answer(request, place)));
            // An invalid or silent client is disconnected.
            let _ = tokio::time::timeout(CONNECTION_TIMEOUT, answering).await;
        });
    }
}

async fn answer(request: Request<Incoming>, place: Place) -> Result<Response<Full<Bytes>>, Infallible> {
    let reply = |status: StatusCode, text: &'static str| {
        let mut response = Response::new(Full::new(Bytes::from_static(text.as_bytes())));
        *response.status_mut() = status;
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
        response
    };
    if request.uri().path() != "/metrics" {
        return Ok(reply(StatusCode::NOT_FOUND, "there is only /metrics here\n"));
    }
    if request.method() != Method::GET {
        let mut response = reply(StatusCode::METHOD_NOT_ALLOWED, "metrics are read with GET\n");
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET"));
        return Ok(response);
    }
    let accepted = request.headers().get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let format = Format::accepted(&accepted.collect::<Vec<_>>().join(","));
    let mut response = Response::new(Full::new(Bytes::from(render(place, format))));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(format.content_type()));
    Ok(response)
}
