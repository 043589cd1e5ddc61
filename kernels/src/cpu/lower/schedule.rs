//! The tasks of a program, their order, and the slots in which series are stored.

use trawl_plan::Program;
use trawl_plan::graph::{Node, NodeId, Op};

use crate::cpu::lower::fuse::{FusedTask, fuse};
use crate::cpu::lower::fused_op::FusedOp;

/// The source of one input of a task.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TaskInput {
    /// The node that is read.
    pub of: NodeId,
    pub place: SeriesPlace,
    /// Delay in bars.
    pub lag: usize,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum SeriesPlace {
    /// An input of the program.
    Column(usize),
    Slot(usize),
}

/// An operation that runs once per strip.
#[derive(Debug)]
pub(crate) struct Task {
    pub work: FusedOp,
    pub inputs: Vec<TaskInput>,
    /// Slots that it writes.
    pub outputs: Vec<usize>,
    /// Nodes that it computes; they determine the first row that it runs on.
    pub nodes: Vec<NodeId>,
}

/// The contents of a slot.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Slot {
    /// The same value at every bar.
    Constant(f64),
    /// A ring that holds some bars before the strip.
    Ring(History),
}

/// How many bars of a series before the current one are read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct History {
    /// Along a history.
    pub along: usize,
    /// In a tile that stays in memory; at least as many.
    pub resident: usize,
}

impl History {
    /// Of a task's input that is `lag` bars late.
    fn of(work: &FusedOp, lag: usize) -> Self {
        Self { along: lag.saturating_add(work.reads_back_along()), resident: lag.saturating_add(work.reads_back()) }
    }

    fn max(self, other: Self) -> Self {
        Self { along: self.along.max(other.along), resident: self.resident.max(other.resident) }
    }
}

/// The tasks of a program, and its slots. Series without look-back share slots, so that they stay in cache.
#[derive(Debug)]
pub(crate) struct Tasks {
    pub tasks: Vec<Task>,
    pub slots: Vec<Slot>,
    /// Per output of the program.
    pub outputs: Vec<TaskInput>,
    /// Per input of the program: how many bars before the strip are read of it, along a history.
    pub columns: Vec<usize>,
}

/// Resolves chains of lags: the node that `id` delays, and the delay in bars. Lags are applied when reading and have no
/// task.
fn origin(nodes: &[Node], id: NodeId) -> (NodeId, usize) {
    let (mut id, mut lag) = (id, 0usize);
    while let Op::Lag(bars) = nodes[id.index()].op {
        lag = lag.saturating_add(bars as usize);
        id = nodes[id.index()].inputs[0];
    }
    (id, lag)
}

