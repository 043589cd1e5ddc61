//! The waiting work of one scan, indexed by which workers may take it.
//!
//! Every query takes logarithmic time in the amount of waiting work, times the number of distinct sets of hosts to
//! avoid; these are few, since work that failed on the same hosts is grouped.

use std::collections::{BTreeMap, BTreeSet};

use super::{HostId, Piece, WorkerId};

/// Order within a queue: retries come first, then by age.
pub(super) type WorkKey = (u8, u64);

/// Which workers may take a piece of work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Claim {
    /// Preferably this worker; any other once it is busy.
    Prefers(WorkerId),
    /// Any worker; one that failed it only if all have.
    Anyone,
    /// As `Anyone`, on a worker that has nothing else to do.
    Alone,
    /// Only a host that is not to be avoided.
    Others,
}

/// Pieces that are dispatched together.
#[derive(Debug, Clone)]
pub(super) struct QueuedWork {
    /// Ascending; a part of a segment is alone.
    pub pieces: Vec<Piece>,
    /// Hosts that failed it, ascending; used as a last resort.
    pub avoid: Vec<HostId>,
    pub claim: Claim,
}

impl QueuedWork {
    /// Work that has not been tried yet.
    pub fn fresh(pieces: Vec<Piece>, preferred: Option<WorkerId>) -> Self {
        Self { pieces, avoid: Vec::new(), claim: preferred.map_or(Claim::Anyone, Claim::Prefers) }
    }

    fn rank(&self) -> u8 {
        match self.claim {
            Claim::Prefers(_) => 1,
            Claim::Anyone if self.avoid.is_empty() => 1,
            Claim::Anyone | Claim::Alone | Claim::Others => 0,
        }
    }
}

/// Work by the set of hosts to avoid.
type Groups = BTreeMap<Vec<HostId>, BTreeSet<WorkKey>>;

/// See the module's header.
#[derive(Debug, Default)]
pub(super) struct WaitQueue {
    work: BTreeMap<WorkKey, QueuedWork>,
    own: BTreeMap<WorkerId, BTreeSet<WorkKey>>,
    /// Lengths of `own`: other workers take from the longest.
    lengths: BTreeSet<(usize, WorkerId)>,
    anyone: Groups,
    alone: Groups,
    others: Groups,
    /// Work that may not run before a time.
    delayed: BTreeSet<(u64, WorkKey)>,
    next: u64,
}

impl WaitQueue {
    /// Adds work that may run from `not_before_ms` on; 0 means immediately.
    pub fn push(&mut self, work: QueuedWork, not_before_ms: u64) {
        self.next += 1;
        let key = (work.rank(), self.next);
        if not_before_ms > 0 {
            self.delayed.insert((not_before_ms, key));
        } else {
            self.file(key, &work);
        }
        self.work.insert(key, work);
    }

    /// Whether any work could run now if there were a worker for it.
    pub fn is_ready(&self) -> bool {
        !(self.own.is_empty() && self.anyone.is_empty() && self.alone.is_empty() && self.others.is_empty())
    }

    /// Whether any work has to run alone.
    pub fn wants_isolation(&self) -> bool {
        !self.alone.is_empty()
    }

    /// Makes delayed work ready once its time has come. Returns whether there was any.
    pub fn wake(&mut self, now_ms: u64) -> bool {
        let before = self.delayed.len();
        while let Some(&(at, key)) = self.delayed.first() {
            if at > now_ms {
                break;
            }
            self.delayed.pop_first();
            if let Some(work) = self.work.get(&key).cloned() {
                self.file(key, &work);
            }
        }
        self.delayed.len() < before
    }

    /// The first work that prefers this worker.
    pub fn own(&self, worker: WorkerId) -> Option<WorkKey> {
        self.own.get(&worker)?.first().copied()
    }

    /// The first work without a preferred worker whose set of hosts to avoid satisfies `may`.
    pub fn anyone(&self, may: impl Fn(&[HostId]) -> bool) -> Option<WorkKey> {
        first(&self.anyone, may)
    }

    /// As [`Self::anyone`], for work that has to run alone.
    pub fn alone(&self, may: impl Fn(&[HostId]) -> bool) -> Option<WorkKey> {
        first(&self.alone, may)
    }

    /// The first vote that `host` may give.
    pub fn others(&self, host: HostId) -> Option<WorkKey> {
        first(&self.others, |avoid| !avoid.contains(&host))
    }

    /// The last work of the worker with the longest queue, which it would reach last.
    pub fn longest(&self) -> Option<WorkKey> {
        let (_, worker) = self.lengths.last()?;
        self.own.get(worker)?.last().copied()
    }

    /// Removes ready work.
    pub fn take(&mut self, key: WorkKey) -> Option<QueuedWork> {
        let work = self.work.remove(&key)?;
        match work.claim {
            Claim::Prefers(worker) => self.change_own(worker, |keys| keys.remove(&key)),
            Claim::Anyone => remove(&mut self.anyone, &work.avoid, key),
            Claim::Alone => remove(&mut self.alone, &work.avoid, key),
            Claim::Others => remove(&mut self.others, &work.avoid, key),
        }
        Some(work)
    }

    /// Work that prefers this worker may go to any worker.
    pub fn orphan(&mut self, worker: WorkerId) {
        let Some(keys) = self.own.remove(&worker) else { return };
        self.lengths.remove(&(keys.len(), worker));
        for key in keys {
            if let Some(work) = self.work.get_mut(&key) {
                work.claim = Claim::Anyone;
                self.anyone.entry(work.avoid.clone()).or_default().insert(key);
            }
        }
    }

    fn file(&mut self, key: WorkKey, work: &QueuedWork) {
        match work.claim {
            Claim::Prefers(worker) => self.change_own(worker, |keys| keys.insert(key)),
            Claim::Anyone => drop(self.anyone.entry(work.avoid.clone()).or_default().insert(key)),
            Claim::Alone => drop(self.alone.entry(work.avoid.clone()).or_default().insert(key)),
            Claim::Others => drop(self.others.entry(work.avoid.clone()).or_default().insert(key)),
        }
    }

    fn change_own(&mut self, worker: WorkerId, change: impl FnOnce(&mut BTreeSet<WorkKey>) -> bool) {
        let keys = self.own.entry(worker).or_default();
        self.lengths.remove(&(keys.len(), worker));
        change(keys);
        if keys.is_empty() {
            self.own.remove(&worker);
        } else {
            self.lengths.insert((keys.len(), worker));
        }
    }
}

fn first(groups: &Groups, may: impl Fn(&[HostId]) -> bool) -> Option<WorkKey> {
    groups.iter().filter(|(avoid, _)| may(avoid)).filter_map(|(_, keys)| keys.first().copied()).min()
}

fn remove(groups: &mut Groups, avoid: &[HostId], key: WorkKey) {
    if let Some(keys) = groups.get_mut(avoid) {
        keys.remove(&key);
        if keys.is_empty() {
            groups.remove(avoid);
        }
    }
}
