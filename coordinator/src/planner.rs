//! Cuts a scan's segments into shards and chooses the preferred worker of each.
//!
//! Pure and deterministic: integers and ids in, shards out. The answer of a scan does not depend on it; only its
//! duration does. For the required properties see `README.md` of this crate.

use trawl_wire::group_bits;

use crate::scheduler::SHARDS_IN_FLIGHT_PER_WORKER;

/// The estimated cost of one segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentCost {
    /// Group id.
    pub segment: u32,
    /// Nanoseconds of one core, at least 1.
    pub cost: u64,
}

/// How a scan is cut into shards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ShardSpec {
    /// By the registered workers: each gets a few shards of its own segments.
    #[default]
    Automatic,
    /// This many, of about equal cost (fewer when there are fewer segments); 0 counts as 1.
    Count(u32),
    /// One for every segment.
    PerSegment,
}

/// Where a worker has the bars of a segment, as far as it has reported; the later, the sooner it can begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tier {
    /// It would have to load them first.
    Nowhere,
    /// On its disk, in files of an object store.
    Disk,
    /// In its memory.
    Memory,
}

/// The segments of a scan whose bars a worker holds, as [`group_bits`]. Only a hint: what it says may be out of date, or a lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Holdings<'a> {
    /// Segments of which columns are in memory.
    pub memory: &'a [u8],
    /// Segments whose files are on the worker's disk.
    pub disk: &'a [u8],
}

impl Holdings<'_> {
    /// Where the bars of a segment are.
    pub fn tier(&self, segment: u32) -> Tier {
        match (group_bits::contains(self.memory, segment), group_bits::contains(self.disk, segment)) {
            (true, _) => Tier::Memory,
            (false, true) => Tier::Disk,
            (false, false) => Tier::Nowhere,
        }
    }
}

/// A worker as the planner sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorkerSeat<'a> {
    /// Id of the worker in the scheduler.
    pub worker: u64,
    /// Hash of its name: the same worker keeps its segments whatever else changes.
    pub key: u64,
    /// Whether it computes on a device, which runs all segments of a shard together.
    pub device: bool,
    /// Its compute threads, or 1 for a device: how much it gets relative to other workers.
    pub capacity: u32,
    /// What it holds of the scan's snapshot.
    pub holds: Holdings<'a>,
}

/// A set of segments that is dispatched to one worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shard {
    /// Ascending, none twice, at least one.
    pub segments: Vec<u32>,
    /// Sum of the segments' costs, saturating.
    pub cost: u64,
    /// The preferred worker; any worker may run it.
    pub preferred: Option<u64>,
    /// Other workers that hold all of it as well: as good a place as the preferred one.
    pub holders: Vec<u64>,
    /// How much longer any other worker would take, in milliseconds, because it would have to load first what the preferred worker holds.
    pub cold_ms: u64,
}

/// Shards for each worker under [`ShardSpec::Automatic`]: enough to even out wrong estimates, few enough to stay cheap.
pub const SHARDS_PER_WORKER: usize = 4;
/// Shards for each worker with a device: as many as it has in flight. A device runs thousands of symbols in parallel,
/// and takes about as long for a few as for many.
pub const SHARDS_PER_DEVICE: usize = SHARDS_IN_FLIGHT_PER_WORKER;
/// A worker's share of the cost, in percent of the mean, beyond which its segments go to their next choice.
pub const LOAD_BOUND_PERCENT: u64 = 125;
/// Most shares of a worker, where the smallest has one.
const SHARES_MAX: u32 = 8;

