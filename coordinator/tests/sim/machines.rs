//! The workers of a world: they register under leases, compute pieces one at a time, and obey the newest epoch.
//!
//! Messages of an unreachable machine are held until it is reachable. If that takes too long its connection counts as
//! broken: messages to it are lost, its own messages arrive late.

use trawl_cluster_store::{LeaseId, StoreVersion, Write};
use trawl_coordinator::scheduler::{AttemptId, ClassId, Event, Piece, ScanId, WorkerId};
use trawl_wire::ErrorKind;
use trawl_wire::record::{ExecutionClass, WorkerRecord, worker_key};

use crate::control::{Answer, Call, LEASE_TTL_MS};
use crate::facts::RELEASE;
use crate::laws::CLUSTER;
use crate::ledger::{Checked, Truth as _};
use crate::sabotage::Bug;
use crate::world::{DETECT_MS, Happening, World};

/// Time after which a registered worker is known to every leader.
const KNOWN_MS: u64 = 3_000;

/// Identifies a connection of a term.
#[derive(Debug, Clone, Copy)]
pub struct Source {
    pub coordinator: usize,
    pub serial: u64,
    pub epoch: i64,
    pub worker: WorkerId,
}

/// A dispatch.
#[derive(Debug, Clone)]
pub struct Work {
    pub from: Source,
    pub attempt: AttemptId,
    pub scan: ScanId,
    pub pieces: Vec<Piece>,
}

#[derive(Debug, Clone, Default)]
pub struct Machine {
    pub class: ClassId,
    /// Its next process is of the later release.
    pub upgraded: bool,
    /// Microseconds per symbol.
    pub pace_us: u64,
    /// Whether it returns wrong results now and then, and what cannot be a result.
    pub liar: bool,
    pub life: u64,
    pub alive: bool,
    draining: bool,
    lease: Option<LeaseId>,
    /// When it registered last.
    registered_ms: u64,
    /// The store's version when it was read last, in this life.
    pub store_seen: Option<StoreVersion>,
    /// Until when its node of the control store is cut off from the others.
    pub isolated_until: u64,
    /// The newest epoch under which it received work, in this life.
    newest_epoch: i64,
    /// Until when it receives nothing; likewise until when it is suspended, and until when its messages are lost.
    pub deaf_until: u64,
    pub stopped_until: u64,
    pub mute_until: u64,
    /// Until when its threads are stuck; everything else continues.
    pub hung_until: u64,
    /// Its work, processed in turns.
    queue: Vec<Work>,
    computing: Option<(Source, AttemptId, ScanId, Piece)>,
}

impl Machine {
    pub fn new(class: ClassId, pace_us: u64, liar: bool) -> Self {
        Self { class, pace_us, liar, ..Self::default() }
    }

    /// Whether it has been registered for so long that everybody knows it.
    pub fn is_settled(&self, now_ms: u64) -> bool {
        self.alive && self.lease.is_some() && self.registered_ms + KNOWN_MS <= now_ms
    }

    fn reachable_at(&self) -> u64 {
        self.deaf_until.max(self.stopped_until).max(self.mute_until)
    }
}

/// The machine and its life that a boot id is of.
pub fn machine_of(boot: &str) -> (usize, u64) {
    let (machine, life) = boot.split_once('-').expect("a boot id");
    (machine.parse().expect("a machine"), life.parse().expect("a life"))
}

impl World {
    pub fn start_machine(&mut self, machine: usize) -> Checked {
        let state = &mut self.machines[machine];
        if !state.alive {
            (state.alive, state.draining, state.lease, state.newest_epoch) = (true, false, None, 0);
            state.store_seen = None;
            if state.upgraded && state.class < RELEASE {
                state.class += RELEASE;
            }
            state.hung_until = 0;
            state.life += 1;
            let life = state.life;
            self.soon(5, Happening::Beat { machine, life });
        }
        Ok(())
    }

    /// Whether this life of a machine answers now.
    pub fn answers(&self, machine: usize, life: u64) -> bool {
        let state = &self.machines[machine];
        state.alive && state.life == life && state.reachable_at() <= self.now_ms
    }

    /// Renews its lease, or registers again.
    pub fn beat(&mut self, machine: usize, life: u64) -> Checked {
        let state = &self.machines[machine];
        if !state.alive || state.life != life {
            return Ok(());
        }
        let held = state.reachable_at().max(state.isolated_until).max(self.frozen_until);
        let (away, lease) = (held > self.now_ms, state.lease);
        self.soon(LEASE_TTL_MS / 3, Happening::Beat { machine, life });
        if away {
            return Ok(());
        }
        if let Answer::Version(version) = self.control.make(Call::Version(worker_key(CLUSTER, "w")), self.now_ms)
            && self.machines[machine].store_seen.replace(version).is_some_and(|before| !version.follows(before))
            && !self.sabotaged(Bug::ForgetsHistory)
        {
            self.count("left a restored store");
            self.kill(machine, 100);
            return Ok(());
        }
        let kept = lease.is_some_and(|l| matches!(self.control.make(Call::KeepAlive(l), self.now_ms), Answer::Done));
        if !kept && let Answer::Lease(lease) = self.control.make(Call::Grant, self.now_ms) {
            self.machines[machine].lease = Some(lease);
            self.register(machine);
        }
        Ok(())
    }

