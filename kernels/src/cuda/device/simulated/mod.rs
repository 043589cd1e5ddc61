//! A simulated device: memory, streams and marks, with memory size, speed and faults chosen by a test. Kernels are run
//! by a [`Launcher`].
//!
//! Work put into a stream is *timed* when it is enqueued (one copy in, one kernel and one copy out run concurrently, as
//! on a device) and *done* when a later mark is waited for: reading a result too early, or changing a source that is
//! still to be copied, gives wrong values. Time is virtual unless configured to be real.

mod simulation;
mod streams;

use std::fmt::Debug;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::cuda::BACKEND_SIMULATED;
use crate::cuda::codegen::lower::{Kernel, Lowered};
use crate::cuda::device::arguments::{Launch, Pointers};
use crate::cuda::device::by_cpu::ByCpu;
use crate::cuda::device::launcher::Launcher;
use crate::cuda::device::{CELL_BYTES, Device, Facts, Fault, Function, Mark, Memory, Staging, Stream};
use streams::{MarkPlace, Queue, State, StreamOp};

pub use simulation::Simulation;

/// Distance in bytes between allocations, so that an address identifies its allocation.
const ADDRESSES_APART: u64 = 1 << 40;
/// Content of memory that was never written: a NaN.
const POISON: u64 = u64::MAX;

/// Counts of operations on a simulated device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counts {
    /// Allocations of device memory that were requested, failed ones included.
    pub allocations: u64,
    /// Launches of kernels.
    pub launches: u64,
    /// Kernels compiled.
    pub compiled: u64,
    /// Calls of [`Device::trim`].
    pub trims: u64,
    /// Number of copies to the device; `copied_in_bytes` is their total size.
    pub copies_in: u64,
    /// Bytes copied to the device.
    pub copied_in_bytes: u64,
    /// Bytes currently allocated; `most_bytes` is their maximum.
    pub used_bytes: u64,
    /// Maximum bytes allocated at one time.
    pub most_bytes: u64,
}

/// A simulated device; see the module documentation.
#[derive(Debug)]
pub struct Simulated {
    facts: Facts,
    simulation: Simulation,
    launcher: Box<dyn Launcher>,
    origin: Instant,
    state: Mutex<State>,
    let_go: Condvar,
}

impl Simulated {
    /// A device whose kernels the CPU engine runs.
    pub fn new(simulation: Simulation) -> Self {
        Self::with(simulation, Box::new(ByCpu))
    }

