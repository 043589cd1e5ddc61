//! States of a program that stay in a device's memory, and are advanced by new bars: one launch a call.
//!
//! New bars and values lie in pinned host memory that the kernel reads and writes in place, so that a call is one launch and
//! one wait, without copies. The states' memory is written by kernels alone. After any fault the states are undefined, and
//! refuse further calls: whoever has other states continues from those ([`crate::RoutedStates`]).

use std::sync::Arc;

use crate::cuda::codegen::one_bar::OneBar;
use crate::cuda::device::arguments::{GROUP_LANES, Launch, Pointers};
use crate::cuda::device::{CELL_BYTES, Device, Fault, Function, Staging, Stream};
use crate::cuda::execute::device_queue::Executor;
use crate::cuda::execute::state_streams::StateStreams;
use crate::cuda::execute::transfer::{Budget, DeviceBuffer, OwnMark, is_quiet};
use crate::{Cancel, Executable, Precision, SymbolInput};

/// Cells of new bars of one launch at most, beyond one row: histories are walked in so many at a time.
const ROWS_CELLS_MAX: usize = 1 << 21;
/// Maximum pinned bytes of one program's states: new bars and values.
pub const STATES_PINNED_BYTES_MAX: usize = 128 << 20;
/// Least number of bars that tables reach. A symbol with more bars doubles it.
const TABLE_BARS_LEAST: usize = 1 << 12;
/// A bar, and a symbol's last bar of a launch; see `kernels/cuda/one_bar.cuh`.
const BAR: u32 = 1;
const LAST_BAR: u32 = 2;

/// One new bar of symbols: `columns[input][symbol]`, and which symbols have it (`None`: all).
#[derive(Debug, Clone, Default, PartialEq)]
pub struct NewBar {
    /// Inputs in the order of the program, NaN for NA.
    pub columns: Vec<Vec<f64>>,
    /// Per symbol, whether it has a bar; `None` if all have.
    pub present: Option<Vec<bool>>,
}

/// Host memory that kernels read and write in place; released on drop, once no kernel uses it any more.
#[derive(Debug)]
struct Shared {
    device: Arc<dyn Device>,
    streams: Arc<StateStreams>,
    stream: Stream,
    /// New bars, and values.
    buffers: Vec<Staging>,
}

impl Drop for Shared {
    fn drop(&mut self) {
        // A device that is silent may still use it: then it stays until the process ends.
        if is_quiet(&self.device, self.stream) {
            self.buffers.drain(..).for_each(|staging| self.device.unstage(staging));
            self.streams.give_back(self.stream);
        }
    }
}

/// The states of a program over many symbols on one device, as of the last bar of each. The values are those of
/// [`crate::Resident`], bit for bit.
#[derive(Debug)]
pub struct DeviceStates {
    one: OneBar,
    function: Function,
    launch: Launch,
    // Released before the stream is.
    memory: DeviceBuffer,
    table: DeviceBuffer,
    shared: Shared,
    budget: Arc<Budget>,
    /// Bars that tables reach, and those of each symbol.
    table_bars: usize,
    bars: Vec<usize>,
    columns: usize,
    /// Rows that fit into the memory of new bars.
    rows_max: usize,
    /// Why the states are undefined.
    over: Option<Fault>,
}

/// Index of the buffers of new bars and of values.
const NEW: usize = 0;
const VALUES: usize = 1;

/// Cells of so many rows of flags and columns.
fn row_cells(columns: usize, lanes: usize) -> usize {
    columns * lanes + lanes / 2
}

