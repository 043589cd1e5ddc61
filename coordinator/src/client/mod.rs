//! The client of a coordinator: submits a scan, gathers its segments, merges them and checks the digest.
//!
//! The answer is merged here from results in checked envelopes, and its digest compared with the coordinator's.

mod connect;
mod error;
mod gathered;
mod manage;
mod session;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use trawl_market::AsOf;
use trawl_plan::ScanDocument;
use trawl_security::{ClientSecurity, authorise};
use trawl_terms::Priority;
use trawl_wire::limits::{DOCUMENT_BYTES_MAX, PROTOCOL_VERSION};
use trawl_wire::record::fresh_boot;
use trawl_wire::{Answer, ErrorKind, Failure, pb, trace};

use crate::planner::ShardSpec;
use crate::report::{Progress, RunReport};
pub use connect::CONNECT_TIMEOUT;
pub use error::ClientError;
pub(crate) use gathered::Gathered;
pub use manage::Manager;
use session::Connections;
pub use session::Session;

/// How long to reconnect to a recorded scan after its stream broke, counted from the last event.
pub const RECONNECT_TIMEOUT: Duration = Duration::from_secs(60);
/// Wait before the first retry; doubles up to [`RECONNECT_WAIT_MAX`].
const RECONNECT_WAIT: Duration = Duration::from_millis(100);
/// Longest wait between tries.
const RECONNECT_WAIT_MAX: Duration = Duration::from_secs(2);
/// Timeout of cancelling a scan after an interrupt.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(5);
/// How long the end of a stream is waited for after its last event; an answer does not depend on it.
const STREAM_END_TIMEOUT: Duration = Duration::from_secs(1);

/// A scan to be submitted.
#[derive(Debug, Clone, Default)]
pub struct ScanCall {
    /// The user's document.
    pub document: ScanDocument,
    /// The bar to evaluate; resolved by the coordinator when it accepts the scan.
    pub as_of: AsOf,
    /// How the scan is cut into shards; the answer does not depend on it.
    pub shards: ShardSpec,
    /// Credentials for the coordinator and requirements on it; by default plain text to this machine.
    pub security: ClientSecurity,
    /// Its share of the workers while other scans compete for them.
    pub priority: Priority,
    /// How long it may take.
    pub deadline: Option<Duration>,
    /// Not recorded: faster, but lost with its coordinator or this connection.
    pub ephemeral: bool,
    /// Symbols that fail for reasons beyond the snapshot are left out, which the identity records.
    pub allow_partial: bool,
    /// Computed even if the coordinator knows the answer of an earlier scan with the same identity.
    pub fresh: bool,
    /// Asks for the stages of every shard in the scan's trace.
    pub profile: bool,
    /// Requests with the same key are the same scan; `None` generates a key.
    pub idempotency_key: Option<String>,
    /// The backend of the workers that compute it; `None` takes the class with the most capacity.
    pub backend: Option<String>,
}

/// The result of a scan.
#[derive(Debug, Clone)]
pub struct Scanned {
    /// Checked against the coordinator's digest.
    pub answer: Answer,
    /// The coordinator's report, with the merge time of this side.
    pub report: RunReport,
    /// True for generated markets.
    pub synthetic: bool,
    /// Timeframe of the dataset.
    pub timeframe: String,
    /// What was scanned; `None` if a coordinator of an earlier release did not say it.
    pub document: Option<ScanDocument>,
}

/// [`scan`] for a caller without an async runtime; Ctrl-C cancels the scan.
///
/// # Errors
/// [`ClientError`].
pub fn scan_blocking(url: &str, call: &ScanCall, progress: &dyn Progress) -> Result<Scanned, ClientError> {
    blocking(url, async {
        let mut following = Following::new(url, &call.security, progress);
        let name = Arc::clone(&following.name);
        tokio::select! {
            scanned = following.submit(call) => scanned,
            _ = tokio::signal::ctrl_c() => Err(interrupted(url, &call.security, &name).await),
        }
    })
}

/// Submits a scan and returns as soon as it is recorded: its id. It runs on by itself.
///
/// # Errors
/// [`ClientError`].
pub fn submit_detached(url: &str, call: &ScanCall) -> Result<String, ClientError> {
    blocking(url, async {
        let mut following = Following::new(url, &call.security, &crate::report::NoProgress);
        following.detached = true;
        let name = Arc::clone(&following.name);
        // Ends once the id is known, or with an error.
        let ended = following.submit(call).await;
        match (name_in(&name), ended) {
            (Some(name), _) => Ok(name),
            (None, Err(error)) => Err(error),
            (None, Ok(_)) => Err(gathered::wrong("an answer without a name")),
        }
    })
}

