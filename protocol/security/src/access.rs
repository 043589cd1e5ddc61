//! Authorisation: one table of all RPCs, and the guard in front of a service that applies it.
//!
//! A call that is not in the table is rejected. The guard attaches the caller to the request as [`Caller`]; each
//! decision is logged with the target `trawl::audit`, without secrets.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use chrono::Utc;
use tonic::codegen::http::{HeaderMap, Request, Response};
use tonic::codegen::{Service, http};
use tonic::server::NamedService;
use tonic::{Code, Status};
use trawl_telemetry::metrics::catalogue::process::{AUTH_FAILURES, AuthFailure};

use crate::allowance::Allowance;
use crate::audit;
use crate::files::Watched;
use crate::identity::{Identity, Role};
use crate::listen::{Peer, PeerIdentity};
use crate::rights::{Right, rights_text};
use crate::tokens::{Token, TokenTable};
use trawl_wire::error::{ErrorKind, status_of};

/// Metadata key of a temporary rejection: whole seconds after which the same call may succeed.
pub const RETRY_AFTER_METADATA_KEY: &str = "retry-after";
/// Metadata key of a call forwarded by a coordinator that does not lead: the identity of the original caller.
pub const ON_BEHALF_OF_METADATA_KEY: &str = "trawl-on-behalf-of";
/// How a token is sent, after `authorization:`.
const BEARER: &str = "Bearer ";

/// Who may call one RPC.
#[derive(Debug, Clone, Copy)]
pub struct Rule {
    /// `/PACKAGE.SERVICE/METHOD`.
    pub path: &'static str,
    /// The user's action, for messages.
    pub action: &'static str,
    /// Roles whose certificates may call it.
    pub peers: &'static [Role],
    /// Right required of a user's token; `None` for calls between processes.
    pub right: Option<Right>,
}

/// All RPCs of all services. A test compares it with the `.proto` file.
pub const RULES: [Rule; 18] = [
    client("/trawl.v1.Coordinator/Scan", "submit scans", Right::Submit),
    client("/trawl.v1.Coordinator/Watch", "read scans", Right::Read),
    client("/trawl.v1.Coordinator/Cancel", "cancel scans", Right::Submit),
    client("/trawl.v1.Coordinator/ListScans", "list scans", Right::Read),
    client("/trawl.v1.Coordinator/GetScan", "read scans", Right::Read),
    client("/trawl.v1.Coordinator/Trace", "read scans", Right::Read),
    client("/trawl.v1.Coordinator/ListWorkers", "list workers", Right::Read),
    client("/trawl.v1.Coordinator/ListCoordinators", "list coordinators", Right::Read),
    client("/trawl.v1.Coordinator/DrainWorker", "drain workers", Right::Admin),
    client("/trawl.v1.Coordinator/ListDatasets", "list datasets", Right::Read),
    client("/trawl.v1.Coordinator/InspectDataset", "inspect datasets", Right::Read),
    worker("/trawl.v1.Worker/Execute", "send work"),
    worker("/trawl.v1.Worker/Ping", "ping workers"),
    worker("/trawl.v1.Worker/Drain", "drain workers"),
    scaler("/externalscaler.ExternalScaler/IsActive"),
    scaler("/externalscaler.ExternalScaler/StreamIsActive"),
    scaler("/externalscaler.ExternalScaler/GetMetricSpec"),
    scaler("/externalscaler.ExternalScaler/GetMetrics"),
];

/// A call of clients. Other coordinators make it too: while not leading, they forward calls.
const fn client(path: &'static str, action: &'static str, right: Right) -> Rule {
    Rule { path, action, peers: &[Role::Client, Role::Operator, Role::Coordinator], right: Some(right) }
}

/// A call of coordinators to workers.
const fn worker(path: &'static str, action: &'static str) -> Rule {
    Rule { path, action, peers: &[Role::Coordinator], right: None }
}

/// A call of an autoscaler to coordinators. It reveals the amount of work and nothing about individual scans; KEDA can
/// present a certificate but no token.
const fn scaler(path: &'static str) -> Rule {
    Rule { path, action: "read the load", peers: &[Role::Client, Role::Operator, Role::Coordinator], right: None }
}

/// An authenticated caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// The name under which limits are counted: `user NAME` of a token, else the certificate's identity, else
    /// [`Caller::LOCAL`].
    pub name: String,
    /// Sorted. Without tokens, those of the certificate's role, or all rights in plain text.
    pub rights: Vec<Right>,
    /// What it may take.
    pub allowance: Allowance,
}

