//! Delimited text: CSV with commas, semicolons, tabs or vertical bars, with a header, without one, or with the two-line
//! header that pandas writes for prices of several symbols. Finds the layout from the first lines, and cuts the rest into
//! pieces.

use std::io::{self, Read};
use std::sync::Arc;

use memchr::memchr;

use super::text::{TextLayout, TextPiece, Wide, is_blank, split_cells};
use super::{BarSource, Content, OpenOptions, Piece};
use crate::error::MarketError;
use crate::limits::{
    COLUMNS_MAX, CSV_LINE_BYTES_MAX, HELD_FILE_BYTES_MAX, PREAMBLE_LINES_MAX, SOURCE_BATCH_ROWS, WIDE_CELLS_MAX,
};
use crate::quarantine::shown;
use crate::reading::{ImportFormat, is_data_row};

/// Delimiters, the most usual first.
const DELIMITERS: [char; 4] = [',', ';', '\t', '|'];
/// Characters of a line that a message shows.
const SHOWN_CHARS: usize = 200;
/// Fields of a price table with two header lines.
const WIDE_FIELDS: [&str; 9] =
    ["open", "high", "low", "close", "adj close", "volume", "dividends", "stock splits", "capital gains"];

/// Lines that decide the layout: those before the header, the header, two more of a wide table, and the first row.
const HEAD_LINES: usize = PREAMBLE_LINES_MAX + 4;
/// Bytes that are read at once.
const READ_BYTES: usize = 1 << 20;
/// Bytes of a file's start that are read to see what it is.
const HEAD_BYTES: usize = 16 << 10;

/// The start of a file, with the lines that decide its layout, and the rest of it.
pub(super) struct Head {
    bytes: Vec<u8>,
    rest: Box<dyn Read + Send>,
    ended: bool,
}

