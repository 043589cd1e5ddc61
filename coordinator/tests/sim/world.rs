//! A cluster of a seed: machines, a network and a shell around the real planner and scheduler, in simulated time.
//!
//! Messages of a machine that cannot be reached are held until it can be. When that takes too long its connection counts
//! as broken: what was on the way to it is gone, what it says comes late.

use std::collections::{BTreeMap, BTreeSet};

use trawl_coordinator::planner::{SegmentCost, ShardSpec, WorkerSeat, name_key, plan_shards};
use trawl_coordinator::scheduler::{
    AttemptId, ClassId, Command, Digest, Event, HostId, Limits, Loss, Piece, Priority, Request, ScanId, Scheduler,
    WorkerId,
};
use trawl_protocol::ErrorKind;

use crate::faults::{Fault, Faults};
use crate::ledger::{Invariant, Ledger, Truth, Violation};
use crate::random::{Random, mix};
use crate::sabotage::Sabotage;

/// Of the simulated scheduler: shorter waits than real ones, so that more happens.
pub const LIMITS: Limits = Limits {
    attempts_max: 5,
    retry_delay_ms: 10,
    no_worker_timeout_ms: 3_000,
    deaths_max: 2,
    poisoned_max: 3,
    hedge_min_ms: 50,
    dispute_timeout_ms: 5_000,
};
pub const SLOTS: usize = 2;
/// Faults happen until then.
pub const FAULTS_UNTIL_MS: u64 = 10_000;
/// Once faults stop, everything has ended by then.
const SETTLED_MS: u64 = FAULTS_UNTIL_MS + 300_000;
/// A machine that cannot be reached for so long counts as lost.
const DETECT_MS: u64 = 1_000;
const TICK_MS: u64 = 50;
/// No machine is slower: microseconds for one symbol.
const SLOWEST_US: u64 = 20_000;

/// What happens at a time.
#[derive(Debug, Clone)]
enum Happening {
    Tick,
    Submit(ScanId),
    Cancel(ScanId),
    Fault(Fault),
    /// A dispatch reaches its machine, if it came over the connection that still is.
    Arrive {
        machine: usize,
        link: WorkerId,
        attempt: AttemptId,
        scan: ScanId,
        pieces: Vec<Piece>,
    },
    /// A machine has computed something, in the life it began it in.
    Computed {
        machine: usize,
        life: u64,
    },
    /// Something a machine said reaches the coordinator.
    Said {
        machine: usize,
        event: Event,
    },
    /// A connection has been broken for long enough.
    Detect {
        machine: usize,
        link: WorkerId,
    },
    Start {
        machine: usize,
    },
    Join {
        machine: usize,
    },
    Leave {
        machine: usize,
        link: WorkerId,
    },
}

#[derive(Debug, Clone)]
pub struct Machine {
    class: ClassId,
    /// Microseconds for one symbol.
    pace_us: u64,
    /// Whether what it says is wrong now and then.
    liar: bool,
    life: u64,
    alive: bool,
    draining: bool,
    /// Until when nothing reaches it, it does nothing, and nothing it says gets out.
    deaf_until: u64,
    stopped_until: u64,
    mute_until: u64,
    link: Option<WorkerId>,
    /// What it has to do, in turns.
    queue: Vec<(AttemptId, ScanId, Vec<Piece>)>,
    computing: Option<(AttemptId, ScanId, Piece)>,
}

impl Machine {
    fn reachable_at(&self) -> u64 {
        self.deaf_until.max(self.stopped_until).max(self.mute_until)
    }
}

/// A scan of the seed.
#[derive(Debug, Clone)]
struct Asked {
    segments: Vec<u32>,
    request: Request,
    poison: BTreeSet<(u32, u32)>,
}

/// What the ledger compares with.
struct Facts {
    scans: BTreeMap<ScanId, Asked>,
    liars: BTreeSet<u64>,
}

/// Of a symbol's row: what an undisturbed run gives.
fn value(scan: ScanId, segment: u32, symbol: u32) -> u64 {
    mix(scan << 40 ^ u64::from(segment) << 16 ^ u64::from(symbol))
}

fn digest_of(values: impl Iterator<Item = u64>) -> Digest {
    let hash = values.fold(7, |hash, value| mix(hash ^ value));
    let mut digest = [0; 32];
    digest[..8].copy_from_slice(&hash.to_le_bytes());
    digest
}

