//! The door inside a coordinator's process: its own service is called, so that quotas, rights, keys of requests and forwarding
//! to the leader are those of gRPC.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use serde_json::Value;
use tokio::sync::{Semaphore, watch};
use trawl_coordinator::ShardSpec;
use trawl_coordinator::client::Scanned;
use trawl_coordinator::server::in_process::{CallError, Credentials, InProcess};
use trawl_market::{DatasetSummary, Store};
use trawl_wire::limits::DOCUMENT_BYTES_MAX;
use trawl_wire::pb;

use super::answer::turn;
use super::door::Submission;
use super::door::{Call, Door, has_ended};
use super::problem::{Kind, Problem};
use super::questions::{Inspected, QuestionLimits, Questions, placed};
use crate::mistake::{UserMistake, drawn};

/// Ephemeral scans whose events are gathered at once.
const EPHEMERAL_MAX: usize = 32;
/// How long a request for one waits for its turn.
const EPHEMERAL_WAIT: Duration = Duration::from_secs(20);
/// First and longest interval at which the state of a watched scan is read: once for all that watch it.
const POLL_INTERVALS: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(200));
/// How much the questions may compute that a coordinator answers by itself, in nanoseconds of one core.
const QUESTION_WORK_NS_MAX: f64 = 10e9;

/// Calls the coordinator of this process. Cheap to clone.
#[derive(Clone)]
pub struct Cluster(Arc<Shared>);

struct Shared {
    service: InProcess,
    questions: Questions,
    ephemeral: Arc<Semaphore>,
    watched: Mutex<HashMap<String, Weak<watch::Sender<pb::ScanInfo>>>>,
}

impl Cluster {
    /// Over a coordinator's service and data root.
    pub fn new(service: InProcess, store: Store) -> Self {
        let limits = QuestionLimits { at_once: 2, threads: 1, work_ns_max: QUESTION_WORK_NS_MAX };
        Self(Arc::new(Shared {
            service,
            questions: Questions::new(store, limits),
            ephemeral: Arc::new(Semaphore::new(EPHEMERAL_MAX)),
            watched: Mutex::default(),
        }))
    }

    async fn info(&self, who: &Credentials, scan: &str) -> Result<pb::ScanInfo, Problem> {
        let request = pb::GetScanRequest { scan_id: scan.to_owned() };
        self.0.service.get_scan(who, request).await.map_err(|status| Problem::of_status(&status))
    }

    /// The state of a scan, read at intervals while anybody watches it. The caller has been shown that it may see the scan.
    fn watched(&self, who: Credentials, info: pb::ScanInfo) -> watch::Receiver<pb::ScanInfo> {
        let mut watched = self.0.watched.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(sender) = watched.get(&info.scan_id).and_then(Weak::upgrade) {
            return sender.subscribe();
        }
        watched.retain(|_, sender| sender.strong_count() > 0);
        let scan = info.scan_id.clone();
        let sender = Arc::new(watch::Sender::new(info));
        watched.insert(scan.clone(), Arc::downgrade(&sender));
        let receiver = sender.subscribe();
        let door = self.clone();
        tokio::spawn(async move {
            let mut interval = POLL_INTERVALS.0;
            loop {
                tokio::time::sleep(interval).await;
                interval = (interval * 2).min(POLL_INTERVALS.1);
                if sender.is_closed() || has_ended(&sender.borrow()) {
                    return;
                }
                match door.info(&who, &scan).await {
                    Ok(info) => {
                        sender.send_if_modified(|known| {
                            let changed = *known != info;
                            *known = info;
                            changed
                        });
                    }
                    // Nobody leads at present; a scan that is recorded is known again soon.
                    Err(problem) if problem.error.kind == Kind::Unavailable => {}
                    Err(_) => return,
                }
            }
        });
        receiver
    }
}

/// The request of a submission.
fn request_of(submission: Submission) -> Result<(pb::ScanRequest, Option<String>), Problem> {
    let Submission {
        asked,
        priority,
        deadline,
        ephemeral,
        allow_partial,
        fresh,
        profile,
        backend,
        shards,
        idempotency_key,
    } = submission;
    let document_json = asked.document.to_json();
    if document_json.len() > DOCUMENT_BYTES_MAX {
        let message = format!("the scan document has more than {DOCUMENT_BYTES_MAX} bytes");
        return Err(Problem::new(Kind::TooLarge, message));
    }
    let spec = match shards {
        ShardSpec::Automatic => None,
        ShardSpec::Count(count) => Some(pb::shard_spec::Spec::Count(count)),
        ShardSpec::PerSegment => Some(pb::shard_spec::Spec::PerSegment(true)),
    };
    let request = pb::ScanRequest {
        document_json,
        as_of: asked.as_of.to_string(),
        shards: Some(pb::ShardSpec { spec }),
        trace: trawl_wire::trace::context_of(&tracing::Span::current()),
        priority: pb::Priority::from(priority).into(),
        deadline_ms: deadline.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX).max(1)),
        ephemeral,
        idempotency_key: idempotency_key.unwrap_or_default(),
        allow_partial,
        backend: backend.unwrap_or_default().to_owned(),
        fresh,
        profile,
        ..pb::ScanRequest::default()
    };
    Ok((request, asked.text))
}

