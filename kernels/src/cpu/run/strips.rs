//! Runs a program over one tile: rings between the steps, strips through time.

use std::ops::Range;

use crate::cpu::lower::schedule::{Schedule, SeriesPlace, Slot, TaskInput, Tasks};
use crate::cpu::lower::steps::{step_bytes, step_for};
use crate::cpu::primitives::trend::{TOGETHER_MAX, Tables};
use crate::cpu::run::resume::{Course, Cut, Saved};
use crate::cpu::run::tile::Tile;
use crate::cpu::simd::float::Real;
use crate::cpu::simd::state_io::Carrier;
use crate::cpu::simd::vector::{AnyStep, Isa, Out, RowOf, View};
use crate::{Cancel, Cancelled};

/// Maximum number of input and output series of most tasks.
pub(crate) const INPUTS_USUAL: usize = 5;
pub(crate) const OUTPUTS_USUAL: usize = 3;

/// Maximum number of input series of any task.
pub(crate) const INPUTS_MAX: usize = 12;

/// Maximum number of output series of any task.
pub(crate) const OUTPUTS_MAX: usize = TOGETHER_MAX;

/// Buffers reused by successive tiles of one program.
pub(crate) struct Workspace<'p, T: Real = f64> {
    pub schedule: &'p Schedule,
    isa: Isa,
    pub slots: Vec<Vec<RowOf<T>>>,
    tables: Tables,
}

/// Number of rows of a slot over tiles of `bars` bars: a power of two, bounded by the tile's length, so that a long
/// period over short histories costs no memory.
fn slot_rows<T: Real>(slot: Slot, bars: usize) -> usize {
    match slot {
        Slot::Constant(_) => T::STRIP_BARS,
        Slot::Ring(history) => {
            let whole = bars.max(T::STRIP_BARS).next_power_of_two();
            history.saturating_add(T::STRIP_BARS).min(whole).next_power_of_two()
        }
    }
}

/// Prefetches a row that is read soon: hardware prefetchers stop at page boundaries, of which a strip of a column has
/// about one.
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

/// Bytes of working memory per thread, besides the bars, to run these tasks over histories of up to `bars` bars.
pub(crate) fn workspace_bytes<T: Real>(plan: &Tasks, bars: usize) -> u64 {
    let rings: usize = plan.slots.iter().map(|slot| slot_rows::<T>(*slot, bars)).sum();
    let kept: usize = plan.tasks.iter().map(|task| step_bytes::<T>(&task.work, task.inputs.len(), bars)).sum();
    (rings * size_of::<RowOf<T>>() + kept) as u64
}

impl<'p, T: Real> Workspace<'p, T> {
    pub fn new(schedule: &'p Schedule) -> Self {
        Self::on(Isa::detect(), schedule)
    }

    /// A workspace that runs the code of one instruction set, which this machine must support.
    pub fn on(isa: Isa, schedule: &'p Schedule) -> Self {
        let constant = |slot: &Slot| match slot {
            Slot::Constant(value) => vec![RowOf::splat(T::of(*value)); T::STRIP_BARS],
            Slot::Ring(_) => Vec::new(),
        };
        let slots = schedule.tasks.slots.iter().map(constant).collect();
        Self { schedule, isa, slots, tables: Tables::default() }
    }

    fn reserve(&mut self, bars: usize) {
        for (slot, buffer) in self.schedule.tasks.slots.iter().zip(&mut self.slots) {
            let rows = slot_rows::<T>(*slot, bars);
            if buffer.len() < rows {
                buffer.resize(rows, RowOf::NA);
            }
        }
    }

    fn view<'a>(&'a self, tile: &'a Tile<T>, columns: &[usize], source: TaskInput, t: usize) -> View<'a, T> {
        let view = match source.place {
            SeriesPlace::Column(column) => {
                let column = columns[column];
                View::column(tile.column(column)).defined(tile.defined_from(column, t))
            }
            SeriesPlace::Slot(slot) => View::ring(&self.slots[slot]),
        };
        view.late(source.lag)
    }

    /// Runs the tile, whose column `columns[i]` is the program's input i, and calls `take(rows)` after each strip;
    /// [`Self::value`] is then valid for those rows.
    pub fn run(
        &mut self,
        tile: &Tile<T>,
        columns: &[usize],
        wanted_from: usize,
        cancel: &dyn Cancel,
        take: impl FnMut(&Self, Range<usize>),
    ) -> Result<(), Cancelled> {
        let begins = self.schedule.whole.tasks(wanted_from);
        self.run_course(tile, columns, Course { wanted_from, begins, cuts: Vec::new() }, cancel, take).map(|_| ())
    }

