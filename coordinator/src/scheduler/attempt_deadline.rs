//! Timeouts of silent attempts, so that every attempt ends.
//!
//! A worker whose compute threads are stuck keeps its lease and answers pings, so nothing else notices it. An attempt
//! without a reply for too long is stopped, and its work goes elsewhere. Each reply restarts the timeout, and it
//! doubles for a piece whose attempt was stopped, so that work that is merely slow gets done in the end.

use super::limits::DOUBLINGS_MAX;
use super::state::Scan;
use super::{
    ATTEMPT_TIMEOUT_MULTIPLE, ATTEMPT_TIMEOUT_STRETCH, ATTEMPT_TIMEOUT_WHOLE, AttemptId, COST_PER_MS, Command, Limits,
    Piece, Purpose, Scheduler,
};

/// How long an attempt at these pieces may go without a reply, in milliseconds.
pub(super) fn allowed_ms(limits: &Limits, scan: &Scan, pieces: &[Piece]) -> u64 {
    let expected = |cost: u64| scan.paces.expected_ms(cost).unwrap_or(cost / COST_PER_MS);
    let of = |piece: &Piece| scan.pieces.get(piece);
    let cost = |piece: &Piece| of(piece).map_or(0, |progress| progress.cost);
    let largest = pieces.iter().map(cost).max().unwrap_or(0);
    let whole = pieces.iter().map(cost).fold(0u64, u64::saturating_add);
    let timeouts = pieces.iter().filter_map(of).map(|progress| progress.timeouts).max().unwrap_or(0);
    let least = limits.attempt_timeout_ms.saturating_mul(1 << timeouts.min(DOUBLINGS_MAX));
    least
        .max(expected(largest).saturating_mul(ATTEMPT_TIMEOUT_MULTIPLE))
        .max(expected(whole).saturating_mul(ATTEMPT_TIMEOUT_WHOLE))
        .min(limits.attempt_timeout_ms.saturating_mul(ATTEMPT_TIMEOUT_STRETCH))
}

impl Scheduler {
    /// Ends attempts that have not replied for too long.
    pub(super) fn give_up_silent_attempts(&mut self, now_ms: u64, out: &mut Vec<Command>) {
        let silent = self.attempts.iter().filter(|(_, attempt)| {
            // An attempt that has answered everything ends with its stream.
            !attempt.left.is_empty() && now_ms.saturating_sub(attempt.heard_ms) >= attempt.allowed_ms
        });
        let silent: Vec<AttemptId> = silent.map(|(&id, _)| id).collect();
        for id in silent {
            let Some(attempt) = self.forget(id) else { continue };
            out.push(Command::Stop { attempt: id });
            if matches!(attempt.purpose, Purpose::Work | Purpose::Isolation)
                && let Some(scan) = self.scans.get_mut(&attempt.scan)
            {
                for piece in &attempt.left {
                    if let Some(progress) = scan.pieces.get_mut(piece) {
                        progress.timeouts += 1;
                    }
                }
            }
            self.abandon(&attempt, false, now_ms, out);
        }
    }
}
