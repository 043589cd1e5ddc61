//! Delimited text: CSV with commas, semicolons, tabs or vertical bars, with a header, without one, or with the two-line
//! header that pandas writes for prices of several symbols. The layout is found in the first lines.

use super::lines::{BYTE_ORDER_MARK, Head, RowsStart, TextLine, TextSource, next_line};
use super::text::{LineFormat, TextLayout, Wide, split_cells};
use super::{Content, OpenOptions};
use crate::error::MarketError;
use crate::limits::{COLUMNS_MAX, CSV_LINE_BYTES_MAX, PREAMBLE_LINES_MAX, WIDE_CELLS_MAX};
use crate::reading::{ImportFormat, is_data_row};

/// Delimiters, the most usual first.
const DELIMITERS: [char; 4] = [',', ';', '\t', '|'];
/// Characters of a line that a message shows.
const SHOWN_CHARS: usize = 200;
/// Fields of a price table with two header lines.
const WIDE_FIELDS: [&str; 9] =
    ["open", "high", "low", "close", "adj close", "volume", "dividends", "stock splits", "capital gains"];

/// Finds the layout of a file of delimited cells. `file` is its name in messages, `name` without folders.
///
/// # Errors
/// [`MarketError::BadCsv`] for what is no file of bars, [`MarketError::Limit`].
pub(super) fn open(
    file: &str,
    name: &str,
    (file_content, opened): (Content, Head),
    options: OpenOptions<'_>,
) -> Result<TextSource, MarketError> {
    let content = opened.bytes();
    let bad = |why: &str| MarketError::BadCsv {
        file: file.to_owned(),
        why: why.to_owned(),
        expected: options.format.expected(),
    };
    let marked = content.starts_with(BYTE_ORDER_MARK);
    let start = if marked { BYTE_ORDER_MARK.len() } else { 0 };
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
    let wanted = vec![true; columns.len()];
    let layout = TextLayout { line: LineFormat::Delimited { delimiter, wide: table }, width, wanted };
    let start = RowsStart { at, line, marked };
    Ok(TextSource::new((file_content, opened), layout, (format, columns), start))
}

/// Where a line begins.
fn head_start(line: &TextLine<'_>, content: &[u8]) -> usize {
    // The line's text is a part of the content.
    line.text.as_ptr() as usize - content.as_ptr() as usize
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