    /// As [`Self::run`], loading and saving states on the way.
    pub fn run_course(
        &mut self,
        tile: &Tile<T>,
        columns: &[usize],
        course: Course,
        cancel: &dyn Cancel,
        mut take: impl FnMut(&Self, Range<usize>),
    ) -> Result<Vec<Saved>, Cancelled> {
        let rows = tile.rows();
        self.reserve(rows);
        let Course { wanted_from, begins, cuts } = course;
        let mut calls = self.calls(tile, columns, &begins, cuts);
        let read = self.columns_read(tile, columns);
        let share = (read.len() * T::STRIP_BARS).div_ceil(calls.len().max(1));
        let first = begins.iter().copied().min().unwrap_or(0).min(wanted_from);
        let mut strip = first / T::STRIP_BARS * T::STRIP_BARS;
        while strip < rows {
            if cancel.cancelled() {
                return Err(Cancelled);
            }
            let end = (strip + T::STRIP_BARS).min(rows);
            // Prefetch the next strip's bars while this one is computed, some before each step.
            let next = (rows - end).min(T::STRIP_BARS);
            let mut fetched = 0;
            for call in &mut calls {
                let goal = (fetched + share).min(next * read.len());
                while fetched < goal {
                    prefetch(&read[fetched / next][end + fetched % next]);
                    fetched += 1;
                }
                call.advance(self.isa, tile, strip..end);
            }
            if end > wanted_from {
                take(self, wanted_from.max(strip)..end);
            }
            strip = end;
        }
        // States that are loaded or saved after the last bar.
        calls.iter_mut().for_each(|call| call.advance(self.isa, tile, rows..rows));
        Ok(calls.into_iter().map(|call| call.saved).collect())
    }

    /// Binds each task to its series; repeated for every strip of the tile.
    fn calls(&mut self, tile: &Tile<T>, columns: &[usize], begins: &[usize], cuts: Vec<Vec<Cut>>) -> Vec<BoundTask<T>> {
        let bars = tile.rows();
        let tasks = &self.schedule.tasks.tasks;
        let mut calls = Vec::with_capacity(tasks.len());
        let mut cuts = cuts.into_iter();
        // One pointer per slot, for all readers and writers: borrowing the slot again would invalidate earlier
        // pointers.
        let slot = |slot: &mut Vec<RowOf<T>>| std::ptr::slice_from_raw_parts_mut(slot.as_mut_ptr(), slot.len());
        let slots: Vec<*mut [RowOf<T>]> = self.slots.iter_mut().map(slot).collect();
        for (task, begin) in tasks.iter().zip(begins) {
            let mut cuts = cuts.next().unwrap_or_default();
            // In reverse order, so that the next one is popped from the end.
            cuts.reverse();
            let Some(step) = step_for(&task.work, task.inputs.len(), bars, &mut self.tables) else { continue };
            let feed = |source: &TaskInput| match source.place {
                SeriesPlace::Column(column) => {
                    let (rows, base) = tile.column(columns[column]);
                    Feed { rows, base, ring: false, column: columns[column], lag: source.lag }
                }
                SeriesPlace::Slot(slot) => {
                    let rows: *const [RowOf<T>] = slots[slot];
                    Feed { rows, base: 0, ring: true, column: usize::MAX, lag: source.lag }
                }
            };
            let inputs = task.inputs.iter().map(feed).collect();
            let outputs = task.outputs.iter().map(|slot| slots[*slot]).collect();
            calls.push(BoundTask { step, begin: *begin, inputs, outputs, cuts, saved: Saved::new() });
        }
        calls
    }

