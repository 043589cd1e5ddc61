//! Why a coordinator gave no answer, in words for whoever asked.

use trawl_plan::Diagnostic;
use trawl_wire::{ErrorKind, Failure};

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The user's mistake: not a URL of a coordinator.
    #[error("'{url}' is not a coordinator's address: {why}; write it like http://127.0.0.1:7400")]
    Url {
        /// As given.
        url: String,
        /// What is wrong.
        why: String,
    },
    /// The user's mistake: nothing is sent this way.
    #[error("{url}: {why}")]
    Insecure {
        /// As given.
        url: String,
        /// What is wrong and what to do.
        why: String,
    },
    /// One side refused the other's certificate, or does not speak TLS.
    #[error("no secure connection to the coordinator at {url}: {why}")]
    Untrusted {
        /// As given.
        url: String,
        /// Which side, which file, what to do.
        why: String,
    },
    /// Nobody there.
    #[error(
        "no coordinator answers at {url}: {why}; is it running? 'trawl cluster up' starts one here, and a scan without \
         --coordinator runs in this process"
    )]
    Unreachable {
        /// As given.
        url: String,
        /// What the connection said.
        why: String,
    },
    /// The user's mistakes in the document's clauses.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
    Mistakes(Vec<Diagnostic>),
    /// The coordinator refused the scan or gave it up; [`ErrorKind::Invalid`] is the user's mistake.
    #[error("{0}")]
    Refused(Failure),
    /// The coordinator went away in the middle.
    #[error("the coordinator at {url} went away before the scan ended: {why}")]
    Broken {
        /// As given.
        url: String,
        /// What the connection said.
        why: String,
    },
    /// It was interrupted, and cancelled where it ran.
    #[error("interrupted: {0}")]
    Interrupted(String),
    /// What came is not an answer to this scan.
    #[error("the coordinator sent what is not an answer: {0}")]
    Protocol(String),
}

impl ClientError {
    /// Whether the user can put it right.
    pub fn is_users_mistake(&self) -> bool {
        match self {
            Self::Url { .. } | Self::Insecure { .. } | Self::Mistakes(_) => true,
            Self::Refused(failure) => failure.kind == ErrorKind::Invalid,
            _ => false,
        }
    }
}
