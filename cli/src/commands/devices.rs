//! `trawl devices`: the GPUs of this machine, and whether plans can run on them.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::process::ExitCode;

use anyhow::Context as _;
use serde::Serialize;
use trawl_kernels::cuda::{self, Cuda, Device as _, Facts, Gpu, MemoryMode, Search};

use crate::backend::gpus;
use crate::output::page::{Page, new_table, push_table};
use trawl_front::human::bytes;

const AFTER_HELP: &str = "\
A GPU needs compute capability 8.0, a driver of CUDA 12.8 or newer, and NVIDIA's run-time compiler (libnvrtc of CUDA 12 or \
13), which is looked for in TRAWL_CUDA_LIBRARIES, CUDA_HOME, the active Python environment's wheels, /usr/local/cuda and where \
the system does. The exit code is 0 whether there is a GPU or not.";

/// Show the GPUs of this machine, and which would be used
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    /// Print JSON
    #[arg(long)]
    json: bool,

    /// GPUs to compute on together, by their numbers, as for a scan [default: the first usable one and all others of its
    /// name]
    #[arg(long, value_name = "NUMBERS", env = "TRAWL_DEVICES", hide_env = true, value_delimiter = ',')]
    devices: Option<Vec<usize>>,

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
}

#[derive(Serialize)]
struct Found {
    ordinal: usize,
    name: String,
    compute_capability: String,
    memory_bytes: u64,
    free_bytes: Option<u64>,
    chosen: bool,
    /// How bars reach it: `pinned`, `managed` or `coherent`.
    #[serde(skip_serializing_if = "Option::is_none")]
    memory_mode: Option<&'static str>,
    /// Why so.
    #[serde(skip_serializing_if = "Option::is_none")]
    memory_mode_reason: Option<&'static str>,
    /// The node of host memory that is closest to it.
    #[serde(skip_serializing_if = "Option::is_none")]
    numa_node: Option<u32>,
    /// Why this one is not used.
    #[serde(skip_serializing_if = "Option::is_none")]
    why_not: Option<String>,
}

/// Looks for devices and prints them.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let shown = shown(args);
    let text = if args.json { format!("{}\n", serde_json::to_string_pretty(&shown)?) } else { text(&shown) };
    io::stdout().write_all(text.as_bytes()).context("cannot write to standard output")?;
    Ok(ExitCode::SUCCESS)
}

/// What was asked of a device that may be used.
struct Usable {
    facts: Facts,
    mode: (MemoryMode, &'static str),
    free_bytes: Option<u64>,
}

/// Opens the devices that would be used; why there is none, or why one of them cannot be used.
fn usable(args: &Args) -> Result<Vec<Usable>, String> {
    let open = |gpu: &Gpu| {
        let named = |why: String| format!("device {}, {}: {why}", gpu.ordinal, gpu.name);
        let device = Cuda::open(gpu).map_err(|fault| named(fault.to_string()))?;
        let mode = MemoryMode::choose(device.facts().access, args.memory_mode).map_err(named)?;
        Ok(Usable { free_bytes: device.free_bytes().ok(), facts: device.facts().clone(), mode })
    };
    gpus(args.devices.as_deref())?.iter().map(open).collect()
}

fn shown(args: &Args) -> Shown {
    let found = cuda::devices(&Search::of_environment()).unwrap_or_default();
    let (usable, refusal) = match usable(args) {
        Ok(usable) => (usable, None),
        Err(why) => (Vec::new(), Some(why)),
    };
    let of_found = |gpu: cuda::Seen| {
        let chosen = usable.iter().find(|usable| usable.facts.ordinal == gpu.ordinal);
        let mode = chosen.map(|usable| usable.mode);
        let other = || refusal.clone().unwrap_or_else(|| "others are used".to_owned());
        Found {
            ordinal: gpu.ordinal,
            name: gpu.name,
            compute_capability: format!("{}.{}", gpu.capability.0, gpu.capability.1),
            memory_bytes: gpu.memory_bytes,
            free_bytes: chosen.and_then(|usable| usable.free_bytes),
            chosen: chosen.is_some(),
            memory_mode: mode.map(|(mode, _)| mode.name()),
            memory_mode_reason: mode.map(|(_, reason)| reason),
            numa_node: chosen.and_then(|usable| usable.facts.access.numa_node),
            why_not: chosen.is_none().then(other),
        }
    };
    let devices: Vec<Found> = found.into_iter().map(of_found).collect();
    let version = |(major, minor): (i32, i32)| format!("{major}.{minor}");
    let facts = usable.first().map(|usable| &usable.facts);
    let found = || match usable.as_slice() {
        [only] => format!("a GPU was found: {}", only.facts.name),
        several => format!("{} GPUs were found: {}", several.len(), facts.map_or("", |f| f.name.as_str())),
    };
    Shown {
        backend: facts.map_or_else(|| trawl_kernels::BACKEND_CPU.to_owned(), |f| f.backend.to_owned()),
        reason: refusal.clone().unwrap_or_else(found),
        driver: facts.map_or_else(String::new, |f| f.driver.clone()),
        compiler: facts.map_or_else(String::new, |f| version(f.compiler)),
        devices,
    }
}

fn text(shown: &Shown) -> String {
    let mut text = String::new();
    if !shown.devices.is_empty() {
        let mut table = new_table();
        table.set_header(["device", "name", "capability", "memory", "free", "mode", ""]);
        for device in &shown.devices {
            table.add_row([
                device.ordinal.to_string(),
                device.name.clone(),
                device.compute_capability.clone(),
                bytes(device.memory_bytes),
                device.free_bytes.map_or_else(String::new, bytes),
                device.memory_mode.unwrap_or_default().to_owned(),
                device.why_not.clone().unwrap_or_else(|| "chosen".to_owned()),
            ]);
        }
        push_table(&mut text, &table, Page::of_stdout());
        let _ = writeln!(text, "driver {}, run-time compiler {}", shown.driver, shown.compiler);
        let reason = shown.devices.iter().find_map(|device| Some((device.memory_mode?, device.memory_mode_reason?)));
        if let Some((mode, reason)) = reason {
            let _ =
                writeln!(text, "memory mode: {mode} ({reason}); --memory-mode of a scan or a worker chooses another");
        }
    }
    let _ = writeln!(text, "computes on: {} ({})", shown.backend, shown.reason);
    text
}
