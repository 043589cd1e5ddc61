//! Runs a program over the bars of the symbols of one tile: rings between the steps, strips through time.

use std::ops::Range;

use crate::cpu::lower::schedule::{History, Schedule, SeriesPlace, Slot, TaskInput, Tasks};
use crate::cpu::lower::steps::{step_bytes, step_for};
use crate::cpu::primitives::trend::{TOGETHER_MAX, Tables};
use crate::cpu::run::resume::{Course, Cut, Saved};
use crate::cpu::run::tile::{Lanes, PADDING, Tile, defined_after, prefetch};
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
    /// Whether its rings become those of a tile that stays in memory.
    resident: bool,
    pub slots: Vec<Vec<RowOf<T>>>,
    /// Per input of the program.
    laid: Laid<T>,
    tables: Tables,
}

/// Number of rows of a slot over tiles of `bars` bars: a power of two, bounded by the tile's length, so that a long
/// period over short histories costs no memory.
fn slot_rows<T: Real>(slot: Slot, bars: usize, resident: bool) -> usize {
    match slot {
        Slot::Constant(_) => T::STRIP_BARS,
        Slot::Ring(history) => {
            let history = if resident { history.resident } else { history.along };
            let whole = bars.max(T::STRIP_BARS).next_power_of_two();
            history.saturating_add(T::STRIP_BARS).min(whole).next_power_of_two()
        }
    }
}

/// How many strips ahead the bars that will be laid out are fetched from memory.
const PREFETCHED_STRIPS: usize = 2;

/// Where a run finds its bars.
#[derive(Debug)]
pub(crate) enum Source<'b, T: 'static = f64> {
    /// Laid out before: the program's input i is column `columns[i]`.
    Tile { tile: &'b Tile<T>, columns: &'b [usize] },
    /// One column for each input of the program, laid out strip by strip, so that the rows stay in the cache of a core.
    Lanes(&'b Lanes<'b>),
}

impl<T> Clone for Source<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Source<'_, T> {}

impl<T: Real> Source<'_, T> {
    /// Number of visible bars of the longest lane.
    fn rows(&self) -> usize {
        match self {
            Self::Tile { tile, .. } => tile.rows(),
            Self::Lanes(lanes) => lanes.rows(),
        }
    }

    /// Whether there is a single symbol.
    fn is_one_lane(&self) -> bool {
        let visible = match self {
            Self::Tile { tile, .. } => &tile.visible,
            Self::Lanes(lanes) => &lanes.visible,
        };
        visible.len() == 1
    }
}

/// Columns that are laid out strip by strip: the last rows of each, and the bar from which all of them are finite.
type Laid<T> = Vec<(Vec<RowOf<T>>, usize)>;

