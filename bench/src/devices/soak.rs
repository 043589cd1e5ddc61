//! `trawl bench devices --soak`: everything that a device does, over and over: memory modes, graphs, bars brought ahead, evictions. Nothing may
//! grow, and no bit may differ.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use serde_json::json;
use trawl_kernels::cuda::{CHUNK_BARS, ExecutorOptions, Fleet, HostAccess, MemoryMode};
use trawl_kernels::stages::Stages;
use trawl_kernels::{Executable, NoCancel, Precision, SymbolInput};

use super::work::{Work, of_bits};
use super::{Opened, Report};
use crate::gpu::figures::{compiled, inputs, market};

/// Rounds after which what is kept counts as the beginning: caches and pools are full by then.
const ROUNDS_BEFORE: u32 = 6;
/// Names under which bars stay, by turns, so that those of others are evicted.
const NAMES: u32 = 5;
/// Of the bars of a round, so much memory is given to a device: not enough for all names.
const ROOM: u64 = 4;
/// Most that the resident memory of the process may grow: pages that allocators keep.
const GROWN_RSS_MAX: u64 = 64 << 20;
/// Most that free memory of a device may shrink: other processes and the driver's own.
const GROWN_DEVICE_MAX: u64 = 64 << 20;

/// What is kept between rounds.
#[derive(Debug, Clone, Copy)]
struct Kept {
    rss_bytes: u64,
    host_bytes: u64,
    graphs: u64,
    /// Of all devices together.
    free_bytes: u64,
}

fn kept(fleet: &Fleet) -> Result<Kept> {
    let mut kept = Kept { rss_bytes: resident_bytes(), host_bytes: fleet.host_bytes(), graphs: 0, free_bytes: 0 };
    for executor in fleet.executors() {
        kept.graphs += executor.idle_graphs() as u64;
        kept.free_bytes += executor.free_bytes()?;
    }
    Ok(kept)
}

/// Memory of this process that is resident; 0 where the system does not say.
fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    line.and_then(|line| line.split_whitespace().nth(1)).and_then(|text| text.parse::<u64>().ok()).unwrap_or(0) << 10
}

impl Kept {
    /// What grew since `before`.
    fn grown(self, before: Self) -> Vec<String> {
        let mut grown = Vec::new();
        let mut check = |what: &str, before: u64, after: u64, most: u64| {
            if after > before.saturating_add(most) {
                grown.push(format!("{what} from {before} to {after}"));
            }
        };
        check("bytes of host memory", before.host_bytes, self.host_bytes, 0);
        check("idle graphs", before.graphs, self.graphs, 0);
        check("resident bytes of the process", before.rss_bytes, self.rss_bytes, GROWN_RSS_MAX);
        // Free memory shrinks.
        check("device memory, less what is free,", self.free_bytes, before.free_bytes, GROWN_DEVICE_MAX);
        grown
    }
}

/// Histories in chunks, which are launched as graphs.
struct Long<'a> {
    program: Executable,
    symbols: Vec<SymbolInput<'a>>,
}

impl Long<'_> {
    fn run(&self, fleet: &Fleet, want: &mut Vec<u64>) -> Result<u64> {
        let (from, mut stages) = (vec![0; self.symbols.len()], Stages::default());
        let values = fleet.evaluate_in_chunks(&self.program, &self.symbols, &from, None, &NoCancel, &mut stages)?;
        let bits: Vec<u64> = values.iter().map(f64::to_bits).collect();
        if want.is_empty() {
            want.clone_from(&bits);
        }
        if *want != bits {
            bail!("the bits of chunks differ from those of the first run: report this");
        }
        Ok(stages.launches().saved())
    }
}

/// Runs so long, the same time in each memory mode that the devices allow; what grew.
///
/// # Errors
/// A device fails, or gives other bits.
pub(super) fn run(
    report: &mut Report,
    work: &Work<'_>,
    usual: &ExecutorOptions,
    open: &Opened<'_>,
    (access, count): (HostAccess, usize),
    seconds: u32,
) -> Result<Vec<String>> {
    let modes = MemoryMode::ALL.into_iter().filter(|mode| MemoryMode::choose(access, Some(*mode)).is_ok());
    let modes: Vec<MemoryMode> = modes.collect();
    let time = Duration::from_secs(u64::from(seconds)) / u32::try_from(modes.len().max(1)).unwrap_or(1);
    let bars = u32::try_from(3 * CHUNK_BARS).unwrap_or(u32::MAX);
    let histories = market(2, bars);
    let program = Executable::new(compiled(&["rsi(close,14)", "ema(ema(close,9),7)"])?.program(), Precision::F64);
    let long = Long { symbols: inputs(&program, &histories)?, program };
    let (mut want, mut want_long, mut grown) = (Vec::new(), Vec::new(), Vec::new());
    for mode in modes {
        let room = (work.bytes() * ROOM).max(usual.batch_in_bytes_max);
        let options = ExecutorOptions { memory_mode: Some(mode), device_memory_bytes: Some(room), ..usual.clone() };
        let fleet = open(&options, count)?;
        let begun = Instant::now();
        let (mut rounds, mut before, mut saved) = (0u32, None, 0);
        // Bars without a name, those that stay, and those that are brought ahead.
        while before.is_none() || begun.elapsed() < time {
            of_bits(work.run(&fleet, rounds.is_multiple_of(2))?, &mut want)?;
            of_bits(work.run_ahead(&fleet, &format!("soak {}", rounds % NAMES))?, &mut want)?;
            saved += long.run(&fleet, &mut want_long)?;
            rounds += 1;
            if rounds == ROUNDS_BEFORE {
                before = Some(kept(&fleet)?);
            }
        }
        let after = kept(&fleet)?;
        let Some(before) = before else { continue };
        let more = after.grown(before).into_iter().map(|what| format!("mode {mode}: {what}"));
        grown.extend(more);
        let prefetches = fleet.prefetches();
        report.figure(
            format!("soak_{mode}"),
            json!({
                "rounds": rounds,
                "seconds": begun.elapsed().as_secs_f64(),
                "launches_saved": saved,
                "hidden_share": prefetches.hidden_share(),
                "resident_bytes": { "before": before.rss_bytes, "after": after.rss_bytes },
                "host_bytes": { "before": before.host_bytes, "after": after.host_bytes },
                "idle_graphs": { "before": before.graphs, "after": after.graphs },
                "free_bytes": { "before": before.free_bytes, "after": after.free_bytes },
            }),
        );
        let (mib, host) = (|bytes: u64| bytes >> 20, after.host_bytes >> 20);
        let (was, is) = (mib(before.rss_bytes), mib(after.rss_bytes));
        let line =
            format!("{rounds} rounds; process {was} MiB, then {is}; host memory {host} MiB; {saved} launches saved");
        report.line(format!("soak, mode {mode}"), line);
    }
    report.figure("soak_grown", grown.clone());
    Ok(grown)
}
