//! Streams with their pinned memory, and device memory released on drop. Copies use two buffers in each direction:
//! while the device copies one, the host works on the other.

use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::cuda::device::arguments::GROUP_LANES;
use crate::cuda::device::{CELL_BYTES, Device, Fault, Mark, Memory, Place, Staging, Stream, Urgency};

/// How long a device may be silent before it counts as lost.
pub(super) const SILENCE_MAX: Duration = Duration::from_secs(60);

/// Pinned buffers of a track: two in each direction.
const BUFFERS_OF_TRACK: usize = 4;
/// How long the streams of a device that is no longer used may take until its pinned memory is released; else it is tried again later.
const CLOSING_MAX: Duration = Duration::from_secs(1);

/// Budget of device memory in bytes, and the part in use.
#[derive(Debug)]
pub(super) struct Budget {
    pub bytes_max: u64,
    used: AtomicU64,
}

impl Budget {
    pub fn new(bytes_max: u64) -> Self {
        Self { bytes_max, used: AtomicU64::new(0) }
    }

    fn take(&self, bytes: u64) -> Result<(), Fault> {
        let take = |used: u64| used.checked_add(bytes).filter(|used| *used <= self.bytes_max);
        match self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take) {
            Ok(_) => Ok(()),
            Err(used) => {
                let free_bytes = self.bytes_max.saturating_sub(used);
                Err(Fault::OutOfMemory { needed_bytes: bytes, free_bytes, refused_by: None })
            }
        }
    }

    fn give_back(&self, bytes: u64) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// Device memory that is released on drop. Before dropping it, wait for other streams that use it.
#[derive(Debug)]
pub(super) struct DeviceBuffer {
    device: Arc<dyn Device>,
    budget: Arc<Budget>,
    stream: Stream,
    memory: Option<Memory>,
}

/// The handle of an empty allocation.
static NOTHING: Memory = Memory { address: 0, cells: 0, place: Place::Device };

impl DeviceBuffer {
    /// Memory of the device's own, within its budget, released behind the work of `stream`.
    pub fn on_device(
        device: &Arc<dyn Device>,
        budget: &Arc<Budget>,
        stream: Stream,
        cells: usize,
    ) -> Result<Self, Fault> {
        Self::new(device, budget, stream, cells, || device.allocate(stream, cells))
    }

    /// The same of any memory that a device can use.
    pub fn new(
        device: &Arc<dyn Device>,
        budget: &Arc<Budget>,
        stream: Stream,
        cells: usize,
        allocate: impl FnOnce() -> Result<Memory, Fault>,
    ) -> Result<Self, Fault> {
        let bytes = (cells * CELL_BYTES) as u64;
        budget.take(bytes)?;
        match allocate() {
            Ok(memory) => {
                Ok(Self { device: Arc::clone(device), budget: Arc::clone(budget), stream, memory: Some(memory) })
            }
            Err(fault) => {
                budget.give_back(bytes);
                Err(fault)
            }
        }
    }

    /// Other memory within the same budget.
    pub fn beside(
        &self,
        stream: Stream,
        cells: usize,
        allocate: impl FnOnce() -> Result<Memory, Fault>,
    ) -> Result<Self, Fault> {
        Self::new(&self.device, &self.budget, stream, cells, allocate)
    }

    pub fn memory(&self) -> &Memory {
        self.memory.as_ref().unwrap_or(&NOTHING)
    }
}

impl Drop for DeviceBuffer {
    fn drop(&mut self) {
        if let Some(memory) = self.memory.take() {
            self.budget.give_back((memory.cells() * CELL_BYTES) as u64);
            self.device.release(self.stream, memory);
        }
    }
}

/// A mark that is released on drop.
#[derive(Debug)]
pub(super) struct OwnMark {
    device: Arc<dyn Device>,
    mark: Option<Mark>,
}

static NOWHERE: Mark = Mark(0);

impl OwnMark {
    pub fn mark(&self) -> &Mark {
        self.mark.as_ref().unwrap_or(&NOWHERE)
    }

    /// A mark behind all work in a stream.
    pub fn new(device: &Arc<dyn Device>, stream: Stream) -> Result<Self, Fault> {
        Ok(Self { mark: Some(device.mark(stream)?), device: Arc::clone(device) })
    }

