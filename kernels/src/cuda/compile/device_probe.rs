//! Detects a GPU that plans can run on. The driver's bindings panic if the library or one of its functions is missing,
//! so they are only called after this check.

use cudarc::driver::{CudaContext, DriverError, result, sys};

use crate::cuda::compile::library::{Library, Open, Search};
use crate::cuda::compile::nvrtc::{CompileError, Compiler};

/// Minimum compute capability, which introduced asynchronous copies.
const CAPABILITY_LEAST: (i32, i32) = (8, 0);

/// The newest functions of the driver among those called here or by cudarc.
const FUNCTIONS: [&str; 27] = [
    "cuInit",
    "cuDriverGetVersion",
    "cuGetErrorString",
    "cuDeviceGetCount",
    "cuDeviceGet",
    "cuDeviceGetName",
    "cuDeviceGetMemPool",
    "cuDevicePrimaryCtxRetain",
    "cuCtxSetCurrent",
    "cuStreamCreate",
    "cuStreamQuery",
    "cuMemHostAlloc",
    "cuMemGetInfo_v2",
    "cuMemAllocAsync",
    "cuMemFreeAsync",
    "cuMemPoolSetAttribute",
    "cuMemPoolTrimTo",
    "cuMemcpyHtoDAsync_v2",
    "cuMemcpyDtoHAsync_v2",
    "cuModuleLoadData",
    "cuModuleGetFunction",
    "cuFuncSetAttribute",
    "cuLaunchKernel",
    "cuEventCreate",
    "cuEventRecord",
    "cuEventQuery",
    "cuEventElapsedTime_v2",
];

/// A device that plans can run on.
#[derive(Debug, Clone)]
pub struct Gpu {
    /// The driver's number of the device, from 0.
    pub ordinal: usize,
    /// As the driver reports it.
    pub name: String,
    /// Major and minor compute capability.
    pub capability: (i32, i32),
    /// Total device memory in bytes.
    pub memory_bytes: u64,
    /// Version of the driver, as `13.0`.
    pub driver: String,
    /// Maximum bytes of shared memory per block.
    pub shared_bytes: usize,
    /// The run-time compiler that was found.
    pub compiler: Compiler,
}

impl Gpu {
    /// The architecture that code is compiled for, such as 90.
    pub fn architecture(&self) -> u32 {
        (self.capability.0 * 10 + self.capability.1).unsigned_abs()
    }
}

/// Why no plan can run on a GPU here.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum Unavailable {
    /// The driver's library was not found.
    #[error("no NVIDIA driver: libcuda does not open")]
    NoDriver,
    /// The driver lacks this function.
    #[error("the NVIDIA driver is too old: it has no {0}")]
    OldDriver(&'static str),
    /// The driver reports no device, with its error or the reason.
    #[error("the NVIDIA driver finds no device: {0}")]
    NoDevice(String),
    /// The device's compute capability is too low.
    #[error("the device {name} has compute capability {}.{}, and {}.{} is the least",
        capability.0, capability.1, CAPABILITY_LEAST.0, CAPABILITY_LEAST.1)]
    OldDevice {
        /// As the driver reports it.
        name: String,
        /// Major and minor compute capability.
        capability: (i32, i32),
    },
    /// The driver has no device of this number.
    #[error("there is no device {ordinal}: the driver counts {count}, from 0")]
    NoSuchDevice {
        /// The number that was asked for.
        ordinal: usize,
        /// How many there are.
        count: usize,
    },
    /// A device was asked for twice: it would be used as if it had twice its memory.
    #[error("device {ordinal} is named twice")]
    NamedTwice {
        /// The number that was asked for.
        ordinal: usize,
    },
    /// A call of the driver failed, with its error.
    #[error("the NVIDIA driver failed: {0}")]
    Driver(String),
    /// The run-time compiler is missing or unusable.
    #[error(transparent)]
    Compiler(#[from] CompileError),
}

impl From<DriverError> for Unavailable {
    fn from(e: DriverError) -> Self {
        Self::Driver(format!("{e:?}"))
    }
}

/// A device reported by the driver, whether plans can run on it or not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// The driver's number of the device, from 0.
    pub ordinal: usize,
    /// As the driver reports it.
    pub name: String,
    /// Major and minor compute capability.
    pub capability: (i32, i32),
    /// Total device memory in bytes.
    pub memory_bytes: u64,
}

/// All devices reported by the driver. Never panics, whatever is missing.
///
/// # Errors
/// [`Unavailable`].
pub fn devices(search: &Search) -> Result<Vec<Seen>, Unavailable> {
    let count = driver(search)?;
    (0..count).map(seen).collect()
}

