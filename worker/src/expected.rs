//! Scans like the last ones are expected over each new snapshot of their dataset. While a worker with devices computes nothing, it
//! prepares them and brings their bars to its memory and to the devices, segment by segment, until a shard arrives.
//!
//! No value depends on it: what was brought is found under the keys by which a shard looks for it. Which scans come is a guess, so what
//! nobody read counts against a dataset, for which nothing is brought for some snapshots then.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::convert::Infallible;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use trawl_kernels::cuda::{Ahead, Fleet};
use trawl_kernels::{Cancel, Engine};
use trawl_wire::StepInputV1;
use trawl_wire::error::text_of;

use crate::execute::{Loaded, ScanStep, StepKind};
use crate::measure;
use crate::prepared::Prepared;
use crate::shard::{Scans, Shard};

/// How often a worker with devices asks for newer snapshots of the datasets that were scanned last.
pub const EXPECTED_LOOK_INTERVAL: Duration = Duration::from_secs(30);

/// Maximum number of scans that are remembered, of all datasets together.
const SCANS_MAX: usize = 8;
/// Of the bytes that were brought for a snapshot, 1/`READ_SHARE` at least have to be read.
const READ_SHARE: u64 = 2;
/// Snapshots of a dataset for which nothing is brought after one whose bars were not read.
const REST_SNAPSHOTS: u32 = 4;
/// The step whose bars are brought: others mostly read the same columns.
const FIRST: ScanStep = ScanStep { stage: 0, kind: StepKind::Values };

/// A scan that ran here.
#[derive(Debug)]
struct Last {
    scan: Arc<Prepared>,
    /// Its segments that were computed here.
    segments: BTreeSet<u32>,
}

/// What is brought for one snapshot of a dataset.
#[derive(Debug, Default)]
struct Round {
    number: u64,
    snapshot: String,
    /// Scans and those of their segments whose bars were not looked at yet.
    left: Vec<(Arc<Prepared>, Vec<u32>)>,
    brought_bytes: u64,
    /// Later snapshots for which nothing is brought.
    rest: u32,
}

#[derive(Debug, Default)]
struct State {
    /// The last one at the end.
    scans: VecDeque<Last>,
    /// By name of the dataset.
    rounds: BTreeMap<String, Round>,
}

/// The scans that ran last, and what is brought for those that are expected.
#[derive(Debug, Default)]
pub(crate) struct ExpectedScans {
    state: Mutex<State>,
    rounds: AtomicU64,
}

/// Looks for newer snapshots again and again; does not end. `look` blocks.
pub(crate) async fn bring(
    engine: &Engine,
    interval: Duration,
    look: impl Fn(&Fleet) + Send + Sync + 'static,
) -> Infallible {
    let Engine::Device(fleet) = engine else { return std::future::pending().await };
    if !fleet.prefetches_at_all() {
        return std::future::pending().await;
    }
    let look = Arc::new(look);
    let mut looks = tokio::time::interval(interval);
    looks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        looks.tick().await;
        let (look, fleet) = (Arc::clone(&look), Arc::clone(fleet));
        // A panic has been reported; the next look is the next attempt.
        let _ = tokio::task::spawn_blocking(move || look(&fleet)).await;
    }
}

impl ExpectedScans {
    /// A thread that panicked has left it as it was.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers the scan of a shard that runs on devices.
    pub fn remember(&self, fleet: &Fleet, shard: &Shard) {
        let is_first = shard.step == FIRST && shard.part.is_none();
        if is_first && fleet.prefetches_at_all() && !shard.scan.source.dataset.is_bundled() {
            self.state().remember(&shard.scan, &shard.segments);
        }
    }

    /// Brings what is expected of newer snapshots, until `work` cancels.
    pub fn look(&self, scans: &Scans, work: &dyn Cancel, fleet: &Fleet) {
        let names: BTreeSet<String> = self.state().scans.iter().map(Last::dataset).collect();
        for name in names {
            if work.cancelled() {
                return;
            }
            match scans.newest_snapshot(&name) {
                Ok(Some(snapshot)) => {
                    self.begin(scans, fleet, &name, &snapshot);
                    self.go_on(work, fleet, &name);
                }
                // Removed.
                Ok(None) => self.state().forget(&name),
                Err(error) => {
                    tracing::debug!(dataset = name, error = text_of(&error), "a newer snapshot cannot be looked for");
                }
            }
        }
        measure::prefetches(fleet);
    }

    /// Begins a round, if the newest snapshot is another one than that of the last scans, and is new here.
    fn begin(&self, scans: &Scans, fleet: &Fleet, name: &str, snapshot: &str) {
        let last = {
            let mut state = self.state();
            let known = state.rounds.get(name).is_some_and(|round| round.snapshot == snapshot);
            if known || state.behind(name, snapshot).is_empty() {
                return;
            }
            let before = state.rounds.remove(name).unwrap_or_default();
            let read = fleet.end_round(before.number);
            let round = before.next(self.rounds.fetch_add(1, Ordering::Relaxed) + 1, snapshot, read);
            let rests = round.rest > 0;
            state.rounds.insert(name.to_owned(), round);
            if rests {
                tracing::debug!(dataset = name, snapshot, "too little of what was brought ahead was read: not now");
                return;
            }
            state.behind(name, snapshot)
        };
        let expected = |(scan, segments): (Arc<Prepared>, Vec<u32>)| {
            // Whatever is wrong, a scan that comes says so.
            let scan = scans.expected(&scan, snapshot).ok().flatten()?;
            let there: BTreeSet<u32> = scan.source.dataset.group_bars().map(|(group, _)| group).collect();
            Some((scan, segments.into_iter().filter(|segment| there.contains(segment)).collect()))
        };
        let left = last.into_iter().filter_map(expected).collect();
        if let Some(round) = self.state().rounds.get_mut(name) {
            round.left = left;
        }
    }

