//! What one missing value does to a function: at which bars after it the function's value is missing too.
//!
//! The rules are those of [`Op`]: windows are NA while the bar is in them; recurrences emit NA where something that they read is NA,
//! hold their state and go on; cumulative functions skip the bar. Told from a program alone; `kernels/tests/engine/gaps.rs` holds
//! the engine to it for every function.

use crate::graph::{Binary, Node, Op};
use crate::program::{Input, Program};

/// Whether a value is there, from the best on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum There {
    Yes,
    /// As the values decide.
    Perhaps,
    No,
}

/// What one missing value does to a function, from the bar where it is missing on.
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

    /// In words that follow "after a missing value: ".
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

/// The worst that a missing value of any one column does to any output of `program`, over `bars` bars.
pub(super) fn gap(program: &Program, bars: usize) -> Gap {
    let columns = program.inputs.iter().enumerate().filter(|(_, input)| matches!(input, Input::Column(_)));
    let all = columns.flat_map(|(column, _)| gaps(program, column, bars));
    all.map(|series| Gap::of(&series)).max_by_key(|gap| (gap.open, gap.span, gap.bars)).unwrap_or_default()
}

/// Of each output of `program` whether it is there at the bars from one at which input `column` alone is NA.
pub fn gaps(program: &Program, column: usize, bars: usize) -> Vec<Vec<There>> {
    let mut all: Vec<Vec<There>> = Vec::with_capacity(program.nodes().len());
    for node in program.nodes() {
        let inputs: Vec<&[There]> = node.inputs.iter().map(|id| all[id.index()].as_slice()).collect();
        let series = match node.op {
            Op::Column(at) if usize::from(at) == column => {
                (0..bars).map(|bar| if bar == 0 { There::No } else { There::Yes }).collect()
            }
            _ => (0..bars).map(|bar| at(node, &inputs, bar)).collect(),
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
    match node.op {
        Op::And | Op::Or => decided(vec![now(0), now(1)]),
        Op::Within(p) | Op::Streak(p) => decided((0..p as usize).map(|bars| back(0, bars)).collect()),
        Op::Select => match now(0) {
            There::No => There::No,
            There::Yes if now(1) == now(2) => now(1),
            _ => decided(vec![now(1), now(2), There::Perhaps]),
        },
        Op::Binary(Binary::OrElse) => match (now(0), now(1)) {
            (There::Yes, _) | (_, There::Yes) => There::Yes,
            (There::No, other) => other,
            _ => There::Perhaps,
        },
        Op::Lag(bars) => back(0, bars as usize),
        Op::CrossesAbove | Op::CrossesBelow => window(0, 2).max(window(1, 2)),
        Op::Since | Op::ValueWhen => match now(0) {
            There::No => There::No,
            _ if untouched(0) && (inputs.len() == 1 || untouched(1)) => There::Yes,
            _ => There::Perhaps,
        },
        Op::Ever | Op::EverSince => There::Yes,
        Op::TrendMean { .. }
        | Op::GrownReturn { .. }
        | Op::FamilySignal { .. }
        | Op::SignalEquity { .. }
        | Op::TrendVote { .. } => {
            if (0..inputs.len()).all(untouched) {
                There::Yes
            } else {
                There::Perhaps
            }
        }
        Op::MeanDeviation(p) => window(0, p as usize).max(now(1)),
        Op::VariableMean { least, most } => match window(0, least as usize).max(now(1)) {
            There::Yes if window(0, most as usize) != There::Yes => There::Perhaps,
            there => there,
        },
        op if op.is_recursive() && !matches!(op, Op::MaxIndex(_) | Op::MinIndex(_)) => all(),
        op => (0..inputs.len()).map(|input| window(input, op.look_back() + 1)).max().unwrap_or(There::Yes),
    }
}
