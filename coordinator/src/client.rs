//! The client of a coordinator: submits a scan, gathers its segments, merges them and checks the digest.
//!
//! The answer is put together here from results in checked envelopes; the coordinator's digest says whether both sides
//! came to the same one.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use tonic::transport::{Channel, Endpoint};
use trawl_market::TimeMicros;
use trawl_plan::{Diagnostic, ScanDocument};
use trawl_protocol::limits::{DOCUMENT_BYTES_MAX, MESSAGE_BYTES_MAX, PROTOCOL_VERSION};
use trawl_protocol::loopback::is_loopback;
use trawl_protocol::pb::coordinator_client::CoordinatorClient;
use trawl_protocol::security::{ClientSecurity, Connector, Expect, Role, authorise};
use trawl_protocol::{
    Answer, ErrorKind, Failure, Identity, SegmentResultV2, answer_digest, envelope, pb, segment_digest, trace,
};

use crate::merge::{FailedSegment, MergeSpec, merge_results};
use crate::planner::ShardSpec;
use crate::report::{Progress, RunReport, ms_since};
use crate::scheduler::Priority;

/// How long connecting may take.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Pings to a coordinator that says nothing, and how long their answer may take.
const HTTP2_KEEP_ALIVE: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(5));

/// A scan to be submitted.
#[derive(Debug, Clone, Default)]
pub struct ScanCall {
    /// What the user wrote.
    pub document: ScanDocument,
    /// The newest bar at or before it is looked at; the newest of all when `None`.
    pub as_of: Option<TimeMicros>,
    /// How it is cut; the answer does not depend on it.
    pub shards: ShardSpec,
    /// What is shown to the coordinator and expected of it; by default plain text to this machine.
    pub security: ClientSecurity,
    /// Its share of the workers while other scans want them too.
    pub priority: Priority,
    /// How long it may take.
    pub deadline: Option<Duration>,
}

/// What came back.
#[derive(Debug, Clone)]
pub struct Scanned {
    /// Checked against the coordinator's digest.
    pub answer: Answer,
    /// The coordinator's, with the merge's time of this side.
    pub report: RunReport,
    /// True for generated markets.
    pub synthetic: bool,
    /// The dataset's.
    pub timeframe: String,
}

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

/// [`scan`] for a caller without an async runtime.
///
/// # Errors
/// [`ClientError`].
pub fn scan_blocking(url: &str, call: &ScanCall, progress: &dyn Progress) -> Result<Scanned, ClientError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|e| ClientError::Unreachable { url: url.to_owned(), why: e.to_string() })?;
    runtime.block_on(scan(url, call, progress))
}

/// Submits a scan and waits for its whole answer. Dropping the future cancels the scan.
///
/// # Errors
/// [`ClientError`].
pub async fn scan(url: &str, call: &ScanCall, progress: &dyn Progress) -> Result<Scanned, ClientError> {
    let document_json = call.document.to_json();
    if document_json.len() > DOCUMENT_BYTES_MAX {
        let message =
            format!("the scan document has {} bytes, at most {DOCUMENT_BYTES_MAX} are taken", document_json.len());
        return Err(ClientError::Refused(Failure::new(ErrorKind::Invalid, message)));
    }
    let (mut client, connector) = connect(url, &call.security).await?;
    let traced = trace::context_of(&tracing::Span::current());
    let spec = match call.shards {
        ShardSpec::Automatic => None,
        ShardSpec::Count(count) => Some(pb::shard_spec::Spec::Count(count)),
        ShardSpec::PerSegment => Some(pb::shard_spec::Spec::PerSegment(true)),
    };
    let mut request = tonic::Request::new(pb::ScanRequest {
        protocol_version: PROTOCOL_VERSION,
        document_json,
        as_of_us: call.as_of,
        shards: Some(pb::ShardSpec { spec }),
        trace: traced.clone(),
        priority: match call.priority {
            Priority::Low => pb::Priority::Low,
            Priority::Normal => pb::Priority::Normal,
            Priority::High => pb::Priority::High,
        }
        .into(),
        deadline_ms: call.deadline.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX)),
    });
    trace::inject(traced.as_ref(), request.metadata_mut());
    authorise(call.security.token.as_ref(), request.metadata_mut());
    let broken = |status: tonic::Status| match (Failure::from_status(&status), connector.reason()) {
        (Some(failure), _) => ClientError::Refused(failure),
        (None, Some(why)) => ClientError::Untrusted { url: url.to_owned(), why },
        (None, None) => ClientError::Broken { url: url.to_owned(), why: status.message().to_owned() },
    };
    let mut events = client.scan(request).await.map_err(broken)?.into_inner();
    let mut gathered = Gathered::default();
    while let Some(event) = events.message().await.map_err(broken)? {
        if let Some(scanned) = gathered.take(event, progress)? {
            return Ok(scanned);
        }
    }
    Err(ClientError::Broken { url: url.to_owned(), why: "the stream ended without a summary".to_owned() })
}