/// Rights of a certificate when there are no tokens: a client's are limited to its own scans.
fn rights_of(role: Role) -> Vec<Right> {
    match role {
        Role::Client => vec![Right::Submit, Right::Read],
        Role::Operator | Role::Coordinator => Right::ALL.to_vec(),
        Role::Worker => Vec::new(),
    }
}

impl Caller {
    /// Name of any caller on this machine in plain text and without tokens.
    pub const LOCAL: &'static str = "local";

    /// An anonymous caller on this machine.
    pub fn local() -> Self {
        Self { name: Self::LOCAL.to_owned(), rights: Right::ALL.to_vec(), allowance: Allowance::unlimited() }
    }

    /// Whether the caller is authenticated.
    pub fn is_known(&self) -> bool {
        self.name != Self::LOCAL
    }
}

/// The token that a caller presented, for forwarding the call. It has no `Debug` and cannot appear in a message.
#[derive(Clone)]
pub struct Shown(Option<http::HeaderValue>);

impl Shown {
    /// Whether there is a token to forward.
    pub fn has_token(&self) -> bool {
        self.0.is_some()
    }

    /// Adds the caller's identity and token to a request forwarded to another coordinator.
    pub fn pass_on(&self, caller: &Caller, metadata: &mut tonic::metadata::MetadataMap) {
        let mut headers = std::mem::take(metadata).into_headers();
        if let Some(token) = &self.0 {
            headers.insert(http::header::AUTHORIZATION, token.clone());
        }
        if let Ok(name) = caller.name.parse() {
            headers.insert(ON_BEHALF_OF_METADATA_KEY, name);
        }
        *metadata = tonic::metadata::MetadataMap::from_headers(headers);
    }
}

/// The rules as applied by one server.
#[derive(Debug, Clone, Default)]
pub struct Access {
    tokens: Option<Arc<Watched<TokenTable>>>,
}

impl Access {
    /// With `tokens`, users need a token.
    pub fn new(tokens: Option<Arc<Watched<TokenTable>>>) -> Self {
        Self { tokens }
    }

    /// Puts the guard in front of a service.
    pub fn guard<S>(self, inner: S) -> Guarded<S> {
        Guarded { inner, access: self }
    }

    /// Authenticates and authorises a call that comes by another protocol than gRPC, by the rule of the RPC at `path`; a refusal is
    /// logged and counted as the guard does.
    ///
    /// # Errors
    /// UNAUTHENTICATED or PERMISSION_DENIED, with a message that says what to do.
    pub fn admit(&self, path: &str, headers: &HeaderMap, peer: &Peer) -> Result<Caller, Status> {
        self.check(path, headers, Some(peer)).inspect_err(|status| {
            audit::refused(path, Some(peer), status);
            AUTH_FAILURES.of(failure_of(status)).inc();
        })
    }

    /// Authenticates and authorises a call. `peer` is missing only in tests that serve without this module's
    /// connections.
    ///
    /// # Errors
    /// UNIMPLEMENTED, UNAUTHENTICATED or PERMISSION_DENIED, with a message that says what to do.
    fn check(&self, path: &str, headers: &HeaderMap, peer: Option<&Peer>) -> Result<Caller, Status> {
        let rule = RULES.iter().find(|rule| rule.path == path).ok_or_else(|| {
            status_of(Code::Unimplemented, ErrorKind::Invalid, &format!("there is no {}", audit::printable(path)))
        })?;
        let mut caller = Caller::local();
        match peer.map(|peer| &peer.identity) {
            None | Some(PeerIdentity::PlainText) => {}
            Some(PeerIdentity::Certificate(Err(why))) => {
                return Err(unauthenticated(&format!("the certificate has no identity: {why}")));
            }
            Some(PeerIdentity::Certificate(Ok(identity))) => {
                if !rule.peers.contains(&identity.role) {
                    // The first role is the intended caller; coordinators only forward the call.
                    let wanted = rule.peers.first().map_or("nobody", |role| role.name());
                    return Err(denied(&format!(
                        "{identity} may not {}: that takes a certificate of a {}, this is one of a {}",
                        rule.action, wanted, identity.role
                    )));
                }
                let calling = on_behalf_of(identity, headers).unwrap_or_else(|| identity.clone());
                caller = Caller {
                    name: calling.to_string(),
                    rights: rights_of(calling.role),
                    allowance: Allowance::of_role(calling.role),
                };
            }
        }
        if let (Some(right), None) = (rule.right, &self.tokens)
            && !caller.rights.iter().any(|has| has.covers(right))
        {
            return Err(denied(&format!(
                "{} may not {}: that takes a certificate of an operator (trawl://operator/NAME), or a token with the role \
                 {} where the coordinators have --tokens",
                caller.name,
                rule.action,
                right.name()
            )));
        }
        if let (Some(right), Some(tokens)) = (rule.right, &self.tokens) {
            let token = bearer(headers)?;
            if let Some(peer) = peer
                && peer.identity == PeerIdentity::PlainText
                && !peer.address.ip().is_loopback()
            {
                let message = "a token came in plain text over a network: it is not taken, and should be replaced";
                return Err(unauthenticated(message));
            }
            let table = tokens.current();
            let user = table.user_of(&token).ok_or_else(|| {
                unauthenticated("the token is not known here: it was withdrawn, or is of another cluster")
            })?;
            if let Some(until) = user.allowance.until.filter(|_| user.allowance.has_ended(Utc::now())) {
                let message = format!("the token of user {} ended after {until}: ask for a new one", user.name);
                return Err(unauthenticated(&message));
            }
            if !user.rights.iter().any(|has| has.covers(right)) {
                return Err(denied(&format!(
                    "user {} may not {}: the token's roles are {}, '{}' is needed",
                    user.name,
                    rule.action,
                    rights_text(&user.rights),
                    right.name()
                )));
            }
            caller = Caller {
                name: format!("user {}", user.name),
                rights: user.rights.clone(),
                allowance: user.allowance.clone(),
            };
        }
        Ok(caller)
    }
}

