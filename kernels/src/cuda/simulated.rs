//! A device that is not there: memory, streams and marks of a device, with as little memory, as slow and as faulty as a test
//! wants. Kernels are run by a [`Launcher`].
//!
//! What is put into a stream is *timed* when it is put there (one copy in, one kernel and one copy out go on at once, as on a
//! device) and *done* when a mark behind it is waited for: whoever looks at a result too early, or changes what is still
//! to be copied, gets something wrong. Time is virtual unless it is told to be real.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Debug;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::by_cpu::ByCpu;
use super::device::{CELL_BYTES, Device, Facts, Fault, Function, Mark, Memory, Staging, Stream};
use super::launch::{Launch, Limits, Pointers};
use super::lower::{Kernel, Lowered};

/// The backend's name, so that nothing that it gives is taken for a device's.
pub const BACKEND_SIMULATED: &str = "simulated";

/// Bytes from one allocation to the next: an address tells which it belongs to.
const ADDRESSES_APART: u64 = 1 << 40;
/// Never written: a NaN.
const POISON: u64 = u64::MAX;

/// What a kernel reads and writes.
pub struct Bound<'a> {
    /// One a column of the kernel.
    pub columns: Vec<&'a [f64]>,
    pub out: &'a mut [f64],
    pub scratch: &'a mut [f64],
    pub table: &'a [f64],
    pub first_row: &'a [i64],
    pub visible: &'a [i32],
    pub tail: &'a [i32],
}

/// Runs kernels somewhere.
pub trait Launcher: Send + Sync + Debug {
    /// # Errors
    /// A sentence.
    fn run(&self, lowered: &Lowered, launch: &Launch, memory: Bound<'_>) -> Result<(), String>;
}

/// What a simulated device is, and what goes wrong on it. Allocations and launches are counted from 1.
#[derive(Debug, Clone)]
pub struct Simulation {
    pub memory_bytes: u64,
    pub shared_bytes: usize,
    /// Bytes that are copied in a second, each way.
    pub copied_bytes_per_s: f64,
    /// Of every kernel.
    pub kernel: Duration,
    /// Time goes by for real.
    pub real_time: bool,
    /// The allocation that finds no memory.
    pub no_memory_at: Option<u64>,
    /// The launch that takes so long.
    pub slow_at: Option<(u64, Duration)>,
    /// The launch that writes to an illegal address.
    pub illegal_at: Option<u64>,
}

impl Default for Simulation {
    fn default() -> Self {
        Self {
            memory_bytes: 1 << 30,
            shared_bytes: Limits::default().shared_bytes,
            copied_bytes_per_s: 1e10,
            kernel: Duration::from_millis(1),
            real_time: false,
            no_memory_at: None,
            slow_at: None,
            illegal_at: None,
        }
    }
}

impl Simulation {
    /// Reads what a test's environment says: `memory=BYTES kernel=MS no_memory_at=N slow_at=N:MS illegal_at=N`, any of
    /// them. Time is real.
    ///
    /// # Errors
    /// A sentence that says what is expected.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut simulation = Self { real_time: true, ..Self::default() };
        let number = |text: &str| text.parse::<u64>().map_err(|_| format!("'{text}' is no whole number"));
        for word in text.split_whitespace() {
            let (name, value) = word.split_once('=').ok_or_else(|| format!("'{word}' is not NAME=VALUE"))?;
            match name {
                "memory" => simulation.memory_bytes = number(value)?,
                "kernel" => simulation.kernel = Duration::from_millis(number(value)?),
                "no_memory_at" => simulation.no_memory_at = Some(number(value)?),
                "illegal_at" => simulation.illegal_at = Some(number(value)?),
                "slow_at" => {
                    let (at, ms) = value.split_once(':').ok_or("slow_at is LAUNCH:MS")?;
                    simulation.slow_at = Some((number(at)?, Duration::from_millis(number(ms)?)));
                }
                _ => return Err(format!("'{name}' is not memory, kernel, no_memory_at, slow_at or illegal_at")),
            }
        }
        Ok(simulation)
    }
}

enum Work {
    CopyIn { from: (u64, usize), to: u64, cells: usize },
    CopyWithin { from: u64, to: u64, cells: usize },
    CopyOut { from: u64, to: (u64, usize), cells: usize },
    Launch(Box<(Lowered, Launch, Pointers)>, bool),
    Release(u64),
    Mark(u64),
}

#[derive(Default)]
struct Queue {
    work: VecDeque<Work>,
    /// When all of it is done.
    end: Duration,
}

struct Place {
    stream: u64,
    at: Duration,
}

#[derive(Default)]
struct State {
    memory: BTreeMap<u64, Vec<u64>>,
    used_bytes: u64,
    most_bytes: u64,
    staging: Vec<Vec<u64>>,
    streams: Vec<Queue>,
    marks: BTreeMap<u64, Place>,
    /// When copies in, kernels and copies out end that were put in so far.
    engines: [Duration; 3],
    now: Duration,
    allocations: u64,
    launches: u64,
    copied_in_bytes: u64,
    compiled: u64,
    next: u64,
    lost: Option<String>,
    held: BTreeSet<u128>,
    functions: Vec<String>,
}

