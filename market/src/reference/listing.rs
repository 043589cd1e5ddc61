//! The symbol table: tickers and labels (sector, industry, ...) of symbols, each row with the interval in which it
//! holds. Renames and sector changes are several rows of one symbol; reuse of a ticker is rows of several symbols.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::csv_table::write_csv;
use super::{CsvTable, alike};
use crate::error::MarketError;
use crate::limits::{LABEL_BYTES_MAX, LABELS_MAX, LISTING_ROWS_MAX};
use crate::name::{is_column, is_symbol};
use crate::time::{TimeMicros, format_time};

/// Behind a ticker that no symbol of the table has, where the symbol of that name has another one.
const UNLISTED: &str = "-unlisted";
const EXPECTED: &str = "a header such as symbol,ticker,from,to,sector (symbol is required; every further column is a \
                        label)";

/// One row: what is known about a symbol in an interval.
#[derive(Debug, Clone, PartialEq, Default, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
pub struct ListingRow {
    /// Internal symbol: the name of its bars.
    pub symbol: String,
    /// Its ticker; the symbol itself when `None`.
    pub ticker: Option<String>,
    /// First instant; unbounded when `None`.
    pub from: Option<TimeMicros>,
    /// First instant after; unbounded when `None`.
    pub to: Option<TimeMicros>,
    /// Label and value; a missing label is unknown.
    pub labels: BTreeMap<String, String>,
}

/// A checked table, rows sorted by symbol and time.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Listing {
    pub labels: Vec<String>,
    pub rows: Vec<ListingRow>,
}

impl ListingRow {
    fn name(&self) -> &str {
        self.ticker.as_deref().unwrap_or(&self.symbol)
    }

    fn start(&self) -> TimeMicros {
        self.from.unwrap_or(TimeMicros::MIN)
    }

    fn end(&self) -> TimeMicros {
        self.to.unwrap_or(TimeMicros::MAX)
    }
}

impl Listing {
    /// Checks and sorts rows; a mistake is reported with the index of its row.
    pub(crate) fn new(rows: Vec<ListingRow>) -> Result<Self, (usize, String)> {
        let labels: BTreeSet<&String> = rows.iter().flat_map(|r| r.labels.keys()).collect();
        let labels: Vec<String> = labels.into_iter().cloned().collect();
        for (i, row) in rows.iter().enumerate() {
            let wrong = |ok: bool, why: &str| if ok { Ok(()) } else { Err((i, why.to_owned())) };
            wrong(is_symbol(&row.symbol), "its symbol is invalid")?;
            wrong(row.ticker.as_deref().is_none_or(is_symbol), "its ticker is invalid")?;
            wrong(row.start() < row.end(), "its 'to' is not after its 'from'")?;
            let fits = |v: &String| !v.is_empty() && v.len() <= LABEL_BYTES_MAX && !v.chars().any(char::is_control);
            wrong(row.labels.values().all(fits), "a label's value is empty, too long or has control characters")?;
        }
        let mut order: Vec<usize> = (0..rows.len()).collect();
        // Rows that overlap are neighbours once sorted by name and start.
        let mut overlap = |key: &dyn Fn(&ListingRow) -> String, what: &str, same_symbol: bool| {
            let keys: Vec<String> = rows.iter().map(key).collect();
            order.sort_by(|&a, &b| (&keys[a], rows[a].start(), a).cmp(&(&keys[b], rows[b].start(), b)));
            let mut last: Option<usize> = None;
            for &i in &order {
                if let Some(l) = last.filter(|&l| keys[l] == keys[i]) {
                    let differ = alike(&rows[l].symbol) != alike(&rows[i].symbol);
                    if rows[i].start() < rows[l].end() && (same_symbol || differ) {
                        let (a, b) = (&rows[l], &rows[i]);
                        let since = b.from.map_or_else(|| "ever".to_owned(), format_time);
                        let message = format!(
                            "{what} '{}' has two rows from {since} on ('{}', '{}')",
                            keys[i], a.symbol, b.symbol
                        );
                        return Err((i.max(l), message));
                    }
                    if rows[i].end() <= rows[l].end() {
                        continue;
                    }
                }
                last = Some(i);
            }
            Ok(())
        };
        overlap(&|r| alike(&r.symbol), "symbol", true)?;
        overlap(&|r| alike(r.name()), "ticker", false)?;
        let mut rows = rows;
        rows.sort_by(|a, b| (&a.symbol, a.start()).cmp(&(&b.symbol, b.start())));
        Ok(Self { labels, rows })
    }
}

