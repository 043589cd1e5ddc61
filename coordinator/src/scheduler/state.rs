//! The state of a scan, its pieces and its attempts.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use trawl_terms::Priority;
use trawl_wire::ErrorKind;

use super::wait_queue::{Claim, QueuedWork, WaitQueue};
use super::{AttemptId, ClassId, Digest, HOLDER_WAIT_MAX_MS, HostId, Piece, Purpose, Request, ScanId, WorkerId};

/// Number of recent attempts in the median.
const PACES_KEPT: usize = 255;
/// Cost to which durations are normalised; large, so that quotients of small attempts do not round to 0.
const PACE_COST: u128 = 1 << 32;

/// Share of the workers' time of a scan, relative to other scans.
fn weight(priority: Priority) -> u64 {
    match priority {
        Priority::Low => 1,
        Priority::Normal => 4,
        Priority::High => 16,
    }
}

/// A running scan.
#[derive(Debug)]
pub(super) struct Scan {
    /// The pieces the scan is currently cut into; bisection replaces a piece by its halves.
    pub pieces: BTreeMap<Piece, Progress>,
    /// Number of pieces that are neither accepted nor failed.
    pub open: usize,
    /// Their estimated cost.
    pub open_cost: u64,
    /// Accepted pieces whose result is unconfirmed.
    pub unsettled: BTreeSet<Piece>,
    /// Work that waits for a worker.
    pub line: WaitQueue,
    /// Running attempts.
    pub attempts: BTreeSet<AttemptId>,
    pub class: ClassId,
    pub weight: u64,
    /// See [`Request::caller`].
    pub caller: u64,
    /// Work assigned so far divided by its share; the scan with the least is next.
    pub turn: u128,
    /// Time at which its last attempt ended, or it was submitted.
    pub attempted_ms: u64,
    pub deadline_ms: Option<u64>,
    /// Whether it waits for workers without limit.
    pub waits: bool,
    /// Whether a dispute could not be settled.
    pub disputed: bool,
    /// Number of symbols that failed as poisoned.
    pub poisoned: u32,
    pub paces: Paces,
}

/// The progress of a piece.
#[derive(Debug)]
pub(super) struct Progress {
    /// Estimated cost, at least 1.
    pub cost: u64,
    /// Number of dispatches for work or isolation.
    pub tries: u32,
    /// Number of workers that died running it.
    pub deaths: u32,
    /// Whether it has to run alone on its worker: a part of a segment, or a lone symbol under suspicion.
    pub alone: bool,
    /// Hosts that reported a permanent failure of it.
    pub accusers: Vec<HostId>,
    /// Hosts that answered with what cannot be a result of it.
    pub malformed: Vec<HostId>,
    /// The kind of failure they reported, while the coordinator checks its own copy.
    pub checking: Option<ErrorKind>,
    /// Number of attempts at it that timed out without a reply.
    pub timeouts: u32,
    /// Attempts that are running it.
    pub running: Vec<AttemptId>,
    /// Whether it is open, accepted or failed.
    pub standing: PieceState,
}

/// A piece is open until it is accepted or failed; both are final.
#[derive(Debug)]
pub(super) enum PieceState {
    Open,
    Accepted(Verdict),
    Failed,
}

/// The votes on an accepted piece.
#[derive(Debug)]
pub(super) struct Verdict {
    pub accepted: Digest,
    pub votes: Vec<(HostId, Digest)>,
    /// Hosts asked that did not answer.
    pub declined: Vec<HostId>,
    /// Number of hosts asked.
    pub asked: u32,
    /// Whether the next host is being looked for.
    pub asking: bool,
    /// Since when it is unconfirmed.
    pub since_ms: u64,
    /// Whether `Command::Contest` was sent.
    pub contested: bool,
}

/// One dispatch.
#[derive(Debug)]
pub(super) struct Attempt {
    pub scan: ScanId,
    pub worker: WorkerId,
    pub host: HostId,
    /// Pieces not answered yet; may contain pieces that another attempt answered meanwhile.
    pub left: BTreeSet<Piece>,
    /// Hosts that have failed this work.
    pub avoid: Vec<HostId>,
    pub purpose: Purpose,
    pub started_ms: u64,
    /// Time of its last reply, or of its start.
    pub heard_ms: u64,
    /// How long it may go without a reply, in milliseconds.
    pub allowed_ms: u64,
    pub cost: u64,
    /// Whether it has been hedged.
    pub hedged: bool,
}

/// The digests of a scan that ended complete.
#[derive(Debug)]
pub(super) struct Delivered {
    pub scan: ScanId,
    pub pieces: BTreeMap<Piece, (HostId, Digest)>,
    /// Whether a doubt has been reported; reported once.
    pub doubted: bool,
}

