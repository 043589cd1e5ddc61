//! Features of a scan over time, which never leave the device: outputs stay where kernels left them, become rows of a table, and windows
//! of the table become tensors.
//!
//! The host says which output of which bar is in which row; of the outputs it reads those alone that decide about rows. What the device
//! does not compute (a column of bars, a constant, a program without kernels) the host sends there. Deliberately absent: which rows there
//! are, and what the features mean.

use std::fmt;
use std::ops::Range;
use std::sync::{Arc, PoisonError};

use crate::cuda::codegen::fixed::{self, FIXED_THREADS};
use crate::cuda::device::arguments::{GROUP_LANES, Wanted};
use crate::cuda::device::{Fault, Function, Stream, Urgency};
use crate::cuda::execute::device_queue::Executor;
use crate::cuda::execute::fleet::Fleet;
use crate::cuda::execute::gather::cells_of;
use crate::cuda::execute::held::{HeldBatch, HeldState, Holding};
use crate::cuda::execute::request::{RequestEvent, RequestPart, of_host};
use crate::cuda::execute::tensors::{DeviceTensor, not_shared};
use crate::cuda::execute::transfer::{DeviceBuffer, Lent, OwnMark};
use crate::stages::Stages;
use crate::{Cancel, Cancelled, EngineError, Executable, SymbolInput, Values};

/// Most rows that one launch writes: what the host sends for them is in memory at once.
const ROWS_TOGETHER_MAX: usize = 1 << 20;
/// Most rows of a table: the device counts them in 32 bits.
const TABLE_ROWS_MAX: usize = u32::MAX as usize;
/// Most blocks of a launch.
const BLOCKS_MAX: usize = i32::MAX as usize;

/// Outputs of one evaluation, some of which stayed on the device.
#[derive(Debug)]
pub struct KeptOutputs {
    /// The first of the outputs that were to be kept, each of which is a feature.
    first: usize,
    /// By symbol and feature, from bar `from` on: what the device does not have.
    host: Values,
    from: Vec<usize>,
    held: Option<(Arc<DeviceBuffer>, Vec<HeldBatch>)>,
}

/// A row of a table, and the bar whose features it has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TableRow {
    /// Number of the row.
    pub row: u32,
    /// Index among the symbols that were evaluated.
    pub symbol: usize,
    /// Index of the bar.
    pub bar: usize,
}

/// A table `[time][symbol][feature]` in single precision on one device; NaN where there is no value.
pub struct FeatureTable {
    fleet: Arc<Fleet>,
    /// Index of its executor.
    at: usize,
    stream: Stream,
    rows: usize,
    features: usize,
    /// Released last: the buffers above are in use by nobody when the handle is dropped.
    table: DeviceBuffer,
    scales: DeviceBuffer,
}

impl fmt::Debug for FeatureTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rows, features, .. } = self;
        f.debug_struct("FeatureTable").field("rows", rows).field("features", features).finish_non_exhaustive()
    }
}

impl Executor {
    fn lend(&self) -> Result<Lent, Fault> {
        loop {
            if let Some(lent) = self.pool.lend(Urgency::Batch, true)? {
                return Ok(lent);
            }
        }
    }

    /// The stream in which tensors are made and released.
    fn stream_of_tensors(&self) -> Result<Stream, Fault> {
        let mut stream = self.tensor_stream.lock().unwrap_or_else(PoisonError::into_inner);
        match *stream {
            Some(stream) => Ok(stream),
            None => Ok(*stream.insert(self.device.stream(Urgency::Batch)?)),
        }
    }

    /// Memory in that stream.
    fn allocate_tensor(&self, stream: Stream, cells: usize) -> Result<DeviceBuffer, Fault> {
        DeviceBuffer::on_device(&self.device, &self.budget, stream, cells)
    }

    /// Copies cells to memory that may be used by any stream, and waits.
    fn sent(&self, lent: &mut Lent, to: &DeviceBuffer, cells: &[u64]) -> Result<(), Fault> {
        lent.send(to.memory(), cells.len(), &mut |first, to| to.copy_from_slice(&cells[first..first + to.len()]))
    }

    /// Notices a lost device.
    fn noticed<T>(&self, done: Result<T, Fault>) -> Result<T, Fault> {
        done.inspect_err(|fault| self.notice(fault))
    }

