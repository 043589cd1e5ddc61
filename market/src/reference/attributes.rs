//! The attribute table: numbers and dates of symbols that become known on a date, such as a market capitalisation or the date of the
//! next earnings. A value holds from its date until the next one.

use std::collections::BTreeMap;

use trawl_terms::{AttributeKind, Timeframe};

use super::adjust::first_bar_after;
use super::csv_table::write_csv;
use super::{CsvTable, SymbolTable};
use crate::calendar::Calendar;
use crate::error::MarketError;
use crate::limits::{ATTRIBUTE_ROWS_MAX, ATTRIBUTES_MAX};
use crate::name::{is_column, is_symbol};
use crate::time::{DAY, DateOrder, TimeMicros, format_time, parse_written};

const EXPECTED: &str = "a header such as symbol,date,market_cap,earnings (symbol and date are required; every further column is an \
                        attribute of numbers or of dates)";
/// What follows the name of an attribute of dates, in stored tables and manifests.
const OF_DATES: &str = ":date";

/// The attributes of a table, and its rows.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Attributes {
    pub kinds: BTreeMap<String, AttributeKind>,
    /// By symbol as written and date; of each attribute that the row has its value.
    pub rows: BTreeMap<(String, TimeMicros), BTreeMap<String, f64>>,
}

/// An attribute as it is named in a manifest.
pub(crate) fn attribute_name(stored: &str) -> (&str, AttributeKind) {
    match stored.strip_suffix(OF_DATES) {
        Some(name) => (name, AttributeKind::Date),
        None => (stored, AttributeKind::Number),
    }
}

/// Checks attributes as they are named in a manifest, against each other, columns and labels.
pub(crate) fn check_attributes(stored: &[String], columns: &[String], labels: &[String]) -> Result<(), String> {
    if stored.len() > ATTRIBUTES_MAX {
        return Err(format!("{} attributes, at most {ATTRIBUTES_MAX} are supported", stored.len()));
    }
    let names: Vec<&str> = stored.iter().map(|stored| attribute_name(stored).0).collect();
    for (i, name) in names.iter().enumerate() {
        if !is_column(name) {
            return Err(format!(
                "'{name}' is not a valid attribute name: lower-case letters, digits and '_' are expected"
            ));
        }
        let taken = [("column", columns), ("label", labels)];
        if let Some((what, _)) = taken.iter().find(|(_, all)| all.iter().any(|other| other == name)) {
            return Err(format!("attribute '{name}' has the name of a {what}: rename one of them"));
        }
        if names[..i].contains(name) {
            return Err(format!("attribute '{name}' appears twice"));
        }
    }
    Ok(())
}

impl Attributes {
    /// Names with kinds, as in a manifest, sorted.
    pub(crate) fn stored_names(&self) -> Vec<String> {
        let stored = |(name, kind): (&String, &AttributeKind)| match kind {
            AttributeKind::Number => name.clone(),
            AttributeKind::Date => format!("{name}{OF_DATES}"),
        };
        self.kinds.iter().map(stored).collect()
    }

    /// Adds newer rows: of one symbol, date and attribute the new value is used.
    pub(crate) fn merge(&mut self, new: Self) -> Result<(), MarketError> {
        for (name, kind) in new.kinds {
            if *self.kinds.entry(name.clone()).or_insert(kind) != kind {
                let message = format!(
                    "the attribute '{name}' has numbers in one table and dates in the other: rename one of them"
                );
                return Err(MarketError::Refused(message));
            }
        }
        for (key, values) in new.rows {
            self.rows.entry(key).or_default().extend(values);
        }
        if self.rows.len() > ATTRIBUTE_ROWS_MAX {
            let (found, limit) = (self.rows.len() as u64, ATTRIBUTE_ROWS_MAX as u64);
            return Err(MarketError::Limit { what: "rows of attributes of a dataset".to_owned(), found, limit });
        }
        Ok(())
    }
}