impl Truth for Facts {
    fn digest(&self, scan: ScanId, piece: Piece) -> Digest {
        digest_of((piece.first..piece.first + piece.count).map(|symbol| value(scan, piece.segment, symbol)))
    }

    fn kills(&self, scan: ScanId, piece: Piece) -> bool {
        let symbols = (piece.segment, piece.first)..(piece.segment, piece.first + piece.count);
        self.scans.get(&scan).is_some_and(|s| s.poison.range(symbols).next().is_some())
    }

    fn lies(&self, host: HostId) -> bool {
        self.liars.contains(&host)
    }
}

pub struct World {
    random: Random,
    now_ms: u64,
    /// Clock jumps of the coordinator's machine.
    ahead_ms: u64,
    scheduler: Scheduler,
    pub ledger: Ledger,
    machines: Vec<Machine>,
    facts: Facts,
    agenda: BTreeMap<(u64, u64), Happening>,
    order: u64,
    faults: Faults,
    sabotage: Option<Sabotage>,
    next_link: WorkerId,
    links: BTreeMap<WorkerId, usize>,
    /// Whether every event and command is printed.
    pub traced: bool,
}

impl World {
    /// The world of a seed; a quiet one has its machines, scans and poison, but nothing else goes wrong.
    pub fn new(seed: u64, quiet: bool, sabotage: Option<Sabotage>) -> Self {
        let mut random = Random::new(seed);
        let classes = if random.percent(20) { 2 } else { 1 };
        let count = random.within(1, 8) as usize;
        let with_liar = random.percent(25);
        let machines: Vec<Machine> = (0..count)
            .map(|i| Machine {
                class: i as ClassId % classes,
                pace_us: random.within(20, 2_000),
                liar: with_liar && i == 0 && !quiet,
                life: 0,
                alive: false,
                draining: false,
                deaf_until: 0,
                stopped_until: 0,
                mute_until: 0,
                link: None,
                queue: Vec::new(),
                computing: None,
            })
            .collect();
        let mut scans = BTreeMap::new();
        for scan in 1..=random.within(1, 4) {
            scans.insert(scan, Asked::new(&mut random, classes, quiet));
        }
        let liars = machines.iter().enumerate().filter(|(_, m)| m.liar).map(|(i, _)| i as u64).collect();
        let faults = if quiet { Faults::none() } else { Faults::new(&mut random) };
        let mut world = Self {
            now_ms: 0,
            ahead_ms: 0,
            scheduler: Scheduler::new(LIMITS, 0),
            ledger: Ledger::default(),
            facts: Facts { scans, liars },
            agenda: BTreeMap::new(),
            order: 0,
            faults,
            sabotage,
            next_link: 1,
            links: BTreeMap::new(),
            traced: false,
            machines,
            random,
        };
        world.plan_ahead(quiet);
        world
    }

    fn plan_ahead(&mut self, quiet: bool) {
        self.at(0, Happening::Tick);
        for machine in 0..self.machines.len() {
            let wait = if quiet { 0 } else { self.random.within(0, 300) };
            self.at(wait, Happening::Start { machine });
        }
        let scans: Vec<ScanId> = self.facts.scans.keys().copied().collect();
        for scan in scans {
            let at = self.random.within(0, FAULTS_UNTIL_MS / 2);
            self.at(at, Happening::Submit(scan));
            if !quiet && self.random.percent(5) {
                let wait = self.random.within(0, 2_000);
                self.at(at + wait, Happening::Cancel(scan));
            }
        }
        for (at, fault) in self.faults.agenda.clone() {
            self.at(at, Happening::Fault(fault));
        }
    }

    fn at(&mut self, ms: u64, happening: Happening) {
        self.order += 1;
        self.agenda.insert((ms, self.order), happening);
    }

    fn soon(&mut self, ms: u64, happening: Happening) {
        self.at(self.now_ms + ms, happening);
    }

    /// Runs to the end of every scan, or to the first violation.
    pub fn run(&mut self) -> Result<(), Violation> {
        loop {
            let submitted = !self.agenda.values().any(|h| matches!(h, Happening::Submit(_)));
            if submitted && self.ledger.unfinished().is_empty() {
                return Ok(());
            }
            if self.now_ms > SETTLED_MS {
                let what = format!("scans {:?} never end", self.ledger.unfinished());
                return Err(Violation { invariant: Invariant::Progress, what });
            }
            let Some(((at, _), happening)) = self.agenda.pop_first() else {
                let what = "nothing will ever happen again".to_owned();
                return Err(Violation { invariant: Invariant::Progress, what });
            };
            self.now_ms = at;
            self.happen(happening)?;
        }
    }