/// Bytes of working memory per thread, besides the bars, to run these tasks over histories of up to `bars` bars.
pub(crate) fn workspace_bytes<T: Real>(plan: &Tasks, bars: usize) -> u64 {
    let columns = plan.columns.iter().map(|along| Slot::Ring(History { along: *along, resident: 0 }));
    let rings: usize = plan.slots.iter().copied().chain(columns).map(|slot| slot_rows::<T>(slot, bars, false)).sum();
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
        let laid = schedule.tasks.columns.iter().map(|_| (Vec::new(), 0)).collect();
        Self { schedule, isa, resident: false, slots, laid, tables: Tables::default() }
    }

    /// A workspace whose rings hold what a tile that stays in memory reads of them.
    pub fn resident(schedule: &'p Schedule) -> Self {
        Self { resident: true, ..Self::new(schedule) }
    }

    fn reserve(&mut self, source: Source<'_, T>) {
        let (bars, resident) = (source.rows(), self.resident);
        let reserve = |slot: Slot, buffer: &mut Vec<RowOf<T>>| {
            let rows = slot_rows::<T>(slot, bars, resident);
            if buffer.len() < rows {
                buffer.resize(rows, RowOf::NA);
            }
        };
        self.schedule.tasks.slots.iter().zip(&mut self.slots).for_each(|(slot, buffer)| reserve(*slot, buffer));
        if let Source::Lanes(lanes) = source {
            let histories = self.schedule.tasks.columns.iter().zip(&mut self.laid).enumerate();
            for (column, (history, (buffer, defined_from))) in histories {
                reserve(Slot::Ring(History { along: *history, resident: *history }), buffer);
                *defined_from = lanes.base(column);
            }
        }
    }

    fn view<'a>(&'a self, source: Source<'a, T>, input: TaskInput, t: usize) -> View<'a, T> {
        let view = match (input.place, source) {
            (SeriesPlace::Column(column), Source::Tile { tile, columns }) => {
                let column = columns[column];
                View::column(tile.column(column)).defined(tile.defined_from(column, t))
            }
            (SeriesPlace::Column(column), Source::Lanes(_)) => {
                let (rows, defined_from) = &self.laid[column];
                View::ring(rows).defined(*defined_from)
            }
            (SeriesPlace::Slot(slot), _) => View::ring(&self.slots[slot]),
        };
        view.late(input.lag)
    }

    /// Runs over the bars of `source`, and calls `take(rows)` after each strip; [`Self::value`] is then valid for those
    /// rows.
    pub fn run(
        &mut self,
        source: Source<'_, T>,
        wanted_from: usize,
        cancel: &dyn Cancel,
        take: impl FnMut(&Self, Range<usize>),
    ) -> Result<(), Cancelled> {
        let (begins, read) = (self.schedule.whole.tasks(wanted_from), self.schedule.whole.read(wanted_from));
        self.run_course(source, Course { wanted_from, begins, read, cuts: Vec::new() }, cancel, take).map(|_| ())
    }

    /// As [`Self::run`], loading and saving states on the way.
    pub fn run_course(
        &mut self,
        source: Source<'_, T>,
        course: Course,
        cancel: &dyn Cancel,
        mut take: impl FnMut(&Self, Range<usize>),
    ) -> Result<Vec<Saved>, Cancelled> {
        let rows = source.rows();
        self.reserve(source);
        let Course { wanted_from, begins, read: read_from, cuts } = course;
        let isa = if source.is_one_lane() && self.isa.may_be_one_lane() { Isa::OneLane } else { self.isa };
        if isa == Isa::OneLane {
            // What is laid out strip by strip is then written in the first lane alone: steps that read all lanes find what they would.
            self.laid.iter_mut().for_each(|(rows, _)| rows.fill(RowOf::splat(T::of(PADDING))));
        }
        let rings: Vec<*mut [RowOf<T>]> = self.laid.iter_mut().map(|(rows, _)| pointer(rows)).collect();
        let mut calls = self.calls(source, &rings, (&begins, &read_from), cuts);
        let read = self.columns_read(source);
        let share = (read.len() * T::STRIP_BARS).div_ceil(calls.len().max(1));
        let first = begins.iter().copied().min().unwrap_or(0).min(wanted_from);
        let mut strip = first / T::STRIP_BARS * T::STRIP_BARS;
        self.lay_history((isa, source), &rings, strip);
        while strip < rows {
            if cancel.cancelled() {
                return Err(Cancelled);
            }
            let end = (strip + T::STRIP_BARS).min(rows);
            for column in 0..rings.len() {
                self.lay((isa, source), &rings, column, strip..end);
            }
            // Prefetch the next strip's bars while this one is computed, some before each step.
            let next = (rows - end).min(T::STRIP_BARS);
            let mut fetching = read.iter().flat_map(|rows| &rows[end..end + next]);
            for call in &mut calls {
                fetching.by_ref().take(share).for_each(prefetch);
                call.advance((isa, source, &self.laid), strip..end);
            }
            if end > wanted_from {
                take(self, wanted_from.max(strip)..end);
            }
            strip = end;
        }
        // States that are loaded or saved after the last bar.
        calls.iter_mut().for_each(|call| call.advance((isa, source, &self.laid), rows..rows));
        Ok(calls.into_iter().map(|call| call.saved).collect())
    }

    /// Lays out what is read before the first strip.
    fn lay_history(&mut self, given: (Isa, Source<'_, T>), rings: &[*mut [RowOf<T>]], strip: usize) {
        for (column, history) in self.schedule.tasks.columns.iter().enumerate() {
            let first = strip.saturating_sub(*history) / T::STRIP_BARS * T::STRIP_BARS;
            for from in (first..strip).step_by(T::STRIP_BARS) {
                self.lay(given, rings, column, from..from + T::STRIP_BARS);
            }
        }
    }

    /// Lays out the bars of a strip, where that was not done before. `rings` are those of [`Self::laid`].
    fn lay(
        &mut self,
        (isa, source): (Isa, Source<'_, T>),
        rings: &[*mut [RowOf<T>]],
        column: usize,
        strip: Range<usize>,
    ) {
        let Source::Lanes(lanes) = source else { return };
        let (from, strip_end) = (strip.start.max(lanes.base(column)), strip.end);
        if from >= strip_end {
            return;
        }
        // SAFETY: the ring lives as long as the workspace, and no step runs, so no view of it is in use.
        let ring = unsafe { &mut *rings[column] };
        // A ring is some strips long, so that none is cut in two.
        let at = from & (ring.len() - 1);
        let to = &mut ring[at..at + (strip_end - from)];
        match isa {
            Isa::OneLane => lanes.lay_lane(0, column, from, to),
            _ => lanes.lay(column, from, to),
        }
        self.laid[column].1 = defined_after(isa, to, from, self.laid[column].1);
        lanes.prefetch(column, from + PREFETCHED_STRIPS * T::STRIP_BARS, strip_end - from);
    }

    /// Binds each task to its series; repeated for every strip of the tile. `rings` are those of the columns that are laid
    /// out strip by strip.
    fn calls(
        &mut self,
        source: Source<'_, T>,
        rings: &[*mut [RowOf<T>]],
        (begins, read): (&[usize], &[usize]),
        cuts: Vec<Vec<Cut>>,
    ) -> Vec<BoundTask<T>> {
        let bars = source.rows();
        let tasks = &self.schedule.tasks.tasks;
        let mut calls = Vec::with_capacity(tasks.len());
        let mut cuts = cuts.into_iter();
        // One pointer per slot, for all readers and writers: borrowing the slot again would invalidate earlier
        // pointers.
        let slots: Vec<*mut [RowOf<T>]> = self.slots.iter_mut().map(|slot| pointer(slot)).collect();
        for ((task, begin), read) in tasks.iter().zip(begins).zip(read) {
            let mut cuts = cuts.next().unwrap_or_default();
            // In reverse order, so that the next one is popped from the end.
            cuts.reverse();
            let Some(step) = step_for(&task.work, task.inputs.len(), bars, &mut self.tables) else { continue };
            let feed = |input: &TaskInput| match (input.place, source) {
                (SeriesPlace::Column(column), Source::Tile { tile, columns }) => {
                    let (rows, base) = tile.column(columns[column]);
                    Feed { rows, base, ring: false, column: columns[column], lag: input.lag }
                }
                (SeriesPlace::Column(column), Source::Lanes(_)) => {
                    let rows: *const [RowOf<T>] = rings[column];
                    Feed { rows, base: 0, ring: true, column, lag: input.lag }
                }
                (SeriesPlace::Slot(slot), _) => {
                    let rows: *const [RowOf<T>] = slots[slot];
                    Feed { rows, base: 0, ring: true, column: usize::MAX, lag: input.lag }
                }
            };
            let inputs = task.inputs.iter().map(feed).collect();
            let outputs = task.outputs.iter().map(|slot| slots[*slot]).collect();
            calls.push(BoundTask { step, begin: *begin, read: *read, inputs, outputs, cuts, saved: Saved::new() });
        }
        calls
    }

    /// The rows of a tile's columns that are read, where they begin with the first bar; used for prefetching.
    fn columns_read<'a>(&self, source: Source<'a, T>) -> Vec<&'a [RowOf<T>]> {
        let Source::Tile { tile, columns } = source else { return Vec::new() };
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

    /// The values of the program's output `output` at some rows of the strip just taken, lane by lane: those of each are as many as
    /// there are rows. Lanes without a symbol have some number. NaNs are canonical.
    pub fn values(&self, source: Source<'_, T>, output: usize, rows: Range<usize>, values: &mut [f64]) {
        let view = self.view(source, self.schedule.tasks.outputs[output], rows.start);
        let isa = if source.is_one_lane() { Isa::OneLane } else { self.isa };
        let mut at = rows.start;
        while at < rows.end {
            let there = view.from(at);
            let there = &there[..there.len().min(rows.end - at)];
            T::spread(isa, there, &mut values[at - rows.start..], rows.len());
            at += there.len().max(1);
        }
    }

    /// The value of the program's output `output` at a row of the strip just taken. NaNs are canonical.
    pub fn value(&self, source: Source<'_, T>, output: usize, lane: usize, row: usize) -> f64 {
        let x = self.view(source, self.schedule.tasks.outputs[output], row).row(row).0[lane].wide();
        if x.is_nan() { f64::NAN } else { x }
    }
}

