//! `trawl bench overhead`: what a cluster adds to the computing time of its workers.
//!
//! The same scan runs repeatedly through a coordinator whose workers hold the bars in memory: the time that the client
//! sees, less the time that the busiest worker computed (one thread each). What the slowest of them waited for is kept stage by stage. Then many
//! small scans run concurrently, ephemeral and recorded, each with a plan of its own, and of plans that are prepared; none of them may be lost.
//! All of them share one connection. Percentiles are of HDR histograms. `benches/overhead.sh` starts the cluster.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use hdrhistogram::Histogram;
use serde::Serialize;
use trawl_cluster_store::{ControlStore as _, EtcdStore};
use trawl_coordinator::NoProgress;
use trawl_coordinator::client::{ScanCall, Scanned, Session};
use trawl_coordinator::report::ShardRun;
use trawl_plan::ScanDocument;
use trawl_telemetry::names::span as stage;

use crate::cpu::{self, CpuMs};
use trawl_bench::{Machine, machine};

/// Runs before measuring starts: they load the bars into the memory of every worker that may be given them.
const WARM_UPS: usize = 50;
/// Histograms count microseconds, up to ten minutes, with three digits.
const LONGEST_US: u64 = 600_000_000;
const DIGITS: u8 = 3;
/// Of so many scans, one is among the slowest.
const SLOWEST_ONE_IN: usize = 50;
/// Plans of the small scans that are prepared: fewer than the 64 that a worker keeps.
const PREPARED_PLANS: u32 = 48;
/// How often each of them runs before: until every worker has had it.
const PREPARED_ROUNDS: u32 = 8;
/// Puts into the control store that are timed.
const COMMITS: usize = 100;

/// Arguments of the benchmark.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The cluster's coordinator
    #[arg(long, value_name = "URL")]
    coordinator: String,
    /// Its etcd, to measure how long a commit takes
    #[arg(long, value_name = "URL")]
    etcd: String,
    /// The dataset of the big scan
    #[arg(long, value_name = "NAME")]
    dataset: String,
    /// The dataset of the many small scans
    #[arg(long, value_name = "NAME")]
    small: String,
    /// Scans one after the other
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    repeats: u32,
    /// Small scans at once
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=4096))]
    concurrent: u32,
    /// Process id of the `trawl cluster up` that runs the cluster on this machine: its CPU time is reported as well
    #[arg(long, value_name = "PID")]
    cluster: Option<u32>,
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
}

/// Milliseconds.
#[derive(Debug, Serialize)]
struct Spread {
    median: f64,
    p90: f64,
    p99: f64,
    most: f64,
}

impl Spread {
    fn of(histogram: &Histogram<u64>) -> Self {
        let at = |quantile| histogram.value_at_quantile(quantile) as f64 / 1e3;
        Self { median: at(0.5), p90: at(0.9), p99: at(0.99), most: histogram.max() as f64 / 1e3 }
    }
}

fn histogram() -> Result<Histogram<u64>> {
    Histogram::new_with_bounds(1, LONGEST_US, DIGITS).context("a histogram")
}

/// Where the time of a scan went, in milliseconds, as its report says: along the shard that ended last.
#[derive(Debug, Clone, Copy, Default, Serialize)]
struct Where {
    /// What the client waited for.
    seen: f64,
    /// Compiling the plan, at the coordinator.
    prepare: f64,
    /// From there until the shard was sent.
    dispatch: f64,
    /// From the request's arrival at the worker until a compute thread took it up.
    queue: f64,
    /// Computing, from the first segment to the last.
    compute: f64,
    /// The rest of the shard: its request and its replies on their way, and waiting to be read.
    transit: f64,
    /// From the end of the last shard until the step was over.
    end: f64,
    /// The digest of the answer at the coordinator, and checking and merging at the client.
    merge: f64,
    /// What nobody reports: the client's request, and its answer on its way.
    rest: f64,
}

