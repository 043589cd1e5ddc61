//! A program as kernels that are called one after another. What one makes for another lies in the device's memory between
//! them, every bar of it.
//!
//! Fused, nearly every plan is one kernel; only one whose states would fill more warps than a block should have is cut. A
//! primitive at a time, every program is made of the same few small kernels, so that an answer need not wait for a fused
//! kernel to be compiled. The steps are the same, and so are the bits.

use std::collections::BTreeMap;
use std::ops::Range;

use trawl_plan::Program;

use super::launch::{Device, Limits, Market, Wanted};
use super::lower::{LowerError, Lowered, forms, lower_steps};
use super::parts::Parts;
use super::steps::{Source, Step, Steps};

/// Warps of a block: more would leave a thread too few registers.
const PARTS_MAX: usize = 8;

/// What a call reads.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Series {
    /// A column of the market.
    Column(usize),
    /// The same value at every bar.
    Constant(f64),
    /// What an earlier call made.
    Made { call: usize, output: usize },
}

/// One kernel over a market.
#[derive(Debug, Clone)]
pub struct Call {
    pub lowered: Lowered,
    /// One a column of the kernel.
    pub reads: Vec<Series>,
}

/// Calls in order, and what the program gives.
#[derive(Debug, Clone)]
pub struct Sequence {
    pub calls: Vec<Call>,
    outputs: Vec<Series>,
}

impl Sequence {
    /// As few kernels as there can be.
    ///
    /// # Errors
    /// [`LowerError`].
    pub fn fused(program: &Program) -> Result<Self, LowerError> {
        let steps = Steps::of(program);
        let forms = forms(&steps)?;
        let parts = Parts::of(&steps, &forms).parts;
        let cuts = parts.chunks(PARTS_MAX).filter_map(|chunk| Some(chunk.first()?.first..chunk.last()?.end));
        Self::cut(&steps, cuts.collect())
    }

    /// A kernel for each primitive.
    ///
    /// # Errors
    /// [`LowerError`].
    pub fn apart(program: &Program) -> Result<Self, LowerError> {
        let steps = Steps::of(program);
        let cuts = (0..steps.steps.len()).map(|step| step..step + 1).collect();
        Self::cut(&steps, cuts)
    }

    fn cut(steps: &Steps, cuts: Vec<Range<usize>>) -> Result<Self, LowerError> {
        let mut place: Vec<Series> = Vec::with_capacity(steps.steps.len());
        let mut calls = Vec::with_capacity(cuts.len());
        for (call, cut) in cuts.iter().enumerate() {
            let (piece, reads, told) = piece(steps, cut, &place);
            for step in cut.clone() {
                let output = told.iter().position(|t| *t == step).unwrap_or(0);
                place.push(Series::Made { call, output });
            }
            calls.push(Call { lowered: lower_steps(&piece)?, reads });
        }
        let outputs = steps.outputs.iter().map(|source| series(*source, &place)).collect();
        Ok(Self { calls, outputs })
    }

    /// The distinct kernels: name to text.
    pub fn kernels(&self) -> BTreeMap<String, String> {
        let kernels = self.calls.iter().map(|call| &call.lowered.kernel);
        kernels.map(|kernel| (kernel.name.clone(), kernel.source.clone())).collect()
    }

    /// The program's outputs, each laid out as [`Market::place`] says.
    ///
    /// # Errors
    /// The device's.
    pub fn run<D: Device>(
        &self,
        device: &mut D,
        market: &Market,
        wanted: Wanted,
        limits: Limits,
    ) -> Result<Vec<Vec<f64>>, D::Error> {
        let mut made: Vec<Vec<Vec<f64>>> = Vec::with_capacity(self.calls.len());
        let last_call = self.calls.len().saturating_sub(1);
        for (number, call) in self.calls.iter().enumerate() {
            // What later calls read is needed at every bar.
            let bars = if number == last_call { wanted } else { Wanted::All };
            let launch = call.lowered.launch(market, bars, limits);
            let read: Vec<Vec<f64>> = call.reads.iter().map(|series| whole(*series, &made, market)).collect();
            let columns: Vec<&[f64]> = read.iter().map(Vec::as_slice).collect();
            let out = device.run(&call.lowered.kernel.name, &launch, market, &columns)?;
            let stride = market.output_stride(bars).max(1);
            made.push(out.chunks(stride).map(<[f64]>::to_vec).collect());
        }
        let output = |series: &Series| match *series {
            Series::Made { call, .. } if call == last_call => whole(*series, &made, market),
            series if wanted == Wanted::Last => market.last_bars(&whole(series, &made, market)),
            series => whole(series, &made, market),
        };
        Ok(self.outputs.iter().map(output).collect())
    }
}

/// A series of what was made so far, laid out.
fn whole(series: Series, made: &[Vec<Vec<f64>>], market: &Market) -> Vec<f64> {
    match series {
        Series::Column(column) => market.columns[column].clone(),
        Series::Constant(value) => vec![value; market.output_stride(Wanted::All)],
        Series::Made { call, output } => made[call][output].clone(),
    }
}

fn series(source: Source, place: &[Series]) -> Series {
    match source {
        Source::Column(column) => Series::Column(column),
        Source::Constant(value) => Series::Constant(value),
        Source::Step(step) => place[step],
    }
}

/// Steps `cut` as steps of their own: what they read from outside becomes columns, what is read from outside outputs.
/// Also what the columns are, and which steps the outputs are.
fn piece(steps: &Steps, cut: &Range<usize>, place: &[Series]) -> (Steps, Vec<Series>, Vec<usize>) {
    let mut reads: Vec<Series> = Vec::new();
    let mut inner = Vec::with_capacity(cut.len());
    for step in &steps.steps[cut.clone()] {
        let input = |source: &Source| match *source {
            Source::Constant(value) => Source::Constant(value),
            Source::Step(step) if cut.contains(&step) => Source::Step(step - cut.start),
            outside => {
                let series = series(outside, place);
                let known = reads.iter().position(|read| *read == series);
                Source::Column(known.unwrap_or_else(|| {
                    reads.push(series);
                    reads.len() - 1
                }))
            }
        };
        let inputs = step.inputs.iter().map(input).collect();
        inner.push(Step { op: step.op, inputs });
    }
    let later = steps.steps[cut.end..].iter().flat_map(|step| &step.inputs).chain(&steps.outputs);
    let mut told: Vec<usize> = later.filter_map(|source| source.step()).filter(|step| cut.contains(step)).collect();
    told.sort_unstable();
    told.dedup();
    let outputs = told.iter().map(|step| Source::Step(step - cut.start)).collect();
    (Steps { columns: reads.len(), steps: inner, outputs }, reads, told)
}
