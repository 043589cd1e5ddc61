//! Assigns waiting work to free workers: chooses the scan whose turn it is, and the preferred worker for its work.

use super::attempt_deadline::allowed_ms;
use super::fleet::Worker;
use super::state::{Attempt, PieceState, Progress, Scan};
use super::wait_queue::{Claim, QueuedWork, WorkKey};
use super::{AttemptId, Command, HostId, Piece, Purpose, ScanId, Scheduler, WorkerId};

/// Turns are measured in work divided by the scan's share; this factor keeps cheap work from rounding to 0.
const TURN_SCALE: u128 = 1 << 20;

impl Scheduler {
    /// Assigns waiting work to free workers until either runs out.
    pub(super) fn dispatch(&mut self, now_ms: u64, out: &mut Vec<Command>) {
        self.wake(now_ms);
        // Work may wait while workers are free: nothing is looked for again before something has changed.
        if !std::mem::take(&mut self.changed) && !self.fleet.take_changed() {
            return;
        }
        while let Some((id, worker, key)) = self.isolate() {
            self.start(id, worker, key, now_ms, out);
        }
        while let Some((id, worker, key)) = self.next_pair() {
            self.start(id, worker, key, now_ms, out);
        }
        for (_, id) in &self.turns {
            let Some(scan) = self.scans.get_mut(id) else { continue };
            if self.fleet.free(scan.class).next().is_some() {
                scan.line.offer(now_ms);
                if scan.line.is_timed() {
                    self.timed.insert(*id);
                }
            }
        }
        (self.changed, _) = (false, self.fleet.take_changed());
    }

    /// Makes work ready whose time has come.
    fn wake(&mut self, now_ms: u64) {
        if self.timed.is_empty() {
            return;
        }
        let mut woken = Vec::new();
        let scans = &mut self.scans;
        self.timed.retain(|id| {
            let Some(scan) = scans.get_mut(id) else { return false };
            if scan.line.wake(now_ms) {
                woken.push(*id);
            }
            scan.line.is_timed()
        });
        woken.into_iter().for_each(|id| self.queue(id));
    }

    /// Queues a scan for its turn, or removes it if none of its work could run.
    pub(super) fn queue(&mut self, id: ScanId) {
        let Some(scan) = self.scans.get_mut(&id) else { return };
        self.changed = true;
        if scan.line.is_timed() {
            self.timed.insert(id);
        }
        if !scan.line.is_ready() {
            self.turns.remove(&(scan.turn, id));
        } else if !self.turns.contains(&(scan.turn, id)) {
            // Time without work does not accumulate credit.
            scan.turn = scan.turn.max(self.turn);
            self.turns.insert((scan.turn, id));
        }
    }

    /// Work that has to run alone, and an idle worker. If there is none, reserves a worker until it is idle.
    fn isolate(&mut self) -> Option<(ScanId, WorkerId, WorkKey)> {
        let mut wanting = None;
        for (_, id) in &self.turns {
            let Some(scan) = self.scans.get(id).filter(|scan| scan.line.wants_isolation()) else { continue };
            for (worker, state) in self.fleet.idle(scan.class) {
                if let Some(key) = scan.line.alone(|avoid| self.fleet.may_run(state, avoid)) {
                    return Some((*id, worker, key));
                }
            }
            wanting = wanting.or(Some(scan.class));
        }
        match wanting {
            Some(class) => self.fleet.hold(class),
            None => self.fleet.let_go(),
        }
        None
    }

    /// The first scan in turn that a free worker can serve, with that worker and the work.
    fn next_pair(&self) -> Option<(ScanId, WorkerId, WorkKey)> {
        if !self.fleet.has_room() {
            return None;
        }
        self.turns.iter().find_map(|(_, id)| {
            let (worker, key) = self.best_in(self.scans.get(id)?)?;
            Some((*id, worker, key))
        })
    }

