//! `trawl bench tracing`: what tracing costs a scan.
//!
//! The same warm scan, in turns, through clusters that trace more or less; each is compared with the first one round by
//! round, so that other load on the machine affects all alike, and by the CPU time of its processes block by block of rounds. Two clusters
//! that are started alike still differ by some percent for as long as they live: `benches/tracing.sh` starts them anew several times, in another
//! order each time, and puts the blocks together. Also measured: recording a scan's stages by itself, which no variable turns off.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde::Serialize;
use trawl_coordinator::client::{self, ScanCall};
use trawl_coordinator::{NoProgress, answer_digest};
use trawl_kernels::stages::EngineStage;
use trawl_plan::ScanDocument;
use trawl_worker::timeline::{SegmentRecord, Timeline};

use crate::cpu::CpuMs;
use trawl_bench::{Machine, machine};

/// Rounds before measuring starts.
const WARM_UPS: u32 = 30;
/// Records of a scan's stages that are timed.
const RECORDS: u32 = 200;
/// Rounds of a block: the kernel counts CPU time in hundredths of a second for each process.
const BLOCK: u32 = 50;

/// Arguments of the benchmark.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// A cluster: what it traces, and its coordinator; the others are compared with the first
    #[arg(long, value_name = "NAME=URL", required = true, value_parser = way)]
    way: Vec<(String, String)>,
    /// The process that runs a cluster on this machine, as `trawl cluster up` does: its CPU time is compared as well
    #[arg(long, value_name = "NAME=PID", value_parser = process)]
    process: Vec<(String, u32)>,
    /// The dataset that is scanned
    #[arg(long, value_name = "NAME")]
    dataset: String,
    /// The condition to scan for
    #[arg(long = "where", value_name = "EXPR", default_value = "close > sma(close, 50)")]
    condition: String,
    /// Rounds
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    repeats: u32,
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
}

fn way(text: &str) -> Result<(String, String), String> {
    let found = text.split_once('=').filter(|(name, url)| !name.is_empty() && url.starts_with("http"));
    found.map(|(name, url)| (name.to_owned(), url.to_owned())).ok_or_else(|| "NAME=http://... is expected".to_owned())
}

fn process(text: &str) -> Result<(String, u32), String> {
    let found = text.split_once('=').and_then(|(name, id)| Some((name.to_owned(), id.parse().ok()?)));
    found.ok_or_else(|| "NAME=PID is expected".to_owned())
}

/// One cluster.
#[derive(Debug, Serialize)]
struct Way {
    name: String,
    median_ms: f64,
    p90_ms: f64,
    /// The median over rounds of its time less the first cluster's in the same round, in percent of the first one's
    /// median.
    cost_percent: f64,
    /// The middle half of the rounds lies between these.
    cost_percent_quartiles: [f64; 2],
    /// CPU milliseconds of a scan in each block of rounds: of the coordinator and all workers.
    cpu_blocks_ms: Vec<f64>,
    /// The median over blocks of its CPU time less the first cluster's in the same block, in percent of the first one's median.
    cpu_cost_percent: Option<f64>,
    /// The middle half of the blocks lies between these.
    cpu_cost_percent_quartiles: Option<[f64; 2]>,
}

/// Median and middle half of the differences between pairs, in percent of the median of `first`. Differences, not quotients: noise then
/// affects both directions alike.
fn cost(mine: &[f64], first: &[f64]) -> (f64, [f64; 2]) {
    let usual = quantile(&sorted(first.iter().copied()), 0.5);
    let costs = sorted(mine.iter().zip(first).map(|(mine, first)| (mine - first) / usual * 100.0));
    (quantile(&costs, 0.5), [quantile(&costs, 0.25), quantile(&costs, 0.75)])
}

#[derive(Serialize)]
struct Report {
    benchmark: &'static str,
    engine: &'static str,
    machine: Machine,
    condition: String,
    symbols: u64,
    segments: u32,
    rounds: u32,
    /// Of each cluster, warm-up included.
    scans: u32,
    ways: Vec<Way>,
    /// Recording the stages of all segments of one scan, without sending them.
    record_us: f64,
}

/// The value below which this share of the values lies.
fn quantile(sorted: &[f64], share: f64) -> f64 {
    let at = ((sorted.len().saturating_sub(1)) as f64 * share).round() as usize;
    sorted.get(at).copied().unwrap_or(f64::NAN)
}

fn sorted(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values
}

/// What a scan's workers record: four stages per segment, as on the CPU.
fn record(segments: u32) -> Duration {
    let started = Instant::now();
    let timeline = Timeline::new(started, segments as usize, trawl_kernels::BACKEND_CPU);
    for segment in 0..segments {
        timeline.begin();
        let mut record = SegmentRecord::default();
        for stage in
            [EngineStage::Load, EngineStage::Load, EngineStage::Kernel, EngineStage::Encode, EngineStage::Encode]
        {
            record.stages.time(stage, 0, 0, || ());
        }
        std::hint::black_box(timeline.take(segment, &record));
        timeline.sent(segment, Instant::now());
    }
    started.elapsed()
}