    fn launch_table(&self, stream: Stream, function: Function, elements: usize, argument: &[u64]) -> Result<(), Fault> {
        let blocks = elements.div_ceil(FIXED_THREADS);
        if blocks > BLOCKS_MAX {
            return Err(Fault::Failed(format!("tensors of {elements} values, for which a launch has too few blocks")));
        }
        if blocks == 0 {
            return Ok(());
        }
        self.device.launch_plain(stream, function, (blocks, FIXED_THREADS), argument)
    }
}

impl FeatureTable {
    /// An empty table of so many rows on the first device of a fleet that is not lost. `scales` has for each feature what is subtracted,
    /// and what the difference is divided by.
    ///
    /// # Errors
    /// [`Fault`].
    pub fn new(fleet: &Arc<Fleet>, rows: usize, scales: &[Option<(f64, f64)>]) -> Result<Self, Fault> {
        if rows > TABLE_ROWS_MAX {
            return Err(Fault::Failed(format!(
                "a table of {rows} bars of symbols, where a device has {TABLE_ROWS_MAX}"
            )));
        }
        let lost = || Fault::Lost(fleet.lost().unwrap_or("no device is left").to_owned());
        let at = fleet.living().next().ok_or_else(lost)?;
        let (executor, features) = (&fleet.executors()[at], scales.len());
        executor.noticed((|| {
            executor.device.tensors().ok_or_else(not_shared)?;
            let stream = executor.stream_of_tensors()?;
            let table = executor.allocate_tensor(stream, (rows * features).div_ceil(2))?;
            let numbers = scales.iter().flat_map(|scale| {
                let (mean, deviation) = scale.unwrap_or((0.0, 0.0));
                [mean.to_bits(), deviation.to_bits()]
            });
            let numbers: Vec<u64> = numbers.collect();
            let made = {
                let mut lent = executor.lend()?;
                let made = lent.allocate(numbers.len());
                let sent = made.and_then(|made| executor.sent(&mut lent, &made, &numbers).map(|()| made));
                lent.settle()?;
                sent?
            };
            // All rows are without a value: those of bars that there are not stay so.
            let function = executor.programs.kernel(&fixed::table_rows(crate::Precision::F64))?;
            let argument = [0, 0, 0, table.memory().at(0), rows as u64, features as u64];
            executor.launch_table(stream, function, rows, &argument)?;
            OwnMark::new(&executor.device, stream)?.wait()?;
            Ok(Self { fleet: Arc::clone(fleet), at, stream, rows, features, table, scales: made })
        })())
    }

    fn executor(&self) -> &Executor {
        &self.fleet.executors()[self.at]
    }

