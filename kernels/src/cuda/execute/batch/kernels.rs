//! The kernels of a batch: what they read and write, and how they are launched. One by one, memory is allocated and released
//! in the stream between them. As a graph, all memory is allocated before them, and what is not read any more serves later
//! kernels. The order of kernels is the same, and so are the values.

use std::sync::Arc;

use super::{Batch, Column, Extent};
use crate::cuda::codegen::lower::Lowered;
use crate::cuda::codegen::number::number_bytes;
use crate::cuda::device::arguments::{Launch, Limits, Pointers, SCATTERED, Wanted};
use crate::cuda::device::graph::KernelNode;
use crate::cuda::device::{CELL_BYTES, Fault, Function};
use crate::cuda::execute::cells::{Numbers, row_cells};
use crate::cuda::execute::column_cache::CachedColumn;
use crate::cuda::execute::graphs::{GraphKey, Graphs};
use crate::cuda::execute::programs::Ready;
use crate::cuda::execute::sequence::{KernelCall, Series};
use crate::cuda::execute::transfer::{DeviceBuffer, Lent};
use crate::stages::Launches;

/// Memory that is not read any more serves another kernel if it has at most so many times the size: otherwise a later kernel
/// that needs it all would find none.
const SPARE_TIMES_MAX: usize = 2;

/// A launch, and where its tails and its table are among the small arguments.
type Placed = (Launch, (usize, usize));

/// Launches of a batch, and their small arguments on the device.
struct Prepared<'r> {
    /// One per call.
    launches: Vec<Placed>,
    /// Copies the last bars of a series.
    identity: Option<(&'r Lowered, Function, Placed)>,
    /// Per column: its table of addresses among the arguments, if its rows are not contiguous.
    scattered: Vec<Option<usize>>,
    first_row: usize,
    visible: usize,
    arguments: DeviceBuffer,
}

impl Prepared<'_> {
    fn pointers(
        &self,
        columns: Vec<u64>,
        out: &DeviceBuffer,
        scratch: Option<&DeviceBuffer>,
        (tail, table): (usize, usize),
    ) -> Pointers {
        let argument = |cell: usize| self.arguments.memory().at(cell);
        Pointers {
            columns,
            out: out.memory().at(0),
            scratch: scratch.map_or(0, |scratch| scratch.memory().at(0)),
            table: argument(table),
            first_row: argument(self.first_row),
            visible: argument(self.visible),
            tail: argument(tail),
        }
    }
}

/// How the kernels of a batch are launched.
enum Way {
    OneByOne,
    /// As a graph.
    Together {
        kernels: Vec<KernelNode>,
        /// Memory that no later kernel reads.
        spare: Vec<Arc<DeviceBuffer>>,
    },
}

impl Way {
    fn allocate(&mut self, lent: &Lent, cells: usize) -> Result<Arc<DeviceBuffer>, Fault> {
        if let Self::Together { spare, .. } = self {
            let size = |buffer: &Arc<DeviceBuffer>| buffer.memory().cells();
            let fits = |buffer: &Arc<DeviceBuffer>| (cells..=cells * SPARE_TIMES_MAX).contains(&size(buffer));
            let best = (0..spare.len()).filter(|at| fits(&spare[*at])).min_by_key(|at| size(&spare[*at]));
            if let Some(at) = best {
                return Ok(spare.swap_remove(at));
            }
        }
        Ok(Arc::new(lent.allocate(cells)?))
    }

    /// Takes memory that no later kernel reads.
    fn release(&mut self, buffer: Option<Arc<DeviceBuffer>>) {
        if let (Self::Together { spare, .. }, Some(buffer)) = (self, buffer) {
            spare.push(buffer);
        }
    }
}

impl Batch {
    /// The address of a column for a kernel: of its first row if the rows are contiguous, else of the table at cell
    /// `scattered` of the arguments.
    fn address_of(&self, column: &Column, arguments: &DeviceBuffer, scattered: Option<usize>) -> u64 {
        match scattered {
            Some(table) => arguments.memory().at(table) | SCATTERED,
            None => column.first().map_or(0, |(held, cell)| held.memory().at(*cell)),
        }
    }

    /// Whether a column's groups are contiguous, as in all series that kernels compute.
    pub(super) fn is_whole(&self, column: &Column) -> bool {
        let Some((first, begin)) = column.first() else { return true };
        let lies = |((held, cell), row): (&CachedColumn, &i64)| {
            Arc::ptr_eq(held, first) && *cell == begin + *row as usize * row_cells(self.precision)
        };
        column.iter().zip(&self.market.first_row).all(lies)
    }

