//! The HTTP client of the object store: HTTP/1.1 over rustls with ring, as everywhere in Trawl, or plain text on
//! loopback.
//!
//! The object store's crate would bring a second client and a second library of cryptography; this one is used instead.
//! Answers are bounded in bytes and in time, and read whole. There is no proxy.

use std::io;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::{Body as _, Incoming};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use object_store::client::{
    ClientConfigKey, ClientOptions, HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpRequestBody,
    HttpResponse, HttpResponseBody, HttpService,
};
use tokio::time::{Instant, timeout_at};
use trawl_connect::{Connector, HttpVersion, PlainText};

use crate::address::Provider;

/// Bytes of an answer: larger objects are asked for in parts.
pub const BODY_BYTES_MAX: u64 = 96 << 20;
/// Longest that a request and its answer may take, without the time of its bytes.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// Bytes a second that a request's share of the connection carries at least: a line of 4 MB/s on which sixteen are made at once.
const SLOWEST_BYTES_PER_S: u64 = 256 << 10;
/// Environment variable naming a PEM file with additional authorities, as in Amazon's own tools; of the other providers too.
const CA_BUNDLE: &str = "AWS_CA_BUNDLE";

/// Longest that a request with so many bytes, sent and received, may take.
#[must_use]
pub fn time_limit(bytes: u64) -> Duration {
    REQUEST_TIMEOUT.saturating_add(Duration::from_secs(bytes.div_ceil(SLOWEST_BYTES_PER_S)))
}

/// Makes clients.
#[derive(Debug, Clone)]
pub(crate) struct RustlsHttp {
    connector: Connector,
    /// Connections without TLS.
    plain_text: PlainText,
}

impl RustlsHttp {
    /// Trusts Mozilla's authorities, and those in the PEM file that `AWS_CA_BUNDLE` names.
    ///
    /// # Errors
    /// A sentence: the file cannot be read, or TLS cannot be set up.
    pub fn new(provider: Provider) -> Result<Self, String> {
        let plain_text = PlainText::LoopbackUnless(provider.plain_text_variable());
        let bundle = std::env::var_os(CA_BUNDLE);
        let refused = |why: String| {
            let shown = bundle.as_ref().map(|file| std::path::Path::new(file).display().to_string());
            format!("{CA_BUNDLE} names {}, which cannot be used: {why}", shown.unwrap_or_default())
        };
        let roots = bundle.as_ref().map_or(Ok(Vec::new()), trawl_connect::certificates).map_err(refused)?;
        let connector = Connector::new(roots, None, HttpVersion::Http1, plain_text);
        Ok(Self { connector: connector.map_err(|error| refused(error.to_string()))?, plain_text })
    }
}

impl HttpConnector for RustlsHttp {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let plain = options.get_config_value(&ClientConfigKey::AllowHttp).is_some_and(|allowed| allowed == "true");
        let plain = if plain { PlainText::Anywhere } else { self.plain_text };
        let connector = self.connector.clone().with_plain_text(plain);
        Ok(HttpClient::new(Http { client: Client::builder(TokioExecutor::new()).build(connector) }))
    }
}

#[derive(Debug, Clone)]
struct Http {
    client: Client<Connector, HttpRequestBody>,
}

#[tonic::async_trait]
impl HttpService for Http {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        self.call_within(request, time_limit).await
    }
}

impl Http {
    /// Makes a request; `limit` is the longest that it and its answer may take, by their bytes.
    async fn call_within(
        &self,
        request: HttpRequest,
        limit: impl Fn(u64) -> Duration,
    ) -> Result<HttpResponse, HttpError> {
        let (started, sent) = (Instant::now(), request.body().content_length() as u64);
        let until_head = limit(sent);
        let answered = timeout_at(started + until_head, self.client.request(request)).await;
        let response = answered.map_err(|_| late(until_head))?.map_err(|error| {
            let kind = if error.is_connect() { HttpErrorKind::Connect } else { HttpErrorKind::Request };
            HttpError::new(kind, error)
        })?;
        let (parts, body) = response.into_parts();
        // Of an answer that announces more than is read, as much as is read.
        let until_end = limit(sent.saturating_add(body.size_hint().lower().min(BODY_BYTES_MAX)));
        let body = timeout_at(started + until_end, whole(body)).await.map_err(|_| late(until_end))?;
        let body = body.map_err(|error| HttpError::new(HttpErrorKind::Interrupted, error))?;
        let body = HttpResponseBody::new(Full::new(body).map_err(|never| match never {}));
        Ok(HttpResponse::from_parts(parts, body))
    }
}

fn late(limit: Duration) -> HttpError {
    let message = format!("no whole answer within {} s", limit.as_secs());
    HttpError::new(HttpErrorKind::Timeout, io::Error::new(io::ErrorKind::TimedOut, message))
}

