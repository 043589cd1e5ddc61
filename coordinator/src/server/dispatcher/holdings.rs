//! What workers report to hold, and how long loading takes those that do not hold it: hints for the choice of a worker.
//!
//! A report may be out of date or wrong. It decides where work goes first and how long it waits there (at most
//! [`HOLDER_WAIT_MAX_MS`](crate::scheduler::HOLDER_WAIT_MAX_MS)), and nothing else.

use std::sync::Arc;

use prost::Message as _;
use trawl_wire::limits::{CACHE_REPORT_BYTES_MAX, CACHE_REPORT_SNAPSHOTS_MAX};
use trawl_wire::pb;

use crate::planner::{Holdings, Shard, Tier, WorkerSeat};

/// Loads after which earlier ones count half.
const LOADS_HALVED_AFTER: u32 = 256;
/// Most workers besides the preferred one that are noted as holding a shard.
const OTHER_HOLDERS_MAX: usize = 4;
/// Microseconds of a millisecond.
const MILLISECOND: u128 = 1_000;

/// What one worker has reported last; nothing at first, and of earlier workers.
#[derive(Debug, Default)]
pub(super) struct Reported {
    held: Vec<Arc<pb::HeldGroups>>,
    /// Where the bars of its segments were.
    pub loads: Option<pb::CacheLoads>,
}

impl Reported {
    /// A report, if it is within its limits.
    pub fn of(report: pb::CacheReport) -> Option<Self> {
        let fits = report.encoded_len() <= CACHE_REPORT_BYTES_MAX && report.held.len() <= CACHE_REPORT_SNAPSHOTS_MAX;
        fits.then(|| Self { held: report.held.into_iter().map(Arc::new).collect(), loads: report.loads })
    }

    /// How many segments the worker had run when it reported: more in a later report of the same process.
    pub fn segments(&self) -> u64 {
        let loads = self.loads.unwrap_or_default();
        loads.memory.saturating_add(loads.disk).saturating_add(loads.data_root)
    }

    /// Whether a later report says of each snapshot what this one says.
    pub fn holds_as(&self, later: &Self) -> bool {
        self.held == later.held
    }

    /// The groups that it holds of a snapshot, NAME@SNAPSHOT.
    pub fn groups_of(&self, reference: &str) -> Option<&Arc<pb::HeldGroups>> {
        self.held.iter().find(|groups| groups.dataset == reference)
    }

    /// What it holds of a snapshot, NAME@SNAPSHOT.
    pub fn holdings(&self, reference: &str) -> Holdings<'_> {
        self.groups_of(reference).map_or_else(Holdings::default, |groups| of_groups(groups))
    }
}

/// The sets of bits of a report.
fn of_groups(groups: &pb::HeldGroups) -> Holdings<'_> {
    Holdings { memory: &groups.memory, disk: &groups.disk }
}

/// A worker that receives work, as the planner sees it.
#[derive(Debug)]
pub(super) struct Seat {
    pub worker: u64,
    pub key: u64,
    pub device: bool,
    pub capacity: u32,
    pub held: Option<Arc<pb::HeldGroups>>,
}

impl Seat {
    fn view(&self) -> WorkerSeat<'_> {
        let holds = self.held.as_deref().map_or_else(Holdings::default, of_groups);
        WorkerSeat { worker: self.worker, key: self.key, device: self.device, capacity: self.capacity, holds }
    }
}

/// The workers of a class, with what they hold of a snapshot.
#[derive(Debug)]
pub(super) struct SnapshotSeats {
    /// By worker.
    seats: Vec<Seat>,
}

impl SnapshotSeats {
    /// All of them, by their ids.
    pub fn all(&self) -> impl Iterator<Item = WorkerSeat<'_>> {
        self.seats.iter().map(Seat::view)
    }

    /// One of them.
    pub fn of(&self, worker: u64) -> Option<WorkerSeat<'_>> {
        let at = self.seats.binary_search_by_key(&worker, |seat| seat.worker).ok()?;
        self.seats.get(at).map(Seat::view)
    }
}

