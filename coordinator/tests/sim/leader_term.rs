//! One term of a leader: the real scheduler, the real records of scans, and a simulated result store. How it comes to its
//! scans is in `scans_of_a_term`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use trawl_coordinator::durable::ledger::Ending;
use trawl_coordinator::durable::{End, EndOutcome, Ledger as Records, Progress, Term};
use trawl_coordinator::membership::{Event as Registered, Roster};
use trawl_coordinator::scheduler::{
    AttemptId, Check, Command, Digest, Event, Limits, Outcome, Piece, ScanId, Scheduler, WorkerId,
};
use trawl_wire::record::leader_key;
use trawl_wire::{ErrorKind, Failure};

use crate::control::Handle;
use crate::coordinators::Done;
use crate::facts::{Row, SEGMENT_SYMBOLS_MAX, scan_of};
use crate::laws::CLUSTER;
use crate::ledger::{Checked, Invariant, Ledger, Truth as _, ensure};
use crate::machines::{Source, Work};
use crate::members::Known;
use crate::results::Group;
use crate::sabotage::Bug;
use crate::scans_of_a_term::Begun;
use crate::world::{Happening, LIMITS, TICK_MS, World};

/// How long finished segments wait for others before they are stored.
const COMMIT_INTERVAL_MS: u64 = 20;
/// Wait before a failed call is retried.
pub const RETRY_MS: u64 = 200;
/// Symbols of finished segments that wait to be stored from which on no worker is read.
const HELD_MAX: u64 = 160;
/// Interval at which a worker that is not read is looked at again, and reported as alive.
const PAUSE_MS: u64 = 50;
/// One scan of a term, in one generation.
pub struct Run {
    pub name: String,
    begun: Begun,
    /// Symbols of the segments that this term runs.
    symbols: BTreeMap<u32, u32>,
    pieces: BTreeMap<Piece, Option<Digest>>,
    /// Segments sent to the result store, stored or in transit.
    handed: BTreeMap<u32, Vec<Row>>,
    /// Segments whose current rows are stored.
    stored: BTreeSet<u32>,
    storing: u32,
    flushing: bool,
    outcome: Option<Outcome>,
    ending: bool,
}

pub struct LeaderTerm {
    pub serial: u64,
    pub epoch: i64,
    scheduler: Scheduler,
    pub ledger: Ledger,
    pub roster: Roster,
    pub members: BTreeMap<usize, Known>,
    pub joined: BTreeMap<usize, WorkerId>,
    pub next_link: WorkerId,
    pub records: Records<Handle>,
    /// Whether it has read the records.
    pub begun: bool,
    /// By [`run_id`](crate::facts::run_id), as the scheduler knows them.
    pub runs: BTreeMap<ScanId, Run>,
    /// Names of scans whose next generation is being recorded.
    pub restarting: BTreeSet<String>,
    pub names: u64,
    groups: u32,
}

/// Where the results of a generation are.
pub fn object_of(name: &str, generation: u32) -> String {
    format!("{name}/g{generation}")
}

impl Run {
    pub fn new(begun: Begun, symbols: BTreeMap<u32, u32>, ending: bool) -> Self {
        let (pieces, handed, stored, name) = (BTreeMap::new(), BTreeMap::new(), BTreeSet::new(), begun.name.clone());
        Self { name, begun, symbols, pieces, handed, stored, storing: 0, flushing: false, outcome: None, ending }
    }

    /// Symbols of segments that have ended and are not stored.
    fn held(&self) -> u64 {
        let ended = |(segment, symbols): &(&u32, &u32)| {
            let its = Piece { segment: **segment, first: 0, count: 0 }..=Piece {
                segment: **segment,
                first: u32::MAX,
                count: u32::MAX,
            };
            !self.stored.contains(*segment)
                && self.pieces.range(its).map(|(piece, _)| piece.count).sum::<u32>() == **symbols
        };
        self.symbols.iter().filter(ended).map(|(_, symbols)| u64::from(*symbols)).sum()
    }

