//! Requests to Polygon's HTTP interface: paced, tried again where that may help, page after page to the last one.
//!
//! The key is sent in a header to one host alone, and is in no message: what the server writes is shown without it. The address of the
//! next page is taken without its host. Tried again, with growing random waits, or what `Retry-After` asks for if that is longer: a
//! connection that fails, an answer that is late or cut off, 408, 429 and 5xx.

use std::collections::BTreeSet;
use std::fmt;
use std::io::{self, Read as _};
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use trawl_cluster_store::Backoff;
use ureq::http::header::{AUTHORIZATION, RETRY_AFTER};
use ureq::http::{StatusCode, Uri};
use ureq::tls::{RootCerts, TlsConfig};
use ureq::{Agent, Error, Proxy};

use crate::failure::{UserMistake, io_reason};

/// Where requests go by default.
pub const ENDPOINT: &str = "https://api.massive.com";
/// Variables that hold the key.
pub const KEY_VARIABLES: [&str; 2] = ["POLYGON_API_KEY", "MASSIVE_API_KEY"];
/// Bytes of a key.
const KEY_BYTES_MAX: usize = 512;
/// Tries of one request.
const TRIES_MAX: u32 = 10;
/// Longest that one try may take, by default.
pub const TRY_SECONDS: u32 = 60;
/// Waits between tries.
const WAITS: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(60));
/// Longest wait that a server may ask for.
const ASKED_WAIT_MAX: Duration = Duration::from_secs(15 * 60);
/// Bytes of an answer: 50,000 bars take about 6 MB.
const BODY_BYTES_MAX: u64 = 64 << 20;
/// Bytes of an answer's head.
const HEAD_BYTES_MAX: usize = 16 << 10;
/// Pages of one question.
const PAGES_MAX: usize = 100_000;
/// Characters of a server's words that are shown.
const EXCERPT_CHARACTERS_MAX: usize = 200;

/// What is shown instead of a key.
const HIDDEN: &str = "...";

/// A key of the interface; shown as three dots.
pub struct Key(String);

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(HIDDEN)
    }
}

impl Key {
    /// From a file, else from the environment.
    ///
    /// # Errors
    /// [`UserMistake`], which repeats nothing of the key.
    pub fn find(file: Option<&Path>) -> Result<Self, UserMistake> {
        let help = format!("put the key into {}, or into a file that --api-key-file names", KEY_VARIABLES.join(" or "));
        let text = match file {
            Some(file) => {
                let refused = |error: io::Error| {
                    UserMistake::with_help(format!("cannot read '{}': {}", file.display(), io_reason(&error)), &help)
                };
                let mut text = String::new();
                let opened = std::fs::File::open(file).map_err(refused)?;
                opened.take(2 * KEY_BYTES_MAX as u64).read_to_string(&mut text).map_err(refused)?;
                Some(text)
            }
            None => KEY_VARIABLES.iter().find_map(|name| std::env::var(name).ok()).filter(|key| !key.trim().is_empty()),
        };
        let Some(text) = text else {
            return Err(UserMistake::with_help("there is no key for Polygon's interface", help));
        };
        let key = text.trim();
        if key.is_empty() || key.len() > KEY_BYTES_MAX || !key.bytes().all(|c| c.is_ascii_graphic()) {
            let message = format!("the key is not of 1 to {KEY_BYTES_MAX} letters, digits and signs on one line");
            return Err(UserMistake::with_help(message, help));
        }
        Ok(Self(key.to_owned()))
    }

    /// A key for tests.
    #[cfg(test)]
    pub fn of(text: &str) -> Self {
        Self(text.to_owned())
    }

    /// A text from elsewhere without the key, also where characters of it are percent-encoded.
    fn redact(&self, text: &str) -> String {
        let (mut shown, mut rest) = (String::with_capacity(text.len()), text);
        while let Some(first) = rest.chars().next() {
            match bytes_of_key(self.0.as_bytes(), rest.as_bytes()) {
                Some(bytes) => {
                    shown.push_str(HIDDEN);
                    rest = &rest[bytes..];
                }
                None => {
                    shown.push(first);
                    rest = &rest[first.len_utf8()..];
                }
            }
        }
        shown
    }
}

