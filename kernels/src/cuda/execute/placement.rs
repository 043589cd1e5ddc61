//! Where columns of bars lie when kernels read them: one implementation for each [`MemoryMode`]. The bits are the same.

use std::fmt::Debug;

use crate::cuda::device::memory_mode::MemoryMode;
use crate::cuda::device::{CELL_BYTES, Fault, Place};
use crate::cuda::execute::transfer::{DeviceBuffer, Track};

/// Writes cells of a column: first cell, destination.
pub(super) type Lay<'a> = dyn FnMut(usize, &mut [u64]) + 'a;

/// Puts columns where kernels read them.
pub(super) trait Placement: Send + Sync + Debug {
    fn mode(&self) -> MemoryMode;

    /// A column of `cells` cells that `lay` writes, and the bytes that are moved to the device for it. Kernels that are
    /// enqueued later in the track's stream may read it.
    fn place(&self, track: &mut Track, cells: usize, lay: &mut Lay<'_>) -> Result<(DeviceBuffer, u64), Fault>;

    /// A copy in the device's memory of a column that is read again, if it is worth one.
    fn promote(&self, _track: &Track, _held: &DeviceBuffer) -> Result<Option<DeviceBuffer>, Fault> {
        Ok(None)
    }
}

/// The implementation of a mode.
pub(super) fn of(mode: MemoryMode) -> Box<dyn Placement> {
    match mode {
        MemoryMode::Pinned => Box::new(Pinned),
        MemoryMode::Managed => Box::new(Managed),
        MemoryMode::Coherent => Box::new(Coherent),
    }
}

fn bytes(cells: usize) -> u64 {
    (cells * CELL_BYTES) as u64
}

/// A column that the host writes where kernels read it, in one piece.
fn written(track: &Track, place: Place, cells: usize, lay: &mut Lay<'_>) -> Result<DeviceBuffer, Fault> {
    let mut held = track.allocate_shared(place, cells)?;
    track.write(&mut held, &mut |cells| lay(0, cells));
    Ok(held)
}

#[derive(Debug)]
struct Pinned;

impl Placement for Pinned {
    fn mode(&self) -> MemoryMode {
        MemoryMode::Pinned
    }

    fn place(&self, track: &mut Track, cells: usize, lay: &mut Lay<'_>) -> Result<(DeviceBuffer, u64), Fault> {
        let held = track.allocate(cells)?;
        track.send(held.memory(), cells, lay)?;
        Ok((held, bytes(cells)))
    }
}

#[derive(Debug)]
struct Managed;

impl Placement for Managed {
    fn mode(&self) -> MemoryMode {
        MemoryMode::Managed
    }

    fn place(&self, track: &mut Track, cells: usize, lay: &mut Lay<'_>) -> Result<(DeviceBuffer, u64), Fault> {
        let held = written(track, Place::Managed, cells, lay)?;
        track.device.prefetch(track.stream, held.memory())?;
        Ok((held, bytes(cells)))
    }
}

#[derive(Debug)]
struct Coherent;

impl Placement for Coherent {
    fn mode(&self) -> MemoryMode {
        MemoryMode::Coherent
    }

    fn place(&self, track: &mut Track, cells: usize, lay: &mut Lay<'_>) -> Result<(DeviceBuffer, u64), Fault> {
        Ok((written(track, Place::Host, cells, lay)?, 0))
    }

    fn promote(&self, track: &Track, held: &DeviceBuffer) -> Result<Option<DeviceBuffer>, Fault> {
        if held.memory().place() != Place::Host {
            return Ok(None);
        }
        let cells = held.memory().cells();
        let own = match track.allocate(cells) {
            Ok(own) => own,
            // It stays where it is, and is read there.
            Err(Fault::OutOfMemory { .. }) => return Ok(None),
            Err(fault) => return Err(fault),
        };
        track.device.copy_within(track.stream, (held.memory(), 0), (own.memory(), 0), cells)?;
        Ok(Some(own))
    }
}
