//! Invariants of several coordinators over one control store, checked whenever one of them acts.

use std::collections::{BTreeMap, BTreeSet};

use trawl_cluster_store::{Guard, Write};
use trawl_coordinator::durable::records::{Closed, End, EndOutcome, Header, KeyKind, Keys, Record as _};
use trawl_coordinator::scheduler::ScanId;

use crate::control::Control;
use crate::facts::{Facts, Row};
use crate::ledger::{Checked, Invariant, ensure};
use crate::results::Results;

pub const CLUSTER: &str = "c";

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
}

/// The scan that a header is of.
pub fn asked_in(header: &Header) -> ScanId {
    match &header.document {
        trawl_coordinator::durable::records::DocumentPlace::Inline(text) => text.parse().expect("a scan's number"),
        trawl_coordinator::durable::records::DocumentPlace::Object { .. } => unreachable!("they are short"),
    }
}

impl Laws {
    pub fn leads(&mut self, epoch: i64, who: (usize, u64)) -> Checked {
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
                self.end(asked_in(&header), end, results.contents(name), facts)?;
            }
        }
        Ok(())
    }

    fn end(&mut self, scan: ScanId, end: End, rows: BTreeMap<u32, Vec<Row>>, facts: &Facts) -> Checked {
        if let EndOutcome::Complete { .. } = end.outcome {
            let wanted = &facts.scans[&scan].request.symbols;
            let found: BTreeMap<u32, u32> = rows.iter().map(|(s, rows)| (*s, rows.len() as u32)).collect();
            ensure(found == *wanted, Invariant::RecordedAnswer, || {
                format!("scan {scan} ended complete with {found:?} in the result store, not {wanted:?}")
            })?;
        }
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
