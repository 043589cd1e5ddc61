//! Answers that are given again: a scan of the same identity gets the answer of an earlier one of this term.
//!
//! Only of scans that ended complete, without a failed segment and without a dispute. As soon as a worker's results turn out to be wrong,
//! all earlier answers are computed again when they are asked for. The results are copied into the scan's own log and store, so that
//! it does not depend on how long the earlier one is kept.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use prost::Message as _;
use sha2::{Digest as _, Sha256};
use trawl_telemetry::metrics::catalogue::coordinator::ANSWERS_REUSED;
use trawl_wire::pb::scan_event::Event;
use trawl_wire::{ErrorKind, Failure, envelope, pb};

use super::environment::{Environment, cancelled, late, until};
use super::log::Cursor;
use super::outcome::{Answered, Ended};
use super::record::{Accepting, Recorder};
use super::run_scan::accepted;
use super::running::RunningScan;
use super::stored_answer::load;
use super::{Scan, failure};
use crate::prepare::PreparedScan;

/// Answers that are known by their identity; the oldest are forgotten first.
const ANSWERS_KNOWN_MAX: usize = 4096;

/// SHA-256 of all that determines the bytes of an answer.
pub(super) type AnswerKey = [u8; 32];

/// The key of the answer that a scan with this head gets.
pub(super) fn key_of(head: &pb::Accepted) -> AnswerKey {
    let same = pb::Accepted { scan_id: String::new(), generation: 0, durable: false, ..head.clone() };
    Sha256::digest(same.encode_to_vec()).into()
}

/// The scans whose answers may be given again, by the keys of these.
#[derive(Debug, Default)]
pub(super) struct Answers {
    scans: BTreeMap<AnswerKey, String>,
    /// By age, the oldest first; also keys that have another scan by now.
    order: VecDeque<AnswerKey>,
    /// [`crate::server::dispatcher::Dispatcher::doubts`] when they were kept.
    doubts: u64,
}

impl Answers {
    /// Keeps the answer of a scan, which ended while the dispatcher had so many doubts.
    pub fn keep(&mut self, key: AnswerKey, scan: &str, doubts: u64) {
        self.forget_before(doubts);
        if doubts < self.doubts || self.scans.insert(key, scan.to_owned()).is_some() {
            return;
        }
        self.order.push_back(key);
        while self.order.len() > ANSWERS_KNOWN_MAX {
            if let Some(oldest) = self.order.pop_front() {
                self.scans.remove(&oldest);
            }
        }
    }

    /// The scan with this answer.
    pub fn get(&mut self, key: &AnswerKey, doubts: u64) -> Option<&String> {
        self.forget_before(doubts);
        self.scans.get(key)
    }

    fn forget_before(&mut self, doubts: u64) {
        if doubts > self.doubts {
            *self = Self { doubts, ..Self::default() };
        }
    }
}

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
    load(environment, earlier).await?;
    let recorder = scan.asked.durable.then(|| Recorder::new(&environment.archive, scan));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_known_by_what_determines_it() {
        let head = pb::Accepted { identity_json: "{}".to_owned(), limit: Some(5), ..pb::Accepted::default() };
        let same = pb::Accepted { scan_id: "s-1".to_owned(), generation: 2, durable: true, ..head.clone() };
        assert_eq!(key_of(&head), key_of(&same));
        assert_ne!(key_of(&head), key_of(&pb::Accepted { limit: Some(6), ..head.clone() }));
        assert_ne!(key_of(&head), key_of(&pb::Accepted { identity_json: "{ }".to_owned(), ..head }));
    }

    #[test]
    fn a_doubt_forgets_all_answers_before_it_and_the_oldest_are_forgotten() {
        let mut answers = Answers::default();
        answers.keep([1; 32], "a", 0);
        answers.keep([1; 32], "b", 0);
        assert_eq!(answers.get(&[1; 32], 0).map(String::as_str), Some("b"), "the newest scan with it");
        assert_eq!(answers.get(&[1; 32], 1), None);
        answers.keep([2; 32], "c", 0);
        assert_eq!(answers.get(&[2; 32], 1), None, "it ended before the doubt");
        for number in 0..=ANSWERS_KNOWN_MAX as u64 {
            let mut key = [3; 32];
            key[..8].copy_from_slice(&number.to_le_bytes());
            answers.keep(key, "d", 1);
        }
        assert_eq!((answers.scans.len(), answers.order.len()), (ANSWERS_KNOWN_MAX, ANSWERS_KNOWN_MAX));
    }
}