    /// Waits for the mark, but not for longer; whether it was reached.
    pub fn wait_for(&self, longest: Duration) -> Result<bool, Fault> {
        self.device.wait(self.mark(), self.device.now() + longest)
    }

    /// Waits for the mark; a device that is silent for [`SILENCE_MAX`] counts as lost.
    pub fn wait(&self) -> Result<(), Fault> {
        let until = self.device.now() + SILENCE_MAX;
        if self.device.wait(self.mark(), until)? {
            return Ok(());
        }
        Err(Fault::Lost(format!("it has not answered for {} s", SILENCE_MAX.as_secs())))
    }

    pub fn time(&self) -> Result<Instant, Fault> {
        self.device.time(self.mark())
    }
}

impl Drop for OwnMark {
    fn drop(&mut self) {
        if let Some(mark) = self.mark.take() {
            self.device.forget(mark);
        }
    }
}

/// Whether the device does nothing of a stream any more, so that host memory that its work uses may be released.
pub(super) fn is_quiet(device: &Arc<dyn Device>, stream: Stream) -> bool {
    match OwnMark::new(device, stream) {
        Ok(mark) => matches!(mark.wait_for(CLOSING_MAX), Ok(true) | Err(Fault::Lost(_))),
        // Of a context that has ended.
        Err(fault) => matches!(fault, Fault::Lost(_)),
    }
}

/// A pinned buffer, and the copy that last used it.
#[derive(Debug)]
struct Buffer {
    staging: Staging,
    used: usize,
    busy: Option<OwnMark>,
}

/// Pinned buffers of a track that is being made; released on drop.
struct Pinned<'a> {
    device: &'a Arc<dyn Device>,
    buffers: Vec<Staging>,
}

impl Pinned<'_> {
    fn taken(&mut self) -> Vec<Staging> {
        std::mem::take(&mut self.buffers)
    }
}

impl Drop for Pinned<'_> {
    fn drop(&mut self) {
        self.taken().into_iter().for_each(|staging| self.device.unstage(staging));
    }
}

/// A stream and its buffers; used by one batch at a time.
#[derive(Debug)]
pub(super) struct Track {
    pub device: Arc<dyn Device>,
    budget: Arc<Budget>,
    pub stream: Stream,
    urgency: Urgency,
    inward: [Buffer; 2],
    /// Index of the buffer that is filled next.
    filling: usize,
    /// Cells of each buffer.
    pub staging_cells: usize,
    pub outward: [Staging; 2],
}

impl Track {
    fn new(
        device: &Arc<dyn Device>,
        budget: &Arc<Budget>,
        staging_cells: usize,
        urgency: Urgency,
    ) -> Result<Self, Fault> {
        // What was pinned before something failed is released: a later call begins anew.
        let mut pinned = Pinned { device, buffers: Vec::with_capacity(BUFFERS_OF_TRACK) };
        for _ in 0..BUFFERS_OF_TRACK {
            pinned.buffers.push(device.stage(staging_cells)?);
        }
        let stream = device.stream(urgency)?;
        let buffer = |staging: Staging| Buffer { staging, used: 0, busy: None };
        let Ok([first, second, third, fourth]) = <[Staging; BUFFERS_OF_TRACK]>::try_from(pinned.taken()) else {
            return Err(Fault::Failed("a stream without its buffers".to_owned()));
        };
        Ok(Self {
            stream,
            urgency,
            inward: [buffer(first), buffer(second)],
            filling: 0,
            staging_cells,
            outward: [third, fourth],
            device: Arc::clone(device),
            budget: Arc::clone(budget),
        })
    }

    /// Releases the buffers, which the device does not use any more.
    fn release(self) {
        let Self { device, inward, outward, .. } = self;
        inward.into_iter().map(|buffer| buffer.staging).chain(outward).for_each(|staging| device.unstage(staging));
    }

    pub fn allocate(&self, cells: usize) -> Result<DeviceBuffer, Fault> {
        DeviceBuffer::on_device(&self.device, &self.budget, self.stream, cells)
    }

    /// Allocates outside of the device's own memory; it counts against the same budget.
    pub fn allocate_shared(&self, place: Place, cells: usize) -> Result<DeviceBuffer, Fault> {
        DeviceBuffer::new(&self.device, &self.budget, self.stream, cells, || self.device.allocate_shared(place, cells))
    }

