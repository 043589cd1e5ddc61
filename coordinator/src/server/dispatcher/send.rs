//! One dispatch: from the scheduler's command to the request that a worker gets.

use std::sync::Arc;

use trawl_protocol::limits::PROTOCOL_VERSION;
use trawl_protocol::{ErrorKind, Failure, envelope, pb};
use trawl_worker::StepKind;

use super::{News, Running, State};
use crate::scheduler::{AttemptId, Piece, Purpose, ScanId, WorkerId};
use crate::server::attempt::{self, Ending, Said, Ticket};

impl State {
    pub(super) fn dispatch(
        &mut self,
        attempt: AttemptId,
        scan_id: ScanId,
        worker: WorkerId,
        pieces: Vec<Piece>,
        purpose: Purpose,
    ) {
        let (Some(scan), Some(id)) = (self.scans.get(&scan_id), self.workers.get(&worker)) else { return };
        let Some(registered) = self.registered.get(id) else { return };
        let submission = &scan.submission;
        let prepared = &submission.prepared;
        let segments: Vec<u32> = pieces.iter().map(|p| p.segment).collect();
        let purpose = purpose.into();
        let started = News::Started { attempt, worker: id.clone(), segments: segments.clone(), purpose };
        let _ = submission.news.send(started);
        let part = pieces.iter().find(|p| **p != prepared.whole(p.segment));
        let step = submission.passes.step();
        // Only what these segments read: a shard never carries the whole market's tables.
        let input = match envelope::encode_input(&submission.passes.input(&segments)) {
            Ok(input) => input,
            Err(error) => {
                let message = format!("the cross-sections of a shard cannot be sent: {error}; ask for more shards");
                let ending = Ending::Refused(Failure::new(ErrorKind::Permanent, message));
                let said = self.said.clone();
                let task = tokio::spawn(async move {
                    let _ = said.send(Said::End { attempt, ending }).await;
                });
                let task = task.abort_handle();
                self.attempts.insert(attempt, Running { scan: scan_id, worker, task });
                return;
            }
        };
        let request = pb::ShardRequest {
            // In its own words: the fields that it does not know say nothing to it.
            protocol_version: registered.record.protocol_version.min(PROTOCOL_VERSION),
            scan_id: submission.scan_name.clone(),
            attempt,
            document_json: prepared.document.to_json(),
            dataset: prepared.dataset_reference(),
            as_of_us: prepared.as_of,
            plan_fingerprint: prepared.identity.plan.clone(),
            execution_class: Some(prepared.class().into()),
            segments,
            trace: submission.trace.clone(),
            stage: u32::try_from(step.stage).unwrap_or(u32::MAX),
            times_only: step.kind == StepKind::Times,
            input: Some(input),
            adjustment: prepared.identity.adjustment.clone(),
            part_first: part.map_or(0, |p| p.first),
            part_count: part.map_or(0, |p| p.count),
            epoch: self.epoch,
            generation: submission.generation,
        };
        let ticket = Ticket { attempt, scan: scan_id, host: registered.host };
        let running = attempt::run(
            registered.channel.clone(),
            request,
            (ticket, pieces),
            (Arc::clone(prepared), step),
            self.said.clone(),
        );
        let task = tokio::spawn(running).abort_handle();
        self.attempts.insert(attempt, Running { scan: scan_id, worker, task });
    }
}
