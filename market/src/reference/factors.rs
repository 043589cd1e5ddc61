//! The factor table: splits and cash dividends of symbols by ex-date.

use std::collections::{BTreeMap, btree_map::Entry};

use super::csv_table::write_csv;
use super::{CsvTable, SymbolTable};
use crate::error::MarketError;
use crate::limits::{FACTOR_ROWS_MAX, SPLIT_RATIO_MAX};
use crate::name::is_symbol;
use crate::time::{TimeMicros, format_time};

const EXPECTED: &str = "a header such as symbol,date,split,dividend (or ticker,execution_date with split_from,split_to \
                        or historical_adjustment_factor)";

/// What happens to one symbol on one ex-date.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
pub struct FactorRow {
    /// Symbol, or its ticker on that date.
    pub symbol: String,
    /// Ex-date, 00:00 UTC: the first session in the new terms.
    pub date: TimeMicros,
    /// New shares per old share: 4 for a split of four for one, 0.1 for a reverse split of one for ten; 1 for none.
    pub split: f64,
    /// Cash per share as traded before the ex-date, in the currency of the prices; 0 for none.
    pub dividend: f64,
}

impl FactorRow {
    /// Checks the numbers; the error says what is wrong.
    pub(crate) fn check(&self) -> Result<(), String> {
        if !is_symbol(&self.symbol) {
            return Err("its symbol is invalid".to_owned());
        }
        if !(1.0 / SPLIT_RATIO_MAX..=SPLIT_RATIO_MAX).contains(&self.split) {
            return Err(format!("a split of {} new shares for an old one is out of bounds", self.split));
        }
        if !(self.dividend >= 0.0 && self.dividend.is_finite()) {
            return Err(format!("a dividend of {} is out of bounds", self.dividend));
        }
        Ok(())
    }
}

/// Parses a table written by a user or a vendor; sorted by symbol and date.
pub(crate) fn parse_factors(file: &str, content: &[u8]) -> Result<Vec<FactorRow>, MarketError> {
    let table = CsvTable::read(file, content, EXPECTED, FACTOR_ROWS_MAX)?;
    let need = |names: &[&str]| {
        table.column(names).ok_or_else(|| table.bad(1, &format!("no column '{}'", names.join("' or '"))))
    };
    let symbol = need(&["symbol", "ticker"])?;
    let date = need(&["date", "ex_date", "execution_date", "ex_dividend_date"])?;
    let [split, from, to, cumulative] =
        ["split", "split_from", "split_to", "historical_adjustment_factor"].map(|n| table.column(&[n]));
    let dividend = table.column(&["dividend", "cash_amount"]);
    if split.is_none() && dividend.is_none() && cumulative.is_none() && (from.is_none() || to.is_none()) {
        return Err(table.bad(1, "no column 'split' and no column 'dividend'"));
    }
    let order = table.date_order(&[date])?;
    let mut rows: BTreeMap<(String, TimeMicros), (u64, FactorRow)> = BTreeMap::new();
    let chained = split.is_none() && (from.is_none() || to.is_none());
    for (line, cells) in &table.rows {
        let number = |column: Option<usize>| match column.map(|i| cells[i].as_str()).filter(|c| !c.is_empty()) {
            None => Ok(None),
            Some(text) => match text.parse::<f64>() {
                Ok(value) if value.is_finite() => Ok(Some(value)),
                _ => Err(table.bad(*line, &format!("'{text}' is not a number"))),
            },
        };
        // The date as it is written, whatever its offset.
        let day = crate::calendar::day(table.time(*line, &cells[date], order)?.local);
        let split = match (number(split)?, number(from)?, number(to)?) {
            (Some(split), ..) => Some(split),
            (None, Some(from), Some(to)) => Some(to / from),
            // Cumulative until all rows have been read.
            _ if chained => number(cumulative)?.map(|factor| 1.0 / factor),
            _ => None,
        };
        let dividend = number(dividend)?;
        let row = FactorRow {
            symbol: cells[symbol].clone(),
            date: day,
            split: split.unwrap_or(1.0),
            dividend: dividend.unwrap_or(0.0),
        };
        row.check().map_err(|why| table.bad(*line, &why))?;
        match rows.entry((row.symbol.clone(), day)) {
            Entry::Vacant(place) => {
                place.insert((*line, row));
            }
            // Vendors list splits and dividends separately.
            Entry::Occupied(mut known) => {
                let known = &mut known.get_mut().1;
                if (known.split != 1.0 && row.split != 1.0) || (known.dividend != 0.0 && row.dividend != 0.0) {
                    let message = format!("{} has two such rows on {}", row.symbol, format_time(day));
                    return Err(table.bad(*line, &message));
                }
                known.split *= row.split;
                known.dividend += row.dividend;
            }
        }
    }
    let mut rows: Vec<(u64, FactorRow)> = rows.into_values().collect();
    if chained && cumulative.is_some() {
        // A cumulative factor includes this split and all later ones of the symbol.
        for i in 1..rows.len() {
            let later = rows[i].1.clone();
            let (line, row) = &mut rows[i - 1];
            if row.symbol == later.symbol {
                row.split /= later.split;
                row.check().map_err(|why| table.bad(*line, &why))?;
            }
        }
    }
    Ok(rows.into_iter().map(|(_, row)| row).collect())
}