/// Follows a scan that was submitted before to its answer. Interrupted, the scan runs on.
///
/// # Errors
/// [`ClientError`].
pub fn watch_blocking(
    url: &str,
    security: &ClientSecurity,
    scan: &str,
    progress: &dyn Progress,
) -> Result<Scanned, ClientError> {
    blocking(url, Following::new(url, security, progress).watch(scan))
}

fn blocking<T>(url: &str, work: impl Future<Output = Result<T, ClientError>>) -> Result<T, ClientError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|e| ClientError::Unreachable { url: url.to_owned(), why: e.to_string() })?;
    runtime.block_on(work)
}

/// Submits a scan and waits for its whole answer. Dropping the future ends an ephemeral scan; any other runs on.
///
/// # Errors
/// [`ClientError`].
pub async fn scan(url: &str, call: &ScanCall, progress: &dyn Progress) -> Result<Scanned, ClientError> {
    Following::new(url, &call.security, progress).submit(call).await
}

fn name_in(name: &Mutex<Option<String>>) -> Option<String> {
    name.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Cancels an interrupted scan.
async fn interrupted(url: &str, security: &ClientSecurity, name: &Mutex<Option<String>>) -> ClientError {
    let Some(name) = name_in(name) else {
        return ClientError::Interrupted("the scan was not accepted yet".to_owned());
    };
    let cancel = async { Manager::connect(url, security).await?.cancel(&name).await };
    ClientError::Interrupted(match tokio::time::timeout(CANCEL_TIMEOUT, cancel).await {
        Ok(Ok(_)) => format!("scan {name} is cancelled"),
        Ok(Err(error)) => format!("scan {name} may run on: {error}"),
        Err(_) => format!("scan {name} may run on: the coordinator did not answer in time"),
    })
}

/// The request that opens a stream.
enum Ask {
    Submit(Box<pb::ScanRequest>),
    Watch(pb::WatchRequest),
}

/// How one stream ended.
enum Streamed {
    Answer(Box<Scanned>),
    /// The scan is recorded, and the call waits for nothing else.
    Accepted,
    /// The stream broke, and may be resumed.
    Broken(ClientError),
}

/// One scan over as many streams as it takes.
struct Following<'a> {
    /// URLs of the coordinators, in no particular order.
    urls: Vec<String>,
    security: &'a ClientSecurity,
    progress: &'a dyn Progress,
    gathered: Gathered,
    /// Id of the scan, once it is accepted.
    name: Arc<Mutex<Option<String>>>,
    detached: bool,
    /// Whether the current or last stream has delivered any event.
    heard: bool,
    connections: Arc<Connections>,
}

impl<'a> Following<'a> {
    fn new(urls: &str, security: &'a ClientSecurity, progress: &'a dyn Progress) -> Self {
        Self::with(urls, security, progress, Arc::default())
    }

    fn with(
        urls: &str,
        security: &'a ClientSecurity,
        progress: &'a dyn Progress,
        connections: Arc<Connections>,
    ) -> Self {
        let urls = urls.split(',').map(|url| url.trim().to_owned()).collect();
        let (gathered, name) = (Gathered::default(), Arc::default());
        Self { urls, security, progress, gathered, name, detached: false, heard: false, connections }
    }

