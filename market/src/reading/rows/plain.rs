//! Batches of text read column by column: dates and numbers in the notations of most files, of rows that are good bars. A row with
//! anything else is marked, and is read by the general code in its turn, which alone decides what is wrong with it.

use std::ops::Range;

use super::{Policy, Shape};
use crate::reading::cells::{Cells, NAIVE};
use crate::reading::number::plain_decimal_at;
use crate::sources::TextCells;
use crate::time::{TimeMicros, parse_epoch, parse_usual};

/// The rows of a batch, as far as they are plain. Its buffers are used again for the next one.
#[derive(Default)]
pub(super) struct PlainRows {
    /// Local times without a zone, or in UTC.
    pub times: Vec<TimeMicros>,
    /// What every plain row has as its offset from UTC, in seconds: [`NAIVE`], or 0 where times are epochs.
    pub offset: i32,
    /// By column, then by row.
    pub values: Vec<Vec<f64>>,
    /// Rows that the general code has to read.
    pub odd: Vec<bool>,
}

impl PlainRows {
    /// Reads a batch of so many rows; false if the columns are not those of a plain file.
    pub fn read(&mut self, shape: &Shape<'_>, columns: &[Cells<'_>], rows: usize) -> bool {
        let binding = &shape.binding;
        let simple = shape.policy == Policy::Quarantine
            && (binding.clock, shape.midnight, shape.comma) == (None, None, false)
            && shape.scale == 1.0;
        let text = |cell: usize| match columns.get(cell) {
            Some(Cells::Lines(cells)) if cells.rows() == rows => Some(*cells),
            _ => None,
        };
        let (true, Some(times)) = (simple, text(binding.time)) else { return false };
        let Some(values) = binding.values.iter().map(|(cell, _)| text(*cell)).collect::<Option<Vec<_>>>() else {
            return false;
        };
        self.odd.clear();
        self.odd.resize(rows, false);
        self.read_times(times);
        self.values.resize(values.len(), Vec::new());
        for (at, cells) in values.into_iter().enumerate() {
            self.read_values(at, cells, shape.core.contains(&Some(at)));
        }
        self.check_bars(shape.core);
        true
    }

    /// The first row says which notation the others have.
    fn read_times(&mut self, cells: &TextCells<'_>) {
        self.times.clear();
        if cells.rows() > 0 && parse_epoch(cells.value(0).as_bytes()).is_some() {
            self.offset = 0;
            self.read_times_by(cells, parse_epoch);
        } else {
            self.offset = NAIVE;
            self.read_times_by(cells, |text| parse_usual(text).map(|time| time.local));
        }
    }

    fn read_times_by(&mut self, cells: &TextCells<'_>, parse: impl Fn(&[u8]) -> Option<TimeMicros>) {
        let (times, odd) = (&mut self.times, &mut self.odd);
        cells.for_each(|row, text, start, end| {
            let read = text.get(start..end).and_then(&parse);
            odd[row] |= read.is_none();
            times.push(read.unwrap_or_default());
        });
    }

    /// Only a column that bars can do without may have empty cells.
    fn read_values(&mut self, at: usize, cells: &TextCells<'_>, core: bool) {
        let (values, odd) = (&mut self.values[at], &mut self.odd);
        values.clear();
        cells.for_each(|row, text, start, end| {
            let read = plain_decimal_at(text, start, end);
            odd[row] |= read.is_none() && (core || start < end);
            values.push(read.unwrap_or(f64::NAN));
        });
    }

    /// Marks the rows that `check_bar` refuses; those that are marked already may be anything.
    fn check_bars(&mut self, core: [Option<usize>; 5]) {
        let (values, odd) = (&self.values, &mut self.odd);
        let column = |core: Option<usize>| core.and_then(|at| values.get(at)).map(Vec::as_slice);
        let [open, high, low, close, volume] = core.map(column);
        for price in [open, high, low, close] {
            mark(odd, price, |price| price <= 0.0);
        }
        mark(odd, volume, |volume| volume < 0.0);
        for price in [open, low, close] {
            mark_pairs(odd, price, high, |price, high| price > high);
        }
        for price in [open, close] {
            mark_pairs(odd, price, low, |price, low| price < low);
        }
    }

    /// The next row from `from` on that is marked.
    pub fn next_odd(&self, from: usize) -> Option<usize> {
        let rest = self.odd.get(from..)?;
        rest.iter().position(|odd| *odd).map(|at| from + at)
    }

    /// Rows that are marked.
    pub fn odd_rows(&self) -> usize {
        self.odd.iter().filter(|odd| **odd).count()
    }

    /// The values of some rows of a column.
    pub fn of(&self, column: usize, rows: Range<usize>) -> &[f64] {
        &self.values[column][rows]
    }
}

/// Marks rows by a column, if there is one.
fn mark(odd: &mut [bool], column: Option<&[f64]>, bad: impl Fn(f64) -> bool) {
    for (odd, value) in odd.iter_mut().zip(column.unwrap_or_default()) {
        *odd |= bad(*value);
    }
}

/// Marks rows by two columns, if there are both.
fn mark_pairs(odd: &mut [bool], a: Option<&[f64]>, b: Option<&[f64]>, bad: impl Fn(f64, f64) -> bool) {
    let pairs = a.unwrap_or_default().iter().zip(b.unwrap_or_default());
    for (odd, (a, b)) in odd.iter_mut().zip(pairs) {
        *odd |= bad(*a, *b);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::reading::bar_check::check_bar;

    proptest! {
        #[test]
        fn a_row_is_marked_if_it_cannot_be_a_bar(
            rows in prop::collection::vec(prop::array::uniform5(-1i32..4), 0..40), present in prop::array::uniform5(any::<bool>()),
        ) {
            let mut core = [None; 5];
            let mut values = Vec::new();
            for at in (0..5).filter(|at| present[*at]) {
                core[at] = Some(values.len());
                values.push(rows.iter().map(|row| f64::from(row[at])).collect());
            }
            let mut plain = PlainRows { values, odd: vec![false; rows.len()], ..PlainRows::default() };
            plain.check_bars(core);
            for (row, odd) in plain.odd.iter().enumerate() {
                let bar = core.map(|at: Option<usize>| at.map(|at| plain.values[at][row]));
                prop_assert_eq!(*odd, check_bar(bar).is_err(), "{:?}", bar);
            }
        }
    }
}