    fn disturbed(&self) -> bool {
        self.now_ms < FAULTS_UNTIL_MS
    }

    fn happen(&mut self, happening: Happening) -> Result<(), Violation> {
        match happening {
            Happening::Tick => {
                self.soon(TICK_MS, Happening::Tick);
                self.step(Event::Tick)
            }
            Happening::Submit(scan) => {
                let request = self.planned(scan);
                self.step(Event::Submitted { scan, request })
            }
            Happening::Cancel(scan) => self.step(Event::Cancelled { scan }),
            Happening::Fault(fault) => self.strike(fault),
            Happening::Arrive { machine, link, attempt, scan, pieces } => {
                let state = &mut self.machines[machine];
                let held = state.deaf_until.max(state.stopped_until);
                if held > self.now_ms {
                    self.at(held, Happening::Arrive { machine, link, attempt, scan, pieces });
                } else if state.alive && state.link == Some(link) {
                    state.queue.push((attempt, scan, pieces));
                    self.compute(machine);
                }
                Ok(())
            }
            Happening::Computed { machine, life } => self.computed(machine, life),
            Happening::Said { machine, event } => {
                let held = self.machines[machine].mute_until;
                if held > self.now_ms {
                    self.at(held, Happening::Said { machine, event });
                    return Ok(());
                }
                // The end of a stream is seen only by those who still read it.
                if let Event::AttemptEnded { attempt } = event
                    && !self.ledger.runs(attempt)
                {
                    return Ok(());
                }
                self.step(event)
            }
            Happening::Detect { machine, link } => {
                let state = &self.machines[machine];
                let gone = !state.alive || state.reachable_at() > self.now_ms;
                if gone { self.lose(machine, link, Loss::Died) } else { Ok(()) }
            }
            Happening::Start { machine } => {
                let state = &mut self.machines[machine];
                if !state.alive {
                    state.alive = true;
                    state.draining = false;
                    state.life += 1;
                    let before = state.link;
                    self.soon(5, Happening::Join { machine });
                    // A new life registers: the one before is gone, noticed or not.
                    if let Some(link) = before {
                        return self.lose(machine, link, Loss::Died);
                    }
                }
                Ok(())
            }
            Happening::Join { machine } => self.join(machine),
            Happening::Leave { machine, link } => {
                if self.machines[machine].link == Some(link) && self.ledger.busy(link) > 0 {
                    self.soon(20, Happening::Leave { machine, link });
                    return Ok(());
                }
                self.lose(machine, link, Loss::Left)?;
                self.die(machine, 100);
                Ok(())
            }
        }
    }

    /// The planner's shards for the workers that are there.
    fn planned(&self, scan: ScanId) -> Request {
        let asked = &self.facts.scans[&scan];
        let costs: Vec<SegmentCost> = asked
            .segments
            .iter()
            .map(|&segment| SegmentCost { segment, cost: u64::from(asked.request.symbols[&segment]) * 1_000 })
            .collect();
        let seats: Vec<WorkerSeat> = self
            .machines
            .iter()
            .enumerate()
            .filter_map(|(i, m)| Some(WorkerSeat { worker: m.link?, key: name_key(&format!("w{i}")) }))
            .collect();
        let spec = if scan.is_multiple_of(2) { ShardSpec::Automatic } else { ShardSpec::Count(6) };
        let deadline_ms = asked.request.deadline_ms.map(|ms| self.clock() + ms);
        Request { shards: plan_shards(&costs, &seats, spec, 1), deadline_ms, ..asked.request.clone() }
    }

    fn clock(&self) -> u64 {
        self.now_ms + self.ahead_ms
    }

