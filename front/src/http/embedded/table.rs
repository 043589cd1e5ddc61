//! The scans that a server knows: those that wait, run, and have ended, each within a limit.

use std::sync::Arc;

use trawl_telemetry::metrics::catalogue::coordinator::{REFUSALS, Refusal};
use trawl_wire::pb;

use super::super::problem::{Kind, Problem};
use super::{Scan, ended};

/// Seconds after which a submission that found the queue full may be sent again.
const RETRY_AFTER_FULL_S: u64 = 5;

/// How many scans there may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TableLimits {
    /// Scans that run at once.
    pub running: usize,
    /// Scans that wait for their turn; further ones are refused.
    pub waiting: usize,
    /// Ended scans that are kept; of more, the oldest are forgotten.
    pub kept: usize,
    /// Bytes of their answers, estimated; the newest is kept whatever its size, and none is larger.
    pub kept_bytes: u64,
}

/// Caller and key of a request, and its digest.
pub(super) type RequestKey = ((String, String), [u8; 32]);

/// A scan, and what the table knows of it.
pub(super) struct Held {
    pub scan: Arc<Scan>,
    /// Estimated bytes of its answer.
    pub bytes: u64,
    pub key: Option<RequestKey>,
    /// Whether it is forgotten with its request.
    pub ephemeral: bool,
}

/// All scans, oldest first.
pub(super) struct Table {
    limits: TableLimits,
    scans: Vec<Held>,
    /// Ids of those that wait, oldest first.
    waiting: Vec<String>,
    running: usize,
    number: u64,
}

impl Table {
    pub fn new(limits: TableLimits) -> Self {
        Self { limits, scans: Vec::new(), waiting: Vec::new(), running: 0, number: 0 }
    }

    pub fn next_number(&mut self) -> u64 {
        self.number += 1;
        self.number
    }

    /// The scan of an earlier request with the same key.
    ///
    /// # Errors
    /// That request was another one.
    pub fn known(&self, key: &(String, String), digest: &[u8; 32]) -> Result<Option<Arc<Scan>>, Problem> {
        let with_key = |held: &&Held| held.key.as_ref().is_some_and(|(known, _)| known == key);
        let Some(held) = self.scans.iter().find(with_key) else { return Ok(None) };
        if held.key.as_ref().is_some_and(|(_, known)| known == digest) {
            return Ok(Some(Arc::clone(&held.scan)));
        }
        REFUSALS.of(Refusal::KeyReused).inc();
        let message = format!("the idempotency key belongs to another request, scan {}", held.scan.id);
        Err(Problem::new(Kind::Conflict, message))
    }

    /// Takes a scan, which then waits; returns the one of the same request if that came in the meantime.
    ///
    /// # Errors
    /// Too many scans wait; the key belongs to another request.
    pub fn add(&mut self, held: Held) -> Result<Option<Arc<Scan>>, Problem> {
        if let Some((key, digest)) = &held.key
            && let Some(known) = self.known(key, digest)?
        {
            return Ok(Some(known));
        }
        if self.waiting.len() >= self.limits.waiting && self.running >= self.limits.running {
            REFUSALS.of(Refusal::QueueFull).inc();
            let message = format!("{} scans wait already; try again in {RETRY_AFTER_FULL_S} s", self.waiting.len());
            let mut problem = Problem::new(Kind::TooMany, message);
            problem.error.retry_after_s = Some(RETRY_AFTER_FULL_S);
            return Err(problem);
        }
        self.waiting.push(held.scan.id.clone());
        self.scans.push(held);
        Ok(None)
    }

    /// The scan that begins now, if one may: the one with the highest priority that has waited longest. It counts as running
    /// until [`Table::ended_running`].
    pub fn take_next(&mut self) -> Option<Arc<Scan>> {
        if self.running >= self.limits.running {
            return None;
        }
        let priority = |id: &String| {
            let rank = self.get(id).map(|scan| trawl_terms::Priority::from(scan.state.borrow().priority()));
            std::cmp::Reverse(rank)
        };
        // The first of several equals.
        let at = (0..self.waiting.len()).min_by_key(|at| priority(&self.waiting[*at]))?;
        let id = self.waiting.remove(at);
        let scan = self.get(&id)?;
        self.running += 1;
        Some(scan)
    }

    pub fn ended_running(&mut self) {
        self.running -= 1;
    }

    /// Takes a scan out of those that wait; whether it was one of them.
    pub fn withdraw(&mut self, id: &str) -> bool {
        let waits = self.waiting.iter().position(|waiting| waiting == id);
        waits.is_some_and(|at| {
            self.waiting.remove(at);
            true
        })
    }

    pub fn get(&self, id: &str) -> Option<Arc<Scan>> {
        self.scans.iter().find(|held| held.scan.id == id).map(|held| Arc::clone(&held.scan))
    }

    /// Oldest first, without ephemeral ones.
    pub fn all(&self) -> Vec<Arc<Scan>> {
        self.scans.iter().filter(|held| !held.ephemeral).map(|held| Arc::clone(&held.scan)).collect()
    }

    /// Those that wait or run.
    pub fn unfinished(&self) -> Vec<Arc<Scan>> {
        self.scans.iter().filter(|held| !ended(&held.scan)).map(|held| Arc::clone(&held.scan)).collect()
    }

    pub fn forget(&mut self, id: &str) {
        self.scans.retain(|held| held.scan.id != id);
    }