    /// Segments that have ended and whose current rows have not been sent to the store.
    fn finished(&self, facts: &crate::facts::Facts, scan: ScanId) -> Group {
        let mut group = Vec::new();
        for (&segment, &symbols) in &self.symbols {
            let its = Piece { segment, first: 0, count: 0 }..=Piece { segment, first: u32::MAX, count: u32::MAX };
            let mut rows: Vec<Row> = Vec::new();
            for (piece, digest) in self.pieces.range(its) {
                match digest {
                    Some(digest) => rows.extend(facts.rows(scan, self.begun.class, *piece, *digest)),
                    None => rows.extend((piece.first..piece.first + piece.count).map(|symbol| (symbol, None))),
                }
            }
            if rows.len() == symbols as usize && self.handed.get(&segment) != Some(&rows) {
                group.push((segment, rows));
            }
        }
        group
    }
}

impl LeaderTerm {
    /// Symbols that it holds and that are not stored.
    fn held(&self) -> u64 {
        self.runs.values().map(Run::held).sum()
    }

    /// Whether it runs a generation of the scan.
    pub fn runs(&self, scan: ScanId) -> bool {
        self.runs.keys().any(|run| scan_of(*run) == scan)
    }
}

/// The attempt whose message an event is.
fn attempt_of(event: &Event) -> Option<AttemptId> {
    match event {
        Event::PieceDone { attempt, .. }
        | Event::PieceFailed { attempt, .. }
        | Event::PieceMalformed { attempt, .. }
        | Event::AttemptEnded { attempt } => Some(*attempt),
        _ => None,
    }
}

impl World {
    pub fn begin_reign(&mut self, c: usize, epoch: i64) -> Checked {
        let clock = self.clock(c);
        let never = self.sabotaged(Bug::ForgetsSilentAttempts);
        let limits = if never { Limits { attempt_timeout_ms: u64::MAX, ..LIMITS } } else { LIMITS };
        self.serial += 1;
        let serial = self.serial;
        let state = &mut self.coordinators[c];
        let durable_term = Term { key: leader_key(CLUSTER), epoch };
        let records = Records::new(Arc::new(state.handle.clone()), CLUSTER, durable_term);
        state.term = Some(LeaderTerm {
            serial,
            epoch,
            scheduler: Scheduler::new(limits, clock),
            ledger: Ledger::default(),
            roster: Roster::default(),
            members: BTreeMap::new(),
            joined: BTreeMap::new(),
            next_link: 1,
            records,
            begun: false,
            runs: BTreeMap::new(),
            restarting: BTreeSet::new(),
            names: 0,
            groups: 0,
        });
        self.soon(TICK_MS, Happening::Tick { coordinator: c, serial });
        self.follow_workers(c, epoch)?;
        self.load(c, 0)
    }

    pub fn end_reign(&mut self, c: usize) {
        if let Some(term) = self.coordinators[c].term.take() {
            self.drop_jobs_of(c, term.epoch);
            for (what, n) in term.ledger.counts {
                *self.counts.entry(what).or_default() += n;
            }
        }
    }

    /// The term of a coordinator, if it still has this serial number.
    pub fn term(&mut self, c: usize, serial: u64) -> Option<&mut LeaderTerm> {
        self.coordinators[c].term.as_mut().filter(|term| term.serial == serial)
    }

    pub fn tick(&mut self, c: usize, serial: u64) -> Checked {
        if self.term(c, serial).is_none() {
            return Ok(());
        }
        let stopped_until = self.coordinators[c].stopped_until;
        if stopped_until > self.now_ms {
            self.at(stopped_until, Happening::Tick { coordinator: c, serial });
            return Ok(());
        }
        self.soon(TICK_MS, Happening::Tick { coordinator: c, serial });
        self.hear_of_workers(c, Registered::Tick)?;
        self.step(c, Event::Tick)
    }

    /// A worker knows a later leader.
    pub fn succeeded(&mut self, c: usize, serial: u64) -> Checked {
        if self.term(c, serial).is_none() {
            return Ok(());
        }
        let stopped_until = self.coordinators[c].stopped_until;
        if stopped_until > self.now_ms {
            self.at(stopped_until, Happening::Succeeded { coordinator: c, serial });
            return Ok(());
        }
        self.elect(c, trawl_coordinator::election::Event::Succeeded)
    }

