//! Evaluation that goes on from what was kept of earlier bars, with the bits of the whole history.

use trawl_plan::Program;
use trawl_plan::graph::Op;

use crate::cpu::{self, Course, Cut, LANES, Real, Tasks, Tile, Workspace, starts};
use crate::{Cancel, Cancelled, Precision, SymbolInput};

/// What the steps of a program remember of one symbol. It belongs to the program, to a
/// precision, to [`carried_layout`] and to [`crate::NUMERICS_ID`]; not to a tile, a lane or an instruction set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct State {
    /// Outputs can be had from this bar on; bars before it may still be read, their values must not have changed.
    pub bars: usize,
    /// The states, one after another. Numbers are their IEEE 754 bits in `f64`, which holds those of either precision.
    pub words: Vec<u64>,
}

/// One symbol, and how it is evaluated.
#[derive(Debug, Clone)]
pub struct Resuming<'a> {
    /// Its bars from the first one on. Those before what [`resumed_begins`] gives for the state's bar are not looked at.
    pub input: SymbolInput<'a>,
    /// First bar whose outputs are wanted.
    pub from: usize,
    /// To go on from; without, or if it is of later bars or of another size than the program's, from the first bar.
    pub state: Option<&'a State>,
    /// Bar to keep a state of: at most the visible bars.
    pub save: Option<usize>,
}

/// What became of one symbol.
#[derive(Debug, Clone, Default)]
pub struct Resumed {
    /// `[output][bar - from]`
    pub series: Vec<Vec<f64>>,
    /// The state that was asked for.
    pub state: Option<State>,
    /// Whether it went on from the given state.
    pub resumed: bool,
}

/// The first bar that each of the program's inputs must hold to go on from a state of bar `bars`.
pub fn resumed_begins(program: &Program, bars: usize) -> Vec<usize> {
    starts(program, &Tasks::new(program), bars, true).inputs
}

