//! Faults of the control store that calls alone do not show: a full disk, a node cut off from its peers, a restore from
//! a backup. And what everybody has to know again, some time after the last of them.

use trawl_coordinator::election::ElectionRole;
use trawl_wire::LeaderRecord;
use trawl_wire::record::leader_key;

use crate::control::{Answer, Call, LEASE_TTL_MS};
use crate::coordinators::{Owner, unanswered};
use crate::faults::{Fault, Kind};
use crate::following::HISTORY_CHECK_MS;
use crate::laws::{CLUSTER, Process};
use crate::ledger::{Checked, Invariant, ensure};
use crate::sabotage::Bug;
use crate::world::{CLIENT_MS, FAULTS_UNTIL_MS, Happening, World};

/// How long the nodes of the store need for an election, and how long a leading node that is cut off acts as if it led.
const STORE_ELECTION_MS: u64 = 1_000;
/// Time after the last fault by which everybody has noticed what the store did: restarts, leases, and several looks.
const SETTLES_MS: u64 = 10 * HISTORY_CHECK_MS;

impl World {
    /// Schedules what has to happen before and after faults of the store.
    pub fn plan_store_faults(&mut self) {
        let agenda = self.faults.agenda.clone();
        let lasting = |fault: &Fault| matches!(fault.kind, Kind::SilenceWatches | Kind::RestoreStore);
        if agenda.iter().any(|(_, fault)| lasting(fault)) {
            self.runs_until = FAULTS_UNTIL_MS + SETTLES_MS;
            self.at(self.runs_until, Happening::Settled);
        }
        for (at, fault) in agenda {
            // Few of them: what is lost is not there to be tested.
            if matches!(fault.kind, Kind::RestoreStore) && fault.machine.is_multiple_of(4) {
                self.at(at.saturating_sub(fault.lasts_ms), Happening::BackUp);
            }
        }
    }

    /// Puts are refused until the alarm is lifted.
    pub fn fill_store(&mut self, until: u64) {
        self.count("out of space");
        self.control.store.raise_alarm();
        self.at(until, Happening::SpaceFreed);
    }

    /// A third of the coordinators and workers, among them `coordinator`, use a node that is cut off from the others.
    /// Their calls are not answered, their watches are silent. If that node led the others it still answers keep-alives
    /// for a while; the others elect another, which gives every lease its whole time to live.
    pub fn isolate_node(&mut self, fault: Fault, coordinator: usize) {
        self.count("isolated nodes");
        let until = (self.now_ms + 2 * fault.lasts_ms).min(FAULTS_UNTIL_MS);
        let led = fault.lasts_ms.is_multiple_of(2);
        let elected_ms = self.now_ms + STORE_ELECTION_MS;
        for (c, state) in self.coordinators.iter_mut().enumerate() {
            if c == coordinator || (c + fault.machine).is_multiple_of(3) {
                // A node that is cut off already leads no more.
                let leads = led && state.isolated_until <= self.now_ms;
                state.renewed_until = if leads { elected_ms.min(until) } else { state.renewed_until };
                state.isolated_until = state.isolated_until.max(until);
            }
        }
        for (m, state) in self.machines.iter_mut().enumerate() {
            if (m + fault.machine).is_multiple_of(3) {
                state.isolated_until = until;
            }
        }
        if led {
            self.frozen_until = self.frozen_until.max(elected_ms);
            if !self.sabotaged(Bug::StoreShortensLeases) {
                self.control.extend_leases(elected_ms + LEASE_TTL_MS);
            }
        }
    }

    /// What a node that is cut off answers; `None` if the caller uses another one.
    pub fn answer_of_isolated(&mut self, owner: Owner, call: &Call) -> Option<Answer> {
        let state = &self.coordinators[owner.coordinator];
        if state.isolated_until <= self.now_ms {
            return None;
        }
        if matches!(call, Call::KeepAlive(_)) && state.renewed_until > self.now_ms {
            self.count("keep-alives of isolated nodes");
            return Some(Answer::Done);
        }
        Some(unanswered())
    }

    /// The store loses what it acknowledged since its backup. Clients submit again what they find lost.
    pub fn restore_store(&mut self) {
        let Some(backup) = self.backup.take() else { return };
        self.count("restored stores");
        // As `etcdutl snapshot restore` does. A disk that is rolled back keeps the cluster's id, and is noticed only while
        // its revision is lower (docs/etcd.md).
        self.control.restore(&backup, true, self.now_ms);
        let coordinators = self.coordinators.iter().enumerate().filter(|(_, state)| state.alive);
        let coordinators = coordinators.map(|(c, state)| (Process::Coordinator(c, state.life), state.store_seen));
        let workers = self.machines.iter().enumerate().filter(|(_, state)| state.alive);
        let workers = workers.map(|(m, state)| (Process::Worker(m, state.life), state.store_seen.is_some()));
        for (process, has_read) in coordinators.chain(workers) {
            self.laws.unaware.insert(process);
            if has_read {
                self.laws.must_notice.insert(process);
            }
        }
        self.laws.restored(&self.control);
        self.acknowledged.retain(|scan| self.laws.accepted.contains_key(scan));
        let lost: Vec<_> = self.facts.scans.keys().filter(|scan| !self.acknowledged.contains(scan)).copied().collect();
        for scan in lost {
            self.soon(CLIENT_MS.0, Happening::Submit { scan, to: 0 });
        }
        self.poke();
    }

    /// Checks that every process that knew a later state of the store is gone, and that the others know the leader, and
    /// the leader the workers.
    pub fn check_settled(&mut self) -> Checked {
        for process in &self.laws.must_notice {
            let runs = match *process {
                Process::Coordinator(c, life) => self.coordinators[c].alive && self.coordinators[c].life == life,
                Process::Worker(m, life) => self.machines[m].alive && self.machines[m].life == life,
            };
            ensure(!runs, Invariant::RestoresAreNoticed, || format!("{process:?} runs on a store that went back"))?;
        }
        let leader = self.control.store.peek(&leader_key(CLUSTER));
        let leader: Option<LeaderRecord> = leader.and_then(|entry| serde_json::from_slice(&entry.value).ok());
        let Some(leader) = leader else {
            let what = || "nobody leads, long after the last fault".to_owned();
            return ensure(false, Invariant::RegistrationsAreSeen, what);
        };
        for (c, state) in self.coordinators.iter().enumerate().filter(|(_, state)| state.alive) {
            let known = match state.election.as_ref().map(|election| election.standing()) {
                Some(ElectionRole::Leading { .. }) => Some(format!("c{c}-{}", state.life)),
                Some(ElectionRole::Standby { leader: Some(record) }) => Some(record.boot),
                _ => None,
            };
            ensure(known.as_ref() == Some(&leader.boot), Invariant::RegistrationsAreSeen, || {
                format!("c{c} takes {known:?} for the leader, which is {}", leader.boot)
            })?;
            let Some(term) = &state.term else { continue };
            for (m, machine) in self.machines.iter().enumerate().filter(|(_, m)| m.is_settled(self.now_ms)) {
                let known = term.members.get(&m).is_some_and(|known| known.life == machine.life);
                ensure(known, Invariant::RegistrationsAreSeen, || format!("c{c} leads and does not know worker {m}"))?;
            }
        }
        Ok(())
    }
}
