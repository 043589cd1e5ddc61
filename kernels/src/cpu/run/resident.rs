//! A tile that stays in memory: its steps, and the rows of each series that are still needed. Grows by one row at a
//! time.
//!
//! Columns are rings, as computed series are, so memory does not grow with time. Series without look-back use rows
//! shared by all tiles of a thread, which stay in cache.

use crate::cpu::lower::fused_op::FusedOp;
use crate::cpu::lower::schedule::{SeriesPlace, Slot, TaskInput, Tasks, least_common_multiple};
use crate::cpu::lower::steps::step_for;
use crate::cpu::primitives::trend::Tables;
use crate::cpu::run::resume::carried;
use crate::cpu::run::strips::{INPUTS_MAX, INPUTS_USUAL, OUTPUTS_MAX, OUTPUTS_USUAL, Workspace};
use crate::cpu::run::tile::PADDING;
use crate::cpu::simd::float::Real;
use crate::cpu::simd::state_io::Carrier;
use crate::cpu::simd::vector::{AnyStep, Isa, LANES, Out, RowOf, UNLIMITED, View};

/// Where a series is stored.
#[derive(Debug, Clone, Copy)]
enum Home {
    /// In the tile: `rows` (a power of two) rows from `offset` on; bar t is at t mod `rows`.
    Tile { offset: usize, rows: usize },
    /// One of the rows shared by the tiles of a thread.
    Scratch(usize),
}

/// One input of a task.
#[derive(Debug, Clone, Copy)]
struct Feed {
    home: Home,
    lag: usize,
    column: Option<usize>,
}

#[derive(Debug)]
struct TaskLayout {
    work: FusedOp,
    /// Number of state words per lane.
    words: usize,
    inputs: Vec<Feed>,
    outputs: Vec<Home>,
}

/// Layout of a program's series within each of its tiles.
#[derive(Debug)]
pub(crate) struct ResidentLayout {
    isa: Isa,
    tasks: Vec<TaskLayout>,
    outputs: Vec<Feed>,
    /// Per input of the program: where it is stored.
    columns: Vec<Home>,
    /// Per slot of the program's tasks: where it is stored.
    slots: Vec<Home>,
    /// Number of rows of a tile.
    rows: usize,
    /// Initial values of the shared rows.
    scratch: Vec<f64>,
    /// Number of bars after which no step reads before the first bar.
    mature: usize,
    /// Period, in bars, after which the behaviour of the steps repeats; `None` when values depend on bar numbers.
    cycle: Option<usize>,
}

/// Longest useful cycle: in longer ones hardly any two symbols are at the same position.
const CYCLE_BARS_MAX: usize = 1 << 12;

/// The number of bars after which a step's blocks begin again; `None` if it never repeats.
fn cycle(work: &FusedOp) -> Option<usize> {
    // No group is cut into blocks.
    let FusedOp::Op(op) = work else { return Some(1) };
    op.facts().blocks.repeats_after().map(|bars| bars as usize)
}

