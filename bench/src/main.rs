//! `trawl-bench`: the benchmarks of `benches/*.sh`, except that of GPUs, which is `trawl bench gpu`.

#![forbid(unsafe_code)]

mod atc;
mod cpu;
mod delay;
mod overhead;
mod plain;
mod scheduler;
mod screen;
mod tracing;
mod update;

use std::process::ExitCode;

use clap::Parser as _;

// That of `trawl`, so that what is measured is what runs.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Measure this machine.
#[derive(Debug, clap::Parser)]
#[command(name = "trawl-bench", version)]
enum Benchmark {
    /// The screen W1: fifteen indicators over every bar of a market, one thread
    Screen(screen::ScreenArgs),
    /// Adaptive Trend Classification of a market: the definition bar by bar, one thread, all threads, f32
    Atc(atc::AtcArgs),
    /// What a cluster adds to its workers' computing: times seen by the client, recorded and ephemeral, and many
    /// concurrent scans
    Overhead(overhead::Args),
    /// A proxy that passes on everything later
    Delay(delay::Args),
    /// The planner and the scheduler with 1,000 workers and 1,000,000 symbols
    Scheduler(scheduler::Args),
    /// What tracing costs a warm scan: clusters that trace more or less, in turns
    Tracing(tracing::Args),
    /// A new bar of every symbol: the screen W1 with resident state, compared with the last bar computed from the
    /// histories
    Update(update::Args),
}

fn main() -> ExitCode {
    let benchmark = Benchmark::parse();
    let _telemetry = trawl_telemetry::init(trawl_telemetry::Role::Command, None);
    let done = match &benchmark {
        Benchmark::Screen(args) => screen::run(args),
        Benchmark::Atc(args) => atc::run(args),
        Benchmark::Overhead(args) => overhead::run(args),
        Benchmark::Delay(args) => delay::run(args),
        Benchmark::Scheduler(args) => scheduler::run(args),
        Benchmark::Tracing(args) => tracing::run(args),
        Benchmark::Update(args) => update::run(args),
    };
    done.unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::FAILURE
    })
}