/// Bytes that a key takes at the start of a text, if it is there. Each character may be percent-encoded, also twice, as an address
/// inside of an address is.
fn bytes_of_key(key: &[u8], text: &[u8]) -> Option<usize> {
    let Some((expected, rest)) = key.split_first() else { return Some(0) };
    let digit = |at: usize| text.get(at).and_then(|c| char::from(*c).to_digit(16));
    let encoded = |at: usize| digit(at).zip(digit(at + 1)).is_some_and(|(a, b)| a * 16 + b == u32::from(*expected));
    let ways = [
        (5, text.starts_with(b"%25") && encoded(3)),
        (3, text.starts_with(b"%") && encoded(1)),
        (1, text.first() == Some(expected)),
    ];
    let fitting = ways.into_iter().filter(|(_, fits)| *fits);
    fitting.map(|(bytes, _)| bytes).find_map(|bytes| Some(bytes + bytes_of_key(rest, text.get(bytes..)?)?))
}

/// A client of one server.
#[derive(Debug)]
pub struct Client {
    agent: Agent,
    /// Scheme and host.
    endpoint: String,
    key: Key,
    /// Between the starts of two requests.
    pause: Duration,
    /// When the next request may start.
    next: Mutex<Instant>,
    /// Seconds that one try may take.
    seconds: u32,
}

/// What an answer says beside its results.
#[derive(Debug, Default, serde::Deserialize)]
struct Envelope {
    #[serde(default)]
    status: Option<String>,
    #[serde(default)]
    error: Option<String>,
    #[serde(default)]
    message: Option<String>,
    #[serde(default)]
    next_url: Option<String>,
    /// Present, whatever it is.
    #[serde(default)]
    results: Option<serde::de::IgnoredAny>,
}

/// The outcome of one try.
enum Try {
    Answered(Vec<u8>),
    Again {
        why: String,
        after: Option<Duration>,
    },
    /// 404.
    Missing(anyhow::Error),
    Refused(anyhow::Error),
}

impl Client {
    /// For a server, at most so many requests a minute (0: as many as it answers), each of which may take so many seconds.
    ///
    /// # Errors
    /// [`UserMistake`] for an address that is none, or that is not on this machine and has no TLS.
    pub fn new(endpoint: &str, key: Key, (per_minute, seconds): (u32, u32)) -> Result<Self, UserMistake> {
        let refused = |why: &str| {
            UserMistake::with_help(
                format!("--endpoint {why}"),
                format!("give a scheme and a host, such as {ENDPOINT}; http is for this machine alone"),
            )
        };
        let uri: Uri = endpoint.parse().map_err(|_| refused("is not a URL"))?;
        let authority = uri.authority().map(ToString::to_string).unwrap_or_default();
        if authority.contains('@') || uri.query().is_some() || !["", "/"].contains(&uri.path()) {
            return Err(refused("has more than a scheme and a host"));
        }
        let host = uri.host().unwrap_or_default();
        match uri.scheme_str() {
            Some("https") => {}
            Some("http") if ["127.0.0.1", "localhost", "[::1]"].contains(&host) => {}
            Some("http") => return Err(refused("would send the key in plain text")),
            _ => return Err(refused("has no usable scheme")),
        }
        let is_plain = uri.scheme_str() == Some("http");
        // A proxy of the environment would be sent the key in plain text; with TLS it sees the host alone.
        let proxy = if is_plain { None } else { Proxy::try_from_env() };
        let agent = Agent::config_builder()
            .proxy(proxy)
            .http_status_as_error(false)
            .max_redirects(0)
            .max_response_header_size(HEAD_BYTES_MAX)
            .timeout_global(Some(Duration::from_secs(seconds.into())))
            .user_agent(concat!("trawl/", env!("CARGO_PKG_VERSION")))
            .tls_config(TlsConfig::builder().root_certs(RootCerts::WebPki).build())
            .build();
        Ok(Self {
            agent: agent.into(),
            endpoint: format!("{}://{authority}", uri.scheme_str().unwrap_or_default()),
            key,
            pause: if per_minute == 0 { Duration::ZERO } else { Duration::from_secs(60) / per_minute },
            next: Mutex::new(Instant::now()),
            seconds,
        })
    }