impl ResidentLayout {
    pub fn new<T: Real>(plan: &Tasks, inputs: usize) -> Self {
        let mut columns = vec![0usize; inputs];
        let mut furthest = 0;
        let mut see = |source: &TaskInput, back: usize| {
            furthest = furthest.max(source.lag.saturating_add(back));
            if let SeriesPlace::Column(column) = source.place {
                columns[column] = columns[column].max(source.lag.saturating_add(back));
            }
        };
        for task in &plan.tasks {
            task.inputs.iter().for_each(|source| see(source, task.work.reads_back()));
        }
        plan.outputs.iter().for_each(|source| see(source, 0));
        let mut shown = vec![false; plan.slots.len()];
        for source in &plan.outputs {
            if let SeriesPlace::Slot(slot) = source.place {
                shown[slot] = true;
            }
        }
        let mut rows = 0;
        let mut scratch: Vec<f64> = Vec::new();
        let mut ring = |history: usize| {
            let home = Home::Tile { offset: rows, rows: (history + 1).next_power_of_two() };
            rows += (history + 1).next_power_of_two();
            home
        };
        let mut alone = |value: f64| {
            scratch.push(value);
            Home::Scratch(scratch.len() - 1)
        };
        let columns: Vec<Home> = columns.into_iter().map(&mut ring).collect();
        let slots: Vec<Home> = plan
            .slots
            .iter()
            .zip(shown)
            .map(|(slot, shown)| match slot {
                Slot::Constant(value) => alone(*value),
                Slot::Ring(history) if history.resident == 0 && !shown => alone(f64::NAN),
                Slot::Ring(history) => ring(history.resident),
            })
            .collect();
        let feed = |source: &TaskInput| match source.place {
            SeriesPlace::Column(column) => Feed { home: columns[column], lag: source.lag, column: Some(column) },
            SeriesPlace::Slot(slot) => Feed { home: slots[slot], lag: source.lag, column: None },
        };
        let words = carried::<T>(plan);
        let task = |(task, words): (&crate::cpu::lower::schedule::Task, usize)| TaskLayout {
            work: task.work.clone(),
            words,
            inputs: task.inputs.iter().map(feed).collect(),
            outputs: task.outputs.iter().map(|slot| slots[*slot]).collect(),
        };
        let tasks: Vec<TaskLayout> = plan.tasks.iter().zip(words).map(task).collect();
        let repeats = tasks.iter().try_fold(1, |all, task| Some(least_common_multiple(all, cycle(&task.work)?)));
        Self {
            isa: Isa::detect(),
            outputs: plan.outputs.iter().map(feed).collect(),
            tasks,
            columns,
            slots,
            rows,
            scratch,
            mature: furthest.saturating_add(2),
            cycle: repeats.filter(|bars| *bars <= CYCLE_BARS_MAX),
        }
    }

    /// The equivalence class of bar numbers: symbols of the same class may share a tile, whose clock is the class,
    /// since no step can distinguish their bar numbers.
    pub fn class(&self, bars: usize) -> usize {
        match (bars.checked_sub(self.mature), self.cycle) {
            (Some(more), Some(cycle)) => self.mature + more % cycle,
            _ => bars,
        }
    }

    /// A lane as of the end of a symbol's bars. Rows of computed series are taken from lane `lane` of `workspace`,
    /// which has just computed the last of them; `words` are the state words of all its steps.
    pub fn lane<T: Real>(
        &self,
        workspace: &Workspace<'_, T>,
        at: usize,
        symbol: usize,
        columns: &[&[f64]],
        bars: usize,
    ) -> Lane<T> {
        let mut rows = vec![T::NAN; self.rows];
        for (home, column) in self.columns.iter().zip(columns) {
            let Home::Tile { offset, rows: count } = *home else { continue };
            for (slot, value) in
                rows[offset..offset + count].iter_mut().zip(column.get(..bars).unwrap_or_default().iter().rev())
            {
                *slot = T::of(*value);
            }
        }
        for (home, series) in self.slots.iter().zip(&workspace.slots) {
            let Home::Tile { offset, rows: count } = *home else { continue };
            for (back, slot) in rows[offset..offset + count].iter_mut().enumerate().take(bars.min(series.len())) {
                *slot = series[(bars - 1 - back) & (series.len() - 1)].0[at];
            }
        }
        Lane { symbol, bars, rows, words: Vec::new() }
    }
}

/// One symbol taken out of its tile.
#[derive(Debug)]
pub(crate) struct Lane<T> {
    /// Index of the symbol.
    pub symbol: usize,
    /// Number of bars seen.
    pub bars: usize,
    /// Values of each series of the tile, from the last bar backwards.
    pub rows: Vec<T>,
    /// State words of all tasks, concatenated.
    pub words: Vec<u64>,
}

/// Rows shared by the tiles of a thread.
pub(crate) struct Scratch<T>(Vec<RowOf<T>>);

impl<T: Real> Scratch<T> {
    pub fn new(layout: &ResidentLayout) -> Self {
        Self(layout.scratch.iter().map(|x| RowOf::splat(T::of(*x))).collect())
    }
}

