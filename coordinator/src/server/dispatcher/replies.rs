//! What comes back from workers: replies for pieces, and the ends of attempts.

use std::sync::atomic::Ordering;
use std::time::Instant;

use trawl_wire::ErrorKind;
use trawl_wire::error::over_in;

use super::{News, State};
use crate::report::SegmentRun;
use crate::scheduler::{AttemptId, Event, Piece, ScanId};
use crate::server::attempt::{AttemptEvent, Ending, Fault, Found, PieceReply, Ticket};
use crate::worker_class::counter_of;

impl State {
    pub(super) fn hear(&mut self, event: AttemptEvent) {
        match event {
            AttemptEvent::Pieces { ticket, replies } => {
                self.note_reply(ticket.attempt);
                replies.into_iter().for_each(|reply| self.hear_piece(ticket, reply));
                let now_ms = self.now_ms();
                let commands = self.scheduler.assign(now_ms);
                self.execute(commands);
            }
            AttemptEvent::Paused { attempt } => self.step(Event::AttemptPaused { attempt }),
            AttemptEvent::End { attempt, ending } => {
                let Some(mut running) = self.take_attempt(attempt) else { return };
                self.meter.over(attempt, &ending);
                let text = match &ending {
                    Ending::Done => "done".to_owned(),
                    Ending::Refused(failure) => format!("refused: {failure}"),
                    Ending::Broken(why) => format!("broken: {why}"),
                };
                self.track_loss(attempt, running.scan, &mut running.tracked, &text);
                self.send_news(running.scan, News::Over { attempt, ending: text });
                if let Ending::Refused(failure) = &ending {
                    if let Some(epoch) = over_in(&failure.message) {
                        self.heartbeat.succeed(epoch);
                    }
                    tracing::warn!(attempt, %failure, "a worker refused a shard");
                }
                // Put back for `lose`, which searches for affected scans.
                let id = self.workers.get(&running.worker).cloned();
                if let (Ending::Broken(why), Some(id)) = (&ending, &id) {
                    self.attempts.insert(attempt, running);
                    self.lose(id, why);
                    self.ping(id);
                } else {
                    self.step(Event::AttemptEnded { attempt });
                }
                if let Some(id) = id {
                    self.part(&id);
                }
            }
        }
    }

    /// Hears the reply for one piece of several; free workers are given work after the last.
    fn hear_piece(&mut self, Ticket { attempt, scan, host }: Ticket, reply: PieceReply) {
        let PieceReply { piece, outcome, timings, cache } = reply;
        let worker = self.attempts.get(attempt).map(|running| running.worker);
        self.track_reply((attempt, scan), piece, outcome.as_ref().err().map(Fault::failure), timings);
        match outcome {
            Ok(found) => {
                let digest = found.digest;
                self.held = Some((attempt, found));
                self.note_event(Event::PieceDone { scan, attempt, host, piece, digest });
                self.held = None;
            }
            Err(fault) => {
                let failure = fault.failure();
                if failure.kind == ErrorKind::Damaged {
                    self.log_damage(attempt, scan, piece, failure);
                } else if failure.kind == ErrorKind::Retryable {
                    self.log_failed(attempt, scan, piece, failure);
                }
                if let Some(scan) = self.scans.get_mut(&scan) {
                    let name = worker.and_then(|worker| self.workers.get(&worker)).cloned().unwrap_or_default();
                    scan.messages.insert(piece, (name, failure.message.clone()));
                }
                let kind = failure.kind;
                self.note_event(match fault {
                    Fault::Failed(_) => Event::PieceFailed { attempt, piece, kind },
                    Fault::Malformed(_) => Event::PieceMalformed { attempt, piece },
                });
            }
        }
        // After the result, whose load shows what it costs not to hold these bars.
        if let (Some(worker), Some(report)) = (worker.and_then(|worker| self.workers.get(&worker)), cache)
            && let Some(worker) = self.registered.get_mut(worker)
            && worker.note_report(*report)
        {
            self.roster.held_changed();
        }
    }

    /// Notes that a worker is alive.
    fn note_reply(&mut self, attempt: AttemptId) {
        let worker = self.attempts.get(attempt).and_then(|running| self.workers.get(&running.worker));
        if let Some(worker) = worker.and_then(|id| self.registered.get_mut(id)) {
            worker.heard = Instant::now();
        }
    }

    /// Takes the result that is held, which the scheduler has accepted.
    pub(super) fn accept(&mut self, scan: ScanId, piece: Piece, replaces: bool) {
        let Some((attempt, found)) = self.held.take() else { return };
        let Found { result, digest, envelope, timings, transit } = *found;
        let worker = self.attempts.get(attempt).and_then(|running| self.workers.get(&running.worker));
        let registered = worker.and_then(|id| self.registered.get(id));
        let counter = counter_of(registered.map(|worker| worker.record.class.backend.as_str()));
        let reported_us = timings.load_us.saturating_add(timings.compute_us);
        self.computed.reported_us[counter].fetch_add(reported_us, Ordering::Relaxed);
        if let Some(scan) = self.scans.get(&scan) {
            let per_bar = scan.submission.prepared.plan.cost_ns_per_bar().max(1.0);
            // Saturates.
            let expected_ns = (per_bar * timings.bars as f64) as u64;
            self.computed.expected_ns[counter].fetch_add(expected_ns, Ordering::Relaxed);
            if let Some(worker) = registered.filter(|_| !timings.resident) {
                let held = worker.reported.holdings(&scan.submission.prepared.dataset_reference());
                self.pace.note(held.tier(piece.segment), &timings);
            }
        }
        let run = SegmentRun {
            segment: piece.segment,
            first: piece.first,
            attempt,
            worker: worker.cloned().unwrap_or_default(),
            busy_ms: reported_us as f64 / 1e3,
            load_ms: Some(timings.load_us as f64 / 1e3),
            symbols: timings.symbols,
            resident: timings.resident,
        };
        self.send_news(scan, News::Result { piece, result, digest, envelope, run, replaces, transit: Some(transit) });
    }
}
