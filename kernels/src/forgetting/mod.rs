//! Histories that may begin later, although means run through all of their bars: m + (x - m)*f forgets what it was.
//!
//! That a mean has forgotten is shown for the bars at hand, not assumed: [`Fading`] follows every number that it can have been, until
//! all have become one. From that bar on its bits do not depend on what came before, and a run over the last bars alone has them too,
//! since what it begins with is one of those numbers (docs/adr/0071).

mod fading;
mod magnitude;

use trawl_plan::graph::{Class, Memory, NodeId, OpFacts};
use trawl_plan::{Input, Program};

use crate::cpu::{LANES, least_common_multiple};
use crate::{Cancel, Cancelled, Executable, Precision, SymbolInput};
use fading::Fading;

/// How many steps may be expected to show it of one symbol: more would take longer than many bars do.
const STEPS_EXPECTED_MAX: usize = 400_000;
/// How many numbers the series that are looked at may have together: 64 MiB.
const NUMBERS_MAX: usize = 8 << 20;

/// What a program's means are made of, and how many bars they need.
#[derive(Debug)]
pub struct Forgetting {
    /// Gives what each mean is a mean of.
    averaged: Executable,
    /// By node; `None` of those that no output depends on.
    steps: Vec<Option<Step>>,
    /// Bars that are given before the wanted one.
    bars: usize,
    /// Bars after which every step does the same again.
    period: usize,
}

/// How a node's value depends on where its history began.
#[derive(Debug)]
enum Step {
    /// As its inputs' values so many bars back do.
    Follows(usize),
    /// It is a mean, of this output of `averaged`.
    Fades(Fading, usize),
}

impl Forgetting {
    /// `None` for a program with a step that may remember all of its past, or that reads more than columns, and for `f32`.
    pub fn of(program: &Program, precision: Precision) -> Option<Self> {
        let nodes = program.nodes();
        if precision != Precision::F64 || !program.inputs.iter().all(|input| matches!(input, Input::Column(_))) {
            return None;
        }
        let mut wanted = vec![false; nodes.len()];
        program.outputs.iter().for_each(|id| wanted[id.index()] = true);
        for at in (0..nodes.len()).rev() {
            if wanted[at] {
                nodes[at].inputs.iter().for_each(|id| wanted[id.index()] = true);
            }
        }
        let mut averaged: Vec<NodeId> = Vec::new();
        let mut steps: Vec<Option<Step>> = Vec::with_capacity(nodes.len());
        let mut steps_expected = 0usize;
        let (mut bars, mut period) = (vec![0usize; nodes.len()], 1);
        for (at, node) in nodes.iter().enumerate() {
            if !wanted[at] {
                steps.push(None);
                continue;
            }
            let facts = node.op.facts();
            let step = match (Fading::of(&node.op), node.inputs.as_slice()) {
                (Some(fading), [input]) => {
                    steps_expected = steps_expected.saturating_add(fading.steps());
                    let known = averaged.iter().position(|known| known == input);
                    let output = known.unwrap_or(averaged.len());
                    if known.is_none() {
                        averaged.push(*input);
                    }
                    Step::Fades(fading, output)
                }
                _ if facts.memory == Memory::Finite => Step::Follows(back_of(&facts)),
                _ => return None,
            };
            // Also of extremes: which of two zeros one is depends on where its blocks begin.
            period = least_common_multiple(period, facts.blocks.repeats_after()? as usize);
            let before = node.inputs.iter().map(|id| bars[id.index()]).max().unwrap_or(0);
            bars[at] = before.saturating_add(match &step {
                Step::Follows(back) => *back,
                Step::Fades(fading, _) => fading.bars(),
            });
            steps.push(Some(step));
        }
        // Without means nothing has to be shown.
        if averaged.is_empty() {
            return None;
        }
        let bars = program.outputs.iter().map(|id| bars[id.index()]).max()?.checked_add(period)?;
        let numbers = averaged.len().saturating_mul(LANES).saturating_mul(bars);
        if steps_expected > STEPS_EXPECTED_MAX || numbers > NUMBERS_MAX {
            return None;
        }
        let averaged = Executable::new(&program.with_outputs(averaged), precision);
        Some(Self { averaged, steps, bars, period })
    }

    /// How many bars before the wanted one usually suffice.
    pub fn bars(&self) -> usize {
        self.bars
    }

    /// The bar at which a history of `visible` bars begins of which the first `unread` are not at hand: so late that usually no
    /// more bars than needed are left.
    pub fn begin(&self, unread: usize, visible: usize) -> usize {
        let last = visible.saturating_sub(self.bars);
        unread.next_multiple_of(self.period).max(last - last % self.period)
    }

    /// Of each symbol, whether the last visible value of each output is what it would be with any bars before those that are given
    /// whose finite values are not larger in magnitude than `largest`, by symbol and input; nor are those of the bars that are given.
    /// The first bar that is given is that of [`Self::begin`].
    ///
    /// # Errors
    /// [`Cancelled`].
    pub fn forgets(
        &self,
        symbols: &[SymbolInput<'_>],
        largest: &[Vec<f64>],
        cancel: &dyn Cancel,
    ) -> Result<Vec<bool>, Cancelled> {
        let mut found = Vec::with_capacity(symbols.len());
        // Some at a time, in memory that stays in cache.
        for (symbols, largest) in symbols.chunks(LANES).zip(largest.chunks(LANES)) {
            let averaged = self.averaged.evaluate_from(symbols, &vec![0; symbols.len()], cancel)?;
            for (at, (symbol, largest)) in symbols.iter().zip(largest).enumerate() {
                let averaged: Vec<&[f64]> = (0..averaged.outputs()).map(|output| averaged.series(at, output)).collect();
                found.push(self.forgets_one(symbol.visible, &averaged, largest, cancel)?);
            }
        }
        Ok(found)
    }

    fn forgets_one(
        &self,
        visible: usize,
        averaged: &[&[f64]],
        largest: &[f64],
        cancel: &dyn Cancel,
    ) -> Result<bool, Cancelled> {
        let program = self.averaged.program();
        let largest = magnitude::largest(program, largest);
        // By node, the first bar from which its value does not depend on earlier bars.
        let mut from: Vec<usize> = Vec::with_capacity(self.steps.len());
        for (node, step) in program.nodes().iter().zip(&self.steps) {
            let inputs = node.inputs.iter().map(|id| from[id.index()]).max().unwrap_or(0);
            let first = match step {
                None => 0,
                Some(Step::Follows(back)) => inputs.saturating_add(*back),
                Some(Step::Fades(fading, output)) => {
                    if cancel.cancelled() {
                        return Err(Cancelled);
                    }
                    let most = node.inputs.first().map_or(f64::NAN, |id| largest[id.index()]);
                    match fading.forgotten(averaged[*output], inputs, most) {
                        Some(bar) => bar,
                        None => return Ok(false),
                    }
                }
            };
            from.push(first);
        }
        Ok(self.steps.iter().zip(&from).all(|(step, from)| step.is_none() || *from < visible))
    }
}

/// Bars of its inputs before the current one that a step's value depends on, numbered from a bar at which its blocks begin.
fn back_of(facts: &OpFacts) -> usize {
    match facts.class {
        Class::Leaf(_) | Class::Pointwise(_) => 0,
        Class::StepFacts(_) => {
            let block = facts.blocks.repeats_after().unwrap_or(1) as usize;
            // A block that has begun before the window is read from its beginning.
            2 * facts.look_back.max(facts.reads_back).max(block)
        }
    }
}
