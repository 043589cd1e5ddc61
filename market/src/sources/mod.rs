//! Sources of bars: from the content of an input to pieces of it, and from a piece to batches of rows, whose columns have
//! names but no meaning yet. Pieces are cut one after the other, and read side by side.
//!
//! The kind of a file is recognised by its content, never by its name alone. A new kind of source is one file that
//! implements [`BarSource`], or finds a layout of [`lines`], one line of [`open`], and the endings of its names
//! ([`FILE_ENDINGS`](crate::reading::FILE_ENDINGS)). Sources know nothing of bars; `reading` decides the meaning of a
//! column.

mod columnar;
mod content;
mod delimited;
mod held;
mod json_lines;
mod lines;
mod object;
mod text;
mod text_cells;

use std::sync::Arc;

use arrow_array::{Array, ArrayRef, RecordBatch};

use crate::error::MarketError;
use crate::limits::SOURCE_BATCH_ROWS;
use crate::quarantine::Reason;
use crate::reading::ImportFormat;

pub use content::Arrivals;
pub(crate) use content::{Content, Input, expand, read_file};
pub(crate) use text::TextPiece;
pub(crate) use text_cells::TextCells;

/// A column of a batch.
pub(crate) enum Column<'a> {
    /// Text (`Utf8`), numbers (`Float64`), whole numbers (`Int64`), timestamps or times of the day in microseconds
    /// (`Time64`); `Null` where the column is not requested or has another type.
    Array(ArrayRef),
    /// Text of the file.
    Text(TextCells<'a>),
}

impl Column<'_> {
    /// Number of rows.
    pub fn len(&self) -> usize {
        match self {
            Self::Array(array) => array.len(),
            Self::Text(texts) => texts.rows(),
        }
    }
}

/// A batch of rows of a source.
pub(crate) struct Batch<'a> {
    /// As many as the source has.
    pub columns: Vec<Column<'a>>,
    /// Line of each row in its file, counted from 1 with the header; in files without lines the rows are counted from
    /// 1.
    pub lines: Vec<u64>,
    /// Rows that could not be split, and are in no column.
    pub broken: Vec<(u64, Reason)>,
}

/// Some batches of a source, one after the other, which are read by one thread.
pub(crate) enum Piece {
    Text(TextPiece),
    /// The number of the first row, and typed columns.
    Rows(u64, RecordBatch),
}

impl Piece {
    /// Number of batches, at least one.
    pub fn batches(&self) -> usize {
        match self {
            Self::Text(text) => text.batches(),
            Self::Rows(..) => 1,
        }
    }

    /// About how many rows it has, at most a few more.
    pub fn rows_hint(&self) -> usize {
        match self {
            Self::Text(text) => text.batches() * SOURCE_BATCH_ROWS,
            Self::Rows(_, rows) => rows.num_rows(),
        }
    }

    /// A batch of the piece, given by its index.
    ///
    /// # Errors
    /// [`MarketError::Limit`] for more text than a batch can have.
    pub fn batch(&self, index: usize) -> Result<Batch<'_>, MarketError> {
        match self {
            Self::Text(text) => text.batch(index),
            Self::Rows(first, rows) => Ok(Batch {
                columns: rows.columns().iter().map(|array| Column::Array(Arc::clone(array))).collect(),
                lines: (*first..first + rows.num_rows() as u64).collect(),
                broken: Vec::new(),
            }),
        }
    }

    /// The text of lines of a batch, which ascend, for the quarantine; `None` where only [`BarSource::raw`] has it.
    pub fn raw(&self, index: usize, lines: &[u64]) -> Option<Vec<String>> {
        match self {
            Self::Text(text) => Some(text.raw(index, lines)),
            Self::Rows(..) => None,
        }
    }
}

/// A file of rows.
pub(crate) trait BarSource: Send {
    /// Names of the columns.
    fn columns(&self) -> &[String];

    /// The vendor of these columns, as far as the file shows it.
    fn format(&self) -> ImportFormat;

