//! Resuming from saved states: the bar at which each step resumes, and the states loaded and saved on the way.
//!
//! The steps of one program resume at different bars. A step with a state as of bar b reads its inputs from b on;
//! windows among its inputs reach further back, so the steps that compute them have their state as of an earlier bar.
//! Only the states of recursive steps are saved, and no rows of any series.

use crate::cpu::lower::schedule::{Task, Tasks};
use crate::cpu::lower::steps::step_for;
use crate::cpu::primitives::trend::Tables;
use crate::cpu::simd::float::Real;
use crate::cpu::simd::state_io::Carrier;

/// A point before bar `bar` at which one lane's state of one task is loaded or saved.
pub(crate) struct Cut {
    /// Number of the bar, from 0.
    pub bar: usize,
    /// The lane of the tile.
    pub lane: usize,
    /// The state words to load; `None` saves them instead.
    pub words: Option<Vec<u64>>,
}

/// Lanes and their saved state words, in order of saving.
pub(crate) type Saved = Vec<(usize, Vec<u64>)>;

/// A run over a tile: the first bar, the first bar at which its outputs are read, and the cuts (ascending) of each task.
pub(crate) struct Course {
    pub wanted_from: usize,
    pub begins: Vec<usize>,
    pub read: Vec<usize>,
    pub cuts: Vec<Vec<Cut>>,
}

/// Per task: number of state words for one lane; 0 unless the task is recursive.
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
