//! Who runs which shard when: `step(event, now) -> commands`.
//!
//! Pure: integers and ids, no I/O, no clock, no randomness; the same events give the same commands. It drives threads
//! (`local`), a cluster (`server`) and simulations alike. It never sees a result, only that there is one. Wanted
//! properties: see `README.md` beside this room's sources.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use trawl_protocol::ErrorKind;

use crate::planner::Shard;

/// A scan, as long as it runs.
pub type ScanId = u64;
/// One registration of a worker: one that was lost and comes back has a new id.
pub type WorkerId = u64;
/// One dispatch of one shard to one worker.
pub type AttemptId = u64;

/// Shards in flight per worker of a cluster: one computes while the next is on its way.
pub const SHARDS_IN_FLIGHT_PER_WORKER: usize = 2;
/// Dispatches of a segment before it is given up.
pub const ATTEMPTS_MAX: u32 = 5;
/// Wait before work that a living worker failed is dispatched again; doubles with each attempt.
pub const RETRY_DELAY_MS: u64 = 100;
/// How long a scan waits while there is no worker at all.
pub const NO_WORKER_TIMEOUT_MS: u64 = 30_000;

/// The bounds a scheduler keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// See [`ATTEMPTS_MAX`].
    pub attempts_max: u32,
    /// See [`RETRY_DELAY_MS`].
    pub retry_delay_ms: u64,
    /// See [`NO_WORKER_TIMEOUT_MS`].
    pub no_worker_timeout_ms: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { attempts_max: ATTEMPTS_MAX, retry_delay_ms: RETRY_DELAY_MS, no_worker_timeout_ms: NO_WORKER_TIMEOUT_MS }
    }
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A scan was accepted; each of its segments is in one shard.
    Submitted { scan: ScanId, shards: Vec<Shard> },
    /// Nobody wants the scan any more.
    Cancelled { scan: ScanId },
    /// A worker may be given `slots` shards at a time.
    WorkerJoined { worker: WorkerId, slots: usize },
    /// A worker is gone, whatever the evidence.
    WorkerLost { worker: WorkerId },
    /// A valid result arrived. Also taken from attempts that were given up: a result is a pure function of its segment.
    SegmentDone { scan: ScanId, attempt: AttemptId, segment: u32 },
    /// An attempt says that one of its segments failed.
    SegmentFailed { attempt: AttemptId, segment: u32, kind: ErrorKind },
    /// An attempt is over; what it has not answered is tried elsewhere.
    AttemptEnded { attempt: AttemptId },
    /// Time went by.
    Tick,
}

/// How a scan ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Every segment was accepted or failed.
    Complete,
    /// On request.
    Cancelled,
    /// There was no worker for too long.
    NoWorker,
}

/// What is to be done, in this order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// Send `segments` (ascending) to `worker`.
    Dispatch { attempt: AttemptId, scan: ScanId, worker: WorkerId, segments: Vec<u32> },
    /// Nobody waits for this attempt any more.
    Stop { attempt: AttemptId },
    /// The result just reported counts; said once for a segment.
    Accept { scan: ScanId, segment: u32 },
    /// The segment has no result and gets no more attempts; said once, and never of an accepted one.
    Fail { scan: ScanId, segment: u32, kind: ErrorKind, attempts: u32 },
    /// Nothing more is said of this scan.
    End { scan: ScanId, outcome: Outcome },
}

/// A shard, or what is left of one, that waits for a worker.
#[derive(Debug)]
struct Waiting {
    segments: Vec<u32>,
    preferred: Option<WorkerId>,
    /// Workers that failed it: the last choice.
    avoid: BTreeSet<WorkerId>,
    not_before_ms: u64,
}

#[derive(Debug)]
struct Scan {
    /// Segments that are neither accepted nor failed, with the number of dispatches so far.
    open: BTreeMap<u32, u32>,
    waiting: VecDeque<Waiting>,
    /// Since when it waits for a first worker, or when it was submitted.
    submitted_ms: u64,
}

