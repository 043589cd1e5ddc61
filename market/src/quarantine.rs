//! The quarantine: bad rows in their original text, with file, line and reason, beside the snapshot that they are not
//! part of.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::error::MarketError;
use crate::limits::QUARANTINED_ROW_BYTES_MAX;
use crate::snapshot::write_atomically;

/// Why a row is in quarantine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Reason {
    LineTooLong,
    NotUtf8,
    OpenQuote,
    CellCount,
    NotAnObject,
    UnknownKey,
    RepeatedKey,
    BadSymbol,
    BadTime,
    EmptyCell,
    Nan,
    NotANumber,
    PriceNotPositive,
    VolumeNegative,
    HighBelowLow,
    OpenOutside,
    CloseOutside,
    DuplicateTime,
    TimeOutOfOrder,
    OtherDate,
}

impl Reason {
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::LineTooLong => "line too long",
            Self::NotUtf8 => "not UTF-8",
            Self::OpenQuote => "quote that does not close",
            Self::CellCount => "wrong number of cells",
            Self::NotAnObject => "not a JSON object",
            Self::UnknownKey => "key that the first lines lack",
            Self::RepeatedKey => "key given twice",
            Self::BadSymbol => "unusable symbol",
            Self::BadTime => "unreadable time",
            Self::EmptyCell => "empty cell",
            Self::Nan => "NaN",
            Self::NotANumber => "not a number",
            Self::PriceNotPositive => "zero or negative price",
            Self::VolumeNegative => "negative volume",
            Self::HighBelowLow => "high below low",
            Self::OpenOutside => "open outside low to high",
            Self::CloseOutside => "close outside low to high",
            Self::DuplicateTime => "duplicate time",
            Self::TimeOutOfOrder => "time out of order",
            Self::OtherDate => "not of the file's date",
        }
    }
}

/// A row in quarantine.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct BadRow {
    /// Counted from 1, the header included.
    pub line: u64,
    pub reason: Reason,
    /// The original text, truncated when very long, with invalid UTF-8 replaced.
    pub row: String,
}

/// A row as stored in the quarantine.
pub(crate) fn shown(line: &[u8]) -> String {
    String::from_utf8_lossy(&line[..line.len().min(QUARANTINED_ROW_BYTES_MAX)]).into_owned()
}
/// A bad row and the name of its file.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct QuarantinedRow {
    pub file: String,
    pub row: BadRow,
}

const HEADER: [&str; 4] = ["file", "line", "reason", "row"];

/// Folder of the rows that are no bars.
pub(crate) const QUARANTINE: &str = "quarantine";

/// Path of the rows in quarantine of a snapshot, relative to the dataset.
pub(crate) fn quarantine_path(snapshot: &str) -> String {
    format!("{QUARANTINE}/{snapshot}.csv")
}

/// Adds rows to `NAME/quarantine/<snapshot>.csv`, except those that it already contains. Returns the file's path
/// relative to the data root, `None` when there is nothing to write.
pub(crate) fn write_quarantine(
    directory: &Path,
    name: &str,
    snapshot: &str,
    rows: &[QuarantinedRow],
) -> Result<Option<String>, MarketError> {
    if rows.is_empty() {
        return Ok(None);
    }
    let relative = quarantine_path(snapshot);
    let shown = format!("{name}/{relative}");
    let mut writer = csv::Writer::from_writer(Vec::new());
    let mut present: BTreeSet<Vec<String>> = BTreeSet::new();
    let corrupt = |e: csv::Error| MarketError::Corrupt { file: shown.clone(), why: e.to_string() };
    writer.write_record(HEADER).map_err(corrupt)?;
    // A file that can no longer be read as CSV is started again.
    if let Ok(bytes) = fs::read(directory.join(&relative)) {
        for record in csv::Reader::from_reader(bytes.as_slice()).records().map_while(Result::ok) {
            writer.write_record(&record).map_err(corrupt)?;
            present.insert(record.iter().map(str::to_owned).collect());
        }
    }
    for QuarantinedRow { file, row } in rows {
        let record = vec![file.clone(), row.line.to_string(), row.reason.text().to_owned(), row.row.clone()];
        if !present.contains(&record) {
            writer.write_record(&record).map_err(corrupt)?;
        }
    }
    let bytes = writer.into_inner().map_err(|e| MarketError::io("write", &shown)(e.into_error()))?;
    write_atomically(directory, &relative, &bytes, name)?;
    Ok(Some(shown))
}
