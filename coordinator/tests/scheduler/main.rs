//! The behaviour of the scheduler, case by case. Invariants are checked in the simulator (`sim`).

mod dispatching;
mod failures;
mod poison;
mod second_answers;

use trawl_coordinator::planner::Shard;
use trawl_coordinator::scheduler::{
    AttemptId, ClassId, Command, DISPUTE_TIMEOUT_MS, Digest, Event, HostId, Limits, Loss, Piece, Purpose, Request,
    Scheduler, WorkerId,
};
use trawl_wire::ErrorKind;

const LIMITS: Limits = Limits {
    attempts_max: 3,
    retry_delay_ms: 10,
    no_worker_timeout_ms: 1000,
    deaths_max: 2,
    poisoned_max: 2,
    hedge_min_ms: 100,
    dispute_timeout_ms: DISPUTE_TIMEOUT_MS,
    attempt_timeout_ms: 5_000,
};
const SLOTS: usize = 2;
const SYMBOLS: u32 = 4;

/// A scheduler and its last commands.
struct Case {
    scheduler: Scheduler,
    commands: Vec<Command>,
    now_ms: u64,
}

fn whole(segment: u32) -> Piece {
    Piece { segment, first: 0, count: SYMBOLS }
}

fn shard(segments: &[u32], preferred: Option<WorkerId>) -> Shard {
    Shard { segments: segments.to_vec(), cost: segments.len() as u64, preferred, holders: Vec::new(), cold_ms: 0 }
}

fn request(shards: &[Shard]) -> Request {
    let symbols = shards.iter().flat_map(|s| s.segments.iter().map(|g| (*g, SYMBOLS))).collect();
    Request { shards: shards.to_vec(), symbols, ..Request::default() }
}

impl Case {
    /// Workers 1, 2, ... of class 0, each its own host.
    fn new(workers: u64, slots: usize) -> Self {
        let mut case = Self { scheduler: Scheduler::new(LIMITS, 0), commands: Vec::new(), now_ms: 0 };
        (1..=workers).for_each(|worker| case.join(worker, 0, slots));
        case
    }

    /// As [`Self::new`], with scan 1 of these shards.
    fn one_scan(workers: u64, shards: &[&[u32]]) -> Self {
        let mut case = Self::new(workers, SLOTS);
        let shards: Vec<Shard> = shards.iter().map(|s| shard(s, None)).collect();
        case.step(Event::Submitted { scan: 1, request: request(&shards) });
        case
    }

    fn step(&mut self, event: Event) -> &[Command] {
        self.commands = self.scheduler.step(event, self.now_ms);
        &self.commands
    }

    fn join(&mut self, worker: WorkerId, class: ClassId, slots: usize) {
        self.step(Event::WorkerJoined { worker, host: worker, class, slots });
    }

    fn wait(&mut self, ms: u64) -> &[Command] {
        self.now_ms += ms;
        self.step(Event::Tick)
    }

    fn done(&mut self, attempt: AttemptId, host: HostId, piece: Piece, digest: u8) -> &[Command] {
        let digest: Digest = [digest; 32];
        self.step(Event::PieceDone { scan: 1, attempt, host, piece, digest })
    }

    fn failed(&mut self, attempt: AttemptId, segment: u32, kind: ErrorKind) -> &[Command] {
        self.step(Event::PieceFailed { attempt, piece: whole(segment), kind })
    }

    fn died(&mut self, worker: WorkerId) -> &[Command] {
        self.step(Event::WorkerLost { worker, loss: Loss::Died })
    }

    /// The last dispatches: attempt, worker, pieces, purpose.
    fn dispatched(&self) -> Vec<(AttemptId, WorkerId, Vec<Piece>, Purpose)> {
        let taken = |c: &Command| match c {
            Command::Dispatch { attempt, worker, pieces, purpose, .. } => {
                Some((*attempt, *worker, pieces.clone(), *purpose))
            }
            _ => None,
        };
        self.commands.iter().filter_map(taken).collect()
    }

    /// Worker and segments of the last dispatches.
    fn places(&self) -> Vec<(WorkerId, Vec<u32>)> {
        self.dispatched().into_iter().map(|(_, w, pieces, _)| (w, pieces.iter().map(|p| p.segment).collect())).collect()
    }

    fn says(&self, command: &Command) -> bool {
        self.commands.contains(command)
    }
}

/// The failure of segment 0.
fn fails(kind: ErrorKind, attempts: u32) -> Command {
    Command::Fail { scan: 1, piece: whole(0), kind, attempts }
}

/// Two hosts returned different results for segment 0; segment 1 is still open on the second. Worker 3 is free.
fn contested(workers: u64) -> Case {
    let mut case = Case::new(2, 1);
    let shards = [shard(&[0, 1], None), shard(&[2], None), shard(&[3], None), shard(&[4], None), shard(&[5], None)];
    case.step(Event::Submitted { scan: 1, request: request(&shards) });
    for segment in 2..6 {
        let attempt = AttemptId::from(segment);
        case.now_ms += 1;
        case.done(attempt, 2, whole(segment), 0);
        case.step(Event::AttemptEnded { attempt });
    }
    case.wait(200);
    assert_eq!(case.dispatched(), [(6, 2, vec![whole(0), whole(1)], Purpose::Hedge)]);
    case.done(1, 1, whole(0), 9);
    (3..=workers).for_each(|worker| case.join(worker, 0, 1));
    case.done(6, 2, whole(0), 0);
    assert!(case.says(&Command::Contest { scan: 1, piece: whole(0) }));
    case
}