/// Parses a table written by a user. A column whose cells are all numbers has numbers, one whose cells are all dates has dates.
pub(crate) fn parse_attributes(file: &str, content: &[u8]) -> Result<Attributes, MarketError> {
    let table = CsvTable::read(file, content, EXPECTED, ATTRIBUTE_ROWS_MAX)?;
    let need = |names: &[&str]| {
        table.column(names).ok_or_else(|| table.bad(1, &format!("no column '{}'", names.join("' or '"))))
    };
    let symbol = need(&["symbol", "ticker"])?;
    let date = need(&["date", "time"])?;
    let columns: Vec<usize> = (0..table.headers.len()).filter(|i| ![symbol, date].contains(i)).collect();
    if columns.is_empty() {
        return Err(table.bad(1, "no column of an attribute"));
    }
    let order = table.date_order(&[date])?;
    let mut read = Attributes::default();
    let mut kinds = Vec::with_capacity(columns.len());
    for &column in &columns {
        let kind = kind_of(&table, column)?;
        kinds.push((column, kind));
        read.kinds.insert(table.headers[column].clone(), kind.0);
    }
    check_attributes(&read.stored_names(), &[], &[]).map_err(|why| table.bad(1, &why))?;
    for (line, cells) in &table.rows {
        if !is_symbol(&cells[symbol]) {
            return Err(table.bad(*line, "its symbol is invalid"));
        }
        // The date as it is written, whatever its offset. A value of the evening would be known at that day's close.
        let known_on = table.time(*line, &cells[date], order)?.local;
        if known_on.rem_euclid(DAY) != 0 {
            let why = format!(
                "'{}' has a time of day, and a value is known from a date on: write the date alone, the next one for what was published \
                 after the close",
                cells[date]
            );
            return Err(table.bad(*line, &why));
        }
        let mut values = BTreeMap::new();
        for (column, (kind, order)) in &kinds {
            let cell = &cells[*column];
            if !cell.is_empty() {
                let value = match kind {
                    AttributeKind::Number => number(cell),
                    AttributeKind::Date => day_of(cell, *order),
                };
                let value =
                    value.ok_or_else(|| table.bad(*line, &format!("'{cell}' is neither a number nor a date")))?;
                values.insert(table.headers[*column].clone(), value);
            }
        }
        if read.rows.insert((cells[symbol].clone(), known_on), values).is_some() {
            let message = format!("{} has two rows on {}", cells[symbol], format_time(known_on));
            return Err(table.bad(*line, &message));
        }
    }
    Ok(read)
}

fn number(cell: &str) -> Option<f64> {
    cell.parse().ok().filter(|value: &f64| value.is_finite())
}

/// Days since 1970-01-01.
fn day_of(cell: &str, order: DateOrder) -> Option<f64> {
    parse_written(cell, order).map(|written| written.local.div_euclid(DAY) as f64)
}

/// What the cells of a column are; a column without any is one of numbers.
fn kind_of(table: &CsvTable, column: usize) -> Result<(AttributeKind, DateOrder), MarketError> {
    let filled =
        || table.rows.iter().map(|(line, cells)| (*line, cells[column].as_str())).filter(|(_, cell)| !cell.is_empty());
    if filled().all(|(_, cell)| number(cell).is_some()) {
        return Ok((AttributeKind::Number, DateOrder::MonthFirst));
    }
    let order = table.date_order(&[column])?;
    let is_date = |cell: &str| number(cell).is_none() && day_of(cell, order).is_some();
    if filled().all(|(_, cell)| is_date(cell)) {
        return Ok((AttributeKind::Date, order));
    }
    let is_neither = |cell: &str| number(cell).is_none() && !is_date(cell);
    let first = filled().next().map_or("", |(_, cell)| cell);
    let wrong = filled().find(|(_, cell)| is_neither(cell));
    let (line, cell) =
        wrong.or_else(|| filled().find(|(_, cell)| is_date(cell) != is_date(first))).unwrap_or((1, first));
    let name = &table.headers[column];
    let why = match is_neither(cell) {
        true => format!("'{cell}' of '{name}' is neither a number nor a date; texts are labels, which --symbols reads"),
        false => format!("'{name}' has numbers and dates: '{first}' and '{cell}'"),
    };
    Err(table.bad(line, &why))
}

