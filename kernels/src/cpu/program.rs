//! Runs a program over one tile: rings between the steps, strips through time.

use std::ops::Range;

use trawl_plan::Program;
use trawl_plan::graph::Op;

use super::lanes::{AnyStep, Isa, Out, RowOf, View};
use super::real::Real;
use super::steps::{step_for, tail_rows};
use super::tasks::{Place, Slot, Source, Task, Tasks, begins};
use super::tile::Tile;
use crate::{Cancel, Cancelled};

/// Bars per strip: a series of a strip is 4 KiB of `f64`, so a dozen series stay in the first-level cache.
pub(crate) const STRIP_BARS: usize = 32;

/// Series that the widest task reads.
const INPUTS_MAX: usize = 5;

/// Series that the widest task makes.
const OUTPUTS_MAX: usize = 3;

/// Buffers that tiles of one program use one after another.
pub(crate) struct Workspace<'p, T: Real = f64> {
    program: &'p Program,
    isa: Isa,
    plan: Tasks,
    slots: Vec<Vec<RowOf<T>>>,
}

/// Rows of a slot over tiles of `bars` bars: a power of two, and never longer than the tile, so that a long period over
/// short histories costs no memory.
fn slot_rows(slot: Slot, bars: usize) -> usize {
    match slot {
        Slot::Constant(_) => STRIP_BARS,
        Slot::Ring(history) => {
            let whole = bars.max(STRIP_BARS).next_power_of_two();
            history.saturating_add(STRIP_BARS).min(whole).next_power_of_two()
        }
    }
}

