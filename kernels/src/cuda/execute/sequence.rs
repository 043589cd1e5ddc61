//! A program as a sequence of kernels. Series passed between them are stored in device memory, with every bar.
//!
//! Fused, nearly every plan is one kernel; only a plan whose states need more warps than a block should have is split.
//! With kernels of single primitives, every program consists of the same few small kernels, so that an answer need not
//! wait for a fused kernel to be compiled. The steps are the same, and so are the bits.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use trawl_plan::Program;

use crate::Precision;
use crate::cuda::codegen::averages::Constants;
use crate::cuda::codegen::family::fold;
use crate::cuda::codegen::lower::{LowerError, Lowered, forms, lower_over_chunks, lower_steps};
use crate::cuda::codegen::number::rounded;
use crate::cuda::codegen::steps::{KernelStep, KernelSteps, StepInput};
use crate::cuda::codegen::warp_partition::WarpPartition;
use crate::cuda::device::arguments::{GROUP_LANES, Limits, Market, Wanted};
use crate::cuda::device::launcher::{Bound, Launcher};
use crate::cuda::time_chunks::codegen::{lower_maps, lower_walks};
use crate::cuda::time_chunks::plan::Levels;

/// Maximum warps of a block: more would leave a thread too few registers.
const PARTS_MAX: usize = 8;

/// Maximum recursive steps of a kernel over chunks: each takes a warp, with registers for the rows that it reads ahead.
const WALKS_MAX: usize = 16;

/// Maximum series written by a kernel between levels of recursion, unless it is a single step: each takes registers for
/// an address.
const WRITTEN_MAX: usize = 32;

/// An input of a call.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Series {
    /// A column of the market.
    Column(usize),
    /// The same value at every bar.
    Constant(f64),
    /// An output of an earlier call.
    Made {
        /// Index of the call.
        call: usize,
        /// Index of its output.
        output: usize,
    },
}

/// One kernel over a market.
#[derive(Debug, Clone)]
pub struct KernelCall {
    /// The kernel and its parameters.
    pub lowered: Lowered,
    /// Inputs, one per column of the kernel.
    pub reads: Vec<Series>,
}

/// Calls in order, and the outputs of the program.
#[derive(Debug, Clone)]
pub struct Sequence {
    /// Each reads outputs of earlier ones only.
    pub calls: Vec<KernelCall>,
    /// Where each output of the program is, in order.
    pub outputs: Vec<Series>,
    /// For sequences over chunks: number of rows of a lane before its chunk.
    pub lead: Option<usize>,
    /// The number type of the series that its kernels read and write.
    pub precision: Precision,
}

impl Sequence {
    /// Lowers to the smallest possible number of kernels.
    ///
    /// # Errors
    /// [`LowerError`].
    pub fn fused(program: &Program) -> Result<Self, LowerError> {
        Self::fused_in(program, Constants::None, Precision::F64)
    }

    /// As [`Sequence::fused`], with parameters of the plan as constants of the text: the same values.
    ///
    /// # Errors
    /// [`LowerError`].
    pub fn fused_with(program: &Program, constants: Constants) -> Result<Self, LowerError> {
        Self::fused_in(program, constants, Precision::F64)
    }

    /// As [`Sequence::fused_with`], over series of a number type.
    ///
    /// # Errors
    /// [`LowerError`].
    pub fn fused_in(program: &Program, constants: Constants, precision: Precision) -> Result<Self, LowerError> {
        let steps = fold(KernelSteps::of(program));
        let forms = forms(&steps, constants, precision)?;
        let parts = WarpPartition::of(&steps, &forms, precision).parts;
        let cuts = parts.chunks(PARTS_MAX).filter_map(|chunk| Some(chunk.first()?.first..chunk.last()?.end));
        Self::cut(&steps, cuts.collect(), constants, precision)
    }

    /// Lowers to one kernel per primitive.
    ///
    /// # Errors
    /// [`LowerError`].
    pub fn apart(program: &Program) -> Result<Self, LowerError> {
        Self::apart_in(program, Precision::F64)
    }

