//! The interface of the scheduler: ids, events and commands. Plain data.

use std::collections::BTreeMap;

use trawl_terms::Priority;
use trawl_wire::ErrorKind;

use crate::planner::Shard;

/// A running scan.
pub type ScanId = u64;
/// One registration of a worker: a worker that is lost and returns gets a new id.
pub type WorkerId = u64;
/// A worker by name, across registrations and restarts. Votes and blame are attributed to hosts: a broken machine that
/// restarts is not a second witness.
pub type HostId = u64;
/// An execution class, which determines the bits of an answer, numbered by the shell: all attempts of a scan run in one
/// class.
pub type ClassId = u32;
/// One dispatch of some pieces to one worker.
pub type AttemptId = u64;
/// Digest of a piece's result; equal digests mean equal results.
pub type Digest = [u8; 32];

/// The unit of dispatch and accounting: a segment or, after bisection, a run of its symbols.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Piece {
    /// Group id.
    pub segment: u32,
    /// Index of its first symbol among the segment's.
    pub first: u32,
    /// Number of symbols, at least 1.
    pub count: u32,
}

impl Piece {
    /// The two halves; `None` for a single symbol.
    pub fn halves(self) -> Option<[Self; 2]> {
        let half = self.count / 2;
        let second = Self { first: self.first + half, count: self.count - half, ..self };
        (half > 0).then_some([Self { count: half, ..self }, second])
    }
}

/// A scan as submitted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Request {
    /// Shards; each segment of the scan is in exactly one.
    pub shards: Vec<Shard>,
    /// Symbols of each segment; a segment that is not listed counts as one symbol and is never bisected.
    pub symbols: BTreeMap<u32, u32>,
    /// Class of workers that it may run on.
    pub class: ClassId,
    /// See [`Priority`].
    pub priority: Priority,
    /// Who submitted it, by any number: the workers' time is shared between callers first, then between the scans of
    /// each.
    pub caller: u64,
    /// Whether it waits without limit while there is no worker of its class; otherwise it ends.
    pub waits: bool,
    /// Time at which it ends, finished or not.
    pub deadline_ms: Option<u64>,
}

/// Why a worker is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loss {
    /// It died or cannot be reached, possibly because of its work.
    Died,
    /// It left on purpose: its work is not to blame.
    Left,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A scan was accepted.
    Submitted {
        /// The id chosen by the shell.
        scan: ScanId,
        /// What to run.
        request: Request,
    },
    /// A scan was cancelled.
    Cancelled {
        /// The scan.
        scan: ScanId,
    },
    /// A worker of a class joined; it may run `slots` shards at a time.
    WorkerJoined {
        /// The id of this registration.
        worker: WorkerId,
        /// The worker by name.
        host: HostId,
        /// Its execution class.
        class: ClassId,
        /// How many shards it may run at a time.
        slots: usize,
    },
    /// A worker finishes its current work and receives nothing more.
    WorkerDraining {
        /// The worker.
        worker: WorkerId,
    },
    /// A worker is gone.
    WorkerLost {
        /// The worker.
        worker: WorkerId,
        /// Why it is gone.
        loss: Loss,
    },
    /// A valid result arrived. Also accepted from attempts that were given up: a result is a pure function of its
    /// piece.
    PieceDone {
        /// The scan.
        scan: ScanId,
        /// The attempt that it came from.
        attempt: AttemptId,
        /// The host that computed it.
        host: HostId,
        /// The piece that it answers.
        piece: Piece,
        /// Digest of the result.
        digest: Digest,
    },
    /// An attempt reports that one of its pieces failed.
    PieceFailed {
        /// The attempt.
        attempt: AttemptId,
        /// The piece that failed.
        piece: Piece,
        /// Whether and where another attempt may succeed.
        kind: ErrorKind,
    },
    /// An attempt answered one of its pieces with what cannot be a result of it, though it arrived as it was sent. Retried; as soon as
    /// another host has a result, or at once if one has it already, the host's word is taken back, as after a wrong one.
    PieceMalformed {
        /// The attempt.
        attempt: AttemptId,
        /// The piece that it answered.
        piece: Piece,
    },
    /// An attempt is alive, but its replies wait for room in the coordinator: it is not late.
    AttemptPaused {
        /// The attempt.
        attempt: AttemptId,
    },
    /// An attempt is over; its unanswered pieces are tried elsewhere.
    AttemptEnded {
        /// The attempt.
        attempt: AttemptId,
    },
    /// The result of a [`Command::Check`].
    Checked {
        /// As in the command.
        scan: ScanId,
        /// As in the command.
        piece: Piece,
        /// The state of the coordinator's own copy.
        found: Check,
    },
    /// Time has passed.
    Tick,
}

