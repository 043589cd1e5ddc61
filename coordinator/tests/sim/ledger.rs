//! Bookkeeping of one term's scheduler, independent of it; all invariants are checked after every event.
//!
//! It does not use the scheduler's own state, only events and commands.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use trawl_coordinator::scheduler::{
    AttemptId, Check, ClassId, Command, Digest, Event, HostId, Limits, Loss, Outcome, Piece, Purpose, Request, ScanId,
    VOTES_MAX, WorkerId,
};
use trawl_wire::ErrorKind;

/// The invariants. Each has a planted bug in `sabotage`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Invariant {
    /// Every symbol is in the answer or in the list of failures, exactly once.
    EverySymbolOnce,
    /// No piece is dispatched more often than its attempts, no result is requested more often than the limit of votes.
    AttemptsWithinLimits,
    /// A scan that has ended has no running attempt, and no further commands.
    NothingAfterTheEnd,
    /// A worker has at most as many shards in flight as slots, and none beside a suspect.
    InFlightBounded,
    /// Work goes to present workers of the scan's class that are neither draining nor quarantined.
    RightWorkers,
    /// Once faults stop, every scan ends.
    Progress,
    /// The answer equals that of an undisturbed run, unless the scan is marked as disputed.
    SameBytes,
    /// Failures, ends and quarantines have a reason.
    Reasons,
    /// A scan ends at its deadline.
    Deadlines,
    /// At most one coordinator leads by its own clock, and it acts only while it leads or is suspended.
    OneLeader,
    /// No write of a leader applies, and no worker takes its work, once a later epoch has begun there.
    StaleEpochs,
    /// An accepted scan is run until it ends.
    AcceptedScansEnd,
    /// The end of a scan is recorded once, and its answer is then in the result store.
    RecordedAnswer,
    /// A repeated request does not create a second scan.
    OneScanPerRequest,
    /// A new leader reads all records, however many there are.
    LeadersBegin,
    /// An attempt that is silent for too long is ended.
    EveryAttemptEnds,
    /// A permanent failure was reported by two hosts, or by one and the coordinator's own copy.
    OneHostIsNoProof,
    /// The results of one answer are of one class: releases may compute other bits.
    OneClassPerAnswer,
    /// Whoever knew a later state of a store that went back ends, and is started anew.
    RestoresAreNoticed,
    /// Once faults stop, everybody knows the leader, and the leader the workers.
    RegistrationsAreSeen,
    /// What a coordinator holds until it is stored is bounded, however slow the store and fast the workers.
    HeldIsBounded,
    /// A host that answered a piece with what cannot be its result is not believed once another host has one.
    MalformedIsAFault,
}

/// Maximum silence of an attempt, as a multiple of the usual timeout, including doublings for slow work.
const SILENCE: u64 = 32;

/// A violated invariant.
#[derive(Debug, Clone)]
pub struct Violation {
    pub invariant: Invariant,
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.invariant, self.what)
    }
}

/// The ground truth of the world, unknown to the scheduler.
pub trait Truth {
    /// The digest of a right result.
    fn digest(&self, run: ScanId, class: ClassId, piece: Piece) -> Digest;
    /// Whether one of the piece's symbols kills workers.
    fn kills(&self, scan: ScanId, piece: Piece) -> bool;
    fn lies(&self, host: HostId) -> bool;
    /// Whether some files of the host's own copy are damaged.
    fn is_damaged_at(&self, host: HostId) -> bool;
    /// Whether the segment's file is damaged in every copy.
    fn is_damaged(&self, scan: ScanId, segment: u32) -> bool;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Accepted(Digest),
    Failed,
}

