//! Bars in the engine's layout: one row per bar and one lane per symbol in each column, left-aligned.

use crate::SymbolInput;
use crate::cpu::simd::float::Real;
use crate::cpu::simd::vector::{LANES, RowOf};

/// Fills lanes without a symbol and rows after a symbol's last visible bar, which are never read. A number, so that
/// such lanes do not prevent the faster paths for defined values.
pub(crate) const PADDING: f64 = 1.0;

/// Rows that are transposed at a time: few enough that they stay in the cache of a core while lane after lane is written.
/// Whole columns would be read from memory and written to it again for each lane.
const ROWS_AT_ONCE: usize = 128;

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
            let end = rows.saturating_sub(base);
            let mut buffer = Vec::with_capacity(end);
            // What is visible of each symbol's column, and how many values that are.
            let visible: Vec<(Option<&[f64]>, usize)> = symbols
                .iter()
                .map(|symbol| {
                    let bars = symbol.columns.get(column).and_then(|c| c.get(base..symbol.visible));
                    (bars, symbol.visible.saturating_sub(base).min(end))
                })
                .collect();
            for from in (0..end).step_by(ROWS_AT_ONCE) {
                let to = end.min(from + ROWS_AT_ONCE);
                buffer.resize(to, RowOf::splat(T::of(PADDING)));
                let part = &mut buffer[from..];
                for (lane, (bars, there)) in visible.iter().enumerate() {
                    match bars {
                        Some(bars) => {
                            for (row, value) in part.iter_mut().zip(bars.get(from..).unwrap_or_default()) {
                                row.0[lane] = T::of(*value);
                            }
                        }
                        None => {
                            let missing = there.saturating_sub(from).min(part.len());
                            part[..missing].iter_mut().for_each(|row| row.0[lane] = T::NAN);
                        }
                    }
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
