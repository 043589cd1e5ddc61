//! One CSV of bars, read for `trawl compute`: header by names, cells strictly numbers or NA.
//!
//! It keeps the file's text and parses only the columns that are asked for, so a column of words that no expression
//! reads does no harm. It repairs nothing and leaves no row out.

use std::io::{self, BufRead as _, BufReader, Read};

use csv::StringRecord;
use flate2::bufread::MultiGzDecoder;

use crate::failure::UserMistake;

/// First bytes of a gzip file.
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];
/// Bytes read at once.
const BUFFER_BYTES: usize = 256 * 1024;
/// Headings that name the column written through, best first.
const DATE_NAMES: [&str; 2] = ["date", "i"];
/// Series of a bar that are checked in every file, whether an expression reads them or not.
const BAR_COLUMNS: [&str; 5] = ["open", "high", "low", "close", "volume"];
/// Characters of a bad cell that are shown.
const CELL_SHOWN_MAX: usize = 40;
/// Column names listed in a message.
const NAMES_SHOWN_MAX: usize = 30;

/// `--map SERIES=COLUMN`: which column a series is taken from.
#[derive(Debug, Default)]
pub struct ColumnMap(Vec<(String, String)>);

impl ColumnMap {
    /// From `close=price` and the like.
    ///
    /// # Errors
    /// A mistake that shows how an entry looks.
    pub fn parse(items: &[String]) -> Result<Self, UserMistake> {
        let mut pairs: Vec<(String, String)> = Vec::new();
        for item in items {
            let (series, column) = item.split_once('=').map_or(("", ""), |(s, c)| (s.trim(), c.trim()));
            if series.is_empty() || column.is_empty() {
                return Err(UserMistake::with_help(
                    format!("--map '{item}' does not name a series and a column"),
                    "write SERIES=COLUMN, such as --map close=price",
                ));
            }
            let series = series_name(series);
            if pairs.iter().any(|p| p.0 == series) {
                return Err(UserMistake::plain(format!("--map gives '{series}' twice")));
            }
            pairs.push((series, column.to_owned()));
        }
        Ok(Self(pairs))
    }
}

/// A heading as expressions write it and as imported columns are named: lower snake case, `Adj Close` is `adj_close`.
fn series_name(heading: &str) -> String {
    let mut name = String::new();
    for c in heading.chars() {
        match c.to_ascii_lowercase() {
            c if c.is_ascii_alphanumeric() => name.push(c),
            '_' => name.push('_'),
            _ if !name.is_empty() && !name.ends_with('_') => name.push('_'),
            _ => {}
        }
    }
    if !heading.trim_end().ends_with('_') {
        name.truncate(name.trim_end_matches('_').len());
    }
    if name.starts_with(|c: char| c.is_ascii_digit()) {
        name.insert(0, '_');
    }
    name
}

/// The file, read; every row has as many cells as the header.
#[derive(Debug)]
pub struct BarCsv {
    source: String,
    headings: StringRecord,
    date_column: usize,
    /// Series name and its column, in the file's order.
    series: Vec<(String, usize)>,
    rows: Vec<StringRecord>,
}

impl BarCsv {
    /// Reads a whole file, unpacking it when it is gzip. `source` names it in messages.
    ///
    /// # Errors
    /// A [`UserMistake`] with the line, for what is no CSV, lacks `close` or a date, or has garbage in a bar's column.
    pub fn read(input: impl Read, source: &str, map: &ColumnMap) -> anyhow::Result<Self> {
        let mut input = BufReader::with_capacity(BUFFER_BYTES, input);
        let start = input.fill_buf().map_err(|e| unreadable(source, &e))?;
        let gzip = start.starts_with(&GZIP_MAGIC);
        let input: Box<dyn Read + '_> = if gzip { Box::new(MultiGzDecoder::new(input)) } else { Box::new(input) };
        let mut reader = csv::ReaderBuilder::new().from_reader(input);
        let headings = reader.headers().map_err(|e| not_csv(source, &e))?.clone();
        if headings.iter().all(|h| h.trim().is_empty()) {
            return Err(UserMistake::with_help(
                format!("{source} has no header line"),
                "its first line names the columns, such as date,open,high,low,close,volume",
            )
            .into());
        }
        let (date_column, series) = bind(source, &headings, map)?;
        let mut rows = Vec::new();
        for record in reader.into_records() {
            rows.push(record.map_err(|e| not_csv(source, &e))?);
        }
        let csv = Self { source: source.to_owned(), headings, date_column, series, rows };
        for name in BAR_COLUMNS {
            if let Some(&(_, column)) = csv.series.iter().find(|s| s.0 == name) {
                csv.column(column)?;
            }
        }
        Ok(csv)
    }