    /// Enqueues the kernels.
    pub(super) fn compute(&mut self, ready: &Ready, graphs: &Arc<Graphs>) -> Result<(), Fault> {
        let prepared = self.prepare(ready)?;
        let count = self.kernel_count(ready, &prepared);
        let key = GraphKey { kernels: ready.kernels, all: self.wanted == Wanted::All, count };
        if let Some(turn) = graphs.turn(key) {
            let mut way = Way::Together { kernels: Vec::with_capacity(count), spare: Vec::new() };
            match self.put(ready, &prepared, &mut way) {
                Ok(()) => {
                    self.begin_kernels()?;
                    let Way::Together { kernels, .. } = &mut way else { return Ok(()) };
                    let kernels = std::mem::take(kernels);
                    if let Some(graph) = graphs.launch(turn, self.lent.stream, kernels)? {
                        self.launches = Launches { kernels: count as u64, calls: 1 };
                        self.graph = Some(graph);
                        return Ok(());
                    }
                }
                // One by one they may need less.
                Err(Fault::OutOfMemory { .. }) => {}
                Err(fault) => return Err(fault),
            }
            self.extents.clear();
        }
        self.put(ready, &prepared, &mut Way::OneByOne)
    }

    /// Launches with their small arguments, which are sent to the device.
    fn prepare<'r>(&mut self, ready: &'r Ready) -> Result<Prepared<'r>, Fault> {
        let sequence = &ready.sequence;
        let facts = self.lent.device.facts();
        let limits = Limits { shared_bytes: facts.shared_bytes, multiprocessors: facts.multiprocessors as usize };
        let mut numbers = Numbers::of(&self.market);
        let mut launches = Vec::with_capacity(sequence.calls.len());
        for (number, call) in sequence.calls.iter().enumerate() {
            let launch = call.lowered.launch(&self.market, ready.uses.bars(number, self.wanted), limits);
            let places = numbers.add(&launch);
            launches.push((launch, places));
        }
        let identity = ready.identity.as_ref().map(|(lowered, function)| {
            let launch = lowered.launch(&self.market, Wanted::Last, limits);
            let places = numbers.add(&launch);
            (lowered, *function, (launch, places))
        });
        let scattered: Vec<Option<usize>> = self
            .columns
            .iter()
            .map(|column| {
                let column = column.as_ref().filter(|column| !self.is_whole(column))?;
                Some(numbers.add_table(column.iter().map(|(held, cell)| held.memory().at(*cell))))
            })
            .collect();
        let arguments = self.lent.allocate(numbers.cells.len())?;
        let mut fill = |first: usize, to: &mut [u64]| to.copy_from_slice(&numbers.cells[first..first + to.len()]);
        self.lent.send(arguments.memory(), numbers.cells.len(), &mut fill)?;
        self.bytes_in += (numbers.cells.len() * CELL_BYTES) as u64;
        let Numbers { first_row, visible, .. } = numbers;
        Ok(Prepared { launches, identity, scattered, first_row, visible, arguments })
    }

    /// How many kernels there are: those of the sequence, and one for each series of which only the last bars are wanted.
    fn kernel_count(&self, ready: &Ready, prepared: &Prepared<'_>) -> usize {
        let sequence = &ready.sequence;
        let runs = |(call, (launch, _)): &(&KernelCall, &Placed)| is_run(call, launch);
        let calls = sequence.calls.iter().zip(&prepared.launches).filter(runs).count();
        let is_cut = |series: &&Series| match **series {
            Series::Made { call, .. } => ready.uses.bars(call, self.wanted) != self.wanted,
            _ => false,
        };
        calls + sequence.outputs.iter().filter(is_cut).count()
    }

    /// Marks the beginning of the kernels, so that time spent on allocations does not count as theirs.
    fn begin_kernels(&mut self) -> Result<(), Fault> {
        if self.marks.len() == 1 {
            self.marks.push(self.lent.mark()?);
        }
        Ok(())
    }

    fn launch(
        &mut self,
        way: &mut Way,
        (lowered, function): (&Lowered, Function),
        launch: &Launch,
        pointers: &Pointers,
    ) -> Result<(), Fault> {
        if let Way::Together { kernels, .. } = way {
            kernels.push(KernelNode::of(function, launch, pointers)?);
            return Ok(());
        }
        self.begin_kernels()?;
        self.launches.kernels += 1;
        self.launches.calls += 1;
        self.lent.device.launch(self.lent.stream, function, lowered, launch, pointers)
    }

    /// Allocates what the kernels write, and launches them in one way or the other.
    fn put(&mut self, ready: &Ready, prepared: &Prepared<'_>, way: &mut Way) -> Result<(), Fault> {
        let sequence = &ready.sequence;
        let mut made: Vec<Option<Arc<DeviceBuffer>>> = vec![None; sequence.calls.len()];
        for (number, (call, (launch, places))) in sequence.calls.iter().zip(&prepared.launches).enumerate() {
            if !is_run(call, launch) {
                continue;
            }
            let address = |series: &Series| match *series {
                Series::Column(at) => {
                    let column = self.columns.get(at)?.as_ref()?;
                    let scattered = prepared.scattered.get(at).copied().flatten();
                    Some(self.address_of(column, &prepared.arguments, scattered))
                }
                Series::Made { call, output } => {
                    let stride = self.series_cells(ready.uses.bars(call, self.wanted));
                    Some(made.get(call)?.as_ref()?.memory().at(output * stride))
                }
                Series::Constant(_) => None,
            };
            let columns: Option<Vec<u64>> = call.reads.iter().map(address).collect();
            let columns = columns.ok_or_else(|| Fault::Failed("a kernel reads what nothing made".to_owned()))?;
            let out = way.allocate(&self.lent, self.cells_of(launch.out_len))?;
            let scratch = self.cells_of(launch.scratch_len);
            let scratch = if scratch > 0 { Some(way.allocate(&self.lent, scratch)?) } else { None };
            let pointers = prepared.pointers(columns, &out, scratch.as_deref(), *places);
            self.launch(way, (&call.lowered, ready.functions[number]), launch, &pointers)?;
            way.release(scratch);
            made[number] = Some(out);
            for other in &ready.uses.over[number] {
                way.release(made[*other].take());
            }
        }
        if matches!(way, Way::OneByOne) {
            self.begin_kernels()?;
        }
        self.extents = self.output_extents(ready, prepared, &made, way)?;
        // Full series of which only the last bars are wanted.
        made.into_iter().for_each(|buffer| way.release(buffer));
        Ok(())
    }

    /// Cells of so many numbers of the kernels' type, which are whole rows.
    fn cells_of(&self, numbers: usize) -> usize {
        numbers * number_bytes(self.precision) / CELL_BYTES
    }

    /// Cells of a series of these bars.
    fn series_cells(&self, wanted: Wanted) -> usize {
        self.cells_of(self.market.output_stride(wanted))
    }

    /// Determines the extents of the outputs. Series with all bars of which only the last are wanted are reduced to them.
    fn output_extents(
        &mut self,
        ready: &Ready,
        prepared: &Prepared<'_>,
        made: &[Option<Arc<DeviceBuffer>>],
        way: &mut Way,
    ) -> Result<Vec<Extent>, Fault> {
        let sequence = &ready.sequence;
        let cells = self.series_cells(self.wanted);
        let mut extents: Vec<Extent> = Vec::new();
        let mut places: Vec<(usize, usize, usize)> = Vec::new();
        for (output, series) in sequence.outputs.iter().enumerate() {
            if let Series::Made { call, output: of } = *series {
                places.push((call, of, output));
            }
        }
        places.sort_unstable();
        for (call, of, output) in places {
            let Some(held) = made[call].clone() else { continue };
            let bars = ready.uses.bars(call, self.wanted);
            let (held, at) = if bars == self.wanted {
                (held, of * cells)
            } else {
                (self.last_bars(prepared, &held, of * self.series_cells(bars), way)?, 0)
            };
            match extents.last_mut() {
                Some(before) if Arc::ptr_eq(&before.held, &held) && before.at + before.cells == at => {
                    before.cells += cells;
                    before.outputs.push(output);
                }
                _ => extents.push(Extent { held, at, cells, outputs: vec![output] }),
            }
        }
        Ok(extents)
    }

    /// Copies the last bars of a series that begins at a cell.
    fn last_bars(
        &mut self,
        prepared: &Prepared<'_>,
        held: &DeviceBuffer,
        cell: usize,
        way: &mut Way,
    ) -> Result<Arc<DeviceBuffer>, Fault> {
        let Some((lowered, function, (launch, places))) = &prepared.identity else {
            return Err(Fault::Failed("no kernel gives last bars".to_owned()));
        };
        let out = way.allocate(&self.lent, self.cells_of(launch.out_len))?;
        let pointers = prepared.pointers(vec![held.memory().at(cell)], &out, None, *places);
        self.launch(way, (lowered, *function), launch, &pointers)?;
        Ok(out)
    }
}

/// Whether a call has a kernel to launch.
fn is_run(call: &KernelCall, launch: &Launch) -> bool {
    call.lowered.kernel.outputs > 0 && launch.blocks > 0
}
