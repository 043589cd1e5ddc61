//! Unanswered work: retried elsewhere, bisected, or failed.
//!
//! When a worker dies, its pieces come under suspicion and are retried one by one. A piece that was running when a
//! second worker dies is cut in two, and its parts run alone on their workers until the symbol that kills them is
//! found. A part that answers is cleared; only a symbol that ran alone can be declared poisoned.

use trawl_wire::ErrorKind;

use super::state::{Attempt, PieceState, Progress};
use super::wait_queue::{Claim, QueuedWork};
use super::{AttemptId, Command, HostId, Loss, Outcome, Piece, Purpose, ScanId, Scheduler, WorkerId};

impl Scheduler {
    pub(super) fn piece_failed(
        &mut self,
        id: AttemptId,
        piece: Piece,
        kind: ErrorKind,
        now_ms: u64,
        out: &mut Vec<Command>,
    ) {
        let Some(attempt) = self.attempts.get(&id) else { return };
        let (scan, host, purpose) = (attempt.scan, attempt.host, attempt.purpose);
        let avoid = with(&attempt.avoid, host);
        if !self.answered(id, piece, now_ms) {
            return;
        }
        if purpose == Purpose::Vote {
            self.decline(scan, piece, &avoid);
            self.ask_if_unsettled(scan, piece, out);
        } else if kind.is_retried() {
            self.retry(scan, vec![piece], (kind, avoid, true), now_ms, out);
        } else {
            self.accuse((scan, piece), host, (kind, avoid), out);
        }
    }

    /// Handles a reply that cannot be a result. One host alone proves nothing, since it is judged by this process: the piece is tried
    /// again, and a result of another host decides, whether it comes later or is there already.
    pub(super) fn piece_malformed(&mut self, id: AttemptId, piece: Piece, now_ms: u64, out: &mut Vec<Command>) {
        let Some(attempt) = self.attempts.get(&id).filter(|attempt| attempt.left.contains(&piece)) else { return };
        let (scan, host) = (attempt.scan, attempt.host);
        let mut right = None;
        if let Some(progress) = self.scans.get_mut(&scan).and_then(|scan| scan.pieces.get_mut(&piece))
            && !matches!(progress.standing, PieceState::Failed)
        {
            if !progress.malformed.contains(&host) {
                progress.malformed.push(host);
            }
            let others = progress.verdict().into_iter().flat_map(|verdict| &verdict.votes).map(|(voter, _)| *voter);
            right = others.into_iter().find(|voter| *voter != host && !self.quarantined.contains(voter));
        }
        match right {
            Some(_) => {
                self.answered(id, piece, now_ms);
                self.disprove_malformed((scan, piece), None, now_ms, out);
            }
            None => self.piece_failed(id, piece, ErrorKind::Retryable, now_ms, out),
        }
    }

    pub(super) fn attempt_ended(&mut self, id: AttemptId, now_ms: u64, out: &mut Vec<Command>) {
        if let Some(attempt) = self.forget(id) {
            self.abandon(&attempt, true, now_ms, out);
        }
    }

    /// Stops an attempt whose worker receives nothing more; its pieces are not to blame.
    pub(super) fn call_off(&mut self, id: AttemptId, now_ms: u64, out: &mut Vec<Command>) {
        if let Some(attempt) = self.forget(id) {
            out.push(Command::Stop { attempt: id });
            self.forgive(&attempt);
            self.abandon(&attempt, false, now_ms, out);
        }
    }

    /// Handles the unanswered pieces of an attempt that is over.
    pub(super) fn abandon(&mut self, attempt: &Attempt, delayed: bool, now_ms: u64, out: &mut Vec<Command>) {
        let avoid = with(&attempt.avoid, attempt.host);
        let left: Vec<Piece> = attempt.left.iter().copied().collect();
        if attempt.purpose == Purpose::Vote {
            for piece in left {
                self.decline(attempt.scan, piece, &avoid);
                self.ask_if_unsettled(attempt.scan, piece, out);
            }
        } else {
            self.retry(attempt.scan, left, (ErrorKind::Retryable, avoid, delayed), now_ms, out);
        }
    }

    pub(super) fn lose(&mut self, worker: WorkerId, loss: Loss, now_ms: u64, out: &mut Vec<Command>) {
        let Some(in_flight) = self.fleet.remove(worker, now_ms) else { return };
        self.orphan(worker);
        for id in in_flight {
            let Some(attempt) = self.forget(id) else { continue };
            out.push(Command::Stop { attempt: id });
            match loss {
                Loss::Left => {
                    self.forgive(&attempt);
                    self.abandon(&attempt, false, now_ms, out);
                }
                Loss::Died if attempt.purpose == Purpose::Vote => self.abandon(&attempt, false, now_ms, out),
                Loss::Died => {
                    for piece in attempt.left.clone() {
                        self.suspect(&attempt, piece, out);
                    }
                }
            }
        }
    }