impl Where {
    fn of(scanned: &Scanned, seen: f64) -> Self {
        let report = &scanned.report;
        let ended = |run: &ShardRun| run.ended_ms.unwrap_or(run.started_ms);
        let last = report.shard_runs.iter().max_by(|a, b| ended(a).total_cmp(&ended(b)));
        let (mut dispatch, mut queue, mut compute, mut transit, mut end) = (0.0, 0.0, 0.0, 0.0, 0.0);
        if let Some(run) = last {
            let waited = |stage: &str| {
                let times = run.timings.iter().flat_map(|times| &times.stages).filter(move |time| time.stage == stage);
                times.map(|time| time.ended_ms - time.started_ms).fold(0.0, f64::max)
            };
            let total = run.timings.as_ref().map_or(0.0, |times| times.total_ms);
            dispatch = run.started_ms;
            queue = waited(stage::QUEUE);
            compute = (total - queue).max(0.0);
            transit = (ended(run) - run.started_ms - total).max(0.0);
            end = (report.run_ms - ended(run)).max(0.0);
        }
        let rest = (seen - report.prepare_ms - report.run_ms - report.merge_ms).max(0.0);
        let (prepare, merge) = (report.prepare_ms, report.merge_ms);
        Self { seen, prepare, dispatch, queue, compute, transit, end, merge, rest }
    }

    /// Of each part the mean.
    fn mean(of: &[Self]) -> Self {
        let mean = |part: fn(&Self) -> f64| of.iter().map(part).sum::<f64>() / of.len().max(1) as f64;
        Self {
            seen: mean(|one| one.seen),
            prepare: mean(|one| one.prepare),
            dispatch: mean(|one| one.dispatch),
            queue: mean(|one| one.queue),
            compute: mean(|one| one.compute),
            transit: mean(|one| one.transit),
            end: mean(|one| one.end),
            merge: mean(|one| one.merge),
            rest: mean(|one| one.rest),
        }
    }