    async fn submit(&mut self, call: &ScanCall) -> Result<Scanned, ClientError> {
        let document_json = call.document.to_json();
        if document_json.len() > DOCUMENT_BYTES_MAX {
            let message =
                format!("the scan document has {} bytes, at most {DOCUMENT_BYTES_MAX} are taken", document_json.len());
            return Err(ClientError::Refused(Failure::new(ErrorKind::Invalid, message)));
        }
        let spec = match call.shards {
            ShardSpec::Automatic => None,
            ShardSpec::Count(count) => Some(pb::shard_spec::Spec::Count(count)),
            ShardSpec::PerSegment => Some(pb::shard_spec::Spec::PerSegment(true)),
        };
        // A key makes it safe to send the submission again if the first one is not answered.
        let key = || if call.ephemeral { String::new() } else { format!("{}{}", fresh_boot(), fresh_boot()) };
        // As text, the start of a bar would be an instant, at which that bar has not closed.
        let (as_of_us, as_of) = match &call.as_of {
            AsOf::Bar(start) => (Some(*start), String::new()),
            other => (None, other.to_string()),
        };
        let request = pb::ScanRequest {
            protocol_version: PROTOCOL_VERSION,
            document_json,
            as_of_us,
            as_of,
            shards: Some(pb::ShardSpec { spec }),
            trace: trace::context_of(&tracing::Span::current()),
            priority: pb::Priority::from(call.priority).into(),
            deadline_ms: call.deadline.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX)),
            ephemeral: call.ephemeral,
            idempotency_key: call.idempotency_key.clone().unwrap_or_else(key),
            allow_partial: call.allow_partial,
            detached: self.detached,
            backend: call.backend.clone().unwrap_or_default(),
            gathers: true,
            columns: true,
            kinds: true,
            fresh: call.fresh,
            profile: call.profile,
        };
        self.follow(Ask::Submit(Box::new(request))).await
    }

    async fn watch(&mut self, scan: &str) -> Result<Scanned, ClientError> {
        let request = pb::WatchRequest {
            protocol_version: PROTOCOL_VERSION,
            scan_id: scan.to_owned(),
            gathers: true,
            columns: true,
            kinds: true,
            ..pb::WatchRequest::default()
        };
        self.follow(Ask::Watch(request)).await
    }

    /// Streams until there is an answer, or no event has arrived for [`RECONNECT_TIMEOUT`].
    async fn follow(&mut self, mut ask: Ask) -> Result<Scanned, ClientError> {
        let (mut quiet_since, mut wait, mut turn) = (Instant::now(), RECONNECT_WAIT, 0);
        // Before anything was accepted each coordinator is tried once: the caller then sees why the scan does not
        // start. A coordinator that answered but could not continue indicates a change of leader, which is waited for.
        let (mut untried, mut met) = (self.urls.len(), false);
        loop {
            let url = self.urls[turn % self.urls.len()].clone();
            self.heard = false;
            let streamed = self.stream(&url, &ask).await;
            if !matches!(streamed, Ok(Streamed::Answer(_) | Streamed::Accepted)) {
                self.connections.forget(&url).await;
            }
            let broken = match streamed? {
                Streamed::Answer(scanned) => return Ok(*scanned),
                Streamed::Accepted => return Err(ClientError::Interrupted("detached".to_owned())),
                Streamed::Broken(broken) => broken,
            };
            // The most common mistake about TLS; asking again would not help.
            if !self.heard && matches!(broken, ClientError::Broken { .. }) && connect::expects_tls(&url).await {
                return Err(connect::needs_tls(&url));
            }
            turn += 1;
            if self.heard {
                (quiet_since, wait) = (Instant::now(), RECONNECT_WAIT);
            }
            match self.gathered.header() {
                Some(header) if !header.durable => return Err(broken),
                Some(_) => {
                    ask = self.gathered.rest().map_or(ask, Ask::Watch);
                }
                None => {
                    untried = untried.saturating_sub(1);
                    met |= matches!(broken, ClientError::Broken { .. });
                    if untried == 0 && !met {
                        return Err(broken);
                    }
                    if matches!(&ask, Ask::Submit(request) if request.ephemeral) && untried == 0 {
                        return Err(broken);
                    }
                }
            }
            if quiet_since.elapsed() > RECONNECT_TIMEOUT {
                let seconds = RECONNECT_TIMEOUT.as_secs();
                return Err(match name_in(&self.name) {
                    Some(scan) => ClientError::Abandoned { scan, seconds, why: Box::new(broken) },
                    None => broken,
                });
            }
            tracing::warn!(error = %broken, "asking again");
            tokio::time::sleep(wait).await;
            wait = (wait * 2).min(RECONNECT_WAIT_MAX);
        }
    }

    /// One stream, to its end. An error is final.
    async fn stream(&mut self, url: &str, ask: &Ask) -> Result<Streamed, ClientError> {
        let (mut client, connector) = match self.connections.get(url, self.security).await {
            Ok(connected) => connected,
            Err(error @ ClientError::Unreachable { .. }) => return Ok(Streamed::Broken(error)),
            Err(error) => return Err(error),
        };
        let broken = |status: tonic::Status| match (Failure::from_status(&status), connector.reason()) {
            // Returned by a coordinator that does not lead, or no longer leads.
            (Some(failure), _) if status.code() == tonic::Code::Unavailable => {
                Ok(Streamed::Broken(ClientError::Broken { url: url.to_owned(), why: failure.message }))
            }
            (Some(failure), _) => Err(ClientError::Refused(failure)),
            (None, Some(why)) => Err(ClientError::Untrusted { url: url.to_owned(), why }),
            (None, None) => {
                let why = status.message().to_owned();
                Ok(Streamed::Broken(ClientError::Broken { url: url.to_owned(), why }))
            }
        };
        let traced = trace::context_of(&tracing::Span::current());
        let opened = match ask {
            Ask::Submit(request) => {
                let mut request = tonic::Request::new((**request).clone());
                trace::inject(traced.as_ref(), request.metadata_mut());
                authorise(self.security.token.as_ref(), request.metadata_mut());
                client.scan(request).await
            }
            Ask::Watch(request) => {
                let mut request = tonic::Request::new(request.clone());
                authorise(self.security.token.as_ref(), request.metadata_mut());
                client.watch(request).await
            }
        };
        let mut events = match opened {
            Ok(response) => response.into_inner(),
            Err(status) => return broken(status),
        };
        loop {
            let event = match events.message().await {
                Ok(Some(event)) => event,
                Ok(None) => break,
                Err(status) => return broken(status),
            };
            self.heard = true;
            let taken = self.gathered.take(event, self.progress);
            if !matches!(taken, Ok(None)) {
                // A stream that is dropped before its end is reset, and what arrives for it later counts as an error of its connection,
                // which h2 closes after 1,024 of them: with all scans that share it.
                let _ = tokio::time::timeout(STREAM_END_TIMEOUT, events.message()).await;
            }
            if let Some(scanned) = taken? {
                return Ok(Streamed::Answer(Box::new(scanned)));
            }
            if let Some(header) = self.gathered.header() {
                *self.name.lock().unwrap_or_else(PoisonError::into_inner) = Some(header.scan_id.clone());
                if self.detached {
                    return Ok(Streamed::Accepted);
                }
            }
        }
        let why = "the stream ended without a summary".to_owned();
        Ok(Streamed::Broken(ClientError::Broken { url: url.to_owned(), why }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::NoProgress;

    fn error_of(url: &str) -> ClientError {
        scan_blocking(url, &ScanCall::default(), &NoProgress).unwrap_err()
    }

    #[test]
    fn what_is_not_a_coordinators_address_is_the_users_mistake() {
        for url in ["127.0.0.1:7400", "ftp://127.0.0.1:7400", "http://127.0.0.1", "http://:7400", "http://a b:1", ""] {
            let error = error_of(url);
            assert!(matches!(error, ClientError::Url { .. }) && error.is_users_mistake(), "{url}: {error}");
        }
    }

    #[test]
    fn plain_text_and_tokens_stay_on_this_machine() {
        let refusal = |url: &str, security: ClientSecurity| {
            let error = scan_blocking(url, &ScanCall { security, ..ScanCall::default() }, &NoProgress).unwrap_err();
            assert!(matches!(error, ClientError::Insecure { .. }) && error.is_users_mistake(), "{url}: {error}");
            error.to_string()
        };
        let token = trawl_security::Token::fresh().ok();
        let insisting = ClientSecurity { token, insecure: true, tls: None };
        assert!(refusal("https://127.0.0.1:7400", ClientSecurity::default()).contains("--tls-ca FILE"));
        assert!(refusal("http://10.255.255.1:7400", ClientSecurity::default()).contains("--insecure"));
        assert!(refusal("http://localhost.example.org:7400", ClientSecurity::default()).contains("--insecure"));
        assert!(refusal("http://10.255.255.1:7400", insisting).contains("a token is not sent"));
    }

    #[test]
    fn a_coordinator_that_is_not_there_is_reported_with_what_to_do() {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let error = error_of(&format!("http://{free}"));
        let text = error.to_string();
        assert!(text.contains("refused") && text.contains("trawl cluster up"), "{text}");
        assert!(!error.is_users_mistake());
    }

    #[test]
    fn an_answer_with_a_segment_missing_or_another_digest_is_refused() {
        let identity = r#"{"plan":"","dataset":"","snapshot":"","as_of":"","engine":"","numerics":"","backend":"",
            "precision":"","adjustment":""}"#;
        let header = |segments| pb::ScanEvent {
            event: Some(pb::scan_event::Event::Accepted(pb::Accepted {
                segments,
                identity_json: identity.to_owned(),
                points_json: "[[]]".to_owned(),
                best: false,
                ..pb::Accepted::default()
            })),
            more: Vec::new(),
        };
        let summary = pb::ScanEvent {
            event: Some(pb::scan_event::Event::Summary(pb::Summary {
                answer_digest: "00".to_owned(),
                report_json: serde_json::to_string(&RunReport::default()).unwrap(),
                partial: false,
                tree: true,
            })),
            more: Vec::new(),
        };
        // Restarted: the previous generation's header is void.
        let mut again = Gathered::default();
        again.take(header(1), &NoProgress).unwrap();
        let mut next = header(0);
        if let Some(pb::scan_event::Event::Accepted(accepted)) = &mut next.event {
            accepted.generation = 1;
        }
        again.take(next, &NoProgress).unwrap();
        assert!(again.take(summary.clone(), &NoProgress).unwrap_err().to_string().contains("digest"));
        for (segments, why) in [(1, "0 of 1"), (0, "digest")] {
            let mut gathered = Gathered::default();
            gathered.take(header(segments), &NoProgress).unwrap();
            let error = gathered.take(summary.clone(), &NoProgress).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }
}