    /// Forgets the oldest of the ended scans until the rest is within the limits.
    pub fn relieve(&mut self) {
        let (mut kept, mut bytes) = (0usize, 0u64);
        let limits = self.limits;
        let mut keep = vec![true; self.scans.len()];
        for (at, held) in self.scans.iter().enumerate().rev().filter(|(_, held)| ended(&held.scan)) {
            kept += 1;
            bytes = bytes.saturating_add(held.bytes);
            keep[at] = kept == 1 || (kept <= limits.kept && bytes <= limits.kept_bytes);
        }
        let mut at = 0;
        self.scans.retain(|_| {
            at += 1;
            keep[at - 1]
        });
    }
}

/// Whether a list of `wanted` scans shows one.
pub(super) fn is_wanted(wanted: &pb::ListScansRequest, info: &pb::ScanInfo) -> bool {
    let pb::ListScansRequest { active, states, owner, dataset, submitted_from_us, submitted_before_us, .. } = wanted;
    let of_dataset = || match dataset.split_once('@') {
        Some(_) => info.dataset.starts_with(dataset.as_str()),
        None => info.dataset.split('@').next() == Some(dataset.as_str()),
    };
    !(*active && super::has_ended(info))
        && (states.is_empty() || states.contains(&info.state))
        && (owner.is_empty() || info.owner == *owner)
        && (dataset.is_empty() || of_dataset())
        && submitted_from_us.is_none_or(|from| info.submitted_us >= from)
        && submitted_before_us.is_none_or(|before| info.submitted_us < before)
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use tokio::sync::watch;

    use super::*;

    const LIMITS: TableLimits = TableLimits { running: 1, waiting: 2, kept: 2, kept_bytes: 100 };

    fn held(table: &mut Table, bytes: u64, priority: pb::Priority) -> Held {
        let id = table.next_number().to_string();
        let info =
            pb::ScanInfo { priority: priority.into(), state: pb::ScanState::Queued.into(), ..Default::default() };
        let scan = Scan {
            id,
            owner: "local".to_owned(),
            state: watch::Sender::new(info),
            cancel: Default::default(),
            permit: Mutex::default(),
            work: Mutex::default(),
            outcome: Mutex::default(),
        };
        Held { scan: Arc::new(scan), bytes, key: None, ephemeral: false }
    }

    fn add(table: &mut Table, bytes: u64, priority: pb::Priority) -> Result<Arc<Scan>, Problem> {
        let held = held(table, bytes, priority);
        let scan = Arc::clone(&held.scan);
        table.add(held).map(|_| scan)
    }

    fn end(table: &mut Table, scan: &Scan) {
        scan.state.send_modify(|info| info.state = pb::ScanState::Done.into());
        table.relieve();
    }

    #[test]
    fn scans_begin_by_priority_and_age_and_too_many_are_refused_with_a_time() {
        let mut table = Table::new(LIMITS);
        let first = add(&mut table, 1, pb::Priority::Normal).unwrap();
        assert_eq!(table.take_next().unwrap().id, first.id);
        let [second, third] = [pb::Priority::Normal, pb::Priority::High].map(|p| add(&mut table, 1, p).unwrap());
        let refused = add(&mut table, 1, pb::Priority::High).err().unwrap();
        assert_eq!((refused.status.as_u16(), refused.error.retry_after_s), (429, Some(5)));
        assert!(table.take_next().is_none(), "one runs at a time");
        table.ended_running();
        assert_eq!(table.take_next().unwrap().id, third.id);
        assert!(table.withdraw(&second.id) && !table.withdraw(&second.id) && !table.withdraw(&third.id));
    }

    #[test]
    fn the_oldest_of_too_many_ended_scans_are_forgotten_by_count_and_by_bytes() {
        let mut table = Table::new(TableLimits { waiting: 100, ..LIMITS });
        let scans: Vec<_> = [10, 10, 10, 95, 200].map(|b| add(&mut table, b, pb::Priority::Normal).unwrap()).into();
        let kept = |table: &Table| scans.iter().map(|scan| table.get(&scan.id).is_some()).collect::<Vec<_>>();
        scans[..3].iter().for_each(|scan| end(&mut table, scan));
        assert_eq!(kept(&table), [false, true, true, true, true], "two are kept");
        end(&mut table, &scans[3]);
        assert_eq!(kept(&table), [false, false, false, true, true], "within 100 bytes");
        end(&mut table, &scans[4]);
        assert_eq!(kept(&table), [false, false, false, false, true], "the newest is kept whatever its size");
    }

    #[test]
    fn a_key_is_one_request() {
        let mut table = Table::new(LIMITS);
        let key = ("local".to_owned(), "k".to_owned());
        let mut one = held(&mut table, 1, pb::Priority::Normal);
        one.key = Some((key.clone(), [1; 32]));
        let id = one.scan.id.clone();
        assert!(table.add(one).unwrap().is_none());
        let mut again = held(&mut table, 1, pb::Priority::Normal);
        again.key = Some((key.clone(), [1; 32]));
        assert_eq!(table.add(again).unwrap().unwrap().id, id);
        assert_eq!(table.known(&key, &[2; 32]).err().unwrap().status, 409);
        assert!(table.known(&("other".to_owned(), "k".to_owned()), &[2; 32]).unwrap().is_none());
    }
}
