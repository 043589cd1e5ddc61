//! Management calls to a coordinator: listing, cancelling, workers.

use tonic::transport::Channel;
use trawl_market::{DatasetSummary, Inspection, SymbolEntry};
use trawl_security::{ClientSecurity, Connector, authorise};
use trawl_wire::pb::coordinator_client::CoordinatorClient;
use trawl_wire::{ErrorKind, Failure, pb};

use super::{ClientError, connect};

/// The reply, unless the coordinator does not know the call. `lacks`: what it then cannot do.
fn supported<T>(answer: Result<T, tonic::Status>, lacks: &str) -> Result<Result<T, tonic::Status>, ClientError> {
    if answer.as_ref().is_err_and(|status| status.code() == tonic::Code::Unimplemented) {
        let why = format!("this coordinator is older than this command and {lacks}: upgrade it");
        return Err(ClientError::Refused(Failure::new(ErrorKind::Invalid, why)));
    }
    Ok(answer)
}

/// A connection for single requests.
pub struct Manager<'a> {
    url: String,
    client: CoordinatorClient<Channel>,
    connector: Connector,
    security: &'a ClientSecurity,
}

impl<'a> Manager<'a> {
    /// Connects to the first coordinator that answers; `urls` is separated by commas.
    ///
    /// # Errors
    /// The error of the last one, if none answers.
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

    async fn answered<T>(&self, answer: Result<tonic::Response<T>, tonic::Status>) -> Result<T, ClientError> {
        let status = match answer {
            Ok(response) => return Ok(response.into_inner()),
            Err(status) => status,
        };
        Err(match (Failure::from_status(&status), self.connector.reason()) {
            (Some(failure), _) => ClientError::Refused(failure),
            (None, Some(why)) => ClientError::Untrusted { url: self.url.clone(), why },
            (None, None) if connect::expects_tls(&self.url).await => connect::needs_tls(&self.url),
            (None, None) => ClientError::Broken { url: self.url.clone(), why: status.message().to_owned() },
        })
    }

    /// Cancels a scan; a scan that has ended is left unchanged.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn cancel(&mut self, scan: &str) -> Result<pb::ScanInfo, ClientError> {
        let request = self.request(pb::CancelRequest { scan_id: scan.to_owned() });
        let answer = self.client.cancel(request).await;
        self.answered(answer).await
    }

    /// The state of one scan.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn status(&mut self, scan: &str) -> Result<pb::ScanInfo, ClientError> {
        let request = self.request(pb::GetScanRequest { scan_id: scan.to_owned() });
        let answer = self.client.get_scan(request).await;
        self.answered(answer).await
    }

    /// The state of one scan, and its run report as JSON; empty if there is none.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn trace(&mut self, scan: &str) -> Result<pb::TraceReply, ClientError> {
        let request = self.request(pb::TraceRequest { scan_id: scan.to_owned() });
        let answer = self.client.trace(request).await;
        self.answered(supported(answer, "shows no traces")?).await
    }

    /// Scans, newest first; limit 0 selects the coordinator's default.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn list(&mut self, wanted: pb::ListScansRequest) -> Result<pb::ListScansReply, ClientError> {
        let request = self.request(wanted);
        let answer = self.client.list_scans(request).await;
        self.answered(answer).await
    }

    /// All registered workers.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn workers(&mut self) -> Result<Vec<pb::WorkerInfo>, ClientError> {
        let request = self.request(pb::ListWorkersRequest { all: true });
        let answer = self.client.list_workers(request).await;
        self.answered(answer).await.map(|reply| reply.workers)
    }

    /// All registered coordinators.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn coordinators(&mut self) -> Result<Vec<pb::CoordinatorInfo>, ClientError> {
        let request = self.request(pb::ListCoordinatorsRequest {});
        let answer = self.client.list_coordinators(request).await;
        self.answered(supported(answer, "does not list coordinators")?).await.map(|reply| reply.coordinators)
    }

    /// The datasets that the caller may scan.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn datasets(&mut self) -> Result<Vec<DatasetSummary>, ClientError> {
        let request = self.request(pb::ListDatasetsRequest {});
        let answer = self.client.list_datasets(request).await;
        let reply = self.answered(supported(answer, "does not list datasets")?).await?;
        serde_json::from_str(&reply.datasets_json).map_err(|error| self.unreadable(&error))
    }

    /// What a dataset contains, with the entries of all its symbols; `symbol`: one of them in detail.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn inspect(
        &mut self,
        dataset: &str,
        symbol: Option<&str>,
    ) -> Result<(Inspection, Vec<SymbolEntry>), ClientError> {
        let symbol = symbol.unwrap_or_default().to_owned();
        let request = self.request(pb::InspectDatasetRequest { dataset: dataset.to_owned(), symbol });
        let answer = self.client.inspect_dataset(request).await;
        let reply = self.answered(supported(answer, "does not show datasets")?).await?;
        let found = serde_json::from_str(&reply.inspection_json).map_err(|error| self.unreadable(&error))?;
        let symbols = serde_json::from_str(&reply.symbols_json).map_err(|error| self.unreadable(&error))?;
        Ok((found, symbols))
    }

    fn unreadable(&self, error: &serde_json::Error) -> ClientError {
        let why = format!("its reply cannot be read, which happens if it is of another release: {error}");
        ClientError::Broken { url: self.url.clone(), why }
    }

    /// Drains a worker; returns how many shards it still has.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn drain(&mut self, worker: &str) -> Result<u32, ClientError> {
        let request = self.request(pb::DrainWorkerRequest { worker: worker.to_owned() });
        let answer = self.client.drain_worker(request).await;
        self.answered(answer).await.map(|reply| reply.shards_in_flight)
    }
}
