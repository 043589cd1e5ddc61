//! Invariants of several coordinators over one control store, checked whenever one of them acts.

use std::collections::{BTreeMap, BTreeSet};

use trawl_cluster_store::{Guard, Write};
use trawl_coordinator::durable::records::{Closed, End, EndOutcome, Header, KeyKind, Keys, Record as _};
use trawl_coordinator::scheduler::{ClassId, ScanId};

use crate::control::Control;
use crate::facts::{Facts, Row, release, release_of};
use crate::leader_term::object_of;
use crate::ledger::{Checked, Invariant, ensure};
use crate::results::Results;

pub const CLUSTER: &str = "c";

/// A process in one of its lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Process {
    Coordinator(usize, u64),
    Worker(usize, u64),
}

/// How a scan ended, and its rows by segment.
#[derive(Debug, Clone)]
pub struct Ended {
    pub outcome: EndOutcome,
    pub rows: BTreeMap<u32, Vec<Row>>,
}

/// Observations of epochs and scans.
#[derive(Debug, Default)]
pub struct Laws {
    /// The leader of each epoch: a coordinator and its life.
    epochs: BTreeMap<i64, (usize, u64)>,
    /// The newest epoch under which each worker received work, in its current life.
    sworn: BTreeMap<usize, (u64, i64)>,
    /// Names under which each scan was accepted.
    pub accepted: BTreeMap<ScanId, BTreeSet<String>>,
    pub ended: BTreeMap<ScanId, Ended>,
    /// Number of applied commits of leaders.
    pub commits: u64,
    /// Epochs whose lease the store ended for no reason, which leaders cannot detect by their clocks.
    pub robbed: BTreeSet<i64>,
    /// Coordinators and workers, each with its life, that knew a later state of the store than it has.
    pub unaware: BTreeSet<Process>,
    /// Those of them that had read the store's version before, and so can notice it.
    pub must_notice: BTreeSet<Process>,
}

/// The scan that a header is of.
pub fn asked_in(header: &Header) -> ScanId {
    match &header.document {
        trawl_coordinator::durable::records::DocumentPlace::Inline(text) => text.parse().expect("a scan's number"),
        trawl_coordinator::durable::records::DocumentPlace::Object { .. } => unreachable!("they are short"),
    }
}

/// The class that a header names.
pub fn class_in(header: &Header) -> ClassId {
    header.class.engine.strip_prefix('e').and_then(|id| id.parse().ok()).expect("a class")
}

impl Laws {
    /// Records that a coordinator leads. Epochs are counted anew by a store that went back, so what those who have not
    /// noticed yet believe does not count.
    pub fn leads(&mut self, epoch: i64, who: (usize, u64)) -> Checked {
        if self.unaware.contains(&Process::Coordinator(who.0, who.1)) {
            return Ok(());
        }
        let first = *self.epochs.entry(epoch).or_insert(who);
        ensure(first == who, Invariant::OneLeader, || format!("epoch {epoch} is led by {first:?} and by {who:?}"))
    }

    pub fn epochs(&self) -> usize {
        self.epochs.len()
    }

    /// Records that a worker begins work assigned under an epoch.
    pub fn begins(&mut self, machine: usize, life: u64, epoch: i64) -> Checked {
        let sworn = self.sworn.entry(machine).or_insert((life, epoch));
        if sworn.0 != life {
            *sworn = (life, epoch);
        }
        let newest = sworn.1;
        sworn.1 = newest.max(epoch);
        ensure(epoch >= newest, Invariant::StaleEpochs, || {
            format!("worker {machine} takes work of epoch {epoch} after it knew {newest}")
        })
    }

    /// Records an applied write of a leader. `leader`: the epoch of the leader's key when it did.
    pub fn applied(
        &mut self,
        (epoch, leader): (i64, i64),
        writes: &[Write],
        (control, results, facts): (&Control, &Results, &Facts),
    ) -> Checked {
        ensure(epoch == leader, Invariant::StaleEpochs, || {
            format!("a write of epoch {epoch} applied while epoch {leader} led: {writes:?}")
        })?;
        self.commits += 1;
        let keys = Keys::new(CLUSTER);
        for write in writes {
            let Write::Put { key, value, .. } = write else { continue };
            if let Some((name, KeyKind::Header)) = keys.parse(key) {
                let header = Header::from_bytes(name, value).expect("a header");
                let scan = asked_in(&header);
                let names = self.accepted.entry(scan).or_default();
                names.insert(name.to_owned());
                ensure(names.len() == 1, Invariant::OneScanPerRequest, || {
                    format!("scan {scan} was accepted as {names:?}")
                })?;
            }
            if let Some(name) = keys.parse_ended(key) {
                let Closed { header, end } = Closed::from_bytes(name, value).expect("a closed record");
                let open = control.store.peek(&keys.part(name, KeyKind::Header));
                ensure(open.is_none(), Invariant::RecordedAnswer, || format!("{name} is open and has ended"))?;
                let rows = results.contents(&object_of(name, end.generation));
                self.end((asked_in(&header), class_in(&header)), end, rows, facts)?;
            }
        }
        Ok(())
    }

    /// The store went back: what it lost was never accepted and has never ended, and its epochs are given again.
    pub fn restored(&mut self, control: &Control) {
        let keys = Keys::new(CLUSTER);
        self.epochs.clear();
        let is_open = |name: &String| control.store.peek(&keys.part(name, KeyKind::Header)).is_some();
        let has_ended = |name: &String| control.store.peek(&keys.ended(name)).is_some();
        let known = &self.accepted;
        self.ended.retain(|scan, _| known[scan].iter().any(has_ended));
        self.accepted.retain(|_, names| {
            names.retain(|name| is_open(name) || has_ended(name));
            !names.is_empty()
        });
    }

    fn end(
        &mut self,
        (scan, class): (ScanId, ClassId),
        end: End,
        rows: BTreeMap<u32, Vec<Row>>,
        facts: &Facts,
    ) -> Checked {
        if let EndOutcome::Complete { .. } = end.outcome {
            let wanted = &facts.scans[&scan].request.symbols;
            let found: BTreeMap<u32, u32> = rows.iter().map(|(s, rows)| (*s, rows.len() as u32)).collect();
            ensure(found == *wanted, Invariant::RecordedAnswer, || {
                format!("scan {scan} ended complete with {found:?} in the result store, not {wanted:?}")
            })?;
        }
        let mut values = rows.values().flatten().filter_map(|(_, value)| *value);
        let foreign = values.find(|value| release_of(*value) != release(class));
        ensure(foreign.is_none(), Invariant::OneClassPerAnswer, || {
            format!("scan {scan} ended in class {class} with results of another release")
        })?;
        let first = self.ended.insert(scan, Ended { outcome: end.outcome, rows }).is_none();
        ensure(first, Invariant::RecordedAnswer, || format!("scan {scan} ended twice"))
    }

    /// Scans that were accepted and have not ended.
    pub fn open(&self) -> Vec<ScanId> {
        self.accepted.keys().filter(|scan| !self.ended.contains_key(scan)).copied().collect()
    }
}

/// Whether a commit is guarded by the leader's key in one of its lives.
pub fn is_guarded(guard: &Guard, leader_key: &str) -> bool {
    matches!(guard, Guard::Created { key, .. } if key == leader_key)
}