    /// A device whose kernels `launcher` runs.
    pub fn with(simulation: Simulation, launcher: Box<dyn Launcher>) -> Self {
        let facts = Facts {
            name: "simulated device".to_owned(),
            backend: BACKEND_SIMULATED,
            ordinal: 0,
            capability: (9, 0),
            driver: String::new(),
            compiler: (0, 0),
            memory_bytes: simulation.memory_bytes,
            shared_bytes: simulation.shared_bytes,
            multiprocessors: 1,
        };
        let state = Mutex::default();
        Self { facts, simulation, launcher, origin: Instant::now(), state, let_go: Condvar::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The counts so far.
    pub fn counts(&self) -> Counts {
        let state = self.state();
        Counts {
            allocations: state.allocations,
            launches: state.launches,
            compiled: state.compiled,
            trims: state.trims,
            copies_in: state.copies_in,
            copied_in_bytes: state.copied_in_bytes,
            used_bytes: state.used_bytes,
            most_bytes: state.most_bytes,
        }
    }

    /// Makes the compiler wait at this kernel until [`Self::let_go`].
    pub fn hold(&self, fingerprint: u128) {
        self.state().held.insert(fingerprint);
    }

    /// Releases all waiting compilations.
    pub fn let_go(&self) {
        self.state().held.clear();
        self.let_go.notify_all();
    }

    /// Makes the compiler reject this kernel.
    pub fn refuse(&self, fingerprint: u128) {
        self.state().refused.insert(fingerprint);
    }

    fn free_bytes_of(&self, state: &State) -> u64 {
        self.simulation.memory_bytes.saturating_sub(state.used_bytes + state.kept_bytes())
    }

    fn clock(&self, state: &State) -> Duration {
        if self.simulation.real_time { self.origin.elapsed() } else { state.now }
    }

    fn put(&self, stream: Stream, engine: Option<usize>, takes: Duration, work: StreamOp) -> Result<(), Fault> {
        let state = &mut *self.state();
        if let Some(lost) = &state.lost {
            return Err(Fault::Lost(lost.clone()));
        }
        let now = self.clock(state);
        let Some(queue) = state.streams.get_mut(stream.0 as usize) else { return Err(failed("no such stream")) };
        let free = engine.map_or(Duration::ZERO, |engine| state.engines[engine]);
        let end = now.max(queue.end).max(free) + takes;
        queue.end = end;
        if let Some(engine) = engine {
            state.engines[engine] = end;
        }
        queue.work.push_back(work);
        Ok(())
    }

    fn copying(&self, cells: usize) -> Duration {
        Duration::from_secs_f64((cells * CELL_BYTES) as f64 / self.simulation.copied_bytes_per_s)
    }
}

fn failed(text: &str) -> Fault {
    Fault::Failed(text.to_owned())
}

impl Device for Simulated {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn now(&self) -> Instant {
        self.origin + self.clock(&self.state())
    }

    fn free_bytes(&self) -> Result<u64, Fault> {
        Ok(self.free_bytes_of(&self.state()))
    }

    fn trim(&self) -> Result<(), Fault> {
        let mut state = self.state();
        state.trims += 1;
        state.kept.clear();
        Ok(())
    }

    fn stream(&self) -> Result<Stream, Fault> {
        let mut state = self.state();
        state.streams.push(Queue::default());
        Ok(Stream(state.streams.len() as u64 - 1))
    }

    fn stage(&self, cells: usize) -> Result<Staging, Fault> {
        let mut state = self.state();
        state.staging.push(vec![POISON; cells]);
        Ok(Staging { address: state.staging.len() as u64 - 1, cells })
    }

    fn fill(&self, staging: &mut Staging, at: usize, cells: usize, work: &mut dyn FnMut(&mut [u64])) {
        work(&mut self.state().staging[staging.address as usize][at..at + cells]);
    }

    fn read(&self, staging: &Staging, at: usize, cells: usize, work: &mut dyn FnMut(&[u64])) {
        work(&self.state().staging[staging.address as usize][at..at + cells]);
    }

    fn allocate(&self, _stream: Stream, cells: usize) -> Result<Memory, Fault> {
        let state = &mut *self.state();
        if let Some(lost) = &state.lost {
            return Err(Fault::Lost(lost.clone()));
        }
        state.allocations += 1;
        let needed_bytes = (cells * CELL_BYTES) as u64;
        let free_bytes = self.free_bytes_of(state);
        let kept = state.kept.get_mut(&cells).filter(|pieces| **pieces > 0);
        let is_kept = kept.map(|pieces| *pieces -= 1).is_some();
        if !is_kept && needed_bytes > free_bytes || self.simulation.no_memory_at == Some(state.allocations) {
            return Err(Fault::OutOfMemory { needed_bytes, free_bytes });
        }
        state.used_bytes += needed_bytes;
        state.most_bytes = state.most_bytes.max(state.used_bytes);
        state.next += 1;
        let address = state.next * ADDRESSES_APART;
        state.memory.insert(address, vec![POISON; cells]);
        Ok(Memory { address, cells })
    }

    fn release(&self, stream: Stream, memory: Memory) {
        let bytes = (memory.cells * CELL_BYTES) as u64;
        let put = self.put(stream, None, Duration::ZERO, StreamOp::Release(memory.address));
        let mut state = self.state();
        state.used_bytes = state.used_bytes.saturating_sub(bytes);
        if self.simulation.keeps_freed {
            *state.kept.entry(memory.cells).or_default() += 1;
        }
        if put.is_err() {
            state.memory.remove(&memory.address);
        }
    }

    fn copy_in(
        &self,
        stream: Stream,
        from: (&Staging, usize),
        to: (&Memory, usize),
        cells: usize,
    ) -> Result<(), Fault> {
        let work = StreamOp::CopyIn { from: (from.0.address, from.1), to: to.0.at(to.1), cells };
        self.put(stream, Some(0), self.copying(cells), work)
    }

    fn copy_out(
        &self,
        stream: Stream,
        from: (&Memory, usize),
        to: (&Staging, usize),
        cells: usize,
    ) -> Result<(), Fault> {
        let work = StreamOp::CopyOut { from: from.0.at(from.1), to: (to.0.address, to.1), cells };
        self.put(stream, Some(2), self.copying(cells), work)
    }

    fn copy_within(
        &self,
        stream: Stream,
        from: (&Memory, usize),
        to: (&Memory, usize),
        cells: usize,
    ) -> Result<(), Fault> {
        let work = StreamOp::CopyWithin { from: from.0.at(from.1), to: to.0.at(to.1), cells };
        self.put(stream, Some(1), self.copying(cells), work)
    }

    fn compile(&self, kernel: &Kernel) -> Result<Vec<u8>, Fault> {
        let mut state = self.state();
        while state.held.contains(&kernel.fingerprint) {
            state = self.let_go.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if state.refused.contains(&kernel.fingerprint) {
            return Err(Fault::Code(format!("{} is refused", kernel.name)));
        }
        state.compiled += 1;
        Ok(kernel.name.clone().into_bytes())
    }

    fn load(&self, kernel: &Kernel, code: &[u8]) -> Result<Function, Fault> {
        if code != kernel.name.as_bytes() {
            return Err(Fault::Code("code of another kernel".to_owned()));
        }
        let mut state = self.state();
        state.functions.push(kernel.name.clone());
        Ok(Function(state.functions.len() as u64 - 1))
    }

    fn launch(
        &self,
        stream: Stream,
        function: Function,
        lowered: &Lowered,
        launch: &Launch,
        pointers: &Pointers,
    ) -> Result<(), Fault> {
        let (number, loaded) = {
            let mut state = self.state();
            state.launches += 1;
            (state.launches, state.functions.get(function.0 as usize) == Some(&lowered.kernel.name))
        };
        if !loaded {
            return Err(failed("a kernel that was not loaded"));
        }
        let slow = self.simulation.slow_at.filter(|(at, _)| *at == number);
        let takes = slow.map_or(self.simulation.kernel, |(_, takes)| takes);
        let illegal = self.simulation.illegal_at == Some(number);
        let work = StreamOp::Launch(Box::new((lowered.clone(), launch.clone(), pointers.clone())), illegal);
        self.put(stream, Some(1), takes, work)
    }

    fn mark(&self, stream: Stream) -> Result<Mark, Fault> {
        let id = {
            let mut state = self.state();
            state.next += 1;
            state.next
        };
        self.put(stream, None, Duration::ZERO, StreamOp::Mark(id))?;
        let mut state = self.state();
        let at = state.streams.get(stream.0 as usize).map_or(Duration::ZERO, |queue| queue.end);
        state.marks.insert(id, MarkPlace { stream: stream.0, at });
        Ok(Mark(id))
    }

    fn wait(&self, mark: &Mark, until: Instant) -> Result<bool, Fault> {
        let until = until.saturating_duration_since(self.origin);
        let (at, stream) = match self.state().marks.get(&mark.0) {
            Some(place) => (place.at, place.stream),
            None => return Err(failed("no such mark")),
        };
        if self.simulation.real_time {
            std::thread::sleep(at.min(until).saturating_sub(self.origin.elapsed()));
        }
        let state = &mut *self.state();
        state.now = state.now.max(at.min(until));
        if at > until {
            return Ok(false);
        }
        let waits = |work: &StreamOp| matches!(work, StreamOp::Mark(id) if *id == mark.0);
        if state.streams[stream as usize].work.iter().any(waits) {
            self.catch_up(state, stream, mark.0);
        }
        match &state.lost {
            Some(lost) => Err(Fault::Lost(lost.clone())),
            None => Ok(true),
        }
    }

    fn time(&self, mark: &Mark) -> Result<Instant, Fault> {
        let place = self.state().marks.get(&mark.0).map(|place| place.at);
        Ok(self.origin + place.ok_or_else(|| failed("no such mark"))?)
    }

    fn between(&self, first: &Mark, last: &Mark) -> Result<Duration, Fault> {
        Ok(self.time(last)?.saturating_duration_since(self.time(first)?))
    }

    fn forget(&self, mark: Mark) {
        self.state().marks.remove(&mark.0);
    }
}
