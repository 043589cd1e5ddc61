//! The scheduler, which decides which worker runs what and when: `step(event, now) -> commands`.
//!
//! Pure: integers and ids, no I/O, no clock, no randomness; the same events give the same commands. It drives threads
//! (`local`), a cluster (`server`) and the simulator alike. It never sees a result, only its digest. For the required
//! properties see `README.md` of this crate.
//!
//! `messages` defines ids, events and commands; `state` holds scans, pieces and attempts; `wait_queue` the waiting work of
//! one scan; `fleet` the workers and their free slots; `dispatch` assigns work to workers, scan by scan in fair turns;
//! `retry` handles work that failed or whose worker died, including bisection; `proof` decides when a failure is final;
//! `attempt_deadline` limits how long an attempt may go without a reply; `hedge` makes second attempts at stragglers;
//! `result_vote` compares digests and settles disputes.

mod attempt_deadline;
mod dispatch;
mod fleet;
mod hedge;
mod limits;
mod messages;
mod proof;
mod result_vote;
mod retry;
mod state;
mod wait_queue;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use trawl_wire::ErrorKind;

use fleet::Fleet;
pub use limits::*;
pub use messages::{
    AttemptId, Check, ClassId, Command, Digest, Event, HostId, Loss, Outcome, Piece, Purpose, Request, ScanId, WorkerId,
};
use state::{Attempt, Delivered, PieceState, Scan};

/// The state; see the module's header.
#[derive(Debug)]
pub struct Scheduler {
    limits: Limits,
    /// Time of the last step.
    now_ms: u64,
    scans: BTreeMap<ScanId, Scan>,
    attempts: BTreeMap<AttemptId, Attempt>,
    fleet: Fleet,
    next_attempt: AttemptId,
    /// Scans with work that could run now, in the order of their turns.
    turns: BTreeSet<(u128, ScanId)>,
    /// Scans with work that waits for a time; also such as had.
    timed: BTreeSet<ScanId>,
    /// The turn of the scan served last, where new scans begin.
    turn: u128,
    /// Whether there is work or a turn that nobody was looked for yet.
    changed: bool,
    /// Running scans by caller.
    callers: BTreeMap<u64, u32>,
    /// Deadlines of scans that have one.
    deadlines: BTreeSet<(u64, ScanId)>,
    quarantined: BTreeSet<HostId>,
    /// Recent scans that ended complete, newest last.
    delivered: VecDeque<Delivered>,
}

impl Scheduler {
    /// A scheduler without workers or scans.
    pub fn new(limits: Limits, now_ms: u64) -> Self {
        Self {
            limits,
            now_ms,
            scans: BTreeMap::new(),
            attempts: BTreeMap::new(),
            fleet: Fleet::new(now_ms),
            next_attempt: 1,
            turns: BTreeSet::new(),
            timed: BTreeSet::new(),
            turn: 0,
            changed: true,
            callers: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            quarantined: BTreeSet::new(),
            delivered: VecDeque::new(),
        }
    }

    /// Handles one event and returns the commands to execute. `now_ms` never decreases.
    pub fn step(&mut self, event: Event, now_ms: u64) -> Vec<Command> {
        let mut commands = self.note(event, now_ms);
        self.dispatch(now_ms, &mut commands);
        commands
    }

    /// Assigns waiting work to free workers, after some calls of [`Self::note`].
    pub fn assign(&mut self, now_ms: u64) -> Vec<Command> {
        self.now_ms = now_ms;
        let mut commands = Vec::new();
        self.dispatch(now_ms, &mut commands);
        commands
    }

    /// As [`Self::step`], but assigns no work: for several events that come at once, after which [`Self::assign`] follows.
    pub fn note(&mut self, event: Event, now_ms: u64) -> Vec<Command> {
        self.now_ms = now_ms;
        let mut commands = Vec::new();
        let out = &mut commands;
        match event {
            Event::Submitted { scan, request } => self.submit(scan, request, now_ms, out),
            Event::Cancelled { scan } => self.end(scan, Outcome::Cancelled, out),
            Event::WorkerJoined { worker, host, class, slots } => self.join(worker, host, class, slots),
            Event::WorkerDraining { worker } => self.drain(worker, now_ms),
            Event::WorkerLost { worker, loss } => self.lose(worker, loss, now_ms, out),
            Event::PieceDone { scan, attempt, host, piece, digest } => {
                self.done(scan, attempt, host, (piece, digest), now_ms, out);
            }
            Event::PieceFailed { attempt, piece, kind } => self.piece_failed(attempt, piece, kind, now_ms, out),
            Event::PieceMalformed { attempt, piece } => self.piece_malformed(attempt, piece, now_ms, out),
            Event::AttemptPaused { attempt } => {
                if let Some(attempt) = self.attempts.get_mut(&attempt) {
                    attempt.heard_ms = now_ms;
                }
            }
            Event::AttemptEnded { attempt } => self.attempt_ended(attempt, now_ms, out),
            Event::Checked { scan, piece, found } => self.checked(scan, piece, found, now_ms, out),
            Event::Tick => {
                self.changed = true;
                self.tick(now_ms, out);
            }
        }
        commands
    }