    /// As [`Sequence::apart`], over series of a number type.
    ///
    /// # Errors
    /// [`LowerError`].
    pub fn apart_in(program: &Program, precision: Precision) -> Result<Self, LowerError> {
        let steps = KernelSteps::of(program);
        let cuts = (0..steps.steps.len()).map(|step| step..step + 1).collect();
        Self::cut(&steps, cuts, Constants::None, precision)
    }

    fn cut(
        steps: &KernelSteps,
        cuts: Vec<Range<usize>>,
        constants: Constants,
        precision: Precision,
    ) -> Result<Self, LowerError> {
        let mut place: Vec<Series> = Vec::with_capacity(steps.steps.len());
        let mut calls = Vec::with_capacity(cuts.len());
        for (call, cut) in cuts.iter().enumerate() {
            let (piece, reads, written) = piece(steps, cut, &place);
            for step in cut.clone() {
                let output = written.iter().position(|t| *t == step).unwrap_or(0);
                place.push(Series::Made { call, output });
            }
            calls.push(KernelCall { lowered: lower_steps(&piece, constants, precision)?, reads });
        }
        let outputs = steps.outputs.iter().map(|source| series(*source, &place)).collect();
        Ok(Self { calls, outputs, lead: None, precision })
    }

    /// Lowers to kernels over chunks of each symbol's bars, computed in parallel, in `f64`; with `apart` one for each primitive,
    /// or two for those that are recursive. See `chunks`.
    ///
    /// # Errors
    /// [`LowerError`]; [`LowerError::Serial`] for a plan that cannot be cut.
    pub fn in_chunks(program: &Program, apart: bool) -> Result<Self, LowerError> {
        let Levels { steps, ends, right_from, lead, .. } = Levels::of(&KernelSteps::of(program))?;
        let mut made = InChunks { steps: &steps, right_from: &right_from, place: Vec::new(), calls: Vec::new() };
        let mut first = 0;
        for (others, end) in ends {
            made.others(first..others, if apart { 1 } else { usize::MAX })?;
            let most = if apart { 1 } else { WALKS_MAX };
            let walks = (others..end).step_by(most).map(|first| first..end.min(first + most));
            walks.into_iter().try_for_each(|cut| made.recursive(cut))?;
            first = end;
        }
        let outputs = steps.outputs.iter().map(|source| series(*source, &made.place)).collect();
        Ok(Self { calls: made.calls, outputs, lead: Some(lead), precision: Precision::F64 })
    }

    /// Whether it calls the same kernels as `other`.
    pub(crate) fn has_kernels_of(&self, other: &Self) -> bool {
        let kernels = |sequence: &'_ Self| -> Vec<u128> {
            sequence.calls.iter().map(|call| call.lowered.kernel.fingerprint).collect()
        };
        kernels(self) == kernels(other)
    }

    /// The distinct kernels: name to text.
    pub fn kernels(&self) -> BTreeMap<String, String> {
        let kernels = self.calls.iter().map(|call| &call.lowered.kernel);
        kernels.map(|kernel| (kernel.name.clone(), kernel.source.clone())).collect()
    }

    /// The program's outputs, in the layout of [`Market::place`], from kernels that `launcher` runs over host memory.
    /// Used to test kernels without a device.
    ///
    /// # Errors
    /// The launcher's error.
    pub fn run(
        &self,
        launcher: &dyn Launcher,
        market: &Market,
        wanted: Wanted,
        limits: Limits,
    ) -> Result<Vec<Vec<f64>>, String> {
        let uses = self.uses();
        let mut made: Vec<Vec<Vec<f64>>> = Vec::with_capacity(self.calls.len());
        for (number, call) in self.calls.iter().enumerate() {
            let bars = uses.bars(number, wanted);
            let launch = call.lowered.launch(market, bars, limits);
            let read: Vec<Vec<f64>> = call.reads.iter().map(|series| self.whole(*series, &made, market)).collect();
            let poison = f64::from_bits(u64::MAX);
            let (mut out, mut scratch) = (vec![poison; launch.out_len], vec![poison; launch.scratch_len]);
            let memory = Bound {
                columns: read.iter().map(Vec::as_slice).collect(),
                out: &mut out,
                scratch: &mut scratch,
                table: &launch.table,
                first_row: &market.first_row,
                visible: &market.visible,
                tail: &launch.tail,
            };
            launcher.run(&call.lowered, &launch, memory)?;
            let stride = market.output_stride(bars).max(GROUP_LANES);
            made.push(out.chunks(stride).map(<[f64]>::to_vec).collect());
        }
        let output = |series: &Series| match *series {
            Series::Made { call, .. } if uses.bars(call, wanted) == wanted => self.whole(*series, &made, market),
            series if wanted == Wanted::Last => market.last_bars(&self.whole(series, &made, market)),
            series => self.whole(series, &made, market),
        };
        Ok(self.outputs.iter().map(output).collect())
    }

    /// The layout of a series among those computed so far, in the number type of the kernels.
    fn whole(&self, series: Series, made: &[Vec<Vec<f64>>], market: &Market) -> Vec<f64> {
        match series {
            Series::Column(column) => market.columns[column].iter().map(|x| rounded(self.precision, *x)).collect(),
            Series::Constant(value) => vec![rounded(self.precision, value); market.output_stride(Wanted::All)],
            Series::Made { call, output } => made[call][output].clone(),
        }
    }
}

