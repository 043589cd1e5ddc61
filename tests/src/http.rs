//! A client of HTTP/1.1, byte by byte: one request for each connection, and requests that no library would send.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::Value;

use crate::home::Home;
use crate::process::Background;

/// Longest that a server may take to be ready, and that a reply may take.
const BOUND: Duration = Duration::from_secs(120);

/// A reply.
#[derive(Debug, Clone)]
pub struct Reply {
    pub status: u16,
    /// By name in lower case.
    pub headers: BTreeMap<String, String>,
    pub body: Vec<u8>,
}

impl Reply {
    /// The body as JSON.
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|e| panic!("{e}: {}", self.text()))
    }

    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// Panics unless the reply has this status.
    #[track_caller]
    pub fn expect(self, status: u16) -> Self {
        assert_eq!(self.status, status, "{:?}\n{}", self.headers, self.text());
        self
    }
}

/// A server that speaks HTTP.
#[derive(Debug)]
pub struct Server {
    pub process: Background,
    /// `127.0.0.1:PORT`.
    pub address: String,
}

impl Server {
    /// `trawl serve` over the data root of `home`.
    pub fn start(home: &Home, more: &[&str]) -> Self {
        let mut command = home.command(&[&["serve", "--listen", "127.0.0.1:0"], more].concat());
        command.env("TRAWL_LOG", "info");
        let mut process = Background::start("serve", &mut command);
        let address = process.wait_for_line(BOUND, |line| {
            let words = line.strip_prefix("ready serve ")?;
            words.split_whitespace().find_map(|word| word.strip_prefix("listen=")).map(str::to_owned)
        });
        Self { process, address }
    }

    pub fn get(&self, path: &str) -> Reply {
        request(&self.address, "GET", path, &[], b"")
    }

    pub fn post(&self, path: &str, body: &Value) -> Reply {
        request(&self.address, "POST", path, &[JSON], body.to_string().as_bytes())
    }
}

/// The header of a body.
pub const JSON: (&str, &str) = ("Content-Type", "application/json");

/// Sends a request and reads the whole reply.
///
/// # Panics
/// When there is no reply, or it is cut short.
#[track_caller]
pub fn request(address: &str, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Reply {
    let mut head = format!("{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n");
    for (name, value) in headers {
        head += &format!("{name}: {value}\r\n");
    }
    if !body.is_empty() || method == "POST" {
        head += &format!("Content-Length: {}\r\n", body.len());
    }
    let bytes = [head.as_bytes(), b"\r\n", body].concat();
    raw(address, &bytes).unwrap_or_else(|| panic!("{method} {path}: no reply"))
}

/// Connects.
///
/// # Panics
/// When there is no connection.
#[track_caller]
pub fn connect(address: &str) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap_or_else(|e| panic!("no connection to {address}: {e}"));
    stream.set_read_timeout(Some(BOUND)).expect("a socket takes a timeout");
    stream
}

/// Sends bytes and reads the reply; `None` when the connection is closed without one.
#[track_caller]
pub fn raw(address: &str, bytes: &[u8]) -> Option<Reply> {
    let mut stream = connect(address);
    // A connection that is closed early still has its reply.
    let _ = stream.write_all(bytes);
    read(stream)
}

/// Reads a reply from any kind of connection; `None` when there is none.
///
/// # Panics
/// When it is no reply, or is cut short.
#[track_caller]
pub fn read(stream: impl Read) -> Option<Reply> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    if reader.read_line(&mut line).unwrap_or(0) == 0 {
        return None;
    }
    let status = line.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or_else(|| panic!("{line}"));
    let mut headers = BTreeMap::new();
    loop {
        line.clear();
        reader.read_line(&mut line).expect("a header");
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        headers.insert(name.to_lowercase(), value.trim().to_owned());
    }
    let mut body = Vec::new();
    if headers.get("transfer-encoding").is_some_and(|coding| coding == "chunked") {
        loop {
            line.clear();
            reader.read_line(&mut line).expect("the size of a chunk");
            let size = usize::from_str_radix(line.trim(), 16).unwrap_or_else(|_| panic!("cut short: {line:?}"));
            let mut chunk = vec![0; size + 2];
            reader.read_exact(&mut chunk).expect("a whole chunk");
            body.extend_from_slice(&chunk[..size]);
            if size == 0 {
                break;
            }
        }
    } else if let Some(length) = headers.get("content-length").and_then(|length| length.parse().ok()) {
        body.resize(length, 0);
        reader.read_exact(&mut body).expect("the whole body");
    } else {
        let _ = reader.read_to_end(&mut body);
    }
    Some(Reply { status, headers, body })
}

/// The events of a stream: names and data, until the server ends it.
#[track_caller]
pub fn events(address: &str, path: &str, headers: &[(&str, &str)]) -> Vec<(String, Value)> {
    let reply = request(address, "GET", path, headers, b"").expect(200);
    assert_eq!(reply.headers["content-type"], "text/event-stream");
    let text = reply.text();
    let event = |block: &str| {
        let of = |key: &str| block.lines().find_map(|line| line.strip_prefix(key)).map(str::to_owned);
        Some((of("event: ")?, serde_json::from_str(&of("data: ")?).expect("data are JSON")))
    };
    text.split("\n\n").filter_map(event).collect()
}