/// The canonical form of a table: same content, same bytes.
pub(crate) fn encode_attributes(attributes: &Attributes) -> Result<Vec<u8>, MarketError> {
    let header = ["symbol", "date"].map(str::to_owned).into_iter().chain(attributes.stored_names()).collect();
    let shown = |name: &String, kind: &AttributeKind, values: &BTreeMap<String, f64>| match (values.get(name), kind) {
        (None, _) => String::new(),
        // Numbers in the shortest form that reads back to the same bits.
        (Some(value), AttributeKind::Number) => value.to_string(),
        (Some(value), AttributeKind::Date) => format_time((*value as i64).saturating_mul(DAY)),
    };
    let row = |((symbol, date), values): (&(String, TimeMicros), &BTreeMap<String, f64>)| {
        let cells = attributes.kinds.iter().map(|(name, kind)| shown(name, kind, values));
        [symbol.clone(), format_time(*date)].into_iter().chain(cells).collect()
    };
    write_csv(std::iter::once(header).chain(attributes.rows.iter().map(row)))
}

/// Parses a stored table.
pub(crate) fn decode_attributes(file: &str, content: &[u8]) -> Result<Attributes, MarketError> {
    let end = content.iter().position(|byte| *byte == b'\n').unwrap_or(content.len());
    let header = String::from_utf8_lossy(&content[..end]).trim().to_owned();
    let names: Vec<&str> = header.split(',').skip(2).collect();
    // A stored header has kinds, which a user's has not.
    let plain: Vec<&str> =
        ["symbol", "date"].into_iter().chain(names.iter().map(|name| attribute_name(name).0)).collect();
    let text = [plain.join(",").as_bytes(), &content[end..]].concat();
    let mut read = parse_attributes(file, &text)?;
    read.kinds = names.iter().map(|name| attribute_name(name)).map(|(name, kind)| (name.to_owned(), kind)).collect();
    Ok(read)
}

/// Attributes of a snapshot's symbols over time.
#[derive(Debug, Clone, Default)]
pub struct AttributeTable {
    kinds: BTreeMap<String, AttributeKind>,
    /// By symbol and attribute: the first bar's time at which each value is known, ascending.
    values: BTreeMap<String, BTreeMap<String, Vec<(TimeMicros, f64)>>>,
}

impl AttributeTable {
    /// Names are resolved as of the date; rows of unknown symbols are dropped.
    pub(crate) fn new(read: Attributes, symbols: &SymbolTable, calendar: Calendar, timeframe: Timeframe) -> Self {
        let mut table = Self { kinds: read.kinds, values: BTreeMap::new() };
        for ((name, date), values) in read.rows {
            let Some(symbol) = symbols.resolve(&name, date) else { continue };
            let from = first_bar_after(date, calendar, timeframe);
            let of = table.values.entry(symbol.to_owned()).or_default();
            for (attribute, value) in values {
                of.entry(attribute).or_default().push((from, value));
            }
        }
        for list in table.values.values_mut().flat_map(BTreeMap::values_mut) {
            // Of two dates that one bar covers the later one counts.
            list.sort_by_key(|(from, _)| *from);
        }
        table
    }

    /// Names and kinds, sorted by name.
    pub fn kinds(&self) -> &BTreeMap<String, AttributeKind> {
        &self.kinds
    }

