//! Few symbols with long histories: a symbol's bars are cut into chunks of one width, and a lane of a group is a chunk.
//! Steps, kernel frames, batches and transfers are the same as for whole symbols; see docs/adr/0019.
//!
//! A lane begins some rows before its chunk (its *lead*), so that steps with bounded look-back have their inputs, and
//! give the same bits as the CPU. A map describes what a chunk does to the state of a recursive step
//! (`OpFacts::chunk_words` numbers, `kernels/cuda/chunked.cuh`); a plan with a recursive step without a map is not cut.

use crate::Precision;
use crate::SymbolInput;
use crate::cuda::codegen::averages::Constants;
use crate::cuda::codegen::lower::{LowerError, forms};
use crate::cuda::codegen::step_abi::Table;
use crate::cuda::codegen::steps::{KernelStep, KernelSteps, StepInput};

/// Number of bars of a chunk. Divisible by the usual periods (5, 7, 10, 12, 14, 20, 21, 30, 60), so that the blocks of
/// windows begin in all lanes of a warp at once. A million bars are 1,191 lanes, 38 warps per part: the critical path
/// is 840 bars in each kernel and 1,190 maps per level, and the sum of both is smallest near this width.
pub const CHUNK_BARS: usize = 840;

/// Leads are multiples of it, so that plans with similar look-back share bars cached on the device.
const LEAD_STEP: usize = 60;

/// Number of entries before the lanes' first bars in the table read by kernels; `CHUNK_TABLE_HEAD` of chunk_lanes.cuh.
const TABLE_HEAD: usize = 2;

/// The chunks of a market.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunks {
    /// Number of bars of a chunk.
    pub width: usize,
    /// Number of rows of a lane before its chunk.
    pub lead: usize,
    /// Per lane: the bar number of its row 0; in a symbol's first chunk it is negative, by the lead.
    pub first_bar: Vec<i32>,
}

impl Chunks {
    /// The table read by kernels.
    pub(crate) fn table(&self) -> Vec<f64> {
        let head: [f64; TABLE_HEAD] = [self.width as f64, self.lead as f64];
        let mut table = head.to_vec();
        table.extend(self.first_bar.iter().copied().map(f64::from));
        table
    }
}

/// How symbols are cut into chunks: width of a chunk and lead, in bars.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cut {
    /// Bars of a chunk, at least 1.
    pub width: usize,
    /// At most the width.
    pub lead: usize,
}

/// A lane: its symbol, and the bars of its rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lane {
    /// Index of the symbol.
    pub symbol: usize,
    /// Bar number of row 0.
    pub first_bar: i64,
    /// Number of rows: the lead and the bars of its chunk.
    pub rows: usize,
}

impl Lane {
    /// The bar of a row, if the row belongs to the lane's own chunk.
    pub fn own_bar(&self, row: usize, lead: usize) -> Option<usize> {
        usize::try_from(self.first_bar + row as i64).ok().filter(|_| row >= lead && row < self.rows)
    }
}

impl Cut {
    /// The lanes of symbols with `bars` bars each, in order of symbols and chunks.
    pub fn lanes(&self, bars: impl IntoIterator<Item = usize>) -> Vec<Lane> {
        let mut lanes = Vec::new();
        for (symbol, bars) in bars.into_iter().enumerate() {
            for first in (0..bars).step_by(self.width) {
                let rows = self.lead + self.width.min(bars - first);
                lanes.push(Lane { symbol, first_bar: first as i64 - self.lead as i64, rows });
            }
        }
        lanes
    }

    /// Columns of each symbol's first lane: its first bars, after NA rows.
    pub fn heads(&self, symbols: &[SymbolInput<'_>]) -> Vec<Vec<Vec<f64>>> {
        let head = |column: &&[f64], visible: usize| {
            let bars = self.width.min(visible).min(column.len());
            let mut head = vec![f64::NAN; self.lead];
            head.extend_from_slice(&column[..bars]);
            head
        };
        let of = |s: &SymbolInput<'_>| s.columns.iter().map(|column| head(column, s.visible)).collect();
        symbols.iter().map(of).collect()
    }

    /// Each lane as a separate symbol.
    pub fn pieces<'a>(
        &self,
        symbols: &[SymbolInput<'a>],
        heads: &'a [Vec<Vec<f64>>],
        lanes: &[Lane],
    ) -> Vec<SymbolInput<'a>> {
        let piece = |lane: &Lane| {
            let columns = match usize::try_from(lane.first_bar) {
                Ok(first) => {
                    let slice = |column: &&'a [f64]| column.get(first..first + lane.rows).unwrap_or_default();
                    symbols[lane.symbol].columns.iter().map(slice).collect()
                }
                Err(_) => heads[lane.symbol].iter().map(Vec::as_slice).collect(),
            };
            SymbolInput { columns, visible: lane.rows }
        };
        lanes.iter().map(piece).collect()
    }
}

