//! Delivers a notification: tries until it is accepted, refused for good, or time is up.
//!
//! Tried again: a connection that fails or is lost, 408, 429 and 5xx. Not tried again: any other response, a redirect,
//! a certificate that is not trusted. The pauses are 0.5, 1, 2, 4 and 8 seconds, or what `Retry-After` asks for if that
//! is longer; none is random, so that the duration of a run can be predicted. A scan posts one notification, so there
//! is no thundering herd to spread out.

use std::io;
use std::io::Read as _;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use ureq::http::header::RETRY_AFTER;
use ureq::http::{Response, StatusCode};
use ureq::tls::{RootCerts, TlsConfig};
use ureq::{Agent, Body, Error};

use super::Notifier;

/// Most attempts.
const ATTEMPTS_MAX: u32 = 6;
/// Longest that one attempt may take.
const ATTEMPT_MS: u64 = 10_000;
/// Pause after the first attempt; it doubles each time.
const PAUSE_FIRST_MS: u64 = 500;
/// Bytes of the answer's head.
const RESPONSE_HEAD_BYTES_MAX: usize = 16 * 1024;
/// Bytes of a refusal's body that are read, to show the reason.
const RESPONSE_BYTES_MAX: u64 = 1024;
/// Characters of it that are shown.
const EXCERPT_CHARACTERS_MAX: usize = 200;
/// Shortest attempt that is worth starting.
const ATTEMPT_MIN: Duration = Duration::from_millis(10);

/// The outcome of one attempt.
#[derive(Debug, PartialEq, Eq)]
enum Attempt {
    Taken,
    /// Worth trying again, after at least the time that the receiver asked for.
    Again {
        why: String,
        after: Option<Duration>,
    },
    Refused(String),
}

/// Posts `body` until it is accepted.
///
/// # Errors
/// Why it was not accepted, with the number of attempts.
pub fn post(notifier: &Notifier, body: &[u8], key: &str) -> Result<(), String> {
    let deadline = Instant::now() + notifier.total;
    let agent = agent(notifier);
    let mut attempts = 0;
    loop {
        attempts += 1;
        let left = deadline.saturating_duration_since(Instant::now()).max(ATTEMPT_MIN);
        let tried = |why: String| match attempts {
            1 => why,
            n => format!("{why} ({n} attempts)"),
        };
        let (why, after) = match attempt(notifier, &agent, body, key, left) {
            Attempt::Taken => return Ok(()),
            Attempt::Refused(why) => return Err(tried(why)),
            Attempt::Again { why, after } => (why, after),
        };
        if attempts >= ATTEMPTS_MAX {
            return Err(tried(why));
        }
        let pause = pause(attempts).max(after.unwrap_or_default());
        let left = deadline.saturating_duration_since(Instant::now());
        if pause + ATTEMPT_MIN > left {
            let asked = after.filter(|after| *after == pause).map_or_else(String::new, |after| {
                format!("; it asks to wait {} s, which is longer than this command waits", after.as_secs())
            });
            return Err(tried(format!("{why}{asked}")));
        }
        tracing::debug!(attempts, why, "the notification is tried again");
        std::thread::sleep(pause);
    }
}

/// The pause after attempt number `attempts`, from 1.
fn pause(attempts: u32) -> Duration {
    Duration::from_millis(PAUSE_FIRST_MS << (attempts - 1).min(ATTEMPTS_MAX))
}

fn agent(notifier: &Notifier) -> Agent {
    let roots = match &notifier.authorities {
        Some(certificates) => RootCerts::from(certificates.iter().cloned()),
        None => RootCerts::WebPki,
    };
    Agent::config_builder()
        .http_status_as_error(false)
        .max_redirects(0)
        .max_idle_connections(0)
        .max_response_header_size(RESPONSE_HEAD_BYTES_MAX)
        .user_agent(concat!("trawl/", env!("CARGO_PKG_VERSION")))
        .tls_config(TlsConfig::builder().root_certs(roots).build())
        .build()
        .into()
}

fn attempt(notifier: &Notifier, agent: &Agent, body: &[u8], key: &str, left: Duration) -> Attempt {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs().to_string();
    let sent = agent
        .post(notifier.target.uri())
        .config()
        .timeout_global(Some(left.min(Duration::from_millis(ATTEMPT_MS))))
        .build()
        .header("Content-Type", "application/json")
        .header("Idempotency-Key", key)
        .header("Trawl-Signature", notifier.secret.sign(&seconds, body))
        .header("Trawl-Timestamp", seconds)
        .send(body);
    match sent {
        Ok(response) => answered(response, SystemTime::now()),
        Err(error) => failed(&error),
    }
}

/// What a status means for further attempts. `now` is for a `Retry-After` that is a date.
fn answered(mut response: Response<Body>, now: SystemTime) -> Attempt {
    let status = response.status();
    if status.is_success() {
        return Attempt::Taken;
    }
    if status.is_redirection() {
        return Attempt::Refused(format!("it answered {status}, and redirects are not followed"));
    }
    let retried =
        status.is_server_error() || [StatusCode::REQUEST_TIMEOUT, StatusCode::TOO_MANY_REQUESTS].contains(&status);
    if retried {
        let after = response.headers().get(RETRY_AFTER).and_then(|value| retry_after(value.to_str().ok()?, now));
        return Attempt::Again { why: format!("it answered {status}"), after };
    }
    let mut bytes = Vec::new();
    // What was read before an error is shown all the same.
    let _ = response.body_mut().as_reader().take(RESPONSE_BYTES_MAX).read_to_end(&mut bytes);
    let excerpt = excerpt(&bytes);
    let detail = if excerpt.is_empty() { String::new() } else { format!(": {excerpt}") };
    Attempt::Refused(format!("it answered {status}{detail}"))
}

