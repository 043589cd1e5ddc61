//! Reads the events of ended scans from the result store into their logs.

use std::sync::Arc;

use trawl_wire::{ErrorKind, Failure};

use super::environment::Environment;
use super::memory::MemoryPermit;
use super::outcome::Ended;
use super::prepare_scan::compiled;
use super::{Scan, failure, record};
use crate::prepare::PreparedScan;

/// Reads the events of an ended scan, if they are not in memory; whoever calls it holds `scan.loading`. `Some` if a part of them is not
/// stored any more.
///
/// # Errors
/// Why they cannot be read.
pub(super) async fn read_back(
    environment: &Environment,
    scan: &Arc<Scan>,
) -> Result<Option<(PreparedScan, MemoryPermit)>, Failure> {
    if !scan.log.is_unloaded() {
        return Ok(None);
    }
    let stored = environment.archive.results.stored_bytes(&scan.name, scan.generation()).await;
    let permit = environment.memory.load(stored.map_err(Failure::from)?).await;
    let snapshot = scan.info().dataset;
    let prepared = match compiled(environment, &environment.preparing, scan, Some(snapshot)).await {
        Ok(prepared) => prepared,
        Err(Ended::Failed(refused)) => return Err(Failure::from(refused.failure.unwrap_or_default())),
        Err(Ended::Over | Ended::OtherClass) => {
            return Err(Failure::new(ErrorKind::Retryable, "this coordinator leads no longer"));
        }
    };
    match record::reload(&environment.archive, scan, &prepared).await? {
        Some(events) => scan.log.load(events).await.map(|()| None),
        None => Ok(Some((prepared, permit))),
    }
}

/// Reads the events of an ended scan, if they are not in memory and all of them are stored.
///
/// # Errors
/// [`ErrorKind::Permanent`] if a part is not stored any more; why they cannot be read.
pub(super) async fn load_stored(environment: &Environment, scan: &Arc<Scan>) -> Result<(), Failure> {
    // In a task of its own: whoever waits for it may go away meanwhile, and must not leave a log that is half loaded.
    let (environment, scan) = (environment.clone(), Arc::clone(scan));
    let loading = tokio::spawn(async move {
        let _one_at_a_time = scan.loading.lock().await;
        let lacking = read_back(&environment, &scan).await?;
        environment.scans.relieve();
        match lacking {
            None => Ok(()),
            Some(_) => Err(failure(ErrorKind::Permanent, "a part of the answer is not stored any more")),
        }
    });
    loading.await.unwrap_or_else(|_| Err(failure(ErrorKind::Permanent, "internal error while an answer was read")))
}
