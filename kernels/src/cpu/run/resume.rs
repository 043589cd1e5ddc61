//! Going on from saved states: where each step does, and what is loaded and saved on the way.
//!
//! Steps of one program go on from different bars. A step that wants its state as of bar b reads its inputs from b on,
//! and windows before it reach further back: what makes those inputs has its state as of that earlier bar. So nothing
//! but the states of recursive steps has to be kept, no row of any series.

use crate::cpu::lower::schedule::{Task, Tasks};
use crate::cpu::lower::steps::step_for;
use crate::cpu::primitives::trend::Tables;
use crate::cpu::simd::float::Real;
use crate::cpu::simd::state_io::Carrier;

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