    /// Number of shards that a worker is running.
    pub fn in_flight(&self, worker: WorkerId) -> usize {
        self.fleet.get(worker).map_or(0, |w| w.in_flight.len())
    }

    /// Estimated cost, in nanoseconds of one core, of all pieces that are neither accepted nor failed.
    pub fn work_left(&self) -> u64 {
        self.work_left_by_class().fold(0, |sum, (_, cost)| sum.saturating_add(cost))
    }

    /// The same of each scan, with its class.
    pub fn work_left_by_class(&self) -> impl Iterator<Item = (ClassId, u64)> {
        self.scans.values().map(|scan| (scan.class, scan.open_cost))
    }

    /// Whether a scan cannot run because no worker of its class receives work.
    pub fn waits_for_workers(&self, scan: ScanId) -> bool {
        let nobody = |scan: &Scan| scan.attempts.is_empty() && self.fleet.empty_since(scan.class).is_some();
        self.scans.get(&scan).is_some_and(|scan| scan.open > 0 && nobody(scan))
    }

    /// Time at which work that waits for the worker that holds its data may go to another one: an event is due then. `None` while
    /// nothing waits.
    pub fn wake_ms(&self) -> Option<u64> {
        self.timed.iter().filter_map(|id| self.scans.get(id)?.line.offered_ms()).min()
    }

    /// Whether no scan is left.
    pub fn is_idle(&self) -> bool {
        self.scans.is_empty()
    }

    fn submit(&mut self, id: ScanId, request: Request, now_ms: u64, out: &mut Vec<Command>) {
        if self.scans.contains_key(&id) {
            return;
        }
        self.fleet.note_class(request.class);
        if let Some(deadline_ms) = request.deadline_ms {
            self.deadlines.insert((deadline_ms, id));
        }
        *self.callers.entry(request.caller).or_default() += 1;
        let scan = Scan::new(request, self.turn, now_ms, |worker| self.fleet.takes_work(worker));
        self.scans.insert(id, scan);
        self.end_if_complete(id, out);
        self.queue(id);
    }

    fn join(&mut self, worker: WorkerId, host: HostId, class: ClassId, slots: usize) {
        let quarantined = self.quarantined.contains(&host);
        self.fleet.join(worker, (host, class), slots, quarantined);
    }

    fn drain(&mut self, worker: WorkerId, now_ms: u64) {
        self.fleet.drain(worker, now_ms);
        self.orphan(worker);
    }

    /// Work that prefers this worker may go to any worker from now on.
    fn orphan(&mut self, worker: WorkerId) {
        self.scans.values_mut().for_each(|scan| scan.line.orphan(worker));
    }

    fn tick(&mut self, now_ms: u64, out: &mut Vec<Command>) {
        while let Some(&(deadline_ms, scan)) = self.deadlines.first() {
            if deadline_ms > now_ms {
                break;
            }
            self.deadlines.pop_first();
            self.end(scan, Outcome::DeadlineExceeded, out);
        }
        self.give_up_without_workers(now_ms, out);
        self.give_up_silent_attempts(now_ms, out);
        self.give_up_disputes(now_ms, out);
        self.hedge(now_ms, out);
    }

    /// Ends scans whose class has had no worker for too long, unless they wait for one, or a draining worker still runs
    /// one of their attempts.
    fn give_up_without_workers(&mut self, now_ms: u64, out: &mut Vec<Command>) {
        let late = |scan: &Scan| {
            let since = self.fleet.empty_since(scan.class)?;
            let waited = now_ms.saturating_sub(since.max(scan.attempted_ms));
            // An outstanding check does not make a scan wait.
            let waits = scan.waits && scan.open > 0;
            (!waits && scan.attempts.is_empty() && waited >= self.limits.no_worker_timeout_ms).then_some(())
        };
        let ended: Vec<ScanId> =
            self.scans.iter().filter(|(_, scan)| late(scan).is_some()).map(|(&id, _)| id).collect();
        for id in ended {
            // All pieces are answered; only the check is outstanding.
            let whole = self.scans.get(&id).is_some_and(|scan| scan.open == 0);
            self.end(id, if whole { Outcome::Complete { disputed: true } } else { Outcome::NoWorker }, out);
        }
    }

    fn end_if_complete(&mut self, id: ScanId, out: &mut Vec<Command>) {
        let Some(scan) = self.scans.get(&id) else { return };
        if scan.open == 0 && scan.unsettled.is_empty() {
            let disputed = scan.disputed;
            self.end(id, Outcome::Complete { disputed }, out);
        }
    }

