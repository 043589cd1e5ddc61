//! What the first rows of a file show: columns of text are not series, the decimal sign may be a comma, prices of LEAN
//! are whole numbers.

use super::{LEAN_SCALE, Policy, Reader};
use crate::error::MarketError;
use crate::limits::CLASSIFY_ROWS;
use crate::name::column_name;
use crate::reading::ImportFormat;
use crate::reading::bind::CORE;
use crate::reading::cells::Cells;
use crate::reading::number::{Cell, DecimalSign};
use crate::sources::Column;

impl Reader<'_> {
    /// Classifies the columns by the first rows.
    ///
    /// # Errors
    /// [`MarketError::BadCsv`] where the decimal sign cannot be decided, or times of the day cannot be read.
    pub(super) fn classify(&mut self, arrays: &[Column<'_>], comma_likely: bool) -> Result<(), MarketError> {
        self.classified = true;
        let rows = arrays.first().map_or(0, |a| a.len()).min(CLASSIFY_ROWS);
        self.check_clock(arrays)?;
        self.check_alias(arrays, rows);
        let cells: Vec<Cells<'_>> =
            self.shape.binding.values.iter().map(|(cell, _)| Cells::new(&arrays[*cell])).collect();
        self.shape.comma = self.decimal_comma(&cells, rows, comma_likely)?;
        self.facts.decimal_comma = self.shape.comma;
        let is_whole = |cells: &Cells<'_>| {
            (0..rows).all(|row| !matches!(cells.number(row, self.shape.comma), Cell::Number(v) if v.fract() != 0.0))
        };
        let prices =
            self.shape.binding.values.iter().zip(&cells).filter(|((_, name), _)| CORE[..4].contains(&name.as_str()));
        if self.shape.format == ImportFormat::Lean && prices.map(|(_, cells)| cells).all(is_whole) {
            (self.shape.scale, self.facts.scaled) = (LEAN_SCALE, true);
        }
        if self.shape.policy == Policy::Quarantine {
            let is_text = |(i, (_, name)): (usize, &(usize, String))| {
                let read: Vec<Cell> = (0..rows).map(|row| cells[i].number(row, self.shape.comma)).collect();
                let numbers = read.iter().filter(|c| matches!(c, Cell::Number(v) if v.is_finite())).count();
                let no_column = matches!(cells[i], Cells::Other);
                let texts = no_column || read.iter().any(|c| !matches!(c, Cell::Missing)) && numbers == 0;
                !CORE.contains(&name.as_str()) && texts
            };
            let keep: Vec<bool> = self.shape.binding.values.iter().enumerate().map(|v| !is_text(v)).collect();
            let mut kept = keep.iter();
            let written = |cell: usize| matches!(Cells::new(&arrays[cell]), Cells::Text(_) | Cells::Lines(_));
            self.shape.binding.values.retain(|(cell, _)| {
                let kept = kept.next().copied().unwrap_or(true);
                if !kept {
                    self.facts.ignored.push(self.shape.headers[*cell].clone());
                    if written(*cell) {
                        self.facts.text_columns.push(self.shape.headers[*cell].clone());
                    }
                }
                kept
            });
        }
        self.facts.columns = self.shape.binding.values.iter().map(|(_, name)| name.clone()).collect();
        self.facts.garbage = vec![None; self.facts.columns.len()];
        self.shape.core = CORE.map(|core| self.facts.columns.iter().position(|c| c == core));
        Ok(())
    }

    /// Times of the day are in every row or in none.
    fn check_clock(&mut self, arrays: &[Column<'_>]) -> Result<(), MarketError> {
        let Some(cell) = self.shape.binding.clock else { return Ok(()) };
        let clocks = Cells::new(&arrays[cell]);
        if matches!(clocks, Cells::Other) {
            let why = format!("its column '{}' has a type that is not read as a time of day", self.shape.headers[cell]);
            let expected = "times of the day as text, such as 09:30:00, or as Arrow's time32 or time64".to_owned();
            return Err(MarketError::BadCsv { file: self.shape.shown.to_owned(), why, expected });
        }
        self.shape.has_clock = (0..arrays[cell].len()).any(|row| !clocks.text(row).trim().is_empty());
        Ok(())
    }

    /// A column of numbers under a name such as `code` does not hold the symbols of a file that is named after one: it
    /// is a series.
    fn check_alias(&mut self, arrays: &[Column<'_>], rows: usize) {
        let (Some(cell), true, Some(named)) =
            (self.shape.binding.symbol, self.shape.binding.symbol_by_alias, &self.shape.named)
        else {
            return;
        };
        let cells = Cells::new(&arrays[cell]);
        let mut numbers =
            (0..rows).map(|row| cells.number(row, false)).filter(|c| !matches!(c, Cell::Missing)).peekable();
        if numbers.peek().is_none() || numbers.any(|cell| !matches!(cell, Cell::Number(_))) {
            return;
        }
        self.shape.stem = Some(named.as_str().into());
        (self.shape.binding.symbol, self.facts.symbol_heading) = (None, None);
        // If every row has the time of another one, it is the column of symbols after all.
        self.facts.text_columns.push(self.shape.headers[cell].clone());
        match column_name(&self.shape.headers[cell]) {
            Some(column) if self.shape.binding.values.iter().all(|(_, known)| *known != column) => {
                let further = self.shape.binding.values.iter().skip_while(|(_, name)| CORE.contains(&name.as_str()));
                let before = further.take_while(|(_, name)| *name < column).count();
                let core = self.shape.binding.values.iter().filter(|(_, name)| CORE.contains(&name.as_str())).count();
                self.shape.binding.values.insert(core + before, (cell, column));
            }
            _ => self.facts.ignored.push(self.shape.headers[cell].clone()),
        }
    }

    /// Whether the decimal sign is a comma.
    fn decimal_comma(&self, cells: &[Cells<'_>], rows: usize, likely: bool) -> Result<bool, MarketError> {
        let texts = cells.iter().filter(|cells| matches!(cells, Cells::Text(_) | Cells::Lines(_)));
        if self.shape.options.decimal_comma {
            return Ok(true);
        }
        let mut sign = DecimalSign::default();
        for texts in texts {
            (0..rows).filter_map(|row| texts.written(row)).for_each(|text| sign.look(text));
        }
        sign.is_comma(likely).map_err(|why| {
            let expected = "--decimal-comma if the comma is the decimal sign everywhere, else numbers with a decimal point \
                            and without separators of thousands";
            MarketError::BadCsv { file: self.shape.shown.to_owned(), why, expected: expected.to_owned() }
        })
    }
}