    /// Names that expressions may use.
    pub fn series_names(&self) -> Vec<String> {
        self.series.iter().map(|s| s.0.clone()).collect()
    }

    /// Bars in the file.
    pub fn rows(&self) -> usize {
        self.rows.len()
    }

    /// The date column's heading as it came.
    pub fn date_heading(&self) -> &str {
        &self.headings[self.date_column]
    }

    /// The date column's cells as they came.
    pub fn dates(&self) -> impl Iterator<Item = &str> {
        self.rows.iter().map(|row| &row[self.date_column])
    }

    /// The named series, NaN for NA.
    ///
    /// # Errors
    /// A [`UserMistake`] with line, column and text of a cell that is no number.
    pub fn series(&self, names: &[String]) -> Result<Vec<Vec<f64>>, UserMistake> {
        let find = |name: &String| match self.series.iter().find(|s| s.0 == *name) {
            Some(&(_, column)) => self.column(column),
            None => Err(UserMistake::plain(format!("{} has no column '{name}'", self.source))),
        };
        names.iter().map(find).collect()
    }

    /// Line of the first row whose date is before the one above it, where both are dates that can be told.
    pub fn first_step_back(&self) -> Option<u64> {
        let times = self.dates().map(trawl_market::parse_time);
        let mut before = None;
        for (time, row) in times.zip(&self.rows) {
            if let (Some(before), Some(time)) = (before, time)
                && time < before
            {
                return Some(line_of(row));
            }
            before = time;
        }
        None
    }

    fn column(&self, column: usize) -> Result<Vec<f64>, UserMistake> {
        self.rows.iter().map(|row| number(&row[column]).ok_or_else(|| self.garbage(row, column))).collect()
    }

    fn garbage(&self, row: &StringRecord, column: usize) -> UserMistake {
        let cell: String = row[column].chars().take(CELL_SHOWN_MAX).collect();
        UserMistake::with_help(
            format!(
                "line {} of {}, column '{}': '{cell}' is no number",
                line_of(row),
                self.source,
                &self.headings[column]
            ),
            "mend the cell, or empty it where the value is not known",
        )
    }
}

/// A cell's number; NaN when it is empty or says NA in one of the usual ways.
fn number(cell: &str) -> Option<f64> {
    let cell = cell.trim();
    let says_na = ["", "na", "n/a", "nan", "null", "none"].iter().any(|na| cell.eq_ignore_ascii_case(na));
    if says_na { Some(f64::NAN) } else { cell.parse().ok().map(|v: f64| if v.is_nan() { f64::NAN } else { v }) }
}

fn line_of(row: &StringRecord) -> u64 {
    row.position().map_or(0, csv::Position::line)
}

