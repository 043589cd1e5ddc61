//! What the scans of one term share, and how they are interrupted.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{Semaphore, watch};
use trawl_market::Store;
use trawl_wire::{ErrorKind, Failure};

use super::record::Archive;
use super::{Admission, Scan, ScanMemory, Scans};
use crate::durable::Pins;
use crate::local::seconds;
use crate::server::dispatcher::Dispatcher;

/// State shared by the scans of one term.
#[derive(Clone)]
pub(crate) struct Environment {
    pub store: Store,
    pub dispatcher: Dispatcher,
    pub scans: Arc<Scans>,
    pub gate: Admission,
    pub memory: ScanMemory,
    pub archive: Archive,
    pub pins: Pins,
    /// Limits concurrent compilations of plans.
    pub preparing: Arc<Semaphore>,
    /// The same for taken-over scans that wait, so that they do not delay new ones.
    pub resuming: Arc<Semaphore>,
    /// How many of the earlier recorded scans have been read.
    pub taken_over: watch::Receiver<TakenOver>,
    pub no_worker_timeout_ms: u64,
    /// The backend of scans whose user names none; the class with the most capacity when `None`.
    pub default_backend: Option<String>,
    /// How long the class of a recorded scan may be without workers while those of another could run it.
    pub class_patience: Duration,
    /// Set once, when the term is over: no more events, records or dispatches.
    pub over: watch::Receiver<bool>,
}

/// How far a new leader has read the records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum TakenOver {
    Nothing,
    /// Open scans have been read.
    Open,
    /// Ended scans have been read as well.
    All,
}

/// Completes at the deadline, if there is one.
pub(super) async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(at) => tokio::time::sleep_until(at.into()).await,
        None => std::future::pending().await,
    }
}

/// The failure of a scan whose deadline has passed.
pub(super) fn late(scan: &Scan) -> Failure {
    let message = format!("the scan was not done within {}", seconds(scan.asked.allowed.unwrap_or_default()));
    Failure::new(ErrorKind::DeadlineExceeded, message)
}

/// The failure of a scan that was cancelled.
pub(super) fn cancelled() -> Failure {
    Failure::new(ErrorKind::Cancelled, "the scan was cancelled")
}