    /// The rows of the columns that are read, where they begin with the first bar; used for prefetching.
    fn columns_read<'a>(&self, tile: &'a Tile<T>, columns: &[usize]) -> Vec<&'a [RowOf<T>]> {
        let mut read: Vec<usize> = Vec::new();
        for source in self.schedule.tasks.tasks.iter().flat_map(|task| &task.inputs) {
            if let SeriesPlace::Column(column) = source.place {
                read.push(columns[column]);
            }
        }
        read.sort_unstable();
        read.dedup();
        let rows = read.into_iter().map(|column| tile.column(column));
        rows.filter(|(_, base)| *base == 0).map(|(rows, _)| rows).collect()
    }

    /// Appends the values of the program's output `output` at some rows of the strip just taken. NaNs are canonical.
    pub fn values(
        &self,
        tile: &Tile<T>,
        columns: &[usize],
        output: usize,
        lane: usize,
        rows: Range<usize>,
        values: &mut Vec<f64>,
    ) {
        let view = self.view(tile, columns, self.schedule.tasks.outputs[output], rows.start);
        values.extend(rows.map(|row| {
            let x = view.at(row).0[lane].wide();
            if x.is_nan() { f64::NAN } else { x }
        }));
    }

    /// The value of the program's output `output` at a row of the strip just taken. NaNs are canonical.
    pub fn value(&self, tile: &Tile<T>, columns: &[usize], output: usize, lane: usize, row: usize) -> f64 {
        let x = self.view(tile, columns, self.schedule.tasks.outputs[output], row).row(row).0[lane].wide();
        if x.is_nan() { f64::NAN } else { x }
    }
}

/// A task bound to one tile: its step and its series.
struct BoundTask<T: Real> {
    step: Box<dyn AnyStep<T>>,
    begin: usize,
    inputs: Vec<Feed<T>>,
    outputs: Vec<*mut [RowOf<T>]>,
    /// States still to be loaded or saved, the next one last.
    cuts: Vec<Cut>,
    saved: Saved,
}

/// One input of a step.
struct Feed<T> {
    rows: *const [RowOf<T>],
    base: usize,
    ring: bool,
    /// The tile's column, if the input is a column.
    column: usize,
    lag: usize,
}

impl<T: Real> BoundTask<T> {
    /// Runs the step over the rows of a strip from its first bar on, stopping where a state is loaded or saved.
    fn advance(&mut self, isa: Isa, tile: &Tile<T>, strip: Range<usize>) {
        let mut start = self.begin.max(strip.start);
        while let Some(cut) = self.cuts.pop_if(|cut| cut.bar <= strip.end) {
            if start < cut.bar {
                self.run(isa, tile, start..cut.bar);
                start = cut.bar;
            }
            if let Some(words) = cut.words {
                self.step.carry_lane(cut.lane, &mut Carrier::Load(words.iter()));
            } else {
                let mut words = Vec::new();
                self.step.carry_lane(cut.lane, &mut Carrier::Save(&mut words));
                self.saved.push((cut.lane, words));
            }
        }
        if start < strip.end {
            self.run(isa, tile, start..strip.end);
        }
    }

    /// Runs the step over `rows`. The slots that the task is bound to must not have moved.
    fn run(&mut self, isa: Isa, tile: &Tile<T>, rows: Range<usize>) {
        if self.inputs.len() <= INPUTS_USUAL && self.outputs.len() <= OUTPUTS_USUAL {
            self.run_up_to::<INPUTS_USUAL, OUTPUTS_USUAL>(isa, tile, rows);
        } else {
            self.run_up_to::<INPUTS_MAX, OUTPUTS_MAX>(isa, tile, rows);
        }
    }

    /// As [`Self::run`], for up to `I` inputs and `O` outputs.
    #[inline(always)]
    fn run_up_to<const I: usize, const O: usize>(&mut self, isa: Isa, tile: &Tile<T>, rows: Range<usize>) {
        let mut inputs = [View::EMPTY; I];
        for (view, feed) in inputs.iter_mut().zip(&self.inputs) {
            // SAFETY: a column of the tile that the caller holds, or one of the workspace's slots, which live as long
            // and are of the same length until the tile is done. `Tasks` gives no task a slot to write that it reads.
            let series = unsafe { &*feed.rows };
            let whole = if feed.ring { View::ring(series) } else { View::column((series, feed.base)) };
            *view = whole.late(feed.lag).defined(tile.defined_from(feed.column, rows.start));
        }
        let mut outs: [Out<'_, T>; O] = std::array::from_fn(|_| Out::new(&mut []));
        for (out, slot) in outs.iter_mut().zip(&self.outputs) {
            // SAFETY: as above; the slots of one task are different ones.
            *out = Out::new(unsafe { &mut **slot });
        }
        let (inputs, outs) = (&inputs[..self.inputs.len()], &mut outs[..self.outputs.len()]);
        self.step.strip(isa, inputs, outs, rows);
    }
}