/// The date's column and every series with its column.
fn bind(source: &str, headings: &StringRecord, map: &ColumnMap) -> Result<(usize, Vec<(String, usize)>), UserMistake> {
    let names: Vec<String> = headings.iter().map(series_name).collect();
    let known = || list(headings);
    let mut mapped: Vec<(String, usize)> = Vec::new();
    for (series, column) in &map.0 {
        let wanted = series_name(column);
        let Some(at) = names.iter().position(|n| *n == wanted) else {
            let near = trawl_plan::suggest(&wanted, names.iter().map(String::as_str));
            let help = near.map_or_else(|| format!("its columns are {}", known()), |n| format!("did you mean '{n}'?"));
            return Err(UserMistake::with_help(
                format!("--map {series}={column}: {source} has no column '{column}'"),
                help,
            ));
        };
        mapped.push((series.clone(), at));
    }
    for (i, name) in names.iter().enumerate() {
        if !headings[i].trim().is_empty() && names[..i].contains(name) && !mapped.iter().any(|m| m.0 == *name) {
            return Err(UserMistake::plain(format!("{source} has two columns named '{name}'")));
        }
    }
    let find = |name: &str| {
        let by_map = mapped.iter().find(|m| m.0 == name).map(|m| m.1);
        by_map.or_else(|| names.iter().position(|n| n == name))
    };
    let Some(date) = DATE_NAMES.iter().find_map(|name| find(name)) else {
        return Err(UserMistake::with_help(
            format!("{source} has no column 'date' or 'i' to name its bars by; its columns are {}", known()),
            hint(headings).unwrap_or_else(|| "name one with --map date=COLUMN".to_owned()),
        ));
    };
    if find("close").is_none() {
        return Err(UserMistake::with_help(
            format!("{source} has no column 'close'; its columns are {}", known()),
            hint(headings).unwrap_or_else(|| "name one with --map close=COLUMN".to_owned()),
        ));
    }
    let mut series: Vec<(String, usize)> =
        mapped.iter().filter(|m| !DATE_NAMES.contains(&m.0.as_str())).cloned().collect();
    for (i, name) in names.into_iter().enumerate() {
        if i != date && !headings[i].trim().is_empty() && !series.iter().any(|s| s.0 == name) {
            series.push((name, i));
        }
    }
    series.sort_by_key(|s| s.1);
    Ok((date, series))
}

/// Advice where the header is one cell because the cells are not parted by commas.
fn hint(headings: &StringRecord) -> Option<String> {
    let only = headings.get(0).filter(|_| headings.len() == 1)?;
    let parts = [(';', "semicolons"), ('\t', "tabs"), ('|', "bars")];
    let (_, what) = parts.iter().find(|(c, _)| only.contains(*c))?;
    Some(format!("its cells seem to be parted by {what}; commas are needed"))
}

fn list(headings: &StringRecord) -> String {
    let mut names: Vec<&str> = headings.iter().filter(|h| !h.trim().is_empty()).collect();
    if names.len() > NAMES_SHOWN_MAX {
        names.truncate(NAMES_SHOWN_MAX);
        names.push("...");
    }
    names.join(", ")
}

fn unreadable(source: &str, error: &io::Error) -> UserMistake {
    match error.kind() {
        io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof => {
            UserMistake::plain(format!("{source} is damaged: {error}"))
        }
        kind => UserMistake::plain(format!("cannot read {source}: {kind}")),
    }
}

