//! What is asked of the driver, and set, when a device is opened: how it reaches host memory, priorities of streams, the memory pool.

use std::ffi::CStr;
use std::path::Path;

use cudarc::driver::{CudaContext, DriverError, result, sys};

use crate::cuda::compile::device_probe::has_function;
use crate::cuda::device::memory_mode::HostAccess;
use crate::cuda::device::numa::node_of;

/// Bytes of a device's id on the bus, with the final 0.
const PCI_ID_BYTES: usize = 16;
/// Functions of the driver that managed memory needs; the first one allocates.
pub(super) const MANAGED_FUNCTIONS: [&str; 4] =
    ["cuMemAllocManaged", "cuMemAdvise_v2", "cuMemPrefetchAsync_v2", "cuMemFree_v2"];
/// Functions of the driver that priorities need.
const PRIORITY_FUNCTIONS: [&str; 2] = ["cuCtxGetStreamPriorityRange", "cuStreamCreateWithPriority"];

/// How the device reaches host memory. What an old driver does not know is not there.
pub(super) fn access_of(context: &CudaContext, device: sys::CUdevice) -> HostAccess {
    use sys::CUdevice_attribute::{
        CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT as COPY_ENGINES,
        CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS as MANAGED, CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID as NUMA_NODE,
        CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS as PAGE_FAULTS,
        CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES as COHERENT,
    };
    let attribute = |which| context.attribute(which).unwrap_or(0);
    let known = context.attribute(NUMA_NODE).ok().and_then(|node| u32::try_from(node).ok());
    HostAccess {
        is_coherent: attribute(COHERENT) == 1,
        has_page_faults: attribute(PAGE_FAULTS) == 1,
        is_managed: attribute(MANAGED) == 1 && MANAGED_FUNCTIONS.iter().all(|function| has_function(function)),
        numa_node: known.or_else(|| node_of(Path::new("/sys"), &pci_id(device)?)),
        copy_engines: attribute(COPY_ENGINES).unsigned_abs(),
    }
}

/// The device's id on the bus, as `0000:3B:00.0`.
fn pci_id(device: sys::CUdevice) -> Option<String> {
    if !has_function("cuDeviceGetPCIBusId") {
        return None;
    }
    let mut text = [0; PCI_ID_BYTES];
    let bytes = i32::try_from(text.len()).ok()?;
    // SAFETY: the driver writes at most so many bytes, the last of them 0.
    let found = unsafe { sys::cuDeviceGetPCIBusId(text.as_mut_ptr(), bytes, device) };
    found.result().ok()?;
    // SAFETY: a text that the driver ended.
    unsafe { CStr::from_ptr(text.as_ptr()) }.to_str().ok().map(str::to_owned)
}

/// The least and the greatest priority of a stream; equal where there are none.
pub(super) fn priorities() -> (i32, i32) {
    let are_there = PRIORITY_FUNCTIONS.iter().all(|function| has_function(function));
    are_there.then(|| result::stream::get_priority_range().ok()).flatten().unwrap_or((0, 0))
}

/// Configures the memory pool: released memory stays with the process, and an allocation never waits for another
/// stream's release.
pub(super) fn set_up_pool(device: sys::CUdevice) -> Result<(), DriverError> {
    use sys::CUmemPool_attribute::{
        CU_MEMPOOL_ATTR_RELEASE_THRESHOLD as THRESHOLD,
        CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES as INTERNAL_DEPENDENCIES,
    };
    let (mut all, mut off) = (u64::MAX, 0i32);
    // SAFETY: the device exists; the first attribute is a number of 64 bits, the second one of 32.
    unsafe {
        let pool = result::device::get_mem_pool(device)?;
        result::mem_pool::set_attribute(pool, THRESHOLD, (&raw mut all).cast())?;
        // A driver without this attribute has no such dependencies.
        let _ = result::mem_pool::set_attribute(pool, INTERNAL_DEPENDENCIES, (&raw mut off).cast());
    }
    Ok(())
}