    fn end(&mut self, id: ScanId, outcome: Outcome, out: &mut Vec<Command>) {
        let Some(scan) = self.scans.remove(&id) else { return };
        self.turns.remove(&(scan.turn, id));
        if let Some(running) = self.callers.get_mut(&scan.caller) {
            *running -= 1;
            if *running == 0 {
                self.callers.remove(&scan.caller);
            }
        }
        if let Some(deadline_ms) = scan.deadline_ms {
            self.deadlines.remove(&(deadline_ms, id));
        }
        for attempt in &scan.attempts {
            // An attempt that has answered everything ends by itself, and keeps its slot until then.
            if self.attempts.get(attempt).is_some_and(|a| !a.left.is_empty()) {
                self.forget(*attempt);
                out.push(Command::Stop { attempt: *attempt });
            }
        }
        out.push(Command::End { scan: id, outcome });
        if let Outcome::Complete { disputed } = outcome {
            self.deliver(id, scan, disputed);
        }
    }

    /// Removes an attempt from every index.
    fn forget(&mut self, id: AttemptId) -> Option<Attempt> {
        let attempt = self.attempts.remove(&id)?;
        self.fleet.end_attempt(attempt.worker, id);
        let now_ms = self.now_ms;
        if let Some(scan) = self.scans.get_mut(&attempt.scan) {
            scan.attempted_ms = now_ms;
            scan.attempts.remove(&id);
            for piece in &attempt.left {
                if let Some(progress) = scan.pieces.get_mut(piece) {
                    progress.running.retain(|running| *running != id);
                }
            }
        }
        Some(attempt)
    }

    /// Removes one piece from an attempt that answered it or failed on it. Returns `false` if it was not awaited.
    fn answered(&mut self, id: AttemptId, piece: Piece, now_ms: u64) -> bool {
        let Some(attempt) = self.attempts.get_mut(&id) else { return false };
        if !attempt.left.remove(&piece) {
            return false;
        }
        attempt.heard_ms = now_ms;
        if let Some(scan) = self.scans.get_mut(&attempt.scan) {
            if let Some(progress) = scan.pieces.get_mut(&piece) {
                progress.running.retain(|running| *running != id);
            }
            if attempt.left.is_empty() {
                scan.paces.note(now_ms.saturating_sub(attempt.started_ms), attempt.cost);
            }
        }
        true
    }

    fn done(
        &mut self,
        id: ScanId,
        attempt: AttemptId,
        host: HostId,
        (piece, digest): (Piece, Digest),
        now_ms: u64,
        out: &mut Vec<Command>,
    ) {
        let vote = self.attempts.get(&attempt).is_some_and(|a| a.purpose == Purpose::Vote);
        let waited = self.answered(attempt, piece, now_ms);
        if self.quarantined.contains(&host) {
            return;
        }
        let Some(scan) = self.scans.get_mut(&id) else { return self.compare_delivered(id, host, (piece, digest), out) };
        let Some(progress) = scan.pieces.get_mut(&piece) else { return };
        match &mut progress.standing {
            PieceState::Open => {
                progress.accept(host, digest);
                let accusers = std::mem::take(&mut progress.accusers);
                let malformed = !progress.malformed.is_empty();
                scan.open -= 1;
                scan.open_cost = scan.open_cost.saturating_sub(progress.cost);
                out.push(Command::Accept { scan: id, piece });
                self.release(id, piece, out);
                // A piece that fails on one host and not on another fails because of that host.
                accusers.into_iter().for_each(|accuser| self.distrust(accuser, (id, piece), now_ms, out));
                match malformed {
                    true => self.disprove_malformed((id, piece), Some(digest), now_ms, out),
                    false => self.end_if_complete(id, out),
                }
            }
            PieceState::Accepted(_) => self.vote(id, piece, host, digest, now_ms, out),
            PieceState::Failed => {}
        }
        if vote && waited {
            self.ask_if_unsettled(id, piece, out);
        }
    }

    /// A piece has ended: stops other attempts that have nothing else left.
    fn release(&mut self, id: ScanId, piece: Piece, out: &mut Vec<Command>) {
        let Some(scan) = self.scans.get(&id) else { return };
        let Some(progress) = scan.pieces.get(&piece) else { return };
        let beaten = |attempt: &&AttemptId| {
            let Some(running) = self.attempts.get(attempt) else { return false };
            running.purpose != Purpose::Vote && !running.left.iter().any(|left| scan.is_open(left))
        };
        let beaten: Vec<AttemptId> = progress.running.iter().filter(beaten).copied().collect();
        for attempt in beaten {
            self.forget(attempt);
            out.push(Command::Stop { attempt });
        }
    }

    fn fail(&mut self, id: ScanId, piece: Piece, kind: ErrorKind, out: &mut Vec<Command>) {
        let Some(scan) = self.scans.get_mut(&id) else { return };
        let Some(progress) = scan.pieces.get_mut(&piece) else { return };
        if !matches!(progress.standing, PieceState::Open) {
            return;
        }
        progress.standing = PieceState::Failed;
        scan.open -= 1;
        scan.open_cost = scan.open_cost.saturating_sub(progress.cost);
        out.push(Command::Fail { scan: id, piece, kind, attempts: progress.tries });
        self.release(id, piece, out);
        self.end_if_complete(id, out);
    }
}
