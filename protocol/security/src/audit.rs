//! One line of the audit log for each call, when its reply begins: who called what, of which scan, and how it ended.

use std::time::Instant;

use tonic::codegen::http;
use tonic::{Code, Status};
use trawl_telemetry::AUDIT_TARGET;

use crate::listen::{Peer, PeerIdentity};
use crate::log_limit::LogLimit;
use crate::rights::Right;

/// What a call was about: a scan's id, a worker's or a dataset's name. A service puts it into the extensions of its
/// reply.
#[derive(Debug, Clone)]
pub struct Subject(pub String);

/// Logs a call that the guard let through: submissions and calls that need the right of an administrator at info level,
/// others at debug level, those that failed as warnings. Calls between processes are not logged.
pub(crate) fn answered<B>(
    (path, right): (&str, Option<Right>),
    peer: Option<&Peer>,
    caller: &str,
    reply: &http::Response<B>,
) {
    let Some(right) = right else { return };
    let (action, peer) = (printable(path), address_of(peer));
    let subject = reply.extensions().get::<Subject>().map(|subject| subject.0.as_str());
    match Status::from_header_map(reply.headers()).filter(|status| status.code() != Code::Ok) {
        Some(status) => {
            let (code, why) = (status.code(), status.message());
            tracing::warn!(target: AUDIT_TARGET, caller, action, subject, peer, outcome = "failed", ?code, why, "call");
        }
        None if matches!(right, Right::Submit | Right::Admin) => {
            tracing::info!(target: AUDIT_TARGET, caller, action, subject, peer, outcome = "done", "call");
        }
        None => tracing::debug!(target: AUDIT_TARGET, caller, action, subject, peer, outcome = "done", "call"),
    }
}

/// How often calls were refused as not known, as not allowed, and as no call at all.
static REFUSED: [LogLimit; 3] = [LogLimit::NEW; 3];

/// Logs a call that the guard refused: as many of a kind as an operator can read as warnings, each with how many before it were not
/// shown; all of them at debug level, which the audit log's file has.
pub(crate) fn refused(path: &str, peer: Option<&Peer>, status: &Status) {
    let (action, from, code, why) = (printable(path), address_of(peer), status.code(), status.message());
    let caller = match peer.map(|p| &p.identity) {
        Some(PeerIdentity::Certificate(Ok(identity))) => identity.to_string(),
        _ => "unknown".to_owned(),
    };
    let limit = match code {
        Code::Unauthenticated => &REFUSED[0],
        Code::PermissionDenied => &REFUSED[1],
        _ => &REFUSED[2],
    };
    match limit.again(Instant::now()) {
        Some(0) => {
            tracing::warn!(target: AUDIT_TARGET, caller, action, peer = from, outcome = "refused", ?code, why, "call");
        }
        Some(not_shown) => {
            tracing::warn!(target: AUDIT_TARGET, caller, action, peer = from, outcome = "refused", ?code, why, not_shown,
                "call; those of this kind before it were too many to show");
        }
        None => {
            tracing::debug!(target: AUDIT_TARGET, caller, action, peer = from, outcome = "refused", ?code, why, "call");
        }
    }
}

fn address_of(peer: Option<&Peer>) -> String {
    peer.map_or_else(String::new, |p| p.address.to_string())
}

/// Sanitises untrusted text for a log.
pub(crate) fn printable(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(128).collect()
}