    /// Whether the key is in a text, in any spelling.
    pub fn is_in(&self, text: &str) -> bool {
        self.key.redact(text) != text
    }

    /// Asks for a path with its query, and for the pages after it; `each` is given the bytes of each page.
    ///
    /// # Errors
    /// [`UserMistake`] where the server does not accept the key or the question; a server that fails for too long; those of `each`.
    pub fn pages(&self, path: &str, each: impl FnMut(&[u8]) -> anyhow::Result<()>) -> anyhow::Result<()> {
        self.ask(path, each)?.map_or(Ok(()), Err)
    }

    /// As [`Client::pages`]; whether the server knows anything of it (404 says that it does not).
    ///
    /// # Errors
    /// Those of [`Client::pages`] but that one.
    pub fn pages_if_any(&self, path: &str, each: impl FnMut(&[u8]) -> anyhow::Result<()>) -> anyhow::Result<bool> {
        Ok(self.ask(path, each)?.is_none())
    }

    /// All pages; the error of a 404 where there are none.
    fn ask(
        &self,
        path: &str,
        mut each: impl FnMut(&[u8]) -> anyhow::Result<()>,
    ) -> anyhow::Result<Option<anyhow::Error>> {
        let (mut path, mut seen) = (path.to_owned(), BTreeSet::new());
        loop {
            let body = match self.get(&path)? {
                Ok(body) => body,
                // A page after the first is announced: that it is missing is an error.
                Err(missing) if seen.is_empty() => return Ok(Some(missing)),
                Err(missing) => return Err(missing),
            };
            let shown = self.shown(&path);
            // The parser's message repeats what it has found.
            let envelope: Envelope = serde_json::from_slice(&body).map_err(|error| {
                let why = self.words(&error.to_string());
                anyhow::anyhow!("the answer to {shown} is not the expected JSON: {why}")
            })?;
            match envelope.status.as_deref() {
                Some("OK" | "DELAYED") => {}
                // Without results, Polygon's answer has a status: what has neither says nothing about the question.
                None if envelope.results.is_some() => {}
                other => {
                    let what = match other {
                        Some(status) => format!("the status {}", self.words(status)),
                        None => "neither a status nor results".to_owned(),
                    };
                    let why = self.words(&envelope.error.or(envelope.message).unwrap_or_default());
                    let detail = if why.is_empty() { String::new() } else { format!(": {why}") };
                    anyhow::bail!("the answer to {shown} has {what}{detail}");
                }
            }
            each(&body).map_err(|error| self.without_key(error).context(format!("in the answer to {shown}")))?;
            let Some(next) = envelope.next_url.filter(|next| !next.is_empty()) else { return Ok(None) };
            seen.insert(path);
            path = next_path(&next).ok_or_else(|| anyhow::anyhow!("the next page of {shown} has no usable address"))?;
            if seen.contains(&path) || seen.len() >= PAGES_MAX {
                anyhow::bail!("the pages of {shown} do not end: page {} is one of those before", seen.len() + 1);
            }
        }
    }