    /// Brings what is left of a round, until `work` cancels.
    fn go_on(&self, work: &dyn Cancel, fleet: &Fleet, name: &str) {
        let mut segments = 0u64;
        while !work.cancelled() {
            let Some((scan, segment, number)) = self.state().take(name) else { break };
            let bytes = of_segment(&scan, segment, number, fleet, work);
            segments += 1;
            let mut state = self.state();
            let Some(round) = state.rounds.get_mut(name) else { return };
            round.brought_bytes += bytes;
            if work.cancelled() {
                // The rest of this segment comes when there is no work any more.
                round.left.push((scan, vec![segment]));
            }
        }
        if let Some(round) = self.state().rounds.get(name).filter(|round| segments > 0 && round.left.is_empty()) {
            let (snapshot, bytes) = (&round.snapshot, round.brought_bytes);
            tracing::info!(
                dataset = name,
                snapshot,
                bytes,
                "bars of a new snapshot are there before they are asked for"
            );
        }
    }
}

/// Brings the bars of a segment; the bytes that were brought to devices. Failures are left to the scans that come.
fn of_segment(scan: &Prepared, segment: u32, round: u64, fleet: &Fleet, cancel: &dyn Cancel) -> u64 {
    let (source, input) = (&scan.source, StepInputV1::default());
    let Ok(bars) = source.load_segment(segment) else { return 0 };
    let manifest = &source.dataset.manifest;
    let (of_dataset, of_snapshot) =
        (format!("{}@", manifest.name), format!("{}@{} ", manifest.name, manifest.snapshot));
    let is_superseded = |bars: &str| bars.starts_with(&of_dataset) && !bars.starts_with(&of_snapshot);
    let ahead = Ahead::Expected { round, is_superseded: &is_superseded };
    source.prefetch(fleet, FIRST, &input, &Loaded { segment, bars: &bars }, &scan.references, ahead, cancel)
}

impl Last {
    /// Name of its dataset.
    fn dataset(&self) -> String {
        self.scan.source.dataset.manifest.name.clone()
    }

    fn is_of(&self, name: &str) -> bool {
        self.scan.source.dataset.manifest.name == name
    }
}

impl State {
    fn remember(&mut self, scan: &Arc<Prepared>, segments: &[u32]) {
        let name = &scan.source.dataset.manifest.name;
        let same = |last: &Last| last.is_of(name) && last.scan.document == scan.document;
        let before = self.scans.iter().position(same).and_then(|at| self.scans.remove(at));
        let mut segments: BTreeSet<u32> = segments.iter().copied().collect();
        // Other shards of the same scan.
        if let Some(before) = before.filter(|before| before.scan.key == scan.key) {
            segments.extend(before.segments);
        }
        if self.scans.len() >= SCANS_MAX {
            self.scans.pop_front();
        }
        self.scans.push_back(Last { scan: Arc::clone(scan), segments });
    }

    /// The scans of a dataset that ran over another snapshot, and their segments; the last one at the end.
    fn behind(&self, name: &str, snapshot: &str) -> Vec<(Arc<Prepared>, Vec<u32>)> {
        let is_behind = |last: &&Last| last.is_of(name) && last.scan.source.dataset.manifest.snapshot != snapshot;
        let scans = self.scans.iter().filter(is_behind);
        scans.map(|last| (Arc::clone(&last.scan), last.segments.iter().copied().collect())).collect()
    }

    /// A segment whose bars are to be brought, with its scan and the number of the round.
    fn take(&mut self, name: &str) -> Option<(Arc<Prepared>, u32, u64)> {
        let Round { number, left, .. } = self.rounds.get_mut(name)?;
        loop {
            let (scan, segments) = left.last_mut()?;
            if let Some(segment) = segments.pop() {
                return Some((Arc::clone(scan), segment, *number));
            }
            left.pop();
        }
    }

    fn forget(&mut self, name: &str) {
        self.scans.retain(|last| !last.is_of(name));
        self.rounds.remove(name);
    }
}

impl Round {
    /// The round of the next snapshot, when so many bytes of this one were read.
    fn next(&self, number: u64, snapshot: &str, read_bytes: u64) -> Self {
        let is_in_vain = read_bytes.saturating_mul(READ_SHARE) < self.brought_bytes;
        let rest = if is_in_vain { REST_SNAPSHOTS } else { self.rest.saturating_sub(1) };
        Self { number, snapshot: snapshot.to_owned(), rest, ..Self::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dataset_rests_for_some_snapshots_after_one_that_nobody_read() {
        let mut round = Round::default().next(1, "a", 0);
        assert_eq!(round.rest, 0, "nothing was brought yet");
        round.brought_bytes = 100;
        assert_eq!(round.next(2, "b", 50).rest, 0, "half of it was read");
        let mut rests = 0;
        round = round.next(2, "b", 49);
        while round.rest > 0 {
            rests += 1;
            round = round.next(round.number + 1, "c", 0);
        }
        assert_eq!(rests, REST_SNAPSHOTS);
    }
}