    /// An attribute's values of a symbol: from when on, ascending, and the value.
    pub fn of(&self, symbol: &str, attribute: &str) -> &[(TimeMicros, f64)] {
        self.values.get(symbol).and_then(|of| of.get(attribute)).map_or(&[], Vec::as_slice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reference::Listing;

    fn parsed(text: &str) -> Attributes {
        parse_attributes("a.csv", text.as_bytes()).expect("legal")
    }

    #[test]
    fn numbers_and_dates_are_told_apart_and_read_back() {
        let read = parsed(
            "symbol,date,market_cap,earnings\nB,2024-05-02,1.5e9,\nA,2024-05-01,,13/06/2024\nA,2024-05-03,7,01/07/2024\n",
        );
        assert_eq!(read.stored_names(), ["earnings:date", "market_cap"]);
        let stored = encode_attributes(&read).expect("text");
        let text = "symbol,date,earnings:date,market_cap\nA,2024-05-01,2024-06-13,\nA,2024-05-03,2024-07-01,7\nB,2024-05-02,,1500000000\n";
        assert_eq!(String::from_utf8_lossy(&stored), text);
        assert_eq!(decode_attributes("a", &stored).expect("legal"), read);
        // A column without a value keeps its kind.
        let none = Attributes { rows: BTreeMap::new(), ..read };
        assert_eq!(decode_attributes("a", &encode_attributes(&none).expect("text")).expect("legal"), none);
    }

    #[test]
    fn a_bad_table_is_refused_with_its_line() {
        for (text, expected) in [
            ("symbol,cap\n", "line 1: no column 'date' or 'time'"),
            ("symbol,date\n", "line 1: no column of an attribute"),
            ("symbol,date,cap\nA,2024-01-02,1\nB,2024-01-02,large\n", "line 3: 'large' of 'cap' is neither"),
            ("symbol,date,cap\nA,2024-01-02,1\nB,2024-01-02,2024-05-01\n", "line 3: 'cap' has numbers and dates"),
            ("symbol,date,cap\nA,2024-01-02,inf\n", "'inf' of 'cap' is neither"),
            ("symbol,date,cap\nA,soon,1\n", "line 2: 'soon' is not a date"),
            ("symbol,date,cap\nA,2024-01-02T16:30:00,1\n", "line 2: '2024-01-02T16:30:00' has a time of day"),
            ("symbol,date,cap\nA,2024-01-02T23:00:00Z,1\n", "has a time of day"),
            ("symbol,date,cap\nA,2024-01-02,1\nA,2024-01-02,2\n", "line 3: A has two rows on 2024-01-02"),
        ] {
            let error = parse_attributes("a.csv", text.as_bytes()).expect_err("refused").to_string();
            assert!(error.starts_with("a.csv: line") && error.contains(expected), "{text:?}: {error}");
        }
    }

    #[test]
    fn midnight_is_a_date() {
        let dates = ["2024-01-02", "2024-01-02 00:00:00", "2024-01-02T00:00:00Z", "2024-01-02T00:00:00-05:00"];
        for date in dates {
            assert_eq!(
                parsed(&format!("symbol,date,a\nX,{date},1\n")),
                parsed("symbol,date,a\nX,2024-01-02,1\n"),
                "{date}"
            );
        }
    }

    #[test]
    fn newer_tables_replace_values_one_by_one() {
        let mut known = parsed("symbol,date,a,b\nX,2024-01-02,1,2\n");
        known.merge(parsed("symbol,date,b,c\nX,2024-01-02,5,6\nY,2024-01-02,,7\n")).expect("legal");
        let text = String::from_utf8(encode_attributes(&known).expect("text")).expect("text");
        assert_eq!(text, "symbol,date,a,b,c\nX,2024-01-02,1,5,6\nY,2024-01-02,,,7\n");
        let dates = parsed("symbol,date,a\nX,2024-01-02,2024-05-01\n");
        assert!(known.merge(dates).expect_err("refused").to_string().contains("numbers in one table and dates"));
    }

    #[test]
    fn a_value_is_known_from_the_trading_day_of_its_date_on() {
        let read = parsed("symbol,date,cap\nA,2024-06-01,5\nA,2024-06-04,6\nZ,2024-06-04,6\n");
        let symbols = SymbolTable::new(Listing::default(), ["A"].into_iter());
        let at = |text: &str| crate::time::parse_time(text).expect("a time");
        let daily = AttributeTable::new(read.clone(), &symbols, Calendar::XNYS, Timeframe::DAY);
        assert_eq!(daily.of("A", "cap"), [(at("2024-06-01"), 5.0), (at("2024-06-04"), 6.0)]);
        assert!(daily.of("Z", "cap").is_empty() && daily.of("A", "other").is_empty());
        // Saturday's value is known when Monday's early trading begins.
        let minutes = AttributeTable::new(read, &symbols, Calendar::XNYS, "1m".parse().expect("a timeframe"));
        assert_eq!(minutes.of("A", "cap"), [(at("2024-06-03T08:00:00Z"), 5.0), (at("2024-06-04T08:00:00Z"), 6.0)]);
    }
}