/// A client, and the connector that knows why TLS refused.
async fn connect(url: &str, security: &ClientSecurity) -> Result<(CoordinatorClient<Channel>, Connector), ClientError> {
    let malformed = |why: &str| ClientError::Url { url: url.to_owned(), why: why.to_owned() };
    let (host, encrypted) = match url.split_once("://") {
        Some(("http", host)) => (host.trim_end_matches('/'), false),
        Some(("https", host)) => (host.trim_end_matches('/'), true),
        _ => return Err(malformed("it does not begin with http:// or https://")),
    };
    if host.rsplit_once(':').is_none_or(|(name, port)| name.is_empty() || port.parse::<u16>().is_err()) {
        return Err(malformed("it has no port"));
    }
    // The connector says in which words to speak; tonic need not know.
    let endpoint = Endpoint::from_shared(format!("http://{host}")).map_err(|_| malformed("it is not a URL"))?;
    check_secure(url, host, encrypted, security)?;
    let connector = Connector::new(security.tls.clone(), Expect::Role(Role::Coordinator));
    let endpoint = endpoint
        .connect_timeout(CONNECT_TIMEOUT)
        .tcp_nodelay(true)
        .http2_keep_alive_interval(HTTP2_KEEP_ALIVE.0)
        .keep_alive_timeout(HTTP2_KEEP_ALIVE.1);
    let channel =
        endpoint.connect_with_connector(connector.clone()).await.map_err(|error| match connector.reason() {
            Some(why) => ClientError::Untrusted { url: url.to_owned(), why },
            None => ClientError::Unreachable { url: url.to_owned(), why: innermost(&error) },
        })?;
    let client = CoordinatorClient::new(channel)
        .max_decoding_message_size(MESSAGE_BYTES_MAX)
        .max_encoding_message_size(MESSAGE_BYTES_MAX);
    Ok((client, connector))
}

/// Plain text stays on this machine unless somebody insists, and a token never leaves it in plain text.
fn check_secure(url: &str, host: &str, encrypted: bool, security: &ClientSecurity) -> Result<(), ClientError> {
    let insecure = |why: &str| Err(ClientError::Insecure { url: url.to_owned(), why: why.to_owned() });
    match (encrypted, security.tls.is_some()) {
        (true, true) => Ok(()),
        (true, false) => insecure("https needs --tls-ca FILE, and --tls-cert and --tls-key of this side"),
        (false, true) => insecure("certificates are given, but it is plain text: write https://"),
        (false, false) if is_loopback(host) => Ok(()),
        (false, false) if security.token.is_some() => {
            insecure("a token is not sent in plain text to another machine: use https:// and --tls-ca")
        }
        (false, false) if !security.insecure => insecure(
            "plain text to another machine is neither encrypted nor authenticated: use https:// with --tls-ca, \
             --tls-cert and --tls-key, or insist with --insecure",
        ),
        (false, false) => {
            tracing::warn!("--insecure: the scan and its answer travel in plain text to {host}, who may be anybody");
            Ok(())
        }
    }
}

/// The cause at the bottom: what the operating system said.
fn innermost(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    cause.to_string()
}

/// What has come so far.
#[derive(Debug, Default)]
struct Gathered {
    header: Option<pb::Accepted>,
    results: BTreeMap<u32, SegmentResultV2>,
    failures: BTreeMap<u32, FailedSegment>,
}

fn wrong(what: impl Into<String>) -> ClientError {
    ClientError::Protocol(what.into())
}

