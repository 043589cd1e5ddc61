//! A lowered program. Everything that depends on the program alone (fused steps, slots of series, look-back of each
//! step and input, layout of states, kernel text) is computed once and shared by all symbols, segments, bars, threads
//! and devices.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use trawl_plan::graph::Op;
use trawl_plan::{Input, Program};

use crate::cpu::{self, LANES, Lanes, ResidentLayout, Schedule, Source, Tile, Workspace};
use crate::cuda::{Constants, LowerError, Lowering, Sequence, Series};
use crate::{Bars, Cancel, Cancelled, Precision, Real, SymbolInput, Tiles, TilesError, TypedTiles, Values, chunks};

/// A program lowered for one precision. Cheap to clone; dereferences to the program.
#[derive(Debug, Clone)]
pub struct Executable(Arc<Lowered>);

#[derive(Debug)]
struct Lowered {
    program: Program,
    precision: Precision,
    schedule: Schedule,
    reach: usize,
    /// Per input of the program: whether it enters states.
    enters: Vec<bool>,
    /// Per task: number of `u64` words carried for one symbol, in `precision`.
    words: OnceLock<Vec<usize>>,
    layout: OnceLock<String>,
    resident: OnceLock<ResidentLayout>,
    /// Kernels by lowering: serial, and over chunks.
    sequences: [OnceLock<Result<Arc<Sequence>, LowerError>>; 2],
    constant: OnceLock<Option<Arc<Sequence>>>,
    hash: OnceLock<u64>,
}

impl Deref for Executable {
    type Target = Program;

    fn deref(&self) -> &Program {
        &self.0.program
    }
}

impl Executable {
    /// Lowers a program for the CPU. Kernels for a device are generated on first use.
    pub fn new(program: &Program, precision: Precision) -> Self {
        Self(Arc::new(Lowered {
            program: program.clone(),
            precision,
            schedule: Schedule::new(program),
            reach: program.reach(),
            enters: entering(program),
            words: OnceLock::new(),
            layout: OnceLock::new(),
            resident: OnceLock::new(),
            sequences: [OnceLock::new(), OnceLock::new()],
            constant: OnceLock::new(),
            hash: OnceLock::new(),
        }))
    }

    /// The program that was lowered.
    pub fn program(&self) -> &Program {
        &self.0.program
    }

    /// The precision of its arithmetic.
    pub fn precision(&self) -> Precision {
        self.0.precision
    }

    /// Bars that the outputs need before the wanted bar, warm-up included: [`Program::reach`].
    pub fn reach(&self) -> usize {
        self.0.reach
    }

    /// Bytes of working memory per thread, besides the bars, for histories of up to `bars` bars.
    pub fn workspace_bytes(&self, bars: usize) -> u64 {
        match self.0.precision {
            Precision::F64 => cpu::workspace_bytes::<f64>(&self.0.schedule.tasks, bars),
            Precision::F32 => cpu::workspace_bytes::<f32>(&self.0.schedule.tasks, bars),
        }
    }

    /// Bytes that it takes in memory beside its program, about; without kernels for a device.
    pub fn bytes(&self) -> usize {
        self.0.schedule.bytes()
    }

    /// Per input of the program, the first bar that must be given when the outputs are wanted from bar `wanted_from`
    /// on.
    pub fn input_begins(&self, wanted_from: usize) -> Vec<usize> {
        self.0.schedule.whole.inputs(wanted_from)
    }

    /// The latest bar, at or before `bar`, from which histories may be given without changing a bit of any value: the
    /// last bar number that is a multiple of every window whose sums are cut into blocks. Bars between it and `bar` are
    /// given as NA.
    pub fn aligned_begin(&self, bar: usize) -> usize {
        self.0.schedule.blocks_begin(bar)
    }

