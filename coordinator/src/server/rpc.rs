//! The calls of clients, one function each: answered here if this coordinator leads, else by the one that does.

use std::sync::Arc;

use tonic::{Code, Request, Response, Status};
use trawl_security::Subject;
use trawl_wire::error::status_of;
use trawl_wire::limits::NAME_BYTES_MAX;
use trawl_wire::{ErrorKind, pb, trace};

use super::request;
use super::scans::{Cursor, TakenOver, may_end, may_see, report_of};
use super::service::{CallContext, CallTarget, CoordinatorService, LISTED_MAX, of_leader, retry, until_known};
use super::streaming::{Events, StreamOptions, loaded, passed_on, stream};

/// The calls whose replies are streams, as HTTP/2 names them.
const SCAN_PATH: &str = "/trawl.v1.Coordinator/Scan";
const WATCH_PATH: &str = "/trawl.v1.Coordinator/Watch";
/// How long a cancelled scan may take to end.
const CANCEL_WAIT: std::time::Duration = std::time::Duration::from_secs(10);

/// A reply, with what the audit log names as its subject.
fn about<T>(subject: String, message: T) -> Response<T> {
    with_subject(Response::new(message), subject)
}

fn with_subject<T>(mut reply: Response<T>, subject: String) -> Response<T> {
    reply.extensions_mut().insert(Subject(subject));
    reply
}

/// The service implementation for tonic: a handle to the shared state.
#[derive(Clone)]
pub(crate) struct Handle(pub Arc<CoordinatorService>);

#[tonic::async_trait]
impl pb::coordinator_server::Coordinator for Handle {
    type ScanStream = Events;
    type WatchStream = Events;

    async fn scan(&self, request: Request<pb::ScanRequest>) -> Result<Response<Events>, Status> {
        let (call, carried) = (CallContext::of(&request), trace::extract(request.metadata()));
        let request = request.into_inner();
        match self.0.place(&call).await? {
            CallTarget::There(leader) => {
                let permit = self.0.open_stream(&call.caller)?;
                let reply = leader.stream(SCAN_PATH, call.pass_on(request, carried.as_ref())).await;
                Ok(passed_on(reply.map_err(of_leader)?, permit))
            }
            CallTarget::Here(environment) => {
                let (detached, gathers, kinds) = (request.detached, request.gathers, request.kinds);
                let context = request.trace.clone();
                let earlier = (!request.columns).then(|| environment.memory.clone());
                let permit = self.0.open_stream(&call.caller)?;
                let scan = self.0.submit((*environment).clone(), &call.caller, request, carried.as_ref()).await?;
                let held = (permit, loaded(&environment, &scan).await?);
                let ends_it = (!scan.asked.durable).then(|| Arc::clone(&environment.scans));
                let within = carried.as_ref().or(context.as_ref());
                let subject = scan.name.clone();
                let options =
                    StreamOptions { detached: detached && ends_it.is_none(), ends_it, gathers, kinds, earlier };
                Ok(with_subject(stream(scan, Cursor::default(), options, within, held), subject))
            }
        }
    }

    async fn watch(&self, request: Request<pb::WatchRequest>) -> Result<Response<Events>, Status> {
        let (call, carried) = (CallContext::of(&request), trace::extract(request.metadata()));
        let request = request.into_inner();
        let subject = request.scan_id.clone();
        request::check_version(request.protocol_version)?;
        request::check_have(&request.have)?;
        let permit = self.0.open_stream(&call.caller)?;
        match self.0.place_to_read(&call).await? {
            CallTarget::There(leader) => {
                let reply = leader.stream(WATCH_PATH, call.pass_on(request, carried.as_ref())).await;
                Ok(passed_on(reply.map_err(of_leader)?, permit))
            }
            CallTarget::Here(environment) => {
                let scan = CoordinatorService::find(&environment, &call.caller, &request.scan_id).await?;
                let held = (permit, loaded(&environment, &scan).await?);
                let cursor = Cursor::with(request.generation, request.have);
                let earlier = (!request.columns).then(|| environment.memory.clone());
                let (gathers, kinds) = (request.gathers, request.kinds);
                let options = StreamOptions { ends_it: None, detached: false, gathers, kinds, earlier };
                Ok(with_subject(stream(scan, cursor, options, carried.as_ref(), held), subject))
            }
        }
    }

    async fn cancel(&self, request: Request<pb::CancelRequest>) -> Result<Response<pb::ScanInfo>, Status> {
        let call = CallContext::of(&request);
        let request = request.into_inner();
        match self.0.place(&call).await? {
            CallTarget::There(mut leader) => leader.calls.cancel(call.pass_on(request, None)).await.map_err(of_leader),
            CallTarget::Here(environment) => {
                let scan = CoordinatorService::find(&environment, &call.caller, &request.scan_id).await?;
                if !may_end(&call.caller, &scan.owner) {
                    let message =
                        format!("scan {} is not {}'s: that takes the role admin", scan.name, call.caller.name);
                    return Err(status_of(Code::PermissionDenied, ErrorKind::Invalid, &message));
                }
                scan.cancel();
                // Wait until the cancellation is recorded: if the leader died before, the next one would run the scan.
                match tokio::time::timeout(CANCEL_WAIT, scan.until_ended()).await {
                    Ok(()) => Ok(about(scan.name.clone(), scan.info())),
                    Err(_) => Err(retry("the scan is being cancelled; its end is not recorded yet")),
                }
            }
        }
    }