/// Checks label names against each other and against the columns of the dataset.
pub(crate) fn check_labels(labels: &[String], columns: &[String]) -> Result<(), String> {
    if labels.len() > LABELS_MAX {
        return Err(format!("{} labels, at most {LABELS_MAX} are supported", labels.len()));
    }
    for label in labels {
        if !is_column(label) {
            return Err(format!(
                "'{label}' is not a valid label name: lower-case letters, digits and '_' are expected"
            ));
        }
        if columns.contains(label) {
            return Err(format!("label '{label}' has the name of a column: rename one of them"));
        }
    }
    Ok(())
}

/// Parses a symbol table written by a user.
pub(crate) fn parse_listing(file: &str, content: &[u8]) -> Result<Listing, MarketError> {
    let table = CsvTable::read(file, content, EXPECTED, LISTING_ROWS_MAX)?;
    let symbol = table.column(&["symbol"]).ok_or_else(|| table.bad(1, "no column 'symbol'"))?;
    let [ticker, from, to] = ["ticker", "from", "to"].map(|n| table.column(&[n]));
    let labels: Vec<usize> =
        (0..table.headers.len()).filter(|&i| i != symbol && ![ticker, from, to].contains(&Some(i))).collect();
    let order = table.date_order(&[from, to].into_iter().flatten().collect::<Vec<usize>>())?;
    let mut rows = Vec::with_capacity(table.rows.len());
    for (line, cells) in &table.rows {
        let filled = |i: usize| Some(cells[i].as_str()).filter(|c| !c.is_empty());
        let time = |i: Option<usize>| match i.and_then(filled) {
            None => Ok(None),
            Some(text) => table.time(*line, text, order).map(|written| Some(written.utc())),
        };
        rows.push(ListingRow {
            symbol: cells[symbol].clone(),
            ticker: ticker.and_then(filled).map(str::to_owned),
            from: time(from)?,
            to: time(to)?,
            labels: labels.iter().filter_map(|&i| Some((table.headers[i].clone(), filled(i)?.to_owned()))).collect(),
        });
    }
    let lines: Vec<u64> = table.rows.iter().map(|(line, _)| *line).collect();
    let mut listing = Listing::new(rows).map_err(|(i, why)| table.bad(lines.get(i).copied().unwrap_or(0), &why))?;
    // A label without any value is still a label.
    listing.labels = labels.iter().map(|&i| table.headers[i].clone()).collect();
    listing.labels.sort();
    Ok(listing)
}

/// The canonical form of a table: same content, same bytes.
pub(crate) fn encode_listing(listing: &Listing) -> Result<Vec<u8>, MarketError> {
    let time = |t: Option<TimeMicros>| t.map_or_else(String::new, format_time);
    let header =
        ["symbol", "ticker", "from", "to"].map(str::to_owned).into_iter().chain(listing.labels.iter().cloned());
    let row = |r: &ListingRow| {
        let mut cells = vec![r.symbol.clone(), r.ticker.clone().unwrap_or_default(), time(r.from), time(r.to)];
        cells.extend(listing.labels.iter().map(|l| r.labels.get(l).cloned().unwrap_or_default()));
        cells
    };
    write_csv(std::iter::once(header.collect()).chain(listing.rows.iter().map(row)))
}

/// Parses a stored table.
pub(crate) fn decode_listing(file: &str, content: &[u8]) -> Result<Listing, MarketError> {
    parse_listing(file, content)
}

/// The one that is spelled exactly so, else the only one.
fn only<'a>(candidates: &BTreeSet<&'a str>, name: &str) -> Option<&'a str> {
    let exact = candidates.iter().find(|candidate| **candidate == name).copied();
    exact.or_else(|| if candidates.len() == 1 { candidates.first().copied() } else { None })
}

/// Names and labels of a snapshot's symbols, over time.
#[derive(Debug, Clone, Default)]
pub struct SymbolTable {
    labels: Vec<String>,
    /// The values that each label has anywhere, sorted, each once.
    values: BTreeMap<String, Vec<String>>,
    /// Sorted by symbol and start; symbols in the snapshot's spelling.
    rows: Vec<ListingRow>,
    /// Rows by ticker, normalised.
    by_ticker: HashMap<String, Vec<usize>>,
    /// Symbols of the snapshot and of the table, by their normalised spelling.
    by_symbol: HashMap<String, Vec<String>>,
}

