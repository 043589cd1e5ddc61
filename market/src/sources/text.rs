//! Pieces of text: whole lines, split into cells by the thread that reads them. Cells are places in the piece and are
//! copied only where they were quoted, or are values of an object.
//!
//! Delimited lines are split here and not by the csv crate, because a stray quote must spoil one row and not the rest of the
//! file, and every row must be counted at its line.

use std::borrow::Cow;
use std::sync::Arc;

use arrow_array::NullArray;
use memchr::memchr;

use super::{Batch, Column, object};
use crate::error::MarketError;
use crate::limits::{COLUMNS_MAX, CSV_LINE_BYTES_MAX, SOURCE_BATCH_ROWS, TEXT_BATCH_BYTES_MAX};
use crate::quarantine::{Reason, shown};

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

/// The cells of one column of a batch.
pub(crate) struct TextCells<'a> {
    /// The text of the piece.
    text: &'a str,
    /// Cells that are not in the text as they are.
    made: String,
    /// By row: start and end in the text; beyond its end, in what was made.
    pub cells: Vec<(u32, u32)>,
}

impl TextCells<'_> {
    /// The cell of a row.
    #[inline]
    pub fn value(&self, row: usize) -> &str {
        let (start, end) = self.cells[row];
        let (start, end) = (start as usize, end as usize);
        match self.text.get(start..end) {
            Some(cell) => cell,
            None => start
                .checked_sub(self.text.len())
                .and_then(|start| self.made.get(start..end - self.text.len()))
                .unwrap_or_default(),
        }
    }

    /// Adds a cell that is not in the text. Both are shorter than a batch may be, which fits the places of cells.
    fn make(&mut self, cell: &str) {
        let start = self.text.len() + self.made.len();
        self.made.push_str(cell);
        let place = |at: usize| u32::try_from(at).unwrap_or(u32::MAX);
        self.cells.push((place(start), place(start + cell.len())));
    }
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
        let empty = |_: &bool| TextCells {
            text: text.unwrap_or_default(),
            made: String::new(),
            cells: Vec::with_capacity(SOURCE_BATCH_ROWS),
        };
        let mut columns: Vec<TextCells<'_>> = layout.wanted.iter().map(empty).collect();
        let (mut lines, mut broken) = (Vec::with_capacity(SOURCE_BATCH_ROWS), Vec::new());
        for (number, start, line) in found {
            if is_blank(line) {
                continue;
            }
            let split = match text.and(plain) {
                Some(delimiter) if line.len() <= CSV_LINE_BYTES_MAX && !(quoted && line.contains(&b'"')) => {
                    layout.split_plain(delimiter, line, start, &mut columns)
                }
                _ => layout.split(line, &mut columns),
            };
            match split {
                Ok(1) => lines.push(number),
                Ok(rows) => lines.extend(std::iter::repeat_n(number, rows)),
                Err(reason) => broken.push((number, reason)),
            }
        }
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
            let line = lines.peek().filter(|(number, ..)| number == wanted).map_or(&b""[..], |(_, _, line)| *line);
            if self.marked && *wanted == self.line { shown(&[b"\xef\xbb\xbf", line].concat()) } else { shown(line) }
        };
        wanted.iter().map(text).collect()
    }
}

impl TextLayout {
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

    /// Splits a line without quotes, which starts at an offset of the text, into one row.
    #[inline]
    fn split_plain(
        &self,
        delimiter: u8,
        line: &[u8],
        start: usize,
        columns: &mut [TextCells<'_>],
    ) -> Result<usize, Reason> {
        let mut ends = [0u32; COLUMNS_MAX];
        let mut found = 0;
        // Offsets fit: a batch is shorter.
        let base = start as u32;
        let last = self.width - 1;
        let mut mark = |at: usize| {
            if found < last {
                ends[found] = base + at as u32;
            }
            found += 1;
        };
        let (words, rest) = line.as_chunks::<8>();
        for (at, word) in words.iter().enumerate() {
            let mut matches = zero_bytes(u64::from_le_bytes(*word) ^ (ONES * u64::from(delimiter)));
            while matches != 0 {
                mark(8 * at + matches.trailing_zeros() as usize / 8);
                matches &= matches - 1;
            }
        }
        for (at, byte) in rest.iter().enumerate() {
            if *byte == delimiter {
                mark(8 * words.len() + at);
            }
        }
        if found != last {
            return Err(Reason::CellCount);
        }
        ends[last] = base + line.len() as u32;
        let mut from = base;
        for ((end, column), wanted) in ends.iter().zip(columns).zip(&self.wanted) {
            if *wanted {
                column.cells.push((from, *end));
            }
            from = end + 1;
        }
        Ok(1)
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

/// A byte of one in each byte.
const ONES: u64 = 0x0101_0101_0101_0101;

/// The highest bit of each byte that is zero.
#[inline]
fn zero_bytes(word: u64) -> u64 {
    const LOW: u64 = ONES * 0x7f;
    !(((word & LOW) + LOW) | word | LOW)
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