    /// Whether a message of an attempt is read: not while too much waits to be stored.
    pub fn has_room(&mut self, c: usize, event: &Event) -> bool {
        let of_attempt = attempt_of(event).is_some();
        let held = self.coordinators[c].term.as_ref().map_or(0, LeaderTerm::held);
        !of_attempt || held < HELD_MAX || self.sabotaged(Bug::ReadsWithoutRoom)
    }

    /// Leaves a message at the worker for a while; its attempt counts as alive.
    pub fn pause(&mut self, machine: usize, to: Source, event: Event) -> Checked {
        self.count("not read for lack of room");
        let Some(attempt) = attempt_of(&event) else { return Ok(()) };
        self.soon(PAUSE_MS, Happening::Reported { machine, to, event });
        let runs = self.term(to.coordinator, to.serial).is_some_and(|term| term.ledger.runs(attempt));
        if runs { self.step(to.coordinator, Event::AttemptPaused { attempt }) } else { Ok(()) }
    }

    /// One message is read at a time: what is held exceeds the limit by one segment at most.
    fn check_held(&self, c: usize) -> Checked {
        let Some(term) = &self.coordinators[c].term else { return Ok(()) };
        let (held, largest) = (term.held(), u64::from(SEGMENT_SYMBOLS_MAX));
        ensure(held < HELD_MAX + largest, Invariant::HeldIsBounded, || format!("c{c} holds {held} symbols"))
    }

    /// Passes an event to the scheduler of a term.
    pub fn step(&mut self, c: usize, event: Event) -> Checked {
        let clock = self.clock(c);
        let Some(term) = &mut self.coordinators[c].term else { return Ok(()) };
        term.ledger.before(&event, clock);
        let passed = match &mut self.sabotage {
            Some(sabotage) => sabotage.event(event.clone()),
            None => Some(event.clone()),
        };
        let mut commands = passed.map_or_else(Vec::new, |passed| term.scheduler.step(passed, clock));
        if let Some(sabotage) = &mut self.sabotage {
            sabotage.commands(&mut commands);
        }
        if self.traced && !(matches!(event, Event::Tick) && commands.is_empty()) {
            println!("{:>7} c{c} at {clock}: {event:?}", self.now_ms);
            commands.iter().for_each(|command| println!("        -> {command:?}"));
        }
        term.ledger.after(&event, &commands, (&LIMITS, clock), &self.facts)?;
        let (serial, epoch) = (term.serial, term.epoch);
        for command in commands {
            match command {
                Command::Dispatch { attempt, scan, worker, pieces, .. } => {
                    let its_term = self.coordinators[c].epoch() == Some(epoch);
                    ensure(its_term, Invariant::OneLeader, || format!("c{c} dispatches past the end of its term"))?;
                    self.check_leaders()?;
                    let Some(term) = self.term(c, serial) else { continue };
                    let Some((&machine, _)) = term.joined.iter().find(|(_, link)| **link == worker) else { continue };
                    let life = term.members.get(&machine).map_or(0, |known| known.life);
                    let from = Source { coordinator: c, serial, epoch, worker };
                    let wait = self.latency();
                    self.soon(wait, Happening::Arrive { machine, life, work: Work { from, attempt, scan, pieces } });
                }
                Command::Accept { scan, piece } | Command::Replace { scan, piece } => {
                    if let Event::PieceDone { digest, .. } = event {
                        self.note(c, scan, piece, Some(digest));
                        self.check_held(c)?;
                    }
                }
                Command::Fail { scan, piece, .. } => self.note(c, scan, piece, None),
                Command::End { scan, outcome } => {
                    if let Some(run) = self.coordinators[c].term.as_mut().and_then(|r| r.runs.get_mut(&scan)) {
                        run.outcome = Some(outcome);
                    }
                    self.try_end(c, scan)?;
                }
                Command::Check { scan, piece } => {
                    let found = match self.facts.is_damaged(scan, piece.segment) {
                        _ if self.disturbed() && self.random.percent(5) => Check::Unknown,
                        true => Check::Damaged,
                        false => Check::Sound,
                    };
                    self.count("checks");
                    let wait = self.latency();
                    self.soon(wait, Happening::Checked { coordinator: c, serial, scan, piece, found });
                }
                Command::Distrust { host, .. } => {
                    let members = self.term(c, serial).map(|term| &mut term.members);
                    if let Some(known) = members.and_then(|members| members.get_mut(&(host as usize))) {
                        known.distrusted = true;
                    }
                }
                Command::Stop { .. } | Command::Contest { .. } | Command::Quarantine { .. } | Command::Doubt { .. } => {
                }
            }
        }
        Ok(())
    }

