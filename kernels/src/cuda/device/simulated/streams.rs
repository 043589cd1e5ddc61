//! The state of a simulated device, and the execution of its streams when a mark is waited for.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Debug;
use std::time::Duration;

use super::{ADDRESSES_APART, Simulated};
use crate::cuda::codegen::lower::Lowered;
use crate::cuda::device::CELL_BYTES;
use crate::cuda::device::arguments::{Launch, Pointers, SCATTERED};
use crate::cuda::device::launcher::Bound;

pub(super) enum StreamOp {
    CopyIn { from: (u64, usize), to: u64, cells: usize },
    CopyWithin { from: u64, to: u64, cells: usize },
    CopyOut { from: u64, to: (u64, usize), cells: usize },
    Launch(Box<(Lowered, Launch, Pointers)>, bool),
    Release(u64),
    Mark(u64),
}

#[derive(Default)]
pub(super) struct Queue {
    pub work: VecDeque<StreamOp>,
    /// Time at which all its work is done.
    pub end: Duration,
}

pub(super) struct MarkPlace {
    pub stream: u64,
    pub at: Duration,
}

#[derive(Default)]
pub(super) struct State {
    pub memory: BTreeMap<u64, Vec<u64>>,
    pub used_bytes: u64,
    pub most_bytes: u64,
    /// Released allocations that are kept, by size in cells.
    pub kept: BTreeMap<usize, u64>,
    pub trims: u64,
    pub staging: Vec<Vec<u64>>,
    pub streams: Vec<Queue>,
    pub marks: BTreeMap<u64, MarkPlace>,
    /// End of the copies in, kernels and copies out enqueued so far.
    pub engines: [Duration; 3],
    pub now: Duration,
    pub allocations: u64,
    pub launches: u64,
    pub copies_in: u64,
    pub copied_in_bytes: u64,
    pub compiled: u64,
    pub next: u64,
    pub lost: Option<String>,
    pub held: BTreeSet<u128>,
    pub refused: BTreeSet<u128>,
    pub functions: Vec<String>,
}

impl Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State").field("now", &self.now).field("used_bytes", &self.used_bytes).finish_non_exhaustive()
    }
}

impl State {
    pub(super) fn kept_bytes(&self) -> u64 {
        self.kept.iter().map(|(cells, pieces)| (cells * CELL_BYTES) as u64 * pieces).sum()
    }
}

impl Simulated {
    /// Executes the work of a stream up to a mark.
    pub(super) fn catch_up(&self, state: &mut State, stream: u64, mark: u64) {
        while let Some(work) = state.streams[stream as usize].work.pop_front() {
            let done = match work {
                StreamOp::Mark(reached) if reached == mark => return,
                StreamOp::Mark(_) => Ok(()),
                StreamOp::CopyIn { from, to, cells } => {
                    let values = state.staging[from.0 as usize][from.1..from.1 + cells].to_vec();
                    state.copied_in_bytes += (cells * CELL_BYTES) as u64;
                    state.copies_in += 1;
                    cells_at(&mut state.memory, to, cells).map(|to| to.copy_from_slice(&values))
                }
                StreamOp::CopyWithin { from, to, cells } => {
                    let values = cells_at(&mut state.memory, from, cells).map(|from| from.to_vec());
                    values
                        .and_then(|values| cells_at(&mut state.memory, to, cells).map(|to| to.copy_from_slice(&values)))
                }
                StreamOp::CopyOut { from, to, cells } => {
                    let State { memory, staging, .. } = state;
                    let to = &mut staging[to.0 as usize][to.1..to.1 + cells];
                    cells_at(memory, from, cells).map(|from| to.copy_from_slice(from))
                }
                StreamOp::Launch(_, true) => Err("an illegal memory access was encountered".to_owned()),
                StreamOp::Launch(launch, false) => self.run(&mut state.memory, &launch),
                StreamOp::Release(address) => {
                    state.memory.remove(&address);
                    Ok(())
                }
            };
            if let Err(lost) = done {
                state.lost = Some(lost);
                return;
            }
        }
    }

