//! Who is on the other end, and what they may do: mutual TLS, identities out of certificates, tokens, rules of access.
//!
//! `files` are what an operator mounts, read again when they change; `identity` is what a verified certificate says;
//! `tls` makes every configuration of rustls; `listen` and `connector` are the two ends of a connection; `tokens` are of
//! users; `access` is the one table of who may call what. What a call does is not known here.

#![forbid(unsafe_code)]

pub mod access;
pub mod connector;
pub mod files;
pub mod identity;
pub mod listen;
pub mod tls;
pub mod tokens;

use std::sync::Arc;

pub use access::{Access, Caller, Guarded, RETRY_AFTER_METADATA_KEY, Shown, authorise};
pub use connector::{Connector, Expect};
pub use files::{FileError, RELOAD_INTERVAL, Watched};
pub use identity::{Identity, Role};
pub use listen::{Peer, PeerIdentity, incoming};
pub use tls::{Credentials, TlsFiles};
pub use tokens::{Right, Token, TokenTable};

/// What a server needs to know to let callers in.
#[derive(Debug, Clone, Default)]
pub struct ServerSecurity {
    /// Its certificate and whom it trusts; plain text without.
    pub tls: Option<Arc<Credentials>>,
    /// Users; without, whoever has a certificate of the right role may do what that role may.
    pub tokens: Option<Arc<Watched<TokenTable>>>,
}

impl ServerSecurity {
    /// Reads the files again whenever they change, until the last handle is dropped. Call it inside a runtime.
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

/// What a client shows and expects.
#[derive(Debug, Clone, Default)]
pub struct ClientSecurity {
    /// Whom it trusts and, unless it has none, its certificate; plain text without.
    pub tls: Option<Arc<Credentials>>,
    /// Sent with every call, over TLS or on loopback only.
    pub token: Option<Token>,
    /// Plain text to other machines was asked for.
    pub insecure: bool,
}
