//! Pieces of text: whole lines, split into cells by the thread that reads them. Cells are places in the piece and are
//! copied only where they were quoted, or are values of an object.
//!
//! Delimited lines are split here and not by the csv crate, because a stray quote must spoil one row and not the rest of the
//! file, and every row must be counted at its line.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use arrow_array::NullArray;
use memchr::memchr;

use super::text_cells::{Grid, TextCells};
use super::{Batch, Column, object};
use crate::error::MarketError;
use crate::limits::{CSV_LINE_BYTES_MAX, SOURCE_BATCH_ROWS, TEXT_BATCH_BYTES_MAX};
use crate::quarantine::{Reason, shown};
use crate::words::{ONES, zero_bytes};

/// A table with a column for each pair of field and symbol, read as one row per symbol.
pub(super) struct Wide {
    /// Symbol and, for each field, its cell.
    pub symbols: Vec<(String, Vec<Option<usize>>)>,
}

/// How a line is written.
pub(super) enum LineFormat {
    /// As cells between delimiters of one byte; a line of a wide table has a row for each symbol.
    Delimited { delimiter: char, wide: Option<Wide> },
    /// As a JSON object with values of these keys.
    Object { keys: Vec<String> },
}

/// How the lines of a file are split.
pub(super) struct TextLayout {
    pub line: LineFormat,
    /// Cells of a line.
    pub width: usize,
    /// By column of the source.
    pub wanted: Vec<bool>,
}

/// Whole lines of a file, which contain whole batches.
pub(crate) struct TextPiece {
    pub bytes: Vec<u8>,
    /// End of each batch, and the number of the line that follows.
    pub ends: Vec<(usize, u64)>,
    /// Number of the first line.
    pub line: u64,
    pub(super) layout: Arc<TextLayout>,
    /// The first line follows a byte order mark.
    pub marked: bool,
    /// Where the buffer of its bytes goes.
    pub(super) buffers: Arc<Buffers>,
}

impl Drop for TextPiece {
    fn drop(&mut self) {
        self.buffers.give(std::mem::take(&mut self.bytes));
    }
}

/// Buffers of pieces that were read, for the next ones: the kernel clears each page of a new one. They are never more than there
/// were pieces at one time.
#[derive(Debug, Default)]
pub(super) struct Buffers(Mutex<Vec<Vec<u8>>>);

impl Buffers {
    /// An empty one, if there is any.
    pub fn take(&self) -> Option<Vec<u8>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).pop()
    }

    fn give(&self, mut buffer: Vec<u8>) {
        buffer.clear();
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(buffer);
    }
}

/// The lines of a text with their numbers and starts, blank ones included.
struct Lines<'a> {
    text: &'a [u8],
    at: usize,
    number: u64,
}

impl<'a> Iterator for Lines<'a> {
    type Item = (u64, usize, &'a [u8]);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let rest = self.text.get(self.at..).filter(|rest| !rest.is_empty())?;
        let (end, next) = match memchr(b'\n', rest) {
            Some(end) => (end, end + 1),
            None => (rest.len(), rest.len()),
        };
        let line = &rest[..end];
        let found = (self.number, self.at, line.strip_suffix(b"\r").unwrap_or(line));
        self.at += next;
        self.number += 1;
        Some(found)
    }
}

/// Whether a line holds no row.
#[inline]
pub(super) fn is_blank(line: &[u8]) -> bool {
    line.trim_ascii_start().is_empty()
}

impl TextPiece {
    pub fn batches(&self) -> usize {
        self.ends.len()
    }