/// The state of the coordinator's own copy of a piece's data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Check {
    /// It matches the manifest.
    Sound,
    /// It does not match, or is missing.
    Damaged,
    /// It could not be read in time.
    Unknown,
}

/// How a scan ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Every piece was accepted or failed. `disputed`: workers returned different results for one, and it could not be
    /// settled which is right.
    Complete {
        /// Whether a dispute could not be settled.
        disputed: bool,
    },
    /// Cancelled on request.
    Cancelled,
    /// There was no worker of its class for too long.
    NoWorker,
    /// Its deadline passed.
    DeadlineExceeded,
    /// Too many of its symbols killed workers.
    Poisoned,
}

/// Why pieces were dispatched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// No other worker runs them.
    Work,
    /// They are suspected of killing workers: nothing else runs on this worker meanwhile.
    Isolation,
    /// Another worker is running them, and is late.
    Hedge,
    /// They are answered, but it is unconfirmed which answer is right.
    Vote,
}

/// An action of the shell; commands are to be executed in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// Send `pieces` (ascending; a part of a segment is always alone) to `worker`.
    Dispatch {
        /// Its new id.
        attempt: AttemptId,
        /// The scan.
        scan: ScanId,
        /// The worker to send to.
        worker: WorkerId,
        /// Ascending; a part of a segment is always alone.
        pieces: Vec<Piece>,
        /// Why they are dispatched.
        purpose: Purpose,
    },
    /// This attempt is no longer awaited.
    Stop {
        /// The attempt.
        attempt: AttemptId,
    },
    /// The result just reported counts; sent once per piece.
    Accept {
        /// The scan.
        scan: ScanId,
        /// The piece.
        piece: Piece,
    },
    /// The result just reported replaces the accepted one, which was wrong.
    Replace {
        /// The scan.
        scan: ScanId,
        /// The piece.
        piece: Piece,
    },
    /// The piece has no result and gets no more attempts; sent once per piece, and never for an accepted one.
    Fail {
        /// The scan.
        scan: ScanId,
        /// The piece.
        piece: Piece,
        /// The kind of its failure.
        kind: ErrorKind,
        /// Number of attempts made.
        attempts: u32,
    },
    /// Two hosts returned different results for this piece; others are asked.
    Contest {
        /// The scan.
        scan: ScanId,
        /// The piece in dispute.
        piece: Piece,
    },
    /// One host reports that the piece fails, and there is no other host to ask: read the coordinator's own copy of its
    /// data, and report [`Event::Checked`].
    Check {
        /// The scan.
        scan: ScanId,
        /// The piece whose data are to be read.
        piece: Piece,
    },
    /// This host failed a piece whose data are sound elsewhere: it receives nothing more. Its other results are still
    /// accepted.
    Distrust {
        /// The host.
        host: HostId,
        /// The scan of the piece.
        scan: ScanId,
        /// The piece that it failed.
        piece: Piece,
    },
    /// The majority contradicts this host's result for the piece: it receives nothing more, and none of its results
    /// count.
    Quarantine {
        /// The host.
        host: HostId,
        /// The scan of the piece.
        scan: ScanId,
        /// The piece whose result was contradicted.
        piece: Piece,
    },
    /// A scan that ended complete contains a result that has become unconfirmed.
    Doubt {
        /// The scan.
        scan: ScanId,
    },
    /// The last command about this scan, except for `Doubt`.
    End {
        /// The scan.
        scan: ScanId,
        /// How it ends.
        outcome: Outcome,
    },
}
