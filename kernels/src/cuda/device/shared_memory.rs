//! Memory outside of the device's own that kernels read: host memory over a coherent link, and managed memory. It is
//! free when the stream that used it last has got there, without a wait, and is used again: releasing managed memory waits for the whole
//! device, and new host memory is cleared by the system page by page.
//!
//! The lock is held to move blocks between lists, and never while the driver or the system is called.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use cudarc::driver::{DriverError, result, sys};

use crate::advise_large_pages;
use crate::cuda::device::event_pool::EventPool;
use crate::cuda::device::{CELL_BYTES, Memory, Place};

/// Alignment of host memory: a large page, so that the device needs few entries of its translation cache.
const HOST_ALIGNMENT: usize = 2 << 20;
/// Least cells of a block: a page.
const BLOCK_CELLS_MIN: usize = 512;
/// Sizes of blocks between a power of two and the next one: a block is at most an eighth larger than what it is for.
const SIZES_OF_OCTAVE: usize = 8;
/// Most blocks that wait for their next use, and most bytes of them.
const IDLE_BLOCKS_MAX: usize = 64;
const IDLE_BYTES_MAX: usize = 256 << 20;
/// How long closing a device waits for what may still be read, and how often it asks.
const CLOSE_TIME_MAX: Duration = Duration::from_secs(5);
const CLOSE_POLL: Duration = Duration::from_micros(100);

/// A piece of memory of one of the sizes of blocks.
#[derive(Debug, Clone, Copy)]
struct Block {
    address: u64,
    cells: usize,
    place: Place,
}

/// A block that may still be read until an event is reached.
struct Leaving {
    event: sys::CUevent,
    block: Block,
}

#[derive(Default)]
struct State {
    leaving: Vec<Leaving>,
    /// The one that was released first in front.
    idle: VecDeque<Block>,
    idle_bytes: usize,
}

/// What was released and may still be read, and what may be used again.
#[derive(Default)]
pub(super) struct SharedMemory {
    state: Mutex<State>,
    /// Bytes of host memory in all blocks.
    host_bytes: AtomicU64,
}

/// What is asked of the device that the memory belongs to.
pub(super) struct Owner<'a> {
    pub events: &'a EventPool,
    /// Whether an error is of a context that has ended, in which nothing runs any more.
    pub has_ended: &'a dyn Fn(DriverError) -> bool,
}

// SAFETY: an event may be used by any thread whose current context is the device's.
unsafe impl Send for SharedMemory {}
// SAFETY: as above, and the lists are locked.
unsafe impl Sync for SharedMemory {}

/// Cells of the block for so many cells.
fn block_cells(cells: usize) -> usize {
    let cells = cells.max(BLOCK_CELLS_MIN);
    let step = cells.checked_next_power_of_two().map_or(1, |power| (power / 2 / SIZES_OF_OCTAVE).max(1));
    cells.checked_next_multiple_of(step).unwrap_or(cells)
}

/// Bytes of the block for so many cells.
pub(super) fn block_bytes(cells: usize) -> u64 {
    (block_cells(cells) as u64).saturating_mul(CELL_BYTES as u64)
}

