//! Bars in the engine's layout: per column one row a bar, one lane a symbol, left-aligned.

use super::lanes::{LANES, Row};
use crate::SymbolInput;

/// Up to [`LANES`] symbols. Lanes without a symbol, and bars past a symbol's last visible one, hold NA.
#[derive(Debug)]
pub(crate) struct Tile {
    /// Per column the rows of bars `bases[column]..`.
    columns: Vec<Vec<Row>>,
    bases: Vec<usize>,
    /// Visible bars of each lane that has a symbol.
    pub visible: Vec<usize>,
}

impl Tile {
    /// Transposes the bars from `bases[column]` on.
    pub fn load(symbols: &[&SymbolInput<'_>], bases: Vec<usize>) -> Self {
        debug_assert!(symbols.len() <= LANES, "a tile has {LANES} lanes");
        let visible: Vec<usize> = symbols.iter().map(|s| s.visible).collect();
        let rows = visible.iter().copied().max().unwrap_or(0);
        let mut columns = Vec::with_capacity(bases.len());
        for (column, base) in bases.iter().enumerate() {
            let mut buffer = vec![Row::NA; rows.saturating_sub(*base)];
            for (lane, symbol) in symbols.iter().enumerate() {
                let bars = symbol.columns.get(column).and_then(|c| c.get(*base..symbol.visible));
                for (row, value) in buffer.iter_mut().zip(bars.unwrap_or(&[])) {
                    row.0[lane] = *value;
                }
            }
            columns.push(buffer);
        }
        Self { columns, bases, visible }
    }

    /// Rows of the longest lane.
    pub fn rows(&self) -> usize {
        self.visible.iter().copied().max().unwrap_or(0)
    }

    /// Visible bars of the shortest lane.
    pub fn shortest(&self) -> usize {
        self.visible.iter().copied().min().unwrap_or(0)
    }

    /// A column's rows and the bar of the first of them.
    pub fn column(&self, column: usize) -> (&[Row], usize) {
        (&self.columns[column], self.bases[column])
    }
}
