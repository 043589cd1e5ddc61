//! `trawl devices`: the GPUs of this machine, and whether plans can run on them.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context as _;
use serde::Serialize;
use trawl_bench::devices::Size;
use trawl_kernels::cuda::{
    self, Cuda, Device as _, DeviceName, ExecutorOptions, Facts, Gpu, Health, MemoryMode, Search,
};

use crate::backend::{gpus, kernel_cache};
use crate::failure::UserMistake;
use crate::output::page::{Page, new_table, push_table};
use crate::tuning::{self, Stored};
use trawl_front::human::bytes;

const AFTER_HELP: &str = "\
A GPU needs compute capability 8.0, a driver of CUDA 12.8 or newer, and NVIDIA's run-time compiler (libnvrtc of CUDA 12 or \
13), which is looked for in TRAWL_CUDA_LIBRARIES, CUDA_HOME, the active Python environment's wheels, /usr/local/cuda and where \
the system does. The exit code is 0 whether there is a GPU or not.";

const AFTER_TUNE_HELP: &str = "\
Takes at most 20 s for each GPU. Settings are kept in $XDG_CACHE_HOME/trawl/tuning (or ~/.cache/trawl/tuning), and are used while device, \
driver, build and memory mode are the same; --device-tuning off of a scan or a worker leaves them out. Answers have the same bits with \
any of them.";

/// Show the GPUs of this machine, and which would be used
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP, args_conflicts_with_subcommands = true)]
pub struct Args {
    #[command(subcommand)]
    what: Option<What>,

    #[command(flatten)]
    show: ShowArgs,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// Measure which streams, batches in flight and bytes of a batch are fastest on each GPU, and store them for later starts
    Tune(TuneArgs),
}

/// Arguments of `trawl devices tune`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_TUNE_HELP)]
struct TuneArgs {
    /// GPUs to measure, by their numbers or UUIDs [default: as for a scan]
    #[arg(long, value_name = "NUMBERS", env = "TRAWL_DEVICES", hide_env = true, value_delimiter = ',')]
    devices: Option<Vec<DeviceName>>,

    /// How bars reach a GPU, as for a scan: settings are stored for each mode
    #[arg(long, value_name = "MODE", env = "TRAWL_MEMORY_MODE", hide_env = true)]
    memory_mode: Option<MemoryMode>,

    #[command(flatten)]
    size: Size,
}

/// Arguments of `trawl devices`.
#[derive(Debug, clap::Args)]
struct ShowArgs {
    /// Print JSON
    #[arg(long)]
    json: bool,

    /// GPUs to compute on together, by their numbers or UUIDs, as for a scan [default: the first usable one and all others of its
    /// name]
    #[arg(long, value_name = "NUMBERS", env = "TRAWL_DEVICES", hide_env = true, value_delimiter = ',')]
    devices: Option<Vec<DeviceName>>,

    /// How bars reach a GPU, as for a scan: 'pinned', 'managed' or 'coherent' [default: by what the GPU allows]
    #[arg(long, value_name = "MODE", env = "TRAWL_MEMORY_MODE", hide_env = true)]
    memory_mode: Option<MemoryMode>,
}

#[derive(Serialize)]
struct Shown {
    /// What `--backend auto` uses for a scan that is large enough.
    backend: String,
    /// Why.
    reason: String,
    /// The driver's version of CUDA.
    driver: String,
    /// The version of NVIDIA's run-time compiler.
    compiler: String,
    devices: Vec<Found>,
    /// Why the devices' state is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    health_unknown: Option<String>,
    /// What would make scans faster here.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    hints: Vec<String>,
}

#[derive(Serialize)]
struct Found {
    ordinal: usize,
    name: String,
    /// `GPU-...`, or of a slice `MIG-...`; empty if the driver does not say.
    uuid: String,
    /// The profile of a slice of a GPU (MIG).
    #[serde(skip_serializing_if = "Option::is_none")]
    slice: Option<String>,
    compute_capability: String,
    multiprocessors: u32,
    memory_bytes: u64,
    free_bytes: Option<u64>,
    chosen: bool,
    /// Its state: `healthy`, or what is wrong with it; `None` if that is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    health: Option<String>,
    /// Whether its memory errs or it does not respond, so that it is not used.
    is_quarantined: bool,
    /// Operations in f32 in the time of one in f64; `None` if it is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    f32_per_f64: Option<u32>,
    /// How bars reach it: `pinned`, `managed` or `coherent`.
    #[serde(skip_serializing_if = "Option::is_none")]
    memory_mode: Option<&'static str>,
    /// Why so.
    #[serde(skip_serializing_if = "Option::is_none")]
    memory_mode_reason: Option<&'static str>,
    /// Settings that were measured for it: they are used unless `--device-tuning off` is given.
    #[serde(skip_serializing_if = "Option::is_none")]
    tuned: Option<String>,
    /// The node of host memory that is closest to it.
    #[serde(skip_serializing_if = "Option::is_none")]
    numa_node: Option<u32>,
    /// Why this one is not used.
    #[serde(skip_serializing_if = "Option::is_none")]
    why_not: Option<String>,
}