#[derive(Debug, Default)]
struct Seen {
    symbols: BTreeMap<u32, u32>,
    class: ClassId,
    deadline_ms: Option<u64>,
    ends: BTreeMap<Piece, End>,
    /// Number of dispatches for work or isolation, without those to workers that left.
    tries: BTreeMap<Piece, u32>,
    votes: BTreeMap<Piece, u32>,
    hedges: BTreeMap<Piece, u32>,
    /// Number of workers that died running it, and how many of them while it ran alone.
    deaths: BTreeMap<Piece, (u32, u32)>,
    /// Hosts that reported a permanent failure of a piece.
    accused: BTreeMap<Piece, BTreeSet<HostId>>,
    /// Results of the coordinator's checks of its own copy.
    checked: BTreeMap<Piece, Check>,
    /// Hosts that answered a piece with what cannot be its result.
    malformed: BTreeMap<Piece, BTreeSet<HostId>>,
    /// All reported results, with their hosts.
    reported: BTreeMap<Piece, Vec<(HostId, Digest)>>,
    outcome: Option<Outcome>,
}

#[derive(Debug)]
struct Running {
    scan: ScanId,
    worker: WorkerId,
    left: BTreeSet<Piece>,
    purpose: Purpose,
    heard_ms: u64,
}

#[derive(Debug, Clone, Copy)]
struct Worker {
    host: HostId,
    class: ClassId,
    slots: usize,
    draining: bool,
    /// Whether it failed data that are sound elsewhere.
    distrusted: bool,
}

impl Worker {
    fn is_given_work(&self) -> bool {
        !self.draining && !self.distrusted
    }
}

/// See the module documentation.
#[derive(Debug, Default)]
pub struct Ledger {
    now_ms: u64,
    /// Hosts whose attempts are called off by the current commands.
    leaving: BTreeSet<HostId>,
    scans: BTreeMap<ScanId, Seen>,
    running: BTreeMap<AttemptId, Running>,
    workers: BTreeMap<WorkerId, Worker>,
    quarantined: BTreeSet<HostId>,
    /// Counts of events, so that a test can check its coverage.
    pub counts: BTreeMap<&'static str, u64>,
}

pub type Checked = Result<(), Violation>;

pub fn ensure(holds: bool, invariant: Invariant, what: impl FnOnce() -> String) -> Checked {
    if holds { Ok(()) } else { Err(Violation { invariant, what: what() }) }
}

impl Ledger {
    /// Records an event before the scheduler handles it.
    pub fn before(&mut self, event: &Event, now_ms: u64) {
        self.now_ms = now_ms;
        match event {
            Event::Submitted { scan, request } => self.submitted(*scan, request),
            Event::WorkerJoined { worker, host, class, slots } => {
                let joined = Worker { host: *host, class: *class, slots: *slots, draining: false, distrusted: false };
                self.workers.insert(*worker, joined);
            }
            Event::WorkerDraining { worker } => {
                self.workers.entry(*worker).and_modify(|w| w.draining = true);
            }
            Event::WorkerLost { worker, loss } => {
                self.workers.remove(worker);
                let lost: Vec<AttemptId> =
                    self.running.iter().filter(|(_, r)| r.worker == *worker).map(|(&a, _)| a).collect();
                for attempt in lost {
                    self.lost(attempt, *loss);
                }
            }
            Event::PieceDone { scan, attempt, host, piece, digest } => {
                if let Some(running) = self.running.get_mut(attempt)
                    && running.left.remove(piece)
                {
                    running.heard_ms = now_ms;
                }
                if let Some(seen) = self.scans.get_mut(scan)
                    && seen.outcome.is_none()
                    && !self.quarantined.contains(host)
                {
                    seen.reported.entry(*piece).or_default().push((*host, *digest));
                }
            }
            Event::PieceFailed { attempt, piece, kind } => {
                if let Some(running) = self.running.get_mut(attempt)
                    && running.left.remove(piece)
                {
                    running.heard_ms = now_ms;
                    let host = self.workers.get(&running.worker).map(|worker| worker.host);
                    if let (Some(host), false, Some(seen)) =
                        (host, kind.is_retried(), self.scans.get_mut(&running.scan))
                    {
                        seen.accused.entry(*piece).or_default().insert(host);
                    }
                }
            }
            Event::PieceMalformed { attempt, piece } => {
                if let Some(running) = self.running.get_mut(attempt)
                    && running.left.remove(piece)
                {
                    running.heard_ms = now_ms;
                    let host = self.workers.get(&running.worker).map(|worker| worker.host);
                    if let (Some(host), Some(seen)) = (host, self.scans.get_mut(&running.scan)) {
                        seen.malformed.entry(*piece).or_default().insert(host);
                    }
                }
            }
            Event::Checked { scan, piece, found } => {
                if let Some(seen) = self.scans.get_mut(scan) {
                    seen.checked.insert(*piece, *found);
                }
            }
            Event::AttemptPaused { attempt } => {
                if let Some(running) = self.running.get_mut(attempt) {
                    running.heard_ms = now_ms;
                }
            }
            Event::AttemptEnded { attempt } => drop(self.running.remove(attempt)),
            Event::Cancelled { .. } | Event::Tick => {}
        }
    }

