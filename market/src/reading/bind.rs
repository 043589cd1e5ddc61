//! Maps the names of a source's columns to their meanings. Columns are bound by name, never by position.

use std::collections::BTreeMap;

use super::ReadOptions;
use super::presets::{ImportFormat, SYMBOL_ALIASES, TIME_ALIASES, VALUE_ALIASES, role, snake};
use crate::error::MarketError;
use crate::limits::COLUMNS_MAX;
use crate::name::column_name;

/// The core columns of a bar, in the order in which they are kept.
pub(crate) const CORE: [&str; 5] = ["open", "high", "low", "close", "volume"];

/// The meaning of the cells of a row, by position.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Binding {
    /// Cells of a row.
    pub width: usize,
    pub time: usize,
    /// A second column that holds the time of day.
    pub clock: Option<usize>,
    pub symbol: Option<usize>,
    /// The column of symbols was recognised by a name that also means other things, such as `code`.
    pub symbol_by_alias: bool,
    /// Cell and column: core columns in their order, then the others by name.
    pub values: Vec<(usize, String)>,
    /// Headers without a meaning here.
    pub ignored: Vec<String>,
}

/// A header in a message.
fn shown(headers: &[&str]) -> String {
    const SHOWN_CHARS: usize = 200;
    headers.join(",").chars().take(SHOWN_CHARS).collect()
}

/// Refuses a header without all columns of the format that was asked for by name. One that is recognised has what it was recognised by.
pub(crate) fn check_columns(file: &str, headers: &[&str], options: &ReadOptions) -> Result<(), MarketError> {
    let names_symbol = options.symbol_from.is_some() || options.symbol.is_some();
    let missing = options.format.missing(headers, &options.map, names_symbol);
    if missing.is_empty() {
        return Ok(());
    }
    let columns = if missing.len() == 1 { "column" } else { "columns" };
    let names: Vec<String> = missing.iter().map(|name| format!("'{name}'")).collect();
    let why = format!("its header '{}' has no {columns} {}", shown(headers), names.join(", "));
    Err(MarketError::BadCsv { file: file.to_owned(), why, expected: options.format.expected() })
}

