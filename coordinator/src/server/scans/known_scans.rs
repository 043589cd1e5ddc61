//! The scans that a coordinator knows, by id and by idempotency key; ended ones within limits of number and bytes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::Scan;
use super::ended_scans::{EndedLimits, EndedScans, Relief};
use super::known_answers::{AnswerKey, Answers};
use super::memory::DOCUMENTS_BYTES_MAX;
use crate::durable::RequestMark;
use crate::report::RunReport;
use crate::server::ScanLimits;

/// Maximum number of ended scans kept that are not recorded, and bytes of the results of all, in memory and in the spool; the oldest
/// are dropped first.
const ENDED_MAX: EndedLimits = EndedLimits { unrecorded: 256, bytes: 256 << 20 };

/// All scans known to this coordinator.
#[derive(Debug)]
pub(crate) struct Scans {
    limits: ScanLimits,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    scans: BTreeMap<String, Arc<Scan>>,
    ended: EndedScans,
    /// Digest and scan of requests, by the slot of their idempotency key.
    requests: BTreeMap<String, (String, String)>,
    answers: Answers,
}

impl Inner {
    fn insert(&mut self, scan: Arc<Scan>) {
        if let Some(mark) = &scan.asked.mark {
            self.requests.insert(mark.slot.clone(), (mark.digest.clone(), scan.name.clone()));
        }
        self.scans.insert(scan.name.clone(), scan);
    }

    fn remove(&mut self, name: &str) {
        let Some(scan) = self.scans.remove(name) else { return };
        if let Some(mark) = &scan.asked.mark
            && self.requests.get(&mark.slot).is_some_and(|(_, of)| of == name)
        {
            self.requests.remove(&mark.slot);
        }
    }

    /// Forgets or unloads ended scans, the oldest first, until the rest is within the limits.
    fn relieve(&mut self) {
        let mut read = BTreeSet::new();
        while let Some(relief) = self.ended.next_to_go(ENDED_MAX, &read) {
            match relief {
                Relief::Forget(name) => {
                    self.ended.remove(&name);
                    self.remove(&name);
                }
                Relief::Unload(name) => {
                    let left = self.scans.get(&name).map_or(0, |scan| {
                        scan.log.unload();
                        *scan.report() = RunReport::default();
                        weight(scan)
                    });
                    self.ended.unloaded(&name, left);
                    if left > 0 {
                        read.insert(name);
                    }
                }
            }
        }
    }
}

/// Bytes of an ended scan, in memory and in the spool.
fn weight(scan: &Scan) -> usize {
    scan.log.bytes() + scan.report_bytes()
}

/// The earlier use of an idempotency key.
pub(crate) enum Known {
    New,
    /// The same request was made before.
    Same(Arc<Scan>),
    /// A different request was made with this key, as this scan.
    Other(String),
}

impl Scans {
    pub fn new(limits: ScanLimits) -> Self {
        Self { limits, inner: Mutex::default() }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the caller has used a key before.
    pub fn known(&self, mark: &RequestMark) -> Known {
        let inner = self.inner();
        let Some((before, name)) = inner.requests.get(&mark.slot) else { return Known::New };
        match inner.scans.get(name) {
            Some(scan) if *before == mark.digest => Known::Same(Arc::clone(scan)),
            Some(_) => Known::Other(name.clone()),
            None => Known::New,
        }
    }

    /// Adds a new scan, unless too many are waiting or their documents take too many bytes.
    ///
    /// # Errors
    /// A message with their number.
    pub fn add(&self, scan: Arc<Scan>) -> Result<(), String> {
        if scan.document.is_full() {
            return Err(format!("the documents of waiting scans take {DOCUMENTS_BYTES_MAX} bytes already"));
        }
        let mut inner = self.inner();
        let active = inner.scans.len() - inner.ended.len();
        let ScanLimits { running, waiting, .. } = self.limits;
        if active >= running.saturating_add(waiting) {
            return Err(format!("{running} scans run and {waiting} wait already"));
        }
        inner.insert(scan);
        Ok(())
    }

    /// Adds a scan that was accepted earlier, regardless of limits.
    pub fn recover(&self, scan: Arc<Scan>) {
        let ended = scan.has_ended();
        let name = scan.name.clone();
        self.inner().insert(scan);
        if ended {
            self.end(&name);
        }
    }

    /// Removes a deleted scan.
    pub fn forget(&self, name: &str) {
        let mut inner = self.inner();
        inner.ended.remove(name);
        inner.remove(name);
    }

    /// Records that a scan has ended. While there are too many ended scans, the oldest is removed or, if recorded, its
    /// events are unloaded.
    pub fn end(&self, name: &str) {
        let mut inner = self.inner();
        let Some(scan) = inner.scans.get(name) else { return };
        let (bytes, recorded) = (weight(scan), scan.is_recorded());
        inner.ended.add(name, bytes, recorded);
        inner.relieve();
    }

    /// Limits the number and the bytes of ended scans in memory, after the events of some were loaded again.
    pub fn relieve(&self) {
        let mut inner = self.inner();
        let Inner { scans, ended, .. } = &mut *inner;
        ended.weigh_again(|name| scans.get(name).map_or(0, |scan| weight(scan)));
        inner.relieve();
    }

    /// Keeps the answer of an ended scan for others of its identity.
    pub fn keep_answer(&self, (key, doubts): (AnswerKey, u64), name: &str) {
        self.inner().answers.keep(key, name, doubts);
    }

    /// The ended scan with this answer, which nobody has doubted since.
    pub fn answer(&self, key: &AnswerKey, doubts: u64) -> Option<Arc<Scan>> {
        let mut inner = self.inner();
        let name = inner.answers.get(key, doubts)?.clone();
        inner.scans.get(&name).filter(|scan| scan.has_ended()).cloned()
    }

    pub fn get(&self, name: &str) -> Option<Arc<Scan>> {
        self.inner().scans.get(name).cloned()
    }

    /// All scans, in unspecified order.
    pub fn all(&self) -> Vec<Arc<Scan>> {
        self.inner().scans.values().cloned().collect()
    }
}