    fn submitted(&mut self, scan: ScanId, request: &Request) {
        let segments = request.shards.iter().flat_map(|s| &s.segments);
        let symbols = segments.map(|s| (*s, request.symbols.get(s).copied().unwrap_or(1))).collect();
        let seen = Seen { symbols, class: request.class, deadline_ms: request.deadline_ms, ..Seen::default() };
        self.scans.entry(scan).or_insert(seen);
    }

    /// Records that the worker of a running attempt is gone. The attempt stays until the scheduler stops it.
    fn lost(&mut self, attempt: AttemptId, loss: Loss) {
        let Some(Running { scan, left, purpose, .. }) = self.running.get(&attempt) else { return };
        let Some(seen) = self.scans.get_mut(scan) else { return };
        for piece in left {
            match loss {
                Loss::Left => seen.forgive(*piece, *purpose),
                Loss::Died => {
                    let deaths = seen.deaths.entry(*piece).or_default();
                    deaths.0 += 1;
                    deaths.1 += u32::from(*purpose == Purpose::Isolation);
                }
            }
        }
    }

    /// Records the scheduler's commands for an event, and checks all invariants.
    pub fn after(
        &mut self,
        event: &Event,
        commands: &[Command],
        (limits, now_ms): (&Limits, u64),
        truth: &dyn Truth,
    ) -> Checked {
        for command in commands {
            self.obey(event, command, limits, now_ms, truth)?;
        }
        self.leaving.clear();
        self.check_workers()?;
        self.check_malformed()?;
        let bound = limits.attempt_timeout_ms * SILENCE;
        for (attempt, running) in self.running.iter().filter(|_| matches!(event, Event::Tick)) {
            let silent = !running.left.is_empty() && now_ms.saturating_sub(running.heard_ms) > bound;
            ensure(!silent, Invariant::EveryAttemptEnds, || {
                format!("attempt {attempt} has not answered for {bound} ms and runs")
            })?;
        }
        for (id, seen) in &self.scans {
            let late = seen.deadline_ms.is_some_and(|at| at <= now_ms) && matches!(event, Event::Tick);
            ensure(!late || seen.outcome.is_some(), Invariant::Deadlines, || {
                format!("scan {id} outlives its deadline")
            })?;
        }
        Ok(())
    }

    fn check_malformed(&self) -> Checked {
        for (id, seen) in self.scans.iter().filter(|(_, seen)| seen.outcome.is_none()) {
            for (piece, hosts) in &seen.malformed {
                let accepted = matches!(seen.ends.get(piece), Some(End::Accepted(_)));
                let reports = seen.reported.get(piece).filter(|_| accepted).map_or(&[][..], Vec::as_slice);
                let right =
                    |host: &HostId| reports.iter().any(|(other, _)| other != host && !self.quarantined.contains(other));
                let believed = hosts.iter().find(|host| !self.quarantined.contains(host) && right(host));
                ensure(believed.is_none(), Invariant::MalformedIsAFault, || {
                    format!(
                        "host {believed:?} sent no result of {piece:?} of scan {id}, others have one, and it is believed"
                    )
                })?;
            }
        }
        Ok(())
    }