impl SymbolTable {
    /// A table together with the symbols of a snapshot.
    pub(crate) fn new<'a>(listing: Listing, symbols: impl Iterator<Item = &'a str>) -> Self {
        let mut table = Self { labels: listing.labels, rows: listing.rows, ..Self::default() };
        for symbol in symbols {
            table.by_symbol.entry(alike(symbol)).or_default().push(symbol.to_owned());
        }
        for row in &mut table.rows {
            match table.by_symbol.get(&alike(&row.symbol)).map(Vec::as_slice) {
                Some([one]) => row.symbol.clone_from(one),
                Some(several) if several.contains(&row.symbol) => {}
                _ => table.by_symbol.entry(alike(&row.symbol)).or_default().push(row.symbol.clone()),
            }
        }
        table.rows.sort_by(|a, b| (&a.symbol, a.start()).cmp(&(&b.symbol, b.start())));
        for (i, row) in table.rows.iter().enumerate() {
            table.by_ticker.entry(alike(row.name())).or_default().push(i);
        }
        let mut values: BTreeMap<&String, BTreeSet<&String>> = BTreeMap::new();
        for (label, value) in table.rows.iter().flat_map(|row| &row.labels) {
            values.entry(label).or_default().insert(value);
        }
        let listed = values.into_iter().map(|(label, values)| (label.clone(), values.into_iter().cloned().collect()));
        table.values = listed.collect();
        table
    }

    /// A table as CSV, together with the symbols of a snapshot.
    ///
    /// # Errors
    /// [`MarketError`] for a text that is no table of symbols, with its line; `file` is what it is called there.
    pub fn parse<'a>(file: &str, content: &[u8], symbols: impl Iterator<Item = &'a str>) -> Result<Self, MarketError> {
        Ok(Self::new(parse_listing(file, content)?, symbols))
    }

    /// Names of the labels, sorted.
    pub fn labels(&self) -> &[String] {
        &self.labels
    }

    /// Rows, sorted by symbol and time.
    pub fn rows(&self) -> &[ListingRow] {
        &self.rows
    }

    /// The values that a label has anywhere, sorted, each once; empty for an unknown label.
    pub fn values(&self, label: &str) -> &[String] {
        self.values.get(label).map_or(&[], Vec::as_slice)
    }

    /// The place of a value among those of its label, from 0 on; NaN for one that it has nowhere.
    pub fn number_of(&self, label: &str, value: &str) -> f64 {
        self.values(label).binary_search_by(|known| known.as_str().cmp(value)).map_or(f64::NAN, |at| at as f64)
    }

    /// A symbol's label at a time; `None` where unknown.
    pub fn label_at(&self, symbol: &str, label: &str, time: TimeMicros) -> Option<&str> {
        self.row_at(symbol, time)?.labels.get(label).map(String::as_str)
    }

    /// A symbol's ticker at a time; `None` when no row gives one.
    pub fn ticker_at(&self, symbol: &str, time: TimeMicros) -> Option<&str> {
        self.row_at(symbol, time).map(ListingRow::name)
    }

    /// The symbols that a name refers to at some time of a span, both inclusive.
    pub fn meanings(&self, name: &str, (from, until): (TimeMicros, TimeMicros)) -> BTreeSet<&str> {
        let rows = self.by_ticker.get(&alike(name)).map_or(&[][..], Vec::as_slice);
        let changes = rows.iter().flat_map(|&i| [self.rows[i].start(), self.rows[i].end()]);
        let times = changes.filter(|t| *t > from && *t <= until).chain([from]);
        times.filter_map(|t| self.resolve(name, t)).collect()
    }

    /// The symbol that a name refers to at a time: the one with this ticker then, else the one with this internal
    /// symbol. Spellings of share classes are equivalent (`BRK-B`, `BRK/B`, `BRK.B`), an exact match takes precedence.
    /// `None` for a name that refers to nothing then, or to several symbols.
    pub fn resolve(&self, name: &str, time: TimeMicros) -> Option<&str> {
        let by_ticker = self.holders(name, time);
        let candidates = match by_ticker.len() {
            0 => self.by_symbol.get(&alike(name))?.iter().map(String::as_str).collect(),
            _ => by_ticker,
        };
        only(&candidates, name)
    }

    /// The symbol that has a ticker at a time by a row of the table; `None` where no row gives it to one symbol.
    pub fn holder(&self, ticker: &str, time: TimeMicros) -> Option<&str> {
        only(&self.holders(ticker, time), ticker)
    }

    fn holders(&self, ticker: &str, time: TimeMicros) -> BTreeSet<&str> {
        let rows = self.by_ticker.get(&alike(ticker)).map_or(&[][..], Vec::as_slice);
        let holds = |i: &&usize| (self.rows[**i].start()..self.rows[**i].end()).contains(&time);
        rows.iter().filter(holds).map(|&i| self.rows[i].symbol.as_str()).collect()
    }

    /// The symbol of a bar of a ticker at a time: what [`SymbolTable::resolve`] says, else the ticker. Where the ticker is nobody's then,
    /// and the symbol of its name has another one (META, which was FB, while META was a fund of others), it is neither: its bars are
    /// those of a symbol of their own, `META-unlisted`.
    pub fn symbol_of_ticker<'t>(&'t self, ticker: &'t str, time: TimeMicros) -> Cow<'t, str> {
        let symbol = self.resolve(ticker, time).unwrap_or(ticker);
        match self.row_at(symbol, time) {
            Some(row) if alike(row.name()) != alike(ticker) => Cow::Owned(format!("{ticker}{UNLISTED}")),
            _ => Cow::Borrowed(symbol),
        }
    }

    /// The times at which it may change whose ticker this is, ascending.
    pub fn changes(&self, ticker: &str) -> BTreeSet<TimeMicros> {
        let key = alike(ticker);
        let by_ticker = self.by_ticker.get(&key).map_or(&[][..], Vec::as_slice).iter().map(|&i| &self.rows[i]);
        // The symbol of its name may have another ticker.
        let by_symbol = self.by_symbol.get(&key).map_or(&[][..], Vec::as_slice);
        let named = by_symbol.iter().flat_map(|symbol| {
            let first = self.rows.partition_point(|row| row.symbol < *symbol);
            self.rows[first..].iter().take_while(move |row| row.symbol == *symbol)
        });
        by_ticker.chain(named).flat_map(|row| [row.from, row.to]).flatten().collect()
    }

    fn row_at(&self, symbol: &str, time: TimeMicros) -> Option<&ListingRow> {
        let after = self.rows.partition_point(|r| (r.symbol.as_str(), r.start()) <= (symbol, time));
        let row = self.rows.get(after.checked_sub(1)?)?;
        (row.symbol == symbol && time < row.end()).then_some(row)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::parse_time;

    const FILE: &str = "symbol,ticker,from,to,Sector,industry\n\
                        META,FB,2012-05-18,2022-06-09,Technology,Social\n\
                        META,META,2022-06-09,,Communication,Social\n\
                        XFB,FB,2023-01-01,,Funds,\n\
                        BRK-B,,,,Financials,Insurance\n";

    fn table() -> SymbolTable {
        let symbols = ["META", "BRK.B", "IBM"];
        SymbolTable::new(parse_listing("s.csv", FILE.as_bytes()).unwrap(), symbols.into_iter())
    }

    fn at(text: &str) -> TimeMicros {
        parse_time(text).unwrap()
    }

    #[test]
    fn a_rename_and_a_reused_ticker_are_resolved_as_of_a_time() {
        let t = table();
        for (name, time, symbol) in [
            ("FB", "2022-06-08", Some("META")),
            ("FB", "2022-06-09", None),
            ("FB", "2024-01-02", Some("XFB")),
            ("META", "2024-01-02", Some("META")),
            // Not a ticker at that time, but an internal symbol at any time.
            ("META", "2015-01-02", Some("META")),
            ("IBM", "2015-01-02", Some("IBM")),
            ("NONE", "2015-01-02", None),
        ] {
            assert_eq!(t.resolve(name, at(time)), symbol, "{name} {time}");
        }
        assert_eq!(t.ticker_at("META", at("2015-01-02")), Some("FB"));
        assert_eq!((t.holder("FB", at("2015-01-02")), t.holder("META", at("2015-01-02"))), (Some("META"), None));
    }

    #[test]
    fn bars_of_a_ticker_that_is_nobodys_are_not_those_of_the_symbol_of_its_name() {
        let t = table();
        for (ticker, time, symbol) in [
            ("FB", "2022-06-08", "META"),
            ("META", "2022-06-08", "META-unlisted"),
            ("META", "2022-06-09", "META"),
            // The table says nothing about that time.
            ("META", "2010-01-04", "META"),
            ("FB", "2022-06-09", "FB"),
            ("BRK/B", "2022-06-09", "BRK.B"),
            ("NONE", "2022-06-09", "NONE"),
        ] {
            assert_eq!(t.symbol_of_ticker(ticker, at(time)), symbol, "{ticker} {time}");
        }
        let parsed = SymbolTable::parse("s.csv", FILE.as_bytes(), ["META", "BRK.B", "IBM"].into_iter()).unwrap();
        assert_eq!((parsed.rows(), parsed.labels()), (t.rows(), t.labels()));
        assert!(SymbolTable::parse("s.csv", b"x\n", std::iter::empty()).is_err());
    }

    #[test]
    fn spellings_of_share_classes_are_equivalent() {
        let t = table();
        for name in ["BRK.B", "BRK-B", "BRK/B", "BRK B"] {
            assert_eq!(t.resolve(name, 0), Some("BRK.B"), "{name}");
        }
        assert_eq!(t.label_at("BRK.B", "sector", 0), Some("Financials"));
    }

    #[test]
    fn labels_hold_in_their_interval() {
        let t = table();
        assert_eq!(t.labels(), ["industry", "sector"]);
        assert_eq!(t.values("sector"), ["Communication", "Financials", "Funds", "Technology"]);
        assert_eq!(t.label_at("META", "sector", at("2022-06-08")), Some("Technology"));
        assert_eq!(t.label_at("META", "sector", at("2022-06-09")), Some("Communication"));
        assert_eq!(t.label_at("META", "sector", at("2012-05-17")), None);
        assert_eq!(t.label_at("XFB", "industry", at("2024-01-01")), None);
        assert_eq!(t.label_at("IBM", "sector", 0), None);
    }

    #[test]
    fn what_is_written_is_read_back_in_any_order() {
        let listing = parse_listing("s.csv", FILE.as_bytes()).unwrap();
        let bytes = encode_listing(&listing).unwrap();
        assert_eq!(decode_listing("x", &bytes).unwrap(), listing);
        let mut lines: Vec<&str> = FILE.lines().collect();
        lines[1..].reverse();
        assert_eq!(encode_listing(&parse_listing("s", lines.join("\n").as_bytes()).unwrap()).unwrap(), bytes);
    }

    #[test]
    fn a_bad_table_is_refused_with_its_line() {
        for (text, expected) in [
            ("", "no column 'symbol'"),
            ("ticker\nA\n", "no column 'symbol'"),
            (
                "symbol,from,to\nA,2020-01-01,2021-01-01\nB,,\nA,2020-06-01,\n",
                "line 4: symbol 'A' has two rows from 2020-06-01 on",
            ),
            ("symbol,ticker\nA,X\nB,X\n", "line 3: ticker 'X' has two rows"),
            ("symbol\nBRK.B\nBRK-B\n", "line 3: symbol 'BRK.B' has two rows"),
            ("symbol,from,to\nA,2021-01-01,2020-01-01\n", "line 2: its 'to' is not after"),
            ("symbol,from\nA,yesterday\n", "line 2: 'yesterday' is not a date"),
            ("symbol,sector\nA\n", "line 2: 1 cells instead of 2"),
            ("symbol,sector,SECTOR\nA,b,c\n", "line 1: column 'sector' appears twice"),
            ("symbol\n\" \"\n", "line 2: its symbol is invalid"),
        ] {
            let error = parse_listing("s.csv", text.as_bytes()).unwrap_err().to_string();
            assert!(error.starts_with("s.csv: line") && error.contains(expected), "{text:?}: {error}");
        }
        assert!(check_labels(&["sector".to_owned()], &["close".to_owned()]).is_ok());
        assert!(check_labels(&["close".to_owned()], &["close".to_owned()]).unwrap_err().contains("name of a column"));
        assert!(parse_listing("s", b"symbol,\xff\n").is_err());
    }
}
