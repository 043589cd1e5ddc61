//! Kernels of a simulated device, run by the CPU engine: without a compiler or kernel text, with the same steps. Inputs
//! and outputs of a launch are laid out as on a device.

use trawl_plan::graph::{Graph, Kind, NodeId, Op};
use trawl_plan::{Input, Program};

use crate::cuda::codegen::lower::Lowered;
use crate::cuda::codegen::steps::{KernelSteps, StepInput};
use crate::cuda::device::arguments::{GROUP_LANES, Launch, Wanted};
use crate::cuda::device::launcher::{Bound, Launcher};
use crate::cuda::time_chunks::plan::Chunks;
use crate::{Executable, NoCancel, Precision, SymbolInput};

/// The CPU engine in place of kernels.
#[derive(Debug, Clone, Copy, Default)]
pub struct ByCpu;

impl Launcher for ByCpu {
    fn run(&self, lowered: &Lowered, launch: &Launch, memory: Bound<'_>) -> Result<(), String> {
        let program = Executable::new(&program_of(&lowered.steps), Precision::F64);
        if let Some(chunks) = &launch.chunks {
            // Maps are not read here: values of chunks are those of the whole history.
            return if lowered.gives_maps { Ok(()) } else { over_chunks(&program, chunks, launch, memory) };
        }
        let stride = launch.output_stride();
        for group in 0..launch.blocks {
            let first = usize::try_from(memory.first_row[group]).map_err(|e| e.to_string())?;
            let visible = &memory.visible[group * GROUP_LANES..(group + 1) * GROUP_LANES];
            for (lane, bars) in visible.iter().enumerate() {
                let Some(bars) = usize::try_from(*bars).ok().filter(|bars| *bars > 0) else { continue };
                let series = |column: &&[f64]| -> Vec<f64> {
                    let cells = column[first * GROUP_LANES + lane..].iter().step_by(GROUP_LANES);
                    cells.take(bars).copied().collect()
                };
                let columns: Vec<Vec<f64>> = memory.columns.iter().map(series).collect();
                let symbol = SymbolInput { columns: columns.iter().map(Vec::as_slice).collect(), visible: bars };
                let from = if launch.wanted() == Wanted::All { 0 } else { bars - 1 };
                let made = program.evaluate_from(std::slice::from_ref(&symbol), &[from], &NoCancel);
                let made = made.map_err(|e| e.to_string())?.pop().unwrap_or_default();
                for (output, values) in made.into_iter().enumerate() {
                    let row = if launch.wanted() == Wanted::All { first } else { group };
                    let cells = memory.out[output * stride + row * GROUP_LANES + lane..].iter_mut();
                    for (cell, value) in cells.step_by(GROUP_LANES).zip(values) {
                        *cell = if value.is_nan() { f64::NAN } else { value };
                    }
                }
            }
        }
        Ok(())
    }
}

/// Joins each symbol's chunks, computes, and distributes the rows to lanes.
fn over_chunks(program: &Executable, chunks: &Chunks, launch: &Launch, memory: Bound<'_>) -> Result<(), String> {
    let all = launch.wanted() == Wanted::All;
    let first_row = |lane: usize| usize::try_from(memory.first_row[lane / GROUP_LANES]).unwrap_or(0);
    let cell = |lane: usize, row: usize| (first_row(lane) + row) * GROUP_LANES + lane % GROUP_LANES;
    // Bar number of a lane's row, if it has one.
    let bar = |lane: usize, row: usize| usize::try_from(i64::from(chunks.first_bar[lane]) + row as i64).ok();
    for lanes in chunks.symbols(memory.visible) {
        let rows = |lane: usize| usize::try_from(memory.visible[lane]).unwrap_or(0);
        let bars = lanes.clone().last().and_then(|lane| bar(lane, rows(lane))).unwrap_or(0);
        let series = |column: &&[f64]| {
            let mut series = vec![f64::NAN; bars];
            for lane in lanes.clone() {
                for row in chunks.lead..rows(lane) {
                    if let Some(to) = bar(lane, row).and_then(|bar| series.get_mut(bar)) {
                        *to = column[cell(lane, row)];
                    }
                }
            }
            series
        };
        let columns: Vec<Vec<f64>> = memory.columns.iter().take(program.inputs.len()).map(series).collect();
        let symbol = SymbolInput { columns: columns.iter().map(Vec::as_slice).collect(), visible: bars };
        let made = program.evaluate_from(std::slice::from_ref(&symbol), &[0], &NoCancel).map_err(|e| e.to_string())?;
        for (output, values) in made.into_iter().flatten().enumerate() {
            let base = output * launch.output_stride();
            for lane in lanes.clone() {
                let from = if all { 0 } else { rows(lane).saturating_sub(1) };
                for row in from..rows(lane) {
                    let Some(value) = bar(lane, row).and_then(|bar| values.get(bar)) else { continue };
                    let place = if all { cell(lane, row) } else { lane };
                    memory.out[base + place] = if value.is_nan() { f64::NAN } else { *value };
                }
            }
        }
    }
    Ok(())
}

/// Converts steps back to a program.
fn program_of(steps: &KernelSteps) -> Program {
    let mut graph = Graph::default();
    let columns: Vec<NodeId> = (0..steps.columns).map(|i| graph.add(Op::Column(i as u16), &[], Kind::Num)).collect();
    let mut made: Vec<NodeId> = Vec::with_capacity(steps.steps.len());
    let place = |graph: &mut Graph, made: &[NodeId], source: &StepInput| match *source {
        StepInput::Column(column) => columns[column],
        StepInput::Constant(value) => graph.num(value),
        StepInput::Step(step) => made[step],
    };
    for step in &steps.steps {
        let mut inputs: Vec<NodeId> = step.inputs.iter().map(|input| place(&mut graph, &made, input)).collect();
        if let Some(averages) = &step.averages {
            let x = inputs.remove(0);
            let number = inputs[2];
            for len in &averages.lens {
                let op = Op::TrendMean { family: averages.family, len: *len };
                let read: &[NodeId] = if averages.family.counts_bars() { &[x, number] } else { &[x] };
                inputs.push(graph.add(op, read, Kind::Num));
            }
        }
        let id = graph.add(step.op, &inputs, Kind::Num);
        made.push(id);
    }
    let outputs = steps.outputs.iter().map(|output| place(&mut graph, &made, output)).collect();
    let inputs = (0..steps.columns).map(|i| Input::Column(format!("c{i}"))).collect();
    Program::over(inputs, graph, outputs)
}
