//! The answers of scans that have ended, from the result store; what is lost of them is computed again.

use std::sync::Arc;
use std::time::Duration;

use trawl_wire::pb::scan_event::Event;
use trawl_wire::{ErrorKind, Failure, pb};

use super::earlier::rows_digest;
use super::environment::Environment;
use super::memory::MemoryPermit;
use super::outcome::{Answered, Ended};
use super::read_back::read_back;
use super::record::{self, Accepting, accepted};
use super::run_scan::steps;
use super::{Scan, failure};
use crate::prepare::PreparedScan;
use crate::report::RunReport;

/// The report of a scan's run so far, or of the whole run, as JSON; empty if there is none.
///
/// # Errors
/// Why it cannot be read.
pub(crate) async fn report_of(environment: &Environment, scan: &Arc<Scan>) -> Result<String, Failure> {
    // The report of a finished scan is stored beside the answer, which need not be read for it.
    if scan.log.is_unloaded() {
        return record::stored_report(&environment.archive, scan).await;
    }
    Ok(scan.report_json().unwrap_or_default())
}

/// Reads the events of an ended scan from the result store, if they are not in memory.
///
/// # Errors
/// Why they cannot be read.
pub(crate) async fn load(environment: &Environment, scan: &Arc<Scan>) -> Result<(), Failure> {
    if !scan.has_ended() {
        return Ok(());
    }
    // In a task of its own: a client that goes away meanwhile must not leave a log that is half loaded.
    let (environment, scan) = (environment.clone(), Arc::clone(scan));
    let loading = tokio::spawn(async move { load_to_end(&environment, &scan).await });
    loading.await.unwrap_or_else(|_| Err(failure(ErrorKind::Permanent, "internal error while an answer was read")))
}

async fn load_to_end(environment: &Environment, scan: &Arc<Scan>) -> Result<(), Failure> {
    let _one_at_a_time = scan.loading.lock().await;
    if let Some((prepared, permit)) = read_back(environment, scan).await? {
        compute_again(environment, scan, prepared, permit).await?;
    }
    environment.scans.relieve();
    Ok(())
}

/// Computes what is not stored any more of an answer, and stores it again: results are pure, so that it is the same answer.
///
/// # Errors
/// Why it cannot be computed; [`ErrorKind::Permanent`] if it is another answer than the one that was given.
async fn compute_again(
    environment: &Environment,
    scan: &Arc<Scan>,
    prepared: PreparedScan,
    permit: MemoryPermit,
) -> Result<(), Failure> {
    let before = scan.stand().clone();
    tracing::warn!(scan = scan.name, "a part of this scan's answer is not stored any more: it is computed again");
    let stored = record::stored_steps(&environment.archive, scan, permit).await?;
    scan.log.reopen();
    scan.log.push(Event::Accepted(accepted(scan, &prepared)));
    let computed = steps(environment, scan, Arc::new(prepared), &mut Accepting::none(), (stored, Duration::ZERO)).await;
    let summary = match computed {
        Ok(Answered { summary, .. }) if summary.answer_digest == before.answer_digest => Ok(summary),
        Ok(Answered { summary, .. }) => as_recorded(environment, scan, summary, &before.answer_digest).await,
        Err(Ended::Failed(refused)) => Err(Failure::from(refused.failure.unwrap_or_default())),
        Err(Ended::Over | Ended::OtherClass) => {
            let message = "a part of the answer is not stored any more, and cannot be computed again at present";
            Err(failure(ErrorKind::Retryable, message))
        }
    };
    // It ended when it did, with what it had.
    *scan.stand() = before;
    *scan.report() = RunReport::default();
    match summary {
        Ok(summary) => {
            scan.log.show();
            scan.log.close(Event::Summary(summary));
            Ok(())
        }
        Err(failure) => {
            scan.log.restart(scan.generation());
            scan.log.put_away();
            Err(failure)
        }
    }
}

/// The summary of an answer that was recorded with a digest over its rows, by an earlier build.
///
/// # Errors
/// [`ErrorKind::Permanent`] if it is another answer.
async fn as_recorded(
    environment: &Environment,
    scan: &Arc<Scan>,
    summary: pb::Summary,
    recorded: &str,
) -> Result<pb::Summary, Failure> {
    let answer_digest = rows_digest(scan, summary.partial, &environment.memory).await?;
    if answer_digest == recorded {
        return Ok(pb::Summary { answer_digest, tree: false, ..summary });
    }
    let message = "a part of the answer is not stored any more, and what is computed now differs from it";
    Err(failure(ErrorKind::Permanent, message))
}