    /// Lets `work` write all cells of such memory, before any work that reads it is enqueued.
    pub fn write(&self, held: &mut DeviceBuffer, work: &mut dyn FnMut(&mut [u64])) {
        if let Some(memory) = &mut held.memory {
            self.device.write(memory, work);
        }
    }

    pub fn mark(&self) -> Result<OwnMark, Fault> {
        OwnMark::new(&self.device, self.stream)
    }

    /// Copies cells to the device; `fill` is called for each piece with its first cell and its destination.
    pub fn send(&mut self, to: &Memory, cells: usize, fill: &mut dyn FnMut(usize, &mut [u64])) -> Result<(), Fault> {
        let mut done = 0;
        while done < cells {
            if self.inward[self.filling].used == self.staging_cells {
                self.next_buffer()?;
            }
            let buffer = &mut self.inward[self.filling];
            let (at, piece) = (buffer.used, (self.staging_cells - buffer.used).min(cells - done));
            self.device.fill(&mut buffer.staging, at, piece, &mut |cells| fill(done, cells));
            self.device.copy_in(self.stream, (&buffer.staging, at), (to, done), piece)?;
            buffer.used += piece;
            done += piece;
        }
        Ok(())
    }

    /// Copies at most a buffer of cells to the beginning of such memory, at once.
    pub fn send_together(&mut self, to: &Memory, cells: usize, fill: &mut dyn FnMut(&mut [u64])) -> Result<(), Fault> {
        if self.staging_cells - self.inward[self.filling].used < cells {
            self.next_buffer()?;
        }
        let buffer = &mut self.inward[self.filling];
        let at = buffer.used;
        self.device.fill(&mut buffer.staging, at, cells, fill);
        self.device.copy_in(self.stream, (&buffer.staging, at), (to, 0), cells)?;
        // Pieces of columns are whole rows, and so are buffers.
        buffer.used = (at + cells).next_multiple_of(GROUP_LANES);
        Ok(())
    }

    /// Goes on to the other buffer, once the device no longer reads it.
    fn next_buffer(&mut self) -> Result<(), Fault> {
        let mark = self.mark()?;
        self.inward[self.filling].busy = Some(mark);
        self.filling = 1 - self.filling;
        let buffer = &mut self.inward[self.filling];
        buffer.used = 0;
        match buffer.busy.take() {
            Some(mark) => mark.wait(),
            None => Ok(()),
        }
    }

    /// Marks all buffers as free, after a wait for all work in the stream.
    pub fn settled(&mut self) {
        for buffer in &mut self.inward {
            (buffer.used, buffer.busy) = (0, None);
        }
    }

    /// Waits for all work in the stream, and marks the buffers as free even on error.
    pub fn settle(&mut self) -> Result<(), Fault> {
        let waited = self.mark().and_then(|mark| mark.wait());
        self.settled();
        waited
    }
}

/// Tracks lent to batches; created on demand.
#[derive(Debug)]
pub(super) struct Pool {
    device: Arc<dyn Device>,
    budget: Arc<Budget>,
    /// Maximum tracks by [`Urgency`].
    tracks_max: [usize; Urgency::COUNT],
    staging_cells: usize,
    state: Mutex<PoolState>,
    returned: Condvar,
}

#[derive(Debug, Default)]
struct PoolState {
    /// By [`Urgency`].
    idle: [Vec<Track>; Urgency::COUNT],
    made: [usize; Urgency::COUNT],
    /// Whether there was no pinned memory for another track: it is not asked for again.
    is_short: [bool; Urgency::COUNT],
    /// Whether the device is no longer used, and whether the buffers are released.
    is_closed: bool,
    is_released: bool,
    /// Number of returned tracks.
    returns: u64,
}

/// A borrowed track, returned to its pool on drop.
#[derive(Debug)]
pub(super) struct Lent {
    pool: Arc<Pool>,
    track: ManuallyDrop<Track>,
}