/// Steps ordered for computation over chunks: steps that do not depend on recursive ones, the recursive steps over
/// those, the steps that depend on these, and so on.
pub(crate) struct Levels {
    pub steps: KernelSteps,
    /// Per level: end of its non-recursive steps, and end of its recursive steps.
    pub ends: Vec<(usize, usize)>,
    /// Per step: the first row at which it is valid, whatever came before row 0.
    pub right_from: Vec<usize>,
    pub lead: usize,
}

impl Levels {
    /// # Errors
    /// [`LowerError::Primitive`]; [`LowerError::Serial`] for a step without a map, or if the plan looks back too far.
    pub fn of(steps: &KernelSteps) -> Result<Self, LowerError> {
        let found = forms(steps, Constants::None, Precision::F64)?;
        if let Some(step) = steps.steps.iter().find(|s| s.is_recursive() && s.op.facts().chunk_words().is_none()) {
            return Err(LowerError::Serial(format!("{} goes through bars one after another", step.op.canonical())));
        }
        if found.iter().any(|form| matches!(form.table, Some(Table::Growth { .. }))) {
            return Err(LowerError::Serial("its table is over all bars".to_owned()));
        }
        let mut level = vec![0usize; steps.steps.len()];
        for (at, step) in steps.steps.iter().enumerate() {
            // The output of a recursive step is available from the next level on.
            let from = |read: usize| level[read] + usize::from(steps.steps[read].is_recursive());
            level[at] = step.inputs.iter().filter_map(|input| input.step()).map(from).max().unwrap_or(0);
        }
        let mut order: Vec<usize> = (0..steps.steps.len()).collect();
        order.sort_by_key(|at| (level[*at], steps.steps[*at].is_recursive()));
        let mut place = vec![0; order.len()];
        order.iter().enumerate().for_each(|(new, old)| place[*old] = new);
        let moved = |source: &StepInput| match *source {
            StepInput::Step(step) => StepInput::Step(place[step]),
            other => other,
        };
        let step = |old: &usize| {
            let step = &steps.steps[*old];
            KernelStep { op: step.op, inputs: step.inputs.iter().map(moved).collect(), averages: step.averages.clone() }
        };
        let sorted: Vec<KernelStep> = order.iter().map(step).collect();
        let back = |at: usize| found[order[at]].back;
        let ends = (0..=level.iter().copied().max().unwrap_or(0)).map(|wanted| {
            let others = order.partition_point(|o| (level[*o], steps.steps[*o].is_recursive()) <= (wanted, false));
            (others, order.partition_point(|old| level[*old] <= wanted))
        });
        let ends = ends.collect();
        let mut right_from = vec![0usize; sorted.len()];
        for (at, step) in sorted.iter().enumerate() {
            let inputs = step.inputs.iter().filter_map(|input| input.step()).map(|read| right_from[read]).max();
            right_from[at] = inputs.unwrap_or(0).saturating_add(back(at));
        }
        let longest = right_from.iter().copied().max().unwrap_or(0);
        if longest > CHUNK_BARS {
            let reason = format!("it looks back {longest} bars, and chunks are of {CHUNK_BARS}");
            return Err(LowerError::Serial(reason));
        }
        let lead = longest.next_multiple_of(LEAD_STEP).min(CHUNK_BARS);
        let outputs = steps.outputs.iter().map(moved).collect();
        let steps = KernelSteps { columns: steps.columns, steps: sorted, outputs };
        Ok(Self { steps, ends, right_from, lead })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bar_is_of_one_lane() {
        let cut = Cut { width: 10, lead: 4 };
        let lanes = cut.lanes([1, 9, 0, 10, 11, 40]);
        for (symbol, bars) in [1, 9, 0, 10, 11, 40].into_iter().enumerate() {
            let own = lanes.iter().filter(|lane| lane.symbol == symbol);
            let seen: Vec<usize> = own.flat_map(|l| (0..l.rows).filter_map(|row| l.own_bar(row, cut.lead))).collect();
            assert_eq!(seen, (0..bars).collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_lane_holds_the_bars_that_it_says() {
        let bars: Vec<f64> = (0..37).map(f64::from).collect();
        let symbols = [SymbolInput { columns: vec![&bars], visible: 35 }];
        for lead in [0, 3, 10] {
            let cut = Cut { width: 10, lead };
            let (lanes, heads) = (cut.lanes([35]), cut.heads(&symbols));
            for (lane, piece) in lanes.iter().zip(cut.pieces(&symbols, &heads, &lanes)) {
                assert_eq!((piece.visible, piece.columns[0].len()), (lane.rows, lane.rows));
                for (row, x) in piece.columns[0].iter().enumerate() {
                    let bar = lane.first_bar + row as i64;
                    assert!(if bar < 0 { x.is_nan() } else { *x == bar as f64 }, "lead {lead}, bar {bar}");
                }
            }
        }
    }
}
