//! What computes: the CPU of this machine or a GPU. Chosen once, before anything runs; the report gives the reason.

use std::sync::Arc;

use trawl_front::devices;
pub use trawl_front::devices::{gpus, open_all};
use trawl_front::run::Chosen;
use trawl_kernels::cuda::{
    self, Cache, Device, DeviceName, ExecutorOptions, Fleet, GatherOptions, MemoryMode, Nccl, Search,
};
use trawl_kernels::{BACKEND_CPU, Engine};

use crate::app::cache_folder;
use crate::failure::UserMistake;
use crate::tuning::{DeviceTuning, measure_missing, options_for};

/// A scan estimated at less than this (nanoseconds of one core) finishes in this process before a device is ready:
/// opening a device takes about half a second.
const WORTH_A_DEVICE_NS: f64 = 2e9;

/// What may compute.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Backend {
    /// A GPU where there is one and the scan is large enough
    Auto,
    /// The CPU of this machine
    Cpu,
    /// An NVIDIA GPU; an error where none can be used
    Cuda,
}

/// Who gathers values that several GPUs computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Gather {
    /// The host
    Host,
    /// The GPUs, by NVIDIA's library, where the values are many
    Nccl,
}

/// Options for choosing what computes.
#[derive(Debug, Clone, clap::Args)]
pub struct BackendArgs {
    /// What computes, in this process or among the workers of a cluster; 'trawl devices' lists the choices here
    #[arg(long, value_enum, default_value = "auto", env = "TRAWL_BACKEND", hide_env = true, help_heading = "Running")]
    backend: Backend,

    /// GPUs to compute on together, by their numbers in 'trawl devices', such as 0,2, or by UUID, of a MIG slice too [default: the
    /// first usable one and all others of its name]
    #[arg(
        long,
        value_name = "NUMBERS",
        env = "TRAWL_DEVICES",
        hide_env = true,
        value_delimiter = ',',
        help_heading = "Running"
    )]
    devices: Option<Vec<DeviceName>>,

    /// How bars reach a GPU: 'pinned' (copied), 'managed' (moved by the driver) or 'coherent' (read in host memory, as on
    /// GH200) [default: by what the GPU allows]
    #[arg(long, value_name = "MODE", env = "TRAWL_MEMORY_MODE", hide_env = true, help_heading = "Running")]
    memory_mode: Option<MemoryMode>,

    /// Who gathers the values of cross-sections that several GPUs computed: 'host', or 'nccl' for large ones (the GPUs, by
    /// NVIDIA's library; the host where it is missing or fails)
    #[arg(long, value_enum, default_value = "host", env = "TRAWL_GATHER", hide_env = true, help_heading = "Running")]
    gather: Gather,

    /// Streams, batches in flight and bytes of a batch of a GPU
    #[arg(
        long,
        value_enum,
        value_name = "WHICH",
        default_value = "stored",
        env = "TRAWL_DEVICE_TUNING",
        hide_env = true,
        help_heading = "Running"
    )]
    device_tuning: DeviceTuning,

    /// Bytes of each GPU's memory to take [default: nine tenths of what is free]
    #[arg(
        long,
        value_name = "BYTES",
        env = "TRAWL_DEVICE_MEMORY",
        hide_env = true,
        value_parser = clap::value_parser!(u64).range(DEVICE_MEMORY_MIN..),
        help_heading = "Running"
    )]
    device_memory: Option<u64>,
}

/// With less memory a device cannot hold a group of symbols.
const DEVICE_MEMORY_MIN: u64 = 1 << 20;

/// The work to choose for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Workload {
    /// Any work: a server's.
    Server,
    /// Work that only the CPU supports, named as the start of a sentence.
    CpuOnly(&'static str),
    /// One scan.
    Scan {
        /// Estimated nanoseconds of one core.
        estimated_ns: f64,
    },
}

/// The CPU, and the reason for it.
fn on_cpu(reason: impl Into<String>) -> Chosen {
    Chosen { engine: Engine::Cpu, reason: reason.into() }
}

impl BackendArgs {
    /// Chooses, and opens the device when a GPU is chosen.
    ///
    /// # Errors
    /// A [`UserMistake`] when the user asked for a GPU that cannot be used.
    pub fn choose(&self, work: Workload) -> Result<Chosen, UserMistake> {
        self.choose_with(work, || self.open().map(Arc::new))
    }

