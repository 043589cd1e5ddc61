//! What one missing bar, or a value of it, does to a function: at which bars after it the function's value is missing too.
//!
//! The rules are those of [`Op`]: windows are NA while the bar is in them; recurrences emit NA where something that they read is NA,
//! hold their state and go on; cumulative functions skip the bar. Derived from the program alone; `kernels/tests/engine/gaps.rs` holds
//! the engine to it for every function.

use crate::graph::{Binary, Class, Node, Op, Pointwise};
use crate::op_facts::Past;
use crate::program::{Input, Program};

/// Whether a value is there, from the best on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum There {
    /// It is there, whatever the values are.
    Yes,
    /// As the values decide.
    Perhaps,
    /// It is missing, whatever the values are.
    No,
}

/// What one missing bar does to a function, from that bar on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Gap {
    /// Bars at which the function is NA for sure.
    pub bars: usize,
    /// Bars up to the last one at which it is, or may be, NA.
    pub span: usize,
    /// Whether the values decide at some of them.
    pub depends: bool,
    /// Whether there is no last one: the values decide when it goes on.
    pub open: bool,
}

impl Gap {
    /// Of one output.
    fn of(series: &[There]) -> Self {
        let count = |wanted| series.iter().filter(|there| **there == wanted).count();
        Self {
            bars: count(There::No),
            span: series.iter().rposition(|there| *there != There::Yes).map_or(0, |last| last + 1),
            depends: count(There::Perhaps) > 0,
            open: series.last().is_some_and(|there| *there != There::Yes),
        }
    }

    /// In words that follow "after one missing bar: ".
    pub fn words(&self) -> String {
        let bars = |count: usize| if count == 1 { "1 bar".to_owned() } else { format!("{count} bars") };
        match *self {
            Self { span: 0, .. } => "no bar is NA".to_owned(),
            Self { open: true, .. } => "NA until the values decide it anew".to_owned(),
            Self { depends: true, span, .. } => format!("NA on up to {}, as the values decide", bars(span)),
            Self { bars: count, span, .. } if count == span => format!("NA on {}", bars(count)),
            Self { bars: count, span, .. } => format!("NA on {} of {}", count, bars(span)),
        }
    }
}

/// The most that a missing bar does to any output of `program`, over `bars` bars.
pub(super) fn gap(program: &Program, bars: usize) -> Gap {
    let of_bars = |at: &usize| matches!(program.inputs[*at], Input::Column(_));
    let columns: Vec<usize> = (0..program.inputs.len()).filter(of_bars).collect();
    let all = gaps(program, &columns, bars).into_iter().map(|series| Gap::of(&series));
    all.max_by_key(|gap| (gap.open, gap.span, gap.bars)).unwrap_or_default()
}

/// Of each output of `program` whether it is there at the bars from one at which the inputs `missing` alone are NA.
pub fn gaps(program: &Program, missing: &[usize], bars: usize) -> Vec<Vec<There>> {
    let mut all: Vec<Vec<There>> = Vec::with_capacity(program.nodes().len());
    for node in program.nodes() {
        let inputs: Vec<&[There]> = node.inputs.iter().map(|id| all[id.index()].as_slice()).collect();
        let is_missing = matches!(node.op, Op::Column(at) if missing.contains(&usize::from(at)));
        let series = if is_missing {
            (0..bars).map(|bar| if bar == 0 { There::No } else { There::Yes }).collect()
        } else {
            (0..bars).map(|bar| at(node, &inputs, bar)).collect()
        };
        all.push(series);
    }
    program.outputs.iter().map(|id| all[id.index()].clone()).collect()
}

/// Whether a node's value is there at a bar.
fn at(node: &Node, inputs: &[&[There]], bar: usize) -> There {
    // Before the bar where a value is missing all is there.
    let back = |input: usize, bars: usize| bar.checked_sub(bars).map_or(There::Yes, |bar| inputs[input][bar]);
    let now = |input: usize| inputs[input][bar];
    let window = |input: usize, p: usize| (0..p.min(bar + 1)).map(|bars| back(input, bars)).max().unwrap_or(There::Yes);
    let all = || (0..inputs.len()).map(now).max().unwrap_or(There::Yes);
    // Where one of several values is enough: none, if all are missing; else as the values decide.
    let decided = |mut of: Vec<There>| {
        of.sort_unstable();
        match (of.first(), of.last()) {
            (Some(There::No), _) => There::No,
            (_, None | Some(There::Yes)) => There::Yes,
            _ => There::Perhaps,
        }
    };
    let untouched = |input: usize| inputs[input][..=bar].iter().all(|there| *there == There::Yes);
    let facts = node.op.facts();
    match facts.class {
        // What a read gives; the others have no inputs.
        Class::Leaf(_) => all(),
        Class::Pointwise(function) => match function {
            Pointwise::And | Pointwise::Or => decided(vec![now(0), now(1)]),
            Pointwise::Select => match now(0) {
                There::No => There::No,
                There::Yes if now(1) == now(2) => now(1),
                _ => decided(vec![now(1), now(2), There::Perhaps]),
            },
            Pointwise::Binary(Binary::Coalesce) => match (now(0), now(1)) {
                (There::Yes, _) | (_, There::Yes) => There::Yes,
                (There::No, other) => other,
                _ => There::Perhaps,
            },
            Pointwise::Unary(_) | Pointwise::Binary(_) | Pointwise::Compare(_) | Pointwise::Not => all(),
        },
        Class::StepFacts(step) => match step.past {
            Past::Window => {
                let of = |input| window(input, facts.look_back_into(input) + 1);
                (0..inputs.len()).map(of).max().unwrap_or(There::Yes)
            }
            Past::Shifted(bars) => back(0, bars as usize),
            Past::Kleene(p) => decided((0..p as usize).map(|bars| back(0, bars)).collect()),
            Past::Held => all(),
            Past::SinceTrue => match now(0) {
                There::No => There::No,
                There::Yes | There::Perhaps if untouched(0) && (inputs.len() == 1 || untouched(1)) => There::Yes,
                There::Yes | There::Perhaps => There::Perhaps,
            },
            Past::Ever => There::Yes,
            Past::Data if (0..inputs.len()).all(untouched) => There::Yes,
            Past::Data => There::Perhaps,
            Past::Varying { least, most } => match window(0, least as usize).max(now(1)) {
                There::Yes if window(0, most as usize) != There::Yes => There::Perhaps,
                there => there,
            },
        },
    }
}
