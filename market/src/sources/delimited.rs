//! Delimited text: CSV with commas, semicolons, tabs or vertical bars, with a header, without one, or with the two-line
//! header that pandas writes for prices of several symbols.
//!
//! Lines are split here and not by the csv crate, because a stray quote must spoil one row and not the rest of the
//! file, and every row must be counted at its line. Holds the whole file in memory.

use std::borrow::Cow;
use std::sync::Arc;

use arrow_array::builder::StringBuilder;
use arrow_array::{ArrayRef, NullArray, RecordBatch};
use arrow_schema::{DataType, Field, Schema};

use super::{BarSource, Batch, OpenOptions};
use crate::error::MarketError;
use crate::limits::{COLUMNS_MAX, CSV_LINE_BYTES_MAX, PREAMBLE_LINES_MAX, SOURCE_BATCH_ROWS, WIDE_CELLS_MAX};
use crate::quarantine::{Reason, shown};
use crate::reading::{ImportFormat, is_data_row};

/// Delimiters, the most usual first.
const DELIMITERS: [char; 4] = [',', ';', '\t', '|'];
/// Characters of a line that a message shows.
const SHOWN_CHARS: usize = 200;
/// Fields of a price table with two header lines.
const WIDE_FIELDS: [&str; 9] =
    ["open", "high", "low", "close", "adj close", "volume", "dividends", "stock splits", "capital gains"];

/// A table with a column for each pair of field and symbol, read as one row per symbol.
struct Wide {
    /// Symbol and, for each field, its cell.
    symbols: Vec<(String, Vec<Option<usize>>)>,
}

pub(super) struct Delimited {
    content: Vec<u8>,
    /// Start and number of the next line.
    at: usize,
    line: u64,
    /// The same for the first row.
    start: (usize, u64),
    delimiter: char,
    /// Cells of a line.
    width: usize,
    format: ImportFormat,
    columns: Vec<String>,
    wanted: Vec<bool>,
    wide: Option<Wide>,
}

/// A non-empty line: its number, its text, and where the next one begins.
struct TextLine<'a> {
    number: u64,
    text: &'a [u8],
    next: usize,
}

fn next_line(content: &[u8], mut at: usize, mut number: u64) -> Option<TextLine<'_>> {
    loop {
        let rest = content.get(at..).filter(|rest| !rest.is_empty())?;
        let end = rest.iter().position(|&c| c == b'\n').unwrap_or(rest.len());
        let next = at + (end + 1).min(rest.len());
        let text = rest[..end].strip_suffix(b"\r").unwrap_or(&rest[..end]);
        if !text.trim_ascii().is_empty() {
            return Some(TextLine { number, text, next });
        }
        at = next;
        number += 1;
    }
}