    /// Records that a piece has ended: complete segments go to the result store.
    fn note(&mut self, c: usize, scan: ScanId, piece: Piece, digest: Option<Digest>) {
        let Some(term) = &mut self.coordinators[c].term else { return };
        let Some(run) = term.runs.get_mut(&scan) else { return };
        run.pieces.insert(piece, digest);
        run.stored.remove(&piece.segment);
        if !run.flushing {
            run.flushing = true;
            let serial = term.serial;
            self.soon(COMMIT_INTERVAL_MS, Happening::Flush { coordinator: c, serial, scan });
        }
    }

    pub fn flush(&mut self, c: usize, serial: u64, scan: ScanId) -> Checked {
        let stopped_until = self.coordinators[c].stopped_until;
        if stopped_until > self.now_ms {
            self.at(stopped_until, Happening::Flush { coordinator: c, serial, scan });
            return Ok(());
        }
        let Some(term) = self.coordinators[c].term.as_mut().filter(|r| r.serial == serial) else { return Ok(()) };
        let Some(run) = term.runs.get_mut(&scan) else { return Ok(()) };
        run.flushing = false;
        let group = run.finished(&self.facts, scan);
        if group.is_empty() {
            return self.try_end(c, scan);
        }
        run.handed.extend(group.iter().cloned());
        run.storing += 1;
        term.groups += 1;
        let object = object_of(&run.name, run.begun.generation);
        let name = (term.epoch, term.groups);
        let wait = self.latency() + self.slowness();
        self.soon(wait, Happening::Store { coordinator: c, serial, scan, object, name, group });
        Ok(())
    }

    fn slowness(&mut self) -> u64 {
        if self.disturbed() && self.faults.slow_results { self.random.within(0, 700) } else { 0 }
    }

    /// Delivers a group to the result store, even if its sender is gone.
    pub fn store(
        &mut self,
        (c, serial, scan): (usize, u64, ScanId),
        object: String,
        name: (i64, u32),
        group: Group,
    ) -> Checked {
        let again = |group| Happening::Store { coordinator: c, serial, scan, object: object.clone(), name, group };
        if self.full_until > self.now_ms {
            self.count("full");
            let again = again(group);
            self.soon(RETRY_MS, again);
            return Ok(());
        }
        if !self.results.put(&object, name, &group) {
            // A store that went back gives epochs again: the group takes the next number that is free.
            let restored = !self.laws.unaware.is_empty();
            ensure(restored, Invariant::RecordedAnswer, || format!("{name:?} of {object} has two contents"))?;
            self.count("names taken in an earlier epoch");
            let wait = self.latency();
            let name = (name.0, name.1 + 1);
            self.soon(wait, Happening::Store { coordinator: c, serial, scan, object, name, group });
            return Ok(());
        }
        if self.disturbed() && self.random.percent(self.faults.lost_percent) {
            let again = again(group);
            self.soon(RETRY_MS, again);
        } else {
            let wait = self.latency();
            let segments = group.iter().map(|(segment, _)| *segment).collect();
            self.soon(wait, Happening::Stored { coordinator: c, serial, scan, segments });
        }
        Ok(())
    }