/// The client or operator on whose behalf a coordinator forwards a call. Only coordinators may set it.
fn on_behalf_of(peer: &Identity, headers: &HeaderMap) -> Option<Identity> {
    let text = headers.get(ON_BEHALF_OF_METADATA_KEY)?.to_str().ok()?;
    let calling = Identity::from_uri(text).filter(|calling| matches!(calling.role, Role::Client | Role::Operator))?;
    (peer.role == Role::Coordinator).then_some(calling)
}

fn unauthenticated(message: &str) -> Status {
    status_of(Code::Unauthenticated, ErrorKind::Invalid, message)
}

fn denied(message: &str) -> Status {
    status_of(Code::PermissionDenied, ErrorKind::Invalid, message)
}

fn failure_of(refused: &Status) -> AuthFailure {
    match refused.code() {
        Code::Unimplemented => AuthFailure::UnknownCall,
        Code::PermissionDenied => AuthFailure::Denied,
        _ => AuthFailure::Unauthenticated,
    }
}

fn bearer(headers: &HeaderMap) -> Result<Token, Status> {
    let value = headers.get(http::header::AUTHORIZATION).ok_or_else(|| {
        unauthenticated("a token is needed: give --token-file FILE or set TRAWL_TOKEN_FILE; the operator makes one")
    })?;
    let text = value.to_str().ok().and_then(|text| text.strip_prefix(BEARER));
    text.and_then(Token::parse)
        .ok_or_else(|| unauthenticated("what was sent as a token is none: trawl_ and 64 hex digits are expected"))
}

/// Puts `token` into the metadata of a call.
pub fn authorise(token: Option<&Token>, metadata: &mut tonic::metadata::MetadataMap) {
    let Some(token) = token else { return };
    if let Ok(mut value) = format!("{BEARER}{}", token.secret()).parse::<tonic::metadata::AsciiMetadataValue>() {
        // Keeps it out of HTTP/2 header compression and of `Debug` output.
        value.set_sensitive(true);
        metadata.insert("authorization", value);
    }
}

/// The right that a call of users needs; `None` for calls between processes.
fn right_of(path: &str) -> Option<Right> {
    RULES.iter().find(|rule| rule.path == path).and_then(|rule| rule.right)
}

/// A service with the guard in front.
#[derive(Debug, Clone)]
pub struct Guarded<S> {
    inner: S,
    access: Access,
}

impl<S: NamedService> NamedService for Guarded<S> {
    const NAME: &'static str = S::NAME;
}

