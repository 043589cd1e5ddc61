//! The faults of a cluster and their times: a pure function of a seed.

use std::fmt;
use std::time::Duration;

use crate::reference::random::Random;

/// Workers of the cluster.
pub const WORKERS: usize = 3;
/// Coordinators of the cluster.
pub const COORDINATORS: usize = 2;
/// Faults of one schedule.
const FAULTS: (u64, u64) = (2, 4);
/// When faults happen, after the scans were submitted.
const MOMENTS_MS: (u64, u64) = (200, 3500);
/// How long a process is stopped or a link is cut: shorter and longer than the leases.
const PAUSES_MS: (u64, u64) = (300, 7000);
/// After how long a killed process is started again.
const RESTARTS_MS: (u64, u64) = (200, 4000);

/// The target of a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Victim {
    /// A worker with work in hand, if there is one: this number selects it.
    Worker(usize),
    /// The coordinator that leads at that moment.
    Leader,
    /// The other one.
    Standby,
    /// The node of etcd that leads.
    EtcdLeader,
}

/// The kind of fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    /// SIGKILL, and a new process after a while.
    Kill { restart: Duration },
    /// SIGSTOP, and SIGCONT after a while.
    Stop { resume: Duration },
    /// Its link goes down, and up after a while.
    Cut { mend: Duration },
    /// Of etcd: its link to its peers goes down, and up after a while; clients still reach it.
    CutPeers { mend: Duration },
    /// Of a worker: files of its own copy of the data are damaged, for good.
    Damage,
}

/// One fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fault {
    /// After the scans were submitted.
    pub at: Duration,
    /// Its target.
    pub victim: Victim,
    /// Its kind.
    pub act: Act,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} after {:?}: {:?}", self.victim, self.at, self.act)
    }
}

/// Every kind of fault: each of ten consecutive seeds begins with another one.
const KINDS: [(Victim, u8); 10] = [
    (Victim::Worker(0), b'k'),
    (Victim::Worker(0), b's'),
    (Victim::Worker(0), b'c'),
    (Victim::Worker(0), b'd'),
    (Victim::Leader, b'k'),
    (Victim::EtcdLeader, b'k'),
    (Victim::Leader, b's'),
    (Victim::Standby, b'k'),
    (Victim::Leader, b'c'),
    (Victim::EtcdLeader, b'p'),
];
/// The first of them, which target workers.
const KINDS_OF_WORKERS: u64 = 4;

/// Everything that a seed decides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schedule {
    /// The seed.
    pub seed: u64,
    /// In order of time.
    pub faults: Vec<Fault>,
}

impl Schedule {
    /// The schedule of a seed. Without `links`, processes are stopped instead of cut off.
    pub fn of(seed: u64, links: bool) -> Self {
        let mut random = Random::new(seed);
        let count = random.between(FAULTS.0, FAULTS.1);
        let (mut etcd_spared, mut data_spared) = (true, true);
        let mut faults: Vec<Fault> = Vec::new();
        for i in 0..count {
            let kind = match i {
                0 => seed % KINDS.len() as u64,
                // A schedule that begins by killing a worker targets only workers: then one leader sees everything, and
                // its report is complete.
                _ if seed.is_multiple_of(KINDS.len() as u64) => random.below(KINDS_OF_WORKERS),
                _ => random.below(KINDS.len() as u64),
            };
            let (mut victim, mut act) = KINDS[kind as usize];
            if victim == Victim::EtcdLeader && !std::mem::take(&mut etcd_spared) {
                // With two of three nodes dead there would be no etcd at all.
                (victim, act) = (Victim::Worker(0), b'k');
            }
            if act == b'd' && !std::mem::take(&mut data_spared) {
                // Two sound copies remain: where most are damaged, the answer says so.
                act = b'k';
            }
            if let Victim::Worker(number) = &mut victim {
                *number = random.below(WORKERS as u64) as usize;
            }
            let at = Duration::from_millis(random.between(MOMENTS_MS.0, MOMENTS_MS.1));
            let pause = Duration::from_millis(random.between(PAUSES_MS.0, PAUSES_MS.1));
            let restart = Duration::from_millis(random.between(RESTARTS_MS.0, RESTARTS_MS.1));
            let act = match act {
                b'k' => Act::Kill { restart },
                b'c' if links => Act::Cut { mend: pause },
                b'p' if links => Act::CutPeers { mend: pause },
                b'p' => Act::Kill { restart },
                b'd' => Act::Damage,
                _ => Act::Stop { resume: pause },
            };
            faults.push(Fault { at, victim, act });
        }
        faults.sort_by_key(|fault| fault.at);
        Self { seed, faults }
    }

    /// Whether a coordinator or etcd is a target: then the run's report may be from a later leader, which knows less.
    pub fn touches_more_than_workers(&self) -> bool {
        self.faults.iter().any(|fault| !matches!(fault.victim, Victim::Worker(_)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_is_one_schedule_and_ten_in_a_row_have_every_kind_of_fault() {
        assert_eq!(Schedule::of(7, true), Schedule::of(7, true));
        for first in [0, 100] {
            let all: Vec<Fault> = (first..first + 10).flat_map(|seed| Schedule::of(seed, true).faults).collect();
            let some = |wanted: &dyn Fn(&Fault) -> bool| assert!(all.iter().any(wanted), "{all:?}");
            some(&|f| matches!((f.victim, f.act), (Victim::Worker(_), Act::Kill { .. })));
            some(&|f| matches!((f.victim, f.act), (Victim::Worker(_), Act::Stop { .. })));
            some(&|f| matches!((f.victim, f.act), (Victim::Worker(_), Act::Cut { .. })));
            some(&|f| matches!((f.victim, f.act), (Victim::Leader, Act::Kill { .. })));
            some(&|f| matches!((f.victim, f.act), (Victim::Leader, Act::Stop { .. })));
            some(&|f| matches!((f.victim, f.act), (Victim::Leader, Act::Cut { .. })));
            some(&|f| matches!((f.victim, f.act), (Victim::EtcdLeader, Act::Kill { .. })));
            some(&|f| matches!((f.victim, f.act), (Victim::Standby, Act::Kill { .. })));
            some(&|f| matches!((f.victim, f.act), (Victim::EtcdLeader, Act::CutPeers { .. })));
            some(&|f| matches!((f.victim, f.act), (Victim::Worker(_), Act::Damage)));
        }
    }

    #[test]
    fn etcd_keeps_its_majority_and_without_links_none_is_cut() {
        for seed in 0..2000 {
            let faults = Schedule::of(seed, seed % 2 == 0).faults;
            assert!(faults.iter().filter(|f| f.victim == Victim::EtcdLeader).count() <= 1, "{seed}");
            let cut = |f: &Fault| matches!(f.act, Act::Cut { .. } | Act::CutPeers { .. });
            assert!(seed % 2 == 0 || !faults.iter().any(cut), "{seed}");
            assert!(faults.iter().filter(|f| f.act == Act::Damage).count() <= 1, "{seed}");
            assert!(faults.is_sorted_by_key(|f| f.at), "{seed}");
            assert!(seed % 10 != 0 || !Schedule::of(seed, true).touches_more_than_workers(), "{seed}");
        }
    }
}