/// A tile that stays in memory; see the module documentation.
pub(crate) struct ResidentTile<T: Real = f64> {
    /// The number of the next bar, or an equivalent one (see [`ResidentLayout::class`]).
    clock: usize,
    /// Per lane: symbol and number of bars seen.
    lanes: [Option<(usize, usize)>; LANES],
    rows: Box<[RowOf<T>]>,
    steps: Vec<Box<dyn AnyStep<T>>>,
    /// Per column: the bar from which it is finite in every lane.
    defined_from: Vec<usize>,
}

impl<T: Real> ResidentTile<T> {
    /// A tile of up to [`LANES`] lanes of one class.
    pub fn new(layout: &ResidentLayout, lanes: Vec<Lane<T>>) -> Self {
        let clock = lanes.first().map_or(0, |lane| layout.class(lane.bars));
        let mut tables = Tables::default();
        let mut tile = Self {
            clock,
            lanes: [None; LANES],
            rows: vec![RowOf::splat(T::of(PADDING)); layout.rows].into_boxed_slice(),
            steps: layout
                .tasks
                .iter()
                .filter_map(|task| step_for(&task.work, task.inputs.len(), UNLIMITED, &mut tables))
                .collect(),
            defined_from: Vec::new(),
        };
        for (at, lane) in lanes.into_iter().enumerate().take(LANES) {
            tile.lanes[at] = Some((lane.symbol, lane.bars));
            for (row, value) in tile.positions(layout).zip(lane.rows) {
                tile.rows[row].0[at] = value;
            }
            let mut words = lane.words.as_slice();
            for (step, task) in tile.steps.iter_mut().zip(&layout.tasks) {
                let (mine, rest) = words.split_at_checked(task.words).unwrap_or((words, &[]));
                step.carry_lane(at, &mut Carrier::Load(mine.iter()));
                words = rest;
            }
        }
        tile.defined_from = layout.columns.iter().map(|home| tile.finite_from(*home)).collect();
        tile
    }

    /// The rows of the tile in the order of [`Lane::rows`].
    fn positions(&self, layout: &ResidentLayout) -> impl Iterator<Item = usize> + use<T> {
        let clock = self.clock;
        let homes: Vec<Home> = layout.columns.iter().chain(&layout.slots).copied().collect();
        homes.into_iter().flat_map(move |home| {
            let (offset, rows) = match home {
                Home::Tile { offset, rows } => (offset, rows),
                Home::Scratch(_) => (0, 0),
            };
            (1..=rows).map(move |back| offset + (clock.wrapping_sub(back) & (rows - 1)))
        })
    }

    fn finite_from(&self, home: Home) -> usize {
        let Home::Tile { offset, rows } = home else { return usize::MAX };
        let known = (1..=rows.min(self.clock))
            .take_while(|back| self.rows[offset + ((self.clock - back) & (rows - 1))].0.iter().all(|x| x.is_finite()));
        self.clock - known.count()
    }

    /// Pairs of lane and symbol.
    pub fn symbols(&self) -> impl Iterator<Item = (usize, usize)> {
        self.lanes.iter().enumerate().filter_map(|(at, lane)| lane.map(|(symbol, _)| (at, symbol)))
    }

    /// Number of bars seen by the symbol in lane `at`.
    pub fn bars(&self, at: usize) -> usize {
        self.lanes[at].map_or(0, |(_, bars)| bars)
    }

    pub fn class(&self, layout: &ResidentLayout) -> usize {
        layout.class(self.clock)
    }

    /// Extracts the lane at `at`; values left in the tile are never read.
    pub fn take(&mut self, layout: &ResidentLayout, at: usize) -> Option<Lane<T>> {
        let (symbol, bars) = self.lanes.get_mut(at)?.take()?;
        let rows = self.positions(layout).map(|row| self.rows[row].0[at]).collect();
        let mut words = Vec::new();
        self.steps.iter_mut().for_each(|step| step.carry_lane(at, &mut Carrier::Save(&mut words)));
        Some(Lane { symbol, bars, rows, words })
    }

