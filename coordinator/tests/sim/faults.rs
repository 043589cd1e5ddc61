//! The faults of a world, with their times and severity: drawn from the seed in advance.

use trawl_coordinator::election;
use trawl_wire::record::leader_key;

use crate::laws::CLUSTER;
use crate::ledger::Checked;
use crate::random::Random;
use crate::sabotage::Bug;
use crate::world::{DETECT_MS, FAULTS_UNTIL_MS, Happening, World};

/// A worker whose threads are stuck for this long leaves and is restarted.
const WATCHDOG_MS: u64 = 12_000;
/// Microseconds per symbol of the slowest machine.
const SLOWEST_US: u64 = 20_000;

#[derive(Debug, Clone, Copy)]
pub enum Kind {
    /// A process dies and is restarted.
    Kill,
    /// Most processes die at once.
    KillMany,
    /// A process is suspended, given up, and resumes unaware: a zombie.
    Stop,
    /// It receives nothing, but its messages arrive.
    Deafen,
    /// It receives everything, but its messages are lost.
    Mute,
    /// It is ten times slower from now on.
    Slow,
    /// A coordinator's clock jumps ahead.
    ClockJump,
    /// A worker leaves on purpose and returns later.
    Drain,
    /// A coordinator dies and is restarted; mostly the leader, here and below.
    KillLeader,
    /// It is suspended past the end of its lease, and resumes unaware: a zombie.
    StopLeader,
    /// It cannot reach the control store.
    CutLeader,
    /// It hands over and is restarted.
    HandOver,
    /// The control store stalls.
    Freeze,
    /// It compacts its history, and all watches break.
    Forget,
    /// It ends all leases, or those of all workers.
    LoseLeases,
    LoseWorkers,
    /// The result store is full.
    FullResults,
    /// The control store has no space left.
    FullStore,
    /// A node of the control store is cut off from the other nodes, not from its clients.
    IsolateNode,
    /// Its watches receive nothing more, and do not end.
    SilenceWatches,
    /// It is restored from a backup: what it acknowledged since then is lost.
    RestoreStore,
    /// The workers are replaced by those of a later release, one after another.
    Upgrade,
    /// Some files of a machine's copy of the data are damaged from now on.
    CorruptCopy,
    /// A file has not arrived anywhere yet.
    LateFile,
    /// A worker's threads are stuck, while it keeps its lease and answers pings.
    Hang,
}

#[derive(Debug, Clone, Copy)]
pub struct Fault {
    pub kind: Kind,
    pub machine: usize,
    pub lasts_ms: u64,
}

#[derive(Debug, Clone)]
pub struct Faults {
    pub agenda: Vec<(u64, Fault)>,
    /// Percentage of messages that are late, so that others overtake them.
    pub delay_percent: u64,
    /// Percentage of messages that are duplicated.
    pub twice_percent: u64,
    /// Percentage of pieces that a living worker fails.
    pub failing_percent: u64,
    /// Percentage of calls on a store whose reply is lost.
    pub lost_percent: u64,
    /// Whether the result store is slow.
    pub slow_results: bool,
    /// The leader dies in this commit, before it is answered.
    pub kill_at_commit: Option<u64>,
}

impl Faults {
    pub fn none() -> Self {
        Self {
            agenda: Vec::new(),
            delay_percent: 0,
            twice_percent: 0,
            failing_percent: 0,
            lost_percent: 0,
            slow_results: false,
            kill_at_commit: None,
        }
    }

    pub fn new(random: &mut Random) -> Self {
        const KINDS: [Kind; 25] = [
            Kind::Kill,
            Kind::KillMany,
            Kind::Stop,
            Kind::Deafen,
            Kind::Mute,
            Kind::Slow,
            Kind::ClockJump,
            Kind::Drain,
            Kind::KillLeader,
            Kind::StopLeader,
            Kind::CutLeader,
            Kind::HandOver,
            Kind::Freeze,
            Kind::Forget,
            Kind::LoseLeases,
            Kind::LoseWorkers,
            Kind::FullResults,
            Kind::FullStore,
            Kind::IsolateNode,
            Kind::SilenceWatches,
            Kind::RestoreStore,
            Kind::Upgrade,
            Kind::CorruptCopy,
            Kind::LateFile,
            Kind::Hang,
        ];
        let count = random.within(0, 16);
        let mut fault = |_| {
            let kind = KINDS[random.index(KINDS.len())];
            let (machine, lasts_ms) = (random.index(64), random.within(1, 3_000));
            (random.within(0, FAULTS_UNTIL_MS - 1), Fault { kind, machine, lasts_ms })
        };
        let agenda = (0..count).map(&mut fault).collect();
        let mut some = |most| if random.percent(50) { random.within(0, most) } else { 0 };
        let (delay_percent, twice_percent, failing_percent) = (some(20), some(10), some(15));
        let lost_percent = some(10);
        let slow_results = random.percent(25);
        let kill_at_commit = random.percent(30).then(|| random.within(1, 12));
        Self { agenda, delay_percent, twice_percent, failing_percent, lost_percent, slow_results, kill_at_commit }
    }
}

