//! The ground truth of a world: its scans, the values of their symbols, and which hosts lie.

use std::collections::{BTreeMap, BTreeSet};

use trawl_coordinator::scheduler::{ClassId, Digest, HostId, Piece, Request, ScanId};
use trawl_terms::Priority;

use crate::ledger::Truth;

/// Maximum number of symbols of a segment.
pub const SEGMENT_SYMBOLS_MAX: u32 = 64;

/// Distance between the classes of two releases, which compute other bits.
pub const RELEASE: ClassId = 16;
/// Distance between the scheduler's numbers of two generations of a scan.
const GENERATION: ScanId = 1 << 32;
/// Where the release is in a value.
const RELEASE_SHIFT: u32 = 60;

/// The scheduler's number of a generation of a scan.
pub fn run_id(scan: ScanId, generation: u32) -> ScanId {
    scan + u64::from(generation) * GENERATION
}

/// The scan that a run is of.
pub fn scan_of(run: ScanId) -> ScanId {
    run % GENERATION
}

/// A value without the bits that depend on the release.
pub fn without_release(value: u64) -> u64 {
    value & ((1 << RELEASE_SHIFT) - 1)
}

/// The release that computed a value.
pub fn release_of(value: u64) -> ClassId {
    ((value >> RELEASE_SHIFT) as ClassId) * RELEASE
}

/// The release of a class.
pub fn release(class: ClassId) -> ClassId {
    class / RELEASE * RELEASE
}
use crate::random::{Random, mix};

/// A scan of the seed.
#[derive(Debug, Clone)]
pub struct Asked {
    pub segments: Vec<u32>,
    /// The request, without shards; its deadline is a duration.
    pub request: Request,
    poison: BTreeSet<(u32, u32)>,
    /// Segments whose file is damaged in every copy.
    damaged: BTreeSet<u32>,
}

impl Asked {
    pub fn new(random: &mut Random, classes: ClassId, quiet: bool) -> Self {
        let mut symbols = BTreeMap::new();
        let mut segment = 0;
        for _ in 0..random.within(0, 40) {
            segment += random.within(1, 3) as u32;
            symbols.insert(segment, random.within(1, u64::from(SEGMENT_SYMBOLS_MAX)) as u32);
        }
        let segments: Vec<u32> = symbols.keys().copied().collect();
        let mut poison = BTreeSet::new();
        if random.percent(15) && !segments.is_empty() {
            for _ in 0..random.within(1, 3) {
                let segment = segments[random.index(segments.len())];
                let symbol = random.index(symbols[&segment] as usize) as u32;
                poison.insert((segment, symbol));
            }
        }
        let random_damage = random.percent(10);
        let priority = Priority::ALL[random.index(3)];
        let class = random.index(classes as usize) as ClassId;
        let within_ms = random.percent(10).then(|| random.within(1, 5_000));
        let deadline_ms = within_ms.filter(|_| !quiet);
        let damaged = segments.iter().copied().filter(|segment| random_damage && segment % 7 == 3).collect();
        let request = Request { symbols, class, priority, deadline_ms, ..Request::default() };
        Self { segments, request, poison, damaged }
    }
}

/// The ground truth that the ledger compares with.
pub struct Facts {
    pub scans: BTreeMap<ScanId, Asked>,
    pub liars: BTreeSet<u64>,
    /// Machines whose copy of the data is damaged.
    pub corrupt: BTreeSet<u64>,
}

/// The value of a symbol in an undisturbed run.
fn value(run: ScanId, class: ClassId, segment: u32, symbol: u32) -> u64 {
    let bits = mix(scan_of(run) << 40 ^ u64::from(segment) << 16 ^ u64::from(symbol));
    without_release(bits) | u64::from(class / RELEASE) << RELEASE_SHIFT
}

fn digest_of(values: impl Iterator<Item = u64>) -> Digest {
    let hash = values.fold(7, |hash, value| mix(hash ^ value));
    let mut digest = [0; 32];
    digest[..8].copy_from_slice(&hash.to_le_bytes());
    digest
}

/// One symbol of an answer: its index and its value, `None` where it failed.
pub type Row = (u32, Option<u64>);

impl Facts {
    /// The rows of a piece answered with this digest; wrong ones for a lie.
    pub fn rows(&self, run: ScanId, class: ClassId, piece: Piece, digest: Digest) -> Vec<Row> {
        let wrong = u64::from(self.digest(run, class, piece) != digest);
        let symbols = piece.first..piece.first + piece.count;
        symbols.map(|symbol| (symbol, Some(value(run, class, piece.segment, symbol) ^ wrong))).collect()
    }
}

impl Truth for Facts {
    fn digest(&self, run: ScanId, class: ClassId, piece: Piece) -> Digest {
        digest_of((piece.first..piece.first + piece.count).map(|symbol| value(run, class, piece.segment, symbol)))
    }

    fn kills(&self, scan: ScanId, piece: Piece) -> bool {
        let symbols = (piece.segment, piece.first)..(piece.segment, piece.first + piece.count);
        self.scans.get(&scan_of(scan)).is_some_and(|s| s.poison.range(symbols).next().is_some())
    }

    fn lies(&self, host: HostId) -> bool {
        self.liars.contains(&host)
    }

    fn is_damaged_at(&self, host: HostId) -> bool {
        self.corrupt.contains(&host)
    }

    fn is_damaged(&self, scan: ScanId, segment: u32) -> bool {
        self.scans.get(&scan_of(scan)).is_some_and(|s| s.damaged.contains(&segment))
    }
}
