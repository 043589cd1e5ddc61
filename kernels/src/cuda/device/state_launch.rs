//! The launch of a kernel that advances resident states by some rows of bars.

use crate::Precision;
use crate::cuda::codegen::one_bar::{OneBar, ROWS_AT};
use crate::cuda::device::arguments::{GROUP_LANES, Launch};

impl OneBar {
    /// The launch over so many groups of [`GROUP_LANES`] symbols, of which none sees more than `bars_max` bars until another launch
    /// is made: tables reach that far. How many rows it is over is set by [`Launch::set_rows`].
    pub fn launch(&self, groups: usize, bars_max: usize) -> Launch {
        let kernel = &self.lowered.kernel;
        let mut rings = Vec::new();
        let mut row = 0;
        for ring in &self.lowered.values.rings {
            let slots = ring.slots.rows();
            rings.extend([row, slots].map(|n| u32::try_from(n).unwrap_or(u32::MAX)));
            row += slots;
        }
        let (table, ints) = self.lowered.tables_of(bars_max, None);
        let lanes = groups * GROUP_LANES;
        Launch {
            blocks: groups,
            threads: kernel.warps * GROUP_LANES,
            shared_bytes: kernel.series_rows * GROUP_LANES * size_of::<f64>(),
            out_len: kernel.outputs * lanes,
            scratch_len: self.rows() * lanes,
            table,
            tail: Vec::new(),
            chunks: None,
            out_stride: lanes as i64,
            scratch_slots: self.rows() as i64,
            ring_slots: 0,
            all: 0,
            reach: 0,
            precision: Precision::F64,
            doubles: self.lowered.values.doubles.clone(),
            wides: Vec::new(),
            ints,
            rings,
        }
    }
}

impl Launch {
    /// Makes it one over `rows` new bars of the symbols. `begins`: from no bar at all, whatever the states' memory holds.
    pub fn set_rows(&mut self, rows: usize, begins: bool) {
        if let Some(number) = self.ints.get_mut(ROWS_AT) {
            *number = i32::try_from(rows).unwrap_or(i32::MAX);
        }
        self.all = i32::from(begins);
    }
}
