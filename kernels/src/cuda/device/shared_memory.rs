//! Memory outside of the device's own that kernels read: host memory over a coherent link, and managed memory. It is
//! released when the stream that used it last has got there, without a wait.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::sync::{Mutex, MutexGuard, PoisonError};

use cudarc::driver::{DriverError, result, sys};

use crate::advise_large_pages;
use crate::cuda::device::{CELL_BYTES, Memory, Place};

/// Alignment of host memory: a large page, so that the device needs few entries of its translation cache.
const HOST_ALIGNMENT: usize = 2 << 20;

/// Memory whose release waits for an event.
struct Leaving {
    event: sys::CUevent,
    address: u64,
    cells: usize,
    place: Place,
}

/// What was released and may still be read.
#[derive(Default)]
pub(super) struct SharedMemory {
    leaving: Mutex<Vec<Leaving>>,
}

// SAFETY: an event may be used by any thread whose current context is the device's.
unsafe impl Send for SharedMemory {}
// SAFETY: as above, and the list is locked.
unsafe impl Sync for SharedMemory {}

fn layout(cells: usize) -> Option<Layout> {
    let bytes = cells.max(1).checked_mul(CELL_BYTES)?;
    Layout::from_size_align(bytes, if bytes < HOST_ALIGNMENT { CELL_BYTES } else { HOST_ALIGNMENT }).ok()
}

/// Host memory, or `None` if the system has none. Its pages are where the threads run that write it.
fn host(cells: usize) -> Option<u64> {
    let layout = layout(cells)?;
    // SAFETY: the layout is not empty. Zeroed, since cells are handed out as numbers.
    let address = unsafe { alloc_zeroed(layout) };
    if address.is_null() {
        return None;
    }
    // SAFETY: that many cells were just allocated, and nobody else has the address yet.
    advise_large_pages(unsafe { std::slice::from_raw_parts_mut(address.cast::<f64>(), cells) });
    Some(address as u64)
}

/// Managed memory that belongs on the device.
fn managed(cells: usize, ordinal: usize) -> Result<u64, DriverError> {
    let bytes = cells.max(1) * CELL_BYTES;
    let advice = sys::CUmem_advise::CU_MEM_ADVISE_SET_PREFERRED_LOCATION;
    // SAFETY: the range is the allocation; it is written before it is read.
    unsafe {
        let address = result::malloc_managed(bytes, sys::CUmemAttach_flags::CU_MEM_ATTACH_GLOBAL)?;
        // A hint: without it the pages move when they are read.
        let _ = result::mem_advise(address, bytes, advice, location(ordinal));
        Ok(address)
    }
}

fn location(ordinal: usize) -> sys::CUmemLocation {
    let id = i32::try_from(ordinal).unwrap_or(0);
    sys::CUmemLocation { type_: sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, id }
}

impl SharedMemory {
    fn leaving(&self) -> MutexGuard<'_, Vec<Leaving>> {
        self.leaving.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Allocates in such a place; `Ok(None)` if the system has no memory. The device's context is current.
    pub fn allocate(&self, place: Place, cells: usize, ordinal: usize) -> Result<Option<Memory>, DriverError> {
        self.sweep(false);
        let address = match place {
            Place::Host => host(cells),
            _ => Some(managed(cells, ordinal)?),
        };
        Ok(address.map(|address| Memory { address, cells, place }))
    }

    /// Releases memory once `event`, which was recorded behind its last use, is reached. The context is current.
    pub fn release(&self, event: sys::CUevent, memory: &Memory) {
        let Memory { address, cells, place } = *memory;
        self.leaving().push(Leaving { event, address, cells, place });
        self.sweep(false);
    }

    /// Releases what is no longer read; with `wait`, everything.
    pub fn sweep(&self, wait: bool) {
        let mut leaving = self.leaving();
        leaving.retain(|one| {
            // SAFETY: the event was created for this list and is destroyed once, below.
            let state =
                unsafe { if wait { result::event::synchronize(one.event) } else { result::event::query(one.event) } };
            if matches!(state, Err(DriverError(sys::CUresult::CUDA_ERROR_NOT_READY))) {
                return true;
            }
            // An event that failed is of a lost device, which reads nothing any more.
            // SAFETY: allocated by this module with this layout, and released once.
            unsafe {
                let _ = result::event::destroy(one.event);
                match (one.place, layout(one.cells)) {
                    (Place::Host, Some(layout)) => dealloc(one.address as *mut u8, layout),
                    _ => drop(result::free_sync(one.address)),
                }
            }
            false
        });
    }
}

/// Enqueues the move of managed memory to the device.
///
/// # Safety
/// The memory is managed and lives until the work is done; the stream is of the current context.
pub(super) unsafe fn prefetch(memory: &Memory, ordinal: usize, stream: sys::CUstream) -> Result<(), DriverError> {
    // SAFETY: the range is the allocation.
    unsafe { result::mem_prefetch_async(memory.address, memory.cells.max(1) * CELL_BYTES, location(ordinal), stream) }
}
