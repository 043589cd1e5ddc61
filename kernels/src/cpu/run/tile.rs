//! Bars in the engine's layout: one row per bar and one lane per symbol in each column, left-aligned.

use crate::SymbolInput;
use crate::cpu::simd::float::Real;
use crate::cpu::simd::vector::{LANES, RowOf};

/// Fills lanes without a symbol and rows after a symbol's last visible bar, which are never read. A number, so that
/// such lanes do not prevent the faster paths for defined values.
pub(crate) const PADDING: f64 = 1.0;

/// Bars of up to [`LANES`] symbols.
#[derive(Debug)]
pub(crate) struct Tile<T = f64> {
    columns: Vec<Column<T>>,
    /// Number of visible bars of each lane that has a symbol.
    pub visible: Vec<usize>,
}

/// The rows of bars `base..`.
#[derive(Debug)]
struct Column<T> {
    rows: Vec<RowOf<T>>,
    base: usize,
    /// Per strip, from the first bar on: the bar from which all values are finite up to the strip's end.
    defined_from: Vec<usize>,
}

impl<T: Real> Column<T> {
    fn new(rows: Vec<RowOf<T>>, base: usize) -> Self {
        let end = base + rows.len();
        let mut defined_from = Vec::with_capacity(end.div_ceil(T::STRIP_BARS));
        let mut from = base;
        for strip in (0..end).step_by(T::STRIP_BARS) {
            let bars = strip.max(base)..(strip + T::STRIP_BARS).min(end);
            for t in bars.rev() {
                if !rows[t - base].0.iter().all(|x| x.is_finite()) {
                    from = t + 1;
                    break;
                }
            }
            defined_from.push(from);
        }
        Self { rows, base, defined_from }
    }
}

impl<T: Real> Tile<T> {
    /// Transposes the bars of each column from `bases[column]` on.
    pub fn load(symbols: &[&SymbolInput<'_>], bases: Vec<usize>) -> Self {
        debug_assert!(symbols.len() <= LANES, "a tile has {LANES} lanes");
        let visible: Vec<usize> = symbols.iter().map(|s| s.visible).collect();
        let rows = visible.iter().copied().max().unwrap_or(0);
        let mut columns = Vec::with_capacity(bases.len());
        for (column, base) in bases.into_iter().enumerate() {
            let mut buffer = vec![RowOf::splat(T::of(PADDING)); rows.saturating_sub(base)];
            for (lane, symbol) in symbols.iter().enumerate() {
                let there = symbol.visible.saturating_sub(base).min(buffer.len());
                match symbol.columns.get(column).and_then(|c| c.get(base..symbol.visible)) {
                    Some(bars) => {
                        for (row, value) in buffer.iter_mut().zip(bars) {
                            row.0[lane] = T::of(*value);
                        }
                    }
                    None => buffer[..there].iter_mut().for_each(|row| row.0[lane] = T::NAN),
                }
            }
            columns.push(Column::new(buffer, base));
        }
        Self { columns, visible }
    }

    /// Size of the columns in bytes.
    pub fn bytes(&self) -> u64 {
        let rows: usize = self.columns.iter().map(|c| c.rows.len()).sum();
        (rows * size_of::<RowOf<T>>()) as u64
    }

    /// Number of visible bars of the longest lane.
    pub fn rows(&self) -> usize {
        self.visible.iter().copied().max().unwrap_or(0)
    }

    /// Number of visible bars of the shortest lane.
    pub fn shortest(&self) -> usize {
        self.visible.iter().copied().min().unwrap_or(0)
    }

    /// A column's rows and the bar of the first of them.
    pub fn column(&self, column: usize) -> (&[RowOf<T>], usize) {
        (&self.columns[column].rows, self.columns[column].base)
    }

    /// The bar from which the column is finite in every lane, up to the end of the strip that holds bar `t`;
    /// `usize::MAX` (unknown) if there is no such column.
    pub fn defined_from(&self, column: usize, t: usize) -> usize {
        let strips = self.columns.get(column).map(|c| c.defined_from.as_slice()).unwrap_or_default();
        strips.get(t / T::STRIP_BARS).copied().unwrap_or(usize::MAX)
    }
}