#[derive(Debug)]
struct Attempt {
    scan: ScanId,
    worker: WorkerId,
    /// What it has not answered; may hold segments that another attempt answered meanwhile.
    left: BTreeSet<u32>,
    avoid: BTreeSet<WorkerId>,
}

#[derive(Debug)]
struct Worker {
    slots: usize,
    in_flight: BTreeSet<AttemptId>,
}

/// The state; see the module's header.
#[derive(Debug)]
pub struct Scheduler {
    limits: Limits,
    scans: BTreeMap<ScanId, Scan>,
    attempts: BTreeMap<AttemptId, Attempt>,
    workers: BTreeMap<WorkerId, Worker>,
    next_attempt: AttemptId,
    /// The scan that was served last; the next one comes first now.
    served: ScanId,
    /// Since when there is no worker.
    empty_since_ms: Option<u64>,
}

impl Scheduler {
    /// Without workers or scans.
    pub fn new(limits: Limits, now_ms: u64) -> Self {
        Self {
            limits,
            scans: BTreeMap::new(),
            attempts: BTreeMap::new(),
            workers: BTreeMap::new(),
            next_attempt: 1,
            served: 0,
            empty_since_ms: Some(now_ms),
        }
    }

    /// Takes one event and says what to do. `now_ms` never goes back.
    pub fn step(&mut self, event: Event, now_ms: u64) -> Vec<Command> {
        let mut commands = Vec::new();
        match event {
            Event::Submitted { scan, shards } => self.submit(scan, shards, now_ms, &mut commands),
            Event::Cancelled { scan } => self.end(scan, Outcome::Cancelled, &mut commands),
            Event::WorkerJoined { worker, slots } => self.join(worker, slots),
            Event::WorkerLost { worker } => self.lose(worker, now_ms, &mut commands),
            Event::SegmentDone { scan, attempt, segment } => {
                if let Some(attempt) = self.attempts.get_mut(&attempt) {
                    attempt.left.remove(&segment);
                }
                self.accept(scan, segment, &mut commands);
            }
            Event::SegmentFailed { attempt, segment, kind } => {
                self.segment_failed(attempt, segment, kind, now_ms, &mut commands);
            }
            Event::AttemptEnded { attempt } => {
                if let Some(attempt) = self.forget(attempt) {
                    let left = attempt.left.iter().copied().collect();
                    self.retry(&attempt, left, ErrorKind::Retryable, true, now_ms, &mut commands);
                }
            }
            Event::Tick => self.give_up_without_workers(now_ms, &mut commands),
        }
        self.dispatch(now_ms, &mut commands);
        commands
    }

    /// Shards a worker is busy with.
    pub fn in_flight(&self, worker: WorkerId) -> usize {
        self.workers.get(&worker).map_or(0, |w| w.in_flight.len())
    }

    /// Whether no scan is left.
    pub fn is_idle(&self) -> bool {
        self.scans.is_empty()
    }

    fn submit(&mut self, id: ScanId, shards: Vec<Shard>, now_ms: u64, commands: &mut Vec<Command>) {
        if self.scans.contains_key(&id) {
            return;
        }
        let mut open = BTreeMap::new();
        let mut waiting = VecDeque::with_capacity(shards.len());
        for shard in shards {
            let fresh = |segment: &u32| open.insert(*segment, 0).is_none();
            let segments: Vec<u32> = shard.segments.into_iter().filter(fresh).collect();
            if !segments.is_empty() {
                let avoid = BTreeSet::new();
                waiting.push_back(Waiting { segments, preferred: shard.preferred, avoid, not_before_ms: 0 });
            }
        }
        self.scans.insert(id, Scan { open, waiting, submitted_ms: now_ms });
        self.end_if_complete(id, commands);
    }

    fn join(&mut self, worker: WorkerId, slots: usize) {
        self.workers.entry(worker).or_insert(Worker { slots: slots.max(1), in_flight: BTreeSet::new() });
        self.empty_since_ms = None;
    }

