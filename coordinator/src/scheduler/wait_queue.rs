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
    /// Preferably this worker. Once that is busy `holders`, which hold its data as well, and any other worker after it has been free for
    /// `cold_ms`: so much longer that one would take, because it would have to load first.
    Prefers { worker: WorkerId, holders: Vec<WorkerId>, cold_ms: u64 },
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
    pub fn fresh(pieces: Vec<Piece>, claim: Claim) -> Self {
        Self { pieces, avoid: Vec::new(), claim }
    }

    fn rank(&self) -> u8 {
        match self.claim {
            Claim::Prefers { .. } => 1,
            Claim::Anyone if self.avoid.is_empty() => 1,
            Claim::Anyone | Claim::Alone | Claim::Others => 0,
        }
    }
}

/// Work by the set of hosts to avoid.
type Groups = BTreeMap<Vec<HostId>, BTreeSet<WorkKey>>;

/// Work by the worker that it prefers.
type Preferring = BTreeMap<WorkerId, BTreeSet<WorkKey>>;

/// See the module's header.
#[derive(Debug, Default)]
pub(super) struct WaitQueue {
    work: BTreeMap<WorkKey, QueuedWork>,
    own: Preferring,
    /// Those of `own` by the other workers that hold their data.
    copies: Preferring,
    /// Those of `own` that any worker may take.
    open: Preferring,
    /// Lengths of `open`: other workers take from the longest.
    lengths: BTreeSet<(usize, WorkerId)>,
    /// Those of `own` whose worker holds their data, until another worker is free: how long that one then waits, in milliseconds.
    held: BTreeMap<WorkKey, u64>,
    /// Those of `own` that other workers may take from a time on.
    offered: BTreeSet<(u64, WorkKey)>,
    /// The times of `offered`.
    offered_at: BTreeMap<WorkKey, u64>,
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

    /// Whether any work waits for a time.
    pub fn is_timed(&self) -> bool {
        !(self.delayed.is_empty() && self.offered.is_empty())
    }

    /// Whether any work has to run alone.
    pub fn wants_isolation(&self) -> bool {
        !self.alone.is_empty()
    }

    /// Another worker than the preferred ones is free: from now on it waits, for each piece of work no longer than loading its data takes.
    pub fn offer(&mut self, now_ms: u64) {
        for (key, cold_ms) in std::mem::take(&mut self.held) {
            let at = now_ms.saturating_add(cold_ms);
            self.offered.insert((at, key));
            self.offered_at.insert(key, at);
        }
    }

    /// Time at which the next of the work that waits for its worker may go to another one.
    pub fn offered_ms(&self) -> Option<u64> {
        self.offered.first().map(|(at, _)| *at)
    }

    /// Makes delayed work ready, and work that waited for its worker open to others, once its time has come. Returns whether there was
    /// any.
    pub fn wake(&mut self, now_ms: u64) -> bool {
        let before = self.delayed.len() + self.offered.len();
        while let Some(&(at, key)) = self.offered.first() {
            if at > now_ms {
                break;
            }
            self.offered.pop_first();
            self.offered_at.remove(&key);
            if let Some(&Claim::Prefers { worker, .. }) = self.work.get(&key).map(|work| &work.claim) {
                self.change_open(worker, |keys| keys.insert(key));
            }
        }
        while let Some(&(at, key)) = self.delayed.first() {
            if at > now_ms {
                break;
            }
            self.delayed.pop_first();
            if let Some(work) = self.work.get(&key).cloned() {
                self.file(key, &work);
            }
        }
        self.delayed.len() + self.offered.len() < before
    }

    /// The first work that prefers this worker.
    pub fn own(&self, worker: WorkerId) -> Option<WorkKey> {
        self.own.get(&worker)?.first().copied()
    }

    /// The last work that prefers another worker and whose data this one holds as well.
    pub fn copy(&self, worker: WorkerId) -> Option<WorkKey> {
        self.copies.get(&worker)?.last().copied()
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

    /// The last work that is open to others of the worker with most of it, which it would reach last.
    pub fn longest(&self) -> Option<WorkKey> {
        let (_, worker) = self.lengths.last()?;
        self.open.get(worker)?.last().copied()
    }

    /// Removes ready work.
    pub fn take(&mut self, key: WorkKey) -> Option<QueuedWork> {
        let work = self.work.remove(&key)?;
        match &work.claim {
            Claim::Prefers { worker, holders, .. } => {
                remove_from(&mut self.own, *worker, key);
                self.forget_wait(key, holders);
                self.change_open(*worker, |keys| keys.remove(&key));
            }
            Claim::Anyone => remove(&mut self.anyone, &work.avoid, key),
            Claim::Alone => remove(&mut self.alone, &work.avoid, key),
            Claim::Others => remove(&mut self.others, &work.avoid, key),
        }
        Some(work)
    }

    /// Work that prefers this worker may go to any worker.
    pub fn orphan(&mut self, worker: WorkerId) {
        self.copies.remove(&worker);
        let Some(keys) = self.own.remove(&worker) else { return };
        if let Some(open) = self.open.remove(&worker) {
            self.lengths.remove(&(open.len(), worker));
        }
        for key in keys {
            if let Some(work) = self.work.get_mut(&key) {
                let claim = std::mem::replace(&mut work.claim, Claim::Anyone);
                self.anyone.entry(work.avoid.clone()).or_default().insert(key);
                if let Claim::Prefers { holders, .. } = claim {
                    self.forget_wait(key, &holders);
                }
            }
        }
    }

    fn file(&mut self, key: WorkKey, work: &QueuedWork) {
        match &work.claim {
            Claim::Prefers { worker, holders, cold_ms } => {
                self.own.entry(*worker).or_default().insert(key);
                for holder in holders {
                    self.copies.entry(*holder).or_default().insert(key);
                }
                if *cold_ms > 0 {
                    self.held.insert(key, *cold_ms);
                } else {
                    self.change_open(*worker, |keys| keys.insert(key));
                }
            }
            Claim::Anyone => drop(self.anyone.entry(work.avoid.clone()).or_default().insert(key)),
            Claim::Alone => drop(self.alone.entry(work.avoid.clone()).or_default().insert(key)),
            Claim::Others => drop(self.others.entry(work.avoid.clone()).or_default().insert(key)),
        }
    }

    /// Work does not wait for the workers that hold its data any more.
    fn forget_wait(&mut self, key: WorkKey, holders: &[WorkerId]) {
        holders.iter().for_each(|holder| remove_from(&mut self.copies, *holder, key));
        self.held.remove(&key);
        if let Some(at) = self.offered_at.remove(&key) {
            self.offered.remove(&(at, key));
        }
    }

    fn change_open(&mut self, worker: WorkerId, change: impl FnOnce(&mut BTreeSet<WorkKey>) -> bool) {
        let keys = self.open.entry(worker).or_default();
        self.lengths.remove(&(keys.len(), worker));
        change(keys);
        if keys.is_empty() {
            self.open.remove(&worker);
        } else {
            self.lengths.insert((keys.len(), worker));
        }
    }
}

fn remove_from(preferring: &mut Preferring, worker: WorkerId, key: WorkKey) {
    if let Some(keys) = preferring.get_mut(&worker) {
        keys.remove(&key);
        if keys.is_empty() {
            preferring.remove(&worker);
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
