//! The rows of one CSV file: good ones become bars, bad ones are kept with their reason.
//!
//! Lines are split here and not by the csv crate, because a stray quote must spoil one row and not the rest of the
//! file, and every row must be counted at its line. Knows nothing of datasets; holds the whole file in memory.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::arrow_file::SymbolBars;
use crate::csv_header::{Binding, CORE, ImportFormat, bind};
use crate::error::MarketError;
use crate::limits::{CLASSIFY_ROWS, CSV_LINE_BYTES_MAX, QUARANTINED_ROW_BYTES_MAX};
use crate::name::{Timeframe, is_symbol};
use crate::time::{DateOrder, TimeMicros, open_order, parse_written};

/// Why a row is in quarantine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Reason {
    LineTooLong,
    NotUtf8,
    OpenQuote,
    CellCount,
    BadSymbol,
    BadTime,
    EmptyCell,
    NotANumber,
    PriceNotPositive,
    VolumeNegative,
    HighBelowLow,
    OpenOutside,
    CloseOutside,
    DuplicateTime,
    TimeOutOfOrder,
}

impl Reason {
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::LineTooLong => "line too long",
            Self::NotUtf8 => "not UTF-8",
            Self::OpenQuote => "quote that does not close",
            Self::CellCount => "wrong number of cells",
            Self::BadSymbol => "unusable symbol",
            Self::BadTime => "unreadable time",
            Self::EmptyCell => "empty cell",
            Self::NotANumber => "not a number",
            Self::PriceNotPositive => "zero or negative price",
            Self::VolumeNegative => "negative volume",
            Self::HighBelowLow => "high below low",
            Self::OpenOutside => "open outside low to high",
            Self::CloseOutside => "close outside low to high",
            Self::DuplicateTime => "duplicate time",
            Self::TimeOutOfOrder => "time out of order",
        }
    }
}

/// A row in quarantine.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct BadRow {
    /// Counted from 1, the header included.
    pub line: u64,
    pub reason: Reason,
    /// As it stands, shortened when very long, what is no UTF-8 replaced.
    pub row: String,
}

impl BadRow {
    /// A good row whose bar an earlier file gave already.
    pub(crate) fn duplicate(line: u64, row: &[u8]) -> Self {
        let row = shown(row.strip_suffix(b"\r").unwrap_or(row));
        Self { line, reason: Reason::DuplicateTime, row }
    }
}

/// Bars of one symbol and the line that each came from.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct SymbolRows {
    pub bars: SymbolBars,
    pub lines: Vec<u64>,
}

/// What a file's dates say about the order of day and month.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum OrderEvidence {
    /// No date leaves it open.
    NotNeeded,
    /// It is open, and nothing tells.
    Silent,
    Told(DateOrderKey),
    /// Both orders occur.
    Mixed,
}

/// [`DateOrder`] that can be compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum DateOrderKey {
    MonthFirst,
    DayFirst,
}

/// A file, read.
#[derive(Debug, Clone)]
pub(crate) struct ParsedCsv {
    /// Core columns first, then the others by name.
    pub columns: Vec<String>,
    pub symbols: BTreeMap<Arc<str>, SymbolRows>,
    pub rows_read: u64,
    /// By line.
    pub bad: Vec<BadRow>,
    /// Headers whose columns are not kept.
    pub ignored: Vec<String>,
    pub evidence: OrderEvidence,
    /// The file had its newest bar first and was turned round.
    pub newest_first: bool,
}

/// How to read a file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CsvRules<'a> {
    pub format: ImportFormat,
    pub map: &'a [(String, String)],
    pub timeframe: Timeframe,
    /// `None` lets the file's own dates decide.
    pub order: Option<DateOrder>,
}