fn not_csv(source: &str, error: &csv::Error) -> UserMistake {
    let line = error.position().map(csv::Position::line);
    match error.kind() {
        csv::ErrorKind::UnequalLengths { expected_len, len, .. } => UserMistake::plain(format!(
            "line {} of {source} has {len} cells where the header has {expected_len}",
            line.unwrap_or(0)
        )),
        csv::ErrorKind::Utf8 { .. } => {
            UserMistake::plain(format!("line {} of {source} is no UTF-8 text", line.unwrap_or(1)))
        }
        csv::ErrorKind::Io(e) => unreadable(source, e),
        _ => UserMistake::plain(format!("{source} is no CSV: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    fn read(text: &str, map: &[&str]) -> anyhow::Result<BarCsv> {
        let map: Vec<String> = map.iter().map(ToString::to_string).collect();
        BarCsv::read(text.as_bytes(), "a.csv", &ColumnMap::parse(&map)?)
    }

    fn refusal(text: &str, map: &[&str]) -> String {
        let error = read(text, map).unwrap_err();
        match error.downcast_ref::<UserMistake>() {
            Some(UserMistake::Plain { message, help }) => {
                format!("{message} / {}", help.as_deref().unwrap_or(""))
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn columns_are_bound_by_name_in_any_order_and_case() {
        let csv = read("\u{feff}CLOSE, Date ,Adj Close,52w high (USD)\n1,2020-01-01,3,4\n", &[]).unwrap();
        assert_eq!(csv.series_names(), ["close", "adj_close", "_52w_high_usd"]);
        assert_eq!(csv.dates().collect::<Vec<_>>(), ["2020-01-01"]);
        assert_eq!(csv.series(&["adj_close".to_owned()]).unwrap(), [[3.0]]);
    }

    #[test]
    fn a_map_renames_and_may_replace_a_column() {
        let csv = read("i,price\n1,5\n", &["close=Price"]).unwrap();
        assert_eq!(csv.series(&["close".to_owned(), "price".to_owned()]).unwrap(), [[5.0], [5.0]]);
        let csv = read("date,close,adj close\n1,5,4\n", &["close=adj close"]).unwrap();
        assert_eq!(csv.series(&["close".to_owned()]).unwrap(), [[4.0]]);
        let csv = read("when,close\nx,5\n", &["date=when"]).unwrap();
        assert_eq!(csv.date_heading(), "when");
        assert!(refusal("i,price\n1,2\n", &["close=prise"]).contains("did you mean 'price'?"));
        assert!(refusal("i,price\n1,2\n", &["close"]).contains("SERIES=COLUMN"));
        assert!(refusal("i,price\n1,2\n", &["close=price", "close=i"]).contains("twice"));
    }

    #[test]
    fn na_is_spelt_in_many_ways_and_garbage_names_its_cell() {
        let csv = read("i,close\n1,\n2,NaN\n3,NA\n4,null\n5,-nan\n6, 1.5 \n7,-inf\n8,1e3\n", &[]).unwrap();
        let close = &csv.series(&["close".to_owned()]).unwrap()[0];
        assert!(close[..5].iter().all(|v| v.is_nan()));
        assert_eq!(close[5..], [1.5, f64::NEG_INFINITY, 1000.0]);
        let text = refusal("date,close\n2020-01-01,1\n\"2020-\n01-02\",1\n2020-01-03,\"1,234\"\n", &[]);
        assert!(text.contains("line 5 of a.csv, column 'close': '1,234' is no number"), "{text}");
        assert!(refusal("i,close,volume\n1,2,many\n", &[]).contains("column 'volume': 'many'"));
    }

    #[test]
    fn words_in_a_column_matter_only_when_it_is_read() {
        let csv = read("i,close,ticker\n1,2,IBM\n", &[]).unwrap();
        assert!(csv.series(&["close".to_owned()]).is_ok());
        assert!(csv.series(&["ticker".to_owned()]).unwrap_err().to_string().contains("'IBM' is no number"));
    }

    #[test]
    fn files_that_are_no_bars_are_refused_with_the_reason() {
        for (text, expected) in [
            ("", "no header line"),
            ("date;close\n1;2\n", "semicolons"),
            ("time,close\n1,2\n", "--map date=COLUMN"),
            ("date,price\n1,2\n", "--map close=COLUMN"),
            ("date,close,Close\n1,2,3\n", "two columns named 'close'"),
            ("date,close\n1,2\n3\n", "line 3 of a.csv has 1 cells where the header has 2"),
        ] {
            let said = refusal(text, &[]);
            assert!(said.contains(expected), "{expected:?} is missing in {said:?}");
        }
        let latin = BarCsv::read(&b"date,close\n1,\xff\n"[..], "a.csv", &ColumnMap::default()).unwrap_err();
        assert!(latin.to_string().contains("line 2 of a.csv is no UTF-8"), "{latin}");
        let cut = BarCsv::read(&[0x1f, 0x8b, 8, 0][..], "a.csv", &ColumnMap::default()).unwrap_err();
        assert!(cut.to_string().contains("a.csv is damaged"), "{cut}");
    }

    #[test]
    fn gzip_is_recognised_by_its_content() {
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        packed.write_all(b"i,close\n1,2\n").unwrap();
        let csv = BarCsv::read(&packed.finish().unwrap()[..], "a", &ColumnMap::default()).unwrap();
        assert_eq!(csv.rows(), 1);
    }
}
