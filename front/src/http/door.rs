//! What a server can do for its callers, whatever runs the scans: the one facade behind the paths.

use std::time::Duration;

use serde_json::Value;
use tokio::sync::watch;
use tonic::codegen::http::HeaderValue;
use trawl_coordinator::ShardSpec;
use trawl_coordinator::client::Scanned;
use trawl_coordinator::server::in_process::Credentials;
use trawl_market::DatasetSummary;
use trawl_security::{Caller, Peer};
use trawl_terms::Priority;
use trawl_wire::pb;

use super::asked::Asked;
use super::problem::Problem;
use super::questions::{Inspected, Questions};

/// What [`Door::mode`] says of scans that run in this process.
pub const MODE_EMBEDDED: &str = "serve";

/// Who makes a request: known, and allowed to make it.
#[derive(Clone)]
pub struct Call {
    /// By the rules of access.
    pub caller: Caller,
    /// The other end of the connection.
    pub peer: Peer,
    /// The header with the token, for a call to be passed on.
    pub authorization: Option<HeaderValue>,
}

impl Call {
    /// For a call of the coordinator's service, whose guard decides again.
    pub fn credentials(&self) -> Credentials {
        Credentials { peer: self.peer.clone(), authorization: self.authorization.clone() }
    }
}

/// A scan to run, checked as far as that needs no dataset.
#[derive(Debug, Clone)]
pub struct Submission {
    /// What is scanned, and as of when.
    pub asked: Asked,
    /// Share of the workers' time.
    pub priority: Priority,
    /// How long it may take.
    pub deadline: Option<Duration>,
    /// Whether it ends with its request.
    pub ephemeral: bool,
    /// Whether symbols that fail for reasons other than their data are left out.
    pub allow_partial: bool,
    /// Whether known answers are not given again.
    pub fresh: bool,
    /// Whether the stages of every shard are traced.
    pub profile: bool,
    /// `cpu` or `cuda`.
    pub backend: Option<&'static str>,
    /// How the work is divided.
    pub shards: ShardSpec,
    /// The same caller, key and request are the same scan.
    pub idempotency_key: Option<String>,
}

/// What a server can do. Dropping a future ends what it waits for: an ephemeral scan, or the computing of a question.
#[tonic::async_trait]
pub trait Door: Send + Sync + 'static {
    /// [`MODE_EMBEDDED`] or `coordinator`.
    fn mode(&self) -> &'static str;

    /// Accepts a scan, checks it, and returns while it waits or runs.
    async fn submit(&self, call: &Call, submission: Submission) -> Result<pb::ScanInfo, Problem>;

    /// Runs a scan that ends with this call, if it is dropped.
    async fn run_ephemeral(&self, call: &Call, submission: Submission) -> Result<Scanned, Problem>;

    /// The answer of a scan that is done.
    async fn answer(&self, call: &Call, scan: &str) -> Result<std::sync::Arc<Scanned>, Problem>;

    /// One scan.
    async fn status(&self, call: &Call, scan: &str) -> Result<pb::ScanInfo, Problem>;

    /// The scans that the caller may see, newest first.
    async fn list(&self, call: &Call, wanted: pb::ListScansRequest) -> Result<Vec<pb::ScanInfo>, Problem>;

    /// Cancels a scan; one that has ended is left as it is.
    async fn cancel(&self, call: &Call, scan: &str) -> Result<pb::ScanInfo, Problem>;

    /// A scan's state whenever it changes; the sender goes away when nothing more is known of it.
    async fn watch(&self, call: &Call, scan: &str) -> Result<watch::Receiver<pb::ScanInfo>, Problem>;

    /// The report of a scan's run.
    async fn report(&self, call: &Call, scan: &str) -> Result<Value, Problem>;

    /// What answers questions about datasets of this process's data root.
    fn questions(&self) -> &Questions;

    /// The datasets that the caller may scan.
    async fn datasets(&self, call: &Call) -> Result<Vec<DatasetSummary>, Problem>;

    /// What one of them holds.
    async fn inspect(&self, call: &Call, dataset: &str, symbol: Option<String>) -> Result<Inspected, Problem>;

    /// The workers of the cluster.
    async fn workers(&self, call: &Call) -> Result<Vec<pb::WorkerInfo>, Problem>;

    /// The coordinators of the cluster.
    async fn coordinators(&self, call: &Call) -> Result<Vec<pb::CoordinatorInfo>, Problem>;
}

/// Whether a scan has ended.
pub fn has_ended(info: &pb::ScanInfo) -> bool {
    matches!(info.state(), pb::ScanState::Done | pb::ScanState::Failed | pb::ScanState::Cancelled)
}

/// Waits until a scan has ended; `None` after `wait`, or if nothing more is known of it.
pub async fn until_ended(mut watched: watch::Receiver<pb::ScanInfo>, wait: Duration) -> Option<pb::ScanInfo> {
    let ended = async { watched.wait_for(has_ended).await.ok().map(|info| info.clone()) };
    tokio::time::timeout(wait, ended).await.ok().flatten()
}