/// Reads `content`, the decompressed bytes of `file`; `stem` is the symbol where no column holds one.
pub(crate) fn parse_csv(file: &str, stem: &str, content: &[u8], rules: CsvRules<'_>) -> Result<ParsedCsv, MarketError> {
    let bad_file = |why: &str| MarketError::BadCsv {
        file: file.to_owned(),
        why: why.to_owned(),
        expected: rules.format.expected(),
    };
    let content = content.strip_prefix(b"\xef\xbb\xbf").unwrap_or(content);
    let mut lines = content
        .split(|&c| c == b'\n')
        .zip(1u64..)
        .map(|(line, number)| (number, line.strip_suffix(b"\r").unwrap_or(line)))
        .filter(|(_, line)| !line.trim_ascii().is_empty());
    let (_, header) = lines.next().ok_or_else(|| bad_file("it is empty"))?;
    let header = (header.len() <= CSV_LINE_BYTES_MAX).then_some(header);
    let header =
        header.and_then(|h| std::str::from_utf8(h).ok()).ok_or_else(|| bad_file("its first line is no text"))?;
    let delimiter = [',', ';', '\t'].into_iter().max_by_key(|&d| (header.matches(d).count(), d == ',')).unwrap_or(',');
    let mut cells = Vec::new();
    if !split_cells(header, delimiter, &mut cells) {
        return Err(bad_file("its first line has a quote that does not close"));
    }
    let headers: Vec<&str> = cells.iter().map(|c| &**c).collect();
    let binding = bind(file, &headers, rules.format, rules.map)?;
    if binding.symbol.is_none() && !is_symbol(stem) {
        return Err(bad_file("its name cannot be a symbol and it has no column of symbols"));
    }
    let headers: Vec<String> = headers.into_iter().map(|h| h.trim().to_owned()).collect();
    let lines: Vec<(u64, &[u8])> = lines.collect();
    let mut parser = RowParser { binding, delimiter, rules, order: DateOrder::MonthFirst, stem };
    let mut ignored = parser.drop_text_columns(&lines, &headers);
    ignored.append(&mut parser.binding.ignored);
    let evidence = parser.order_evidence(&lines);
    parser.order = rules.order.unwrap_or(match evidence {
        OrderEvidence::Told(DateOrderKey::DayFirst) => DateOrder::DayFirst,
        _ => DateOrder::MonthFirst,
    });
    let newest_first = parser.is_newest_first(&lines);
    let mut parsed = ParsedCsv {
        columns: parser.binding.values.iter().map(|(_, c)| c.clone()).collect(),
        symbols: BTreeMap::new(),
        rows_read: lines.len() as u64,
        bad: Vec::new(),
        ignored,
        evidence,
        newest_first,
    };
    if newest_first {
        parser.read_rows(lines.iter().rev(), &mut parsed);
        parsed.bad.sort_by_key(|b| b.line);
    } else {
        parser.read_rows(lines.iter(), &mut parsed);
    }
    Ok(parsed)
}

struct RowParser<'a> {
    binding: Binding,
    delimiter: char,
    rules: CsvRules<'a>,
    order: DateOrder,
    stem: &'a str,
}

impl<'a> RowParser<'a> {
    /// Further columns that hold text and no number are not kept; returns their headers.
    fn drop_text_columns(&mut self, lines: &[(u64, &[u8])], headers: &[String]) -> Vec<String> {
        let mut numbers = vec![0usize; self.binding.width];
        let mut texts = vec![0usize; self.binding.width];
        for (_, line) in lines.iter().take(CLASSIFY_ROWS) {
            let Ok(cells) = self.cells(line) else { continue };
            for (i, cell) in cells.iter().enumerate() {
                match parse_number(cell) {
                    Cell::Number(_) => numbers[i] += 1,
                    Cell::Text => texts[i] += 1,
                    Cell::Missing => {}
                }
            }
        }
        let is_text = |i: usize, name: &str| !CORE.contains(&name) && numbers[i] == 0 && texts[i] > 0;
        let dropped = self.binding.values.iter().filter(|(i, n)| is_text(*i, n));
        let dropped = dropped.map(|(i, _)| headers[*i].clone()).collect();
        self.binding.values.retain(|(i, n)| !is_text(*i, n));
        dropped
    }

    fn order_evidence(&self, lines: &[(u64, &[u8])]) -> OrderEvidence {
        let (mut month, mut day, mut open) = (false, false, false);
        for (i, (_, line)) in lines.iter().enumerate() {
            // Files whose first rows leave nothing open are not searched further.
            if i == CLASSIFY_ROWS && !open {
                break;
            }
            let Ok(cells) = self.cells(line) else { continue };
            if let Some((first, second)) = open_order(&cells[self.binding.time]) {
                open = true;
                month |= (1..=12).contains(&first) && (13..=31).contains(&second);
                day |= (13..=31).contains(&first) && (1..=12).contains(&second);
            }
        }
        match (open, month, day) {
            (false, ..) => OrderEvidence::NotNeeded,
            (true, false, false) => OrderEvidence::Silent,
            (true, true, true) => OrderEvidence::Mixed,
            (true, true, false) => OrderEvidence::Told(DateOrderKey::MonthFirst),
            (true, false, true) => OrderEvidence::Told(DateOrderKey::DayFirst),
        }
    }

    /// Whether bars mostly get older down the first rows: then the file is read from its end.
    fn is_newest_first(&self, lines: &[(u64, &[u8])]) -> bool {
        let mut last: BTreeMap<String, TimeMicros> = BTreeMap::new();
        let (mut older, mut newer) = (0usize, 0usize);
        for (_, line) in lines.iter().take(CLASSIFY_ROWS) {
            let Ok(cells) = self.cells(line) else {
                continue;
            };
            let Some(time) = self.time(&cells) else {
                continue;
            };
            let symbol = self.binding.symbol.map_or("", |i| cells[i].trim());
            if let Some(before) = last.get_mut(symbol) {
                older += usize::from(time < *before);
                newer += usize::from(time > *before);
                *before = time;
            } else {
                last.insert(symbol.to_owned(), time);
            }
        }
        older > newer
    }

