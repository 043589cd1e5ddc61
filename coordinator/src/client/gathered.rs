//! The events of a scan received so far, and the answer made from them.

use std::collections::BTreeMap;
use std::time::Instant;

use trawl_plan::{Diagnostic, ScanDocument};
use trawl_wire::limits::PROTOCOL_VERSION;
use trawl_wire::{Answer, Columns, Failure, SegmentResult, answer_digest, envelope, pb};

use super::{ClientError, Scanned};
use crate::merge::{FailedSegment, answer_of};
use crate::merge_spec::MergeSpec;
use crate::report::{Progress, RunReport, ms_since};

/// Events received so far.
#[derive(Debug, Default)]
pub(crate) struct Gathered {
    header: Option<pb::Accepted>,
    results: BTreeMap<u32, Columns>,
    failures: BTreeMap<u32, FailedSegment>,
    /// Merged as soon as every segment has a result, concurrently with the coordinator; discarded when another result
    /// arrives. With the duration of the merge in milliseconds.
    early: Option<(Answer, f64)>,
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
            columns: true,
            kinds: true,
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
                let of =
                    |what: &dyn std::fmt::Display| wrong(format!("the result of segment {}: {what}", done.segment));
                let result = match envelope::read_checked(result, &done.digest).map_err(|error| of(&error))? {
                    SegmentResult::Rows(columns) if columns.segment() == done.segment => columns,
                    SegmentResult::Rows(columns) => return Err(of(&format!("it is segment {}'s", columns.segment()))),
                    SegmentResult::Step(_) => return Err(of(&"it has no rows")),
                };
                // A duplicate is the same bytes: the digest was checked.
                if done.replaces || !self.results.contains_key(&done.segment) {
                    self.results.insert(done.segment, result);
                }
                // A failure is sent before it is stored, so the next leader may compute what the last one gave up.
                self.failures.remove(&done.segment);
                progress.segment_ended(done.segment, self.ended());
                if self.header.as_ref().is_some_and(|header| self.results.len() == header.segments as usize) {
                    let started = Instant::now();
                    let answer = answer_of(&self.spec(false)?, &self.results, &[]).map_err(|e| wrong(e.to_string()))?;
                    self.early = Some((answer, ms_since(started)));
                }
            }
            Some(Event::SegmentFailed(failed)) => {
                let failure = Failure::from(failed.failure.unwrap_or_default());
                progress.segment_failed(failed.segment, failure.kind, &failure.message);
                let (segment, symbols) = (failed.segment, failed.symbols);
                let failure = FailedSegment { segment, symbols, kind: failure.kind, message: failure.message };
                // As in the coordinator, a result takes precedence over a failure of the same segment.
                if !self.results.contains_key(&segment) {
                    self.failures.insert(segment, failure);
                }
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
        MergeSpec::of_header(header, partial).map_err(|error| wrong(format!("the head: {error}")))
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
        let of = |error: trawl_wire::EnvelopeError| wrong(error.to_string());
        let (mut answer, before_ms) = match self.early.take() {
            Some(early) if failures.is_empty() && !summary.partial => early,
            _ => (answer_of(&spec, &results, &failures).map_err(of)?, 0.0),
        };
        if !summary.tree {
            // Of a coordinator or of a time before there were trees.
            answer.digest = answer_digest(&answer);
        }
        if answer.digest != summary.answer_digest {
            let (theirs, ours) = (&summary.answer_digest, &answer.digest);
            return Err(wrong(format!("its answer's digest is {theirs}, the one of what it sent is {ours}")));
        }
        report.merge_ms = before_ms + ms_since(started);
        // Only shown, so a text that cannot be read is no reason to refuse the answer.
        let document = ScanDocument::from_json(&header.document_json).ok();
        Ok(Scanned { answer, report, synthetic: header.synthetic, timeframe: header.timeframe, document })
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use pb::scan_event::Event;
    use prost::Message as _;

    use super::*;
    use crate::durable::{Named, Outcome, ResultStore};
    use crate::report::NoProgress;

    fn event(event: Event) -> pb::ScanEvent {
        pb::ScanEvent { event: Some(event), more: Vec::new() }
    }

    /// The header and the summary of a scan that a build before there were columns stored, as they are sent to a client
    /// today, and its segments.
    async fn stored() -> (pb::Accepted, pb::Summary, Vec<(u32, pb::Envelope, Vec<u8>)>) {
        let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/golden/formats/191540fa/results");
        let (store, scan) = (ResultStore::directory(&root).unwrap(), "3103b066d4790b00-1");
        let named = async |named| store.named(scan, named).await.unwrap().unwrap();
        let accepted = pb::Accepted::decode(&named(Named::Accepted(0)).await[..]).unwrap();
        let summary = pb::Summary::decode(&named(Named::Summary(0)).await[..]).unwrap();
        let stages = store.contents(scan, 0).await.unwrap().stages;
        let segments = stages[&0].segments.iter().map(|(segment, outcome)| {
            let Outcome::Result { envelope, digest } = outcome else { panic!("{outcome:?}") };
            (*segment, envelope.clone(), digest.to_vec())
        });
        let segments = segments.collect();
        (accepted, summary, segments)
    }

    fn done(segment: u32, envelope: &pb::Envelope, digest: &[u8]) -> pb::ScanEvent {
        let (result, digest) = (Some(envelope.clone()), digest.to_vec());
        event(Event::SegmentDone(pb::SegmentDone { segment, result, digest, replaces: false, generation: 0 }))
    }

    #[tokio::test]
    async fn an_answer_that_an_earlier_build_stored_is_read_and_its_digest_is_checked() {
        let (accepted, summary, segments) = stored().await;
        assert!(!summary.tree);
        let mut gathered = Gathered::default();
        assert!(gathered.take(event(Event::Accepted(accepted)), &NoProgress).unwrap().is_none());
        for (segment, envelope, digest) in &segments {
            assert_eq!(envelope.version, envelope::SEGMENT_RESULT_V2);
            let error = gathered.take(done(*segment, envelope, &[0; 32]), &NoProgress).unwrap_err().to_string();
            assert!(error.contains(&format!("segment {segment}")) && error.contains("digest"), "{error}");
            assert!(gathered.take(done(*segment, envelope, digest), &NoProgress).unwrap().is_none());
        }
        let scanned = gathered.take(event(Event::Summary(summary.clone())), &NoProgress).unwrap().unwrap();
        assert_eq!(scanned.answer.digest, summary.answer_digest);
        let rows: Vec<_> = scanned.answer.rows.iter().map(|row| (row.place, row.row.symbol.as_str())).collect();
        assert_eq!(rows, [(Some(1), "BBB"), (None, "CCC"), (None, "AAA")]);
    }

    #[tokio::test]
    async fn a_segment_that_failed_at_one_leader_and_has_a_result_at_the_next_counts_once() {
        let (accepted, summary, segments) = stored().await;
        let failed = |segment: u32| event(Event::SegmentFailed(pb::SegmentFailed { segment, ..Default::default() }));
        // A late failure of the last leader is no more than an early one.
        for is_late in [false, true] {
            let mut gathered = Gathered::default();
            // The header is sent again on every reconnection.
            for header in [&accepted, &accepted] {
                assert!(gathered.take(event(Event::Accepted(header.clone())), &NoProgress).unwrap().is_none());
                if !is_late {
                    assert!(gathered.take(failed(segments[0].0), &NoProgress).unwrap().is_none());
                    assert!(gathered.rest().unwrap().have.is_empty(), "its result is still asked for");
                }
            }
            for (segment, envelope, digest) in &segments {
                assert!(gathered.take(done(*segment, envelope, digest), &NoProgress).unwrap().is_none());
            }
            if is_late {
                assert!(gathered.take(failed(segments[0].0), &NoProgress).unwrap().is_none());
            }
            assert_eq!((gathered.ended(), gathered.failures.len()), (segments.len(), 0));
            let scanned = gathered.take(event(Event::Summary(summary.clone())), &NoProgress).unwrap().unwrap();
            assert_eq!(scanned.answer.digest, summary.answer_digest);
        }
    }
}
