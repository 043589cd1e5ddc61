//! `trawl bench overhead`: what a cluster adds to the computing time of its workers.
//!
//! The same scan runs repeatedly through a coordinator whose workers hold the bars in memory: the time that the client
//! sees, less the time that the busiest worker computed (one thread each). Then many small scans run concurrently, ephemeral and
//! recorded, each with a plan of its own, none of which may be lost. All of them share one connection. Percentiles are of HDR
//! histograms. `benches/overhead.sh` starts the cluster.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use hdrhistogram::Histogram;
use serde::Serialize;
use trawl_cluster_store::{ControlStore as _, EtcdStore};
use trawl_coordinator::NoProgress;
use trawl_coordinator::client::{ScanCall, Scanned, Session};
use trawl_plan::ScanDocument;

use crate::cpu::CpuMs;
use trawl_bench::{Machine, machine};

/// Runs before measuring starts: they load the bars into the memory of every worker that may be given them.
const WARM_UPS: usize = 50;
/// Histograms count microseconds, up to ten minutes, with three digits.
const LONGEST_US: u64 = 600_000_000;
const DIGITS: u8 = 3;
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
    /// Merging takes place at the coordinator and at the client; both are part of the overhead.
    merge_ms: Spread,
    prepare_ms: Spread,
    /// CPU time of a scan, cold ones included.
    cpu_ms: Option<CpuMs>,
}

#[derive(Debug, Serialize)]
struct Crowd {
    scans: u32,
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
    crowd: Crowd,
    /// The same, recorded.
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
    let (mut last, mut cold, mut before) = (None, 0, None);
    for run in 0..WARM_UPS + args.repeats as usize {
        if run == WARM_UPS {
            before = cpu(args)?;
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
        }
        last = Some(scanned);
    }
    ensure!(cold < args.repeats, "bars were read from disk in every scan: give the workers more --cache-bytes");
    let way = Way {
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
fn cpu(args: &Args) -> Result<Option<CpuMs>> {
    args.cluster.map(CpuMs::so_far).transpose()
}

/// CPU time of each of so many scans since `before`.
fn cpu_each(args: &Args, before: Option<CpuMs>, scans: u32) -> Result<Option<CpuMs>> {
    Ok(cpu(args)?.zip(before).map(|(now, before)| now.since(&before, scans as usize)))
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

/// Many small scans at once, each with a plan of its own, over one connection.
async fn crowd((args, session): (&Args, &Session), ephemeral: bool) -> Result<Crowd> {
    let call = |number: u32| {
        // The symbols that match do not depend on it: no close is that low.
        let condition = format!("close > sma(close, 50) and close > -{number}");
        let document = ScanDocument { condition, ..document(&args.small) };
        ScanCall { document, ephemeral, fresh: true, ..ScanCall::default() }
    };
    let expected = matches_of(&session.scan(&call(0), &NoProgress).await?);
    let before = cpu(args)?;
    let started = Instant::now();
    let tasks: Vec<_> = (1..=args.concurrent)
        .map(|number| {
            let (session, call) = (session.clone(), call(number));
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
            crowd: crowd((args, &session), true).await?,
            durable_crowd: crowd((args, &session), false).await?,
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
        line("  of it: merge twice", &way.merge_ms);
        print_cpu(way.cpu_ms.as_ref());
    }
    line("a commit in etcd", &report.commit_ms);
    for (name, crowd) in [("ephemeral", &report.crowd), ("durable", &report.durable_crowd)] {
        println!(
            "{} small {name} scans at once: {} answered in {:.0} ms, {:.0} a second",
            crowd.scans, crowd.answered, crowd.total_ms, crowd.scans_per_second
        );
        print_cpu(crowd.cpu_ms.as_ref());
    }
    Ok(ExitCode::SUCCESS)
}
