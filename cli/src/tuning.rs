//! Settings that were measured for a device: measured by `trawl devices tune` or at the start of a worker, kept in the user's cache, and used
//! by later starts for as long as device, driver, build and memory mode are the same. They change no bit of an answer.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use serde::{Deserialize, Serialize};
use trawl_bench::devices::{Size, tune};
use trawl_kernels::cuda::{
    Cache, Cuda, Executor, ExecutorOptions, Facts, Fleet, Gpu, MemoryMode, Search, Tuned, Tuning, driver_version,
};

use crate::app::cache_folder;

/// Maximum bytes of a file.
const FILE_BYTES_MAX: u64 = 1 << 16;

/// What a start does about the settings of its devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum DeviceTuning {
    /// Uses what 'trawl devices tune' has stored, else the usual settings
    #[default]
    Stored,
    /// The same, and measures a device for which nothing is stored: some seconds
    Measure,
    /// Uses the usual settings
    Off,
}

/// What is stored of one device.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Stored {
    /// What it was measured with: other settings may be faster with another.
    #[serde(flatten)]
    with: With,
    streams: usize,
    batches_in_flight: usize,
    batch_in_bytes_max: u64,
    /// Milliseconds of the workload with the usual settings, and with these.
    usual_ms: f64,
    tuned_ms: f64,
    /// `measured`, or `simulated` on a device of the driver for tests.
    how: String,
}

/// What settings depend on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct With {
    /// The device's UUID; its name and number where the driver does not say.
    device: String,
    name: String,
    /// The driver's own version where NVML says it, and that of CUDA.
    driver: String,
    build: String,
    memory_mode: String,
}

impl With {
    fn of(facts: &Facts, mode: MemoryMode) -> Self {
        let driver = driver_version(&Search::of_environment());
        Self {
            device: device_of(facts),
            name: facts.name.clone(),
            driver: driver.map_or_else(|| facts.driver.clone(), |own| format!("{own} {}", facts.driver)),
            build: format!("{} {}", env!("CARGO_PKG_VERSION"), trawl_kernels::NUMERICS_ID),
            memory_mode: mode.name().to_owned(),
        }
    }
}

/// The device's UUID; its name and number where the driver does not say.
fn device_of(facts: &Facts) -> String {
    if facts.uuid.is_empty() { format!("{}-{}", facts.name, facts.ordinal) } else { facts.uuid.clone() }
}

/// The file of a device and a memory mode; `None` without a folder for caches.
fn file_of(device: &str, mode: &str) -> Option<PathBuf> {
    let safe = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' };
    let name: String = device.chars().map(safe).collect();
    Some(cache_folder("tuning")?.join(format!("{name}-{mode}.json")))
}

impl Stored {
    /// The settings.
    pub fn tuning(&self) -> Tuning {
        Tuning {
            streams: self.streams,
            batches_in_flight: self.batches_in_flight,
            batch_in_bytes_max: self.batch_in_bytes_max,
        }
    }

    fn of(with: With, tuned: &Tuned, how: &str) -> Self {
        let Tuning { streams, batches_in_flight, batch_in_bytes_max } = tuned.tuning;
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        let (usual_ms, tuned_ms) = (ms(tuned.usual), ms(tuned.took));
        Self { with, streams, batches_in_flight, batch_in_bytes_max, usual_ms, tuned_ms, how: how.to_owned() }
    }

    /// What is stored for a device in a memory mode, if it was measured with what there is now.
    pub fn read(facts: &Facts, mode: MemoryMode) -> Option<Self> {
        let file = file_of(&device_of(facts), mode.name())?;
        if std::fs::metadata(&file).ok()?.len() > FILE_BYTES_MAX {
            return None;
        }
        let stored: Option<Self> = serde_json::from_slice(&std::fs::read(&file).ok()?).ok();
        let with = With::of(facts, mode);
        let fits = stored.filter(|stored| stored.with == with && stored.tuning().is_known());
        if fits.is_none() {
            tracing::info!(
                device = facts.ordinal,
                file = %file.display(),
                "settings that were measured with another device, driver, build or memory mode are not used"
            );
        }
        fits
    }

    fn write(&self) -> anyhow::Result<PathBuf> {
        let file = file_of(&self.with.device, &self.with.memory_mode)
            .context("there is no folder for caches: set HOME or XDG_CACHE_HOME")?;
        let folder = file.parent().context("a file in a folder")?;
        std::fs::create_dir_all(folder).with_context(|| format!("cannot make the folder '{}'", folder.display()))?;
        // Under a name of its own until it is complete: others may read it at the same time.
        let fresh = file.with_extension(format!("{}.tmp", std::process::id()));
        let written = serde_json::to_string_pretty(self).context("cannot write JSON")?;
        std::fs::write(&fresh, written + "\n")
            .and_then(|()| std::fs::rename(&fresh, &file))
            .with_context(|| format!("cannot write '{}'", file.display()))?;
        Ok(file)
    }
}