/// Asks for a row that is read soon: processors that look ahead stop at the borders of pages, which a strip of a column
/// has about one of.
#[inline(always)]
fn prefetch<T>(row: &RowOf<T>) {
    #[cfg(target_arch = "x86_64")]
    for line in (0..size_of::<RowOf<T>>()).step_by(64) {
        // SAFETY: a hint; the address lies in the row.
        unsafe {
            std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(
                std::ptr::from_ref(row).cast::<i8>().add(line),
            )
        };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = row;
}

/// Bytes that one thread needs beside the bars to run `program` over histories of up to `bars` bars.
pub(crate) fn workspace_bytes(program: &Program, bars: usize) -> u64 {
    let plan = Tasks::new(program);
    let rings: u64 = plan.slots.iter().map(|slot| slot_rows(*slot, bars) as u64).sum();
    let tails: u64 = plan.tasks.iter().map(|task| tail_rows(task.work, bars) as u64).sum();
    (rings + tails) * size_of::<RowOf<f64>>() as u64
}

/// The first bar that each of the program's inputs must hold when all outputs are wanted from `wanted_from` on.
pub(crate) fn column_begins(program: &Program, wanted_from: usize) -> Vec<usize> {
    let mut columns = vec![wanted_from; program.inputs.len()];
    for (node, begin) in program.nodes().iter().zip(begins(program, wanted_from)) {
        if let Op::Column(column) = node.op {
            columns[usize::from(column)] = begin.min(wanted_from);
        }
    }
    columns
}

impl<'p, T: Real> Workspace<'p, T> {
    pub fn new(program: &'p Program) -> Self {
        Self::on(Isa::detect(), program)
    }

    /// With the code of one instruction set, which this machine must have.
    pub fn on(isa: Isa, program: &'p Program) -> Self {
        let plan = Tasks::new(program);
        let constant = |slot: &Slot| match slot {
            Slot::Constant(value) => vec![RowOf::splat(T::of(*value)); STRIP_BARS],
            Slot::Ring(_) => Vec::new(),
        };
        let slots = plan.slots.iter().map(constant).collect();
        Self { program, isa, plan, slots }
    }

    fn reserve(&mut self, bars: usize) {
        for (slot, buffer) in self.plan.slots.iter().zip(&mut self.slots) {
            let rows = slot_rows(*slot, bars);
            if buffer.len() < rows {
                buffer.resize(rows, RowOf::NA);
            }
        }
    }

    fn view<'a>(&'a self, tile: &'a Tile<T>, columns: &[usize], source: Source, t: usize) -> View<'a, T> {
        let view = match source.place {
            Place::Column(column) => {
                let column = columns[column];
                View::column(tile.column(column)).defined(tile.defined_from(column, t))
            }
            Place::Slot(slot) => View::ring(&self.slots[slot]),
        };
        view.late(source.lag)
    }

    /// Runs the tile, whose column `columns[i]` is the program's input i, and calls `take(rows)` after each strip, when
    /// `value` may be asked for those rows.
    pub fn run(
        &mut self,
        tile: &Tile<T>,
        columns: &[usize],
        wanted_from: usize,
        cancel: &dyn Cancel,
        mut take: impl FnMut(&Self, Range<usize>),
    ) -> Result<(), Cancelled> {
        let rows = tile.rows();
        self.reserve(rows);
        let begins = begins(self.program, wanted_from);
        let begin = |task: &Task| if task.work.is_recursive() { 0 } else { begins[task.node.index()] };
        let begins: Vec<usize> = self.plan.tasks.iter().map(begin).collect();
        let mut steps: Vec<Option<Box<dyn AnyStep<T>>>> =
            self.plan.tasks.iter().map(|task| step_for(task.work, rows)).collect();
        let read = self.columns_read(tile, columns);
        let share = (read.len() * STRIP_BARS).div_ceil(steps.len().max(1));
        let first = begins.iter().copied().min().unwrap_or(0).min(wanted_from);
        let mut strip = first / STRIP_BARS * STRIP_BARS;
        while strip < rows {
            if cancel.cancelled() {
                return Err(Cancelled);
            }
            let end = (strip + STRIP_BARS).min(rows);
            // The next strip's bars are fetched while this one is computed, some before each step.
            let mut ahead = read.iter().flat_map(|column| column.get(end..(end + STRIP_BARS).min(rows)).unwrap_or(&[]));
            for (i, step) in steps.iter_mut().enumerate() {
                ahead.by_ref().take(share).for_each(prefetch);
                let (Some(step), start) = (step, begins[i].max(strip)) else { continue };
                if start < end {
                    self.step(i, step.as_mut(), tile, columns, start..end);
                }
            }
            if end > wanted_from {
                take(self, wanted_from.max(strip)..end);
            }
            strip = end;
        }
        Ok(())
    }

    /// The rows of the columns that steps read, where these begin with the first bar.
    fn columns_read<'a>(&self, tile: &'a Tile<T>, columns: &[usize]) -> Vec<&'a [RowOf<T>]> {
        let mut read: Vec<usize> = Vec::new();
        for source in self.plan.tasks.iter().flat_map(|task| &task.inputs) {
            if let Place::Column(column) = source.place {
                read.push(columns[column]);
            }
        }
        read.sort_unstable();
        read.dedup();
        let rows = read.into_iter().map(|column| tile.column(column));
        rows.filter(|(_, base)| *base == 0).map(|(rows, _)| rows).collect()
    }

    fn step(&mut self, i: usize, step: &mut dyn AnyStep<T>, tile: &Tile<T>, columns: &[usize], rows: Range<usize>) {
        // Taken out for the moment: what a task writes it does not read.
        let mut taken: [Vec<RowOf<T>>; OUTPUTS_MAX] = Default::default();
        for (buffer, slot) in taken.iter_mut().zip(&self.plan.tasks[i].outputs) {
            *buffer = std::mem::take(&mut self.slots[*slot]);
        }
        let task = &self.plan.tasks[i];
        let mut inputs = [View::EMPTY; INPUTS_MAX];
        for (view, source) in inputs.iter_mut().zip(&task.inputs) {
            *view = self.view(tile, columns, *source, rows.start);
        }
        let mut outs = taken.each_mut().map(|buffer| Out::new(buffer));
        step.strip(self.isa, &inputs[..task.inputs.len()], &mut outs[..task.outputs.len()], rows);
        for (buffer, slot) in taken.iter_mut().zip(&self.plan.tasks[i].outputs) {
            self.slots[*slot] = std::mem::take(buffer);
        }
    }

    /// The value of the program's output `output` at a row of the strip that was just taken. NaNs are canonical.
    pub fn value(&self, tile: &Tile<T>, columns: &[usize], output: usize, lane: usize, row: usize) -> f64 {
        let x = self.view(tile, columns, self.plan.outputs[output], row).row(row).0[lane].wide();
        if x.is_nan() { f64::NAN } else { x }
    }
}