    /// Adds one bar to every lane: `columns[input][symbol]`.
    pub fn push(&mut self, layout: &ResidentLayout, scratch: &mut Scratch<T>, columns: &[&[f64]]) {
        let t = self.clock;
        for ((home, column), defined_from) in layout.columns.iter().zip(columns).zip(&mut self.defined_from) {
            let Home::Tile { offset, rows } = *home else { continue };
            let row = &mut self.rows[offset + (t & (rows - 1))];
            let mut finite = true;
            for (x, lane) in row.0.iter_mut().zip(&self.lanes) {
                let value = lane.and_then(|(symbol, _)| column.get(symbol).copied()).unwrap_or(PADDING);
                *x = T::of(value);
                finite &= x.is_finite();
            }
            if !finite {
                *defined_from = t + 1;
            }
        }
        let series = Series { tile: self.rows.as_mut_ptr(), shared: scratch.0.as_mut_ptr() };
        for (task, step) in layout.tasks.iter().zip(&mut self.steps) {
            if task.inputs.len() <= INPUTS_USUAL && task.outputs.len() <= OUTPUTS_USUAL {
                series.run::<INPUTS_USUAL, OUTPUTS_USUAL>(layout.isa, task, &mut **step, &self.defined_from, t);
            } else {
                series.run::<INPUTS_MAX, OUTPUTS_MAX>(layout.isa, task, &mut **step, &self.defined_from, t);
            }
        }
        self.clock += 1;
        self.lanes.iter_mut().flatten().for_each(|(_, bars)| *bars += 1);
    }

    /// The value of an output at the last bar in lane `at`; NA before the first bar. NaNs are canonical.
    pub fn value(&self, layout: &ResidentLayout, output: usize, at: usize) -> f64 {
        let feed = layout.outputs[output];
        let there = self.clock.checked_sub(1 + feed.lag);
        let x = match (feed.home, there) {
            (Home::Scratch(constant), Some(_)) => layout.scratch[constant],
            (Home::Tile { offset, rows }, Some(bar)) => self.rows[offset + (bar & (rows - 1))].0[at].wide(),
            (_, None) => f64::NAN,
        };
        if x.is_nan() { f64::NAN } else { x }
    }

    /// Bytes of the rows; the private state of the steps takes about as much again.
    pub fn bytes(&self) -> usize {
        std::mem::size_of_val(&*self.rows)
    }
}

/// Base pointers of the series of one tile, while a bar is added.
struct Series<T> {
    tile: *mut RowOf<T>,
    shared: *mut RowOf<T>,
}

impl<T: Real> Series<T> {
    fn of(&self, home: Home) -> (*mut RowOf<T>, usize) {
        match home {
            // SAFETY: `ResidentLayout::new` gave out ranges of as many rows as tiles and scratches made from it have.
            Home::Tile { offset, rows } => (unsafe { self.tile.add(offset) }, rows),
            Home::Scratch(at) => (unsafe { self.shared.add(at) }, 1),
        }
    }

    /// Runs bar `t` of a task with up to `I` inputs and `O` outputs.
    #[inline(always)]
    fn run<const I: usize, const O: usize>(
        &self,
        isa: Isa,
        task: &TaskLayout,
        step: &mut dyn AnyStep<T>,
        defined_from: &[usize],
        t: usize,
    ) {
        let mut inputs = [View::EMPTY; I];
        for (view, feed) in inputs.iter_mut().zip(&task.inputs) {
            let (first, rows) = self.of(feed.home);
            // SAFETY: as above. Ranges do not overlap, and `Tasks` gives no task a slot to write that it reads.
            let whole = View::ring(unsafe { std::slice::from_raw_parts(first, rows) }).late(feed.lag);
            *view = feed.column.map_or(whole, |column| whole.defined(defined_from[column]));
        }
        let mut outs: [Out<'_, T>; O] = std::array::from_fn(|_| Out::new(&mut []));
        for (out, home) in outs.iter_mut().zip(&task.outputs) {
            let (first, rows) = self.of(*home);
            // SAFETY: as above; the slots of one task are different ones.
            *out = Out::new(unsafe { std::slice::from_raw_parts_mut(first, rows) });
        }
        step.strip(isa, &inputs[..task.inputs.len()], &mut outs[..task.outputs.len()], t..t + 1);
    }
}