impl<S, B> Service<Request<B>> for Guarded<S>
where
    S: Service<Request<B>, Response = Response<tonic::body::Body>, Error = Infallible>,
    S::Future: Send + 'static,
{
    type Response = Response<tonic::body::Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        let peer = request.extensions().get::<Peer>().cloned();
        let path = request.uri().path().to_owned();
        let checked = self.access.check(&path, request.headers(), peer.as_ref());
        match checked {
            Ok(caller) => {
                // A removed header cannot be logged. Only a coordinator that forwards the call needs it.
                let shown = request.headers_mut().remove(http::header::AUTHORIZATION);
                request.extensions_mut().insert(Shown(shown));
                request.extensions_mut().insert(caller.clone());
                let answered = self.inner.call(request);
                Box::pin(async move {
                    let reply = answered.await;
                    reply.inspect(|reply| audit::answered((&path, right_of(&path)), peer.as_ref(), &caller.name, reply))
                })
            }
            Err(status) => {
                audit::refused(&path, peer.as_ref(), &status);
                AUTH_FAILURES.of(failure_of(&status)).inc();
                Box::pin(async move { Ok(status.into_http()) })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCAN: &str = "/trawl.v1.Coordinator/Scan";

    fn peer(role: Role) -> Peer {
        let identity = Identity { role, name: "x".to_owned() };
        Peer { address: "10.0.0.1:5".parse().unwrap(), identity: PeerIdentity::Certificate(Ok(identity)) }
    }

    fn plain(address: &str) -> Peer {
        Peer { address: address.parse().unwrap(), identity: PeerIdentity::PlainText }
    }

    #[test]
    fn a_coordinator_alone_may_speak_for_a_client() {
        let access = Access::default();
        let mut headers = headers(None);
        let named = |headers: &HeaderMap, role| access.check(SCAN, headers, Some(&peer(role))).unwrap().name;
        headers.insert(ON_BEHALF_OF_METADATA_KEY, "trawl://client/alice".parse().unwrap());
        assert_eq!(named(&headers, Role::Coordinator), "trawl://client/alice");
        assert_eq!(named(&headers, Role::Client), "trawl://client/x", "a client speaks for itself");
        headers.insert(ON_BEHALF_OF_METADATA_KEY, "trawl://worker/w".parse().unwrap());
        assert_eq!(named(&headers, Role::Coordinator), "trawl://coordinator/x", "nobody becomes a worker");
    }

    fn headers(token: Option<&str>) -> HeaderMap {
        let mut headers = HeaderMap::new();
        if let Some(token) = token {
            headers.insert(http::header::AUTHORIZATION, token.parse().unwrap());
        }
        headers
    }

    fn users(entries: &[(&Token, &str, &[Right])]) -> (tempfile::TempDir, Access) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokens");
        let lines: Vec<String> =
            entries.iter().map(|(token, name, rights)| token.line(name, rights, &Allowance::usual(rights))).collect();
        std::fs::write(&path, lines.join("\n")).unwrap();
        (folder, Access::new(Some(TokenTable::load(path).unwrap())))
    }

    #[test]
    fn every_rpc_of_every_service_has_one_rule() {
        let protos =
            [include_str!("../../wire/proto/trawl.proto"), include_str!("../../wire/proto/externalscaler.proto")];
        let (mut package, mut service, mut declared) = (String::new(), String::new(), Vec::new());
        for line in protos.into_iter().flat_map(str::lines).map(str::trim) {
            let word = |keyword: &str| {
                let rest = line.strip_prefix(keyword)?;
                Some(rest.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default().to_owned())
            };
            if let Some(name) = line.strip_prefix("package ") {
                package = name.trim_end_matches(';').to_owned();
            } else if let Some(name) = word("service ") {
                service = name;
            } else if let Some(name) = word("rpc ") {
                declared.push(format!("/{package}.{service}/{name}"));
            }
        }
        let mut ruled: Vec<&str> = RULES.iter().map(|rule| rule.path).collect();
        declared.sort();
        ruled.sort_unstable();
        assert!(declared.len() > 3, "{declared:?}");
        assert_eq!(declared, ruled, "every RPC needs exactly one line in RULES: who may call it?");
    }

    #[test]
    fn a_certificate_may_call_what_its_role_may() {
        let access = Access::default();
        let none = headers(None);
        for rule in &RULES {
            for role in Role::ALL {
                let checked = access.check(rule.path, &none, Some(&peer(role)));
                let allowed = rule.right.is_none_or(|right| rights_of(role).iter().any(|has| has.covers(right)));
                assert_eq!(checked.is_ok(), rule.peers.contains(&role) && allowed, "{} by a {role}", rule.path);
            }
        }
        // A client with mutual TLS only: its own scans, and nothing of other clients or of the fleet.
        let client = peer(Role::Client);
        let caller = access.check(SCAN, &none, Some(&client)).unwrap();
        assert_eq!(caller.rights, [Right::Submit, Right::Read]);
        let drain = access.check("/trawl.v1.Coordinator/DrainWorker", &none, Some(&client)).unwrap_err();
        assert_eq!(drain.code(), Code::PermissionDenied);
        assert!(drain.message().contains("trawl://operator/NAME"), "{}", drain.message());
        // Forwarding by a coordinator does not give it more rights.
        let mut behalf = headers(None);
        behalf.insert(ON_BEHALF_OF_METADATA_KEY, "trawl://client/alice".parse().unwrap());
        let passed = access.check("/trawl.v1.Coordinator/DrainWorker", &behalf, Some(&peer(Role::Coordinator)));
        assert_eq!(passed.unwrap_err().code(), Code::PermissionDenied);
        behalf.insert(ON_BEHALF_OF_METADATA_KEY, "trawl://operator/olga".parse().unwrap());
        let passed = access.check("/trawl.v1.Coordinator/DrainWorker", &behalf, Some(&peer(Role::Coordinator)));
        assert_eq!(
            passed.unwrap(),
            Caller {
                name: "trawl://operator/olga".to_owned(),
                rights: Right::ALL.to_vec(),
                allowance: Allowance::unlimited()
            }
        );
        let stolen = access.check(SCAN, &none, Some(&peer(Role::Worker))).unwrap_err();
        assert_eq!(stolen.code(), Code::PermissionDenied);
        assert_eq!(
            stolen.message(),
            "trawl://worker/x may not submit scans: that takes a certificate of a client, this is one of a worker"
        );
        let nameless = Peer { identity: PeerIdentity::Certificate(Err("none".to_owned())), ..peer(Role::Client) };
        assert_eq!(access.check(SCAN, &none, Some(&nameless)).unwrap_err().code(), Code::Unauthenticated);
        let unknown = access.check("/trawl.v1.Coordinator/Destroy", &none, Some(&peer(Role::Client))).unwrap_err();
        assert_eq!(unknown.code(), Code::Unimplemented);
        assert_eq!(access.check(SCAN, &none, Some(&plain("127.0.0.1:5"))).unwrap().name, Caller::LOCAL);
    }

    #[test]
    fn where_there_are_tokens_a_user_needs_one_with_the_right() {
        let [alice, bob, stranger] = [(), (), ()].map(|()| Token::fresh().unwrap());
        let (_folder, access) = users(&[(&alice, "alice", &[Right::Submit]), (&bob, "bob", &[Right::ReadAll])]);
        let check = |token: Option<&Token>, path: &str, peer: &Peer| {
            let bearer = token.map(|t| format!("Bearer {}", t.secret()));
            let checked = access.check(path, &headers(bearer.as_deref()), Some(peer));
            checked.map(|c| c.name).map_err(|s| (s.code(), s.message().to_owned()))
        };
        let client = peer(Role::Client);
        assert_eq!(check(Some(&alice), SCAN, &client).unwrap(), "user alice");
        let list = "/trawl.v1.Coordinator/ListWorkers";
        assert_eq!(check(Some(&bob), list, &client).unwrap(), "user bob");
        for (token, path, code, expected) in [
            (None, SCAN, Code::Unauthenticated, "--token-file"),
            (Some(&stranger), SCAN, Code::Unauthenticated, "not known"),
            (Some(&bob), SCAN, Code::PermissionDenied, "roles are read-all, 'submit' is needed"),
            (Some(&alice), list, Code::PermissionDenied, "'read' is needed"),
        ] {
            let (found, message) = check(token, path, &client).unwrap_err();
            assert!(found == code && message.contains(expected), "{found:?}: {message}");
            assert!(token.is_none_or(|t| !message.contains(t.secret())), "{message}");
        }
        // A token does not make a worker a client, and is not accepted over plain text from other machines.
        assert_eq!(check(Some(&alice), SCAN, &peer(Role::Worker)).unwrap_err().0, Code::PermissionDenied);
        assert_eq!(check(Some(&alice), SCAN, &plain("127.0.0.1:5")).unwrap(), "user alice");
        assert!(check(Some(&alice), SCAN, &plain("10.0.0.1:5")).unwrap_err().1.contains("plain text"));
        let odd = access.check(SCAN, &headers(Some("Basic x")), Some(&client)).unwrap_err();
        assert_eq!(odd.code(), Code::Unauthenticated);
        // Calls between processes need no token.
        assert!(check(None, "/trawl.v1.Worker/Ping", &peer(Role::Coordinator)).is_ok());
    }

    #[test]
    fn a_token_travels_unseen() {
        let token = Token::fresh().unwrap();
        let mut metadata = tonic::metadata::MetadataMap::new();
        authorise(Some(&token), &mut metadata);
        assert!(!format!("{metadata:?}").contains(token.secret()));
        let headers = metadata.into_headers();
        assert_eq!(bearer(&headers).unwrap().secret(), token.secret());
    }
}
