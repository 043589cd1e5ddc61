//! Assignment of steps to the warps of a block.
//!
//! Steps are ordered as outputs need them, so that neighbours belong together; a part is a run of steps whose states
//! fit the registers of a thread. A part's level is one above those that it reads from: it runs one tile behind them.
//! Everything here depends on the shape of a plan only.

use trawl_plan::graph::Op;

use crate::Precision;
use crate::cuda::codegen::statement::When;
use crate::cuda::codegen::step_abi::{Division, Form, Takes};
use crate::cuda::codegen::steps::{KernelStep, KernelSteps, StepInput};

/// Registers of 32 bits for the states of a part and the addresses of its rings. The rest of a thread's 255 is for the
/// values of a bar and the deepest step; the test of compiled kernels asserts that there are no spills.
const STATE_REGISTERS_MAX: usize = 72;

/// Registers for a ring: its address and number of slots.
const RING_REGISTERS: usize = 3;

/// Maximum steps of a part, whatever their states: what the compiler can optimise.
const STEPS_MAX: usize = 48;

/// Number of register limits tried for parts, the smallest first, when there are more warps than steps need.
const MANY_TRIES: usize = 6;

/// Schedulers of a multiprocessor, each with its own units.
const SCHEDULERS: usize = 4;

/// Maximum parts of a kernel, if sufficient for their states: three blocks of four warps are three warps per scheduler,
/// each with a third of its registers, and 10,000 symbols need three blocks per multiprocessor on 132 multiprocessors.
const WARPS_BEST: usize = 4;

/// Number of increments by which the maximum load of a part is raised, up to twice its share.
const LOAD_TRIES: usize = 16;

/// What a division, a ring or a look-back at every bar adds to the time of a part, in the units of its load: the long waits.
const WAIT: usize = 100;

/// Maximum equities that follow a family's signal in its part: sweeps may have many.
const FOLLOWERS_MAX: usize = 6;

/// The steps that one warp runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WarpPart {
    pub first: usize,
    pub end: usize,
    pub level: usize,
}

impl WarpPart {
    pub fn holds(&self, step: usize) -> bool {
        (self.first..self.end).contains(&step)
    }
}

/// A series computed by one part and read by others, in shared memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Passed {
    pub step: usize,
    /// Number of tiles of it that are kept.
    pub depth: usize,
}

pub(crate) struct WarpPartition {
    pub parts: Vec<WarpPart>,
    /// Series passed between parts, ascending.
    pub passed: Vec<Passed>,
    /// Number of tiles of each column that are kept.
    pub column_depth: usize,
    /// Per step: when it runs; at every bar what is recursive, and what a recursive step reads.
    pub when: Vec<When>,
}

impl WarpPartition {
    /// At most [`WARPS_BEST`] parts if their states fit, with balanced loads.
    pub fn of(steps: &KernelSteps, forms: &[Form], precision: Precision) -> Self {
        let whole = whole(steps);
        let loads: Vec<usize> = forms.iter().zip(&whole).map(|(form, whole)| load(form, *whole)).collect();
        let (all, most) = (loads.iter().sum::<usize>(), loads.iter().copied().max().unwrap_or(0));
        let least = all.div_ceil(WARPS_BEST).max(most);
        let tries = (0..=LOAD_TRIES).map(|more| least + least * more / LOAD_TRIES);
        let mut tries =
            tries.map(|load_max| Self::within(steps, forms, precision, STATE_REGISTERS_MAX, &loads, load_max));
        tries
            .find(|parts| parts.parts.len() <= WARPS_BEST)
            .unwrap_or_else(|| Self::within(steps, forms, precision, STATE_REGISTERS_MAX, &loads, usize::MAX))
    }

    /// At most `warps_max` parts, as many as useful: when there are few groups, the time of one warp per bar is the
    /// bottleneck. In `f64`.
    pub fn many(steps: &KernelSteps, forms: &[Form], warps_max: usize) -> Self {
        let registers = |share: usize| STATE_REGISTERS_MAX * share / MANY_TRIES;
        let loads = vec![0; forms.len()];
        let tries = (1..MANY_TRIES)
            .map(|share| Self::within(steps, forms, Precision::F64, registers(share), &loads, usize::MAX));
        tries
            .into_iter()
            .find(|parts| parts.parts.len() <= warps_max)
            .unwrap_or_else(|| Self::of(steps, forms, Precision::F64))
    }

