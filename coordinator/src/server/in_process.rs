//! The calls of clients, made inside the coordinator's process by another door of it: the same service, guard, limits and
//! forwarding to the leader, without a connection.

use std::time::{Duration, Instant};

use tonic::codegen::http::{HeaderValue, header};
use tonic::metadata::MetadataMap;
use tonic::{Code, Request, Response, Status};
use trawl_plan::Diagnostic;
use trawl_security::{Guarded, Peer, Subject};
use trawl_wire::limits::{MESSAGE_BYTES_MAX, PROTOCOL_VERSION};
use trawl_wire::pb::coordinator_client::CoordinatorClient;
use trawl_wire::pb::coordinator_server::CoordinatorServer;
use trawl_wire::pb::scan_event::Event;
use trawl_wire::{Failure, pb};

use super::rpc::Handle;
use super::streaming::WithBodies;
use crate::client::{ClientError, Gathered, RECONNECT_TIMEOUT, Scanned};
use crate::report::NoProgress;

/// Wait before a broken stream is resumed.
const RESUME_WAIT: Duration = Duration::from_millis(100);
/// How long a submission waits for the scan to be accepted before its id alone is returned.
const ACCEPT_WAIT: Duration = Duration::from_secs(10);

/// Who makes a call: the other end of the connection, and the token that it presented. It has no `Debug`.
#[derive(Clone)]
pub struct Credentials {
    /// The other end of the connection.
    pub peer: Peer,
    /// The header with the token.
    pub authorization: Option<HeaderValue>,
}

impl Credentials {
    fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        if let Some(token) = &self.authorization {
            let mut headers = std::mem::take(request.metadata_mut()).into_headers();
            headers.insert(header::AUTHORIZATION, token.clone());
            *request.metadata_mut() = MetadataMap::from_headers(headers);
        }
        request.extensions_mut().insert(self.peer.clone());
        request
    }
}

/// Why a call returned nothing.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The service's refusal.
    #[error("{}", .0.message())]
    Status(#[from] Status),
    /// The user's mistakes in the document's clauses.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
    Mistakes(Vec<Diagnostic>),
    /// The failure with which the scan ended.
    #[error("{0}")]
    Refused(Failure),
    /// The events are no answer to this scan.
    #[error("{0}")]
    Protocol(String),
}

impl From<ClientError> for CallError {
    fn from(error: ClientError) -> Self {
        match error {
            ClientError::Mistakes(mistakes) => Self::Mistakes(mistakes),
            ClientError::Refused(failure) => Self::Refused(failure),
            error => Self::Protocol(error.to_string()),
        }
    }
}

type Service = Guarded<WithBodies<CoordinatorServer<Handle>>>;

/// The coordinator's service, called in its process. Cheap to clone.
#[derive(Clone)]
pub struct InProcess {
    service: Service,
}

