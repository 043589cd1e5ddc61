//! Detects a GPU that plans can run on. The driver's bindings panic if the library or one of its functions is missing,
//! so they are only called after this check.

use cudarc::driver::{CudaContext, DriverError, result, sys};

use crate::cuda::compile::device_name::{DeviceName, KINDS, slice_of, uuid_text};
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
    /// As [`Seen::uuid`].
    pub uuid: String,
    /// As [`Seen::slice`].
    pub slice: Option<String>,
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
    /// The driver shows no device of this UUID.
    #[error("there is no device {uuid}; the driver shows {shown}")]
    NoSuchUuid {
        /// As it was asked for.
        uuid: String,
        /// The UUIDs of those that there are.
        shown: String,
    },
    /// The driver shows no slice of this UUID: a process sees one slice, and which one is decided when it starts.
    #[error(
        "the driver shows no slice {uuid}, but {shown}: a process sees one slice at most, so start it with \
         CUDA_VISIBLE_DEVICES={uuid}, and leave out --devices"
    )]
    NoSuchSlice {
        /// As it was asked for.
        uuid: String,
        /// The UUIDs of the devices that there are.
        shown: String,
    },
    /// Several devices' UUIDs begin so.
    #[error("the UUIDs of several devices begin with {uuid}: give more of it")]
    Ambiguous {
        /// As it was asked for.
        uuid: String,
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
    /// Its UUID, `GPU-...` or of a slice `MIG-...`, as NVIDIA's tools write it; empty if the driver does not say.
    pub uuid: String,
    /// The profile of a slice of a GPU (MIG), such as `1g.10gb`; `None` for a whole one. Memory and multiprocessors are the slice's.
    pub slice: Option<String>,
    /// Major and minor compute capability.
    pub capability: (i32, i32),
    /// Total device memory in bytes.
    pub memory_bytes: u64,
    /// Number of multiprocessors.
    pub multiprocessors: u32,
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
        CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT as MULTIPROCESSORS,
    };
    let device = result::device::get(i32::try_from(ordinal).unwrap_or(i32::MAX))?;
    let name = result::device::get_name(device)?;
    // SAFETY: a device just returned by the driver.
    let (memory, major, minor, multiprocessors) = unsafe {
        let attribute = |which| result::device::get_attribute(device, which);
        (result::device::total_mem(device)?, attribute(MAJOR)?, attribute(MINOR)?, attribute(MULTIPROCESSORS)?)
    };
    let (uuid, slice) = match (uuid_by("cuDeviceGetUuid_v2", device), uuid_by("cuDeviceGetUuid", device)) {
        (Some(own), of_gpu) => {
            let slice = slice_of(&name, &own, &of_gpu.unwrap_or(own));
            (uuid_text(slice.is_some(), &own), slice)
        }
        (None, _) => (String::new(), slice_of(&name, &[0; 16], &[0; 16])),
    };
    Ok(Seen {
        ordinal,
        name,
        uuid,
        slice,
        capability: (major, minor),
        memory_bytes: memory as u64,
        multiprocessors: multiprocessors.unsigned_abs(),
    })
}

/// A device's UUID by one of the two functions: of a slice the newer one gives the slice's, the older one the GPU's. The bindings
/// have the newer one alone.
fn uuid_by(function: &str, device: sys::CUdevice) -> Option<[u8; 16]> {
    type GetUuid = unsafe extern "C" fn(*mut [u8; 16], sys::CUdevice) -> std::ffi::c_int;
    // SAFETY: the driver was found, and this is the type of both functions.
    let get = unsafe { sys::culib().get::<GetUuid>(function.as_bytes()) }.ok()?;
    let mut uuid = [0; 16];
    // SAFETY: a place for 16 bytes; an unknown device is refused.
    let code = unsafe { get(&raw mut uuid, device) };
    (code == 0).then_some(uuid)
}