/// Builds a sequence over chunks.
struct InChunks<'a> {
    steps: &'a KernelSteps,
    right_from: &'a [usize],
    place: Vec<Series>,
    calls: Vec<KernelCall>,
}

impl InChunks<'_> {
    /// Adds steps without recursion, as the smallest possible number of kernels of at most `most` steps each.
    fn others(&mut self, cut: Range<usize>, most: usize) -> Result<(), LowerError> {
        if cut.is_empty() {
            return Ok(());
        }
        let (piece, reads, written) = piece(self.steps, &cut, &self.place);
        let lowered = lower_over_chunks(&piece, PARTS_MAX)?;
        if cut.len() > 1 && (cut.len() > most || written.len() > WRITTEN_MAX || lowered.kernel.warps > PARTS_MAX) {
            let middle = cut.start + cut.len() / 2;
            self.others(cut.start..middle, most)?;
            return self.others(middle..cut.end, most);
        }
        self.record_written(cut, &written);
        self.calls.push(KernelCall { lowered, reads });
        Ok(())
    }

    /// Adds recursive steps of one level: first the maps of their chunks, then their values.
    fn recursive(&mut self, cut: Range<usize>) -> Result<(), LowerError> {
        let (piece, mut reads, written) = piece(self.steps, &cut, &self.place);
        let from = &self.right_from[cut.clone()];
        let maps = self.calls.len();
        self.calls.push(KernelCall { lowered: lower_maps(&piece, from)?, reads: reads.clone() });
        let words: usize = self.steps.steps[cut.clone()].iter().filter_map(|step| step.op.facts().chunk_words()).sum();
        reads.extend((0..words).map(|output| Series::Made { call: maps, output }));
        self.record_written(cut, &written);
        self.calls.push(KernelCall { lowered: lower_walks(&piece, from)?, reads });
        Ok(())
    }

    /// Records that the next call computes steps `cut` and writes the series `written`.
    fn record_written(&mut self, cut: Range<usize>, written: &[usize]) {
        let call = self.calls.len();
        let output = |step: usize| written.iter().position(|t| *t == step).unwrap_or(0);
        self.place.extend(cut.map(|step| Series::Made { call, output: output(step) }));
    }
}

/// Readers of series in a sequence.
#[derive(Debug, Clone, Default)]
pub(super) struct Uses {
    /// The columns that are read by kernels.
    pub columns: BTreeSet<usize>,
    /// Per call: whether a later call reads its outputs, which are then needed at every bar.
    read: Vec<bool>,
    /// Per call: whether it computes maps of chunks.
    maps: Vec<bool>,
    /// Per call: the calls whose series are not read after it.
    pub over: Vec<Vec<usize>>,
    /// Peak number of full series on the device, if every bar is wanted, and if only the last one is.
    at_once: (usize, usize),
}

