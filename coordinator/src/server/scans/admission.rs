//! Admission of scans: a limited number runs at a time, the others wait in a bounded queue.
//!
//! The next one is of the highest priority, which rises while it waits; among equals of the caller with the fewest
//! running scans; then the oldest. So neither a priority nor many scans of one caller keep the others from running.

use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;
use trawl_terms::Priority;

use super::spool::Spool;

/// Wait after which a scan counts as of the next higher priority.
const AGEING: Duration = Duration::from_secs(60);

/// The admission queue. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Admission(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    running_max: usize,
    /// While it is full no scan begins, unless none runs.
    spool: Spool,
    queue: Mutex<AdmissionQueue>,
}

#[derive(Debug, Default)]
struct AdmissionQueue {
    running: usize,
    /// Running scans by caller.
    callers: BTreeMap<Arc<str>, usize>,
    /// By caller and priority, each by arrival: of these the first is the next, so that only the first ones are compared.
    waiting: BTreeMap<(Arc<str>, Priority), VecDeque<Waiting>>,
    next: u64,
}

#[derive(Debug)]
struct Waiting {
    number: u64,
    since: Instant,
    turn: oneshot::Sender<Turn>,
}

impl AdmissionQueue {
    fn begin(&mut self, caller: &Arc<str>) {
        self.running += 1;
        *self.callers.entry(Arc::clone(caller)).or_default() += 1;
    }

    fn end(&mut self, caller: &Arc<str>) {
        self.running -= 1;
        if let Some(running) = self.callers.get_mut(caller) {
            *running -= 1;
            if *running == 0 {
                self.callers.remove(caller);
            }
        }
    }

    fn wait(&mut self, caller: &str, priority: Priority, since: Instant, turn: oneshot::Sender<Turn>) {
        self.next += 1;
        let waiting = Waiting { number: self.next, since, turn };
        self.waiting.entry((Arc::from(caller), priority)).or_default().push_back(waiting);
    }

    /// Takes out the scan whose turn it is, with its caller.
    fn take_next(&mut self, now: Instant) -> Option<(Arc<str>, Waiting)> {
        let ranked = self.waiting.iter().filter_map(|(key, line)| {
            let (caller, priority) = key;
            let first = line.front()?;
            let running = self.callers.get(caller).copied().unwrap_or(0);
            Some(((Reverse(first.level(*priority, now)), running, first.number), key))
        });
        let (_, key) = ranked.min_by_key(|(rank, _)| *rank)?;
        let key = key.clone();
        let line = self.waiting.get_mut(&key)?;
        let first = line.pop_front()?;
        if line.is_empty() {
            self.waiting.remove(&key);
        }
        Some((key.0, first))
    }
}

impl Waiting {
    /// Its priority, raised by the time that it has waited.
    fn level(&self, priority: Priority, now: Instant) -> u64 {
        let raised = now.saturating_duration_since(self.since).as_secs() / AGEING.as_secs();
        (priority as u64 + raised).min(Priority::High as u64)
    }
}

/// The right to run; when dropped, it passes to the next waiting scan.
#[derive(Debug)]
pub(crate) struct Turn {
    gate: Admission,
    caller: Arc<str>,
}

impl Admission {
    pub fn new(running_max: usize, spool: Spool) -> Self {
        Self(Arc::new(Shared { running_max, spool, queue: Mutex::default() }))
    }

    fn queue(&self) -> MutexGuard<'_, AdmissionQueue> {
        self.0.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_free(&self, queue: &AdmissionQueue) -> bool {
        queue.running < self.0.running_max && (queue.running == 0 || !self.0.spool.is_full())
    }

    /// A turn, if one is available without waiting.
    pub fn try_enter(&self, caller: &str) -> Option<Turn> {
        let mut queue = self.queue();
        if !queue.waiting.is_empty() || !self.is_free(&queue) {
            return None;
        }
        let caller = Arc::from(caller);
        queue.begin(&caller);
        Some(Turn { gate: self.clone(), caller })
    }

    /// Waits for a turn. Dropping the future leaves the queue.
    pub async fn enter(&self, caller: &str, priority: Priority) -> Turn {
        let given = {
            let mut queue = self.queue();
            let (turn, given) = oneshot::channel();
            queue.wait(caller, priority, Instant::now(), turn);
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
            let (caller, next) = {
                let mut queue = self.queue();
                if !self.is_free(&queue) {
                    return;
                }
                let Some((caller, next)) = queue.take_next(Instant::now()) else { return };
                // Its scan was cancelled while it waited.
                if next.turn.is_closed() {
                    continue;
                }
                queue.begin(&caller);
                (caller, next)
            };
            // Outside the lock: a scan that is just leaving the queue returns its turn at once.
            drop(next.turn.send(Turn { gate: self.clone(), caller }));
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.gate.queue().end(&self.caller);
        self.gate.serve();
    }
}

#[cfg(test)]
mod tests {
    use super::super::memory::tests::memory;
    use super::*;

