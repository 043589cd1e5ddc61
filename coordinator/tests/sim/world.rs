//! A cluster of a seed: machines, coordinators, a control store, a result store and a network, in simulated time.
//!
//! Events are queued in an agenda. `coordinators` are the processes in the election, `leader_term` is a term of the
//! leader, `machines` are the workers; `laws` and `ledger` observe all events and check the invariants.

use std::collections::{BTreeMap, BTreeSet};

use trawl_coordinator::durable::EndOutcome;
use trawl_coordinator::scheduler::{Check, ClassId, Event, Limits, Piece, ScanId};
use trawl_testing::Backup;

use crate::control::{Answer, Call, Control};
use crate::coordinators::{Coordinator, Owner};
use crate::facts::{Asked, Facts, scan_of, without_release};
use crate::faults::{Fault, Faults};
use crate::laws::Laws;
use crate::ledger::{Checked, Invariant, Violation};
use crate::machines::{Machine, Source, Work};
use crate::random::Random;
use crate::results::{Group, Results};
use crate::sabotage::{Bug, Sabotage};

/// Limits of the simulated scheduler: shorter waits than real ones, so that more happens.
pub const LIMITS: Limits = Limits {
    attempts_max: 5,
    retry_delay_ms: 10,
    no_worker_timeout_ms: 3_000,
    deaths_max: 2,
    poisoned_max: 3,
    hedge_min_ms: 50,
    dispute_timeout_ms: 5_000,
    attempt_timeout_ms: 6_000,
};
pub const SLOTS: usize = 2;
/// Time until which faults happen.
pub const FAULTS_UNTIL_MS: u64 = 10_000;
/// Time by which everything has ended after faults stop.
const SETTLED_MS: u64 = FAULTS_UNTIL_MS + 300_000;
/// A machine that is unreachable for this long counts as lost.
pub const DETECT_MS: u64 = 1_000;
pub const TICK_MS: u64 = 50;
/// Interval at which the control store checks for expired leases.
const LEASES_MS: u64 = 50;
/// Quota of the control store, which nothing here exceeds by itself.
const QUOTA_BYTES: usize = 2 << 30;
/// How long a client waits for a reply, and before it tries another coordinator.
pub const CLIENT_MS: (u64, u64) = (1_500, 300);

/// A scheduled event.
#[derive(Debug)]
pub enum Happening {
    Tick {
        coordinator: usize,
        serial: u64,
    },
    /// A coordinator hears from a worker that it was succeeded.
    Succeeded {
        coordinator: usize,
        serial: u64,
    },
    Leases,
    /// A client submits a scan to a coordinator.
    Submit {
        scan: ScanId,
        to: usize,
    },
    Acknowledged {
        coordinator: usize,
        life: u64,
        scan: ScanId,
    },
    Cancel {
        scan: ScanId,
    },
    Fault(Fault),
    /// A backup of the control store is taken.
    BackUp,
    /// A worker ends, and one of the later release is started.
    Upgrade {
        machine: usize,
        restart_ms: u64,
    },
    /// Its alarm of exceeded space is lifted.
    SpaceFreed,
    /// Long after the last fault: whatever the store did, everybody has noticed.
    Settled,
    StartCoordinator {
        coordinator: usize,
    },
    Replace {
        coordinator: usize,
    },
    Wake {
        coordinator: usize,
        life: u64,
    },
    Poke {
        coordinator: usize,
    },
    /// A call reaches the control store; reaches it although its caller gave up; is answered.
    Reach {
        owner: Owner,
        call: Call,
    },
    Late {
        owner: Owner,
        call: Call,
    },
    Answered {
        owner: Owner,
        answer: Answer,
    },
    Flush {
        coordinator: usize,
        serial: u64,
        scan: ScanId,
    },
    /// A group reaches the result store; is acknowledged.
    Store {
        coordinator: usize,
        serial: u64,
        scan: ScanId,
        object: String,
        name: (i64, u32),
        group: Group,
    },
    Stored {
        coordinator: usize,
        serial: u64,
        scan: ScanId,
        segments: Vec<u32>,
    },
    StartMachine {
        machine: usize,
    },
    Beat {
        machine: usize,
        life: u64,
    },
    Leave {
        machine: usize,
        life: u64,
    },
    Arrive {
        machine: usize,
        life: u64,
        work: Work,
    },
    Computed {
        machine: usize,
        life: u64,
    },
    Reported {
        machine: usize,
        to: Source,
        event: Event,
    },
    Detect {
        from: Source,
        machine: usize,
        life: u64,
    },
    Ping {
        coordinator: usize,
        serial: u64,
        machine: usize,
        life: u64,
    },
    /// A coordinator has read its own copy of a piece's data.
    Checked {
        coordinator: usize,
        serial: u64,
        scan: ScanId,
        piece: Piece,
        found: Check,
    },
    /// A stuck worker's watchdog fires.
    Watchdog {
        machine: usize,
        life: u64,
    },
}