    fn lines(&self, index: usize) -> Lines<'_> {
        let (start, number) = match index.checked_sub(1) {
            Some(before) => self.ends[before],
            None => (0, self.line),
        };
        Lines { text: &self.bytes[start..self.ends[index].0], at: 0, number }
    }

    /// Splits the lines of a batch.
    pub fn batch(&self, index: usize) -> Result<Batch<'_>, MarketError> {
        let (layout, found) = (&*self.layout, self.lines(index));
        let bytes = found.text;
        if bytes.len() as u64 > TEXT_BATCH_BYTES_MAX {
            let what = format!("bytes of {SOURCE_BATCH_ROWS} lines");
            return Err(MarketError::Limit { what, found: bytes.len() as u64, limit: TEXT_BATCH_BYTES_MAX });
        }
        // Where any of it is not UTF-8, the good lines are copied.
        let text = std::str::from_utf8(bytes).ok();
        let plain = layout.plain_delimiter();
        let quoted = plain.is_some() && memchr(b'"', bytes).is_some();
        let mut columns: Vec<TextCells<'_>> = Vec::new();
        let each = || layout.wanted.iter().map(|_| TextCells::each(text.unwrap_or_default())).collect();
        let mut lines = SplitLines::default();
        match (plain, text) {
            (Some(delimiter), Some(text)) if !quoted => {
                layout.split_plain(delimiter, (bytes, 0..bytes.len(), found.number), &mut lines);
                let grid = Arc::new(Grid { places: std::mem::take(&mut lines.places), width: layout.width + 1 });
                columns.extend((0..layout.wanted.len()).map(|column| TextCells::split(text, column, &grid)));
            }
            _ => {
                columns = each();
                for (number, start, line) in found.filter(|(.., line)| !is_blank(line)) {
                    if let (Some(delimiter), Some(_), false) = (plain, text, line.contains(&b'"')) {
                        // With the carriage return that was taken off it, which is taken off there.
                        let end = start + line.len();
                        let one = (bytes, start..end + usize::from(bytes.get(end) == Some(&b'\r')), number);
                        layout.split_plain(delimiter, one, &mut lines);
                        layout.move_cells(&mut lines, &mut columns);
                        continue;
                    }
                    match layout.split(line, &mut columns) {
                        Ok(rows) => lines.good.extend(std::iter::repeat_n(number, rows)),
                        Err(reason) => lines.broken.push((number, reason)),
                    }
                }
            }
        }
        let SplitLines { good: lines, broken, .. } = lines;
        let mut all = Vec::with_capacity(columns.len());
        for (cells, wanted) in columns.into_iter().zip(&layout.wanted) {
            let none = || Column::Array(Arc::new(NullArray::new(lines.len())));
            all.push(if *wanted { Column::Text(cells) } else { none() });
        }
        Ok(Batch { columns: all, lines, broken })
    }

    /// The text of lines of a batch, which ascend.
    pub fn raw(&self, index: usize, wanted: &[u64]) -> Vec<String> {
        let mut lines = self.lines(index).peekable();
        let text = |wanted: &u64| {
            while lines.next_if(|(number, ..)| number < wanted).is_some() {}
            let line = lines.peek().filter(|(number, ..)| number == wanted).map_or(&b""[..], |(.., line)| *line);
            if self.marked && *wanted == self.line { shown(&[b"\xef\xbb\xbf", line].concat()) } else { shown(line) }
        };
        wanted.iter().map(text).collect()
    }
}

/// Lines as they are split.
#[derive(Default)]
struct SplitLines {
    /// See [`Grid`].
    places: Vec<u32>,
    /// Numbers of the lines that are rows.
    good: Vec<u64>,
    broken: Vec<(u64, Reason)>,
    /// Of the line that is being split.
    number: u64,
}

impl TextLayout {
    /// Whether the lines are JSON.
    pub fn is_json(&self) -> bool {
        matches!(self.line, LineFormat::Object { .. })
    }

    /// Whether commas do not separate cells, so that they are probably decimal signs.
    pub fn decimal_comma_likely(&self) -> bool {
        matches!(self.line, LineFormat::Delimited { delimiter, .. } if delimiter != ',')
    }

    /// What separates the cells of a line that is one row.
    fn plain_delimiter(&self) -> Option<u8> {
        match &self.line {
            LineFormat::Delimited { delimiter, wide: None } => Some(*delimiter as u8),
            LineFormat::Delimited { .. } | LineFormat::Object { .. } => None,
        }
    }

    fn wide(&self) -> Option<&Wide> {
        match &self.line {
            LineFormat::Delimited { wide, .. } => wide.as_ref(),
            LineFormat::Object { .. } => None,
        }
    }

    /// Splits lines that are a row each, and have no quotes, in one pass over them: a part of a text, of which the first line has
    /// this number.
    fn split_plain(&self, delimiter: u8, (text, part, first): (&[u8], Range<usize>, u64), to: &mut SplitLines) {
        // Of the line: where it begins, and where its places begin among all; offsets fit, a batch is shorter.
        let (mut start, mut begun) = (part.start, to.places.len());
        to.number = first;
        to.places.reserve((self.width + 1) * (SOURCE_BATCH_ROWS + 1).min(part.len()));
        to.places.push(start as u32);
        let mut mark = |at: usize| {
            if text[at] == b'\n' {
                self.end_line(&text[start..at], begun, to);
                (start, begun) = (at + 1, to.places.len());
                to.places.push(start as u32);
            } else if to.places.len() - begun <= self.width {
                // One that is too many is enough to know that it is no row.
                to.places.push(at as u32);
            }
        };
        let (words, rest) = text[part.clone()].as_chunks::<8>();
        let delimiters = ONES * u64::from(delimiter);
        let ends = ONES * u64::from(b'\n');
        for (at, word) in words.iter().enumerate() {
            let word = u64::from_le_bytes(*word);
            let mut matches = zero_bytes(word ^ delimiters) | zero_bytes(word ^ ends);
            while matches != 0 {
                mark(part.start + 8 * at + matches.trailing_zeros() as usize / 8);
                matches &= matches - 1;
            }
        }
        for (at, byte) in rest.iter().enumerate() {
            if [delimiter, b'\n'].contains(byte) {
                mark(part.start + 8 * words.len() + at);
            }
        }
        if start < part.end {
            self.end_line(&text[start..part.end], begun, to);
        } else {
            to.places.truncate(begun);
        }
    }

