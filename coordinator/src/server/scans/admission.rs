//! Admission of scans: a limited number runs at a time, the others wait in a bounded queue by priority, then by age.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use super::log::HeldBytes;
use crate::scheduler::Priority;

/// The admission queue. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Admission(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    running_max: usize,
    /// Bytes of held results above which no scan begins, unless none runs.
    held_max: usize,
    held: HeldBytes,
    line: Mutex<AdmissionQueue>,
}

#[derive(Debug, Default)]
struct AdmissionQueue {
    running: usize,
    next: u64,
    waiting: BTreeMap<(Reverse<Priority>, u64), oneshot::Sender<Turn>>,
}

/// The right to run; when dropped, it passes to the next waiting scan.
#[derive(Debug)]
pub(crate) struct Turn(Admission);

impl Admission {
    pub fn new(running_max: usize, held_max: usize, held: HeldBytes) -> Self {
        Self(Arc::new(Shared { running_max, held_max, held, line: Mutex::default() }))
    }

    fn line(&self) -> MutexGuard<'_, AdmissionQueue> {
        self.0.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_free(&self, line: &AdmissionQueue) -> bool {
        line.running < self.0.running_max && (line.running == 0 || self.0.held.bytes() <= self.0.held_max)
    }

    /// A turn, if one is available without waiting.
    pub fn try_enter(&self) -> Option<Turn> {
        let mut line = self.line();
        if !line.waiting.is_empty() || !self.is_free(&line) {
            return None;
        }
        line.running += 1;
        Some(Turn(self.clone()))
    }

    /// Waits for a turn. Dropping the future leaves the queue.
    pub async fn enter(&self, priority: Priority) -> Turn {
        let given = {
            let mut line = self.line();
            let (turn, given) = oneshot::channel();
            line.next += 1;
            let place = (Reverse(priority), line.next);
            line.waiting.insert(place, turn);
            given
        };
        self.serve();
        match given.await {
            Ok(turn) => turn,
            // Waiting entries are removed only by giving turns.
            Err(_) => std::future::pending().await,
        }
    }

    /// Gives turns to waiting scans while there are free turns.
    fn serve(&self) {
        loop {
            let next = {
                let mut line = self.line();
                if !self.is_free(&line) {
                    return;
                }
                let Some((_, next)) = line.waiting.pop_first() else { return };
                // Its scan was cancelled while it waited.
                if next.is_closed() {
                    continue;
                }
                line.running += 1;
                next
            };
            // Outside the lock: a scan that is just leaving the queue returns its turn at once.
            drop(next.send(Turn(self.clone())));
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.line().running -= 1;
        self.0.serve();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[tokio::test]
    async fn turns_go_by_priority_then_by_age_and_none_is_lost() {
        let gate = Admission::new(1, usize::MAX, HeldBytes::default());
        let first = gate.try_enter().expect("free");
        assert!(gate.try_enter().is_none());
        let served = Arc::new(Mutex::new(Vec::new()));
        let mut waiting = Vec::new();
        let wanted = [("a", Priority::Normal), ("b", Priority::Low), ("c", Priority::High), ("d", Priority::Normal)];
        for (name, priority) in wanted {
            let (gate, served) = (gate.clone(), Arc::clone(&served));
            waiting.push(tokio::spawn(async move {
                let _turn = gate.enter(priority).await;
                served.lock().unwrap().push(name);
            }));
            tokio::task::yield_now().await;
        }
        // A scan that leaves the queue does not consume a turn.
        let gone = tokio::time::timeout(Duration::from_millis(1), gate.enter(Priority::High)).await;
        assert!(gone.is_err());
        drop(first);
        for task in waiting {
            task.await.unwrap();
        }
        assert_eq!(*served.lock().unwrap(), ["c", "a", "d", "b"]);
        assert!(gate.try_enter().is_some());
    }
}
