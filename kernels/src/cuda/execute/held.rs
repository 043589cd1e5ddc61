//! Outputs that stay on the device in one block, and which value is in which cell of them.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use crate::Precision;
use crate::cuda::device::Fault;
use crate::cuda::device::arguments::{GROUP_LANES, Market, Wanted};
use crate::cuda::execute::cells::{numbers_of, row_cells};
use crate::cuda::execute::programs::Ready;
use crate::cuda::execute::transfer::DeviceBuffer;

/// Which value is in which cell of the outputs of a batch.
#[derive(Clone, Copy)]
pub(super) struct RowsOf<'a> {
    pub precision: Precision,
    pub market: &'a Market,
    /// Per lane: part and symbol of the request.
    pub owners: &'a [Option<(usize, usize)>],
    pub wanted: Wanted,
}

impl RowsOf<'_> {
    /// Reads cells of these outputs, which follow each other, from cell `first` on: row by row.
    pub fn read(
        &self,
        outputs: &[usize],
        first: usize,
        cells: &[u64],
        value: &mut dyn FnMut((usize, usize), usize, usize, f64),
    ) {
        let rows = self.market.output_stride(self.wanted) / GROUP_LANES;
        let mut group = 0;
        let row_cells = row_cells(self.precision);
        for (number, cells) in cells.chunks(row_cells).enumerate() {
            let at = first / row_cells + number;
            let (output, row) = (outputs[at / rows], at % rows);
            match self.wanted {
                Wanted::Last => group = row,
                Wanted::All => {
                    if row == 0 {
                        group = 0;
                    }
                    let behind =
                        |group: usize| self.market.first_row.get(group + 1).is_some_and(|end| row as i64 >= *end);
                    while behind(group) {
                        group += 1;
                    }
                }
            }
            let first = self.market.first_row[group] as usize;
            for (lane, x) in numbers_of(self.precision, cells).into_iter().enumerate() {
                let owner = self.owners[group * GROUP_LANES + lane];
                let visible = self.market.visible[group * GROUP_LANES + lane] as usize;
                let bar = if self.wanted == Wanted::All { row - first } else { visible.wrapping_sub(1) };
                if let Some(owner) = owner.filter(|_| bar < visible) {
                    value(owner, output, bar, x);
                }
            }
        }
    }
}

/// Outputs of a batch that stay on the device.
#[derive(Debug)]
pub(super) struct HeldBatch {
    pub precision: Precision,
    pub market: Market,
    pub owners: Vec<Option<(usize, usize)>>,
    pub wanted: Wanted,
    /// First cell in the block, number of cells, and the outputs that they hold.
    pub extents: Vec<(usize, usize, Vec<usize>)>,
}

impl HeldBatch {
    /// Cells of one output.
    pub fn output_cells(&self) -> usize {
        self.market.output_stride(self.wanted) / GROUP_LANES * row_cells(self.precision)
    }

    /// First cell in the block, number of cells and outputs of what is not left out, as few runs as possible.
    pub fn runs(&self, left_out: &Range<usize>) -> Vec<(usize, usize, &[usize])> {
        let each = self.output_cells();
        let mut runs = Vec::new();
        for (at, _, outputs) in &self.extents {
            let mut number = 0;
            for run in outputs.chunk_by(|one, other| left_out.contains(one) == left_out.contains(other)) {
                if !left_out.contains(&run[0]) {
                    runs.push((at + number * each, run.len() * each, run));
                }
                number += run.len();
            }
        }
        runs
    }

    /// First cell in the block of an output that is held.
    pub fn place(&self, output: usize) -> Option<usize> {
        self.extents.iter().find_map(|(at, _, outputs)| {
            let number = outputs.iter().position(|held| *held == output)?;
            Some(at + number * self.output_cells())
        })
    }

    pub fn rows(&self) -> RowsOf<'_> {
        let Self { precision, market, owners, wanted, .. } = self;
        RowsOf { precision: *precision, market, owners, wanted: *wanted }
    }
}

#[derive(Debug, Default)]
pub(super) struct HeldState {
    used: usize,
    pub batches: Vec<HeldBatch>,
    pub ready: Option<Arc<Ready>>,
}

/// The outputs of a device's share, in one block.
#[derive(Debug)]
pub(super) struct Holding {
    pub block: Arc<DeviceBuffer>,
    state: Mutex<HeldState>,
}

impl Holding {
    pub fn new(block: Arc<DeviceBuffer>) -> Self {
        Self { block, state: Mutex::default() }
    }

    /// Everything that is held.
    pub fn take(&self) -> HeldState {
        std::mem::take(&mut *self.state())
    }

    fn state(&self) -> std::sync::MutexGuard<'_, HeldState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The kernels whose outputs are held.
    pub fn begin(&self, ready: &Arc<Ready>) {
        self.state().ready = Some(Arc::clone(ready));
    }

    /// A place of so many cells in the block.
    pub fn reserve(&self, cells: usize) -> Result<usize, Fault> {
        let mut state = self.state();
        let at = state.used;
        let end = at.checked_add(cells).filter(|end| *end <= self.block.memory().cells());
        state.used = end.ok_or_else(|| Fault::Failed("outputs beyond the block of their share".to_owned()))?;
        Ok(at)
    }

    /// Outputs that are completely there.
    pub fn keep(&self, batch: HeldBatch) {
        self.state().batches.push(batch);
    }
}