async fn measure(args: &Args) -> Result<Report> {
    let document = ScanDocument {
        dataset: Some(args.dataset.clone()),
        condition: args.condition.clone(),
        rank: Some("close".to_owned()),
        select: vec!["close".to_owned()],
        ..ScanDocument::default()
    };
    let call = ScanCall { document, ephemeral: true, fresh: true, ..ScanCall::default() };
    let mut taken: Vec<Vec<f64>> = vec![Vec::new(); args.way.len()];
    let (mut expected, mut size) = (None, (0, 0));
    let mut blocks: Vec<Vec<f64>> = vec![Vec::new(); args.way.len()];
    let mut spent = vec![0.0; args.way.len()];
    // The last one only ends a block.
    for round in 0..=WARM_UPS + args.repeats {
        if let Some(measured) = round.checked_sub(WARM_UPS).filter(|measured| measured % BLOCK == 0) {
            for (at, (name, _)) in args.way.iter().enumerate() {
                let Some((_, id)) = args.process.iter().find(|(process, _)| process == name) else { continue };
                let taken = CpuMs::so_far(*id)?;
                let before = std::mem::replace(&mut spent[at], taken.coordinator + taken.workers);
                if measured > 0 {
                    blocks[at].push((spent[at] - before) / f64::from(BLOCK));
                }
            }
        }
        if round == WARM_UPS + args.repeats {
            break;
        }
        let mut times = vec![0.0; args.way.len()];
        for turn in 0..args.way.len() {
            // Being first in a round may be an advantage: the clusters take turns.
            let at = (turn + round as usize) % args.way.len();
            let started = Instant::now();
            let scanned = client::scan(&args.way[at].1, &call, &NoProgress).await?;
            times[at] = started.elapsed().as_secs_f64() * 1e3;
            let digest = answer_digest(&scanned.answer);
            ensure!(
                *expected.get_or_insert_with(|| digest.clone()) == digest,
                "the answer differs from the previous one"
            );
            size = (scanned.report.symbols, scanned.report.segments);
        }
        if round >= WARM_UPS {
            taken.iter_mut().zip(times).for_each(|(all, time)| all.push(time));
        }
    }
    let ways = args.way.iter().zip(&taken).zip(&blocks).map(|(((name, _), times), cpu)| {
        let all = sorted(times.iter().copied());
        let (cost_percent, cost_percent_quartiles) = cost(times, &taken[0]);
        let of_cpu = (!cpu.is_empty() && !blocks[0].is_empty()).then(|| cost(cpu, &blocks[0]));
        Way {
            name: name.clone(),
            median_ms: quantile(&all, 0.5),
            p90_ms: quantile(&all, 0.9),
            cost_percent,
            cost_percent_quartiles,
            cpu_blocks_ms: cpu.clone(),
            cpu_cost_percent: of_cpu.map(|(median, _)| median),
            cpu_cost_percent_quartiles: of_cpu.map(|(_, quartiles)| quartiles),
        }
    });
    let records = sorted((0..RECORDS).map(|_| record(size.1).as_secs_f64() * 1e6));
    Ok(Report {
        benchmark: "tracing",
        engine: trawl_wire::limits::ENGINE,
        machine: machine(),
        condition: args.condition.clone(),
        symbols: size.0,
        segments: size.1,
        rounds: args.repeats,
        scans: args.repeats + WARM_UPS,
        ways: ways.collect(),
        record_us: quantile(&records, 0.5),
    })
}

/// Measures.
///
/// # Errors
/// When a scan fails, or its answer differs from the first one's.
pub fn run(args: &Args) -> Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let report = runtime.block_on(measure(args))?;
    if args.json {
        println!("{}", serde_json::to_string_pretty(&report)?);
        return Ok(ExitCode::SUCCESS);
    }
    let Report { symbols, segments, rounds, machine, record_us, ways, .. } = &report;
    println!("{symbols} symbols, {segments} segments, {rounds} rounds; {}, {} cores", machine.processor, machine.cores);
    println!("                        median ms    p90 ms     cost    half of the rounds");
    for way in ways {
        let [low, high] = way.cost_percent_quartiles;
        println!(
            "{:<20}{:>13.2}{:>10.2}{:>8.2}%    {low:.2}% to {high:.2}%",
            way.name, way.median_ms, way.p90_ms, way.cost_percent
        );
        if let (Some(cost), Some([low, high])) = (way.cpu_cost_percent, way.cpu_cost_percent_quartiles) {
            println!("{:<43}{cost:>8.2}%    {low:.2}% to {high:.2}%  of CPU time", "");
        }
    }
    println!("recording the stages of a scan by itself: {record_us:.0} µs of CPU time");
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::cost;

    #[test]
    fn a_cost_is_the_median_of_differences_between_pairs() {
        // One block of other load affects both, and one affects neither's median.
        let (first, mine) = ([10.0, 20.0, 10.0, 10.0, 10.0], [10.2, 20.2, 10.2, 10.2, 99.0]);
        let (median, [low, high]) = cost(&mine, &first);
        assert!((median - 2.0).abs() < 1e-9 && (low - 2.0).abs() < 1e-9 && (high - 2.0).abs() < 1e-9);
        assert_eq!(cost(&first, &first).0, 0.0);
    }
}
