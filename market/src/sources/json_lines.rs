//! JSON lines: an object on each line, with the names of its values. The columns are the keys of the file's head; a line
//! with another key is no row, so that no value is lost in silence.

use super::lines::{BYTE_ORDER_MARK, Head, RowsStart, TextSource, next_line};
use super::text::{LineFormat, TextLayout};
use super::{Content, OpenOptions, object};
use crate::error::MarketError;
use crate::limits::COLUMNS_MAX;
use crate::reading::ImportFormat;

/// What a file that begins like JSON should be.
pub(super) const EXPECTED: &str =
    "an object on each line, such as {\"date\":\"2024-01-02\",\"close\":101.5}: jq -c '.[]' FILE writes an array so";

/// Finds the columns of a file of JSON lines. `file` is its name in messages.
///
/// # Errors
/// [`MarketError::BadCsv`] for other JSON, and where names of columns are given; [`MarketError::Limit`].
pub(super) fn open(
    file: &str,
    (content, head): (Content, Head),
    options: OpenOptions<'_>,
) -> Result<TextSource, MarketError> {
    let refused = |why: &str, expected: &str| {
        let (file, why, expected) = (file.to_owned(), why.to_owned(), expected.to_owned());
        Err(MarketError::BadCsv { file, why, expected })
    };
    if options.columns.is_some() {
        return refused("its lines name their values", "no --columns, which are for files without names");
    }
    let bytes = head.bytes();
    let marked = bytes.starts_with(BYTE_ORDER_MARK);
    let at = if marked { BYTE_ORDER_MARK.len() } else { 0 };
    let mut columns: Vec<String> = Vec::new();
    let mut line = next_line(bytes, at, 1);
    // The head's last line may have been cut; lines that are no objects are reported as rows.
    while let Some(found) = line {
        let keys = std::str::from_utf8(found.text).ok().and_then(object::keys).unwrap_or_default();
        for key in keys {
            if !columns.contains(&key) {
                columns.push(key);
            }
        }
        if columns.len() > COLUMNS_MAX {
            let (found, limit) = (columns.len() as u64, COLUMNS_MAX as u64);
            return Err(MarketError::Limit { what: format!("columns of {file}"), found, limit });
        }
        line = next_line(bytes, found.next, found.number + 1);
    }
    if columns.is_empty() {
        return refused("it is JSON, but its first lines are no objects with values", EXPECTED);
    }
    let format = match options.format {
        ImportFormat::Auto => ImportFormat::of_header(&columns),
        named => named,
    };
    let line = LineFormat::Object { keys: columns.clone() };
    let layout = TextLayout { line, width: columns.len(), wanted: vec![true; columns.len()] };
    Ok(TextSource::new((content, head), layout, (format, columns), RowsStart { at, line: 1, marked }))
}