/// A task bound to one tile: its step and its series.
struct BoundTask<T: Real> {
    step: Box<dyn AnyStep<T>>,
    begin: usize,
    /// The first row of its outputs that is read.
    read: usize,
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
    /// The source's column, if the input is a column.
    column: usize,
    lag: usize,
}

/// How to reach a buffer from several steps; valid until it is borrowed again or resized.
fn pointer<T>(rows: &mut Vec<RowOf<T>>) -> *mut [RowOf<T>] {
    std::ptr::slice_from_raw_parts_mut(rows.as_mut_ptr(), rows.len())
}

/// What every step of a strip needs: the instruction set, and where the bars are.
type Given<'g, T> = (Isa, Source<'g, T>, &'g Laid<T>);

impl<T: Real> BoundTask<T> {
    /// Runs the step over the rows of a strip from its first bar on, stopping where a state is loaded or saved.
    fn advance(&mut self, given: Given<'_, T>, strip: Range<usize>) {
        let mut start = self.begin.max(strip.start);
        while let Some(cut) = self.cuts.pop_if(|cut| cut.bar <= strip.end) {
            if start < cut.bar {
                self.run(given, start..cut.bar);
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
            self.run(given, start..strip.end);
        }
    }

    /// Runs the step over `rows`. The slots that the task is bound to must not have moved.
    fn run(&mut self, given: Given<'_, T>, rows: Range<usize>) {
        if self.inputs.len() <= INPUTS_USUAL && self.outputs.len() <= OUTPUTS_USUAL {
            self.run_up_to::<INPUTS_USUAL, OUTPUTS_USUAL>(given, rows);
        } else {
            self.run_up_to::<INPUTS_MAX, OUTPUTS_MAX>(given, rows);
        }
    }

    /// As [`Self::run`], for up to `I` inputs and `O` outputs.
    #[inline(always)]
    fn run_up_to<const I: usize, const O: usize>(&mut self, (isa, source, laid): Given<'_, T>, rows: Range<usize>) {
        let defined_from = |column: usize| match source {
            Source::Tile { tile, .. } => tile.defined_from(column, rows.start),
            Source::Lanes(_) => laid.get(column).map_or(usize::MAX, |(_, defined_from)| *defined_from),
        };
        let mut inputs = [View::EMPTY; I];
        for (view, feed) in inputs.iter_mut().zip(&self.inputs) {
            // SAFETY: a column of the tile that the caller holds, or one of the workspace's buffers, which live as long
            // and are of the same length until the run is done. `Tasks` gives no task a slot to write that it reads.
            let series = unsafe { &*feed.rows };
            let whole = if feed.ring { View::ring(series) } else { View::column((series, feed.base)) };
            *view = whole.late(feed.lag).defined(defined_from(feed.column));
        }
        let mut outs: [Out<'_, T>; O] = std::array::from_fn(|_| Out::new(&mut []));
        for (out, slot) in outs.iter_mut().zip(&self.outputs) {
            // SAFETY: as above; the slots of one task are different ones.
            *out = Out::new(unsafe { &mut **slot });
        }
        let silent = rows.end <= self.read && self.step.is_silent();
        let outs = &mut outs[..if silent { 0 } else { self.outputs.len() }];
        let inputs = &inputs[..self.inputs.len()];
        self.step.strip(isa, inputs, outs, rows);
    }
}