impl Delimited {
    pub(super) fn open(
        file: &str,
        name: &str,
        content: Vec<u8>,
        options: OpenOptions<'_>,
    ) -> Result<Self, MarketError> {
        let bad = |why: &str| MarketError::BadCsv {
            file: file.to_owned(),
            why: why.to_owned(),
            expected: options.format.expected(),
        };
        let start = if content.starts_with(b"\xef\xbb\xbf") { 3 } else { 0 };
        let first = next_line(&content, start, 1).ok_or_else(|| bad("it is empty"))?;
        let text = |line: &TextLine<'_>| {
            let line = (line.text.len() <= CSV_LINE_BYTES_MAX && !line.text.contains(&0)).then_some(line.text);
            line.and_then(|l| std::str::from_utf8(l).ok()).map(str::to_owned)
        };
        let header = text(&first).ok_or_else(|| bad("its first line is not text"))?;
        // Lines before the header have a single cell: an address, a title.
        let parts = |line: &str| DELIMITERS.iter().map(|&d| line.matches(d).count()).max().unwrap_or(0);
        let (mut head, mut header) = (first, header);
        if parts(&header) == 0 {
            let (mut at, mut number) = (head.next, head.number + 1);
            for _ in 0..PREAMBLE_LINES_MAX {
                let Some(line) = next_line(&content, at, number) else { break };
                (at, number) = (line.next, line.number + 1);
                let Some(words) = text(&line) else { break };
                if parts(&words) >= 2 && !DELIMITERS.iter().any(|&d| is_data_row(&words.split(d).collect::<Vec<_>>())) {
                    (head, header) = (line, words);
                    break;
                }
            }
        }
        let delimiter = DELIMITERS.into_iter().rev().max_by_key(|&d| header.matches(d).count()).unwrap_or(',');
        let cells = |line: &str| {
            let mut cells = Vec::new();
            let closed = split_cells(line, delimiter, &mut cells);
            let cells: Vec<String> = cells.iter().map(|c| c.trim().to_owned()).collect();
            closed.then_some(cells)
        };
        let names = cells(&header).ok_or_else(|| bad("its first line has a quote that does not close"))?;
        let (at, line) = (head.next, head.number + 1);
        let second = next_line(&content, at, line);
        let third = second.as_ref().and_then(|s| next_line(&content, s.next, s.number + 1));
        let wide = match (&second, &third) {
            (Some(second), Some(third)) => {
                let words = [second, third].map(|l| text(l).and_then(|t| cells(&t)).unwrap_or_default());
                read_wide(&names, &words[0], &words[1]).map(|wide| (wide, third.next, third.number + 1))
            }
            _ => None,
        };
        let mut this = Self {
            at,
            line,
            start: (at, line),
            delimiter,
            width: names.len(),
            format: options.format,
            columns: names,
            wanted: Vec::new(),
            wide: None,
            content: Vec::new(),
        };
        let headless = (head_start(&head, &content), head.number);
        let limit = if wide.is_some() { WIDE_CELLS_MAX } else { COLUMNS_MAX };
        if this.width > limit {
            let what = format!("columns of {file}");
            return Err(MarketError::Limit { what, found: this.width as u64, limit: limit as u64 });
        }
        if let Some(((wide, columns), at, line)) = wide {
            (this.at, this.line, this.columns, this.wide) = (at, line, columns, Some(wide));
            this.format = ImportFormat::Yfinance;
        } else if let Some(names) = options.columns {
            if names.len() != this.width {
                return Err(bad(&format!("its lines have {} cells, but --columns names {}", this.width, names.len())));
            }
            if is_data_row(&this.columns) {
                (this.at, this.line) = headless;
            }
            this.columns = names.to_vec();
        } else if is_data_row(&this.columns) {
            let Some((format, columns)) = options.format.of_rows(name, &this.columns) else {
                let shown: String = header.chars().take(SHOWN_CHARS).collect();
                let why = format!("its first line holds numbers ('{shown}'), so it has no header");
                let expected = format!(
                    "a header line, or --columns with the names of its {} columns, such as \
                     --columns time,open,high,low,close,volume",
                    this.width
                );
                return Err(MarketError::BadCsv { file: file.to_owned(), why, expected });
            };
            (this.at, this.line) = headless;
            (this.format, this.columns) = (format, columns);
        }
        if this.format == ImportFormat::Auto {
            this.format = match this.columns == options.columns.unwrap_or_default() {
                true => ImportFormat::Csv,
                false => ImportFormat::of_header(&this.columns),
            };
        }
        this.start = (this.at, this.line);
        this.wanted = vec![true; this.columns.len()];
        this.content = content;
        Ok(this)
    }

    /// Splits one line into the columns; returns how many rows it gave.
    fn push(&self, line: &[u8], columns: &mut [StringBuilder]) -> Result<usize, Reason> {
        if line.len() > CSV_LINE_BYTES_MAX {
            return Err(Reason::LineTooLong);
        }
        let text = std::str::from_utf8(line).map_err(|_| Reason::NotUtf8)?;
        if self.wide.is_none() && !text.contains('"') {
            // A delimiter is one byte.
            if text.bytes().filter(|&c| c == self.delimiter as u8).count() + 1 != self.width {
                return Err(Reason::CellCount);
            }
            for ((cell, column), wanted) in text.split(self.delimiter).zip(columns).zip(&self.wanted) {
                if *wanted {
                    column.append_value(cell);
                }
            }
            return Ok(1);
        }
        let mut cells = Vec::with_capacity(self.width);
        if !split_cells(text, self.delimiter, &mut cells) {
            return Err(Reason::OpenQuote);
        }
        if cells.len() != self.width {
            return Err(Reason::CellCount);
        }
        let Some(wide) = &self.wide else {
            for ((cell, column), wanted) in cells.iter().zip(columns).zip(&self.wanted) {
                if *wanted {
                    column.append_value(cell);
                }
            }
            return Ok(1);
        };
        let mut rows = 0;
        for (symbol, fields) in &wide.symbols {
            let cell = |at: &Option<usize>| at.map_or("", |i| cells[i].trim());
            // A symbol that was not traded has no row.
            if fields.iter().all(|at| cell(at).is_empty()) {
                continue;
            }
            rows += 1;
            let values = [&*cells[0], symbol].into_iter().chain(fields.iter().map(cell));
            for ((value, column), wanted) in values.zip(columns.iter_mut()).zip(&self.wanted) {
                if *wanted {
                    column.append_value(value);
                }
            }
        }
        Ok(rows)
    }
}

/// Where a line begins.
fn head_start(line: &TextLine<'_>, content: &[u8]) -> usize {
    // The line's text is a part of the content.
    line.text.as_ptr() as usize - content.as_ptr() as usize
}

impl BarSource for Delimited {
    fn columns(&self) -> &[String] {
        &self.columns
    }

