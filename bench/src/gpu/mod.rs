//! `trawl bench gpu`: parity and speed of plans on this machine's GPU. Needs this executable and NVIDIA's libraries,
//! nothing else.
//!
//! Each section runs in a process of its own with a time limit, so that one that fails, hangs or loses the device does
//! not affect the others. Without a GPU it reports that and gives no figures.

// Part of the `trawl` executable.
#![deny(clippy::print_stdout)]

mod dump;
pub(crate) mod figures;
mod first;
mod parity;
mod process;
mod sanitizer;
mod sweeps;
mod unfused;

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context as _, Result, anyhow};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use trawl_kernels::Precision;
use trawl_kernels::cuda::{Cache, Device, DeviceName, Executor, ExecutorOptions, Facts};
use trawl_market::format_time;

use super::{Machine, machine};

/// Time limit of all sections together.
const TOTAL_MAX: Duration = Duration::from_secs(480);

/// Arguments of `trawl bench gpu`.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// Where the report is written, as JSON
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,

    /// Run these sections alone
    #[arg(long, value_name = "SECTION", value_delimiter = ',')]
    sections: Vec<Section>,

    #[command(flatten)]
    size: Size,

    /// The GPU to measure, by its number or UUID; of several the first [default: as for a scan]
    #[arg(long, value_name = "NUMBERS", env = "TRAWL_DEVICES", hide_env = true, value_delimiter = ',')]
    devices: Option<Vec<DeviceName>>,

    /// Run one section in this process and print it as JSON
    #[arg(long, hide = true, value_name = "SECTION")]
    section: Option<Section>,

    /// Write bars and outputs of W1 and Adaptive Trend Classification into this folder, and nothing else
    #[arg(long, hide = true, value_name = "FOLDER", conflicts_with_all = ["sections", "section", "report"])]
    dump: Option<PathBuf>,
}

/// The size of the market that is measured.
#[derive(Debug, Clone, Copy, clap::Args)]
pub struct Size {
    /// Symbols of the market
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    symbols: u32,

    /// Bars of each symbol
    #[arg(long, default_value_t = 2_000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    bars: u32,

    /// Bars of the one long history
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    long_bars: u32,

    /// Times each measurement is repeated
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeats: u32,

    /// Functions of the catalogue that are checked, measured and warmed, counted from the first [default: all]
    #[arg(long, value_name = "N", hide = true)]
    functions: Option<usize>,
}

/// The sections, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Section {
    /// A copy within the device's memory, which the other figures are compared with
    Copy,
    /// Every function of the catalogue: the same bits as on the CPU, fused and one primitive at a time, and its chunks
    Parity,
    /// The screen W1, last bar and every bar
    Screen,
    /// Adaptive Trend Classification
    Atc,
    /// One symbol of a long history
    Long,
    /// A plan that was never compiled, the same with other numbers, and one with kernels of an earlier process
    First,
    /// The screen W1 over markets that fill the device once, twice, three and four times
    Waves,
    /// The last bar of each function by itself, beside the time that its bars take to read
    Functions,
    /// As 'screen', in f32
    ScreenF32,
    /// As 'atc', in f32
    AtcF32,
    /// As 'functions', in f32
    FunctionsF32,
    /// A few plans, for compute-sanitizer
    Small,
    /// The few plans under compute-sanitizer, where it is installed
    Sanitizer,
}

impl Section {
    /// The sections that run by default: all but those of the sanitizer.
    const USUAL: [Self; 11] = [
        Self::Copy,
        Self::Screen,
        Self::Atc,
        Self::Long,
        Self::First,
        Self::Waves,
        Self::Parity,
        Self::Functions,
        Self::ScreenF32,
        Self::AtcF32,
        Self::FunctionsF32,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Copy => "copy",
            Self::Parity => "parity",
            Self::Screen => "screen",
            Self::Atc => "atc",
            Self::Long => "long",
            Self::First => "first",
            Self::Waves => "waves",
            Self::Functions => "functions",
            Self::ScreenF32 => "screen-f32",
            Self::AtcF32 => "atc-f32",
            Self::FunctionsF32 => "functions-f32",
            Self::Small => "small",
            Self::Sanitizer => "sanitizer",
        }
    }

    fn limit(self) -> Duration {
        Duration::from_secs(match self {
            Self::Copy | Self::Small => 40,
            Self::Screen | Self::Atc | Self::Long | Self::Waves | Self::ScreenF32 | Self::AtcF32 => 70,
            Self::First => 120,
            Self::Parity | Self::Functions | Self::FunctionsF32 => 150,
            Self::Sanitizer => sanitizer::SECONDS_MAX,
        })
    }
}

/// How a section ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// It ran, and every check passed.
    Done,
    /// It ran, and a check failed.
    Failed,
    /// It ran past its time limit and was ended.
    TimedOut,
    /// Something that it needs is missing.
    Skipped,
}

