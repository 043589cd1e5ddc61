//! What lies in the cells of a batch: a launch's small arguments, the bars of columns, values.

use crate::cuda::codegen::number::row_bytes;
use crate::cuda::device::CELL_BYTES;
use crate::cuda::device::arguments::{GROUP_LANES, Launch, Market};
use crate::cuda::device::strips::Strip;
use crate::{Precision, SymbolInput};

/// Maximum cells laid out by a single thread: 2 MiB.
const LAID_ALONE_MAX: usize = 1 << 18;
/// Number of threads for more cells.
const LAYING_THREADS: usize = 4;

/// Offsets, in cells, within the small arguments that every batch copies in.
pub(super) struct Numbers {
    pub cells: Vec<u64>,
    pub first_row: usize,
    pub visible: usize,
}

impl Numbers {
    pub fn of(market: &Market) -> Self {
        let mut cells: Vec<u64> = market.first_row.iter().map(|row| row.cast_unsigned()).collect();
        let visible = cells.len();
        cells.extend(halves(&market.visible));
        Self { cells, first_row: 0, visible }
    }

    /// Adds a table of addresses.
    pub fn add_table(&mut self, addresses: impl Iterator<Item = u64>) -> usize {
        let table = self.cells.len();
        self.cells.extend(addresses);
        table
    }

    /// Adds the arguments of a launch; returns the offsets of its tails and its table.
    pub fn add(&mut self, launch: &Launch) -> (usize, usize) {
        let tail = self.cells.len();
        self.cells.extend(halves(&launch.tail));
        let table = self.cells.len();
        self.cells.extend(launch.table.iter().map(|x| x.to_bits()));
        (tail, table)
    }
}

/// Packs two integers per cell.
fn halves(numbers: &[i32]) -> impl Iterator<Item = u64> {
    numbers.chunks(2).map(|pair| {
        let mut bytes = [0u8; CELL_BYTES];
        for (to, x) in bytes.chunks_exact_mut(4).zip(pair) {
            to.copy_from_slice(&x.to_ne_bytes());
        }
        u64::from_ne_bytes(bytes)
    })
}

/// Cells of one row: one bar of a group.
pub(super) fn row_cells(precision: Precision) -> usize {
    row_bytes(precision) / CELL_BYTES
}

/// The numbers of a row of cells.
pub(super) fn numbers_of(precision: Precision, cells: &[u64]) -> [f64; GROUP_LANES] {
    let mut numbers = [f64::NAN; GROUP_LANES];
    match precision {
        Precision::F64 => numbers.iter_mut().zip(cells).for_each(|(x, cell)| *x = f64::from_bits(*cell)),
        Precision::F32 => {
            let halves = cells.iter().flat_map(|cell| {
                let bytes = cell.to_ne_bytes();
                [[bytes[0], bytes[1], bytes[2], bytes[3]], [bytes[4], bytes[5], bytes[6], bytes[7]]]
            });
            numbers.iter_mut().zip(halves).for_each(|(x, half)| *x = f64::from(f32::from_ne_bytes(half)));
        }
    }
    numbers
}

/// Writes cells of a column, on several threads if there are many. Not on rayon's threads: a waiting one would steal
/// other work, which may need the stream that this one holds.
pub(super) fn lay(
    market: &Market,
    symbols: &[SymbolInput<'_>],
    (column, precision): (usize, Precision),
    first: usize,
    to: &mut [u64],
) {
    let lay = move |first: usize, to: &mut [u64]| match precision {
        Precision::F64 => market.lay(symbols, column, first, to, f64::to_bits),
        Precision::F32 => {
            // SAFETY: any bits are numbers of 4 bytes, and cells are aligned for them.
            let (_, numbers, _) = unsafe { to.align_to_mut::<f32>() };
            market.lay(symbols, column, first * (CELL_BYTES / size_of::<f32>()), numbers, |x| x as f32);
        }
    };
    if to.len() < LAID_ALONE_MAX {
        return lay(first, to);
    }
    let share = to.len().div_ceil(LAYING_THREADS).next_multiple_of(row_cells(precision));
    std::thread::scope(|scope| {
        for (number, part) in to.chunks_mut(share).enumerate() {
            scope.spawn(move || lay(first + number * share, part));
        }
    });
}

/// Writes the bars of strips one after the other, on several threads if there are many.
pub(super) fn write_bars(strips: &[Strip<'_>], precision: Precision, to: &mut [u64]) {
    let is_long = to.len() >= LAID_ALONE_MAX;
    let mut rest = to;
    let mut parts = Vec::with_capacity(strips.len());
    for strip in strips {
        let (own, others) = std::mem::take(&mut rest).split_at_mut(strip.bar_cells(precision));
        rest = others;
        parts.push((strip, own));
    }
    let write = |parts: &mut [(&Strip<'_>, &mut [u64])]| {
        parts.iter_mut().for_each(|(strip, to)| strip.write_bars(to, precision));
    };
    if !is_long {
        return write(&mut parts);
    }
    let share = parts.len().div_ceil(LAYING_THREADS);
    std::thread::scope(|scope| {
        for parts in parts.chunks_mut(share) {
            scope.spawn(move || write(parts));
        }
    });
}