pub struct World {
    pub random: Random,
    pub now_ms: u64,
    pub machines: Vec<Machine>,
    pub coordinators: Vec<Coordinator>,
    /// Number of terms so far.
    pub serial: u64,
    pub control: Control,
    /// Until when the control store is stalled; likewise until when the result store is full.
    pub frozen_until: u64,
    pub full_until: u64,
    /// Until when a file of the dataset has not arrived anywhere.
    pub late_until: u64,
    pub backup: Option<Backup>,
    /// The run goes on until this time, even if every scan has ended.
    pub runs_until: u64,
    pub results: Results,
    pub laws: Laws,
    pub facts: Facts,
    pub faults: Faults,
    pub sabotage: Option<Sabotage>,
    agenda: BTreeMap<(u64, u64), Happening>,
    order: u64,
    /// Scans whose acceptance was confirmed to the client.
    pub acknowledged: BTreeSet<ScanId>,
    /// Counts of events, so that a test can check its coverage.
    pub counts: BTreeMap<&'static str, u64>,
    /// Whether every event and command is printed.
    pub traced: bool,
}

impl World {
    /// The world of a seed; a quiet one has the same machines, scans and poison, but no other faults.
    pub fn new(seed: u64, quiet: bool, sabotage: Option<Sabotage>) -> Self {
        let mut random = Random::new(seed);
        let classes = if random.percent(20) { 2 } else { 1 };
        let count = random.within(1, 8) as usize;
        let with_liar = random.percent(25);
        let machines: Vec<Machine> = (0..count)
            .map(|i| Machine::new(i as ClassId % classes, random.within(20, 2_000), with_liar && i == 0 && !quiet))
            .collect();
        let mut scans = BTreeMap::new();
        for scan in 1..=random.within(1, 4) {
            scans.insert(scan, Asked::new(&mut random, classes, quiet));
        }
        let liars = machines.iter().enumerate().filter(|(_, m)| m.liar).map(|(i, _)| i as u64).collect();
        let faults = if quiet { Faults::none() } else { Faults::new(&mut random) };
        let candidates = if quiet { 1 } else { random.within(1, 3) };
        let coordinators = (0..candidates).map(|_| Coordinator::new(random.within(980, 1_020))).collect();
        let mut world = Self {
            random,
            now_ms: 0,
            machines,
            coordinators,
            serial: 0,
            control: Control::default(),
            frozen_until: 0,
            full_until: 0,
            late_until: 0,
            backup: None,
            runs_until: 0,
            results: Results::default(),
            laws: Laws::default(),
            facts: Facts { scans, liars, corrupt: BTreeSet::new() },
            faults,
            sabotage,
            agenda: BTreeMap::new(),
            order: 0,
            acknowledged: BTreeSet::new(),
            counts: BTreeMap::new(),
            traced: false,
        };
        world.plan_ahead(quiet);
        world
    }

    fn plan_ahead(&mut self, quiet: bool) {
        self.at(LEASES_MS, Happening::Leases);
        for coordinator in 0..self.coordinators.len() {
            let wait = if quiet { 0 } else { self.random.within(0, 300) };
            self.at(wait, Happening::StartCoordinator { coordinator });
        }
        for machine in 0..self.machines.len() {
            let wait = if quiet { 0 } else { self.random.within(0, 300) };
            self.at(wait, Happening::StartMachine { machine });
        }
        let scans: Vec<ScanId> = self.facts.scans.keys().copied().collect();
        for scan in scans {
            let at = self.random.within(0, FAULTS_UNTIL_MS / 2);
            self.at(at, Happening::Submit { scan, to: 0 });
            if !quiet && self.random.percent(5) {
                let wait = self.random.within(0, 2_000);
                self.at(at + wait, Happening::Cancel { scan });
            }
        }
        for (at, fault) in self.faults.agenda.clone() {
            self.at(at, Happening::Fault(fault));
        }
        self.plan_store_faults();
    }