impl Scan {
    /// A new scan. `takes_work`: whether waiting for a worker makes sense.
    pub fn new(request: Request, turn: u128, now_ms: u64, takes_work: impl Fn(WorkerId) -> bool) -> Self {
        let mut pieces = BTreeMap::new();
        let mut line = WaitQueue::default();
        for shard in request.shards {
            let cost = (shard.cost / (shard.segments.len() as u64).max(1)).max(1);
            let mut fresh = Vec::with_capacity(shard.segments.len());
            for segment in shard.segments {
                let count = request.symbols.get(&segment).copied().unwrap_or(1).max(1);
                let piece = Piece { segment, first: 0, count };
                if pieces.insert(piece, Progress::new(cost)).is_none() {
                    fresh.push(piece);
                }
            }
            fresh.sort_unstable();
            if !fresh.is_empty() {
                let claim = match shard.preferred.filter(|worker| takes_work(*worker)) {
                    Some(worker) => {
                        let holders = shard.holders.into_iter().filter(|holder| *holder != worker).collect();
                        Claim::Prefers { worker, holders, cold_ms: shard.cold_ms.min(HOLDER_WAIT_MAX_MS) }
                    }
                    None => Claim::Anyone,
                };
                line.push(QueuedWork::fresh(fresh, claim), 0);
            }
        }
        Self {
            open: pieces.len(),
            open_cost: pieces.values().fold(0, |sum, piece| sum.saturating_add(piece.cost)),
            pieces,
            unsettled: BTreeSet::new(),
            line,
            attempts: BTreeSet::new(),
            class: request.class,
            weight: weight(request.priority),
            caller: request.caller,
            turn,
            attempted_ms: now_ms,
            deadline_ms: request.deadline_ms,
            waits: request.waits,
            disputed: false,
            poisoned: 0,
            paces: Paces::default(),
        }
    }

    /// Whether a piece has neither been accepted nor failed.
    pub fn is_open(&self, piece: &Piece) -> bool {
        self.pieces.get(piece).is_some_and(|p| matches!(p.standing, PieceState::Open))
    }
}

impl Progress {
    fn new(cost: u64) -> Self {
        Self {
            cost,
            tries: 0,
            deaths: 0,
            alone: false,
            accusers: Vec::new(),
            malformed: Vec::new(),
            checking: None,
            timeouts: 0,
            running: Vec::new(),
            standing: PieceState::Open,
        }
    }

    /// The progress of a piece that has to run alone.
    pub fn alone(cost: u64, deaths: u32) -> Self {
        Self { deaths, alone: true, ..Self::new(cost) }
    }

    /// The workers that may run it.
    pub fn claim(&self) -> Claim {
        if self.alone { Claim::Alone } else { Claim::Anyone }
    }

    /// Accepts the result that `host` gave; it is the first vote.
    pub fn accept(&mut self, host: HostId, digest: Digest) {
        self.standing = PieceState::Accepted(Verdict {
            accepted: digest,
            votes: vec![(host, digest)],
            declined: Vec::new(),
            asked: 0,
            asking: false,
            since_ms: 0,
            contested: false,
        });
    }

    /// The votes on it, if it is accepted.
    pub fn verdict(&mut self) -> Option<&mut Verdict> {
        match &mut self.standing {
            PieceState::Accepted(verdict) => Some(verdict),
            PieceState::Open | PieceState::Failed => None,
        }
    }
}

/// Durations of attempts relative to their cost.
#[derive(Debug, Default)]
pub(super) struct Paces {
    /// Milliseconds of [`PACE_COST`], newest last.
    recent: VecDeque<u128>,
    /// The same, ascending: each dispatch and each tick asks for the median.
    sorted: Vec<u128>,
}

impl Paces {
    pub fn note(&mut self, ms: u64, cost: u64) {
        if self.recent.len() == PACES_KEPT
            && let Some(oldest) = self.recent.pop_front()
            && let Ok(at) = self.sorted.binary_search(&oldest)
        {
            self.sorted.remove(at);
        }
        let pace = u128::from(ms) * PACE_COST / u128::from(cost.max(1));
        self.recent.push_back(pace);
        self.sorted.insert(self.sorted.partition_point(|other| *other < pace), pace);
    }

    /// Time that the median attempt would take for `cost`; `None` before any has ended.
    pub fn expected_ms(&self, cost: u64) -> Option<u64> {
        let median = self.sorted.get(self.sorted.len() / 2)?;
        u64::try_from(median.saturating_mul(u128::from(cost)) / PACE_COST).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_of_the_attempts_that_ended_last() {
        let mut paces = Paces::default();
        assert_eq!(paces.expected_ms(1), None);
        let mut all: Vec<u64> = Vec::new();
        for number in 0..3 * PACES_KEPT as u64 {
            let ms = number * 7_919 % 1_000;
            paces.note(ms, 1);
            all.push(ms);
            let mut recent = all[all.len().saturating_sub(PACES_KEPT)..].to_vec();
            recent.sort_unstable();
            assert_eq!(paces.expected_ms(1), recent.get(recent.len() / 2).copied(), "after {number}");
        }
    }
}