    fn register(&mut self, machine: usize) {
        let state = &self.machines[machine];
        let word = String::new;
        let record = WorkerRecord {
            id: format!("w{machine}"),
            address: word(),
            boot: format!("{machine}-{}", state.life),
            protocol_version: 1,
            protocol_oldest: 0,
            result_schema: word(),
            result_schemas_earlier: Vec::new(),
            class: ExecutionClass { engine: word(), numerics: word(), backend: word(), precision: word() },
            threads: 1,
            cache_bytes: 0,
            device: None,
            draining: state.draining,
        };
        let (key, value) = (worker_key(CLUSTER, &record.id), serde_json::to_vec(&record).unwrap());
        let put = Write::Put { key, value, lease: state.lease };
        self.machines[machine].registered_ms = self.now_ms;
        self.control.make(Call::Commit(Vec::new(), vec![put]), self.now_ms);
        self.poke();
    }

    /// Makes the store end its lease for no reason.
    pub fn lose_lease(&mut self, machine: usize) {
        if let Some(lease) = self.machines[machine].lease {
            self.control.store.expire(lease);
        }
    }

    /// Drains it: it finishes its work, then leaves.
    pub fn drain(&mut self, machine: usize) {
        let state = &mut self.machines[machine];
        if state.alive && !state.draining && state.lease.is_some() && self.frozen_until <= self.now_ms {
            state.draining = true;
            let life = state.life;
            self.register(machine);
            self.soon(20, Happening::Leave { machine, life });
        }
    }

    pub fn leave(&mut self, machine: usize, life: u64) -> Checked {
        let state = &self.machines[machine];
        if !state.alive || state.life != life {
            return Ok(());
        }
        if !state.queue.is_empty() || state.computing.is_some() || self.frozen_until > self.now_ms {
            self.soon(20, Happening::Leave { machine, life });
            return Ok(());
        }
        let gone = Write::Delete { key: worker_key(CLUSTER, &format!("w{machine}")) };
        self.control.make(Call::Commit(Vec::new(), vec![gone]), self.now_ms);
        self.poke();
        self.kill(machine, 100);
        Ok(())
    }

    /// The process ends, and another is started.
    pub fn kill(&mut self, machine: usize, restart_ms: u64) {
        let state = &mut self.machines[machine];
        state.alive = false;
        state.queue.clear();
        state.computing = None;
        self.soon(restart_ms, Happening::StartMachine { machine });
        let noticed = self.random.within(1, 20).min(restart_ms.saturating_sub(1));
        self.unreachable(machine, noticed);
    }

    /// Its peers notice after `after_ms`.
    pub fn unreachable(&mut self, machine: usize, after_ms: u64) {
        let life = self.machines[machine].life;
        for coordinator in 0..self.coordinators.len() {
            let Some(term) = &self.coordinators[coordinator].term else { continue };
            let Some(&worker) = term.joined.get(&machine) else { continue };
            let from = Source { coordinator, serial: term.serial, epoch: term.epoch, worker };
            self.soon(after_ms, Happening::Detect { from, machine, life });
        }
    }

    /// Delivers a dispatch to its machine, if that is still the life it was sent to.
    pub fn arrive(&mut self, machine: usize, life: u64, work: Work) -> Checked {
        let any_epoch = self.sabotaged(Bug::WorkersTakeAnyEpoch);
        let state = &mut self.machines[machine];
        let held = state.deaf_until.max(state.stopped_until);
        let (from, attempt) = (work.from, work.attempt);
        if !state.alive || state.life != life {
            self.soon(2, Happening::Detect { from, machine, life });
        } else if held > self.now_ms {
            self.at(held, Happening::Arrive { machine, life, work });
            self.soon(DETECT_MS, Happening::Detect { from, machine, life });
        } else if from.epoch < state.newest_epoch && !any_epoch {
            self.count("refused as stale");
            if self.term(from.coordinator, from.serial).is_some() {
                let wait = self.latency();
                self.soon(wait, Happening::Succeeded { coordinator: from.coordinator, serial: from.serial });
            }
            self.say(machine, from, Event::AttemptEnded { attempt });
        } else {
            state.newest_epoch = state.newest_epoch.max(from.epoch);
            state.queue.push(work);
            self.laws.begins(machine, life, from.epoch)?;
            self.compute(machine);
        }
        Ok(())
    }

