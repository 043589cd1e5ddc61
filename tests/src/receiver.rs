//! A receiver of HTTP posts inside the test: answers from a script and keeps what it received.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, ServerConnection, StreamOwned};

/// Longest that the receiver waits for the rest of a request.
const READ_BOUND: Duration = Duration::from_secs(60);

/// One request as it arrived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Posted {
    /// `POST /path?query HTTP/1.1`.
    pub line: String,
    /// Names in lower case.
    pub headers: BTreeMap<String, String>,
    pub body: Vec<u8>,
}

/// How a request is answered.
#[derive(Debug, Clone)]
pub enum Reply {
    /// Head (without the last empty line) and body.
    Http(String),
    /// Bytes as they are.
    Raw(Vec<u8>),
    /// The connection is closed without an answer.
    HangUp,
    /// The connection stays open without an answer, until the client gives up.
    Silence,
    /// A body that never ends follows a good head.
    EndlessBody(u16),
}

impl Reply {
    /// A status with further header lines (each ending in `\r\n`).
    pub fn status(code: u16, headers: &str) -> Self {
        Self::Http(format!("HTTP/1.1 {code} X\r\n{headers}Content-Length: 0\r\nConnection: close\r\n\r\n"))
    }
}

/// The receiver; its thread lives until the test process ends.
#[derive(Debug)]
pub struct Receiver {
    /// `http://127.0.0.1:PORT` or `https://localhost:PORT`.
    pub url: String,
    /// For an https receiver: the certificate to trust, PEM.
    pub authority: Option<String>,
    posted: Arc<Mutex<Vec<Posted>>>,
}

impl Receiver {
    /// Answers the first request with the first reply and so on; the last reply is repeated.
    pub fn http(replies: Vec<Reply>) -> Self {
        let (url, posted) = serve(None, replies);
        Self { url: format!("http://127.0.0.1:{url}"), authority: None, posted }
    }

    /// The same over TLS, with a certificate for `localhost` that only this receiver's authority signed.
    pub fn https(replies: Vec<Reply>) -> Self {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
        let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).expect("a key");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("TLS versions")
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], key)
            .expect("certificate and key");
        let (port, posted) = serve(Some(Arc::new(config)), replies);
        Self { url: format!("https://localhost:{port}"), authority: Some(made.cert.pem()), posted }
    }

    /// What has arrived so far.
    pub fn posted(&self) -> Vec<Posted> {
        self.posted.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn serve(tls: Option<Arc<ServerConfig>>, replies: Vec<Reply>) -> (u16, Arc<Mutex<Vec<Posted>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = listener.local_addr().expect("an address").port();
    let posted = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&posted);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let _ = stream.set_read_timeout(Some(READ_BOUND));
            match &tls {
                None => converse(stream, &kept, &replies),
                Some(config) => {
                    let Ok(connection) = ServerConnection::new(Arc::clone(config)) else { continue };
                    converse(StreamOwned::new(connection, stream), &kept, &replies);
                }
            }
        }
    });
    (port, posted)
}

/// One connection: one request, one reply.
fn converse(mut stream: impl Connection, kept: &Mutex<Vec<Posted>>, replies: &[Reply]) {
    let Some(posted) = request(&mut stream) else { return };
    let number = {
        let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.push(posted);
        kept.len() - 1
    };
    match replies.get(number).or(replies.last()) {
        Some(Reply::Http(text)) => drop(stream.write_all(text.as_bytes())),
        Some(Reply::Raw(bytes)) => drop(stream.write_all(bytes)),
        Some(Reply::Silence) => drop(stream.read(&mut [0])),
        Some(Reply::EndlessBody(code)) => {
            let head = format!("HTTP/1.1 {code} X\r\nTransfer-Encoding: chunked\r\n\r\n");
            let mut alive = stream.write_all(head.as_bytes());
            while alive.is_ok() {
                alive = stream.write_all(b"8\r\nendless \r\n");
            }
        }
        Some(Reply::HangUp) | None => return,
    }
    let _ = stream.flush();
    stream.end();
}

/// A stream that can signal that nothing more comes.
trait Connection: Read + Write {
    fn end(&mut self);
}

impl Connection for TcpStream {
    fn end(&mut self) {
        let _ = self.shutdown(std::net::Shutdown::Write);
    }
}

impl Connection for StreamOwned<ServerConnection, TcpStream> {
    fn end(&mut self) {
        self.conn.send_close_notify();
        let _ = self.flush();
    }
}

fn request(stream: &mut impl Read) -> Option<Posted> {
    let mut bytes = Vec::new();
    let mut byte = [0];
    while !bytes.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).ok()?;
        bytes.push(byte[0]);
    }
    let head = String::from_utf8(bytes).ok()?;
    let mut lines = head.lines();
    let line = lines.next()?.to_owned();
    let headers: BTreeMap<String, String> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_lowercase(), value.trim().to_owned()))
        .collect();
    let length: usize = headers.get("content-length").and_then(|text| text.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    stream.read_exact(&mut body).ok()?;
    Some(Posted { line, headers, body })
}
