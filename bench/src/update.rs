//! `trawl bench update`: milliseconds until every output of the screen W1 has its value for a new bar of every symbol.
//!
//! The state is resident: receiving the bars and laying them out is not measured. At the end the values are compared
//! with those of the whole histories, which are timed too, on as many threads.

use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context as _, Result, anyhow, ensure};
use rayon::prelude::*;
use serde::Serialize;
use trawl_kernels::{Bars, Executable, NoCancel, Precision, Resident, SymbolInput, Tiles};
use trawl_plan::{Input, Plan, Schema, compile_expressions};

use trawl_bench::{COLUMNS, Machine, SCREEN, machine, walk};

/// Arguments of the benchmark.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Symbols in the synthetic market
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    symbols: u32,
    /// Bars of each symbol at the end
    #[arg(long, default_value_t = 2000, value_parser = clap::value_parser!(u32).range(2..=100_000))]
    bars: u32,
    /// How many of these bars are added one at a time; the screen's windows repeat after 140
    #[arg(long, default_value_t = 280, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    updates: u32,
    /// Threads to run on
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: u32,
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Report {
    benchmark: &'static str,
    engine: &'static str,
    precision: &'static str,
    threads: u32,
    symbols: u32,
    bars: u32,
    updates: u32,
    outputs: usize,
    machine: Machine,
    /// One new bar of every symbol.
    update_ms: Spread,
    /// The last bar computed from the whole histories, laid out beforehand; the fastest of three.
    last_bar_ms: f64,
    /// `last_bar_ms` over the median update.
    ratio: f64,
    /// Running the histories and keeping the state.
    begin_ms: f64,
    /// Rows of the series that are kept.
    series_bytes: usize,
    /// Growth of the process while the state was built; 0 where the system does not report it.
    resident_bytes: usize,
}

#[derive(Serialize)]
struct Spread {
    min: f64,
    median: f64,
    max: f64,
}

/// Runs the benchmark.
///
/// # Errors
/// If a value differs from that of the whole history.
pub fn run(args: &Args) -> Result<ExitCode> {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(args.threads as usize).build()?;
    let report = pool.install(|| measure(args))?;
    if args.json {
        println!("{}", serde_json::to_string_pretty(&report)?);
        return Ok(ExitCode::SUCCESS);
    }
    println!(
        "W1 on {} ({} cores), {} threads, {}, {} synthetic symbols, {} updates up to bar {}",
        report.machine.processor,
        report.machine.cores,
        report.threads,
        report.precision,
        report.symbols,
        report.updates,
        report.bars
    );
    let Spread { min, median, max } = report.update_ms;
    println!("one new bar of every symbol   {median:.2} ms (from {min:.2} to {max:.2})");
    println!("the last bar from histories   {:.2} ms, {:.0} times as long", report.last_bar_ms, report.ratio);
    let mib = |bytes: usize| bytes as f64 / f64::from(1 << 20);
    println!("state kept                    {:.0} MiB", mib(report.resident_bytes.max(report.series_bytes)));
    Ok(ExitCode::SUCCESS)
}

