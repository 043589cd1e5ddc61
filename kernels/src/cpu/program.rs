//! Runs a plan over one tile: which rows each node must compute, rings between the steps, strips through time.

use std::ops::Range;

use trawl_plan::Plan;
use trawl_plan::graph::{NodeId, Op};

use super::lanes::{AnyStep, Isa, LANES, Out, Row, View};
use super::steps::{begin, reads_back, step_for};
use crate::{Cancel, Cancelled, SymbolInput};

/// Bars per strip: eight lanes of one series are 4 KiB, so a dozen series stay in the first-level cache.
const STRIP_BARS: usize = 64;
/// Strips between two looks at whether the run is still wanted.
const STRIPS_PER_CANCEL_CHECK: usize = 16;

/// Series that the widest primitive reads.
const INPUTS_MAX: usize = 4;

/// Buffers that tiles of one plan use one after another.
pub(crate) struct Workspace<'p> {
    plan: &'p Plan,
    isa: Isa,
    /// Per node: its ring, its column's rows from `begins` on, or its constant.
    buffers: Vec<Vec<Row>>,
}

/// Up to [`LANES`] symbols, left-aligned.
pub(crate) struct Tile<'t, 'a> {
    pub symbols: &'t [&'t SymbolInput<'a>],
}

impl Tile<'_, '_> {
    fn rows(&self) -> usize {
        self.symbols.iter().map(|s| s.visible).max().unwrap_or(0)
    }
}

impl<'p> Workspace<'p> {
    pub fn new(plan: &'p Plan) -> Self {
        let nodes = plan.nodes();
        let mut history = vec![0usize; nodes.len()];
        for node in nodes {
            for input in &node.inputs {
                history[input.index()] = history[input.index()].max(reads_back(node.op));
            }
        }
        let buffers = nodes
            .iter()
            .zip(&history)
            .map(|(node, history)| match node.op {
                Op::Column(_) => Vec::new(),
                Op::Constant(bits) => vec![Row([bits.value(); LANES])],
                _ => vec![Row::NA; (history + STRIP_BARS).next_power_of_two()],
            })
            .collect();
        Self {
            plan,
            isa: Isa::detect(),
            buffers,
        }
    }

    /// First row to run of every node when `wanted` (node, row) and all later rows of them are asked for.
    fn begins(&self, wanted: impl Iterator<Item = (NodeId, usize)>) -> Vec<usize> {
        let nodes = self.plan.nodes();
        let mut needed = vec![usize::MAX; nodes.len()];
        for (node, row) in wanted {
            needed[node.index()] = needed[node.index()].min(row);
        }
        for (i, node) in nodes.iter().enumerate().rev() {
            if needed[i] == usize::MAX {
                continue;
            }
            needed[i] = begin(node.op, needed[i]);
            let read = needed[i].saturating_sub(reads_back(node.op));
            for input in &node.inputs {
                needed[input.index()] = needed[input.index()].min(read);
            }
        }
        needed
    }

    /// Runs the tile and calls `take(rows)` after each strip, when `value` may be asked for those rows.
    pub fn run(
        &mut self,
        tile: &Tile<'_, '_>,
        wanted_from: usize,
        cancel: &dyn Cancel,
        mut take: impl FnMut(&Self, Range<usize>),
    ) -> Result<(), Cancelled> {
        let rows = tile.rows();
        let begins = self.begins(self.plan.outputs().map(|id| (id, wanted_from)));
        self.load(tile, &begins, rows);
        let nodes = self.plan.nodes();
        let mut steps: Vec<Option<Box<dyn AnyStep>>> =
            nodes.iter().map(|n| step_for(n.op)).collect();
        let first = begins.iter().copied().min().unwrap_or(0).min(wanted_from);
        let mut strip = first / STRIP_BARS * STRIP_BARS;
        let mut count = 0usize;
        while strip < rows {
            if count.is_multiple_of(STRIPS_PER_CANCEL_CHECK) && cancel.cancelled() {
                return Err(Cancelled);
            }
            count += 1;
            let end = (strip + STRIP_BARS).min(rows);
            for (i, step) in steps.iter_mut().enumerate() {
                let (Some(step), start) = (step, begins[i].max(strip)) else {
                    continue;
                };
                if start >= end {
                    continue;
                }
                let (before, rest) = self.buffers.split_at_mut(i);
                let mut inputs = [View::EMPTY; INPUTS_MAX];
                for (slot, id) in inputs.iter_mut().zip(&nodes[i].inputs) {
                    *slot = view(
                        nodes[id.index()].op,
                        &before[id.index()],
                        begins[id.index()],
                    );
                }
                step.strip(
                    self.isa,
                    &inputs[..nodes[i].inputs.len()],
                    &mut Out::new(&mut rest[0]),
                    start..end,
                );
            }
            if end > wanted_from {
                take(self, wanted_from.max(strip)..end);
            }
            strip = end;
        }
        Ok(())
    }

    /// Transposes the columns' needed rows into lanes.
    fn load(&mut self, tile: &Tile<'_, '_>, begins: &[usize], rows: usize) {
        for (i, node) in self.plan.nodes().iter().enumerate() {
            let Op::Column(column) = node.op else {
                continue;
            };
            let base = begins[i].min(rows);
            let buffer = &mut self.buffers[i];
            buffer.clear();
            buffer.resize(rows - base, Row::NA);
            for (lane, symbol) in tile.symbols.iter().enumerate() {
                let visible = symbol.columns[usize::from(column)]
                    .get(base..symbol.visible)
                    .unwrap_or(&[]);
                for (row, value) in buffer.iter_mut().zip(visible) {
                    row.0[lane] = *value;
                }
            }
        }
    }

    /// The value of an output at a row of the strip that was just taken. NaNs are canonical.
    pub fn value(&self, id: NodeId, lane: usize, row: usize, rows: usize) -> f64 {
        let buffer = &self.buffers[id.index()];
        let value = match self.plan.nodes()[id.index()].op {
            // A column's buffer ends with the tile's last row.
            Op::Column(_) => buffer[buffer.len() - (rows - row)].0[lane],
            Op::Constant(_) => buffer[0].0[lane],
            _ => buffer[row & (buffer.len() - 1)].0[lane],
        };
        if value.is_nan() { f64::NAN } else { value }
    }
}

fn view(op: Op, buffer: &[Row], begin: usize) -> View<'_> {
    match op {
        Op::Column(_) => View::column(buffer, begin),
        _ => View::ring(buffer),
    }
}
