//! Sources of text: the start of a file, which decides its layout, and the rest of it, which is cut into pieces of whole
//! lines. How a line is split does not matter here.

use std::io::{self, Read};
use std::sync::Arc;

use memchr::{memchr, memrchr};

use super::text::{Buffers, TextLayout, TextPiece, is_blank};
use super::{BarSource, Content, Piece};
use crate::error::MarketError;
use crate::limits::{HELD_FILE_BYTES_MAX, PREAMBLE_LINES_MAX, SOURCE_BATCH_ROWS};
use crate::quarantine::shown;
use crate::reading::ImportFormat;

/// Lines that decide the layout: those before the header, the header, two more of a wide table, and the first row.
const HEAD_LINES: usize = PREAMBLE_LINES_MAX + 4;
/// Bytes that are read at once.
const READ_BYTES: usize = 1 << 20;
/// Bytes whose lines are counted together, as long as none of them is blank.
const BLOCK_BYTES: usize = 4 << 10;
/// Bytes of a file's start that are read to see what it is.
const HEAD_BYTES: usize = 16 << 10;

/// The mark that some programs write before UTF-8.
pub(super) const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

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
            let bytes = &head.bytes;
            head.ended = read.map_err(|e| content.failed_in(e, 1 + lines_in(bytes), bytes.len() as u64))? < more;
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

/// Ends of lines.
fn lines_in(text: &[u8]) -> u64 {
    memchr::memchr_iter(b'\n', text).count() as u64
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

/// A source of text.
pub(super) struct TextSource {
    content: Content,
    layout: Arc<TextLayout>,
    format: ImportFormat,
    columns: Vec<String>,
    start: RowsStart,
    /// `None` before the first piece of another attempt.
    rest: Option<Rest>,
    buffers: Arc<Buffers>,
}

/// Where the rows of a file begin.
#[derive(Clone, Copy)]
pub(super) struct RowsStart {
    /// Offset of the first row's line.
    pub at: usize,
    /// Its number.
    pub line: u64,
    /// The file begins with a byte order mark.
    pub marked: bool,
}

/// A non-empty line: its number, its text, and where the next one begins.
pub(super) struct TextLine<'a> {
    pub number: u64,
    pub text: &'a [u8],
    pub next: usize,
}

/// The next non-empty line at or after an offset, whose line has this number.
pub(super) fn next_line(content: &[u8], mut at: usize, mut number: u64) -> Option<TextLine<'_>> {
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

impl TextSource {
    /// What follows `start` in a file whose layout was found in its head; `columns` are as many as the layout wants.
    pub fn new(
        (content, head): (Content, Head),
        layout: TextLayout,
        (format, columns): (ImportFormat, Vec<String>),
        start: RowsStart,
    ) -> Self {
        let Head { mut bytes, rest: reader, ended } = head;
        bytes.drain(..start.at);
        let rest = Rest { reader, bytes, ended, line: start.line, at: start.at as u64 };
        let (layout, buffers) = (Arc::new(layout), Arc::default());
        Self { content, layout, format, columns, start, rest: Some(rest), buffers }
    }

