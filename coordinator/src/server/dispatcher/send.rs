//! One dispatch: from the scheduler's command to the request that a worker gets.

use std::sync::Arc;

use trawl_wire::limits::PROTOCOL_VERSION;
use trawl_wire::pb;
use trawl_worker::StepKind;

use super::tracked::Launch;
use super::{News, Running, State};
use crate::report::RunPurpose;
use crate::scheduler::{AttemptId, Piece, Purpose, ScanId, WorkerId};
use crate::server::attempt::{self, Ticket};

/// Of so many shards, one has its stages in its trace although nothing is wrong with it: what is usual is seen beside what is slow.
const STAGES_OF_ONE_IN: AttemptId = 16;

fn has_stages(attempt: AttemptId) -> bool {
    attempt.is_multiple_of(STAGES_OF_ONE_IN)
}

impl State {
    pub(super) fn dispatch(
        &mut self,
        attempt: AttemptId,
        scan_id: ScanId,
        worker: WorkerId,
        pieces: Vec<Piece>,
        purpose: Purpose,
    ) {
        let Some(id) = self.workers.get(&worker).filter(|_| self.scans.contains_key(&scan_id)) else { return };
        let Some(registered) = self.registered.get(id) else { return };
        let segments: Vec<u32> = pieces.iter().map(|p| p.segment).collect();
        let purpose = RunPurpose::from(purpose);
        let (id, address) = (id.clone(), registered.record.address.clone());
        let launch = Launch {
            attempt,
            scan: scan_id,
            worker: &id,
            address: &address,
            segments: segments.clone(),
            pieces: pieces.len(),
            purpose,
        };
        let (tracked, queued) = self.track(launch);
        let (Some(scan), Some(registered)) = (self.scans.get(&scan_id), self.registered.get(&id)) else { return };
        let submission = &scan.submission;
        let prepared = &submission.prepared;
        let (slow_after, segments_run) = (tracked.slow_after(), segments.clone());
        let _ = submission.news.send(News::Started {
            attempt,
            worker: id.clone(),
            segments: segments_run,
            purpose,
            queued,
            slow_after,
        });
        let part = pieces.iter().find(|p| **p != prepared.whole(p.segment));
        let step = submission.passes.step();
        let request = pb::ShardRequest {
            // The worker's own version: it ignores fields that it does not know.
            protocol_version: registered.record.common_protocol().unwrap_or(PROTOCOL_VERSION),
            scan_id: submission.scan_name.clone(),
            attempt,
            document_json: String::new(),
            dataset: prepared.dataset_reference(),
            as_of_us: prepared.as_of,
            plan_fingerprint: prepared.identity.plan.clone(),
            execution_class: Some(prepared.class().into()),
            segments,
            // The attempt's own context; if traces are not exported, the incoming one is passed on.
            trace: tracked.context().or_else(|| submission.trace.clone()),
            stage: u32::try_from(step.stage).unwrap_or(u32::MAX),
            times_only: step.kind == StepKind::Times,
            // Made by the attempt's own task: it may be large.
            input: None,
            adjustment: prepared.identity.adjustment.clone(),
            part_first: part.map_or(0, |p| p.first),
            part_count: part.map_or(0, |p| p.count),
            epoch: self.epoch,
            generation: submission.generation,
            slow_after_ms: slow_after.map_or(0, |limit| u64::try_from(limit.as_millis()).unwrap_or(u64::MAX)),
            hedge: purpose == RunPurpose::Hedge,
            gathers: true,
            columns: true,
            stages: submission.profile || has_stages(attempt),
        };
        let ticket = Ticket { attempt, scan: scan_id, host: registered.host };
        let running = attempt::run(
            (registered.channel.clone(), Arc::clone(&registered.plans)),
            (request, Arc::clone(&submission.passes)),
            (ticket, pieces),
            (Arc::clone(prepared), step),
            (self.events.clone(), Arc::clone(&self.transit)),
        );
        let task = tokio::spawn(running).abort_handle();
        self.attempts.insert(attempt, Running { scan: scan_id, worker, task, tracked });
        if let Some(scan) = self.scans.get_mut(&scan_id) {
            scan.attempts.insert(attempt);
        }
    }
}