fn measure(args: &Args) -> Result<Report> {
    let bars = args.bars as usize;
    ensure!(args.updates < args.bars, "--updates must be less than --bars");
    let plan = screen()?;
    let program = plan.program();
    let market: Vec<[Vec<f64>; 5]> = (0..args.symbols).into_par_iter().map(|i| walk(u64::from(i), bars)).collect();
    let read: Vec<usize> = program.inputs.iter().filter_map(place).collect();
    let inputs = |visible: usize| -> Vec<SymbolInput<'_>> {
        market
            .iter()
            .map(|m| SymbolInput { columns: read.iter().map(|c| m[*c].as_slice()).collect(), visible })
            .collect()
    };
    let before = resident_bytes();
    let started = Instant::now();
    let begin = bars - args.updates as usize;
    let mut resident = Resident::new(&Executable::new(program, Precision::F64), &inputs(begin), &NoCancel)?;
    let begin_ms = started.elapsed().as_secs_f64() * 1e3;
    let grown = resident_bytes().saturating_sub(before);
    let mut times: Vec<f64> = Vec::with_capacity(args.updates as usize);
    for bar in begin..bars {
        let columns: Vec<Vec<f64>> = read.iter().map(|c| market.iter().map(|m| m[*c][bar]).collect()).collect();
        let columns: Vec<&[f64]> = columns.iter().map(Vec::as_slice).collect();
        let started = Instant::now();
        resident.push(&columns, None)?;
        times.push(started.elapsed().as_secs_f64() * 1e3);
    }
    let (expected, last_bar_ms) = from_histories(args, &plan, &market)?;
    for (symbol, values) in expected.iter().enumerate() {
        let same = (0..resident.outputs()).all(|o| resident.value(symbol, o).to_bits() == values[o].to_bits());
        ensure!(same, "symbol {symbol} has values that differ from those of its whole history");
    }
    times.sort_by(f64::total_cmp);
    let median = times[times.len() / 2];
    Ok(Report {
        benchmark: "update",
        engine: env!("CARGO_PKG_VERSION"),
        precision: Precision::F64.name(),
        threads: args.threads,
        symbols: args.symbols,
        bars: args.bars,
        updates: args.updates,
        outputs: resident.outputs(),
        machine: machine(),
        update_ms: Spread { min: times[0], median, max: times[times.len() - 1] },
        last_bar_ms,
        ratio: last_bar_ms / median,
        begin_ms,
        series_bytes: resident.bytes(),
        resident_bytes: grown,
    })
}

/// All fifteen indicators as one plan.
fn screen() -> Result<Plan> {
    let all: Vec<String> = SCREEN.iter().flat_map(|(_, o)| o.iter().map(|o| (*o).to_owned())).collect();
    compile_expressions(&all, "bench", &Schema::of_columns(COLUMNS.map(str::to_owned).to_vec()))
        .map_err(|all| anyhow!("{}", all.first().map(ToString::to_string).unwrap_or_default()))
        .context("the benchmark's own expressions")
}

fn place(input: &Input) -> Option<usize> {
    COLUMNS.iter().position(|c| matches!(input, Input::Column(name) if name == c))
}

/// Values of the last bar, and milliseconds of the fastest of three runs.
fn from_histories(args: &Args, plan: &Plan, market: &[[Vec<f64>; 5]]) -> Result<(Vec<Vec<f64>>, f64)> {
    let names = COLUMNS.map(str::to_owned);
    let tiles = |part: &[[Vec<f64>; 5]]| {
        let inputs: Vec<SymbolInput<'_>> =
            part.iter().map(|m| SymbolInput { columns: columns_of(m), visible: args.bars as usize }).collect();
        Tiles::new(&names, &inputs, Precision::F64)
    };
    let part = market.len().div_ceil(args.threads as usize).max(1);
    let executable = Executable::new(plan.program(), Precision::F64);
    let parts: Vec<Tiles> = market.par_chunks(part).map(tiles).collect();
    let mut best = f64::INFINITY;
    let mut values = Vec::new();
    for _ in 0..3 {
        let started = Instant::now();
        let found: Vec<Vec<Vec<f64>>> = parts
            .par_iter()
            .map(|tiles| executable.evaluate_tiles(tiles, Bars::Needed, &NoCancel))
            .collect::<Result<_, _>>()?;
        best = best.min(started.elapsed().as_secs_f64() * 1e3);
        values = found.into_iter().flatten().collect();
    }
    Ok((values, best))
}

fn columns_of(bars: &[Vec<f64>; 5]) -> Vec<&[f64]> {
    bars.iter().map(Vec::as_slice).collect()
}

/// Bytes of this process in memory; 0 where the system does not report it.
fn resident_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|rest| rest.split_whitespace().next()).and_then(|n| n.parse::<usize>().ok());
    kib.unwrap_or(0) * 1024
}
