//! One term of a leader: the real planner and scheduler, the real records of scans, and a simulated result store. A new
//! term takes over scans from the records and the listed objects, by the real decision.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use trawl_coordinator::durable::ledger::{Ending, Loaded};
use trawl_coordinator::durable::records::{DocumentPlace, Level, Shards};
use trawl_coordinator::durable::{
    Acceptance, Decision, End, EndOutcome, Header, Ledger as Records, LedgerError, Progress, Recorded, RequestMark,
    Situation, Term, decide,
};
use trawl_coordinator::membership::{Event as Registered, Roster};
use trawl_coordinator::planner::{SegmentCost, ShardSpec, WorkerSeat, name_key, plan_shards};
use trawl_coordinator::scheduler::{
    Check, ClassId, Command, Digest, Event, Limits, Outcome, Piece, Request, ScanId, Scheduler, WorkerId,
};
use trawl_wire::record::{ExecutionClass, leader_key};
use trawl_wire::{ErrorKind, Failure};

use crate::control::Handle;
use crate::coordinators::Done;
use crate::facts::Row;
use crate::laws::{CLUSTER, asked_in};
use crate::ledger::{Checked, Invariant, Ledger, Truth as _, ensure};
use crate::machines::{Source, Work};
use crate::members::Known;
use crate::results::Group;
use crate::sabotage::Bug;
use crate::world::{Happening, LIMITS, TICK_MS, World};

/// How long finished segments wait for others before they are stored.
const COMMIT_INTERVAL_MS: u64 = 20;
/// Wait before a failed call is retried.
pub const RETRY_MS: u64 = 200;
/// Interval of looking for scans that are not running.
const CLAIM_INTERVAL_MS: u64 = 1_000;

/// One scan of a term.
struct Run {
    name: String,
    /// Symbols of the segments that this term runs.
    symbols: BTreeMap<u32, u32>,
    pieces: BTreeMap<Piece, Option<Digest>>,
    /// Segments sent to the result store, stored or in transit.
    handed: BTreeMap<u32, Vec<Row>>,
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
    records: Records<Handle>,
    /// Whether it has read the records.
    pub begun: bool,
    runs: BTreeMap<ScanId, Run>,
    names: u64,
    groups: u32,
}

/// The execution class of a class id.
fn class_of(class: ClassId) -> ExecutionClass {
    let word = |text: &str| text.to_owned();
    ExecutionClass { engine: format!("e{class}"), numerics: word("n"), backend: word("cpu"), precision: word("f64") }
}