    fn lose(&mut self, worker: WorkerId, now_ms: u64, commands: &mut Vec<Command>) {
        let Some(lost) = self.workers.remove(&worker) else { return };
        if self.workers.is_empty() {
            self.empty_since_ms = Some(now_ms);
        }
        for id in lost.in_flight {
            if let Some(attempt) = self.attempts.remove(&id) {
                commands.push(Command::Stop { attempt: id });
                let left = attempt.left.iter().copied().collect();
                self.retry(&attempt, left, ErrorKind::Retryable, false, now_ms, commands);
            }
        }
    }

    fn accept(&mut self, id: ScanId, segment: u32, commands: &mut Vec<Command>) {
        let Some(scan) = self.scans.get_mut(&id) else { return };
        if scan.open.remove(&segment).is_some() {
            commands.push(Command::Accept { scan: id, segment });
            self.end_if_complete(id, commands);
        }
    }

    fn segment_failed(
        &mut self,
        id: AttemptId,
        segment: u32,
        kind: ErrorKind,
        now_ms: u64,
        commands: &mut Vec<Command>,
    ) {
        let Some(attempt) = self.attempts.get_mut(&id) else { return };
        if !attempt.left.remove(&segment) {
            return;
        }
        let (scan, worker, avoid) = (attempt.scan, attempt.worker, attempt.avoid.clone());
        if kind.is_retried() {
            let one = Attempt { scan, worker, left: BTreeSet::new(), avoid };
            self.retry(&one, vec![segment], kind, true, now_ms, commands);
        } else {
            self.fail(scan, segment, kind, commands);
        }
    }

    fn fail(&mut self, id: ScanId, segment: u32, kind: ErrorKind, commands: &mut Vec<Command>) {
        let Some(scan) = self.scans.get_mut(&id) else { return };
        if let Some(attempts) = scan.open.remove(&segment) {
            commands.push(Command::Fail { scan: id, segment, kind, attempts });
            self.end_if_complete(id, commands);
        }
    }

    /// Puts segments that `attempt` did not answer back into line, or fails those that had all their attempts.
    fn retry(
        &mut self,
        attempt: &Attempt,
        segments: Vec<u32>,
        kind: ErrorKind,
        delayed: bool,
        now_ms: u64,
        commands: &mut Vec<Command>,
    ) {
        let Some(scan) = self.scans.get_mut(&attempt.scan) else { return };
        let (mut again, mut over, mut tries) = (Vec::new(), Vec::new(), 0);
        for segment in segments {
            match scan.open.get(&segment) {
                Some(&count) if count < self.limits.attempts_max => {
                    tries = tries.max(count);
                    again.push(segment);
                }
                Some(_) => over.push(segment),
                // Answered by another attempt.
                None => {}
            }
        }
        if !again.is_empty() {
            let mut avoid = attempt.avoid.clone();
            avoid.insert(attempt.worker);
            let doublings = tries.saturating_sub(1).min(16);
            let delay_ms = if delayed { self.limits.retry_delay_ms << doublings } else { 0 };
            // First in line: these are the oldest.
            scan.waiting.push_front(Waiting {
                segments: again,
                preferred: None,
                avoid,
                not_before_ms: now_ms.saturating_add(delay_ms),
            });
        }
        for segment in over {
            self.fail(attempt.scan, segment, kind, commands);
        }
    }

    fn forget(&mut self, id: AttemptId) -> Option<Attempt> {
        let attempt = self.attempts.remove(&id)?;
        if let Some(worker) = self.workers.get_mut(&attempt.worker) {
            worker.in_flight.remove(&id);
        }
        Some(attempt)
    }

    fn end_if_complete(&mut self, id: ScanId, commands: &mut Vec<Command>) {
        if self.scans.get(&id).is_some_and(|scan| scan.open.is_empty()) {
            self.end(id, Outcome::Complete, commands);
        }
    }