    /// Ends a line whose places are those from `begun` on, but for its end; what is no row has none.
    #[inline]
    fn end_line(&self, line: &[u8], begun: usize, to: &mut SplitLines) {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let number = to.number;
        to.number += 1;
        let is_row = to.places.len() - begun == self.width && line.len() <= CSV_LINE_BYTES_MAX;
        if line.first().is_some_and(|first| !first.is_ascii_whitespace()) && is_row {
            to.good.push(number);
            to.places.push(to.places[begun] + line.len() as u32);
        } else {
            self.end_other(line, begun, is_row, to);
        }
    }

    /// The same for a line that is blank, begins with a blank, or is no row.
    #[cold]
    fn end_other(&self, line: &[u8], begun: usize, is_row: bool, to: &mut SplitLines) {
        let number = to.number - 1;
        if !is_blank(line) {
            if is_row {
                to.good.push(number);
                to.places.push(to.places[begun] + line.len() as u32);
                return;
            }
            let long = line.len() > CSV_LINE_BYTES_MAX;
            to.broken.push((number, if long { Reason::LineTooLong } else { Reason::CellCount }));
        }
        to.places.truncate(begun);
    }

    /// Adds the cells of lines that were split to the wanted columns.
    fn move_cells(&self, from: &mut SplitLines, columns: &mut [TextCells<'_>]) {
        let grid = Grid { places: std::mem::take(&mut from.places), width: self.width + 1 };
        for row in 0..grid.rows() {
            for (at, (column, wanted)) in columns.iter_mut().zip(&self.wanted).enumerate() {
                if *wanted {
                    column.push(grid.cell(row, at));
                }
            }
        }
        from.places = grid.places;
        from.places.clear();
    }

    /// Whether each line that is not blank is a row, or none that can be split.
    pub fn has_a_row_in_each_line(&self) -> bool {
        self.wide().is_none()
    }

    /// Splits any line; returns how many rows it gave.
    fn split(&self, line: &[u8], columns: &mut [TextCells<'_>]) -> Result<usize, Reason> {
        let mut cells = Vec::with_capacity(self.width);
        self.cells(line, &mut cells)?;
        let Some(wide) = self.wide() else {
            for ((cell, column), wanted) in cells.iter().zip(columns).zip(&self.wanted) {
                if *wanted {
                    column.make(cell);
                }
            }
            return Ok(1);
        };
        let mut rows = 0;
        for (symbol, fields) in wide.traded(&cells) {
            rows += 1;
            let values = [&*cells[0], symbol].into_iter().chain(fields.iter().map(|at| cell(&cells, at)));
            for ((value, column), wanted) in values.zip(columns.iter_mut()).zip(&self.wanted) {
                if *wanted {
                    column.make(value);
                }
            }
        }
        Ok(rows)
    }

    /// The cells of a line.
    fn cells<'l>(&self, line: &'l [u8], cells: &mut Vec<Cow<'l, str>>) -> Result<(), Reason> {
        if line.len() > CSV_LINE_BYTES_MAX {
            return Err(Reason::LineTooLong);
        }
        let text = std::str::from_utf8(line).map_err(|_| Reason::NotUtf8)?;
        match &self.line {
            LineFormat::Delimited { delimiter, .. } if !split_cells(text, *delimiter, cells) => {
                return Err(Reason::OpenQuote);
            }
            LineFormat::Delimited { .. } => {}
            LineFormat::Object { keys } => object::cells(text, keys, cells)?,
        }
        if cells.len() == self.width { Ok(()) } else { Err(Reason::CellCount) }
    }

    /// How many rows a line counts for: its own, or one that cannot be split.
    pub fn rows_of(&self, line: &[u8]) -> usize {
        let Some(wide) = self.wide() else { return 1 };
        let mut cells = Vec::with_capacity(self.width);
        if self.cells(line, &mut cells).is_err() { 1 } else { wide.traded(&cells).count() }
    }
}

/// A cell of a wide table; empty where a symbol has no such field.
fn cell<'c>(cells: &'c [Cow<'_, str>], at: &Option<usize>) -> &'c str {
    at.map_or("", |at| cells[at].trim())
}

impl Wide {
    /// The symbols with a value in a line: one that was not traded has no row.
    fn traded<'w>(&'w self, cells: &'w [Cow<'_, str>]) -> impl Iterator<Item = (&'w str, &'w [Option<usize>])> {
        let traded = |fields: &[Option<usize>]| fields.iter().any(|at| !cell(cells, at).is_empty());
        self.symbols.iter().filter(move |(_, fields)| traded(fields)).map(|(symbol, fields)| (&**symbol, &**fields))
    }
}