/// Looks for devices and prints them.
///
/// # Errors
/// Nothing can be printed; a device cannot be measured.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    if let Some(What::Tune(args)) = &args.what {
        return tune(args);
    }
    let args = &args.show;
    let shown = shown(args);
    let text = if args.json { format!("{}\n", serde_json::to_string_pretty(&shown)?) } else { text(&shown) };
    io::stdout().write_all(text.as_bytes()).context("cannot write to standard output")?;
    Ok(ExitCode::SUCCESS)
}

/// Measures devices one after another.
fn tune(args: &TuneArgs) -> anyhow::Result<ExitCode> {
    let gpus = gpus(args.devices.as_deref()).map_err(|why| {
        UserMistake::with_help(format!("no GPU can be measured: {why}"), "'trawl devices' shows what was checked")
    })?;
    let options = ExecutorOptions { memory_mode: args.memory_mode, ..ExecutorOptions::default() };
    let cache = Arc::new(kernel_cache());
    for gpu in &gpus {
        let place = || format!("device {}, {}", gpu.ordinal, gpu.name);
        let (stored, tuned, file) = tuning::measure(gpu, &options, &cache, &args.size).with_context(place)?;
        let incomplete = if tuned.is_complete { "" } else { "; the time was over before all were measured" };
        writeln!(
            io::stdout(),
            "{}: {stored}; {} settings were compared{incomplete}\nstored in {}",
            place(),
            tuned.measured,
            file.display()
        )
        .context("cannot write to standard output")?;
    }
    Ok(ExitCode::SUCCESS)
}