/// The outcome of a section.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Outcome {
    ending: Ending,
    /// Why it did not succeed; empty otherwise.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    why: String,
    /// Figures by name (which ends in the unit): numbers or lists.
    #[serde(default)]
    figures: Map<String, Value>,
    /// Lines of the table: label and value.
    #[serde(default)]
    lines: Vec<(String, String)>,
}

impl Outcome {
    fn done() -> Self {
        Self { ending: Ending::Done, why: String::new(), figures: Map::new(), lines: Vec::new() }
    }

    fn other(ending: Ending, why: impl Into<String>) -> Self {
        Self { ending, why: why.into(), ..Self::done() }
    }

    fn figure(&mut self, name: &str, value: impl Into<Value>) {
        self.figures.insert(name.to_owned(), value.into());
    }

    fn line(&mut self, what: impl Into<String>, value: impl Into<String>) {
        self.lines.push((what.into(), value.into()));
    }
}

#[derive(Debug, Serialize)]
struct SectionReport {
    name: &'static str,
    seconds: f64,
    #[serde(flatten)]
    outcome: Outcome,
}

/// What a report says about a device.
#[derive(Debug, Serialize)]
pub(crate) struct DeviceReport {
    /// As the driver reports it.
    pub name: String,
    compute_capability: String,
    driver: String,
    compiler: String,
    memory_bytes: u64,
    shared_bytes: usize,
    multiprocessors: u32,
}

#[derive(Serialize)]
struct Report {
    benchmark: &'static str,
    engine: &'static str,
    version: &'static str,
    /// UTC.
    date: String,
    /// Nothing in it was measured on a device.
    simulated: bool,
    device: DeviceReport,
    machine: Machine,
    symbols: u32,
    bars: u32,
    long_bars: u32,
    sections: Vec<SectionReport>,
}

impl DeviceReport {
    pub fn of(facts: &Facts) -> Self {
        let version = |(major, minor): (i32, i32)| format!("{major}.{minor}");
        Self {
            name: facts.name.clone(),
            compute_capability: version(facts.capability),
            driver: facts.driver.clone(),
            compiler: version(facts.compiler),
            memory_bytes: facts.memory_bytes,
            shared_bytes: facts.shared_bytes,
            multiprocessors: facts.multiprocessors,
        }
    }
}

/// Opens the device that is measured, the first one of these names or of all; the error is why there is none.
pub type OpenDevice = fn(Option<&[DeviceName]>) -> Result<Arc<dyn Device>, String>;