impl Pool {
    /// A pool of at most `tracks_max` streams by [`Urgency`], with buffers of whole rows, whose pinned memory is at most
    /// `pinned_bytes_max` together if that is a row for each.
    pub fn new(
        device: Arc<dyn Device>,
        budget: Arc<Budget>,
        tracks_max: [usize; Urgency::COUNT],
        (staging_bytes, pinned_bytes_max): (usize, usize),
    ) -> Self {
        let tracks_max = tracks_max.map(|tracks| tracks.max(1));
        let buffers = tracks_max.iter().sum::<usize>() * BUFFERS_OF_TRACK;
        let rows = (staging_bytes.min(pinned_bytes_max / buffers) / CELL_BYTES / GROUP_LANES).max(1);
        let staging_cells = rows * GROUP_LANES;
        Self { device, budget, tracks_max, staging_cells, state: Mutex::default(), returned: Condvar::new() }
    }

    /// Borrows a track; if none is free, waits if `wait`, otherwise returns `None`. Small requests never wait for large
    /// ones.
    pub fn lend(self: &Arc<Self>, urgency: Urgency, wait: bool) -> Result<Option<Lent>, Fault> {
        let class = urgency as usize;
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(track) = state.idle[class].pop() {
                return Ok(Some(Lent { pool: Arc::clone(self), track: ManuallyDrop::new(track) }));
            }
            if state.is_closed {
                return Err(Fault::Lost("it is no longer used".to_owned()));
            }
            if state.made[class] < self.tracks_max[class] && !state.is_short[class] {
                match self.make(urgency, state.made[class] == 0) {
                    Ok(track) => {
                        state.made[class] += 1;
                        return Ok(Some(Lent { pool: Arc::clone(self), track: ManuallyDrop::new(track) }));
                    }
                    // Those that there are have to do.
                    Err(Fault::OutOfMemory { .. }) if state.made[class] > 0 => {
                        state.is_short[class] = true;
                        continue;
                    }
                    Err(fault) => return Err(fault),
                }
            }
            if !wait {
                return Ok(None);
            }
            state = self.returned.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Pool {
    /// A new track. Where there is not enough pinned memory its buffers are halved, down to one row, if `with_less`.
    fn make(&self, urgency: Urgency, with_less: bool) -> Result<Track, Fault> {
        let mut rows = self.staging_cells / GROUP_LANES;
        loop {
            match Track::new(&self.device, &self.budget, rows * GROUP_LANES, urgency) {
                Err(Fault::OutOfMemory { .. }) if with_less && rows > 1 => rows /= 2,
                made => return made,
            }
        }
    }

    /// Releases the pinned memory of a device that is no longer used, once all tracks are back and the device does nothing of theirs
    /// any more. Until then nothing happens, and it returns `false`.
    pub fn close(&self) -> bool {
        let idle = {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            if state.is_closed {
                // By this call of another thread, or before.
                return state.is_released;
            }
            if !state.idle.iter().map(Vec::len).eq(state.made) {
                return false;
            }
            state.is_closed = true;
            std::mem::take(&mut state.idle)
        };
        let is_quiet = idle.iter().flatten().all(|track| is_quiet(&track.device, track.stream));
        let (kept, released) = if is_quiet { (Default::default(), idle) } else { (idle, Default::default()) };
        released.into_iter().flatten().for_each(Track::release);
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        (state.idle, state.is_closed, state.is_released) = (kept, is_quiet, is_quiet);
        is_quiet
    }

    /// Number of returned tracks so far.
    pub fn returns(&self) -> u64 {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).returns
    }

    /// Waits until another track, and so memory, has been returned since `returns` was read; `false` if no other track
    /// is lent.
    pub fn wait_for_return(&self, returns: u64) -> bool {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if state.returns > returns.saturating_add(1) {
                return true;
            }
            if state.is_closed || state.idle.iter().map(Vec::len).eq(state.made) {
                return false;
            }
            state = self.returned.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Deref for Lent {
    type Target = Track;

    fn deref(&self) -> &Track {
        &self.track
    }
}

impl DerefMut for Lent {
    fn deref_mut(&mut self) -> &mut Track {
        &mut self.track
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        // SAFETY: taken once, here, and not accessed afterwards.
        let track = unsafe { ManuallyDrop::take(&mut self.track) };
        let mut state = self.pool.state.lock().unwrap_or_else(PoisonError::into_inner);
        let class = track.urgency as usize;
        state.idle[class].push(track);
        state.returns += 1;
        drop(state);
        // Some wait for a track, others for memory.
        self.pool.returned.notify_all();
    }
}