    fn step(&mut self, event: Event) -> Result<(), Violation> {
        let clock = self.clock();
        self.ledger.before(&event);
        let told = match &mut self.sabotage {
            Some(sabotage) => sabotage.event(event.clone()),
            None => Some(event.clone()),
        };
        let mut commands = told.map_or_else(Vec::new, |told| self.scheduler.step(told, clock));
        if let Some(sabotage) = &mut self.sabotage {
            sabotage.commands(&mut commands);
        }
        if self.traced && !(matches!(event, Event::Tick) && commands.is_empty()) {
            println!("{clock:>7} {event:?}");
            commands.iter().for_each(|command| println!("        -> {command:?}"));
        }
        self.ledger.after(&event, &commands, (&LIMITS, clock), &self.facts)?;
        for command in commands {
            if let Command::Dispatch { attempt, scan, worker, pieces, .. } = command
                && let Some(&machine) = self.links.get(&worker)
            {
                let wait = self.latency();
                self.soon(wait, Happening::Arrive { machine, link: worker, attempt, scan, pieces });
            }
        }
        Ok(())
    }

    fn latency(&mut self) -> u64 {
        let usual = self.random.within(1, 5);
        if self.disturbed() && self.random.percent(self.faults.delay_percent) {
            usual + self.random.within(0, 800)
        } else {
            usual
        }
    }

    fn join(&mut self, machine: usize) -> Result<(), Violation> {
        let back = self.machines[machine].reachable_at();
        let state = &mut self.machines[machine];
        if !state.alive || state.link.is_some() || state.draining {
            return Ok(());
        }
        if back > self.now_ms {
            self.at(back + 1, Happening::Join { machine });
            return Ok(());
        }
        let worker = self.next_link;
        self.next_link += 1;
        state.link = Some(worker);
        let (class, host) = (state.class, machine as u64);
        self.links.insert(worker, machine);
        self.step(Event::WorkerJoined { worker, host, class, slots: SLOTS })
    }

    fn lose(&mut self, machine: usize, link: WorkerId, loss: Loss) -> Result<(), Violation> {
        if self.machines[machine].link != Some(link) {
            return Ok(());
        }
        self.machines[machine].link = None;
        self.soon(100, Happening::Join { machine });
        self.step(Event::WorkerLost { worker: link, loss })
    }

    /// The process ends, and another is started.
    fn die(&mut self, machine: usize, restart_ms: u64) {
        let state = &mut self.machines[machine];
        state.alive = false;
        state.queue.clear();
        state.computing = None;
        let link = state.link;
        self.soon(restart_ms, Happening::Start { machine });
        if let Some(link) = link {
            let noticed = self.random.within(1, 20).min(restart_ms.saturating_sub(1));
            self.soon(noticed, Happening::Detect { machine, link });
        }
    }

    fn unreachable(&mut self, machine: usize) {
        if let Some(link) = self.machines[machine].link {
            self.soon(DETECT_MS, Happening::Detect { machine, link });
        }
    }

    fn strike(&mut self, fault: Fault) -> Result<(), Violation> {
        let machine = fault.machine % self.machines.len();
        let until = (self.now_ms + fault.lasts_ms).min(FAULTS_UNTIL_MS);
        match fault.kind {
            crate::faults::Kind::Kill => self.die(machine, fault.lasts_ms.min(2_000) + 30),
            crate::faults::Kind::KillMany => {
                for machine in 0..self.machines.len() {
                    if self.random.percent(70) {
                        self.die(machine, fault.lasts_ms.min(2_000) + 30);
                    }
                }
            }
            crate::faults::Kind::Stop => {
                self.machines[machine].stopped_until = until;
                self.unreachable(machine);
            }
            crate::faults::Kind::Deafen => {
                self.machines[machine].deaf_until = until;
                self.unreachable(machine);
            }
            crate::faults::Kind::Mute => {
                self.machines[machine].mute_until = until;
                self.unreachable(machine);
            }
            crate::faults::Kind::Slow => {
                let state = &mut self.machines[machine];
                state.pace_us = (state.pace_us * 10).min(SLOWEST_US);
            }
            crate::faults::Kind::ClockJump => self.ahead_ms += fault.lasts_ms * 10,
            crate::faults::Kind::Drain => {
                let state = &mut self.machines[machine];
                if let (Some(worker), false) = (state.link, state.draining) {
                    state.draining = true;
                    self.soon(1, Happening::Leave { machine, link: worker });
                    return self.step(Event::WorkerDraining { worker });
                }
            }
        }
        Ok(())
    }

    /// Begins the next piece of the attempt whose turn it is.
    fn compute(&mut self, machine: usize) {
        let state = &mut self.machines[machine];
        if state.computing.is_some() || state.queue.is_empty() {
            return;
        }
        let (attempt, scan, mut pieces) = state.queue.remove(0);
        let piece = pieces.remove(0);
        state.computing = Some((attempt, scan, piece));
        let (pace_us, life, symbols) = (state.pace_us, state.life, u64::from(piece.count));
        state.queue.push((attempt, scan, pieces));
        let spread = self.random.within(50, 150);
        self.soon(1 + symbols * pace_us * spread / 100_000, Happening::Computed { machine, life });
    }

