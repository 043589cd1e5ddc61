//! What all terms of a leader share.

use std::sync::Arc;
use std::time::Duration;

use trawl_cluster_store::ControlStore;
use trawl_market::Store;
use trawl_security::Connector;

use super::ScanLimits;
use super::data_care::DataCare;
use super::heartbeat::Heartbeat;
use super::scans::Spool;
use crate::durable::{ResultStore, RetentionPolicy};
use crate::scheduler::Limits;

/// State shared by all terms.
pub(crate) struct ClusterContext {
    pub store: Store,
    pub control: Arc<dyn ControlStore>,
    pub cluster_name: String,
    pub results: ResultStore,
    pub retention: RetentionPolicy,
    /// Connector to workers.
    pub connector: Connector,
    pub scans: ScanLimits,
    /// Where results go that do not fit into memory.
    pub spool: Spool,
    pub limits: Limits,
    /// The backend of scans whose user names none.
    pub default_backend: Option<String>,
    /// See [`super::CLASS_PATIENCE`].
    pub class_patience: Duration,
    pub start_timeout: Duration,
    /// What a leader does for its datasets.
    pub data_care: DataCare,
    /// Where the work of a leader shows its progress.
    pub heartbeat: Heartbeat,
}