    fn check_workers(&self) -> Checked {
        let mut flying: BTreeMap<WorkerId, Vec<&Running>> = BTreeMap::new();
        for running in self.running.values() {
            flying.entry(running.worker).or_default().push(running);
        }
        for (id, running) in flying {
            let Some(worker) = self.workers.get(&id) else {
                let what = || format!("attempts outlive worker {id}");
                return ensure(false, Invariant::NothingAfterTheEnd, what);
            };
            ensure(running.len() <= worker.slots, Invariant::InFlightBounded, || {
                format!("worker {id} has {} of {} slots in flight", running.len(), worker.slots)
            })?;
            let suspects = running.iter().any(|r| r.purpose == Purpose::Isolation);
            ensure(!suspects || running.len() == 1, Invariant::InFlightBounded, || {
                format!("worker {id} runs something beside a suspect")
            })?;
        }
        Ok(())
    }

    fn obey(&mut self, event: &Event, command: &Command, limits: &Limits, now_ms: u64, truth: &dyn Truth) -> Checked {
        match command {
            Command::Dispatch { attempt, scan, worker, pieces, purpose } => {
                self.dispatch(*attempt, *scan, *worker, pieces, *purpose, limits)
            }
            Command::Stop { attempt } => {
                let stopped = self.running.remove(attempt);
                let what = || format!("attempt {attempt} is stopped and does not run");
                let Some(running) = stopped else { return ensure(false, Invariant::NothingAfterTheEnd, what) };
                // The host turned out to lie: its pieces are not to blame.
                let host = self.workers.get(&running.worker).map(|w| w.host);
                if host.is_some_and(|h| self.quarantined.contains(&h) || self.leaving.contains(&h))
                    && let Some(seen) = self.scans.get_mut(&running.scan)
                {
                    running.left.iter().for_each(|piece| seen.forgive(*piece, running.purpose));
                }
                Ok(())
            }
            Command::Accept { scan, piece } | Command::Replace { scan, piece } => {
                let Event::PieceDone { scan: s, piece: p, digest, .. } = event else {
                    return ensure(false, Invariant::EverySymbolOnce, || "accepted what was not reported".to_owned());
                };
                let replaces = matches!(command, Command::Replace { .. });
                *self.counts.entry(if replaces { "replaced" } else { "accepted" }).or_default() += 1;
                let seen = self.alive(*scan)?;
                let once = match seen.ends.insert(*piece, End::Accepted(*digest)) {
                    None => !replaces,
                    Some(End::Accepted(_)) => replaces,
                    Some(End::Failed) => false,
                };
                ensure(once && (s, p) == (scan, piece), Invariant::EverySymbolOnce, || {
                    format!("{piece:?} of scan {scan} accepted twice, or replaced without being accepted")
                })
            }
            Command::Fail { scan, piece, kind, attempts } => {
                *self.counts.entry(kind.name()).or_default() += 1;
                let seen = self.alive(*scan)?;
                let first = seen.ends.insert(*piece, End::Failed).is_none();
                ensure(first, Invariant::EverySymbolOnce, || format!("{piece:?} of scan {scan} ends twice"))?;
                let (_, alone) = seen.deaths.get(piece).copied().unwrap_or_default();
                let accused = seen.accused.get(piece).map_or(0, BTreeSet::len);
                let checked = seen.checked.get(piece).copied();
                let proven = accused >= 2 || checked == Some(Check::Damaged);
                ensure(*kind != ErrorKind::Permanent || proven, Invariant::OneHostIsNoProof, || {
                    format!(
                        "{piece:?} of scan {scan} failed for good by the word of {accused} host, checked: {checked:?}"
                    )
                })?;
                if *kind == ErrorKind::Permanent && !truth.is_damaged(*scan, piece.segment) {
                    *self.counts.entry("damaged in two copies").or_default() += 1;
                }
                let seen = self.alive(*scan)?;
                let enough = match kind {
                    ErrorKind::Poisoned => piece.count == 1 && alone >= limits.deaths_max,
                    ErrorKind::Permanent => true,
                    ErrorKind::Retryable if seen.checked.get(piece) == Some(&Check::Unknown) => true,
                    _ => *attempts >= limits.attempts_max,
                };
                ensure(enough, Invariant::Reasons, || {
                    format!(
                        "{piece:?} of scan {scan} failed as {kind:?} after {attempts} attempts, {alone} deaths alone"
                    )
                })?;
                if *kind == ErrorKind::Poisoned && !truth.kills(*scan, *piece) {
                    *self.counts.entry("innocents poisoned").or_default() += 1;
                }
                Ok(())
            }
            Command::Contest { .. } => {
                *self.counts.entry("contested").or_default() += 1;
                Ok(())
            }
            Command::Check { .. } => Ok(()),
            Command::Distrust { host, .. } => {
                *self.counts.entry("distrusted").or_default() += 1;
                self.leaving.insert(*host);
                self.workers.values_mut().filter(|w| w.host == *host).for_each(|w| w.distrusted = true);
                ensure(truth.is_damaged_at(*host), Invariant::Reasons, || {
                    format!("host {host} is distrusted and its copy is sound")
                })
            }
            Command::Quarantine { host, .. } => {
                *self.counts.entry("quarantined").or_default() += 1;
                self.quarantined.insert(*host);
                ensure(truth.lies(*host), Invariant::Reasons, || format!("host {host} is quarantined and never lied"))
            }
            Command::Doubt { .. } => Ok(()),
            Command::End { scan, outcome } => self.end(event, *scan, *outcome, now_ms, truth),
        }
    }