/// An answer's body in one piece of memory, of the size that its head announced.
async fn whole(body: Incoming) -> io::Result<Bytes> {
    let limit = usize::try_from(BODY_BYTES_MAX).unwrap_or(usize::MAX);
    let announced = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    let mut bytes = BytesMut::with_capacity(announced.min(limit));
    let mut body = Limited::new(body, limit);
    while let Some(frame) = body.frame().await {
        if let Ok(data) = frame.map_err(io::Error::other)?.into_data() {
            bytes.extend_from_slice(&data);
        }
    }
    Ok(bytes.freeze())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

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
        let client = RustlsHttp::new(Provider::Amazon).unwrap().connect(&ClientOptions::new()).unwrap();
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
    async fn a_cut_off_answer_and_a_server_that_is_not_there_are_distinguished() {
        let (address, _served) = serve(b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nhello").await;
        assert_eq!(get(&format!("http://{address}/x")).await.unwrap_err().kind(), HttpErrorKind::Interrupted);
        let free = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
        assert_eq!(get(&format!("http://{free}/x")).await.unwrap_err().kind(), HttpErrorKind::Connect);
    }

    struct Owned(Vec<u8>, Arc<AtomicBool>);

    impl AsRef<[u8]> for Owned {
        fn as_ref(&self) -> &[u8] {
            &self.0
        }
    }

    impl Drop for Owned {
        fn drop(&mut self) {
            self.1.store(true, Ordering::SeqCst);
        }
    }

    #[tokio::test]
    async fn a_body_is_sent_from_where_it_is_and_not_copied_into_a_buffer_that_the_connection_keeps() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let let_go = Arc::new(AtomicBool::default());
        // More than the system buffers for a connection.
        let body = Bytes::from_owner(Owned(vec![7; 64 << 20], Arc::clone(&let_go)));
        let client = RustlsHttp::new(Provider::Amazon).unwrap().connect(&ClientOptions::new()).unwrap();
        let mut request = HttpRequest::new(HttpRequestBody::from(body));
        (*request.method_mut(), *request.uri_mut()) =
            ("PUT".parse().unwrap(), format!("http://{address}/x").parse().unwrap());
        let sending = tokio::spawn(async move { client.execute(request).await });
        let (mut io, _) = listener.accept().await.unwrap();
        // Some of the body has come: a copy would be whole by now, and the body would be let go.
        io.read_exact(&mut [0; 64 << 10]).await.unwrap();
        assert!(!let_go.load(Ordering::SeqCst));
        sending.abort();
    }

    #[test]
    fn the_limit_of_a_request_grows_with_its_bytes() {
        assert_eq!(time_limit(0), REQUEST_TIMEOUT);
        // A part of an upload on a line of 4 MB/s, beside the seven others that are put at once.
        let (part, beside) = (16 << 20, 8);
        assert!(time_limit(part) > Duration::from_secs(beside * part / 4_000_000));
        assert!(time_limit(BODY_BYTES_MAX) < Duration::from_secs(600));
    }

    /// Sends so many bytes; the head of the answer, which announces two bytes, comes after the first wait, and these after the second.
    async fn late_answer(sent: usize, waits: [Duration; 2], limit: fn(u64) -> Duration) -> Result<(), HttpErrorKind> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let connector = RustlsHttp::new(Provider::Amazon).unwrap().connector;
        let http = Http { client: Client::builder(TokioExecutor::new()).build(connector) };
        let mut request = HttpRequest::new(HttpRequestBody::from(Bytes::from(vec![7; sent])));
        (*request.method_mut(), *request.uri_mut()) =
            ("PUT".parse().unwrap(), format!("http://{address}/x").parse().unwrap());
        let serving = tokio::spawn(async move {
            let (mut io, _) = listener.accept().await.unwrap();
            let _ = io.read(&mut vec![0; 64 << 10]).await.unwrap();
            // Whoever asked may have given up.
            for (wait, text) in waits.into_iter().zip(["HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n", "ok"]) {
                tokio::time::sleep(wait).await;
                let _ = io.write_all(text.as_bytes()).await;
            }
        });
        let answer = http.call_within(request, limit).await;
        serving.abort();
        answer.map(drop).map_err(|error| error.kind())
    }

    #[tokio::test]
    async fn a_request_of_more_bytes_may_take_longer_and_so_may_an_answer() {
        // Long enough for a machine with other work.
        const SHORT: Duration = Duration::from_millis(500);
        let (at_once, late) = (Duration::ZERO, 3 * SHORT);
        let of_sent = |bytes| if bytes >= 100 { Duration::from_secs(60) } else { SHORT };
        let of_answer = |bytes| if bytes >= 2 { Duration::from_secs(60) } else { SHORT };
        assert_eq!(late_answer(0, [late, at_once], of_sent).await, Err(HttpErrorKind::Timeout));
        assert_eq!(late_answer(100, [late, at_once], of_sent).await, Ok(()));
        assert_eq!(late_answer(0, [at_once, late], of_sent).await, Err(HttpErrorKind::Timeout));
        assert_eq!(late_answer(0, [at_once, late], of_answer).await, Ok(()));
    }

    #[tokio::test]
    async fn https_is_never_spoken_as_plain_text() {
        let (address, served) = serve(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await;
        assert!(get(&format!("https://{address}/secret")).await.is_err());
        assert!(!served.await.unwrap().contains("secret"));
    }
}