fn seen(ordinal: usize) -> Result<Seen, Unavailable> {
    use sys::CUdevice_attribute::{
        CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR as MAJOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR as MINOR,
    };
    let device = result::device::get(i32::try_from(ordinal).unwrap_or(i32::MAX))?;
    let name = result::device::get_name(device)?;
    // SAFETY: a device just returned by the driver.
    let (memory, major, minor) = unsafe {
        let attribute = |which| result::device::get_attribute(device, which);
        (result::device::total_mem(device)?, attribute(MAJOR)?, attribute(MINOR)?)
    };
    Ok(Seen { ordinal, name, capability: (major, minor), memory_bytes: memory as u64 })
}

/// The devices that plans can run on, or why there is none. Those named by `wanted`, in that order; without it, the first
/// usable one and all others of its name: devices that differ would wait for the slowest. Never panics, whatever is missing.
///
/// # Errors
/// [`Unavailable`].
pub fn gpus(search: &Search, wanted: Option<&[usize]>) -> Result<Vec<Gpu>, Unavailable> {
    let count = driver(search)?;
    let compiler = Compiler::find(search)?;
    let driver = driver_version()?;
    let mut found: Vec<Gpu> = Vec::new();
    let mut refused = None;
    let all: Vec<usize> = (0..count).collect();
    for &ordinal in wanted.unwrap_or(&all) {
        if ordinal >= count {
            return Err(Unavailable::NoSuchDevice { ordinal, count });
        }
        if found.iter().any(|gpu| gpu.ordinal == ordinal) {
            return Err(Unavailable::NamedTwice { ordinal });
        }
        let Seen { name, capability, memory_bytes, .. } = seen(ordinal)?;
        if capability < CAPABILITY_LEAST {
            let old = Unavailable::OldDevice { name, capability };
            if wanted.is_some() {
                return Err(old);
            }
            refused.get_or_insert(old);
            continue;
        }
        if wanted.is_none() && found.first().is_some_and(|first| first.name != name) {
            continue;
        }
        // Query the device, not a context: creating one takes a third of a second.
        let device = result::device::get(i32::try_from(ordinal).unwrap_or(i32::MAX))?;
        let shared = sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN;
        // SAFETY: a device just returned by the driver.
        let shared = unsafe { result::device::get_attribute(device, shared) }?;
        found.push(Gpu {
            ordinal,
            name,
            capability,
            memory_bytes,
            driver: driver.clone(),
            shared_bytes: usize::try_from(shared).unwrap_or(0),
            compiler,
        });
    }
    if found.is_empty() {
        return Err(refused.unwrap_or_else(|| Unavailable::NoDevice("it counts none".to_owned())));
    }
    Ok(found)
}

/// Finds the driver, and the number of its devices. The library found by the system's loader takes precedence: it
/// matches the kernel module, and the bindings open it by name whatever else is open.
fn driver(search: &Search) -> Result<usize, Unavailable> {
    // SAFETY: only checks whether a library of that name opens.
    let present = || unsafe { sys::is_culib_present() };
    // One of a folder stays open, and then the bindings find it by its soname, the last name that they try.
    if !present() && (Open::find(search, Library::Driver).is_none() || !present()) {
        return Err(Unavailable::NoDriver);
    }
    for function in FUNCTIONS {
        if !has_function(function) {
            return Err(Unavailable::OldDriver(function));
        }
    }
    let count = CudaContext::device_count().map_err(|e| Unavailable::NoDevice(format!("{e:?}")))?;
    if count < 1 {
        return Err(Unavailable::NoDevice("it counts none".to_owned()));
    }
    Ok(usize::try_from(count).unwrap_or(0))
}

/// Whether the driver, which was found before, has a function.
pub(in crate::cuda) fn has_function(function: &str) -> bool {
    // SAFETY: the library is there; the symbol is not called.
    unsafe { sys::culib().get::<*const ()>(function.as_bytes()) }.is_ok()
}

/// The version of CUDA that the driver supports.
fn driver_version() -> Result<String, DriverError> {
    let mut version = 0;
    // SAFETY: the driver is there; a place for a number.
    unsafe { sys::cuDriverGetVersion(&raw mut version) }.result()?;
    Ok(format!("{}.{}", version / 1000, version % 1000 / 10))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_without_a_gpu_gives_a_reason_and_does_not_panic() {
        match gpus(&Search::default(), None) {
            Ok(gpus) => assert!(gpus.iter().all(|gpu| gpu.architecture() >= 80), "{gpus:?}"),
            Err(reason) => assert!(!reason.to_string().is_empty()),
        }
    }
}