    fn read_rows<'l>(&self, lines: impl Iterator<Item = &'l (u64, &'l [u8])>, parsed: &mut ParsedCsv) {
        let mut values = Vec::with_capacity(self.binding.values.len());
        for &(number, line) in lines {
            if let Err(reason) = self.read_row(number, line, &mut values, &mut parsed.symbols) {
                parsed.bad.push(BadRow { line: number, reason, row: shown(line) });
            }
        }
    }

    fn read_row(
        &self,
        number: u64,
        line: &[u8],
        values: &mut Vec<f64>,
        symbols: &mut BTreeMap<Arc<str>, SymbolRows>,
    ) -> Result<(), Reason> {
        let cells = self.cells(line)?;
        let symbol = self.binding.symbol.map_or(self.stem, |i| cells[i].trim());
        if !is_symbol(symbol) {
            return Err(Reason::BadSymbol);
        }
        let time = self.time(&cells).ok_or(Reason::BadTime)?;
        values.clear();
        for (cell, column) in &self.binding.values {
            values.push(match (parse_number(&cells[*cell]), CORE.contains(&column.as_str())) {
                (Cell::Number(value), _) => value,
                (Cell::Missing, false) => f64::NAN,
                (Cell::Missing, true) => return Err(Reason::EmptyCell),
                (Cell::Text, _) => return Err(Reason::NotANumber),
            });
        }
        self.check_bar(values)?;
        if !symbols.contains_key(symbol) {
            let columns = vec![Vec::new(); values.len()];
            let bars = SymbolBars { symbol: symbol.into(), times: Vec::new(), columns };
            symbols.insert(symbol.into(), SymbolRows { bars, lines: Vec::new() });
        }
        let Some(rows) = symbols.get_mut(symbol) else { return Err(Reason::BadSymbol) };
        if rows.bars.times.last().is_some_and(|&last| time <= last) {
            let known = rows.bars.times.binary_search(&time).is_ok();
            return Err(if known { Reason::DuplicateTime } else { Reason::TimeOutOfOrder });
        }
        rows.bars.times.push(time);
        rows.lines.push(number);
        for (column, &value) in rows.bars.columns.iter_mut().zip(values.iter()) {
            column.push(value);
        }
        Ok(())
    }

    fn check_bar(&self, values: &[f64]) -> Result<(), Reason> {
        let value = |name: &str| self.binding.values.iter().position(|(_, n)| n == name).map(|i| values[i]);
        let [open, high, low, close, volume] = CORE.map(value);
        if [open, high, low, close].into_iter().flatten().any(|price| price <= 0.0) {
            return Err(Reason::PriceNotPositive);
        }
        if volume.is_some_and(|v| v < 0.0) {
            return Err(Reason::VolumeNegative);
        }
        let (high, low) = (high.unwrap_or(f64::INFINITY), low.unwrap_or(0.0));
        if high < low {
            return Err(Reason::HighBelowLow);
        }
        let outside = |price: Option<f64>| price.is_some_and(|p| p < low || p > high);
        match (outside(open), outside(close)) {
            (true, _) => Err(Reason::OpenOutside),
            (_, true) => Err(Reason::CloseOutside),
            _ => Ok(()),
        }
    }

    fn time(&self, cells: &[Cow<'_, str>]) -> Option<TimeMicros> {
        let date = &cells[self.binding.time];
        let written = match self.binding.clock {
            Some(clock) if !cells[clock].trim().is_empty() => {
                parse_written(&format!("{} {}", date.trim(), cells[clock].trim()), self.order)?
            }
            _ => parse_written(date, self.order)?,
        };
        Some(if self.rules.timeframe.is_dated() { written.date() } else { written.utc() })
    }

    fn cells<'l>(&self, line: &'l [u8]) -> Result<Vec<Cow<'l, str>>, Reason> {
        if line.len() > CSV_LINE_BYTES_MAX {
            return Err(Reason::LineTooLong);
        }
        let text = std::str::from_utf8(line).map_err(|_| Reason::NotUtf8)?;
        let mut cells = Vec::with_capacity(self.binding.width);
        if !split_cells(text, self.delimiter, &mut cells) {
            return Err(Reason::OpenQuote);
        }
        if cells.len() == self.binding.width { Ok(cells) } else { Err(Reason::CellCount) }
    }
}

fn shown(line: &[u8]) -> String {
    String::from_utf8_lossy(&line[..line.len().min(QUARANTINED_ROW_BYTES_MAX)]).into_owned()
}

enum Cell {
    Number(f64),
    Missing,
    Text,
}

/// Finite numbers only: `nan` and `inf` in a price are garbage, and in a further column they mean nothing known.
fn parse_number(cell: &str) -> Cell {
    let cell = cell.trim();
    match cell.parse::<f64>() {
        Ok(value) if value.is_finite() => Cell::Number(value),
        Ok(value) if value.is_nan() => Cell::Missing,
        _ if ["", "null", "na", "n/a", "none", "-"].iter().any(|na| cell.eq_ignore_ascii_case(na)) => Cell::Missing,
        _ => Cell::Text,
    }
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
