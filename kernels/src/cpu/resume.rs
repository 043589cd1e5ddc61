//! Going on from saved states: where each step does, and what is loaded and saved on the way.
//!
//! Steps of one program go on from different bars. A step that wants its state as of bar b reads its inputs from b on,
//! and windows before it reach further back: what makes those inputs has its state as of that earlier bar. So nothing
//! but the states of recursive steps has to be kept, no row of any series.

use trawl_plan::Program;
use trawl_plan::graph::Op;

use super::carry::Carrier;
use super::real::Real;
use super::steps::step_for;
use super::tasks::{Source, Task, Tasks};
use super::trend::Tables;

/// One lane's state of one task is loaded or saved before a bar.
pub(crate) struct Cut {
    pub bar: usize,
    pub lane: usize,
    /// What is loaded; saved without.
    pub words: Option<Vec<u64>>,
}

/// Words by lane, in the order in which they were saved.
pub(crate) type Saved = Vec<(usize, Vec<u64>)>;

/// A run over a tile: per task the bar it begins with, and its cuts, ascending.
pub(crate) struct Course {
    pub wanted_from: usize,
    pub begins: Vec<usize>,
    pub cuts: Vec<Vec<Cut>>,
}

/// Bars from which tasks run and inputs are read.
pub(crate) struct Starts {
    pub tasks: Vec<usize>,
    pub inputs: Vec<usize>,
}

/// Where everything starts when the outputs are wanted from bar `wanted_from` on: recursive tasks at the first bar, or
/// if they are `resumed` where they are needed.
pub(crate) fn starts(program: &Program, plan: &Tasks, wanted_from: usize, resumed: bool) -> Starts {
    let mut needed = vec![usize::MAX; program.nodes().len()];
    let want = |needed: &mut Vec<usize>, source: &Source, from: usize| {
        let known = &mut needed[source.of.index()];
        *known = (*known).min(from.saturating_sub(source.lag));
    };
    plan.outputs.iter().for_each(|source| want(&mut needed, source, wanted_from));
    let mut tasks = vec![wanted_from; plan.tasks.len()];
    for (start, task) in tasks.iter_mut().zip(&plan.tasks).rev() {
        let first = task.nodes.iter().map(|node| needed[node.index()]).min().unwrap_or(0);
        *start = if task.work.is_recursive() && !resumed { 0 } else { first.min(wanted_from) };
        let read = start.saturating_sub(task.work.reads_back());
        task.inputs.iter().for_each(|source| want(&mut needed, source, read));
    }
    let mut inputs = vec![wanted_from; program.inputs.len()];
    for (node, first) in program.nodes().iter().zip(needed) {
        if let Op::Column(column) = node.op {
            let input = &mut inputs[usize::from(column)];
            *input = (*input).min(first);
        }
    }
    Starts { tasks, inputs }
}

/// Words that each task carries for one lane: none but recursive ones.
pub(crate) fn carried<T: Real>(plan: &Tasks) -> Vec<usize> {
    let mut tables = Tables::default();
    let words = |task: &Task| {
        let mut words = Vec::new();
        if let Some(mut step) = step_for::<T>(&task.work, task.inputs.len(), 1, &mut tables) {
            step.carry_lane(0, &mut Carrier::Save(&mut words));
        }
        words.len()
    };
    plan.tasks.iter().map(words).collect()
}