    /// Parts whose states take at most `registers_max` registers, and whose steps at every bar have at most `load_max`
    /// load.
    fn within(
        steps: &KernelSteps,
        forms: &[Form],
        precision: Precision,
        registers_max: usize,
        loads: &[usize],
        load_max: usize,
    ) -> Self {
        let registers: Vec<usize> = forms.iter().map(|form| registers_of(form, precision)).collect();
        let last_reader = last_readers(steps);
        let mut parts: Vec<WarpPart> = Vec::new();
        let mut first = 0;
        while first < steps.steps.len() {
            let end = cut(first, steps, forms, &last_reader, (&registers, registers_max), (loads, load_max));
            let inputs = steps.steps[first..end].iter().flat_map(|step| &step.inputs);
            let below = inputs.filter_map(|input| match input {
                StepInput::Step(step) => parts.iter().find(|part| part.holds(*step)).map(|part| part.level + 1),
                _ => None,
            });
            let level = below.max().unwrap_or(0);
            parts.push(WarpPart { first, end, level });
            first = end;
        }
        if parts.is_empty() {
            parts.push(WarpPart { first: 0, end: 0, level: 0 });
        }
        let top = parts.iter().map(|part| part.level).max().unwrap_or(0);
        let passed = passed(steps, &parts);
        let when = when(steps, forms, &passed);
        Self { parts, passed, column_depth: top + 2, when }
    }

    /// The parts in the order of the warps that run them. Warps w, w + 4, ... share a scheduler and its units for f64:
    /// the part with the largest load is paired with one of small load.
    pub fn by_load(&self, forms: &[Form]) -> Vec<usize> {
        let load = |part: &WarpPart| -> usize {
            let of = |form: &Form| 1 + form.means.as_ref().map_or(0, |means| means.load);
            forms[part.first..part.end].iter().map(of).sum()
        };
        let mut order: Vec<usize> = (0..self.parts.len()).collect();
        if forms.iter().all(|form| form.means.is_none()) {
            return order;
        }
        order.sort_by_key(|at| std::cmp::Reverse(load(&self.parts[*at])));
        // There and back again, so that the last of a round follows the first of the one before.
        order.chunks_mut(SCHEDULERS).skip(1).step_by(2).for_each(<[usize]>::reverse);
        order
    }

    /// The part whose warp brings the columns: the one that needs the least time for a bar, since all others wait for the
    /// slowest.
    pub fn fetcher(&self, forms: &[Form]) -> usize {
        // Where no step runs at every bar, all run at the bars that are read.
        let none = !self.when.contains(&When::Every);
        let time = |part: &WarpPart| -> usize {
            let of = |form: &Form| {
                let waits = usize::from(divides(form)) + rings(form);
                load(form, true) + WAIT * waits + form.means.as_ref().map_or(0, |means| means.load)
            };
            (part.first..part.end).filter(|at| none || self.when[*at] == When::Every).map(|at| of(&forms[at])).sum()
        };
        (0..self.parts.len()).min_by_key(|at| time(&self.parts[*at])).unwrap_or(0)
    }

    /// The highest level.
    pub fn top(&self) -> usize {
        self.column_depth - 2
    }
}

/// Per step: the last step that reads it, or itself.
fn last_readers(steps: &KernelSteps) -> Vec<usize> {
    let mut last: Vec<usize> = (0..steps.steps.len()).collect();
    for (reader, step) in steps.steps.iter().enumerate() {
        for input in &step.inputs {
            if let StepInput::Step(read) = input {
                last[*read] = reader;
            }
        }
    }
    last
}

/// Registers that a step keeps from bar to bar. A history shared with another step is counted for each.
fn registers_of(form: &Form, precision: Precision) -> usize {
    let means = form.means.as_ref().is_some_and(|means| means.ring.is_some());
    form.registers_in(precision) + RING_REGISTERS * (rings(form) + usize::from(means))
}

/// Whether it divides by any number.
fn divides(form: &Form) -> bool {
    matches!(form.divides, Some(Division::OfState | Division::OfMean))
}

/// Rings of a step, and the history that it looks back at.
fn rings(form: &Form) -> usize {
    form.rings.len() + usize::from(matches!(form.takes, Takes::Past(_)))
}

/// Approximate load of a step at every bar, in instructions; 0 for one that runs from the first wanted bar on.
fn load(form: &Form, whole: bool) -> usize {
    let parts = [2, 8 * usize::from(form.has_state), 25 * usize::from(divides(form)), 15 * rings(form)];
    if whole { parts.iter().sum() } else { 0 }
}

