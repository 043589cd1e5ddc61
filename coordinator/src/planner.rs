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

/// Most shards for each worker under [`ShardSpec::Automatic`]: enough to even out wrong estimates, few enough to stay cheap.
pub const SHARDS_PER_WORKER: usize = 4;
/// Computing time, by the estimate, below which a worker's segments are not cut into more shards: a shard costs all processes together a
/// few tenths of a millisecond, and what is that short needs no evening out.
pub const SHARD_NS_MIN: u64 = 4_000_000;
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
            let mut choices = FirstChoices::of(&seats);
            segments.iter().map(|s| shard(std::slice::from_ref(s), choices.of_segment(s.segment, affinity))).collect()
        }
        ShardSpec::Count(count) => {
            let mut choices = FirstChoices::of(&seats);
            let parts = cut_evenly(&segments, count as usize).into_iter();
            parts.map(|part| shard(part, choices.of_segment(part[0].segment, affinity))).collect()
        }
        ShardSpec::Automatic => Assignment::of(&segments, &seats, affinity).shards(|cost| cost),
    }
}

/// The segments of each worker, before they are cut into shards. It depends on the sizes of segments relative to one another, and so
/// on no plan: all scans of a snapshot share it while the workers are the same.
#[derive(Debug, Clone)]
pub struct Assignment {
    workers: Vec<Assigned>,
}

/// What one worker is assigned.
#[derive(Debug, Clone)]
struct Assigned {
    /// `None` if there is no worker.
    worker: Option<u64>,
    device: bool,
    capacity: u32,
    /// Ascending, with their sizes.
    segments: Vec<SegmentCost>,
}

