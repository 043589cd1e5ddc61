//! From the rows of a source to bars: the meaning of its columns, the notation of its numbers and times, which rows
//! cannot be bars. One reader for imports, which quarantine a bad row, and for `trawl compute`, where every row counts.
//!
//! It reads one file at a time, and knows neither datasets nor calendars: the meaning of its bars' times is decided
//! when all files of an import have been read (`import`).

mod bar_check;
mod bind;
mod budget;
mod cells;
mod date_order;
mod number;
mod path_date;
mod presets;
mod rows;
mod series;
mod spacing;
mod symbols;

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

pub(crate) use bind::CORE;
pub(crate) use budget::RowBudget;
pub(crate) use cells::NAIVE;
pub(crate) use date_order::{DateOrderKey, OrderEvidence};
pub(crate) use path_date::value_of;
pub use presets::ImportFormat;
pub(crate) use presets::is_data_row;
pub(crate) use rows::{
    FileFacts, NewIds, Numbered, Pace, Policy, RawRows, Receiver, Rows, UNREAD, read_file, read_rows,
};
pub use series::{FileSeries, SymbolSeries, read_series};
pub(crate) use spacing::{DATED_STEPS, Inferred, MANY_STEPS, SURE_STEPS, Spacing, length};
pub(crate) use symbols::SymbolIds;

use crate::error::MarketError;
use crate::limits::CLASSIFY_ROWS;
use crate::reference::SymbolTable;
use crate::time::{DateOrder, TimeMicros};
use crate::zone::Zone;

/// How to read files of bars; options that are not set are inferred from the files.
#[derive(Debug, Clone, Default)]
pub struct ReadOptions {
    /// Format of the files.
    pub format: ImportFormat,
    /// Names of the columns of files without a header.
    pub columns: Option<Vec<String>>,
    /// (meaning, header): `("close", "price")` reads the close from the column `price`.
    pub map: Vec<(String, String)>,
    /// Order of dates such as `1/4/1999`; `None` infers it from all dates of the files.
    pub date_order: Option<DateOrder>,
    /// The decimal sign of text is a comma; otherwise it is inferred from the cells of each file.
    pub decimal_comma: bool,
    /// The zone of times without one.
    pub zone: Option<Zone>,
    /// Extracts the symbol from a file's name.
    pub symbol_from: Option<SymbolPattern>,
    /// The symbol of a file that has no column of them, and whose name does not matter.
    pub symbol: Option<String>,
    /// Keys and values of the folders `KEY=VALUE` above a file, the nearest first; set by an import for each file.
    pub partitions: Vec<(String, String)>,
    /// Which symbols have the tickers of a file; set by an import whose files' names begin with dates.
    pub tickers: Option<Tickers>,
}

/// Tickers on a day, and the symbols that have them.
#[derive(Debug, Clone)]
pub struct Tickers {
    table: Arc<SymbolTable>,
    date: TimeMicros,
}

impl Tickers {
    /// Those of a table on a date, midnight in UTC.
    pub(crate) fn on(table: &Arc<SymbolTable>, date: TimeMicros) -> Self {
        Self { table: Arc::clone(table), date }
    }

    /// The symbol that has a ticker, as [`SymbolTable::symbol_of_ticker`] says.
    fn symbol<'t>(&'t self, ticker: &'t str) -> Cow<'t, str> {
        self.table.symbol_of_ticker(ticker, self.date)
    }
}

/// A regular expression whose first group is the symbol in a file's name.
#[derive(Debug, Clone)]
pub struct SymbolPattern(regex_lite::Regex);

impl FromStr for SymbolPattern {
    type Err = MarketError;

    fn from_str(text: &str) -> Result<Self, MarketError> {
        let bad = |expected: String| MarketError::BadName { text: text.to_owned(), what: "pattern", expected };
        let pattern = regex_lite::Regex::new(text).map_err(|e| bad(e.to_string()))?;
        if pattern.captures_len() < 2 {
            return Err(bad("expected a group in brackets around the symbol, such as 'hist_(.*)\\.csv'".to_owned()));
        }
        Ok(Self(pattern))
    }
}

impl SymbolPattern {
    fn find<'a>(&self, file_name: &'a str) -> Option<&'a str> {
        self.0.captures(file_name).and_then(|groups| groups.get(1)).map(|group| group.as_str())
    }
}

impl fmt::Display for SymbolPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.as_str())
    }
}

/// Endings of the names of files of bars, as they are found in a folder; each may be followed by [`GZIP_ENDING`].
pub const FILE_ENDINGS: [&str; 11] =
    [".csv", ".txt", ".tsv", ".jsonl", ".ndjson", ".parquet", ".pq", ".arrow", ".feather", ".ipc", ".zip"];
/// Ending of the name of a file that is compressed.
pub const GZIP_ENDING: &str = ".gz";

/// A file's name without the extensions of files of bars: `AAPL` of `AAPL.csv.gz`.
pub(crate) fn stem(file_name: &str) -> &str {
    let mut name = file_name;
    for ending in std::iter::once(GZIP_ENDING).chain(FILE_ENDINGS) {
        let cut = name.len().checked_sub(ending.len());
        if let Some(cut) = cut.filter(|&cut| name.get(cut..).is_some_and(|tail| tail.eq_ignore_ascii_case(ending))) {
            name = &name[..cut];
        }
    }
    name
}

/// Why prices are divided, and what to do if they should not be.
pub(crate) const LEAN_STORES: &str = "as LEAN stores them; --format csv with --columns reads them as they are";

/// Advice to name the column of symbols, which may be one of these.
pub(crate) fn map_symbol(columns: &[String]) -> String {
    match columns {
        [] => "--map symbol=COLUMN with the column of the symbols".to_owned(),
        [one] => format!("--map symbol={one} if that column names the symbols"),
        several => format!("--map symbol=COLUMN with the one of {} that names the symbols", several.join(", ")),
    }
}

/// Whether the first rows, given as (index of a symbol, time), mostly go back in time.
pub(crate) fn newest_first(rows: impl Iterator<Item = (u32, TimeMicros)>) -> bool {
    let mut last: HashMap<u32, TimeMicros> = HashMap::new();
    let (mut older, mut newer) = (0usize, 0usize);
    for (symbol, time) in rows.filter(|(_, time)| *time != UNREAD).take(CLASSIFY_ROWS) {
        if let Some(before) = last.insert(symbol, time) {
            older += usize::from(time < before);
            newer += usize::from(time > before);
        }
    }
    older > newer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_symbol_is_the_name_without_its_endings() {
        for (name, expected) in [
            ("AAPL.csv", "AAPL"),
            ("BRK.B.CSV.GZ", "BRK.B"),
            ("x", "x"),
            (".csv", ""),
            ("é.gz", "é"),
            ("a.parquet", "a"),
        ] {
            assert_eq!(stem(name), expected);
        }
    }

    #[test]
    fn a_pattern_needs_a_group() {
        let pattern: SymbolPattern = r"hist_(\w+)\.csv".parse().unwrap();
        assert_eq!(pattern.find("hist_AAPL.csv"), Some("AAPL"));
        assert_eq!(pattern.find("AAPL.csv"), None);
        assert!("hist_.*".parse::<SymbolPattern>().unwrap_err().to_string().contains("group in brackets"));
        assert!("(".parse::<SymbolPattern>().is_err());
    }
}
