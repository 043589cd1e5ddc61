//! Connections to HTTP servers of others: receivers of telemetry, object stores. TCP, with TLS (rustls with ring) where
//! the address begins with `https`; trusted are Mozilla's certificate authorities and those that the caller adds.
//!
//! Connections between Trawl's own processes are those of `trawl-security`, which check who the other one is.

#![forbid(unsafe_code)]

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::TokioIo;
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

/// Timeout of connecting, the TLS handshake included.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// The version of HTTP that is offered to a server (ALPN).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HttpVersion {
    /// HTTP/1.1.
    Http1,
    /// HTTP/2.
    Http2,
}

/// To which addresses connections without TLS are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlainText {
    /// To all.
    Anywhere,
    /// To this machine only; the text says which setting permits others.
    LoopbackUnless(&'static str),
}

/// What a connector cannot be made of.
#[derive(Debug)]
pub enum ConnectorError {
    /// A certificate authority.
    Root(rustls::Error),
    /// The client's certificate, or its key.
    Client(rustls::Error),
}

impl std::fmt::Display for ConnectorError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (Self::Root(why) | Self::Client(why)) = self;
        write!(f, "{why}")
    }
}

impl std::error::Error for ConnectorError {}

/// Opens connections.
#[derive(Debug, Clone)]
pub struct Connector {
    tls: Arc<ClientConfig>,
    plain: PlainText,
}

impl Connector {
    /// Trusts Mozilla's authorities and `roots`; presents `client`, a certificate chain and its key, to servers that
    /// request a certificate.
    ///
    /// # Errors
    /// [`ConnectorError`]: which of the certificates cannot be used, and why.
    pub fn new(
        roots: Vec<CertificateDer<'static>>,
        client: Option<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)>,
        version: HttpVersion,
        plain: PlainText,
    ) -> Result<Self, ConnectorError> {
        let mut trusted = RootCertStore::from_iter(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
        for root in roots {
            trusted.add(root).map_err(ConnectorError::Root)?;
        }
        let trusting = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(ConnectorError::Client)?
            .with_root_certificates(trusted);
        let mut tls = match client {
            None => trusting.with_no_client_auth(),
            Some((chain, key)) => trusting.with_client_auth_cert(chain, key).map_err(ConnectorError::Client)?,
        };
        tls.alpn_protocols = match version {
            HttpVersion::Http1 => vec![b"http/1.1".to_vec()],
            HttpVersion::Http2 => vec![b"h2".to_vec()],
        };
        Ok(Self { tls: Arc::new(tls), plain })
    }

    /// The same with another rule for connections without TLS.
    pub fn with_plain_text(self, plain: PlainText) -> Self {
        Self { plain, ..self }
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
            // The resolved address is checked, not the name.
            if let PlainText::LoopbackUnless(setting) = self.plain
                && !io.peer_addr()?.ip().is_loopback()
            {
                return Err(invalid(&format!(
                    "connections without TLS are made to this machine only, unless {setting}"
                )));
            }
            return Ok(TokioIo::new(Io(Stream::Plain(io))));
        }
        let name =
            ServerName::try_from(host).map_err(|_| invalid("a host name that cannot appear in a certificate"))?;
        let io = TlsConnector::from(self.tls).connect(name, io).await?;
        Ok(TokioIo::new(Io(Stream::Tls(Box::new(io)))))
    }
}

/// The certificates of a PEM file, at least one.
///
/// # Errors
/// A sentence: the file cannot be read, is not PEM, or contains no certificate.
pub fn certificates(file: impl AsRef<std::path::Path>) -> Result<Vec<CertificateDer<'static>>, String> {
    let found = CertificateDer::pem_file_iter(file).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let found = found.map_err(|error| error.to_string())?;
    if found.is_empty() { Err("it contains no certificate".to_owned()) } else { Ok(found) }
}

impl Service<Uri> for Connector {
    type Response = TokioIo<Io>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<TokioIo<Io>>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let connector = self.clone();
        Box::pin(async move {
            let late = || io::Error::new(io::ErrorKind::TimedOut, "no connection in time");
            timeout(CONNECT_TIMEOUT, connector.connect(uri)).await.map_err(|_| late())?
        })
    }
}

/// A connection.
#[derive(Debug)]
pub struct Io(Stream);

#[derive(Debug)]
enum Stream {
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
        match &mut self.get_mut().0 {
            Stream::Plain(io) => Pin::new(io).poll_read(cx, buffer),
            Stream::Tls(io) => Pin::new(io).poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for Io {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match &mut self.get_mut().0 {
            Stream::Plain(io) => Pin::new(io).poll_write(cx, bytes),
            Stream::Tls(io) => Pin::new(io).poll_write(cx, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match &mut self.get_mut().0 {
            Stream::Plain(io) => Pin::new(io).poll_write_vectored(cx, slices),
            Stream::Tls(io) => Pin::new(io).poll_write_vectored(cx, slices),
        }
    }

    /// Without it HTTP/1.1 copies each body into the buffer of its head, which the connection keeps at its largest size.
    fn is_write_vectored(&self) -> bool {
        match &self.0 {
            Stream::Plain(io) => io.is_write_vectored(),
            Stream::Tls(io) => io.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().0 {
            Stream::Plain(io) => Pin::new(io).poll_flush(cx),
            Stream::Tls(io) => Pin::new(io).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().0 {
            Stream::Plain(io) => Pin::new(io).poll_shutdown(cx),
            Stream::Tls(io) => Pin::new(io).poll_shutdown(cx),
        }
    }
}
