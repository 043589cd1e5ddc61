//! `trawl bench atc`: the time that Adaptive Trend Classification of a whole market takes on this machine: by its
//! definition, by the engine on one thread and on all, and in `f32`; with the memory used and how far the answers
//! agree.
//!
//! Measured from bars in columns to the last bar's signal, including the conversion to the engine's layout, as in a
//! scan.

use std::hint::black_box;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use anyhow::{Context as _, Result, anyhow};
use serde::Serialize;
use trawl_kernels::{Bars, Executable, NoCancel, Precision, SymbolInput, Tiles, evaluate_all};
use trawl_plan::{Plan, Schema, compile_expressions};

use super::plain::{Parameters, classify};
use indicatif::BinaryBytes;
use trawl_bench::{Machine, machine, walk};

/// Symbols that a thread takes at a time.
const BATCH: usize = 64;
/// Time that the fastest existing implementation took for this many symbols and bars, on another machine; it does not
/// round, so its answers differ. Quoted, not measured here.
const PEER: (u32, u32, f64) = (500, 2000, 1.9);

/// Arguments of the benchmark.
#[derive(Debug, clap::Args)]
pub struct AtcArgs {
    /// Symbols in the synthetic market
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    symbols: u32,
    /// Bars of each symbol
    #[arg(long, default_value_t = 2000, value_parser = clap::value_parser!(u32).range(34..=1_000_000))]
    bars: u32,
    /// Times each measurement is repeated; the fastest counts
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeats: u32,
    /// Symbols over which the definition is run bar by bar to compare with; its time is scaled to all
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    checked: u32,
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Row {
    name: &'static str,
    threads: usize,
    seconds: f64,
    symbols_per_second: f64,
    /// Peak memory of the process above what it held before, where the system reports it.
    #[serde(skip_serializing_if = "Option::is_none")]
    memory_beyond_bars_bytes: Option<u64>,
    agreement: String,
}

#[derive(Serialize)]
struct Report {
    benchmark: &'static str,
    date: String,
    engine: &'static str,
    /// Whether the debug assertions were compiled in.
    debug_assertions: bool,
    symbols: u32,
    bars: u32,
    repeats: u32,
    machine: Machine,
    rows: Vec<Row>,
    gpu: &'static str,
    /// The engine's own estimate: buffers of one thread besides its tile.
    workspace_bytes_per_thread: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    quoted: Option<Quoted>,
}

#[derive(Serialize)]
struct Quoted {
    /// Seconds of the fastest existing implementation, on another machine.
    fastest_existing_seconds: f64,
    /// Of the engine on all threads.
    times_faster: f64,
}

/// Runs the benchmark.
///
/// # Errors
/// Only if the engine refuses its own classification.
pub fn run(args: &AtcArgs) -> Result<ExitCode> {
    let report = measure(args)?;
    if args.json {
        println!("{}", serde_json::to_string_pretty(&report)?);
        return Ok(ExitCode::SUCCESS);
    }
    println!(
        "ATC on {} ({} cores), {} synthetic symbols x {} bars, best of {}",
        report.machine.processor, report.machine.cores, report.symbols, report.bars, report.repeats
    );
    println!("{:<34}{:>8}{:>11}{:>13}{:>13}  agreement", "", "threads", "seconds", "symbols/s", "memory");
    for row in &report.rows {
        let memory =
            row.memory_beyond_bars_bytes.map_or_else(|| "-".to_owned(), |count| BinaryBytes(count).to_string());
        println!(
            "{:<34}{:>8}{:>11.4}{:>13.0}{memory:>13}  {}",
            row.name, row.threads, row.seconds, row.symbols_per_second, row.agreement
        );
    }
    println!("{:<34}{}", "GPU", report.gpu);
    println!("memory: peak of the process above what it held with the bars loaded");
    if let Some(quoted) = &report.quoted {
        println!(
            "quoted for the fastest existing implementation: {} s for the same amount on another machine, with different answers; all threads are {:.0} times faster",
            quoted.fastest_existing_seconds, quoted.times_faster
        );
    }
    Ok(ExitCode::SUCCESS)
}

fn plan(outputs: &[&str]) -> Result<Plan> {
    let items: Vec<String> = outputs.iter().map(|o| format!("atc().{o}")).collect();
    compile_expressions(&items, "bench", &Schema::of_columns(vec!["close".to_owned()]))
        .map_err(|all| anyhow!("{}", all.first().map(ToString::to_string).unwrap_or_default()))
        .context("the benchmark's own expressions")
}

fn measure(args: &AtcArgs) -> Result<Report> {
    let market: Vec<Vec<f64>> = (0..args.symbols)
        .map(|i| {
            let [_, _, _, close, _] = walk(u64::from(i), args.bars as usize);
            close
        })
        .collect();
    let inputs: Vec<SymbolInput<'_>> =
        market.iter().map(|close| SymbolInput { columns: vec![close.as_slice()], visible: close.len() }).collect();
    let plan = plan(&["signal", "trend"])?;
    let executable = Executable::new(plan.program(), Precision::F64);
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let mut rows = Vec::new();
    let mut row = |name, threads, (seconds, memory): (f64, Option<u64>), agreement| {
        let symbols_per_second = f64::from(args.symbols) / seconds;
        rows.push(Row { name, threads, seconds, symbols_per_second, memory_beyond_bars_bytes: memory, agreement });
    };
    // Memory that an earlier run left with the allocator counts in the later ones too.
    let held = memory::held();
    let one = best(args, held, || scan(&executable, &inputs, 1))?;
    let all = best(args, held, || scan(&executable, &inputs, threads))?;
    let checked = &market[..(args.checked as usize).min(market.len())];
    let (sequential, agreement) = compare(checked, &plan)?;
    let scale = market.len() as f64 / checked.len() as f64;
    row("the definition, one symbol at a time", 1, (sequential * scale, None), "the reference".to_owned());
    row("CPU f64", 1, (one.seconds, one.memory), agreement);
    let same = |a: &[Vec<f64>], b: &[Vec<f64>]| a.iter().zip(b).filter(|(a, b)| a == b).count();
    let equal = format!("{} of {} symbols have the bits of one thread", same(&one.values, &all.values), market.len());
    row("CPU f64", threads, (all.seconds, all.memory), equal);
    let names = ["close".to_owned()];
    let short = best(args, held, || {
        let tiles = Tiles::new(&names, &inputs, Precision::F32);
        Ok(executable.evaluate_tiles(&tiles, Bars::Needed, &NoCancel)?)
    })?;
    let trends = one.values.iter().zip(&short.values).filter(|(a, b)| a[1] == b[1]).count();
    let near = one.values.iter().zip(&short.values).filter(|(a, b)| (a[0] - b[0]).abs() <= 1e-3).count();
    let agreement = format!("last bar: trend of {trends}, signal within 0.001 of {near} of {} symbols", market.len());
    row("CPU f32", 1, (short.seconds, short.memory), agreement);
    let quoted = (args.symbols == PEER.0 && args.bars == PEER.1)
        .then(|| Quoted { fastest_existing_seconds: PEER.2, times_faster: PEER.2 / all.seconds });
    Ok(Report {
        benchmark: "atc",
        date: trawl_market::format_time(now_micros()),
        engine: env!("CARGO_PKG_VERSION"),
        debug_assertions: cfg!(debug_assertions),
        symbols: args.symbols,
        bars: args.bars,
        repeats: args.repeats,
        machine: machine(),
        rows,
        gpu: "none: this build has no GPU back end",
        workspace_bytes_per_thread: executable.workspace_bytes(args.bars as usize),
        quoted,
    })
}

fn now_micros() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(0) * 1_000_000
}