    async fn list_scans(&self, request: Request<pb::ListScansRequest>) -> Result<Response<pb::ListScansReply>, Status> {
        let call = CallContext::of(&request);
        let request = request.into_inner();
        let filter = request::ListFilter::of(&request)?;
        match self.0.place_to_read(&call).await? {
            CallTarget::There(mut leader) => {
                leader.calls.list_scans(call.pass_on(request, None)).await.map_err(of_leader)
            }
            CallTarget::Here(environment) => {
                until_known(&environment, if request.active { TakenOver::Open } else { TakenOver::All }).await?;
                let mut scans: Vec<pb::ScanInfo> = environment
                    .scans
                    .all()
                    .iter()
                    .filter(|scan| may_see(&call.caller, &scan.owner) && !(request.active && scan.has_ended()))
                    .map(|scan| scan.info())
                    .filter(|scan| filter.admits(scan))
                    .collect();
                scans.sort_by(|a, b| (b.submitted_us, &b.scan_id).cmp(&(a.submitted_us, &a.scan_id)));
                let most = match request.limit {
                    0 => LISTED_MAX,
                    limit => LISTED_MAX.min(limit as usize),
                };
                let more = scans.len() > most;
                scans.truncate(most);
                Ok(Response::new(pb::ListScansReply { scans, more }))
            }
        }
    }

    async fn get_scan(&self, request: Request<pb::GetScanRequest>) -> Result<Response<pb::ScanInfo>, Status> {
        let call = CallContext::of(&request);
        let request = request.into_inner();
        match self.0.place_to_read(&call).await? {
            CallTarget::There(mut leader) => {
                leader.calls.get_scan(call.pass_on(request, None)).await.map_err(of_leader)
            }
            CallTarget::Here(environment) => {
                let scan = CoordinatorService::find(&environment, &call.caller, &request.scan_id).await?;
                Ok(about(scan.name.clone(), scan.info()))
            }
        }
    }

    async fn trace(&self, request: Request<pb::TraceRequest>) -> Result<Response<pb::TraceReply>, Status> {
        let call = CallContext::of(&request);
        let request = request.into_inner();
        match self.0.place_to_read(&call).await? {
            CallTarget::There(mut leader) => leader.calls.trace(call.pass_on(request, None)).await.map_err(of_leader),
            CallTarget::Here(environment) => {
                let scan = CoordinatorService::find(&environment, &call.caller, &request.scan_id).await?;
                let report_json = report_of(&environment, &scan).await.map_err(|failure| failure.to_status())?;
                Ok(about(scan.name.clone(), pb::TraceReply { scan: Some(scan.info()), report_json }))
            }
        }
    }

    async fn list_workers(
        &self,
        request: Request<pb::ListWorkersRequest>,
    ) -> Result<Response<pb::ListWorkersReply>, Status> {
        let call = CallContext::of(&request);
        let request = request.into_inner();
        match self.0.place_to_read(&call).await? {
            CallTarget::There(mut leader) => {
                leader.calls.list_workers(call.pass_on(request, None)).await.map_err(of_leader)
            }
            CallTarget::Here(environment) => {
                let workers = environment.dispatcher.list(request.all).await;
                Ok(Response::new(pb::ListWorkersReply { workers }))
            }
        }
    }

    async fn list_coordinators(
        &self,
        _: Request<pb::ListCoordinatorsRequest>,
    ) -> Result<Response<pb::ListCoordinatorsReply>, Status> {
        let coordinators = self.0.coordinators.list().await.map_err(|error| retry(&error.to_string()))?;
        Ok(Response::new(pb::ListCoordinatorsReply { coordinators }))
    }

    async fn drain_worker(
        &self,
        request: Request<pb::DrainWorkerRequest>,
    ) -> Result<Response<pb::DrainWorkerReply>, Status> {
        let call = CallContext::of(&request);
        let request = request.into_inner();
        match self.0.place(&call).await? {
            CallTarget::There(mut leader) => {
                leader.calls.drain_worker(call.pass_on(request, None)).await.map_err(of_leader)
            }
            CallTarget::Here(environment) => {
                let asked = environment.dispatcher.ask_to_leave(request.worker.clone()).await.ok_or_else(|| {
                    let name: String =
                        request.worker.chars().filter(|c| !c.is_control()).take(NAME_BYTES_MAX).collect();
                    let message = format!("no worker '{name}' is registered; 'trawl workers' shows those that are");
                    status_of(Code::NotFound, ErrorKind::Invalid, &message)
                })?;
                let shards_in_flight = asked?;
                Ok(about(request.worker, pb::DrainWorkerReply { shards_in_flight }))
            }
        }
    }

    async fn list_datasets(
        &self,
        request: Request<pb::ListDatasetsRequest>,
    ) -> Result<Response<pb::ListDatasetsReply>, Status> {
        let call = CallContext::of(&request);
        let datasets_json = self.0.datasets.list(&call.caller).await?;
        Ok(Response::new(pb::ListDatasetsReply { datasets_json }))
    }

    async fn inspect_dataset(
        &self,
        request: Request<pb::InspectDatasetRequest>,
    ) -> Result<Response<pb::InspectDatasetReply>, Status> {
        let call = CallContext::of(&request);
        let request = request.into_inner();
        let subject = request.dataset.clone();
        Ok(about(subject, self.0.datasets.inspect(&call.caller, request).await?))
    }
}