    /// The answer to a question, tried until there is one; the error of a 404 apart.
    fn get(&self, path: &str) -> anyhow::Result<Result<Vec<u8>, anyhow::Error>> {
        let mut backoff = Backoff::new(WAITS.0, WAITS.1);
        let mut tries = 0;
        loop {
            self.wait_for_turn();
            tries += 1;
            let (why, after) = match self.attempt(path) {
                Try::Answered(body) => return Ok(Ok(body)),
                Try::Missing(error) => return Ok(Err(error)),
                Try::Refused(error) => return Err(error),
                Try::Again { why, after } => (why, after),
            };
            let shown = self.shown(path);
            if tries >= TRIES_MAX {
                anyhow::bail!("{} gave no answer to {shown} in {tries} tries: {why}", self.endpoint);
            }
            if let Some(after) = after.filter(|after| *after > ASKED_WAIT_MAX) {
                anyhow::bail!("{} asks to wait {} s before {shown} is tried again", self.endpoint, after.as_secs());
            }
            let wait = backoff.next_wait().max(after.unwrap_or_default());
            tracing::warn!(
                path = shown.as_str(),
                tries,
                why,
                wait_ms = wait.as_millis() as u64,
                "a request is tried again"
            );
            // Others wait as well where the server has had too many.
            if after.is_some() {
                let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
                *next = (*next).max(Instant::now() + wait);
            } else {
                std::thread::sleep(wait);
            }
        }
    }

    /// Sleeps until the next request may start.
    fn wait_for_turn(&self) {
        let now = Instant::now();
        let turn = {
            let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
            let turn = (*next).max(now);
            *next = turn + self.pause;
            turn
        };
        std::thread::sleep(turn.saturating_duration_since(now));
    }

    fn attempt(&self, path: &str) -> Try {
        let again = |why: String| Try::Again { why, after: None };
        let refused = |message: String, help: &str| Try::Refused(UserMistake::with_help(message, help).into());
        let request = self.agent.get(format!("{}{path}", self.endpoint));
        let sent = request.header(AUTHORIZATION, format!("Bearer {}", self.key.0)).call();
        let mut response = match sent {
            Ok(response) => response,
            Err(error) => return self.unanswered(&error),
        };
        let status = response.status();
        let body = response.body_mut().with_config().limit(BODY_BYTES_MAX).read_to_vec();
        if status.is_success() {
            return match body {
                Ok(body) => Try::Answered(body),
                Err(Error::BodyExceedsLimit(_)) => Try::Refused(anyhow::anyhow!(
                    "the answer to {} has more than {BODY_BYTES_MAX} bytes",
                    self.shown(path)
                )),
                Err(error) => again(format!("its answer ended early ({})", self.words(&error.to_string()))),
            };
        }
        if status.is_server_error() || [StatusCode::REQUEST_TIMEOUT, StatusCode::TOO_MANY_REQUESTS].contains(&status) {
            let after = response.headers().get(RETRY_AFTER).and_then(|value| retry_after(value.to_str().ok()?));
            return Try::Again { why: format!("it answered {status}"), after };
        }
        let envelope: Envelope = body.ok().and_then(|body| serde_json::from_slice(&body).ok()).unwrap_or_default();
        let words = self.words(&envelope.error.or(envelope.message).unwrap_or_default());
        let detail = if words.is_empty() { String::new() } else { format!(": {words}") };
        let message = format!("{} answered {status} to {}{detail}", self.endpoint, self.shown(path));
        match status {
            StatusCode::UNAUTHORIZED => refused(message, "check the key, in the environment or in the file"),
            StatusCode::FORBIDDEN => refused(message, "the plan of this key does not include that"),
            StatusCode::NOT_FOUND => {
                Try::Missing(UserMistake::with_help(message, "check the symbols and the dates").into())
            }
            _ => refused(message, "check the symbols and the dates"),
        }
    }

    /// What a try without an answer means.
    fn unanswered(&self, error: &Error) -> Try {
        match error {
            Error::Io(e) if e.kind() == io::ErrorKind::InvalidData => Try::Refused(anyhow::anyhow!(
                "no secure connection to {}: {}",
                self.endpoint,
                self.words(&e.to_string())
            )),
            Error::Rustls(_) | Error::Tls(_) | Error::BadUri(_) | Error::Http(_) | Error::LargeResponseHeader(..) => {
                Try::Refused(anyhow::anyhow!(
                    "no usable answer of {}: {}",
                    self.endpoint,
                    self.words(&error.to_string())
                ))
            }
            Error::Timeout(_) => Try::Again { why: format!("no answer within {} s", self.seconds), after: None },
            _ => Try::Again { why: self.words(&error.to_string()), after: None },
        }
    }