    pub fn at(&mut self, ms: u64, happening: Happening) {
        self.order += 1;
        self.agenda.insert((ms, self.order), happening);
    }

    pub fn soon(&mut self, ms: u64, happening: Happening) {
        self.at(self.now_ms + ms, happening);
    }

    pub fn clock(&self, coordinator: usize) -> u64 {
        self.coordinators[coordinator].clock(self.now_ms)
    }

    /// The time written to records.
    pub fn now_us(&self) -> i64 {
        self.now_ms as i64 * 1_000
    }

    pub fn disturbed(&self) -> bool {
        self.now_ms < FAULTS_UNTIL_MS
    }

    pub fn sabotaged(&self, bug: Bug) -> bool {
        self.sabotage.as_ref().is_some_and(|sabotage| sabotage.bug == bug)
    }

    pub fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    pub fn latency(&mut self) -> u64 {
        let usual = self.random.within(1, 5);
        if self.disturbed() && self.random.percent(self.faults.delay_percent) {
            usual + self.random.within(0, 800)
        } else {
            usual
        }
    }

    /// Runs to the end of every scan, or to the first violation.
    pub fn run(&mut self) -> Checked {
        let all = self.facts.scans.len();
        while self.laws.ended.len() < all || self.acknowledged.len() < all || self.now_ms < self.runs_until {
            if self.now_ms > SETTLED_MS {
                return Err(self.stuck());
            }
            let Some(((at, _), happening)) = self.agenda.pop_first() else { return Err(self.stuck()) };
            self.now_ms = at;
            self.happen(happening)?;
        }
        (0..self.coordinators.len()).for_each(|c| self.end_reign(c));
        *self.counts.entry("epochs").or_default() += self.laws.epochs() as u64;
        Ok(())
    }

    fn stuck(&self) -> Violation {
        let mut leading = self.coordinators.iter().enumerate().filter_map(|(c, state)| Some((c, state.term.as_ref()?)));
        if let Some((c, term)) = leading.find(|(_, term)| !term.begun) {
            let what = format!("c{c} leads in epoch {} and has never read what is recorded", term.epoch);
            return Violation { invariant: Invariant::LeadersBegin, what };
        }
        let open = self.laws.open();
        let nobody_runs =
            |scan: &ScanId| !self.coordinators.iter().any(|c| c.term.as_ref().is_some_and(|r| r.runs(*scan)));
        let forgotten: Vec<&ScanId> = open.iter().filter(|scan| nobody_runs(scan)).collect();
        if forgotten.is_empty() {
            let what = format!("{} of {} scans ended, {open:?} run", self.laws.ended.len(), self.facts.scans.len());
            return Violation { invariant: Invariant::Progress, what };
        }
        let what = format!("scans {forgotten:?} were accepted, and nobody runs them");
        Violation { invariant: Invariant::AcceptedScansEnd, what }
    }