/// Merges known and new rows: of one symbol and date the new one is used, and one without split and dividend removes
/// the event. Sorted by symbol and date.
pub(crate) fn merge_factors(known: Vec<FactorRow>, new: Vec<FactorRow>) -> Result<Vec<FactorRow>, MarketError> {
    let keyed = known.into_iter().chain(new).map(|r| ((r.symbol.clone(), r.date), r));
    let merged: BTreeMap<(String, TimeMicros), FactorRow> = keyed.collect();
    let rows: Vec<FactorRow> = merged.into_values().filter(|r| r.split != 1.0 || r.dividend != 0.0).collect();
    if rows.len() > FACTOR_ROWS_MAX {
        let (found, limit) = (rows.len() as u64, FACTOR_ROWS_MAX as u64);
        return Err(MarketError::Limit { what: "splits and dividends of a dataset".to_owned(), found, limit });
    }
    Ok(rows)
}

/// The canonical form of a table.
pub(crate) fn encode_factors(rows: &[FactorRow]) -> Result<Vec<u8>, MarketError> {
    let header = ["symbol", "date", "split", "dividend"].map(str::to_owned).to_vec();
    // Numbers in the shortest form that reads back to the same bits.
    let row = |r: &FactorRow| vec![r.symbol.clone(), format_time(r.date), r.split.to_string(), r.dividend.to_string()];
    write_csv(std::iter::once(header).chain(rows.iter().map(row)))
}

/// Parses a stored table.
pub(crate) fn decode_factors(file: &str, content: &[u8]) -> Result<Vec<FactorRow>, MarketError> {
    parse_factors(file, content)
}

/// Events by symbol of a snapshot, each list by date.
#[derive(Debug, Clone, Default)]
pub(crate) struct FactorTable {
    events: BTreeMap<String, Vec<FactorRow>>,
}

impl FactorTable {
    /// Names are resolved as of the ex-date; events of unknown symbols are dropped.
    pub(crate) fn new(rows: Vec<FactorRow>, symbols: &SymbolTable) -> Self {
        let mut events: BTreeMap<String, Vec<FactorRow>> = BTreeMap::new();
        for row in rows {
            if let Some(symbol) = symbols.resolve(&row.symbol, row.date) {
                events.entry(symbol.to_owned()).or_default().push(row);
            }
        }
        for list in events.values_mut() {
            list.sort_by_key(|r| r.date);
        }
        Self { events }
    }

