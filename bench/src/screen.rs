//! `trawl bench screen`: nanoseconds per bar of each indicator of the screen W1, on this machine, with one thread.
//!
//! Whole series are computed over seeded synthetic bars that were laid out beforehand; outputs are overwritten in
//! cache. It only measures; the script compares with other libraries (`just bench screen`).

use std::hint::black_box;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context as _, Result, anyhow};
use serde::Serialize;
use trawl_kernels::{Bars, Executable, NoCancel, Precision, SymbolInput, Tiles};
use trawl_plan::{Plan, Schema, compile_expressions};

use indicatif::BinaryBytes;
use trawl_bench::{COLUMNS, Machine, SCREEN, machine, walk};

/// Arguments of the benchmark.
#[derive(Debug, clap::Args)]
pub struct ScreenArgs {
    /// Symbols in the synthetic market
    #[arg(long, default_value_t = 2000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    symbols: u32,
    /// Bars of each symbol
    #[arg(long, default_value_t = 2000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    bars: u32,
    /// Times each measurement is repeated; the fastest counts
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeats: u32,
    /// Number type of the arithmetic
    #[arg(long, default_value = Precision::F64.name(), value_parser = Precision::ALL.map(Precision::name))]
    precision: String,
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
}

/// Memory is measured over two markets; the smaller one has one of this many symbols.
const SMALLER_MARKET: u32 = 4;

#[derive(Serialize)]
struct Row {
    name: String,
    /// Every bar of the series.
    ns_per_bar: f64,
    /// The last bar alone, over all bars of the history.
    last_bar_ns_per_bar: f64,
}

#[derive(Serialize)]
struct Report {
    benchmark: &'static str,
    engine: &'static str,
    precision: &'static str,
    threads: u32,
    symbols: u32,
    bars: u32,
    repeats: u32,
    machine: Machine,
    rows: Vec<Row>,
    /// The sum of the rows.
    sum_ns_per_bar: f64,
    /// All fifteen as one plan, shared parts computed once.
    together_ns_per_bar: f64,
    together_last_bar_ns_per_bar: f64,
    /// A quarter of the market, and all of it.
    memory: Vec<Memory>,
}

/// Memory of one run of the whole screen.
#[derive(Serialize)]
struct Memory {
    symbols: u32,
    /// The bars in the engine's layout.
    bars_bytes: u64,
    /// What a thread needs besides the bars, by the plan: series between steps, and the state of steps.
    working_set_bytes: u64,
    /// The values that come out.
    values_bytes: u64,
    /// Memory that the process took above what it held with the bars loaded: working set and values. Whole pages;
    /// `None` where the system does not report it.
    peak_beyond_bars_bytes: Option<u64>,
}

/// Runs the benchmark.
///
/// # Errors
/// Only if the engine refuses its own screen.
pub fn run(args: &ScreenArgs) -> Result<ExitCode> {
    let report = screen(args)?;
    if args.json {
        println!("{}", serde_json::to_string_pretty(&report)?);
        return Ok(ExitCode::SUCCESS);
    }
    println!(
        "W1 on {} ({} cores), one thread, {}, {} synthetic symbols x {} bars, best of {}",
        report.machine.processor, report.machine.cores, report.precision, report.symbols, report.bars, report.repeats
    );
    println!("{:<12}{:>14}{:>18}", "ns per bar", "every bar", "last bar alone");
    for row in &report.rows {
        println!("{:<12}{:>14.2}{:>18.3}", row.name, row.ns_per_bar, row.last_bar_ns_per_bar);
    }
    println!("{:<12}{:>14.2}", "sum", report.sum_ns_per_bar);
    println!("{:<12}{:>14.2}{:>18.3}", "one plan", report.together_ns_per_bar, report.together_last_bar_ns_per_bar);
    println!("\n{:<12}{:>14}{:>18}{:>14}{:>18}", "symbols", "bars", "a thread's work", "values", "peak beyond bars");
    for memory in &report.memory {
        let peak = memory.peak_beyond_bars_bytes.map_or_else(|| "not measured".to_owned(), size);
        let [bars, work, values] = [memory.bars_bytes, memory.working_set_bytes, memory.values_bytes].map(size);
        println!("{:<12}{bars:>14}{work:>18}{values:>14}{peak:>18}", memory.symbols);
    }
    Ok(ExitCode::SUCCESS)
}

