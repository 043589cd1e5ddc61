//! Answers that are given again: a scan of the same identity gets the answer of an earlier one of this term.
//!
//! Only of scans that ended complete, without a failed segment and without a dispute. As soon as a worker's results turn out to be wrong,
//! all earlier answers are computed again when they are asked for. The results are copied into the scan's own log and store, so that
//! it does not depend on how long the earlier one is kept.

use std::sync::Arc;

use trawl_telemetry::metrics::catalogue::coordinator::ANSWERS_REUSED;
use trawl_wire::pb::scan_event::Event;
use trawl_wire::{ErrorKind, Failure, envelope, pb};

use super::environment::{Environment, cancelled, late, until};
use super::known_answers::key_of;
use super::log::Cursor;
use super::outcome::{Answered, Ended};
use super::read_back::load_stored;
use super::record::{Accepting, Recorder, accepted};
use super::running::RunningScan;
use super::{Scan, failure};
use crate::prepare::PreparedScan;

/// Gives a scan the answer of an earlier one with the same identity. `None` if there is none that can be given: it has to be computed.
/// Nobody may have read its log yet.
pub(super) async fn answer_again(
    environment: &Environment,
    scan: &Arc<Scan>,
    prepared: &PreparedScan,
    accepting: &mut Accepting,
) -> Result<Option<Answered>, Ended> {
    let (head, doubts) = (accepted(scan, prepared), environment.dispatcher.doubts());
    let Some(earlier) = environment.scans.answer(&key_of(&head), doubts) else { return Ok(None) };
    let copied = tokio::select! {
        copied = copy(environment, scan, prepared, head, &earlier) => copied,
        () = scan.until_cancelled() => Err(cancelled()),
        () = until(scan.deadline()) => Err(late(scan)),
    };
    let mut running = match copied {
        Ok(running) => running,
        Err(failure) if matches!(failure.kind, ErrorKind::Cancelled | ErrorKind::DeadlineExceeded) => {
            // Otherwise it would begin again when the commit arrives.
            accepting.done(scan).await?;
            return Err(failure.into());
        }
        Err(failure) => {
            let (scan_name, earlier) = (&scan.name, &earlier.name);
            tracing::warn!(scan = scan_name, earlier, %failure, "an answer cannot be given again: it is computed");
            scan.log.restart(scan.generation());
            return Ok(None);
        }
    };
    accepting.done(scan).await?;
    scan.accepted();
    ANSWERS_REUSED.inc();
    tokio::select! {
        answered = running.answer(doubts) => Ok(Some(answered?)),
        () = scan.until_cancelled() => Err(cancelled().into()),
        () = until(scan.deadline()) => Err(late(scan).into()),
    }
}

/// Copies the results of an earlier scan, each checked like one from a worker.
async fn copy(
    environment: &Environment,
    scan: &Arc<Scan>,
    prepared: &PreparedScan,
    head: pb::Accepted,
    earlier: &Arc<Scan>,
) -> Result<RunningScan, Failure> {
    let _reading = earlier.log.reading();
    load_stored(environment, earlier).await?;
    let recorder = scan.asked.durable.then(|| Recorder::new(&environment.archive, scan, None));
    let budgets = (scan.asked.received.elapsed(), &environment.memory);
    scan.log.push(Event::Accepted(head.clone()));
    let mut running = RunningScan::new(Arc::clone(scan), Arc::new(prepared.clone()), head, recorder, budgets);
    running.begin_last().await?;
    {
        let mut report = scan.report();
        // A caller sees the ids of its own scans alone.
        report.answer_of =
            if earlier.owner == scan.owner { earlier.name.clone() } else { "of another caller".to_owned() };
        (report.turn_ms, report.shards) = (0.0, 0);
    }
    let mut cursor = Cursor::default();
    let left = |status: tonic::Status| failure(ErrorKind::Retryable, status.message().to_owned());
    while let Some(read) = earlier.log.next(&mut cursor).await.map_err(left)? {
        let Event::SegmentDone(done) = &*read.event else { continue };
        let envelope = done.result.clone().unwrap_or_default();
        let result = envelope::read_checked(&envelope, &done.digest).map_err(Failure::from)?;
        if result.segment() != done.segment {
            return Err(failure(ErrorKind::Permanent, format!("segment {} is not what it was", done.segment)));
        }
        running.keep(result).await?;
    }
    match running.missing().len() {
        0 => Ok(running),
        missing => Err(failure(ErrorKind::Permanent, format!("{missing} segments of it are not there"))),
    }
}