    fn best_in(&self, scan: &Scan) -> Option<(WorkerId, WorkKey)> {
        let free = || self.fleet.free(scan.class);
        // No worker is free: return before searching the queue.
        free().next()?;
        let line = &scan.line;
        let find = |takes: &dyn Fn(WorkerId, &Worker) -> Option<WorkKey>| {
            free().find_map(|(worker, state)| Some((worker, takes(worker, state)?)))
        };
        find(&|worker, _| line.own(worker))
            .or_else(|| find(&|_, state| line.anyone(|avoid| self.fleet.may_run(state, avoid))))
            .or_else(|| find(&|_, state| line.others(state.host)))
            .or_else(|| find(&|worker, _| line.copy(worker)))
            .or_else(|| find(&|_, _| line.longest()))
    }

    fn start(&mut self, id: ScanId, worker: WorkerId, key: WorkKey, now_ms: u64, out: &mut Vec<Command>) {
        let Some(scan) = self.scans.get_mut(&id) else { return };
        let Some(QueuedWork { pieces, avoid, claim }) = scan.line.take(key) else { return };
        let vote = claim == Claim::Others;
        // Late results may have answered or settled some of it.
        let wanted = |piece: &Piece| if vote { scan.unsettled.contains(piece) } else { scan.is_open(piece) };
        let pieces: Vec<Piece> = pieces.into_iter().filter(wanted).collect();
        if vote {
            for piece in &pieces {
                if let Some(verdict) = scan.pieces.get_mut(piece).and_then(Progress::verdict) {
                    verdict.asking = false;
                }
            }
        }
        let purpose = match claim {
            Claim::Others => Purpose::Vote,
            Claim::Alone => Purpose::Isolation,
            Claim::Anyone | Claim::Prefers { .. } => Purpose::Work,
        };
        if purpose == Purpose::Isolation {
            self.fleet.let_go();
        }
        if !pieces.is_empty() {
            self.launch(id, worker, pieces, avoid, purpose, now_ms, out);
        }
        self.queue(id);
    }

    /// Starts an attempt and charges the scan for it.
    #[allow(clippy::too_many_arguments)]
    pub(super) fn launch(
        &mut self,
        id: ScanId,
        worker: WorkerId,
        pieces: Vec<Piece>,
        avoid: Vec<HostId>,
        purpose: Purpose,
        now_ms: u64,
        out: &mut Vec<Command>,
    ) {
        let Some(host) = self.fleet.get(worker).map(|w| w.host) else { return };
        let Some(scan) = self.scans.get_mut(&id) else { return };
        let attempt: AttemptId = self.next_attempt;
        self.next_attempt += 1;
        let mut cost = 0u64;
        for piece in &pieces {
            let Some(progress) = scan.pieces.get_mut(piece) else { continue };
            cost = cost.saturating_add(progress.cost);
            progress.running.push(attempt);
            match (&mut progress.standing, purpose) {
                (PieceState::Open, Purpose::Work | Purpose::Isolation) => progress.tries += 1,
                (PieceState::Accepted(verdict), Purpose::Vote) => verdict.asked += 1,
                _ => {}
            }
        }
        scan.attempts.insert(attempt);
        let queued = self.turns.remove(&(scan.turn, id));
        self.turn = self.turn.max(scan.turn);
        // Each of a caller's scans has its part of the caller's share.
        let siblings = u128::from(self.callers.get(&scan.caller).copied().unwrap_or(1));
        scan.turn += u128::from(cost) * TURN_SCALE * siblings / u128::from(scan.weight);
        if queued {
            self.turns.insert((scan.turn, id));
        }
        let made = Attempt {
            scan: id,
            worker,
            host,
            left: pieces.iter().copied().collect(),
            avoid,
            purpose,
            started_ms: now_ms,
            heard_ms: now_ms,
            allowed_ms: allowed_ms(&self.limits, scan, &pieces),
            cost,
            hedged: false,
        };
        self.attempts.insert(attempt, made);
        self.fleet.start_attempt(worker, attempt, purpose == Purpose::Isolation);
        out.push(Command::Dispatch { attempt, scan: id, worker, pieces, purpose });
    }
}
