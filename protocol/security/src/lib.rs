//! Authentication and authorisation: mutual TLS, identities from certificates, tokens, access rules.
//!
//! `files` reads files mounted by an operator, again when they change; `identity` is the identity in a verified
//! certificate; `tls` builds all configurations of rustls; `listen` and `connector` are the two ends of a connection;
//! `tokens` are the users' tokens; `rights` are what a caller may do, `allowance` is what it may take; `access` is
//! the table of which callers may make which calls. Nothing here knows what
//! a call does.

#![forbid(unsafe_code)]

pub mod access;
pub mod allowance;
mod audit;
pub mod connector;
pub mod files;
pub mod identity;
pub mod listen;
mod log_limit;
pub mod rights;
pub mod tls;
pub mod tokens;

use std::sync::Arc;

pub use access::{Access, Caller, Guarded, RETRY_AFTER_METADATA_KEY, Shown, authorise};
pub use allowance::Allowance;
pub use audit::Subject;
pub use connector::Connector;
pub use files::{FileError, RELOAD_INTERVAL, Watched};
pub use identity::{Expect, Identity, Role};
pub use listen::{Peer, PeerIdentity, incoming, incoming_of};
pub use log_limit::LogLimit;
pub use rights::Right;
pub use tls::{Credentials, Protocol, TlsFiles};
pub use tokens::{Token, TokenTable};

/// What a server needs to authenticate callers.
#[derive(Debug, Clone, Default)]
pub struct ServerSecurity {
    /// Its certificate and trusted authorities; plain text if `None`.
    pub tls: Option<Arc<Credentials>>,
    /// Users' tokens; if `None`, any certificate has the rights of its role.
    pub tokens: Option<Arc<Watched<TokenTable>>>,
}

impl ServerSecurity {
    /// Reads the files again whenever they change, until the last handle is dropped. Must be called inside a runtime.
    pub fn keep_fresh(&self) {
        if let Some(tls) = &self.tls {
            files::keep_fresh(tls.watched());
        }
        if let Some(tokens) = &self.tokens {
            files::keep_fresh(tokens);
        }
    }

    /// The rules of access of this server.
    pub fn access(&self) -> Access {
        Access::new(self.tokens.clone())
    }
}

/// Credentials of a client and its requirements on servers.
#[derive(Debug, Clone, Default)]
pub struct ClientSecurity {
    /// Trusted authorities and, if it has one, its certificate; plain text if `None`.
    pub tls: Option<Arc<Credentials>>,
    /// Sent with every call, over TLS or on loopback only.
    pub token: Option<Token>,
    /// Whether plain text to other machines is explicitly allowed.
    pub insecure: bool,
}
