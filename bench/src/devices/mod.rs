//! `trawl bench devices`: what a user's devices gain by overlap, streams, memory modes, residence, launch graphs, bars brought ahead,
//! gathering, each other, and for one new bar; with `--soak` whether anything grows. `tune` finds the settings for one device.
//!
//! Every run's bits are compared with those of the first. Times of the driver for tests are called simulated: nothing was measured.

// Part of the `trawl` executable.
#![deny(clippy::print_stdout)]

mod features;
mod one_bar;
mod soak;
pub mod tune;
mod work;

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, Result, anyhow};
use serde::Serialize;
use serde_json::{Map, Value, json};
use trawl_kernels::cuda::{ExecutorOptions, Fleet, MemoryMode};
use trawl_market::format_time;

use crate::gpu::DeviceReport;
use crate::{Machine, machine};
use work::{Market, Work};

/// Width of the names in the table: one more than the longest has.
const LABEL_WIDTH: usize = 36;
/// Batches of a run by which overlap is measured, at the least.
const BATCHES_LEAST: u64 = 8;
/// Numbers of streams that are compared.
const STREAMS: [usize; 4] = [1, 2, 4, 6];

/// Arguments of `trawl bench devices`.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// Where the report is written, as JSON
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,

    #[command(flatten)]
    size: Size,

    /// Times each measurement is repeated; the fastest counts
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    repeats: u32,

    /// Measure nothing, and compute so many seconds in each way that there is: it fails if memory, marks or graphs grow, or a bit differs
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..=3_600))]
    soak: Option<u32>,
}

/// The size of the market that is measured.
#[derive(Debug, Clone, Copy, clap::Args)]
pub struct Size {
    /// Symbols of the synthetic market
    #[arg(long, default_value_t = 8_192, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    symbols: u32,

    /// Bars of each symbol
    #[arg(long, default_value_t = 2_000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    bars: u32,
}

/// Opens the first devices, at most so many, with these options; the error is why there is none.
pub type OpenFleet<'a> = &'a dyn Fn(&ExecutorOptions, usize) -> Result<Fleet, String>;

#[derive(Serialize)]
struct Report {
    benchmark: &'static str,
    engine: &'static str,
    version: &'static str,
    /// UTC.
    date: String,
    /// `measured`, or `simulated` where the devices are those of the driver for tests.
    how: &'static str,
    devices: Vec<DeviceReport>,
    machine: Machine,
    symbols: u32,
    bars: u32,
    /// By name, which ends in the unit.
    figures: Map<String, Value>,
    #[serde(skip)]
    lines: Vec<(String, String)>,
}

/// Whether times of these devices are measured ones.
pub fn how(fleet: &Fleet) -> &'static str {
    let is_emulated = fleet.executors().iter().any(|executor| executor.facts().is_emulated());
    if is_emulated { "simulated" } else { "measured" }
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// Measures, and prints a table; fails without a device.
///
/// # Errors
/// A device fails or gives other bits; the report cannot be written.
pub fn run(args: &Args, open: OpenFleet<'_>) -> Result<ExitCode> {
    let usual = ExecutorOptions { wait_for_fused: true, ..ExecutorOptions::default() };
    let all = match open(&usual, usize::MAX) {
        Ok(all) => all,
        Err(why) => {
            eprintln!("no GPU, so no figures: {why}");
            return Ok(ExitCode::FAILURE);
        }
    };
    let market = Market::new(args.size.symbols, args.size.bars);
    let work = Work::new(&market)?;
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let mut report = Report {
        benchmark: "devices",
        engine: "trawl",
        version: env!("CARGO_PKG_VERSION"),
        date: format_time(i64::try_from(now.as_micros()).unwrap_or(i64::MAX)),
        how: how(&all),
        devices: all.executors().iter().map(|executor| DeviceReport::of(executor.facts())).collect(),
        machine: machine(),
        symbols: args.size.symbols,
        bars: args.size.bars,
        figures: Map::new(),
        lines: Vec::new(),
    };
    // What an executor has pinned stays until its device is closed.
    let (count, access) = (all.executors().len(), all.executors()[0].facts().access);
    drop(all);
    let mut want = Vec::new();
    let opened = |options: &ExecutorOptions, count| open(options, count).map_err(|why| anyhow!(why));
    let mut ended = ExitCode::SUCCESS;
    match args.soak {
        Some(seconds) => {
            let grown = soak::run(&mut report, &work, &usual, &opened, (access, count), seconds)?;
            if !grown.is_empty() {
                eprintln!("something grew: {}", grown.join("; "));
                ended = ExitCode::FAILURE;
            }
        }
        None => {
            report.overlap_and_streams(&work, &usual, &opened, args.repeats, &mut want)?;
            report.modes(&work, &usual, &opened, access, &mut want)?;
            report.graphs(&usual, &opened, (args.size.bars, args.repeats))?;
            report.prefetching(&work, &usual, &opened, args.repeats, &mut want)?;
            report.gathering(&work, &usual, &opened, (count, args.repeats), &mut want)?;
            report.devices(&work, &usual, &opened, (count, args.repeats), &mut want)?;
            report.one_bar(&work, &usual, &opened)?;
        }
    }
    if let Some(path) = &args.report {
        let text = serde_json::to_string_pretty(&report)? + "\n";
        std::fs::write(path, text).with_context(|| format!("cannot write '{}'", path.display()))?;
    }
    io::stdout().write_all(report.table().as_bytes())?;
    Ok(ended)
}

