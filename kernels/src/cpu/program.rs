//! Runs a program over one tile: which rows each node must compute, rings between the steps, strips through time.

use std::ops::Range;

use trawl_plan::Program;
use trawl_plan::graph::{Node, NodeId, Op};

use super::lanes::{AnyStep, Isa, LANES, Out, Row, View};
use super::steps::{begin, reads_back, step_for, tail_rows};
use super::tile::Tile;
use crate::{Cancel, Cancelled};

/// Bars per strip: eight lanes of one series are 4 KiB, so a dozen series stay in the first-level cache.
const STRIP_BARS: usize = 64;

/// Series that the widest primitive reads.
const INPUTS_MAX: usize = 4;

/// Buffers that tiles of one program use one after another.
pub(crate) struct Workspace<'p> {
    program: &'p Program,
    isa: Isa,
    /// Rows that each node's ring must hold: what its users read back, and a strip.
    wanted: Vec<usize>,
    /// Per node: its ring, or its constant; empty for columns, which are read in the tile.
    buffers: Vec<Vec<Row>>,
}

/// Rows that each node's ring must hold.
fn ring_rows(nodes: &[Node]) -> Vec<usize> {
    let mut history = vec![0usize; nodes.len()];
    for node in nodes {
        for input in &node.inputs {
            history[input.index()] = history[input.index()].max(reads_back(node.op));
        }
    }
    history.into_iter().map(|bars| (bars + STRIP_BARS).next_power_of_two()).collect()
}

/// Rows of the longest ring that a tile of `bars` bars needs.
fn longest_ring(bars: usize) -> usize {
    bars.max(STRIP_BARS).next_power_of_two()
}

/// Bytes that one thread needs beside the bars to run `program` over histories of up to `bars` bars.
pub(crate) fn workspace_bytes(program: &Program, bars: usize) -> u64 {
    let rows = program.nodes().iter().zip(ring_rows(program.nodes())).map(|(node, ring)| match node.op {
        Op::Column(_) | Op::Constant(_) => 0,
        op => (ring.min(longest_ring(bars)) + tail_rows(op, bars)) as u64,
    });
    rows.sum::<u64>() * size_of::<Row>() as u64
}

impl<'p> Workspace<'p> {
    pub fn new(program: &'p Program) -> Self {
        let nodes = program.nodes();
        let wanted = ring_rows(nodes);
        let constant = |op| match op {
            Op::Constant(bits) => vec![Row([bits.value(); LANES])],
            _ => Vec::new(),
        };
        let buffers = nodes.iter().map(|node| constant(node.op)).collect();
        Self { program, isa: Isa::detect(), wanted, buffers }
    }

    /// Makes the rings long enough for a tile; never longer than the tile, so that a long period over short histories
    /// costs no memory.
    fn reserve(&mut self, rows: usize) {
        let whole = longest_ring(rows);
        for ((node, wanted), buffer) in self.program.nodes().iter().zip(&self.wanted).zip(&mut self.buffers) {
            let rows = (*wanted).min(whole);
            if !matches!(node.op, Op::Column(_) | Op::Constant(_)) && buffer.len() < rows {
                buffer.resize(rows, Row::NA);
            }
        }
    }

    /// First row to run of every node when all outputs are wanted from `wanted_from` on.
    fn begins(&self, wanted_from: usize) -> Vec<usize> {
        let nodes = self.program.nodes();
        let mut needed = vec![usize::MAX; nodes.len()];
        for node in &self.program.outputs {
            needed[node.index()] = wanted_from;
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

    /// The first bar that each of the program's inputs must hold when all outputs are wanted from `wanted_from` on.
    pub fn column_begins(&self, wanted_from: usize) -> Vec<usize> {
        let begins = self.begins(wanted_from);
        let mut columns = vec![wanted_from; self.program.inputs.len()];
        for (node, begin) in self.program.nodes().iter().zip(begins) {
            if let Op::Column(column) = node.op {
                columns[usize::from(column)] = begin.min(wanted_from);
            }
        }
        columns
    }

    /// Runs the tile, whose column `columns[i]` is the program's input i, and calls `take(rows)` after each strip, when `value` may be asked for those rows.
    pub fn run(
        &mut self,
        tile: &Tile,
        columns: &[usize],
        wanted_from: usize,
        cancel: &dyn Cancel,
        mut take: impl FnMut(&Self, Range<usize>),
    ) -> Result<(), Cancelled> {
        let rows = tile.rows();
        let begins = self.begins(wanted_from);
        self.reserve(rows);
        let nodes = self.program.nodes();
        let mut steps: Vec<Option<Box<dyn AnyStep>>> = nodes.iter().map(|n| step_for(n.op, rows)).collect();
        let first = begins.iter().copied().min().unwrap_or(0).min(wanted_from);
        let mut strip = first / STRIP_BARS * STRIP_BARS;
        while strip < rows {
            if cancel.cancelled() {
                return Err(Cancelled);
            }
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
                    *slot = match nodes[id.index()].op {
                        Op::Column(column) => View::column(tile.column(columns[usize::from(column)])),
                        _ => View::ring(&before[id.index()]),
                    };
                }
                step.strip(self.isa, &inputs[..nodes[i].inputs.len()], &mut Out::new(&mut rest[0]), start..end);
            }
            if end > wanted_from {
                take(self, wanted_from.max(strip)..end);
            }
            strip = end;
        }
        Ok(())
    }

    /// The value of an output at a row of the strip that was just taken. NaNs are canonical.
    pub fn value(&self, tile: &Tile, columns: &[usize], id: NodeId, lane: usize, row: usize) -> f64 {
        let buffer = &self.buffers[id.index()];
        let row = match self.program.nodes()[id.index()].op {
            Op::Column(column) => View::column(tile.column(columns[usize::from(column)])).row(row),
            _ => View::ring(buffer).row(row),
        };
        if row.0[lane].is_nan() { f64::NAN } else { row.0[lane] }
    }
}