impl FromIterator<Seat> for SnapshotSeats {
    fn from_iter<T: IntoIterator<Item = Seat>>(seats: T) -> Self {
        let mut seats: Vec<Seat> = seats.into_iter().collect();
        seats.sort_by_key(|seat| seat.worker);
        Self { seats }
    }
}

#[cfg(test)]
impl FromIterator<(u64, Option<Arc<pb::HeldGroups>>)> for SnapshotSeats {
    fn from_iter<T: IntoIterator<Item = (u64, Option<Arc<pb::HeldGroups>>)>>(seats: T) -> Self {
        let seat = |(worker, held)| Seat { worker, key: worker, device: false, capacity: 1, held };
        seats.into_iter().map(seat).collect()
    }
}

/// The time of recent loads.
#[derive(Debug, Default)]
struct Loads {
    us: u64,
    bars: u64,
    count: u32,
}

impl Loads {
    fn note(&mut self, us: u64, bars: u64) {
        if self.count >= LOADS_HALVED_AFTER {
            (self.us, self.bars, self.count) = (self.us / 2, self.bars / 2, self.count / 2);
        }
        self.us = self.us.saturating_add(us);
        self.bars = self.bars.saturating_add(bars);
        self.count += 1;
    }

    /// Microseconds for so many bars; 0 before anything was loaded.
    fn expected_us(&self, bars: u64) -> u128 {
        u128::from(self.us) * u128::from(bars) / u128::from(self.bars.max(1))
    }
}

/// How long loads took in this term, by where the bars were believed to be.
#[derive(Debug, Default)]
pub(super) struct LoadPace {
    /// Of workers that did not hold them.
    nowhere: Loads,
    /// Of workers that had the files on their disk.
    disk: Loads,
}

impl LoadPace {
    /// Notes the load of a segment by a worker that was believed to hold it at `tier`.
    pub fn note(&mut self, tier: Tier, timings: &pb::SegmentTimings) {
        if timings.resident || timings.bars == 0 {
            return;
        }
        match tier {
            Tier::Nowhere => self.nowhere.note(timings.load_us, timings.bars),
            Tier::Disk => self.disk.note(timings.load_us, timings.bars),
            // Evicted since: it shows nothing of either.
            Tier::Memory => {}
        }
    }

    /// How much longer a worker like `seat` that holds nothing would take for a shard than `seat`, in milliseconds. `bars` of a segment.
    fn cold_ms(&self, shard: &Shard, seat: &WorkerSeat<'_>, bars: impl Fn(u32) -> u64) -> u64 {
        let saved_us = |segment: u32| match seat.holds.tier(segment) {
            Tier::Nowhere => 0,
            Tier::Disk => {
                let bars = bars(segment);
                self.nowhere.expected_us(bars).saturating_sub(self.disk.expected_us(bars))
            }
            Tier::Memory => self.nowhere.expected_us(bars(segment)),
        };
        let us = shard.segments.iter().fold(0u128, |sum, segment| sum.saturating_add(saved_us(*segment)));
        // Its threads load side by side.
        let threads = (seat.capacity as usize).clamp(1, shard.segments.len().max(1));
        u64::try_from(us / threads as u128 / MILLISECOND).unwrap_or(u64::MAX)
    }
}