    fn parts(&self) -> [(&'static str, f64); 9] {
        [
            ("seen", self.seen),
            ("prepare", self.prepare),
            ("dispatch", self.dispatch),
            ("queue", self.queue),
            ("compute", self.compute),
            ("transit", self.transit),
            ("end", self.end),
            ("merge", self.merge),
            ("rest", self.rest),
        ]
    }
}

/// One way of running the big scan.
#[derive(Debug, Serialize)]
struct Way {
    /// Scans that did read bars from disk; they are not counted.
    cold: u32,
    seen_ms: Spread,
    /// Of the busiest worker.
    compute_ms: Spread,
    /// Of all workers together.
    compute_all_ms: Spread,
    /// `seen` less `compute`, scan by scan.
    overhead_ms: Spread,
    /// `seen` less the smallest possible computing time when workers share the machine's cores: the busiest worker's
    /// time, or all workers' time divided by the number of cores.
    above_floor_ms: Spread,
    /// The digest of the answer at the coordinator, which merges nothing, and checking and merging at the client; both are part of the
    /// overhead.
    merge_ms: Spread,
    prepare_ms: Spread,
    /// Of the faster half of the scans.
    where_usual: Where,
    /// Of the slowest fiftieth.
    where_slowest: Where,
    /// Share of the machine's CPU time that other guests of its host took meanwhile; `None` where the kernel does not say.
    stolen_percent: Option<f64>,
    /// CPU time of a scan, cold ones included.
    cpu_ms: Option<CpuMs>,
}

#[derive(Debug, Serialize)]
struct Crowd {
    scans: u32,
    /// Different plans among them: each is compiled once by every process that takes part, unless it was before.
    plans: u32,
    /// Whether every worker had prepared the plans before.
    prepared: bool,
    answered: u32,
    /// From the first submission to the last answer.
    total_ms: f64,
    scans_per_second: f64,
    seen_ms: Spread,
    /// CPU time of a scan.
    cpu_ms: Option<CpuMs>,
}

#[derive(Serialize)]
struct Report {
    benchmark: &'static str,
    engine: &'static str,
    machine: Machine,
    workers: usize,
    symbols: u64,
    bars: u64,
    segments: u32,
    repeats: u32,
    ephemeral: Way,
    durable: Way,
    /// One put of a small value into etcd; the coordinator does two per scan.
    commit_ms: Spread,
    /// Each with a plan of its own, which nobody has prepared.
    crowd: Crowd,
    /// As many, of so few plans that workers keep them prepared, and have done so.
    prepared_crowd: Crowd,
    /// As `crowd`, recorded.
    durable_crowd: Crowd,
}

fn document(dataset: &str) -> ScanDocument {
    ScanDocument {
        dataset: Some(dataset.to_owned()),
        condition: "close > sma(close, 50)".to_owned(),
        rank: Some("close".to_owned()),
        select: vec!["close".to_owned()],
        ..ScanDocument::default()
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX).clamp(1, LONGEST_US)
}

fn of_ms(ms: f64) -> u64 {
    ((ms * 1e3) as u64).clamp(1, LONGEST_US)
}

/// Milliseconds that the busiest worker computed, and all workers together; workers have one thread.
fn busy_ms(scanned: &Scanned) -> (f64, f64) {
    let mut busy: BTreeMap<&str, f64> = BTreeMap::new();
    for run in &scanned.report.segment_runs {
        *busy.entry(&run.worker).or_default() += run.busy_ms;
    }
    (busy.values().copied().fold(0.0, f64::max), busy.values().sum())
}

async fn measured(
    (args, session): (&Args, &Session),
    ephemeral: bool,
    expected: &mut Option<String>,
) -> Result<(Way, Scanned)> {
    let call = ScanCall { document: document(&args.dataset), ephemeral, fresh: true, ..ScanCall::default() };
    let (mut seen, mut compute, mut overhead) = (histogram()?, histogram()?, histogram()?);
    let (mut all, mut above) = (histogram()?, histogram()?);
    let (mut merge, mut prepare) = (histogram()?, histogram()?);
    let cores = machine().cores.max(1) as f64;
    let (mut last, mut cold, mut before, mut places) = (None, 0, None, Vec::new());
    let mut stolen = cpu::Stolen::so_far();
    for run in 0..WARM_UPS + args.repeats as usize {
        if run == WARM_UPS {
            before = cpu_so_far(args)?;
            stolen = cpu::Stolen::so_far();
        }
        let started = Instant::now();
        let scanned = session.scan(&call, &NoProgress).await?;
        let took = started.elapsed();
        // The client has checked it against what it received.
        let digest = scanned.answer.digest.clone();
        ensure!(*expected.get_or_insert_with(|| digest.clone()) == digest, "the answer differs from the previous one");
        if run >= WARM_UPS {
            // A segment that a worker took for the first time was read from disk, which is not overhead of the cluster.
            if !scanned.report.segment_runs.iter().all(|run| run.resident) {
                cold += 1;
                continue;
            }
            let (busy, together) = busy_ms(&scanned);
            let floor = busy.max(together / cores);
            seen.record(micros(took))?;
            compute.record(of_ms(busy))?;
            overhead.record(of_ms((took.as_secs_f64() * 1e3 - busy).max(0.0)))?;
            all.record(of_ms(together))?;
            above.record(of_ms((took.as_secs_f64() * 1e3 - floor).max(0.0)))?;
            merge.record(of_ms(scanned.report.merge_ms))?;
            prepare.record(of_ms(scanned.report.prepare_ms))?;
            places.push(Where::of(&scanned, took.as_secs_f64() * 1e3));
        }
        last = Some(scanned);
    }
    ensure!(cold < args.repeats, "bars were read from disk in every scan: give the workers more --cache-bytes");
    places.sort_by(|a, b| a.seen.total_cmp(&b.seen));
    let slowest = places.len() - places.len().div_ceil(SLOWEST_ONE_IN).min(places.len());
    let way = Way {
        where_usual: Where::mean(&places[..places.len().div_ceil(2)]),
        where_slowest: Where::mean(&places[slowest..]),
        stolen_percent: stolen.zip(cpu::Stolen::so_far()).map(|(before, now)| now.percent_since(&before)),
        cold,
        seen_ms: Spread::of(&seen),
        compute_ms: Spread::of(&compute),
        compute_all_ms: Spread::of(&all),
        overhead_ms: Spread::of(&overhead),
        above_floor_ms: Spread::of(&above),
        merge_ms: Spread::of(&merge),
        prepare_ms: Spread::of(&prepare),
        cpu_ms: cpu_each(args, before, args.repeats)?,
    };
    Ok((way, last.context("no runs")?))
}

/// CPU time so far, if the cluster's processes are known.
fn cpu_so_far(args: &Args) -> Result<Option<CpuMs>> {
    args.cluster.map(CpuMs::so_far).transpose()
}

/// CPU time of each of so many scans since `before`.
fn cpu_each(args: &Args, before: Option<CpuMs>, scans: u32) -> Result<Option<CpuMs>> {
    Ok(cpu_so_far(args)?.zip(before).map(|(now, before)| now.since(&before, scans as usize)))
}

async fn commits(args: &Args) -> Result<Spread> {
    let store = EtcdStore::new(&args.etcd)?;
    let mut taken = histogram()?;
    for _ in 0..COMMITS {
        let started = Instant::now();
        store.put("trawl-bench/commit", vec![0; 1024], None).await?;
        taken.record(micros(started.elapsed()))?;
    }
    store.delete("trawl-bench/commit").await?;
    Ok(Spread::of(&taken))
}

/// Many small scans at once over one connection: each with a plan of its own or, if they are to be `prepared`, of a few plans that ran before.
async fn crowd((args, session): (&Args, &Session), ephemeral: bool, prepared: bool) -> Result<Crowd> {
    let plans = if prepared { PREPARED_PLANS.min(args.concurrent) } else { args.concurrent };
    let call = |number: u32| {
        // The symbols that match do not depend on it: no close is that low.
        let condition = format!("close > sma(close, 50) and close > -{number}");
        let document = ScanDocument { condition, ..document(&args.small) };
        ScanCall { document, ephemeral, fresh: true, ..ScanCall::default() }
    };
    let expected = matches_of(&session.scan(&call(0), &NoProgress).await?);
    for _ in 0..if prepared { PREPARED_ROUNDS } else { 0 } {
        for number in 1..=plans {
            session.scan(&call(number), &NoProgress).await?;
        }
    }
    let before = cpu_so_far(args)?;
    let started = Instant::now();
    let tasks: Vec<_> = (0..args.concurrent)
        .map(|number| {
            let (session, call) = (session.clone(), call(number % plans + 1));
            tokio::spawn(async move {
                let scanned = session.scan(&call, &NoProgress).await;
                (scanned.map(|scanned| matches_of(&scanned)), started.elapsed())
            })
        })
        .collect();
    let (mut seen, mut answered) = (histogram()?, 0);
    for task in tasks {
        let (matches, took) = task.await?;
        ensure!(matches? == expected, "the answer differs from that of a single scan");
        answered += 1;
        seen.record(micros(took))?;
    }
    let total = started.elapsed();
    Ok(Crowd {
        scans: args.concurrent,
        plans,
        prepared,
        answered,
        total_ms: total.as_secs_f64() * 1e3,
        scans_per_second: f64::from(answered) / total.as_secs_f64(),
        seen_ms: Spread::of(&seen),
        cpu_ms: cpu_each(args, before, args.concurrent)?,
    })
}

/// The symbols that match, in their order.
fn matches_of(scanned: &Scanned) -> Vec<String> {
    scanned.answer.rows.iter().filter(|row| row.place.is_some()).map(|row| row.row.symbol.clone()).collect()
}

fn print_cpu(cpu: Option<&CpuMs>) {
    if let Some(cpu) = cpu {
        let parts: Vec<String> = cpu.parts().iter().map(|(name, ms)| format!("{name} {ms:.2}")).collect();
        println!("  CPU ms a scan: {}", parts.join(", "));
    }
}

/// Measures.
///
/// # Errors
/// When a scan fails, or its answer differs from the first one's.
pub fn run(args: &Args) -> Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let report = runtime.block_on(async {
        let mut expected = None;
        let session = Session::new(&args.coordinator, ScanCall::default().security);
        let (ephemeral, last) = measured((args, &session), true, &mut expected).await?;
        let (durable, _) = measured((args, &session), false, &mut expected).await?;
        let workers: std::collections::BTreeSet<&str> =
            last.report.segment_runs.iter().map(|run| run.worker.as_str()).collect();
        anyhow::Ok(Report {
            benchmark: "overhead",
            engine: trawl_wire::limits::ENGINE,
            machine: machine(),
            workers: workers.len(),
            symbols: last.report.symbols,
            bars: last.report.bars,
            segments: last.report.segments,
            repeats: args.repeats,
            ephemeral,
            durable,
            commit_ms: commits(args).await?,
            crowd: crowd((args, &session), true, false).await?,
            prepared_crowd: crowd((args, &session), true, true).await?,
            durable_crowd: crowd((args, &session), false, false).await?,
        })
    })?;
    if args.json {
        println!("{}", serde_json::to_string_pretty(&report)?);
        return Ok(ExitCode::SUCCESS);
    }
    println!(
        "{} symbols, {} bars, {} segments on {} workers; {} scans each way; {}, {} cores",
        report.symbols,
        report.bars,
        report.segments,
        report.workers,
        report.repeats,
        report.machine.processor,
        report.machine.cores
    );
    println!("milliseconds            median       p90       p99      most");
    let line =
        |name: &str, s: &Spread| println!("{name:<20}{:>10.2}{:>10.2}{:>10.2}{:>10.2}", s.median, s.p90, s.p99, s.most);
    for (name, way) in [("ephemeral", &report.ephemeral), ("durable", &report.durable)] {
        line(&format!("{name} seen"), &way.seen_ms);
        line("  busiest worker", &way.compute_ms);
        line("  all workers", &way.compute_all_ms);
        line("  overhead", &way.overhead_ms);
        line("  above the floor", &way.above_floor_ms);
        line("  of it: prepare", &way.prepare_ms);
        line("  of it: digest, merge", &way.merge_ms);
        for (which, place) in [("faster half", &way.where_usual), ("slowest", &way.where_slowest)] {
            let parts: Vec<String> = place.parts().iter().map(|(name, ms)| format!("{name} {ms:.2}")).collect();
            println!("  {which}, mean ms: {}", parts.join(", "));
        }
        if let Some(stolen) = way.stolen_percent {
            println!("  CPU time that other guests of the host took: {stolen:.1} %");
        }
        print_cpu(way.cpu_ms.as_ref());
    }
    line("a commit in etcd", &report.commit_ms);
    for (name, crowd) in
        [("ephemeral", &report.crowd), ("ephemeral", &report.prepared_crowd), ("durable", &report.durable_crowd)]
    {
        println!(
            "{} small {name} scans at once, {} plans that are {}: {} answered in {:.0} ms, {:.0} a second",
            crowd.scans,
            crowd.plans,
            if crowd.prepared { "prepared" } else { "new" },
            crowd.answered,
            crowd.total_ms,
            crowd.scans_per_second
        );
        print_cpu(crowd.cpu_ms.as_ref());
    }
    Ok(ExitCode::SUCCESS)
}
