//! Second attempts at stragglers: a worker that is slow or stopped, but not lost, delays a scan only briefly.
//!
//! Only when most of a scan has ended, an attempt takes several times what the median took, and another worker of the
//! class idles: the hedge then only uses idle capacity. The first answer counts, the other attempt is stopped as soon
//! as nothing more is needed from it, and digests are compared where both answered.

use super::state::Scan;
use super::{AttemptId, COST_PER_MS, Command, HEDGE_AFTER_PERCENT, HEDGE_MULTIPLE, Piece, Purpose, ScanId, Scheduler};

impl Scheduler {
    pub(super) fn hedge(&mut self, now_ms: u64, out: &mut Vec<Command>) {
        let almost_done: Vec<ScanId> =
            self.scans.iter().filter(|(_, scan)| is_almost_done(scan)).map(|(&id, _)| id).collect();
        for id in almost_done {
            for late in self.stragglers(id, now_ms) {
                self.hedge_one(late, now_ms, out);
            }
        }
    }

    /// Late attempts of a scan without a second attempt.
    fn stragglers(&self, id: ScanId, now_ms: u64) -> Vec<AttemptId> {
        let Some(scan) = self.scans.get(&id) else { return Vec::new() };
        if self.fleet.idle(scan.class).next().is_none() {
            return Vec::new();
        }
        let late = |attempt: &&AttemptId| {
            let Some(state) = self.attempts.get(attempt) else { return false };
            let Some(expected_ms) = scan.paces.expected_ms(state.cost) else { return false };
            let age_ms = now_ms.saturating_sub(state.started_ms);
            state.purpose == Purpose::Work && !state.hedged && age_ms >= self.late_after_ms(expected_ms)
        };
        scan.attempts.iter().filter(late).copied().collect()
    }

    /// Duration after which an attempt with this expected duration is late.
    fn late_after_ms(&self, expected_ms: u64) -> u64 {
        self.limits.hedge_min_ms.max(expected_ms.saturating_mul(HEDGE_MULTIPLE))
    }

    /// How long an attempt may take before it counts as slow: from the pace of other attempts of its scan, else from
    /// its estimated cost.
    pub fn slow_after_ms(&self, attempt: AttemptId) -> Option<u64> {
        let attempt = self.attempts.get(&attempt)?;
        let paces = &self.scans.get(&attempt.scan)?.paces;
        let expected_ms = paces.expected_ms(attempt.cost).unwrap_or(attempt.cost / COST_PER_MS);
        Some(self.late_after_ms(expected_ms))
    }

    fn hedge_one(&mut self, late: AttemptId, now_ms: u64, out: &mut Vec<Command>) {
        let Some(attempt) = self.attempts.get(&late) else { return };
        let Some(scan) = self.scans.get(&attempt.scan) else { return };
        let id = attempt.scan;
        let left: Vec<Piece> = attempt.left.iter().filter(|piece| scan.is_open(piece)).copied().collect();
        let other = self.fleet.idle(scan.class).find(|(_, w)| w.host != attempt.host).map(|(worker, _)| worker);
        let (Some(worker), false) = (other, left.is_empty()) else { return };
        if let Some(attempt) = self.attempts.get_mut(&late) {
            attempt.hedged = true;
        }
        self.launch(id, worker, left, Vec::new(), Purpose::Hedge, now_ms, out);
    }
}

/// Whether most of a scan has ended. Work that still waits while a worker is idle may not run there.
fn is_almost_done(scan: &Scan) -> bool {
    let ended = scan.pieces.len() - scan.open;
    scan.open > 0 && ended * 100 >= scan.pieces.len() * HEDGE_AFTER_PERCENT
}