/// Which of the program's inputs enter states: bars of these before a state's must be what they were.
pub fn carried_inputs(program: &Program) -> Vec<bool> {
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

/// What the words of the program's states are, as text: another engine may run other steps.
pub fn carried_layout(program: &Program) -> String {
    let plan = Tasks::new(program);
    let words = cpu::carried::<f64>(&plan);
    let carrying = plan.tasks.iter().zip(words).filter(|(_, words)| *words > 0);
    carrying.map(|(task, words)| format!("{:?}:{words};", task.work)).collect()
}

impl Precision {
    /// Evaluates the program's outputs on the bars `from..visible` of each symbol, in the order of `symbols`, on the
    /// calling thread, from the states that are given, which runs in this precision have kept.
    ///
    /// # Errors
    /// [`Cancelled`].
    pub fn evaluate_resuming(
        self,
        program: &Program,
        symbols: &[Resuming<'_>],
        cancel: &dyn Cancel,
    ) -> Result<Vec<Resumed>, Cancelled> {
        match self {
            Self::F64 => resume::<f64>(program, symbols, cancel),
            Self::F32 => resume::<f32>(program, symbols, cancel),
        }
    }
}

/// As [`Precision::evaluate_resuming`], in `f64`.
///
/// # Errors
/// [`Cancelled`].
pub fn evaluate_resuming(
    program: &Program,
    symbols: &[Resuming<'_>],
    cancel: &dyn Cancel,
) -> Result<Vec<Resumed>, Cancelled> {
    resume::<f64>(program, symbols, cancel)
}

fn resume<T: Real>(
    program: &Program,
    symbols: &[Resuming<'_>],
    cancel: &dyn Cancel,
) -> Result<Vec<Resumed>, Cancelled> {
    let plan = Tasks::new(program);
    let words = cpu::carried::<T>(&plan);
    let columns: Vec<usize> = (0..program.inputs.len()).collect();
    let mut workspace = Workspace::<T>::on(cpu::Isa::detect(), program, plan);
    let mut results: Vec<Resumed> = symbols
        .iter()
        .map(|symbol| Resumed {
            series: vec![Vec::new(); program.outputs.len()],
            resumed: fitting(symbol, words.iter().sum()).is_some(),
            ..Resumed::default()
        })
        .collect();
    // Those that go on are not held back by those that begin.
    let mut order: Vec<usize> = (0..symbols.len()).collect();
    order.sort_by_key(|&i| (results[i].resumed, symbols[i].input.visible));
    for part in order.chunk_by(|&a, &b| results[a].resumed == results[b].resumed).collect::<Vec<_>>() {
        for chunk in part.chunks(LANES) {
            run_chunk(program, symbols, chunk, &words, &columns, &mut workspace, cancel, &mut results)?;
        }
    }
    Ok(results)
}

/// The state that a symbol goes on from.
fn fitting<'a>(symbol: &Resuming<'a>, words: usize) -> Option<&'a State> {
    let most = symbol.from.min(symbol.save.unwrap_or(usize::MAX)).min(symbol.input.visible);
    symbol.state.filter(|state| state.words.len() == words && state.bars <= most)
}

#[allow(clippy::too_many_arguments)]
fn run_chunk<T: Real>(
    program: &Program,
    symbols: &[Resuming<'_>],
    chunk: &[usize],
    words: &[usize],
    columns: &[usize],
    workspace: &mut Workspace<'_, T>,
    cancel: &dyn Cancel,
    results: &mut [Resumed],
) -> Result<(), Cancelled> {
    let mut begins = vec![usize::MAX; words.len()];
    let mut bases = vec![usize::MAX; columns.len()];
    let mut cuts: Vec<Vec<Cut>> = Vec::new();
    cuts.resize_with(words.len(), Vec::new);
    for (lane, symbol) in chunk.iter().map(|&i| &symbols[i]).enumerate() {
        let state = fitting(symbol, words.iter().sum());
        let first = state.map_or(symbol.from.min(symbol.input.visible), |state| state.bars);
        let from = starts(program, &workspace.plan, first, state.is_some());
        begins.iter_mut().zip(&from.tasks).for_each(|(begin, start)| *begin = (*begin).min(*start));
        bases.iter_mut().zip(&from.inputs).for_each(|(base, start)| *base = (*base).min(*start));
        let mut rest = state.map_or(&[][..], |state| state.words.as_slice());
        let save = symbol.save.map(|save| starts(program, &workspace.plan, save.min(symbol.input.visible), true).tasks);
        for (task, (cuts, count)) in cuts.iter_mut().zip(words).enumerate().filter(|(_, (_, count))| **count > 0) {
            if let Some((mine, others)) = state.and_then(|_| rest.split_at_checked(*count)) {
                rest = others;
                cuts.push(Cut { bar: from.tasks[task], lane, words: Some(mine.to_vec()) });
            }
            if let Some(save) = &save {
                cuts.push(Cut { bar: save[task], lane, words: None });
            }
        }
    }
    // Of one bar, states are loaded before they are saved.
    cuts.iter_mut().for_each(|cuts| cuts.sort_by_key(|cut| (cut.bar, cut.words.is_none())));
    let lanes: Vec<&SymbolInput<'_>> = chunk.iter().map(|&i| &symbols[i].input).collect();
    let tile = Tile::load(&lanes, bases);
    let wanted_from = chunk.iter().map(|&i| symbols[i].from).min().unwrap_or(0);
    let course = Course { wanted_from, begins, cuts };
    let saved = workspace.run_course(&tile, columns, course, cancel, |w, strip| {
        for (&i, (lane, visible)) in chunk.iter().zip(tile.visible.iter().enumerate()) {
            for row in strip.start.max(symbols[i].from)..strip.end.min(*visible) {
                for (output, series) in results[i].series.iter_mut().enumerate() {
                    series.push(w.value(&tile, columns, output, lane, row));
                }
            }
        }
    })?;
    for (lane, &i) in chunk.iter().enumerate() {
        results[i].state = symbols[i].save.map(|save| State {
            bars: save.min(symbols[i].input.visible),
            words: saved.iter().flat_map(|task| of_lane(task, lane)).copied().collect(),
        });
    }
    Ok(())
}

fn of_lane(saved: &[(usize, Vec<u64>)], lane: usize) -> &[u64] {
    saved.iter().find(|(l, _)| *l == lane).map_or(&[], |(_, words)| words)
}