impl std::fmt::Display for Stored {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (megabytes, gain) = (self.batch_in_bytes_max >> 20, self.usual_ms / self.tuned_ms.max(1e-9));
        let (streams, batches) = (self.streams, self.batches_in_flight);
        write!(
            f,
            "{streams} streams, {batches} batches in flight of at most {megabytes} MiB: {gain:.2} times as fast"
        )?;
        write!(f, " as the usual settings ({:.3} in place of {:.3} ms, {})", self.tuned_ms, self.usual_ms, self.how)
    }
}

/// The options of an executor on a device: with what is stored for it, unless tuning is off.
pub fn options_for(facts: &Facts, options: &ExecutorOptions, tuning: DeviceTuning) -> ExecutorOptions {
    let mode = MemoryMode::choose(facts.access, options.memory_mode);
    let stored = mode.ok().filter(|_| tuning != DeviceTuning::Off).and_then(|(mode, _)| Stored::read(facts, mode));
    match stored {
        Some(stored) => {
            tracing::info!(device = facts.ordinal, settings = stored.to_string(), "uses measured settings");
            stored.tuning().applied(options)
        }
        None => options.clone(),
    }
}

/// Measures a device and stores the best settings; where they are stored.
///
/// # Errors
/// The device fails, the time is over, or the file cannot be written.
pub fn measure(
    gpu: &Gpu,
    options: &ExecutorOptions,
    cache: &Arc<Cache>,
    size: &Size,
) -> anyhow::Result<(Stored, Tuned, PathBuf)> {
    let open =
        |options: &ExecutorOptions| Executor::new(Arc::new(Cuda::open(gpu)?), Arc::clone(cache), options.clone());
    let tuned = tune::tune(size, options, &open)?;
    let seconds = tune::TUNING_TIME_MAX.as_secs();
    let tuned = tuned.with_context(|| format!("nothing was measured within {seconds} s: give fewer --symbols"))?;
    let fleet = Fleet::from(open(options)?);
    let (facts, (mode, _)) = (fleet.facts(), fleet.executors()[0].memory_mode());
    let stored = Stored::of(With::of(facts, mode), &tuned, trawl_bench::devices::how(&fleet));
    let file = stored.write()?;
    Ok((stored, tuned, file))
}

/// Measures the devices for which nothing is stored. A failure leaves the usual settings, and is logged.
pub fn measure_missing(gpus: &[Gpu], options: &ExecutorOptions, cache: &Arc<Cache>) {
    for gpu in gpus {
        let known = Cuda::open(gpu).ok().and_then(|device| {
            let facts = trawl_kernels::cuda::Device::facts(&device).clone();
            let (mode, _) = MemoryMode::choose(facts.access, options.memory_mode).ok()?;
            Stored::read(&facts, mode)
        });
        if known.is_some() {
            continue;
        }
        match measure(gpu, options, cache, &Size::default()) {
            Ok((stored, ..)) => tracing::info!(device = gpu.ordinal, settings = stored.to_string(), "measured"),
            Err(error) => {
                tracing::warn!(device = gpu.ordinal, "not measured, the usual settings are used: {error:#}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_stored_is_read_again_and_says_what_it_gains() {
        let with = With {
            device: "GPU-1/../x".to_owned(),
            name: "NVIDIA".to_owned(),
            driver: "580.1 13.0".to_owned(),
            build: "b".to_owned(),
            memory_mode: "pinned".to_owned(),
        };
        let tuning = Tuning { streams: 6, batches_in_flight: 2, batch_in_bytes_max: 64 << 20 };
        let (took, usual) = (Duration::from_millis(8), Duration::from_millis(10));
        let tuned = Tuned { tuning, took, usual, measured: 9, is_complete: true };
        let stored = Stored::of(with, &tuned, "simulated");
        let again: Stored = serde_json::from_str(&serde_json::to_string(&stored).unwrap()).unwrap();
        assert_eq!((&again, again.tuning()), (&stored, tuning));
        let text = stored.to_string();
        assert!(text.contains("6 streams, 2 batches in flight of at most 64 MiB: 1.25 times as fast"), "{text}");
        assert!(text.contains("simulated") && !text.contains("measured"), "{text}");
        if let Some(file) = file_of("GPU-1/../x", "pinned") {
            let name = file.file_name().unwrap().to_str().unwrap();
            assert_eq!(name, "GPU-1____x-pinned.json", "no path of another folder");
        }
    }
}
