//! Where columns of bars lie when kernels read them: one implementation for each [`MemoryMode`]. The bits are the same.

use std::fmt::Debug;

use crate::cuda::device::memory_mode::MemoryMode;
use crate::cuda::device::{CELL_BYTES, Fault, Place};
use crate::cuda::execute::device_laying::{BarsAt, Laying};
use crate::cuda::execute::transfer::{DeviceBuffer, Track};

/// Puts columns where kernels read them.
pub(super) trait Placement: Send + Sync + Debug {
    fn mode(&self) -> MemoryMode;

    /// A column, and the bytes that are moved to the device for it. Kernels that are enqueued later in the track's stream may read
    /// it.
    fn place(&self, track: &mut Track, laying: &Laying<'_>) -> Result<(DeviceBuffer, u64), Fault>;

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
fn written(track: &Track, place: Place, laying: &Laying<'_>) -> Result<DeviceBuffer, Fault> {
    let mut held = track.allocate_shared(place, laying.cells())?;
    track.write(&mut held, &mut |cells| laying.lay(0, cells));
    Ok(held)
}

#[derive(Debug)]
struct Pinned;

impl Placement for Pinned {
    fn mode(&self) -> MemoryMode {
        MemoryMode::Pinned
    }

    fn place(&self, track: &mut Track, laying: &Laying<'_>) -> Result<(DeviceBuffer, u64), Fault> {
        let cells = laying.cells();
        let held = track.allocate(cells)?;
        if let Some(kernel) = laying.kernel(track, BarsAt::Device)
            && let Some(came) = laying.lay_on_device(track, kernel, &held, BarsAt::Device)?
        {
            return Ok((held, came));
        }
        track.send(held.memory(), cells, &mut |first, to| laying.lay(first, to))?;
        Ok((held, bytes(cells)))
    }
}

#[derive(Debug)]
struct Managed;

impl Placement for Managed {
    fn mode(&self) -> MemoryMode {
        MemoryMode::Managed
    }

    fn place(&self, track: &mut Track, laying: &Laying<'_>) -> Result<(DeviceBuffer, u64), Fault> {
        let held = written(track, Place::Managed, laying)?;
        track.device.prefetch(track.stream, held.memory())?;
        Ok((held, bytes(laying.cells())))
    }
}

#[derive(Debug)]
struct Coherent;

impl Placement for Coherent {
    fn mode(&self) -> MemoryMode {
        MemoryMode::Coherent
    }

    fn place(&self, track: &mut Track, laying: &Laying<'_>) -> Result<(DeviceBuffer, u64), Fault> {
        // The device reads the host's bars where they are, once, into memory of its own if it has any.
        if let Some(kernel) = laying.kernel(track, BarsAt::Host) {
            match track.allocate(laying.cells()) {
                Ok(held) => {
                    if let Some(came) = laying.lay_on_device(track, kernel, &held, BarsAt::Host)? {
                        return Ok((held, came));
                    }
                }
                Err(Fault::OutOfMemory { .. }) => {}
                Err(fault) => return Err(fault),
            }
        }
        Ok((written(track, Place::Host, laying)?, 0))
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
