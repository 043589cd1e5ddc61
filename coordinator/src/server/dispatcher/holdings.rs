//! What workers report to hold, and how long loading takes those that do not hold it: hints for the choice of a worker.
//!
//! A report may be out of date or wrong. It decides where work goes first and how long it waits there (at most
//! [`HOLDER_WAIT_MAX_MS`](crate::scheduler::HOLDER_WAIT_MAX_MS)), and nothing else.

use std::collections::BTreeMap;

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
    held: Vec<pb::HeldGroups>,
    /// Where the bars of its segments were.
    pub loads: Option<pb::CacheLoads>,
}

impl Reported {
    /// A report, if it is within its limits.
    pub fn of(report: pb::CacheReport) -> Option<Self> {
        let fits = report.encoded_len() <= CACHE_REPORT_BYTES_MAX && report.held.len() <= CACHE_REPORT_SNAPSHOTS_MAX;
        fits.then_some(Self { held: report.held, loads: report.loads })
    }

    /// How many segments the worker had run when it reported: more in a later report of the same process.
    pub fn segments(&self) -> u64 {
        let loads = self.loads.unwrap_or_default();
        loads.memory.saturating_add(loads.disk).saturating_add(loads.data_root)
    }

    /// What it holds of a snapshot, NAME@SNAPSHOT.
    pub fn holdings(&self, reference: &str) -> Holdings<'_> {
        let held = self.held.iter().find(|groups| groups.dataset == reference);
        held.map_or_else(Holdings::default, |groups| Holdings { memory: &groups.memory, disk: &groups.disk })
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
    seats: &[WorkerSeat<'_>],
    pace: &LoadPace,
    bars: impl Fn(u32) -> u64 + Copy,
) {
    let by_worker: BTreeMap<u64, &WorkerSeat<'_>> = seats.iter().map(|seat| (seat.worker, seat)).collect();
    for shard in shards {
        let Some(seat) = shard.preferred.and_then(|worker| by_worker.get(&worker)) else { continue };
        shard.cold_ms = pace.cold_ms(shard, seat, bars);
        if shard.cold_ms > 0 {
            let as_good = |other: &&WorkerSeat<'_>| {
                let mut segments = shard.segments.iter();
                other.worker != seat.worker && segments.all(|s| other.holds.tier(*s) >= seat.holds.tier(*s))
            };
            shard.holders = seats.iter().filter(as_good).map(|other| other.worker).take(OTHER_HOLDERS_MAX).collect();
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
        let seats = [
            seat(1),
            WorkerSeat { worker: 2, ..seat(1) },
            WorkerSeat { worker: 3, holds: Holdings::default(), ..seat(1) },
        ];
        let mut shards = [shard(&[0, 2]), shard(&[9])];
        note_holders(&mut shards, &seats, &pace, |_| 500);
        assert_eq!(shards.each_ref().map(|s| (s.cold_ms > 0, s.holders.clone())), [(true, vec![2]), (false, vec![])]);
    }
}