impl Uses {
    /// The bars that a call has to compute when `wanted` is requested.
    pub fn bars(&self, call: usize, wanted: Wanted) -> Wanted {
        let is_set = |of: &[bool]| of.get(call).copied().unwrap_or(false);
        match (is_set(&self.maps), is_set(&self.read)) {
            (true, _) => Wanted::Last,
            (false, true) => Wanted::All,
            (false, false) => wanted,
        }
    }

    pub fn series_at_once(&self, wanted: Wanted) -> usize {
        if wanted == Wanted::All { self.at_once.0 } else { self.at_once.1 }
    }
}

impl Sequence {
    pub(super) fn uses(&self) -> Uses {
        let count = self.calls.len();
        let mut uses = Uses { read: vec![false; count], over: vec![Vec::new(); count], ..Uses::default() };
        uses.maps = self.calls.iter().map(|call| call.lowered.gives_maps).collect();
        let mut last: Vec<usize> = (0..count).collect();
        for (number, call) in self.calls.iter().enumerate() {
            for series in &call.reads {
                match *series {
                    Series::Column(column) => drop(uses.columns.insert(column)),
                    Series::Made { call, .. } => (uses.read[call], last[call]) = (true, number),
                    Series::Constant(_) => {}
                }
            }
        }
        let is_output =
            |call: usize| self.outputs.iter().any(|s| matches!(s, Series::Made { call: c, .. } if *c == call));
        for (call, last) in last.iter().enumerate().filter(|(call, _)| !is_output(*call)) {
            uses.over[*last].push(call);
        }
        uses.at_once = (self.most(&uses, Wanted::All), self.most(&uses, Wanted::Last));
        uses
    }

    fn most(&self, uses: &Uses, wanted: Wanted) -> usize {
        let of = |call: usize| match uses.bars(call, wanted) {
            Wanted::All => self.calls[call].lowered.kernel.outputs,
            Wanted::Last => 0,
        };
        let (mut now, mut most) = (0, 0);
        for call in 0..self.calls.len() {
            now += of(call);
            most = most.max(now);
            now -= uses.over[call].iter().map(|over| of(*over)).sum::<usize>();
        }
        uses.columns.len() + most
    }
}

/// A kernel that copies one series unchanged: it extracts the last bars of a full series.
pub(super) fn identity(precision: Precision) -> Result<Lowered, LowerError> {
    let steps = KernelSteps { columns: 1, steps: Vec::new(), outputs: vec![StepInput::Column(0)] };
    lower_steps(&steps, Constants::None, precision)
}

fn series(source: StepInput, place: &[Series]) -> Series {
    match source {
        StepInput::Column(column) => Series::Column(column),
        StepInput::Constant(value) => Series::Constant(value),
        StepInput::Step(step) => place[step],
    }
}

/// Extracts steps `cut` as separate steps: series read from other steps become columns, and series read by other steps
/// become outputs. Also returns the series of the columns, and the steps of the outputs.
fn piece(steps: &KernelSteps, cut: &Range<usize>, place: &[Series]) -> (KernelSteps, Vec<Series>, Vec<usize>) {
    let mut reads: Vec<Series> = Vec::new();
    let mut inner = Vec::with_capacity(cut.len());
    for step in &steps.steps[cut.clone()] {
        let input = |source: &StepInput| match *source {
            StepInput::Constant(value) => StepInput::Constant(value),
            StepInput::Step(step) if cut.contains(&step) => StepInput::Step(step - cut.start),
            outside => {
                let series = series(outside, place);
                let known = reads.iter().position(|read| *read == series);
                StepInput::Column(known.unwrap_or_else(|| {
                    reads.push(series);
                    reads.len() - 1
                }))
            }
        };
        let inputs = step.inputs.iter().map(input).collect();
        inner.push(KernelStep { inputs, ..step.clone() });
    }
    let later = steps.steps[cut.end..].iter().flat_map(|step| &step.inputs).chain(&steps.outputs);
    let mut written: Vec<usize> = later.filter_map(|source| source.step()).filter(|step| cut.contains(step)).collect();
    written.sort_unstable();
    written.dedup();
    let outputs = written.iter().map(|step| StepInput::Step(step - cut.start)).collect();
    (KernelSteps { columns: reads.len(), steps: inner, outputs }, reads, written)
}
