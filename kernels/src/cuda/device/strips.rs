//! Bars as a device lays them out itself: strips of rows are described to it, with where each lane's bars are, in its own memory or in
//! the host's.

use crate::cpu::PADDING;
use crate::cuda::codegen::number::{number_bytes, row_bytes};
use crate::cuda::device::CELL_BYTES;
use crate::cuda::device::arguments::{GROUP_LANES, Market};
use crate::{Precision, SymbolInput};

/// Most rows of a strip, which is what one block lays out: 128 KiB.
pub(crate) const STRIP_ROWS: usize = 512;

/// Cells in which a strip is described: an address, the number of rows, and of each lane an address and the number of bars in half a cell.
pub(crate) const STRIP_CELLS: usize = 2 + GROUP_LANES + GROUP_LANES / 2;

/// Rows of one group of a column.
#[derive(Debug, Clone)]
pub(crate) struct Strip<'a> {
    /// The first one, among the rows of all groups.
    first_row: usize,
    rows: usize,
    /// Of each lane: its bars. The rest of its rows is padding.
    bars: [&'a [f64]; GROUP_LANES],
}

impl Market {
    /// The strips of a column, from its first row on.
    pub(crate) fn strips<'a>(&self, symbols: &[SymbolInput<'a>], column: usize) -> impl Iterator<Item = Strip<'a>> {
        let lanes = self.bars_of_lanes(symbols, column, &(0..self.groups()));
        (0..self.groups()).flat_map(move |group| {
            let (begin, end) = (self.first_row[group] as usize, self.first_row[group + 1] as usize);
            let all: [&[f64]; GROUP_LANES] = std::array::from_fn(|lane| lanes[group * GROUP_LANES + lane]);
            (begin..end).step_by(STRIP_ROWS).map(move |first_row| {
                let rows = STRIP_ROWS.min(end - first_row);
                let from = first_row - begin;
                let bars = all.map(|bars| &bars[from.min(bars.len())..(from + rows).min(bars.len())]);
                Strip { first_row, rows, bars }
            })
        })
    }
}

/// Cells of so many numbers.
fn cells_of(numbers: usize, precision: Precision) -> usize {
    (numbers * number_bytes(precision)).div_ceil(CELL_BYTES)
}

impl Strip<'_> {
    /// Cells of its bars one lane after the other, each from a new cell on.
    pub fn bar_cells(&self, precision: Precision) -> usize {
        self.bars.iter().map(|bars| cells_of(bars.len(), precision)).sum()
    }

    /// Bytes of its bars as the host has them.
    pub fn host_bytes(&self) -> u64 {
        self.bars.iter().map(|bars| size_of_val(*bars) as u64).sum()
    }

    /// Writes its bars one lane after the other, into so many cells.
    pub fn write_bars(&self, to: &mut [u64], precision: Precision) {
        let mut rest = to;
        for bars in self.bars {
            let (own, others) = std::mem::take(&mut rest).split_at_mut(cells_of(bars.len(), precision));
            rest = others;
            match precision {
                Precision::F64 => own.iter_mut().zip(bars).for_each(|(to, x)| *to = x.to_bits()),
                Precision::F32 => {
                    // SAFETY: any bits are numbers of 4 bytes, and cells are aligned for them.
                    let (_, numbers, _) = unsafe { own.align_to_mut::<f32>() };
                    numbers.iter_mut().zip(bars).for_each(|(to, x)| *to = *x as f32);
                }
            }
        }
    }

    /// Describes it to the kernel: `column` is the address of the column's first row, `bars` that of its bars as
    /// [`Self::write_bars`] writes them or, where there is none, the kernel reads the host's memory.
    pub fn describe(&self, to: &mut [u64; STRIP_CELLS], column: u64, bars: Option<u64>, precision: Precision) {
        let (head, lanes) = to.split_at_mut(2);
        let (addresses, counts) = lanes.split_at_mut(GROUP_LANES);
        head[0] = column + (self.first_row * row_bytes(precision)) as u64;
        head[1] = self.rows as u64;
        let mut next = bars;
        for (address, bars) in addresses.iter_mut().zip(self.bars) {
            *address = next.unwrap_or(bars.as_ptr() as u64);
            next = next.map(|at| at + (cells_of(bars.len(), precision) * CELL_BYTES) as u64);
        }
        for (cell, pair) in counts.iter_mut().zip(self.bars.chunks(2)) {
            let count = |at: usize| pair[at].len() as u64;
            *cell = count(0) | count(1) << u32::BITS;
        }
    }
}

/// The bits of padding, as the kernel stores them.
pub(crate) fn padding(precision: Precision) -> u64 {
    match precision {
        Precision::F64 => PADDING.to_bits(),
        Precision::F32 => u64::from((PADDING as f32).to_bits()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What the kernel does with a strip, over a column whose address is 0 and bars that lie in `landing`, also from address 0 on.
    fn lay(strip: &[u64], landing: &[u64], column: &mut [u64]) {
        let (head, lanes) = strip.split_at(2);
        let (from, bars) = lanes.split_at(GROUP_LANES);
        let number = |cells: &[u64], at: usize| (cells[at / 2] >> (32 * (at % 2))) as u32 as usize;
        let first = head[0] as usize / CELL_BYTES;
        for (row, to) in column[first..first + head[1] as usize * GROUP_LANES].chunks_mut(GROUP_LANES).enumerate() {
            for (lane, to) in to.iter_mut().enumerate() {
                let is_there = row < number(bars, lane);
                let at = || landing[from[lane] as usize / CELL_BYTES + row];
                *to = if is_there { at() } else { padding(Precision::F64) };
            }
        }
    }

    proptest! {
        /// Whatever the groups: as the host lays them, by as many cells as there are bars.
        #[test]
        fn strips_have_all_bars_of_a_column(
            groups in prop::collection::vec(prop::collection::vec(0usize..1_200, 1..=GROUP_LANES), 1..4),
        ) {
            let bars: Vec<Vec<Vec<f64>>> = groups.iter().enumerate().map(|(group, symbols)| {
                symbols.iter().enumerate().map(|(lane, bars)| {
                    (0..*bars).map(|bar| (group * 100_000_000 + lane * 1_000_000 + bar) as f64).collect()
                }).collect()
            }).collect();
            let inputs: Vec<Vec<SymbolInput<'_>>> = bars.iter().map(|group| {
                group.iter().map(|bars| SymbolInput { columns: vec![bars], visible: bars.len() }).collect()
            }).collect();
            let market = Market::of_groups(inputs.iter().map(Vec::as_slice));
            let symbols: Vec<SymbolInput<'_>> = inputs.concat();
            let (mut landing, mut column) = (Vec::new(), vec![7; market.rows() * GROUP_LANES]);
            for strip in market.strips(&symbols, 0) {
                let (at, cells) = (landing.len(), strip.bar_cells(Precision::F64));
                landing.resize(at + cells, 7);
                strip.write_bars(&mut landing[at..], Precision::F64);
                let mut described = [7; STRIP_CELLS];
                strip.describe(&mut described, 0, Some((at * CELL_BYTES) as u64), Precision::F64);
                lay(&described, &landing, &mut column);
                prop_assert!(cells <= STRIP_ROWS * GROUP_LANES && strip.host_bytes() == (cells * CELL_BYTES) as u64);
            }
            prop_assert_eq!(landing.len(), groups.iter().flatten().sum::<usize>());
            let mut expected = vec![0; column.len()];
            market.lay(&symbols, 0, 0, &mut expected, f64::to_bits);
            prop_assert!(column == expected);
        }
    }
}