/// What was done on a simulated device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counts {
    pub allocations: u64,
    pub launches: u64,
    pub compiled: u64,
    pub copied_in_bytes: u64,
    /// Bytes that are taken now, and the most that ever were.
    pub used_bytes: u64,
    pub most_bytes: u64,
}

/// See the module.
#[derive(Debug)]
pub struct Simulated {
    facts: Facts,
    simulation: Simulation,
    launcher: Box<dyn Launcher>,
    origin: Instant,
    state: Mutex<State>,
    let_go: Condvar,
}

impl Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State").field("now", &self.now).field("used_bytes", &self.used_bytes).finish_non_exhaustive()
    }
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

    /// What was done so far.
    pub fn counts(&self) -> Counts {
        let state = self.state();
        Counts {
            allocations: state.allocations,
            launches: state.launches,
            compiled: state.compiled,
            copied_in_bytes: state.copied_in_bytes,
            used_bytes: state.used_bytes,
            most_bytes: state.most_bytes,
        }
    }

    /// Lets the compiler wait at this kernel until [`Self::let_go`].
    pub fn hold(&self, fingerprint: u128) {
        self.state().held.insert(fingerprint);
    }

    /// Ends all waiting of the compiler.
    pub fn let_go(&self) {
        self.state().held.clear();
        self.let_go.notify_all();
    }

    fn clock(&self, state: &State) -> Duration {
        if self.simulation.real_time { self.origin.elapsed() } else { state.now }
    }

    fn put(&self, stream: Stream, engine: Option<usize>, takes: Duration, work: Work) -> Result<(), Fault> {
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

    /// Does what a stream holds, up to a mark.
    fn catch_up(&self, state: &mut State, stream: u64, mark: u64) {
        while let Some(work) = state.streams[stream as usize].work.pop_front() {
            let done = match work {
                Work::Mark(reached) if reached == mark => return,
                Work::Mark(_) => Ok(()),
                Work::CopyIn { from, to, cells } => {
                    let values = state.staging[from.0 as usize][from.1..from.1 + cells].to_vec();
                    state.copied_in_bytes += (cells * CELL_BYTES) as u64;
                    cells_at(&mut state.memory, to, cells).map(|to| to.copy_from_slice(&values))
                }
                Work::CopyWithin { from, to, cells } => {
                    let values = cells_at(&mut state.memory, from, cells).map(|from| from.to_vec());
                    values
                        .and_then(|values| cells_at(&mut state.memory, to, cells).map(|to| to.copy_from_slice(&values)))
                }
                Work::CopyOut { from, to, cells } => {
                    let State { memory, staging, .. } = state;
                    let to = &mut staging[to.0 as usize][to.1..to.1 + cells];
                    cells_at(memory, from, cells).map(|from| to.copy_from_slice(from))
                }
                Work::Launch(_, true) => Err("an illegal memory access was encountered".to_owned()),
                Work::Launch(launch, false) => self.run(&mut state.memory, &launch),
                Work::Release(address) => {
                    state.memory.remove(&address);
                    Ok(())
                }
            };
            if let Err(lost) = done {
                state.lost = Some(lost);
                return;
            }
        }
    }

    fn run(&self, memory: &mut BTreeMap<u64, Vec<u64>>, launch: &(Lowered, Launch, Pointers)) -> Result<(), String> {
        let (lowered, launch, pointers) = launch;
        // Out of the map, so that one may be written while others are read.
        let mut out = taken(memory, pointers.out, launch.out_len)?;
        let mut scratch = taken(memory, pointers.scratch, launch.scratch_len)?;
        let groups = launch.blocks;
        let first_row = numbers_of(cells_at(memory, pointers.first_row, groups + 1)?);
        let visible = halves_of(cells_at(memory, pointers.visible, groups * 16)?);
        let tail = halves_of(cells_at(memory, pointers.tail, groups.div_ceil(2))?);
        let rows = usize::try_from(first_row[groups]).map_err(|e| e.to_string())?;
        let read = |address: u64, cells: usize| -> Result<Vec<f64>, String> {
            let held = memory.range(..=address).next_back();
            let cells = held.and_then(|(base, all)| {
                let first = ((address - base) as usize) / CELL_BYTES;
                all.get(first..first.checked_add(cells)?)
            });
            Ok(cells.ok_or("an illegal memory access was encountered")?.iter().map(|x| f64::from_bits(*x)).collect())
        };
        let of_rows = pointers.columns.len() - lowered.map_columns.min(pointers.columns.len());
        let cells = |column: usize| 32 * if column < of_rows { rows } else { groups };
        let columns = pointers.columns.iter().enumerate().map(|(i, column)| read(*column, cells(i)));
        let columns = columns.collect::<Result<Vec<_>, _>>()?;
        let table = read(pointers.table, launch.table.len())?;
        let (mut told, mut rings) = (doubles_of(&out.1), doubles_of(&scratch.1));
        let bound = Bound {
            columns: columns.iter().map(Vec::as_slice).collect(),
            out: &mut told[out.2..out.2 + launch.out_len],
            scratch: &mut rings[scratch.2..scratch.2 + launch.scratch_len],
            table: &table,
            first_row: &first_row,
            visible: &visible,
            tail: &tail[..groups],
        };
        let done = self.launcher.run(lowered, launch, bound);
        out.1.iter_mut().zip(&told).for_each(|(cell, x)| *cell = x.to_bits());
        scratch.1.iter_mut().zip(&rings).for_each(|(cell, x)| *cell = x.to_bits());
        for (address, cells, _) in [out, scratch] {
            if address != u64::MAX {
                memory.insert(address, cells);
            }
        }
        done
    }
}

