//! The workers as seen by a term: the real membership, and how a worker is discovered, joined, lost and pinged.

use trawl_coordinator::membership::{Event as Registered, Member};
use trawl_coordinator::scheduler::{ClassId, Event, Loss};

use crate::leader_term::RETRY_MS;
use crate::ledger::Checked;
use crate::machines::{Source, machine_of};
use crate::world::{Happening, SLOTS, World};

/// A member of the cluster, as known to the term.
pub struct Known {
    pub life: u64,
    class: ClassId,
    draining: bool,
    /// It receives nothing until it is restarted.
    pub distrusted: bool,
}

impl Known {
    /// Whether it runs work of a class.
    pub fn serves(&self, class: ClassId) -> bool {
        self.class == class && !self.draining && !self.distrusted
    }
}

impl World {
    /// Delivers the control store's events about workers to a term.
    pub fn hear_of_workers(&mut self, c: usize, event: Registered) -> Checked {
        let clock = self.clock(c);
        let Some(term) = &mut self.coordinators[c].term else { return Ok(()) };
        let serial = term.serial;
        for member in term.roster.step(event, clock) {
            match member {
                Member::Here(record) => {
                    let (machine, life) = machine_of(&record.boot);
                    self.meet(c, machine, life, record.draining)?;
                }
                Member::Suspect(record) => {
                    self.count("suspects");
                    let (machine, life) = machine_of(&record.boot);
                    let Some(term) = self.term(c, serial) else { return Ok(()) };
                    if term.members.get(&machine).is_none_or(|known| known.life != life) {
                        self.meet(c, machine, life, record.draining)?;
                    }
                    self.soon(5, Happening::Ping { coordinator: c, serial, machine, life });
                }
                // No worker here has devices.
                Member::Devices { .. } => {}
                Member::Draining { boot, .. } => {
                    let (machine, _) = machine_of(&boot);
                    let Some(term) = self.term(c, serial) else { return Ok(()) };
                    if let Some(known) = term.members.get_mut(&machine) {
                        known.draining = true;
                    }
                    if let Some(&worker) = term.joined.get(&machine) {
                        self.step(c, Event::WorkerDraining { worker })?;
                    }
                }
                Member::Gone { boot, .. } => {
                    let (machine, life) = machine_of(&boot);
                    let Some(term) = self.term(c, serial) else { return Ok(()) };
                    if term.members.get(&machine).is_some_and(|known| known.life == life) {
                        self.lose(c, machine)?;
                        if let Some(term) = self.term(c, serial) {
                            term.members.remove(&machine);
                        }
                    }
                }
            }
        }
        Ok(())
    }

    fn meet(&mut self, c: usize, machine: usize, life: u64, draining: bool) -> Checked {
        let class = self.machines[machine].class;
        if let Some(term) = &mut self.coordinators[c].term {
            term.members.insert(machine, Known { life, class, draining, distrusted: false });
        }
        if draining { Ok(()) } else { self.join(c, machine) }
    }

    /// A member receives work from now on.
    fn join(&mut self, c: usize, machine: usize) -> Checked {
        let class = self.machines[machine].class;
        let Some(term) = &mut self.coordinators[c].term else { return Ok(()) };
        let distrusted = term.members.get(&machine).is_some_and(|known| known.distrusted);
        if distrusted || term.joined.contains_key(&machine) {
            return Ok(());
        }
        let worker = term.next_link;
        term.next_link += 1;
        term.joined.insert(machine, worker);
        self.step(c, Event::WorkerJoined { worker, host: machine as u64, class, slots: SLOTS })
    }

    /// The one way to lose a worker.
    fn lose(&mut self, c: usize, machine: usize) -> Checked {
        let Some(term) = &mut self.coordinators[c].term else { return Ok(()) };
        let Some(worker) = term.joined.remove(&machine) else { return Ok(()) };
        let draining = term.members.get(&machine).is_some_and(|known| known.draining);
        self.step(c, Event::WorkerLost { worker, loss: if draining { Loss::Left } else { Loss::Died } })
    }

    /// A connection has been broken for long enough.
    pub fn detect(&mut self, from: Source, machine: usize, life: u64) -> Checked {
        let stopped_until = self.coordinators[from.coordinator].stopped_until;
        if stopped_until > self.now_ms {
            self.at(stopped_until, Happening::Detect { from, machine, life });
            return Ok(());
        }
        let answers = self.answers(machine, life);
        let Some(term) = self.term(from.coordinator, from.serial) else { return Ok(()) };
        if answers || term.joined.get(&machine) != Some(&from.worker) {
            return Ok(());
        }
        self.lose(from.coordinator, machine)?;
        let Source { coordinator, serial, .. } = from;
        self.soon(100, Happening::Ping { coordinator, serial, machine, life });
        Ok(())
    }

    /// Pings a member that was lost or is suspected.
    pub fn ping(&mut self, c: usize, serial: u64, machine: usize, life: u64) -> Checked {
        let stopped_until = self.coordinators[c].stopped_until;
        if stopped_until > self.now_ms {
            self.at(stopped_until, Happening::Ping { coordinator: c, serial, machine, life });
            return Ok(());
        }
        let answers = self.answers(machine, life);
        let Some(term) = self.term(c, serial) else { return Ok(()) };
        let Some(known) = term.members.get(&machine).filter(|known| known.life == life) else { return Ok(()) };
        if answers {
            return if known.draining { Ok(()) } else { self.join(c, machine) };
        }
        self.lose(c, machine)?;
        self.soon(RETRY_MS, Happening::Ping { coordinator: c, serial, machine, life });
        Ok(())
    }
}
