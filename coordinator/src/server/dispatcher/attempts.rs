//! The running attempts, by id and by worker, and the workers that leave once they have none.
//!
//! What a worker does is asked for at the end of each attempt and when a worker goes: neither may look at the attempts of others, since
//! many workers leave at once when a cluster shrinks or is updated.

use std::collections::{BTreeMap, BTreeSet};

use super::Running;
use crate::scheduler::{AttemptId, WorkerId};

/// The attempts that run.
#[derive(Default)]
pub(super) struct Attempts {
    running: BTreeMap<AttemptId, Running>,
    /// Of each worker that has any.
    of_worker: BTreeMap<WorkerId, BTreeSet<AttemptId>>,
    /// Attempts that were looked at one after the other.
    #[cfg(test)]
    pub looked_at: std::sync::atomic::AtomicUsize,
}

impl Attempts {
    /// Adds one, or puts one back.
    pub fn insert(&mut self, attempt: AttemptId, running: Running) {
        self.of_worker.entry(running.worker).or_default().insert(attempt);
        self.running.insert(attempt, running);
    }

    /// Takes one out that has ended.
    pub fn remove(&mut self, attempt: AttemptId) -> Option<Running> {
        let running = self.running.remove(&attempt)?;
        if let Some(its) = self.of_worker.get_mut(&running.worker) {
            its.remove(&attempt);
            if its.is_empty() {
                self.of_worker.remove(&running.worker);
            }
        }
        Some(running)
    }

    pub fn get(&self, attempt: AttemptId) -> Option<&Running> {
        self.running.get(&attempt)
    }

    pub fn get_mut(&mut self, attempt: AttemptId) -> Option<&mut Running> {
        self.running.get_mut(&attempt)
    }

    /// Whether a worker has any.
    pub fn has_any(&self, worker: WorkerId) -> bool {
        self.of_worker.contains_key(&worker)
    }

    /// Those of one worker.
    pub fn of(&self, worker: WorkerId) -> impl Iterator<Item = &Running> {
        self.of_worker
            .get(&worker)
            .into_iter()
            .flatten()
            .filter_map(|attempt| self.running.get(attempt))
            .inspect(|_| self.look())
    }

    /// All of them, ascending.
    pub fn all(&self) -> impl Iterator<Item = (AttemptId, &Running)> {
        self.running.iter().map(|(attempt, running)| (*attempt, running)).inspect(|_| self.look())
    }

    /// Counts, so that a test sees what is gone through.
    fn look(&self) {
        #[cfg(test)]
        self.looked_at.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    }

    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.running.is_empty() && self.of_worker.is_empty()
    }

    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.running.len()
    }
}