    fn happen(&mut self, happening: Happening) -> Checked {
        match happening {
            Happening::Tick { coordinator, serial } => self.tick(coordinator, serial),
            Happening::Leases => {
                self.soon(LEASES_MS, Happening::Leases);
                if self.frozen_until <= self.now_ms && self.control.expire(self.now_ms) {
                    self.poke();
                }
                Ok(())
            }
            Happening::Submit { scan, to } => self.hand_in(scan, to),
            Happening::Acknowledged { coordinator, life, scan } => {
                let state = &self.coordinators[coordinator];
                if !state.alive || state.life != life {
                    return Ok(());
                }
                if self.laws.accepted.contains_key(&scan) {
                    self.acknowledged.insert(scan);
                } else {
                    // The store lost it meanwhile, which the client finds out later.
                    self.soon(CLIENT_MS.0, Happening::Submit { scan, to: 0 });
                }
                Ok(())
            }
            Happening::Cancel { scan } => {
                let runs = |c: &usize| self.coordinators[*c].term.as_ref().is_some_and(|r| r.runs(scan));
                let runs = (0..self.coordinators.len()).find(runs);
                runs.map_or(Ok(()), |coordinator| self.cancel(coordinator, scan))
            }
            Happening::Fault(fault) => {
                if self.traced {
                    println!("{:>7} {fault:?}", self.now_ms);
                }
                self.strike(fault)
            }
            Happening::BackUp => {
                self.backup = Some(self.control.store.back_up());
                Ok(())
            }
            Happening::Upgrade { machine, restart_ms } => {
                self.machines[machine].upgraded = true;
                if self.machines[machine].alive {
                    self.kill(machine, restart_ms);
                }
                Ok(())
            }
            Happening::SpaceFreed => {
                self.control.store.lift_alarm(QUOTA_BYTES);
                Ok(())
            }
            Happening::Settled => self.check_settled(),
            Happening::StartCoordinator { coordinator } => self.start_coordinator(coordinator),
            Happening::Replace { coordinator } => {
                self.kill_coordinator(coordinator, 100);
                Ok(())
            }
            Happening::Wake { coordinator, life } => self.wake(coordinator, life),
            Happening::Poke { coordinator } => self.poked(coordinator),
            Happening::Reach { owner, call } => self.reach(owner, call),
            Happening::Late { owner, call } => self.make(owner, call).map(|_| ()),
            Happening::Answered { owner, answer } => self.answered(owner, answer),
            Happening::Flush { coordinator, serial, scan } => self.flush(coordinator, serial, scan),
            Happening::Store { coordinator, serial, scan, object, name, group } => {
                self.store((coordinator, serial, scan), object, name, group)
            }
            Happening::Stored { coordinator, serial, scan, segments } => {
                self.stored(coordinator, serial, scan, segments)
            }
            Happening::StartMachine { machine } => self.start_machine(machine),
            Happening::Beat { machine, life } => self.beat(machine, life),
            Happening::Leave { machine, life } => self.leave(machine, life),
            Happening::Arrive { machine, life, work } => self.arrive(machine, life, work),
            Happening::Computed { machine, life } => self.computed(machine, life),
            Happening::Reported { machine, to, event } => self.reported(machine, to, event),
            Happening::Detect { from, machine, life } => self.detect(from, machine, life),
            Happening::Succeeded { coordinator, serial } => self.succeeded(coordinator, serial),
            Happening::Ping { coordinator, serial, machine, life } => self.ping(coordinator, serial, machine, life),
            Happening::Checked { coordinator, serial, scan, piece, found } => {
                match self.term(coordinator, serial).is_some() {
                    true => self.step(coordinator, Event::Checked { scan, piece, found }),
                    false => Ok(()),
                }
            }
            Happening::Watchdog { machine, life } => {
                if self.machines[machine].alive && self.machines[machine].life == life {
                    self.count("left by their watchdog");
                    self.kill(machine, 300);
                }
                Ok(())
            }
        }
    }

    /// Cancels the generation of a scan that runs.
    fn cancel(&mut self, c: usize, scan: ScanId) -> Checked {
        let runs = self.coordinators[c].term.as_ref().map(|term| &term.runs);
        let newest = runs.and_then(|runs| runs.keys().filter(|run| scan_of(**run) == scan).max().copied());
        newest.map_or(Ok(()), |scan| self.step(c, Event::Cancelled { scan }))
    }

    /// A client tries one coordinator after another until its scan is accepted.
    fn hand_in(&mut self, scan: ScanId, to: usize) -> Checked {
        if !self.acknowledged.contains(&scan) {
            let taken = self.submit(to, scan)?;
            let next = (to + 1) % self.coordinators.len();
            self.soon(if taken { CLIENT_MS.0 } else { CLIENT_MS.1 }, Happening::Submit { scan, to: next });
        }
        Ok(())
    }

    /// The answers of the scans, by symbol: `None` for failed symbols.
    pub fn answered_rows(&self) -> BTreeMap<ScanId, Vec<(u32, u32, Option<u64>)>> {
        let complete = self.laws.ended.iter().filter(|(_, e)| matches!(e.outcome, EndOutcome::Complete { .. }));
        complete
            .map(|(&scan, ended)| {
                let rows = ended
                    .rows
                    .iter()
                    .flat_map(|(&s, rows)| rows.iter().map(move |(i, v)| (s, *i, v.map(without_release))));
                (scan, rows.collect())
            })
            .collect()
    }

    /// Whether any host lies in this world.
    pub fn has_liars(&self) -> bool {
        !self.facts.liars.is_empty()
    }
}