/// Binds a header; `map` holds (meaning, header) pairs. With `counted` a column `i` is accepted as the time.
pub(crate) fn bind(
    file: &str,
    headers: &[&str],
    format: ImportFormat,
    map: &[(String, String)],
    counted: bool,
) -> Result<Binding, MarketError> {
    let bad = |why: String| MarketError::BadCsv { file: file.to_owned(), why, expected: format.expected() };
    if headers.len() > COLUMNS_MAX {
        let what = format!("columns of {file}");
        return Err(MarketError::Limit { what, found: headers.len() as u64, limit: COLUMNS_MAX as u64 });
    }
    let listed = || shown(headers);
    let mut taken = vec![false; headers.len()];
    let mut meaning: BTreeMap<String, usize> = BTreeMap::new();
    for (target, header) in map {
        let wanted = header.trim();
        let Some(cell) = headers.iter().position(|h| h.trim().eq_ignore_ascii_case(wanted)) else {
            return Err(bad(format!("its header '{}' has no column '{wanted}', which --map names", listed())));
        };
        let target = target.trim().to_ascii_lowercase();
        let name = role(&target).map(str::to_owned).or_else(|| column_name(&target));
        let name = name.ok_or_else(|| bad(format!("'{target}' in --map is not a valid column name")))?;
        if std::mem::replace(&mut taken[cell], true) || meaning.insert(name, cell).is_some() {
            return Err(bad(format!("--map names '{target}' or '{wanted}' twice")));
        }
    }

    let mut ignored = Vec::new();
    let (mut clock, mut symbol_by_alias) = (None, false);
    let named: Vec<String> = headers.iter().map(|h| snake(h)).collect();
    let find = |taken: &[bool], name: &str| named.iter().zip(taken).position(|(n, &taken)| !taken && n == name);
    // A column of dates and one of times of the day are read together.
    if !meaning.contains_key("time") {
        let whole = find(&taken, "datetime").or_else(|| find(&taken, "timestamp"));
        let (date, time) = (find(&taken, "date"), find(&taken, "time"));
        let alias = || TIME_ALIASES.iter().find_map(|alias| find(&taken, alias));
        // pandas writes an index without a name under an empty header.
        let index = || headers.first().filter(|h| h.trim().is_empty() && !taken[0]).map(|_| 0);
        let number = || if counted { find(&taken, "i") } else { None };
        if let Some(cell) = whole.or(date).or(time).or_else(alias).or_else(number).or_else(index) {
            meaning.insert("time".to_owned(), cell);
            taken[cell] = true;
        }
        if let (None, Some(_), Some(time)) = (whole, date, time) {
            clock = Some(time);
            taken[time] = true;
        }
    }
    if !meaning.contains_key("symbol")
        && !named.iter().any(|n| role(n) == Some("symbol"))
        && let Some(cell) = SYMBOL_ALIASES.iter().find_map(|alias| find(&taken, alias))
    {
        meaning.insert("symbol".to_owned(), cell);
        taken[cell] = true;
        symbol_by_alias = true;
    }
    for (alias, name) in VALUE_ALIASES {
        let known = meaning.contains_key(name) || find(&taken, name).is_some();
        if let (false, Some(cell)) = (known, find(&taken, alias)) {
            meaning.insert(name.to_owned(), cell);
            taken[cell] = true;
        }
    }
    for (cell, name) in named.iter().enumerate() {
        if taken[cell] {
            continue;
        }
        match (role(name), column_name(headers[cell])) {
            (Some("symbol"), _) if !meaning.contains_key("symbol") => {
                meaning.insert("symbol".to_owned(), cell);
            }
            (None, Some(column)) if format.ignored().contains(&column.as_str()) => {
                ignored.push(headers[cell].trim().to_owned());
            }
            (None, Some(column)) => match meaning.get(&column) {
                // What --map says takes precedence over what the header says.
                Some(&other) if taken[other] => ignored.push(headers[cell].trim().to_owned()),
                Some(_) => return Err(bad(format!("its header has column '{column}' twice"))),
                None => {
                    meaning.insert(column, cell);
                }
            },
            _ => ignored.push(headers[cell].trim().to_owned()),
        }
    }
    let Some(time) = meaning.remove("time") else {
        return Err(bad(format!("its header '{}' has no date or time", listed())));
    };
    let symbol = meaning.remove("symbol");
    if let Some(missing) = format.required().iter().find(|&&c| !meaning.contains_key(c)) {
        return Err(bad(format!("its header '{}' has no column '{missing}'", listed())));
    }
    let mut values = Vec::with_capacity(meaning.len());
    for core in CORE {
        values.extend(meaning.remove(core).map(|cell| (cell, core.to_owned())));
    }
    values.extend(meaning.into_iter().map(|(column, cell)| (cell, column)));
    Ok(Binding { width: headers.len(), time, clock, symbol, symbol_by_alias, values, ignored })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(binding: &Binding) -> Vec<(usize, &str)> {
        binding.values.iter().map(|(i, n)| (*i, n.as_str())).collect()
    }

    #[test]
    fn columns_are_bound_by_name_in_any_order_and_case() {
        let b = bind(
            "f",
            &["VOLUME", "adj close", "Close", "Low", "High", "Open", "DATE"],
            ImportFormat::Yfinance,
            &[],
            false,
        );
        let b = b.unwrap();
        assert_eq!(b.time, 6);
        let expected = [(5, "open"), (4, "high"), (3, "low"), (2, "close"), (0, "volume"), (1, "adj_close")];
        assert_eq!(names(&b), expected);
    }

    #[test]
    fn a_map_takes_precedence_over_the_header() {
        let map = [("close".to_owned(), "Price".to_owned()), ("date".to_owned(), "day".to_owned())];
        let b =
            bind("f", &["ticker", "Day", "price", "close", "Unnamed: 0", ""], ImportFormat::Csv, &map, false).unwrap();
        assert_eq!((b.time, b.symbol), (1, Some(0)));
        assert_eq!(names(&b), [(2, "close"), (4, "unnamed_0")]);
        assert_eq!(b.ignored, ["close", ""]);
    }

    #[test]
    fn a_date_and_a_time_of_the_day_belong_together() {
        let b = bind("f", &["<DATE>", "<TIME>", "<CLOSE>"], ImportFormat::Csv, &[], false).unwrap();
        assert_eq!((b.time, b.clock), (0, Some(1)));
    }

    #[test]
    fn vendors_names_are_accepted_where_the_usual_ones_are_missing() {
        let b = bind("f", &["<TICKER>", "<PER>", "<DATE>", "<CLOSE>", "<VOL>"], ImportFormat::Stooq, &[], false);
        let b = b.unwrap();
        assert_eq!((b.symbol, b.time), (Some(0), 2));
        assert_eq!(names(&b), [(3, "close"), (4, "volume")]);
        assert_eq!(b.ignored, ["<PER>"]);
        let b = bind("f", &["vol", "volume", "t", "date", "c"], ImportFormat::Csv, &[], false).unwrap();
        assert_eq!(b.time, 3);
        assert_eq!(names(&b), [(4, "close"), (1, "volume"), (2, "t"), (0, "vol")]);
        let b = bind("f", &["", "close"], ImportFormat::Csv, &[], false).unwrap();
        assert_eq!(b.time, 0);
        assert!(bind("f", &["i", "close"], ImportFormat::Csv, &[], false).is_err());
        assert_eq!(bind("f", &["i", "close"], ImportFormat::Csv, &[], true).unwrap().time, 0);
    }

    #[test]
    fn a_header_that_cannot_be_bound_is_refused() {
        for (headers, expected) in [
            (&["a", "b"][..], "no date or time"),
            (&["date", "b"], "no column 'close'"),
            (&["date", "close", "CLOSE"], "'close' twice"),
        ] {
            let error = bind("x.csv", headers, ImportFormat::Csv, &[], false).unwrap_err().to_string();
            assert!(error.starts_with("x.csv: ") && error.contains(expected), "{error}");
        }
        let map = [("close".to_owned(), "price".to_owned())];
        assert!(
            bind("f", &["date", "close"], ImportFormat::Csv, &map, false).unwrap_err().to_string().contains("'price'")
        );
    }
}
