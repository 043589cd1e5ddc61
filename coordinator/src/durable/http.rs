//! The HTTP client of the object store: HTTP/1.1 over rustls with ring, as everywhere in Trawl, or plain text on
//! loopback.
//!
//! The object store's crate would bring a second client and a second library of cryptography; this one is used instead.
//! Answers are bounded in bytes and in time, and read whole. There is no proxy.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http_body_util::{BodyExt as _, Full, Limited};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::{TokioExecutor, TokioIo};
use object_store::client::{
    ClientConfigKey, ClientOptions, HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpRequestBody,
    HttpResponse, HttpResponseBody, HttpService,
};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tonic::codegen::Service;
use tonic::codegen::http::Uri;

use super::group::OBJECT_BYTES_MAX;

/// Longest that a connection with its handshake may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest that a request and its answer may take.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// Environment variable naming a PEM file with additional authorities, as in Amazon's own tools.
const CA_BUNDLE: &str = "AWS_CA_BUNDLE";

/// Makes clients.
#[derive(Debug, Clone)]
pub(crate) struct RustlsHttp {
    tls: Arc<ClientConfig>,
}

impl RustlsHttp {
    /// Trusts Mozilla's authorities, and those in the PEM file that `AWS_CA_BUNDLE` names.
    ///
    /// # Errors
    /// A sentence: the file cannot be read, or TLS cannot be set up.
    pub fn new() -> Result<Self, String> {
        let mut roots = RootCertStore::from_iter(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
        if let Some(file) = std::env::var_os(CA_BUNDLE) {
            let shown = std::path::Path::new(&file).display().to_string();
            let refused = |why: String| format!("{CA_BUNDLE} names {shown}, which holds no authorities: {why}");
            let certificates = CertificateDer::pem_file_iter(&file).map_err(|e| refused(e.to_string()))?;
            for certificate in certificates {
                let certificate = certificate.map_err(|e| refused(e.to_string()))?;
                roots.add(certificate).map_err(|e| refused(e.to_string()))?;
            }
        }
        let tls = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|e| e.to_string())?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Self { tls: Arc::new(tls) })
    }
}

impl HttpConnector for RustlsHttp {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let plain = options.get_config_value(&ClientConfigKey::AllowHttp).is_some_and(|allowed| allowed == "true");
        let dial = Dial { tls: Arc::clone(&self.tls), plain };
        Ok(HttpClient::new(Http { client: Client::builder(TokioExecutor::new()).build(dial) }))
    }
}

#[derive(Debug, Clone)]
struct Http {
    client: Client<Dial, HttpRequestBody>,
}

#[tonic::async_trait]
impl HttpService for Http {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let answered = async {
            let response = self.client.request(request).await.map_err(|error| {
                let kind = if error.is_connect() { HttpErrorKind::Connect } else { HttpErrorKind::Request };
                HttpError::new(kind, error)
            })?;
            let (parts, body) = response.into_parts();
            let limit = usize::try_from(OBJECT_BYTES_MAX).unwrap_or(usize::MAX);
            let body = Limited::new(body, limit).collect().await;
            let body = body.map_err(|error| HttpError::new(HttpErrorKind::Interrupted, io::Error::other(error)))?;
            let body = HttpResponseBody::new(Full::new(body.to_bytes()).map_err(|never| match never {}));
            Ok(HttpResponse::from_parts(parts, body))
        };
        let late = || {
            let message = format!("no whole answer within {} s", REQUEST_TIMEOUT.as_secs());
            HttpError::new(HttpErrorKind::Timeout, io::Error::new(io::ErrorKind::TimedOut, message))
        };
        timeout(REQUEST_TIMEOUT, answered).await.map_err(|_| late())?
    }
}

/// Opens connections.
#[derive(Debug, Clone)]
struct Dial {
    tls: Arc<ClientConfig>,
    /// Whether plain text may be spoken beyond loopback.
    plain: bool,
}

impl Dial {
    async fn connect(self, uri: Uri) -> io::Result<TokioIo<Io>> {
        let invalid = |why: &str| io::Error::new(io::ErrorKind::InvalidInput, why.to_owned());
        let secure = uri.scheme_str() == Some("https");
        let host = uri.host().ok_or_else(|| invalid("an address without a host"))?;
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let port = uri.port_u16().unwrap_or(if secure { 443 } else { 80 });
        let io = TcpStream::connect((host.as_str(), port)).await?;
        io.set_nodelay(true)?;
        if !secure {
            // Check the resolved address, not the name.
            if !self.plain && !io.peer_addr()?.ip().is_loopback() {
                return Err(invalid(
                    "plain text is spoken on loopback only, unless AWS_ALLOW_HTTP=true says otherwise",
                ));
            }
            return Ok(TokioIo::new(Io::Plain(io)));
        }
        let name = ServerName::try_from(host).map_err(|_| invalid("a host that no certificate can name"))?;
        let io = TlsConnector::from(self.tls).connect(name, io).await?;
        Ok(TokioIo::new(Io::Tls(Box::new(io))))
    }
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

/// A connection.
#[derive(Debug)]
enum Io {
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

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    /// Serves one connection with a fixed answer; returns the request.
    async fn serve(answer: &'static [u8]) -> (String, tokio::task::JoinHandle<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let serving = tokio::spawn(async move {
            let (mut io, _) = listener.accept().await.unwrap();
            let mut asked = vec![0; 4096];
            let read = io.read(&mut asked).await.unwrap();
            io.write_all(answer).await.unwrap();
            String::from_utf8_lossy(&asked[..read]).into_owned()
        });
        (address, serving)
    }

    async fn get(address: &str) -> Result<HttpResponse, HttpError> {
        let client = RustlsHttp::new().unwrap().connect(&ClientOptions::new()).unwrap();
        let request = HttpRequest::new(HttpRequestBody::empty());
        let (mut parts, body) = request.into_parts();
        parts.uri = address.parse().unwrap();
        client.execute(HttpRequest::from_parts(parts, body)).await
    }

    #[tokio::test]
    async fn an_answer_is_read_whole() {
        let (address, served) = serve(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello").await;
        let response = get(&format!("http://{address}/bucket/key?x=1")).await.unwrap();
        assert_eq!(response.status(), 200);
        assert_eq!(response.into_body().bytes().await.unwrap(), "hello");
        let asked = served.await.unwrap();
        assert!(asked.starts_with("GET /bucket/key?x=1 HTTP/1.1\r\n") && asked.contains(&address), "{asked}");
    }

    #[tokio::test]
    async fn a_cut_off_answer_and_a_server_that_is_not_there_are_told_apart() {
        let (address, _served) = serve(b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nhello").await;
        assert_eq!(get(&format!("http://{address}/x")).await.unwrap_err().kind(), HttpErrorKind::Interrupted);
        let free = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
        assert_eq!(get(&format!("http://{free}/x")).await.unwrap_err().kind(), HttpErrorKind::Connect);
    }

    #[tokio::test]
    async fn https_is_never_spoken_as_plain_text() {
        let (address, served) = serve(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await;
        assert!(get(&format!("https://{address}/secret")).await.is_err());
        assert!(!served.await.unwrap().contains("secret"));
    }
}