    /// The rest of the file, from the first row where it was not begun.
    fn take_rest(&mut self) -> Result<Rest, MarketError> {
        if let Some(rest) = self.rest.take() {
            return Ok(rest);
        }
        let (at, line) = (self.start.at as u64, self.start.line);
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
        // Up to here lines are looked at one by one.
        let mut slow = if self.layout.has_a_row_in_each_line() { 0 } else { usize::MAX };
        loop {
            loop {
                if at >= slow {
                    if let Some((bytes, lines)) = whole_rows(&rest.bytes[at..], SOURCE_BATCH_ROWS - rows) {
                        (at, line, rows) = (at + bytes, line + lines as u64, rows + lines);
                        continue;
                    }
                    slow = at + BLOCK_BYTES;
                }
                let Some(end) = memchr(b'\n', &rest.bytes[at..]) else { break };
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
            let failed = |error, rest: &Rest| {
                let (lines, bytes) = (lines_in(&rest.bytes), rest.bytes.len() as u64);
                self.content.failed_in(error, rest.line + lines, rest.at + bytes)
            };
            rest.ended = read.map_err(|error| failed(error, rest))? < more;
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
        let mut behind =
            self.buffers.take().unwrap_or_else(|| Vec::with_capacity(bytes.saturating_add(2 * READ_BYTES)));
        behind.extend_from_slice(&rest.bytes[end..]);
        let bytes = std::mem::replace(&mut rest.bytes, behind);
        let mut piece = TextPiece {
            bytes,
            ends,
            line: first,
            layout: Arc::clone(&self.layout),
            marked: self.start.marked && first == 1,
            buffers: Arc::clone(&self.buffers),
        };
        piece.bytes.truncate(end);
        (rest.line, rest.at) = (next, rest.at + end as u64);
        Ok(Some(piece))
    }
}

/// Bytes and lines at the beginning of a text that begins with a line: some of its first block, fewer than `most`. `None` where some of
/// them may be blank, or there are fewer bytes or more lines.
fn whole_rows(text: &[u8], most: usize) -> Option<(usize, usize)> {
    /// Bytes of which no more than a byte counts the ends of lines.
    const COUNTED: usize = 128;
    let (block, following) = (text.get(..BLOCK_BYTES)?, text.get(1..=BLOCK_BYTES)?);
    // Every blank is at most a space.
    let (mut lines, mut blanks) = (0, text[0] <= b' ');
    for (bytes, next) in block.chunks(COUNTED).zip(following.chunks(COUNTED)) {
        let (mut ends, mut before_blanks) = (0u8, 0u8);
        for (byte, next) in bytes.iter().zip(next) {
            let end = u8::from(*byte == b'\n');
            ends += end;
            before_blanks |= end & u8::from(*next <= b' ');
        }
        lines += usize::from(ends);
        blanks |= before_blanks > 0;
    }
    let last = memrchr(b'\n', block)?;
    (!blanks && lines < most).then_some((last + 1, lines))
}

impl BarSource for TextSource {
    fn columns(&self) -> &[String] {
        &self.columns
    }

    fn format(&self) -> ImportFormat {
        self.format
    }

    fn kind(&self) -> &'static str {
        if self.layout.is_json() { "json-lines" } else { "csv" }
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
        self.layout.decimal_comma_likely()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_may_be_blank_are_not_counted_together() {
        let line = b"2024-01-02,1,2\n";
        let text = |middle: &[u8]| [&line.repeat(100), middle, &line.repeat(1_000)].concat();
        let (bytes, lines) = whole_rows(&text(b""), SOURCE_BATCH_ROWS).unwrap();
        assert!(lines * line.len() == bytes && bytes <= BLOCK_BYTES && bytes + line.len() > BLOCK_BYTES);
        assert_eq!(whole_rows(&text(b""), lines + 1), Some((bytes, lines)));
        assert_eq!(whole_rows(&text(b""), lines), None, "the end of a batch is among them");
        for blank in ["\n", "\r\n", "  \n", "\t\n", "\u{c}\n"] {
            assert_eq!(whole_rows(&text(blank.as_bytes()), SOURCE_BATCH_ROWS), None, "{blank:?}");
            let first = [blank.as_bytes(), &line.repeat(1_000)].concat();
            assert_eq!(whole_rows(&first, SOURCE_BATCH_ROWS), None, "{blank:?}");
        }
        assert_eq!(whole_rows(&line.repeat(100), SOURCE_BATCH_ROWS), None, "less than a block");
        assert_eq!(whole_rows(&[b'x'; 2 * BLOCK_BYTES], SOURCE_BATCH_ROWS), None, "no line at all");
    }
}