/// One call whose reply is one message.
macro_rules! call {
    ($(#[$doc:meta])* $name:ident, $request:ty => $reply:ty) => {
        $(#[$doc])*
        ///
        /// # Errors
        /// The service's status.
        pub async fn $name(&self, who: &Credentials, message: $request) -> Result<$reply, Status> {
            self.client().$name(who.request(message)).await.map(Response::into_inner)
        }
    };
}

impl InProcess {
    pub(super) fn new(service: Service) -> Self {
        Self { service }
    }

    fn client(&self) -> CoordinatorClient<Service> {
        CoordinatorClient::new(self.service.clone())
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX)
    }

    call!(
        /// Cancels a scan.
        cancel, pb::CancelRequest => pb::ScanInfo
    );
    call!(
        /// The state of one scan.
        get_scan, pb::GetScanRequest => pb::ScanInfo
    );
    call!(
        /// Scans, newest first.
        list_scans, pb::ListScansRequest => pb::ListScansReply
    );
    call!(
        /// The state of one scan, and its run's report.
        trace, pb::TraceRequest => pb::TraceReply
    );
    call!(
        /// The registered workers.
        list_workers, pb::ListWorkersRequest => pb::ListWorkersReply
    );
    call!(
        /// The registered coordinators.
        list_coordinators, pb::ListCoordinatorsRequest => pb::ListCoordinatorsReply
    );
    call!(
        /// The datasets that the caller may scan.
        list_datasets, pb::ListDatasetsRequest => pb::ListDatasetsReply
    );
    call!(
        /// What one of them holds.
        inspect_dataset, pb::InspectDatasetRequest => pb::InspectDatasetReply
    );

    /// Submits a scan that runs on by itself; returns its id once it is accepted, or after a while that it waits.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn submit(&self, who: &Credentials, request: pb::ScanRequest) -> Result<String, CallError> {
        let request = pb::ScanRequest { detached: true, ..readable(request) };
        let reply = self.client().scan(who.request(request)).await?;
        // Absent where another coordinator leads.
        let named = reply.extensions().get::<Subject>().map(|subject| subject.0.clone());
        let mut events = reply.into_inner();
        let accepted = async {
            while let Some(mut message) = events.message().await? {
                let more = std::mem::take(&mut message.more);
                for event in std::iter::once(message).chain(more) {
                    match event.event {
                        Some(Event::Accepted(header)) => return Ok(header.scan_id),
                        Some(event @ Event::Refused(_)) => {
                            let event = pb::ScanEvent { event: Some(event), more: Vec::new() };
                            Gathered::default().take(event, &NoProgress)?;
                        }
                        _ => {}
                    }
                }
            }
            Err(CallError::Protocol("the stream ended before the scan was accepted".to_owned()))
        };
        match named {
            None => accepted.await,
            Some(name) => tokio::time::timeout(ACCEPT_WAIT, accepted).await.unwrap_or(Ok(name)),
        }
    }

    /// Runs an ephemeral scan: it ends when the future is dropped.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn run_ephemeral(&self, who: &Credentials, request: pb::ScanRequest) -> Result<Scanned, CallError> {
        let request = pb::ScanRequest { ephemeral: true, detached: false, ..readable(request) };
        let mut events = self.client().scan(who.request(request)).await?.into_inner();
        let mut gathered = Gathered::default();
        while let Some(event) = events.message().await? {
            if let Some(scanned) = gathered.take(event, &NoProgress)? {
                return Ok(scanned);
            }
        }
        Err(CallError::Protocol("the stream ended without a summary".to_owned()))
    }

    /// Follows a scan to its answer, which is merged here and checked as a client does; a stream that breaks because another
    /// coordinator begins to lead is resumed.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn answer(&self, who: &Credentials, scan: &str) -> Result<Scanned, CallError> {
        let mut gathered = Gathered::default();
        let mut ask = pb::WatchRequest {
            protocol_version: PROTOCOL_VERSION,
            scan_id: scan.to_owned(),
            gathers: true,
            columns: true,
            kinds: true,
            ..pb::WatchRequest::default()
        };
        let mut heard = Instant::now();
        loop {
            let broken = match self.client().watch(who.request(ask.clone())).await.map(Response::into_inner) {
                Err(status) => status,
                Ok(mut events) => loop {
                    match events.message().await {
                        Ok(Some(event)) => {
                            heard = Instant::now();
                            if let Some(scanned) = gathered.take(event, &NoProgress)? {
                                return Ok(scanned);
                            }
                        }
                        Ok(None) => break Status::unavailable("the stream ended without a summary"),
                        Err(status) => break status,
                    }
                },
            };
            if broken.code() != Code::Unavailable || heard.elapsed() > RECONNECT_TIMEOUT {
                return Err(broken.into());
            }
            tracing::debug!(scan, why = broken.message(), "the events of a scan are asked for again");
            tokio::time::sleep(RESUME_WAIT).await;
            ask = gathered.rest().unwrap_or(ask);
        }
    }
}

/// The request of a client of this release.
fn readable(request: pb::ScanRequest) -> pb::ScanRequest {
    pb::ScanRequest { protocol_version: PROTOCOL_VERSION, gathers: true, columns: true, kinds: true, ..request }
}