/// The fastest of the repeats.
struct Best {
    seconds: f64,
    memory: Option<u64>,
    values: Vec<Vec<f64>>,
}

fn best(args: &AtcArgs, held: Option<u64>, mut run: impl FnMut() -> Result<Vec<Vec<f64>>>) -> Result<Best> {
    let mut best = Best { seconds: f64::INFINITY, memory: None, values: Vec::new() };
    memory::forget_peak();
    for _ in 0..args.repeats {
        let start = Instant::now();
        let values = black_box(run()?);
        best.seconds = best.seconds.min(start.elapsed().as_secs_f64());
        best.values = values;
    }
    best.memory = held.and_then(|held| Some(memory::peak()?.saturating_sub(held)));
    Ok(best)
}

/// The last bar's values of every symbol, on so many threads.
fn scan(executable: &Executable, inputs: &[SymbolInput<'_>], threads: usize) -> Result<Vec<Vec<f64>>> {
    let next = AtomicUsize::new(0);
    let batches: Vec<&[SymbolInput<'_>]> = inputs.chunks(BATCH).collect();
    let made = Mutex::new(vec![Vec::new(); batches.len()]);
    let work = || -> Result<()> {
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(batch) = batches.get(at) else { return Ok(()) };
            let values = executable.evaluate_last(batch, &NoCancel)?;
            if let Ok(mut made) = made.lock() {
                made[at] = values;
            }
        }
    };
    std::thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
        let mine = work();
        others.into_iter().try_for_each(|other| other.join().unwrap_or_else(|_| Err(anyhow!("a thread stopped"))))?;
        mine
    })?;
    Ok(made.into_inner().unwrap_or_default().into_iter().flatten().collect())
}