    /// A path without its query, which may hold the cursor of a page, and without the key: a server may name the path of the next page.
    fn shown(&self, path: &str) -> String {
        self.key.redact(path.split('?').next().unwrap_or(path))
    }

    /// An error about what a server wrote; as it is, unless the key is in it.
    fn without_key(&self, error: anyhow::Error) -> anyhow::Error {
        let text = format!("{error:#}");
        if self.key.redact(&text) == text { error } else { anyhow::anyhow!("{}", self.words(&text)) }
    }

    /// Words from elsewhere on one line, short, and without the key.
    fn words(&self, text: &str) -> String {
        let text = self.key.redact(text);
        let words: Vec<&str> =
            text.split(|c: char| c.is_whitespace() || c.is_control()).filter(|word| !word.is_empty()).collect();
        words.join(" ").chars().take(EXCERPT_CHARACTERS_MAX).collect()
    }
}

/// Path and query of the next page, without a key.
fn next_path(url: &str) -> Option<String> {
    let uri: Uri = url.parse().ok()?;
    if !uri.path().starts_with('/') {
        return None;
    }
    let query: Vec<&str> = uri.query()?.split('&').filter(|pair| !pair.to_lowercase().starts_with("apikey=")).collect();
    Some(format!("{}?{}", uri.path(), query.join("&")))
}

/// Seconds, or the time until a date.
fn retry_after(text: &str) -> Option<Duration> {
    let text = text.trim();
    if let Ok(seconds) = text.parse::<u32>() {
        return Some(Duration::from_secs(u64::from(seconds)));
    }
    let date = httpdate::parse_http_date(text).ok()?;
    Some(date.duration_since(SystemTime::now()).unwrap_or_default())
}

/// A value of a query, encoded.
pub fn encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => encoded.push(char::from(byte)),
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_page_is_asked_of_the_same_host_and_without_a_key() {
        let next = "https://elsewhere.example/v2/aggs/x?cursor=YWJj&apiKey=s3cret&limit=5";
        assert_eq!(next_path(next).unwrap(), "/v2/aggs/x?cursor=YWJj&limit=5");
        assert!(next_path("https://elsewhere.example/v2/aggs").is_none());
        assert!(next_path("*?cursor=YWJj").is_none());
        assert_eq!(encoded("BRK/B x"), "BRK%2FB%20x");
    }

    #[test]
    fn only_a_host_with_tls_or_this_machine_is_given_the_key() {
        let client = |url: &str| Client::new(url, Key("s3cret".to_owned()), (5, 60));
        for good in
            [ENDPOINT, "https://api.polygon.io/", "http://127.0.0.1:8000", "http://localhost:1", "http://[::1]:1"]
        {
            assert!(client(good).is_ok(), "{good}");
        }
        for bad in ["http://api.massive.com", "ftp://h", "h", "https://u:p@h", "https://h/path", "https://h?x=1", ""] {
            let error = client(bad).unwrap_err().to_string();
            assert!(error.starts_with("--endpoint") && !error.contains("s3cret"), "{bad}: {error}");
        }
        assert!(!format!("{:?}", client(ENDPOINT).unwrap()).contains("s3cret"));
        assert_eq!(client(ENDPOINT).unwrap().words("no  key\ns3cret!"), "no key ...!");
    }

    #[test]
    fn the_key_is_hidden_in_every_spelling_of_a_url() {
        let key = Key("s3/+=a%2Fz".to_owned());
        for (text, hidden) in [
            ("key=s3/+=a%2Fz&x", "key=...&x"),
            ("key=s3%2F%2B%3Da%252Fz&x", "key=...&x"),
            ("key=s3%2f%2b%3da%252Fz", "key=..."),
            ("key=%73%33%2f%2b%3d%61%25%32%46%7A", "key=..."),
            ("key=s3%252F%252B%253Da%25252Fz ü", "key=... ü"),
            ("s3/+=a%2F s3", "s3/+=a%2F s3"),
            ("100 % of s3%", "100 % of s3%"),
        ] {
            assert_eq!(key.redact(text), hidden, "{text}");
        }
    }
}