/// Opens a fleet.
type Opened<'a> = dyn Fn(&ExecutorOptions, usize) -> Result<Fleet> + 'a;

impl Report {
    fn line(&mut self, what: impl Into<String>, value: impl Into<String>) {
        self.lines.push((what.into(), value.into()));
    }

    fn figure(&mut self, name: impl Into<String>, value: impl Into<Value>) {
        self.figures.insert(name.into(), value.into());
    }

    fn time(&mut self, name: &str, what: &str, took: Duration, more: &str) {
        self.figures.insert(format!("{name}_ms"), json!(ms(took)));
        self.lines.push((what.to_owned(), format!("{:.3} ms {}{more}", ms(took), self.how)));
    }

    /// Bars that are copied in each run: how far copies and kernels overlap, by the number of streams.
    fn overlap_and_streams(
        &mut self,
        work: &Work<'_>,
        usual: &ExecutorOptions,
        open: &Opened<'_>,
        repeats: u32,
        want: &mut Vec<u64>,
    ) -> Result<()> {
        // Nothing overlaps within one batch.
        let batch_in_bytes_max = usual.batch_in_bytes_max.min(work.bytes() / BATCHES_LEAST);
        for streams in STREAMS {
            let fleet = open(&ExecutorOptions { streams, batch_in_bytes_max, ..usual.clone() }, 1)?;
            let run = work.best(&fleet, false, repeats, want)?;
            let slowest = run.busy.into_iter().max().unwrap_or_default();
            let ratio = run.took.as_secs_f64() / slowest.as_secs_f64().max(1e-9);
            let more = format!(", {ratio:.2} times the slowest of copies in, kernels and copies out");
            self.time(
                &format!("copied_{streams}_streams"),
                &format!("bars copied, streams: {streams}"),
                run.took,
                &more,
            );
            self.figures.insert(format!("overlap_{streams}_streams_ratio"), json!(ratio));
            if streams == usual.streams {
                for (name, busy) in ["copies_in", "kernels", "copies_out"].into_iter().zip(run.busy) {
                    self.figures.insert(format!("{name}_busy_ms"), json!(ms(busy)));
                }
                self.figures.insert("copied_in_bytes".to_owned(), json!(run.bytes_in));
            }
        }
        Ok(())
    }

    /// Each memory mode that the device allows: bars that come for the first time, and those that it has.
    fn modes(
        &mut self,
        work: &Work<'_>,
        usual: &ExecutorOptions,
        open: &Opened<'_>,
        access: trawl_kernels::cuda::HostAccess,
        want: &mut Vec<u64>,
    ) -> Result<()> {
        for mode in MemoryMode::ALL {
            if let Err(why) = MemoryMode::choose(access, Some(mode)) {
                self.figures.insert(format!("{mode}_refused"), json!(why));
                self.lines.push((format!("mode {mode}"), why));
                continue;
            }
            let fleet = open(&ExecutorOptions { memory_mode: Some(mode), ..usual.clone() }, 1)?;
            // Compiles, with bars that have no name and so do not stay.
            work.checked(&fleet, false, want)?;
            // The second use of coherent memory copies it to the device, and the third finds it there.
            for (name, what) in [("first", "first scan"), ("second", "second"), ("third", "third")] {
                let run = work.checked(&fleet, true, want)?;
                self.time(&format!("{mode}_{name}"), &format!("mode {mode}, {what}"), run.took, "");
                self.figures.insert(format!("{mode}_{name}_copied_bytes"), json!(run.bytes_in));
            }
            self.figures.insert(format!("{mode}_resident_bytes"), json!(fleet.resident_bytes()));
        }
        Ok(())
    }

    /// One device, and each number of them.
    fn devices(
        &mut self,
        work: &Work<'_>,
        usual: &ExecutorOptions,
        open: &Opened<'_>,
        (count, repeats): (usize, u32),
        want: &mut Vec<u64>,
    ) -> Result<()> {
        for devices in 1..=count {
            let fleet = open(usual, devices)?;
            let run = work.best(&fleet, false, repeats, want)?;
            self.time(&format!("devices_{devices}"), &format!("bars copied, devices: {devices}"), run.took, "");
        }
        Ok(())
    }

    fn table(&self) -> String {
        let simulated =
            if self.how == "simulated" { " (SIMULATED: nothing here was measured on a device)" } else { "" };
        let names: Vec<&str> = self.devices.iter().map(|device| device.name.as_str()).collect();
        let mut text = format!(
            "{}{simulated}\nW1, last bar, {} symbols x {} bars; the bits of all runs are equal\n",
            names.join(", "),
            self.symbols,
            self.bars
        );
        for (what, value) in &self.lines {
            text.push_str(&format!("  {what:<LABEL_WIDTH$}{value}\n"));
        }
        text
    }
}