    /// Serves waiting scans one at a time, in order of their turns.
    async fn order(
        gate: &Admission,
        first: Turn,
        wanted: &[(&'static str, &'static str, Priority)],
    ) -> Vec<&'static str> {
        let served = Arc::new(Mutex::new(Vec::new()));
        let mut waiting = Vec::new();
        for &(name, caller, priority) in wanted {
            let (gate, served) = (gate.clone(), Arc::clone(&served));
            waiting.push(tokio::spawn(async move {
                let _turn = gate.enter(caller, priority).await;
                served.lock().unwrap().push(name);
            }));
            tokio::task::yield_now().await;
        }
        // A scan that leaves the queue does not consume a turn.
        let gone = tokio::time::timeout(Duration::from_millis(1), gate.enter("ana", Priority::High)).await;
        assert!(gone.is_err());
        drop(first);
        for task in waiting {
            task.await.unwrap();
        }
        Arc::try_unwrap(served).unwrap().into_inner().unwrap()
    }

    #[tokio::test]
    async fn turns_go_by_priority_then_by_age_and_none_is_lost() {
        let gate = Admission::new(1, memory(1).spool);
        let first = gate.try_enter("ana").expect("free");
        assert!(gate.try_enter("ben").is_none());
        let (normal, low, high) = (Priority::Normal, Priority::Low, Priority::High);
        let wanted = [("a", "ana", normal), ("b", "ana", low), ("c", "ana", high), ("d", "ana", normal)];
        assert_eq!(order(&gate, first, &wanted).await, ["c", "a", "d", "b"]);
        assert!(gate.try_enter("ana").is_some());
    }

    #[tokio::test]
    async fn the_caller_with_the_fewest_running_scans_is_next() {
        let gate = Admission::new(2, memory(1).spool);
        let (_held, first) = (gate.try_enter("ana").expect("free"), gate.try_enter("ana").expect("free"));
        let normal = Priority::Normal;
        let wanted = [("a1", "ana", normal), ("a2", "ana", normal), ("b1", "ben", normal), ("b2", "ben", normal)];
        assert_eq!(order(&gate, first, &wanted).await, ["b1", "b2", "a1", "a2"]);
    }

    #[test]
    fn a_scan_that_waits_long_passes_those_of_higher_priority_that_came_later() {
        let start = Instant::now();
        let mut queue = AdmissionQueue::default();
        queue.wait("ana", Priority::Low, start, oneshot::channel().0);
        queue.wait("ana", Priority::High, start + AGEING * 2, oneshot::channel().0);
        let mut next = |now: Instant| queue.take_next(now).map(|(_, waiting)| waiting.number);
        assert_eq!(next(start + AGEING * 2), Some(1), "it is of the highest by now, and older");
        assert_eq!(next(start + AGEING * 2), Some(2));
        assert!(queue.waiting.is_empty());
    }

    #[test]
    fn a_scan_that_has_just_come_does_not_pass_one_of_higher_priority() {
        let (start, mut queue) = (Instant::now(), AdmissionQueue::default());
        for priority in [Priority::Low, Priority::High] {
            queue.wait("ana", priority, start, oneshot::channel().0);
        }
        let first = queue.take_next(start + AGEING / 2).map(|(_, waiting)| waiting.number);
        assert_eq!(first, Some(2), "the one of high priority");
    }

    #[test]
    fn whoever_is_next_is_the_first_of_all_that_wait() {
        // Against a plain reading of the rule, over many orders of arrival.
        let (start, callers) = (Instant::now(), ["ana", "ben", "cleo"]);
        let priorities = [Priority::Low, Priority::Normal, Priority::High];
        let mut seed = 1u64;
        let mut random = |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % below
        };
        for _ in 0..50 {
            let (mut queue, mut all) = (AdmissionQueue::default(), Vec::new());
            let mut now = start;
            for number in 1..=40 {
                let (caller, priority) = (callers[random(3) as usize], priorities[random(3) as usize]);
                now += Duration::from_secs(random(30));
                queue.wait(caller, priority, now, oneshot::channel().0);
                all.push((number, caller, priority, now));
            }
            while let Some((caller, next)) = queue.take_next(now) {
                let rank = |(number, caller, priority, since): &(u64, &str, Priority, Instant)| {
                    let raised = (now - *since).as_secs() / AGEING.as_secs();
                    let level = (*priority as u64 + raised).min(Priority::High as u64);
                    (Reverse(level), queue.callers.get(*caller).copied().unwrap_or(0), *number)
                };
                let at = (0..all.len()).min_by_key(|at| rank(&all[*at])).unwrap();
                assert_eq!(all.remove(at).0, next.number);
                queue.begin(&caller);
                now += Duration::from_secs(random(40));
            }
            assert!(all.is_empty() && queue.waiting.is_empty());
        }
    }
}