    fn run(&self, memory: &mut BTreeMap<u64, Vec<u64>>, launch: &(Lowered, Launch, Pointers)) -> Result<(), String> {
        let (lowered, launch, pointers) = launch;
        // Taken out of the map, so that it can be written while others are read.
        let mut out = taken(memory, pointers.out, launch.out_len)?;
        let mut scratch = taken(memory, pointers.scratch, launch.scratch_len)?;
        let groups = launch.blocks;
        let first_row = numbers_of(cells_at(memory, pointers.first_row, groups + 1)?);
        let visible = halves_of(cells_at(memory, pointers.visible, groups * 16)?);
        let tail = halves_of(cells_at(memory, pointers.tail, groups.div_ceil(2))?);
        let rows = usize::try_from(first_row[groups]).map_err(|e| e.to_string())?;
        let memory_of = &*memory;
        let read = |address: u64, cells: usize| -> Result<Vec<f64>, String> {
            Ok(doubles_of(read_at(memory_of, address, cells)?))
        };
        let of_rows = pointers.columns.len() - lowered.map_columns.min(pointers.columns.len());
        let column = |(number, address): (usize, &u64)| -> Result<Vec<f64>, String> {
            if address & SCATTERED == 0 {
                return read(*address, 32 * if number < of_rows { rows } else { groups });
            }
            let of_groups = read_at(memory_of, address - SCATTERED, groups)?.iter().zip(first_row.windows(2));
            let parts = of_groups.map(|(at, ends)| read(*at, (ends[1] - ends[0]) as usize * 32));
            Ok(parts.collect::<Result<Vec<_>, _>>()?.concat())
        };
        let columns = pointers.columns.iter().enumerate().map(column).collect::<Result<Vec<_>, _>>()?;
        let table = read(pointers.table, launch.table.len())?;
        let (mut outputs, mut rings) = (doubles_of(&out.1), doubles_of(&scratch.1));
        let bound = Bound {
            columns: columns.iter().map(Vec::as_slice).collect(),
            out: &mut outputs[out.2..out.2 + launch.out_len],
            scratch: &mut rings[scratch.2..scratch.2 + launch.scratch_len],
            table: &table,
            first_row: &first_row,
            visible: &visible,
            tail: &tail[..groups],
        };
        let done = self.launcher.run(lowered, launch, bound);
        out.1.iter_mut().zip(&outputs).for_each(|(cell, x)| *cell = x.to_bits());
        scratch.1.iter_mut().zip(&rings).for_each(|(cell, x)| *cell = x.to_bits());
        for (address, cells, _) in [out, scratch] {
            if address != u64::MAX {
                memory.insert(address, cells);
            }
        }
        done
    }
}

fn numbers_of(cells: &[u64]) -> Vec<i64> {
    cells.iter().map(|x| x.cast_signed()).collect()
}

fn doubles_of(cells: &[u64]) -> Vec<f64> {
    cells.iter().map(|x| f64::from_bits(*x)).collect()
}

fn halves_of(cells: &[u64]) -> Vec<i32> {
    cells.iter().flat_map(|x| x.to_ne_bytes().as_chunks::<4>().0.to_vec()).map(i32::from_ne_bytes).collect()
}

/// Takes the allocation of an address out of the map; returns its base, its cells, and the index of the addressed cell.
fn taken(memory: &mut BTreeMap<u64, Vec<u64>>, address: u64, cells: usize) -> Result<(u64, Vec<u64>, usize), String> {
    if cells == 0 {
        return Ok((u64::MAX, Vec::new(), 0));
    }
    let base = cells_at(memory, address, cells).map(|_| address - address % ADDRESSES_APART)?;
    let all = memory.remove(&base).unwrap_or_default();
    Ok((base, all, ((address - base) as usize) / CELL_BYTES))
}

fn cells_at(memory: &mut BTreeMap<u64, Vec<u64>>, address: u64, cells: usize) -> Result<&mut [u64], String> {
    let held = memory.range_mut(..=address).next_back();
    let found = held.and_then(|(base, all)| {
        let first = ((address - base) as usize) / CELL_BYTES;
        all.get_mut(first..first.checked_add(cells)?)
    });
    found.ok_or_else(|| "an illegal memory access was encountered".to_owned())
}

fn read_at(memory: &BTreeMap<u64, Vec<u64>>, address: u64, cells: usize) -> Result<&[u64], String> {
    let held = memory.range(..=address).next_back();
    let found = held.and_then(|(base, all)| {
        let first = ((address - base) as usize) / CELL_BYTES;
        all.get(first..first.checked_add(cells)?)
    });
    found.ok_or_else(|| "an illegal memory access was encountered".to_owned())
}