    fn format(&self) -> ImportFormat {
        self.format
    }

    fn want(&mut self, wanted: Vec<bool>) {
        self.wanted = wanted;
    }

    fn next_batch(&mut self) -> Result<Option<Batch>, MarketError> {
        let mut columns: Vec<StringBuilder> = self.columns.iter().map(|_| StringBuilder::new()).collect();
        let (mut lines, mut broken) = (Vec::with_capacity(SOURCE_BATCH_ROWS), Vec::new());
        let mut ended = true;
        while let Some(line) = next_line(&self.content, self.at, self.line) {
            let (number, next) = (line.number, line.next);
            match self.push(line.text, &mut columns) {
                Ok(rows) => lines.extend(std::iter::repeat_n(number, rows)),
                Err(reason) => broken.push((number, reason)),
            }
            (self.at, self.line) = (next, number + 1);
            if lines.len() + broken.len() >= SOURCE_BATCH_ROWS {
                ended = false;
                break;
            }
        }
        if ended && lines.is_empty() && broken.is_empty() {
            return Ok(None);
        }
        let array = |(column, wanted): (&mut StringBuilder, &bool)| -> ArrayRef {
            if *wanted { Arc::new(column.finish()) } else { Arc::new(NullArray::new(lines.len())) }
        };
        let arrays: Vec<ArrayRef> = columns.iter_mut().zip(&self.wanted).map(array).collect();
        let kind = |wanted: &bool| if *wanted { DataType::Utf8 } else { DataType::Null };
        let fields = self.columns.iter().zip(&self.wanted).map(|(name, w)| Field::new(name, kind(w), true));
        let rows = RecordBatch::try_new(Arc::new(Schema::new(fields.collect::<Vec<_>>())), arrays);
        let rows = rows.map_err(|e| MarketError::Refused(e.to_string()))?;
        Ok(Some(Batch { rows, lines, broken }))
    }

    fn rewind(&mut self) {
        (self.at, self.line) = self.start;
    }

    fn decimal_comma_likely(&self) -> bool {
        self.delimiter != ','
    }

    fn raw(&self, lines: &[u64]) -> Result<Vec<String>, MarketError> {
        let mut rows = Vec::with_capacity(lines.len());
        let mut all = self.content.split(|&c| c == b'\n').zip(1u64..);
        let mut current = all.next();
        for wanted in lines {
            while current.is_some_and(|(_, number)| number < *wanted) {
                current = all.next();
            }
            let line = current.filter(|(_, number)| number == wanted).map_or(&b""[..], |(line, _)| line);
            rows.push(shown(line.strip_suffix(b"\r").unwrap_or(line)));
        }
        Ok(rows)
    }
}

/// The layout of a table whose first two lines give a field and a symbol for each column, in either order, and whose
/// third line names the first column only; with the columns of the resulting rows.
fn read_wide(first: &[String], second: &[String], third: &[String]) -> Option<(Wide, Vec<String>)> {
    let index = third.first().filter(|name| name.starts_with(|c: char| c.is_ascii_alphabetic()))?;
    let lengths = [second.len(), third.len()];
    if first.len() < 2 || lengths != [first.len(); 2] || third[1..].iter().any(|cell| !cell.is_empty()) {
        return None;
    }
    if second[1..].iter().any(|cell| cell.is_empty() || cell.parse::<f64>().is_ok()) {
        return None;
    }
    let is_field = |cell: &String| WIDE_FIELDS.contains(&cell.to_ascii_lowercase().as_str());
    let (fields, symbols) = match (first[1..].iter().all(is_field), second[1..].iter().all(is_field)) {
        (true, _) => (first, second),
        (false, true) => (second, first),
        (false, false) => return None,
    };
    let mut names: Vec<String> = Vec::new();
    let mut wide = Wide { symbols: Vec::new() };
    for name in &fields[1..] {
        if !names.contains(name) {
            names.push(name.clone());
        }
    }
    for (cell, (field, symbol)) in fields.iter().zip(symbols).enumerate().skip(1) {
        let at = match wide.symbols.iter().position(|(s, _)| s == symbol) {
            Some(at) => at,
            None => {
                wide.symbols.push((symbol.clone(), vec![None; names.len()]));
                wide.symbols.len() - 1
            }
        };
        let field = names.iter().position(|n| n == field)?;
        wide.symbols[at].1[field] = Some(cell);
    }
    let columns = [index.clone(), "Symbol".to_owned()].into_iter().chain(names).collect();
    Some((wide, columns))
}

/// Splits one line at the delimiter; a cell may be quoted, a quote in it doubled. False when a quote does not close.
fn split_cells<'l>(line: &'l str, delimiter: char, cells: &mut Vec<Cow<'l, str>>) -> bool {
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