impl Tasks {
    /// The tasks of a program that was split into `fused`.
    pub fn of(program: &Program, fused: Vec<FusedTask>) -> Self {
        let nodes = program.nodes();
        // Per node: bars of history that are read, and the last task that reads it.
        let mut history = vec![History::default(); nodes.len()];
        let mut last = vec![0usize; nodes.len()];
        for (i, part) in fused.iter().enumerate() {
            for id in &part.inputs {
                let (of, lag) = origin(nodes, *id);
                history[of.index()] = history[of.index()].max(History::of(&part.work, lag));
                last[of.index()] = i;
            }
        }
        for id in &program.outputs {
            let (of, lag) = origin(nodes, *id);
            history[of.index()] = history[of.index()].max(History { along: lag, resident: lag });
            last[of.index()] = usize::MAX;
        }
        let mut slots: Vec<Slot> = Vec::new();
        let mut slot_of = vec![usize::MAX; nodes.len()];
        for (slot, node) in slot_of.iter_mut().zip(nodes) {
            if let Op::Constant(bits) = node.op {
                *slot = slots.len();
                slots.push(Slot::Constant(bits.value()));
            }
        }
        let mut free: Vec<usize> = Vec::new();
        let mut tasks = Vec::with_capacity(fused.len());
        for (i, part) in fused.into_iter().enumerate() {
            for id in &part.outputs {
                let ring = history[id.index()];
                // Only slots without history are recycled, and only for series that need none.
                let freed = if ring.resident == 0 { free.pop() } else { None };
                slot_of[id.index()] = freed.unwrap_or_else(|| {
                    slots.push(Slot::Ring(ring));
                    slots.len() - 1
                });
            }
            let source = |id: &NodeId| source(nodes, &slot_of, *id);
            let inputs = part.inputs.iter().map(source).collect();
            // Release slots after their last use. Slots with history are kept: the next strip still needs their rows.
            let mut read: Vec<NodeId> =
                part.inputs.iter().chain(&part.outputs).map(|id| origin(nodes, *id).0).collect();
            read.sort_unstable();
            read.dedup();
            for id in read {
                let leaf = matches!(nodes[id.index()].op, Op::Column(_) | Op::Constant(_));
                if !leaf && last[id.index()] <= i && history[id.index()].resident == 0 {
                    free.push(slot_of[id.index()]);
                }
            }
            let outputs = part.outputs.iter().map(|id| slot_of[id.index()]).collect();
            tasks.push(Task { work: part.work, inputs, outputs, nodes: part.outputs });
        }
        let outputs = program.outputs.iter().map(|id| source(nodes, &slot_of, *id)).collect();
        let mut columns = vec![0; program.inputs.len()];
        for (node, history) in nodes.iter().zip(&history) {
            if let Op::Column(column) = node.op {
                let known = &mut columns[usize::from(column)];
                *known = (*known).max(history.along);
            }
        }
        Self { tasks, slots, outputs, columns }
    }
}

fn source(nodes: &[Node], slot_of: &[usize], id: NodeId) -> TaskInput {
    let (of, lag) = origin(nodes, id);
    let place = if let Op::Column(column) = nodes[of.index()].op {
        SeriesPlace::Column(usize::from(column))
    } else {
        SeriesPlace::Slot(slot_of[of.index()])
    };
    TaskInput { of, place, lag }
}

/// Look-back of tasks and inputs that begin at the first bar.
const EVERY_BAR: usize = usize::MAX;

/// Look-back, in bars before the first wanted bar, of each task and each input of the program. Independent of the
/// wanted bar.
#[derive(Debug)]
pub(crate) struct Backs {
    pub tasks: Vec<usize>,
    pub inputs: Vec<usize>,
    /// Of the first row of each task's outputs that is read.
    read: Vec<usize>,
}

/// First bar of each task and of each input of the program.
pub(crate) struct Starts {
    pub tasks: Vec<usize>,
    pub inputs: Vec<usize>,
}

impl Backs {
    /// Look-back derived from the program's nodes; recursive nodes run from the first bar.
    pub fn of_nodes(program: &Program, plan: &Tasks) -> Self {
        let nodes = program.nodes();
        let mut needed: Vec<Option<usize>> = vec![None; nodes.len()];
        program.outputs.iter().for_each(|id| needed[id.index()] = Some(0));
        let mut read = vec![None; nodes.len()];
        for (i, node) in nodes.iter().enumerate().rev() {
            let Some(back) = needed[i] else { continue };
            read[i] = needed[i];
            let facts = node.op.facts();
            let back = if facts.is_recursive() { EVERY_BAR } else { back };
            needed[i] = Some(back);
            for input in &node.inputs {
                needed[input.index()] = needed[input.index()].max(Some(back.saturating_add(facts.reads_back)));
            }
        }
        let task = |task: &Task| match task.nodes.iter().filter_map(|node| needed[node.index()]).max() {
            Some(back) if !task.work.is_recursive() => back.saturating_add(task.work.warms_up()),
            _ => EVERY_BAR,
        };
        let outputs = |task: &Task| task.nodes.iter().filter_map(|node| read[node.index()]).max().unwrap_or(EVERY_BAR);
        Self {
            tasks: plan.tasks.iter().map(task).collect(),
            inputs: inputs_of(program, &needed),
            read: plan.tasks.iter().map(outputs).collect(),
        }
    }

