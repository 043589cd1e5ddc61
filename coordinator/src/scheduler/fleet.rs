//! The workers: their phase, their class, and which of them have free slots.

use std::collections::{BTreeMap, BTreeSet};

use super::{AttemptId, ClassId, HostId, WorkerId};

/// Whether a worker receives work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// It receives work.
    Serving,
    /// It only finishes its current work.
    Draining,
    /// It returned wrong results.
    Quarantined,
}

#[derive(Debug)]
pub(super) struct Worker {
    pub host: HostId,
    pub class: ClassId,
    slots: usize,
    pub in_flight: BTreeSet<AttemptId>,
    phase: Phase,
    /// The attempt that has to run alone on it.
    isolated: Option<AttemptId>,
    /// Its number of attempts as listed in `free`; `None` if it is not listed.
    listed: Option<usize>,
}

#[derive(Debug, Default)]
struct Class {
    /// Workers that receive work, by host.
    serving: BTreeMap<HostId, WorkerId>,
    /// Workers with free slots, the least busy first.
    free: BTreeSet<(usize, WorkerId)>,
    /// Since when no worker serves.
    empty_since_ms: u64,
}

/// See the module's header.
#[derive(Debug)]
pub(super) struct Fleet {
    workers: BTreeMap<WorkerId, Worker>,
    classes: BTreeMap<ClassId, Class>,
    /// A worker that receives nothing until it is idle, reserved for work that has to run alone.
    held: Option<WorkerId>,
    started_ms: u64,
    /// Whether workers came, went or changed since this was last asked.
    changed: bool,
}

impl Fleet {
    pub fn new(now_ms: u64) -> Self {
        Self { workers: BTreeMap::new(), classes: BTreeMap::new(), held: None, started_ms: now_ms, changed: true }
    }

    pub fn get(&self, worker: WorkerId) -> Option<&Worker> {
        self.workers.get(&worker)
    }

    /// Whether anything has changed since the last call.
    pub fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.changed)
    }

    /// Whether it exists and receives work.
    pub fn takes_work(&self, worker: WorkerId) -> bool {
        self.get(worker).is_some_and(|w| w.phase == Phase::Serving)
    }

    /// Starts to track since when a class has no worker.
    pub fn note_class(&mut self, class: ClassId) {
        let empty_since_ms = self.started_ms;
        self.classes.entry(class).or_insert_with(|| Class { empty_since_ms, ..Class::default() });
    }

    /// Since when no worker of the class receives work.
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

    /// Whether a host has a worker that is not quarantined.
    pub fn is_trusted(&self, host: HostId) -> bool {
        self.workers.values().any(|w| w.host == host && w.phase != Phase::Quarantined)
    }

    /// Quarantines all workers of a host, and returns them.
    pub fn quarantine(&mut self, host: HostId, now_ms: u64) -> Vec<WorkerId> {
        let its: Vec<WorkerId> = self.workers.iter().filter(|(_, w)| w.host == host).map(|(&id, _)| id).collect();
        its.iter().for_each(|id| self.set_phase(*id, Phase::Quarantined, now_ms));
        its
    }

    fn set_phase(&mut self, id: WorkerId, phase: Phase, now_ms: u64) {
        // Quarantine is permanent.
        let Some(worker) = self.workers.get_mut(&id).filter(|w| w.phase != Phase::Quarantined) else { return };
        worker.phase = phase;
        let (host, class) = (worker.host, worker.class);
        self.leave_class(id, host, class, now_ms);
        self.list(id);
    }

    fn leave_class(&mut self, id: WorkerId, host: HostId, class: ClassId, now_ms: u64) {
        self.changed = true;
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

    /// Removes a worker and returns its attempts.
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

    /// Workers of a class with free slots, the least busy first.
    pub fn free(&self, class: ClassId) -> impl Iterator<Item = (WorkerId, &Worker)> {
        let free = self.classes.get(&class).into_iter().flat_map(|c| c.free.iter());
        free.filter_map(|(_, id)| Some((*id, self.workers.get(id)?)))
    }

    /// Whether any worker has a free slot.
    pub fn has_room(&self) -> bool {
        self.classes.values().any(|class| !class.free.is_empty())
    }

    /// Idle workers of a class.
    pub fn idle(&self, class: ClassId) -> impl Iterator<Item = (WorkerId, &Worker)> {
        self.free(class).take_while(|(_, w)| w.in_flight.is_empty())
    }

    /// Whether work that the hosts in `avoid` failed may go to `worker`: to one of those only if all hosts have failed
    /// it.
    pub fn may_run(&self, worker: &Worker, avoid: &[HostId]) -> bool {
        if !avoid.contains(&worker.host) {
            return true;
        }
        let Some(class) = self.classes.get(&worker.class) else { return false };
        avoid.iter().filter(|host| class.serving.contains_key(host)).count() == class.serving.len()
    }

    /// Whether any other host than these receives work of the class.
    pub fn serves_beside(&self, class: ClassId, hosts: &[HostId]) -> bool {
        self.classes.get(&class).is_some_and(|class| class.serving.keys().any(|host| !hosts.contains(host)))
    }

    /// Reserves the least busy worker of a class for work that has to run alone, unless one is reserved already.
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

    /// Releases the reserved worker: no work has to run alone any more, or it has been assigned.
    pub fn let_go(&mut self) {
        if let Some(worker) = self.held.take() {
            self.list(worker);
        }
    }

    /// Updates a worker's position in the list of free workers.
    fn list(&mut self, id: WorkerId) {
        self.changed = true;
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
