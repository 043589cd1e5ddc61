//! Scrapes of `/metrics`, byte by byte as a client of HTTP/1.1 sends them.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use crate::process::Background;

/// Longest that a process may take to print where its metrics are, and that an answer may take.
const BOUND: Duration = Duration::from_secs(60);

/// An answer.
#[derive(Debug, Clone)]
pub struct Answer {
    pub status: u16,
    /// Status line and headers, in lower case.
    pub head: String,
    pub body: String,
}

/// Sends `request` to `HOST:PORT` and reads the whole answer; `None` when there is none.
///
/// # Panics
/// When there is no connection, or the answer is invalid.
#[track_caller]
pub fn send(address: &str, request: &[u8]) -> Option<Answer> {
    let mut stream = TcpStream::connect(address).unwrap_or_else(|e| panic!("no connection to {address}: {e}"));
    stream.set_read_timeout(Some(BOUND)).expect("a socket takes a timeout");
    // A connection that is closed early still has its answer.
    let _ = stream.write_all(request);
    let mut bytes = Vec::new();
    let _ = stream.read_to_end(&mut bytes);
    if bytes.is_empty() {
        return None;
    }
    let text = String::from_utf8(bytes).expect("an answer is text");
    let (head, body) = text.split_once("\r\n\r\n").expect("an answer has a head");
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a status");
    Some(Answer { status, head: head.to_lowercase(), body: body.to_owned() })
}

/// `GET path`, with an `Accept` header unless it is empty.
#[track_caller]
pub fn get(address: &str, path: &str, accept: &str) -> Answer {
    let accept = if accept.is_empty() { String::new() } else { format!("Accept: {accept}\r\n") };
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n{accept}\r\n");
    send(address, request.as_bytes()).expect("an answer")
}

/// The metrics of a process.
#[derive(Debug, Clone, Default)]
pub struct Samples(BTreeMap<String, f64>);

impl Samples {
    /// Scrapes `HOST:PORT` once.
    #[track_caller]
    pub fn of(address: &str) -> Self {
        let answer = get(address, "/metrics", "");
        assert_eq!(answer.status, 200, "{answer:?}");
        let samples = answer.body.lines().filter(|line| !line.starts_with('#'));
        Self(
            samples
                .map(|line| line.rsplit_once(' ').expect("a sample"))
                .map(|(s, n)| (s.to_owned(), number(n)))
                .collect(),
        )
    }

    /// One series, written as in the text: `name` or `name{label="value"}`.
    #[track_caller]
    pub fn get(&self, series: &str) -> f64 {
        *self.0.get(series).unwrap_or_else(|| panic!("there is no {series} among {:#?}", self.0.keys()))
    }

    /// All series of a name, summed.
    #[track_caller]
    pub fn sum(&self, name: &str) -> f64 {
        let of = |series: &&String| series.split('{').next() == Some(name);
        assert!(self.0.keys().any(|series| of(&series)), "there is no {name}");
        self.0.iter().filter(|(series, _)| of(series)).map(|(_, number)| number).sum()
    }

    /// Every series.
    pub fn series(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }
}

#[track_caller]
fn number(text: &str) -> f64 {
    text.parse().unwrap_or_else(|_| panic!("'{text}' is not a number"))
}

/// `HOST:PORT` of the metrics of a process that was started with `--metrics`.
#[track_caller]
pub fn address_of(process: &mut Background) -> String {
    process.wait_for_line(BOUND, |line| {
        let url = line.split_whitespace().find_map(|word| word.strip_prefix("metrics=http://"))?;
        url.strip_suffix("/metrics").map(str::to_owned)
    })
}