impl Executor {
    /// Walks the visible bars of `symbols` on the device and keeps the states: the program in `f64`. Waits for its kernel to be compiled.
    ///
    /// # Errors
    /// [`Fault`]; [`Fault::has_no_kernel`] says that the CPU has to keep this program's states.
    pub fn states(
        &self,
        program: &Executable,
        symbols: &[SymbolInput<'_>],
        cancel: &dyn Cancel,
    ) -> Result<DeviceStates, Fault> {
        self.still_used()?;
        let made = self.new_states(program, symbols, cancel);
        made.inspect_err(|fault| self.notice(fault))
    }

    fn new_states(
        &self,
        program: &Executable,
        symbols: &[SymbolInput<'_>],
        cancel: &dyn Cancel,
    ) -> Result<DeviceStates, Fault> {
        if program.precision() != Precision::F64 {
            return Err(Fault::Code("states on a device are in f64".to_owned()));
        }
        let one = OneBar::new(program)?;
        let function = self.programs.kernel(&one.lowered.kernel)?;
        let groups = symbols.len().div_ceil(GROUP_LANES).max(1);
        let (lanes, columns) = (groups * GROUP_LANES, program.inputs.len());
        let longest = symbols.iter().map(|symbol| symbol.visible).max().unwrap_or(0);
        let row = row_cells(columns, lanes);
        let rows_max = (ROWS_CELLS_MAX / row).clamp(1, longest.max(1));
        let cells = [rows_max * row, one.lowered.kernel.outputs * lanes];
        let pinned = cells.iter().sum::<usize>() * CELL_BYTES;
        if pinned > STATES_PINNED_BYTES_MAX {
            return Err(Fault::Failed(format!(
                "the new bars and values of {} symbols take {pinned} bytes of pinned memory; {STATES_PINNED_BYTES_MAX} are allowed",
                symbols.len()
            )));
        }
        let stream = self.state_streams.take(&self.device)?;
        let (device, streams) = (Arc::clone(&self.device), Arc::clone(&self.state_streams));
        let mut shared = Shared { device, streams, stream, buffers: Vec::with_capacity(cells.len()) };
        for cells in cells {
            shared.buffers.push(self.device.stage(cells.max(1))?);
        }
        let buffer = |cells: usize| DeviceBuffer::on_device(&self.device, &self.budget, stream, cells);
        let table_bars = longest.next_power_of_two().max(TABLE_BARS_LEAST);
        let launch = one.launch(groups, table_bars);
        let mut states = DeviceStates {
            function,
            memory: buffer(launch.scratch_len)?,
            table: buffer(0)?,
            budget: Arc::clone(&self.budget),
            shared,
            one,
            launch,
            table_bars,
            bars: vec![0; symbols.len()],
            columns,
            rows_max,
            over: None,
        };
        states.begin(symbols, longest, cancel)?;
        Ok(states)
    }

    /// Advances states by new bars, the oldest first.
    ///
    /// # Errors
    /// [`Fault`]: the states are undefined then, and refuse further calls.
    pub fn push(&self, states: &mut DeviceStates, bars: &[NewBar]) -> Result<(), Fault> {
        self.still_used()?;
        states.push(bars).inspect_err(|fault| self.notice(fault))
    }
}

impl DeviceStates {
    /// The value of an output at a symbol's last bar; NaN for a symbol without bars.
    pub fn value(&self, symbol: usize, output: usize) -> f64 {
        let mut value = f64::NAN;
        if symbol < self.bars.len() {
            let at = output * self.lanes() + symbol;
            self.shared.device.read(&self.shared.buffers[VALUES], at, 1, &mut |cells| {
                value = cells.first().map_or(f64::NAN, |bits| f64::from_bits(*bits));
            });
        }
        value
    }

    /// Number of bars seen by a symbol.
    pub fn bars(&self, symbol: usize) -> usize {
        self.bars[symbol]
    }

    /// Bytes of device memory of states and rings.
    pub fn bytes(&self) -> usize {
        self.launch.scratch_len * CELL_BYTES
    }

    fn lanes(&self) -> usize {
        self.launch.output_stride()
    }

    /// Walks the histories, some rows at a time.
    fn begin(&mut self, symbols: &[SymbolInput<'_>], longest: usize, cancel: &dyn Cancel) -> Result<(), Fault> {
        let device = Arc::clone(&self.shared.device);
        let cells = self.shared.buffers[VALUES].cells();
        device.fill(&mut self.shared.buffers[VALUES], 0, cells, &mut |cells| cells.fill(f64::NAN.to_bits()));
        self.renew_table()?;
        let mut first = 0;
        loop {
            if cancel.cancelled() {
                return Err(Fault::Cancelled);
            }
            let rows = self.rows_max.min(longest - first);
            let flag = |row: usize, symbol: usize| match symbols[symbol].visible.checked_sub(first + row + 1) {
                None => 0,
                // The last bar of the history: later launches have none of the symbol's.
                Some(0) => LAST_BAR,
                Some(_) => BAR,
            };
            self.run(rows, first == 0, flag, |column, row, cells| {
                for (cell, symbol) in cells.iter_mut().zip(symbols) {
                    let bar = symbol.columns.get(column).and_then(|series| series.get(first + row));
                    *cell = bar.copied().unwrap_or(f64::NAN).to_bits();
                }
            })?;
            first += rows;
            if first >= longest {
                break;
            }
        }
        self.bars.iter_mut().zip(symbols).for_each(|(bars, symbol)| *bars = symbol.visible);
        Ok(())
    }

    fn push(&mut self, bars: &[NewBar]) -> Result<(), Fault> {
        if let Some(fault) = &self.over {
            return Err(fault.clone());
        }
        let pushed = self.push_all(bars);
        self.over = pushed.clone().err();
        pushed
    }

    fn push_all(&mut self, bars: &[NewBar]) -> Result<(), Fault> {
        for bars in bars.chunks(self.rows_max) {
            let has = |bar: &NewBar, symbol: usize| bar.present.as_ref().is_none_or(|present| present[symbol]);
            for bar in bars {
                let counts = self.bars.iter_mut().enumerate().filter(|(symbol, _)| has(bar, *symbol));
                counts.for_each(|(_, count)| *count += 1);
            }
            let longest = self.bars.iter().copied().max().unwrap_or(0);
            if longest > self.table_bars {
                self.table_bars = longest.next_power_of_two();
                self.renew_table()?;
            }
            let flag = |row: usize, symbol: usize| match has(&bars[row], symbol) {
                false => 0,
                true if bars[row + 1..].iter().any(|later| has(later, symbol)) => BAR,
                true => LAST_BAR,
            };
            self.run(bars.len(), false, flag, |column, row, cells| {
                let series = bars[row].columns.get(column).map_or(&[][..], Vec::as_slice);
                cells.iter_mut().zip(series).for_each(|(cell, x)| *cell = x.to_bits());
            })?;
        }
        Ok(())
    }

    /// Computes the tables anew, for as many bars as they have to reach, and copies them to the device.
    fn renew_table(&mut self) -> Result<(), Fault> {
        self.launch = self.one.launch(self.launch.blocks, self.table_bars);
        let (device, stream) = (Arc::clone(&self.shared.device), self.shared.stream);
        if self.table.memory().cells() < self.launch.table.len() {
            self.table = DeviceBuffer::on_device(&device, &self.budget, stream, self.launch.table.len())?;
        }
        let piece = self.shared.buffers[NEW].cells();
        for (at, numbers) in self.launch.table.chunks(piece).enumerate() {
            device.fill(&mut self.shared.buffers[NEW], 0, numbers.len(), &mut |cells| {
                cells.iter_mut().zip(numbers).for_each(|(cell, x)| *cell = x.to_bits());
            });
            device.copy_in(stream, (&self.shared.buffers[NEW], 0), (self.table.memory(), at * piece), numbers.len())?;
            OwnMark::new(&device, stream)?.wait()?;
        }
        Ok(())
    }

    /// Launches the kernel over so many rows and waits for it. `flag` of a row and a symbol; `lay` writes a column's row.
    fn run(
        &mut self,
        rows: usize,
        begins: bool,
        flag: impl Fn(usize, usize) -> u32,
        lay: impl Fn(usize, usize, &mut [u64]),
    ) -> Result<(), Fault> {
        let (lanes, symbols, columns) = (self.lanes(), self.bars.len(), self.columns);
        let device = Arc::clone(&self.shared.device);
        let flags = rows * lanes / 2;
        device.fill(&mut self.shared.buffers[NEW], 0, rows * row_cells(columns, lanes), &mut |cells| {
            let (told, bars) = cells.split_at_mut(flags);
            for (at, cell) in told.iter_mut().enumerate() {
                let (row, first) = (at / (lanes / 2), at % (lanes / 2) * 2);
                let of = |symbol: usize| u64::from(if symbol < symbols { flag(row, symbol) } else { 0 });
                // Two numbers of 32 bits, the lower half first, as they lie in memory.
                *cell = of(first) | of(first + 1) << 32;
            }
            for (at, cells) in bars.chunks_mut(lanes).enumerate() {
                lay(at / rows, at % rows, &mut cells[..symbols]);
            }
        });
        self.launch.set_rows(rows, begins);
        let new = self.shared.buffers[NEW].address;
        let column = |at: usize| new + ((flags + at * rows * lanes) * CELL_BYTES) as u64;
        let pointers = Pointers {
            columns: (0..columns).map(column).collect(),
            out: self.shared.buffers[VALUES].address,
            scratch: self.memory.memory().at(0),
            table: self.table.memory().at(0),
            visible: new,
            ..Pointers::default()
        };
        let stream = self.shared.stream;
        device.launch(stream, self.function, &self.one.lowered, &self.launch, &pointers)?;
        OwnMark::new(&device, stream)?.wait()
    }
}
