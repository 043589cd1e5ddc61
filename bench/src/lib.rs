//! Benchmarks: how long this machine takes for fixed workloads. They only measure; scripts compare with other programs
//! (`just bench screen`).
//!
//! `trawl bench gpu` is [`gpu`], which users run on their own device; the program `trawl-bench` of this crate has the rest and is not
//! shipped.

#![forbid(unsafe_code)]

pub mod atc;
pub mod gpu;
pub mod overhead;
mod plain;
pub mod screen;
pub mod tracing;
pub mod update;

use serde::Serialize;

#[derive(Serialize)]
struct Machine {
    architecture: &'static str,
    processor: String,
    cores: usize,
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
