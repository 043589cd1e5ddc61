//! Refused requests in the log: what nobody who uses the interface as it is described would send, or may ask for.
//!
//! Each is in the audit log's file. On stderr there are as many of a status as an operator can read: whoever sends thousands must
//! neither fill the log nor hide there what somebody else sends.

use std::net::SocketAddr;
use std::time::Instant;

use axum::http::StatusCode;
use trawl_security::LogLimit;
use trawl_telemetry::AUDIT_TARGET;

use super::problem::Problem;

/// Characters of a path or of a reason in a line.
const LOGGED_MAX: usize = 256;

/// The statuses that are shown, and how often each was.
static SHOWN: [(StatusCode, LogLimit); 8] = [
    (StatusCode::BAD_REQUEST, LogLimit::NEW),
    (StatusCode::UNAUTHORIZED, LogLimit::NEW),
    (StatusCode::FORBIDDEN, LogLimit::NEW),
    (StatusCode::NOT_FOUND, LogLimit::NEW),
    (StatusCode::METHOD_NOT_ALLOWED, LogLimit::NEW),
    (StatusCode::REQUEST_TIMEOUT, LogLimit::NEW),
    (StatusCode::PAYLOAD_TOO_LARGE, LogLimit::NEW),
    (StatusCode::UNSUPPORTED_MEDIA_TYPE, LogLimit::NEW),
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

/// Logs what a rule of access refused, which has said so as a warning by the name of its RPC.
pub(super) fn log_ruled(peer: SocketAddr, action: &str, problem: &Problem) {
    let (action, why) = (printable(action), printable(&problem.error.message));
    let earlier = shown(problem.status).map_or(Some(0), |shown| shown.again(Instant::now()));
    let status = problem.status.as_u16();
    if let Some(not_shown) = earlier {
        tracing::info!(target: AUDIT_TARGET, %peer, action, outcome = "refused", status, why, not_shown, "request");
    } else {
        tracing::debug!(target: AUDIT_TARGET, %peer, action, outcome = "refused", status, why, "request");
    }
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

fn shown(status: StatusCode) -> Option<&'static LogLimit> {
    SHOWN.iter().find(|(of, _)| *of == status).map(|(_, shown)| shown)
}

/// Text of a stranger's for a log.
fn printable(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(LOGGED_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::super::problem::Kind;
    use super::*;

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