/// Splits one line at the delimiter; a cell may be quoted, a quote in it doubled. False when a quote does not close.
pub(super) fn split_cells<'l>(line: &'l str, delimiter: char, cells: &mut Vec<Cow<'l, str>>) -> bool {
    let mut rest = line;
    loop {
        let Some(quoted) = rest.strip_prefix('"') else {
            match rest.split_once(delimiter) {
                Some((cell, tail)) => {
                    cells.push(Cow::Borrowed(cell));
                    rest = tail;
                    continue;
                }
                None => {
                    cells.push(Cow::Borrowed(rest));
                    return true;
                }
            }
        };
        let mut cell = String::new();
        let mut tail = quoted;
        let after = loop {
            let Some((inside, outside)) = tail.split_once('"') else { return false };
            cell.push_str(inside);
            match outside.strip_prefix('"') {
                Some(more) => {
                    cell.push('"');
                    tail = more;
                }
                None => break outside,
            }
        };
        cells.push(Cow::Owned(cell));
        if after.is_empty() {
            return true;
        }
        match after.strip_prefix(delimiter) {
            Some(next) => rest = next,
            None => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn piece(text: &str, width: usize) -> TextPiece {
        let line = LineFormat::Delimited { delimiter: ',', wide: None };
        let layout = TextLayout { line, width, wanted: vec![true; width] };
        TextPiece {
            bytes: text.into(),
            ends: vec![(text.len(), 0)],
            line: 1,
            layout: Arc::new(layout),
            marked: false,
            buffers: Arc::default(),
        }
    }

    proptest! {
        /// With a quoted line at the end, the others are split one by one.
        #[test]
        fn lines_without_quotes_are_split_as_any_line(
            text in "([a-cé1 \t\r]{0,4}[,\n]){0,60}[a-c,]{0,3}", width in 1usize..4, quoted in any::<bool>(),
        ) {
            let text = if quoted { format!("{text}\n\"q\"{}\n", ",".repeat(width - 1)) } else { text };
            let piece = piece(&text, width);
            let (mut good, mut broken, mut values) = (Vec::new(), Vec::new(), Vec::new());
            for (number, _, line) in piece.lines(0).filter(|(.., line)| !is_blank(line)) {
                let mut cells = Vec::new();
                match piece.layout.cells(line, &mut cells) {
                    Ok(()) => {
                        good.push(number);
                        values.push(cells.into_iter().map(Cow::into_owned).collect::<Vec<_>>());
                    }
                    Err(reason) => broken.push((number, reason)),
                }
            }
            let batch = piece.batch(0).unwrap();
            prop_assert_eq!((&batch.lines, &batch.broken), (&good, &broken));
            for (at, column) in batch.columns.iter().enumerate() {
                let Column::Text(cells) = column else { panic!("a column of text") };
                prop_assert_eq!(cells.rows(), good.len());
                cells.for_each(|row, bytes, start, end| {
                    assert_eq!((cells.value(row), &bytes[start..end]), (&*values[row][at], values[row][at].as_bytes()));
                });
            }
        }
    }

    #[test]
    fn a_line_of_nothing_but_delimiters_takes_no_more_memory_than_one_that_is_a_row() {
        let text = format!("a,b\n{}\nc,d\n", ",".repeat(100_000));
        let (piece, mut lines) = (piece(&text, 2), SplitLines::default());
        piece.layout.split_plain(b',', (text.as_bytes(), 0..text.len(), 1), &mut lines);
        assert_eq!((lines.good, lines.broken, lines.places.len()), (vec![1, 3], vec![(2, Reason::CellCount)], 6));
        assert!(lines.places.capacity() < 50_000);
    }
}