/// Cuts `segments` for `workers`. Both may come in any order; a segment named twice counts once.
///
/// Each segment is in exactly one shard. `affinity` is a hash of the dataset's name, so that in all scans a group goes
/// to the same worker. A worker that holds a segment comes before that one, within the same bound of its share.
pub fn plan_shards(segments: &[SegmentCost], workers: &[WorkerSeat<'_>], spec: ShardSpec, affinity: u64) -> Vec<Shard> {
    let mut segments = segments.to_vec();
    segments.sort_by_key(|s| (s.segment, s.cost));
    segments.dedup_by_key(|s| s.segment);
    let mut seats = workers.to_vec();
    seats.sort_by_key(|w| (w.key, w.worker));
    match spec {
        ShardSpec::PerSegment => {
            segments.iter().map(|s| shard(std::slice::from_ref(s), preferred(s.segment, &seats, affinity))).collect()
        }
        ShardSpec::Count(count) => cut_evenly(&segments, count as usize)
            .into_iter()
            .map(|part| shard(part, preferred(part[0].segment, &seats, affinity)))
            .collect(),
        ShardSpec::Automatic if seats.is_empty() => {
            cut_evenly(&segments, SHARDS_PER_WORKER).into_iter().map(|part| shard(part, None)).collect()
        }
        ShardSpec::Automatic => assign(&segments, &seats, affinity)
            .iter()
            .zip(&seats)
            .flat_map(|(mine, seat)| {
                let count = if seat.device { SHARDS_PER_DEVICE } else { SHARDS_PER_WORKER };
                cut_evenly(mine, count).into_iter().map(|part| shard(part, Some(seat.worker)))
            })
            .collect(),
    }
}

fn shard(segments: &[SegmentCost], preferred: Option<u64>) -> Shard {
    Shard {
        segments: segments.iter().map(|s| s.segment).collect(),
        cost: segments.iter().fold(0u64, |sum, s| sum.saturating_add(s.cost)),
        preferred,
        holders: Vec::new(),
        cold_ms: 0,
    }
}

/// Cuts `segments`, in order, into at most `count` runs of about equal cost, none empty.
fn cut_evenly(segments: &[SegmentCost], count: usize) -> Vec<&[SegmentCost]> {
    let count = count.clamp(1, segments.len().max(1));
    let total: u128 = segments.iter().map(|s| u128::from(s.cost)).sum();
    let mut parts = Vec::with_capacity(count);
    let (mut start, mut done) = (0, 0u128);
    for (i, segment) in segments.iter().enumerate() {
        done += u128::from(segment.cost);
        let (made, left) = (parts.len() + 1, segments.len() - i - 1);
        let reached = done * count as u128 >= total * made as u128;
        // A part ends when its share is reached, or when the segments left are just enough for the parts left.
        if made < count && (reached || left <= count - made) && left > 0 {
            parts.push(&segments[start..=i]);
            start = i + 1;
        }
    }
    if start < segments.len() {
        parts.push(&segments[start..]);
    }
    parts
}

/// Assigns segments to seats that hold them, then by rendezvous hashing, each seat filled to its load bound at most.
fn assign(segments: &[SegmentCost], seats: &[WorkerSeat<'_>], affinity: u64) -> Vec<Vec<SegmentCost>> {
    let total: u128 = segments.iter().map(|s| u128::from(s.cost)).sum();
    let largest = segments.iter().map(|s| s.cost).max().unwrap_or(0);
    let shares = shares(seats);
    let all: u128 = shares.iter().map(|share| u128::from(*share)).sum();
    let bound = |share: u32| {
        let bound = total * u128::from(LOAD_BOUND_PERCENT) * u128::from(share) / (100 * all);
        u64::try_from(bound).unwrap_or(u64::MAX).max(largest)
    };
    let bounds: Vec<u64> = shares.iter().map(|share| bound(*share)).collect();
    let mut mine: Vec<Vec<SegmentCost>> = vec![Vec::new(); seats.len()];
    let mut loads = vec![0u64; seats.len()];
    for segment in segments {
        let hash = hash_of(segment.segment, affinity);
        let mut best: Option<(bool, Tier, u64, usize)> = None;
        for (i, seat) in seats.iter().enumerate() {
            let fits = loads[i].saturating_add(segment.cost) <= bounds[i];
            let tier = if fits { seat.holds.tier(segment.segment) } else { Tier::Nowhere };
            // Most seats are out of question before they are scored.
            if best.is_some_and(|(fitting, best, ..)| (fits, tier) < (fitting, best)) {
                continue;
            }
            // Where it fits nowhere, the least loaded seat takes it.
            let wish = match fits {
                true => score(hash, (seat.key, shares[i])),
                false => u64::MAX - loads[i] / u64::from(shares[i]),
            };
            let candidate = (fits, tier, wish, i);
            // Equal scores (two workers of one key) go to the later seat, in an order that does not depend on the call.
            if best.is_none_or(|b| candidate > b) {
                best = Some(candidate);
            }
        }
        if let Some((_, _, _, i)) = best {
            loads[i] = loads[i].saturating_add(segment.cost);
            mine[i].push(*segment);
        }
    }
    mine
}

/// The first choice of a segment: a seat that holds it, then by rendezvous hashing, ignoring load.
pub fn preferred(segment: u32, seats: &[WorkerSeat<'_>], affinity: u64) -> Option<u64> {
    let shares = shares(seats);
    let hash = hash_of(segment, affinity);
    let rated = seats.iter().zip(shares).map(|(seat, share)| (score(hash, (seat.key, share)), seat));
    let best = rated.max_by_key(|(score, seat)| (seat.holds.tier(segment), *score, seat.key, seat.worker));
    best.map(|(_, seat)| seat.worker)
}

/// How many shares of a scan each seat should have: by capacity, where the smallest seat has one.
fn shares(seats: &[WorkerSeat<'_>]) -> Vec<u32> {
    let smallest = seats.iter().map(|seat| seat.capacity.max(1)).min().unwrap_or(1);
    let share =
        |seat: &WorkerSeat<'_>| (seat.capacity.max(1).saturating_add(smallest / 2) / smallest).clamp(1, SHARES_MAX);
    seats.iter().map(share).collect()
}

/// The hash of a segment of a dataset.
fn hash_of(segment: u32, affinity: u64) -> u64 {
    mix(affinity ^ u64::from(segment).wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

/// The rendezvous score of a segment and a worker: the highest score wins, so a worker that joins or leaves moves only
/// its own segments. A worker with several shares has as many chances.
fn score(of_segment: u64, (key, shares): (u64, u32)) -> u64 {
    let chance = |share: u32| match share {
        0 => mix(of_segment ^ key),
        share => mix(of_segment ^ mix(key.wrapping_add(u64::from(share)))),
    };
    (0..shares).map(chance).max().unwrap_or_default()
}

/// The finaliser of SplitMix64 (Steele, Lea, Flood 2014): every bit of the input moves every bit of the output.
fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// A stable hash of a name (FNV-1a, then mixed).
pub fn name_key(name: &str) -> u64 {
    mix(name.bytes().fold(0xcbf2_9ce4_8422_2325, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3)))
}
