//! A scan's events as earlier releases read them: rows as objects, and the digest of an answer over its rows.
//!
//! The log has columns and trees alone. What is made here is made for one reader, and not kept.

use std::collections::BTreeMap;
use std::sync::Arc;

use trawl_wire::pb::scan_event::Event;
use trawl_wire::{Columns, ErrorKind, Failure, SegmentResult, answer_digest, envelope, pb, segment_digest};

use super::memory::{DECODED_BYTES_PER_BYTE, ScanMemory};
use super::{Scan, failure};
use crate::merge::{FailedSegment, answer_of};
use crate::merge_spec::MergeSpec;

/// An event for a client that reads neither columns nor trees.
///
/// # Errors
/// The events cannot be read.
pub(crate) async fn as_before(scan: &Arc<Scan>, event: Arc<Event>, memory: &ScanMemory) -> Result<Arc<Event>, Failure> {
    match &*event {
        Event::SegmentDone(done) => Ok(Arc::new(Event::SegmentDone(with_rows(done)?))),
        Event::Summary(summary) if summary.tree => {
            let answer_digest = rows_digest(scan, summary.partial, memory).await?;
            Ok(Arc::new(Event::Summary(pb::Summary { answer_digest, tree: false, ..summary.clone() })))
        }
        _ => Ok(event),
    }
}

fn with_rows(done: &pb::SegmentDone) -> Result<pb::SegmentDone, Failure> {
    let result = envelope::read_checked(done.result.as_ref().unwrap_or(&pb::Envelope::default()), &done.digest)?;
    let result = result.into_v2()?;
    let (digest, result) = (segment_digest(&result).to_vec(), Some(envelope::encode(&result)?));
    Ok(pb::SegmentDone { digest, result, ..done.clone() })
}

/// The digest over the rows of an answer that is in a scan's log.
///
/// # Errors
/// The log cannot be read, or has no whole answer.
pub(super) async fn rows_digest(scan: &Arc<Scan>, partial: bool, memory: &ScanMemory) -> Result<String, Failure> {
    let bytes = (scan.log.answer_bytes() as u64).saturating_mul(1 + DECODED_BYTES_PER_BYTE as u64);
    let working = memory.work_on(bytes).await;
    let scan = Arc::clone(scan);
    let digesting = tokio::task::spawn_blocking(move || {
        let _working = working;
        digest_of_log(&scan, partial)
    });
    digesting
        .await
        .unwrap_or_else(|_| Err(failure(ErrorKind::Permanent, "internal error while an answer was digested")))
}

fn digest_of_log(scan: &Scan, partial: bool) -> Result<String, Failure> {
    let (mut spec, mut failures) = (None, Vec::new());
    let mut results: BTreeMap<u32, Columns> = BTreeMap::new();
    let wrong = |why: String| failure(ErrorKind::Permanent, why);
    scan.log.each(|event| {
        match event {
            Event::Accepted(header) => {
                spec = Some(MergeSpec::of_header(header, partial).map_err(|error| wrong(error.to_string()))?);
            }
            Event::SegmentDone(done) => {
                let envelope = done.result.as_ref().unwrap_or(&pb::Envelope::default()).clone();
                // Of two the later one counts.
                if let SegmentResult::Rows(columns) = envelope::read_checked(&envelope, &done.digest)? {
                    results.insert(done.segment, columns);
                }
            }
            Event::SegmentFailed(failed) => {
                let Failure { kind, message } = Failure::from(failed.failure.clone().unwrap_or_default());
                let (segment, symbols) = (failed.segment, failed.symbols.clone());
                failures.push(FailedSegment { segment, symbols, kind, message });
            }
            Event::Summary(_) | Event::Refused(_) => {}
        }
        Ok(())
    })?;
    let spec = spec.ok_or_else(|| wrong("the scan's events have no head".to_owned()))?;
    let answer = answer_of(&spec, &results, &failures)?;
    Ok(answer_digest(&answer))
}
