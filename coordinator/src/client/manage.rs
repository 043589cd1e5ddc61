//! What is asked of a coordinator beside scans: lists, cancels, workers.

use tonic::transport::Channel;
use trawl_security::{ClientSecurity, Connector, authorise};
use trawl_wire::pb::coordinator_client::CoordinatorClient;
use trawl_wire::{ErrorKind, Failure, pb};

use super::{ClientError, connect};

/// A connection for single questions.
pub struct Manager<'a> {
    url: String,
    client: CoordinatorClient<Channel>,
    connector: Connector,
    security: &'a ClientSecurity,
}

impl<'a> Manager<'a> {
    /// To the first that answers of several coordinators, separated by commas.
    ///
    /// # Errors
    /// Why the last of them does not.
    pub async fn connect(urls: &str, security: &'a ClientSecurity) -> Result<Self, ClientError> {
        let mut last = None;
        for url in urls.split(',').map(str::trim) {
            match connect::connect(url, security).await {
                Ok((client, connector)) => return Ok(Self { url: url.to_owned(), client, connector, security }),
                Err(error) => last = Some(error),
            }
        }
        Err(last.unwrap_or_else(|| ClientError::Url { url: urls.to_owned(), why: "it is empty".to_owned() }))
    }

    fn request<T>(&self, message: T) -> tonic::Request<T> {
        let mut request = tonic::Request::new(message);
        authorise(self.security.token.as_ref(), request.metadata_mut());
        request
    }

    fn answered<T>(&self, answer: Result<tonic::Response<T>, tonic::Status>) -> Result<T, ClientError> {
        answer.map(tonic::Response::into_inner).map_err(|status| {
            match (Failure::from_status(&status), self.connector.reason()) {
                (Some(failure), _) => ClientError::Refused(failure),
                (None, Some(why)) => ClientError::Untrusted { url: self.url.clone(), why },
                (None, None) => ClientError::Broken { url: self.url.clone(), why: status.message().to_owned() },
            }
        })
    }

    /// Ends a scan; one that has ended stays as it is.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn cancel(&mut self, scan: &str) -> Result<pb::ScanInfo, ClientError> {
        let request = self.request(pb::CancelRequest { scan_id: scan.to_owned() });
        let answer = self.client.cancel(request).await;
        self.answered(answer)
    }

    /// One scan.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn status(&mut self, scan: &str) -> Result<pb::ScanInfo, ClientError> {
        let request = self.request(pb::GetScanRequest { scan_id: scan.to_owned() });
        let answer = self.client.get_scan(request).await;
        self.answered(answer)
    }

    /// One scan, and the report of its run as JSON; empty where there is none.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn trace(&mut self, scan: &str) -> Result<pb::TraceReply, ClientError> {
        let request = self.request(pb::TraceRequest { scan_id: scan.to_owned() });
        let answer = self.client.trace(request).await;
        if answer.as_ref().is_err_and(|status| status.code() == tonic::Code::Unimplemented) {
            let why = "this coordinator is older than this command and tells nothing of traces: upgrade it";
            return Err(ClientError::Refused(Failure::new(ErrorKind::Invalid, why)));
        }
        self.answered(answer)
    }

    /// Scans, newest first; `limit` 0 takes the coordinator's.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn list(&mut self, limit: u32, active: bool) -> Result<pb::ListScansReply, ClientError> {
        let request = self.request(pb::ListScansRequest { limit, active });
        let answer = self.client.list_scans(request).await;
        self.answered(answer)
    }

    /// Every registered worker.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn workers(&mut self) -> Result<Vec<pb::WorkerInfo>, ClientError> {
        let request = self.request(pb::ListWorkersRequest { all: true });
        let answer = self.client.list_workers(request).await;
        self.answered(answer).map(|reply| reply.workers)
    }

    /// Tells a worker to leave: how many shards it still has.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn drain(&mut self, worker: &str) -> Result<u32, ClientError> {
        let request = self.request(pb::DrainWorkerRequest { worker: worker.to_owned() });
        let answer = self.client.drain_worker(request).await;
        self.answered(answer).map(|reply| reply.shards_in_flight)
    }
}