    pub(crate) fn of(&self, symbol: &str) -> &[FactorRow] {
        self.events.get(symbol).map_or(&[], Vec::as_slice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Vec<(String, String, f64, f64)> {
        let rows = parse_factors("f.csv", text.as_bytes()).unwrap();
        rows.into_iter().map(|r| (r.symbol, format_time(r.date), r.split, r.dividend)).collect()
    }

    fn row(symbol: &str, date: &str, split: f64, dividend: f64) -> (String, String, f64, f64) {
        (symbol.to_owned(), date.to_owned(), split, dividend)
    }

    #[test]
    fn splits_and_dividends_are_read_in_several_spellings() {
        let own = "symbol,date,split,dividend\nB,2020-01-02,,0.5\nA,2020-01-02,4,\nB,2020-01-02,2,\n";
        assert_eq!(read(own), [row("A", "2020-01-02", 4.0, 0.0), row("B", "2020-01-02", 2.0, 0.5)]);
        let parts = "ticker,execution_date,split_from,split_to\nA,2020-01-02,10,1\n";
        assert_eq!(read(parts), [row("A", "2020-01-02", 0.1, 0.0)]);
        let chain = "ticker,execution_date,historical_adjustment_factor\nA,2020-08-31,0.25\nA,2014-06-09,0.03125\nB,2021-01-04,0.5\n";
        let expected =
            [row("A", "2014-06-09", 8.0, 0.0), row("A", "2020-08-31", 4.0, 0.0), row("B", "2021-01-04", 2.0, 0.0)];
        assert_eq!(read(chain), expected);
    }

    #[test]
    fn dates_of_a_table_have_one_order_and_are_those_that_are_written() {
        let by_day = "symbol,date,split\nA,05/06/2024,2\nA,13/06/2024,3\n";
        assert_eq!(read(by_day), [row("A", "2024-06-05", 2.0, 0.0), row("A", "2024-06-13", 3.0, 0.0)]);
        let by_month = "symbol,date,split\nA,05/06/2024,2\nA,06/13/2024,3\n";
        assert_eq!(read(by_month), [row("A", "2024-05-06", 2.0, 0.0), row("A", "2024-06-13", 3.0, 0.0)]);
        let with_offset = "symbol,date,split\nA,2024-07-16 00:00:00+09:00,2\n";
        assert_eq!(read(with_offset), [row("A", "2024-07-16", 2.0, 0.0)]);
    }

    #[test]
    fn a_bad_table_is_refused_with_its_line() {
        for (text, expected) in [
            ("date,split\n", "line 1: no column 'symbol' or 'ticker'"),
            ("symbol,date\nA,2020-01-02\n", "line 1: no column 'split' and no column 'dividend'"),
            ("symbol,date,split\nA,2020-01-02,0\n", "line 2: a split of 0"),
            ("symbol,date,split\nA,2020-01-02,-2\n", "line 2: a split of -2"),
            ("symbol,date,dividend\nA,2020-01-02,-2\n", "line 2: a dividend of -2"),
            ("symbol,date,split\nA,2020-01-02,x\n", "line 2: 'x' is not a number"),
            ("symbol,date,split\nA,2020-01-02,inf\n", "line 2: 'inf' is not a number"),
            ("symbol,date,split\nA,soon,2\n", "line 2: 'soon' is not a date"),
            ("symbol,date,split\nA,05/05/2024,2\nA,05/06/2024,2\n", "line 3: the date '05/06/2024' does not say"),
            (
                "symbol,date,split\nA,05/13/2024,2\nA,14/06/2024,2\n",
                "line 3: '14/06/2024' has day and month in another",
            ),
            ("symbol,date,split\nA,2020-01-02,2\nA,2020-01-02,2\n", "line 3: A has two such rows on 2020-01-02"),
            ("ticker,execution_date,split_from,split_to\nA,2020-01-02,0,1\n", "line 2: a split of inf"),
        ] {
            let error = parse_factors("f.csv", text.as_bytes()).unwrap_err().to_string();
            assert!(error.starts_with("f.csv: line") && error.contains(expected), "{text:?}: {error}");
        }
    }

    #[test]
    fn a_new_row_replaces_the_old_one_and_an_empty_one_removes_it() {
        let known = parse_factors("f", b"symbol,date,split\nA,2020-01-02,2\nB,2020-01-02,3\n").unwrap();
        let new = parse_factors("f", b"symbol,date,split\nA,2020-01-02,4\nB,2020-01-02,1\n").unwrap();
        let merged = merge_factors(known, new).unwrap();
        assert_eq!(encode_factors(&merged).unwrap(), b"symbol,date,split,dividend\nA,2020-01-02,4,0\n");
        assert_eq!(decode_factors("f", &encode_factors(&merged).unwrap()).unwrap(), merged);
    }
}