/// A refusal, with its mistakes placed in the text of the document.
fn problem_of(error: CallError, text: Option<&str>) -> Problem {
    match error {
        CallError::Mistakes(mistakes) => match drawn(mistakes) {
            mistake @ UserMistake::Drawn(_) => Problem::of_mistake(&placed(mistake, text)),
            mistake @ UserMistake::Plain { .. } => Problem::of_mistake(&mistake),
        },
        error => error.into(),
    }
}

fn unreadable(error: serde_json::Error) -> Problem {
    Problem::new(Kind::Internal, format!("the coordinator's reply cannot be read: {error}"))
}

#[tonic::async_trait]
impl Door for Cluster {
    fn mode(&self) -> &'static str {
        "coordinator"
    }

    async fn submit(&self, call: &Call, submission: Submission) -> Result<pb::ScanInfo, Problem> {
        let (request, text) = request_of(submission)?;
        let who = call.credentials();
        let scan = self.0.service.submit(&who, request).await.map_err(|error| problem_of(error, text.as_deref()))?;
        self.info(&who, &scan).await
    }

    async fn run_ephemeral(&self, call: &Call, submission: Submission) -> Result<Scanned, Problem> {
        let (request, text) = request_of(submission)?;
        let _permit = turn(&self.0.ephemeral, EPHEMERAL_WAIT).await?;
        let ran = self.0.service.run_ephemeral(&call.credentials(), request).await;
        ran.map_err(|error| problem_of(error, text.as_deref()))
    }

    async fn answer(&self, call: &Call, scan: &str) -> Result<Arc<Scanned>, Problem> {
        Ok(Arc::new(self.0.service.answer(&call.credentials(), scan).await?))
    }

    async fn status(&self, call: &Call, scan: &str) -> Result<pb::ScanInfo, Problem> {
        self.info(&call.credentials(), scan).await
    }

    async fn list(&self, call: &Call, wanted: pb::ListScansRequest) -> Result<Vec<pb::ScanInfo>, Problem> {
        let reply = self.0.service.list_scans(&call.credentials(), wanted).await;
        reply.map(|reply| reply.scans).map_err(|status| Problem::of_status(&status))
    }

    async fn cancel(&self, call: &Call, scan: &str) -> Result<pb::ScanInfo, Problem> {
        let request = pb::CancelRequest { scan_id: scan.to_owned() };
        self.0.service.cancel(&call.credentials(), request).await.map_err(|status| Problem::of_status(&status))
    }

    async fn watch(&self, call: &Call, scan: &str) -> Result<watch::Receiver<pb::ScanInfo>, Problem> {
        let who = call.credentials();
        let info = self.info(&who, scan).await?;
        Ok(self.watched(who, info))
    }

    async fn report(&self, call: &Call, scan: &str) -> Result<Value, Problem> {
        let request = pb::TraceRequest { scan_id: scan.to_owned() };
        let reply = self.0.service.trace(&call.credentials(), request).await;
        let reply = reply.map_err(|status| Problem::of_status(&status))?;
        if reply.report_json.is_empty() {
            let help = "it has one once it runs; the reports of scans that ended without an answer are not kept";
            return Err(Problem::new(Kind::Conflict, format!("scan {scan} has no report")).help(help));
        }
        serde_json::from_str(&reply.report_json).map_err(unreadable)
    }

    fn questions(&self) -> &Questions {
        &self.0.questions
    }

    async fn datasets(&self, call: &Call) -> Result<Vec<DatasetSummary>, Problem> {
        let reply = self.0.service.list_datasets(&call.credentials(), pb::ListDatasetsRequest {}).await;
        let reply = reply.map_err(|status| Problem::of_status(&status))?;
        serde_json::from_str(&reply.datasets_json).map_err(unreadable)
    }

    async fn inspect(&self, call: &Call, dataset: &str, symbol: Option<String>) -> Result<Inspected, Problem> {
        let symbol = symbol.unwrap_or_default();
        let request = pb::InspectDatasetRequest { dataset: dataset.to_owned(), symbol };
        let reply = self.0.service.inspect_dataset(&call.credentials(), request).await;
        let reply = reply.map_err(|status| Problem::of_status(&status))?;
        let found = serde_json::from_str(&reply.inspection_json).map_err(unreadable)?;
        Ok((found, serde_json::from_str(&reply.symbols_json).map_err(unreadable)?))
    }

    async fn workers(&self, call: &Call) -> Result<Vec<pb::WorkerInfo>, Problem> {
        let reply = self.0.service.list_workers(&call.credentials(), pb::ListWorkersRequest { all: true }).await;
        reply.map(|reply| reply.workers).map_err(|status| Problem::of_status(&status))
    }

    async fn coordinators(&self, call: &Call) -> Result<Vec<pb::CoordinatorInfo>, Problem> {
        let reply = self.0.service.list_coordinators(&call.credentials(), pb::ListCoordinatorsRequest {}).await;
        reply.map(|reply| reply.coordinators).map_err(|status| Problem::of_status(&status))
    }
}