fn screen(args: &ScreenArgs) -> Result<Report> {
    let precision = Precision::named(&args.precision).unwrap_or_default();
    let all: Vec<String> = SCREEN.iter().flat_map(|(_, o)| o.iter().map(|o| (*o).to_owned())).collect();
    // Loads the code into memory before memory is measured.
    lowered(&all, precision)?.evaluate_tiles(&laid_out(&market(1, 1), precision), Bars::All, &NoCancel)?;
    let mut memory = Vec::new();
    // The smaller market first: what it leaves allocated is less than what the larger one needs.
    let fewer = market((args.symbols / SMALLER_MARKET).max(1), args.bars);
    memory.push(measured(&all, &laid_out(&fewer, precision), precision)?);
    drop(fewer);
    let market = market(args.symbols, args.bars);
    let tiles = laid_out(&market, precision);
    memory.push(measured(&all, &tiles, precision)?);
    drop(market);
    let mut rows = Vec::new();
    for (name, outputs) in SCREEN {
        let outputs: Vec<String> = outputs.iter().map(|o| (*o).to_owned()).collect();
        rows.push(Row {
            name: name.to_owned(),
            ns_per_bar: time(&outputs, &tiles, Bars::All, args)?,
            last_bar_ns_per_bar: time(&outputs, &tiles, Bars::Needed, args)?,
        });
    }
    Ok(Report {
        benchmark: "screen",
        engine: env!("CARGO_PKG_VERSION"),
        precision: precision.name(),
        threads: 1,
        symbols: args.symbols,
        bars: args.bars,
        repeats: args.repeats,
        machine: machine(),
        sum_ns_per_bar: rows.iter().map(|r| r.ns_per_bar).sum(),
        together_ns_per_bar: time(&all, &tiles, Bars::All, args)?,
        together_last_bar_ns_per_bar: time(&all, &tiles, Bars::Needed, args)?,
        memory,
        rows,
    })
}

/// Columns of each symbol.
type Market = Vec<[Vec<f64>; 5]>;

fn market(symbols: u32, bars: u32) -> Market {
    (0..symbols).map(|i| walk(u64::from(i), bars as usize)).collect()
}

fn laid_out(market: &Market, precision: Precision) -> Tiles {
    let inputs: Vec<SymbolInput<'_>> = market
        .iter()
        .map(|m| SymbolInput { columns: m.iter().map(Vec::as_slice).collect(), visible: m[0].len() })
        .collect();
    Tiles::new(&COLUMNS.map(str::to_owned), &inputs, precision)
}

fn lowered(outputs: &[String], precision: Precision) -> Result<Executable> {
    Ok(Executable::new(compiled(outputs)?.program(), precision))
}

fn compiled(outputs: &[String]) -> Result<Plan> {
    let schema = Schema::of_columns(COLUMNS.map(str::to_owned).to_vec());
    compile_expressions(outputs, "bench", &schema)
        .map_err(|all| anyhow!("{}", all.first().map(ToString::to_string).unwrap_or_default()))
        .context("the benchmark's own expressions")
}

/// The memory of one run over all bars. Memory that the process freed earlier without returning it would hide part of
/// it: the bars that `tiles` were made from are still held.
fn measured(outputs: &[String], tiles: &Tiles, precision: Precision) -> Result<Memory> {
    let executable = lowered(outputs, precision)?;
    forget_peak();
    let before = peak_bytes();
    let values = black_box(executable.evaluate_tiles(tiles, Bars::All, &NoCancel)?);
    let after = peak_bytes();
    let row = |values: &Vec<f64>| size_of::<Vec<f64>>() + size_of_val(values.as_slice());
    Ok(Memory {
        symbols: u32::try_from(values.len()).unwrap_or(u32::MAX),
        bars_bytes: tiles.bytes(),
        working_set_bytes: executable.workspace_bytes(tiles.bars()),
        values_bytes: values.iter().map(row).sum::<usize>() as u64,
        peak_beyond_bars_bytes: before.zip(after).map(|(before, after)| after.saturating_sub(before)),
    })
}

/// A count of bytes in binary units.
fn size(bytes: u64) -> String {
    BinaryBytes(bytes).to_string()
}

/// The most memory that the process has held, in bytes; `None` where the system does not report it.
fn peak_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes << 10)
}

/// Resets the peak to what is held now, where the system allows it.
fn forget_peak() {
    // Where it does not, the earlier peak remains: memory freed before the run then hides part of the run's own.
    let _ = std::fs::write("/proc/self/clear_refs", "5");
}

/// Fastest of the repeats, in nanoseconds per bar.
fn time(outputs: &[String], tiles: &Tiles, bars: Bars, args: &ScreenArgs) -> Result<f64> {
    let executable = lowered(outputs, Precision::default())?;
    let mut best = f64::INFINITY;
    for _ in 0..args.repeats {
        let start = Instant::now();
        black_box(executable.evaluate_tiles(tiles, bars, &NoCancel)?);
        best = best.min(start.elapsed().as_secs_f64());
    }
    Ok(best * 1e9 / (f64::from(args.symbols) * f64::from(args.bars)))
}
