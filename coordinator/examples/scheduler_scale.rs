//! Benchmarks the planner and the scheduler at their design size: 1,000 workers, 1,000,000 symbols.
//!
//! Prints the median time of a plan, events per second of a scan without failures, and the cost of churn of 10% of the
//! workers per minute: dispatches beyond one per shard, and the slowest single step.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::time::{Duration, Instant};

use trawl_coordinator::planner::{Holdings, SegmentCost, Shard, ShardSpec, WorkerSeat, name_key, plan_shards};
use trawl_coordinator::scheduler::{
    AttemptId, Command, Event, Limits, Loss, Outcome, Piece, Request, Scheduler, WorkerId,
};

const WORKERS: u64 = 1_000;
const SYMBOLS: u32 = 1_000_000;
const SYMBOLS_PER_SEGMENT: u32 = 64;
const SLOTS: usize = 2;
const PLANS: usize = 9;
/// Simulated time of one segment.
const SEGMENT_MS: u64 = 4_000;
/// Interval at which a worker dies: 10% of them per minute.
const CHURN_MS: u64 = 600;

fn costs() -> Vec<SegmentCost> {
    (0..SYMBOLS / SYMBOLS_PER_SEGMENT)
        .map(|segment| SegmentCost { segment, cost: 1_000_000 + u64::from(segment % 97) * 10_000 })
        .collect()
}

fn planned(costs: &[SegmentCost]) -> Vec<Shard> {
    let seats: Vec<WorkerSeat<'_>> = (1..=WORKERS)
        .map(|worker| WorkerSeat {
            worker,
            key: name_key(&format!("w{worker}")),
            device: false,
            capacity: 1,
            holds: Holdings::default(),
        })
        .collect();
    plan_shards(costs, &seats, ShardSpec::Automatic, name_key("market"))
}

fn started(shards: Vec<Shard>) -> (Scheduler, Vec<Command>) {
    let mut scheduler = Scheduler::new(Limits::default(), 0);
    for worker in 1..=WORKERS {
        scheduler.step(Event::WorkerJoined { worker, host: worker, class: 0, slots: SLOTS }, 0);
    }
    let symbols = shards.iter().flat_map(|s| s.segments.iter().map(|g| (*g, SYMBOLS_PER_SEGMENT))).collect();
    let request = Request { shards, symbols, ..Request::default() };
    let commands = scheduler.step(Event::Submitted { scan: 1, request }, 0);
    (scheduler, commands)
}

/// A scan in which every dispatch is answered at once. Returns events per second.
fn throughput(shards: Vec<Shard>) -> f64 {
    let (mut scheduler, mut commands) = started(shards);
    let (start, mut events) = (Instant::now(), 0u64);
    while let Some(command) = commands.pop() {
        let Command::Dispatch { attempt, scan, worker, pieces, .. } = command else { continue };
        for piece in pieces {
            let done = Event::PieceDone { scan, attempt, host: worker, piece, digest: [1; 32] };
            commands.extend(scheduler.step(done, 1));
            events += 1;
        }
        commands.extend(scheduler.step(Event::AttemptEnded { attempt }, 1));
        events += 1;
    }
    assert!(scheduler.is_idle());
    events as f64 / start.elapsed().as_secs_f64()
}

struct Churned {
    simulated_s: f64,
    lost: u64,
    dispatches: u64,
    pieces: u64,
    slowest: Duration,
    outcome: Option<Outcome>,
}

/// A scan in which a worker dies every [`CHURN_MS`] and another takes its place.
fn churn(shards: Vec<Shard>) -> Churned {
    let (mut scheduler, mut commands) = started(shards);
    let mut churned =
        Churned { simulated_s: 0.0, lost: 0, dispatches: 0, pieces: 0, slowest: Duration::ZERO, outcome: None };
    let mut due: BinaryHeap<Reverse<(u64, AttemptId)>> = BinaryHeap::new();
    let mut running: BTreeMap<AttemptId, (WorkerId, Vec<Piece>)> = BTreeMap::new();
    let (mut now, mut next_loss, mut oldest, mut newest) = (0, CHURN_MS, 1, WORKERS);
    while churned.outcome.is_none() {
        for command in std::mem::take(&mut commands) {
            match command {
                Command::Dispatch { attempt, worker, pieces, .. } => {
                    churned.dispatches += 1;
                    churned.pieces += pieces.len() as u64;
                    due.push(Reverse((now + SEGMENT_MS * pieces.len() as u64, attempt)));
                    running.insert(attempt, (worker, pieces));
                }
                Command::Stop { attempt } => drop(running.remove(&attempt)),
                Command::End { outcome, .. } => churned.outcome = Some(outcome),
                _ => {}
            }
        }
        let at = due.peek().map_or(next_loss, |Reverse((at, _))| *at);
        let mut events = Vec::new();
        if at < next_loss {
            now = at;
            let Some(Reverse((_, attempt))) = due.pop() else { break };
            let Some((worker, pieces)) = running.remove(&attempt) else { continue };
            let done = |piece| Event::PieceDone { scan: 1, attempt, host: worker, piece, digest: [1; 32] };
            events.extend(pieces.into_iter().map(done));
            events.push(Event::AttemptEnded { attempt });
        } else {
            now = next_loss;
            next_loss += CHURN_MS;
            newest += 1;
            events.push(Event::WorkerLost { worker: oldest, loss: Loss::Died });
            events.push(Event::WorkerJoined { worker: newest, host: newest, class: 0, slots: SLOTS });
            events.push(Event::Tick);
            oldest += 1;
            churned.lost += 1;
        }
        for event in events {
            let start = Instant::now();
            commands.extend(scheduler.step(event, now));
            churned.slowest = churned.slowest.max(start.elapsed());
        }
    }
    churned.simulated_s = now as f64 / 1e3;
    churned
}

fn main() {
    let costs = costs();
    let mut times: Vec<f64> = (0..PLANS)
        .map(|_| {
            let start = Instant::now();
            std::hint::black_box(planned(&costs));
            start.elapsed().as_secs_f64() * 1e3
        })
        .collect();
    times.sort_by(f64::total_cmp);
    let shards = planned(&costs);
    println!("{WORKERS} workers, {SYMBOLS} symbols in {} segments, {} shards", costs.len(), shards.len());
    println!("plan                {:8.1} ms (median of {PLANS})", times[PLANS / 2]);
    println!("events              {:8.0} thousand/s", throughput(shards.clone()) / 1e3);
    let per_segment: Vec<Shard> = costs
        .iter()
        .map(|c| Shard { segments: vec![c.segment], cost: c.cost, preferred: None, holders: Vec::new(), cold_ms: 0 })
        .collect();
    println!("events, per segment {:8.0} thousand/s", throughput(per_segment) / 1e3);
    let churned = churn(shards.clone());
    println!(
        "churn of 10%/min    {:8.2} pieces dispatched for each, {} dispatches for {} shards, {} workers lost in {:.0} s, slowest step {:.2} ms, {:?}",
        churned.pieces as f64 / costs.len() as f64,
        churned.dispatches,
        shards.len(),
        churned.lost,
        churned.simulated_s,
        churned.slowest.as_secs_f64() * 1e3,
        churned.outcome
    );
}
