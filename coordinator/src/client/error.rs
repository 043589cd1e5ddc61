//! Errors of the client of a coordinator, with messages for users.

use trawl_plan::Diagnostic;
use trawl_wire::{ErrorKind, Failure};

/// Why a call returned no answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The user's mistake: not the URL of a coordinator.
    #[error("'{url}' is not a coordinator's address: {why}; write it like http://127.0.0.1:7400")]
    Url {
        /// The URL as given.
        url: String,
        /// Why it is not valid.
        why: String,
    },
    /// The user's mistake: nothing was sent.
    #[error("{url}: {why}")]
    Insecure {
        /// The URL as given.
        url: String,
        /// Why it is insecure, and what to do.
        why: String,
    },
    /// One side rejected the other's certificate, or does not speak TLS.
    #[error("no secure connection to the coordinator at {url}: {why}")]
    Untrusted {
        /// The URL as given.
        url: String,
        /// Which side, which file, what to do.
        why: String,
    },
    /// No coordinator could be reached.
    #[error(
        "no coordinator answers at {url}: {why}; is it running? 'trawl cluster up' starts one here, and a scan without \
         --coordinator runs in this process"
    )]
    Unreachable {
        /// The URL as given.
        url: String,
        /// The error of the connection.
        why: String,
    },
    /// The user's mistakes in the document's clauses.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
    Mistakes(Vec<Diagnostic>),
    /// The coordinator rejected the scan or gave up on it; [`ErrorKind::Invalid`] is the user's mistake.
    #[error("{0}")]
    Refused(Failure),
    /// The connection broke before the answer was complete.
    #[error("the coordinator at {url} went away before the scan ended: {why}")]
    Broken {
        /// The URL as given.
        url: String,
        /// The error of the connection.
        why: String,
    },
    /// No coordinator answered for a long time; the scan is recorded and goes on without this client.
    #[error(
        "no coordinator has answered for {seconds} s ({why}); scan {scan} is recorded and goes on: \
         'trawl scans watch {scan}' shows its answer"
    )]
    Abandoned {
        /// Id of the scan.
        scan: String,
        /// How long the client has tried.
        seconds: u64,
        /// The last error.
        why: Box<ClientError>,
    },
    /// The scan was interrupted and cancelled.
    #[error("interrupted: {0}")]
    Interrupted(String),
    /// The reply is not a valid answer to this scan.
    #[error("the coordinator sent what is not an answer: {0}")]
    Protocol(String),
}

impl ClientError {
    /// Whether it is a mistake of the user.
    pub fn is_users_mistake(&self) -> bool {
        match self {
            Self::Url { .. } | Self::Insecure { .. } | Self::Mistakes(_) => true,
            Self::Refused(failure) => failure.kind == ErrorKind::Invalid,
            _ => false,
        }
    }
}