    /// What kind of file it is.
    fn kind(&self) -> &'static str {
        "csv"
    }

    /// Selects the columns to read, before the first piece; the others need not be read.
    fn want(&mut self, wanted: Vec<bool>);

    /// The next rows in the file's order; `None` at its end. `bytes` is how much text a piece should have.
    ///
    /// # Errors
    /// [`MarketError::BadCsv`] for a damaged file, [`MarketError::Input`], [`MarketError::Limit`].
    fn next_piece(&mut self, bytes: usize) -> Result<Option<Piece>, MarketError>;

    /// Starts again at the first row.
    fn rewind(&mut self);

    /// Whether commas do not separate cells, so that they are probably decimal signs.
    fn decimal_comma_likely(&self) -> bool {
        false
    }

    /// The rows of these lines, ascending, as text for the quarantine.
    ///
    /// # Errors
    /// Those of [`BarSource::next_piece`].
    fn raw(&self, lines: &[u64]) -> Result<Vec<String>, MarketError>;
}

/// How to open a source.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct OpenOptions<'a> {
    pub format: ImportFormat,
    /// Names of the columns of a file without a header.
    pub columns: Option<&'a [String]>,
}

/// First bytes of files that cannot be read, what they are, and what to do.
const FOREIGN: [(usize, &[u8], &str, &str); 13] = [
    (0, b"FEA1", "it is a Feather file of version 1", "Feather of version 2, which pandas and polars write today"),
    (0, b"\x89HDF", "it is an HDF5 file", "CSV, Parquet or Arrow"),
    (0, b"SQLite format 3", "it is an SQLite database", "a table written as CSV, Parquet or Arrow"),
    (8, b"DUCK", "it is a DuckDB database", "a table written with: copy TABLE to 'bars.parquet'"),
    (0, b"PK\x03\x04", "it is an archive inside an archive", "an archive of files of bars"),
    (0, b"\xd0\xcf\x11\xe0", "it is an Excel workbook", "a sheet saved as CSV"),
    (0, b"%PDF", "it is a PDF", "CSV, Parquet or Arrow"),
    (0, b"BZh", "it is compressed with bzip2", "a plain, gzip or zip file"),
    (0, b"\xfd7zXZ", "it is compressed with xz", "a plain, gzip or zip file"),
    (0, b"\x28\xb5\x2f\xfd", "it is compressed with zstd", "a plain, gzip or zip file"),
    (0, b"7z\xbc\xaf", "it is a 7z archive", "a plain, gzip or zip file"),
    (0, b"\x80\x04\x95", "it is a Python pickle", "a data frame written with to_parquet or to_csv"),
    (0, b"\x80\x05\x95", "it is a Python pickle", "a data frame written with to_parquet or to_csv"),
];

/// Opens a file. `shown` is its name in messages, `name` is its name without folders.
///
/// # Errors
/// [`MarketError::BadCsv`] for what is no file of bars, [`MarketError::Input`], [`MarketError::Limit`].
pub(crate) fn open(
    shown: &str,
    name: &str,
    content: Content,
    options: OpenOptions<'_>,
) -> Result<Box<dyn BarSource>, MarketError> {
    let refused = |why: &str, expected: &str| {
        let (file, why, expected) = (shown.to_owned(), why.to_owned(), expected.to_owned());
        MarketError::BadCsv { file, why, expected }
    };
    let head = lines::Head::read(&content)?;
    let start = head.bytes();
    if start.starts_with(b"PAR1") {
        return Ok(Box::new(columnar::Columnar::parquet(shown, content, options)?));
    }
    if start.starts_with(b"ARROW1") || start.starts_with(b"\xff\xff\xff\xff") {
        return Ok(Box::new(columnar::Columnar::arrow(shown, content, options)?));
    }
    for (at, magic, why, expected) in FOREIGN {
        if start.get(at..).is_some_and(|rest| rest.starts_with(magic)) {
            return Err(refused(why, expected));
        }
    }
    let text = start.strip_prefix(lines::BYTE_ORDER_MARK).unwrap_or(start);
    let first = text[..text.len().min(256)].trim_ascii_start().to_ascii_lowercase();
    if first.starts_with(b"[") {
        return Err(refused("it is a JSON array", json_lines::EXPECTED));
    }
    if [&b"<!doctype"[..], b"<html", b"<?xml"].iter().any(|tag| first.starts_with(tag)) {
        return Err(refused("it is a web page, perhaps an error message of the server", "a file of bars"));
    }
    if first.starts_with(b"{") {
        return Ok(Box::new(json_lines::open(shown, (content, head), options)?));
    }
    Ok(Box::new(delimited::open(shown, name, (content, head), options)?))
}