    /// Uncounts an attempt that did not end because of its work.
    fn forgive(&mut self, attempt: &Attempt) {
        let Some(scan) = self.scans.get_mut(&attempt.scan) else { return };
        if matches!(attempt.purpose, Purpose::Work | Purpose::Isolation) {
            for piece in &attempt.left {
                if let Some(progress) = scan.pieces.get_mut(piece) {
                    progress.tries = progress.tries.saturating_sub(1);
                }
            }
        }
    }

    /// Queues unanswered pieces again together, or fails those that are out of attempts.
    pub(super) fn retry(
        &mut self,
        id: ScanId,
        pieces: Vec<Piece>,
        (kind, avoid, delayed): (ErrorKind, Vec<HostId>, bool),
        now_ms: u64,
        out: &mut Vec<Command>,
    ) {
        let Some(scan) = self.scans.get_mut(&id) else { return };
        let (mut again, mut over, mut tries) = (Vec::new(), Vec::new(), 0);
        for piece in pieces {
            let Some(progress) = scan.pieces.get(&piece) else { continue };
            // Pieces that another attempt runs, or whose data are being checked, are left to that.
            let busy = !progress.running.is_empty() || progress.checking.is_some();
            if !matches!(progress.standing, PieceState::Open) || busy {
                continue;
            }
            if progress.tries >= self.limits.attempts_max {
                over.push(piece);
                continue;
            }
            tries = tries.max(progress.tries);
            // A suspect stays alone.
            if progress.deaths == 0 && !progress.alone {
                again.push(piece);
            } else {
                let claim = progress.claim();
                let not_before_ms = self.limits.not_before(delayed, progress.tries, now_ms);
                scan.line.push(QueuedWork { pieces: vec![piece], avoid: avoid.clone(), claim }, not_before_ms);
            }
        }
        if !again.is_empty() {
            let not_before_ms = self.limits.not_before(delayed, tries, now_ms);
            scan.line.push(QueuedWork { pieces: again, avoid, claim: Claim::Anyone }, not_before_ms);
        }
        for piece in over {
            self.fail(id, piece, kind, out);
        }
        self.queue(id);
    }

    /// Handles the death of a worker that was running this piece.
    fn suspect(&mut self, attempt: &Attempt, piece: Piece, out: &mut Vec<Command>) {
        let id = attempt.scan;
        let limits = self.limits;
        let Some(scan) = self.scans.get_mut(&id) else { return };
        let Some(progress) = scan.pieces.get_mut(&piece) else { return };
        if !matches!(progress.standing, PieceState::Open) {
            return;
        }
        progress.deaths += 1;
        // Left to the other attempt that runs it, or to its check.
        if !progress.running.is_empty() || progress.checking.is_some() {
            return;
        }
        let (tries, cost, alone) = (progress.tries, progress.cost, progress.alone);
        if progress.deaths >= limits.deaths_max {
            match piece.halves() {
                Some(halves) => {
                    scan.pieces.remove(&piece);
                    scan.open += 1;
                    scan.open_cost = scan.open_cost.saturating_sub(cost).saturating_add(2 * (cost / 2).max(1));
                    for half in halves {
                        // The parts inherit the suspicion, so the next death cuts them again; a single symbol starts
                        // without.
                        let deaths = if half.count > 1 { limits.deaths_max - 1 } else { 0 };
                        scan.pieces.insert(half, Progress::alone((cost / 2).max(1), deaths));
                        scan.line.push(QueuedWork { pieces: vec![half], avoid: Vec::new(), claim: Claim::Alone }, 0);
                    }
                }
                // Other pieces ran on the workers that died: from now on it runs alone.
                None if !alone => {
                    *progress = Progress::alone(cost, 0);
                    scan.line.push(QueuedWork { pieces: vec![piece], avoid: Vec::new(), claim: Claim::Alone }, 0);
                }
                None => {
                    scan.poisoned += 1;
                    let ruined = scan.poisoned >= limits.poisoned_max;
                    self.fail(id, piece, ErrorKind::Poisoned, out);
                    if ruined {
                        self.end(id, Outcome::Poisoned, out);
                    }
                }
            }
        } else if tries >= limits.attempts_max {
            self.fail(id, piece, ErrorKind::Retryable, out);
        } else {
            let claim = progress.claim();
            scan.line.push(QueuedWork { pieces: vec![piece], avoid: attempt.avoid.clone(), claim }, 0);
        }
        self.queue(id);
    }
}

fn with(avoid: &[HostId], host: HostId) -> Vec<HostId> {
    let mut avoid = avoid.to_vec();
    if let Err(at) = avoid.binary_search(&host) {
        avoid.insert(at, host);
    }
    avoid
}