/// The devices that plans can run on, or why there is none. Those named by `wanted`, in that order; without it, the first
/// usable one and all others of its name: devices that differ would wait for the slowest. Slices of a GPU have names of their own.
/// Never panics, whatever is missing.
///
/// # Errors
/// [`Unavailable`].
pub fn gpus(search: &Search, wanted: Option<&[DeviceName]>) -> Result<Vec<Gpu>, Unavailable> {
    let count = driver(search)?;
    let compiler = Compiler::find(search)?;
    let driver = driver_version()?;
    let mut found: Vec<Gpu> = Vec::new();
    let mut refused = None;
    let all: Vec<Seen> = (0..count).map(seen).collect::<Result<_, _>>()?;
    let ordinals: Vec<usize> = match wanted {
        Some(wanted) => wanted.iter().map(|name| index_of(name, &all)).collect::<Result<_, _>>()?,
        None => (0..count).collect(),
    };
    for ordinal in ordinals {
        if found.iter().any(|gpu| gpu.ordinal == ordinal) {
            return Err(Unavailable::NamedTwice { ordinal });
        }
        let Seen { name, uuid, slice, capability, memory_bytes, .. } = all[ordinal].clone();
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
            uuid,
            slice,
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

/// The index of the device that is meant by a name.
fn index_of(name: &DeviceName, seen: &[Seen]) -> Result<usize, Unavailable> {
    let begun = match name {
        DeviceName::Ordinal(ordinal) if *ordinal < seen.len() => return Ok(*ordinal),
        DeviceName::Ordinal(ordinal) => {
            return Err(Unavailable::NoSuchDevice { ordinal: *ordinal, count: seen.len() });
        }
        DeviceName::Uuid(uuid) => uuid,
    };
    let mut found = (0..seen.len()).filter(|at| seen[*at].uuid.starts_with(begun.as_str()));
    match (found.next(), found.next()) {
        (Some(at), None) => Ok(at),
        (Some(_), Some(_)) => Err(Unavailable::Ambiguous { uuid: begun.clone() }),
        (None, _) => {
            let uuids: Vec<&str> = seen.iter().map(|seen| seen.uuid.as_str()).collect();
            let (uuid, shown) = (begun.clone(), uuids.join(", "));
            Err(if begun.starts_with(KINDS[1]) {
                Unavailable::NoSuchSlice { uuid, shown }
            } else {
                Unavailable::NoSuchUuid { uuid, shown }
            })
        }
    }
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

    fn seen(uuids: &[&str]) -> Vec<Seen> {
        let of = |(ordinal, uuid): (usize, &&str)| Seen {
            ordinal,
            name: "NVIDIA".to_owned(),
            uuid: (*uuid).to_owned(),
            slice: None,
            capability: (9, 0),
            memory_bytes: 1,
            multiprocessors: 1,
        };
        uuids.iter().enumerate().map(of).collect()
    }

    #[test]
    fn a_device_is_named_by_number_or_by_the_beginning_of_its_uuid() {
        let devices = seen(&["GPU-8932f937-d72c", "GPU-8932aaaa-d72c", "MIG-8932f937-d72c"]);
        let find = |name: &str| index_of(&name.parse().expect("a name"), &devices);
        assert_eq!(find("1"), Ok(1));
        assert_eq!(find("GPU-8932F937"), Ok(0), "letters of either case");
        assert_eq!(find("GPU-8932a"), Ok(1));
        assert_eq!(find("MIG-8"), Ok(2));
        assert_eq!(find("3"), Err(Unavailable::NoSuchDevice { ordinal: 3, count: 3 }));
        assert_eq!(find("GPU-8932"), Err(Unavailable::Ambiguous { uuid: "GPU-8932".to_owned() }));
        let absent = find("MIG-1").expect_err("no such slice").to_string();
        assert!(absent.contains("CUDA_VISIBLE_DEVICES=MIG-1") && absent.contains("MIG-8932f937-d72c"), "{absent}");
        assert!(find("GPU-1").expect_err("no such device").to_string().contains("GPU-8932aaaa"));
    }

    #[test]
    fn a_machine_without_a_gpu_gives_a_reason_and_does_not_panic() {
        match gpus(&Search::default(), None) {
            Ok(gpus) => assert!(gpus.iter().all(|gpu| gpu.architecture() >= 80), "{gpus:?}"),
            Err(reason) => assert!(!reason.to_string().is_empty()),
        }
    }
}
