//! Refused requests in the log: what nobody who uses the interface as it is described would send, or may ask for.
//!
//! Each is in the audit log's file. On stderr there are as many of a status as an operator can read: whoever sends thousands must
//! neither fill the log nor hide there what somebody else sends.

use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use trawl_telemetry::AUDIT_TARGET;

use super::problem::Problem;

/// Refusals of one status that are shown in a [`WINDOW`]; more are counted, and logged at debug level.
const SHOWN_MAX: u32 = 20;
/// See [`SHOWN_MAX`].
const WINDOW: Duration = Duration::from_secs(10);
/// Characters of a path or of a reason in a line.
const LOGGED_MAX: usize = 256;

/// The statuses that are shown, and how often each was.
static SHOWN: [(StatusCode, Shown); 8] = [
    (StatusCode::BAD_REQUEST, Shown::NONE),
    (StatusCode::UNAUTHORIZED, Shown::NONE),
    (StatusCode::FORBIDDEN, Shown::NONE),
    (StatusCode::NOT_FOUND, Shown::NONE),
    (StatusCode::METHOD_NOT_ALLOWED, Shown::NONE),
    (StatusCode::REQUEST_TIMEOUT, Shown::NONE),
    (StatusCode::PAYLOAD_TOO_LARGE, Shown::NONE),
    (StatusCode::UNSUPPORTED_MEDIA_TYPE, Shown::NONE),
];

/// Whether a problem of a request with a caller is a refusal: others are the caller's own affair, such as a mistake in a scan.
pub(super) fn is_refusal(problem: &Problem) -> bool {
    // A scan that is not found is no path that is not found.
    problem.status != StatusCode::NOT_FOUND && shown(problem.status).is_some()
}

/// Logs the refusal of a request.
pub(super) fn log(peer: SocketAddr, action: &str, caller: Option<&str>, problem: &Problem) {
    record(peer, action, caller, (problem.status, &problem.error.message));
}

/// Logs a connection on which something else than a request came.
pub(super) fn log_connection(peer: SocketAddr, why: &str) {
    record(peer, "", None, (StatusCode::BAD_REQUEST, why));
}

fn record(peer: SocketAddr, action: &str, caller: Option<&str>, (status, why): (StatusCode, &str)) {
    let (action, why) = (printable(action), printable(why));
    let earlier = shown(status).map_or(Some(0), |shown| shown.again(Instant::now()));
    let status = status.as_u16();
    match earlier {
        Some(0) => {
            tracing::warn!(target: AUDIT_TARGET, caller, action, %peer, outcome = "refused", status, why, "request");
        }
        Some(not_shown) => {
            tracing::warn!(target: AUDIT_TARGET, caller, action, %peer, outcome = "refused", status, why, not_shown,
                "request; those of this status before it were too many to show");
        }
        None => {
            tracing::debug!(target: AUDIT_TARGET, caller, action, %peer, outcome = "refused", status, why, "request");
        }
    }
}

fn shown(status: StatusCode) -> Option<&'static Shown> {
    SHOWN.iter().find(|(of, _)| *of == status).map(|(_, shown)| shown)
}

/// Text of a stranger's for a log.
fn printable(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(LOGGED_MAX).collect()
}

/// Begin of the current window, the number in it, and how many of the windows before were not shown.
struct Shown(Mutex<(Option<Instant>, u32, u64)>);

impl Shown {
    #[expect(clippy::declare_interior_mutable_const, reason = "each use is one of its own")]
    const NONE: Self = Self(Mutex::new((None, 0, 0)));

    /// Counts one more: how many were not shown since the last that was, or `None` if this one is not shown either.
    fn again(&self, now: Instant) -> Option<u64> {
        let mut counted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (begin, count, hidden) = &mut *counted;
        if begin.is_none_or(|begin| now.saturating_duration_since(begin) >= WINDOW) {
            (*begin, *count) = (Some(now), 0);
        }
        *count = count.saturating_add(1);
        if *count <= SHOWN_MAX {
            return Some(std::mem::take(hidden));
        }
        *hidden = hidden.saturating_add(1);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::super::problem::Kind;
    use super::*;

    #[test]
    fn as_many_are_shown_as_can_be_read_and_the_others_are_counted() {
        let (shown, start) = (Shown::NONE, Instant::now());
        let first = (0..1000).filter(|_| shown.again(start).is_some()).count();
        assert_eq!(first, SHOWN_MAX as usize);
        assert_eq!(shown.again(start + WINDOW / 2), None);
        assert_eq!(shown.again(start + WINDOW), Some(1001 - u64::from(SHOWN_MAX)));
        assert_eq!(shown.again(start + WINDOW), Some(0));
    }

    #[test]
    fn a_mistake_in_a_scan_is_no_refusal() {
        let of = |kind| is_refusal(&Problem::new(kind, "why"));
        assert!(of(Kind::Unauthenticated) && of(Kind::Denied) && of(Kind::TooLarge));
        assert!(is_refusal(&Problem::malformed("why")));
        assert!(!of(Kind::Invalid) && !of(Kind::NotFound) && !of(Kind::Conflict) && !of(Kind::TooMany));
    }

    #[test]
    fn lines_have_no_control_characters_and_an_end() {
        assert_eq!(printable("/a\r\nb\u{1b}[31m"), "/ab[31m");
        assert_eq!(printable(&"x".repeat(10_000)).len(), LOGGED_MAX);
    }
}