/// Notes for each shard which other workers hold it, and how much longer those take that do not. `bars` of a segment.
pub(super) fn note_holders(
    shards: &mut [Shard],
    seats: &SnapshotSeats,
    pace: &LoadPace,
    bars: impl Fn(u32) -> u64 + Copy,
) {
    for shard in shards {
        let Some(seat) = shard.preferred.and_then(|worker| seats.of(worker)) else { continue };
        shard.cold_ms = pace.cold_ms(shard, &seat, bars);
        if shard.cold_ms > 0 {
            // What the preferred worker does not hold excludes nobody.
            let held: Vec<u32> =
                shard.segments.iter().copied().filter(|segment| seat.holds.tier(*segment) > Tier::Nowhere).collect();
            let as_good = |other: &WorkerSeat<'_>| {
                other.worker != seat.worker && held.iter().all(|s| other.holds.tier(*s) >= seat.holds.tier(*s))
            };
            let others = seats.all().filter(as_good).map(|other| other.worker);
            shard.holders = others.take(OTHER_HOLDERS_MAX).collect();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trawl_wire::group_bits;

    fn groups(dataset: &str, memory: Vec<u8>) -> pb::HeldGroups {
        pb::HeldGroups { dataset: dataset.to_owned(), memory, disk: group_bits::pack([3]) }
    }

    #[test]
    fn a_report_is_of_its_snapshots_and_one_beyond_the_limits_is_refused() {
        let report = |held| pb::CacheReport { held, loads: None };
        let reported = Reported::of(report(vec![groups("a@1", group_bits::pack([2]))])).unwrap();
        assert_eq!([1, 2, 3].map(|g| reported.holdings("a@1").tier(g)), [Tier::Nowhere, Tier::Memory, Tier::Disk]);
        assert_eq!(reported.holdings("a@2").tier(2), Tier::Nowhere, "another snapshot");
        let loads = pb::CacheLoads { memory: u64::MAX, disk: 1, data_root: 1, ..pb::CacheLoads::default() };
        let many = Reported::of(pb::CacheReport { held: Vec::new(), loads: Some(loads) }).unwrap();
        assert_eq!([reported.segments(), many.segments()], [0, u64::MAX]);
        assert!(Reported::of(report(vec![groups("a@1", vec![255; CACHE_REPORT_BYTES_MAX])])).is_none());
        let many = (0..=CACHE_REPORT_SNAPSHOTS_MAX).map(|at| groups(&at.to_string(), vec![1]));
        assert!(Reported::of(report(many.collect())).is_none());
    }

    #[test]
    fn a_cold_load_costs_what_loads_took_lately_of_workers_that_held_nothing() {
        let mut pace = LoadPace::default();
        let (memory, disk) = (group_bits::pack([0, 1]), group_bits::pack([2]));
        let seat = |capacity| WorkerSeat {
            worker: 1,
            key: 1,
            device: false,
            capacity,
            holds: Holdings { memory: &memory, disk: &disk },
        };
        let shard = |segments: &[u32]| Shard {
            segments: segments.to_vec(),
            cost: 1,
            preferred: Some(1),
            holders: Vec::new(),
            cold_ms: 0,
        };
        let cold = |pace: &LoadPace, segments: &[u32], threads| pace.cold_ms(&shard(segments), &seat(threads), |_| 500);
        assert_eq!(cold(&pace, &[0, 1, 2], 1), 0, "nothing is known yet");
        let load = |load_us, resident| pb::SegmentTimings { load_us, resident, bars: 1_000, ..Default::default() };
        pace.note(Tier::Nowhere, &load(90_000, false));
        pace.note(Tier::Disk, &load(10_000, false));
        for (tier, resident) in [(Tier::Memory, false), (Tier::Nowhere, true)] {
            pace.note(tier, &load(u64::MAX, resident));
        }
        assert_eq!([&[0][..], &[2], &[9], &[0, 1, 2, 9]].map(|s| cold(&pace, s, 1)), [45, 40, 0, 130]);
        assert_eq!([2, 100].map(|threads| cold(&pace, &[0, 1, 2, 9], threads)), [65, 32], "side by side");
        // What was measured long ago counts less and less.
        (0..20 * LOADS_HALVED_AFTER).for_each(|_| pace.note(Tier::Nowhere, &load(2_000, false)));
        assert_eq!(cold(&pace, &[0], 1), 1);
        (0..3).for_each(|_| pace.note(Tier::Nowhere, &load(u64::MAX, false)));
        assert!(cold(&pace, &[0, 1], 1) > 0, "no overflow");
        let held =
            Some(Arc::new(pb::HeldGroups { dataset: String::new(), memory: memory.clone(), disk: disk.clone() }));
        let seats: SnapshotSeats = [(1, held.clone()), (2, held), (3, None)].into_iter().collect();
        let mut shards = [shard(&[0, 2]), shard(&[9])];
        note_holders(&mut shards, &seats, &pace, |_| 500);
        assert_eq!(shards.each_ref().map(|s| (s.cold_ms > 0, s.holders.clone())), [(true, vec![2]), (false, vec![])]);
    }
}