impl Head {
    /// Reads the start of a file: at least [`HEAD_LINES`] lines that are not blank, or all of it.
    pub fn read(content: &Content) -> Result<Self, MarketError> {
        let mut head = Self { bytes: Vec::new(), rest: content.reader()?, ended: false };
        let mut more = HEAD_BYTES;
        while !head.ended {
            let read = head.rest.by_ref().take(more as u64).read_to_end(&mut head.bytes);
            head.ended = read.map_err(|e| content.failed(e))? < more;
            let lines = head.bytes.split_inclusive(|&c| c == b'\n').filter(|line| line.ends_with(b"\n"));
            if lines.filter(|line| !is_blank(line)).nth(HEAD_LINES).is_some() || is_binary(&head.bytes) {
                break;
            }
            if head.bytes.len() as u64 > HELD_FILE_BYTES_MAX {
                let found = head.bytes.len() as u64;
                let what = "bytes of the first lines of a file".to_owned();
                return Err(MarketError::Limit { what, found, limit: HELD_FILE_BYTES_MAX });
            }
            more = head.bytes.len();
        }
        Ok(head)
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// Whether a file's start is that of typed columns, which have no lines.
fn is_binary(start: &[u8]) -> bool {
    [&b"PAR1"[..], b"ARROW1", b"\xff\xff\xff\xff"].iter().any(|magic| start.starts_with(magic))
}

/// What is left of a file, and the number of its first line.
struct Rest {
    reader: Box<dyn Read + Send>,
    /// Read, but not yet part of a piece.
    bytes: Vec<u8>,
    ended: bool,
    line: u64,
    /// Offset of the first byte that is not yet part of a piece.
    at: u64,
}

pub(super) struct Delimited {
    content: Content,
    layout: Arc<TextLayout>,
    format: ImportFormat,
    columns: Vec<String>,
    /// Offset and number of the line of the first row.
    start: (u64, u64),
    /// The file begins with a byte order mark.
    marked: bool,
    /// `None` before the first piece of another attempt.
    rest: Option<Rest>,
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
        (file_content, opened): (Content, Head),
        options: OpenOptions<'_>,
    ) -> Result<Self, MarketError> {
        let content = opened.bytes();
        let bad = |why: &str| MarketError::BadCsv {
            file: file.to_owned(),
            why: why.to_owned(),
            expected: options.format.expected(),
        };
        let start = if content.starts_with(b"\xef\xbb\xbf") { 3 } else { 0 };
        let first = next_line(content, start, 1).ok_or_else(|| bad("it is empty"))?;
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
                let Some(line) = next_line(content, at, number) else { break };
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
        let second = next_line(content, at, line);
        let third = second.as_ref().and_then(|s| next_line(content, s.next, s.number + 1));
        let wide = match (&second, &third) {
            (Some(second), Some(third)) => {
                let words = [second, third].map(|l| text(l).and_then(|t| cells(&t)).unwrap_or_default());
                read_wide(&names, &words[0], &words[1]).map(|wide| (wide, third.next, third.number + 1))
            }
            _ => None,
        };
        let (mut at, mut line) = (at, line);
        let width = names.len();
        let (mut columns, mut format) = (names, options.format);
        let mut table = None;
        let headless = (head_start(&head, content), head.number);
        let limit = if wide.is_some() { WIDE_CELLS_MAX } else { COLUMNS_MAX };
        if width > limit {
            let what = format!("columns of {file}");
            return Err(MarketError::Limit { what, found: width as u64, limit: limit as u64 });
        }
        if let Some(((wide, names), from, number)) = wide {
            (at, line, columns, table) = (from, number, names, Some(wide));
            format = ImportFormat::Yfinance;
        } else if let Some(names) = options.columns {
            if names.len() != width {
                return Err(bad(&format!("its lines have {width} cells, but --columns names {}", names.len())));
            }
            if is_data_row(&columns) {
                (at, line) = headless;
            }
            columns = names.to_vec();
        } else if is_data_row(&columns) {
            let Some((found, names)) = options.format.of_rows(name, &columns) else {
                let shown: String = header.chars().take(SHOWN_CHARS).collect();
                let why = format!("its first line holds numbers ('{shown}'), so it has no header");
                let expected = format!(
                    "a header line, or --columns with the names of its {width} columns, such as \
                     --columns time,open,high,low,close,volume"
                );
                return Err(MarketError::BadCsv { file: file.to_owned(), why, expected });
            };
            (at, line) = headless;
            (format, columns) = (found, names);
        }
        if format == ImportFormat::Auto {
            format = match columns == options.columns.unwrap_or_default() {
                true => ImportFormat::Csv,
                false => ImportFormat::of_header(&columns),
            };
        }
        let layout = TextLayout { delimiter, width, wanted: vec![true; columns.len()], wide: table };
        let Head { mut bytes, rest: reader, ended } = opened;
        bytes.drain(..at);
        let rest = Rest { reader, bytes, ended, line, at: at as u64 };
        Ok(Self {
            content: file_content,
            layout: Arc::new(layout),
            format,
            columns,
            start: (at as u64, line),
            marked: start > 0,
            rest: Some(rest),
        })
    }

    /// The rest of the file, from the first row where it was not begun.
    fn take_rest(&mut self) -> Result<Rest, MarketError> {
        if let Some(rest) = self.rest.take() {
            return Ok(rest);
        }
        let (at, line) = self.start;
        let mut reader = self.content.reader()?;
        io::copy(&mut reader.by_ref().take(at), &mut io::sink()).map_err(|e| self.content.failed(e))?;
        Ok(Rest { reader, bytes: Vec::new(), ended: false, line, at })
    }

    /// Cuts a piece of whole batches off the rest.
    fn cut(&self, rest: &mut Rest, bytes: usize) -> Result<Option<TextPiece>, MarketError> {
        let first = rest.line;
        let mut ends: Vec<(usize, u64)> = Vec::new();
        // Of the lines that were looked at: their end, the number of the next one, rows since the last end of a batch.
        let (mut at, mut line, mut rows) = (0, first, 0);
        loop {
            while let Some(end) = memchr(b'\n', &rest.bytes[at..]) {
                let text = &rest.bytes[at..at + end];
                (at, line) = (at + end + 1, line + 1);
                if !is_blank(text) {
                    rows += self.layout.rows_of(text.strip_suffix(b"\r").unwrap_or(text));
                }
                if rows >= SOURCE_BATCH_ROWS {
                    ends.push((at, line));
                    rows = 0;
                    if at >= bytes {
                        break;
                    }
                }
            }
            if ends.last().is_some_and(|(end, _)| *end >= bytes) {
                break;
            }
            if rest.ended {
                // Also of a last line without an end, which is looked at when it is split.
                at = rest.bytes.len();
                if ends.last().map_or(0, |(end, _)| *end) < at {
                    ends.push((at, line + 1));
                }
                break;
            }
            let more = READ_BYTES.max(rest.bytes.len() - at);
            let read = rest.reader.by_ref().take(more as u64).read_to_end(&mut rest.bytes);
            rest.ended = read.map_err(|e| self.content.failed(e))? < more;
            self.content.check_length(rest.at + rest.bytes.len() as u64)?;
            if (rest.bytes.len() - at) as u64 > HELD_FILE_BYTES_MAX {
                let what = "bytes of a line".to_owned();
                return Err(MarketError::Limit {
                    what,
                    found: (rest.bytes.len() - at) as u64,
                    limit: HELD_FILE_BYTES_MAX,
                });
            }
        }
        let Some(&(end, next)) = ends.last() else { return Ok(None) };
        let mut behind = Vec::with_capacity(bytes.saturating_add(2 * READ_BYTES));
        behind.extend_from_slice(&rest.bytes[end..]);
        let bytes = std::mem::replace(&mut rest.bytes, behind);
        let mut piece =
            TextPiece { bytes, ends, line: first, layout: Arc::clone(&self.layout), marked: self.marked && first == 1 };
        piece.bytes.truncate(end);
        (rest.line, rest.at) = (next, rest.at + end as u64);
        Ok(Some(piece))
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
        if let Some(layout) = Arc::get_mut(&mut self.layout) {
            layout.wanted = wanted;
        }
    }

    fn next_piece(&mut self, bytes: usize) -> Result<Option<Piece>, MarketError> {
        let mut rest = self.take_rest()?;
        let piece = self.cut(&mut rest, bytes)?;
        self.rest = Some(rest);
        Ok(piece.map(Piece::Text))
    }

    fn rewind(&mut self) {
        self.rest = None;
    }

    fn decimal_comma_likely(&self) -> bool {
        self.layout.delimiter != ','
    }

    fn raw(&self, lines: &[u64]) -> Result<Vec<String>, MarketError> {
        let mut found = Vec::with_capacity(lines.len());
        let mut wanted = lines.iter().peekable();
        let mut rest = Rest { reader: self.content.reader()?, bytes: Vec::new(), ended: false, line: 1, at: 0 };
        while wanted.peek().is_some() {
            if memchr(b'\n', &rest.bytes).is_none() && !rest.ended {
                let more = READ_BYTES.max(rest.bytes.len());
                let read = rest.reader.by_ref().take(more as u64).read_to_end(&mut rest.bytes);
                rest.ended = read.map_err(|e| self.content.failed(e))? < more;
                continue;
            }
            let mut used = 0;
            for line in rest.bytes.split_inclusive(|&c| c == b'\n') {
                let Some(text) = line.strip_suffix(b"\n").or(rest.ended.then_some(line)) else { break };
                while wanted.next_if(|number| **number == rest.line).is_some() {
                    found.push(shown(text.strip_suffix(b"\r").unwrap_or(text)));
                }
                (used, rest.line) = (used + line.len(), rest.line + 1);
            }
            rest.bytes.drain(..used);
            if rest.ended {
                break;
            }
        }
        found.resize(lines.len(), String::new());
        Ok(found)
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