fn layout(cells: usize) -> Option<Layout> {
    let bytes = cells.checked_mul(CELL_BYTES)?;
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
    let bytes = cells * CELL_BYTES;
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

impl State {
    fn keep(&mut self, block: Block) {
        self.idle_bytes += block.cells * CELL_BYTES;
        self.idle.push_back(block);
    }

    /// Takes the idle block that was released first.
    fn pop(&mut self) -> Option<Block> {
        let block = self.idle.pop_front()?;
        self.idle_bytes -= block.cells * CELL_BYTES;
        Some(block)
    }
}

impl SharedMemory {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes of host memory, in use or not.
    pub fn host_bytes(&self) -> u64 {
        self.host_bytes.load(Ordering::Relaxed)
    }

    /// Memory that was released and is not read any more. The device's context is current.
    pub fn again(&self, place: Place, cells: usize, owner: &Owner<'_>) -> Option<Memory> {
        self.sweep(owner);
        let wanted = block_cells(cells);
        let mut state = self.state();
        let at = state.idle.iter().rposition(|block| block.place == place && block.cells == wanted)?;
        let block = state.idle.remove(at)?;
        state.idle_bytes -= block.cells * CELL_BYTES;
        Some(Memory { address: block.address, cells, place })
    }

    /// Allocates in such a place; `Ok(None)` if the system has no memory. The device's context is current.
    pub fn allocate(&self, place: Place, cells: usize, ordinal: usize) -> Result<Option<Memory>, DriverError> {
        let block = block_cells(cells);
        let address = match place {
            Place::Host => host(block),
            _ => Some(managed(block, ordinal)?),
        };
        if place == Place::Host && address.is_some() {
            self.host_bytes.fetch_add(block_bytes(cells), Ordering::Relaxed);
        }
        Ok(address.map(|address| Memory { address, cells, place }))
    }

    /// Keeps memory for its next use once `event`, which was recorded behind its last use, is reached. The context is current.
    pub fn release(&self, event: sys::CUevent, memory: &Memory, owner: &Owner<'_>) {
        self.state().leaving.push(Leaving { event, block: block_of(memory) });
        self.sweep(owner);
    }

    /// Releases memory of a device whose context has ended. Nothing reads it any more, but the driver does not take back what it gave.
    pub fn abandon(&self, memory: &Memory) {
        if memory.place == Place::Host {
            self.free(block_of(memory));
        }
    }

    /// The same of everything that was released.
    pub fn abandon_all(&self) {
        let all: Vec<Block> = {
            let mut state = self.state();
            let leaving = std::mem::take(&mut state.leaving);
            let idle = std::iter::from_fn(|| state.pop()).collect::<Vec<_>>();
            leaving.into_iter().map(|one| one.block).chain(idle).collect()
        };
        all.into_iter().filter(|block| block.place == Place::Host).for_each(|block| self.free(block));
    }

    /// Moves what is no longer read to what may be used again, and releases what is too much of that; whether anything may still be
    /// read.
    pub fn sweep(&self, owner: &Owner<'_>) -> bool {
        let leaving = std::mem::take(&mut self.state().leaving);
        let (mut left, mut reached) = (Vec::new(), Vec::new());
        for one in leaving {
            // SAFETY: the event is this list's own until it is returned to the pool.
            match unsafe { result::event::query(one.event) } {
                Ok(()) => reached.push(one),
                Err(DriverError(sys::CUresult::CUDA_ERROR_NOT_READY)) => left.push(one),
                Err(error) if (owner.has_ended)(error) => reached.push(one),
                // It may still be read.
                Err(_) => left.push(one),
            }
        }
        let is_read = !left.is_empty();
        let mut state = self.state();
        state.leaving.append(&mut left);
        reached.iter().for_each(|one| state.keep(one.block));
        let mut over = Vec::new();
        while state.idle.len() > IDLE_BLOCKS_MAX || state.idle_bytes > IDLE_BYTES_MAX {
            over.extend(state.pop());
        }
        drop(state);
        for one in reached {
            if !owner.events.keep(one.event as u64) {
                // SAFETY: nobody else has it, and it is destroyed once.
                let _ = unsafe { result::event::destroy(one.event) };
            }
        }
        over.into_iter().for_each(|block| self.free(block));
        is_read
    }

    /// Releases everything that is not read any more.
    pub fn empty(&self, owner: &Owner<'_>) {
        self.sweep(owner);
        let idle: Vec<Block> = {
            let mut state = self.state();
            std::iter::from_fn(|| state.pop()).collect()
        };
        idle.into_iter().for_each(|block| self.free(block));
    }

    /// Releases everything, waiting for what may still be read. Of a device that is silent everything is kept: releasing managed memory
    /// would wait for it.
    pub fn close(&self, owner: &Owner<'_>) {
        let until = Instant::now() + CLOSE_TIME_MAX;
        while self.sweep(owner) {
            if Instant::now() >= until {
                return;
            }
            std::thread::sleep(CLOSE_POLL);
        }
        self.empty(owner);
    }

    fn free(&self, block: Block) {
        match (block.place, layout(block.cells)) {
            (Place::Host, Some(layout)) => {
                self.host_bytes.fetch_sub((block.cells * CELL_BYTES) as u64, Ordering::Relaxed);
                // SAFETY: allocated by `host` with this layout, and in no list any more.
                unsafe { dealloc(block.address as *mut u8, layout) }
            }
            // SAFETY: allocated by `managed`, and in no list any more. A failure is reported by the next wait.
            _ => drop(unsafe { result::free_sync(block.address) }),
        }
    }
}

fn block_of(memory: &Memory) -> Block {
    Block { address: memory.address, cells: block_cells(memory.cells), place: memory.place }
}

/// Enqueues the move of managed memory to the device.
///
/// # Safety
/// The memory is managed and lives until the work is done; the stream is of the current context.
pub(super) unsafe fn prefetch(memory: &Memory, ordinal: usize, stream: sys::CUstream) -> Result<(), DriverError> {
    // SAFETY: the range is within the allocation.
    unsafe { result::mem_prefetch_async(memory.address, memory.cells.max(1) * CELL_BYTES, location(ordinal), stream) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_at_most_an_eighth_larger_than_what_it_is_for() {
        for cells in (1..100_000).chain([1 << 27, (1 << 27) + 1, usize::MAX / CELL_BYTES]) {
            let block = block_cells(cells);
            assert!(block >= cells && (block <= BLOCK_CELLS_MIN || block - cells <= cells / 8), "{cells}: {block}");
            assert_eq!(block_cells(block), block, "a block is of its own size");
        }
    }
}