impl Run {
    /// Segments that have ended and whose current rows have not been sent to the store.
    fn finished(&self, facts: &crate::facts::Facts, scan: ScanId) -> Group {
        let mut group = Vec::new();
        for (&segment, &symbols) in &self.symbols {
            let its = Piece { segment, first: 0, count: 0 }..=Piece { segment, first: u32::MAX, count: u32::MAX };
            let mut rows: Vec<Row> = Vec::new();
            for (piece, digest) in self.pieces.range(its) {
                match digest {
                    Some(digest) => rows.extend(facts.rows(scan, *piece, *digest)),
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
    pub fn runs(&self, scan: ScanId) -> bool {
        self.runs.contains_key(&scan)
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

    /// Passes an event to the scheduler of a term, if its coordinator still leads by its own clock.
    pub fn step(&mut self, c: usize, event: Event) -> Checked {
        let valid = self.coordinators[c].is_valid(self.now_ms);
        if !valid && !self.sabotaged(Bug::ActsWithoutLooking) {
            return Ok(());
        }
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
                    ensure(valid, Invariant::OneLeader, || format!("c{c} dispatches past the end of its term"))?;
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
        let (object, name) = (run.name.clone(), (term.epoch, term.groups));
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
        let stands = self.results.put(&object, name, &group);
        ensure(stands, Invariant::RecordedAnswer, || format!("{name:?} of {object} has two contents"))?;
        if self.disturbed() && self.random.percent(self.faults.lost_percent) {
            let again = again(group);
            self.soon(RETRY_MS, again);
        } else {
            let wait = self.latency();
            self.soon(wait, Happening::Stored { coordinator: c, serial, scan });
        }
        Ok(())
    }

    pub fn stored(&mut self, c: usize, serial: u64, scan: ScanId) -> Checked {
        let stopped_until = self.coordinators[c].stopped_until;
        if stopped_until > self.now_ms {
            self.at(stopped_until, Happening::Stored { coordinator: c, serial, scan });
            return Ok(());
        }
        let chance = self.random.percent(20);
        let Some(term) = self.coordinators[c].term.as_mut().filter(|r| r.serial == serial) else { return Ok(()) };
        let Some(run) = term.runs.get_mut(&scan) else { return Ok(()) };
        run.storing -= 1;
        if chance {
            let progress = Progress::new(0, 0, &run.handed.keys().copied().collect());
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
        let (name, end) = (run.name.clone(), End { generation: 0, outcome, ended_us: now_us });
        self.record_end(c, scan, name, end)
    }

    fn record_end(&mut self, c: usize, scan: ScanId, name: String, end: End) -> Checked {
        let handle = self.coordinators[c].handle.clone();
        let Some(term) = &self.coordinators[c].term else { return Ok(()) };
        let (records, epoch) = (term.records.clone(), term.epoch);
        let job = async move {
            loop {
                match records.end(&name, &end).await {
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
        }
    }

    /// A client submits a scan. Returns `false` if the coordinator cannot accept it.
    pub fn submit(&mut self, c: usize, scan: ScanId) -> Result<bool, crate::ledger::Violation> {
        let marked = !self.sabotaged(Bug::ForgetsTheRequest);
        let (now_ms, now_us) = (self.now_ms, self.now_us());
        let state = &mut self.coordinators[c];
        if !state.alive || state.stopped_until > now_ms || !state.is_valid(now_ms) {
            return Ok(false);
        }
        let Some(term) = &mut state.term else { return Ok(false) };
        term.names += 1;
        let asked = &self.facts.scans[&scan];
        let after_ms = asked.request.deadline_ms;
        let header = Header {
            scan: format!("s{scan}-{}-{}", term.serial, term.names),
            generation: 0,
            owner: "somebody".to_owned(),
            document: DocumentPlace::Inline(scan.to_string()),
            dataset: "market@1".to_owned(),
            as_of_us: 0,
            adjustment: String::new(),
            class: class_of(asked.request.class),
            placed: true,
            backend: None,
            plan: "plan".to_owned(),
            segments: asked.segments.len() as u32,
            symbols: asked.request.symbols.values().map(|&n| u64::from(n)).sum(),
            shards: Shards::Automatic,
            priority: Level::from(asked.request.priority),
            submitted_us: now_us,
            deadline_us: after_ms.map(|ms| now_us + ms as i64 * 1_000),
            allow_partial: true,
            request: marked.then(|| RequestMark::new("somebody", &scan.to_string(), &[])),
            trace: None,
        };
        let (records, epoch) = (term.records.clone(), term.epoch);
        let job = async move {
            let acceptance = records.accept(&header).await;
            Done::Accepted { scan, name: header.scan, acceptance }
        };
        self.spawn(c, Some(epoch), Box::pin(job))?;
        Ok(true)
    }

    pub fn accepted(
        &mut self,
        c: usize,
        scan: ScanId,
        name: String,
        acceptance: Result<Acceptance, LedgerError>,
    ) -> Checked {
        let life = self.coordinators[c].life;
        match acceptance {
            Ok(Acceptance::Accepted) => {
                let segments = self.facts.scans[&scan].segments.clone();
                let deadline_ms = self.facts.scans[&scan].request.deadline_ms.map(|ms| self.now_ms + ms);
                self.run_scan(c, scan, name, segments, deadline_ms)?;
            }
            Ok(Acceptance::Existing(_)) => self.count("existing"),
            Ok(Acceptance::Conflict { scan }) => panic!("{scan} is the same request"),
            // The client retries.
            Ok(Acceptance::NotLeader) | Err(_) => return Ok(()),
        }
        let wait = self.latency();
        self.soon(wait, Happening::Acknowledged { coordinator: c, life, scan });
        Ok(())
    }

    /// Reads the records: at the beginning of a term, and periodically for scans that are not running.
    fn load(&mut self, c: usize, wait_ms: u64) -> Checked {
        let handle = self.coordinators[c].handle.clone();
        let Some(term) = &self.coordinators[c].term else { return Ok(()) };
        let (records, epoch) = (term.records.clone(), term.epoch);
        let job = async move {
            handle.sleep(wait_ms).await;
            Done::Loaded(records.open().await)
        };
        self.spawn(c, Some(epoch), Box::pin(job))
    }

    pub fn take_over(&mut self, c: usize, loaded: Result<Loaded, LedgerError>) -> Checked {
        let now_us = self.now_us();
        let Some(term) = &mut self.coordinators[c].term else { return Ok(()) };
        let Ok(loaded) = loaded else { return self.load(c, RETRY_MS) };
        term.begun = true;
        let running: BTreeSet<String> = term.runs.values().map(|run| run.name.clone()).collect();
        let forgets = self.sabotaged(Bug::ForgetsToTakeOver);
        let unclaimed = |recorded: &&Recorded| recorded.is_open() && !running.contains(&recorded.scan);
        for recorded in loaded.scans.iter().filter(unclaimed).filter(|_| !forgets) {
            let header = recorded.header.as_ref().expect("it is open");
            let (scan, name) = (asked_in(header), recorded.scan.clone());
            let asked = &self.facts.scans[&scan];
            let situation = Situation::Ready {
                class: class_of(asked.request.class),
                plan: "plan".to_owned(),
                segments: asked.segments.clone(),
            };
            let stored = self.results.stored(&name);
            let stages = if stored.is_empty() { BTreeMap::new() } else { BTreeMap::from([(0, stored)]) };
            match decide(recorded, &stages, &situation, now_us) {
                Decision::Resume { missing, .. } => {
                    self.count("taken over");
                    let deadline_ms = header.deadline_us.map(|us| us as u64 / 1_000);
                    self.run_scan(c, scan, name, missing, deadline_ms)?;
                }
                Decision::Fail(failure) => {
                    self.count("failed at take-over");
                    let end = End { generation: 0, outcome: failure.into(), ended_us: now_us };
                    self.claim(c, scan, name.clone(), BTreeMap::new(), true);
                    self.record_end(c, scan, name, end)?;
                }
                Decision::Nothing => {}
                other => panic!("nothing here restarts or waits: {other:?}"),
            }
        }
        self.load(c, CLAIM_INTERVAL_MS)
    }

    fn claim(&mut self, c: usize, scan: ScanId, name: String, symbols: BTreeMap<u32, u32>, ending: bool) {
        if let Some(term) = &mut self.coordinators[c].term {
            let (pieces, handed) = (BTreeMap::new(), BTreeMap::new());
            let run = Run { name, symbols, pieces, handed, storing: 0, flushing: false, outcome: None, ending };
            term.runs.insert(scan, run);
        }
    }

    /// Plans shards for the present workers, over the segments without a result.
    fn run_scan(
        &mut self,
        c: usize,
        scan: ScanId,
        name: String,
        segments: Vec<u32>,
        deadline_ms: Option<u64>,
    ) -> Checked {
        let clock = self.clock(c);
        let Some(term) = self.coordinators[c].term.as_ref().filter(|r| !r.runs(scan)) else { return Ok(()) };
        let asked = &self.facts.scans[&scan].request;
        let symbols: BTreeMap<u32, u32> = segments.iter().map(|s| (*s, asked.symbols[s])).collect();
        let cost = |&segment: &u32| SegmentCost { segment, cost: u64::from(symbols[&segment]) * 1_000 };
        let costs: Vec<SegmentCost> = segments.iter().map(cost).collect();
        let seat = |(m, &worker): (&usize, &WorkerId)| WorkerSeat {
            worker,
            key: name_key(&format!("w{m}")),
            device: false,
            capacity: 1,
        };
        let seats: Vec<WorkerSeat> = term.joined.iter().map(seat).collect();
        let spec = if scan.is_multiple_of(2) { ShardSpec::Automatic } else { ShardSpec::Count(6) };
        let request = Request {
            shards: plan_shards(&costs, &seats, spec, 1),
            symbols: symbols.clone(),
            deadline_ms: deadline_ms.map(|at| clock + at.saturating_sub(self.now_ms)),
            ..asked.clone()
        };
        self.claim(c, scan, name, symbols, false);
        self.step(c, Event::Submitted { scan, request })
    }
}
