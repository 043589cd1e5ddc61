//! The events of a scan received so far, and the answer made from them.

use std::collections::BTreeMap;
use std::time::Instant;

use trawl_plan::Diagnostic;
use trawl_wire::limits::PROTOCOL_VERSION;
use trawl_wire::{Failure, Identity, SegmentResultV2, envelope, pb, segment_digest};

use super::{ClientError, Scanned};
use crate::merge::{FailedSegment, Placed};
use crate::merge_spec::MergeSpec;
use crate::report::{Progress, RunReport, ms_since};

/// Events received so far.
#[derive(Debug, Default)]
pub(super) struct Gathered {
    header: Option<pb::Accepted>,
    results: BTreeMap<u32, SegmentResultV2>,
    failures: BTreeMap<u32, FailedSegment>,
    /// Merged as soon as every segment has a result, concurrently with the coordinator; discarded when another result
    /// arrives. With the duration of the merge in milliseconds.
    early: Option<(Placed, f64)>,
}

pub(super) fn wrong(what: impl Into<String>) -> ClientError {
    ClientError::Protocol(what.into())
}

impl Gathered {
    /// The header of the scan, once it is accepted.
    pub fn header(&self) -> Option<&pb::Accepted> {
        self.header.as_ref()
    }

    /// The request that resumes the stream of an accepted scan.
    pub fn rest(&self) -> Option<pb::WatchRequest> {
        let header = self.header.as_ref()?;
        Some(pb::WatchRequest {
            protocol_version: PROTOCOL_VERSION,
            scan_id: header.scan_id.clone(),
            generation: header.generation,
            have: self.results.keys().copied().collect(),
            gathers: true,
        })
    }

    /// Takes a message of events; returns the answer if it was the last one.
    pub fn take(&mut self, mut event: pb::ScanEvent, progress: &dyn Progress) -> Result<Option<Scanned>, ClientError> {
        let more = std::mem::take(&mut event.more);
        for event in std::iter::once(event).chain(more) {
            if let Some(scanned) = self.take_one(event, progress)? {
                return Ok(Some(scanned));
            }
        }
        Ok(None)
    }

    fn take_one(&mut self, event: pb::ScanEvent, progress: &dyn Progress) -> Result<Option<Scanned>, ClientError> {
        use pb::scan_event::Event;
        if !matches!(event.event, Some(Event::Summary(_)) | None) {
            self.early = None;
        }
        match event.event {
            Some(Event::Accepted(header)) => {
                if self.header.as_ref().is_some_and(|known| known.generation == header.generation) {
                    // The header is sent again on every reconnection.
                    return Ok(None);
                }
                // Restarted, perhaps by another build: discard earlier results.
                self.results.clear();
                self.failures.clear();
                progress.accepted(header.segments as usize, header.symbols as usize);
                self.header = Some(header);
            }
            Some(Event::SegmentDone(done)) => {
                let result = done.result.as_ref().ok_or_else(|| wrong("a segment without a result"))?;
                let result = envelope::decode(result).map_err(|e| wrong(e.to_string()))?;
                if result.segment != done.segment || segment_digest(&result)[..] != done.digest[..] {
                    return Err(wrong(format!("the result of segment {} is not what was computed", done.segment)));
                }
                // A duplicate is the same bytes: the digest was checked.
                if done.replaces || !self.results.contains_key(&done.segment) {
                    self.results.insert(done.segment, result);
                }
                progress.segment_ended(done.segment, self.ended());
                if self.header.as_ref().is_some_and(|header| self.results.len() == header.segments as usize) {
                    let started = Instant::now();
                    let placed = Placed::of(&self.spec(false)?, &self.results, &[]);
                    self.early = Some((placed, ms_since(started)));
                }
            }
            Some(Event::SegmentFailed(failed)) => {
                let failure = Failure::from(failed.failure.unwrap_or_default());
                progress.segment_failed(failed.segment, failure.kind, &failure.message);
                let (segment, symbols) = (failed.segment, failed.symbols);
                let failure = FailedSegment { segment, symbols, kind: failure.kind, message: failure.message };
                self.failures.insert(segment, failure);
                progress.segment_ended(segment, self.ended());
            }
            Some(Event::Summary(summary)) => return self.finish(&summary).map(Some),
            Some(Event::Refused(refused)) => {
                let failure = Failure::from(refused.failure.unwrap_or_default());
                let mistakes: Vec<Diagnostic> = serde_json::from_str(&refused.diagnostics_json).unwrap_or_default();
                return Err(if mistakes.is_empty() {
                    ClientError::Refused(failure)
                } else {
                    ClientError::Mistakes(mistakes)
                });
            }
            // An event of a newer coordinator; the digest check shows whether it mattered.
            None => {}
        }
        Ok(None)
    }

    fn ended(&self) -> usize {
        self.results.len() + self.failures.len()
    }

    /// The merge specification, from the header.
    fn spec(&self, partial: bool) -> Result<MergeSpec, ClientError> {
        let header = self.header.as_ref().ok_or_else(|| wrong("a segment or the summary before the header"))?;
        let mut identity: Identity =
            serde_json::from_str(&header.identity_json).map_err(|e| wrong(format!("the identity: {e}")))?;
        identity.partial = partial;
        let points = serde_json::from_str(&header.points_json).map_err(|e| wrong(format!("the sweep: {e}")))?;
        Ok(MergeSpec {
            identity,
            select: header.select.clone(),
            points,
            best: header.best,
            descending: header.rank_descending.clone(),
            limit: header.limit,
        })
    }

    fn finish(&mut self, summary: &pb::Summary) -> Result<Scanned, ClientError> {
        let spec = self.spec(summary.partial)?;
        let header = self.header.take().ok_or_else(|| wrong("the summary before the header"))?;
        if self.ended() != header.segments as usize {
            return Err(wrong(format!("{} of {} segments", self.ended(), header.segments)));
        }
        let mut report: RunReport =
            serde_json::from_str(&summary.report_json).map_err(|e| wrong(format!("the report: {e}")))?;
        let started = Instant::now();
        let results = std::mem::take(&mut self.results);
        let failures: Vec<FailedSegment> = std::mem::take(&mut self.failures).into_values().collect();
        let (placed, before_ms) = match self.early.take() {
            Some(early) if failures.is_empty() && !summary.partial => early,
            _ => (Placed::of(&spec, &results, &failures), 0.0),
        };
        if placed.digest != summary.answer_digest {
            let (theirs, ours) = (&summary.answer_digest, &placed.digest);
            return Err(wrong(format!("its answer's digest is {theirs}, the one of what it sent is {ours}")));
        }
        let answer = placed.into_answer(&spec, results, &failures);
        report.merge_ms = before_ms + ms_since(started);
        Ok(Scanned { answer, report, synthetic: header.synthetic, timeframe: header.timeframe })
    }
}