impl Assignment {
    /// Assigns `sizes`, whose costs are in any unit, to workers. Both may come in any order; a segment named twice counts once.
    pub fn of(sizes: &[SegmentCost], workers: &[WorkerSeat<'_>], affinity: u64) -> Self {
        let mut segments = sizes.to_vec();
        segments.sort_by_key(|s| (s.segment, s.cost));
        segments.dedup_by_key(|s| s.segment);
        let mut seats = workers.to_vec();
        seats.sort_by_key(|w| (w.key, w.worker));
        if seats.is_empty() {
            return Self { workers: vec![Assigned { worker: None, device: false, capacity: 1, segments }] };
        }
        let each = assign(&segments, &seats, affinity).into_iter().zip(&seats);
        let assigned = |(segments, seat): (Vec<SegmentCost>, &WorkerSeat<'_>)| Assigned {
            worker: Some(seat.worker),
            device: seat.device,
            capacity: seat.capacity,
            segments,
        };
        Self { workers: each.map(assigned).collect() }
    }

    /// Shards of each worker's segments. `cost_ns`: the nanoseconds of one core of a segment by its size, at least 1.
    pub fn shards(&self, cost_ns: impl Fn(u64) -> u64) -> Vec<Shard> {
        let mut shards = Vec::new();
        for Assigned { worker, device, capacity, segments } in &self.workers {
            let cost = |s: &SegmentCost| SegmentCost { segment: s.segment, cost: cost_ns(s.cost).max(1) };
            let mine: Vec<SegmentCost> = segments.iter().map(cost).collect();
            let all_ns = mine.iter().fold(0u64, |sum, s| sum.saturating_add(s.cost));
            // Its threads compute side by side.
            let worth = all_ns / SHARD_NS_MIN / u64::from((*capacity).max(1));
            let count = match (worker, device) {
                (Some(_), true) => SHARDS_PER_DEVICE,
                (Some(_), false) => usize::try_from(worth).unwrap_or(usize::MAX).clamp(1, SHARDS_PER_WORKER),
                // For whoever comes.
                (None, _) => SHARDS_PER_WORKER,
            };
            shards.extend(cut_evenly(&mine, count).into_iter().map(|part| shard(part, *worker)));
        }
        shards
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

/// The scores of seats, in one list: a seat has as many chances as shares.
struct Chances {
    /// Mixed into the hash of a segment.
    keys: Vec<u64>,
    /// The seat of each.
    seats: Vec<usize>,
}

impl Chances {
    fn of(seats: &[WorkerSeat<'_>], shares: &[u32]) -> Self {
        let mut chances = Self { keys: Vec::with_capacity(seats.len()), seats: Vec::with_capacity(seats.len()) };
        for (at, (seat, shares)) in seats.iter().zip(shares).enumerate() {
            chances.keys.extend((0..*shares).map(|share| chance_key(seat.key, share)));
            chances.seats.resize(chances.keys.len(), at);
        }
        chances
    }

    /// The seat with the highest score of a segment among those that `may` have it. Equal scores (two workers of one key) go to the
    /// later seat, in an order that does not depend on the call.
    fn best(&self, of_segment: u64, may: impl Fn(usize) -> bool) -> Option<usize> {
        // Every segment looks at every chance, so this loop does little else than mix.
        let (mut best, mut chosen) = (0, None);
        for (key, seat) in self.keys.iter().zip(&self.seats) {
            let score = mix(of_segment ^ key);
            if score >= best && may(*seat) {
                (best, chosen) = (score, Some(*seat));
            }
        }
        chosen
    }
}

/// The seats that hold a segment, found byte by byte: eight segments share one in each set of bits.
struct Holders {
    /// Seats that hold anything.
    seats: Vec<usize>,
    /// The byte that `near` is of.
    byte: Option<usize>,
    /// Of `seats`, those that hold any of its segments.
    near: Vec<usize>,
}

impl Holders {
    fn of(seats: &[WorkerSeat<'_>]) -> Self {
        let any = |seat: &WorkerSeat<'_>| !(seat.holds.memory.is_empty() && seat.holds.disk.is_empty());
        let seats = seats.iter().enumerate().filter(|(_, seat)| any(seat)).map(|(at, _)| at).collect();
        Self { seats, byte: None, near: Vec::new() }
    }

    /// The seats that may hold a segment; quick if segments are asked for in ascending order.
    fn of_segment(&mut self, segment: u32, seats: &[WorkerSeat<'_>]) -> &[usize] {
        let byte = group_bits::byte_of(segment);
        if self.byte != Some(byte) {
            self.byte = Some(byte);
            let any = |bits: &[u8]| bits.get(byte).is_some_and(|bits| *bits != 0);
            let near = |at: &&usize| any(seats[**at].holds.memory) || any(seats[**at].holds.disk);
            self.near.clear();
            self.near.extend(self.seats.iter().filter(near));
        }
        &self.near
    }
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
    let (chances, mut holders) = (Chances::of(seats, &shares), Holders::of(seats));
    let mut mine: Vec<Vec<SegmentCost>> = vec![Vec::new(); seats.len()];
    let mut loads = vec![0u64; seats.len()];
    for segment in segments {
        let hash = hash_of(segment.segment, affinity);
        let fits = |at: usize| loads[at].saturating_add(segment.cost) <= bounds[at];
        let rated = |at: &usize| {
            let tier = seats[*at].holds.tier(segment.segment);
            (tier > Tier::Nowhere && fits(*at)).then(|| (tier, score(hash, (seats[*at].key, shares[*at])), *at))
        };
        let holder = holders.of_segment(segment.segment, seats).iter().filter_map(rated).max().map(|(.., at)| at);
        let best = holder.or_else(|| chances.best(hash, fits));
        // Where it fits nowhere, the least loaded seat takes it.
        let least = || (0..seats.len()).rev().min_by_key(|at| loads[*at] / u64::from(shares[*at]));
        if let Some(at) = best.or_else(least) {
            loads[at] = loads[at].saturating_add(segment.cost);
            mine[at].push(*segment);
        }
    }
    mine
}

/// The first choice of a segment: a seat that holds it, then by rendezvous hashing, ignoring load.
pub fn preferred(segment: u32, seats: &[WorkerSeat<'_>], affinity: u64) -> Option<u64> {
    let mut seats = seats.to_vec();
    seats.sort_by_key(|w| (w.key, w.worker));
    FirstChoices::of(&seats).of_segment(segment, affinity)
}

/// The first choice of many segments, asked for in ascending order. The seats are sorted by key and id.
struct FirstChoices<'a> {
    seats: &'a [WorkerSeat<'a>],
    shares: Vec<u32>,
    chances: Chances,
    holders: Holders,
}

impl<'a> FirstChoices<'a> {
    fn of(seats: &'a [WorkerSeat<'a>]) -> Self {
        let shares = shares(seats);
        let chances = Chances::of(seats, &shares);
        Self { seats, shares, chances, holders: Holders::of(seats) }
    }

    fn of_segment(&mut self, segment: u32, affinity: u64) -> Option<u64> {
        let (seats, hash) = (self.seats, hash_of(segment, affinity));
        let rated = |at: &usize| {
            let tier = seats[*at].holds.tier(segment);
            (tier > Tier::Nowhere).then(|| (tier, score(hash, (seats[*at].key, self.shares[*at])), *at))
        };
        let holder = self.holders.of_segment(segment, seats).iter().filter_map(rated).max().map(|(.., at)| at);
        holder.or_else(|| self.chances.best(hash, |_| true)).map(|at| seats[at].worker)
    }
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
    (0..shares).map(|share| mix(of_segment ^ chance_key(key, share))).max().unwrap_or_default()
}

/// What one share of a worker mixes into the hash of a segment.
fn chance_key(key: u64, share: u32) -> u64 {
    match share {
        0 => key,
        share => mix(key.wrapping_add(u64::from(share))),
    }
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