/// Text from another party on one line.
fn excerpt(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let words: Vec<&str> =
        text.split(|c: char| c.is_whitespace() || c.is_control()).filter(|w| !w.is_empty()).collect();
    words.join(" ").chars().take(EXCERPT_CHARACTERS_MAX).collect()
}

/// Seconds, or the time until a date.
fn retry_after(text: &str, now: SystemTime) -> Option<Duration> {
    let text = text.trim();
    if let Ok(seconds) = text.parse::<u32>() {
        return Some(Duration::from_secs(u64::from(seconds)));
    }
    let date = httpdate::parse_http_date(text).ok()?;
    Some(date.duration_since(now).unwrap_or_default())
}

/// What an attempt without a response means. The messages contain nothing of the URL.
fn failed(error: &Error) -> Attempt {
    let again = |why: &str| Attempt::Again { why: why.to_owned(), after: None };
    match error {
        Error::Timeout(_) => again("it did not answer in time"),
        Error::HostNotFound => again("the host was not found"),
        Error::ConnectionFailed => again("no connection was possible"),
        // Untrusted certificates and the like are reported as invalid data; another attempt would fail the same way.
        Error::Io(e) if e.kind() != io::ErrorKind::InvalidData => again(&match e.kind() {
            io::ErrorKind::UnexpectedEof => "it ended the connection without an answer".to_owned(),
            _ => crate::failure::io_reason(e),
        }),
        Error::Io(e) => Attempt::Refused(excerpt(e.to_string().as_bytes())),
        Error::Rustls(e) => Attempt::Refused(format!("no secure connection: {}", excerpt(e.to_string().as_bytes()))),
        Error::Tls(why) => Attempt::Refused(format!("no secure connection: {why}")),
        Error::Protocol(_) => Attempt::Refused("its answer is not HTTP".to_owned()),
        Error::LargeResponseHeader(..) => {
            Attempt::Refused(format!("the header of its answer is larger than {RESPONSE_HEAD_BYTES_MAX} bytes"))
        }
        Error::ConnectProxyFailed(_) => again("the proxy could not connect"),
        Error::InvalidProxyUrl => Attempt::Refused("the proxy of the environment variables cannot be used".to_owned()),
        _ => Attempt::Refused("the request could not be made".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: u16, retry_after: Option<&str>, body: &'static str) -> Attempt {
        let mut response = Response::builder().status(status);
        if let Some(value) = retry_after {
            response = response.header(RETRY_AFTER, value);
        }
        // Wed, 21 Oct 2015 07:28:00 GMT
        answered(response.body(Body::builder().data(body)).unwrap(), UNIX_EPOCH + Duration::from_secs(1_445_412_480))
    }

    #[test]
    fn the_status_decides_what_is_tried_again() {
        for status in [200, 201, 202, 204] {
            assert_eq!(answer(status, None, ""), Attempt::Taken);
        }
        for status in [408, 429, 500, 502, 503, 504] {
            assert!(matches!(answer(status, None, ""), Attempt::Again { after: None, .. }), "{status}");
        }
        for status in [301, 302, 307, 308, 400, 401, 404, 410, 413, 422] {
            assert!(matches!(answer(status, Some("1"), ""), Attempt::Refused(_)), "{status}");
        }
    }

    #[test]
    fn retry_after_is_seconds_or_a_date() {
        let after = |value| match answer(503, Some(value), "") {
            Attempt::Again { after, .. } => after.map(|after| after.as_secs()),
            other => panic!("{other:?}"),
        };
        assert_eq!(after("7"), Some(7));
        assert_eq!(after("Wed, 21 Oct 2015 07:28:30 GMT"), Some(30));
        assert_eq!(after("Wed, 21 Oct 2015 07:00:00 GMT"), Some(0));
        for nonsense in ["soon", "-1", "", "99999999999999"] {
            assert_eq!(after(nonsense), None, "{nonsense}");
        }
    }

    #[test]
    fn a_receivers_message_is_shown_truncated_on_one_line() {
        assert_eq!(
            answer(400, None, "no\u{1b}[2J\n\n  such hook"),
            Attempt::Refused("it answered 400 Bad Request: no [2J such hook".to_owned())
        );
        assert_eq!(excerpt("x".repeat(5000).as_bytes()).len(), EXCERPT_CHARACTERS_MAX);
    }

    #[test]
    fn the_pauses_double_and_all_attempts_fit_into_the_total() {
        let pauses: Vec<u64> = (1..ATTEMPTS_MAX).map(|n| pause(n).as_millis() as u64).collect();
        assert_eq!(pauses, [500, 1000, 2000, 4000, 8000]);
        assert!(pauses.iter().sum::<u64>() < super::super::TOTAL_MS);
    }
}