fn failed(text: &str) -> Fault {
    Fault::Failed(text.to_owned())
}

fn numbers_of(cells: &[u64]) -> Vec<i64> {
    cells.iter().map(|x| x.cast_signed()).collect()
}

fn doubles_of(cells: &[u64]) -> Vec<f64> {
    cells.iter().map(|x| f64::from_bits(*x)).collect()
}

fn halves_of(cells: &[u64]) -> Vec<i32> {
    cells.iter().flat_map(|x| x.to_ne_bytes().as_chunks::<4>().0.to_vec()).map(i32::from_ne_bytes).collect()
}

/// The allocation that an address lies in, out of the map; its base, its cells, and which of them the address is.
fn taken(memory: &mut BTreeMap<u64, Vec<u64>>, address: u64, cells: usize) -> Result<(u64, Vec<u64>, usize), String> {
    if cells == 0 {
        return Ok((u64::MAX, Vec::new(), 0));
    }
    let base = cells_at(memory, address, cells).map(|_| address - address % ADDRESSES_APART)?;
    let all = memory.remove(&base).unwrap_or_default();
    Ok((base, all, ((address - base) as usize) / CELL_BYTES))
}

fn cells_at(memory: &mut BTreeMap<u64, Vec<u64>>, address: u64, cells: usize) -> Result<&mut [u64], String> {
    let held = memory.range_mut(..=address).next_back();
    let found = held.and_then(|(base, all)| {
        let first = ((address - base) as usize) / CELL_BYTES;
        all.get_mut(first..first.checked_add(cells)?)
    });
    found.ok_or_else(|| "an illegal memory access was encountered".to_owned())
}

impl Device for Simulated {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn now(&self) -> Instant {
        self.origin + self.clock(&self.state())
    }

    fn free_bytes(&self) -> Result<u64, Fault> {
        Ok(self.simulation.memory_bytes.saturating_sub(self.state().used_bytes))
    }

    fn trim(&self) -> Result<(), Fault> {
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
        let free_bytes = self.simulation.memory_bytes.saturating_sub(state.used_bytes);
        if needed_bytes > free_bytes || self.simulation.no_memory_at == Some(state.allocations) {
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
        let put = self.put(stream, None, Duration::ZERO, Work::Release(memory.address));
        let mut state = self.state();
        state.used_bytes = state.used_bytes.saturating_sub(bytes);
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
        let work = Work::CopyIn { from: (from.0.address, from.1), to: to.0.at(to.1), cells };
        self.put(stream, Some(0), self.copying(cells), work)
    }

    fn copy_out(
        &self,
        stream: Stream,
        from: (&Memory, usize),
        to: (&Staging, usize),
        cells: usize,
    ) -> Result<(), Fault> {
        let work = Work::CopyOut { from: from.0.at(from.1), to: (to.0.address, to.1), cells };
        self.put(stream, Some(2), self.copying(cells), work)
    }

    fn copy_within(
        &self,
        stream: Stream,
        from: (&Memory, usize),
        to: (&Memory, usize),
        cells: usize,
    ) -> Result<(), Fault> {
        let work = Work::CopyWithin { from: from.0.at(from.1), to: to.0.at(to.1), cells };
        self.put(stream, Some(1), self.copying(cells), work)
    }

    fn compile(&self, kernel: &Kernel) -> Result<Vec<u8>, Fault> {
        let mut state = self.state();
        while state.held.contains(&kernel.fingerprint) {
            state = self.let_go.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.compiled += 1;
        Ok(kernel.name.clone().into_bytes())
    }

    fn load(&self, kernel: &Kernel, code: &[u8]) -> Result<Function, Fault> {
        if code != kernel.name.as_bytes() {
            return Err(failed("code of another kernel"));
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
        let work = Work::Launch(Box::new((lowered.clone(), launch.clone(), pointers.clone())), illegal);
        self.put(stream, Some(1), takes, work)
    }

    fn mark(&self, stream: Stream) -> Result<Mark, Fault> {
        let id = {
            let mut state = self.state();
            state.next += 1;
            state.next
        };
        self.put(stream, None, Duration::ZERO, Work::Mark(id))?;
        let mut state = self.state();
        let at = state.streams.get(stream.0 as usize).map_or(Duration::ZERO, |queue| queue.end);
        state.marks.insert(id, Place { stream: stream.0, at });
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
        let waits = |work: &Work| matches!(work, Work::Mark(id) if *id == mark.0);
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
