//! `trawl-bench scheduler`: the planner and the scheduler at their design size, 1,000 workers and 1,000,000 symbols.
//!
//! Reports the median time of a plan, of one whose assignment is known from another scan, and of a plan until its first shards are
//! dispatched; events per second of a scan without failures; and the cost of churn of 10% of the workers per minute: dispatches beyond
//! one per shard, and the slowest single step.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde::Serialize;
use trawl_bench::{Machine, machine};
use trawl_coordinator::planner::{Assignment, Holdings, SegmentCost, Shard, WorkerSeat, name_key};
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

/// Arguments of the benchmark.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Report {
    benchmark: &'static str,
    engine: &'static str,
    machine: Machine,
    workers: u64,
    symbols: u32,
    segments: usize,
    shards: usize,
    /// Medians.
    plan_ms: f64,
    /// Of a scan whose snapshot was planned before for the same workers.
    plan_again_ms: f64,
    /// From nothing to the first shards.
    plan_and_dispatch_ms: f64,
    thousand_events_per_second: f64,
    thousand_events_per_second_of_single_segments: f64,
    churn: ChurnReport,
}

#[derive(Debug, Serialize)]
struct ChurnReport {
    /// How often each segment was dispatched.
    dispatched_each: f64,
    dispatches: u64,
    workers_lost: u64,
    simulated_s: f64,
    slowest_step_ms: f64,
    complete: bool,
}

fn assigned(costs: &[SegmentCost]) -> Assignment {
    let seats: Vec<WorkerSeat<'_>> = (1..=WORKERS)
        .map(|worker| WorkerSeat {
            worker,
            key: name_key(&format!("w{worker}")),
            device: false,
            capacity: 1,
            holds: Holdings::default(),
        })
        .collect();
    Assignment::of(costs, &seats, name_key("market"))
}

fn planned(costs: &[SegmentCost]) -> Vec<Shard> {
    assigned(costs).shards(|cost| cost)
}

fn with_workers() -> Scheduler {
    let mut scheduler = Scheduler::new(Limits::default(), 0);
    for worker in 1..=WORKERS {
        scheduler.step(Event::WorkerJoined { worker, host: worker, class: 0, slots: SLOTS }, 0);
    }
    scheduler
}

fn submit(scheduler: &mut Scheduler, shards: Vec<Shard>) -> Vec<Command> {
    let symbols = shards.iter().flat_map(|s| s.segments.iter().map(|g| (*g, SYMBOLS_PER_SEGMENT))).collect();
    let request = Request { shards, symbols, ..Request::default() };
    scheduler.step(Event::Submitted { scan: 1, request }, 0)
}

fn started(shards: Vec<Shard>) -> (Scheduler, Vec<Command>) {
    let mut scheduler = with_workers();
    let commands = submit(&mut scheduler, shards);
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

/// The median of so many times, in milliseconds.
fn median_ms(mut run: impl FnMut() -> Duration) -> f64 {
    let mut times: Vec<f64> = (0..PLANS).map(|_| run().as_secs_f64() * 1e3).collect();
    times.sort_by(f64::total_cmp);
    times[PLANS / 2]
}

fn timed<T>(run: impl FnOnce() -> T) -> Duration {
    let started = Instant::now();
    std::hint::black_box(run());
    started.elapsed()
}

/// Measures.
///
/// # Errors
/// When a scan does not end.
pub fn run(args: &Args) -> Result<ExitCode> {
    let costs = costs();
    let plan_ms = median_ms(|| timed(|| planned(&costs)));
    let known = assigned(&costs);
    let plan_again_ms = median_ms(|| timed(|| known.shards(|cost| cost)));
    let plan_and_dispatch_ms = median_ms(|| {
        let mut scheduler = with_workers();
        timed(|| submit(&mut scheduler, planned(&costs)))
    });
    let shards = planned(&costs);
    let single = |c: &SegmentCost| Shard {
        segments: vec![c.segment],
        cost: c.cost,
        preferred: None,
        holders: Vec::new(),
        cold_ms: 0,
    };
    let churned = churn(shards.clone());
    ensure!(churned.outcome.is_some(), "the scan with churn does not end");
    let report = Report {
        benchmark: "scheduler",
        engine: trawl_wire::limits::ENGINE,
        machine: machine(),
        workers: WORKERS,
        symbols: SYMBOLS,
        segments: costs.len(),
        shards: shards.len(),
        plan_ms,
        plan_again_ms,
        plan_and_dispatch_ms,
        thousand_events_per_second: throughput(shards) / 1e3,
        thousand_events_per_second_of_single_segments: throughput(costs.iter().map(single).collect()) / 1e3,
        churn: ChurnReport {
            dispatched_each: churned.pieces as f64 / costs.len() as f64,
            dispatches: churned.dispatches,
            workers_lost: churned.lost,
            simulated_s: churned.simulated_s,
            slowest_step_ms: churned.slowest.as_secs_f64() * 1e3,
            complete: churned.outcome == Some(Outcome::Complete { disputed: false }),
        },
    };
    if args.json {
        println!("{}", serde_json::to_string_pretty(&report)?);
        return Ok(ExitCode::SUCCESS);
    }
    let Report { workers, symbols, segments, shards, churn, .. } = &report;
    println!("{workers} workers, {symbols} symbols in {segments} segments, {shards} shards; medians of {PLANS}");
    println!("plan                     {plan_ms:8.1} ms");
    println!("plan of a known snapshot {plan_again_ms:8.1} ms");
    println!("plan and dispatch        {plan_and_dispatch_ms:8.1} ms");
    println!("events                   {:8.0} thousand/s", report.thousand_events_per_second);
    println!("events, per segment      {:8.0} thousand/s", report.thousand_events_per_second_of_single_segments);
    println!(
        "churn of 10%/min: each piece dispatched {:.2} times, {} dispatches, {} workers lost in {:.0} simulated s, slowest step {:.2} ms, {}",
        churn.dispatched_each,
        churn.dispatches,
        churn.workers_lost,
        churn.simulated_s,
        churn.slowest_step_ms,
        if churn.complete { "complete" } else { "not complete" }
    );
    Ok(ExitCode::SUCCESS)
}