    /// Look-back derived from the program's tasks. Recursive tasks run from the first bar or, if `resumed`, from the
    /// first bar that is needed.
    pub fn of_tasks(program: &Program, plan: &Tasks, resumed: bool) -> Self {
        let mut needed: Vec<Option<usize>> = vec![None; program.nodes().len()];
        let want = |needed: &mut Vec<Option<usize>>, source: &TaskInput, back: usize| {
            let known = &mut needed[source.of.index()];
            *known = (*known).max(Some(back.saturating_add(source.lag)));
        };
        plan.outputs.iter().for_each(|source| want(&mut needed, source, 0));
        let mut tasks = vec![0; plan.tasks.len()];
        let mut outputs = vec![0; plan.tasks.len()];
        for ((back, first), task) in tasks.iter_mut().zip(&mut outputs).zip(&plan.tasks).rev() {
            let wanted = task.nodes.iter().filter_map(|node| needed[node.index()]).max().unwrap_or(0);
            *first = wanted;
            let begun = wanted.saturating_add(task.work.warms_up());
            *back = if task.work.is_recursive() && !resumed { EVERY_BAR } else { begun };
            let read = back.saturating_add(task.work.reads_back_along());
            task.inputs.iter().for_each(|source| want(&mut needed, source, read));
        }
        Self { tasks, inputs: inputs_of(program, &needed), read: outputs }
    }

    /// Per task, the first bar that it runs on when the outputs are wanted from bar `wanted_from` on.
    pub fn tasks(&self, wanted_from: usize) -> Vec<usize> {
        self.tasks.iter().map(|back| wanted_from.saturating_sub(*back)).collect()
    }

    /// Per task, the first bar at which its outputs are read when those of the program are wanted from bar `wanted_from` on.
    pub fn read(&self, wanted_from: usize) -> Vec<usize> {
        self.read.iter().map(|back| wanted_from.saturating_sub(*back)).collect()
    }

    /// Per input of the program, the first bar that must be given when the outputs are wanted from bar `wanted_from`
    /// on.
    pub fn inputs(&self, wanted_from: usize) -> Vec<usize> {
        self.inputs.iter().map(|back| wanted_from.saturating_sub(*back)).collect()
    }

    /// [`Self::tasks`] and [`Self::inputs`] together.
    pub fn starts(&self, wanted_from: usize) -> Starts {
        Starts { tasks: self.tasks(wanted_from), inputs: self.inputs(wanted_from) }
    }
}

/// Per input of the program, its look-back in bars; 0 for an input that nothing reads.
fn inputs_of(program: &Program, needed: &[Option<usize>]) -> Vec<usize> {
    let mut inputs = vec![0; program.inputs.len()];
    for (node, needed) in program.nodes().iter().zip(needed) {
        if let Op::Column(column) = node.op {
            let input = &mut inputs[usize::from(column)];
            *input = (*input).max(needed.unwrap_or(0));
        }
    }
    inputs
}

/// A program scheduled for the CPU: its tasks and their look-back.
#[derive(Debug)]
pub(crate) struct Schedule {
    pub tasks: Tasks,
    /// For whole histories.
    pub whole: Backs,
    /// For runs from the first bar that save states.
    pub restarted: Backs,
    /// For runs from saved states.
    pub resumed: Backs,
    /// Period, in bars, with which the blocks of all windows begin at the same bar (see [`Self::blocks_begin`]).
    blocks: usize,
    /// Period, in bars, after which all steps do the same again; `None` when one depends on the numbers of bars.
    repeats: Option<usize>,
    /// Bars before the first wanted one that any step or input of a whole history reads, or looks back at.
    furthest: usize,
}

impl Schedule {
    pub fn new(program: &Program) -> Self {
        Self::of(program, fuse(program))
    }

