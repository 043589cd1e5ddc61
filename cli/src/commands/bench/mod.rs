//! `trawl bench`: how long this machine takes for fixed workloads. It only measures; scripts compare it with other
//! programs (`just bench screen`).

mod atc;
mod gpu;
mod overhead;
mod plain;
mod screen;
mod tracing;
mod update;

use std::process::ExitCode;

use anyhow::Result;
use serde::Serialize;

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
    Screen(screen::ScreenArgs),
    /// Adaptive Trend Classification of a market: the definition bar by bar, one thread, all threads, f32
    Atc(atc::AtcArgs),
    /// What a cluster adds to its workers' computing: times seen by the client, recorded and ephemeral, and many
    /// concurrent scans
    Overhead(overhead::Args),
    /// Plans on this machine's GPU: the same bits as on the CPU, times by the device's clock, a JSON report; 8 minutes
    /// at most
    Gpu(gpu::Args),
    /// What tracing costs a warm scan: clusters that trace more or less, in turns
    Tracing(tracing::Args),
    /// A new bar of every symbol: the screen W1 with resident state, compared with the last bar computed from the
    /// histories
    Update(update::Args),
}

#[derive(Serialize)]
struct Machine {
    architecture: &'static str,
    processor: String,
    cores: usize,
}

/// Runs a benchmark.
///
/// # Errors
/// Only if the engine refuses its own expressions, or its values differ from its definition or its whole histories.
pub fn run(args: Args, _context: &Context) -> Result<ExitCode> {
    match args.what {
        What::Screen(args) => screen::run(&args),
        What::Gpu(args) => gpu::run(&args),
        What::Atc(args) => atc::run(&args),
        What::Overhead(args) => overhead::run(&args),
        What::Tracing(args) => tracing::run(&args),
        What::Update(args) => update::run(&args),
    }
}

/// The same market in every run.
const SEED: u64 = 0x5eed;

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