/// What was asked of a device that may be used.
struct Usable {
    facts: Facts,
    mode: (MemoryMode, &'static str),
    free_bytes: Option<u64>,
    tuned: Option<Stored>,
}

/// Opens the devices that would be used; why there is none, or why one of them cannot be used.
fn usable(args: &ShowArgs) -> Result<Vec<Usable>, String> {
    let open = |gpu: &Gpu| {
        let named = |why: String| format!("device {}, {}: {why}", gpu.ordinal, gpu.name);
        let device = Cuda::open(gpu).map_err(|fault| named(fault.to_string()))?;
        let mode = MemoryMode::choose(device.facts().access, args.memory_mode).map_err(named)?;
        let tuned = Stored::read(device.facts(), mode.0);
        Ok(Usable { free_bytes: device.free_bytes().ok(), facts: device.facts().clone(), mode, tuned })
    };
    gpus(args.devices.as_deref())?.iter().map(open).collect()
}

fn shown(args: &ShowArgs) -> Shown {
    let search = Search::of_environment();
    let found = cuda::devices(&search).unwrap_or_default();
    let looked = cuda::look_at_health(&search, found.iter().map(|gpu| (gpu.uuid.as_str(), gpu.slice.is_some())));
    let (states, health_unknown) = match looked {
        _ if found.is_empty() => (Vec::new(), None),
        Ok(states) => (states, None),
        Err(why) => (Vec::new(), Some(why.to_string())),
    };
    let state = |ordinal: usize| -> Option<&Result<Health, String>> { states.get(ordinal) };
    let (usable, refusal) = match usable(args) {
        Ok(usable) => (usable, None),
        Err(why) => (Vec::new(), Some(why)),
    };
    let of_found = |gpu: cuda::Seen| {
        let chosen = usable.iter().find(|usable| usable.facts.ordinal == gpu.ordinal);
        let mode = chosen.map(|usable| usable.mode);
        let other = || refusal.clone().unwrap_or_else(|| "others are used".to_owned());
        let health = state(gpu.ordinal);
        let refused = health.and_then(|health| health.as_ref().ok()?.refusal(gpu.slice.is_some()));
        Found {
            ordinal: gpu.ordinal,
            health: health.map(|health| match health {
                Ok(health) => health.to_string(),
                Err(why) => format!("not known: {why}"),
            }),
            is_quarantined: health.is_some_and(|health| health.as_ref().is_ok_and(|health| health.is_quarantined)),
            f32_per_f64: chosen.map(|usable| usable.facts.f32_per_f64).filter(|ratio| *ratio > 0),
            name: gpu.name,
            uuid: gpu.uuid,
            slice: gpu.slice,
            multiprocessors: gpu.multiprocessors,
            compute_capability: format!("{}.{}", gpu.capability.0, gpu.capability.1),
            memory_bytes: gpu.memory_bytes,
            free_bytes: chosen.and_then(|usable| usable.free_bytes),
            chosen: chosen.is_some(),
            memory_mode: mode.map(|(mode, _)| mode.name()),
            memory_mode_reason: mode.map(|(_, reason)| reason),
            tuned: chosen.and_then(|usable| usable.tuned.as_ref()).map(Stored::to_string),
            numa_node: chosen.and_then(|usable| usable.facts.access.numa_node),
            why_not: chosen.is_none().then(|| refused.unwrap_or_else(other)),
        }
    };
    let devices: Vec<Found> = found.into_iter().map(of_found).collect();
    let version = |(major, minor): (i32, i32)| format!("{major}.{minor}");
    let facts = usable.first().map(|usable| &usable.facts);
    let found = || match usable.as_slice() {
        [only] => format!("a GPU was found: {}", only.facts.name),
        several => format!("{} GPUs were found: {}", several.len(), facts.map_or("", |f| f.name.as_str())),
    };
    let few: Vec<&Facts> =
        usable.iter().map(|usable| &usable.facts).filter(|facts| facts.has_few_f64_units()).collect();
    let hint = |facts: &&Facts| {
        format!(
            "{} does {} operations in f32 in the time of one in f64: --precision f32 computes faster there, within the error table \
             of docs/precision.md",
            facts.name, facts.f32_per_f64
        )
    };
    let mut hints: Vec<String> = few.iter().map(hint).collect();
    hints.dedup();
    Shown {
        health_unknown,
        hints,
        backend: facts.map_or_else(|| trawl_kernels::BACKEND_CPU.to_owned(), |f| f.backend.to_owned()),
        reason: refusal.clone().unwrap_or_else(found),
        driver: facts.map_or_else(String::new, |f| f.driver.clone()),
        compiler: facts.map_or_else(String::new, |f| version(f.compiler)),
        devices,
    }
}

/// What a row says of the use of a device. What is said of all devices below is not said of each.
fn use_of(device: &Found, shown: &Shown) -> String {
    match &device.why_not {
        None => "chosen".to_owned(),
        Some(why) if shown.reason.contains(why.as_str()) => "not used".to_owned(),
        Some(why) => why.clone(),
    }
}

fn text(shown: &Shown) -> String {
    let mut text = String::new();
    if !shown.devices.is_empty() {
        let mut table = new_table();
        table.set_header(["device", "name", "capability", "memory", "free", "mode", "health", ""]);
        for device in &shown.devices {
            table.add_row([
                device.ordinal.to_string(),
                device.name.clone(),
                device.compute_capability.clone(),
                bytes(device.memory_bytes),
                device.free_bytes.map_or_else(String::new, bytes),
                device.memory_mode.unwrap_or_default().to_owned(),
                device.health.clone().unwrap_or_default(),
                use_of(device, shown),
            ]);
        }
        push_table(&mut text, &table, Page::of_stdout());
        // Where none can be used nothing is known of them.
        if !shown.driver.is_empty() {
            let _ = writeln!(text, "driver {}, run-time compiler {}", shown.driver, shown.compiler);
        }
        let reason = shown.devices.iter().find_map(|device| Some((device.memory_mode?, device.memory_mode_reason?)));
        if let Some((mode, reason)) = reason {
            let _ =
                writeln!(text, "memory mode: {mode} ({reason}); --memory-mode of a scan or a worker chooses another");
        }
    }
    for device in &shown.devices {
        if let Some(profile) = &device.slice {
            let (ordinal, count, uuid) = (device.ordinal, device.multiprocessors, &device.uuid);
            let _ = writeln!(text, "device {ordinal} is a MIG slice, {profile} with {count} multiprocessors: {uuid}");
        }
    }
    for device in &shown.devices {
        if let Some(tuned) = &device.tuned {
            let _ = writeln!(text, "device {} is tuned: {tuned}", device.ordinal);
        }
    }
    for hint in shown.health_unknown.iter().chain(&shown.hints) {
        let _ = writeln!(text, "{hint}");
    }
    let _ = writeln!(text, "computes on: {} ({})", shown.backend, shown.reason);
    text
}
