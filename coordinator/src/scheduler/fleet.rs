//! The workers: who is there, of which class, and who of them has room.

use std::collections::{BTreeMap, BTreeSet};

use super::{AttemptId, ClassId, HostId, WorkerId};

/// Whether a worker is given work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Serving,
    /// It finishes what it has.
    Draining,
    /// It gave wrong results.
    Quarantined,
}

#[derive(Debug)]
pub(super) struct Worker {
    pub host: HostId,
    pub class: ClassId,
    slots: usize,
    pub in_flight: BTreeSet<AttemptId>,
    phase: Phase,
    /// The attempt beside which it is given nothing.
    isolated: Option<AttemptId>,
    /// Its place in the class's list of those with room.
    listed: Option<usize>,
}

#[derive(Debug, Default)]
struct Class {
    /// Workers that are given work, with their hosts.
    serving: BTreeMap<HostId, WorkerId>,
    /// Those of them with room, the least busy first.
    free: BTreeSet<(usize, WorkerId)>,
    /// Since when nobody serves.
    empty_since_ms: u64,
}

/// See the module's header.
#[derive(Debug)]
pub(super) struct Fleet {
    workers: BTreeMap<WorkerId, Worker>,
    classes: BTreeMap<ClassId, Class>,
    /// A worker that is given nothing until it has nothing to do: it is to run work alone.
    held: Option<WorkerId>,
    started_ms: u64,
}

impl Fleet {
    pub fn new(now_ms: u64) -> Self {
        Self { workers: BTreeMap::new(), classes: BTreeMap::new(), held: None, started_ms: now_ms }
    }

    pub fn get(&self, worker: WorkerId) -> Option<&Worker> {
        self.workers.get(&worker)
    }

    /// Whether it is there and given work.
    pub fn takes_work(&self, worker: WorkerId) -> bool {
        self.get(worker).is_some_and(|w| w.phase == Phase::Serving)
    }

    /// Counts from now on since when a class has nobody.
    pub fn note_class(&mut self, class: ClassId) {
        let empty_since_ms = self.started_ms;
        self.classes.entry(class).or_insert_with(|| Class { empty_since_ms, ..Class::default() });
    }

    /// Since when nobody of the class is given work.
    pub fn empty_since(&self, class: ClassId) -> Option<u64> {
        self.classes.get(&class).filter(|c| c.serving.is_empty()).map(|c| c.empty_since_ms)
    }

    pub fn join(&mut self, id: WorkerId, (host, class): (HostId, ClassId), slots: usize, quarantined: bool) {
        if self.workers.contains_key(&id) {
            return;
        }
        self.note_class(class);
        let phase = if quarantined { Phase::Quarantined } else { Phase::Serving };
        let worker = Worker {
            host,
            class,
            slots: slots.max(1),
            in_flight: BTreeSet::new(),
            phase,
            isolated: None,
            listed: None,
        };
        if let (Phase::Serving, Some(class)) = (phase, self.classes.get_mut(&class)) {
            class.serving.insert(host, id);
        }
        self.workers.insert(id, worker);
        self.list(id);
    }

    pub fn drain(&mut self, worker: WorkerId, now_ms: u64) {
        self.set_phase(worker, Phase::Draining, now_ms);
    }

    /// Whether a worker of a host is there that is not out of service for good.
    pub fn is_trusted(&self, host: HostId) -> bool {
        self.workers.values().any(|w| w.host == host && w.phase != Phase::Quarantined)
    }

    /// The workers of a host, taken out of service for good.
    pub fn quarantine(&mut self, host: HostId, now_ms: u64) -> Vec<WorkerId> {
        let its: Vec<WorkerId> = self.workers.iter().filter(|(_, w)| w.host == host).map(|(&id, _)| id).collect();
        its.iter().for_each(|id| self.set_phase(*id, Phase::Quarantined, now_ms));
        its
    }

    fn set_phase(&mut self, id: WorkerId, phase: Phase, now_ms: u64) {
        // Nobody is taken back into service.
        let Some(worker) = self.workers.get_mut(&id).filter(|w| w.phase != Phase::Quarantined) else { return };
        worker.phase = phase;
        let (host, class) = (worker.host, worker.class);
        self.leave_class(id, host, class, now_ms);
        self.list(id);
    }

