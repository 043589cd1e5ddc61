//! Connections to OTLP receivers: TCP, with TLS (rustls with ring) where the address begins with `https`.
//!
//! The exporters' crate would bring TLS and HTTP clients of its own; it is given these instead. Trusted are Mozilla's
//! certificate authorities and those of `OTEL_EXPORTER_OTLP_CERTIFICATE`; `OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE` and
//! `_CLIENT_KEY` are presented to receivers that request a client certificate.

use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::{TokioExecutor, TokioIo};
use opentelemetry_http::{HttpClient, HttpError, Request, Response};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tonic::codegen::Service;
use tonic::codegen::http::Uri;

use crate::environment::Signal;

/// Timeout of connecting, the TLS handshake included.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest response of a receiver that is read: it says which spans were rejected, and why.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// ALPN names of HTTP/2 and HTTP/1.1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Speaks {
    Http1,
    Http2,
}

/// Opens connections.
#[derive(Debug, Clone)]
pub(crate) struct Dial {
    tls: Arc<ClientConfig>,
}

impl Dial {
    /// # Errors
    /// A sentence: which variable names an unusable file, and why it is unusable.
    pub fn new(signal: Signal, speaks: Speaks) -> Result<Self, String> {
        let mut roots = RootCertStore::from_iter(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
        if let Some((name, file)) = signal.variable("CERTIFICATE") {
            for certificate in certificates(&name, &file)? {
                roots.add(certificate).map_err(|error| unusable(&name, &file, &error))?;
            }
        }
        let trusting = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .with_root_certificates(roots);
        let mut tls = match (signal.variable("CLIENT_CERTIFICATE"), signal.variable("CLIENT_KEY")) {
            (None, None) => trusting.with_no_client_auth(),
            (Some((name, file)), Some((key_name, key_file))) => {
                let own = certificates(&name, &file)?;
                let key = PrivateKeyDer::from_pem_file(&key_file);
                let key = key.map_err(|error| unusable(&key_name, &key_file, &error))?;
                trusting.with_client_auth_cert(own, key).map_err(|error| unusable(&name, &file, &error))?
            }
            (Some((name, _)), None) | (None, Some((name, _))) => {
                return Err(format!(
                    "{name} cannot be used alone: a client certificate needs its key, and the key its certificate"
                ));
            }
        };
        tls.alpn_protocols = match speaks {
            Speaks::Http1 => vec![b"http/1.1".to_vec()],
            Speaks::Http2 => vec![b"h2".to_vec()],
        };
        Ok(Self { tls: Arc::new(tls) })
    }

    async fn connect(self, uri: Uri) -> io::Result<TokioIo<Io>> {
        let invalid = |why: &str| io::Error::new(io::ErrorKind::InvalidInput, why.to_owned());
        let secure = uri.scheme_str() == Some("https");
        let host = uri.host().ok_or_else(|| invalid("an address without a host"))?;
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let port = uri.port_u16().unwrap_or(if secure { 443 } else { 80 });
        let io = TcpStream::connect((host.as_str(), port)).await?;
        io.set_nodelay(true)?;
        if !secure {
            return Ok(TokioIo::new(Io::Plain(io)));
        }
        let name =
            ServerName::try_from(host).map_err(|_| invalid("a host name that cannot appear in a certificate"))?;
        let io = TlsConnector::from(self.tls).connect(name, io).await?;
        Ok(TokioIo::new(Io::Tls(Box::new(io))))
    }
}

fn unusable(name: &str, file: &str, why: &dyn std::fmt::Display) -> String {
    format!("{name} names {}, which cannot be used: {why}", Path::new(file).display())
}

fn certificates(name: &str, file: &str) -> Result<Vec<CertificateDer<'static>>, String> {
    let found = CertificateDer::pem_file_iter(file).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let found = found.map_err(|error| unusable(name, file, &error))?;
    if found.is_empty() { Err(unusable(name, file, &"it contains no certificate")) } else { Ok(found) }
}

impl Service<Uri> for Dial {
    type Response = TokioIo<Io>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<TokioIo<Io>>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let dial = self.clone();
        Box::pin(async move {
            let late = || io::Error::new(io::ErrorKind::TimedOut, "no connection in time");
            timeout(CONNECT_TIMEOUT, dial.connect(uri)).await.map_err(|_| late())?
        })
    }
}

/// The exporter's HTTP client. The exporter sets its timeout.
#[derive(Debug)]
pub(crate) struct Http {
    client: Client<Dial, Full<Bytes>>,
    /// `OTEL_EXPORTER_OTLP_TIMEOUT`.
    timeout: Duration,
}

impl Http {
    pub fn new(dial: Dial, timeout: Duration) -> Self {
        Self { client: Client::builder(TokioExecutor::new()).build(dial), timeout }
    }
}

#[tonic::async_trait]
impl HttpClient for Http {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let answered = async {
            let response = self.client.request(request.map(Full::new)).await?;
            let (parts, body) = response.into_parts();
            let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await?;
            Ok::<_, HttpError>(Response::from_parts(parts, body.to_bytes()))
        };
        timeout(self.timeout, answered).await?
    }
}

/// A connection.
#[derive(Debug)]
pub(crate) enum Io {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Connection for Io {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl AsyncRead for Io {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(io) => Pin::new(io).poll_read(cx, buffer),
            Self::Tls(io) => Pin::new(io).poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for Io {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(io) => Pin::new(io).poll_write(cx, bytes),
            Self::Tls(io) => Pin::new(io).poll_write(cx, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(io) => Pin::new(io).poll_flush(cx),
            Self::Tls(io) => Pin::new(io).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(io) => Pin::new(io).poll_shutdown(cx),
            Self::Tls(io) => Pin::new(io).poll_shutdown(cx),
        }
    }
}