    /// As [`BackendArgs::choose`], with a device that may be open already.
    ///
    /// # Errors
    /// Those of [`BackendArgs::choose`].
    pub fn choose_with(
        &self,
        work: Workload,
        open: impl FnOnce() -> Result<Arc<Fleet>, String>,
    ) -> Result<Chosen, UserMistake> {
        let asked = self.backend == Backend::Cuda;
        match work {
            _ if self.backend == Backend::Cpu => return Ok(on_cpu("requested with --backend")),
            Workload::CpuOnly(what) if asked => {
                let message = format!("--backend cuda: {what} on the CPU only");
                return Err(UserMistake::with_help(message, "leave out --backend cuda"));
            }
            Workload::CpuOnly(what) => return Ok(on_cpu(format!("{what} on the CPU only"))),
            Workload::Scan { estimated_ns } if !asked && estimated_ns < WORTH_A_DEVICE_NS => {
                return Ok(on_cpu("the scan finishes before a GPU would be ready"));
            }
            _ => {}
        }
        match open() {
            Ok(fleet) => {
                let reason = if asked {
                    "requested with --backend".to_owned()
                } else {
                    format!("a GPU was found: {}", fleet.name())
                };
                Ok(Chosen { engine: Engine::Device(fleet), reason })
            }
            Err(why) if asked => Err(UserMistake::with_help(
                format!("--backend cuda: {why}"),
                "'trawl devices' shows what was checked; --backend auto computes on the CPU instead",
            )),
            Err(why) => Ok(on_cpu(why)),
        }
    }

    /// The backend to ask of a cluster's workers; `None` leaves the choice to the coordinator.
    pub fn of_workers(&self) -> Option<String> {
        match self.backend {
            Backend::Auto => None,
            Backend::Cpu => Some(BACKEND_CPU.to_owned()),
            Backend::Cuda => Some(cuda::BACKEND_CUDA.to_owned()),
        }
    }

    /// The same, with what a request names: `cpu`, `cuda` or nothing.
    pub fn named(&self, backend: Option<&str>) -> Self {
        let backend = match backend {
            Some(BACKEND_CPU) => Backend::Cpu,
            Some(_) => Backend::Cuda,
            None => self.backend,
        };
        Self { backend, ..self.clone() }
    }

    /// Opens the devices, all at the same time: each takes about half a second.
    ///
    /// # Errors
    /// Why there is none, or why one of them cannot be used.
    pub fn open(&self) -> Result<Fleet, String> {
        let options = ExecutorOptions {
            device_memory_bytes: self.device_memory,
            memory_mode: self.memory_mode,
            ..ExecutorOptions::default()
        };
        let (cache, gpus) = (Arc::new(kernel_cache()), gpus(self.devices.as_deref())?);
        if self.device_tuning == DeviceTuning::Measure {
            measure_missing(&gpus, &options, &cache);
        }
        let mut fleet = open_all(&gpus, &cache, |facts| options_for(facts, &options, self.device_tuning))?;
        if self.gather == Gather::Nccl {
            let found = Nccl::find(&Search::of_environment());
            let used = found.and_then(|nccl| fleet.gather_by(Box::new(nccl), GatherOptions::default()));
            if let Err(why) = used {
                tracing::warn!(
                    why,
                    "NCCL is not used: the host gathers the values of cross-sections, with the same bits"
                );
            }
        }
        Ok(fleet)
    }
}

/// The first of the devices to use here.
///
/// # Errors
/// Why there is none.
pub fn device(wanted: Option<&[DeviceName]>) -> Result<Arc<dyn Device>, String> {
    let gpus = gpus(wanted)?;
    let gpu = gpus.first().ok_or("no device")?;
    let device = cuda::Cuda::open(gpu).map_err(|fault| fault.to_string())?;
    Ok(Arc::new(device))
}

/// The cache of compiled kernels, shared between processes.
pub fn kernel_cache() -> Cache {
    devices::kernel_cache(cache_folder("kernels").as_deref())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(backend: Backend) -> BackendArgs {
        BackendArgs {
            backend,
            devices: None,
            memory_mode: None,
            gather: Gather::Host,
            device_tuning: DeviceTuning::Stored,
            device_memory: None,
        }
    }

    #[test]
    fn the_choice_is_reported_with_its_reason() {
        let scan = |estimated_ns| Workload::Scan { estimated_ns };
        let cpu = |backend, work| {
            let chosen = args(backend).choose(work).unwrap();
            assert!(matches!(chosen.engine, Engine::Cpu), "{chosen:?}");
            chosen.reason
        };
        assert_eq!(cpu(Backend::Cpu, Workload::Server), "requested with --backend");
        assert_eq!(cpu(Backend::Auto, scan(1e6)), "the scan finishes before a GPU would be ready");
        assert_eq!(cpu(Backend::Auto, Workload::CpuOnly("it runs")), "it runs on the CPU only");
        let refused = args(Backend::Cuda).choose(Workload::CpuOnly("it runs")).unwrap_err();
        assert!(refused.to_string().contains("it runs"), "{refused}");
    }
}