    /// As [`Executable::evaluate_from`] on the device, where the outputs of `kept` stay: their series are empty. What the device cannot
    /// compute, the calling thread computes.
    ///
    /// # Errors
    /// [`EngineError`].
    pub fn evaluate(
        &self,
        executable: &Executable,
        symbols: &[SymbolInput<'_>],
        from: &[usize],
        kept: Range<usize>,
        cancel: &dyn Cancel,
        stages: &mut Stages,
    ) -> Result<(Values, KeptOutputs), EngineError> {
        let (mut values, held) = match self.on_device(executable, symbols, from, &kept, cancel, stages) {
            Ok((values, held)) => (values, Some(held)),
            Err(Fault::Cancelled) => return Err(Cancelled.into()),
            Err(fault) if fault.has_no_kernel() => (executable.evaluate_from(symbols, from, cancel)?, None),
            Err(fault) => return Err(EngineError::Device(fault)),
        };
        let host = values.take_out(&kept);
        Ok((values, KeptOutputs { first: kept.start, host, from: from.to_vec(), held }))
    }

    #[allow(clippy::type_complexity)]
    fn on_device(
        &self,
        executable: &Executable,
        symbols: &[SymbolInput<'_>],
        from: &[usize],
        kept: &Range<usize>,
        cancel: &dyn Cancel,
        stages: &mut Stages,
    ) -> Result<(Values, (Arc<DeviceBuffer>, Vec<HeldBatch>)), Fault> {
        let executor = self.executor();
        executor.still_used()?;
        // Of no source: bars that are adjusted as of one time are not those that are adjusted as of another.
        let part = RequestPart { symbols: symbols.to_vec(), from: from.to_vec(), source: None };
        let is_last = part.symbols.iter().zip(from).all(|(symbol, from)| from + 1 >= symbol.visible);
        let wanted = if is_last { Wanted::Last } else { Wanted::All };
        let block = executor.noticed(executor.block(cells_of(executable, &part, wanted)))?;
        let holding = Holding::new(block);
        let mut came = Err(Fault::Failed("a call reported nothing".to_owned()));
        let parts = std::slice::from_ref(&part);
        executor.evaluate_share(executable, parts, cancel, Some(&holding), &mut |event| match event {
            RequestEvent::Stages(batch) => stages.extend(batch),
            RequestEvent::Part { values, .. } => came = values.map(drop),
        });
        came?;
        let HeldState { batches, ready, .. } = holding.take();
        let ready = ready.ok_or_else(|| Fault::Failed("outputs without their kernels".to_owned()))?;
        let mut values = of_host(executable, &part, &ready.sequence, kept);
        executor.read_block(&holding.block, 0, &batches, kept, &mut |(_, symbol), output, bar, value| {
            if let Some(at) = bar.checked_sub(from[symbol]) {
                values.put(symbol, output, at, value);
            }
        })?;
        Ok((values, (Arc::clone(&holding.block), batches)))
    }

    /// Writes rows of features, each scaled as the table scales, and rounded to single precision.
    ///
    /// # Errors
    /// [`Fault`].
    pub fn put(&self, kept: &KeptOutputs, rows: &[TableRow]) -> Result<(), Fault> {
        if rows.iter().any(|row| row.row as usize >= self.rows || row.symbol >= kept.from.len()) {
            return Err(Fault::Failed("a row beyond the table".to_owned()));
        }
        let batches = kept.held.as_ref().map_or(&[][..], |(_, batches)| batches);
        // By symbol: its batch, and its lane there.
        let mut lanes: Vec<Option<(usize, usize)>> = vec![None; kept.from.len()];
        for (number, batch) in batches.iter().enumerate() {
            for (lane, owner) in batch.owners.iter().enumerate() {
                if let Some((_, symbol)) = owner {
                    lanes[*symbol] = Some((number, lane));
                }
            }
        }
        // By batch, and behind them what is in none: which number of an output, and the row.
        let mut placed: Vec<Vec<(u32, TableRow)>> = vec![Vec::new(); batches.len() + 1];
        for row in rows {
            match lanes[row.symbol] {
                Some((number, lane)) => placed[number].push((batches[number].number_of(lane, row.bar)?, *row)),
                None => placed[batches.len()].push((0, *row)),
            }
        }
        for (number, placed) in placed.iter_mut().enumerate() {
            // Numbers that follow each other are read together.
            placed.sort_unstable_by_key(|(at, _)| *at);
            for together in placed.chunks(ROWS_TOGETHER_MAX) {
                self.executor().noticed(self.put_together(kept, batches.get(number), together))?;
            }
        }
        Ok(())
    }

    fn put_together(
        &self,
        kept: &KeptOutputs,
        batch: Option<&HeldBatch>,
        rows: &[(u32, TableRow)],
    ) -> Result<(), Fault> {
        let executor = self.executor();
        let pair = |(at, row): &(u32, TableRow)| u64::from(row.row) | u64::from(*at) << u32::BITS;
        let mut cells: Vec<u64> = rows.iter().map(pair).collect();
        let sources = cells.len();
        cells.resize(sources + self.features, 0);
        let held = batch.zip(kept.held.as_ref());
        // Where the numbers of each feature are: in the block, or at a cell of what is sent.
        let mut own: Vec<(usize, usize)> = Vec::new();
        for feature in 0..self.features {
            let place = held.and_then(|(batch, (block, _))| Some((block, batch.place(kept.first + feature)?)));
            if let Some((block, place)) = place {
                cells[sources + feature] = block.memory().at(place);
                continue;
            }
            own.push((feature, cells.len()));
            let value = |(_, row): &(u32, TableRow)| {
                let at = row.bar.checked_sub(kept.from[row.symbol]);
                at.and_then(|at| kept.host.series(row.symbol, feature).get(at)).copied().unwrap_or(f64::NAN).to_bits()
            };
            cells.extend(rows.iter().map(value));
        }
        let precision = batch.map_or(crate::Precision::F64, |batch| batch.precision);
        let function = executor.programs.kernel(&fixed::table_rows(precision))?;
        let mut lent = executor.lend()?;
        let sent = lent.allocate(cells.len())?;
        for (feature, at) in own {
            // The lowest bit: one number for each pair.
            cells[sources + feature] = sent.memory().at(at) | 1;
        }
        let put = executor.sent(&mut lent, &sent, &cells).and_then(|()| {
            let (table, scales) = (self.table.memory().at(0), self.scales.memory().at(0));
            let places = [sent.memory().at(sources), scales, sent.memory().at(0), table];
            let sizes = [rows.len() as u64, self.features as u64];
            executor.launch_table(lent.stream, function, rows.len(), &[places.as_slice(), &sizes].concat())
        });
        // Before the memory is released, also after an error.
        let settled = lent.settle();
        put.and(settled)
    }

    /// Windows that end at these rows of the table, of a symbol whose bars are `width` rows apart: `[sample, window, feature]` in single
    /// precision with 0 where there is no value, and a byte for each that says whether there is one.
    ///
    /// # Errors
    /// [`Fault`].
    pub fn windows(&self, samples: &[u32], window: usize, width: usize) -> Result<(DeviceTensor, DeviceTensor), Fault> {
        let executor = self.executor();
        let count = samples.len() * window * self.features;
        executor.noticed((|| {
            executor.still_used()?;
            let values = executor.allocate_tensor(self.stream, count.div_ceil(2).max(1))?;
            let mask = executor.allocate_tensor(self.stream, count.div_ceil(8).max(1))?;
            let cells: Vec<u64> = samples.chunks(2).map(pair_of).collect();
            let mut lent = executor.lend()?;
            let sent = lent.allocate(cells.len().max(1))?;
            executor.sent(&mut lent, &sent, &cells).and(lent.settle())?;
            let function = executor.programs.kernel(&fixed::table_windows())?;
            let places = [&self.table, &sent, &values, &mask].map(|buffer| buffer.memory().at(0));
            let sizes = [count, window, self.features, width].map(|size| size as u64);
            executor.launch_table(self.stream, function, count, &[places, sizes].concat())?;
            OwnMark::new(&executor.device, self.stream)?.wait()?;
            let tensor = |buffer| DeviceTensor::new(&executor.device, self.stream, buffer);
            Ok((tensor(values), tensor(mask)))
        })())
    }

    /// Numbers that the host has.
    ///
    /// # Errors
    /// [`Fault`].
    pub fn upload(&self, numbers: &[f64]) -> Result<DeviceTensor, Fault> {
        let executor = self.executor();
        executor.noticed((|| {
            let tensor = executor.allocate_tensor(self.stream, numbers.len().max(1))?;
            // Memory may be used by other streams once its own has come to it.
            OwnMark::new(&executor.device, self.stream)?.wait()?;
            let cells: Vec<u64> = numbers.iter().map(|number| number.to_bits()).collect();
            let mut lent = executor.lend()?;
            executor.sent(&mut lent, &tensor, &cells).and(lent.settle())?;
            Ok(DeviceTensor::new(&executor.device, self.stream, tensor))
        })())
    }
}

/// Two numbers of 32 bits as a cell, the second one 0 where there is none.
fn pair_of(numbers: &[u32]) -> u64 {
    let at = |number: usize| u64::from(numbers.get(number).copied().unwrap_or(0));
    at(0) | at(1) << u32::BITS
}

impl HeldBatch {
    /// Which number of an output is that of a lane and bar.
    fn number_of(&self, lane: usize, bar: usize) -> Result<u32, Fault> {
        let group = lane / GROUP_LANES;
        let row = match self.wanted {
            Wanted::Last => group,
            Wanted::All => self.market.first_row[group] as usize + bar,
        };
        let visible = self.market.visible[lane] as usize;
        let is_there = bar < visible && (self.wanted == Wanted::All || bar + 1 == visible);
        let number = u32::try_from(row * GROUP_LANES + lane % GROUP_LANES).ok().filter(|_| is_there);
        number.ok_or_else(|| Fault::Failed("a bar that was not computed".to_owned()))
    }
}