impl World {
    pub fn strike(&mut self, fault: Fault) -> Checked {
        let machine = fault.machine % self.machines.len();
        let until = (self.now_ms + fault.lasts_ms).min(FAULTS_UNTIL_MS);
        let restart_ms = fault.lasts_ms.min(2_000) + 30;
        // Mostly the leader: faults of the others have little effect.
        let any = fault.machine % self.coordinators.len();
        let leading = (0..self.coordinators.len()).find(|&c| self.coordinators[c].term.is_some());
        let coordinator = if fault.machine.is_multiple_of(4) { any } else { leading.unwrap_or(any) };
        match fault.kind {
            Kind::Kill => self.kill(machine, restart_ms),
            Kind::KillMany => {
                for machine in 0..self.machines.len() {
                    if self.random.percent(70) {
                        self.kill(machine, restart_ms);
                    }
                }
            }
            Kind::Stop => {
                self.machines[machine].stopped_until = until;
                self.unreachable(machine, DETECT_MS);
            }
            Kind::Deafen => {
                self.machines[machine].deaf_until = until;
                self.unreachable(machine, DETECT_MS);
            }
            Kind::Mute => {
                self.machines[machine].mute_until = until;
                self.unreachable(machine, DETECT_MS);
            }
            Kind::Slow => {
                let state = &mut self.machines[machine];
                state.pace_us = (state.pace_us * 10).min(SLOWEST_US);
            }
            Kind::Drain => self.drain(machine),
            Kind::ClockJump => self.coordinators[coordinator].ahead_ms += fault.lasts_ms * 10,
            Kind::KillLeader => self.kill_coordinator(coordinator, restart_ms),
            // Twice as long as others, so that a leader's lease ends meanwhile.
            Kind::StopLeader => {
                self.coordinators[coordinator].stopped_until = (self.now_ms + 2 * fault.lasts_ms).min(FAULTS_UNTIL_MS);
            }
            Kind::CutLeader => {
                self.coordinators[coordinator].cut_until = (self.now_ms + 2 * fault.lasts_ms).min(FAULTS_UNTIL_MS);
            }
            Kind::HandOver => {
                if self.coordinators[coordinator].stopped_until <= self.now_ms {
                    self.elect(coordinator, election::Event::Resign)?;
                    // It no longer takes part in the election: a replacement process does.
                    self.soon(500, Happening::Replace { coordinator });
                }
            }
            Kind::Freeze => self.frozen_until = until,
            Kind::Forget => {
                self.control.store.compact();
                self.control.store.break_watches();
                self.poke();
            }
            Kind::LoseLeases => {
                self.laws.robbed.insert(self.control.created(&leader_key(CLUSTER)));
                self.control.store.expire_leases();
                self.poke();
            }
            Kind::LoseWorkers => {
                for machine in 0..self.machines.len() {
                    self.lose_lease(machine);
                }
                self.poke();
            }
            Kind::FullResults => self.full_until = until,
            Kind::FullStore => self.fill_store(until),
            Kind::IsolateNode => self.isolate_node(fault, coordinator),
            Kind::SilenceWatches => {
                self.count("silent watches");
                self.control.store.silence_watches();
            }
            Kind::Upgrade => {
                self.count("upgrades");
                for machine in 0..self.machines.len() {
                    self.soon(machine as u64 * fault.lasts_ms / 4, Happening::Upgrade { machine, restart_ms });
                }
            }
            Kind::RestoreStore => self.restore_store(),
            Kind::CorruptCopy => {
                self.facts.corrupt.insert(machine as u64);
            }
            Kind::LateFile => self.late_until = until,
            Kind::Hang => {
                let (life, forever) = (self.machines[machine].life, self.sabotaged(Bug::ForgetsSilentAttempts));
                let state = &mut self.machines[machine];
                if forever || fault.lasts_ms.is_multiple_of(2) {
                    // Stuck until the process ends; the watchdog restarts it unless the planted bug disables that.
                    state.hung_until = u64::MAX / 2;
                    if !forever {
                        self.soon(WATCHDOG_MS, Happening::Watchdog { machine, life });
                    }
                } else {
                    state.hung_until = self.now_ms + 3 * fault.lasts_ms;
                }
            }
        }
        Ok(())
    }
}