    fn alive(&mut self, scan: ScanId) -> Result<&mut Seen, Violation> {
        let what = format!("something is reported of scan {scan}, which has ended or never was");
        let seen = self.scans.get_mut(&scan).filter(|seen| seen.outcome.is_none());
        seen.ok_or(Violation { invariant: Invariant::NothingAfterTheEnd, what })
    }

    fn dispatch(
        &mut self,
        attempt: AttemptId,
        scan: ScanId,
        worker: WorkerId,
        pieces: &[Piece],
        purpose: Purpose,
        limits: &Limits,
    ) -> Checked {
        *self
            .counts
            .entry(match purpose {
                Purpose::Work => "work",
                Purpose::Isolation => "isolated",
                Purpose::Hedge => "hedged",
                Purpose::Vote => "votes",
            })
            .or_default() += 1;
        let class = self.alive(scan)?.class;
        let fits = |w: &Worker| w.class == class && w.is_given_work() && !self.quarantined.contains(&w.host);
        ensure(self.workers.get(&worker).is_some_and(fits), Invariant::RightWorkers, || {
            format!("scan {scan} of class {class} went to worker {worker}, {:?}", self.workers.get(&worker))
        })?;
        ensure(!pieces.is_empty() && pieces.is_sorted(), Invariant::EverySymbolOnce, || {
            "an empty dispatch".to_owned()
        })?;
        let seen = self.alive(scan)?;
        for piece in pieces {
            let (counts, most) = match purpose {
                Purpose::Work | Purpose::Isolation => (&mut seen.tries, limits.attempts_max * 2),
                Purpose::Vote => (&mut seen.votes, VOTES_MAX),
                Purpose::Hedge => (&mut seen.hedges, limits.attempts_max * 2),
            };
            let count = counts.entry(*piece).or_default();
            *count += 1;
            // A lone symbol that has to be cleared by running alone gets a new set of attempts.
            let most = if piece.count > 1 && purpose == Purpose::Work { limits.attempts_max } else { most };
            ensure(*count <= most, Invariant::AttemptsWithinLimits, || {
                format!("{piece:?} of scan {scan} dispatched {count} times for {purpose:?}")
            })?;
            let ended = seen.ends.get(piece);
            let wanted = (purpose == Purpose::Vote) == matches!(ended, Some(End::Accepted(_)));
            ensure(wanted && ended != Some(&End::Failed), Invariant::EverySymbolOnce, || {
                format!("{piece:?} of scan {scan} dispatched for {purpose:?} although it is {ended:?}")
            })?;
        }
        let left = pieces.iter().copied().collect();
        let heard_ms = self.now_ms;
        let fresh = self.running.insert(attempt, Running { scan, worker, left, purpose, heard_ms }).is_none();
        ensure(fresh, Invariant::AttemptsWithinLimits, || format!("attempt {attempt} twice"))
    }

