//! `trawl bench screen`: nanoseconds per bar of each indicator of the screen W1, on this machine, one thread; and
//! `trawl bench update`, which is in a file of its own.
//!
//! Whole series are computed over seeded synthetic bars that are laid out beforehand, outputs are overwritten in
//! cache. It measures only; comparing with other libraries is the script's job (`just bench screen`).

mod update;

use std::hint::black_box;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context as _, Result, anyhow};
use serde::Serialize;
use trawl_kernels::{Bars, NoCancel, PRECISION_F32, PRECISION_F64, Precision, SymbolInput, Tiles, evaluate_tiles};
use trawl_plan::{Schema, compile_expressions};

use crate::Context;

/// Measure this machine.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// The screen W1: fifteen indicators over every bar of a market, one thread
    Screen(ScreenArgs),
    /// A new bar of every symbol: the screen W1 with its state resident, beside the last bar computed from the histories
    Update(update::Args),
}

#[derive(Debug, clap::Args)]
struct ScreenArgs {
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
    #[arg(long, default_value = PRECISION_F64, value_parser = [PRECISION_F64, PRECISION_F32])]
    precision: String,
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
}

/// The screen: name, and the outputs that are computed.
const SCREEN: [(&str, &[&str]); 15] = [
    ("SMA", &["sma(close, 20)"]),
    ("EMA", &["ema(close, 20)"]),
    ("WMA", &["wma(close, 20)"]),
    ("RSI", &["rsi(close, 14)"]),
    ("MACD", &["macd(close, 12, 26, 9).line", "macd(close, 12, 26, 9).signal", "macd(close, 12, 26, 9).hist"]),
    ("BBANDS", &["bbands(close, 20, 2).upper", "bbands(close, 20, 2).middle", "bbands(close, 20, 2).lower"]),
    ("ATR", &["atr(14)"]),
    ("STOCH", &["stoch(14, 3, 3).k", "stoch(14, 3, 3).d"]),
    ("ADX", &["adx(14)"]),
    ("CCI", &["cci(20)"]),
    ("OBV", &["obv()"]),
    ("VWAP", &["vwap()"]),
    ("MFI", &["mfi(14)"]),
    ("KAMA", &["kama(close, 10)"]),
    ("DONCHIAN", &["donchian(20).upper", "donchian(20).middle", "donchian(20).lower"]),
];

const COLUMNS: [&str; 5] = ["open", "high", "low", "close", "volume"];
/// The same market in every run.
const SEED: u64 = 0x5eed;

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
    /// The rows added up.
    sum_ns_per_bar: f64,
    /// All fifteen as one plan, shared parts computed once.
    together_ns_per_bar: f64,
    together_last_bar_ns_per_bar: f64,
}

#[derive(Serialize)]
struct Machine {
    architecture: &'static str,
    processor: String,
    cores: usize,
}

/// Runs the benchmark.
///
/// # Errors
/// Only if the engine refuses its own screen.
pub fn run(args: Args, _context: &Context) -> Result<ExitCode> {
    let args = match args.what {
        What::Screen(args) => args,
        What::Update(args) => return update::run(&args),
    };
    let report = screen(&args)?;
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
    Ok(ExitCode::SUCCESS)
}

fn screen(args: &ScreenArgs) -> Result<Report> {
    let market: Vec<[Vec<f64>; 5]> = (0..args.symbols).map(|i| walk(u64::from(i), args.bars as usize)).collect();
    let inputs: Vec<SymbolInput<'_>> = market
        .iter()
        .map(|m| SymbolInput { columns: m.iter().map(Vec::as_slice).collect(), visible: args.bars as usize })
        .collect();
    let names = COLUMNS.map(str::to_owned);
    let precision = if args.precision == PRECISION_F32 { Precision::F32 } else { Precision::F64 };
    let tiles = Tiles::new(&names, &inputs, precision);
    let mut rows = Vec::new();
    for (name, outputs) in SCREEN {
        let outputs: Vec<String> = outputs.iter().map(|o| (*o).to_owned()).collect();
        rows.push(Row {
            name: name.to_owned(),
            ns_per_bar: time(&outputs, &tiles, Bars::All, args)?,
            last_bar_ns_per_bar: time(&outputs, &tiles, Bars::Needed, args)?,
        });
    }
    let all: Vec<String> = SCREEN.iter().flat_map(|(_, o)| o.iter().map(|o| (*o).to_owned())).collect();
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
        rows,
    })
}

/// Fastest of the repeats, in nanoseconds per bar.
fn time(outputs: &[String], tiles: &Tiles, bars: Bars, args: &ScreenArgs) -> Result<f64> {
    let schema = Schema::of_columns(COLUMNS.map(str::to_owned).to_vec());
    let plan = compile_expressions(outputs, "bench", &schema)
        .map_err(|all| anyhow!("{}", all.first().map(ToString::to_string).unwrap_or_default()))
        .context("the benchmark's own expressions")?;
    let mut best = f64::INFINITY;
    for _ in 0..args.repeats {
        let start = Instant::now();
        black_box(evaluate_tiles(plan.program(), tiles, bars, &NoCancel)?);
        best = best.min(start.elapsed().as_secs_f64());
    }
    Ok(best * 1e9 / (f64::from(args.symbols) * f64::from(args.bars)))
}

/// One symbol's bars: a seeded walk on a cent grid.
fn walk(symbol: u64, bars: usize) -> [Vec<f64>; 5] {
    let mut state = (SEED ^ symbol.wrapping_mul(0x9e37_79b9_7f4a_7c15)) | 1;
    let mut random = move |below: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        ((state >> 11) % below) as i64
    };
    let mut columns: [Vec<f64>; 5] = std::array::from_fn(|_| Vec::with_capacity(bars));
    let mut cents = 5_000 + random(10_000);
    for _ in 0..bars {
        let open = cents;
        cents = (cents + random(201) - 100).max(100);
        let (high, low) = (open.max(cents) + random(80), (open.min(cents) - random(80)).max(1));
        let volume = (random(900_000) + 100_000) as f64;
        let bar = [open as f64 / 100.0, high as f64 / 100.0, low as f64 / 100.0, cents as f64 / 100.0, volume];
        for (column, value) in columns.iter_mut().zip(bar) {
            column.push(value);
        }
    }
    columns
}

fn machine() -> Machine {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = text.lines().find_map(|l| l.strip_prefix("model name").and_then(|l| l.split(':').nth(1)));
    Machine {
        architecture: std::env::consts::ARCH,
        processor: name.map_or_else(|| "unknown processor".to_owned(), |n| n.trim().to_owned()),
        cores: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
    }
}