    /// The latest bar such that histories which begin there give the bits of the whole ones from bar `wanted_from` on: at or
    /// before each of [`Self::input_begins`]. Rows are then numbered from it.
    pub fn shortened_begin(&self, wanted_from: usize) -> usize {
        self.0.schedule.shortened_begin(wanted_from)
    }

    /// Per input of the program, the first bar that must be given to resume from a state taken at bar `bars`.
    pub fn resumed_begins(&self, bars: usize) -> Vec<usize> {
        self.0.schedule.resumed.inputs(bars)
    }

    /// Per input of the program, whether it enters states. Bars of such inputs before a state's bar must not have
    /// changed since the state was taken.
    pub fn carried_inputs(&self) -> &[bool] {
        &self.0.enters
    }

    /// The layout of the program's state words as text. Engines that run other steps have other layouts. Empty for a
    /// program without states.
    pub fn carried_layout(&self) -> &str {
        self.0.layout.get_or_init(|| {
            let plan = &self.0.schedule.tasks;
            let words = cpu::carried::<f64>(plan);
            let carrying = plan.tasks.iter().zip(words).filter(|(_, words)| *words > 0);
            carrying.map(|(task, words)| format!("{:?}:{words};", task.work)).collect()
        })
    }

    /// Evaluates the program's outputs at the last visible bar of each symbol, in the order of `symbols`, on the
    /// calling thread: `[symbol][output]`, NaN for a symbol without visible bars. Bars are rounded to the precision
    /// when they are laid out.
    ///
    /// A symbol's values depend on that symbol's bars only, not on its neighbours, its position or the batch.
    ///
    /// # Errors
    /// [`Cancelled`].
    pub fn evaluate_last(&self, symbols: &[SymbolInput<'_>], cancel: &dyn Cancel) -> Result<Vec<Vec<f64>>, Cancelled> {
        let last: Vec<usize> = symbols.iter().map(|s| s.visible.saturating_sub(1)).collect();
        let mut values = vec![vec![f64::NAN; self.outputs.len()]; symbols.len()];
        self.run_chunks(symbols, &last, cancel, |symbol, output, bars| {
            if let Some(value) = bars.last() {
                values[symbol][output] = *value;
            }
        })?;
        Ok(values)
    }

    /// Evaluates the program's outputs on the bars `from[i]..visible` of each symbol i.
    ///
    /// # Errors
    /// [`Cancelled`].
    pub fn evaluate_from(
        &self,
        symbols: &[SymbolInput<'_>],
        from: &[usize],
        cancel: &dyn Cancel,
    ) -> Result<Values, Cancelled> {
        let outputs = self.outputs.len();
        let bars = |(symbol, from): (&SymbolInput<'_>, &usize)| symbol.visible.saturating_sub(*from);
        let mut values = Values::new(outputs, |_| false, symbols.iter().zip(from).map(bars));
        // Of each symbol and output, how many bars there are so far.
        let mut filled = vec![0usize; symbols.len() * outputs];
        self.run_chunks(symbols, from, cancel, |symbol, output, bars| {
            let begin = &mut filled[symbol * outputs + output];
            values.series_mut(symbol, output)[*begin..*begin + bars.len()].copy_from_slice(bars);
            *begin += bars.len();
        })?;
        Ok(values)
    }

    /// As [`Self::evaluate_from`], with `take` in place of the result: it is called with the index of a symbol, the index of an
    /// output, and values of some bars; those of one symbol and output come in order of bars, beginning at `from`.
    ///
    /// # Errors
    /// [`Cancelled`].
    pub fn evaluate_each(
        &self,
        symbols: &[SymbolInput<'_>],
        from: &[usize],
        cancel: &dyn Cancel,
        take: impl FnMut(usize, usize, &[f64]),
    ) -> Result<(), Cancelled> {
        self.run_chunks(symbols, from, cancel, take)
    }

    /// As [`Self::evaluate_last`], over bars that are already laid out, in the precision of the tiles. With
    /// [`Bars::All`] every bar is computed and only the values of the last one are returned (for benchmarks of whole
    /// series).
    ///
    /// # Errors
    /// See [`TilesError`].
    pub fn evaluate_tiles(&self, tiles: &Tiles, bars: Bars, cancel: &dyn Cancel) -> Result<Vec<Vec<f64>>, TilesError> {
        let mut columns = Vec::with_capacity(self.inputs.len());
        for input in &self.inputs {
            let Input::Column(name) = input else { return Err(TilesError::OtherInput) };
            let at = tiles.names.iter().position(|n| n == name);
            columns.push(at.ok_or_else(|| TilesError::MissingColumn(name.clone()))?);
        }
        let mut values = vec![vec![f64::NAN; self.outputs.len()]; tiles.symbols];
        match &tiles.tiles {
            TypedTiles::F64(tiles) => self.run_tiles(tiles, &columns, bars, cancel, &mut values)?,
            TypedTiles::F32(tiles) => self.run_tiles(tiles, &columns, bars, cancel, &mut values)?,
        }
        Ok(values)
    }

    fn run_chunks(
        &self,
        symbols: &[SymbolInput<'_>],
        from: &[usize],
        cancel: &dyn Cancel,
        keep: impl FnMut(usize, usize, &[f64]),
    ) -> Result<(), Cancelled> {
        match self.0.precision {
            Precision::F64 => self.run_chunks_in::<f64>(symbols, from, cancel, keep),
            Precision::F32 => self.run_chunks_in::<f32>(symbols, from, cancel, keep),
        }
    }

    /// Runs the symbols tile by tile and yields every wanted value: of a symbol and an output, some bars at a time, in
    /// order of bars.
    fn run_chunks_in<T: Real>(
        &self,
        symbols: &[SymbolInput<'_>],
        from: &[usize],
        cancel: &dyn Cancel,
        mut keep: impl FnMut(usize, usize, &[f64]),
    ) -> Result<(), Cancelled> {
        let outputs = self.outputs.len();
        let mut workspace = Workspace::<T>::new(&self.0.schedule);
        let mut values = vec![0.0; LANES * T::STRIP_BARS];
        for chunk in chunks(symbols) {
            let members: Vec<&SymbolInput<'_>> = chunk.iter().map(|&i| &symbols[i]).collect();
            let first = chunk.iter().map(|&i| from[i]).min().unwrap_or(0);
            let lanes = Lanes::of(&members, self.input_begins(first));
            let source = Source::Lanes(&lanes);
            workspace.run(source, first, cancel, |w, strip| {
                // Of each lane the rows that are wanted of this strip: most strips of ragged symbols have none.
                let wanted = |lane: usize| strip.start.max(from[chunk[lane]])..strip.end.min(lanes.visible[lane]);
                let all = (0..lanes.visible.len()).map(wanted).filter(|rows| !rows.is_empty());
                let Some(rows) = all.reduce(|a, b| a.start.min(b.start)..a.end.max(b.end)) else { return };
                // Output by output: the rows of one fit into the nearest cache, those of all do not.
                for output in 0..outputs {
                    w.values(source, output, rows.clone(), &mut values);
                    for (lane, values) in values.chunks(rows.len()).take(lanes.visible.len()).enumerate() {
                        let own = wanted(lane);
                        if !own.is_empty() {
                            keep(chunk[lane], output, &values[own.start - rows.start..own.end - rows.start]);
                        }
                    }
                }
            })?;
        }
        Ok(())
    }

    fn run_tiles<T: Real>(
        &self,
        tiles: &[(Vec<usize>, Tile<T>)],
        columns: &[usize],
        bars: Bars,
        cancel: &dyn Cancel,
        values: &mut [Vec<f64>],
    ) -> Result<(), Cancelled> {
        let outputs = self.outputs.len();
        let mut workspace = Workspace::<T>::new(&self.0.schedule);
        for (chunk, tile) in tiles {
            let from = if bars == Bars::All { 0 } else { tile.shortest().saturating_sub(1) };
            let source = Source::Tile { tile, columns };
            workspace.run(source, from, cancel, |w, strip| {
                for (lane, visible) in tile.visible.iter().enumerate() {
                    if let Some(row) = visible.checked_sub(1).filter(|row| strip.contains(row)) {
                        let value = |output| w.value(source, output, lane, row);
                        values[chunk[lane]] = (0..outputs).map(value).collect();
                    }
                }
            })?;
        }
        Ok(())
    }

    pub(crate) fn schedule(&self) -> &Schedule {
        &self.0.schedule
    }

    /// Per task: number of `u64` words carried for one symbol in the executable's precision.
    pub(crate) fn words<T: Real>(&self) -> &[usize] {
        self.0.words.get_or_init(|| cpu::carried::<T>(&self.0.schedule.tasks))
    }

    /// Layout of the program's series in resident tiles.
    pub(crate) fn resident_layout(&self) -> &ResidentLayout {
        self.0.resident.get_or_init(|| ResidentLayout::new::<f64>(&self.0.schedule.tasks, self.inputs.len()))
    }

    /// Inputs that are outputs as they are, which no kernel computes; `None` if no device can run the program.
    pub fn passed_on(&self) -> Option<Vec<usize>> {
        let sequence = self.sequence(Lowering::Serial).ok()?;
        let column = |output: &Series| match *output {
            Series::Column(column) => Some(column),
            Series::Constant(_) | Series::Made { .. } => None,
        };
        Some(sequence.outputs.iter().filter_map(column).collect())
    }

    /// The program as the smallest possible number of kernels.
    pub(crate) fn sequence(&self, lowering: Lowering) -> Result<Arc<Sequence>, LowerError> {
        let at = match lowering {
            Lowering::Serial => 0,
            Lowering::Chunks => 1,
        };
        self.0.sequences[at]
            .get_or_init(|| lowering.fused(&self.0.program, Constants::None, self.0.precision).map(Arc::new))
            .clone()
    }

    /// As [`Executable::sequence`], with lengths as constants of the kernel text; `None` where that changes nothing.
    pub(crate) fn constant_sequence(&self, lowering: Lowering) -> Option<Arc<Sequence>> {
        // Kernels over chunks have no families.
        if lowering == Lowering::Chunks {
            return None;
        }
        let made = || {
            let shape = self.sequence(lowering).ok()?;
            let constant = lowering.fused(&self.0.program, Constants::Lengths, self.0.precision).ok()?;
            (!constant.has_kernels_of(&shape)).then(|| Arc::new(constant))
        };
        self.0.constant.get_or_init(made).clone()
    }

    /// Hash of the program's steps and outputs and of the precision: equal for executables that run the same program.
    pub(crate) fn program_hash(&self) -> u64 {
        *self.0.hash.get_or_init(|| {
            let mut hasher = DefaultHasher::new();
            self.nodes().hash(&mut hasher);
            self.outputs.hash(&mut hasher);
            self.0.precision.hash(&mut hasher);
            hasher.finish()
        })
    }

    /// Whether `other` runs the same program in the same precision.
    pub(crate) fn runs_as(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
            || self.0.precision == other.0.precision
                && self.nodes() == other.nodes()
                && self.outputs == other.outputs
                && self.inputs == other.inputs
    }
}

/// Per input, whether a recursive step depends on it.
fn entering(program: &Program) -> Vec<bool> {
    let nodes = program.nodes();
    let mut enters = vec![false; nodes.len()];
    let mut inputs = vec![false; program.inputs.len()];
    for (i, node) in nodes.iter().enumerate().rev() {
        if let (Op::Column(column), true) = (node.op, enters[i]) {
            inputs[usize::from(column)] = true;
        }
        if enters[i] || node.op.facts().is_recursive() {
            node.inputs.iter().for_each(|input| enters[input.index()] = true);
        }
    }
    inputs
}