    pub fn stored(&mut self, c: usize, serial: u64, scan: ScanId, segments: Vec<u32>) -> Checked {
        let stopped_until = self.coordinators[c].stopped_until;
        if stopped_until > self.now_ms {
            self.at(stopped_until, Happening::Stored { coordinator: c, serial, scan, segments });
            return Ok(());
        }
        let chance = self.random.percent(20);
        let Some(term) = self.coordinators[c].term.as_mut().filter(|r| r.serial == serial) else { return Ok(()) };
        let Some(run) = term.runs.get_mut(&scan) else { return Ok(()) };
        run.storing -= 1;
        run.stored.extend(segments);
        if chance {
            let progress = Progress::new(run.begun.generation, 0, &run.handed.keys().copied().collect());
            let (records, name, epoch) = (term.records.clone(), run.name.clone(), term.epoch);
            let job = async move {
                let _ = records.progress(&name, &progress).await;
                Done::Nothing
            };
            self.spawn(c, Some(epoch), Box::pin(job))?;
        }
        self.try_end(c, scan)
    }

    /// Records the end of a scan once everything of it is stored.
    fn try_end(&mut self, c: usize, scan: ScanId) -> Checked {
        let early = self.sabotaged(Bug::EndsBeforeItStored);
        let now_us = self.now_us();
        let Some(term) = &mut self.coordinators[c].term else { return Ok(()) };
        let Some(run) = term.runs.get_mut(&scan).filter(|run| !run.ending) else { return Ok(()) };
        let Some(outcome) = run.outcome else { return Ok(()) };
        if let Outcome::NoWorker = outcome {
            let begun = run.begun.clone();
            if let Some(other) = self.in_other_class(c, &begun) {
                self.is_over(c, scan);
                return self.begin_anew(c, other);
            }
        }
        let Some(term) = &mut self.coordinators[c].term else { return Ok(()) };
        let Some(run) = term.runs.get_mut(&scan) else { return Ok(()) };
        let whole = run.storing == 0 && !run.flushing;
        let failed = |kind, message: &str| EndOutcome::from(Failure::new(kind, message));
        let outcome = match outcome {
            Outcome::Complete { .. } if !whole && !early => return Ok(()),
            Outcome::Complete { disputed } => {
                let failed_symbols = run.pieces.values().filter(|digest| digest.is_none()).count() as u64;
                EndOutcome::Complete { answer_digest: "0".repeat(64), failed_symbols, disputed }
            }
            Outcome::Cancelled => EndOutcome::Cancelled,
            Outcome::NoWorker => failed(ErrorKind::Retryable, "no worker"),
            Outcome::DeadlineExceeded => failed(ErrorKind::DeadlineExceeded, "too late"),
            Outcome::Poisoned => failed(ErrorKind::Poisoned, "it kills workers"),
        };
        run.ending = true;
        let (name, end) = (run.name.clone(), End { generation: run.begun.generation, outcome, ended_us: now_us });
        self.record_end(c, scan, name, end)
    }

    pub fn record_end(&mut self, c: usize, scan: ScanId, name: String, end: End) -> Checked {
        let believing = self.sabotaged(Bug::BelievesUnanswered);
        let handle = self.coordinators[c].handle.clone();
        let Some(term) = &self.coordinators[c].term else { return Ok(()) };
        let (records, epoch) = (term.records.clone(), term.epoch);
        let job = async move {
            loop {
                match records.end(&name, &end).await {
                    Err(_) if believing => return Done::Ended { scan },
                    Err(_) => handle.sleep(RETRY_MS).await,
                    Ok(Ending::NotLeader) => return Done::Nothing,
                    Ok(_) => return Done::Ended { scan },
                }
            }
        };
        self.spawn(c, Some(epoch), Box::pin(job))
    }

    /// Its end is recorded. The run is kept, so that an earlier listing does not restart it.
    pub fn is_over(&mut self, c: usize, scan: ScanId) {
        if let Some(run) = self.coordinators[c].term.as_mut().and_then(|r| r.runs.get_mut(&scan)) {
            run.pieces.clear();
            run.symbols.clear();
            run.ending = true;
        }
    }
}
