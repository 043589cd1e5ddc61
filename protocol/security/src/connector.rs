//! The calling side: a connector for tonic over TLS or plain text, which keeps the reason of failures.
//!
//! In TLS 1.3 a server rejects a client's certificate after the client has finished its handshake, so the alert arrives
//! with the first reply, and the reason is caught there as well.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tonic::codegen::Service;
use tonic::codegen::http::Uri;

use crate::identity::Expect;
use crate::tls::{Credentials, Reason};

/// Timeout of a handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);

/// Connects; clones share the reason.
#[derive(Debug, Clone)]
pub struct Connector {
    tls: Option<Arc<Credentials>>,
    expect: Expect,
    reason: Reason,
}

impl Connector {
    /// Without `tls` in plain text.
    pub fn new(tls: Option<Arc<Credentials>>, expect: Expect) -> Self {
        Self { tls, expect, reason: Reason::default() }
    }

    /// Reads the certificates again when they change. Must be called inside a runtime.
    pub fn keep_fresh(&self) {
        if let Some(tls) = &self.tls {
            crate::files::keep_fresh(tls.watched());
        }
    }

    /// Whether it uses TLS without a client certificate.
    pub fn shows_nothing(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| !tls.has_own())
    }

    /// Takes the TLS reason of the last rejected connection, if there is one.
    pub fn reason(&self) -> Option<String> {
        self.reason.take()
    }

    async fn connect(self, uri: Uri) -> io::Result<Dialled> {
        let no_host = || io::Error::new(io::ErrorKind::InvalidInput, "an address without a host or a port");
        let host = uri.host().ok_or_else(no_host)?.trim_start_matches('[').trim_end_matches(']').to_owned();
        let port = uri.port_u16().ok_or_else(no_host)?;
        let io = TcpStream::connect((host.as_str(), port)).await?;
        io.set_nodelay(true)?;
        let Some(tls) = self.tls.clone() else {
            return Ok(Dialled { io: Io::Plain(io), refused: None });
        };
        let name = ServerName::try_from(host)
            .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "a host that no certificate can name"))?;
        let config = tls.client_config(self.expect, &self.reason).map_err(io::Error::other)?;
        let shaken = tokio::time::timeout(HANDSHAKE_TIMEOUT, TlsConnector::from(config).connect(name, io)).await;
        let late = || io::Error::new(io::ErrorKind::TimedOut, "it did not finish the handshake of TLS in time");
        let refused = Refused { tls, reason: self.reason.clone() };
        match shaken.map_err(|_| late())? {
            Ok(io) => Ok(Dialled { io: Io::Tls(Box::new(io)), refused: Some(refused) }),
            Err(error) => {
                refused.keep(&error);
                let reason = self.reason.peek();
                Err(reason.map_or(error, io::Error::other))
            }
        }
    }
}

impl Service<Uri> for Connector {
    type Response = TokioIo<Dialled>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let connector = self.clone();
        Box::pin(async move { connector.connect(uri).await.map(TokioIo::new) })
    }
}

/// Translates TLS errors to reasons.
#[derive(Debug)]
struct Refused {
    tls: Arc<Credentials>,
    reason: Reason,
}

impl Refused {
    fn keep(&self, error: &io::Error) {
        match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
            Some(rustls::Error::AlertReceived(alert)) => self.reason.put(self.tls.explain_alert(*alert)),
            Some(rustls::Error::InvalidMessage(_)) => {
                self.reason
                    .put("it does not speak TLS: it was started without --tls-cert, or write http://".to_owned());
            }
            _ => {}
        }
    }
}

/// A connection, encrypted or not.
#[derive(Debug)]
pub struct Dialled {
    io: Io,
    refused: Option<Refused>,
}

#[derive(Debug)]
enum Io {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Dialled {
    fn kept<T>(&self, polled: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if let (Poll::Ready(Err(error)), Some(refused)) = (&polled, &self.refused) {
            refused.keep(error);
        }
        polled
    }
}

impl AsyncRead for Dialled {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let polled = match &mut this.io {
            Io::Plain(io) => Pin::new(io).poll_read(cx, buf),
            Io::Tls(io) => Pin::new(io).poll_read(cx, buf),
        };
        this.kept(polled)
    }
}

impl AsyncWrite for Dialled {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let polled = match &mut this.io {
            Io::Plain(io) => Pin::new(io).poll_write(cx, buf),
            Io::Tls(io) => Pin::new(io).poll_write(cx, buf),
        };
        this.kept(polled)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let polled = match &mut this.io {
            Io::Plain(io) => Pin::new(io).poll_write_vectored(cx, slices),
            Io::Tls(io) => Pin::new(io).poll_write_vectored(cx, slices),
        };
        this.kept(polled)
    }

    fn is_write_vectored(&self) -> bool {
        match &self.io {
            Io::Plain(io) => io.is_write_vectored(),
            Io::Tls(io) => io.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().io {
            Io::Plain(io) => Pin::new(io).poll_flush(cx),
            Io::Tls(io) => Pin::new(io).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().io {
            Io::Plain(io) => Pin::new(io).poll_shutdown(cx),
            Io::Tls(io) => Pin::new(io).poll_shutdown(cx),
        }
    }
}