    fn leave_class(&mut self, id: WorkerId, host: HostId, class: ClassId, now_ms: u64) {
        if self.held == Some(id) {
            self.held = None;
        }
        if let Some(class) = self.classes.get_mut(&class)
            && class.serving.get(&host) == Some(&id)
        {
            class.serving.remove(&host);
            if class.serving.is_empty() {
                class.empty_since_ms = now_ms;
            }
        }
    }

    /// Takes a worker out; its attempts.
    pub fn remove(&mut self, id: WorkerId, now_ms: u64) -> Option<BTreeSet<AttemptId>> {
        let worker = self.workers.remove(&id)?;
        if let (Some(place), Some(class)) = (worker.listed, self.classes.get_mut(&worker.class)) {
            class.free.remove(&(place, id));
        }
        self.leave_class(id, worker.host, worker.class, now_ms);
        Some(worker.in_flight)
    }

    pub fn start_attempt(&mut self, id: WorkerId, attempt: AttemptId, isolated: bool) {
        if let Some(worker) = self.workers.get_mut(&id) {
            worker.in_flight.insert(attempt);
            if isolated {
                worker.isolated = Some(attempt);
            }
        }
        self.list(id);
    }

    pub fn end_attempt(&mut self, id: WorkerId, attempt: AttemptId) {
        if let Some(worker) = self.workers.get_mut(&id) {
            worker.in_flight.remove(&attempt);
            if worker.isolated == Some(attempt) {
                worker.isolated = None;
            }
        }
        self.list(id);
    }

    /// Workers of a class with room, the least busy first.
    pub fn free(&self, class: ClassId) -> impl Iterator<Item = (WorkerId, &Worker)> {
        let free = self.classes.get(&class).into_iter().flat_map(|c| c.free.iter());
        free.filter_map(|(_, id)| Some((*id, self.workers.get(id)?)))
    }

    /// Workers of a class with nothing to do.
    pub fn idle(&self, class: ClassId) -> impl Iterator<Item = (WorkerId, &Worker)> {
        self.free(class).take_while(|(_, w)| w.in_flight.is_empty())
    }

    /// Whether work that hosts failed may go to one: to those only when everyone has failed it.
    pub fn may_run(&self, worker: &Worker, avoid: &[HostId]) -> bool {
        if !avoid.contains(&worker.host) {
            return true;
        }
        let Some(class) = self.classes.get(&worker.class) else { return false };
        avoid.iter().filter(|host| class.serving.contains_key(host)).count() == class.serving.len()
    }

    /// Whether a host that is none of these is given work of the class.
    pub fn serves_beside(&self, class: ClassId, hosts: &[HostId]) -> bool {
        self.classes.get(&class).is_some_and(|class| class.serving.keys().any(|host| !hosts.contains(host)))
    }

    /// Keeps the least busy worker of a class free for work that has to run alone, unless one is kept already.
    pub fn hold(&mut self, class: ClassId) {
        if self.held.is_some() {
            return;
        }
        let least_busy = self.free(class).map(|(id, _)| id).next();
        if let Some(worker) = least_busy {
            self.held = Some(worker);
            self.list(worker);
        }
    }

    /// Nothing has to run alone any more, or the worker that was kept has it.
    pub fn let_go(&mut self) {
        if let Some(worker) = self.held.take() {
            self.list(worker);
        }
    }

    /// Puts a worker where its room belongs.
    fn list(&mut self, id: WorkerId) {
        let held = self.held == Some(id);
        let Some(worker) = self.workers.get_mut(&id) else { return };
        let busy = worker.in_flight.len();
        let room = worker.phase == Phase::Serving && worker.isolated.is_none() && busy < worker.slots;
        let place = (room && (!held || busy == 0)).then_some(busy);
        if let Some(class) = self.classes.get_mut(&worker.class) {
            if let Some(before) = worker.listed {
                class.free.remove(&(before, id));
            }
            if let Some(place) = place {
                class.free.insert((place, id));
            }
        }
        worker.listed = place;
    }
}