/// The end of the part that begins with `first`: as far as its states fit, and in the second half of that range where
/// the fewest series cross the boundary. A family of averages is one part with the steps that follow its signal.
fn cut(
    first: usize,
    steps: &KernelSteps,
    forms: &[Form],
    last_reader: &[usize],
    (registers_of, registers_max): (&[usize], usize),
    (loads, load_max): (&[usize], usize),
) -> usize {
    if forms[first].means.is_some() {
        let follows = |step: &&KernelStep| {
            matches!(step.op, Op::SignalEquity { .. }) && step.inputs.first() == Some(&StepInput::Step(first))
        };
        let more = steps.steps[first + 1..].iter().take_while(follows).count();
        return first + 1 + more.min(FOLLOWERS_MAX);
    }
    let (mut registers, mut load) = (0, 0usize);
    let mut end = first;
    while end < forms.len() && end - first < STEPS_MAX && forms[end].means.is_none() {
        registers += registers_of[end];
        load = load.saturating_add(loads[end]);
        if (registers > registers_max || load > load_max) && end > first {
            break;
        }
        end += 1;
    }
    if forms.get(end).is_none_or(|next| next.means.is_some()) {
        return end;
    }
    let crossing = |at: usize| (first..at).filter(|step| last_reader[*step] >= at).count();
    (first + (end - first).div_ceil(2)..=end).rev().min_by_key(|at| crossing(*at)).unwrap_or(end).max(first + 1)
}

fn passed(steps: &KernelSteps, parts: &[WarpPart]) -> Vec<Passed> {
    let part_of = |step: usize| parts.iter().find(|part| part.holds(step));
    let mut passed: Vec<Passed> = Vec::new();
    for reader in parts {
        for input in steps.steps[reader.first..reader.end].iter().flat_map(|step| &step.inputs) {
            let StepInput::Step(step) = *input else { continue };
            let Some(maker) = part_of(step).filter(|maker| *maker != reader) else { continue };
            let depth = reader.level - maker.level + 1;
            match passed.iter_mut().find(|p| p.step == step) {
                Some(known) => known.depth = known.depth.max(depth),
                None => passed.push(Passed { step, depth }),
            }
        }
    }
    passed.sort_by_key(|p| p.step);
    passed
}

fn whole(steps: &KernelSteps) -> Vec<bool> {
    let mut whole: Vec<bool> = steps.steps.iter().map(KernelStep::is_recursive).collect();
    for at in (0..whole.len()).rev().filter(|at| whole[*at]).collect::<Vec<_>>() {
        mark(steps, &mut whole, at);
    }
    whole
}

/// Per step: when it runs. What keeps nothing from bar to bar, and is neither looked back at nor passed to another part, is
/// computed at wanted bars only if all of its readers are.
fn when(steps: &KernelSteps, forms: &[Form], passed: &[Passed]) -> Vec<When> {
    let whole = whole(steps);
    let first = |(at, form): (usize, &Form)| {
        let keeps = form.has_state || !form.rings.is_empty() || form.means.is_some();
        if whole[at] {
            When::Every
        } else if keeps || passed.iter().any(|passed| passed.step == at) {
            When::Tail
        } else {
            When::Wanted
        }
    };
    let mut when: Vec<When> = forms.iter().enumerate().map(first).collect();
    for at in (0..when.len()).rev() {
        let looks_back = matches!(forms[at].takes, Takes::Past(_));
        for (number, input) in steps.steps[at].inputs.iter().enumerate() {
            let Some(read) = input.step() else { continue };
            let needed = if looks_back && number == 0 { when[at].min(When::Tail) } else { when[at] };
            when[read] = when[read].min(needed);
        }
    }
    when
}

/// Marks the inputs of `step`, transitively.
fn mark(steps: &KernelSteps, whole: &mut [bool], step: usize) {
    let mut open = vec![step];
    while let Some(at) = open.pop() {
        for input in &steps.steps[at].inputs {
            if let StepInput::Step(read) = *input
                && !std::mem::replace(&mut whole[read], true)
            {
                open.push(read);
            }
        }
    }
}

/// Look-back of steps with finite windows, in bars before the first wanted one, accumulated along their readers.
pub(crate) fn reach(steps: &KernelSteps, forms: &[Form], when: &[When]) -> usize {
    let mut needed = vec![0usize; steps.steps.len()];
    let mut reach = 0;
    for (at, step) in steps.steps.iter().enumerate().rev() {
        if when[at] == When::Every {
            continue;
        }
        let from = needed[at].saturating_add(forms[at].back);
        reach = reach.max(from);
        // What keeps nothing looks back at its first input only.
        let looks_once = !forms[at].has_state && matches!(forms[at].takes, Takes::Past(_));
        for (number, input) in step.inputs.iter().enumerate() {
            if let StepInput::Step(read) = *input {
                let of_input = if looks_once && number > 0 { needed[at] } else { from };
                needed[read] = needed[read].max(of_input);
            }
        }
    }
    reach
}