/// Seconds that the definition takes over some symbols, and how the engine's values agree with it on every bar.
fn compare(market: &[Vec<f64>], plan: &Plan) -> Result<(f64, String)> {
    let (mut seconds, mut same, mut bars, mut near, mut excused, mut wrong) = (0.0, 0, 0, 0, 0, 0);
    for close in market {
        let start = Instant::now();
        let reference = black_box(classify(close, close, &Parameters::default())).map_err(|why| anyhow!(why))?;
        seconds += start.elapsed().as_secs_f64();
        let symbol = SymbolInput { columns: vec![close.as_slice()], visible: close.len() };
        let ours = evaluate_all(plan.program(), &symbol, &NoCancel)?;
        near += reference.near;
        for (t, (a, b)) in reference.signal.iter().zip(&ours[0]).enumerate() {
            bars += 1;
            if (a - b).abs() <= 1e-9 {
                same += 1;
            } else if reference.first_near.is_some_and(|first| first <= t) {
                excused += 1;
            } else {
                wrong += 1;
            }
        }
    }
    let rest = format!("{excused} differ after one of {near} near ties, {wrong} otherwise");
    Ok((seconds, format!("{same} of {bars} bars within 1e-9 of the definition; {rest}")))
}

/// Memory that the process holds, as Linux reports it.
mod memory {
    const STATUS: &str = "/proc/self/status";
    const CLEAR: &str = "/proc/self/clear_refs";
    /// Resets the peak to what is held now.
    const CLEAR_PEAK: &str = "5";

    fn field(name: &str) -> Option<u64> {
        let text = std::fs::read_to_string(STATUS).ok()?;
        let line = text.lines().find(|line| line.starts_with(name))?;
        line.split_whitespace().nth(1)?.parse::<u64>().ok().map(|kibibytes| kibibytes << 10)
    }

    /// Bytes held now, if the peak is reported too.
    pub fn held() -> Option<u64> {
        forget_peak().then(|| field("VmRSS:")).flatten()
    }

    /// Resets the peak, if the system allows it.
    pub fn forget_peak() -> bool {
        std::fs::write(CLEAR, CLEAR_PEAK).is_ok()
    }

    /// The most bytes held since the reset.
    pub fn peak() -> Option<u64> {
        field("VmHWM:")
    }
}