impl Gathered {
    /// Takes one event; the answer when it was the last.
    fn take(&mut self, event: pb::ScanEvent, progress: &dyn Progress) -> Result<Option<Scanned>, ClientError> {
        use pb::scan_event::Event;
        match event.event {
            Some(Event::Accepted(header)) => {
                progress.accepted(header.segments as usize, header.shards as usize, header.symbols as usize);
                self.header = Some(header);
            }
            Some(Event::SegmentDone(done)) => {
                let result = done.result.as_ref().ok_or_else(|| wrong("a segment without a result"))?;
                let result = envelope::decode(result).map_err(|e| wrong(e.to_string()))?;
                if result.segment != done.segment || segment_digest(&result)[..] != done.digest[..] {
                    return Err(wrong(format!("the result of segment {} is not what was computed", done.segment)));
                }
                // A duplicate is the same bytes: the digest was checked.
                if done.replaces || !self.results.contains_key(&done.segment) {
                    self.results.insert(done.segment, result);
                }
                progress.segment_ended(done.segment, self.ended());
            }
            Some(Event::SegmentFailed(failed)) => {
                let failure = Failure::from(failed.failure.unwrap_or_default());
                progress.segment_failed(failed.segment, failure.kind, &failure.message);
                let (segment, symbols) = (failed.segment, failed.symbols);
                let failure = FailedSegment { segment, symbols, kind: failure.kind, message: failure.message };
                self.failures.insert(segment, failure);
                progress.segment_ended(segment, self.ended());
            }
            Some(Event::Summary(summary)) => return self.finish(&summary).map(Some),
            Some(Event::Refused(refused)) => {
                let failure = Failure::from(refused.failure.unwrap_or_default());
                let mistakes: Vec<Diagnostic> = serde_json::from_str(&refused.diagnostics_json).unwrap_or_default();
                return Err(if mistakes.is_empty() {
                    ClientError::Refused(failure)
                } else {
                    ClientError::Mistakes(mistakes)
                });
            }
            // From a newer coordinator; the digest tells whether it mattered.
            None => {}
        }
        Ok(None)
    }

    fn ended(&self) -> usize {
        self.results.len() + self.failures.len()
    }

    fn finish(&mut self, summary: &pb::Summary) -> Result<Scanned, ClientError> {
        let header = self.header.take().ok_or_else(|| wrong("a summary before the header"))?;
        if self.ended() != header.segments as usize {
            return Err(wrong(format!("{} of {} segments", self.ended(), header.segments)));
        }
        let identity: Identity =
            serde_json::from_str(&header.identity_json).map_err(|e| wrong(format!("the identity: {e}")))?;
        let mut report: RunReport =
            serde_json::from_str(&summary.report_json).map_err(|e| wrong(format!("the report: {e}")))?;
        let points = serde_json::from_str(&header.points_json).map_err(|e| wrong(format!("the sweep: {e}")))?;
        let spec = MergeSpec {
            identity,
            select: header.select,
            points,
            best: header.best,
            descending: header.rank_descending,
            limit: header.limit,
        };
        let started = Instant::now();
        let results = std::mem::take(&mut self.results).into_values().collect();
        let failures = std::mem::take(&mut self.failures).into_values().collect();
        let answer = merge_results(&spec, results, failures);
        report.merge_ms = ms_since(started);
        let digest = answer_digest(&answer);
        if digest != summary.answer_digest {
            let theirs = &summary.answer_digest;
            return Err(wrong(format!("its answer's digest is {theirs}, the one of what it sent is {digest}")));
        }
        Ok(Scanned { answer, report, synthetic: header.synthetic, timeframe: header.timeframe })
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
        let told = |url: &str, security: ClientSecurity| {
            let error = scan_blocking(url, &ScanCall { security, ..ScanCall::default() }, &NoProgress).unwrap_err();
            assert!(matches!(error, ClientError::Insecure { .. }) && error.is_users_mistake(), "{url}: {error}");
            error.to_string()
        };
        let token = trawl_protocol::security::Token::fresh().ok();
        let insisting = ClientSecurity { token, insecure: true, tls: None };
        assert!(told("https://127.0.0.1:7400", ClientSecurity::default()).contains("--tls-ca FILE"));
        assert!(told("http://10.255.255.1:7400", ClientSecurity::default()).contains("--insecure"));
        assert!(told("http://localhost.example.org:7400", ClientSecurity::default()).contains("--insecure"));
        assert!(told("http://10.255.255.1:7400", insisting).contains("a token is not sent"));
    }

    #[test]
    fn a_coordinator_that_is_not_there_is_told_with_what_to_do() {
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
        };
        let summary = pb::ScanEvent {
            event: Some(pb::scan_event::Event::Summary(pb::Summary {
                answer_digest: "00".to_owned(),
                report_json: serde_json::to_string(&RunReport::default()).unwrap(),
            })),
        };
        for (segments, why) in [(1, "0 of 1"), (0, "digest")] {
            let mut gathered = Gathered::default();
            gathered.take(header(segments), &NoProgress).unwrap();
            let error = gathered.take(summary.clone(), &NoProgress).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }
}