    /// Schedules a program that was split into `parts`.
    pub fn of(program: &Program, parts: Vec<FusedTask>) -> Self {
        let tasks = Tasks::of(program, parts);
        let (mut whole, restarted) = (Backs::of_nodes(program, &tasks), Backs::of_tasks(program, &tasks, false));
        // A group may read more rows than its primitives do.
        whole.read.iter_mut().zip(&restarted.read).for_each(|(back, other)| *back = (*back).max(*other));
        Self {
            // Steps that no input enters count too: a constant three bars ago is NA at the first three, and bars are counted from the first.
            furthest: whole.tasks.iter().chain(&whole.inputs).copied().fold(program.reach(), usize::max),
            whole,
            restarted,
            resumed: Backs::of_tasks(program, &tasks, true),
            blocks: common_blocks(program),
            repeats: repetition(program),
            tasks,
        }
    }

    /// Bytes that it takes in memory, about.
    pub fn bytes(&self) -> usize {
        let lists = |task: &Task| size_of_val(&*task.inputs) + size_of_val(&*task.outputs) + size_of_val(&*task.nodes);
        let tasks: usize = self.tasks.tasks.iter().map(|task| size_of::<Task>() + lists(task)).sum();
        let backs = |backs: &Backs| size_of_val(&*backs.tasks) + size_of_val(&*backs.inputs);
        let other =
            size_of_val(&*self.tasks.slots) + size_of_val(&*self.tasks.outputs) + size_of_val(&*self.tasks.columns);
        tasks + other + backs(&self.whole) + backs(&self.restarted) + backs(&self.resumed)
    }

    /// The last bar at or before `bar` at which a block of every window of the program begins.
    pub fn blocks_begin(&self, bar: usize) -> usize {
        bar - bar % self.blocks
    }

    /// The last bar that may be the first one when the outputs are wanted from bar `wanted_from` on: numbered from there, every step does
    /// what it did.
    pub fn shortened_begin(&self, wanted_from: usize) -> usize {
        let first = wanted_from.saturating_sub(self.furthest);
        self.repeats.map_or(0, |bars| first - first % bars)
    }
}

/// The least common multiple of the bars after which the steps of a program repeat, saturating at `usize::MAX`.
fn repetition(program: &Program) -> Option<usize> {
    let mut repeats = program.nodes().iter().map(|node| node.op.facts().blocks.repeats_after());
    repeats.try_fold(1, |common, bars| Some(least_common_multiple(common, bars? as usize)))
}

/// The least common multiple of the block lengths of a program's windows, saturating at `usize::MAX`.
fn common_blocks(program: &Program) -> usize {
    let blocks = program.nodes().iter().filter_map(|node| node.op.facts().blocks.rounding_bars());
    blocks.fold(1, |common, p| least_common_multiple(common, p as usize))
}

/// Least common multiple, saturating at `usize::MAX`.
pub(crate) fn least_common_multiple(a: usize, b: usize) -> usize {
    let (mut x, mut y) = (a, b);
    while y != 0 {
        (x, y) = (y, x % y);
    }
    (a / x.max(1)).saturating_mul(b)
}

#[cfg(test)]
mod tests {
    use trawl_plan::{Schema, compile_expressions};

    use super::*;

    fn slots(items: &[&str]) -> usize {
        let schema = Schema::of_columns(vec!["close".to_owned()]);
        let items: Vec<String> = items.iter().map(|item| (*item).to_owned()).collect();
        let plan = compile_expressions(&items, "test", &schema).expect("legal");
        let tasks = Schedule::new(plan.program()).tasks;
        tasks.slots.iter().filter(|slot| matches!(slot, Slot::Ring(_))).count()
    }

    #[test]
    fn a_series_with_history_leaves_freed_slots_to_those_without() {
        // One root after another: each is read once, by the next.
        assert_eq!(slots(&["sqrt(sqrt(sqrt(sqrt(close))))"]), 2);
        // The window's input has a slot with history of its own; the two others keep alternating.
        assert_eq!(slots(&["sqrt(sqrt(sma(sqrt(sqrt(sqrt(close))), 30)))"]), 3);
    }
}