/// Runs the sections on the device that `open` gives; fails without one, or when a section did not succeed.
///
/// # Errors
/// The report cannot be written.
pub fn run(args: &Args, open: OpenDevice) -> Result<ExitCode> {
    if let Some(section) = args.section {
        let outcome =
            in_this_process(section, args, open).unwrap_or_else(|e| Outcome::other(Ending::Failed, format!("{e:#}")));
        writeln!(io::stdout(), "{}", serde_json::to_string(&outcome)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    let started = Instant::now();
    let facts = match open(args.devices.as_deref()) {
        Ok(device) => device.facts().clone(),
        Err(why) => {
            eprintln!("no GPU, so no figures: {why}");
            return Ok(ExitCode::FAILURE);
        }
    };
    if let Some(folder) = &args.dump {
        let outcome = dump::write(&executor(&gpu(args, open)?, true)?, &args.size, folder)?;
        for (what, value) in &outcome.lines {
            writeln!(io::stdout(), "{what}: {value}")?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    let simulated = facts.is_emulated();
    let wanted = if args.sections.is_empty() { &Section::USUAL[..] } else { &args.sections };
    let mut sections = Vec::new();
    for section in wanted {
        let (begun, left) = (Instant::now(), TOTAL_MAX.saturating_sub(started.elapsed()));
        let limit = section.limit().min(left);
        eprintln!("{}: at most {} s", section.name(), limit.as_secs());
        let outcome = if limit.is_zero() {
            Outcome::other(Ending::Skipped, format!("the {} s of all sections were over", TOTAL_MAX.as_secs()))
        } else {
            in_a_process(*section, args, limit).unwrap_or_else(|e| Outcome::other(Ending::Failed, format!("{e:#}")))
        };
        sections.push(SectionReport { name: section.name(), seconds: begun.elapsed().as_secs_f64(), outcome });
    }
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let report = Report {
        benchmark: "gpu",
        engine: "trawl",
        version: env!("CARGO_PKG_VERSION"),
        date: format_time(i64::try_from(now.as_micros()).unwrap_or(i64::MAX)),
        simulated,
        device: DeviceReport::of(&facts),
        machine: machine(),
        symbols: args.size.symbols,
        bars: args.size.bars,
        long_bars: args.size.long_bars,
        sections,
    };
    if let Some(path) = &args.report {
        let text = serde_json::to_string_pretty(&report)? + "\n";
        std::fs::write(path, text).with_context(|| format!("cannot write '{}'", path.display()))?;
    }
    std::io::stdout().write_all(table(&report).as_bytes())?;
    let well = |s: &SectionReport| matches!(s.outcome.ending, Ending::Done | Ending::Skipped);
    Ok(if report.sections.iter().all(well) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn table(report: &Report) -> String {
    let device = &report.device;
    let simulated = if report.simulated { " (SIMULATED: nothing here was measured on a device)" } else { "" };
    let mut text = format!(
        "{}{simulated}, compute capability {}, driver {}, compiler {}\n",
        device.name, device.compute_capability, device.driver, device.compiler
    );
    for section in &report.sections {
        let ending = match section.outcome.ending {
            Ending::Done => "done".to_owned(),
            Ending::Failed => format!("FAILED: {}", section.outcome.why),
            Ending::TimedOut => format!("TIMED OUT: {}", section.outcome.why),
            Ending::Skipped => format!("skipped: {}", section.outcome.why),
        };
        text.push_str(&format!("{:<10}{:>6.1} s  {ending}\n", section.name, section.seconds));
        for (what, value) in &section.outcome.lines {
            text.push_str(&format!("  {what:<52}{value}\n"));
        }
    }
    text
}

/// Runs a section in a process of its own, which is killed when its time is over.
fn in_a_process(section: Section, args: &Args, limit: Duration) -> Result<Outcome> {
    let Some(ended) = process::run(&mut command(section, args)?, limit)? else {
        return Ok(Outcome::other(Ending::TimedOut, format!("not done within {} s", limit.as_secs())));
    };
    match ended.stdout.lines().last().and_then(|line| serde_json::from_str(line).ok()) {
        Some(outcome) => Ok(outcome),
        None => Ok(Outcome::other(Ending::Failed, format!("it printed nothing ({})", ended.status))),
    }
}

/// This executable with the arguments of a section.
fn command(section: Section, args: &Args) -> Result<Command> {
    let mut command = Command::new(std::env::current_exe().context("cannot find this executable")?);
    command.args(["bench", "gpu", "--section", section.name()]).args(args.of_section());
    command.stdout(Stdio::piped());
    Ok(command)
}

impl Args {
    /// The arguments of a section's process beside its name.
    fn of_section(&self) -> Vec<String> {
        let mut arguments = self.size.arguments();
        let names = |devices: &Vec<DeviceName>| devices.iter().map(DeviceName::to_string).collect::<Vec<_>>().join(",");
        arguments.extend(self.devices.as_ref().map(|devices| format!("--devices={}", names(devices))));
        arguments
    }
}

impl Size {
    fn arguments(&self) -> Vec<String> {
        let mut arguments = vec![
            format!("--symbols={}", self.symbols),
            format!("--bars={}", self.bars),
            format!("--long-bars={}", self.long_bars),
            format!("--repeats={}", self.repeats),
        ];
        arguments.extend(self.functions.map(|n| format!("--functions={n}")));
        arguments
    }
}

fn in_this_process(section: Section, args: &Args, open: OpenDevice) -> Result<Outcome> {
    let size = &args.size;
    match section {
        Section::Copy => figures::copy(gpu(args, open)?.as_ref()),
        Section::Parity => parity::catalogue(&gpu(args, open)?, size),
        Section::Screen => figures::screen(&executor(&gpu(args, open)?, true)?, size, Precision::F64),
        Section::ScreenF32 => figures::screen(&executor(&gpu(args, open)?, true)?, size, Precision::F32),
        Section::Atc => figures::atc(&executor(&gpu(args, open)?, true)?, size, Precision::F64),
        Section::AtcF32 => figures::atc(&executor(&gpu(args, open)?, true)?, size, Precision::F32),
        Section::Long => figures::long(&executor(&gpu(args, open)?, true)?, size),
        Section::First => first::first(&gpu(args, open)?, size),
        Section::Waves => sweeps::waves(&executor(&gpu(args, open)?, true)?, size),
        Section::Functions => {
            let device = gpu(args, open)?;
            sweeps::each_function(device.as_ref(), &executor(&device, true)?, size, Precision::F64)
        }
        Section::FunctionsF32 => {
            let device = gpu(args, open)?;
            sweeps::each_function(device.as_ref(), &executor(&device, true)?, size, Precision::F32)
        }
        Section::Small => parity::small(&executor(&gpu(args, open)?, true)?),
        Section::Sanitizer => sanitizer::run(args),
    }
}

fn gpu(args: &Args, open: OpenDevice) -> Result<Arc<dyn Device>> {
    open(args.devices.as_deref()).map_err(|why| anyhow!(why))
}

/// An executor without cached kernels.
fn executor(device: &Arc<dyn Device>, wait_for_fused: bool) -> Result<Executor> {
    let options =
        ExecutorOptions { wait_for_fused, batch_time_max: Section::Parity.limit(), ..ExecutorOptions::default() };
    Ok(Executor::new(Arc::clone(device), Cache::in_memory(), options)?)
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum as _;

    use super::*;

    #[test]
    fn every_section_is_found_by_its_name() {
        for section in Section::value_variants() {
            assert_eq!(Section::from_str(section.name(), false), Ok(*section));
        }
    }
}
