//! A small CSV file read as a whole: header names and rows with their lines. Unlike files of bars, where a bad row is
//! quarantined, a table of reference data is accepted as a whole or refused at its first bad line.

use crate::error::MarketError;
use crate::name::column_name;
use crate::time::{DateOrder, Written, open_order, parse_written};

/// A header in lower snake case and its rows.
#[derive(Debug)]
pub(crate) struct CsvTable {
    file: String,
    expected: &'static str,
    pub headers: Vec<String>,
    /// Line (the header's is 1) and cells, as many as headers, trimmed.
    pub rows: Vec<(u64, Vec<String>)>,
}

impl CsvTable {
    /// Reads `content`; at most `rows_max` rows.
    pub(crate) fn read(
        file: &str,
        content: &[u8],
        expected: &'static str,
        rows_max: usize,
    ) -> Result<Self, MarketError> {
        let mut table = Self { file: file.to_owned(), expected, headers: Vec::new(), rows: Vec::new() };
        let content = content.strip_prefix(b"\xef\xbb\xbf").unwrap_or(content);
        let mut reader = csv::ReaderBuilder::new().trim(csv::Trim::All).from_reader(content);
        let headers = reader.headers().map_err(|e| table.unreadable(&e))?;
        let known = |h: &str| matches!(h, "symbol" | "time");
        let name = |h: &str| {
            let lower = h.to_ascii_lowercase();
            if known(&lower) { Some(lower) } else { column_name(h) }
        };
        let headers: Vec<String> = headers.iter().map(|h| name(h).unwrap_or_default()).collect();
        table.headers = headers;
        for (i, header) in table.headers.iter().enumerate() {
            if header.is_empty() {
                return Err(table.bad(1, &format!("column {} has no usable name", i + 1)));
            }
            if table.headers[..i].contains(header) {
                return Err(table.bad(1, &format!("column '{header}' appears twice")));
            }
        }
        for record in reader.records() {
            let record = record.map_err(|e| table.unreadable(&e))?;
            if table.rows.len() == rows_max {
                let (found, limit) = (rows_max as u64 + 1, rows_max as u64);
                return Err(MarketError::Limit { what: format!("rows of {file}"), found, limit });
            }
            let line = record.position().map_or(0, csv::Position::line);
            table.rows.push((line, record.iter().map(str::to_owned).collect()));
        }
        Ok(table)
    }

    /// The index of the column with one of these names.
    pub(crate) fn column(&self, names: &[&str]) -> Option<usize> {
        names.iter().find_map(|n| self.headers.iter().position(|h| h == n))
    }

    /// In which order the dates of some columns, such as `5/6/2024`, are written.
    ///
    /// # Errors
    /// A mistake at the line of a date that leaves it open while no other decides it, or that contradicts another.
    pub(crate) fn date_order(&self, columns: &[usize]) -> Result<DateOrder, MarketError> {
        let mut open: Option<(u64, &str)> = None;
        let mut decided: Option<DateOrder> = None;
        for (line, cells) in &self.rows {
            for cell in columns.iter().filter_map(|&i| cells.get(i)) {
                let order = match open_order(cell) {
                    Some((first, second)) if first > 12 && second <= 12 => DateOrder::DayFirst,
                    Some((first, second)) if first <= 12 && second > 12 => DateOrder::MonthFirst,
                    Some((first, second)) if first != second => {
                        open = open.or(Some((*line, cell)));
                        continue;
                    }
                    _ => continue,
                };
                if decided.is_some_and(|other| other != order) {
                    return Err(
                        self.bad(*line, &format!("'{cell}' has day and month in another order than dates above"))
                    );
                }
                decided = Some(order);
            }
        }
        match (decided, open) {
            (Some(order), _) => Ok(order),
            (None, None) => Ok(DateOrder::MonthFirst),
            (None, Some((line, cell))) => {
                let why = format!("the date '{cell}' does not say which number is the month: write the year first");
                Err(self.bad(line, &why))
            }
        }
    }

    /// The time in a cell as it is written, in an order of day and month.
    ///
    /// # Errors
    /// A mistake at the line.
    pub(crate) fn time(&self, line: u64, cell: &str, order: DateOrder) -> Result<Written, MarketError> {
        parse_written(cell, order).ok_or_else(|| self.bad(line, &format!("'{cell}' is not a date")))
    }

    /// A mistake at a line.
    pub(crate) fn bad(&self, line: u64, why: &str) -> MarketError {
        let (file, expected) = (self.file.clone(), self.expected.to_owned());
        MarketError::BadCsv { file, why: format!("line {line}: {why}"), expected }
    }

    fn unreadable(&self, error: &csv::Error) -> MarketError {
        let line = error.position().map_or(1, csv::Position::line);
        let why = match error.kind() {
            csv::ErrorKind::Utf8 { .. } => "it is not UTF-8".to_owned(),
            csv::ErrorKind::UnequalLengths { expected_len, len, .. } => {
                format!("{len} cells instead of {expected_len}")
            }
            _ => error.to_string(),
        };
        self.bad(line, &why)
    }
}

/// Writes a table; cells are quoted where they must be.
pub(crate) fn write_csv(rows: impl IntoIterator<Item = Vec<String>>) -> Result<Vec<u8>, MarketError> {
    let refused = |e: csv::Error| MarketError::Refused(e.to_string());
    let mut writer = csv::Writer::from_writer(Vec::new());
    for row in rows {
        writer.write_record(&row).map_err(refused)?;
    }
    writer.into_inner().map_err(|e| MarketError::Refused(e.to_string()))
}