    fn end(&mut self, id: ScanId, outcome: Outcome, commands: &mut Vec<Command>) {
        if self.scans.remove(&id).is_none() {
            return;
        }
        let attempts: Vec<AttemptId> =
            self.attempts.iter().filter(|(_, attempt)| attempt.scan == id).map(|(&id, _)| id).collect();
        for attempt in attempts {
            // One that has answered everything ends by itself; it keeps its slot until it does.
            if self.attempts.get(&attempt).is_some_and(|a| !a.left.is_empty()) {
                self.forget(attempt);
                commands.push(Command::Stop { attempt });
            }
        }
        commands.push(Command::End { scan: id, outcome });
    }

    fn give_up_without_workers(&mut self, now_ms: u64, commands: &mut Vec<Command>) {
        let Some(since) = self.empty_since_ms else { return };
        let late =
            |scan: &Scan| now_ms.saturating_sub(since.max(scan.submitted_ms)) >= self.limits.no_worker_timeout_ms;
        let ended: Vec<ScanId> = self.scans.iter().filter(|(_, scan)| late(scan)).map(|(&id, _)| id).collect();
        for id in ended {
            self.end(id, Outcome::NoWorker, commands);
        }
    }

    /// Fills free slots: first each worker with what would best run there, then any worker with anything.
    fn dispatch(&mut self, now_ms: u64, commands: &mut Vec<Command>) {
        for own_only in [true, false] {
            while let Some((worker, scan, index)) = self.next_pair(own_only, now_ms) {
                self.start(worker, scan, index, commands);
            }
        }
    }

    /// A worker with a free slot (the least busy first) and a piece of waiting work for it.
    fn next_pair(&self, own_only: bool, now_ms: u64) -> Option<(WorkerId, ScanId, usize)> {
        let mut free: Vec<(usize, WorkerId)> = self
            .workers
            .iter()
            .filter(|(_, w)| w.in_flight.len() < w.slots)
            .map(|(&id, w)| (w.in_flight.len(), id))
            .collect();
        free.sort_unstable();
        // Round-robin: the scans after the one served last, then the others.
        let turn = || self.scans.range(self.served + 1..).chain(self.scans.range(..=self.served));
        for (_, worker) in free {
            for (&id, scan) in turn() {
                let fits = |work: &Waiting| {
                    work.not_before_ms <= now_ms
                        && self.may_run(work, worker)
                        && (!own_only || work.preferred == Some(worker))
                };
                // Others' work is taken from the end of the line, where its own worker gets to last.
                let found = match own_only {
                    true => scan.waiting.iter().position(fits),
                    false => {
                        let orphan =
                            |w: &Waiting| fits(w) && w.preferred.is_none_or(|p| !self.workers.contains_key(&p));
                        scan.waiting.iter().position(orphan).or_else(|| scan.waiting.iter().rposition(fits))
                    }
                };
                if let Some(index) = found {
                    return Some((worker, id, index));
                }
            }
        }
        None
    }

    /// A worker that failed a piece of work gets it again only when every worker has failed it.
    fn may_run(&self, work: &Waiting, worker: WorkerId) -> bool {
        !work.avoid.contains(&worker) || self.workers.keys().all(|w| work.avoid.contains(w))
    }

    fn start(&mut self, worker: WorkerId, scan_id: ScanId, index: usize, commands: &mut Vec<Command>) {
        let Some(scan) = self.scans.get_mut(&scan_id) else { return };
        let Some(work) = scan.waiting.remove(index) else { return };
        // Late results may have answered some of it.
        let segments: Vec<u32> = work.segments.into_iter().filter(|s| scan.open.contains_key(s)).collect();
        if segments.is_empty() {
            return;
        }
        for segment in &segments {
            if let Some(tries) = scan.open.get_mut(segment) {
                *tries += 1;
            }
        }
        let id = self.next_attempt;
        self.next_attempt += 1;
        self.served = scan_id;
        let left = segments.iter().copied().collect();
        self.attempts.insert(id, Attempt { scan: scan_id, worker, left, avoid: work.avoid });
        if let Some(worker) = self.workers.get_mut(&worker) {
            worker.in_flight.insert(id);
        }
        commands.push(Command::Dispatch { attempt: id, scan: scan_id, worker, segments });
    }
}