    fn computed(&mut self, machine: usize, life: u64) -> Result<(), Violation> {
        let state = &self.machines[machine];
        if !state.alive || state.life != life {
            return Ok(());
        }
        if state.stopped_until > self.now_ms {
            self.at(state.stopped_until, Happening::Computed { machine, life });
            return Ok(());
        }
        let Some((attempt, scan, piece)) = self.machines[machine].computing.take() else { return Ok(()) };
        if self.facts.kills(scan, piece) {
            self.die(machine, 200);
            return Ok(());
        }
        let host = machine as u64;
        let mut digest = self.facts.digest(scan, piece);
        if self.machines[machine].liar && self.random.percent(40) {
            digest[31] ^= 1;
        }
        let failing = self.disturbed() && self.random.percent(self.faults.failing_percent);
        let event = if failing {
            let kinds = [ErrorKind::Retryable, ErrorKind::OutOfMemory, ErrorKind::Cancelled];
            Event::PieceFailed { attempt, piece, kind: kinds[self.random.index(kinds.len())] }
        } else {
            Event::PieceDone { scan, attempt, host, piece, digest }
        };
        self.say(machine, event);
        let state = &mut self.machines[machine];
        if let Some(at) = state.queue.iter().position(|(a, _, left)| *a == attempt && left.is_empty()) {
            state.queue.remove(at);
            self.say(machine, Event::AttemptEnded { attempt });
        }
        // What nobody waits for any more is not begun.
        let ledger = &self.ledger;
        self.machines[machine].queue.retain(|(attempt, _, _)| ledger.runs(*attempt));
        self.compute(machine);
        Ok(())
    }

    /// Sends, late, twice or out of order.
    fn say(&mut self, machine: usize, event: Event) {
        let copies = if self.disturbed() && self.random.percent(self.faults.twice_percent) { 2 } else { 1 };
        for _ in 0..copies {
            let wait = self.latency();
            self.soon(wait, Happening::Said { machine, event: event.clone() });
        }
    }

    /// What the scans answered, by symbol: `None` for symbols that failed.
    pub fn answers(&self) -> BTreeMap<ScanId, Vec<(u32, u32, Option<u64>)>> {
        let answer = |scan: ScanId| {
            let pieces = self.ledger.answer(scan)?;
            let rows = pieces.into_iter().flat_map(|(piece, digest)| {
                (piece.first..piece.first + piece.count).map(move |symbol| {
                    let right = digest.map(|digest| {
                        let truth =
                            digest_of((piece.first..piece.first + piece.count).map(|s| value(scan, piece.segment, s)));
                        value(scan, piece.segment, symbol) ^ u64::from(truth != digest)
                    });
                    (piece.segment, symbol, right)
                })
            });
            Some((scan, rows.collect()))
        };
        self.facts.scans.keys().filter_map(|&scan| answer(scan)).collect()
    }

    /// Whether somebody lies in this world.
    pub fn has_liars(&self) -> bool {
        !self.facts.liars.is_empty()
    }
}

impl Asked {
    fn new(random: &mut Random, classes: ClassId, quiet: bool) -> Self {
        let mut symbols = BTreeMap::new();
        let mut segment = 0;
        for _ in 0..random.within(0, 40) {
            segment += random.within(1, 3) as u32;
            symbols.insert(segment, random.within(1, 64) as u32);
        }
        let segments: Vec<u32> = symbols.keys().copied().collect();
        let mut poison = BTreeSet::new();
        if random.percent(15) && !segments.is_empty() {
            for _ in 0..random.within(1, 3) {
                let segment = segments[random.index(segments.len())];
                let symbol = random.index(symbols[&segment] as usize) as u32;
                poison.insert((segment, symbol));
            }
        }
        let priority = Priority::ALL[random.index(3)];
        let class = random.index(classes as usize) as ClassId;
        let within_ms = random.percent(10).then(|| random.within(1, 5_000));
        let deadline_ms = within_ms.filter(|_| !quiet);
        Self { segments, request: Request { shards: Vec::new(), symbols, class, priority, deadline_ms }, poison }
    }
}