    fn end(&mut self, event: &Event, scan: ScanId, outcome: Outcome, now_ms: u64, truth: &dyn Truth) -> Checked {
        let workers = self.workers.clone();
        let quarantined = self.quarantined.clone();
        let seen = self.alive(scan)?;
        seen.outcome = Some(outcome);
        let class = seen.class;
        let serves = |w: &Worker| w.class == class && w.is_given_work() && !quarantined.contains(&w.host);
        let fair = match outcome {
            Outcome::NoWorker => !workers.values().any(serves),
            Outcome::Cancelled => matches!(event, Event::Cancelled { .. }),
            Outcome::DeadlineExceeded => seen.deadline_ms.is_some_and(|at| at <= now_ms),
            Outcome::Complete { .. } | Outcome::Poisoned => true,
        };
        ensure(fair, Invariant::Reasons, || format!("scan {scan} ended as {outcome:?} for no reason"))?;
        let seen = self.scans.get(&scan).expect("it was there");
        for running in self.running.values().filter(|r| r.scan == scan) {
            ensure(running.left.is_empty(), Invariant::NothingAfterTheEnd, || {
                format!("scan {scan} ended and {running:?} runs")
            })?;
        }
        let name = match outcome {
            Outcome::Complete { disputed: false } => "complete",
            Outcome::Complete { disputed: true } => "disputed",
            Outcome::Cancelled => "cancelled scans",
            Outcome::NoWorker => "no worker",
            Outcome::DeadlineExceeded => "deadline",
            Outcome::Poisoned => "poisoned scans",
        };
        *self.counts.entry(name).or_default() += 1;
        let Outcome::Complete { disputed } = outcome else { return Ok(()) };
        seen.check_cover(scan)?;
        for (piece, end) in &seen.ends {
            let (End::Accepted(digest), false) = (end, disputed) else { continue };
            // A lie that no host contradicted cannot be detected.
            let reports = seen.reported.get(piece).map_or(&[][..], Vec::as_slice);
            let believed = reports.iter().filter(|(host, _)| !self.quarantined.contains(host));
            let contradicted = believed.clone().any(|(_, d)| d != digest) || believed.count() == 0;
            ensure(*digest == truth.digest(scan, class, *piece) || !contradicted, Invariant::SameBytes, || {
                format!("scan {scan} ended undisputed with a wrong result for {piece:?}")
            })?;
        }
        Ok(())
    }

    /// Whether the shell waits for this attempt.
    pub fn runs(&self, attempt: AttemptId) -> bool {
        self.running.contains_key(&attempt)
    }
}

impl Seen {
    fn forgive(&mut self, piece: Piece, purpose: Purpose) {
        if matches!(purpose, Purpose::Work | Purpose::Isolation) {
            self.tries.entry(piece).and_modify(|n| *n = n.saturating_sub(1));
        }
    }

    /// Whether the pieces that ended cover every symbol once.
    fn check_cover(&self, scan: ScanId) -> Checked {
        let mut next: BTreeMap<u32, u32> = BTreeMap::new();
        for piece in self.ends.keys() {
            let at = next.entry(piece.segment).or_default();
            ensure(*at == piece.first, Invariant::EverySymbolOnce, || {
                format!("symbol {at} of segment {} of scan {scan} is lost or there twice", piece.segment)
            })?;
            *at = piece.first + piece.count;
        }
        ensure(next == self.symbols, Invariant::EverySymbolOnce, || {
            format!("scan {scan} ended complete with {next:?} of {:?}", self.symbols)
        })
    }
}