    /// Begins the next piece of the attempt whose turn it is.
    fn compute(&mut self, machine: usize) {
        let state = &mut self.machines[machine];
        if state.computing.is_some() || state.queue.is_empty() {
            return;
        }
        let mut work = state.queue.remove(0);
        let piece = work.pieces.remove(0);
        state.computing = Some((work.from, work.attempt, work.scan, piece));
        let (pace_us, life, symbols) = (state.pace_us, state.life, u64::from(piece.count));
        state.queue.push(work);
        let spread = self.random.within(50, 150);
        self.soon(1 + symbols * pace_us * spread / 100_000, Happening::Computed { machine, life });
    }

    pub fn computed(&mut self, machine: usize, life: u64) -> Checked {
        let state = &self.machines[machine];
        if !state.alive || state.life != life {
            return Ok(());
        }
        if state.stopped_until > self.now_ms {
            self.at(state.stopped_until, Happening::Computed { machine, life });
            return Ok(());
        }
        if state.hung_until > self.now_ms {
            if state.hung_until < u64::MAX / 2 {
                self.at(state.hung_until, Happening::Computed { machine, life });
            }
            return Ok(());
        }
        let Some((from, attempt, scan, piece)) = self.machines[machine].computing.take() else { return Ok(()) };
        if self.facts.kills(scan, piece) {
            self.kill(machine, 200);
            return Ok(());
        }
        let host = machine as u64;
        let mut digest = self.facts.digest(scan, self.machines[machine].class, piece);
        if self.machines[machine].liar && self.random.percent(40) {
            digest[31] ^= 1;
        }
        let malformed = self.machines[machine].liar && self.random.percent(10);
        let failing = self.disturbed() && self.random.percent(self.faults.failing_percent);
        // Which files of a copy are damaged depends on the machine.
        let own = self.facts.is_damaged_at(host) && (u64::from(piece.segment) + host).is_multiple_of(3);
        let late = self.late_until > self.now_ms && piece.segment.is_multiple_of(4);
        let event = if own || self.facts.is_damaged(scan, piece.segment) {
            self.count("damaged reads");
            Event::PieceFailed { attempt, piece, kind: ErrorKind::Damaged }
        } else if late {
            self.count("files that were late");
            Event::PieceFailed { attempt, piece, kind: ErrorKind::Retryable }
        } else if failing {
            let kinds = [ErrorKind::Retryable, ErrorKind::OutOfMemory, ErrorKind::Cancelled];
            Event::PieceFailed { attempt, piece, kind: kinds[self.random.index(kinds.len())] }
        } else if malformed {
            self.count("malformed");
            Event::PieceMalformed { attempt, piece }
        } else {
            Event::PieceDone { scan, attempt, host, piece, digest }
        };
        self.say(machine, from, event);
        let same = |work: &Work| work.attempt == attempt && work.from.serial == from.serial;
        let state = &mut self.machines[machine];
        if let Some(at) = state.queue.iter().position(|work| same(work) && work.pieces.is_empty()) {
            state.queue.remove(at);
            self.say(machine, from, Event::AttemptEnded { attempt });
        }
        // Work that is no longer awaited is not begun.
        let terms: Vec<_> = self.coordinators.iter().filter_map(|c| c.term.as_ref()).collect();
        let wanted =
            |work: &Work| terms.iter().any(|term| term.serial == work.from.serial && term.ledger.runs(work.attempt));
        self.machines[machine].queue.retain(wanted);
        self.compute(machine);
        Ok(())
    }

    /// Sends a message, possibly late, twice or out of order.
    fn say(&mut self, machine: usize, to: Source, event: Event) {
        let copies = if self.disturbed() && self.random.percent(self.faults.twice_percent) { 2 } else { 1 };
        for _ in 0..copies {
            let wait = self.latency();
            self.soon(wait, Happening::Reported { machine, to, event: event.clone() });
        }
    }

    /// Delivers a machine's message to its term.
    pub fn reported(&mut self, machine: usize, to: Source, event: Event) -> Checked {
        let stopped_until = self.coordinators[to.coordinator].stopped_until;
        let held = self.machines[machine].mute_until.max(stopped_until);
        if held > self.now_ms {
            self.at(held, Happening::Reported { machine, to, event });
            return Ok(());
        }
        let Some(term) = self.term(to.coordinator, to.serial) else { return Ok(()) };
        // The end of a stream is seen only by those who still read it.
        if let Event::AttemptEnded { attempt } = event
            && !term.ledger.runs(attempt)
        {
            return Ok(());
        }
        if !self.has_room(to.coordinator, &event) {
            return self.pause(machine, to, event);
        }
        self.step(to.coordinator, event)
    }
}
